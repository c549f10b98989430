"""A real graph and the oracle's, driven side by side and compared."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.engine.history.oracle import (
    Clash,
    Field,
    Fields,
    History,
    Judgement,
    Merged,
    Model,
    State,
    Type,
    Value,
    difference,
)

from trails import App, Edge, LangText, Node, Ref, edge_type, node_type, predicate
from trails.engine.graph.changes import net_between, show_changes
from trails.engine.graph.graph import Graph
from trails.engine.history.blame import blame
from trails.engine.history.branches import create_branch, delete_branch, list_branches
from trails.engine.history.merge import merge
from trails.engine.session.context import GraphContext
from trails.engine.upkeep.verify import verify
from trails.errors import ConflictError, NotFoundError, QueryError, ValidationError
from trails.model.history import Conflict, MergeRequest, MergeResult, Resolution
from trails.model.names import branch_folder
from trails.model.nodes import NodeState


@node_type
class Team(Node):
    """Who looks after items."""

    code: str = predicate(key=True)
    title: str | None = predicate()


@node_type
class Item(Node):
    """A field of every sort that merges treat in its own way."""

    code: str = predicate(key=True)
    name: str = predicate()
    sku: str | None = predicate(unique=True)
    note: str | None = predicate()
    rank: int | None = predicate()
    tags: list[str] = predicate(max_count=3)
    team: Ref[Team] | None = predicate()
    peers: list[Ref[Item]] = predicate()
    steps: list[str] = predicate(ordered=True, max_count=4)
    chain: list[Ref[Item]] = predicate(ordered=True)
    text: LangText | None = predicate(max_length=2)


@node_type
class Part(Item):
    """An item with one field more."""

    volts: int | None = predicate()


@edge_type(source=Item, target=Item)
class Link(Edge):
    """An edge between items."""

    weight: int | None = predicate()


TYPES = (Team, Item, Part, Link)
CLASSES: dict[str, type[Node]] = {cls.__name__: cls for cls in TYPES}

_ITEM = {
    "code": Field(required=True),
    "name": Field(required=True),
    "sku": Field(unique=True),
    "note": Field(),
    "rank": Field(),
    "tags": Field(many=True, high=3),
    "team": Field(target="Team"),
    "peers": Field(many=True, target="Item"),
    "steps": Field(high=4),
    "chain": Field(target="Item"),
    "text@en": Field(kind=str, longest=2),
    "text@de-ch": Field(kind=str, longest=2),
}
ORDERED = {"steps", "chain"}
"""Fields that are lists with an order."""
MODEL = Model(
    {
        "Team": Type({"code": Field(required=True), "title": Field()}),
        "Item": Type(_ITEM),
        "Part": Type({**_ITEM, "volts": Field()}, extends="Item"),
        "Link": Type(
            {
                "source": Field(required=True, target="Item"),
                "target": Field(required=True, target="Item"),
                "weight": Field(),
            }
        ),
    }
)

TEAMS = ["Team/t0", "Team/t1"]
ITEMS = ["Item/i0", "Item/i1", "Item/i2", "Part/p0", "Part/p1"]
POOLS: dict[str, list[Value]] = {
    "title": ["red", "blue"],
    "name": ["n1", "n2", "n3"],
    "sku": ["s1", "s2", "s3"],
    "note": ["x", "y"],
    "rank": [0, 1, 2, 3],
    "tags": ["a", "b", "c", "d"],
    "team": [*TEAMS],
    "peers": [*ITEMS],
    "steps": ["a", "b", "c"],
    "chain": [*ITEMS],
    "text@en": ["x", "y", "yy"],
    "text@de-ch": ["x", "z"],
    "volts": [12, 230],
    "weight": [1, 2],
}
TEXTS = ["text@en", "text@de-ch"]
"""The languages of a text: to the oracle, fields of their own."""
OPTIONAL = {
    "Team": ["title"],
    "Item": ["sku", "note", "rank", "tags", "team", "peers", "steps", "chain", *TEXTS],
    "Part": ["sku", "note", "rank", "tags", "team", "peers", "steps", "chain", *TEXTS, "volts"],
    "Link": ["weight"],
}


def link_handle(source: str, target: str) -> str:
    """The handle of the edge between two items; an edge is identified by its ends."""
    found = LINKS.get((source, target))
    if found is None:
        app = App(*TYPES, name="links")
        ctx = app.context()
        for each in ITEMS:
            _new(each, {"code": each.partition("/")[2], "name": "n"}).save(ctx)
        for one in ITEMS:
            for two in ITEMS:
                link = Link(source=one, target=two)
                link.save(ctx)
                LINKS[one, two] = str(link.handle)
        app.close()
        found = LINKS[source, target]
    return found


LINKS: dict[tuple[str, str], str] = {}


def _new(handle: str, fields: Fields) -> Node:
    values = {k: sorted(v) if isinstance(v, frozenset) else v for k, v in joined(fields).items()}
    return CLASSES[handle.partition("/")[0]](**values)


def joined(fields: Fields) -> Fields:
    """Fields with the texts of all languages in one."""
    texts = {k.partition("@")[2]: v for k, v in fields.items() if k in TEXTS and v is not None}
    rest = {k: v for k, v in fields.items() if k not in TEXTS}
    return {**rest, "text": LangText(texts)} if texts else rest  # type: ignore[arg-type]


def plain(state: NodeState) -> Fields:
    """A stored node as the oracle writes it."""
    found: Fields = {}
    for k, v in state.values.items():
        if isinstance(v, LangText):
            found |= {f"{k}@{tag}": text for tag, text in v.items()}
        else:
            found[k] = frozenset(v) if isinstance(v, tuple) and k not in ORDERED else v
    return found


class World:
    """The graph, the oracle, and what links their commits."""

    operations = 0

    def __init__(self, folder: Path | None, seed: int) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        self.history = History(MODEL)
        self.ids: dict[int, str] = {0: ""}
        self.app = App(*TYPES, name="versions", folder=folder)
        self.note_commit("main", {})

    def close(self) -> None:
        """Let go of everything."""
        self.app.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def graph(self) -> Graph:
        """The real graph."""
        return self.app.graph()

    def ctx(self, branch: str) -> GraphContext:
        """A context on a branch."""
        return self.app.context(branch=branch)

    def head(self, branch: str) -> str:
        """Where the log says that a branch is."""
        return self.graph.log_head(branch).commit

    def note_commit(self, branch: str, state: State, *others: int) -> int:
        """The graph has got a commit: the oracle gets the same."""
        number = self.history.commit(branch, state, *others)
        self.ids[number] = self.head(branch)
        assert len({*self.ids.values()}) == len(self.ids)
        return number

    # --- writing ---------------------------------------------------------------------

    def random_step(self, branch: str, state: State) -> tuple[str, str, Fields]:
        """(what, handle, fields): something to do to one node of a state."""
        rng = self.rng
        roll = rng.random()
        if roll < 0.2 and state:
            return rng.choice(["delete", "cascade"]), rng.choice(sorted(state)), {}
        if roll < 0.35:
            past = self.history.state(rng.choice(sorted(self.history.reachable())))
            if past:
                handle = rng.choice(sorted(past))
                return "set", handle, dict(past[handle])
        if roll < 0.5:
            ends = rng.choice(ITEMS), rng.choice(ITEMS)
            fields: Fields = {"source": ends[0], "target": ends[1]}
            fields.update(self._some("Link"))
            return "set", link_handle(*ends), fields
        handle = rng.choice(TEAMS if roll < 0.6 else ITEMS)
        type_name = handle.partition("/")[0]
        fields = {"code": handle.partition("/")[2], **state.get(handle, {})}
        if type_name != "Team" and (handle not in state or rng.random() < 0.3):
            fields["name"] = rng.choice(POOLS["name"])
        fields.update(self._some(type_name))
        return "set", handle, {k: v for k, v in fields.items() if v is not None}

    def _some(self, type_name: str) -> Fields:
        return {
            name: self.random_value(type_name, name)
            for name in OPTIONAL[type_name]
            if self.rng.random() < 0.35
        }

    def random_value(self, type_name: str, name: str) -> Value:
        """A value of a field, or none."""
        spec = MODEL.types[type_name].fields[name]
        if spec.many:
            return frozenset(self.rng.sample(POOLS[name], self.rng.randrange(4))) or None
        if name in ORDERED:
            return tuple(self.rng.choices(POOLS[name], k=self.rng.randrange(6))) or None
        if not spec.required and self.rng.random() < 0.2:
            return None
        return self.rng.choice(POOLS[name])

    def write(self, branch: str, count: int) -> bool:
        """One commit of random steps; whether it was taken."""
        state = self.history.copy(branch)
        steps = []
        for _ in range(count):
            what, handle, fields = self.random_step(branch, state)
            if what == "set":
                state[handle] = {k: v for k, v in fields.items() if v is not None}
            elif what == "delete":
                del state[handle]
            else:
                MODEL.without(state, handle)
            steps.append((what, handle, state.get(handle, {})))
        ctx, before = self.ctx(branch), self.head(branch)
        refused = bool(MODEL.judge(state))
        try:
            if count == 1:
                self._do(ctx, *steps[0])
            else:
                with ctx.kg.transaction():
                    for step in steps:
                        self._do(ctx, *step)
        except ValidationError:
            assert refused, f"refused: {steps}"
            assert self.head(branch) == before
            return False
        assert not refused, f"taken: {steps}: {MODEL.judge(state)}"
        if state == self.history.state(self.history.branches[branch]):
            assert self.head(branch) == before
            return False
        self.note_commit(branch, state)
        return True

    def _do(self, ctx: GraphContext, what: str, handle: str, fields: Fields) -> None:
        type_name, _, identifier = handle.partition("/")
        cls = CLASSES[type_name]
        found = ctx.kg.find(type_name, identifier)
        if what != "set":
            cls.get(ctx, identifier).delete(ctx, cascade=what == "cascade")
        elif found is None:
            _new(handle, fields).save(ctx)
        else:
            node = ctx.hydrate(found)
            texts = ["text"] if type_name in {"Item", "Part"} else []
            given = joined(fields)
            for name in [*OPTIONAL[type_name], *(["name"] if "name" in fields else []), *texts]:
                if name in TEXTS:
                    continue
                value = given.get(name)
                if name == "text":
                    setattr(node, name, value)
                    continue
                if MODEL.field(handle, name).many:
                    value = sorted(value or ())  # type: ignore[call-overload]
                elif name in ORDERED:
                    value = list(value or ())  # type: ignore[call-overload]
                setattr(node, name, value)
            node.save(ctx)

    # --- branches --------------------------------------------------------------------

    def create(self, name: str, source: str | int) -> None:
        """Make a branch from a branch or an oracle's commit."""
        start = self.history.branches[source] if isinstance(source, str) else source
        text = source if isinstance(source, str) else self.ids[source]
        try:
            create_branch(self.graph, name, source=text, actor="a")
        except ConflictError:
            assert name in self.history.branches
            return
        assert name not in self.history.branches
        self.history.branches[name] = start

    def delete(self, name: str, *, force: bool) -> None:
        """Delete a branch."""
        unmerged = self.history.unmerged(name)
        try:
            delete_branch(self.graph, name, force=force, actor="a")
        except ConflictError:
            assert unmerged
            assert not force
            return
        assert force or not unmerged
        del self.history.branches[name]

    # --- merging ---------------------------------------------------------------------

    def merge(self, source: str | int, target: str, *, dry_run: bool = False) -> None:
        """Merge, and compare everything that is said of it; then perhaps resolve conflicts."""
        result = self._merge(source, target, {}, dry_run=dry_run)
        for _ in range(3):
            if result is None or not result.conflicts or self.rng.random() < 0.3:
                return
            chosen = {
                each.id: self._resolution(each)
                for each in result.conflicts
                if self.rng.random() < 0.9
            }
            result = self._merge(source, target, chosen, dry_run=dry_run)

    def _resolution(self, conflict: Conflict) -> Resolution:
        takes = ["ours", "theirs"]
        if conflict.field and conflict.kind != "dangling_reference":
            takes.append("value")
        take = self.rng.choice(takes)
        value = None
        if take == "value":
            value = self.random_value(conflict.handle.partition("/")[0], conflict.field)
            if isinstance(value, frozenset):
                value = sorted(value)  # type: ignore[type-var]
            elif isinstance(value, tuple):
                value = list(value[:4])  # a value that breaks a rule is no resolution
        return Resolution(take, value)  # type: ignore[arg-type]

    def _merge(
        self, source: str | int, target: str, chosen: dict[str, Resolution], *, dry_run: bool
    ) -> MergeResult | None:
        history = self.history
        ours = history.branches[target]
        theirs = history.branches[source] if isinstance(source, str) else source
        before = self.head(target)
        text = source if isinstance(source, str) else self.ids[source]
        asked = MergeRequest(text, target, resolutions=chosen, dry_run=dry_run)
        if theirs in history.ancestors(ours):
            expected = "already_up_to_date"
        elif ours in history.ancestors(theirs):
            expected = "fast_forward"
        else:
            return self._real_merge(asked, ours, theirs, before)
        result = merge(self.graph, asked, actor="a")
        assert result.outcome == expected
        if expected == "fast_forward":
            self._compare_counts(result, history.state(ours), history.state(theirs))
        if dry_run or expected == "already_up_to_date":
            assert self.head(target) == before
        else:
            assert result.commit == self.head(target) == self.ids[theirs]
            history.branches[target] = theirs
        return result

    def _real_merge(
        self, asked: MergeRequest, ours: int, theirs: int, before: str
    ) -> MergeResult | None:
        merged = self.history.merge(ours, theirs)
        bases = {self.ids[each] for each in self.history.bases(ours, theirs)}
        open_clashes = resolve_clashes(merged, asked.resolutions, self.history.state(theirs))
        state: State = merged.state  # type: ignore[assignment]
        judged = MODEL.judge(state)
        clash_ids = {clash_id(each) for each in merged.clashes}
        loose = set(asked.resolutions) - clash_ids
        try:
            result = merge(self.graph, asked, actor="a")
        except NotFoundError:
            assert loose
            assert self.head(asked.target) == before
            return None
        assert set(result.bases) == bases
        if not loose:
            assert (result.outcome == "conflicts") == bool(open_clashes or judged), result
            if open_clashes or judged:
                self._compare_conflicts(result, merged, open_clashes, judged)
        if result.outcome == "conflicts" or asked.dry_run:
            assert self.head(asked.target) == before
            return result
        assert result.outcome == "merged"
        assert result.commit == self.head(asked.target)
        commit = self.graph.log.commit(result.commit or "")
        assert commit is not None
        assert commit.parents == (before, self.ids[theirs])
        if loose:
            state = self._accept(asked, state, ours, theirs)
        self._compare_counts(result, self.history.state(ours), state)
        self.note_commit(asked.target, state, theirs)
        return result

    @staticmethod
    def _compare_counts(result: MergeResult, before: State, after: State) -> None:
        """The result counts what the target gains, changes and loses."""
        assert result.created == sum(each not in before for each in after)
        assert result.deleted == sum(each not in after for each in before)
        assert result.updated == sum(
            each in before and before[each] != value for each, value in after.items()
        )

    def _compare_conflicts(
        self, result: MergeResult, merged: Merged, open_clashes: set[Clash], judged: Judgement
    ) -> None:
        kinds = {"divergent_field", "divergent_insert", "delete_update"}
        found = {
            Clash(each.kind, each.handle, each.field)
            for each in result.conflicts
            if each.kind in kinds
        }
        assert found == open_clashes, (found, open_clashes)
        rest = [each for each in result.conflicts if each.kind not in kinds]
        for each in result.conflicts:
            assert each.message
            assert each.ours_commits or each.theirs_commits
        duplicates = {
            (frozenset(named(each)), each.field) for each in rest if each.kind == "uniqueness"
        }
        assert duplicates == judged.duplicates
        broken = {(each.handle, each.field) for each in rest if each.kind == "constraint"}
        assert broken == judged.broken
        dangling = [each for each in rest if each.kind == "dangling_reference"]
        for each in dangling:
            assert (each.handle, each.field, named(each)[1]) in judged.dangling
        for holder, _, target in judged.dangling:
            assert any(holder in named(each) and named(each)[1] == target for each in dangling), (
                holder,
                target,
                dangling,
            )

    def _accept(self, asked: MergeRequest, wanted: State, ours: int, theirs: int) -> State:
        """Take over what resolutions of broken rules made, if it is what they allow."""
        found = self.read(asked.target)
        assert not MODEL.judge(found)
        free = {handle for each in asked.resolutions for handle in each_handle(each)}
        sides = self.history.state(ours), self.history.state(theirs)
        for handle in {*found, *wanted}:
            if found.get(handle) == wanted.get(handle):
                continue
            assert handle in free, handle
            if found.get(handle) in [side.get(handle) for side in sides]:
                continue
            changed = {
                name
                for name in {*found.get(handle, {}), *wanted.get(handle, {})}
                if found.get(handle, {}).get(name) != wanted.get(handle, {}).get(name)
            }
            assert any(
                each.take == "value" and name.split(":")[1].startswith(handle)
                for name, each in asked.resolutions.items()
            ), (handle, changed)
        return found

    # --- reading ---------------------------------------------------------------------

    def read(self, branch: str = "main", snapshot: int | None = None) -> State:
        """The whole state of a branch or commit, through the ORM."""
        ctx = (
            self.ctx(branch) if snapshot is None else self.app.context(snapshot=self.ids[snapshot])
        )
        return read_all(ctx)

    def check(self, branch: str) -> None:
        """A branch reads as the oracle says."""
        state = self.history.state(self.history.branches[branch])
        check_state(self.ctx(branch), state, self.rng)
        assert self.graph.checkout(branch).head.commit == self.ids[self.history.branches[branch]]

    def check_all(self) -> None:
        """Every branch does."""
        listed = {each.name: each.head for each in list_branches(self.graph).branches}
        assert listed == {n: self.ids[each] for n, each in self.history.branches.items()}
        for branch in sorted(self.history.branches):
            self.check(branch)

    def check_snapshot(self) -> None:
        """A random commit reads as it was."""
        number = self.rng.choice(sorted(set(self.history.reachable()) - {0}))
        ctx = self.app.context(snapshot=self.ids[number])
        check_state(ctx, self.history.state(number), self.rng)

    def check_sparql(self, branch: str) -> None:
        """SPARQL sees the branch too."""
        state = self.history.state(self.history.branches[branch])
        ctx = self.ctx(branch)
        for name in ("name", "tags", "peers", "weight"):
            answer = ctx.kg.sparql(f"SELECT ?s ?v WHERE {{ ?s :{name} ?v }}")
            found = {(str(row["s"]), str(row["v"])) for row in answer}
            expected = {
                (ctx.kg.iri(handle), ctx.kg.iri(str(each)) if name == "peers" else str(each))
                for handle, fields in state.items()
                for each in _members(fields.get(name))
            }
            assert found == expected
        for name in sorted(ORDERED):
            answer = ctx.kg.sparql(
                f"SELECT ?s ?v WHERE {{ ?s :{name}/rdf:rest* ?cell . ?cell rdf:first ?v }} "
                "ORDER BY ?cell"
            )
            lists: dict[str, tuple[str, ...]] = {}
            for row in answer:
                lists[str(row["s"])] = (*lists.get(str(row["s"]), ()), str(row["v"]))
            base = "" if name == "steps" else ctx.kg.iri("")
            assert lists == {
                ctx.kg.iri(handle): tuple(base + str(each) for each in fields[name])  # type: ignore[attr-defined]
                for handle, fields in state.items()
                if name in fields
            }

    def check_diff(self) -> None:
        """The net change between two random commits is the difference of their states."""
        numbers = sorted(set(self.history.reachable()) - {0})
        one, two = self.rng.choice(numbers), self.rng.choice(numbers)
        graph = self.graph
        net = net_between(graph, self.ids[one], self.ids[two])
        found = {}
        for node in show_changes(graph, net, graph.main.schema):
            for each in node.fields:
                value = (
                    tuple(tuple(v) if isinstance(v, list) else v for v in (each.before, each.after))
                    if not (each.removed or each.added)
                    else None
                )
                found[node.handle, node.change, each.field] = value or (
                    frozenset(each.removed),
                    frozenset(each.added),
                )
        base = self.ctx("main").kg.iri("")
        expected = {}
        for handle, how, name, before, after in difference(
            self.history.state(one), self.history.state(two)
        ):
            spec = MODEL.field(handle, name)
            shown: tuple[Value, Value] = before, after
            if spec.many:
                old, new = frozenset(_members(before)), frozenset(_members(after))
                shown = (old - new, new - old)
            if spec.target is not None:
                shown = tuple(_iris(base, each) for each in shown)  # type: ignore[assignment]
            expected[handle, how, name] = shown
        assert found == expected

    def check_blame(self, number: int | None = None) -> None:
        """Every value of a commit's state is traced to the commit that wrote it."""
        if number is None:
            number = self.rng.choice(sorted(set(self.history.reachable()) - {0}))
        ctx = self.app.context(snapshot=self.ids[number])
        for handle in self.history.state(number):
            state = ctx.kg.find(*handle.split("/"))
            assert state is not None
            expected = {
                (name, member): self.ids[self.history.writer(number, handle, name, member)]
                for name, value in plain(state).items()
                for member in _members(value)
            }
            found = {
                named_value(each.field, each.value): each.commit and each.commit.id
                for each in blame(self.graph, state, self.ids[number])
            }
            assert found == expected, (handle, number)

    def check_verified(self) -> None:
        """The views equal a fresh fold of the log."""
        findings = list(verify(self.graph, lambda _: None))
        assert all(each.severity == "ok" for each in findings), findings

    # --- mishaps ---------------------------------------------------------------------

    def reopen(self, lose: str = "") -> None:
        """Close, lose some view, open again."""
        assert self.folder is not None
        self.app.close()
        home = self.folder / ".trails" / "graphs" / "main"
        if lose == "nodes":
            for path in home.glob("nodes.db*"):
                path.unlink()
        elif lose == "quads":
            shutil.rmtree(home / "branches" / "main" / "quads", ignore_errors=True)
        elif lose:
            shutil.rmtree(home / "branches" / branch_folder(lose), ignore_errors=True)
        self.app = App(*TYPES, name="versions", folder=self.folder)


def resolve_clashes(
    merged: Merged, chosen: dict[str, Resolution] | object, theirs: State
) -> set[Clash]:
    """Settle clashes as resolutions say; what is left open."""
    left = set()
    for clash, (_, _, there) in merged.clashes.items():
        resolution = chosen.get(clash_id(clash))  # type: ignore[attr-defined]
        if resolution is None:
            left.add(clash)
        elif not clash.field:
            if resolution.take == "theirs":
                if clash.handle in theirs:
                    merged.state[clash.handle] = dict(theirs[clash.handle])
                else:
                    merged.state.pop(clash.handle, None)
        elif resolution.take != "ours":
            value = there if resolution.take == "theirs" else resolution.value
            value = tuple(value) if isinstance(value, list) else value
            node = merged.state[clash.handle]
            assert isinstance(node, dict)
            if value is None:
                node.pop(clash.field, None)
            else:
                node[clash.field] = value
    return left


def named_value(field: str, value: Value) -> tuple[str, Value]:
    """A blamed value as the oracle has it."""
    if isinstance(value, LangText):
        ((tag, text),) = value.items()
        return f"{field}@{tag}", text
    return field, value


def clash_id(clash: Clash) -> str:
    """What the engine calls a conflict."""
    return f"{clash.kind}:{clash.handle}" + (f".{clash.field}" if clash.field else "")


def each_handle(identifier: str) -> list[str]:
    """The nodes that a conflict's id names."""
    return identifier.split(":")[1].partition(".")[0].split("+")


def named(conflict: Conflict) -> list[str]:
    """The nodes that a conflict names."""
    return each_handle(conflict.id)


def _members(value: Value) -> Iterable[Value]:
    if value is None:
        return ()
    return value if isinstance(value, frozenset) else (value,)


def _iris(base: str, value: Value) -> Value:
    if isinstance(value, frozenset):
        return frozenset(base + str(each) for each in value)
    if isinstance(value, tuple):
        return tuple(base + str(each) for each in value)
    return None if value is None else base + str(value)


def read_all(ctx: GraphContext) -> State:
    """Every node of a context."""
    found: State = {}
    for cls in (Team, Item, Link):
        for row in ctx.kg.select(cls.objects(ctx).selection).rows:
            assert row.handle not in found
            found[row.handle] = plain(row)
    return found


def check_state(ctx: GraphContext, state: State, rng: random.Random) -> None:
    """Whole state, counts, single nodes, filters and orders of a context."""
    found = read_all(ctx)
    assert found == state, {
        h: (found.get(h), state.get(h)) for h in {*found, *state} if found.get(h) != state.get(h)
    }
    for cls in TYPES:
        wanted = [h for h in state if MODEL.is_a(h, cls.__name__)]
        assert cls.objects(ctx).count() == len(wanted)
    for handle in [*ITEMS[:1], *rng.sample(ITEMS, 2), *TEAMS[:1]]:
        type_name, _, identifier = handle.partition("/")
        node = ctx.kg.find(type_name, identifier)
        assert (None if node is None else plain(node)) == state.get(handle)
    _check_filters(ctx, {h: f for h, f in state.items() if MODEL.is_a(h, "Item")}, rng, state)


def _check_filters(ctx: GraphContext, items: State, rng: random.Random, state: State) -> None:
    tag, rank, sku, step = (rng.choice(POOLS[name]) for name in ("tags", "rank", "sku", "steps"))
    team, peer = rng.choice(TEAMS), rng.choice(ITEMS)
    title = rng.choice(POOLS["title"])
    for conditions, holds in (
        ({"tags": tag}, lambda f: tag in _members(f.get("tags"))),
        ({"rank__gte": rank}, lambda f: f.get("rank") is not None and f["rank"] >= rank),
        ({"sku": sku}, lambda f: f.get("sku") == sku),
        ({"note__isnull": True}, lambda f: "note" not in f),
        ({"team": team}, lambda f: f.get("team") == team),
        ({"peers": peer}, lambda f: peer in _members(f.get("peers"))),
        ({"chain": peer}, lambda f: peer in f.get("chain", ())),
        ({"steps": step}, lambda f: step in f.get("steps", ())),
        ({"steps__isnull": True}, lambda f: "steps" not in f),
        ({"text": "x"}, lambda f: "x" in (f.get(each) for each in TEXTS)),
        ({"text__startswith": "y"}, lambda f: str(f.get("text@en")).startswith("y")),
        ({"text__isnull": True}, lambda f: not {*TEXTS} & f.keys()),
        (
            {"team__title": title},
            lambda f: "team" in f and state[str(f["team"])].get("title") == title,
        ),
        (
            {"rank__lt": rank, "name": "n1"},
            lambda f: f.get("rank") is not None and f["rank"] < rank and f["name"] == "n1",
        ),
    ):
        expected = {h for h, f in items.items() if holds(f)}
        query = Item.objects(ctx).where(**conditions)
        named = conditions.get("team") or conditions.get("peers") or conditions.get("chain")
        if named is not None and named not in state:
            with pytest.raises(QueryError, match="there is no"):
                query.count()
            continue
        rows = ctx.kg.select(query.selection).rows
        assert sorted(row.handle for row in rows) == sorted(expected), conditions
        assert query.count() == len(expected), conditions
    for order in ("rank", "-rank", "name"):
        rows = ctx.kg.select(Item.objects(ctx).order_by(order).selection).rows
        name = order.removeprefix("-")
        values = [row.values.get(name) for row in rows]
        there = sorted(
            (f[name] for f in items.values() if name in f),  # type: ignore[type-var]
            reverse=order.startswith("-"),
        )
        assert values == [*there, *[None] * (len(items) - len(there))]
        page = Item.objects(ctx).order_by(order).page(2)
        handles = [node.handle for node in page.items]
        while page.next is not None:
            page = Item.objects(ctx).order_by(order).page(2, after=page.next)
            handles += [node.handle for node in page.items]
        assert handles == [row.handle for row in rows]
