"""Decorators of functions: ``@capability``, ``@meta_capability``, ``@policy``, ``@policy_rule``.

``Context`` is what such a function receives: protocols only, which the engine implements, so user
code does not depend on the engine.

The signature becomes the input shape, the return annotation the output shape, the docstring the
description. A policy rule is a function of the context and of the arguments that it names; only
``True`` permits, so a rule that forgets to return denies. Nothing is registered here.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from math import inf
from typing import Final, Protocol, TypeVar

import msgspec

from trails.authoring.annotations import Hold, evaluate, read_annotation, read_result
from trails.authoring.predicates import UNSET, Predicate, describe
from trails.errors import DeclarationError
from trails.model.capabilities import (
    NO_EFFECTS,
    SCOPES,
    Capability,
    CapabilityDescriptor,
    MetaFacts,
    PolicyRule,
    Scope,
    content_version,
    parse_deprecation,
)
from trails.model.history import Commit, Head
from trails.model.names import check_capability_id, check_meta_id, check_parameter_name
from trails.model.nodes import PageEnd, Selection
from trails.model.types import PredicateDescriptor, Schema, ValueType
from trails.model.values.blobs import Blobs


class Row(Protocol):
    """A stored node: values are native, references are handles (``Type/id``)."""

    @property
    def type(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def values(self) -> Mapping[str, object]: ...


class Rows(Protocol):
    """Some rows of a selection, and where they ended if more follow."""

    @property
    def rows(self) -> Sequence[Row]: ...
    @property
    def next(self) -> PageEnd | None: ...


class SparqlResult(Protocol):
    """The result of a SPARQL query: columns, and rows of Python values."""

    @property
    def columns(self) -> tuple[str, ...]: ...
    @property
    def rows(self) -> Sequence[Mapping[str, object]]: ...
    def __bool__(self) -> bool: ...


class KnowledgeGraph(Protocol):
    """The graph behind a context: reads, the one write path, transactions."""

    @property
    def schema(self) -> Schema: ...
    @property
    def head(self) -> Head: ...
    @property
    def blobs(self) -> Blobs: ...

    def iri(self, handle: str) -> str: ...
    def find(self, type_name: str, reference: object) -> Row | None: ...
    def describe_missing(self, type_name: str, reference: object) -> str: ...
    def select(self, selection: Selection) -> Rows: ...
    def select_page(
        self, selection: Selection, after: str | None
    ) -> tuple[Sequence[Row], str | None]: ...
    def count(self, selection: Selection) -> int: ...
    def nearest(
        self,
        selection: Selection,
        field: str,
        vector: Sequence[float] | None = None,
        k: int = 10,
        *,
        text: str | None = None,
    ) -> Sequence[tuple[Row, float]]: ...
    def embed(self, texts: Iterable[str]) -> Sequence[Sequence[float]]: ...
    def check_fields(self, type_name: str, fields: Iterable[str]) -> None: ...
    def save(
        self,
        node: object,
        *,
        upsert: bool = False,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None: ...
    def save_all(
        self,
        nodes: Iterable[object],
        *,
        upsert: bool = False,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None: ...
    def delete(
        self,
        node: object,
        *,
        cascade: bool = False,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None: ...
    def transaction(
        self,
        *,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
        request: object = None,
    ) -> AbstractContextManager[object]: ...
    def sparql(self, text: str, /, **params: object) -> SparqlResult: ...
    def raw_sparql(
        self, text: str, /, *, skip_validation: bool = False, message: str = ""
    ) -> Commit | None: ...


class Context(Protocol):
    """Who is acting, on which graph and branch, and the graph itself."""

    @property
    def actor(self) -> str: ...
    @property
    def graph(self) -> str: ...
    @property
    def branch(self) -> str: ...
    @property
    def snapshot(self) -> str | None: ...
    @property
    def kg(self) -> KnowledgeGraph: ...
    def spend(self, **amounts: float) -> None: ...
    def hydrate(self, row: Row) -> object: ...
    def reference(self, handle: str) -> object: ...


F = TypeVar("F", bound=Callable[..., object])
MARK = "__trails_capability__"
_MEASURE = re.compile(r"[a-z][a-z0-9_]{0,31}")
_POLICIES = "__trails_policies__"


def capability(  # noqa: PLR0913 - one argument a descriptor field
    identifier: str,
    *,
    version: str = "",
    idempotent: bool = False,
    preconditions: Sequence[str] = (),
    side_effects: Sequence[str] = (),
    cost: Mapping[str, float] | None = None,
    reasoning: str = "",
    deprecates: Sequence[str] = (),
    assurance: str = "",
    consent_required: bool = False,
) -> Callable[[F], F]:
    """Declare a capability; its first parameter is the Context.

    Without ``version`` the version is derived from the content and changes with it. With
    ``side_effects=["none"]`` it only reads: agents may call it unasked, and a write in it fails.
    ``cost`` is the expected cost of a call; the actual cost is recorded beside it.
    """
    check_capability_id(identifier)
    facts = {
        "preconditions": _texts(identifier, "preconditions", preconditions),
        "side_effects": _effects(identifier, side_effects),
        "cost": _cost(identifier, cost or {}),
        "reasoning": reasoning,
        "deprecates": _deprecated(identifier, deprecates),
        "assurance": assurance,
        "consent_required": consent_required,
    }
    scope = sys._getframe(1).f_locals  # noqa: SLF001 - how annotations see their scope

    def declare(function: F) -> F:
        _mark(function, identifier, version, idempotent, facts, scope, None)
        return function

    return declare


def meta_capability(
    identifier: str,
    *,
    scope: Scope = "builder",
    version: str = "",
    idempotent: bool = False,
    side_effects: Sequence[str] = (),
) -> Callable[[F], F]:
    """Declare an operation on the application itself: ``trails.meta.<namespace>.<op>``."""
    check_meta_id(identifier)
    if scope not in SCOPES:
        raise DeclarationError(f"{identifier}: scope {scope!r} is not one of {', '.join(SCOPES)}")
    facts = {"side_effects": _effects(identifier, side_effects)}
    local = sys._getframe(1).f_locals  # noqa: SLF001 - how annotations see their scope

    def declare(function: F) -> F:
        meta = MetaFacts.of(identifier, scope)
        _mark(function, identifier, version, idempotent, facts, local, meta)
        return function

    return declare


def policy(name: str) -> Callable[[F], F]:
    """Check the calls of a capability by a named policy rule; put it below ``@capability``."""

    def mark(function: F) -> F:
        if hasattr(function, MARK):
            raise DeclarationError(
                f"{function.__name__}: put @policy({name!r}) below @capability, so that the "
                "descriptor knows it"
            )
        setattr(function, _POLICIES, (name, *getattr(function, _POLICIES, ())))
        return function

    return mark


def _effects(identifier: str, given: Sequence[str]) -> tuple[str, ...]:
    effects = _texts(identifier, "side_effects", given)
    if NO_EFFECTS in effects and len(effects) > 1:
        raise DeclarationError(
            f"{identifier}: side_effects has 'none' and others; use 'none' alone, or leave it out"
        )
    return effects


def _cost(identifier: str, given: Mapping[str, float]) -> dict[str, float]:
    for name, amount in given.items():
        number = type(amount) in {int, float}  # True is not a number here
        if not _MEASURE.fullmatch(name) or not number or not 0 <= amount < inf:
            raise DeclarationError(
                f"{identifier}: cost={{{name!r}: {amount!r}}} is not an estimate; name the measure "
                "in lower-case letters and give a number, like cost={'seconds': 2}"
            )
    return dict(given)


def _texts(identifier: str, name: str, given: Sequence[str]) -> tuple[str, ...]:
    if isinstance(given, str):
        raise DeclarationError(f"{identifier}: {name} is a list of texts; write [{given!r}]")
    return tuple(given)


def _deprecated(identifier: str, given: Sequence[str]) -> tuple[str, ...]:
    texts = _texts(identifier, "deprecates", given)
    for text in texts:
        try:
            parse_deprecation(text)
        except ValueError as error:
            raise DeclarationError(f"{identifier}: deprecates {text!r}: {error}") from None
    return texts


def _mark(
    function: Callable[..., object],
    identifier: str,
    version: str,
    idempotent: bool,  # noqa: FBT001 - passed on from a keyword
    facts: Mapping[str, object],
    scope: Mapping[str, object],
    meta: MetaFacts | None,
) -> None:
    if hasattr(function, MARK):
        raise DeclarationError(
            f"{function.__name__} is declared twice; a function is one capability, "
            "runtime or meta, never both"
        )
    description = inspect.cleandoc(function.__doc__ or "")
    if not description:
        raise DeclarationError(f"{identifier}: add a docstring; agents choose capabilities by it")
    parameters, held, output = _read_signature(function, identifier, scope)
    draft = CapabilityDescriptor(
        id=identifier,
        version=version,
        description=description,
        input_shape=parameters,
        output_shape=output,
        idempotent=idempotent,
        policy_required=getattr(function, _POLICIES, ()),
        **facts,  # type: ignore[arg-type]
    )
    descriptor = msgspec.structs.replace(draft, version=version or content_version(draft))
    setattr(function, MARK, Capability(descriptor, function, meta, held))


def _read_signature(
    function: Callable[..., object], identifier: str, scope: Mapping[str, object]
) -> tuple[tuple[PredicateDescriptor, ...], Mapping[str, Hold], ValueType | None]:
    signature = inspect.signature(function)
    parameters = list(signature.parameters.values())
    if not parameters or parameters[0].kind not in {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    }:
        raise DeclarationError(
            f"{identifier}: the first parameter must be the context; write "
            f"'def {function.__name__}(ctx: Context, ...)'"
        )
    first = evaluate(parameters[0].annotation, function.__module__, scope, identifier)
    if first not in {Context, inspect.Parameter.empty}:
        raise DeclarationError(
            f"{identifier}: the first parameter, {parameters[0].name!r}, must be a Context"
        )
    fields: list[PredicateDescriptor] = []
    held: dict[str, Hold] = {}
    for parameter in parameters[1:]:
        where = f"{identifier}({parameter.name})"
        check_parameter_name(identifier, parameter.name)
        if parameter.kind in {
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
            inspect.Parameter.POSITIONAL_ONLY,
        }:
            raise DeclarationError(f"{where}: arguments are passed by name; remove * and /")
        if parameter.annotation is inspect.Parameter.empty:
            raise DeclarationError(f"{where}: needs a type, like '{parameter.name}: str'")
        field, hold = _read_parameter(function, identifier, parameter, where, scope)
        fields.append(field)
        if hold is not None:
            held[field.name] = hold
    result = f"{identifier} (return)"
    returned = evaluate(signature.return_annotation, function.__module__, scope, result)
    if returned is inspect.Signature.empty:
        raise DeclarationError(
            f"{identifier}: needs a return type ('-> None' when it returns nothing)"
        )
    if returned is None or returned is type(None):
        return tuple(fields), held, None
    return tuple(fields), held, read_result(returned, result)


def _read_parameter(
    function: Callable[..., object],
    identifier: str,
    parameter: inspect.Parameter,
    where: str,
    scope: Mapping[str, object],
) -> tuple[PredicateDescriptor, Hold | None]:
    annotation = evaluate(parameter.annotation, function.__module__, scope, where)
    reading = read_annotation(annotation, where)
    default = parameter.default
    if isinstance(default, Predicate):
        given = reading.declaration(where, default, UNSET)
    elif default is inspect.Parameter.empty:
        given = reading.declaration(where, None, UNSET)
    else:
        # None is no value, not one that is passed on as a default.
        plain = reading.declaration(where, None, UNSET if default is None else default)
        given = msgspec.structs.replace(plain, required=False)
    described = describe(identifier, parameter.name, reading.type, given, stored=False)
    return described, reading.hold


R = TypeVar("R", bound=Callable[..., bool | str])
RULE: Final = "__trails_policy_rule__"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*([-_.][a-z0-9]+)*")
_LONGEST: Final = 64


def policy_rule(name: str) -> Callable[[R], R]:
    """Declare what ``@policy(name)`` means.

    The function takes the context and, by name, arguments of the capabilities that it checks, all
    of them with ``**arguments``. It returns True to permit, or the reason for refusal.
    """
    if not _NAME.fullmatch(name) or len(name) > _LONGEST:
        raise DeclarationError(
            f"{name!r} can't name a rule: use lower-case words joined by '-', '_' or '.', "
            f"{_LONGEST} characters at most (for example 'owner-only')"
        )

    def declare(function: R) -> R:
        if hasattr(function, RULE):
            raise DeclarationError(f"{function.__name__} is declared as a rule twice; use one name")
        if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
            raise DeclarationError(f"rule {name!r}: rules can't be async; write 'def'")
        setattr(function, RULE, _read(name, function))
        return function

    return declare


def _read(name: str, function: Callable[..., object]) -> PolicyRule:
    context, *parameters = inspect.signature(function).parameters.values() or (None,)
    positional = {
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    }
    if context is None or context.kind not in positional:
        raise DeclarationError(
            f"rule {name!r}: the first parameter must be the context; write "
            f"'def {function.__name__}(ctx: Context, ...)'"
        )
    every = [each for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]
    named = [each for each in parameters if each not in every]
    for each in named:
        if each.kind in {inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL}:
            raise DeclarationError(
                f"rule {name!r}: arguments are passed by name; remove * and / before {each.name!r}"
            )
    must = {each.name for each in named if each.default is inspect.Parameter.empty}
    return PolicyRule(
        name,
        function,
        required=tuple(each.name for each in named if each.name in must),
        optional=tuple(each.name for each in named if each.name not in must),
        every=bool(every),
    )
