"""Files in and out on the command line."""

import json
import re

import pytest

GOOD = '{"type": "Person", "data": {"email": "cy@example.org", "name": "Cy"}}\n'
BAD = GOOD + '{"type": "Task", "data": {"title": "x", "status": "maybe"}}\n'


def branches(shell):
    """The names of all branches."""
    return [each["name"] for each in shell.json("branch", "list")["branches"]]


@pytest.mark.req("G17")
def test_a_load_is_one_commit_and_forks_only_when_told_from_where(shell):
    """A missing branch is an error; with --from it is forked, and gone again if the load fails."""
    shell.write("good.ndjson", GOOD)
    shell.write("bad.ndjson", BAD)
    error = shell.error("load", "good.ndjson", "--branch", "import")
    assert "there is no branch 'import'" in error
    assert "(from)" in error
    shell.run("load", "bad.ndjson", "--branch", "import", "--from", "main", code=2)
    shell.run("load", "good.ndjson", "--branch", "import", "--from", "nowhere", code=2)
    assert branches(shell) == ["main"]
    before = shell.json("commit", "list", "--all")["commits"]
    text = shell.out("load", "good.ndjson", "--branch", "import", "--from", "main", "-m", "New")
    assert re.fullmatch(r"Committed [0-9a-f]{12} on import \(new\): 1 node loaded\.\n", text)
    assert branches(shell) == ["main", "import"]
    after = shell.json("commit", "list", "--all")["commits"]
    assert after[1:] == before
    assert after[0]["message"] == "New"
    assert after[0]["parents"] == [before[0]["commit"]]
    again = shell.json("load", "data.ndjson", "--branch", "import", "--from", before[-1]["commit"])
    assert again["forked"] is False
    assert again["commit"] is None


@pytest.mark.req("G17")
@pytest.mark.parametrize(
    ("mode", "people"),
    [("merge", ["ann", "ben", "cy"]), ("append", ["ann", "ben", "cy"]), ("overwrite", ["cy"])],
)
def test_a_mode_says_what_becomes_of_the_others(shell, mode, people):
    """One commit each; appending a node that exists is refused."""
    shell.write("good.ndjson", GOOD)
    shell.write(
        "free.ndjson", '{"type": "Task", "id": "t1", "data": {"title": "Free", "owner": null}}\n'
    )
    shell.run("load", "free.ndjson")
    head = shell.json("commit", "list")["commits"][0]["commit"]
    done = shell.json("load", "good.ndjson", "--mode", mode)
    assert done["deleted"] == 3 - len(people)
    assert shell.json("commit", "show", done["commit"])["parents"] == [head]
    rows = shell.json("query", "SELECT ?e { ?p :email ?e } ORDER BY ?e")["rows"]
    assert [row["e"].split("@")[0] for row in rows] == people
    if mode == "append":
        assert "already exists" in shell.error("load", "good.ndjson", "--mode", mode)


@pytest.mark.req("T21b")
@pytest.mark.parametrize("format", ["ndjson", "csv", "turtle"])
def test_nothing_invalid_lands_through_a_load(shell, format):
    """Every violation is told with its place, and the head stays where it was."""
    texts = {
        "ndjson": GOOD
        + '{"type": "Task", "id": "t9", "data": {"title": "x", "status": "maybe"}}\n',
        "csv": "id,title,status\nt8,Good enough,open\nt9,x,maybe\n",
        "turtle": "@prefix : <trails://acme/main/schema#> .\n"
        '<trails://acme/main/Task/t9> a :Task ; :title "x" ; :status "maybe" .\n',
    }
    name = shell.write("bad", texts[format])
    before = shell.json("commit", "list", "--all")["commits"]
    ask = ("load", name, "--format", format, "--type", "Task")
    fields = shell.json(*ask, code=2)["error"]["data"]["fields"]
    assert sorted(each["code"] for each in fields) == ["min_length", "one_of"]
    assert "title must have at least 3 characters, not 'x'" in shell.error(*ask)
    assert shell.json("commit", "list", "--all")["commits"] == before


def test_several_files_are_one_commit_and_errors_name_the_file(shell):
    """Nodes of one file may refer to nodes of another."""
    edge = '{"edge": "owner", "from": "Task/t2", "to": "cy@example.org"}\n'
    shell.write("a.ndjson", edge.rstrip())
    shell.write("b.ndjson", GOOD)
    assert shell.json("load", "a.ndjson", "b.ndjson")["nodes"] == 2
    shell.write("c.ndjson", BAD)
    error = shell.error("load", "b.ndjson", "c.ndjson")
    assert "c.ndjson line 2: title must have" in error
    assert "given on c.ndjson line 1" in error or "c.ndjson line 1: Person/" in error
    assert "one by one" in shell.error("load", "a.ndjson", shell.write("p.csv", "email\n"))


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["no.ndjson"], "no.ndjson: no such file"),
        (["trails.toml"], "does not imply a format"),
        (["-"], "a stream does not imply a format"),
        (["trails.toml", "--format", "yaml"], "there is no format 'yaml'"),
        (["trails.toml", "--format", "csv"], "give the type"),
        (["trails.toml", "--format", "csv", "--type", "Taks"], "did you mean 'Task'?"),
        (["data.ndjson", "--graph", "other"], "there is no graph 'other'"),
    ],
)
def test_what_can_not_be_loaded_is_told(shell, arguments, problem):
    """With the next step, and without a trace."""
    assert problem in shell.error("load", *arguments)


def test_standard_input_is_loaded(shell):
    """In the format that is said."""
    assert shell.json("load", "-", "--format", "ndjson", stdin=GOOD)["nodes"] == 1


@pytest.mark.parametrize("suffix", ["ndjson", "ttl", "nq", "jsonld"])
def test_what_is_exported_can_be_loaded(shell, suffix):
    """The same content comes back: nothing changes, and in an emptied type it is restored."""
    name = f"out.{suffix}"
    assert shell.out("export", "-o", name).startswith(f"Wrote {name}: ")
    assert shell.json("load", name)["commit"] is None
    shell.run("mutate", "DELETE WHERE { ?t a :Task ; ?p ?o }")
    shell.run("load", name)
    head = shell.json("branch", "list")["branches"][0]["head"]
    start = shell.json("commit", "list")["commits"][2]["commit"]
    assert shell.json("diff", start, head)["changes"] == []


def test_an_export_is_whole_or_not_there(shell):
    """Types, branches and the past can be chosen; a mistake leaves the old file alone."""
    shell.write("out.ndjson", "old")
    assert "did you mean 'Task'?" in shell.error("export", "--type", "Taks", "-o", "out.ndjson")
    assert "there is no export format" in shell.error("export", "--format", "xml")
    assert (shell.project / "out.ndjson").read_text() == "old"
    first = shell.json("commit", "list")["commits"][-1]["commit"]
    assert shell.out("export", "--snapshot", first) == ""
    lines = [json.loads(line) for line in shell.out("export", "--type", "Task").splitlines()]
    assert [line["id"] for line in lines] == ["t1", "t2"]
    done = shell.json("export", "-o", "out.ndjson")
    assert done["bytes"] == (shell.project / "out.ndjson").stat().st_size
    assert "--json requires --output" in shell.json("export", code=2)["error"]["message"]
    assert "No such file" in shell.error("export", "-o", "no/such/folder.ndjson")
    assert not [each for each in shell.project.iterdir() if each.name.startswith(".out")]


def test_many_problems_of_a_file_are_a_line_for_each_kind(shell):
    """With the first place of each, and how many there are."""
    row = '{"type": "Task", "data": {"title": "x", "priorty": 1}}\n'
    shell.write("bad.ndjson", row * 50 + '{"edge": "ownr", "from": "Task/t1", "to": "x"}\n')
    lines = shell.error("load", "bad.ndjson").splitlines()
    assert len(lines) == 4
    assert "nothing was written: 101 problems" in lines[0]
    assert "line 1: title must have at least 3 characters, not 'x' (and 49 more" in lines[1]
    assert "line 51: there is no edge 'ownr'; did you mean 'owner'?" in lines[3]
