"""Parameters of queries, as they are written on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trails.errors import QueryError
from trails.model.capabilities import StoredQuery
from trails.model.kinds import KINDS, Iri, KindError
from trails.model.names import suggest
from trails.model.texts import read_json, read_texts


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
    """The parameters of a stored query in JSON form: its declaration says what a text means."""
    declared = {param.name: param for param in query.params}
    texts: dict[str, list[str]] = {}
    for name, text in split_params(given):
        param = declared.get(name)
        if name in texts and (param is None or not param.many):
            raise QueryError(f"--param {name} is given twice, and it is not a list")
        texts.setdefault(name, []).append(text)
    return {
        name: read_texts(declared[name], said) if name in declared else said[0]
        for name, said in texts.items()
    }


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
    value = read_json(text)
    return value if isinstance(value, bool | int | float | str) else text


def _of_kind(name: str, kind: str, text: str) -> object:
    row = KINDS.get(kind)
    if row is None or row.name == "Vector":
        known = [each for each in KINDS if each != "Vector"]
        raise QueryError(f"--param {name}: there is no kind {kind!r}; {suggest(kind, known)}")
    raw = text if row.schema.get("type") == "string" else read_json(text)
    try:
        return row.coerce(raw)
    except KindError:
        raise QueryError(f"--param {name}: {text[:100]!r} is not {row.expected}") from None
