"""How values look on a terminal, and how they are read from the command line.

Results on a terminal: an object as its members, a list of objects as a table.

Parameters of queries, as they are written on the command line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from trails.errors import NotFoundError, QueryError
from trails.model.capabilities import StoredQuery
from trails.model.kinds import KINDS, Iri, KindError
from trails.model.names import suggest
from trails.model.texts import read_json, read_texts, tell_fault

_LONG: Final = 200
SHORT_ID: Final = 12


def short(commit: str | None) -> str:
    """The beginning of a commit's id, which commands take as well."""
    return (commit or "")[:SHORT_ID]


def as_commit(commit: str | None) -> str:
    """Which commit a write made, to go on with after it; nothing where it changed nothing."""
    return f", as {short(commit)}" if commit else ""


def when(time: str) -> str:
    """A time of the log, to the second."""
    return time[:19].replace("T", " ")


def size(octets: int) -> str:
    """Bytes, in a unit that suits them."""
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


def plain_table(*headings: str) -> Table:
    """A table without lines, whose cells are folded and never cut."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for heading in headings:
        table.add_column(heading, overflow="fold")
    return table


def read_text(path: Path) -> str:
    """A file of text; ``-`` is standard input."""
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return data.decode("utf-8")
    except OSError as error:
        raise NotFoundError(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise QueryError(f"{path} is not UTF-8 text: byte {error.start} is wrong") from None


def read_json_text(path: Path) -> object:
    """A file of JSON; ``-`` is standard input."""
    text = read_text(path)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise QueryError(f"{path} is not JSON: {tell_fault(text, error)}") from None
    except RecursionError as error:
        raise QueryError(f"{path} is not JSON: {error}") from None


def show_result(result: Mapping[str, object], nodes: str) -> Iterator[RenderableType]:
    """What a call gave."""
    if set(result) == {"result"}:
        yield from _show(result["result"], nodes)
    else:
        yield from _show(result, nodes)


def _show(value: object, nodes: str) -> Iterator[RenderableType]:
    if isinstance(value, Mapping):
        yield from show_members(value, nodes)
    elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
        yield _table(value, nodes)
    elif isinstance(value, list):
        yield from (_text(each, nodes) for each in value)
    else:
        yield _text(value, nodes)


def show_members(value: Mapping[str, object], nodes: str) -> Iterator[RenderableType]:
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


def _table(rows: Sequence[Mapping[str, object]], nodes: str) -> RenderableType:
    names = list(dict.fromkeys(name for row in rows for name in row))
    table = plain_table(*map(escape, names))
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
    if row is None or row.python is None:
        known = [each.name for each in KINDS.values() if each.python is not None]
        raise QueryError(f"--param {name}: there is no kind {kind!r}; {suggest(kind, known)}")
    raw = text if row.schema.get("type") == "string" else read_json(text)
    try:
        return row.coerce(raw)
    except KindError:
        raise QueryError(f"--param {name}: {text[:100]!r} is not {row.expected}") from None
