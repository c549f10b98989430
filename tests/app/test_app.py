"""App: embedding, project folders, settings, and a schema that follows its declarations."""

import subprocess
import sys
import textwrap

import pytest

from trails import App, Context, Iri, Node, Ref, Shape, capability, node_type, predicate, shape
from trails.errors import (
    CapabilityError,
    LockedError,
    NotFoundError,
    SchemaMismatchError,
    SettingsError,
    StorageError,
    TrailsError,
    ValidationError,
)

SETTINGS = '[project]\nname = "acme"\n'
APP = """
from trails import Node, capability, node_type, predicate, Context

@node_type
class Task(Node):
    "A task."
    title: str = predicate(key=True)
{fields}

@capability("tasks.count", idempotent=True)
def count(ctx: Context) -> int:
    "How many tasks there are."
    return Task.objects(ctx).count()
"""


def make_project(folder, fields="", settings=SETTINGS):
    """A project folder with one type."""
    folder.mkdir(exist_ok=True)
    (folder / "trails.toml").write_text(settings)
    (folder / "app.py").write_text(APP.format(fields=textwrap.indent(fields, "    ")))
    return folder


def reopen(folder, fields, **options):
    """Change the declarations and open the project in a process-like fresh state."""
    make_project(folder, fields)
    for name, module in list(sys.modules.items()):
        if getattr(module, "__file__", None) == str(folder / "app.py"):
            del sys.modules[name]
    return App.open(folder, **options)


def test_a_project_keeps_what_was_saved(tmp_path):
    """Open, save, close, open: the data and the capability are there."""
    folder = make_project(tmp_path / "acme")
    with App.open(folder) as app:
        ctx = app.context(actor="ann")
        task = app.registry().classes["Task"](title="Write tests")
        commit = task.save(ctx)
        assert commit.actor == "ann"
    with App.open(folder) as app:
        assert app.call(app.context(), "tasks.count") == 1


def test_a_folder_has_one_owner(tmp_path):
    """A second process is told who has the project open, and gets it afterwards."""
    folder = make_project(tmp_path / "acme")
    script = f"from trails import App; App.open({str(folder)!r}).close(); print('opened')"
    with App.open(folder):
        with pytest.raises(LockedError, match="pid"):
            App.open(folder)
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
        assert "LockedError" in done.stderr
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.stdout == "opened\n"


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ('[project]\nname = "acme"\nenvv = "x"\n', "did you mean 'env'"),
        ("[project]\n", "name"),
        ('[project]\nname = "kg"\n', "reserved"),
        ('[project]\nname = "Acme Inc"\n', "lower-case"),
        ('[project]\nname = "acme"\nenv = "prod"\n', "env"),
        ('[project]\nname = "acme"\n[graphs.main]\nbase_iri = "x y"\n', "'x y' can't begin"),
        ('[project]\nname = "acme"\n[graphs.main]\nbase_iri = "kg"\n', "an absolute IRI"),
        ("[project\n", "can't be read"),
        ('[project]\nname = "acme"\n[graphs."no good"]\n', "lower-case"),
        ('[project]\nname = "acme"\n[graphs.main]\napp = "nope.py"\n', "no such file"),
    ],
)
def test_settings_are_read_strictly(tmp_path, settings, says):
    """A wrong key or value is named; nothing is ignored."""
    folder = make_project(tmp_path / "acme", settings=settings)
    with pytest.raises(SettingsError, match=says):
        App.open(folder, strict=True)


def test_a_folder_without_settings_is_no_project(tmp_path):
    """The error says how to make one."""
    with pytest.raises(SettingsError, match="trails new"):
        App.open(tmp_path)


def test_graphs_of_one_project_do_not_meet(tmp_path):
    """Two graphs have the same types and share nothing else."""
    settings = SETTINGS + '[graphs.one]\napp = "app.py"\n[graphs.two]\napp = "app.py"\n'
    folder = make_project(tmp_path / "acme", settings=settings)
    with App.open(folder) as app:
        task = app.registry("one").classes["Task"]
        one, two = app.context(graph="one"), app.context(graph="two")
        task(title="Only here").save(one)
        assert task.objects(one).count() == 1
        assert task.objects(two).count() == 0
        assert task.get(one, "Only here").iri(one) == "trails://acme/one/Task/Only%20here"
        with pytest.raises(NotFoundError, match="one, two"):
            app.context(graph="three")


def test_base_iri_is_fixed_when_the_graph_is_created(tmp_path):
    """A later change of the setting does not move the nodes."""
    folder = make_project(
        tmp_path / "acme", settings=SETTINGS + '[graphs.main]\nbase_iri = "https://x.org/kg"\n'
    )
    with App.open(folder) as app:
        ctx = app.context()
        app.registry().classes["Task"](title="a").save(ctx)
    (folder / "trails.toml").write_text(SETTINGS)
    with App.open(folder) as app:
        ctx = app.context()
        assert app.registry().classes["Task"].get(ctx, "a").iri(ctx) == "https://x.org/kg/Task/a"


class TestSchemaFollowsDeclarations:
    """On open the declared types are compared with the stored ones; nothing is ignored."""

    @pytest.fixture
    def folder(self, tmp_path):
        """A project with two tasks and an optional field."""
        folder = make_project(tmp_path / "acme", "effort: int | None = predicate()")
        with App.open(folder) as app:
            ctx = app.context()
            task = app.registry().classes["Task"]
            ctx.kg.save_all([task(title="a", effort=3), task(title="b")])
        return folder

    @pytest.mark.parametrize(
        "fields",
        [
            "effort: int | None = predicate(min_value=1)",
            "effort: int | None = predicate()\nnote: str | None = predicate()",
            "effort: int | None = predicate(description='hours')",
        ],
    )
    def test_a_change_that_fits_the_data_is_applied(self, folder, fields):
        """It becomes a commit of its own, and the data is all there."""
        with reopen(folder, fields) as app:
            ctx = app.context()
            task = app.registry().classes["Task"]
            assert task.get(ctx, "a").effort == 3
            assert task.objects(ctx).where(effort__gte=1).count() == 1
            last = app.graph().log.commit(ctx.kg.head.commit)
            assert last.message.startswith("schema: Task")
            assert last.schema == app.registry().schema.digest

    def test_a_new_field_can_be_filtered_on_old_nodes(self, folder):
        """The index is brought up to the new schema."""
        with reopen(folder, "effort: int | None = predicate()\nnote: str | None") as app:
            task = app.registry().classes["Task"]
            assert task.objects(app.context()).where(note=None).count() == 2
            assert [t.title for t in task.objects(app.context()).order_by("-note")] == ["b", "a"]

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ("effort: int = predicate()", "effort is required"),
            ("effort: int | None = predicate(max_value=2)", "at most 2"),
            ("", "the field is gone"),
            ("effort: str | None = predicate()", "became"),
        ],
    )
    def test_a_change_that_breaks_the_data_is_refused(self, folder, fields, says):
        """The error names the nodes; the stored schema and data stay as they are."""
        with pytest.raises(SchemaMismatchError, match=says):
            reopen(folder, fields, strict=True)
        with reopen(folder, "effort: int | None = predicate()") as app:
            assert app.registry().classes["Task"].get(app.context(), "a").effort == 3

    def test_production_applies_nothing_unasked(self, folder):
        """There a difference is an error that says how to apply it."""
        fields = "effort: int | None = predicate()\nnote: str | None = predicate()"
        make_project(folder, fields)
        production = '[project]\nname = "acme"\nenv = "production"\n'
        (folder / "trails.toml").write_text(production)
        with pytest.raises(SchemaMismatchError, match="new field note"):
            App.open(folder, strict=True)
        with App.open(folder, apply_schema=True) as app:
            assert "note" in app.registry().types["Task"].by_name

    def test_an_old_commit_names_its_own_schema(self, folder):
        """Every schema a branch ever had can be read from the log."""
        with reopen(folder, "effort: int | None = predicate()\nnote: str | None") as app:
            log = app.graph().log
            stored = [log.schema(commit.schema) for commit in log.commits()]
        assert "note" not in stored[0].by_name["Task"].by_name
        assert "note" in stored[-1].by_name["Task"].by_name


@node_type
class Person(Node):
    """A person."""

    email: str = predicate(key=True)
    name: str = predicate(min_length=2)


@shape
class Greeting(Shape):
    """What is said to whom."""

    text: str = predicate(max_length=50)
    to: list[str] = predicate()


@capability("people.greet", idempotent=True)
def greet(
    ctx: Context, person: Ref[Person], times: int = predicate(min_value=1, default=1)
) -> Greeting:
    """Greet someone."""
    return Greeting(text=" ".join(["Hello"] * times), to=[person.name])


@capability("people.add")
def add(ctx: Context, person: Person, home: Iri | None = None) -> Person:
    """Add a person."""
    person.save(ctx)
    return person


@capability("people.cheer")
def cheer(ctx: Context, greetings: list[Greeting]) -> int:
    """Say several things."""
    return sum(len(each.text) for each in greetings)


@capability("people.fail")
async def fail(ctx: Context, why: str) -> None:
    """Fail on purpose."""
    raise CapabilityError(why)


@pytest.fixture
def people():
    """An app in memory with one person."""
    with App(Person, Greeting, greet, add, cheer, fail) as app:
        Person(email="ann@x", name="Ann").save(app.context())
        yield app


def test_a_capability_takes_json_and_gives_json(people):
    """References are loaded, defaults filled in, results are plain."""
    ctx = people.context(actor="bob")
    result = people.call(ctx, "people.greet", {"person": "trails://kg/Person/ann%40x"})
    assert result == {"text": "Hello", "to": ["Ann"]}
    made = people.call(ctx, "people.add", {"person": {"email": "c@x", "name": "Cy"}})
    assert made == {
        "iri": "trails://app/main/Person/c%40x",
        "type": "Person",
        "email": "c@x",
        "name": "Cy",
    }


def test_all_wrong_arguments_are_named_at_once(people):
    """Unknown, missing, mistyped and dangling arguments come in one error."""
    with pytest.raises(ValidationError) as caught:
        people.call(
            people.context(),
            "people.greet",
            {"person": "trails://kg/Person/nobody", "times": 0, "loud": True},
        )
    found = {error.field: error.code for error in caught.value.fields}
    assert found == {"person": "reference", "times": "min_value", "loud": "unknown_field"}
    with pytest.raises(ValidationError) as caught:
        people.call(people.context(), "people.add", {"person": {"name": "x", "age": 1}})
    found = {error.field: error.code for error in caught.value.fields}
    assert found == {
        "person.email": "required",
        "person.name": "min_length",
        "person.age": "unknown_field",
    }


def test_errors_inside_a_list_of_objects_name_the_item(people):
    """The path leads to the value that is wrong."""
    greetings = [{"text": "fine"}, {"text": "x" * 51, "tone": "loud"}]
    with pytest.raises(ValidationError) as caught:
        people.call(people.context(), "people.cheer", {"greetings": greetings})
    found = {error.field: error.message for error in caught.value.fields}
    assert set(found) == {"greetings[1].text", "greetings[1].tone"}
    assert found["greetings[1].text"].startswith("greetings[1].text must have at most 50")
    assert people.call(people.context(), "people.cheer", {"greetings": greetings[:1]}) == 4


def test_every_call_leaves_an_activity(people):
    """Who, what, when and the outcome, failures included; commits name their activity."""
    ctx = people.context(actor="bob")
    people.call(ctx, "people.add", {"person": {"email": "d@x", "name": "Di"}})
    with pytest.raises(CapabilityError):
        people.call(ctx, "people.fail", {"why": "because"})
    with pytest.raises(ValidationError):
        people.call(ctx, "people.greet", {})
    found = [activity for _, activity in people.graph().activities.read()]
    assert [(each.actor, each.name, each.outcome) for each in found] == [
        ("bob", "people.add", "ok"),
        ("bob", "people.fail", "capability"),
        ("bob", "people.greet", "validation"),
    ]
    assert people.graph().log.commit(ctx.kg.head.commit).activity == found[0].id


def test_an_unknown_capability_suggests_the_nearest(people):
    """A typing mistake costs one round trip, not a search."""
    with pytest.raises(NotFoundError, match=r"people\.greet"):
        people.call(people.context(), "people.great")


@pytest.mark.parametrize("actor", ["", "a\nb", "x" * 300])
def test_actors_are_printable_names(people, actor):
    """An actor's name ends up in every commit."""
    with pytest.raises(TrailsError):
        people.context(actor=actor)


def test_only_main_exists_so_far(people):
    """Another branch is not silently main."""
    with pytest.raises(NotFoundError, match="main"):
        people.context(branch="feature")


def test_types_can_be_registered_while_running(people):
    """A type that comes later is usable at once, and listeners hear of it."""
    heard = []
    people.listen(lambda registry: heard.append(registry.version))

    @node_type
    class Pet(Node):
        """An animal."""

        name: str = predicate(key=True)
        owner: Ref[Person] = predicate()

    people.register(Pet)
    ctx = people.context()
    Pet(name="Rex", owner=Person.get(ctx, "ann@x")).save(ctx)
    assert Pet.objects(ctx).where(owner__name="Ann").count() == 1
    assert len(heard) == 1


def test_a_staged_load_that_is_not_needed_leaves_nothing(tmp_path):
    """The index fails after the append: the log feeds both views, and the copy is gone."""
    folder = make_project(tmp_path / "acme", "note: str | None = predicate()")
    with App.open(folder) as app:
        graph, ctx = app.graph(), app.context()
        task = app.registry().classes["Task"]

        def fail_once(step):
            if step == "after_append":
                graph.on_step = lambda later: None
                raise StorageError("the disk had a moment")

        graph.on_step = fail_once
        ctx.kg.save_all(task(title=f"t{number}", note="x") for number in range(9_000))
        branch = folder / ".trails/graphs/main/branches/main"
        assert not (branch / "quads.staged").exists()
        assert task.objects(ctx).count() == 9_000
        assert len(ctx.kg.sparql("SELECT ?t WHERE { ?t a :Task }")) == 9_000
