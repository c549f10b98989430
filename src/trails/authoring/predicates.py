"""``predicate()``: declare a field and its constraints, which are checked at declaration.

Which constraints exist, what they accept and which kinds they fit is in
``model/constraints.py``; here are the arguments and the checks that compare several of them.
The types of fields are read in ``annotations.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from trails.errors import DeclarationError, FieldError
from trails.model.constraints import RULES, Rule, check_pattern, compile_field
from trails.model.kinds import KindError
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
from trails.model.values.lang_texts import LangTextError, normal_tag


class Unset:
    """The marker for no default, because None is a default."""


UNSET: Final = Unset()


class Predicate(msgspec.Struct, frozen=True, eq=False):
    """The arguments of ``predicate(...)``; becomes a descriptor when its class is decorated.

    Compared by identity: ``Annotated[...] | None`` hashes what is inside.
    """

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
    languages: Sequence[str] | None = None
    ordered: bool = False
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
    languages: Sequence[str] | None = None,
    ordered: bool = False,
    iri: str = "",
    description: str = "",
) -> Any:  # noqa: ANN401 - the value of a class attribute of any type
    """Declare a field of a node type, edge type or shape.

    A field is required unless its type is ``| None`` or a list, or it has a default.
    ``key`` derives the id from the field; ``unique`` refuses a second instance with the
    same value; ``label`` names instances to readers; ``search`` puts its text into the
    search index. With a ``language``, words are found in every form, and its ``stop_words``
    are not indexed. ``metric`` says how vectors are compared: "cosine" (the default), "dot" or
    "euclidean". An ``ordered`` list keeps its order and duplicates. ``languages`` are those that a
    LangText must have. The other arguments are constraints on the value.
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
        languages=languages,
        ordered=ordered,
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
        ordered=given.ordered,
        default=_plain_default(where, value_type, given.default, ordered=given.ordered),
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


_UNLISTED: Final = {
    "Json": "a Json value can be a list itself; write Json",
    "LangText": "a LangText holds a text for each language; write LangText without list",
}
"""Kinds that a stored list can't hold."""


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
    if stored and value_type.kind == LIST and scalar.kind in _UNLISTED:
        raise DeclarationError(f"{where}: {_UNLISTED[scalar.kind]}")
    if scalar.kind == "Vector":
        dimension = given.dimension or scalar.dimension
        if scalar.dimension not in {None, dimension}:
            raise DeclarationError(
                f"{where}: its type has the dimension {scalar.dimension}, and predicate() "
                f"{dimension}; remove one"
            )
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
        ("label", given.label, row is not None and (comparable or row.tagged) and not many),
        ("search", given.search, scalar.kind in {"String", "Json", "LangText"}),
    ):
        if flag and not fits:
            raise DeclarationError(
                f"{where}: {name}=True does not apply to {'a list of ' if many else ''}"
                f"{scalar.kind}; remove it"
            )
    _check_language(where, given)
    _check_metric(where, scalar, given)
    if given.ordered and not many:
        raise DeclarationError(
            f"{where}: ordered=True belongs to lists; write list[...] as the type"
        )
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
    if rule.limit == "tags":
        return _tags(where, limit)
    if rule.limit == "value":
        return _plain(where, rule.code, scalar, limit)
    return _plain_all(where, rule.code, scalar, limit) if rule.limit == "values" else limit


def _tags(where: str, given: Sequence[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    if isinstance(given, str) or not given:
        raise DeclarationError(f"{where}: languages={given!r} must be a list of tags, like ['en']")
    try:
        tags = tuple(map(normal_tag, given))
    except LangTextError as error:
        raise DeclarationError(f"{where}: languages: {error}") from None
    if len(set(tags)) != len(tags):
        raise DeclarationError(f"{where}: languages lists a language twice; remove one")
    return tags


def _plain(where: str, what: str, scalar: ValueType, value: object) -> object:
    """The JSON form of a declared value, so that descriptors are plain data."""
    if value is None:
        return None
    coerced = _coerced(where, what, scalar, value)
    row = scalar.row
    return row.plain(coerced) if row is not None and row.plain is not None else coerced


def _plain_all(
    where: str,
    what: str,
    scalar: ValueType,
    values: Sequence[object] | None,
    *,
    repeats: bool = False,
) -> tuple[object, ...] | None:
    if values is None:
        return None
    plain = tuple(_plain(where, what, scalar, value) for value in values)
    if not repeats and len(set(plain)) != len(plain):
        raise DeclarationError(f"{where}: {what} lists a value twice; remove one")
    return plain


def _plain_default(where: str, value_type: ValueType, default: object, *, ordered: bool) -> object:
    if default is UNSET or default is None:
        return None
    if value_type.kind == LIST:
        if not isinstance(default, list | tuple):
            raise DeclarationError(f"{where}: default={default!r} must be a list")
        return _plain_all(where, "default", value_type.scalar, tuple(default), repeats=ordered)
    return _plain(where, "default", value_type, default)
