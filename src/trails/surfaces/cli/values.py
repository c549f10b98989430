"""Print values on a terminal, and read them from the command line.

An object is printed as its members, a list of objects as a table. ``--param`` values are read by
the declaration of a stored query, or guessed for a query text, which declares none.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from trails.errors import NotFoundError, QueryError
from trails.model.kinds import KINDS, Iri, KindError
from trails.model.names import suggest
from trails.model.texts import describe_json_error, read_json
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.reporting import Part
from trails.surfaces.cli.output.tables import TextTable

_LONG: Final = 200
SHORT_ID: Final = 12


def short(commit: str | None) -> str:
    """The prefix of a commit id, which commands accept as well."""
    return (commit or "")[:SHORT_ID]


def as_commit(commit: str | None) -> str:
    """The commit of a write in parentheses; empty if nothing changed."""
    return f" (commit {short(commit)})" if commit else ""


def when(time: str) -> str:
    """A time of the log, to the second."""
    return time[:19].replace("T", " ")


def size(octets: int) -> str:
    """A number of bytes with a suitable unit."""
    amount = float(octets)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:,.0f} {unit}" if unit == "B" else f"{amount:,.1f} {unit}"
        amount /= 1024
    return f"{amount:,.1f} GiB"


def spell(value: object, nodes: str) -> str:
    """A value in JSON, on one line; a node of this graph as ``Type/id``. It is markup-safe."""
    if isinstance(value, str) and value.startswith(nodes):
        text = value.removeprefix(nodes)
    else:
        text = msgspec.json.encode(value, enc_hook=str).decode()
    if len(text) > _LONG:
        text = f"{text[:_LONG]}… ({len(text):,} characters)"
    return escape(text)


def read_text(path: Path) -> str:
    """A file of text; ``-`` is standard input."""
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise NotFoundError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise QueryError(f"{path} is not UTF-8: invalid byte at {error.start}") from None


def read_json_text(path: Path) -> object:
    """A file of JSON; ``-`` is standard input."""
    text = read_text(path)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise QueryError(f"{path} is not valid JSON: {describe_json_error(text, error)}") from None
    except RecursionError as error:
        raise QueryError(f"{path} is not valid JSON: {error}") from None


def show_result(result: Mapping[str, object], nodes: str) -> Iterator[Part]:
    """The result of a call."""
    if set(result) == {"result"}:
        yield from _show(result["result"], nodes)
    else:
        yield from _show(result, nodes)


def _show(value: object, nodes: str) -> Iterator[Part]:
    if isinstance(value, Mapping):
        yield from show_members(value, nodes)
    elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        yield _table(value, nodes)
    elif isinstance(value, list):
        yield from (_text(each, nodes) for each in value)
    else:
        yield _text(value, nodes)


def show_members(value: Mapping[str, object], nodes: str) -> Iterator[Part]:
    """A line for each member; lists of objects as tables below."""
    width = max((len(name) for name in value), default=0)
    tables = {}
    for name, member in value.items():
        if isinstance(member, list) and member and all(isinstance(at, Mapping) for at in member):
            tables[name] = member
        else:
            yield f"[bold]{escape(name):{width}}[/]  {_text(member, nodes)}"
    for name, rows in tables.items():
        yield ""
        yield f"[bold]{escape(name)}[/]"
        yield _table(rows, nodes)


def _table(rows: Sequence[Mapping[str, object]], nodes: str) -> TextTable:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = TextTable(*names)
    for row in rows:
        table.add_row(*(_text(row.get(name), nodes) for name in names))
    return table


def _text(value: object, nodes: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and not value.startswith(nodes):
        return escape(value)
    return spell(value, nodes)


def split_params(given: Sequence[str]) -> list[tuple[str, str]]:
    """Split texts of the form ``name=value``."""
    pairs = []
    for text in given:
        name, mark, value = text.partition("=")
        if not mark or not name:
            raise QueryError(f"invalid --param {text!r}; write it as name=value")
        pairs.append((name, value))
    return pairs


def guessed_params(given: Sequence[str]) -> Mapping[str, object]:
    """The parameters of a query text, which declares none.

    In ``name=value``, numbers and booleans are recognised, ``<…>`` is an IRI, and everything else
    is text; ``name:Kind=value`` sets the kind.
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
    if row is None or row.python is None:
        known = [each.name for each in KINDS.values() if each.python is not None]
        raise QueryError(f"--param {name}: there is no kind {kind!r}; {suggest(kind, known)}")
    raw = text if row.schema.get("type") == "string" else read_json(text)
    try:
        return row.coerce(raw)
    except KindError:
        raise QueryError(f"--param {name}: {text[:100]!r} is not {row.expected}") from None
