"""Parameters of queries, as they are written on the command line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from trails.errors import QueryError
from trails.model.capabilities import StoredQuery
from trails.model.kinds import KINDS, Iri, KindError
from trails.model.names import suggest
from trails.model.types import PredicateDescriptor, ValueType


def split_params(given: Sequence[str]) -> list[tuple[str, str]]:
    """``name=value``, each."""
    pairs = []
    for text in given:
        name, mark, value = text.partition("=")
        if not mark or not name:
            raise QueryError(f"--param {text!r} can't be read; write it as name=value")
        pairs.append((name, value))
    return pairs


def typed_params(given: Sequence[str], query: StoredQuery) -> dict[str, object]:
    """The parameters of a stored query in JSON form: its declaration says what a text means.

    A list is a JSON array, or the same parameter several times. What can't be read stays text,
    so that the query's own check says what is expected.
    """
    declared = {param.name: param for param in query.params}
    found: dict[str, object] = {}
    for name, text in split_params(given):
        param = declared.get(name)
        if param is not None and param.many:
            known = found.setdefault(name, [])
            assert isinstance(known, list)  # noqa: S101 - set by the line above
            known.extend(_items(param, text))
        elif name in found:
            raise QueryError(f"--param {name} is given twice, and it is not a list")
        else:
            found[name] = text if param is None else _value(param.type, text)
    return found


def _items(param: PredicateDescriptor, text: str) -> Iterable[object]:
    if text.startswith("["):
        items = _json(text)
        if isinstance(items, list):
            return items
    return [_value(param.type.scalar, text)]


def _value(wanted: ValueType, text: str) -> object:
    row = wanted.row
    if row is None or row.schema.get("type") == "string":
        return text
    return _json(text)


def _json(text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


def guessed_params(given: Sequence[str]) -> Mapping[str, object]:
    """The parameters of a text that declares none.

    ``name=value`` takes numbers and truth values as such, ``<…>`` as an IRI, and all else as
    text; ``name:Kind=value`` says the kind.
    """
    found: dict[str, object] = {}
    for spelled, text in split_params(given):
        name, mark, kind = spelled.partition(":")
        if name in found:
            raise QueryError(f"--param {name} is given twice")
        found[name] = _of_kind(name, kind, text) if mark else _guess(text)
    return found


def _guess(text: str) -> object:
    if text.startswith("<") and text.endswith(">"):
        return Iri(text[1:-1])
    value = _json(text)
    return value if isinstance(value, bool | int | float | str) else text


def _of_kind(name: str, kind: str, text: str) -> object:
    row = KINDS.get(kind)
    if row is None or row.name == "Vector":
        known = [each for each in KINDS if each != "Vector"]
        raise QueryError(f"--param {name}: there is no kind {kind!r}; {suggest(kind, known)}")
    raw = text if row.schema.get("type") == "string" else _json(text)
    try:
        return row.coerce(raw)
    except KindError:
        raise QueryError(f"--param {name}: {text[:100]!r} is not {row.expected}") from None
