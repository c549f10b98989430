"""Selections in Python: ``where(owner__name="Ann")``, ``Q`` and pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Generic, Literal, Self, TypeVar, cast

import msgspec

from trails.authoring.capabilities import Context, Row
from trails.errors import NotFoundError, QueryError
from trails.model.nodes import LOOKUPS, Condition, Group, Order, PageEnd, Selection

N = TypeVar("N")
_CHUNK = 1000


class Q:
    """Conditions that can be joined with ``&``, ``|`` and ``~``."""

    __slots__ = ("tree",)

    def __init__(self, /, *parts: Q, **conditions: object) -> None:
        trees = [part.tree for part in parts] + [
            _condition(name, value) for name, value in conditions.items()
        ]
        self.tree: Condition | Group = trees[0] if len(trees) == 1 else Group("and", tuple(trees))

    @classmethod
    def _of(cls, tree: Condition | Group) -> Q:
        made = cls.__new__(cls)
        made.tree = tree
        return made

    def __and__(self, other: Q) -> Q:
        """Both conditions."""
        return Q._of(_join("and", self.tree, other.tree))

    def __or__(self, other: Q) -> Q:
        """At least one of the conditions."""
        return Q._of(_join("or", self.tree, other.tree))

    def __invert__(self) -> Q:
        """The negated condition."""
        return Q._of(Group("not", (self.tree,)))


def _join(op: Literal["and", "or"], left: Condition | Group, right: Condition | Group) -> Group:
    """Join two trees; conditions joined one by one in a loop stay flat."""
    parts: list[Condition | Group] = []
    for tree in (left, right):
        same = isinstance(tree, Group) and tree.op == op
        parts += tree.parts if same else (tree,)  # type: ignore[union-attr]
    return Group(op, tuple(parts))


def _condition(name: str, value: object) -> Condition:
    path = name.split("__")
    lookup = path.pop() if len(path) > 1 and path[-1] in LOOKUPS else "exact"
    if value is None and lookup == "exact":
        lookup, value = "isnull", True
    if lookup == "in" and isinstance(value, Iterable) and not isinstance(value, str):
        # An iterator can be read only once, but a query may run again.
        value = tuple(map(_stored, value))
    return Condition(tuple(path), lookup, _stored(value))


def _stored(value: object) -> object:
    """A value as it is stored: the value of an Enum's member."""
    return value.value if isinstance(value, Enum) else value


class Page(msgspec.Struct, Generic[N], frozen=True):
    """Some items, and the cursor for those that follow (None at the end)."""

    items: tuple[N, ...]
    next: str | None


class Query(Generic[N]):
    """A selection of instances of one type; every method returns a new one.

    Without a context it is a plan: ``fetch(ctx)`` runs it.
    """

    __slots__ = ("_ctx", "_selection")

    def __init__(self, selection: Selection, ctx: Context | None = None) -> None:
        self._selection = selection
        self._ctx = ctx

    def _with(self, **changes: object) -> Self:
        return type(self)(msgspec.structs.replace(self._selection, **changes), self._ctx)

    def _bound(self) -> Context:
        if self._ctx is None:
            raise QueryError(
                "this selection has no context; call .fetch(ctx), or start from objects(ctx)"
            )
        return self._ctx

    @property
    def selection(self) -> Selection:
        """The plain value behind this query."""
        return self._selection

    def where(self, *parts: Q, **conditions: object) -> Self:
        """Add conditions."""
        if not parts and not conditions:
            return self
        tree = Q(*parts, **conditions).tree
        if self._selection.where is not None:
            tree = _join("and", self._selection.where, tree)
        return self._with(where=tree)

    def exclude(self, *parts: Q, **conditions: object) -> Self:
        """Exclude instances that meet these conditions."""
        return self.where(~Q(*parts, **conditions))

    def order_by(self, *fields: str) -> Self:
        """Sort by fields; ``-field`` descends. Missing values come last."""
        return self._with(
            order=tuple(Order(f.removeprefix("-"), descending=f.startswith("-")) for f in fields)
        )

    def limit(self, count: int) -> Self:
        """At most this many."""
        return self._with(limit=_natural("limit", count))

    def _at_most(self, count: int) -> Self:
        """Lower the limit if the current one is higher."""
        given = self._selection.limit
        return self.limit(count if given is None else min(count, given))

    def offset(self, count: int) -> Self:
        """Skip this many; the cost grows with the number, unlike a cursor's."""
        return self._with(offset=_natural("offset", count))

    def fetch(self, ctx: Context | None = None) -> list[N]:
        """Run it and return the instances."""
        return list(self._items(ctx or self._bound()))

    def _items(self, ctx: Context) -> Iterator[N]:
        for row in self._rows(ctx):
            yield cast(N, ctx.hydrate(row))

    def _rows(self, ctx: Context) -> Iterator[Row]:
        """All rows; without a limit page by page, so that memory does not grow with them.

        An order by several fields sorts all matches for every page, so it is read at once.
        """
        if self._selection.limit is not None or len(self._selection.order) > 1:
            yield from ctx.kg.select(self._selection).rows
            return
        after: PageEnd | None = None
        offset = self._selection.offset
        while True:
            found = ctx.kg.select(
                msgspec.structs.replace(self._selection, limit=_CHUNK, offset=offset, after=after)
            )
            yield from found.rows
            after, offset = found.next, 0
            if after is None:
                return

    def __iter__(self) -> Iterator[N]:
        """Instances, one by one."""
        return self._items(self._bound())

    def page(self, size: int = 100, after: str | None = None) -> Page[N]:
        """One page, and the cursor that continues it at the same cost at any depth."""
        ctx = self._bound()
        offset = self._selection.offset if after is None else 0
        selection = msgspec.structs.replace(
            self._selection, limit=_natural("size", size, least=1), offset=offset
        )
        rows, following = ctx.kg.select_page(selection, after)
        return Page(cast(tuple[N, ...], tuple(map(ctx.hydrate, rows))), following)

    def count(self, ctx: Context | None = None) -> int:
        """The number of matches, ignoring the limit."""
        return (ctx or self._bound()).kg.count(
            msgspec.structs.replace(self._selection, order=(), limit=None, offset=0, after=None)
        )

    def exists(self, ctx: Context | None = None) -> bool:
        """Whether there is at least one."""
        return self.first(ctx) is not None

    def first(self, ctx: Context | None = None) -> N | None:
        """The first, or None."""
        return next(iter(self._at_most(1).fetch(ctx)), None)

    def get(self, ctx: Context | None = None) -> N:
        """The only match; NotFoundError for none, QueryError for several."""
        found = self._at_most(2).fetch(ctx or self._bound())
        if not found:
            raise NotFoundError(f"no {self._selection.type} matches these conditions")
        if len(found) > 1:
            raise QueryError(
                f"more than one {self._selection.type} matches these conditions; "
                "narrow them, or use first()"
            )
        return found[0]

    def nearest(
        self,
        field: str,
        vector: Sequence[float] | None = None,
        k: int = 10,
        *,
        text: str | None = None,
        ctx: Context | None = None,
    ) -> list[tuple[N, float]]:
        """The k matches nearest to a vector, best first, each with its score.

        ``text`` instead of a vector: the project's function for embeddings makes one of it. The
        field's metric decides; the score of ``euclidean`` is the negative distance. Order, limit
        and offset of the selection are not used.
        """
        bound = ctx or self._bound()
        found = bound.kg.nearest(self._selection, field, vector, k, text=text)
        return [(cast(N, bound.hydrate(row)), score) for row, score in found]

    def values(self, *fields: str, ctx: Context | None = None) -> list[dict[str, object]]:
        """Dictionaries of these fields (all, when none is named); references are IRIs."""
        bound = ctx or self._bound()
        bound.kg.check_fields(self._selection.type, [name for name in fields if name != "id"])
        descriptor = bound.kg.schema.by_name.get(self._selection.type)
        known = () if descriptor is None else descriptor.fields
        wanted = fields or ("id", *(field.name for field in known))
        references = {field.name for field in known if field.target}

        def shown(row: Row, name: str) -> object:
            if name == "id":
                return row.id
            value = row.values.get(name)
            if value is None or name not in references:
                return value
            if isinstance(value, tuple):
                return tuple(bound.kg.iri(str(each)) for each in value)
            return bound.kg.iri(str(value))

        return [{name: shown(row, name) for name in wanted} for row in self._rows(bound)]


def _natural(name: str, count: int, least: int = 0) -> int:
    if type(count) is not int or count < least:
        raise QueryError(f"{name} must be a whole number from {least}, not {count!r}")
    return count
