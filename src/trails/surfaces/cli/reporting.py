"""Print the result of a command, or its error, as text or as JSON.

Names, values, messages and errors come from people and agents that the operator need not trust.
Control characters, also those for text direction, are printed as codes; emoji codes are not
expanded. Only our own texts contain markup: data goes through ``escape``.

Exit codes: 0 for success, 1 if a check found problems or a merge conflicts, 2 for an error, 130
if the command was interrupted. With ``--json`` standard output holds one JSON document only.
"""

from __future__ import annotations

import errno
import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Any, Final, Self

import msgspec
import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.text import Text

from trails.errors import StorageFullError, TrailsError, ValidationError
from trails.model.findings import Report
from trails.surfaces.cli.plain import INTERRUPTED, STEERING, visible

_STEERING: Final = re.compile(STEERING)


class Terminal(Console):
    """A console that replaces control characters in every text."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=soft_wrap, highlight=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - rich's own
        """Render a text or table cell."""
        return super().render_str(visible(text), **options)


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
        self.text: list[RenderableType] = []
        """What is printed otherwise, as rich markup or something that rich can show."""
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
                self.text.append(f"  {mark} {escape(finding.name)}: {escape(finding.detail)}")
                if finding.fix:
                    self.text.append(f"      → {escape(finding.fix)}")

    def progress(self, text: str) -> None:
        """Print progress on standard error, if that is a terminal."""
        console = Terminal(stderr=True)
        if not self.as_json and console.is_terminal:
            console.print(f"[dim]… {escape(text)}[/]")

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
            console = Terminal()
            for part in self.text:
                console.print(part, soft_wrap=isinstance(part, str | Text))
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
    console = Terminal(stderr=True, soft_wrap=True)
    console.print(f"[red]{mark}[/] {escape(text)}")


def print_json(value: object) -> None:
    """One JSON document on standard output."""
    text = msgspec.json.format(msgspec.json.encode(value, enc_hook=_spell), indent=2)
    sys.stdout.buffer.write(escape_json(text) + b"\n")
    sys.stdout.buffer.flush()


def _spell(value: object) -> object:
    return str(value)


Command = Callable[..., None]
