"""Values and nodes that a commit removed from a branch, as they were before it.

They are read from a snapshot, under the names that types and fields have on the branch now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.graph.renames import NameHistory
from trails.engine.visibility.refs import snapshot_checkout
from trails.errors import FieldError, ValidationError
from trails.model.changes.steps import AddField, AddType, ChangeField, Step
from trails.model.history import GENESIS, Commit
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, TypeDescriptor
from trails.views.nodes.index import batched

_PAGE = 500


Found = tuple[PredicateDescriptor, object]
"""A field as it was declared, and what a node had in it; None for nothing."""


class EarlierState:
    """The nodes of a branch at an earlier commit, by the names of today."""

    def __init__(self, graph: Graph, branch: Checkout, commit: str) -> None:
        """Makes a snapshot, so it takes the writer's lock for a moment."""
        head = branch.head.commit
        self._snapshot = snapshot_checkout(graph, graph.ancestry.commit(commit))
        self._then = NameHistory.between(graph, head, commit)
        self._now = NameHistory.between(graph, commit, head)

    def values(
        self, handles: Sequence[str], name: str, *, renamed: bool = False
    ) -> Mapping[str, Found]:
        """Handle → field and value, for the nodes that existed with a field of that name.

        ``renamed``: the field that has this name now, whatever it was called.
        """
        wanted = {self._then.handle(handle): handle for handle in handles}
        found: dict[str, Found] = {}
        nodes = self._snapshot.nodes
        for some in batched(list(wanted), _PAGE):
            with nodes.file.reader() as db:
                stored = nodes.find_all(db, some)
            for handle, each in stored.items():
                declared = self._snapshot.schema.by_name[each.state.type]
                field = self._field(declared, name, renamed=renamed)
                if field is not None:
                    value = self._value(field, each.state.values.get(field.name))
                    found[wanted[handle]] = field, value
        return found

    def _field(
        self, declared: TypeDescriptor, name: str, *, renamed: bool = False
    ) -> PredicateDescriptor | None:
        """The field that had a name then, else the one that has it now."""
        if name in declared.by_name and not renamed:
            return declared.by_name[name]
        return next(
            (each for each in declared.fields if self._now.field(declared.name, each.name) == name),
            None,
        )

    def _value(self, field: PredicateDescriptor, value: object) -> object:
        if field.target is None or value is None:
            return value
        if isinstance(value, tuple):
            moved = (self._now.handle(str(each)) for each in value)
            return tuple(sorted(moved) if field.is_set else moved)
        return self._now.handle(str(value))

    def nodes(self, declared: TypeDescriptor) -> Iterator[list[NodeState]]:
        """The nodes of a type, by pages, with the values that a type of its name can hold."""
        schema, nodes = self._snapshot.schema, self._snapshot.nodes
        former = (
            declared.name if declared.name in schema.by_name else self._then.type(declared.name)
        )
        if former not in schema.by_name:
            return
        fields = {
            each.name: found
            for each in declared.fields
            if (found := self._field(schema.by_name[former], each.name)) is not None
        }
        after = 0
        while True:
            with nodes.file.reader() as db:
                page = nodes.page(db, former, after, _PAGE)
            if not page:
                return
            after = page[-1].nid
            yield [
                NodeState(
                    declared.name,
                    each.state.id,
                    {
                        name: self._value(field, each.state.values[field.name])
                        for name, field in fields.items()
                        if field.name in each.state.values
                    },
                )
                for each in page
            ]


class FormerState:
    """The nodes of a branch before one commit, and right after it."""

    def __init__(self, graph: Graph, branch: Checkout, commit: Commit) -> None:
        self._before = EarlierState(graph, branch, commit.first_parent)
        self._after = EarlierState(graph, branch, commit.id)

    def values(
        self, handles: Sequence[str], name: str, *, renamed: bool = False
    ) -> Mapping[str, Found]:
        """Handle → the field and what a node had in it before the commit."""
        return self._before.values(handles, name, renamed=renamed)

    def results(
        self, handles: Sequence[str], name: str, *, renamed: bool = False
    ) -> Mapping[str, Found]:
        """Handle → the field and what a node had in it right after the commit."""
        return self._after.values(handles, name, renamed=renamed)

    def nodes(self, declared: TypeDescriptor) -> Iterator[list[NodeState]]:
        """The nodes of a type before the commit, by pages."""
        return self._before.nodes(declared)


def commit_of(given: object) -> str | None:
    """The commit that a backfill restores from; None if it is anything else."""
    if isinstance(given, Mapping) and given.keys() == {"commit"}:
        return str(given["commit"])
    return None


def former_states(graph: Graph, branch: Checkout, steps: Sequence[Step]) -> dict[str, FormerState]:
    """Commit → what was before it, for the commits that steps restore from.

    Only commits of the branch itself: of others the caller may not be allowed to read anything.
    """
    found: dict[str, FormerState] = {}
    for at, step in enumerate(steps):
        part, commit = "", None
        if isinstance(step, AddType):
            part, commit = "restore", step.restore
        elif isinstance(step, AddField | ChangeField):
            part, commit = "backfill", commit_of(step.backfill)
        if commit is None or commit in found:
            continue
        whole = graph.log.commit(commit)
        known = whole is not None and graph.ancestry.is_ancestor(commit, branch.head.commit)
        if whole is None or not known or whole.first_parent == GENESIS:
            path = f"steps[{at}].{part}"
            message = f"{path}: {commit[:100]!r} is not a commit of branch {branch.name!r}"
            raise ValidationError([FieldError(path, "reference", message, commit[:100])])
        found[commit] = FormerState(graph, branch, whole)
    return found
