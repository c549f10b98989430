"""Queries and mutations on the command line."""

import pytest

TASKS = (
    "SELECT ?t ?title ?p { ?t a :Task ; :title ?title OPTIONAL { ?t :priority ?p } } ORDER BY ?t"
)


def test_an_answer_is_a_table_json_csv_or_tsv(shell):
    """A table shortens this graph's IRIs; the machine-readable forms do not."""
    assert [line.rstrip() for line in shell.out("query", TASKS).splitlines()] == [
        "t        title             p",
        "Task/t1  Read the tour     1",
        "Task/t2  Write the report",
        "",
        "2 rows",
    ]
    rows = shell.json("query", TASKS)["rows"]
    assert rows[0] == {"t": "trails://acme/main/Task/t1", "title": "Read the tour", "p": 1}
    assert rows[1]["p"] is None
    assert shell.out("query", TASKS, "--format", "csv").splitlines()[:2] == [
        "t,title,p",
        "trails://acme/main/Task/t1,Read the tour,1",
    ]
    assert "Task/t2\tWrite the report\t\n" in shell.out("query", TASKS, "--format", "tsv")
    assert shell.out("query", "ASK { ?x :name $n }", "--param", "n=Ann") == "yes\n"
    assert shell.json("query", "ASK { ?x :name 'Eve' }")["truth"] is False


def test_many_columns_stay_beside_each_other_in_a_pipe(shell):
    """One line for each row, as wide as it is."""
    text = shell.out("query", "SELECT * { ?aa ?bb ?cc . ?dd ?ee ?ff . ?gg ?hh ?ii } LIMIT 2")
    assert len(text.splitlines()) == 5
    assert len(text.splitlines()[0].split()) == 9


def test_a_query_may_come_from_a_file_or_standard_input(shell):
    """Exactly one text is expected."""
    shell.write("q.rq", TASKS)
    wanted = shell.out("query", TASKS)
    assert shell.out("query", "--file", "q.rq") == wanted
    assert shell.out("query", "-f", "-", stdin=TASKS) == wanted
    assert "give exactly one of" in shell.error("query")
    assert "give exactly one of" in shell.error("query", TASKS, "-f", "q.rq")
    assert "no.rq can't be read" in shell.error("query", "-f", "no.rq")


def test_the_past_and_other_branches_can_be_asked(shell):
    """A snapshot stays as it was, whatever happens to its branch."""
    before = shell.json("branch", "list")["branches"][0]["head"]
    shell.run("branch", "create", "side")
    shell.update("Task/t1", branch="side", priority=5)
    shell.update("Task/t1", priority=4)
    ask = ("query", "SELECT ?p { ?t :priority ?p }")
    for where, value in ((["--branch", "side"], 5), ([], 4), (["--snapshot", before], 1)):
        assert shell.json(*ask, *where)["rows"] == [{"p": value}]
    assert "did you mean 'side'?" in shell.error(*ask, "--branch", "sid")


@pytest.mark.parametrize(
    ("params", "problem"),
    [
        (["n"], "write it as name=value"),
        ([], "no such parameter was given"),
        (["n=1", "n=2"], "given twice"),
        (["n:Dat=1"], "did you mean 'Date'?"),
        (["n:Date=soon"], "'soon' is not"),
        (["n=1", "z=2"], "parameter 'z' is not in the query"),
    ],
)
def test_wrong_parameters_are_told(shell, params, problem):
    """Each with what to write instead."""
    flags = [part for each in params for part in ("--param", each)]
    assert problem in shell.error("query", "SELECT ?x { ?x :name $n }", *flags)


def test_parameters_are_typed(shell):
    """Numbers are numbers unless a kind is said; IRIs stand in angle brackets."""
    ask = ("query", "SELECT (DATATYPE($v) AS ?d) (ISIRI($v) AS ?i) {}", "--param")
    for text, datatype in (
        ("v=1", "integer"),
        ("v:String=1", "string"),
        ("v:Date=2026-01-01", "date"),
    ):
        assert shell.json(*ask, text)["rows"][0]["d"].endswith(f"#{datatype}")
    assert shell.json(*ask, "v=<urn:x>")["rows"][0]["i"] is True


def test_stored_queries_are_listed_and_run(shell):
    """Their declarations say what the texts of parameters mean."""
    text = shell.out("queries")
    assert "tasks\n  Tasks of a priority, or of any." in text
    assert "--param priority=integer (optional)" in text
    assert shell.json("queries")["queries"][0]["name"] == "tasks"
    ask = ("query", "--stored", "tasks")
    assert len(shell.json(*ask)["rows"]) == 2
    assert [row["title"] for row in shell.json(*ask, "--param", "priority=1")["rows"]] == [
        "Read the tour"
    ]
    for lists in (["titles=Read the tour", "titles=x"], ['titles=["Read the tour"]']):
        flags = [part for each in lists for part in ("--param", each)]
        assert len(shell.json(*ask, *flags)["rows"]) == 1
    assert "params.priority must be" in shell.error(*ask, "--param", "priority=high")
    assert "did you mean 'priority'?" in shell.error(*ask, "--param", "priorty=1")
    assert "did you mean 'tasks'?" in shell.error("query", "--stored", "task")


def test_a_cut_answer_says_so_and_a_deadly_query_is_stopped(shell):
    """Limits come from the settings; what to do is told."""
    settings = (shell.project / "trails.toml").read_text()
    shell.write("trails.toml", settings + "\n[sandbox]\nrows = 2\n")
    done = shell.run("query", "SELECT ?s { ?s ?p ?o }")
    assert "only the first 2 rows are shown" in done.stderr
    assert "more than 2 rows; the first 2 are shown" in done.stdout
    assert shell.json("query", "SELECT ?s { ?s ?p ?o }")["truncated"] is True
    endless = " ".join(f"?a{n} ?b{n} ?c{n} ." for n in range(12))
    deadly = f"SELECT (COUNT(*) AS ?n) {{ {endless} }}"
    shell.write("trails.toml", settings + "\n[sandbox]\nseconds = 1.0\n")
    found = shell.json("query", deadly, code=2)
    assert found["error"]["code"] == "limit"
    shell.write("trails.toml", settings)
    assert shell.out("query", "ASK { ?s ?p ?o }") == "yes\n"


def test_a_broken_app_does_not_hide_the_data(shell):
    """Reading needs none of the project's code; writing does, and says what is wrong."""
    shell.write("app.py", "import nonsense_that_is_not_there\n")
    assert shell.out("query", "ASK { ?x :name 'Ann' }") == "yes\n"
    assert "nonsense_that_is_not_there" in shell.error("mutate", "INSERT DATA {}")


def test_mutations_are_one_commit_or_none(shell):
    """By text or operations, with message, expected head and idempotency key."""
    update = 'DELETE { ?t :status ?s } INSERT { ?t :status "done" } WHERE { ?t :status ?s }'
    done = shell.json("mutate", update, "-m", "All done", "--idempotency-key", "k1")
    assert shell.json("commit", "show", done["commit"])["message"] == "All done"
    again = shell.out("mutate", update, "-m", "All done", "--idempotency-key", "k1")
    assert again == f"Already done (commit {done['commit'][:12]}); nothing was written now.\n"
    assert shell.out("mutate", "-f", "-", stdin=update) == "Nothing changed.\n"
    for said in ("Nothing changed.", "Already done; nothing was written now."):
        assert shell.out("mutate", update, "--idempotency-key", "k2") == f"{said}\n"
    line = '{"type": "Person", "data": {"email": "ann@example.org", "name": "Ann"}}\n'
    load = ("load", shell.write("same.ndjson", line), "--idempotency-key", "k3")
    assert shell.out(*load) == "Nothing changed on main: 1 node read.\n"
    assert shell.out(*load) == "Already done on main; nothing was written now.\n"
    assert "someone wrote in between" in shell.error("mutate", update, "--expected-head", "0" * 32)
    create = {"op": "create", "type": "Task", "id": "t3", "data": {"title": "Third"}}
    text = shell.out("mutate", "--operations", shell.write("ops.json", [create]))
    assert text.splitlines()[1] == "  create Task/t3"
    bad = [{**create, "id": "t4", "data": {"title": "x", "status": "maybe"}}]
    problems = shell.error("mutate", "--operations", shell.write("ops.json", bad)).splitlines()
    assert problems[0] == "trails: nothing was written: 2 problems"
    assert problems[1].startswith("  - operations[0].title must have at least 3 characters")
    found = shell.json("mutate", "--operations", "ops.json", code=2)["error"]
    assert [each["code"] for each in found["data"]["fields"]] == ["min_length", "one_of"]
    for content, problem in (
        ("{", "is not valid JSON"),
        ("{}", "must contain a list"),
        ("\udcff", "UTF-8"),
    ):
        (shell.project / "ops.json").write_bytes(content.encode(errors="surrogateescape"))
        assert problem in shell.error("mutate", "--operations", "ops.json")


def test_a_reference_is_written_in_any_form(shell):
    """In a filter and as an id: a key, Type/id or an IRI; one that is missing is an error."""
    iri = shell.json("get", "Task", "--where", "owner=ann@example.org")["instances"][0]["iri"]
    assert iri.endswith("/Task/t1")
    for form in ("t1", "Task/t1", iri):
        assert shell.json("get", "Task", form)["@id"] == iri
    error = shell.error("get", "Task", "--where", "owner=Person/anne@example.org")
    assert (
        "owner: there is no Person 'Person/anne@example.org'; did you mean Person/ann%40" in error
    )
