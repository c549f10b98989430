"""Every command gives the same JSON here, beside a server, and from afar."""

import re
import shutil

import pytest
import typer
from tests.docs.reference_tables import leaves
from tests.worlds.processes import Shell, Web, run_command

from trails.app.local import LocalOperations
from trails.surfaces.cli.commands import build_cli

READS = [
    ["graphs"],
    ["schema"],
    ["schema", "Task"],
    ["schema", "show", "Task"],
    ["search", "tour"],
    ["get", "Task"],
    ["get", "Task", "--fields", "title,priority,owner"],
    ["get", "Task/t1"],
    ["get", "Person/ann@example.org", "--fields", "name"],
    ["read", "Task/t1", "title"],
    ["query", "SELECT ?t ?p { ?t a :Task . OPTIONAL { ?t :priority ?p } } ORDER BY ?t"],
    ["query", "--stored", "tasks", "--param", "priority=1"],
    ["queries"],
    ["export", "--type", "Task", "--output", "out.ndjson"],
    ["tools", "tasks.finish"],
    ["call", "tasks", "--priority", "1"],
    ["changes", "--since", "0"],
    ["diff", "main", "main"],
    ["blame", "Task/t1"],
    ["branch", "list"],
    ["proposals"],
    ["mutate", "--file", "change.ru", "--dry-run"],
    ["load", "more.ndjson", "--dry-run"],
    ["branch", "create", "other", "--dry-run"],
    ["commit", "list"],
    ["commit", "show", "main"],
    ["prov", "--actor", "nobody"],
    ["get", "Tusk"],
    ["get", "Task/t9"],
    ["commit", "show", "deadbeef"],
    ["query", "--stored", "task"],
    ["call", "tasks.finish"],
    ["call", "task.finish"],
    ["diff", "main", "nowhere"],
]
SCOPED = [
    ["tools"],
    ["migrate", "status"],
    ["migrate", "plan"],
    ["migrate", "rollback"],
    ["schema", "plan", "add-field", "Task.due:date?"],
    ["schema", "impact", "drop-field", "Task.priority"],
    ["schema", "diff", "main", "main"],
    ["schema", "export", "shacl"],
    ["schema", "import", "thing.json"],
    ["schema", "plan", "add-field", "Tusk.due:date?"],
]
"""Commands that need a scope, which callers from afar have with a token only."""
WRITES = [
    ["branch", "create", "draft"],
    ["mutate", "--file", "change.ru", "--branch", "draft", "-m", "A change"],
    ["load", "more.ndjson", "--branch", "draft"],
    ["diff", "main", "draft"],
    ["branch", "merge", "draft", "-m", "Merged"],
    ["branch", "delete", "draft", "--force"],
    ["call", "tasks.finish", "--task", "Task/t1"],
    ["blob", "put", "more.ndjson"],
]
PROJECT = [["doctor"], ["verify"], ["policy", "check"], ["cleanup"], ["token", "list"]]
"""Commands about a project folder, which work beside a server too."""
ELSEWHERE = {
    "generate": "needs the scope dev; tests/request/meta compares its bytes",
    "new": "makes a folder",
    "reload": "needs a server",
    "migrate apply": "writes files; tests/journeys/test_authoring.py uses it",
    "schema apply": "writes files; tests/request/meta applies it over every surface",
    "serve": "is the server",
    "console": "has the folder for itself, and prints what is typed",
    "completion": "prints a script",
    "mcp": "changes the files of clients",
    "webhook": "tested with a receiver",
    "webhooks": "tested with a receiver",
    "top": "looks at a server",
    "backup": "tested with restore",
    "restore": "has the folder for itself",
    "log copy": "has the folder for itself; tests/journeys/durability uses it",
    "recover": "has the folder for itself",
    "optimize": "sizes of files differ",
    "blob get": "prints the file",
    "token": "secrets differ",
    "policy": "decided without the graph's data",
}
"""Commands that are tested elsewhere, and why."""
CURSOR = re.compile(r"lM5q[\w-]+")
"""Has the time when it was made."""
CHANGING = re.compile(r"[0-9a-f]{32,64}|\d{4}-\d\d-\d\dT[\d:.]+Z|[0-9a-f-]{36}|lM5q[\w-]+")


@pytest.fixture(scope="module")
def places(template, tmp_path_factory):
    """The project here; the same, served; and a folder from which that server is asked."""
    folder = tmp_path_factory.mktemp("every")
    here = shutil.copytree(template, folder / "acme")
    Shell(here).run("get", "Task")  # whatever the first opening does is done
    beside = shutil.copytree(here, folder / "beside" / "acme")
    afar = folder / "afar"
    afar.mkdir()
    with Web(beside) as served:
        found = [(Shell(here), []), (Shell(beside), []), (Shell(afar), ["--server", served.url])]
        for shell, _ in found:
            shell.write("change.ru", "INSERT DATA { <trails://acme/main/Task/t2> :priority 3 }")
            shell.write("thing.json", {"title": "Thing", "properties": {"n": {"type": "integer"}}})
            shell.write("more.ndjson", '{"type": "Task", "id": "t3", "data": {"title": "Third"}}')
        yield found


def said(place, arguments):
    """The JSON of a command, and its exit code."""
    shell, more = place
    done = run_command([*arguments, "--json", *more], shell.project)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode in {0, 1, 2}
    return done.returncode, CURSOR.sub("…", done.stdout)


@pytest.mark.parametrize("arguments", READS, ids=" ".join)
def test_reading_gives_the_same_bytes(places, arguments):
    """Results and errors alike."""
    here, beside, afar = (said(place, arguments) for place in places)
    assert here[1].startswith("{")
    assert beside == here
    assert afar == here


@pytest.mark.parametrize("arguments", SCOPED, ids=" ".join)
def test_what_needs_a_scope_gives_the_same_bytes_beside_a_server(places, arguments):
    """The user of the machine has every scope; without a token, others have one."""
    here, beside, afar = (said(place, arguments) for place in places)
    assert here[1].startswith("{")
    assert beside == here
    assert arguments == ["tools"] or "scope" in afar[1]


@pytest.mark.parametrize("arguments", PROJECT, ids=" ".join)
def test_a_project_is_looked_at_beside_a_server(places, arguments):
    """What is about the folder works there, with the same structure."""
    here, beside = (said(place, arguments) for place in places[:2])
    assert beside[0] == here[0] == 0
    assert here[1].startswith("{")


def test_writing_gives_the_same(places):
    """But for ids and times, which are those of each graph; beside it, the server is asked too."""
    for arguments in WRITES:
        here, afar = (said(places[at], arguments) for at in (0, 2))
        assert here[0] == 0, here
        assert [afar[0], CHANGING.sub("…", afar[1])] == [0, CHANGING.sub("…", here[1])], arguments


def test_no_command_is_forgotten():
    """Each is in one of the lists above."""
    root = typer.main.get_command(build_cli(LocalOperations()))
    tested = {" ".join(each) for each in (*READS, *SCOPED, *WRITES, *PROJECT)}
    missing = [
        path
        for path in (each.strip() for each, _ in leaves("", root))
        if not any(f"{path} ".startswith(f"{each} ") for each in ELSEWHERE)
        and not any(f"{each} ".startswith(f"{path} ") for each in tested)
    ]
    assert missing == []
