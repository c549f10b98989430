"""One authority for types: drift that doctor names, interrupted changes, failing disks."""

from __future__ import annotations

import os
import threading
from unittest.mock import patch

import pytest
from tests.request.meta.test_schema import BUILDER, DUE, PYTHON, STATUS, World
from tests.worlds.processes import run_command
from tests.worlds.projects import make_project

from trails import App
from trails.app.doctor import examine_project
from trails.app.staging import JOURNAL
from trails.app.workspace import ProjectWorkspace
from trails.model.changes.file_diffs import make_diff
from trails.model.history import Rename, Renames
from trails.model.results import Failure
from trails.surfaces.cli.schema import read_step


def findings(app):
    """What doctor finds, by code."""
    every = [each for report in examine_project(app) for each in report.findings]
    return {each.code: each for each in every if each.code}


def test_doctor_names_files_that_declare_other_types(tmp_path):
    """With what differs, and the command that lists the steps."""
    folder = make_project(tmp_path / "p", PYTHON)
    App.open(folder, strict=True).close()
    edited = PYTHON.replace("    points:", "    extra: str | None = None\n    points:")
    (folder / "app.py").write_text(edited)
    with App.open(folder, declarations=False) as app:
        found = findings(app)["types_pending"]
    assert "extra" in found.detail
    assert "trails schema diff main files" in found.fix


def test_doctor_names_branches_with_other_types(tmp_path):
    """As a note: a merge brings them together."""
    world = World(tmp_path / "p", "graph")
    world.ask("branch_create", name="work")
    assert "branch_types" not in findings(world.app)
    world.apply(DUE, branch="work")
    found = findings(world.app)["branch_types"]
    assert (found.severity, found.where) == ("note", "work")
    assert "due" in found.detail
    world.calls.close()


def test_an_interrupted_change_is_named_and_settled(tmp_path):
    """While nothing can be written it waits; then the log decides."""
    world = World(tmp_path / "p", "python")
    diff = make_diff({"app.py": (world.text, world.text + "# more\n")})
    head, text = world.app.graph().main.head.commit, world.text
    ProjectWorkspace(world.app, "main").prepare(diff, f'{{"graph":"main","head":"{head}"}}')
    world.calls.close()
    with App.open(world.folder, read_only=True) as app:
        assert "declarations_unfinished" in findings(app)
    with App.open(world.folder, strict=True) as app:
        assert "declarations_unfinished" not in findings(app)
    assert world.text == text
    world.open()
    ProjectWorkspace(world.app, "main").prepare(diff, '{"graph":"main","head":"earlier"}')
    world.calls.close()
    App.open(world.folder, strict=True).close()
    assert world.text == text + "# more\n"


@pytest.mark.parametrize("source", ["python", "graph"])
def test_a_reload_during_a_change_sees_committed_types(tmp_path, source):
    """It neither waits for the change, nor declares types that may never be committed."""
    world = World(tmp_path / "p", source)
    keeper, reports = world.app.graph().declarations, []
    prepare, version = keeper.prepare, world.app.registry().schema.digest

    def reload_first(head, schema, renames):
        other = threading.Thread(target=lambda: reports.append(world.app.reload()), daemon=True)
        other.start()
        other.join(5)
        assert [each.status for each in reports] == ["reloaded"]
        assert not reports[0].schema
        assert world.app.registry().schema.digest == version != schema.digest
        return prepare(head, schema, renames)

    with patch.object(keeper, "prepare", reload_first):
        assert world.apply(STATUS)["applied"]
    assert len(reports) == 1
    assert world.agrees()
    world.calls.close()


def test_files_that_can_t_be_written_follow_at_the_next_start(tmp_path):
    """The commit is durable, the caller learns of it, and nothing is undone."""
    world = World(tmp_path / "p", "python")
    rename = os.rename

    def refuse(source, target, **given):
        if str(target) == "app.py":
            raise OSError(28, "No space left on device")
        rename(source, target, **given)

    with patch("os.rename", refuse):
        failed = world.calls.outcome("schema_apply", {"steps": [STATUS]}, BUILDER)
    assert isinstance(failed, Failure)
    assert "do not repeat the change" in failed.message
    assert "status" in world.fields()
    assert (world.folder / ".trails" / JOURNAL).exists()
    head = world.app.graph().main.head
    world.reopen()
    assert world.agrees()
    assert "status" in world.text
    assert world.app.graph().main.head == head
    world.calls.close()


def test_a_reload_under_way_is_waited_for(tmp_path):
    """Both change declarations; the one that waits too long changes nothing."""
    world = World(tmp_path / "p", "python")
    with world.app.reloading, patch("trails.app.declarations._PATIENCE", 0.05):
        assert world.refused(DUE).code == "conflict"
    assert world.apply(DUE)["applied"]
    assert world.agrees()
    world.calls.close()


def test_renames_one_after_the_other_are_folded():
    """Fields by the last name of their type."""
    found = Renames.of(
        [
            Rename("Task", "status", "state"),
            Rename("Task", "Job"),
            Rename("Job", "phase", "status"),
            Rename("Job", "Work"),
        ]
    )
    assert found.types == {"Task": "Work"}
    assert found.fields == {("Work", "state"): "phase"}


def test_a_project_without_code(tmp_path):
    """``trails new --schema graph``, a type, a node: from the command line alone."""
    folder = tmp_path / "acme"
    assert run_command(["new", str(folder), "--schema", "graph"], tmp_path).returncode == 0
    assert not (folder / "app.py").exists()
    made = run_command(
        ["schema", "apply", "add-type", "Task", "title:str(key)", "points:int?"], folder
    )
    assert "Applied to main" in made.stdout, made.stderr
    data = '[{"op": "create", "type": "Task", "data": {"title": "one", "points": 2}}]'
    done = run_command(["call", "graph_mutate", "--operations", data], folder)
    assert done.returncode == 0, done.stderr
    assert "points" in run_command(["schema", "Task"], folder).stdout
    wrong = run_command(["schema", "apply", "rename-fild", "Task.points", "rank"], folder)
    assert "did you mean 'rename-field'?" in wrong.stderr
    assert run_command(["doctor"], folder).returncode == 0


@pytest.mark.parametrize(
    ("words", "step"),
    [
        (["rename-type", "Task", "Job"], {"step": "rename_type", "type": "Task", "to": "Job"}),
        (
            ["add-field", "Task.due:date?"],
            {"step": "add_field", "type": "Task", "field": {"name": "due", "type": "date | None"}},
        ),
        (
            ["change-field", "Task.title:str(max_length=9)"],
            {
                "step": "change_field",
                "type": "Task",
                "field": "title",
                "to": {"name": "title", "max_length": 9},
            },
        ),
    ],
)
def test_steps_on_the_command_line(words, step):
    """One step in words is the step as JSON."""
    assert read_step(words, hard=False, backfill=None) == step
