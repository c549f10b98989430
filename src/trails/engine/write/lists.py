"""Updates of ordered lists: statements about cells become statements about whole lists.

SPARQL Update sees a list as cells (``views/lists.py``) and may insert, delete and link them. What
counts is the list that a node has afterwards: it is read from the cells before the update, without
those statements that it removes, with those that it adds. Cells that no list has any more are gone;
a list with a gap, an end missing or two beginnings is refused, and so are new cells outside of one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyoxigraph as ox

from trails.errors import FieldError, QueryError, ValidationError
from trails.model.nodes import NodeState
from trails.model.texts import with_article
from trails.model.types import PredicateDescriptor
from trails.views.lists import (
    CELL_PREDICATES,
    Cells,
    ListError,
    cells_of,
    owner_of,
    read_list,
    unpack,
)
from trails.views.terms import Terms

Place = tuple[str, str]
"""A node's handle, and the predicate of one of its ordered fields."""


def touches_lists(terms: Terms, quads: Iterable[ox.Quad]) -> bool:
    """Whether statements are about cells, or about which list a node has."""
    return any(
        each.predicate.value in CELL_PREDICATES or _ordered(terms, each) is not None
        for each in quads
    )


def _ordered(terms: Terms, quad: ox.Quad) -> PredicateDescriptor | None:
    """The ordered field that a statement of a node is about."""
    handle = terms.handle_of(quad.subject)
    field = None if handle is None else terms.field_of(handle, quad.predicate.value)
    return field if field is not None and field.ordered else None


def whole_lists(
    terms: Terms,
    removed: list[ox.Quad],
    added: list[ox.Quad],
    stored: Callable[[str], NodeState | None],
) -> tuple[list[ox.Quad], list[ox.Quad]]:
    """The same change with each list as one statement."""
    if not touches_lists(terms, (*removed, *added)):
        return removed, added
    return _Update(terms, stored).fold(removed, added)


class _Update:
    """One update of lists."""

    def __init__(self, terms: Terms, stored: Callable[[str], NodeState | None]) -> None:
        self._terms = terms
        self._stored = stored
        self._cells = Cells()
        self._heads: dict[Place, list[object]] = {}
        self._before: dict[Place, ox.Quad | None] = {}

    def fold(
        self, removed: list[ox.Quad], added: list[ox.Quad]
    ) -> tuple[list[ox.Quad], list[ox.Quad]]:
        """The statements that are left: lists whole, all others as they were."""
        parts = [[each for each in side if self._is_part(each)] for side in (removed, added)]
        for quad in (*parts[0], *parts[1]):
            self._begin(quad)
        for quad in parts[0]:
            self._discard(quad)
        for quad in parts[1]:
            self._add(quad)
        gone = [each for each in removed if not self._is_part(each)]
        come = [each for each in added if not self._is_part(each)]
        used: set[object] = set()
        for place, heads in self._heads.items():
            before, after = self._before[place], self._after(place, heads, used)
            if before != after:
                gone += [] if before is None else [before]
                come += [] if after is None else [after]
        self._refuse_loose(parts[1], used)
        return gone, come

    def _is_part(self, quad: ox.Quad) -> bool:
        """Whether a statement is about a cell, or links a node with one."""
        if _ordered(self._terms, quad) is not None:
            return unpack(quad.object) is None
        return quad.predicate.value in CELL_PREDICATES

    def _place_of(self, quad: ox.Quad) -> Place | None:
        handle = self._terms.handle_of(quad.subject)
        if handle is not None:
            return handle, quad.predicate.value
        names = self._terms.names
        owner = owner_of(getattr(quad.subject, "value", ""), names)
        handle = None if owner is None else self._terms.handle_of(ox.NamedNode(owner[0]))
        if owner is None or handle is None:
            return None
        field = self._terms.field_of(handle, owner[1])
        return (handle, owner[1]) if field is not None and field.ordered else None

    def _begin(self, quad: ox.Quad) -> None:
        """Take the list as it was before the update."""
        place = self._place_of(quad)
        if place is None or place in self._heads:
            return
        handle, predicate = place
        state, heads = self._stored(handle), list[object]()
        self._heads[place], self._before[place] = heads, None
        field = self._terms.field_of(handle, predicate)
        if state is None or field is None or field.name not in state.values:
            return
        whole = self._before[place] = self._terms.list_statement(state, field)
        packed = unpack(whole.object)
        items = () if packed is None else packed.terms()
        for each in cells_of(self._terms.names.nodes + handle, predicate, items):
            self._add(each)

    def _add(self, quad: ox.Quad) -> None:
        if quad.predicate.value in CELL_PREDICATES:
            self._cells.add(quad)
        elif (place := self._place_of(quad)) is not None:
            self._heads[place].append(quad.object)

    def _discard(self, quad: ox.Quad) -> None:
        if quad.predicate.value in CELL_PREDICATES:
            self._cells.discard(quad)
        elif (place := self._place_of(quad)) is not None and quad.object in self._heads[place]:
            self._heads[place].remove(quad.object)

    def _after(self, place: Place, heads: list[object], used: set[object]) -> ox.Quad | None:
        handle, predicate = place
        field = self._terms.field_of(handle, predicate)
        if not heads or field is None:
            return None
        path = f"{handle}.{field.name}"
        for head in heads:
            if isinstance(head, ox.Literal):
                message = f"{path} is an ordered list; write ( {head} ) in place of {head}"
                raise ValidationError([FieldError(path, "datatype", message, head.value[:200])])
        if len(heads) > 1:
            message = f"{path} may have one list, not {len(heads)}; delete the other one, too"
            raise ValidationError([FieldError(path, "max_count", message, None, 1)])
        try:
            items, cells = read_list(heads[0], self._cells.parts)
        except ListError as error:
            message = (
                f"{path} is an ordered list, and this leaves no whole one: {error}. Replace it as "
                "a whole: delete what it has, and insert a collection in parentheses"
            )
            raise ValidationError([FieldError(path, "datatype", message)]) from None
        used.update(cells)
        values = self._terms.read_items(field, items)
        if values is None:
            raise ValidationError(list(_wrong_items(self._terms, field, path, items)))
        if not values:
            return None
        type_name = handle.partition("/")[0]
        return self._terms.list_statement(
            NodeState(type_name, "", {field.name: values}), field, handle
        )

    def _refuse_loose(self, added: list[ox.Quad], used: set[object]) -> None:
        """Refuse new statements about cells that no list has."""
        for quad in added:
            if quad.predicate.value in CELL_PREDICATES and quad.subject not in used:
                raise QueryError(
                    f"{quad} is about a cell that no list of a node has; insert a whole list, "
                    "such as <Type/id> :field ( 1 2 3 ), in a field with ordered=True"
                )


def _wrong_items(
    terms: Terms, field: PredicateDescriptor, path: str, items: list[object]
) -> Iterable[FieldError]:
    row = field.type.scalar.row
    code, wanted = "reference", f"the IRI of {with_article(field.target or 'node')}"
    if row is not None:
        code, wanted = "datatype", f"a literal of type <{row.datatype}>, {row.expected}"
    for at, item in enumerate(items):
        if terms.read_items(field, (item,)) is None:
            message = f"{path}[{at}] takes {wanted}; {item} is not one"
            yield FieldError(f"{path}[{at}]", code, message, str(item)[:200], str(field.type))
