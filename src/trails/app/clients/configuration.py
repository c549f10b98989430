"""Read a client's configuration file, change one entry in it, and write it back.

Comments, order and line ends of the user's file are kept. JSON is edited by ``jsonc``, TOML
with ``tomlkit``. A changed text is parsed again with an independent parser: if anything except
the entry differs, the file is refused and left alone. A file is replaced atomically, with a
backup beside it, and only if no other program has changed it since.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

from trails.app.clients.catalog import Client, Entry, Syntax
from trails.app.clients.jsonc import JsoncError, drop_entry, parse_jsonc, put_entry, read_entry
from trails.errors import InstallError
from trails.files import PRIVATE_FILE, create_file, private_folder, replacing

_LARGEST: Final = 32 << 20


def read_configuration(path: Path) -> bytes | None:
    """Return the content of a file; ``None`` if it does not exist."""
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
    """Replace ``old`` by ``new``, if the file still holds ``old``; return the backup's path.

    A new file is readable by its owner alone, as clients create theirs.
    """
    try:
        private_folder(path.parent)
        mode = PRIVATE_FILE if old is None else stat.S_IMODE(path.stat().st_mode)
        with replacing(path, mode) as file:
            file.write(new)
            if read_configuration(path) != old:
                raise InstallError(f"{path} was changed by another program meanwhile; retry")
            backup = None if old is None else _keep(path, old, mode)
    except OSError as error:
        raise InstallError(f"{path} can't be written: {error.strerror}") from None
    return backup


def _keep(path: Path, content: bytes, mode: int) -> Path:
    """Save a backup under a new name."""
    time = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    for number in range(1000):
        suffix = f"-{number}" if number else ""
        copy = path.with_name(f"{path.name}.bak-{time}{suffix}")
        try:
            create_file(copy, content, mode)
        except FileExistsError:
            continue
        return copy
    raise InstallError(f"{path} has too many backups from this second; retry")


def read_table(text: str, path: Sequence[str], name: str) -> object:
    """Return the table ``name`` below ``path``, or ``None``."""
    found: object = tomllib.loads(text)
    for key in (*path, name):
        found = found.get(key) if isinstance(found, dict) else None
    return found


def put_table(text: str, path: Sequence[str], name: str, entry: Mapping[str, object]) -> str:
    """Replace the table ``name``, or add it at the end."""
    end = _line_end(text)
    if read_table(text, path, name) is not None:
        _, _, lines = _spell_table((), name, entry).partition("\n")
        return _replace_body(text, (*path, name), lines.replace("\n", end))
    gap = "" if not text else end if text.endswith("\n") else end + end
    return text + gap + _spell_table(path, name, entry).replace("\n", end)


def drop_table(text: str, path: Sequence[str], name: str) -> str:
    """Remove the table ``name`` and the empty line before it."""
    if read_table(text, path, name) is None:
        return text
    end = _line_end(text)
    mark = f"# {uuid4().hex}{end}"  # shows where the table is once its body is gone
    before, found, after = _replace_body(text, (*path, name), mark).partition(mark)
    if not found:
        return text
    before = before[: before.rstrip().rfind("\n") + 1]  # without the heading
    return (before.removesuffix(end) if before.endswith(end + end) else before) + after


def _line_end(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _spell_table(path: Sequence[str], name: str, entry: Mapping[str, object]) -> str:
    import tomlkit  # noqa: PLC0415 - takes 40 ms, which other commands should not pay

    nested: dict[str, object] = {name: dict(entry)}
    for key in reversed(path):
        nested = {key: nested}
    return tomlkit.dumps(nested)


def _replace_body(text: str, keys: Sequence[str], lines: str) -> str:
    """Give a table these lines in place of its own and of its subtables.

    ``tomlkit`` counts comments and empty lines before the next heading as part of the table
    above them, and loses them when that table is replaced. So only its body is exchanged, up to
    these lines. A text that is returned unchanged is refused by the caller's check.
    """
    import tomlkit  # noqa: PLC0415 - as above
    from tomlkit.exceptions import TOMLKitError  # noqa: PLC0415 - as above
    from tomlkit.items import Table  # noqa: PLC0415 - as above

    try:
        document = tomlkit.parse(text)
        table: Any = document
        for key in keys:
            table = table[key]
    except TOMLKitError:
        return text  # more than this library can read: likewise
    if not isinstance(table, Table):
        return text  # an inline table, or one in several places: likewise
    last = table.value.body
    while last and isinstance(last[-1][1], Table):
        last = last[-1][1].value.body
    after = list(takewhile(lambda pair: pair[0] is None, reversed(last)))
    table.value.body[:] = [*tomlkit.parse(lines).body, *reversed(after)]
    return tomlkit.dumps(document)


@dataclass(frozen=True, slots=True)
class _Grammar:
    """How files of one syntax are read and changed."""

    read: Callable[[str, Sequence[str], str], object]
    put: Callable[[str, Sequence[str], str, Mapping[str, object]], str]
    drop: Callable[[str, Sequence[str], str], str]
    parse: Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Configuration:
    """A client's file as it was read."""

    client: Client
    file: Path
    """Links are resolved: their target is replaced."""
    content: bytes | None
    text: str

    @classmethod
    def read(cls, client: Client, file: Path) -> Self:
        """Read a file; one that does not exist counts as empty."""
        real = Path(os.path.realpath(file))
        content = read_configuration(real)
        try:
            text = (content or b"").decode()
        except UnicodeDecodeError as error:
            raise InstallError(f"{file} is not UTF-8 text: byte {error.start} is invalid") from None
        return cls(client, real, content, text)

    def entry(self, name: str) -> object:
        """Return the entry ``name``; ``None`` if there is none."""
        try:
            return _GRAMMARS[self.client.syntax].read(self.text, self.client.path, name)
        except (JsoncError, tomllib.TOMLDecodeError) as error:
            raise self._unsafe(str(error)) from None

    def put(self, name: str, entry: Entry) -> str:
        """Return the text with an entry added or replaced."""
        grammar = _GRAMMARS[self.client.syntax]
        return self._checked(grammar.put(self.text, self.client.path, name, entry), name, entry)

    def drop(self, name: str) -> str:
        """Return the text without an entry."""
        grammar = _GRAMMARS[self.client.syntax]
        return self._checked(grammar.drop(self.text, self.client.path, name), name, None)

    def write(self, text: str) -> Path | None:
        """Write a new text; return the path of the backup."""
        return replace_configuration(self.file, self.content, text.encode())

    def _checked(self, new: str, name: str, entry: Entry | None) -> str:
        """Return a changed text, if nothing but the entry differs in it."""
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
    """Return an entry as a complete file."""
    return _GRAMMARS[client.syntax].put("", client.path, name, entry)


def _expected(said: object, path: Sequence[str], name: str, entry: Entry | None) -> object:
    """Return the value that a text should have after a change."""
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
