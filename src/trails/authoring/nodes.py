"""``Node`` and ``Edge``: the methods of an instance of a declared type.

An instance keeps the loaded values beside its attributes, so saving writes only the fields that
changed. A reference read from the graph is an instance that knows its id and loads the rest when
a field is first read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar, dataclass_transform

import msgspec

from trails.authoring.annotations import Hold
from trails.authoring.capabilities import Context
from trails.authoring.queries import Q, Query
from trails.errors import FieldError, NotFoundError, TrailsError, ValidationError
from trails.model.history import Commit
from trails.model.iris import uuid7
from trails.model.kinds import KindError
from trails.model.names import suggest
from trails.model.nodes import Selection, derive_id, make_handle
from trails.model.types import TypeDescriptor

_STATE = "_trails_state"
N = TypeVar("N", bound="Node")
T = TypeVar("T")


class WriteOutcome:
    """The outcome of a write, shared by all its instances; None while it is open."""

    __slots__ = ("landed",)

    def __init__(self) -> None:
        self.landed: bool | None = None


class State(msgspec.Struct, eq=False):
    """The state of an instance beside its attributes."""

    id: str | None = None
    handle: str | None = None
    ctx: Context | None = None
    _stored: bool = False
    _loaded: Mapping[str, object] | None = None
    _outcome: WriteOutcome | None = None
    _earlier: tuple[bool, Mapping[str, object] | None] = (False, None)

    def remember(
        self,
        *,
        stored: bool,
        values: Mapping[str, object] | None,
        outcome: WriteOutcome | None = None,
    ) -> None:
        """Record the stored values; they are dropped if the write of ``outcome`` fails."""
        if outcome is not None and self._outcome is not outcome:
            self._settle()
            self._earlier = (self._stored, self._loaded)
        self._outcome, self._stored, self._loaded = outcome, stored, values

    def _settle(self) -> None:
        if self._outcome is not None and self._outcome.landed is not None:
            if not self._outcome.landed:
                self._stored, self._loaded = self._earlier
            self._outcome = None

    @property
    def stored(self) -> bool:
        """Whether the node is in the graph, as far as this instance knows."""
        self._settle()
        return self._stored

    @property
    def loaded(self) -> Mapping[str, object] | None:
        """The field values as last read or written; None before either."""
        self._settle()
        return self._loaded


class Node:
    """Base of node types. Inherit it so that editors know ``save`` and ``objects``."""

    __trails__: ClassVar[TypeDescriptor]
    __trails_held__: ClassVar[Mapping[str, Hold]] = {}
    """How instances hold the values of some fields, such as members of an Enum."""

    def __init__(self, **values: object) -> None:
        """Set fields by name; constraints are checked by ``save``."""
        descriptor = self.__trails__
        unknown = [name for name in values if name not in descriptor.by_name]
        if unknown:
            raise ValidationError(unknown_field(descriptor, name, values[name]) for name in unknown)
        state = State()
        own = self.__dict__
        own[_STATE] = state
        for name, default, many in descriptor.defaults:
            given = values.get(name)
            if given is None:
                given = default
            if many:
                given = _listed(descriptor, name, given)
            own[name] = given
        for name, hold in self.__trails_held__.items():
            own[name] = hold(own[name])
        if descriptor.key is None and descriptor.edge is None:
            state.id = uuid7()

    if not TYPE_CHECKING:  # with these, type checkers would accept misspelled fields

        def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any field's type
            """Set the fields when one is first read; those of a reference are loaded then."""
            descriptor = type(self).__trails__
            state: State | None = self.__dict__.get(_STATE)
            if name not in descriptor.by_name or state is None or state.ctx is None:
                raise AttributeError(f"{descriptor.name} has no attribute {name!r}")
            if not unfold(self):
                self.refresh(state.ctx)
            return self.__dict__[name]

        def __setattr__(self, name: str, value: object) -> None:
            """Refuse names that no save would store."""
            descriptor = type(self).__trails__
            if name not in descriptor.by_name:
                if not name.startswith("_") and not hasattr(type(self), name):
                    raise AttributeError(unknown_field(descriptor, name, value).message)
            elif name not in self.__dict__:
                # The other fields must be known before one of them is changed.
                getattr(self, name)
            hold = type(self).__trails_held__.get(name)
            object.__setattr__(self, name, value if hold is None else hold(value))

    def __eq__(self, other: object) -> bool:
        """Two instances are equal if they are the same node."""
        if not isinstance(other, type(self)):
            return NotImplemented
        return self is other or (self.handle is not None and self.handle == other.handle)

    def __hash__(self) -> int:
        """Consistent with equality."""
        return hash(self.handle)

    def __repr__(self) -> str:
        """The type, and the id."""
        return f"<{type(self).__trails__.name} {self.id!r}>"

    @property
    def id(self) -> str | None:
        """The id: derived from the key, or a UUIDv7; None while the key is not set."""
        state: State = self.__dict__[_STATE]
        if state.id is not None:
            return state.id
        return derived_id(self)

    @property
    def handle(self) -> str | None:
        """``Type/id``, the part of the IRI after the base."""
        state: State = self.__dict__[_STATE]
        if state.handle is not None:
            return state.handle
        identifier = self.id
        return None if identifier is None else make_handle(type(self).__trails__.name, identifier)

    def iri(self, ctx: Context) -> str:
        """The node's IRI in the graph of a context."""
        handle = self.handle
        if handle is None:
            raise TrailsError(f"{self!r} has no IRI yet; set its key first")
        return ctx.kg.iri(handle)

    def refresh(self, ctx: Context) -> Self:
        """Read all fields again from the graph."""
        handle = self.handle
        row = ctx.kg.find(type(self).__trails__.name, handle) if handle else None
        if row is None:
            raise NotFoundError(f"{handle or self!r} does not exist")
        fill(self, ctx, row.values)
        return self

    def save(
        self,
        ctx: Context,
        *,
        upsert: bool = False,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None:
        """Write what changed, in one commit; None when nothing did.

        A new instance must not exist yet, unless ``upsert`` is true.
        """
        return ctx.kg.save(
            self,
            upsert=upsert,
            message=message,
            expected_head=expected_head,
            idempotency_key=idempotency_key,
        )

    def delete(
        self,
        ctx: Context,
        *,
        cascade: bool = False,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None:
        """Delete the node; refused while others refer to it, unless ``cascade`` is true.

        Cascading deletes edges at the node, empties references that may be empty, and
        deletes nodes that require it, and so on.
        """
        return ctx.kg.delete(
            self,
            cascade=cascade,
            message=message,
            expected_head=expected_head,
            idempotency_key=idempotency_key,
        )

    @classmethod
    def objects(cls, ctx: Context) -> Query[Self]:
        """All instances, as a query that is bound to a context."""
        return Query(Selection(cls.__trails__.name), ctx)

    @classmethod
    def where(cls, *parts: Q, **conditions: object) -> Query[Self]:
        """Instances that meet conditions, as a plan; run it with ``fetch(ctx)``."""
        return Query[Self](Selection(cls.__trails__.name)).where(*parts, **conditions)

    @classmethod
    def get(cls, ctx: Context, reference: object) -> Self:
        """The instance with this key (its id), ``Type/id`` or IRI."""
        name = cls.__trails__.name
        row = ctx.kg.find(name, reference)
        if row is None:
            raise NotFoundError(
                ctx.kg.describe_missing(name, reference), type=name, id=str(reference)
            )
        return ctx.hydrate(row)  # type: ignore[return-value]


@dataclass_transform(kw_only_default=True)
def _with_fields(cls: type[T]) -> type[T]:
    """Tell type checkers that a base class has fields too."""
    return cls


@_with_fields
class Edge(Node):
    """Base of edge types: a relation between two nodes that carries fields of its own."""

    source: Any
    target: Any


def _listed(descriptor: TypeDescriptor, name: str, given: object) -> object:
    """The values of a list that the instance may change; what is no list stays to be refused."""
    if given is None:
        return []
    if isinstance(given, str) or (
        isinstance(given, set | frozenset) and descriptor.by_name[name].ordered
    ):
        return given
    return list(given)  # type: ignore[call-overload]


def unknown_field(descriptor: TypeDescriptor, name: str, value: object) -> FieldError:
    """The error for a field that the type does not have, with the nearest one."""
    hint = suggest(name, descriptor.by_name)
    return FieldError(
        name, "unknown_field", f"{descriptor.name} has no field {name!r}; {hint}", repr(value)
    )


def derived_id(node: Node) -> str | None:
    """The id that a new instance's key gives, or None while it has no usable key."""
    descriptor = type(node).__trails__
    key = descriptor.id_field
    value = node.__dict__.get(key.name) if key is not None else None
    if key is None or value is None or key.type.row is None:
        return None
    try:
        return derive_id(descriptor, {key.name: key.type.row.coerce(value)})
    except KindError:
        return None


def state_of(node: Node) -> State:
    """The state of an instance beside its attributes."""
    state: State = node.__dict__[_STATE]
    return state


def fill(node: Node, ctx: Context, values: Mapping[str, object]) -> None:
    """Set all fields from stored values; references become instances that load on demand."""
    state = state_of(node)
    state.ctx = ctx
    state.remember(stored=True, values=values)
    _set_fields(node, ctx, values)


def _set_fields(node: Node, ctx: Context, values: Mapping[str, object]) -> None:
    own, descriptor = node.__dict__, type(node).__trails__
    own.update(descriptor.absent)
    own.update(values)
    if (
        len(own) > len(descriptor.absent) + 1
    ):  # the graph may have fields that the class no longer declares
        for name in values.keys() - descriptor.absent.keys():
            del own[name]
    for name, many, reference in descriptor.composed:
        value = own[name]
        if many:
            items = value if isinstance(value, tuple) else ()
            own[name] = [ctx.reference(str(item)) for item in items] if reference else list(items)
        elif value is not None:
            own[name] = ctx.reference(str(value))
    for name, hold in type(node).__trails_held__.items():
        own[name] = hold(own[name])


def blank(cls: type[N], ctx: Context, identifier: str, handle: str) -> N:
    """An instance of a stored node, with nothing loaded yet."""
    node = cls.__new__(cls)
    node.__dict__[_STATE] = State(identifier, handle, ctx, _stored=True)
    return node


def loaded(cls: type[N], ctx: Context, identifier: str, values: Mapping[str, object]) -> N:
    """An instance of a stored node; its fields are set when one is first read."""
    node = cls.__new__(cls)
    node.__dict__[_STATE] = State(identifier, None, ctx, True, values)
    return node


def unfold(node: Node) -> bool:
    """Set the fields from the values that were read; False if there are none."""
    state = state_of(node)
    if state.loaded is None or state.ctx is None:
        return False
    if not is_unfolded(node):
        _set_fields(node, state.ctx, state.loaded)
    return True


def is_unfolded(node: Node) -> bool:
    """Whether the fields of an instance are set; before that none can have changed."""
    fields = type(node).__trails__.fields
    return not fields or fields[0].name in node.__dict__
