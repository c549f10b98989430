"""A client's file as it was read, and the change of one entry in it.

Replace a file of somebody else's: with a copy beside it, at once, or not at all.

Put one table into a TOML text, change it, or take it out, and touch nothing else.

Tables are found by their heading lines, which a text in quotes could imitate; whoever
calls compares what the new text says with what it should (:mod:`trails.app.clients.install`).
"""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Self

from trails.app.clients.catalog import Client, Entry, Syntax
from trails.app.clients.jsonc import JsoncError, drop_entry, parse_jsonc, put_entry, read_entry
from trails.errors import InstallError
from trails.files import PRIVATE_FILE, create_file, private_folder, replacing

_LARGEST: Final = 32 << 20


def read_configuration(path: Path) -> bytes | None:
    """What a file holds; ``None`` if it does not exist."""
    try:
        if path.exists() and not path.is_file():
            raise InstallError(f"{path} is not a file")
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InstallError(f"{path} can't be read: {error.strerror}") from None
    if len(content) > _LARGEST:
        raise InstallError(f"{path} is larger than {_LARGEST >> 20} MiB")
    return content


def replace_configuration(path: Path, old: bytes | None, new: bytes) -> Path | None:
    """Write ``new`` where ``old`` was read, if it still is there; the copy of ``old``.

    A file that did not exist is readable to its owner alone, as clients make theirs.
    """
    try:
        private_folder(path.parent)
        mode = PRIVATE_FILE if old is None else stat.S_IMODE(path.stat().st_mode)
        with replacing(path, mode) as file:
            file.write(new)
            if read_configuration(path) != old:
                raise InstallError(f"{path} was changed by another program meanwhile; try again")
            backup = None if old is None else _keep(path, old, mode)
    except OSError as error:
        raise InstallError(f"{path} can't be written: {error.strerror}") from None
    return backup


def _keep(path: Path, content: bytes, mode: int) -> Path:
    """A copy of what a file held, under a name of its own."""
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    for number in range(1000):
        suffix = f"-{number}" if number else ""
        copy = path.with_name(f"{path.name}.bak-{time}{suffix}")
        try:
            create_file(copy, content, mode)
        except FileExistsError:
            continue
        return copy
    raise InstallError(f"{path} has too many copies of this second; try again")


_HEADING = re.compile(r"^[ \t]*\[[^\r\n]*", re.MULTILINE)
_NOTHING: Final = re.compile(r"[ \t]*(?:#[^\r\n]*)?\r?\n?")


def read_table(text: str, path: Sequence[str], name: str) -> object:
    """The table of this name below ``path``; ``None`` if there is none."""
    found: object = tomllib.loads(text)
    for key in (*path, name):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def put_table(text: str, path: Sequence[str], name: str, entry: Mapping[str, object]) -> str:
    """The text with this table, at the end or in place of one of the same name."""
    end = "\r\n" if "\r\n" in text else "\n"
    lines = [f"[{'.'.join((*path, name))}]", *(f"{key} = {_spell(entry[key])}" for key in entry)]
    spelled = end.join(lines) + end
    span = _span(text, path, name)
    if span is not None:
        return text[: span[0]] + spelled + text[span[1] :]
    gap = "" if not text else end if text.endswith("\n") else end + end
    return f"{text}{gap}{spelled}"


def drop_table(text: str, path: Sequence[str], name: str) -> str:
    """The text without the table of this name, and without the empty line before it."""
    span = _span(text, path, name)
    if span is None:
        return text
    before = text[: span[0]]
    for end in ("\r\n", "\n"):
        if before.endswith(end + end):
            return before.removesuffix(end) + text[span[1] :]
    return before + text[span[1] :]


def _span(text: str, path: Sequence[str], name: str) -> tuple[int, int] | None:
    """From the heading of a table to its last line; tables inside it belong to it."""
    keys = r"\s*\.\s*".join(rf"[\"']?{re.escape(each)}[\"']?" for each in (*path, name))
    own = re.compile(rf"[ \t]*\[\s*{keys}\s*[.\]]")
    headings = [each.start() for each in _HEADING.finditer(text)]
    mine = [place for place in headings if own.match(text, place)]
    if not mine:
        return None
    after = [place for place in headings if place > mine[-1]]
    stop = after[0] if after else len(text)
    return mine[0], _trim(text, mine[-1], stop)


def _trim(text: str, start: int, stop: int) -> int:
    """The end of the last line of a part that says something."""
    lines = text[start:stop].splitlines(keepends=True)
    while lines and _NOTHING.fullmatch(lines[-1]):
        stop -= len(lines.pop())
    return stop


def _spell(value: object) -> str:
    """A value as TOML: what JSON escapes TOML escapes alike, but for one character."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True, slots=True)
class _Grammar:
    """How the texts of one syntax are read and changed."""

    read: Callable[[str, Sequence[str], str], object]
    put: Callable[[str, Sequence[str], str, Mapping[str, object]], str]
    drop: Callable[[str, Sequence[str], str], str]
    parse: Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Configuration:
    """What a client's file said when it was read."""

    client: Client
    file: Path
    """Links are followed: it is what they lead to that is replaced."""
    content: bytes | None
    text: str

    @classmethod
    def read(cls, client: Client, file: Path) -> Self:
        """Read a file; one that does not exist says nothing."""
        real = Path(os.path.realpath(file))
        content = read_configuration(real)
        try:
            text = (content or b"").decode()
        except UnicodeDecodeError as error:
            raise InstallError(f"{file} is not UTF-8 text: byte {error.start} is wrong") from None
        return cls(client, real, content, text)

    def entry(self, name: str) -> object:
        """The entry of this name; ``None`` if there is none."""
        try:
            return _GRAMMARS[self.client.syntax].read(self.text, self.client.path, name)
        except (JsoncError, tomllib.TOMLDecodeError) as error:
            raise self._unsafe(str(error)) from None

    def put(self, name: str, entry: Entry) -> str:
        """The text with an entry, which says all that it said before."""
        grammar = _GRAMMARS[self.client.syntax]
        return self._checked(grammar.put(self.text, self.client.path, name, entry), name, entry)

    def drop(self, name: str) -> str:
        """The text without an entry, which says all else that it said before."""
        grammar = _GRAMMARS[self.client.syntax]
        return self._checked(grammar.drop(self.text, self.client.path, name), name, None)

    def write(self, text: str) -> Path | None:
        """Put a new text in place of the old; the copy of the old."""
        return replace_configuration(self.file, self.content, text.encode())

    def _checked(self, new: str, name: str, entry: Entry | None) -> str:
        """A changed text, if nothing but the entry is different in it."""
        parse = _GRAMMARS[self.client.syntax].parse
        wanted = _expected(parse(self.text) or {}, self.client.path, name, entry)
        try:
            found = parse(new)
        except (JsoncError, tomllib.TOMLDecodeError) as error:
            raise self._unsafe(f"it is written in an unusual way ({error})") from None
        if found != wanted:
            raise self._unsafe("it is written in an unusual way")
        return new

    def _unsafe(self, reason: str) -> InstallError:
        return InstallError(f"{self.file} can't be changed safely: {reason}")


def spell_entry(client: Client, name: str, entry: Entry) -> str:
    """An entry as a file of its own."""
    return _GRAMMARS[client.syntax].put("", client.path, name, entry)


def _expected(said: object, path: Sequence[str], name: str, entry: Entry | None) -> object:
    """What a text should say after a change, by what it said."""
    here = dict(said) if isinstance(said, dict) else {}
    if path:
        here[path[0]] = _expected(here.get(path[0], {}), path[1:], name, entry)
    elif entry is None:
        here.pop(name, None)
    else:
        here[name] = entry
    return here


def _parse_json(text: str) -> object:
    found = parse_jsonc(text)
    return None if found is None else found.value


def _parse_toml(text: str) -> object:
    found = tomllib.loads(text)
    return {**found, "mcp_servers": found.get("mcp_servers", {})}


_GRAMMARS: Final[dict[Syntax, _Grammar]] = {
    "json": _Grammar(read_entry, put_entry, drop_entry, _parse_json),
    "toml": _Grammar(read_table, put_table, drop_table, _parse_toml),
}
