"""Random histories, partly hidden: who does not see everything is told of what it sees.

Two projects live through the same, but one of them without what is hidden. A restricted actor
watches types and nodes on two branches: it must be told the same in both. As long as few
enough nodes change at once, it is told of a URI exactly if something else can be read there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.campaigns import sized
from tests.journeys.access.ears import Ears, few
from tests.journeys.access.worlds import World, settle, whole

from trails.engine.session.context import GraphContext
from trails.errors import ConflictError
from trails.model.history import MergeRequest

DRAFT = "draft"
PEOPLE = ("ann@x", "bob@x")


class Deed(NamedTuple):
    """Something that is done on a branch; ``part`` is one of the things in which it varies."""

    act: Callable[[Story, Deed], None]
    branch: str
    part: int
    size: int


class Story:
    """A project, with hidden parts or without them."""

    def __init__(self, world: World, *, hushed: bool) -> None:
        self.world = settle(world)
        self.hushed = hushed
        """Whether what is hidden happens too."""
        self.step = 0
        self._versions = world.app.service().versions("owner")
        self._open: GraphContext | None = None
        for tag in ("L1", "L2"):
            world.new("Laptop", tag=tag).save(world.owner(), upsert=True)
        self._versions.create_branch(DRAFT)

    def do(self, deed: Deed) -> None:
        """Do it; a refusal is a part of life."""
        self.step += 1
        try:
            deed.act(self, deed)
        except ConflictError:
            assert deed.act in (merge, update)

    def ctx(self, deed: Deed) -> GraphContext:
        """Where something is done."""
        return self._open or self.world.owner(deed.branch)

    @contextmanager
    def transaction(self, deed: Deed) -> Iterator[None]:
        """Everything that is done meanwhile is one commit."""
        self._open = self.ctx(deed)
        try:
            with self._open.kg.transaction():
                yield
        finally:
            self._open = None

    def change(self, deed: Deed, type_name: str, key: str, **values: object) -> None:
        """Change some fields of a node that is there."""
        ctx = self.ctx(deed)
        found = ctx.kg.find(type_name, key)
        if found is not None:
            node = ctx.hydrate(found)
            for name, value in values.items():
                setattr(node, name, value)
            node.save(ctx)

    def save(self, deed: Deed, type_name: str, keys: list[str], **values: object) -> None:
        """Make nodes, or change them, in one commit."""
        key = {"Person": "email", "Asset": "tag", "Laptop": "tag"}.get(type_name, "code")
        new = self.world.new
        nodes = [new(type_name, **{key: each}, **values) for each in keys]
        self.ctx(deed).kg.save_all(nodes, upsert=True)

    def there(self, deed: Deed, type_name: str, *keys: str) -> list[object]:
        """Those of some nodes that are there."""
        ctx = self.ctx(deed)
        found = [ctx.kg.find(type_name, key) for key in keys]
        return [ctx.hydrate(each) for each in found if each is not None]

    def merge(self, source: str, target: str) -> None:
        """Merge one branch into another."""
        self._versions.merge(MergeRequest(source, target))

    def fork_anew(self) -> None:
        """A branch that goes and comes."""
        self._versions.delete_branch(DRAFT, force=True)
        self._versions.create_branch(DRAFT)


# --- what is done; main and the draft hide their own fields, so that these never conflict ------


def rename(story: Story, deed: Deed) -> None:
    """Seen: a name."""
    story.change(deed, "Person", PEOPLE[deed.part % 2], name=f"n{deed.size}")


def pay(story: Story, deed: Deed) -> None:
    """Hidden: a field."""
    if story.hushed:
        value = {"salary": 1000 + story.step} if deed.branch == "main" else {"grade": deed.size}
        story.change(deed, "Person", PEOPLE[deed.part % 2], **value)


def both(story: Story, deed: Deed) -> None:
    """Something seen and something hidden in one commit, perhaps a crowd of it."""
    with story.transaction(deed):
        rename(story, deed)
        pay(story, deed)
        vaults(story, deed)


def vaults(story: Story, deed: Deed) -> None:
    """Hidden: nodes of a hidden type."""
    if story.hushed:
        codes = [f"{deed.branch}{story.step}{each}" for each in range(deed.size)]
        story.save(deed, "Vault", codes)


def laptops(story: Story, deed: Deed) -> None:
    """Hidden: nodes that extend what is seen."""
    if story.hushed:
        tags = [f"{deed.branch}{each}" for each in range(deed.size)]
        story.save(deed, "Laptop", tags, label=f"l{story.step}")


def assets(story: Story, deed: Deed) -> None:
    """Seen: some nodes of one type."""
    tags = [f"A{each}" for each in range(deed.part, deed.part + deed.size)]
    story.save(deed, "Asset", tags, label=f"l{story.step}")


def desk(story: Story, deed: Deed) -> None:
    """Of one reference: from something to something else, seen, hidden or nothing."""
    if deed.branch == "main":
        wanted = ("A1", "A2", "L1", "L2", "")[deed.part % 5]
        hidden = wanted.startswith("L")
        found = story.there(deed, "Laptop" if hidden else "Asset", wanted)
        main = found[0] if found and (story.hushed or not hidden) else None
        story.change(deed, "Desk", "d", main=main)


def more(story: Story, deed: Deed) -> None:
    """Of many references: some that are seen, some that are not."""
    if deed.branch == DRAFT:
        seen = story.there(deed, "Asset", *("A1", "A2")[: deed.part % 3])
        hidden = story.there(deed, "Laptop", *("L1", "L2")[: deed.size % 3])
        story.change(deed, "Desk", "d", more=[*seen, *(hidden if story.hushed else ())])


def line_up(story: Story, deed: Deed) -> None:
    """Of an ordered list: what is seen in some order, with what is not in between."""
    if deed.branch == DRAFT:
        seen = story.there(deed, "Asset", *ROWS[deed.part % len(ROWS)])
        hidden = story.there(deed, "Laptop", *("L1", "L2", "L1")[: deed.size % 4])
        if story.hushed:
            seen[deed.size % (len(seen) + 1) : 0] = hidden
        story.change(deed, "Desk", "d", row=seen)


ROWS = ((), ("A1",), ("A1", "A2"), ("A2", "A1"), ("A1", "A2", "A1"))


def hold(story: Story, deed: Deed) -> None:
    """Edges: to what is seen, and to what is hidden."""
    hidden = deed.part % 2
    # Hidden edges change on one branch alone, since both changing one is a conflict.
    if hidden and (not story.hushed or deed.branch == "main"):
        return
    tag = ("L1", "L2")[deed.size % 2] if hidden else "A1"
    for found in story.there(deed, "Laptop" if hidden else "Asset", tag):
        room = story.world.types.Room.get(story.ctx(deed), "r")
        edge = story.world.new("Holds", source=room, target=found, since=deed.size)
        edge.save(story.ctx(deed), upsert=True)


def drop(story: Story, deed: Deed) -> None:
    """A node goes, and what holds on to it lets go."""
    hidden = deed.part % 2
    if hidden and not story.hushed:
        return
    ctx = story.ctx(deed)
    kind, key = ("Vault", f"{deed.branch}10") if hidden else ("Asset", "A2")
    for found in story.there(deed, kind, key):
        found.delete(ctx, cascade=True)


def merge(story: Story, deed: Deed) -> None:
    """The draft goes into main, by a move or a commit."""
    del deed
    story.merge(DRAFT, "main")


def update(story: Story, deed: Deed) -> None:
    """Main goes into the draft."""
    del deed
    story.merge("main", DRAFT)


def fork(story: Story, deed: Deed) -> None:
    """The draft begins anew."""
    del deed
    story.fork_anew()


ACTS = (
    *(rename, pay, both, vaults, laptops, assets, desk, more, line_up),
    *(hold, drop, merge, update, fork),
)
DEEDS = st.lists(
    st.builds(
        Deed,
        st.sampled_from(ACTS),
        st.sampled_from(("main", DRAFT, DRAFT)),
        st.integers(0, 4),
        st.integers(1, 5),
    ),
    min_size=4,
    max_size=14,
)


@contextmanager
def stories() -> Iterator[tuple[Story, Story]]:
    """One with hidden parts, and one in which none of them happens."""
    with whole() as secretive, whole() as plain:
        yield Story(secretive, hushed=True), Story(plain, hushed=False)


async def live(secretive: Story, plain: Story, deeds: list[Deed], *, exact: bool) -> None:
    """Do all that in both, and compare what is told."""
    places = ("main", DRAFT)
    async with Ears(secretive.world, places) as here, Ears(plain.world, places) as there:
        before = await here.sights()
        for deed in deeds:
            told = await here.after(lambda: secretive.do(deed))  # noqa: B023
            assert told == await there.after(lambda: plain.do(deed)), deed  # noqa: B023
            after = await here.sights()
            changed = {uri for uri in here.uris if before[uri] != after[uri]}
            assert changed <= told, deed
            if exact and deed.act is not fork:
                assert changed == told, deed
            before = after


def check(deeds: list[Deed], *, exact: bool) -> None:
    """One history."""
    with stories() as (secretive, plain):
        asyncio.run(live(secretive, plain, deeds, exact=exact))


SHORT = settings(
    max_examples=8,
    deadline=None,
    phases=(Phase.generate,),  # making a history shorter takes minutes
    suppress_health_check=[HealthCheck.too_slow],
)
LONG = settings(SHORT, max_examples=sized(600, nightly=30), phases=(Phase.generate, Phase.shrink))


@given(DEEDS)
@SHORT
def test_told_is_what_can_be_read_anew(deeds):
    """As long as nodes are few: a URI is told exactly if it shows something else."""
    check(deeds, exact=True)


@given(DEEDS)
@SHORT
def test_what_is_hidden_decides_nothing(deeds):
    """Where nodes are too many to name them, what is told does not depend on what is hidden."""
    with few(2, statements=12):
        check(deeds, exact=False)


@pytest.mark.long
@given(DEEDS)
@LONG
def test_told_is_what_can_be_read_anew_in_many_histories(deeds):
    """The same, over many more histories."""
    check(deeds, exact=True)


@pytest.mark.long
@given(DEEDS)
@LONG
def test_what_is_hidden_decides_nothing_in_many_histories(deeds):
    """The same, over many more histories."""
    with few(2, statements=12):
        check(deeds, exact=False)
