"""A client's file as it was read, and the change of one entry in it."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from trails.app.clients.catalog import Client, Syntax
from trails.app.clients.entries import Entry
from trails.app.clients.files import read_configuration, replace_configuration
from trails.app.clients.jsonc import JsoncError, parse_jsonc
from trails.app.clients.splice import drop_entry, put_entry, read_entry
from trails.app.clients.tables import drop_table, put_table, read_table
from trails.errors import InstallError


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
