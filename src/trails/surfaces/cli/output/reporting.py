"""Print the result of a command, or its error, as text or as JSON.

Names, values, messages and errors come from people and agents that the operator need not trust:
``markup`` and ``tables`` make them harmless. Colours, progress and the pager are for terminals.

Exit codes: 0 for success, 1 if a check found problems or a merge conflicts, 2 for an error, 130
if the command was interrupted. With ``--json`` standard output holds one JSON document only.
"""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import IO, Final, Self

import msgspec
import typer

from trails.errors import StorageFullError, TrailsError, ValidationError
from trails.model.upkeep import Report
from trails.surfaces.cli.output.markup import escape, has_colour, render
from trails.surfaces.cli.output.plain import INTERRUPTED, STEERING, visible
from trails.surfaces.cli.output.tables import TextTable

_STEERING: Final = re.compile(STEERING)
_LESS: Final = "FRX"
"""Options of less: end if all fits, show colours, leave the text on the screen."""

Part = str | TextTable
"""Something to print: a line with markup, or a table."""


def print_text(*parts: Part, stream: IO[str] | None = None) -> None:
    """Print lines and tables, for a terminal or for a pipe."""
    stream = sys.stdout if stream is None else stream
    stream.write("".join(f"{line}\n" for line in text_lines(parts, stream)))
    stream.flush()


def text_lines(parts: Sequence[Part], stream: IO[str]) -> Iterator[str]:
    """Yield the lines that a stream gets."""
    colour = has_colour(stream)
    width = shutil.get_terminal_size().columns if stream.isatty() else None
    for part in parts:
        if isinstance(part, TextTable):
            yield from part.lines(width, colour=colour)
        else:
            yield render(part, colour=colour)


def _print_page(parts: Sequence[Part]) -> None:
    """Print a result; through the pager of the user, if it is longer than the terminal."""
    lines = [row for line in text_lines(parts, sys.stdout) for row in line.split("\n")]
    text = "".join(f"{line}\n" for line in lines)
    tall = len(lines) >= shutil.get_terminal_size().lines
    pager = _pager() if tall and sys.stdout.isatty() and sys.stdin.isatty() else None
    if pager is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    environment = {"LESS": _LESS, **os.environ}
    with (
        suppress(KeyboardInterrupt, BrokenPipeError),  # the reader has seen enough
        subprocess.Popen(  # noqa: S603 - the pager that the user has chosen
            pager, stdin=subprocess.PIPE, text=True, env=environment
        ) as process,
    ):
        process.communicate(text)


def _pager() -> list[str] | None:
    """The command of $PAGER, or less; None if there is none, or it is ``cat``."""
    with suppress(ValueError):
        words = shlex.split(os.environ.get("PAGER", "less"))
        if words and words != ["cat"] and shutil.which(words[0]):
            return words
    return None


def escape_json(document: bytes) -> bytes:
    """The same JSON with control characters as JSON escapes."""
    text = document.decode()
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def data_output() -> Callable[[bytes], object]:
    """A writer to standard output: raw for a file or pipe, without control characters otherwise."""
    if not sys.stdout.isatty():
        return sys.stdout.buffer.write
    decoder = getincrementaldecoder("utf-8")("replace")
    return lambda block: sys.stdout.write(visible(decoder.decode(block)))


_MARKS: Final = {"ok": "[green]✓[/]", "note": "[yellow]•[/]", "problem": "[red]✗[/]"}


class Reporting:
    """The context of a command: its body sets ``value`` and ``text``, which the exit prints."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.value: object = None
        """What ``--json`` prints."""
        self.text: list[Part] = []
        """What is printed otherwise."""
        self.code = 0
        self.silent = False
        """For a command that has already printed its output."""

    def __enter__(self) -> Self:
        return self

    def show_reports(self, reports: list[Report]) -> None:
        """Take the findings of a check; a problem makes the exit code 1."""
        healthy = all(report.healthy for report in reports)
        self.code = 0 if healthy else 1
        self.value = {"healthy": healthy, "reports": reports}
        for report in reports:
            self.text.append(f"[bold]{escape(report.subject)}[/]")
            for finding in report.findings:
                mark = _MARKS[finding.severity]
                place = finding.where if finding.where not in finding.detail else ""
                name = f"{finding.name} ({place})" if place else finding.name
                self.text.append(f"  {mark} {escape(name)}: {escape(finding.detail)}")
                if finding.fix:
                    self.text.append(f"      → {escape(finding.fix)}")

    def progress(self, text: str) -> None:
        """Print progress on standard error, if that is a terminal."""
        if not self.as_json and sys.stderr.isatty():
            print_text(f"[dim]… {escape(text)}[/]", stream=sys.stderr)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt):
            complain("interrupted; uncommitted changes were not written")
            raise typer.Exit(INTERRUPTED) from None
        if isinstance(error, BrokenPipeError):
            raise typer.Exit(1) from None  # the reader of our output closed it, as `head` does
        if isinstance(error, OSError):
            error = _as_trails(error)
        if isinstance(error, TrailsError):
            self._fail(error)
            raise typer.Exit(2) from None
        if error is not None:
            return
        if self.silent:
            return
        if self.as_json:
            print_json(self.value)
        else:
            _print_page(self.text)
        if self.code:
            raise typer.Exit(self.code)

    def _fail(self, error: TrailsError) -> None:
        if self.as_json:
            body: dict[str, object] = {"code": error.code, "message": error.message}
            if error.data:
                body["data"] = error.data
            print_json({"error": body})
        elif isinstance(error, ValidationError) and len(error.fields) > 1:
            lines = error.summary()
            grouped = len(lines) < len(error.fields)
            listed = "; --json lists each" if grouped else ""
            complain(f"nothing was written: {len(error.fields) + error.more} problems{listed}")
            suggestions = {} if grouped else _suggestions(error)
            for at, line in enumerate(lines):
                complain(f"{line}{suggestions.get(at, '')}", mark="  -")
        else:
            complain(error.message + "".join(_suggestions(error).values()))


def _suggestions(error: TrailsError) -> dict[int, str]:
    """Suggested values, by the index of the problem."""
    fields = error.data.get("fields")
    if not isinstance(fields, list):
        return {}
    return {
        at: f" (try {msgspec.json.encode(each['suggestion'], enc_hook=_spell).decode()})"
        for at, each in enumerate(fields)
        if isinstance(each, dict) and "suggestion" in each
    }


_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


def _as_trails(error: OSError) -> TrailsError:
    name = "" if error.filename is None else f"{error.filename}: "
    if error.errno in _FULL:
        return StorageFullError(
            f"{name}no space left on the disk; acknowledged writes are safe: free some space "
            "and retry"
        )
    advice = "; make it writable, or use another folder" if error.errno == errno.EROFS else ""
    return TrailsError(f"{name}{error.strerror or error}{advice}")


def complain(text: str, mark: str = "trails:") -> None:
    """Print an error on standard error."""
    print_text(f"[red]{mark}[/] {escape(text)}", stream=sys.stderr)


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=_spell), indent=2)
    sys.stdout.buffer.write(escape_json(text) + b"\n")
    sys.stdout.buffer.flush()


def _spell(value: object) -> object:
    return str(value)
