"""Branches, commits, differences and merges on the command line."""

import re

import pytest

T1 = "divergent_field:Task/t1.priority"


@pytest.fixture
def diverged(shell):
    """Branches that changed one field differently, and another one on one side."""
    shell.run("branch", "create", "review")
    shell.update("Task/t1", branch="review", priority=4, status="done")
    shell.update("Task/t1", priority=2)
    return shell


def test_branches_are_made_listed_and_deleted(shell):
    """A branch begins where it was told to, and one that is merged nowhere is kept."""
    first = shell.json("commit", "list")["commits"][-1]["commit"]
    assert shell.json("branch", "create", "old", "--from", first)["branch"]["head"] == first
    assert shell.out("branch", "create", "new").startswith("Created branch new at commit ")
    listed = shell.json("branch", "list")["branches"]
    assert [each["name"] for each in listed] == ["main", "new", "old"]
    lines = shell.out("branch", "list").splitlines()
    assert lines[0].split() == ["branch", "commit", "time", "actor", "message"]
    assert re.match(r"main +[0-9a-f]{12} +20", lines[1])
    shell.update("Task/t1", branch="new", priority=5)
    assert "unmerged commit" in shell.error("branch", "delete", "new")
    assert "Deleted branch new" in shell.out("branch", "delete", "new", "--force")
    assert "did you mean 'old'?" in shell.error("branch", "delete", "olt")
    assert "branch 'old' already exists" in shell.error("branch", "create", "old")
    assert shell.json("branch", "delete", "old")["deleted"]["name"] == "old"


def test_a_difference_is_told_per_node_and_field(diverged):
    """In words, in JSON, and cut where asked."""
    assert diverged.out("diff", "main", "review").splitlines() == [
        "0 created, 1 updated, 0 deleted",
        "~ Task/t1",
        "    priority  2 → 4",
        '    status  "open" → "done"',
    ]
    found = diverged.json("diff", "review", "main")
    assert found["changes"][0]["fields"][0] == {"field": "priority", "before": 4, "after": 2}
    first = diverged.json("commit", "list")["commits"][-1]["commit"]
    assert "more nodes; --limit shows more" in diverged.out("diff", first, "main", "-n", 1)
    assert "did you mean 'review'?" in diverged.error("diff", "main", "revew")


def test_conflicts_are_shown_with_what_settles_them(diverged):
    """Exit code 1, both sides with their commits, and a command that works as it is printed."""
    text = diverged.out("branch", "merge", "review", code=1)
    assert "1 conflict: nothing was written." in text
    assert re.search(r"base +1\n +ours +2 +\(main: [0-9a-f]{12}\)\n +theirs +4 +\(review: ", text)
    found = diverged.json("branch", "merge", "review", code=1)
    assert found["outcome"] == "conflicts"
    assert [each["id"] for each in found["conflicts"]] == [T1]
    command = text.split("resolves all conflicts:")[1].replace("\\\n", " ").split()
    assert command == ["trails", "branch", "merge", "review", "--resolve", f"{T1}=ours"]
    assert "Merged review into main" in diverged.out(*command[1:])
    assert diverged.out("branch", "merge", "review").startswith("Already up to date")
    assert "priority" not in diverged.out("commit", "show", "main")


@pytest.mark.parametrize(("wanted", "after"), [("theirs", 4), ("value:3", 3), ("value:null", None)])
def test_conflicts_are_settled_as_told(diverged, wanted, after):
    """With their side, another value, or none; a dry run writes nothing."""
    asked = ("branch", "merge", "review", "--resolve", f"{T1}={wanted}")
    head = diverged.json("branch", "list")["branches"][0]["head"]
    assert diverged.out(*asked, "--dry-run").startswith("Would have merged review")
    assert diverged.json("branch", "list")["branches"][0]["head"] == head
    assert diverged.json(*asked, "-m", "Settled")["outcome"] == "merged"
    shown = diverged.json("commit", "show", "main")
    fields = {each["field"]: each for each in shown["changes"][0]["fields"]}
    assert fields["priority"].get("after") == after
    assert shown["message"] == "Settled"


def test_resolutions_may_come_from_a_file(diverged):
    """And what can't be read in it, or on the line, is told with the form that is expected."""
    ask = ("branch", "merge", "review")
    for content, problem in (
        ("[1]", "must contain a JSON object"),
        ("{", "is not valid JSON"),
        ({T1: "both"}, '"ours", "theirs" or {"value": …}'),
    ):
        name = diverged.write("bad.json", content)
        assert problem in diverged.error(*ask, "--resolutions", name)
    assert "write ID=ours" in diverged.error(*ask, "--resolve", T1)
    assert "quote a text" in diverged.error(*ask, "--resolve", f"{T1}=value:high")
    assert "can't be read" in diverged.error(*ask, "--resolutions", "missing.json")
    name = diverged.write("good.json", {T1: {"value": 5}})
    assert diverged.json(*ask, "--resolutions", name)["outcome"] == "merged"


def test_a_merge_without_a_commit_says_so(shell):
    """A branch that is only ahead moves main forward."""
    shell.run("branch", "create", "ahead")
    commit = shell.update("Task/t1", branch="ahead", priority=3)
    counts = "0 created, 1 updated, 0 deleted"
    assert counts in shell.out("branch", "merge", "ahead", "--dry-run")
    told = shell.out("branch", "merge", "ahead")
    assert f"forward to ahead at {commit[:12]}: {counts}" in told


def test_commits_are_listed_filtered_and_paged(diverged):
    """By branch, actor and node, newest first; pages fit together."""
    everything = diverged.json("commit", "list", "--all")["commits"]
    main = diverged.json("commit", "list")["commits"]
    assert [len(everything), len(main)] == [4, 3]
    assert [each["position"] for each in everything] == [4, 3, 2, 1]
    of_node = diverged.json("commit", "list", "--node", "Task/t1", "--branch", "review")["commits"]
    assert [each["branch"] for each in of_node] == ["review", "main"]
    assert len(diverged.json("commit", "list", "--actor", "trails")["commits"]) == 1
    page = diverged.json("commit", "list", "--limit", 2)
    rest = diverged.json(
        "commit", "list", "--limit", 2, "--after", page["next"]["arguments"]["after"]
    )
    assert page["commits"] + rest["commits"] == main
    shown = diverged.out("commit", "list", "--limit", 2)
    after = shown.split("--after ")[1].split()[0]  # another cursor of the same place
    assert diverged.json("commit", "list", "--limit", 2, "--after", after) == rest
    assert "First load" in diverged.out("commit", "list")
    for bad in (["--after", "x"], ["--limit", 0], ["--all", "--branch", "main"], ["--node", "A/b"]):
        assert diverged.error("commit", "list", *bad)


def test_a_commit_is_shown_with_its_changes(diverged):
    """By its id or the beginning of it; created nodes with all their fields."""
    first = diverged.json("commit", "list")["commits"][1]
    text = diverged.out("commit", "show", first["commit"][:8])
    assert f"commit   {first['commit']}\n" in text
    assert "message  First load\n" in text
    assert "changed  4 created, 0 updated, 0 deleted (+" in text
    assert "+ Task/t1\n    owner  Person/ann%40example.org\n    priority  1\n" in text
    assert diverged.json("commit", "show", "deadbeef", code=2)["error"]["code"] == "not_found"
