"""A project here, one that another process serves, a server: the same commands, the same words."""

import gzip
import json
import shutil
import socket
from contextlib import nullcontext

import pytest
from tests.worlds.processes import Shell, Web

from trails.app.ownership import Ownership
from trails.model.actors import Secret
from trails.model.kinds import KINDS

PLACES = ("local", "owner", "server")


class Place(Shell):
    """Runs ``trails`` where the data is, beside the process that serves it, or from afar."""

    def __init__(self, kind, project, elsewhere, served):
        super().__init__(project)
        self.kind = kind
        self.served = served
        self.more = []
        if kind == "server":
            self.project = elsewhere
            self.more = ["--server", self.served.url]

    def run(self, *arguments, **more):
        """Run a command there."""
        return super().run(*arguments, *self.more, **more)


@pytest.fixture(scope="module", params=PLACES)
def place(request, template, tmp_path_factory):
    """The same project in one of the places; each test leaves alone what others look at."""
    folder = tmp_path_factory.mktemp(request.param)
    project = shutil.copytree(template, folder / "acme")
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    with nullcontext() if request.param == "local" else Web(project) as served:
        yield Place(request.param, project, elsewhere, served)


def test_instances_are_listed_and_shown(place):
    """As a table and as JSON-LD; pages fit together."""
    assert place.out("get", "Task").splitlines()[1:3] == [
        "t1  Read the tour",
        "t2  Write the report",
    ]
    page = place.json("get", "Task", "--limit", 1)
    assert [each["label"] for each in page["instances"]] == ["Read the tour"]
    rest = place.json("get", "Task", "--limit", 1, "--cursor", page["next"])
    assert [each["label"] for each in rest["instances"]] == ["Write the report"]
    assert rest["next"] is None
    found = place.json("get", "Task", "--where", "priority=1")
    assert [each["label"] for each in found["instances"]] == ["Read the tour"]
    document = place.json("get", "Person", "ann@example.org")
    assert document["@id"].endswith("/Person/ann%40example.org")
    assert place.out("get", "Task/t1").splitlines() == [
        "Task/t1",
        '    title  "Read the tour"',
        '    status  "open"',
        "    priority  1",
        "    owner  Person/ann%40example.org",
    ]
    assert place.out("get", "Task", "t1", "--fields", "priority") == "Task/t1\n    priority  1\n"
    assert place.out("get", "Task", "--fields", "title,priority").splitlines()[:3] == [
        "id  title             priority",
        "t1  Read the tour     1",
        "t2  Write the report",
    ]
    page = place.json("get", "Task", "-f", "priority", "-f", "owner", "--limit", 1)
    (first,) = page["instances"]
    assert list(first["values"]) == ["priority", "owner"]
    assert "did you mean 'title'?" in place.error("get", "Task", "--fields", "titel")
    assert "empty name" in place.error("get", "Task", "--fields", "title,")
    first = place.json("commit", "list", "--limit", 50)["commits"][-1]["commit"]
    assert place.out("get", "Task", "--snapshot", first) == "No instances of Task.\n"
    assert "priority" in place.error("get", "Task", "--where", "priority=high")
    assert "did you mean 'Task'?" in place.error("get", "Tusk")
    assert "there is no Task" in place.error("get", "Task", "t9")
    assert "leave out the id" in place.error("get", "Task", "t1", "--limit", 2)
    for option in ("branch", "snapshot"):
        assert f"{option} is empty; give it a value" in place.error(
            "get", "Task", f"--{option}", ""
        )


def test_what_can_be_called_is_called(place):
    """Built-ins and capabilities; arguments are read as their schema says."""
    listed = {each["name"]: each["action"] for each in place.json("tools")["tools"]}
    assert {"graph_query": "Read", "tasks.finish": "InvokeCapability"}.items() <= listed.items()
    assert "--arg task=string" in place.out("tools", "tasks.finish")
    assert '"priority": integer' in place.out("tools", "tasks")
    done = place.json("call", "tasks.finish", "-a", "task=Task/t2")
    assert done["status"] == "done"
    assert "status" in place.out("call", "tasks_finish", "--arg", "task=Task/t2")
    given = place.write("arguments.json", {"query": "ASK { ?t a :Task }"})
    assert place.json("call", "graph_query", "--json-args", given)["truth"] is True
    found = place.json("call", "tasks", "-a", 'params={"priority": 1}')
    assert [each["title"] for each in found["rows"]] == ["Read the tour"]


def test_arguments_are_options(place):
    """Of capabilities, stored queries and built-ins, with help and suggestions from descriptors."""
    assert place.json("call", "tasks.finish", "--task", "Task/t2")["status"] == "done"
    found = place.json(
        "call", "tasks", "--priority=1", "--titles", "Read the tour", "--titles", "x"
    )
    assert [each["title"] for each in found["rows"]] == ["Read the tour"]
    mixed = ("call", "tasks", "--priority", "1", "-a", 'params={"titles": ["x"]}')
    assert place.json(*mixed)["rows"] == []
    place.run("branch", "create", "spare")
    gone = place.json("call", "branch_delete", "--name", "spare", "--force")
    assert gone["deleted"]["name"] == "spare"
    told = place.out("call", "tasks.finish", "--help")
    assert told.startswith("Usage: trails call tasks.finish [OPTIONS]")
    assert "--task STRING" in told
    assert "--priority INTEGER" in place.out("call", "tasks", "--help")
    assert "did you mean '--task'?" in place.error("call", "tasks.finish", "--tsk", "Task/t1")
    assert "needs a value" in place.error("call", "tasks.finish", "--task")
    assert "did you mean 'tasks.finish'?" in place.error("call", "task.finish", "--help")
    assert "NAME --help" in place.out("call", "--help")


def test_what_is_wrong_is_told_field_by_field(place):
    """With code, value, rule and, where there is one, a suggestion; the same everywhere."""
    wrong = ("call", "tasks.finish", "-a", "task=Task/t9", "-a", "tusk=1")
    error = place.json(*wrong, code=2)["error"]
    assert error["code"] == "validation"
    assert {each["field"]: each["code"] for each in error["data"]["fields"]} == {
        "task": "reference",
        "tusk": "unknown_field",
    }
    said = place.error("call", "tasks.finish", "-a", "tusk=Task/t2")
    assert '(try "task")' in said
    change = place.write("bad.json", [{"op": "create", "type": "Task", "data": {"priority": 9}}])
    error = place.json("mutate", "--operations", change, code=2)["error"]
    assert {each["code"] for each in error["data"]["fields"]} == {"required", "max_value"}
    assert "did you mean 'tasks.finish'?" in place.error("call", "task.finish")


def test_queries_answer(place):
    """Texts with typed parameters, and stored ones."""
    query = "SELECT ?t WHERE { ?x a :Task ; :title ?t ; :priority $p }"
    assert place.json("query", query, "--param", "p=1")["rows"] == [{"t": "Read the tour"}]
    dated = "SELECT (YEAR($d) AS ?y) ($n AS ?m) WHERE {}"
    row = place.json("query", dated, "--param", "d:DateTime=2026-03-01T10:00:00Z", "--param", "n=x")
    assert row["rows"] == [{"y": 2026, "m": "x"}]
    node = place.json("query", "SELECT ?x WHERE { ?x :priority 1 }")["rows"][0]["x"]
    asked = place.json("query", "SELECT ?t WHERE { $x :title ?t }", "--param", f"x=<{node}>")
    assert asked["rows"] == [{"t": "Read the tour"}]
    assert "Task/t1" in place.out("query", "SELECT ?x WHERE { ?x :priority 1 }")
    stored = place.json("query", "--stored", "tasks", "--param", "priority=1")
    assert stored["rows"] == [{"title": "Read the tour", "p": 1}]
    assert [each["name"] for each in place.json("queries")["queries"]] == ["tasks"]
    assert "did you mean 'tasks'?" in place.error("query", "--stored", "task")
    assert "error at 1:16" in place.error("query", "SELECT nonsense")


def test_files_go_in_and_come_out(place):
    """Several in one commit, on a new branch; problems are told with file and line."""
    place.write("one.ndjson", '{"type": "Task", "id": "f1", "data": {"title": "First file"}}')
    place.write("two.ndjson", '{"type": "Task", "id": "f2", "data": {"title": "Second file"}}\n')
    done = place.json("load", "one.ndjson", "two.ndjson", "-b", "files", "--from", "main")
    assert (done["nodes"], done["forked"]) == (2, True)
    bad = place.write("bad.ndjson", '\n{"type": "Task", "id": "f3", "data": {"title": ""}}\n')
    assert "bad.ndjson line 2" in place.error("load", "one.ndjson", bad, "-b", "files")
    assert "line 2" in place.error("load", bad, "-b", "files")
    lines = place.out("export", "--type", "Task", "-b", "files").splitlines()
    assert {json.loads(each)["id"] for each in lines} == {"t1", "t2", "f1", "f2"}
    told = place.out("export", "-b", "files", "-o", "out.ttl")
    assert told.startswith("Wrote out.ttl: turtle")
    assert "Second file" in (place.project / "out.ttl").read_text()
    assert "no export format" in place.error("export", "--format", "xml")
    again = place.out("load", "-", "--format", "ndjson", "-b", "files", stdin=lines[0])
    assert again.startswith("Nothing changed on files")
    (place.project / "f1.ndjson.gz").write_bytes(gzip.compress(lines[0].encode()))
    assert place.out("load", "f1.ndjson.gz", "-b", "files").startswith("Nothing changed on files")
    assert "there is no branch" in place.error("load", "one.ndjson", "-b", "nowhere")


def test_versions_are_made_compared_and_merged(place):
    """Branches with slashes in their names, differences, conflicts and their resolution."""
    place.run("branch", "create", "agents/ada")
    place.update("Task/t2", branch="agents/ada", priority=4)
    place.update("Task/t2", priority=2)
    assert "    priority  2 → 4" in place.out("diff", "main", "agents/ada")
    text = place.out("branch", "merge", "agents/ada", code=1)
    assert "1 conflict: nothing was written." in text
    conflict = place.json("branch", "merge", "agents/ada", code=1)["conflicts"][0]
    assert conflict["id"] == "divergent_field:Task/t2.priority"
    assert len(conflict["theirs_commits"]) == 1
    settle = f"{conflict['id']}=value:3"
    merged = place.json("branch", "merge", "agents/ada", "--resolve", settle, "-m", "Settled")
    assert merged["outcome"] == "merged"
    newest = place.json("commit", "list", "--limit", 1)["commits"][0]
    assert newest["message"] == "Settled"
    assert place.json("commit", "show", newest["commit"])["position"] == newest["position"]
    assert len(place.json("commit", "list", "--all", "--limit", 50)["commits"]) > 3
    assert place.out("branch", "delete", "agents/ada").startswith("Deleted branch agents/ada")
    assert "not_found" in place.out("commit", "show", "deadbeef", "--json", code=2)


def test_upkeep_goes_through_the_process_that_serves_the_folder(place):
    """All of it but a restore, which needs the files for itself and says who has them."""
    if place.kind == "server":
        assert "No such option: --server" in place.run("verify", code=2).stderr
        return
    if place.kind == "local":
        assert "main" in place.out("cleanup")
        return
    for command in (["verify"], ["cleanup"], ["backup", "../elsewhere"], ["doctor"]):
        assert "main" in place.out(*command)
    said = place.error("restore", "../elsewhere")
    assert f"process {place.served.process.pid} has this project open" in said


def test_a_graph_that_is_not_served_says_why(shell):
    """Through the process that serves the folder, as without it."""
    (shell.project / "app.py").write_text("broken", encoding="utf-8")
    alone = shell.json("queries", code=2)["error"]
    with Web(shell.project) as served:
        assert shell.json("queries", code=2)["error"] == alone
        said = shell.error("queries", "--server", served.url)
        assert "serves no graph" in said
        said = shell.error("queries", "--server", served.url, "--graph", "main")
        assert alone["message"][:40] in said
        assert "no graph 'other'" in shell.error("queries", "--graph", "other")
    assert alone["code"] == "quarantined"


def test_an_owner_that_has_ended_is_no_obstacle(shell, tmp_path):
    """Its socket is there and nobody listens: the command opens the folder itself."""
    path = str(tmp_path / "http")
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(path)
    ownership = Ownership(shell.project / ".trails")
    ownership.announce(path, path, Secret("key"))
    written = (shell.project / ".trails" / "owner").read_bytes()
    ownership.release()
    (shell.project / ".trails" / "owner").write_bytes(written)
    assert shell.json("branch", "list")["branches"][0]["name"] == "main"


def test_a_server_that_is_not_there(shell):
    """Is named, and what can be done about it; so is one that speaks something else."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
    said = shell.error("branch", "list", "--server", url)
    assert f"no server answers at {url}" in said
    assert "trails serve" in said
    assert "is not a server address" in shell.error("queries", "--server", "localhost")
    assert "mutually exclusive" in shell.error("queries", "--server", url, "--project", ".")


KIND_TEXTS = {
    "String": "7",
    "Bool": "true",
    "Int": "7",
    "BigInt": str(2**70),
    "Float": "1.5",
    "Decimal": "1.5",
    "Date": "2026-03-01",
    "DateTime": "2026-03-01T09:30:00Z",
    "Iri": "urn:x:y",
    "Blob": "urn:x:y",
    "Json": '{"a":[1,null]}',
}


def test_a_parameter_of_any_kind_is_of_that_kind_in_any_place(place):
    """A server gets the same literal as a project in this process."""
    assert {*KIND_TEXTS, "LangText", "Vector"} == set(KINDS)  # those are not one literal
    columns = [f"(DATATYPE(${kind}) AS ?d{kind}) (STR(${kind}) AS ?s{kind})" for kind in KIND_TEXTS]
    given = [f"--param={kind}:{kind}={text}" for kind, text in KIND_TEXTS.items()]
    (row,) = place.json("query", f"SELECT {' '.join(columns)} {{}}", *given)["rows"]
    for kind, text in KIND_TEXTS.items():
        datatype = None if kind == "Iri" else KINDS[kind].datatype
        assert (row[f"d{kind}"], row[f"s{kind}"]) == (datatype, text)
