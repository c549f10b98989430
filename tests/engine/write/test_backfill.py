"""A field that has to have a value comes to a type with data: its default is filled in."""

from __future__ import annotations

from pathlib import Path

import pytest

from trails import App
from trails.errors import QuarantineError

BEFORE = """
from trails import Node, node_type, predicate

@node_type
class Task(Node):
    code: str = predicate(key=True)
    points: int | None = predicate()

@node_type
class Chore(Task):
    room: str | None = predicate()
"""
AFTER = """
from trails import Node, node_type, predicate

@node_type
class Task(Node):
    code: str = predicate(key=True)
    points: int = predicate(default=1)
    status: str = predicate(one_of=["open", "done"], default="open")
    note: str | None = predicate(default="new")

@node_type
class Chore(Task):
    room: str | None = predicate()
"""
UNFIT = AFTER.replace('default="open"', 'unique=True, default="open"')
REQUIRED = AFTER.replace(', default="open"', "")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project with three nodes, and a branch with one more."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "work"\n')
    (tmp_path / "app.py").write_text(BEFORE)
    with App.open(tmp_path) as app:
        types = app.registry().classes
        task, chore = types["Task"], types["Chore"]
        app.context().kg.save_all([task(code="a"), task(code="b", points=5), chore(code="c")])
        app.versions().create_branch("side")
        task(code="d").save(app.context(branch="side"))
    return tmp_path


def values(app: App, branch: str = "main") -> dict[str, tuple[object, ...]]:
    """What each task holds."""
    found = app.registry().classes["Task"].objects(app.context(branch=branch)).order_by("code")
    return {each.code: (each.points, each.status, each.note) for each in found}


def test_nodes_without_a_value_get_the_default(project: Path) -> None:
    """In the commit that changes the types; values that are there and optional fields stay."""
    (project / "app.py").write_text(AFTER)
    with App.open(project) as app:
        assert values(app) == {
            "a": (1, "open", None),
            "b": (5, "open", None),
            "c": (1, "open", None),
        }
        (commit,) = app.versions().commits(limit=1).commits
        assert commit.message.startswith("schema: ")
        assert commit.added == 5
        counted = app.ask(app.context(), "SELECT (COUNT(?s) AS ?n) { ?t :status ?s }")
        assert counted.rows[0]["n"] == 3
        app.registry().classes["Task"](code="e").save(app.context(branch="side"))
        assert values(app, "side")["d"] == (1, "open", None)
        assert values(app, "side")["e"] == (1, "open", "new")


@pytest.mark.parametrize("declared", [UNFIT, REQUIRED])
def test_what_no_default_can_mend_is_refused(project: Path, declared: str) -> None:
    """A unique default, and a required field without one; the data stays as it was."""
    (project / "app.py").write_text(declared)
    with App.open(project) as app, pytest.raises(QuarantineError, match="status"):
        app.context()
    (project / "app.py").write_text(BEFORE)
    with App.open(project) as app:
        assert app.context().kg.head.seq == 2


def test_a_likely_rename_is_named_with_the_command_to_run(project: Path) -> None:
    """A field that is gone and a new one like it may be one field; only a person knows."""
    with App.open(project) as app:
        app.registry().classes["Chore"](code="r", room="hall").save(app.context())
    (project / "app.py").write_text(BEFORE.replace("room:", "place:"))
    with App.open(project) as app, pytest.raises(QuarantineError) as error:
        app.context()
    assert "trails schema plan rename-field Chore.room place" in str(error.value)
