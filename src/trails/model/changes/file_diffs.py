"""FileDiff: a change of files of a project, as a value that can be shown, sent and applied.

Every generator and every change of declarations gives one, in the same bytes on every surface.
A change names the digest of the text that it was made from, so that it is never applied to another.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import SequenceMatcher, unified_diff
from hashlib import sha256
from typing import Literal

import msgspec


class LineEdit(msgspec.Struct, frozen=True):
    """Some lines of a text that are replaced; the numbers are those of the text before."""

    line: int
    """The first of them, from 1; one more than the text has appends."""
    remove: int
    """How many lines are removed."""
    insert: str
    """What takes their place, with its line ends."""


class FileChange(msgspec.Struct, frozen=True, dict=True):
    """The change of one file.

    A file that is modified has edits instead of its whole text, which would be long to read and to
    send back. The digest of the result shows whether all of it arrived.
    """

    path: str
    """Relative to the project, with ``/``."""
    change: Literal["create", "modify", "delete"]
    base: str | None = None
    """SHA-256 of the text that it changes; None for a file that must not exist yet."""
    digest: str | None = None
    """SHA-256 of the new text; None for a file that is deleted."""
    content: str | None = None
    """The text of a file that is created."""
    edits: tuple[LineEdit, ...] = ()
    """For a file that is modified, from its beginning to its end."""

    @property
    def text(self) -> str | None:
        """The whole new text, for a change that was made here; None if the file is deleted."""
        found: str | None = self.__dict__["text"] if self.change == "modify" else self.content
        return found

    def applied_to(self, before: str | None) -> str | None:
        """The new text, computed from the one before; ValueError if the change does not fit it."""
        if self.change != "modify":
            return self.content
        lines, parts, at = _lines(before), [], 0
        for each in self.edits:
            first = each.line - 1
            if not (at <= first <= len(lines) and 0 <= each.remove <= len(lines) - first):
                raise ValueError("its edits overlap, or name lines that the file does not have")
            parts += [*lines[at:first], each.insert]
            at = first + each.remove
        return "".join((*parts, *lines[at:]))


class FileDiff(msgspec.Struct, frozen=True):
    """Changes of files, in the order of their paths, that are applied together."""

    files: tuple[FileChange, ...]
    unified: str
    """The same for readers, as ``diff -u`` and ``git diff`` write it; ``patch -p1`` accepts it."""


def text_digest(text: str) -> str:
    """The digest by which a change names the text that it was made from."""
    return sha256(text.encode()).hexdigest()


def make_diff(texts: Mapping[str, tuple[str | None, str | None]]) -> FileDiff:
    """The diff of files: path → text before and after; None where there is no file."""
    files, lines = [], []
    for path in sorted(texts):
        before, after = texts[path]
        if before != after:
            files.append(_change(path, before, after))
            lines += _unified(path, before, after)
    return FileDiff(tuple(files), "".join(lines))


def _change(path: str, before: str | None, after: str | None) -> FileChange:
    if after is None:
        return FileChange(path, "delete", None if before is None else text_digest(before), None)
    if before is None:
        return FileChange(path, "create", None, text_digest(after), after)
    old, new = _lines(before), _lines(after)
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    edits = tuple(
        LineEdit(start + 1, end - start, "".join(new[first:last]))
        for kind, start, end, first, last in matcher.get_opcodes()
        if kind != "equal"
    )
    made = FileChange(path, "modify", text_digest(before), text_digest(after), edits=edits)
    made.__dict__["text"] = after
    return made


def _unified(path: str, before: str | None, after: str | None) -> list[str]:
    old = "/dev/null" if before is None else f"a/{path}"
    new = "/dev/null" if after is None else f"b/{path}"
    lines = unified_diff(_lines(before), _lines(after), old, new)
    return [
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines
    ]


def _lines(text: str | None) -> list[str]:
    """Split at line feeds alone: other separators are part of a line."""
    parts = (text or "").split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])
