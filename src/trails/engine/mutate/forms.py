"""The form of a typed operation: which keys it has, and what may stand in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final, get_args

import msgspec

from trails.errors import FieldError
from trails.model.constraints import shorten, showable
from trails.model.iris import id_problem, normal_id
from trails.model.mutations import Op
from trails.model.names import suggest
from trails.model.types import TypeDescriptor

_OPS: Final[tuple[str, ...]] = get_args(Op)
_KEYS: Final = {
    "create": ("op", "type", "id", "data"),
    "update": ("op", "type", "id", "iri", "data"),
    "upsert": ("op", "type", "id", "iri", "data"),
    "delete": ("op", "type", "id", "iri", "cascade"),
}


class Operation(msgspec.Struct, frozen=True):
    """A typed operation whose form is right."""

    op: Op
    type: str
    data: Mapping[str, object]
    id: str | None
    """For create: the id that the caller chose."""
    reference: str | None
    """For the others: the id or IRI of the node."""
    named: str
    """Which of the two it was."""
    cascade: bool


def read_operation(
    types: Mapping[str, TypeDescriptor], operation: object, path: str, errors: list[FieldError]
) -> Operation | None:
    """The parts of an operation; None when its form is wrong, with every reason."""
    if not isinstance(operation, Mapping):
        _wrong(errors, path, "datatype", "is not an object with the key 'op'", operation)
        return None
    before = len(errors)
    op, type_name = operation.get("op"), operation.get("type")
    if op not in _OPS:
        _wrong(errors, f"{path}.op", "one_of", _choose(op, _OPS), op)
        return None
    if not isinstance(type_name, str) or type_name not in types:
        _wrong(errors, f"{path}.type", "one_of", _choose(type_name, types), type_name)
    for key in operation:
        if key not in _KEYS[op]:
            hint = _misplaced(str(key), op, types.get(str(type_name)))
            _wrong(errors, f"{path}.{key}", "unknown_field", f"is not a key of {op}; {hint}", key)
    data = operation.get("data", {})
    if op != "delete" and "data" not in operation:
        _wrong(errors, f"{path}.data", "required", "is missing; give the fields as an object", None)
    elif not isinstance(data, Mapping) or not all(isinstance(key, str) for key in data):
        _wrong(errors, f"{path}.data", "datatype", "is not an object of fields", data)
    cascade = operation.get("cascade", False)
    if not isinstance(cascade, bool):
        _wrong(errors, f"{path}.cascade", "datatype", "is not true or false", cascade)
    reference, named = _reference(operation, op, path, errors)
    if len(errors) > before:
        return None
    made = normal_id(reference) if op == "create" and reference is not None else None
    return Operation(op, str(type_name), data, made, reference, named, cascade)


def _reference(
    operation: Mapping[str, object], op: Op, path: str, errors: list[FieldError]
) -> tuple[str | None, str]:
    """The id or IRI of the node, and which of the two it is."""
    named = "iri" if "iri" in operation else "id"
    given = operation.get(named)
    where = f"{path}.{named}"
    if given is None:
        if op in {"update", "delete"}:
            problem = "is missing: the key, 'Type/id' or IRI of the node"
            _wrong(errors, f"{path}.id", "required", problem, None)
    elif not isinstance(given, str) or not given:
        _wrong(errors, where, "datatype", "is not a text", given)
    elif not _encodable(given):
        _wrong(errors, where, "datatype", "has half a character in it", given)
    elif "id" in operation and "iri" in operation:
        _wrong(errors, where, "max_count", "stands beside 'id'; give one", given)
    elif op == "create" and (why := id_problem(normal_id(given))):
        _wrong(errors, where, "datatype", f"can't be an id: {why}", given)
    else:
        return given, named
    return None, named


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _misplaced(key: str, op: Op, descriptor: TypeDescriptor | None) -> str:
    """What to do with a key that an operation does not have."""
    if op != "delete" and descriptor is not None and key in descriptor.by_name:
        return "it is a field, so put it into data"
    return suggest(key, _KEYS[op])


def _choose(given: object, known: Mapping[str, object] | tuple[str, ...]) -> str:
    if given is None:
        return f"is missing; choose from {', '.join(known)}"
    return f"must be one of {', '.join(known)}, not {shorten(given)}{_nearest(given, known)}"


def _nearest(given: object, known: Iterable[str]) -> str:
    near = get_close_matches(str(given), list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _wrong(errors: list[FieldError], path: str, code: str, problem: str, value: object) -> None:
    errors.append(FieldError(path, code, f"{path} {problem}", showable(value)))
