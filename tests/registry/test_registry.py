"""The registry: one authoritative record, immutable snapshots, no two things under one name."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import msgspec
import pytest
from tests.campaigns import sized

from trails import App, Context, Node, Ref, Shape, capability, meta_capability, node_type, shape
from trails.authoring.capabilities import MARK
from trails.errors import DeclarationError, RegistryError
from trails.model.capabilities import Capability, CapabilityDescriptor, StoredQuery, content_version
from trails.model.iris import digest_of
from trails.model.names import BUILTIN_TOOLS
from trails.registry.registry import Registry, RegistryCell, check_registry


@node_type
class Person(Node):
    """A person."""

    name: str


@node_type
class Task(Node):
    """Something to do."""

    owner: Ref[Person]


@shape
class Report(Shape):
    """What came of it."""

    total: int


def do_nothing(ctx: Context, text: str) -> str:
    """Give the text back."""
    return text


def make_capability(identifier: str, **changes: object) -> Capability:
    """A capability with any descriptor, its version derived from its content."""
    declared = CapabilityDescriptor(identifier, "", "Do it.")
    declared = msgspec.structs.replace(declared, **changes)
    version = declared.version or content_version(declared)
    return Capability(msgspec.structs.replace(declared, version=version), do_nothing)


def mark_of(function: Callable[..., object]) -> Capability:
    """What a decorator left on a function."""
    return getattr(function, MARK)


def make_query(name: str, tool_name: str = "") -> StoredQuery:
    """A stored query."""
    return StoredQuery(name, "Find it.", "SELECT ?s WHERE { ?s ?p ?o }", tool_name=tool_name)


@meta_capability("trails.meta.shop.shape")
def gen_shape(ctx: Context) -> None:
    """Generate a shape."""


@capability("tasks.close")
def close(ctx: Context, task: Ref[Task]) -> Report:
    """Close a task."""
    return Report(total=1)


# ---------------------------------------------------------------------------- one record


@pytest.mark.req("W1")
def test_a_descriptor_has_exactly_fourteen_fields():
    """Every surface is a projection of these."""
    assert CapabilityDescriptor.__struct_fields__ == (
        "id",
        "version",
        "description",
        "input_shape",
        "output_shape",
        "preconditions",
        "side_effects",
        "cost",
        "policy_required",
        "idempotent",
        "reasoning",
        "deprecates",
        "assurance",
        "consent_required",
    )


CHANGES = {
    "description": "Other.",
    "input_shape": mark_of(close).descriptor.input_shape,
    "output_shape": mark_of(close).descriptor.output_shape,
    "preconditions": ("open",),
    "side_effects": ("mail",),
    "cost": {"usd": 1.0},
    "policy_required": ("four-eyes",),
    "idempotent": True,
    "reasoning": "because",
    "deprecates": ("tasks.end",),
    "assurance": "tested",
    "consent_required": True,
}


def test_the_changes_below_cover_every_field():
    """Id and version aside, a new field must be added to them."""
    assert {*CHANGES, "id", "version"} == set(CapabilityDescriptor.__struct_fields__)


@pytest.mark.req("W1")
@pytest.mark.parametrize("field", CHANGES)
def test_the_version_changes_with_the_content(field):
    """Whatever a descriptor says is part of its version."""
    before = make_capability("a.op").descriptor
    after = make_capability("a.op", **{field: CHANGES[field]}).descriptor
    assert before.version != after.version
    assert make_capability("a.op").descriptor.version == before.version


@pytest.mark.req("W1")
@pytest.mark.parametrize("field", CHANGES)
def test_one_version_with_other_content_is_refused(field):
    """Also after the first was replaced, since caches may still hold it."""
    cell = RegistryCell()
    cell.register(capabilities=[make_capability("a.op", version="1")])
    changed = make_capability("a.op", version="1", **{field: CHANGES[field]})
    for _ in range(2):
        held = cell.current
        with pytest.raises(RegistryError, match=r"'a\.op' version '1' .*new version"):
            cell.register(capabilities=[changed])
        assert cell.current is held
        cell.register(capabilities=[make_capability("a.op", version="2")])


@pytest.mark.req("W1")
def test_a_new_version_replaces_the_old_one():
    """One id has one current descriptor."""
    cell = RegistryCell()
    cell.register(capabilities=[make_capability("a.op")])
    newer = make_capability("a.op", description="Other.")
    assert cell.register(capabilities=[newer]).capabilities == {"a.op": newer}


@pytest.mark.req("W1")
def test_one_version_with_another_function_is_refused():
    """Equal descriptors with different behaviour are two things under one name."""
    cell = RegistryCell()
    first = make_capability("a.op")
    cell.register(capabilities=[first])
    other = Capability(first.descriptor, lambda ctx: None)
    with pytest.raises(RegistryError, match=r"'a\.op' .*another function"):
        cell.register(capabilities=[other])


@pytest.mark.req("W1")
def test_registering_the_very_same_again_changes_nothing():
    """A module may be discovered twice."""
    cell = RegistryCell()
    declared = {"types": [Person, Task], "shapes": [Report], "capabilities": [mark_of(close)]}
    first = cell.register(**declared)
    assert cell.register(**declared).digest == first.digest


@pytest.mark.req("W1")
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("meta_first", [True, False])
def test_an_id_in_both_registries_is_refused(together, meta_first):
    """A capability and a meta-capability never share an id, whichever came first."""
    meta = mark_of(gen_shape)
    runtime = make_capability(meta.id)
    pair = [meta, runtime] if meta_first else [runtime, meta]
    cell = RegistryCell()
    if not together:
        cell.register(capabilities=[pair.pop(0)])
    with pytest.raises(RegistryError, match=r"'trails\.meta\.shop\.shape' .*use two ids"):
        cell.register(capabilities=pair)


@pytest.mark.req("W1")
def test_one_id_declared_twice_is_refused():
    """Two declarations with one id are a mistake, not a replacement."""
    twins = [make_capability("a.op"), make_capability("a.op", description="Other.")]
    with pytest.raises(RegistryError, match=r"'a\.op' is declared twice"):
        RegistryCell().register(capabilities=twins)
    with pytest.raises(RegistryError, match=r"'a\.op' is declared twice"):
        Registry(capabilities=twins)
    with pytest.raises(RegistryError, match="'q' is declared twice"):
        Registry(queries=[make_query("q"), make_query("q", "other")])


def test_two_types_of_one_name_are_refused():
    """Types are known by name; so are shapes, and across the two."""

    @node_type
    class Twin(Node):
        a: str

    first = Twin

    @node_type
    class Twin(Node):
        b: str

    with pytest.raises(RegistryError, match="'Twin' is declared twice"):
        RegistryCell().register(types=[first, Twin])

    @shape
    class Twin(Shape):
        c: str

    with pytest.raises(RegistryError, match="Twin is both a node type and a shape"):
        RegistryCell().register(types=[first], shapes=[Twin])


def test_every_dangling_name_is_reported_at_once():
    """Types, shapes and capabilities that name something unknown."""

    @node_type
    class Lost(Node):
        a: Ref[Nowhere]  # noqa: F821 - the point

    @shape(target="Elsewhere")
    class Aimless(Shape):
        a: str

    @shape(target=Person)
    class Mistaken(Shape):
        name: int
        nick: str

    @shape(target=Lost)
    class Narrow(Shape):
        a: Ref[Person]

    @shape(target=Person)
    class Several(Shape):
        name: list[str]

    @capability("lost.find")
    def find(ctx: Context, where: Ref[Nowhere], what: Something) -> Other:  # noqa: F821
        """Find it."""

    with pytest.raises(RegistryError) as refused:
        RegistryCell().register(
            types=[Lost, Person],
            shapes=[Aimless, Mistaken, Narrow, Several],
            capabilities=[mark_of(find)],
        )
    assert len(refused.value.data["problems"]) == 9
    for part in (
        "Lost.a refers to Nowhere",
        "shape Aimless targets Elsewhere",
        "shape Mistaken.name constrains Person",
        "shape Mistaken.nick constrains Person",
        "shape Narrow.a constrains Lost, whose a refers to Nowhere: a shape can't change that",
        "shape Several.name constrains Person, which has no field of that name and type (List",
        "lost.find: where refers to Nowhere",
        "lost.find: what is a Something",
        "lost.find: its result is a Other",
    ):
        assert part in refused.value.message


# ---------------------------------------------------------------------------- snapshots


def test_declaration_order_leaves_no_trace():
    """The digest and every listing are the same for all orders."""
    capabilities = [make_capability("b.op"), make_capability("a.op"), mark_of(gen_shape)]
    queries = [make_query("q2"), make_query("q1")]
    seen = set()
    for types in itertools.permutations([Person, Task]):
        for order in itertools.permutations(capabilities):
            for stored in itertools.permutations(queries):
                registry = Registry(
                    types=types, shapes=[Report], capabilities=order, queries=stored
                )
                listed = (*registry.types, *registry.tools, *registry.capabilities)
                seen.add((registry.digest, listed))
    assert len(seen) == 1
    ((_, listed),) = seen
    assert listed == ("Person", "Task", "a.op", "b.op", "q1", "q2", *listed[-3:])


def test_registering_one_by_one_or_all_at_once_gives_one_digest():
    """Only the version tells how a registry came to be."""
    cells = RegistryCell(), RegistryCell()
    cells[0].register(types=[Person, Task], shapes=[Report], capabilities=[mark_of(close)])
    cells[1].register(shapes=[Report])
    cells[1].register(types=[Person])
    cells[1].register(types=[Task], capabilities=[mark_of(close)])
    assert cells[0].current.digest == cells[1].current.digest
    assert (cells[0].current.version, cells[1].current.version) == (1, 3)


def test_the_digest_covers_every_population():
    """Adding or changing anything changes it."""
    digests = [
        Registry(**given).digest
        for given in (
            {},
            {"types": [Person]},
            {"types": [Person, Task]},
            {"shapes": [Report]},
            {"capabilities": [make_capability("a.op")]},
            {"capabilities": [make_capability("a.op", idempotent=True)]},
            {"capabilities": [mark_of(gen_shape)]},
            {"queries": [make_query("q")]},
            {"queries": [make_query("q", "tool")]},
        )
    ]
    assert len(set(digests)) == len(digests)


def test_a_snapshot_can_not_be_changed():
    """Its populations are read-only."""
    registry = Registry(types=[Person], capabilities=[make_capability("a.op")])
    for population in (registry.classes, registry.capabilities, registry.metas, registry.tools):
        with pytest.raises(TypeError):
            population["x"] = None


def test_restrict_keeps_types_and_drops_what_is_not_permitted():
    """The restricted registry is one like any other, of the same version."""
    whole = Registry(
        version=7,
        types=[Person, Task],
        shapes=[Report],
        capabilities=[mark_of(close), mark_of(gen_shape), make_capability("a.op")],
        queries=[make_query("q1"), make_query("q2")],
    )
    seen = whole.restrict(lambda each: getattr(each, "id", "q2") in {"a.op", "q2"})
    assert (seen.version, list(seen.tools)) == (7, ["a.op", "q1", "q2"])
    none = whole.restrict(lambda each: False)
    assert (list(none.tools), list(none.types), list(none.shapes)) == (
        [],
        ["Person", "Task"],
        ["Report"],
    )
    assert none.capability("a.op") is None
    assert list(whole.tools) == ["a.op", "q1", "q2", "tasks.close", "trails_meta_shop_shape"]
    assert whole.restrict(lambda each: True).digest == whole.digest


def test_listeners_are_told_of_every_new_snapshot_until_they_stop():
    """A refused registration is no news."""
    cell = RegistryCell()
    heard: list[Registry] = []
    stop = cell.listen(heard.append)
    first = cell.register(types=[Person])
    with pytest.raises(RegistryError):
        cell.register(capabilities=[make_capability("graph_query")])
    second = cell.register(capabilities=[make_capability("a.op")])
    stop()
    stop()
    cell.register(capabilities=[make_capability("b.op")])
    assert heard == [first, second]
    assert [each.version for each in heard] == [1, 2]


def test_an_app_tells_its_listeners():
    """The cell behind an app is the one that it registers with."""
    with App(Person) as app:
        heard: list[Registry] = []
        app.listen(heard.append)
        app.register(do_it := capability("a.op")(do_nothing_again()))
        assert [list(each.capabilities) for each in heard] == [["a.op"]]
        assert mark_of(do_it) is app.registry().capability("a.op")


def do_nothing_again() -> Callable[..., object]:
    """A fresh function, since a function is declared once."""

    def again(ctx: Context) -> None:
        """Do nothing."""

    return again


# ---------------------------------------------------------------------------- concurrency


@contextmanager
def frequent_switches() -> Iterator[None]:
    """Let threads interleave as finely as the interpreter can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def make_pair(number: int) -> tuple[Capability, StoredQuery]:
    """Two declarations that are always registered together."""
    return make_capability(f"op.n{number}"), make_query(f"query_n{number}")


def check_snapshot(pinned: Registry) -> None:
    """All projections of one snapshot tell of the same set of pairs."""
    numbers = {name.removeprefix("op.n") for name in pinned.capabilities}
    assert {name.removeprefix("query_n") for name in pinned.queries} == numbers
    assert len(pinned.tools) == 2 * len(numbers)
    assert pinned.version == len(numbers)
    # Made anew from what was just read, the content must have the same address.
    again = Registry(
        capabilities=pinned.capabilities.values(), queries=tuple(pinned.queries.values())
    )
    assert pinned.digest == again.digest


def hammer(writers: int, each: int, readers: int) -> tuple[RegistryCell, list[int], list[Registry]]:
    """Register from many threads; give what listeners heard, and every snapshot that was seen.

    Readers only collect: checking while reading would let most snapshots pass unseen.
    """
    cell, done = RegistryCell(), threading.Event()
    heard: list[int] = []
    seen: list[list[Registry]] = [[] for _ in range(readers)]
    start = threading.Barrier(writers + readers)
    cell.listen(lambda registry: heard.append(registry.version))

    def write(number: int) -> None:
        start.wait()
        for step in range(number * each, (number + 1) * each):
            operation, query = make_pair(step)
            cell.register(capabilities=[operation], queries=[query])

    def read(mine: list[Registry]) -> None:
        mine.append(cell.current)
        start.wait()
        while not done.is_set():
            if (pinned := cell.current) is not mine[-1]:
                mine.append(pinned)
        mine.append(cell.current)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
    watchers = [threading.Thread(target=read, args=(mine,)) for mine in seen]
    with frequent_switches():
        for thread in (*threads, *watchers):
            thread.start()
        for thread in threads:
            thread.join()
        done.set()
        for thread in watchers:
            thread.join()
    for mine in seen:
        versions = [registry.version for registry in mine]
        assert versions == sorted(versions), "a later read saw an older snapshot"
    return cell, heard, [registry for mine in seen for registry in mine]


@pytest.mark.req("W5")
def test_each_reader_sees_one_snapshot_while_many_register():
    """No registration is lost, versions only grow, and every snapshot is whole."""
    cell, heard, seen = hammer(writers=4, each=30, readers=3)
    assert sorted(heard) == list(range(1, 121))
    assert len(cell.current.capabilities) == cell.current.version == 120
    assert len({registry.version for registry in seen}) > 1  # how many, the scheduler decides
    for registry in seen:
        check_snapshot(registry)


@pytest.mark.req("W5")
def test_no_step_of_a_registration_shows_half_of_it():
    """Whichever instruction a reader comes between, it finds the old snapshot or the new one."""
    cell = RegistryCell()
    seen: dict[int, Registry] = {}

    def look(frame: FrameType, event: str, arg: object) -> Callable[..., object]:
        frame.f_trace_opcodes = True
        seen.setdefault(id(cell.current), cell.current)
        return look

    before = sys.gettrace()
    sys.settrace(look)
    try:
        for number in range(3):
            operation, query = make_pair(number)
            cell.register(capabilities=[operation], queries=[query])
    finally:
        sys.settrace(before)
    assert [registry.version for registry in seen.values()] == [0, 1, 2, 3]
    for registry in seen.values():
        check_snapshot(registry)


@pytest.mark.long(cases=8 * sized(50, nightly=20))
@pytest.mark.req("W5")
def test_each_reader_sees_one_snapshot_for_a_long_time():
    """The long campaign: hundreds of registrations from eight threads."""
    each = sized(50, nightly=20)
    cell, heard, seen = hammer(writers=8, each=each, readers=4)
    assert sorted(heard) == list(range(1, 8 * each + 1))
    assert len(cell.current.capabilities) == 8 * each
    for registry in seen:
        check_snapshot(registry)


@pytest.mark.req("W5")
def test_a_pinned_snapshot_and_a_context_outlive_registration():
    """What was pinned before a swap answers as before it."""
    with App(Person, capability("a.op")(do_nothing_again())) as app:
        ctx = app.context()
        pinned = app.registry()
        before = (pinned.version, pinned.digest, list(pinned.tools))
        app.register(Task, Report, close)
        assert (pinned.version, pinned.digest, list(pinned.tools)) == before
        assert ctx.registry is pinned
        assert list(app.registry().tools) == ["a.op", "tasks.close", "trails_meta_ping"]
        assert pinned.digest == digest_of(
            [
                pinned.schema.types,
                [],
                [each.descriptor for each in pinned.capabilities.values()],
                [[each.descriptor, each.meta] for each in pinned.metas.values()],
                [],
            ]
        )


# ---------------------------------------------------------------------------- collisions

COLLISIONS = {
    "a capability and a built-in": (
        {"capabilities": [make_capability("graph_query")]},
        ["capability graph_query", "the built-in tool graph_query"],
    ),
    "a capability's portable spelling and a built-in": (
        {"capabilities": [make_capability("graph.query")]},
        ["capability graph.query", "the built-in tool graph_query"],
    ),
    "a query and a built-in": (
        {"queries": [make_query("search")]},
        ["stored query search", "the built-in tool search"],
    ),
    "a query's tool name and a built-in": (
        {"queries": [make_query("mine", "graph-load")]},
        ["stored query mine", "the built-in tool graph_load"],
    ),
    "a query and a capability": (
        {"capabilities": [make_capability("a.op")], "queries": [make_query("a.op")]},
        ["stored query a.op", "capability a.op"],
    ),
    "a query and a capability's portable spelling": (
        {"capabilities": [make_capability("a.op")], "queries": [make_query("a_op")]},
        ["stored query a_op", "capability a.op"],
    ),
    "two capabilities in the portable spelling": (
        {"capabilities": [make_capability("a.op"), make_capability("a_op")]},
        ["capability a_op", "capability a.op"],
    ),
    "two queries by tool name": (
        {"queries": [make_query("one", "same"), make_query("two", "same")]},
        ["stored query two", "stored query one"],
    ),
    "two queries in the portable spelling": (
        {"queries": [make_query("a-b"), make_query("a.b")]},
        ["stored query a.b", "stored query a-b"],
    ),
    "a capability and a meta tool": (
        {"capabilities": [mark_of(gen_shape), make_capability("trails_meta_shop_shape")]},
        ["capability trails_meta_shop_shape", "meta-capability trails.meta.shop.shape"],
    ),
    "a query and a meta tool": (
        {"capabilities": [mark_of(gen_shape)], "queries": [make_query("trails.meta.shop.shape")]},
        ["stored query trails.meta.shop.shape", "meta-capability trails.meta.shop.shape"],
    ),
}


@pytest.mark.req("G11a")
@pytest.mark.parametrize("collision", COLLISIONS)
def test_a_name_collision_is_refused_naming_both_sides(collision):
    """Nothing is skipped: the registration fails as a whole, and the old snapshot stays."""
    declared, sides = COLLISIONS[collision]
    cell = RegistryCell()
    with pytest.raises(RegistryError) as refused:
        cell.register(**declared)
    for side in (*sides, "collides with", "rename one"):
        assert side in refused.value.message
    assert cell.current.tools == {}
    assert cell.current.version == 0


@pytest.mark.req("G11a")
@pytest.mark.parametrize("name", sorted(BUILTIN_TOOLS))
def test_no_built_in_can_be_shadowed(name):
    """Neither a capability nor a stored query takes a built-in tool's name."""
    for declared in ({"capabilities": [make_capability(name)]}, {"queries": [make_query(name)]}):
        with pytest.raises(RegistryError, match=f"the built-in tool {name}"):
            check_registry(Registry(**declared))


@pytest.mark.req("G11a")
def test_a_collision_with_what_is_registered_already_is_refused():
    """Order does not matter, nor whether the two came together."""
    for first, second in itertools.permutations(
        [{"capabilities": [make_capability("a.op")]}, {"queries": [make_query("a_op")]}]
    ):
        cell = RegistryCell()
        cell.register(**first)
        held = cell.current
        with pytest.raises(RegistryError, match="collides with"):
            cell.register(**second)
        assert cell.current is held


@pytest.mark.req("G11a")
def test_all_collisions_are_named_at_once():
    """One boot shows all that is to be renamed."""
    taken = ["search", "fetch", "graph.load"]
    with pytest.raises(RegistryError) as refused:
        RegistryCell().register(capabilities=[make_capability(name) for name in taken])
    assert len(refused.value.data["problems"]) == 3


@pytest.mark.req("G11a")
def test_an_app_with_a_collision_does_not_boot():
    """The error reaches whoever starts the application."""
    with pytest.raises(RegistryError, match="the built-in tool graph_query"):
        App(capability("graph.query")(do_nothing_again()))


def test_a_name_that_no_client_accepts_is_refused():
    """A stored query's tool name is checked as well."""
    with pytest.raises(DeclarationError, match="'no spaces'"):
        RegistryCell().register(queries=[make_query("q", "no spaces")])
