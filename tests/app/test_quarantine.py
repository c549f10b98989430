"""A graph that is broken is not served, says why, and leaves the others alone."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from trails import App
from trails.errors import (
    DeclarationError,
    NotFoundError,
    QuarantineError,
    RegistryError,
    SchemaMismatchError,
    SettingsError,
    TrailsError,
)

TRAILS = Path(sys.executable).with_name("trails")
SETTINGS = """
[project]
name = "acme"
[graphs.good]
app = "good.py"
queries = "good_queries"
[graphs.bad]
app = "bad.py"
queries = "bad_queries"
[graphs.last]
app = "good.py"
queries = "good_queries"
"""
APP = """
from trails import Context, Node, capability, node_type, predicate

@node_type
class Task(Node):
    "A task."
    title: str = predicate(key=True)
    effort: int | None = predicate()

@capability("tasks.count", idempotent=True)
def count(ctx: Context) -> int:
    "How many tasks there are."
    return Task.objects(ctx).count()
"""
QUERY = """\
#+ description: The tasks with a title.
#+ params: { title: String }
SELECT ?task { ?task :title $title }
"""
SECRET = "hunter2-postgres-password"

Broken = type[TrailsError]
BREAKAGES: dict[str, tuple[dict[str, str], Broken, str]] = {
    "a query that can't be parsed": (
        {"bad_queries/odd.rq": "#+ description: Odd.\nSELECT ?x {\n  ?x a }"},
        DeclarationError,
        "bad_queries/odd.rq:3: the query can't be parsed",
    ),
    "a query of another schema": (
        {"bad_queries/odd.rq": "#+ description: Odd.\nSELECT ?x { ?x a :Tsak }"},
        DeclarationError,
        "there is no class :Tsak; did you mean :Task?",
    ),
    "a query that takes a built-in's name": (
        {"bad_queries/search.rq": QUERY},
        RegistryError,
        "collides with the built-in tool search",
    ),
    "a query that takes a capability's name": (
        {"bad_queries/odd.rq": "#+ tool_name: tasks_count\n" + QUERY},
        RegistryError,
        "the tool name 'tasks_count' of stored query odd collides with capability tasks.count",
    ),
    "a folder of queries outside": (
        {"trails.toml": SETTINGS.replace('"bad_queries"', '"../elsewhere"')},
        SettingsError,
        "is outside the project",
    ),
    "a file in place of the folder": (
        {"trails.toml": SETTINGS.replace('"bad_queries"', '"bad.py"')},
        SettingsError,
        "is not a folder",
    ),
    "a module that is not Python": (
        {"bad.py": "def broken(:\n"},
        DeclarationError,
        "bad.py:1 can't be imported: SyntaxError",
    ),
    "a module that needs another": (
        {"bad.py": "\nimport nonsense_that_is_not_there\n"},
        DeclarationError,
        "bad.py:2 can't be imported: ModuleNotFoundError: No module named 'nonsense",
    ),
    "a module that fails": (
        {"bad.py": f"x = 1\n\nraise ValueError('connecting as root:{SECRET}')\n"},
        DeclarationError,
        "bad.py:3 can't be imported: ValueError",
    ),
    "a module that ends the process": (
        {"bad.py": f"import sys\nsys.exit('{SECRET}')\n"},
        DeclarationError,
        "bad.py:2 can't be imported: SystemExit",
    ),
    "a declaration that can't stand": (
        {"bad.py": APP.replace("key=True", "key=True, min_value=1")},
        DeclarationError,
        "Task.title: min_value does not apply to String",
    ),
    "declarations that collide": (
        {"bad.py": APP.replace("tasks.count", "graph_query")},
        RegistryError,
        "collides with the built-in tool graph_query",
    ),
    "a module that is missing": (
        {"trails.toml": SETTINGS.replace('"bad.py"', '"nope.py"')},
        SettingsError,
        "has no such file",
    ),
    "types that do not fit the data": (
        {"bad.py": APP.replace("effort: int | None", "effort: int")},
        SchemaMismatchError,
        "effort is required",
    ),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A project of three graphs, each with one task, in which all is well."""
    folder = tmp_path_factory.mktemp("sound") / "acme"
    for path, text in {
        "trails.toml": SETTINGS,
        "good.py": APP,
        "bad.py": APP,
        "good_queries/by_title.rq": QUERY,
        "bad_queries/by_title.rq": QUERY,
    }.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    with App.open(folder) as app:
        assert not app.quarantined
        for graph in app.settings.graphs:
            app.registry(graph).classes["Task"](title="a").save(app.context(graph))
    return folder


@pytest.fixture
def folder(sound, tmp_path):
    """A copy of that project, to be broken."""
    return shutil.copytree(sound, tmp_path / "acme")


def break_it(folder, files):
    """Put broken files into a project."""
    for path, text in files.items():
        (folder / path).write_text(text)


def uses(app):
    """Every way in which a program comes to a graph."""
    return {
        "graph": lambda: app.graph("bad"),
        "registry": lambda: app.registry("bad"),
        "context": lambda: app.context("bad"),
        "listen": lambda: app.listen(print, "bad"),
        "register": lambda: app.register(graph="bad"),
    }


@pytest.mark.req("G11b")
@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_query_or_app_takes_down_its_own_graph_only(folder, breakage):
    """Its every use says why; the graphs before and after it read, write and run queries."""
    files, kind, says = BREAKAGES[breakage]
    break_it(folder, files)
    with App.open(folder) as app:
        assert list(app.quarantined) == ["bad"]
        reason = app.quarantined["bad"]
        assert type(reason) is kind
        assert says in reason.message
        for use in uses(app).values():
            with pytest.raises(QuarantineError) as caught:
                use()
            assert says in caught.value.message
            assert "'bad'" in caught.value.message
            assert caught.value.data == {"graph": "bad", "reason": reason.code}
        for graph in ("good", "last"):
            ctx = app.context(graph)
            app.registry(graph).classes["Task"](title="b").save(ctx)
            assert app.call(ctx, "tasks.count") == 2
            assert len(app.query(ctx, "by_title", {"title": "b"})) == 1


@pytest.mark.req("G11b")
def test_a_graph_is_back_when_it_is_mended(folder):
    """Nothing of its data was lost or changed while it was away."""
    break_it(folder, BREAKAGES["a query of another schema"][0])
    with App.open(folder) as app:
        assert app.quarantined
    (folder / "bad_queries/odd.rq").unlink()
    with App.open(folder) as app:
        assert not app.quarantined
        assert app.call(app.context("bad"), "tasks.count") == 1


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_strict_opening_raises_the_reason(folder, breakage):
    """For programs that would rather not start; the folder is free again afterwards."""
    files, kind, says = BREAKAGES[breakage]
    break_it(folder, files)
    with pytest.raises(kind) as caught:
        App.open(folder, strict=True)
    assert says in caught.value.message
    with App.open(folder) as app:
        assert app.quarantined


def test_a_project_of_one_broken_graph_opens(tmp_path):
    """The error comes when the graph is used."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "acme"\n')
    (tmp_path / "app.py").write_text("1 / 0\n")
    with App.open(tmp_path) as app:
        with pytest.raises(QuarantineError, match="ZeroDivisionError"):
            app.context()
        with pytest.raises(NotFoundError):
            app.context("other")


@pytest.mark.parametrize("breakage", ["a module that fails", "a module that ends the process"])
def test_a_reason_holds_no_secret_and_no_trace(folder, breakage):
    """What a module raised may hold values; neither they nor the frames are kept."""
    break_it(folder, BREAKAGES[breakage][0])
    with App.open(folder) as app:
        reason = app.quarantined["bad"]
        assert SECRET not in repr(reason.args) + repr(reason.data) + reason.message
        assert reason.__traceback__ is reason.__cause__ is reason.__context__ is None
        with pytest.raises(QuarantineError) as caught:
            app.context("bad")
        assert SECRET not in caught.value.message
        assert caught.value.__cause__ is caught.value.__context__ is None


@pytest.mark.parametrize("breakage", ["a query of another schema", "a module that fails"])
def test_declarations_alone_are_not_judged(folder, breakage):
    """Data can be reached without the project's own code, as verify and doctor do."""
    break_it(folder, BREAKAGES[breakage][0])
    with App.open(folder, declarations=False) as app:
        assert not app.quarantined
        assert app.context("bad").kg.head.seq == 2


def doctor(folder):
    """What the command says: exit code, and findings by graph."""
    done = subprocess.run(
        [TRAILS, "doctor", "--json", "-p", folder], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stdout + done.stderr
    assert SECRET not in done.stdout + done.stderr
    assert '"reports"' in done.stdout, done.stdout
    reports = json.loads(done.stdout)["reports"]
    return done.returncode, {each["subject"]: each["findings"] for each in reports}


@pytest.mark.parametrize(
    ("breakage", "finding"),
    [
        ("a query of another schema", "queries"),
        ("a query that takes a capability's name", "queries"),
        ("a module that fails", "declarations"),
        ("types that do not fit the data", "types"),
    ],
)
def test_doctor_reports_what_would_be_quarantined(folder, breakage, finding):
    """As problems of that graph; the other graphs are examined and fine."""
    files, _, _ = BREAKAGES[breakage]
    break_it(folder, files)
    code, findings = doctor(folder)
    assert code == 1
    problems = {
        subject: [each["name"] for each in found if each["severity"] == "problem"]
        for subject, found in findings.items()
    }
    assert problems.pop("Graph bad") == [finding]
    assert not any(problems.values())
    assert {"Graph good", "Graph last"} <= set(problems)


def test_doctor_lists_every_mistake_of_every_query(folder):
    """One finding each, with the file and the line."""
    break_it(
        folder,
        {
            "bad_queries/one.rq": "#+ x: 1\nSELECT ?x { ?x a :Tsak }",
            "bad_queries/two.rq": "SELECT",
        },
    )
    _, findings = doctor(folder)
    told = [each["detail"] for each in findings["Graph bad"] if each["severity"] == "problem"]
    assert len(told) == 4
    assert all(each.startswith("bad_queries/") for each in told)


def test_doctor_counts_sound_queries(folder):
    """How many there are, and how many of them change data."""
    change = '#+ description: Make b.\nINSERT DATA { <trails://acme/good/Task/b> :title "b" }'
    (folder / "good_queries/make.rq").write_text(change)
    code, findings = doctor(folder)
    assert code == 0
    details = [each["detail"] for each in findings["Graph good"] if each["name"] == "queries"]
    assert details == ["2 stored, 1 of them change data"]
