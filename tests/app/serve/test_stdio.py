"""``trails serve --stdio``: a session outlives the process that serves it."""

import json
import os
import signal

import pytest
from tests.worlds.processes import Process, Stdio, owner_first, wait_until
from tests.worlds.projects import make_notebook
from tests.worlds.surfaces import META

from trails import App
from trails.app.serve.relay.owners import find_owner


@pytest.fixture
def folder(tmp_path):
    """A project whose path is longer than that of a socket may be."""
    return make_notebook(tmp_path / ("deep" * 25) / "notebook")


def test_a_session_is_served_and_ends_with_its_input(folder):
    """Odd lines cost one answer, prints go elsewhere, and the folder is free after."""
    with Stdio(folder) as client:
        assert client.initialize()["serverInfo"]["name"] == "notebook/main"
        assert client.call("notes.add", text="one") == {"result": "one"}
        for garbage in (b"garbage", b"[]", b'"x"', b"{}", b"\xff\xfe", b'{"id":1}', b"1" * 5000):
            client.send(garbage)
        assert client.call("notes.measure", text="x" * 10_000_000) == {"result": 10_000_000}
        assert client.call("notes.count") == {"result": 1}
        owner = find_owner(folder)
        assert owner.pid == client.pid
        assert client.close() == 0
        assert client.line() is None
        assert "this must not disturb" in client.errors
        assert "Traceback" not in client.errors
    assert find_owner(folder) is None


def test_sessions_go_through_the_first_process_and_survive_it(folder, tmp_path):
    """Whatever stood and ran when the owner was killed stands and runs again, or is told."""
    begun = tmp_path / "begun"
    with Stdio(folder) as one, Stdio(folder) as two:
        one.initialize()
        two.initialize()
        first, second = owner_first(folder, one, two)
        first.call("notes.add", text="one")
        assert second.call("notes.count") == {"result": 1}
        second.request("resources/subscribe", {"uri": "trails://kg/Note"})
        slow = second.ask("tools/call", _call("notes.slow", text="two", begun=str(begun)))
        # The client has listed no tools, and spells this one in its own way.
        look = second.ask("tools/call", _call("notes_look", begun=f"{begun}-look"))
        wait_until(begun.exists)
        wait_until((tmp_path / "begun-look").exists)
        first.kill()
        (tmp_path / "begun-look-go").touch()
        unknown = second.answer(slow)["result"]
        assert unknown["isError"] is True
        assert "commit_list" in unknown["content"][0]["text"]
        assert second.answer(look)["result"].get("structuredContent") == {"result": 2}
        assert (tmp_path / "begun-look").read_text() == "xx"
        assert find_owner(folder).pid == second.pid
        second.wait_for("notifications/resources/updated")
        second.notified.clear()
        second.call("notes.add", text="three")
        second.wait_for("notifications/resources/updated")
        assert second.close() == 0


def _call(name, **arguments):
    return {"name": name, "arguments": arguments}


def test_an_owner_that_ends_in_order_answers_first(folder, tmp_path):
    """Calls that run are finished, those that it did not take are made by the next owner."""
    begun = tmp_path / "begun"
    with Stdio(folder) as one, Stdio(folder, "--graph", "main") as two:
        one.initialize()
        two.initialize()
        first, second = owner_first(folder, one, two)
        slow = second.ask("tools/call", _call("notes.slow", text="one", begun=str(begun)))
        wait_until(begun.exists)
        first.process.send_signal(signal.SIGTERM)
        more = [second.ask("tools/call", _call("notes.add", text=str(n))) for n in range(20)]
        (tmp_path / "begun-go").touch()
        assert second.answer(slow)["result"]["structuredContent"] == {"result": "one"}
        for n, id_ in enumerate(more):
            assert second.answer(id_)["result"]["structuredContent"] == {"result": str(n)}
        assert second.call("notes.count") == {"result": 21}
        assert first.close() == 0


def test_the_newest_revision_goes_on_too(folder):
    """Without a handshake there is nothing to repeat but streams of changes."""
    with Stdio(folder) as one, Stdio(folder) as two:
        first, second = owner_first(folder, one, two)
        wanted = {"resourceSubscriptions": ["trails://kg/Note"]}
        stream = second.ask("subscriptions/listen", {"notifications": wanted, "_meta": META})
        second.wait_for("notifications/subscriptions/acknowledged")
        first.kill()
        second.wait_for("notifications/resources/updated")
        second.notified.clear()
        call = {"name": "notes.add", "arguments": {"text": "one"}, "_meta": META}
        assert second.request("tools/call", call)["structuredContent"] == {"result": "one"}
        second.wait_for("notifications/resources/updated")
        (told,) = [each for each in second.notified if each["method"].endswith("/updated")]
        assert told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"] == stream
        acknowledged = "notifications/subscriptions/acknowledged"
        assert not any(each["method"] == acknowledged for each in second.notified)


def test_a_folder_that_a_program_has_for_itself_is_waited_for(folder):
    """The reason is told on standard error, and the session begins when the folder is free."""
    program = App.open(folder)
    with Stdio(folder) as client:
        with program:
            asked = client.ask("tools/list", {"_meta": META})
            wait_until(
                lambda: (
                    f"waiting: this project is open in another process (pid {os.getpid()})"
                    in client.errors
                ),
                "a message",
            )
        assert "result" in client.answer(asked)


def test_a_graph_that_is_broken_is_refused_and_others_are_served(tmp_path):
    """The client gets the reason as an answer; a session on another graph works."""
    folder = make_notebook(tmp_path / "two", graphs=("main", "other"), broken=("other",))
    with Stdio(folder) as good, Stdio(folder, "--graph", "other") as bad:
        good.initialize()
        refused = bad.answer(bad.ask("initialize", {}))["error"]
        assert refused["data"]["code"] == "quarantined"
        assert "nothing_like_this" in refused["message"]
        assert "error" in bad.answer(bad.ask("tools/list"))
        assert bad.close() == 0
        assert good.call("notes.add", text="one") == {"result": "one"}


@pytest.mark.parametrize(
    ("arguments", "environment", "says"),
    [
        (["--graph", "nope"], {}, "there is no graph 'nope'; this project has main"),
        (["-p", "/nowhere"], {}, "is not a Trails project"),
        (["--port", "1"], {}, "--port"),
        ([], {"TRAILS_MCP_SCOPES": "root"}, "'root'"),
    ],
)
def test_what_can_not_be_served_is_told(folder, arguments, environment, says):
    """On standard error, with exit code 2 and nothing on standard output."""
    with Process("serve", "--stdio", "-p", folder, *arguments, env=environment) as process:
        assert process.line() is None
        assert process.close() == 2
        assert says in process.errors


def test_a_file_can_be_the_input(folder, tmp_path):
    """What was asked is answered before the end of the input ends the process."""
    import subprocess

    from tests.worlds.processes import command

    asked = [
        {"jsonrpc": "2.0", "id": n, "method": "tools/list", "params": {"_meta": META}} for n in "ab"
    ]
    given = tmp_path / "asked"
    given.write_text("\n".join(map(json.dumps, asked)))
    with given.open("rb") as file:
        done = subprocess.run(
            command("serve", "--stdio", "-p", folder), stdin=file, capture_output=True, check=True
        )
    assert [json.loads(line)["id"] for line in done.stdout.splitlines()] == ["a", "b"]
