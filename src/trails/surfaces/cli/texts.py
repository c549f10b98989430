"""How values look on a terminal, and how they are read from the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import msgspec
from rich.markup import escape
from rich.table import Table

from trails.errors import NotFoundError, QueryError
from trails.model.json_faults import tell_fault

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


def read_json(path: Path) -> object:
    """A file of JSON; ``-`` is standard input."""
    text = read_text(path)
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise QueryError(f"{path} is not JSON: {tell_fault(text, error)}") from None
    except RecursionError as error:
        raise QueryError(f"{path} is not JSON: {error}") from None
