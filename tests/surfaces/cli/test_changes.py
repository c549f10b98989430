"""``trails changes``: with a project, beside a server and on one; following survives both."""

import json

from tests.worlds.processes import Process, Web


def test_changes_are_listed(shell):
    """Each commit with its nodes; a page says how to go on, and a type is selected."""
    text = shell.out("changes")
    assert "First load" in text
    assert "+ Task/t1" in text
    start = shell.json("changes")["since"]
    commit = shell.update("Task/t1", title="[red]Read[/] more")
    page = shell.json("changes", "--since", start)
    assert [each["commit"] for each in page["events"]] == [commit]
    assert page["events"][0]["changes"] == [{"handle": "Task/t1", "change": "updated"}]
    assert shell.json("changes", "--since", start, "--type", "Person")["events"] == []
    assert shell.out("changes", "--since", commit) == "No changes.\n"
    more = shell.out("changes", "--limit", "1")
    assert f"--since {shell.json('changes', '--limit', '1')['since']}" in more
    assert "there is no type 'Tusk'" in shell.error("changes", "--type", "Tusk")
    assert "there is no commit" in shell.error("changes", "--since", "f" * 32)


def test_following_survives_servers_that_come_and_go(shell):
    """Every commit is printed once: without a server, beside one, and after it was killed."""
    folder = shell.project
    start = shell.json("changes")["since"]
    commits = []

    def printed(process):
        return json.loads(process.line())["commit"]

    with Process("changes", "--follow", "--json", "--since", start, "-p", folder) as following:
        commits.append(shell.update("Task/t1", title="Alone"))
        assert printed(following) == commits[-1]
        with Web(folder) as web:
            remote = Process("changes", "--follow", "--json", "--since", start, "--server", web.url)
            with remote:
                commits.append(shell.update("Task/t1", title="Beside"))
                assert printed(following) == commits[-1]
                assert [printed(remote), printed(remote)] == commits
                web.kill()
        commits.append(shell.update("Task/t1", title="Alone again"))
        assert printed(following) == commits[-1]
        with Web(folder):
            commits.append(shell.update("Task/t1", title="Beside again"))
            assert printed(following) == commits[-1]
