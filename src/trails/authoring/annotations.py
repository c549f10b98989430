"""Annotations: the types of fields, parameters and results, as Python writes them.

``read_annotation`` turns one into a ValueType and the rest that it says: the values that an
``Enum`` or ``Literal`` lists, how instances hold them, and the ``predicate()`` inside an
``Annotated``. A name that is not defined yet is a forward reference, so nothing has to be resolved
before the registry is built.
"""

from __future__ import annotations

import builtins
import sys
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum, Flag
from typing import TYPE_CHECKING, Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec

from trails.authoring.predicates import UNSET, Predicate
from trails.errors import DeclarationError
from trails.model.kinds import BY_PYTHON
from trails.model.types import ANY, LIST, OBJECT, REF, ValueType

T = TypeVar("T")


class _RefMarker:
    """Marks ``Ref[Type]``; type checkers see the type itself."""


Ref = Annotated[T, _RefMarker()]
"""A reference to a node; as a parameter it is loaded before the call."""

if TYPE_CHECKING:  # a default, so that strict type checkers accept a plain Vector too
    from typing_extensions import TypeVar as DefaultTypeVar

    D = DefaultTypeVar("D", bound=int, default=int)
else:
    D = TypeVar("D", bound=int)


class Vector(tuple[float, ...], Generic[D]):
    """A vector of floats. ``Vector[Literal[3]]`` in an annotation gives the dimension.

    ``Vector(3)`` does so too, in an ``Annotated`` or where no type checker is used.
    """

    __slots__ = ()

    def __new__(cls, values: object = ()) -> Any:  # noqa: ANN401 - a type form, or a tuple
        """Make a vector of values, or, given an int, the type of vectors of that dimension."""
        if isinstance(values, int):
            return _VectorOf(values)
        return super().__new__(cls, values)  # type: ignore[arg-type]

    if not TYPE_CHECKING:  # to type checkers it is a usual generic class

        def __class_getitem__(cls, dimension: object) -> _VectorOf:
            """The type of vectors of a dimension."""
            given = typing.get_args(dimension)
            if typing.get_origin(dimension) is Literal and len(given) == 1:
                dimension = given[0]
            if type(dimension) is not int:
                raise DeclarationError(
                    f"a dimension is a whole number, not {_spell(dimension)}; write "
                    "Vector[Literal[384]]"
                )
            return _VectorOf(dimension)


class _VectorOf:
    """The annotation ``Vector(n)``."""

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension

    def __call__(self, values: object = ()) -> object:
        """``Vector[Literal[2]]([1.0, 2.0])`` is a vector, as of every generic class."""
        return Vector(values)

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


# --- what an annotation says -----------------------------------------------------------------

Hold = Callable[[object], object]
"""A stored value → the value that instances hold for it; all else stays as it is."""


class AnnotationReading(msgspec.Struct, frozen=True):
    """What an annotation says: a type, and parts of the declaration that it carries."""

    type: ValueType
    one_of: tuple[object, ...] | None = None
    """The values that an Enum or a Literal lists."""
    hold: Hold | None = None
    """How instances hold a value, where that differs from how it is stored."""
    given: Predicate | None = None
    """The predicate inside an Annotated."""

    def declaration(self, where: str, given: Predicate | None, default: object) -> Predicate:
        """The whole declaration: this, ``= predicate(...)``, and a plain default (or UNSET)."""
        if given is not None and self.given is not None:
            raise DeclarationError(
                f"{where}: predicate() is given in Annotated and after '='; keep one of them"
            )
        whole = given or self.given or Predicate()
        if default is not UNSET:
            if whole.default is not UNSET:
                raise DeclarationError(
                    f"{where}: a default is given in predicate() and after '='; keep one of them"
                )
            whole = msgspec.structs.replace(whole, default=default)
        if self.one_of is None:
            return whole
        if isinstance(whole.one_of, list | tuple | set | frozenset):
            if {*map(_value_of, whole.one_of)} != {*self.one_of}:
                raise DeclarationError(
                    f"{where}: one_of={list(whole.one_of)!r} differs from the values of the type, "
                    f"{', '.join(map(repr, self.one_of))}; remove one_of, or correct one of them"
                )
            return whole
        return msgspec.structs.replace(whole, one_of=self.one_of)


def read_annotation(annotation: object, where: str) -> AnnotationReading:
    """What an evaluated annotation says."""
    members = _members(annotation)
    if members is not None:
        rest = [each for each in members if each is not None and each is not type(None)]
        if rest and all(typing.get_origin(each) is Literal for each in rest):
            values = tuple(value for each in rest for value in typing.get_args(each))
            inner = _read_literal(values, where)
        elif len(rest) != 1 or len(rest) == len(members):
            raise DeclarationError(
                f"{where}: a union of several types can't be stored; use one type, "
                "or one type '| None'"
            )
        else:
            inner = read_annotation(rest[0], where)
        return _nullable(inner) if len(rest) < len(members) else inner
    return _read_single(annotation, where)


def read_result(annotation: object, where: str) -> ValueType:
    """The type of a result, which has no constraints of its own."""
    reading = read_annotation(annotation, where)
    if reading.given is not None:
        raise DeclarationError(
            f"{where}: predicate() belongs to fields and parameters; remove it from the result"
        )
    return reading.type


def _nullable(reading: AnnotationReading) -> AnnotationReading:
    return msgspec.structs.replace(
        reading, type=msgspec.structs.replace(reading.type, nullable=True)
    )


def _members(annotation: object) -> tuple[object, ...] | None:
    if isinstance(annotation, _Union):
        return annotation.members
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        return typing.get_args(annotation)
    return None


_WRITABLE = (
    "Vector(n), an Enum, Literal[...], a node type, Ref[Type], list[...] of one of these, or any "
    "of them with '| None'"
)


def _read_single(annotation: object, where: str) -> AnnotationReading:
    kind = BY_PYTHON.get(annotation) if isinstance(annotation, type) else None
    if kind is not None:
        return AnnotationReading(ValueType(kind.name))
    if annotation is Vector:
        return AnnotationReading(ValueType("Vector"))
    if isinstance(annotation, _VectorOf):
        return AnnotationReading(ValueType("Vector", dimension=annotation.dimension))
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _read_enum(annotation, where)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Annotated:
        return _read_annotated(args[0], args[1:], where)
    if origin is Literal:
        return _read_literal(args, where)
    if _is_list(origin):
        return _read_list(origin, args, where)
    if annotation in {dict, object, Any} or origin in {dict, Mapping}:
        return AnnotationReading(ValueType(ANY))
    try:
        return AnnotationReading(ValueType(OBJECT, target=_type_name(annotation, where)))
    except DeclarationError:
        raise DeclarationError(
            f"{where}: {_spell(annotation)} can't be used here; use "
            f"{', '.join(each.__name__ for each in BY_PYTHON)}, {_WRITABLE}"
        ) from None


def _is_list(origin: object) -> bool:
    return origin in {list, tuple, set, frozenset} or (
        isinstance(origin, type) and issubclass(origin, Sequence)
    )


def _read_list(origin: object, args: tuple[object, ...], where: str) -> AnnotationReading:
    if origin is tuple and args[1:] != (...,):
        raise DeclarationError(f"{where}: tuples are not supported; use list[...]")
    item = read_annotation(args[0], where)
    if item.type.nullable:
        raise DeclarationError(f"{where}: items of a list can't be None; drop '| None'")
    hold = None if item.hold is None else _each(item.hold)
    return msgspec.structs.replace(item, type=ValueType(LIST, item=item.type), hold=hold)


def _each(hold: Hold) -> Hold:
    def hold_all(values: object) -> object:
        return [hold(each) for each in values] if isinstance(values, list | tuple) else values

    return hold_all


def _read_annotated(inner: object, metadata: tuple[object, ...], where: str) -> AnnotationReading:
    """The inner type with what Trails knows of the metadata; all else is for other libraries."""
    sizes = [each for each in metadata if isinstance(each, _VectorOf)]
    if sizes:
        reading = _read_sized(inner, sizes[-1], where)
    elif any(isinstance(each, _RefMarker) for each in metadata):
        reading = AnnotationReading(ValueType(REF, target=_type_name(inner, where)))
    else:
        reading = read_annotation(inner, where)
    given = [each for each in (reading.given, *metadata) if isinstance(each, Predicate)]
    if len(given) > 1:
        raise DeclarationError(f"{where}: predicate() is given twice in Annotated; keep one")
    return msgspec.structs.replace(reading, given=given[0]) if given else reading


def _read_sized(inner: object, size: _VectorOf, where: str) -> AnnotationReading:
    """``Annotated[list[float], Vector(3)]``: a vector that type checkers see as numbers."""
    members = _members(inner) or (inner,)
    rest = [each for each in members if each is not None and each is not type(None)]
    origin, args = typing.get_origin(rest[0]), typing.get_args(rest[0])
    numbers = origin in {list, tuple, Sequence} and args in {(float,), (float, ...)}
    if len(rest) != 1 or not (numbers or rest[0] is Vector):
        raise DeclarationError(
            f"{where}: Vector({size.dimension}) in Annotated sizes a list of numbers; write "
            f"Annotated[list[float], Vector({size.dimension})]"
        )
    hold = _as_list if origin is list else None
    reading = AnnotationReading(ValueType("Vector", dimension=size.dimension), hold=hold)
    return _nullable(reading) if len(rest) < len(members) else reading


def _as_list(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value


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


# --- lists of values -------------------------------------------------------------------------

_LISTED: Final[Mapping[type, str]] = {str: "String", int: "Int", bool: "Bool"}


def _read_literal(values: tuple[object, ...], where: str) -> AnnotationReading:
    """``Literal["a", "b"]``: its values are the legal ones; None makes it optional."""
    rest = tuple(each for each in values if each is not None)
    classes = {type(each) for each in rest}
    spelled = f"Literal[{', '.join(map(repr, values))}]"
    if not rest:
        raise DeclarationError(f"{where}: {spelled} lists no value; list at least one")
    if len(classes) > 1:
        mixed = " and ".join(sorted(each.__name__ for each in classes))
        raise DeclarationError(
            f"{where}: {spelled} mixes {mixed}; list values of one type, or declare two fields"
        )
    only = classes.pop()
    if issubclass(only, Enum):
        members = tuple(each for each in rest if isinstance(each, Enum))
        reading = _listed(only, members, where)
    elif only in _LISTED:
        reading = AnnotationReading(ValueType(_LISTED[only]), one_of=tuple(dict.fromkeys(rest)))
    else:
        raise DeclarationError(
            f"{where}: {spelled} can't be stored; list texts, whole numbers or members of an Enum"
        )
    return _nullable(reading) if len(rest) < len(values) else reading


def _read_enum(enumeration: type[Enum], where: str) -> AnnotationReading:
    if issubclass(enumeration, Flag):
        raise DeclarationError(
            f"{where}: {enumeration.__name__} is a Flag, whose members can be combined; use "
            "a list of an Enum"
        )
    return _listed(enumeration, tuple(enumeration), where)


def _listed(enumeration: type[Enum], members: tuple[Enum, ...], where: str) -> AnnotationReading:
    """The values of some members; instances hold the members themselves."""
    classes = {type(each.value) for each in members}
    if classes not in ({str}, {int}):
        found = ", ".join(sorted(each.__name__ for each in classes)) or "none"
        raise DeclarationError(
            f"{where}: the values of {enumeration.__name__} are {found}; a field takes an Enum "
            "whose values are all str, or all int"
        )
    by_value = {each.value: each for each in enumeration}
    native = classes.pop()

    def hold(value: object) -> object:
        return by_value.get(value, value) if type(value) is native else value

    values = tuple(each.value for each in members)
    return AnnotationReading(ValueType(_LISTED[native]), one_of=values, hold=hold)


def _value_of(value: object) -> object:
    return value.value if isinstance(value, Enum) else value
