"""``trails.meta.migrate.*``: propose, plan, apply on a branch, inspect, merge, roll back."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from tests.worlds.graphs import Calls
from tests.worlds.processes import run_command
from tests.worlds.projects import make_project

from trails import App
from trails.app.doctor import examine_served
from trails.engine.migrations.runner import MigrationRun, Migrator
from trails.engine.migrations.segments import Sponsor, forward_segments
from trails.engine.upkeep.verify import verify
from trails.errors import SchemaMismatchError, ValidationError
from trails.model.actors import Actor
from trails.model.names import INTERNAL_BRANCH

BUILDER = Actor("bob", frozenset({"runtime", "builder"}), frozenset({"staff"}), "token")
APP = '''
from trails import Node, node_type, predicate

@node_type
class Task(Node):
    """Something to do."""
    code: str = predicate(key=True)
    title: str = predicate(min_length=3)
    state: str | None = predicate()
'''
RENAME = [{"step": "rename_field", "type": "Task", "field": "state", "to": "status"}]
PRIORITY = [
    {
        "step": "add_field",
        "type": "Task",
        "field": {"name": "priority", "type": "int", "default": 3},
    }
]
SHOUT = '''"""Titles in capitals, after a new field and before a rule."""

from trails import AddField, ChangeField, FieldSpec, Migration, MigrationContext, RunPython

{more}
def shout(ctx: MigrationContext) -> None:
    for task in ctx.node_type("Task").objects(ctx).fetch():
        task.title = task.title.upper()
        task.size = len(task.title)
        task.save(ctx)


def whisper(ctx: MigrationContext) -> None:
    for task in ctx.node_type("Task").objects(ctx).fetch():
        task.title = task.title.lower()
        task.save(ctx)


migration = Migration(
    forward=[
        AddField("Task", FieldSpec("size", type="int | None")),
        RunPython(shout, whisper),
        ChangeField("Task", "size", FieldSpec("size", type="int", min_value={least})),
    ],
)
'''


def shout(least: int = 1, more: str = "") -> str:
    """A migration of three parts."""
    return SHOUT.format(least=least, more=more)


@pytest.fixture
def calls(tmp_path):
    """A project with a few tasks."""
    found = open_project(tmp_path)
    yield found
    found.close()


def open_project(folder: Path) -> Calls:
    """The project with its tasks."""
    calls = Calls(App.open(make_project(folder / "p", APP)))
    data = [{"code": f"t{n}", "title": f"task {n}", "state": "open"} for n in range(5)]
    operations = [{"op": "create", "type": "Task", "data": each} for each in data]
    calls.result("graph_mutate", {"operations": operations})
    return calls


def put(calls: Calls, **texts: str) -> None:
    """Write migration files by hand."""
    folder = calls.app.folder / "migrations"
    folder.mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / f"{name.removeprefix('m')}.py").write_text(text)


def ask(calls, operation, **given):
    """The result of an operation."""
    return calls.result(f"trails_meta_migrate_{operation}", given, BUILDER)


def refused(calls, operation, **given):
    """The failure of an operation."""
    return calls.failure(f"trails_meta_migrate_{operation}", given, BUILDER)


def states(calls, branch="main"):
    """Migration → its state on a branch."""
    found = ask(calls, "status", branch=branch)
    return {each["name"]: each["state"] for each in found["migrations"]}


def titles(calls, branch="main"):
    """What the tasks of a branch are called."""
    ctx = calls.app.context(branch=branch)
    found = ctx.kg.read_all([f"Task/t{n}" for n in range(5)])[0]
    return [each.values["title"] for each in found.values()]


def task(calls, branch="main", snapshot=None):
    """The values of one task."""
    ctx = calls.app.context(branch=branch, snapshot=snapshot)
    return dict(ctx.kg.find("Task", "t1").values)


def is_sound(calls):
    """The views equal a fresh fold of the log, and no work branch is left."""
    graph = calls.app.graph()
    assert not [name for name in graph.log.branches() if name.startswith(INTERNAL_BRANCH)]
    findings = list(verify(graph, lambda _: None))
    assert all(each.severity == "ok" for each in findings), findings


@pytest.mark.req("T26")
def test_an_agent_proposes_plans_applies_merges_and_rolls_back(calls):
    """All over the operations, with the scope builder."""
    given = {"name": "rename_state", "steps": RENAME, "description": "Tasks have a status."}
    plan = ask(calls, "plan", **given)
    (planned,) = plan["migrations"]
    assert planned["name"] == "0001_rename_state"
    assert planned["steps"][0]["effect"] == "safe"
    assert planned["steps"][0]["nodes"] == 5
    (file,) = plan["diff"]["files"]
    assert file["path"] == "migrations/0001_rename_state.py"
    assert calls.result("trails_meta_gen_migration", given, BUILDER) == plan["diff"]
    assert states(calls) == {}

    calls.result("branch_create", {"name": "try"}, BUILDER)
    done = ask(calls, "apply", branch="try", **given)
    assert [each["name"] for each in done["migrations"]] == ["0001_rename_state"]
    assert (calls.app.folder / file["path"]).read_text() == file["content"]
    assert states(calls, "try") == {"0001_rename_state": "applied"}
    assert states(calls) == {"0001_rename_state": "pending"}
    assert task(calls, "try") == {"code": "t1", "title": "task 1", "status": "open"}
    assert task(calls) == {"code": "t1", "title": "task 1", "state": "open"}

    before = calls.app.graph().main.head.commit
    calls.result("branch_merge", {"source": "try", "target": "main"}, BUILDER)
    assert states(calls) == {"0001_rename_state": "applied"}
    assert task(calls)["status"] == "open"
    assert task(calls, snapshot=before)["state"] == "open"

    ask(calls, "rollback")
    assert states(calls) == {"0001_rename_state": "pending"}
    assert task(calls)["state"] == "open"
    assert ask(calls, "status")["pending"] == 1
    is_sound(calls)


def test_a_status_says_who_applied_what_and_when(calls):
    """With the commit, which says that it was a migration."""
    done = ask(calls, "apply", name="rename_state", steps=RENAME)
    (found,) = ask(calls, "status")["migrations"]
    assert found["actor"] == "bob"
    assert found["commit"] == done["migrations"][0]["commit"] == done["head"]
    commit = calls.app.graph().ancestry.commit(found["commit"])
    assert commit.time == found["time"]
    assert commit.message == "apply migration 0001_rename_state"
    assert commit.activity is not None


def test_steps_are_refused_with_the_way_to_write_them(calls):
    """And no file is left."""
    failure = refused(calls, "apply", name="x", steps=[{"step": "rename"}])
    assert "steps[0].step: 'rename' is not a step; did you mean 'rename_" in failure.message
    failure = refused(calls, "apply", name="x", steps=[{**RENAME[0], "field": "stat"}])
    assert "did you mean 'state'" in failure.message
    failure = refused(calls, "apply", steps=RENAME)
    assert "name: give words" in failure.message
    assert "can't name a migration" in refused(calls, "plan", name="A B", steps=RENAME).message
    assert not (calls.app.folder / "migrations").exists() or not list(
        (calls.app.folder / "migrations").iterdir()
    )
    assert states(calls) == {}


@pytest.mark.req("T21e")
def test_data_that_breaks_a_rule_is_refused_as_the_orm_does(calls):
    """The same code, field and message, and nothing is written."""
    text = (
        "from trails import Migration, RunPython\n"
        "def shorten(ctx):\n"
        "    task = ctx.node_type('Task').get(ctx, 't1')\n"
        "    task.title = 'x'\n"
        "    task.save(ctx)\n"
        "migration = Migration(forward=[RunPython(shorten)])\n"
    )
    put(calls, m0001_shorten=text)
    head = calls.app.graph().main.head
    by_migration = refused(calls, "apply")
    change = [{"op": "update", "type": "Task", "id": "t1", "data": {"title": "x"}}]
    by_mutation = calls.failure("graph_mutate", {"operations": change})
    assert by_migration.code == by_mutation.code == "validation"
    (found,), (expected,) = by_migration.data["fields"], by_mutation.data["fields"]
    assert found["code"] == expected["code"]
    assert found["message"] in expected["message"]
    assert calls.app.graph().main.head == head
    assert states(calls) == {"0001_shorten": "pending"}
    planned = refused(calls, "apply", dry_run=True)
    assert planned.code == "validation"
    is_sound(calls)


def test_a_migration_of_several_parts_is_whole(calls):
    """Readers of the branch see its end only, and it is rolled back as a whole."""
    put(calls, m0001_shout=shout())
    before = calls.app.graph().main.head.commit
    done = ask(calls, "apply")
    assert titles(calls) == [f"TASK {n}" for n in range(5)]
    assert task(calls)["size"] == 6
    log = calls.app.versions().commits("main", limit=4).commits
    assert [each.message for each in log[:3]] == [
        f"apply migration 0001_shout (part {n} of 3)" for n in (3, 2, 1)
    ]
    assert log[3].id == before
    assert done["head"] == log[0].id
    assert ask(calls, "rollback", allow_data_loss=True)["migrations"][0]["direction"] == "reverse"
    assert titles(calls) == [f"task {n}" for n in range(5)]
    assert "size" not in task(calls)
    assert task(calls, snapshot=done["head"])["size"] == 6
    is_sound(calls)


def test_a_failure_in_a_later_part_changes_nothing(calls):
    """The branch stays where it was, and the work is gone."""
    put(calls, m0001_shout=shout(least=100))
    head = calls.app.graph().main.head
    failure = refused(calls, "apply")
    assert failure.code == "validation"
    assert "100" in failure.message
    assert calls.app.graph().main.head == head
    assert states(calls) == {"0001_shout": "pending"}
    put(calls, m0001_shout=shout())
    ask(calls, "apply")
    is_sound(calls)


def test_a_function_that_raises_is_named_with_its_line(calls):
    """But not with a value."""
    put(
        calls,
        m0001_bad="from trails import Migration, RunPython\n\ndef bad(ctx):\n"
        "    raise KeyError('secret')\n\nmigration = Migration(forward=[RunPython(bad)])\n",
    )
    failure = refused(calls, "apply")
    assert failure.code == "migration"
    assert "bad() failed in line 4: KeyError" in failure.message
    assert "secret" not in failure.message


def test_writers_are_not_lost_while_parts_are_made(calls, monkeypatch):
    """A migration begins again from where the branch is; after a few times it gives up."""
    put(calls, m0001_shout=shout())
    graph, writes = calls.app.graph(), iter(range(2))

    def interfere(step):
        if step == "before_append" and graph.log.last_seq() in parts:
            graph.on_step = lambda _: None
            threads.append(threading.Thread(target=write, args=(next(writes, None),)))
            threads[-1].start()

    def write(number):
        if number is not None:
            ctx = calls.app.context()
            found = calls.app.registry().classes["Task"]
            found(code=f"new{number}", title="meanwhile").save(ctx)

    threads: list[threading.Thread] = []
    parts = {graph.log.last_seq() + 1}
    graph.on_step = interfere
    ask(calls, "apply")
    for each in threads:
        each.join()
    ctx = calls.app.context()
    assert ctx.kg.find("Task", "new0").values["title"] == "MEANWHILE"
    begun = [each for each in graph.log.migrations() if each.migration.part == 1]
    assert len(begun) == 2
    assert states(calls) == {"0001_shout": "applied"}
    is_sound(calls)


def test_an_interrupted_run_is_continued(calls):
    """After Ctrl-C in the second part, the first one is not done again."""
    put(calls, m0001_shout=shout())
    graph = calls.app.graph()
    seen = []

    def stop(step):
        if step == "before_append":
            seen.append(graph.log.last_seq())
            if len(seen) == 3:
                raise KeyboardInterrupt

    files = calls.app.migrations()
    migrator = Migrator(graph, "main", files, Sponsor("bob"))
    run = MigrationRun(files[0], "forward", forward_segments(files[0]))
    graph.on_step = stop
    with pytest.raises(KeyboardInterrupt):
        migrator.perform(run)
    graph.on_step = lambda _: None
    assert titles(calls) == [f"task {n}" for n in range(5)]
    assert ask(calls, "status")["interrupted"] == ["0001_shout"]
    assert calls.result("branch_list", {})["branches"][0]["name"] == "main"
    assert len(calls.result("branch_list", {})["branches"]) == 1
    commits = graph.log.last_seq()
    ask(calls, "apply")
    assert graph.log.last_seq() == commits + 1
    assert titles(calls) == [f"TASK {n}" for n in range(5)]
    is_sound(calls)


def test_two_runners_do_not_meet(calls):
    """The second one is refused, and says what to do."""
    put(calls, m0001_shout=shout())
    with calls.app.graph().migrating:
        failure = refused(calls, "apply")
    assert failure.code == "conflict"
    assert "already being applied" in failure.message
    ask(calls, "apply")


def test_an_edited_or_missing_file_is_not_ignored(calls):
    """Neither applied nor rolled back until it is as it was."""
    ask(calls, "apply", name="rename_state", steps=RENAME)
    path = calls.app.folder / "migrations" / "0001_rename_state.py"
    text = path.read_text()
    path.write_text(text.replace("status", "stage"))
    assert states(calls) == {"0001_rename_state": "changed"}
    for operation in ("apply", "rollback", "plan"):
        failure = refused(calls, operation)
        assert failure.code == "migration"
        assert "0001_rename_state, and the file was edited" in failure.message
    path.unlink()
    assert states(calls) == {"0001_rename_state": "unknown"}
    assert "there is no such file" in refused(calls, "rollback").message
    path.write_text(text)
    ask(calls, "rollback")


def test_a_part_of_the_chain_can_be_applied_and_kept(calls):
    """Up to a number or name, and down to one."""
    for name, steps in (("rename_state", RENAME), ("add_priority", PRIORITY)):
        diff = calls.result("trails_meta_gen_migration", {"name": name, "steps": steps}, BUILDER)
        put(calls, **{"m" + diff["files"][0]["path"][11:-3]: diff["files"][0]["content"]})
    assert list(states(calls)) == ["0001_rename_state", "0002_add_priority"]
    assert ask(calls, "apply", to="1")["pending"] == 1
    assert ask(calls, "apply", to="0001_rename_state")["migrations"] == []
    assert "there is no migration '7'; there are 0001_rename_state, 0002_add_priority" in (
        refused(calls, "apply", to="7").message
    )
    ask(calls, "apply")
    assert task(calls) == {"code": "t1", "title": "task 1", "status": "open", "priority": 3}
    dropped = refused(calls, "rollback", to="0")
    assert dropped.code == "validation"
    assert "allow_data_loss" in dropped.message
    assert states(calls)["0002_add_priority"] == "applied"
    done = ask(calls, "rollback", to="0", allow_data_loss=True)
    names = [each["name"] for each in done["migrations"]]
    assert names == ["0002_add_priority", "0001_rename_state"]
    assert task(calls) == {"code": "t1", "title": "task 1", "state": "open"}
    assert "no migration to roll back" in refused(calls, "rollback").message
    is_sound(calls)


def test_dropped_values_come_back_from_history(calls):
    """Rolling back a hard drop restores what the drop removed."""
    drop = [{"step": "drop_field", "type": "Task", "field": "state", "hard": True}]
    refusal = refused(calls, "apply", name="drop_state", steps=drop)
    assert "allow_data_loss" in refusal.message
    assert states(calls) == {}
    ask(calls, "apply", name="drop_state", steps=drop, allow_data_loss=True)
    assert task(calls) == {"code": "t1", "title": "task 1"}
    ask(calls, "rollback")
    assert task(calls) == {"code": "t1", "title": "task 1", "state": "open"}
    is_sound(calls)


def test_what_can_not_be_undone_is_refused_before_anything_happens(calls):
    """Also if it is not the first of those to roll back."""
    text = shout().replace("RunPython(shout, whisper)", "RunPython(shout)")
    put(calls, m0001_shout=text)
    ask(calls, "apply")
    ask(calls, "apply", name="rename_state", steps=RENAME)
    head = calls.app.graph().main.head
    failure = refused(calls, "rollback", to="0")
    assert failure.code == "migration"
    assert "0001_shout can't be rolled back: shout() has no reverse" in failure.message
    assert calls.app.graph().main.head == head


def test_a_dry_run_counts_and_writes_nothing(calls):
    """Also a function that comes first."""
    put(
        calls,
        m0001_up=shout()
        .replace('AddField("Task", FieldSpec("size", type="int | None")),', "")
        .replace(", ChangeField", "")
        .replace("task.size = len(task.title)", "pass")
        .replace('ChangeField("Task", "size", FieldSpec("size", type="int", min_value=1)),', ""),
    )
    last = calls.app.graph().log.last_seq()
    done = ask(calls, "apply", dry_run=True)
    (planned,) = done["plan"]
    assert planned["steps"] == [
        {
            "summary": "Run shout().",
            "effect": "needs_data",
            "nodes": 5,
            "lost": 0,
            "offending": 0,
        }
    ]
    assert done["dry_run"]
    assert calls.app.graph().log.last_seq() == last
    assert ask(calls, "plan")["migrations"][0]["steps"][0]["nodes"] is None


def test_a_plan_of_several_migrations_counts_up_to_a_function(calls):
    """Later steps are checked against the types that the earlier ones leave."""
    put(
        calls,
        m0001_shout=shout(),
        m0002_next="from trails import Migration, RenameField\n"
        "migration = Migration(after='0001_shout', "
        "forward=[RenameField('Task', 'size', 'length')])\n",
    )
    first, second = ask(calls, "plan")["migrations"]
    assert [each["nodes"] for each in first["steps"]] == [0, None, None]
    assert second["steps"][0]["nodes"] is None
    assert "Rename" in second["steps"][0]["summary"]
    put(
        calls,
        m0002_next="from trails import Migration, RenameField\n"
        "migration = Migration(after='0001_shout', "
        "forward=[RenameField('Task', 'sizes', 'length')])\n",
    )
    failure = refused(calls, "apply")
    assert "0002_next: steps[0].field" in failure.message
    assert states(calls) == {"0001_shout": "pending", "0002_next": "pending"}


def test_scopes_and_policies(calls, tmp_path):
    """Without the scope, or without the right, there is no such tool."""
    runtime = Actor("bob", frozenset({"runtime"}), frozenset(), "token")
    assert calls.failure("trails_meta_migrate_apply", {}, runtime).code == "scope"
    policies = {
        "all.cedar": 'permit(principal, action in [Action::"Read", Action::"Change"], resource);'
    }
    guarded = Calls(App.open(make_project(tmp_path / "g", APP, policies=policies)))
    assert guarded.result("trails_meta_migrate_status", {}, BUILDER)["pending"] == 0
    assert guarded.failure("trails_meta_migrate_apply", {}, BUILDER).code == "unknown"
    guarded.close()


def test_pending_migrations_are_named_where_types_differ(tmp_path):
    """Opening says what to do, and the command works on a graph that is not served."""
    calls = open_project(tmp_path)
    folder = calls.app.folder
    diff = calls.result(
        "trails_meta_gen_migration", {"name": "rename_state", "steps": RENAME}, BUILDER
    )
    put(calls, m0001_rename_state=diff["files"][0]["content"])
    calls.close()
    (folder / "app.py").write_text(APP.replace("state:", "status:"))
    with pytest.raises(SchemaMismatchError, match=r"trails migrate apply.*0001_rename_state"):
        App.open(folder, strict=True)
    (folder / "trails.toml").write_text('[project]\nname = "acme"\nenv = "production"\n')
    with pytest.raises(SchemaMismatchError, match=r"trails migrate apply.*0001_rename_state"):
        App.open(folder, strict=True)


def test_a_new_graph_has_the_migrations_of_its_declarations(calls, tmp_path):
    """A clone of the project begins with the types that they made, and without their data."""
    ask(calls, "apply", name="rename_state", steps=RENAME)
    app = APP.replace("state:", "status:")
    clone = make_project(tmp_path / "clone", app)
    (clone / "migrations").mkdir()
    for each in (calls.app.folder / "migrations").glob("*.py"):
        (clone / "migrations" / each.name).write_text(each.read_text())
    other = Calls(App.open(clone))
    assert states(other) == {"0001_rename_state": "applied"}
    assert ask(other, "apply")["migrations"] == []
    assert "this graph was created with types that have it" in refused(other, "rollback").message
    done = ask(other, "apply", name="add_priority", steps=PRIORITY)
    assert done["migrations"][0]["name"] == "0002_add_priority"
    other.close()


def test_doctor_names_what_is_wrong_with_migrations(calls):
    """Pending ones are a note; edited and missing ones are problems."""

    def found():
        report = examine_served(calls.app, "main")
        return {(each.code, each.where) for each in report.findings if each.name == "migrations"}

    assert found() == {("", "")}
    put(calls, m0001_shout=shout())
    assert found() == {("migration_pending", "0001_shout")}
    ask(calls, "apply")
    assert found() == {("", "")}
    put(calls, m0001_shout=shout(more="# edited\n"))
    assert found() == {("migration_changed", "0001_shout")}
    put(calls, m0001_shout="1 / 0")
    assert found() == {("migration_broken", "")}
    (calls.app.folder / "migrations" / "0001_shout.py").unlink()
    assert found() == {("migration_unknown", "0001_shout")}


def test_a_migration_is_made_of_what_the_declarations_changed(calls):
    """Renames are not guessed, but named."""
    app = calls.app.folder / "app.py"
    app.write_text(APP.replace("state:", "status:") + "    size: int = predicate(default=1)\n")
    plan = ask(calls, "plan", name="declared")
    assert "RenameField" not in plan["diff"]["unified"]
    assert 'DropField("Task", "state")' in plan["diff"]["unified"]
    assert any(each["rule"] == "in_use" for each in plan["migrations"][0]["offenses"])
    (hint,) = plan["hints"]
    steps = [json.loads(hint.partition(" could be meant")[0])]
    assert steps == RENAME
    put(calls, m0001_rename=rename_text())
    ask(calls, "apply", name="size")
    assert task(calls) == {"code": "t1", "title": "task 1", "status": "open", "size": 1}
    failure = refused(calls, "plan", name="nothing")
    assert "the declared types are those that the graph has" in failure.message


def rename_text() -> str:
    """A migration that renames a field."""
    return (
        "from trails import Migration, RenameField\n"
        "migration = Migration(forward=[RenameField('Task', 'state', 'status')])\n"
    )


def test_nobody_sees_the_branch_on_which_parts_are_made(tmp_path):
    """Who may not read a branch can't read it in the work on it, even after that was left."""
    policies = {
        "all.cedar": "permit(principal, action, resource);\n"
        'forbid(principal == Actor::"eve", action, resource) when { context.branch == "hr" };'
    }
    calls = Calls(App.open(make_project(tmp_path / "p", APP, policies=policies)))
    operations = [{"op": "create", "type": "Task", "data": {"code": "t1", "title": "open"}}]
    calls.result("graph_mutate", {"operations": operations})
    calls.result("branch_create", {"name": "hr"})
    operations = [{"op": "create", "type": "Task", "data": {"code": "pay", "title": "secret"}}]
    calls.result("graph_mutate", {"operations": operations, "branch": "hr"})
    put(calls, m0001_shout=shout(least=100))
    graph = calls.app.graph()
    left = []
    graph.on_step = lambda step: left.append(looked()) if step == "before_append" else None
    eve = Actor("eve", frozenset({"runtime"}), frozenset(), "token")

    def looked():
        graph.on_step = lambda _: None
        return [name for name in graph.log.branches() if name.startswith(INTERNAL_BRANCH)]

    files = calls.app.migrations()
    segments = forward_segments(files[0])
    with pytest.raises(ValidationError):
        Migrator(graph, "hr", files, Sponsor("bob")).perform(
            MigrationRun(files[0], "forward", segments)
        )
    ((work,),) = left
    made = [each for each in graph.log.migrations() if each.branch == work]
    assert made
    for each in made:
        assert calls.failure("commit_get", {"commit": each.id}, eve).code == "not_found"
        reading = {"type": "Task", "snapshot": each.id}
        assert calls.failure("node_list", reading, eve).code == "not_found"
    reading = {"type": "Task", "branch": work}
    assert calls.failure("node_list", reading, eve).code == "not_found"
    assert calls.failure("branch_create", {"name": work}).code == "forbidden"
    calls.close()


def test_declarations_follow_main(calls):
    """The file that declares the types changes with main, not with a branch, and back again."""
    app = calls.app.folder / "app.py"
    calls.result("branch_create", {"name": "try"})
    ask(calls, "apply", branch="try", name="rename_state", steps=RENAME)
    assert app.read_text() == APP
    calls.result("branch_merge", {"source": "try"})
    assert app.read_text() == APP.replace("state:", "status:")
    ask(calls, "rollback")
    assert app.read_text() == APP
    put(calls, m0002_shout=shout().replace("forward=", "after='0001_rename_state', forward=", 1))
    ask(calls, "apply")
    assert "status: str" in app.read_text()
    assert "size: int = predicate(min_value=1)" in app.read_text()
    report = examine_served(calls.app, "main")
    assert "types_pending" not in {each.code for each in report.findings}


def test_a_deployment_applies_several_migrations(tmp_path):
    """In production no file is changed: types are deployed with the migrations that make them."""
    calls = open_project(tmp_path)
    folder = calls.app.folder
    calls.close()
    declared = APP.replace("state:", "status:") + "    size: int = predicate(min_value=1)\n"
    (folder / "app.py").write_text(declared)
    (folder / "trails.toml").write_text('[project]\nname = "acme"\nenv = "production"\n')
    (folder / "migrations").mkdir()
    (folder / "migrations" / "0001_rename.py").write_text(rename_text())
    later = shout().replace("forward=", "after='0001_rename', forward=", 1)
    (folder / "migrations" / "0002_shout.py").write_text(later)
    with pytest.raises(SchemaMismatchError, match=r"0001_rename, 0002_shout"):
        App.open(folder, strict=True)
    for to in ("1", "2"):
        done = run_command(["migrate", "apply", "--to", to, "--json"], folder)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "app.py").read_text() == declared
    with App.open(folder, strict=True) as app:
        task_type = app.registry().classes["Task"]
        assert task_type.get(app.context(), "t1").size == 6


def test_what_a_crash_left_after_the_last_part_is_removed(calls):
    """The migration is applied then, so it is not interrupted, and the next run tidies up."""
    put(calls, m0001_shout=shout())
    files, graph = calls.app.migrations(), calls.app.graph()
    migrator = Migrator(graph, "main", files, Sponsor("bob"))
    dropped = []

    def die(work):
        if graph.log.head(work) is not None:
            dropped.append(work)
            raise KeyboardInterrupt

    migrator._drop = die
    with pytest.raises(KeyboardInterrupt):
        migrator.perform(MigrationRun(files[0], "forward", forward_segments(files[0])))
    assert dropped
    assert states(calls) == {"0001_shout": "applied"}
    assert ask(calls, "status")["interrupted"] == []
    assert ask(calls, "apply")["migrations"] == []
    is_sound(calls)
