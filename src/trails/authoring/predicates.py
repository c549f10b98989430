"""``predicate()``: declare a field and its constraints, which are checked at declaration.

Which constraints exist, what they accept and which kinds they fit is in
``model/constraints.py``; here are the arguments and the checks that compare several of them.
Annotations become ValueTypes: a name that is not defined yet is a forward reference, so nothing has
to be resolved before the registry is built.
"""

from __future__ import annotations

import builtins
import sys
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, TypeVar

import msgspec

from trails.errors import DeclarationError, FieldError
from trails.model.constraints import RULES, Rule, check_pattern, compile_field
from trails.model.kinds import KINDS, KindError
from trails.model.names import check_field_name, check_term, suggest
from trails.model.types import (
    ANY,
    LANGUAGES,
    LIST,
    METRICS,
    OBJECT,
    REF,
    Metric,
    PredicateDescriptor,
    ValueType,
)

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
            raise DeclarationError(f"{where}: tuples are not supported; use list[...]")
        item = read_value_type(args[0], where)
        if item.nullable:
            raise DeclarationError(f"{where}: items of a list can't be None; drop '| None'")
        return ValueType(LIST, item=item)
    if annotation in {dict, object, Any} or origin in {dict, Mapping}:
        return ValueType(ANY)
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


class Unset:
    """The marker for no default, because None is a default."""


UNSET: Final = Unset()


class Predicate(msgspec.Struct, frozen=True):
    """The arguments of ``predicate(...)``; becomes a descriptor when its class is decorated."""

    default: object = UNSET
    required: bool | None = None
    min_count: int | None = None
    max_count: int | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    one_of: Sequence[object] | None = None
    min_value: object = None
    max_value: object = None
    dimension: int | None = None
    key: bool = False
    unique: bool = False
    label: bool = False
    search: bool = False
    language: str | None = None
    stop_words: bool = True
    metric: Metric | None = None
    iri: str = ""
    description: str = ""


def predicate(  # noqa: PLR0913 - one argument a constraint is the interface
    *,
    default: object = UNSET,
    required: bool | None = None,
    min_count: int | None = None,
    max_count: int | None = None,
    min_length: int | None = None,
    max_length: int | None = None,
    pattern: str | None = None,
    one_of: Sequence[object] | None = None,
    min_value: object = None,
    max_value: object = None,
    dimension: int | None = None,
    key: bool = False,
    unique: bool = False,
    label: bool = False,
    search: bool = False,
    language: str | None = None,
    stop_words: bool = True,
    metric: Metric | None = None,
    iri: str = "",
    description: str = "",
) -> Any:  # noqa: ANN401 - the value of a class attribute of any type
    """Declare a field of a node type, edge type or shape.

    A field is required unless its type is ``| None`` or a list, or it has a default.
    ``key`` derives the id from the field; ``unique`` refuses a second instance with the
    same value; ``label`` names instances to readers; ``search`` puts its text into the
    search index. With a ``language``, words are found in every form, and its ``stop_words``
    are not indexed. ``metric`` says how vectors are compared: "cosine" (the default), "dot" or
    "euclidean". The other arguments are constraints on the value.
    """
    return Predicate(
        default=default,
        required=required,
        min_count=min_count,
        max_count=max_count,
        min_length=min_length,
        max_length=max_length,
        pattern=pattern,
        one_of=one_of,
        min_value=min_value,
        max_value=max_value,
        dimension=dimension,
        key=key,
        unique=unique,
        label=label,
        search=search,
        language=language,
        stop_words=stop_words,
        metric=metric,
        iri=iri,
        description=description,
    )


def describe(
    owner: str, name: str, value_type: ValueType, given: Predicate, *, stored: bool
) -> PredicateDescriptor:
    """Check the arguments of a predicate against its type and make the descriptor.

    ``stored``: whether the field is stored in the graph, which allows fewer kinds.
    """
    where = f"{owner}.{name}"
    check_field_name(owner, name)
    check_term(where, given.iri)
    _check_arguments(where, given)
    value_type = _settle_type(where, value_type, given, stored=stored)
    scalar = value_type.scalar
    many = value_type.kind == LIST
    _check_constraints(where, scalar, given, many=many)
    min_count, max_count = _settle_counts(where, value_type, given)
    limits = {rule.code: _plain_limit(where, rule, scalar, given) for rule in RULES}
    field = PredicateDescriptor(
        name=name,
        type=msgspec.structs.replace(value_type, nullable=min_count == 0 and not many),
        iri=given.iri or name,
        description=given.description,
        min_count=min_count,
        max_count=max_count,
        **limits,  # type: ignore[arg-type]
        key=given.key,
        unique=given.unique,
        label=given.label,
        search=given.search,
        language=given.language,
        stop_words=given.stop_words,
        metric=given.metric or "cosine",
        default=_plain_default(where, value_type, given.default),
        declared_in=owner,
    )
    _check_default(where, field, stored=stored)
    return field


_COUNTS: Final = ("min_count", "max_count", "dimension")
_ARGUMENTS: Final[Mapping[str, tuple[tuple[type, ...], str]]] = {
    "count": ((int,), "a whole number"),
    "pattern": ((str,), "a string"),
    "values": ((list, tuple, set, frozenset), "a list of values"),
}


def _check_arguments(where: str, given: Predicate) -> None:
    """Check argument types, for users without a type checker."""
    limits = [(rule.code, rule.limit) for rule in RULES]
    for name, limit in (*dict.fromkeys(_COUNTS, "count").items(), *limits):
        value = getattr(given, name)
        if value is None or limit not in _ARGUMENTS:
            continue
        types, expected = _ARGUMENTS[limit]
        if not isinstance(value, types) or isinstance(value, bool):
            raise DeclarationError(f"{where}: {name}={value!r} must be {expected}")


def _check_default(where: str, field: PredicateDescriptor, *, stored: bool) -> None:
    """Check the default now: an invalid one would fail far from its declaration."""
    if field.default is None:
        return
    errors: list[FieldError] = []
    anything = dict.fromkeys((REF, OBJECT, ANY), lambda value: value)
    compile_field(field, anything, stored=stored)(field.default, "default", errors)
    if errors:
        raise DeclarationError(f"{where}: {errors[0].message}; give a valid default")


def _settle_type(where: str, value_type: ValueType, given: Predicate, *, stored: bool) -> ValueType:
    scalar = value_type.scalar
    if stored and scalar.kind == OBJECT:
        # A node type named as a field's type is a reference to it.
        scalar = msgspec.structs.replace(scalar, kind=REF)
    if scalar.kind == LIST:
        raise DeclarationError(
            f"{where}: a list can't hold lists; make the inner list a field of a shape or node type"
        )
    if stored and scalar.kind == ANY:
        raise DeclarationError(
            f"{where}: {value_type} can't be stored; use Json, or make it a node type and refer "
            "to it"
        )
    if stored and value_type.kind == LIST and scalar.kind == "Json":
        raise DeclarationError(f"{where}: a Json value can be a list itself; write Json")
    if scalar.kind == "Vector":
        dimension = given.dimension or scalar.dimension
        if value_type.kind == LIST or (stored and not dimension):
            raise DeclarationError(
                f"{where}: a vector needs one dimension and can't be in a list; "
                "write Vector(384) or predicate(dimension=384)"
            )
        scalar = msgspec.structs.replace(scalar, dimension=dimension)
    elif given.dimension is not None:
        raise DeclarationError(f"{where}: dimension belongs to Vector fields; remove it")
    if scalar.dimension is not None and not 1 <= scalar.dimension <= 65_536:
        raise DeclarationError(f"{where}: a vector's dimension is between 1 and 65536")
    if value_type.kind != LIST:
        return scalar
    if stored and value_type.nullable:
        raise DeclarationError(f"{where}: an empty list already means no values; drop '| None'")
    return msgspec.structs.replace(value_type, item=scalar)


def _settle_counts(where: str, value_type: ValueType, given: Predicate) -> tuple[int, int | None]:
    if value_type.kind == LIST:
        low = given.min_count if given.min_count is not None else int(bool(given.required))
        if low < 0 or (given.max_count is not None and given.max_count < max(low, 1)):
            raise DeclarationError(
                f"{where}: min_count={low}, max_count={given.max_count} leaves no legal number "
                "of values; use 0 <= min_count <= max_count and max_count >= 1"
            )
        return low, given.max_count
    if given.min_count not in {None, 0, 1} or given.max_count not in {None, 1}:
        raise DeclarationError(
            f"{where}: min_count and max_count above 1 need a list; write list[...] as the type"
        )
    if given.required is not None:
        required = given.required
    elif given.min_count is not None:
        required = bool(given.min_count)
    else:
        # With a default too: it fills a gap when the node is created, and no gap may come later.
        required = not value_type.nullable
    if given.key and (not required or given.default is not UNSET):
        raise DeclarationError(f"{where}: a key is always required; drop '| None' and the default")
    if required and value_type.nullable:
        raise DeclarationError(f"{where}: it is required but typed '| None'; choose one of the two")
    return int(required), 1


def _check_constraints(where: str, scalar: ValueType, given: Predicate, *, many: bool) -> None:
    row = scalar.row
    comparable = row is None or row.sort_key is not None
    for rule in RULES:
        if getattr(given, rule.code) is not None and (row is None or not rule.fits(row)):
            raise DeclarationError(
                f"{where}: {rule.code} does not apply to {scalar.kind}; "
                "remove it or change the type"
            )
    for name, flag, fits in (
        ("key", given.key, row is not None and comparable and not many),
        ("unique", given.unique, comparable and not many),
        ("label", given.label, row is not None and comparable and not many),
        ("search", given.search, scalar.kind in {"String", "Json"}),
    ):
        if flag and not fits:
            raise DeclarationError(
                f"{where}: {name}=True does not apply to {'a list of ' if many else ''}"
                f"{scalar.kind}; remove it"
            )
    _check_language(where, given)
    _check_metric(where, scalar, given)
    low, high = given.min_length, given.max_length
    if (low is not None and low < 0) or (high is not None and high < (low or 0)):
        raise DeclarationError(
            f"{where}: min_length={low}, max_length={high} leaves no legal length"
        )
    if given.pattern is not None:
        try:
            check_pattern(given.pattern)
        except DeclarationError as error:
            raise DeclarationError(f"{where}: {error.message}") from None
    if given.one_of is not None and not given.one_of:
        raise DeclarationError(f"{where}: one_of=[] leaves no legal value; list at least one")
    if given.min_value is not None and given.max_value is not None:
        limits = [_coerced(where, "limits", scalar, v) for v in (given.min_value, given.max_value)]
        if limits[0] > limits[1]:  # type: ignore[operator]
            raise DeclarationError(
                f"{where}: min_value={given.min_value!r} is above max_value={given.max_value!r}"
            )


def _check_language(where: str, given: Predicate) -> None:
    if given.language is None:
        if not given.stop_words:
            raise DeclarationError(f"{where}: stop_words needs a language; add it or remove this")
        return
    if given.language not in LANGUAGES:
        raise DeclarationError(
            f"{where}: language={given.language!r} is not known; "
            f"{suggest(given.language, LANGUAGES)}"
        )
    if not given.search:
        raise DeclarationError(f"{where}: language needs search=True; add it or remove this")


def _check_metric(where: str, scalar: ValueType, given: Predicate) -> None:
    if given.metric is None:
        return
    if scalar.kind != "Vector":
        raise DeclarationError(f"{where}: metric belongs to Vector fields; remove it")
    if given.metric not in METRICS:
        raise DeclarationError(
            f"{where}: metric={given.metric!r} is not known; use one of {', '.join(METRICS)}"
        )


def _coerced(where: str, what: str, scalar: ValueType, value: object) -> object:
    row = scalar.row
    if row is None:
        raise DeclarationError(f"{where}: {what} does not apply to {scalar.kind}; remove it")
    try:
        return row.coerce(value)
    except KindError:
        raise DeclarationError(
            f"{where}: {what}={value!r} is not {row.expected}; give a value of the field's type"
        ) from None


def _plain_limit(where: str, rule: Rule, scalar: ValueType, given: Predicate) -> object:
    limit = getattr(given, rule.code)
    if rule.limit == "value":
        return _plain(where, rule.code, scalar, limit)
    return _plain_all(where, rule.code, scalar, limit) if rule.limit == "values" else limit


def _plain(where: str, what: str, scalar: ValueType, value: object) -> object:
    """The JSON form of a declared value, so that descriptors are plain data."""
    if value is None:
        return None
    coerced = _coerced(where, what, scalar, value)
    row = scalar.row
    return row.plain(coerced) if row is not None and row.plain is not None else coerced


def _plain_all(
    where: str, what: str, scalar: ValueType, values: Sequence[object] | None
) -> tuple[object, ...] | None:
    if values is None:
        return None
    plain = tuple(_plain(where, what, scalar, value) for value in values)
    if len(set(plain)) != len(plain):
        raise DeclarationError(f"{where}: {what} lists a value twice; remove one")
    return plain


def _plain_default(where: str, value_type: ValueType, default: object) -> object:
    if default is UNSET or default is None:
        return None
    if value_type.kind == LIST:
        if not isinstance(default, list | tuple):
            raise DeclarationError(f"{where}: default={default!r} must be a list")
        return _plain_all(where, "default", value_type.scalar, tuple(default))
    return _plain(where, "default", value_type, default)
