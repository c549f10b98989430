"""Conflicts of a merge: their ids, and how they are described.

A conflict has the same id in every attempt at a merge, so that a resolution can refer to it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from trails.engine.graph.changes import Net, NodeNet, Plain
from trails.engine.graph.graph import Graph
from trails.engine.history.three_way import Clash
from trails.engine.validation.rules import RuleError
from trails.model.history import Conflict, ConflictKind, Take
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.model.values.lang_texts import split_part

_KINDS: Final[Mapping[str, ConflictKind]] = {
    "reference": "dangling_reference",
    "unique": "uniqueness",
}


def clash_id(clash: Clash) -> str:
    """The id of a clash of two changes."""
    return f"{clash.kind}:{clash.handle}" + (f".{clash.field}" if clash.field else "")


def violation_id(violation: RuleError) -> str:
    """The id of a violation that both sides cause together."""
    kind = _KINDS.get(violation.code, "constraint")
    handles, field = concerned(violation), field_of(violation)
    if kind == "constraint":
        return f"{kind}:{handles[0]}.{field}:{violation.code}"
    return f"{kind}:{'+'.join(handles)}.{field}"


def field_of(violation: RuleError) -> str:
    """The field that a violation is about; for edges, their type and end."""
    field = split_part(violation.field.rpartition(".")[2].partition("[")[0])[0]
    return f"{violation.edge}.{field}" if violation.edge else field


def concerned(violation: RuleError) -> list[str]:
    """The nodes of a violation in a stable order, the holder of the field first."""
    return [*sorted(violation.nodes), *violation.others]


def schema_id(name: str) -> str:
    """The id of a conflict about a type or a field."""
    return f"schema:{name}"


def of_schemas(name: str, what: str, base: Schema, ours: Schema, theirs: Schema) -> Conflict:
    """A conflict between declarations; ``name`` is a type or a field (Type.field)."""
    type_name, _, field = name.partition(".")
    return Conflict(
        schema_id(name),
        "schema",
        type_name,
        field,
        _declares(base, type_name, field),
        _declares(ours, type_name, field),
        _declares(theirs, type_name, field),
        (),
        (),
        f"{name}: {what}; resolve with 'ours' or 'theirs', which takes the declaration from that "
        "side, and the values where the other side's do not fit it",
    )


class Sides:
    """The changes of both sides since their common state, with their commits."""

    def __init__(self, graph: Graph, schemas: Sequence[Schema], ours: Net, theirs: Net) -> None:
        self._graph = graph
        self._schemas = schemas
        self._ours = ours
        self._theirs = theirs

    def of_clash(self, clash: Clash, ours: NodeState | None, theirs: NodeState | None) -> Conflict:
        """A conflict of two changes, or of a change and a deletion."""
        plain = Plain(self._graph, clash.handle, *self._schemas)
        handle, field = clash.handle, clash.field
        takes: tuple[Take, ...] = ("ours", "theirs", "value") if field else ("ours", "theirs")
        if field:
            base, mine, other = (
                plain(field, value) for value in (clash.base, clash.ours, clash.theirs)
            )
            how = "made it with" if clash.kind == "divergent_insert" else "changed it to"
            text = f"{handle}.{field}: ours {how} {mine!r}, theirs to {other!r}; it was {base!r}"
        else:
            base = None
            mine, other = _shown(plain, ours), _shown(plain, theirs)
            who = ("theirs", "ours") if ours is not None else ("ours", "theirs")
            text = f"{handle}: {who[0]} deleted it, {who[1]} changed it"
        return Conflict(
            clash_id(clash),
            clash.kind,
            handle,
            field,
            base,
            mine,
            other,
            _causes(self._ours, (handle,), field),
            _causes(self._theirs, (handle,), field),
            _with_takes(text, takes),
            takes,
        )

    def of_violation(
        self,
        violation: RuleError,
        mine: NodeState | None,
        other: NodeState | None,
        takes: tuple[Take, ...],
    ) -> Conflict:
        """A violated rule; ``mine`` and ``other`` are the first node on both sides."""
        handles = tuple(concerned(violation))
        field, holder = field_of(violation), handles[0]
        plain = Plain(self._graph, holder, *self._schemas)
        ours = None if mine is None else plain(field, mine.values.get(field))
        return Conflict(
            violation_id(violation),
            _KINDS.get(violation.code, "constraint"),
            holder,
            field,
            _first_value(plain, field, self._ours, self._theirs, holder, ours),
            ours,
            None if other is None else plain(field, other.values.get(field)),
            _causes(self._ours, handles, field),
            _causes(self._theirs, handles, field),
            _with_takes(violation.message, takes),
            takes,
        )

    def of_edges(
        self,
        violation: RuleError,
        mine: Sequence[str],
        other: Sequence[str],
        takes: tuple[Take, ...],
    ) -> Conflict:
        """Too few or too many edges of a node, with the edges of both sides."""
        holder, nodes = violation.nodes[0], self._graph.names.nodes
        handles = tuple(dict.fromkeys([holder, *mine, *other]))
        return Conflict(
            violation_id(violation),
            "constraint",
            holder,
            field_of(violation),
            None,
            [nodes + each for each in mine],
            [nodes + each for each in other],
            _causes(self._ours, handles, ""),
            _causes(self._theirs, handles, ""),
            _with_takes(violation.message, takes),
            takes,
        )


def _with_takes(text: str, takes: Sequence[Take]) -> str:
    """The problem with the resolutions that solve it."""
    shown = [f"'{each}'" if each != "value" else "a value" for each in takes]
    if not shown:
        return f"{text}; change one of the branches first: neither side satisfies the rule"
    listed = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} or {shown[-1]}"
    return f"{text}; resolve with {listed}"


def _causes(net: Net, handles: tuple[str, ...], field: str) -> tuple[str, ...]:
    """The commits of a side that changed these nodes, in this field if any did."""
    found: dict[str, None] = {}
    for handle in handles:
        node = net.get(handle, NodeNet())
        named = [each for each in node.commits if field in {each, split_part(each)[0]}]
        groups = [node.commits[each] for each in named if field] or [*node.commits.values()]
        commits = [each for group in groups for each in group]
        found.update(dict.fromkeys(commits))
    return tuple(found)


def _declares(schema: Schema, type_name: str, field: str) -> bool:
    found = schema.by_name.get(type_name)
    return found is not None and (not field or field in found.by_name)


def _first_value(
    plain: Plain, field: str, ours: Net, theirs: Net, handle: str, default: object
) -> object:
    """The value of a field in the common state."""
    for net in (ours, theirs):
        node = net.get(handle)
        if node is not None and not node.was:
            return None
        if node is not None and field in node.values:
            return plain(field, node.values[field][0])
        if node is not None and isinstance(default, dict):  # texts by language
            for name, (before, _) in node.values.items():
                if split_part(name)[0] == field:
                    tag = split_part(name)[1]
                    kept = {each: text for each, text in default.items() if each != tag}
                    default = kept if before is None else {**kept, tag: before}
    members = ours[handle].members.get(field, {}) if handle in ours else {}
    if not members or not isinstance(default, list | None):
        return default
    came = [plain(field, each) for each, pair in members.items() if pair[1]]
    went = [plain(field, each) for each, pair in members.items() if not pair[1]]
    return sorted([each for each in default or () if each not in came] + went, key=str)


def _shown(plain: Plain, state: NodeState | None) -> object:
    return None if state is None else {k: plain(k, v) for k, v in state.values.items()}
