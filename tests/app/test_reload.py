"""``App.reload``: changed files become a new registry, or nothing changes."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref

import pytest
from tests.worlds.projects import make_project

from trails import App
from trails.app.modules import project_modules
from trails.app.serve.reloading import FileWatch, look_at_files
from trails.errors import QuarantineError, TrailsError
from trails.registry.registry import RegistryCell

APP = '''
from __future__ import annotations

from reload_parts.words import GREETING
from trails import Context, Node, capability, node_type, predicate


@node_type
class Note(Node):
    """A note."""

    text: str = predicate(key=True, label=True)


@capability("notes.greet", side_effects=["none"])
def greet(ctx: Context) -> str:
    """Greet."""
    return GREETING


@capability("notes.all", side_effects=["none"])
def all_notes(ctx: Context) -> list[Note]:
    """List notes."""
    return list(Note.objects(ctx))


@capability("notes.fixed", version="1", side_effects=["none"])
def fixed(ctx: Context) -> str:
    """Say the same."""
    return "fixed"
'''
QUERY = "#+ name: all_notes\n#+ description: All notes.\nSELECT ?note WHERE { ?note a :Note }\n"
PRODUCTION = '[project]\nname = "acme"\nenv = "production"\n'


def write(folder, **texts):
    """Exchange parts of app.py."""
    text = APP
    for old, new in texts.get("parts", {}).items():
        assert old in text
        text = text.replace(old, new)
    (folder / "app.py").write_text(text + texts.get("more", ""), encoding="utf-8")


@pytest.fixture
def folder(tmp_path):
    """A project whose module imports a package beside it."""
    yield make_project(
        tmp_path,
        {
            "app.py": APP,
            "reload_parts/__init__.py": "",
            "reload_parts/words.py": 'GREETING = "hello"\n',
        },
        queries={"all_notes.rq": QUERY},
    )
    for name in [name for name in sys.modules if name.startswith("reload_parts")]:
        del sys.modules[name]


@pytest.fixture
def app(folder):
    """The project, opened."""
    with App.open(folder) as opened:
        yield opened


def greet(app):
    """What the capability says now."""
    return app.call(app.context(), "notes.greet")


def test_a_changed_module_is_used(app, folder):
    """With what was added, changed and removed; the stored types follow, as at a start."""
    write(
        folder,
        parts={
            '"""Greet."""': '"""Greet a caller."""',
            "label=True)": "label=True)\n    stars: int | None = predicate()",
        },
        more='\n\n@capability("notes.more")\ndef more(ctx: Context) -> None:\n    """More."""\n',
    )
    (folder / "queries/all_notes.rq").unlink()
    report = app.reload()
    assert (report.status, report.error) == ("reloaded", None)
    assert report.added == ("capability notes.more",)
    assert report.changed == ("capability notes.greet", "type Note")
    assert report.removed == ("stored query all_notes",)
    assert report.schema == ("type Note: added field stars",) or "stars" in report.schema[0]
    assert report.version == app.registry().version
    assert report.digest == app.registry().digest
    assert "stars" in app.graph().main.schema.by_name["Note"].by_name
    assert app.registry().capability("notes.more")
    assert app.registry().capability("trails.meta.ping"), "built-ins stay"


def test_imported_modules_are_fresh(app, folder):
    """New objects under the same names; bytes of the same size and second are noticed."""
    before = project_modules(folder)
    words = folder / "reload_parts/words.py"
    state = words.stat()
    words.write_text('GREETING = "howdy"\n', encoding="utf-8")
    os.utime(words, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert greet(app) == "hello"
    assert app.reload().error is None
    assert greet(app) == "howdy"
    after = project_modules(folder)
    assert after.keys() == before.keys()
    assert {"reload_parts", "reload_parts.words"} < after.keys()
    assert all(after[name] is not before[name] for name in before)
    assert all(sys.modules[name] is each for name, each in after.items())


def test_what_was_registered_by_the_program_stays(app, folder):
    """A reload exchanges the declarations of the project only."""
    from trails import Context, capability

    @capability("tools.own")
    def own(ctx: Context) -> None:
        """Registered by the program."""

    app.register(own)
    write(folder, parts={"notes.greet": "notes.hello"})
    assert app.reload().removed == ("capability notes.greet",)
    assert set(app.registry().capabilities) == {
        "notes.all",
        "notes.fixed",
        "notes.hello",
        "tools.own",
    }


BROKEN = {
    "syntax": ({"more": "def ("}, "declaration", "app.py:"),
    "import": ({"parts": {"reload_parts.words": "reload_parts.nouns"}}, "declaration", "app.py:4"),
    "declaration": ({"parts": {"key=True": "key=True, pattern='['"}}, "declaration", "app.py:8"),
    "collision": (
        {"more": '\n\n@capability("notes.greet")\ndef two(ctx: Context) -> None:\n    """2."""\n'},
        "registry",
        "app.py",
    ),
    "exit": ({"more": "\nraise SystemExit(3)\n"}, "declaration", "app.py:"),
    "a version by hand": (
        {"parts": {'"""Say the same."""': '"""Say something else."""'}},
        "registry",
        "app.py",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_edit_changes_nothing(app, folder, case, caplog):
    """The registry, the modules and the types stay; the error says where, once in the log."""
    given, code, where = BROKEN[case]
    before, modules = app.registry(), project_modules(folder)
    write(folder, **given)
    report = app.reload()
    assert (report.status, report.error.code) == ("failed", code)
    assert report.error.where.startswith(where)
    assert app.registry() is before
    assert project_modules(folder) == modules
    assert greet(app) == "hello"
    app.reload()
    assert len([each for each in caplog.records if "not reloaded" in each.message]) == 1
    write(folder)
    assert app.reload().error is None
    assert app.reload_errors == {}


def test_an_error_in_an_imported_module_names_that_module(app, folder):
    """With its line, in the folder of the project."""
    (folder / "reload_parts/words.py").write_text("\nGREETING = nobody\n", encoding="utf-8")
    error = app.reload().error
    assert error.where == "reload_parts/words.py:2"
    assert "NameError" in error.message


def test_a_broken_query_and_a_broken_policy_fail_the_reload(app, folder):
    """Everything is checked together."""
    (folder / "queries/all_notes.rq").write_text(QUERY.replace(":Note", ":Nope $x"))
    write(folder, parts={"notes.greet": "notes.hello"})
    error = app.reload().error
    assert error.code == "declaration"
    assert error.where.startswith("queries/all_notes.rq:")
    (folder / "queries/all_notes.rq").write_text(QUERY)
    (folder / "policies").mkdir()
    policy = 'permit(principal, action, resource == Trails::Capability::"notes.nope");'
    (folder / "policies/all.cedar").write_text(policy)
    before = app.registry()
    error = app.reload().error
    assert error.code == "policy"
    assert app.registry() is before


def test_types_that_do_not_fit_the_data_fail_the_reload(app, folder):
    """As they would quarantine the graph at a start."""
    note = app.registry().classes["Note"]
    note(text="a").save(app.context())
    (folder / "queries/all_notes.rq").unlink()
    write(folder, parts={"Note": "Memo"})
    assert app.reload().error.code == "schema_mismatch"
    assert list(app.registry().types) == ["Note"]


def test_in_production_types_are_applied_on_request_only(folder):
    """As at a start."""
    (folder / "trails.toml").write_text(PRODUCTION)
    with App.open(folder) as app:
        write(folder, parts={"label=True)": "label=True)\n    stars: int | None = predicate()"})
        error = app.reload().error
        assert error.code == "schema_mismatch"
        assert "--apply-schema" in error.message
        assert app.reload(apply_schema=True).status == "reloaded"


def test_a_graph_in_quarantine_is_served_after_a_repair(folder):
    """Without a restart; until then the newest reason is shown."""
    write(folder, more="\nnobody\n")
    with App.open(folder) as app:
        with pytest.raises(QuarantineError, match="NameError"):
            app.registry()
        write(folder, more="\n1 / 0\n")
        assert app.reload().status == "failed"
        with pytest.raises(QuarantineError, match="ZeroDivisionError"):
            app.registry()
        write(folder)
        assert app.reload().status == "reloaded"
        assert greet(app) == "hello"


def test_a_call_under_way_keeps_its_declarations(app, folder):
    """A context has the registry that it started with."""
    ctx = app.context()
    write(folder, parts={"notes.greet": "notes.hello"})
    app.reload()
    assert app.call(ctx, "notes.greet") == "hello"
    with pytest.raises(TrailsError, match=r"notes\.greet"):
        app.call(app.context(), "notes.greet")


def test_a_module_of_the_program_itself_is_not_reloaded(folder, monkeypatch):
    """It holds the classes, so that it has to be restarted."""
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "app", raising=False)
    __import__("app")
    monkeypatch.setitem(sys.modules, "app", sys.modules["app"])
    with App.open(folder) as app:
        error = app.reload().error
        assert error.code == "settings"
        assert "imported it as 'app'" in error.message


def test_an_app_in_memory_has_no_files():
    """Its declarations are registered by the program."""
    with App() as app, pytest.raises(TrailsError, match="in memory"):
        app.reload()


def test_reloads_do_not_fill_the_memory(app, folder):
    """Old classes, functions and modules are collected; nothing grows with their number."""
    words = folder / "reload_parts/words.py"
    sizes = []
    for number in range(12):
        words.write_text(f'GREETING = "{number}"\n', encoding="utf-8")
        write(folder, parts={'"""Greet."""': f'"""Greet {number}."""'})
        old = [
            weakref.ref(app.registry()),
            weakref.ref(app.registry().classes["Note"]),
            weakref.ref(app.registry().capability("notes.greet").handler),
            weakref.ref(sys.modules["reload_parts.words"]),
        ]
        assert app.reload().error is None
        assert greet(app) == str(number)
        note = app.registry().classes["Note"](text="a")
        note.save(app.context(), upsert=True)
        app.call(app.context(), "notes.all")
        del note
        gc.collect()
        assert [each() for each in old] == [None] * 4
        if number in {5, 11}:
            sizes.append(len(gc.get_objects()))
    assert sizes[1] - sizes[0] < 300
    assert len(app._cells["main"]._seen) == 1, "derived versions are not remembered"


def test_a_registration_meanwhile_is_not_lost():
    """What the program registers while a reload checks its data is in the new registry."""
    from trails import Context, capability
    from trails.registry.registry import collect

    @capability("own.first")
    def first(ctx: Context) -> None:
        """First."""

    @capability("own.second")
    def second(ctx: Context) -> None:
        """Second."""

    cell, asked = RegistryCell(), []

    def accept(registry):
        asked.append(registry)
        if len(asked) == 1:
            cell.add(collect([second]))

    cell.replace(collect([first]), accept)
    assert set(cell.current.capabilities) == {"own.first", "own.second"}
    assert len(asked) == 2


class Ticks:
    """A watch that looks when the test says so."""

    def __init__(self, app):
        self.watch = FileWatch(app)
        self.app = app

    def look(self, times=1):
        """Look at the files; the version of the registry after that."""
        for _ in range(times):
            self.watch._look("main")
        return self.app._cells["main"].current.version


def test_a_change_is_taken_when_it_is_stable(app, folder):
    """A file that is still being written, or a series of saves, waits; a replacement is seen."""
    ticks, first = Ticks(app), app.registry().version
    assert ticks.look(3) == first
    for number in range(4):
        write(folder, parts={'"""Greet."""': f'"""Greet {number}."""'})
        assert ticks.look() == first
    assert ticks.look() == first + 1
    assert ticks.look(3) == first + 1
    draft = folder / ".app.py.swp"
    draft.write_text(APP.replace("notes.greet", "notes.hello"), encoding="utf-8")
    draft.replace(folder / "app.py")
    assert ticks.look(3) == first + 2
    assert "notes.hello" in app.registry().capabilities


@pytest.mark.parametrize("file", ["reload_parts/words.py", "queries/more.rq"])
def test_what_a_module_imports_and_the_queries_are_watched(app, folder, file):
    """Files that exist, and new ones."""
    ticks, first = Ticks(app), app.registry().version
    text = QUERY.replace("all_notes", "more") if file.endswith("rq") else "GREETING = 'x'\n"
    (folder / file).write_text(text, encoding="utf-8")
    assert ticks.look(2) == first + 1
    assert app.reload_errors == {}


def test_after_a_failure_a_missing_module_or_a_policy_may_be_the_repair(app, folder):
    """Though neither was read."""
    ticks, first = Ticks(app), app.registry().version
    write(folder, parts={"from reload_parts.words": "from reload_extra"})
    assert ticks.look(2) == first
    assert "reload_extra" in app.reload_errors["main"].message
    (folder / "reload_extra.py").write_text('GREETING = "extra"\n', encoding="utf-8")
    assert ticks.look(2) == first + 1
    assert greet(app) == "extra"
    sys.modules.pop("reload_extra")


def test_a_file_that_changes_during_a_reload_is_read_again(app, folder):
    """What was read is what was there before it began."""
    ticks, first = Ticks(app), app.registry().version
    reload = app.reload

    def slow(graph):
        report = reload(graph)
        if report.version == first + 1:
            write(folder, parts={"notes.greet": "notes.last"})
        return report

    app.reload = slow
    write(folder, parts={"notes.greet": "notes.first"})
    assert ticks.look(2) == first + 1
    assert ticks.look(2) == first + 2
    assert "notes.last" in app.registry().capabilities


def test_looking_costs_little(app, folder):
    """States of files only."""
    seen = {each[0].removeprefix(f"{folder}/") for each in look_at_files(app, "main").declared}
    assert seen == {
        "app.py",
        "reload_parts/__init__.py",
        "reload_parts/words.py",
        "queries/all_notes.rq",
    }


def test_reloads_at_the_same_time_take_turns(app, folder):
    """Each makes a version of its own."""
    first = app.registry().version
    threads = [threading.Thread(target=app.reload) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert app.registry().version == first + 4
    assert app.reload_errors == {}
