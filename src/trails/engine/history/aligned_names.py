"""Merge across renames: bring both sides of a merge under the same names first.

A side that renamed a type or a field since the common commit, and a side that went on using the old
name, mean the same thing. The names that the merge uses are worked out from both; then each side is
renamed in a draft where it differs, and the changes of both sides are read from the log under these
names. The merge itself sees no rename. Names on which the two sides disagree are refused.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping

import msgspec

from trails.engine.graph.ancestry import Path
from trails.engine.graph.changes import Net, net_changes
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.folding import batched
from trails.engine.graph.graph import Graph
from trails.engine.graph.renames import NameHistory, RenameStep
from trails.engine.schema.evolution import step_of
from trails.engine.schema.resolve import resolve
from trails.engine.schema.rewrite import RewriteSpool, Rewriting, ignore_progress
from trails.engine.schema.transforms import Findings
from trails.engine.write.pending import DraftWrite
from trails.errors import ConflictError, ValidationError
from trails.model.history import GENESIS, Commit, Rename
from trails.model.nodes import derive_id, make_handle
from trails.model.types import Schema
from trails.views.lines import Change

Renames = tuple[Rename, ...]


class AlignedSides(msgspec.Struct, frozen=True):
    """Both sides of a merge under the same names."""

    base: Schema
    theirs: Checkout
    net_ours: Net
    net_theirs: Net
    renames: Renames
    """What is renamed on the target."""


def align_sides(
    graph: Graph, draft: DraftWrite, theirs: Checkout, bases: list[str]
) -> AlignedSides | None:
    """Rename what the other side renamed, in drafts of both; None if nothing was renamed."""
    ours, start = draft.checkout, bases[0]
    paths = [graph.ancestry.path(start, each.nodes.position.commit) for each in (ours, theirs)]
    if not any(commit.renames for path in paths for commit in (*path.undo, *path.redo)):
        return None
    if len(bases) > 1:
        raise ConflictError(
            "these branches were merged into each other and have renamed types or fields since, so "
            "there is no single common state; merge one of them into a new branch from the other"
        )
    base = Schema() if start == GENESIS else graph.compiled(graph.ancestry.schema_at(start)).schema
    histories = [NameHistory.along(graph, path) for path in paths]
    common = _common_names(base, *histories)
    renames = [
        _renames_to(base, side.schema, history, common)
        for side, history in zip((ours, theirs), histories, strict=True)
    ]
    schemas = [
        _renamed(schema, each)
        for schema, each in zip((ours.schema, theirs.schema), renames, strict=True)
    ]
    nets = [
        net_changes(graph, path, names=_PathNames(graph, path, side, each, schema, draft.nodes.db))
        for path, side, each, schema in zip(paths, (ours, theirs), renames, schemas, strict=True)
    ]
    other = draft.beside(theirs)
    _rename_in(graph, draft, renames[0])
    _rename_in(graph, other, renames[1])
    base_renames = _renames_to(base, base, NameHistory(()), common)
    return AlignedSides(_renamed(base, base_renames), other.checkout, nets[0], nets[1], renames[0])


# --- which names --------------------------------------------------------------------------


class _CommonNames(msgspec.Struct):
    """What the types and fields of the common state are called in the merge."""

    types: dict[str, str] = msgspec.field(default_factory=dict)
    fields: dict[tuple[str, str], str] = msgspec.field(default_factory=dict)


def _common_names(base: Schema, ours: NameHistory, theirs: NameHistory) -> _CommonNames:
    names = _CommonNames()
    for declared in base.types:
        name = declared.name
        names.types[name] = _agreed(name, name, ours.type(name), theirs.type(name))
        for field in declared.fields:
            if field.declared_in in {name, ""}:
                names.fields[name, field.name] = _agreed(
                    f"{name}.{field.name}",
                    field.name,
                    ours.field(name, field.name),
                    theirs.field(name, field.name),
                )
    return names


def _agreed(what: str, base: str, ours: str, theirs: str) -> str:
    if base not in {ours, theirs} and ours != theirs:
        raise ConflictError(
            f"both sides renamed {what}, to {ours!r} and to {theirs!r}; rename it to the same name "
            "on one of the branches, and merge again"
        )
    return theirs if ours == base else ours


def _renames_to(
    base: Schema, schema: Schema, history: NameHistory, common: _CommonNames
) -> Renames:
    """The renames that give a side the common names; first of fields, then of types."""
    fields: list[Rename] = []
    types: list[Rename] = []
    for declared in base.types:
        name = history.type(declared.name)
        found = schema.by_name.get(name)
        if found is None:
            continue
        wanted = common.types[declared.name]
        if wanted != name:
            types.append(Rename(name, wanted))
        for field in declared.fields:
            if field.declared_in not in {declared.name, ""}:
                continue
            current = history.field(declared.name, field.name)
            target = common.fields[declared.name, field.name]
            if target != current and current in found.by_name:
                owner = found.by_name[current].declared_in or name
                fields.append(Rename(owner, target, current))
    return (*dict.fromkeys(fields), *types)


def _renamed(schema: Schema, renames: Renames) -> Schema:
    try:
        return resolve(schema, list(map(step_of, renames)))[-1] if renames else schema
    except ValidationError as error:
        reason = error.fields[0].message.partition(": ")[2]
        raise ConflictError(
            f"one side renamed something to a name that the other side uses: {reason}; rename it "
            "on one of the branches, and merge again"
        ) from None


# --- changes under these names ----------------------------------------------------------------


class _PathNames:
    """The common names of what commits on the way from the base to one side say."""

    def __init__(
        self,
        graph: Graph,
        path: Path,
        side: Checkout,
        renames: Renames,
        schema: Schema,
        db: sqlite3.Connection,
    ) -> None:
        """``schema``: of the side, under the common names."""
        self._graph, self._schema = graph, schema
        self._steps: list[tuple[int, RenameStep]] = []
        self._place: dict[str, tuple[int, int]] = {}
        """Commit → the positions of the states that its former and its own types belong to."""
        commits = (*path.undo, *path.redo)
        for at, commit in enumerate(commits):
            undone = at < len(path.undo)
            self._place[commit.id] = (at + 1, at) if undone else (at, at + 1)
            way = Path((commit,), ()) if undone else Path((), (commit,))
            self._steps += [(at, each) for each in NameHistory.along(graph, way).steps]
        if renames:
            self._steps.append((len(commits), (side.schema, renames)))
        self._histories: dict[int, NameHistory] = {}
        self._edges: dict[str, str] = {}
        if any(each.edge is not None for each in schema.types):
            self._find_edges(commits, side, db)

    def _history(self, position: int) -> NameHistory:
        found = self._histories.get(position)
        if found is None:
            steps = [step for at, step in self._steps if at >= position]
            found = self._histories[position] = NameHistory(steps)
        return found

    def _find_edges(
        self, commits: tuple[Commit, ...], side: Checkout, db: sqlite3.Connection
    ) -> None:
        """Work out the handles of edges, whose ids follow from the handles of their ends."""
        last = self._history(len(commits))
        for declared in side.schema.types:
            if declared.edge is not None and last:
                for state in side.nodes.states(db, (declared.name,)):
                    self._note_edge(last, side.schema, state.handle, state.values)
        for commit in commits:
            former, compiled = self._graph.folding.types_around(commit)
            with self._graph.folding.statements(commit) as (removed, added):
                for known, stream, after in ((former, removed, False), (compiled, added, True)):
                    history = self._history(self._place[commit.id][after])
                    if not history:
                        continue
                    for quads in batched(known.terms.parse(stream)):
                        changes = known.terms.changes((), quads)
                        for handle, values in _edges_among(known.schema, changes):
                            self._note_edge(history, known.schema, handle, values)

    def _note_edge(
        self, history: NameHistory, schema: Schema, handle: str, values: Mapping[str, object]
    ) -> None:
        name = handle.partition("/")[0]
        declared = self._schema.by_name.get(history.type(name))
        if declared is None or declared.edge is None:
            return
        fields = schema.by_name[name].by_name
        named = {
            history.field(name, field): history.handle(str(value))
            if fields[field].target is not None
            else value
            for field, value in values.items()
        }
        identifier = derive_id(declared, named)
        if identifier is not None:
            self._edges[handle] = make_handle(declared.name, identifier)

    def at(self, commit: Commit, *, after: bool) -> _StateNames:
        """The names of the state before or after a commit."""
        return _StateNames(self._history(self._place[commit.id][after]), self._edges)


class _StateNames(msgspec.Struct, frozen=True):
    """What one state's nodes and fields are called in the merge."""

    history: NameHistory
    edges: Mapping[str, str]

    def handle(self, handle: str) -> str:
        """The handle of a node in the merge."""
        return self.edges.get(handle) or self.history.handle(handle)

    def field(self, type_name: str, field: str) -> str:
        """The name of a field in the merge."""
        return self.history.field(type_name, field)


def _edges_among(
    schema: Schema, changes: Mapping[str, Change]
) -> Iterator[tuple[str, dict[str, object]]]:
    for handle, change in changes.items():
        if schema.by_name[handle.partition("/")[0]].edge is not None and "source" in change.added:
            yield handle, {name: values[-1] for name, values in change.added.items()}


# --- in the drafts, and in the write --------------------------------------------------------------


def rewriting_of(graph: Graph, schema: Schema, renames: Renames) -> Rewriting:
    """What renames do to nodes."""
    steps = list(map(step_of, renames))
    return Rewriting(graph, steps, [schema, *resolve(schema, steps)], Findings(len(steps)))


def _rename_in(graph: Graph, draft: DraftWrite, renames: Renames) -> None:
    if not renames:
        return
    rewriting = rewriting_of(graph, draft.checkout.schema, renames)
    spool = RewriteSpool(graph, rewriting.new)
    try:
        rewriting.collect(draft.nodes.index, draft.nodes.db, spool, ignore_progress)
        rewriting.apply(draft, spool.__iter__, logged=False)
    finally:
        spool.close()
