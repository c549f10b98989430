"""Results on a terminal: an object as its members, a list of objects as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rich.console import RenderableType
from rich.markup import escape

from trails.surfaces.cli.texts import plain_table, spell


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
