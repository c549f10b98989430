"""What is hidden decides nothing about who is told: each change is heard as far as it is seen."""

from __future__ import annotations

import asyncio

import pytest
from tests.journeys.access import whole_types
from tests.journeys.access.ears import AGENT, Ears, Turncoat, Veil, few, listen
from tests.journeys.access.worlds import SIGHT, Narrow, World, settle, whole

from trails import App, Node, node_type, predicate
from trails.engine.graph.feed import BranchChange
from trails.errors import StorageError
from trails.model.decisions import ALLOW_ALL
from trails.model.history import MergeRequest
from trails.model.visibility import ChangeKey, Visibility
from trails.request.admission import KernelOptions
from trails.request.pipeline import Kernel
from trails.request.watches import PendingChanges

MAIN = "trails://kg/"
SAFE = Visibility(SIGHT.hidden | {"Safe"}, SIGHT.hidden_fields)


@node_type
class Safe(Node):
    """Hidden like a vault."""

    code: str = predicate(key=True)


@node_type
class Lamp(Node):
    """It gives light, and everybody sees it."""

    code: str = predicate(key=True)


@pytest.fixture
def world():
    """The project with hidden parts."""
    with whole() as world:
        yield settle(world)


@pytest.fixture
def crowd():
    """Ten nodes are a crowd, and sixty statements a long way."""
    with few(10, statements=60):
        yield


def many(world, type_name, count, **values):
    """Make many nodes in one commit."""
    key = {"Person": "email", "Asset": "tag", "Laptop": "tag"}.get(type_name, "code")
    nodes = [
        world.new(type_name, **{key: f"{type_name}{each}@x"}, **values) for each in range(count)
    ]
    world.owner(world.branch).kg.save_all(nodes, upsert=True)


def change(world, type_name, key, **values):
    """Change some fields of a node."""
    ctx = world.owner(world.branch)
    node = getattr(world.types, type_name).get(ctx, key)
    for name, value in values.items():
        setattr(node, name, value)
    node.save(ctx)


def merge(world, source, target="main"):
    """Merge one branch into another."""
    return world.app.service().versions("owner").merge(MergeRequest(source, target))


def laptop(world, tag):
    """A hidden asset."""
    node = world.new("Laptop", tag=tag)
    node.save(world.owner(world.branch), upsert=True)
    return node


def test_many_hidden_changes_at_once_are_not_heard(crowd, world):
    """Too many to name them: fields of people, instances of a hidden subtype."""
    count = 12
    many(world, "Person", count, name="Somebody")
    deeds = [
        lambda: many(world, "Person", count, name="Somebody", grade=4),
        lambda: many(world, "Laptop", count),
        lambda: many(world, "Person", count, name="Nobody"),
    ]
    heard = listen(world, deeds)
    assert heard[:2] == [set(), set()]
    assert heard[2] == {f"{MAIN}Person", f"{MAIN}Person/ann%40x", f"{MAIN}Person/bob%40x"}


def test_a_hidden_crowd_makes_no_node_heard_that_stayed_as_it_was(crowd, world):
    """Beside thousands of hidden changes, a change that is seen is told as if it were alone."""

    def deed(hidden):
        ctx = world.owner()
        with ctx.kg.transaction():
            change_in(ctx, world, f"Ann {hidden}")
            for each in range(hidden):
                world.new("Vault", code=f"v{hidden} {each}").save(ctx)

    def change_in(ctx, world, name):
        ann = world.types.Person.get(ctx, "ann@x")
        ann.name = name
        ann.save(ctx)

    alone, crowded = listen(world, [lambda: deed(0), lambda: deed(12)])
    assert alone == crowded == {f"{MAIN}Person", f"{MAIN}Person/ann%40x"}


def test_hidden_references_are_exchanged_unheard(world):
    """One hidden node for another, alone and in a list; nothing for a hidden one."""
    new, other = laptop(world, "X1"), laptop(world, "X2")
    asset = world.types.Asset.get(world.owner(), "A1")
    deeds = [
        lambda: change(world, "Desk", "d", main=new),
        lambda: change(world, "Desk", "d", main=other),
        lambda: change(world, "Desk", "d", main=None),
        lambda: change(world, "Desk", "d", more=[asset, new, other]),
        lambda: change(world, "Desk", "d", more=[asset]),
        lambda: change(world, "Desk", "d", more=[new]),
        lambda: change(world, "Desk", "d", main=asset),
        lambda: change(world, "Desk", "d", main=new),
    ]
    told = {f"{MAIN}Desk", f"{MAIN}Desk/d"}
    assert listen(world, deeds) == [set(), set(), set(), set(), set(), told, told, told]


def test_an_edge_to_a_hidden_node_is_not_heard(world):
    """Neither when it comes, nor when it changes, nor when it goes."""
    room, new = world.types.Room.get(world.owner(), "r"), laptop(world, "X1")
    asset = world.types.Asset.get(world.owner(), "A1")

    def hold(node, since):
        edge = world.new("Holds", source=room, target=node, since=since)
        edge.save(world.owner(), upsert=True)

    heard = listen(
        world,
        [
            lambda: hold(new, 1),
            lambda: hold(new, 2),
            lambda: world.types.Laptop.get(world.owner(), "X1").delete(world.owner(), cascade=True),
            lambda: hold(asset, 9),
        ],
    )
    assert heard[:3] == [set(), set(), set()]
    assert f"{MAIN}Holds" in heard[3]
    assert len(heard[3]) == 2


@pytest.mark.parametrize("size", [1, 30], ids=["short", "long"])
def test_a_hidden_move_of_a_branch_is_not_heard(crowd, world, size):
    """A fast-forward tells what is seen of the way, however much of it is hidden."""
    room, asset = (world.types.Room.get(world.owner(), "r"), laptop(world, "X1"))

    def forward(*changes):
        world.fork()
        for each in changes:
            each()
        branch, world.branch = world.branch, "main"
        assert merge(world, branch).outcome == "fast_forward"

    def hold():
        world.new("Holds", source=room, target=asset, since=size).save(
            world.owner(world.branch), upsert=True
        )

    def rename(name):
        change(world, "Person", "bob@x", name=name)

    hidden = [
        lambda: many(world, "Vault", size),
        lambda: change(world, "Person", "ann@x", salary=99),
        lambda: change(world, "Desk", "d", main=asset),
        hold,
    ]
    heard = listen(
        world,
        [
            lambda: forward(*hidden),
            lambda: forward(*hidden[:2], lambda: rename("Robert")),
            lambda: forward(lambda: rename("Bob"), lambda: many(world, "Laptop", size)),
            lambda: forward(lambda: rename("Bo"), lambda: rename("Bob"), hidden[0]),
        ],
    )
    told = {f"{MAIN}Person", f"{MAIN}Person/bob%40x"}
    assert heard == [set(), told, told, set()]


def test_a_move_tells_of_edges_that_are_seen(crowd, world):
    """Edges that were there before and change on the way, or go; what they join decides."""
    world.branch = "main"
    ctx = world.owner()
    room, asset, hidden = (
        world.types.Room.get(ctx, "r"),
        world.types.Asset.get(ctx, "A1"),
        laptop(world, "X1"),
    )

    def hold(*nodes, since):
        edges = [world.new("Holds", source=room, target=each, since=since) for each in nodes]
        for edge in edges:
            edge.save(world.owner(world.branch), upsert=True)
        return edges

    def forward(deed):
        world.fork()
        deed()
        branch, world.branch = world.branch, "main"
        assert merge(world, branch).outcome == "fast_forward"

    def change_and_drop(node):
        edge = hold(node, since=5)[0]
        edge.delete(world.owner(world.branch))

    hold(hidden, since=1)
    visible = {f"{MAIN}Holds", *(uri for uri in Ears(world).uris if "/Holds/" in uri)}
    heard = listen(
        world,
        [
            lambda: forward(lambda: hold(hidden, since=2)),
            lambda: forward(lambda: hold(hidden, asset, since=3)),
            lambda: forward(lambda: hold(asset, since=4)),
            lambda: forward(lambda: change_and_drop(hidden)),
            lambda: forward(lambda: (change_and_drop(asset), hold(asset, since=5))),
            lambda: forward(lambda: change_and_drop(asset)),
        ],
    )
    assert len(visible) == 2
    assert heard == [set(), visible, visible, set(), visible, visible]


def test_statements_of_a_move_are_counted_up_to_a_bound(world, monkeypatch):
    """Of a facet with more of them, any node may have changed; of the others none."""
    monkeypatch.setattr("trails.engine.graph.feed._COUNTED", 5)
    graph = world.app.graph()
    start = graph.log_head("main").commit
    many(world, "Person", 6, name="Somebody")
    change(world, "Desk", "d", label="New")
    traces = graph.change_scan.between(graph.main, start, graph.log_head("main").commit)
    assert traces.may_be_at(ChangeKey("Person", "name"), "Person/ann%40x")
    assert traces.may_be_at(ChangeKey("Desk", "label"), "Desk/d")
    assert not traces.may_be_at(ChangeKey("Desk", "label"), "Desk/e")
    assert not traces.may_be_at(ChangeKey("Desk"), "Desk/d")


def test_a_merge_is_heard_as_far_as_it_is_seen(world):
    """A merge commit of hidden changes is silent where it is made."""

    def meet(branch_deed, main_deed):
        branch = world.fork().branch
        branch_deed()
        world.branch = "main"
        main_deed()
        assert merge(world, branch).outcome == "merged"

    heard = listen(
        world,
        [
            lambda: meet(
                lambda: change(world, "Person", "ann@x", salary=70),
                lambda: change(world, "Person", "bob@x", salary=71),
            ),
            lambda: meet(
                lambda: change(world, "Person", "ann@x", salary=80),
                lambda: change(world, "Task", "T1", title="Other"),
            ),
            lambda: meet(
                lambda: change(world, "Task", "T1", title="Again"),
                lambda: many(world, "Vault", 3),
            ),
        ],
    )
    assert heard == [set(), {f"{MAIN}Task"}, {f"{MAIN}Task"}]


def test_a_branch_that_goes_and_comes_is_heard(world):
    """What can be read there is then another thing, also for who does not see everything."""
    branch = world.fork().branch
    versions = world.app.service().versions("owner")
    heard = listen(
        world,
        [
            lambda: versions.delete_branch(branch, force=True),
            lambda: versions.create_branch(branch),
        ],
        branches=(branch,),
    )
    everything = set(_all_of(world, branch))
    assert heard == [everything, everything]


def _all_of(world, branch):
    return {uri for uri in Ears(world, (branch,)).uris if branch in uri}


def test_a_schema_is_heard_as_far_as_it_is_seen(world):
    """Who does not see a type hears nothing when it comes; of another it does."""
    heard = listen(
        world,
        [lambda: world.app.register(Safe), lambda: world.app.register(Lamp)],
        sight=SAFE,
    )
    assert heard[0] == set()
    assert f"{MAIN}Person" in heard[1]


def test_statements_that_skip_validation_are_heard_as_far_as_they_are_seen(world):
    """Raw statements about a hidden field are silent."""
    graph = world.app.graph()
    laptop(world, "X1")
    asset = world.types.Asset.get(world.owner(), "A1")
    graph.allow_bypass = True

    def raw(node, field, value):
        iri = graph.names.node(*node.split("/"))
        world.owner().kg.raw_sparql(
            f"INSERT DATA {{ <{iri}> <{graph.names.term(field)}> {value} }}",
            skip_validation=True,
        )

    heard = listen(
        world,
        [
            lambda: raw("Person/ann@x", "secrets", '"hush hush"'),
            lambda: raw("Person/ann@x", "tags", '"c"'),
            lambda: change(world, "Desk", "d", main=asset),
            # A second value takes the place of the first, which was seen.
            lambda: raw("Desk/d", "main", f"<{graph.names.node('Laptop', 'X1')}>"),
        ],
    )
    desk = {f"{MAIN}Desk", f"{MAIN}Desk/d"}
    assert heard == [set(), {f"{MAIN}Person", f"{MAIN}Person/ann%40x"}, desk, desk]


def test_who_begins_to_watch_while_a_hidden_change_is_written_hears_nothing(world):
    """Nothing was collected for it, and yet nothing hidden is told."""

    async def scenario(name, value):
        ctx, ears = world.owner(), Ears(world)
        with ctx.kg.transaction():
            ann = world.types.Person.get(ctx, "ann@x")
            setattr(ann, name, value)
            ann.save(ctx)
            await ears.__aenter__()
        try:
            return await ears.after(lambda: None)
        finally:
            await ears.__aexit__()

    assert asyncio.run(scenario("salary", 77)) == set()
    assert asyncio.run(scenario("name", "Anne")) == {f"{MAIN}Person", f"{MAIN}Person/ann%40x"}


def test_a_hidden_change_that_was_late_is_not_heard(tmp_path):
    """A commit that a view could not follow at once is told when it does, as far as it is seen."""
    failing = []

    def fail(step):
        if step == "mid_apply" and failing:
            raise StorageError("the disk said no")

    with App(*whole_types.TYPES, folder=tmp_path) as app:
        world = settle(World(app, whole_types, Narrow()))
        graph = app.graph()
        graph.on_step = fail

        def late(**values):
            failing.append(True)
            catch_up, graph.catch_up = graph.catch_up, _refuse
            with pytest.raises(StorageError):
                change(world, "Person", "ann@x", **values)
            failing.clear()
            graph.catch_up = catch_up
            with graph.writing():
                graph.catch_up()

        heard = listen(world, [lambda: late(salary=66), lambda: late(name="Anne", salary=67)])
    assert heard == [set(), {f"{MAIN}Person", f"{MAIN}Person/ann%40x"}]


def _refuse():
    raise StorageError("the disk still says no")


def test_the_order_of_what_is_told_tells_nothing(crowd, world):
    """Nodes come in the same order when a crowd of hidden ones changed with them."""
    orders = []
    for hidden in (0, 12):
        ctx = world.owner()

        def deed(ctx=ctx, hidden=hidden):
            with ctx.kg.transaction():
                for type_name, key, field in (
                    ("Person", "bob@x", "name"),
                    ("Person", "ann@x", "name"),
                    ("Asset", "A1", "label"),
                    ("Desk", "d", "label"),
                ):
                    node = getattr(world.types, type_name).get(ctx, key)
                    setattr(node, field, f"new {hidden}")
                    node.save(ctx)
                for each in range(hidden):
                    world.new("Laptop", tag=f"L{hidden}{each}").save(ctx)

        orders.append(listen_in_order(world, deed))
    assert orders[0] == orders[1]
    assert len(orders[0]) == 7


def listen_in_order(world, deed):
    """What is told after a deed, as it comes."""

    async def scenario():
        async with Ears(world) as ears:
            return await ears.in_order(deed)

    return asyncio.run(scenario())


def test_who_may_not_read_a_branch_any_more_hears_nothing(world):
    """From the moment on at which policies say so."""
    judge = Turncoat(Veil())

    def close():
        judge.now = Veil(closed=["main"])
        change(world, "Person", "ann@x", name="Anne")

    heard = listen(
        world,
        [lambda: change(world, "Person", "ann@x", name="Anna"), close],
        judge=judge,
    )
    assert heard == [{f"{MAIN}Person", f"{MAIN}Person/ann%40x"}, set()]


def test_policies_that_come_later_silence_what_they_hide(world):
    """Who began to watch when nothing was hidden hears what it still sees, and no more."""
    judge = Turncoat(ALLOW_ALL)

    def pay(salary):
        change(world, "Person", "ann@x", salary=salary)

    def restrict():
        judge.now = Veil()
        change(world, "Person", "ann@x", name="Anna")

    heard = listen(
        world,
        [
            lambda: pay(60),
            restrict,
            lambda: pay(61),
            lambda: change(world, "Person", "ann@x", name="Anne"),
        ],
        judge=judge,
    )
    told = {f"{MAIN}Person", f"{MAIN}Person/ann%40x"}
    assert heard == [told, told, set(), told]


def test_a_change_of_which_nothing_is_known_is_told(world):
    """Written when nothing was hidden from anybody: too much is told, never too little."""
    schema, note = world.app.graph().main.schema, PendingChanges()
    note.add(BranchChange("main", frozenset({"Person/ann%40x"}), frozenset({"Person"})))
    assert note.shows(SIGHT.filter(schema), schema, "Person", None)


def test_a_branch_that_nobody_watches_is_not_traced(world):
    """Nor is any, where nothing is hidden from anybody."""
    branch, feed = world.fork().branch, world.app.graph().feed

    async def scenario(judge):
        async with Ears(world, judge=judge):
            return feed.needs_index("main"), feed.needs_index(branch)

    assert asyncio.run(scenario(Veil())) == (True, False)
    assert asyncio.run(scenario(ALLOW_ALL)) == (False, False)
    assert not feed.needs_index("main")


def test_lists_are_heard_as_far_as_they_are_seen(world):
    """What is listed stays the same when a hidden type comes, and changes with another."""
    kernel = Kernel(world.app.service(), KernelOptions(judge=Veil(SAFE)))
    versions = [_lists(kernel)]
    for each in (Safe, Lamp):
        world.app.register(each)
        versions.append(_lists(kernel))
    kernel.close()
    assert versions[0] == versions[1]
    assert versions[1] != versions[2]


def _lists(kernel):
    return kernel.tools(AGENT).version, kernel.resources(AGENT).version
