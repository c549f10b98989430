"""Forms of declarations: Enum, Literal, Annotated, vectors, mixins; each is what it abbreviates."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, Flag, IntEnum, StrEnum
from typing import Annotated, Any, Literal, Optional

import msgspec
import pytest
from tests.worlds.graphs import Calls

from trails import (
    App,
    Context,
    Edge,
    Node,
    Ref,
    Shape,
    Vector,
    capability,
    edge_type,
    node_type,
    predicate,
    shape,
)
from trails.authoring.capabilities import MARK
from trails.errors import DeclarationError, RegistryError, ValidationError
from trails.model.types import Schema, TypeDescriptor
from trails.registry.registry import Registry


class Status(Enum):
    """A plain Enum."""

    OPEN = "open"
    DONE = "done"


class Old(str, Enum):  # noqa: UP042 - the older spelling, whose str() is 'Old.OPEN'
    """A str that is an Enum."""

    OPEN = "open"
    DONE = "done"


class New(StrEnum):
    """A StrEnum."""

    OPEN = "open"
    DONE = "done"


class Level(IntEnum):
    """An IntEnum."""

    LOW = 1
    HIGH = 2


def declare(annotation: object, given: object = None, **more: object) -> TypeDescriptor:
    """A type whose one field has this annotation."""
    body: dict[str, Any] = {"__annotations__": {"field": annotation}, "__doc__": "T."}
    if given is not None:
        body["field"] = given
    return node_type(type("Made", (Node,), body | more)).__trails__


def digest(*types: TypeDescriptor) -> str:
    """The digest of a schema."""
    return Schema.of(types).digest


TEXTS, NUMBERS = ["open", "done"], [1, 2]


@pytest.mark.parametrize(
    ("annotation", "plain", "values"),
    [
        (Status, str, TEXTS),
        (Old, str, TEXTS),
        (New, str, TEXTS),
        (Level, int, NUMBERS),
        (Literal["open", "done"], str, TEXTS),
        ("Literal['open'] | Literal['done']", str, TEXTS),
        (Literal[1, 2], int, NUMBERS),
        (Literal[True], bool, [True]),
        (Literal[Status.OPEN], str, ["open"]),
        (Status | None, str | None, TEXTS),
        (Optional[Literal["open", "done"]], str | None, TEXTS),  # noqa: UP045 - also written so
        ("Literal['open', 'done', None]", str | None, TEXTS),
        (list[New], list[str], TEXTS),
        (list[Literal[1, 2]], list[int], NUMBERS),
        ("Status | None", str | None, TEXTS),
    ],
)
def test_an_enum_or_literal_is_one_of_its_values(annotation, plain, values):
    """The descriptor, and so the digest of the schema, is that of the hand-written one_of."""
    made, written = declare(annotation), declare(plain, predicate(one_of=values))
    assert made == written
    assert digest(made) == digest(written)
    assert declare(annotation, predicate(one_of=[*reversed(values)])).fields[0].one_of == tuple(
        reversed(values)
    )


def test_a_default_may_be_a_member():
    """It is stored as its value, with and without predicate()."""
    written = declare(str, predicate(one_of=TEXTS, default="open"))
    assert declare(Status, Status.OPEN) == written
    assert declare(Old, predicate(default=Old.OPEN)) == written
    assert declare(Literal["open", "done"], "open") == written
    assert declare(list[New], predicate(default=[New.OPEN])).fields[0].default == ("open",)


class Colours(Flag):
    """Members can be combined."""

    RED = 1


class Mixed(Enum):
    """Of several types."""

    ONE = 1
    TWO = "two"


class Empty(Enum):
    """Without members."""


@pytest.mark.parametrize(
    ("annotation", "given", "message"),
    [
        (Literal["a", 1], None, r"Made.field: Literal\['a', 1\] mixes int and str"),
        (Literal[1, True], None, "mixes bool and int"),
        (Literal[b"a"], None, "list texts, whole numbers"),
        ("Literal[None]", None, "lists no value"),
        (Mixed, None, "Made.field: the values of Mixed are int, str"),
        (Empty, None, "the values of Empty are none"),
        (Colours, None, "Colours is a Flag"),
        (Status, predicate(one_of=["open"]), r"one_of=\['open'\] differs from the values"),
        (Literal["a"], predicate(one_of=["a", "b"]), "differs from the values of the type, 'a'"),
        (Literal["a"], predicate(default="b"), "must be one of 'a'"),
        (Status | Level, None, "a union of several types"),
    ],
)
def test_a_wrong_list_of_values_is_refused(annotation, given, message):
    """The message names the field and what to write."""
    with pytest.raises(DeclarationError, match=message):
        declare(annotation, given)


@node_type
class Job(Node):
    """Something to do."""

    name: str = predicate(key=True)
    status: Status = Status.OPEN
    old: Old | None = predicate()
    levels: list[Level] = predicate()
    mode: Literal["fast", "slow"] = "fast"


@node_type(extends=Job)
class Errand(Node):
    """A job elsewhere."""

    place: str | None = predicate()


@edge_type(source=Job, target=Job)
class Blocks(Edge):
    """What waits."""

    how: Status = Status.OPEN


@shape
class Change(Shape):
    """What a capability takes."""

    status: Status = predicate()
    mode: Literal["fast", "slow"] | None = predicate()


@capability("jobs.set")
def set_status(
    ctx: Context,
    job: Ref[Job],
    status: Status,
    levels: list[Level],
    mode: Literal["fast", "slow"] = "slow",
    old: Old = Old.DONE,
) -> Status:
    """Change a job."""
    assert type(status) is Status
    assert all(type(each) is Level for each in levels)
    assert old is Old.DONE
    job.status, job.levels, job.old, job.mode = status, levels, old, mode
    job.save(ctx)
    return job.status


@capability("jobs.apply", side_effects=["none"])
def apply(ctx: Context, change: Change) -> list[Status]:
    """Take a shape."""
    assert type(change.status) is Status
    return [change.status, Status.DONE]


@capability("jobs.shape", side_effects=["none"])
def shaped(ctx: Context, jobs: list[Ref[Job]]) -> list[Change]:
    """Return shapes."""
    return [Change(status=each.status, mode=each.mode) for each in jobs]


def test_instances_hold_members_and_take_members_or_values():
    """In new instances, in assignments and after reading; the graph holds the values."""
    with App(Job, Errand, Blocks) as app:
        ctx = app.context()
        job = Job(name="a", status="done", old=Old.OPEN, levels=[1, Level.HIGH])
        assert job.status is Status.DONE
        assert job.levels == [Level.LOW, Level.HIGH]
        assert all(type(each) is Level for each in job.levels)
        job.status = "open"
        assert job.status is Status.OPEN
        assert job.save(ctx) is not None
        assert job.save(ctx) is None
        read = Job.get(ctx, "a")
        assert (read.status, read.old, read.mode) == (Status.OPEN, Old.OPEN, "fast")
        assert type(read.old) is Old
        assert [type(each) for each in read.levels] == [Level, Level]
        assert read.save(ctx) is None
        read.status = Status.DONE
        assert read.save(ctx) is not None
        job.refresh(ctx)
        assert job.status is Status.DONE
        row = ctx.kg.find("Job", "a")
        assert {name: type(value) for name, value in row.values.items()} == {
            "name": str, "status": str, "old": str, "levels": tuple, "mode": str,
        }  # fmt: skip
        errand = Errand(name="b", old="done")
        errand.save(ctx)
        assert type(Errand.get(ctx, "b").old) is Old
        Blocks(source=job, target=errand, how="done").save(ctx)
        assert next(iter(Blocks.objects(ctx))).how is Status.DONE
        for wrong in ("never", 1, True, Level.LOW, New.OPEN.name, ["open"]):
            with pytest.raises(ValidationError, match="status must be"):
                Job(name="c", status=wrong).save(ctx)
        with pytest.raises(ValidationError, match="levels"):
            Job(name="c", levels=[True]).save(ctx)


def test_conditions_take_members():
    """As the value itself does, alone and in a list."""
    with App(Job) as app:
        ctx = app.context()
        ctx.kg.save_all(
            [
                Job(name="a", levels=[Level.LOW]),
                Job(name="b", status=Status.DONE, old=Old.DONE),
            ]
        )

        def names(**conditions: object) -> list[str]:
            return [each.name for each in Job.where(**conditions).fetch(ctx)]

        assert names(status=Status.OPEN) == names(status="open") == ["a"]
        assert names(status__in=[Status.DONE]) == names(old=Old.DONE) == ["b"]
        assert names(levels=Level.LOW) == names(levels=1) == ["a"]
        assert names(status__in=list(Status)) == ["a", "b"]
        assert Job.objects(ctx).exclude(status=Status.OPEN).count() == 1
        for member in (Status.DONE, Old.DONE, New.DONE):
            found = ctx.kg.sparql("SELECT ?n { ?j :status $status ; :name ?n }", status=member)
            assert [row["n"] for row in found.rows] == ["b"]


def test_capabilities_take_and_return_members():
    """By value over the wire; the descriptor is that of the hand-written one."""
    with App(Job, Change, set_status, apply, shaped) as app:
        calls = Calls(app)
        ctx = app.context()
        Job(name="a").save(ctx)
        given = {"job": "a", "status": "done", "levels": [2]}
        assert calls.result("jobs.set", given) == {"result": "done"}
        assert app.call(ctx, "jobs.set", {**given, "status": Status.OPEN}) == "open"
        job = Job.get(ctx, "a")
        assert (job.status, job.levels, job.mode) == (Status.OPEN, [Level.HIGH], "slow")
        change = {"status": "open", "mode": "fast"}
        assert calls.result("jobs.apply", {"change": change}) == {"result": ["open", "done"]}
        found = calls.result("jobs.shape", {"jobs": ["a"]})
        assert found == {"result": [{"status": "open", "mode": "slow"}]}
        failure = calls.failure("jobs.set", {**given, "status": "never"})
        assert "status must be one of 'open', 'done', not 'never'" in failure.message
        properties = calls.tool("jobs.set").input_schema["properties"]
        assert properties["status"] == {"type": "string", "enum": ["open", "done"]}
        assert properties["mode"]["default"] == "slow"


def test_an_enum_parameter_is_described_like_one_of():
    """Also the version, which is made of the content."""

    @capability("jobs.one")
    def by_enum(ctx: Context, status: Status, level: Level = Level.LOW) -> str:
        """One."""
        return ""

    @capability("jobs.one")
    def by_hand(
        ctx: Context,
        status: str = predicate(one_of=TEXTS),
        level: int = predicate(one_of=NUMBERS, default=1, required=False),
    ) -> str:
        """One."""
        return ""

    assert getattr(by_enum, MARK).descriptor == getattr(by_hand, MARK).descriptor


# --- Annotated, vectors ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotation", "plain", "written"),
    [
        (Annotated[str, predicate(max_length=3)], str, predicate(max_length=3)),
        (Annotated[str, "note", predicate(key=True)], str, predicate(key=True)),
        (Annotated[str | None, predicate(pattern="a")], str | None, predicate(pattern="a")),
        (Annotated[str, predicate(pattern="a")] | None, str | None, predicate(pattern="a")),
        (list[Annotated[int, predicate(one_of=[1])]], list[int], predicate(one_of=[1])),
        (
            Annotated[list[str], predicate(min_count=1)],
            list[str],
            predicate(min_count=1),
        ),
        (Annotated[Ref["Job"], predicate(unique=True)], Ref["Job"], predicate(unique=True)),
        (Annotated[Status, predicate(label=True)], Status, predicate(label=True)),
        (Annotated[str, "only a note"], str, predicate()),
        (Annotated[list[float], Vector(3)], Vector, predicate(dimension=3)),
        (Annotated[Sequence[float], Vector(3)], Vector, predicate(dimension=3)),
        (Annotated[tuple[float, ...] | None, Vector(3)], Vector(3) | None, predicate()),
        (
            Annotated[list[float], Vector(3), predicate(metric="dot")],
            Vector(3),
            predicate(metric="dot"),
        ),
        (Vector[Literal[3]], Vector(3), predicate()),
        (Vector[3], Vector(3), predicate()),
        ("Vector[Literal[3]] | None", Vector(3) | None, predicate()),
    ],
)
def test_annotated_carries_the_constraints(annotation, plain, written):
    """The descriptor is that of ``= predicate(...)``."""
    assert declare(annotation) == declare(plain, written)


def test_annotated_takes_a_default_after_the_sign():
    """As Python's usual defaults, also of parameters."""
    made = declare(Annotated[str, predicate(max_length=3)], "abc")
    assert made == declare(str, predicate(max_length=3, default="abc"))

    @capability("a.b")
    def function(
        ctx: Context,
        text: Annotated[str, predicate(min_length=2, description="T.")],
        more: Annotated[int, predicate(min_value=1)] = 3,
        rest: Annotated[str | None, predicate(max_length=5)] = None,
    ) -> Annotated[str, "only a note"]:
        """One."""
        return text

    @capability("a.b")
    def written(
        ctx: Context,
        text: str = predicate(min_length=2, description="T."),
        more: int = predicate(min_value=1, default=3, required=False),
        rest: str | None = predicate(max_length=5),
    ) -> str:
        """One."""
        return text

    assert getattr(function, MARK).descriptor == getattr(written, MARK).descriptor


@pytest.mark.parametrize(
    ("annotation", "given", "message"),
    [
        (Annotated[str, predicate()], predicate(), "in Annotated and after '='"),
        (Annotated[str, predicate(default="a")], "b", "a default is given in predicate()"),
        (Annotated[str, predicate(), predicate()], None, "given twice in Annotated"),
        (list[Annotated[str, predicate()]], predicate(), "in Annotated and after '='"),
        (Annotated[str, Vector(3)], None, r"Annotated\[list\[float\], Vector\(3\)\]"),
        (Annotated[list[int], Vector(3)], None, "sizes a list of numbers"),
        (Vector[Literal[3]], predicate(dimension=4), "the dimension 3, and predicate\\(\\) 4"),
        (Vector[Literal[0]], None, "needs one dimension"),
    ],
)
def test_a_wrong_annotated_is_refused(annotation, given, message):
    """Nothing that is written is dropped silently."""
    with pytest.raises(DeclarationError, match=message):
        declare(annotation, given)


def test_a_vector_needs_a_number_and_a_result_no_constraints():
    """Both at the declaration."""
    with pytest.raises(DeclarationError, match=r"write Vector\[Literal\[384\]\]"):
        Vector["many"]
    with pytest.raises(DeclarationError, match="remove it from the result"):

        @capability("a.b")
        def function(ctx: Context) -> Annotated[str, predicate(max_length=3)]:
            """One."""
            return ""


@node_type
class Point(Node):
    """Where something is."""

    place: Annotated[list[float], Vector(2)]
    exact: Vector[Literal[2]] | None = None
    label: Annotated[str, predicate(max_length=5)] = "x"


def test_an_annotated_vector_is_held_as_it_is_annotated():
    """A list where a list is declared, so that type checkers are right; else a tuple."""
    with App(Point) as app:
        ctx = app.context()
        point = Point(place=[1.0, 2.0], exact=Vector[Literal[2]]([3.0, 4.0]))
        point.save(ctx)
        read = Point.get(ctx, point.id)
        assert (read.place, read.exact, read.label) == ([1.0, 2.0], (3.0, 4.0), "x")
        read.place[0] = 5.0
        assert read.save(ctx) is not None
        assert Point.get(ctx, point.id).place == [5.0, 2.0]
        with pytest.raises(ValidationError, match="place must be an array of 2 finite numbers"):
            Point(place=[1.0]).save(ctx)
        with pytest.raises(ValidationError, match="label must have at most 5"):
            Point(place=[1.0, 2.0], label="too long").save(ctx)


# --- mixins --------------------------------------------------------------------------------------


class Named:
    """A plain class."""

    name: str = predicate(max_length=9)
    status: Status = Status.OPEN


class Titled:
    """Another one, with the same field."""

    name: str = predicate(max_length=20)


class Copied:
    """Another one, which agrees with Named."""

    name: str = predicate(max_length=9)


def names_of(cls: type) -> list[str]:
    """The fields of a class in order."""
    return [each.name for each in cls.__trails__.fields]


def test_mixins_above_between_and_below_types_all_count():
    """Each field once, of every kind of declared class; Enum members too."""

    @node_type
    class Base(Named, Node):
        code: str = predicate(key=True)

    class Between(Base):
        note: str | None = predicate()

    @node_type
    class Below(Between):
        more: str | None = predicate()

    @node_type(extends=Base)
    class Beside(Named, Node):
        extra: str | None = predicate()

    @edge_type(source=Base, target=Base)
    class Link(Named, Edge):
        pass

    @shape
    class Form(Named, Shape):
        code: str

    @shape
    class Longer(Form, Copied):
        pass

    assert names_of(Base) == ["name", "status", "code"]
    assert names_of(Below) == ["name", "status", "code", "note", "more"]
    assert names_of(Beside) == ["name", "status", "code", "extra"]
    assert names_of(Link) == ["source", "target", "name", "status"]
    assert names_of(Form) == names_of(Longer) == ["name", "status", "code"]
    with App(Base, Below, Beside, Link) as app:
        ctx = app.context()
        for cls in (Base, Below, Beside):
            cls(code=cls.__name__, name="n", status="done").save(ctx)
            assert cls.get(ctx, cls.__name__).status is Status.DONE
    assert Form(name="n", code="c", status="open").status is Status.OPEN
    assert Longer(name="n", code="c").status is Status.OPEN


def test_two_mixins_have_to_agree_on_a_field():
    """Unless the class declares it itself; a mixin may replace what it inherits."""

    @node_type
    class Agreed(Named, Copied, Node):
        pass

    @node_type
    class Settled(Named, Titled, Node):
        name: str = predicate(max_length=5)

    class Nearer(Named):
        name: int = predicate()
        status: str = "free"

    @node_type
    class Replaced(Nearer, Node):
        pass

    class Both(Named, Titled):
        name: str = predicate(max_length=7)

    @node_type
    class Joined(Both, Node):
        pass

    assert Agreed.__trails__.by_name["name"].max_length == 9
    assert Settled.__trails__.by_name["name"].max_length == 5
    assert Joined.__trails__.by_name["name"].max_length == 7
    assert Replaced.__trails__.by_name["name"].type.kind == "Int"
    assert Replaced(name=1).status == "free"
    for bases in ((Named, Titled, Node), (Titled, Named, Node)):
        with pytest.raises(DeclarationError, match="declare it differently; declare it in Wrong"):
            node_type(type("Wrong", bases, {}))
    with pytest.raises(DeclarationError, match="Titled and Named declare it differently"):
        edge_type(source="A", target="A")(type("Wrong", (Named, Titled, Edge), {}))
    with pytest.raises(DeclarationError, match="declare it differently"):
        shape(type("Wrong", (shape(type("Form", (Named, Shape), {})), Titled), {}))


def test_a_mixin_cannot_redeclare_the_field_of_a_type():
    """A subtype keeps its parent's fields."""

    @node_type
    class Base(Node):
        name: str

    with pytest.raises(DeclarationError, match="Base already declares it"):
        node_type(type("Wrong", (Named, Base), {}))


# --- abstract types, keyed edges: what a declaration says -----------------------------------------


@node_type(abstract=True)
class Party(Node):
    """A person or a company."""

    name: str = predicate(key=True)


@node_type
class Person(Party):
    """Someone."""


def test_abstract_is_said_once_and_not_inherited():
    """A subtype is concrete unless it says otherwise."""
    assert Party.__trails__.abstract
    assert not Person.__trails__.abstract
    assert names_of(Person) == ["name"]
    schema = Schema.of([Party.__trails__, Person.__trails__])
    assert schema.family("Party") == ("Party", "Person")
    assert schema.concrete("Party") == ("Person",)


def test_a_parameter_cannot_be_a_new_instance_of_an_abstract_type():
    """No call could give one; a reference and a result are fine."""

    @capability("parties.find", side_effects=["none"])
    def find(ctx: Context, party: Ref[Party]) -> Party:
        """One."""
        return party

    @capability("parties.add")
    def add(ctx: Context, parties: list[Party]) -> None:
        """One."""

    @shape
    class Form(Shape):
        inner: Party | None

    @capability("parties.form")
    def form(ctx: Context, form: Form) -> None:
        """One."""

    with App(Party, Person, find) as app:
        Person(name="ann").save(app.context())
        assert Calls(app).result("parties.find", {"party": "ann"})["type"] == "Person"
        with pytest.raises(RegistryError, match=r"use Ref\[Party\] for an existing one, or Person"):
            app.register(add)
        with pytest.raises(RegistryError, match=r"form.inner is a new Party, which is abstract"):
            app.register(Form, form)


OLD_DIGEST = "4d69e68fffe7f8de609eb3748aeb0821a97b6814059f2932d0b829c6d9e17325"


def test_what_is_declared_as_before_has_its_former_digest():
    """New attributes of descriptors are left out where they have their default."""

    @node_type(unique=[("code", "part")], iri="https://example.org/Thing")
    class Thing(Node):
        """A thing."""

        code: str = predicate(key=True, pattern="^[a-z]+$")
        part: int = predicate(default=1, one_of=[1, 2, 3])
        place: Vector(2) | None = predicate(metric="dot")  # type: ignore[valid-type]
        others: list[Ref[Thing]] = predicate(max_count=3)

    @node_type
    class Part(Thing):
        """A part."""

        text: str | None = predicate(search=True, language="english")

    @edge_type(source=Thing, target=Part, per_source=(0, 2))
    class Holds(Edge):
        """What is where."""

        note: str | None = predicate()

    @shape(target=Thing)
    class Rules(Shape):
        """More rules."""

        code: str = predicate(min_length=2)

    made = Registry(types=[Thing, Part, Holds], shapes=[Rules])
    assert made.schema.digest == OLD_DIGEST
    assert b"abstract" not in msgspec.json.encode(made.schema)
