"""The parameters that a stored query's header declares, as descriptors.

A parameter is a type (``req_id: String``) or an object with a type and the
constraints of ``predicate()`` that apply to an argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from trails.authoring.predicates import UNSET, Predicate, describe
from trails.errors import DeclarationError
from trails.model.kinds import KINDS
from trails.model.names import check_parameter_name, suggest
from trails.model.types import LIST, REF, PredicateDescriptor, ValueType
from trails.registry.query_headers import Entry, Problem, ProblemsError, unknown_keys

MAX_PARAMS: Final = 64
_RULES: Final = (
    "one_of",
    "min_value",
    "max_value",
    "min_length",
    "max_length",
    "pattern",
    "min_count",
    "max_count",
)
PARAM_KEYS: Final = ("type", "of", "dimension", "nullable", "default", "description", *_RULES)


def read_params(
    declared: Entry, types: Iterable[str], problems: list[Problem]
) -> tuple[PredicateDescriptor, ...]:
    """The descriptors of all parameters; what is wrong is added to ``problems``."""
    entries = declared.mapping
    if entries is None:
        if declared.value is not None:
            problems.append(
                Problem(
                    "must be names with types, like '{ since: DateTime }'", declared.line, "params"
                )
            )
        return ()
    if len(entries) > MAX_PARAMS:
        problems.append(
            Problem(f"at most {MAX_PARAMS} parameters are allowed", declared.line, "params")
        )
        return ()
    known = tuple(types)
    found = []
    for name, entry in entries.items():
        key = f"params.{name}"
        try:
            found.append(_read_param(name, key, entry, known))
        except ProblemsError as error:
            problems.extend(error.problems)
        except DeclarationError as error:
            message = error.message.removeprefix(f"params.{name}: ").removeprefix("params: ")
            problems.append(Problem(message, entry.line, key))
    return tuple(found)


def _read_param(name: str, key: str, entry: Entry, types: tuple[str, ...]) -> PredicateDescriptor:
    check_parameter_name("params", name)
    said = entry.mapping
    if said is None:
        said = {"type": entry}
    if wrong := tuple(unknown_keys(said, PARAM_KEYS, key)):
        raise ProblemsError(*wrong)
    value_type = _read_type(key, entry.line, said, types)
    nullable = _flag(key, said, "nullable")
    default = said["default"].plain if "default" in said else None
    if default is not None and nullable:
        raise ProblemsError(
            Problem(
                "has a default, so it is never null; drop 'nullable' or the default",
                said["default"].line,
                key,
            )
        )
    constraints = {rule: said[rule].plain for rule in _RULES if rule in said}
    required: bool | None = not nullable and default is None
    if value_type.kind == LIST and "min_count" in constraints:
        if nullable:
            raise ProblemsError(
                Problem("min_count and nullable contradict each other; drop one", entry.line, key)
            )
        required = None
    predicate = Predicate(
        default=UNSET if default is None else default,
        required=required,
        description=_text(key, said, "description"),
        **constraints,  # type: ignore[arg-type]
    )
    value_type = msgspec.structs.replace(
        value_type, nullable=not required and value_type.kind != LIST
    )
    try:
        return describe("params", name, value_type, predicate, stored=False)
    except (TypeError, ValueError):  # a limit of a type that can't be compared or hashed
        raise ProblemsError(
            Problem("its limits are not values of its type; correct them", entry.line, key)
        ) from None


def _read_type(key: str, line: int, said: Mapping[str, Entry], types: tuple[str, ...]) -> ValueType:
    entry = said.get("type")
    if entry is None or entry.value is None:
        raise ProblemsError(Problem("has no type; write 'type: String'", line, key))
    item: object = None
    given = entry.plain
    if isinstance(given, list):
        if len(given) != 1:
            raise ProblemsError(
                Problem("a list has one type of items, like [String]", entry.line, key)
            )
        given, item = LIST, given[0]
    if given == LIST:
        item = said["of"].plain if "of" in said else item
        if item is None:
            raise ProblemsError(
                Problem("a list needs the type of its items; write [String]", entry.line, key)
            )
        inner = _scalar(key, entry.line, item, types)
        if inner.kind == "Vector":
            raise ProblemsError(Problem("a list can't hold vectors", entry.line, key))
        if "dimension" in said:
            raise ProblemsError(Problem("dimension belongs to Vector; remove it", entry.line, key))
        return ValueType(LIST, item=inner)
    if "of" in said:
        raise ProblemsError(Problem("'of' belongs to type List; remove it", said["of"].line, key))
    scalar = _scalar(key, entry.line, given, types)
    dimension = said["dimension"].plain if "dimension" in said else None
    if scalar.kind != "Vector":
        if "dimension" in said:
            raise ProblemsError(Problem("dimension belongs to Vector; remove it", entry.line, key))
        return scalar
    if type(dimension) is not int:
        raise ProblemsError(
            Problem("a Vector needs its dimension, like 'dimension: 384'", entry.line, key)
        )
    return msgspec.structs.replace(scalar, dimension=dimension)


def _scalar(key: str, line: int, given: object, types: tuple[str, ...]) -> ValueType:
    if isinstance(given, str):
        if given in KINDS:
            return ValueType(given)
        if given in types:
            return ValueType(REF, target=given)
        if given != LIST:
            known = (*KINDS, LIST, *types)
            hint = suggest(given, known).replace("it has", "there are")
            raise ProblemsError(Problem(f"{given[:60]!r} is no type; {hint}", line, key))
    raise ProblemsError(
        Problem("a type is the name of a kind or node type, or a list of one", line, key)
    )


def _flag(key: str, said: Mapping[str, Entry], name: str) -> bool:
    entry = said.get(name)
    if entry is None:
        return False
    if not isinstance(entry.value, bool):
        raise ProblemsError(Problem(f"{name} must be true or false", entry.line, key))
    return entry.value


def _text(key: str, said: Mapping[str, Entry], name: str) -> str:
    entry = said.get(name)
    if entry is None:
        return ""
    if not isinstance(entry.value, str):
        raise ProblemsError(Problem(f"{name} must be a text", entry.line, key))
    return entry.value
