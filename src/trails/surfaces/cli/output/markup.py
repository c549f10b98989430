"""Texts with styles: ``[bold]…[/]``, as colours of a terminal or without them.

Only the tags of this table are read, and data goes through ``escape``, so nothing that comes from
data is interpreted: neither markup, nor emoji codes, nor characters that control a terminal.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterator
from typing import IO, Final, NamedTuple

from trails.surfaces.cli.output.plain import visible

_STYLES: Final = {
    "bold": "1",
    "dim": "2",
    "italic": "3",
    "mark": "1;7",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "cyan": "36",
}
_mark: Final = re.compile(rf"\\([\\\[])|\[({'|'.join(_STYLES)}|/)\]")
_special: Final = re.compile(r"[\\\[]")


class Run(NamedTuple):
    """Characters of one style, made visible."""

    text: str
    style: str = ""


def escape(text: str) -> str:
    """Write a text as markup that shows it as it is."""
    return _special.sub(r"\\\g<0>", text)


def indented(markup: str, by: int) -> str:
    """Write each line of a text further to the right."""
    return "\n".join(f"{'':{by}}{line}" for line in markup.splitlines())


def parse_runs(markup: str) -> Iterator[Run]:
    """Yield the runs of a text with markup."""
    styles: list[str] = []
    at, pending = 0, ""
    for found in _mark.finditer(markup):
        pending += markup[at : found.start()]
        at = found.end()
        if found[1]:
            pending += found[1]
            continue
        if pending:
            yield Run(visible(pending), ";".join(styles))
            pending = ""
        if found[2] != "/":
            styles.append(_STYLES[found[2]])
        elif styles:
            styles.pop()
    pending += markup[at:]
    if pending:
        yield Run(visible(pending), ";".join(styles))


def render(markup: str, *, colour: bool) -> str:
    """Return a text as it is printed."""
    return join_runs(parse_runs(markup), colour=colour)


def join_runs(runs: Iterator[Run] | list[Run], *, colour: bool) -> str:
    """Return runs as they are printed."""
    if not colour:
        return "".join(run.text for run in runs)
    return "".join(f"\x1b[{run.style}m{run.text}\x1b[0m" if run.style else run.text for run in runs)


def has_colour(stream: IO[str]) -> bool:
    """Whether a stream is a terminal that shows styles, and NO_COLOR does not forbid them."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def cell_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(map(_columns, text))


def _columns(char: str) -> int:
    if unicodedata.east_asian_width(char) in "WF":
        return 2
    return 0 if unicodedata.category(char) in {"Mn", "Me", "Cf"} else 1
