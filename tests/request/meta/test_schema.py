"""``schema_apply`` and ``trails.meta.schema.*``, whether Python or the graph owns the types."""

from __future__ import annotations

import json

import pytest
from tests.worlds.graphs import Calls
from tests.worlds.projects import make_project

from trails import App
from trails.model.actors import Actor

BUILDER = Actor("bob", frozenset({"runtime", "builder"}), frozenset({"staff"}), "token")
PYTHON = '''
"""Tasks."""

from __future__ import annotations

from trails import Context, Node, Ref, capability, node_type, predicate


@node_type
class Task(Node):
    """Something to do."""

    key: str = predicate(key=True)
    title: str = predicate(label=True)
    state: str = predicate(one_of=["open", "done"], default="open")  # where it is
    points: int | None = predicate()


@capability("tasks.finish")
def finish(ctx: Context, task: Ref[Task]) -> Task:
    """Finish a task."""
    task.state = "done"
    task.save(ctx)
    return task
'''
TASK = {
    "name": "Task",
    "description": "Something to do.",
    "fields": [
        {"name": "key", "key": True},
        {"name": "title", "label": True},
        {"name": "state", "one_of": ["open", "done"], "default": "open"},
        {"name": "points", "type": "int | None"},
    ],
}
DUE = {"step": "add_field", "type": "Task", "field": {"name": "due", "type": "date | None"}}
STATUS = {"step": "rename_field", "type": "Task", "field": "state", "to": "status"}
NARROW = {
    "step": "change_field",
    "type": "Task",
    "field": "points",
    "to": {"name": "points", "type": "int | None", "max_value": 3},
}
DROP = {"step": "drop_field", "type": "Task", "field": "points", "hard": True}


class World:
    """A project with tasks."""

    def __init__(self, folder, source, **made):
        settings = '[project]\nname = "acme"\n'
        if source == "graph":
            settings += '[graphs.main]\nschema = "graph"\n'
        files = PYTHON if source == "python" else {}
        self.folder = make_project(folder, files, settings=settings, **made)
        self.source = source
        self.open()
        if source == "graph":
            self.apply(types=[TASK])

    def open(self):
        """Open it, or open it again."""
        self.calls = Calls(App.open(self.folder, strict=True))
        self.app = self.calls.app

    def reopen(self):
        """Close it, and open it again."""
        self.calls.close()
        self.open()

    def ask(self, tool, **given):
        """The result of a call."""
        return self.calls.result(tool, given, BUILDER)

    def apply(self, *steps, **given):
        """Change types."""
        return self.ask("schema_apply", **({"steps": steps} if steps else {}), **given)

    def refused(self, *steps, tool="schema_apply", **given):
        """Why types can't be changed so."""
        return self.calls.failure(tool, {"steps": steps, **given}, BUILDER)

    def add(self, *keys, branch="main", **data):
        """Add tasks."""
        rows = [{"key": key, "title": f"Task {key}", **data} for key in keys]
        made = [{"op": "create", "type": "Task", "data": row} for row in rows]
        return self.ask("graph_mutate", operations=made, branch=branch)["commit"]

    def fields(self, branch="main"):
        """The fields of a task on a branch."""
        checkout = self.app.graph().checkout(branch)
        return list(checkout.schema.by_name["Task"].by_name)

    @property
    def text(self):
        """The module."""
        return (self.folder / "app.py").read_text() if self.source == "python" else ""

    def agrees(self):
        """Whether files, registry and ``main`` have the same types."""
        found = {self.app.registry().schema.digest, self.app.graph().main.schema.digest}
        return {*found, self.app.declared().schema.digest} == found and len(found) == 1


@pytest.fixture(params=["python", "graph"])
def world(tmp_path, request):
    """One for each authority."""
    made = World(tmp_path / "p", request.param)
    yield made
    made.calls.close()


@pytest.mark.req("G21")
def test_types_data_declarations_and_tools_change_together(world):
    """A plan, its digest, one commit; the next start agrees and applies nothing more."""
    world.add("a", "b", points=5)
    plan = world.ask("trails_meta_schema_plan", steps=[DUE, STATUS])
    assert not plan["applied"]
    assert [each["effect"] for each in plan["steps"]] == ["safe", "safe"]
    assert (plan["diff"] is not None) == (world.source == "python")
    versions = world.app.registry().version
    done = world.apply(DUE, STATUS, plan=plan["plan"], message="Say status")
    assert done["applied"]
    assert done["diff"] == plan["diff"]
    assert world.fields() == ["key", "title", "status", "points", "due"]
    assert world.app.registry().version > versions
    assert world.agrees()
    task = world.app.registry().classes["Task"].get(world.app.context(), "a")
    assert (task.status, task.points, task.due) == ("open", 5, None)
    head = world.app.graph().main.head
    assert head.commit == done["commit"]
    world.reopen()
    assert world.app.graph().main.head == head
    assert world.agrees()
    if world.source == "python":
        assert (
            '    status: str = predicate(one_of=["open", "done"], default="open")  # where it is\n'
            in (world.text)
        )


def test_the_classes_of_a_change_are_used_at_once(world):
    """A node with the new field can be saved by a call and by the ORM."""
    world.apply(DUE)
    world.add("a", due="2026-11-18")
    task = world.app.registry().classes["Task"]
    task(key="b", title="Task b", due=None).save(world.app.context())
    assert {each.key for each in task.objects(world.app.context())} == {"a", "b"}
    assert "2026-11-18" in json.dumps(world.ask("node_get", record="a", type="Task"))


def test_offending_nodes_are_listed_by_pages_and_nothing_is_written(world):
    """All of them, with the call that continues; apply refuses with the same."""
    world.add(*(f"t{n:03}" for n in range(250)), points=9)
    before, text = world.app.graph().main.head, world.text
    found, arguments = [], {"steps": [NARROW]}
    while arguments:
        page = world.ask("trails_meta_schema_plan", **arguments)
        assert len(json.dumps(page)) < 33_000
        assert page["offending"] == 250
        found += [each["node"] for each in page["offenses"]]
        arguments = page.get("next", {}).get("arguments")
    assert len(found) == len(set(found)) == 250
    refused = world.refused(NARROW)
    assert refused.code == "validation"
    assert "at most 3" in refused.message
    assert len(json.dumps(refused.data, default=str)) < 33_000
    following = refused.data["next"]
    assert world.ask(following["tool"], **following["arguments"])["offending"] == 250
    assert (world.app.graph().main.head, world.text) == (before, text)
    assert world.agrees()


@pytest.mark.req("T21e")
def test_a_change_that_breaks_rules_fails_as_a_write_does(world):
    """The same code, field and rule as a save that breaks it."""
    world.add("a", points=9)
    change = world.refused(NARROW).data["fields"][0]
    world.ask("branch_create", name="narrow")
    world.ask("graph_mutate", branch="narrow", operations=[_update("a", points=1)])
    world.apply(NARROW, branch="narrow")
    failed = world.calls.failure(
        "graph_mutate", {"branch": "narrow", "operations": [_update("a", points=9)]}, BUILDER
    )
    write = failed.data["fields"][0]
    assert change["code"] == write["code"] == "max_value"
    assert change["message"].partition("points")[2] == write["message"].partition("points")[2]
    assert change["value"] == write["value"] == 9


def _update(key, **data):
    return {"op": "update", "type": "Task", "id": key, "data": data}


def test_a_hard_drop_needs_permission(world):
    """Values that would be lost are counted."""
    world.add("a", "b", points=2)
    refused = world.refused(DROP)
    assert refused.data["fields"][0]["code"] == "data_loss"
    assert "allow_data_loss" in refused.message
    assert world.apply(DROP, allow_data_loss=True)["applied"]
    assert "points" not in world.fields()
    assert "points" not in world.text


def test_a_plan_that_was_not_reviewed_is_refused(world):
    """Its digest covers the branch, its types and the steps; a stale head is refused too."""
    plan = world.ask("schema_apply", steps=[DUE], dry_run=True)
    commit = world.add("a")
    assert world.refused(DUE, plan=plan["plan"]).code == "conflict"
    assert world.refused(DUE, expected_head=plan["head"]).code == "conflict"
    assert world.apply(DUE, expected_head=commit)["applied"]


def test_a_retry_with_the_same_key_gives_the_first_outcome(world):
    """Also after the types have changed; the key of another request is refused."""
    first = world.apply(DUE, idempotency_key="k1")
    again = world.apply(DUE, idempotency_key="k1")
    assert (again["commit"], again["replayed"]) == (first["commit"], True)
    assert world.refused(STATUS, idempotency_key="k1").code == "conflict"


def test_wanted_types_become_steps(world):
    """What is missing is added; what looks like a rename is named."""
    wanted = json.loads(json.dumps(TASK).replace('"state"', '"status"'))
    person = {"name": "Person", "fields": [{"name": "name", "key": True}]}
    plan = world.ask("trails_meta_schema_plan", types=[wanted, person])
    kinds = [each["step"]["step"] for each in plan["steps"]]
    assert "add_type" in kinds
    assert any("rename_field" in each for each in plan["hints"])
    wrong = world.calls.failure(
        "schema_apply",
        {"types": [{"name": "Task", "fields": [{"name": "x", "type": "strin"}]}]},
        BUILDER,
    )
    assert wrong.data["fields"][0]["field"].startswith("types.Task")


@pytest.mark.parametrize(
    ("steps", "field", "said"),
    [
        ([{"step": "renam_field"}], "steps[0].step", "rename_field"),
        ([{"step": "add_field", "type": "Task"}], "steps[0]", "field"),
        ([DUE, {**STATUS, "field": "stat"}], "steps[1].field", "state"),
        ([{**DUE, "type": "Tsk"}], "steps[0].type", "Task"),
        ([], "steps", "give steps"),
    ],
)
def test_wrong_steps_name_the_mistake_and_what_to_write(world, steps, field, said):
    """All at once, by their place."""
    refused = world.calls.failure("trails_meta_schema_plan", {"steps": steps}, BUILDER)
    assert refused.data["fields"][0]["field"] == field
    assert said in refused.message


def test_on_a_branch_no_file_changes_until_it_is_merged(world):
    """The branch has its own types; main, files and tools have theirs until then."""
    world.add("a", points=1)
    text = world.text
    world.ask("branch_create", name="work")
    done = world.apply(DUE, branch="work")
    assert done["diff"] is None
    assert world.text == text
    assert "due" in world.fields("work")
    assert "due" not in world.fields()
    world.add("b", branch="work", due="2026-12-01")
    assert "due" in world.fields("work")
    world.add("c")  # so that the merge is no fast-forward
    merged = world.ask("branch_merge", source="work")
    assert merged["outcome"] == "merged"
    assert world.fields() == ["key", "title", "state", "points", "due"]
    assert world.agrees()
    task = world.app.registry().classes["Task"]
    assert {each.key for each in task.objects(world.app.context())} == {"a", "b", "c"}
    world.reopen()
    assert world.agrees()


def test_a_fast_forward_changes_the_files_too(world):
    """There is no commit of the merge itself, and the files follow all the same."""
    world.ask("branch_create", name="work")
    world.apply(STATUS, branch="work")
    assert world.ask("branch_merge", source="work")["outcome"] == "fast_forward"
    assert "status" in world.fields()
    assert world.agrees()
    head = world.app.graph().main.head
    world.reopen()
    assert world.app.graph().main.head == head
    if world.source == "python":
        assert "# where it is" in world.text


def test_a_change_can_be_undone_by_steps(world):
    """A rename back, and the text is as it was."""
    world.add("a")
    before, text = world.fields(), world.text
    world.apply(STATUS)
    world.apply({**STATUS, "field": "status", "to": "state"})
    assert world.fields() == before
    assert world.text == text


def test_queries_policies_and_branches_that_would_break_are_named(tmp_path):
    """And the change is refused before anything is written."""
    query = "#+ description: Open.\nSELECT ?t { ?t a :Task ; :state 'open' } # :state"
    policy = 'permit(principal, action, resource);\nforbid(principal == Actor::"eve", '
    policy += 'action == Action::"Read", resource == Field::"Task.state");\n'
    world = World(
        tmp_path / "p", "python", queries={"open.rq": query}, policies={"all.cedar": policy}
    )
    world.ask("branch_create", name="old")
    found = world.ask("trails_meta_impact", steps=[STATUS])["items"]
    by_kind = {each["kind"]: each for each in found}
    assert by_kind["query"]["name"] == "open"
    assert by_kind["query"]["severity"] == "check"
    assert "policies/all.cedar:2" in by_kind["policy"]["name"]
    assert by_kind["capability"]["name"] == "tasks.finish"
    assert by_kind["branch"]["name"] == "old"
    text, head = world.text, world.app.graph().main.head
    refused = world.refused(STATUS)
    assert "policies/all.cedar:2" in refused.message
    assert (world.text, world.app.graph().main.head) == (text, head)
    assert world.agrees()
    (world.folder / "policies/all.cedar").write_text("permit(principal, action, resource);\n")
    drop = {"step": "drop_field", "type": "Task", "field": "state", "hard": True}
    by_kind = {
        each["kind"]: each for each in world.ask("trails_meta_impact", steps=[drop])["items"]
    }
    assert by_kind["query"]["severity"] == "breaks"
    assert "open.rq:2" in world.refused(drop).message
    assert world.apply(STATUS)["applied"]
    followed = (world.folder / "queries/open.rq").read_text()
    assert followed == query.replace("; :state 'open'", "; :status 'open'")
    world.calls.close()


def test_source_that_can_t_be_edited_is_refused_with_its_lines(tmp_path):
    """Before anything is written; a plan says so."""
    world = World(tmp_path / "p", "python")
    made = PYTHON.replace("class Task(Node)", "class Base(Node)").replace("@node_type\n", "")
    made = made.replace(
        "@capability", "Task = node_type(type('Task', (Base,), {}))\n\n\n@capability"
    )
    (world.folder / "app.py").write_text(made)
    world.reopen()
    head = world.app.graph().main.head
    refused = world.refused(DUE)
    assert refused.code == "source"
    assert "app.py" in refused.message
    assert world.app.graph().main.head == head
    assert any(
        "app.py" in each for each in world.ask("trails_meta_schema_plan", steps=[DUE])["hints"]
    )
    world.calls.close()


def test_production_changes_no_files(tmp_path):
    """The refusal has the diff to deploy; on a branch the change is possible."""
    world = World(tmp_path / "p", "python")
    world.calls.close()
    (world.folder / "trails.toml").write_text('[project]\nname = "acme"\nenv = "production"\n')
    world.open()
    refused = world.refused(DUE)
    assert "deploy" in refused.message
    assert "+    due: date | None" in refused.data["diff"]
    world.ask("branch_create", name="work")
    assert world.apply(DUE, branch="work")["applied"]
    assert world.calls.failure("branch_merge", {"source": "work"}, BUILDER).code == refused.code
    assert world.agrees()
    world.calls.close()


def test_a_file_that_was_edited_meanwhile_is_not_overwritten(tmp_path):
    """What is declared on disk is not what is in use, so nothing is written."""
    world = World(tmp_path / "p", "python")
    edited = world.text.replace("    points:", "    extra: str | None = None\n    points:")
    (world.folder / "app.py").write_text(edited)
    head = world.app.graph().main.head
    refused = world.refused(DUE)
    assert "extra" in refused.message
    assert (world.text, world.app.graph().main.head) == (edited, head)
    world.calls.close()


def test_types_in_the_module_of_a_graph_that_owns_them_are_refused(tmp_path):
    """There is one authority."""
    folder = make_project(
        tmp_path / "p", PYTHON, settings='[project]\nname = "p"\n[graphs.main]\nschema = "graph"\n'
    )
    with App.open(folder) as app:
        assert "app.py declares Task" in app.quarantined["main"].message


def test_changing_types_needs_to_see_everything(tmp_path):
    """An actor who may change types, and not read all of them, learns nothing about the data."""
    policy = """
permit(principal, action, resource);
forbid(principal == Actor::"bob", action == Action::"Read", resource == Field::"Task.points");
"""
    world = World(tmp_path / "p", "python", policies={"all.cedar": policy})
    ann = Actor("ann", BUILDER.scopes, frozenset(), "token")
    data = {"key": "a", "title": "Task a", "points": 9}
    create = {"op": "create", "type": "Task", "data": data}
    world.calls.result("graph_mutate", {"operations": [create]}, ann)
    for tool in ("schema_apply", "trails_meta_schema_plan", "trails_meta_impact"):
        assert world.refused(NARROW, tool=tool).code == "unknown"
    assert world.calls.failure("trails_meta_schema_plan", {"steps": [NARROW], "offset": 0}, BUILDER)
    shown = world.ask("trails_meta_schema_show")["types"][0]["fields"]
    assert "points" not in {each["name"] for each in shown}
    listed = {each.name for each in world.calls.kernel.tools(BUILDER).tools}
    assert not listed & {"schema_apply", "trails_meta_schema_plan", "trails_meta_impact"}
    world.calls.close()


@pytest.mark.parametrize("format", ["shacl", "jsonschema", "turtle", "python"])
def test_types_are_exported(world, format):
    """Each is a whole document."""
    found = world.ask("trails_meta_schema_export", format=format)
    assert "Task" in found["text"]
    if format == "python":
        names: dict = {}
        exec(compile(found["text"], "exported", "exec"), names)  # noqa: S102
        assert names["Task"].__trails__.by_name["state"].one_of == ("open", "done")
    if format == "jsonschema":
        assert "Task" in json.loads(found["text"])["$defs"]


def test_types_of_branches_are_compared(world):
    """Steps from one to the other, which can be applied."""
    world.ask("branch_create", name="work")
    world.apply(DUE, branch="work")
    found = world.ask("trails_meta_schema_diff", to="work")
    assert [each["step"] for each in found["steps"]] == ["add_field"]
    assert world.apply(*found["steps"])["after"] == found["after"]
    if world.source == "python":
        assert world.ask("trails_meta_schema_diff", to="files")["steps"] == []
