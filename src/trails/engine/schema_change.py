"""What a new schema means for the data that is there.

A change is safe when every stored node is valid under the new schema and none
of its values disappears from sight. That is decided by looking at the nodes,
not by guessing from the declarations, and only at those of types that changed.
"""

from __future__ import annotations

from collections.abc import Iterator

from trails.engine.graph import Graph
from trails.engine.lines import Line
from trails.engine.validate import Validator
from trails.errors import FieldError, SchemaMismatchError
from trails.model.types import Schema, TypeDescriptor

_SHOWN = 20


def describe_changes(old: Schema, new: Schema) -> list[str]:
    """The differences, a line each, in words."""
    lines = []
    for name in sorted({*old.by_name, *new.by_name}):
        before, after = old.by_name.get(name), new.by_name.get(name)
        if before is None:
            lines.append(f"new type {name}")
        elif after is None:
            lines.append(f"type {name} is gone")
        elif before != after:
            lines += [f"{name}: {line}" for line in _field_changes(before, after)]
    if old.shapes != new.shapes:
        lines.append("constraints of attached shapes changed")
    return lines


def _field_changes(before: TypeDescriptor, after: TypeDescriptor) -> Iterator[str]:
    for name in sorted({*before.by_name, *after.by_name}):
        old, new = before.by_name.get(name), after.by_name.get(name)
        if old is None:
            yield f"new field {name}"
        elif new is None:
            yield f"field {name} is gone"
        elif old != new:
            yield f"field {name} changed"
    for what in ("description", "iri", "extends", "unique", "index", "edge"):
        if getattr(before, what) != getattr(after, what):
            yield f"{what} changed"


def check_change(graph: Graph, line: Line, new: Schema) -> None:
    """Raise SchemaMismatchError when stored nodes do not fit the new schema."""
    problems = list(_problems(graph, line, new))
    if problems:
        raise SchemaMismatchError(
            "the declared types do not fit the data of this graph: "
            + "; ".join(problems[:_SHOWN])
            + ". Correct the declarations, or change the data first",
            problems=problems[:_SHOWN],
        )


def _problems(graph: Graph, line: Line, new: Schema) -> Iterator[str]:
    old, nodes = line.schema, line.nodes
    validator = Validator(new, graph.names)
    with graph.file.writer() as db:
        for name, before in old.by_name.items():
            after = new.by_name.get(name)
            if after == before and old.shapes_of(name) == new.shapes_of(name):
                continue
            if not nodes.live(db, (name,)):
                continue
            if after is None:
                yield f"type {name} is gone, but the graph has instances of it"
                continue
            yield from _structural(old, new, before, after)
            found = 0
            for state in nodes.states(db, (name,)):
                errors: list[FieldError] = []
                lost = [field for field in state.values if field not in after.by_name]
                known = {key: val for key, val in state.values.items() if key not in lost}
                validator.check(name, known, f"{state.handle}.", errors)
                messages = [error.message for error in errors]
                messages += [
                    f"{state.handle}.{field} holds a value that no field has" for field in lost
                ]
                yield from messages
                found += len(messages)
                if found >= _SHOWN:
                    return


def _structural(
    old: Schema, new: Schema, before: TypeDescriptor, after: TypeDescriptor
) -> Iterator[str]:
    """Changes under which stored statements would no longer be read."""
    if before.iri != after.iri or old.lineage(before.name) != new.lineage(after.name):
        yield f"{before.name}: its class or ancestors changed, but the graph has instances of it"
    if (before.key and before.key.name) != (after.key and after.key.name):
        yield f"{before.name}: its key changed, but ids are derived from it"
    if before.edge is not None and after.edge is None:
        yield f"{before.name}: it was an edge type"
    for name, field in before.by_name.items():
        changed = after.by_name.get(name)
        if changed is None:
            continue
        if field.iri != changed.iri or field.type.scalar.kind != changed.type.scalar.kind:
            yield f"{before.name}.{name}: {field.type} became {changed.type}"
