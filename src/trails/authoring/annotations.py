"""Convert type annotations to ValueTypes.

A name that is not defined yet is a forward reference: a type is known by its name, so nothing
has to be resolved before the registry is built.
"""

from __future__ import annotations

import builtins
import sys
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final, TypeVar

from trails.errors import DeclarationError
from trails.model.kinds import KINDS
from trails.model.types import JSON, LIST, OBJECT, REF, ValueType

T = TypeVar("T")


class _RefMarker:
    """Marks ``Ref[Type]``; type checkers see the type itself."""


Ref = Annotated[T, _RefMarker()]
"""A reference to a node; as a parameter it is loaded before the call."""


class Vector(tuple[float, ...]):
    """A vector of floats. ``Vector(3)`` in an annotation gives the dimension."""

    __slots__ = ()

    def __new__(cls, values: object = ()) -> Any:  # noqa: ANN401 - a type form, or a tuple
        """Make a vector of values, or, given an int, the type of vectors of that dimension."""
        if isinstance(values, int):
            return _VectorOf(values)
        return super().__new__(cls, values)  # type: ignore[arg-type]


class _VectorOf:
    """The annotation ``Vector(n)``."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension

    def __or__(self, other: object) -> _Union:
        return _Union((self, other))

    def __ror__(self, other: object) -> _Union:
        return _Union((other, self))


class Forward:
    """A name that is not defined yet."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __or__(self, other: object) -> _Union:
        return _Union((self, other))

    def __ror__(self, other: object) -> _Union:
        return _Union((other, self))


class _Union:
    """A union with a member that ``typing`` can't hold."""

    def __init__(self, members: tuple[object, ...]) -> None:
        self.members = members

    def __or__(self, other: object) -> _Union:
        return _Union((*self.members, other))


class _Namespace(Mapping[str, object]):
    """Names as an annotation sees them; an unknown one is a Forward."""

    def __init__(self, *scopes: Mapping[str, object]) -> None:
        self._scopes = (*scopes, vars(builtins))

    def __getitem__(self, name: str) -> object:
        for scope in self._scopes:
            if name in scope:
                return scope[name]
        return Forward(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


_SCALARS: Final[Mapping[object, str]] = {
    kind.python: kind.name for kind in KINDS.values() if kind.python is not None
}

_WRITABLE = (
    f"{', '.join(kind.python.__name__ for kind in KINDS.values() if kind.python is not None)}, "
    "Vector(n), a node type, Ref[Type], list[...] of one of these, or any of them with '| None'"
)


def evaluate(annotation: object, module: str, local: Mapping[str, object], where: str) -> object:
    """Evaluate an annotation that may be text, in the scope it was written in."""
    if not isinstance(annotation, str):
        return annotation
    scope = _Namespace(local, vars(sys.modules[module]) if module in sys.modules else {})
    try:
        return eval(annotation, {}, scope)  # noqa: S307 - the program's own annotation
    except SyntaxError as error:
        raise DeclarationError(
            f"{where}: the type {annotation!r} can't be read ({error.msg}); correct it"
        ) from None
    except (TypeError, AttributeError):
        # A forward name inside a construct that refuses it, like ``"Name" | None``, ``Name.x``.
        raise DeclarationError(
            f"{where}: the type {annotation!r} can't be evaluated; check its names, and write a "
            'forward reference as Ref["Name"] or put the whole type in quotes'
        ) from None


def read_value_type(annotation: object, where: str) -> ValueType:
    """The ValueType of an evaluated annotation."""
    members = _members(annotation)
    if members is not None:
        rest = [each for each in members if each is not None and each is not type(None)]
        if len(rest) != 1 or len(rest) == len(members):
            raise DeclarationError(
                f"{where}: a union of several types can't be stored; use one type, "
                "or one type '| None'"
            )
        inner = read_value_type(rest[0], where)
        return ValueType(inner.kind, inner.target, inner.dimension, inner.item, nullable=True)
    return _read_single(annotation, where)


def _members(annotation: object) -> tuple[object, ...] | None:
    if isinstance(annotation, _Union):
        return annotation.members
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return typing.get_args(annotation)
    return None


def _read_single(annotation: object, where: str) -> ValueType:
    name = _SCALARS.get(annotation) if isinstance(annotation, type) else None
    if name is not None:
        return ValueType(name)
    if annotation is Vector:
        return ValueType("Vector")
    if isinstance(annotation, _VectorOf):
        return ValueType("Vector", dimension=annotation.dimension)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated and any(isinstance(each, _RefMarker) for each in args[1:]):
        return ValueType(REF, target=_type_name(args[0], where))
    if origin in {list, tuple, set, frozenset} or (
        isinstance(origin, type) and issubclass(origin, typing.Sequence)
    ):
        if origin is tuple and args[1:] != (...,):
            raise DeclarationError(f"{where}: a tuple has no fixed positions here; use list[...]")
        item = read_value_type(args[0], where)
        if item.nullable:
            raise DeclarationError(f"{where}: items of a list can't be None; drop '| None'")
        return ValueType(LIST, item=item)
    if annotation in {dict, object, Any} or origin in {dict, Mapping}:
        return ValueType(JSON)
    try:
        return ValueType(OBJECT, target=_type_name(annotation, where))
    except DeclarationError:
        raise DeclarationError(
            f"{where}: {_spell(annotation)} can't be used here; use {_WRITABLE}"
        ) from None


def _type_name(annotation: object, where: str) -> str:
    if isinstance(annotation, Forward):
        return annotation.name
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, type) and hasattr(annotation, "__trails__"):
        return annotation.__name__
    raise DeclarationError(
        f"{where}: {_spell(annotation)} is not a node type; write Ref[Type] with a decorated "
        'class, or Ref["Type"] with the name of one'
    )


def _spell(annotation: object) -> str:
    return getattr(annotation, "__name__", None) or repr(annotation)
