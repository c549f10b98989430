"""Write RDF statements: find the nodes that they describe, and put those.

Raw statements and SPARQL Updates both end here, as a delta of statements to remove and to add.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyoxigraph as ox

from trails.engine.visibility.access import refuse_text
from trails.engine.write.edits import apply_states, bypass
from trails.engine.write.write import Write
from trails.errors import FieldError, QueryError, ValidationError
from trails.model.constraints import showable
from trails.model.iris import RDF_TYPE, Names
from trails.model.nodes import NodeState
from trails.model.sparql import text_of, tokenize, update_form
from trails.model.texts import with_article
from trails.model.types import Schema
from trails.views.terms import Change, Terms

_RAW_FORMS: Final = "only INSERT DATA and DELETE DATA can be written raw"


def apply_statements(
    write: Write, removed: bytes, added: bytes, *, validate: bool, alone: bool
) -> None:
    """Bring the nodes of a write into the state that a delta (N-Quads) leaves them in.

    Without ``validate`` the statements are logged as they are.
    """
    nodes = write.nodes
    terms = nodes.visible.terms
    gone, come = list(terms.parse(removed)), list(terms.parse(added))
    outside = [quad for quad in (*gone, *come) if not terms.describes(quad)]
    if outside and not nodes.sees_all:
        raise refuse_text()
    if outside and validate:
        _refuse_kinds(terms, outside)
        raise QueryError(
            f"{outside[0]} describes nothing that this graph's types declare; statements "
            "are about nodes of declared types, their classes and their fields"
        )
    states: dict[str, NodeState | None] = {}
    errors: list[FieldError] = []
    for handle, change in terms.changes(gone, come).items():
        stored = nodes.find(handle)
        before = None if stored is None else stored.state
        state = states[handle] = terms.state_after(handle, before, change)
        if validate:
            if state is None and before is None and change.added:
                raise QueryError(f"{handle} does not exist; insert its class too")
            errors.extend(_crowded(terms.schema, handle, before, change))
    if validate:
        _check_classes(terms, gone, come, states)
    try:
        apply_states(nodes, states, errors, validate=validate, alone=alone)
    except ValidationError:
        nodes.spoil()  # the states are stored: a surrounding transaction must not commit them
        raise
    if not validate:
        bypass(nodes, removed, added, (len(gone), len(come)))


def _refuse_kinds(terms: Terms, outside: list[ox.Quad]) -> None:
    """Report statements with a known field and a wrong value as violations of that field."""
    errors: list[FieldError] = []
    for quad in outside:
        handle = terms.handle_of(quad.subject)
        field = None if handle is None else terms.field_of(handle, quad.predicate.value)
        if handle is None or field is None or not isinstance(quad.graph_name, ox.DefaultGraph):
            return
        row, path = field.type.scalar.row, f"{handle}.{field.name}"
        code, wanted = "reference", f"the IRI of {with_article(field.target or 'node')}"
        if row is not None:
            code, wanted = "datatype", f"a literal of type <{row.datatype}>, {row.expected}"
        message = f"{path} takes {wanted}; {quad.object} is not one"
        errors.append(FieldError(path, code, message, str(quad.object)[:200], str(field.type)))
    raise ValidationError(errors)


def _check_classes(
    terms: Terms,
    gone: list[ox.Quad],
    come: list[ox.Quad],
    states: Mapping[str, NodeState | None],
) -> None:
    """Refuse to remove a class of a node that still exists."""
    for quad in gone:
        handle = terms.handle_of(quad.subject) or ""
        if quad.predicate.value == RDF_TYPE and states.get(handle) and quad not in come:
            raise QueryError(
                f"{quad} can't be removed while {handle} exists: the class follows from its "
                "type; delete the node, or leave its classes as they are"
            )


def _crowded(
    schema: Schema, handle: str, before: NodeState | None, change: Change
) -> Iterator[FieldError]:
    """Violations by several values for a single-valued field."""
    values = {} if before is None else before.values
    for name, come in change.added.items():
        field = schema.by_name[handle.partition("/")[0]].by_name[name]
        if field.many:
            continue
        old = [values[name]] if name in values else []
        left = {*(each for each in old if each not in change.removed.get(name, ())), *come}
        if len(left) > 1:
            path = f"{handle}.{name}"
            message = f"{path} may have at most 1 value, not {len(left)}"
            yield FieldError(path, "max_count", message, [showable(each) for each in left], 1)


def data_statements(text: str, names: Names) -> tuple[bytes, bytes]:
    """The statements of INSERT DATA and DELETE DATA: (removed, added) as N-Quads.

    The library parses them: each operation runs alone in an empty store.
    """
    removed, added = ox.Store(), ox.Store()
    for operation in update_form(tokenize(text)):
        if operation.form not in {"INSERT DATA", "DELETE DATA"}:
            raise QueryError(f"{operation.form}: {_RAW_FORMS}")
        target = removed if operation.insert is None else added
        body = text_of(operation.delete or operation.insert or ())
        try:
            target.update(
                f"{operation.prologue} INSERT DATA {{ {body} }}",
                base_iri=names.nodes,
                prefixes=names.prefixes,
            )
        except (SyntaxError, ValueError) as error:
            raise QueryError(f"the update can't be parsed: {error}") from None
    return _dump(removed), _dump(added)


def _dump(store: ox.Store) -> bytes:
    text = store.dump(format=ox.RdfFormat.N_QUADS) or b""
    if b"_:" in text and any(
        isinstance(part, ox.BlankNode)
        for quad in store
        for part in (quad.subject, quad.object, quad.graph_name)
    ):
        raise QueryError("blank nodes are not supported; use IRIs")
    return text
