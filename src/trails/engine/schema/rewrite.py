"""Change the types of a branch and bring its nodes along, in one write.

1. ``collect`` streams the nodes that steps concern, works out what each becomes, and keeps that
   in a temporary file. It reads only, so it runs without the writer's lock.
2. ``apply`` takes out of the node index what the new types would read otherwise, changes the types,
   and puts the nodes. The statements go into the payload of the commit: what the former types
   wrote is removed, what the new types write is added, as a fold of the log reads them.

Memory does not grow with the number of nodes. A node whose class, ancestors, key or name changes is
removed and added as a whole, with its old number where its name stays.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import IO, NamedTuple, Protocol

import msgspec

from trails.engine.graph.changes import changed_reading
from trails.engine.graph.graph import Graph
from trails.engine.schema.expressions import Ask
from trails.engine.schema.restore import FormerState
from trails.engine.schema.transforms import (
    Findings,
    NodeDraft,
    StepContext,
    Transform,
    transform_of,
)
from trails.engine.write.pending import CHUNK, PendingNodes
from trails.model.caches import LRUCache
from trails.model.changes.steps import AddType, Offense, RenameField, RenameType, Step
from trails.model.fairness import with_pauses
from trails.model.history import Rename
from trails.model.nodes import NodeState, derive_id, make_handle, split_handle
from trails.model.types import Schema
from trails.views.nodes.index import NodeIndex, Replacement, Stored
from trails.views.nodes.rows import docs_of

Progress = Callable[[int, int], None]
"""Called with the number of nodes that are done, and how many there are."""


def ignore_progress(done: int, total: int) -> None:
    """Report nothing."""
    del done, total


class NodeRewrite(NamedTuple):
    """One node before and after."""

    handle: str
    """As it is stored; empty for a new node."""
    after: NodeState | None


class ChangingCheckout(Protocol):
    """A write, or a draft of one."""

    nodes: PendingNodes

    def change_schema(self, schema: Schema) -> None:
        """Switch to other types."""


class RewriteSpool:
    """What nodes become, in a temporary file, in the order in which they were read."""

    def __init__(self, graph: Graph, schema: Schema) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(dir=graph.temporary())  # noqa: SIM115 - closed by close()
        self._docs = docs_of(schema)
        self._graph = graph
        self._encode = msgspec.msgpack.Encoder().encode
        self.count = 0
        self.created = self.deleted = 0
        self.types: set[str] = set()
        """The new types of the nodes."""

    def add(self, handle: str, after: NodeState | None) -> None:
        """Keep what a node becomes."""
        record: tuple[object, ...] = (handle,)
        if after is None:
            self.deleted += 1
        else:
            self.types.add(after.type)
            self.created += not handle
            record = (handle, after.type, after.id, self._docs.encode(after.type, after.values))
        body = self._encode(record)
        self._file.write(len(body).to_bytes(4, "little") + body)
        self.count += 1

    def __iter__(self) -> Iterator[NodeRewrite]:
        self._file.seek(0)
        texts = self._graph.file.texts
        while head := self._file.read(4):
            record = msgspec.msgpack.decode(self._file.read(int.from_bytes(head, "little")))
            if len(record) == 1:
                yield NodeRewrite(record[0], None)
                continue
            handle, type_name, identifier, doc = record
            values = self._docs.decode(type_name, doc, texts, self._graph.file.db)
            yield NodeRewrite(handle, NodeState(type_name, identifier, values))

    def close(self) -> None:
        """Delete it."""
        self._file.close()


class Rewriting:
    """The way of nodes from one schema through steps to another."""

    def __init__(
        self,
        graph: Graph,
        steps: Sequence[Step],
        schemas: Sequence[Schema],
        findings: Findings,
        ask: Ask | None = None,
        former: Mapping[str, FormerState] | None = None,
    ) -> None:
        """``schemas``: before the first step, and after each."""
        self._former, self._steps = former or {}, steps
        self._graph = graph
        self.old, self.new = schemas[0], schemas[-1]
        self._schemas = schemas
        self._findings = findings
        self._transforms: list[Transform | None] = [
            transform_of(
                step,
                StepContext(
                    at,
                    schemas[at],
                    schemas[at + 1],
                    graph.names,
                    ask,
                    findings,
                    self._former,
                    partial(_stored_name, steps[:at], schemas),
                ),
            )
            for at, step in enumerate(steps)
        ]
        self.names = NameMap(steps, schemas)
        self._moved = _moved_edges(self.old, self.names)
        """Edge types whose ids change because the handles of their ends do."""
        self._lost_fields: dict[str, frozenset[str]] = {}
        self._wholes: dict[tuple[str, str | None], bool] = {}
        self._handles: LRUCache[str, str] = LRUCache(10_000)

    def retarget(self, schema: Schema) -> None:
        """Arrive at other types, which read the nodes as those at the end of the steps do."""
        self.new = schema
        self._lost_fields.clear()
        self._wholes.clear()

    # --- which nodes -------------------------------------------------------------------------

    def concerned(self) -> list[str]:
        """The stored types of which nodes may change."""
        return [each.name for each in self.old.types if self._concerns(each.name)]

    def _concerns(self, name: str) -> bool:
        current: str | None = name
        for transform, follow in zip(self._transforms, self.names.types, strict=True):
            if transform is not None and current in transform.types:
                return True
            current = follow.get(current, current)
        return name in self._moved or self.is_whole(name) or bool(self._renamed_references(name))

    def _renamed_references(self, name: str) -> list[str]:
        """The stored fields of a type whose references may get other handles."""
        changed = {*self._moved, *self.names.renamed_types}
        return [
            field.name
            for field in self.old.by_name[name].fields
            if field.target is not None and changed.intersection(self.old.family(field.target))
        ]

    def is_whole(self, name: str) -> bool:
        """Whether nodes of a stored type are removed and added as a whole."""
        return self.whole(name, self.names.type_now(name))

    def whole(self, name: str, now: str | None) -> bool:
        """The same for a type with another name now."""
        found = self._wholes.get((name, now))
        if found is None:
            found = self._wholes[name, now] = self._is_rewritten(name, now)
        return found

    def _is_rewritten(self, name: str, now: str | None) -> bool:
        if now is None or now not in self.new.by_name:
            return False
        if now != name:
            return True
        if any(not field for field, _ in changed_reading(self.old, self.new, name)):
            return True
        before, after = self.old.by_name[name], self.new.by_name[now]
        iris = {each.iri: each.name for each in after.fields}
        return any(iris.get(each.iri, each.name) != each.name for each in before.fields)

    # --- what they become ---------------------------------------------------------------------

    def collect(
        self, nodes: NodeIndex, db: sqlite3.Connection, spool: RewriteSpool, progress: Progress
    ) -> None:
        """Read the nodes of a branch, and keep what those become that change."""
        concerned = self.concerned()
        total, done = nodes.live(db, concerned), 0
        for name in concerned:
            self._check_key(name, nodes, db)
            after = 0
            while page := nodes.page(db, name, after):
                after = page[-1].nid
                for draft in self._transformed(page):
                    state = self._arrived(draft, nodes, db)
                    if state != draft.before or self.is_whole(name):
                        spool.add(draft.before.handle, state)
                done += len(page)
                progress(done, total)
        self._restore(nodes, db, spool)

    def _restore(self, nodes: NodeIndex, db: sqlite3.Connection, spool: RewriteSpool) -> None:
        """Bring back the nodes of types that are added again."""
        for at, step in enumerate(self._steps):
            if not isinstance(step, AddType) or step.restore is None:
                continue
            declared = self._schemas[at + 1].by_name[step.type.name]
            for page in self._former[step.restore].nodes(declared):
                drafts = [NodeDraft(each, each.type, dict(each.values)) for each in page]
                self._findings.tallies[at].nodes += len(drafts)
                for draft in self._take_steps(drafts, at + 1):
                    state = self._arrived(draft, nodes, db)
                    if state is not None:
                        spool.add("", state)

    def _check_key(self, name: str, nodes: NodeIndex, db: sqlite3.Connection) -> None:
        """A type with nodes can't get another key."""
        now = self.names.type_now(name)
        if now is None or now not in self.new.by_name:
            return
        before, after = self.old.by_name[name].key, self.new.by_name[now].key
        wanted = None if before is None else self.names.field_now(name, before.name)
        if wanted == (None if after is None else after.name):
            return
        for stored in nodes.stored(db, (name,)):
            handle = stored.state.handle
            message = f"{handle}: the key of {now} would change, and ids are derived from it"
            at = self.names.last_step(now)
            self._findings.note(Offense(at, handle, "", "key", message))

    def _transformed(self, page: Sequence[Stored]) -> list[NodeDraft]:
        drafts = [
            NodeDraft(each.state, each.state.type, dict(each.state.values))
            for each in with_pauses(page)
        ]
        return self._take_steps(drafts, 0)

    def _take_steps(self, drafts: list[NodeDraft], start: int) -> list[NodeDraft]:
        for transform in self._transforms[start:]:
            if transform is not None:
                found = [each for each in drafts if not each.gone and each.type in transform.types]
                if found:
                    transform.apply(found)
        return drafts

    def _arrived(
        self, draft: NodeDraft, nodes: NodeIndex, db: sqlite3.Connection
    ) -> NodeState | None:
        """A node under its new names, with references that are up to date."""
        if draft.gone or draft.type not in self.new.by_name:
            return None
        values = draft.values
        if self._moved or self.names.renamed_types:
            for field in self.new.by_name[draft.type].fields:
                value = values.get(field.name)
                if field.target is None or value is None:
                    continue
                if isinstance(value, tuple):
                    moved = (self._now(str(each), nodes, db) for each in value)
                    values[field.name] = tuple(sorted(moved) if field.is_set else moved)
                else:
                    values[field.name] = self._now(str(value), nodes, db)
        ordered = {name: values[name] for name in sorted(values)}
        state = NodeState(draft.type, draft.before.id, ordered)
        if draft.before.type in self._moved:
            return NodeState(draft.type, self._edge_id(state), ordered)
        return state

    def _edge_id(self, state: NodeState) -> str:
        found = derive_id(self.new.by_name[state.type], state.values)
        return state.id if found is None else found

    def _now(self, handle: str, nodes: NodeIndex, db: sqlite3.Connection) -> str:
        """The new handle of a node."""
        name, identifier = split_handle(handle)
        now = self.names.type_now(name)
        if now is None or name not in self.old.by_name:
            return handle
        if name not in self._moved:
            return handle if now == name else make_handle(now, identifier)
        return self._handles.get(handle, lambda: self._moved_handle(handle, nodes, db))

    def _moved_handle(self, handle: str, nodes: NodeIndex, db: sqlite3.Connection) -> str:
        stored = nodes.find(db, handle)
        if stored is None:
            return handle
        (draft,) = self._transformed([stored])
        state = self._arrived(draft, nodes, db)
        return handle if state is None else state.handle

    # --- writing --------------------------------------------------------------------------------

    def apply(
        self,
        write: ChangingCheckout,
        rewrites: Callable[[], Iterator[NodeRewrite]],
        *,
        logged: bool,
    ) -> None:
        """Change types and nodes; ``logged`` unless it is only tried out."""
        nodes = write.nodes
        stream = rewrites()
        while some := list(islice(stream, CHUNK)):
            nodes.go_on()
            stored = nodes.index.find_all(nodes.db, [each.handle for each in some if each.handle])
            puts: list[Replacement] = []
            removed: list[str] = []
            added: list[str] = []
            for handle, after in with_pauses(some):
                before = stored.get(handle)
                state = None if before is None else before.state
                nodes.check(state, after)
                whole = (
                    after is None
                    or after.handle != handle
                    or (state is not None and self.whole(state.type, after.type))
                )
                if logged:
                    gone, come = self._difference(state, after, whole=whole)
                    removed += gone
                    added += come
                if before is not None:
                    left = None if whole else self._readable(before.state)
                    if left is not before.state:
                        puts.append(Replacement(before, handle, left))
            nodes.rules.weigh(nodes.index.put_all(nodes.seq, puts))
            if logged:
                nodes.delta.stream_lines(removed, added)
        write.change_schema(self.new)
        stream = rewrites()
        while some := list(islice(stream, CHUNK)):
            nodes.go_on()
            self._put(nodes, [each.after for each in some if each.after is not None])

    def _difference(
        self, before: NodeState | None, after: NodeState | None, *, whole: bool
    ) -> tuple[list[str], list[str]]:
        """The statements to remove and to add."""
        former, terms = (self._graph.compile(each).terms for each in (self.old, self.new))
        if whole and before is not None and after is not None:
            return former.statements(before), terms.statements(after)
        return terms.difference(before, after, former)

    def _lost(self, type_name: str) -> frozenset[str]:
        """The fields whose values the new types would read otherwise."""
        found = self._lost_fields.get(type_name)
        if found is None:
            changed = changed_reading(self.old, self.new, type_name)
            found = self._lost_fields[type_name] = frozenset(field for field, _ in changed)
        return found

    def _readable(self, state: NodeState) -> NodeState:
        """A node without the values that the new types would read otherwise."""
        lost = self._lost(state.type)
        if not lost & state.values.keys():
            return state
        left = {name: value for name, value in state.values.items() if name not in lost}
        return NodeState(state.type, state.id, left)

    def _put(self, nodes: PendingNodes, states: Sequence[NodeState]) -> None:
        stored = nodes.index.find_all(nodes.db, [each.handle for each in states])
        puts: list[Replacement] = []
        for state in with_pauses(states):
            handle = state.handle
            before = stored.get(handle)
            if before is None or before.state != state:
                puts.append(Replacement(before, handle, state))
        nodes.rules.weigh(nodes.index.put_all(nodes.seq, puts))
        for put in puts:
            if put.after is not None and nodes.checkout.rules.blobs[put.after.type]:
                nodes.rules.watch(None if put.before is None else put.before.state, put.after)


def _stored_name(
    steps: Sequence[Step], schemas: Sequence[Schema], type_name: str, field: str
) -> str:
    """The name of a field before steps, by its type and name after them."""
    for at, step in reversed([*enumerate(steps)]):
        if isinstance(step, RenameType) and step.to == type_name:
            type_name = step.type
        elif (
            isinstance(step, RenameField)
            and step.to == field
            and schemas[at].is_a(type_name, step.type)
        ):
            field = step.field
    return field


def _moved_edges(old: Schema, names: NameMap) -> frozenset[str]:
    """The edge types whose ids follow from handles that change."""
    changed = set(names.renamed_types)
    moved: set[str] = set()
    grows = True
    while grows:
        found = {
            each.name
            for each in old.types
            if each.edge is not None
            and any(
                changed.intersection(old.family(end))
                for end in (each.edge.source, each.edge.target)
                if end in old.by_name
            )
        }
        grows = not found <= moved
        moved |= found
        changed |= found
    return frozenset(moved)


class NameMap:
    """What the types and fields of a schema are called after some steps."""

    def __init__(self, steps: Sequence[Step], schemas: Sequence[Schema]) -> None:
        self._steps, self._schemas = steps, schemas
        self.types: list[Mapping[str | None, str]] = [
            {step.type: step.to} if isinstance(step, RenameType) else {} for step in steps
        ]
        """For each step, the types that it renames."""
        self._now = {each.name: self._follow(each.name) for each in schemas[0].types}
        self.renamed_types = {
            name: now for name, now in self._now.items() if now is not None and now != name
        }

    def _follow(self, name: str) -> str | None:
        """A type's name at the end; None if it is dropped on the way."""
        for at, step in enumerate(self._steps):
            if isinstance(step, RenameType):
                name = step.to if step.type == name else name
            elif name not in self._schemas[at + 1].by_name:
                return None
        return name

    def type_now(self, name: str) -> str | None:
        """The name of a type at the end; None if it is dropped on the way."""
        return self._now.get(name)

    def field_now(self, type_name: str, field: str) -> str:
        """The name of a field at the end."""
        for at, step in enumerate(self._steps):
            if isinstance(step, RenameType) and step.type == type_name:
                type_name = step.to
            elif (
                isinstance(step, RenameField)
                and step.field == field
                and self._schemas[at].is_a(type_name, step.type)
            ):
                field = step.to
        return field

    def last_step(self, type_name: str, field: str = "") -> int:
        """The last step that is about a type, or about a field of it, by their names at the end."""
        found = 0
        for at, step in enumerate(self._steps):
            after = self._schemas[at + 1]
            about = {getattr(step, "to", ""), getattr(step, "type", "")} | {
                getattr(getattr(step, "type", None), "name", ""),
                getattr(getattr(step, "shape", None), "target", ""),
            }
            lineage = after.lineage(type_name) if type_name in after.by_name else (type_name,)
            if not any(each in about for each in lineage):
                continue
            named = _fields_of(step)
            if not field or not named or field in named:
                found = at
        return found

    def renames(self) -> tuple[Rename, ...]:
        """The renames, as the commit records them."""
        found: list[Rename] = []
        for step in self._steps:
            if isinstance(step, RenameType):
                found.append(Rename(step.type, step.to))
            elif isinstance(step, RenameField):
                found.append(Rename(step.type, step.to, step.field))
        return tuple(found)


def _fields_of(step: Step) -> set[str]:
    """The fields that a step names."""
    found: set[str] = set()
    for part in ("field", "to"):
        value = getattr(step, part, None)
        name = value if isinstance(value, str) else getattr(value, "name", None)
        if isinstance(name, str):
            found.add(name)
    for each in getattr(step, "into", ()):
        found.add(each.name)
    shape = getattr(step, "shape", None)
    for each in getattr(shape, "fields", ()):
        found.add(each.name)
    return found
