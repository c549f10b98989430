"""Add a server to the configuration file of a client, or remove it.

A change that can't be made safely is refused, with the text to paste by hand.
Comments, order and line ends of the user's file are kept. JSON is edited by ``jsonc``, TOML
with ``tomlkit``. A changed text is parsed again with an independent parser: if anything except
the entry differs, the file is refused and left alone. A file is replaced atomically, with a
backup beside it, and only if no other program has changed it since.
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
from difflib import unified_diff
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, Self
from uuid import uuid4

import msgspec

from trails.app.clients.catalog import (
    CLIENTS,
    Client,
    Entry,
    Places,
    Syntax,
    entry_name,
    find_client,
    launch_server,
    make_entry,
    remote_server,
    same_server,
    server_address,
)
from trails.app.clients.jsonc import JsoncError, drop_entry, parse_jsonc, put_entry, read_entry
from trails.app.settings import DATA_FOLDER, Settings, choose_graph, read_settings
from trails.errors import InstallError
from trails.files import PRIVATE_FILE, create_file, private_folder, replacing
from trails.identity.tokens import TokenFile
from trails.model.names import check_project_name
from trails.model.upkeep import ClientPlace, Installation, InstallRequest, Outcome, Scope

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
            raise self._unsafe(f"its formatting is unusual ({error})") from None
        if found != wanted:
            raise self._unsafe("its formatting is unusual")
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


_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class EntryTarget:
    """One entry: a client's file, and a name in it."""

    client: Client
    scope: Scope
    file: Path
    name: str


def find_target(
    client: Client, scope: Scope, name: str, folder: Path, places: Places
) -> EntryTarget:
    """Find the entry that a request means."""
    if _NAME.fullmatch(name) is None:
        raise InstallError(
            f"{name!r} is not a valid server name: use 1 to 64 letters, digits, - and _"
        )
    if scope == "user":
        return EntryTarget(client, scope, client.user(places), name)
    if client.project is None:
        raise InstallError(f"{client.title} has no configuration per project; use --scope user")
    return EntryTarget(client, scope, folder.resolve() / client.project, name)


def show(target: EntryTarget, entry: Entry) -> Installation:
    """Return what would be written; nothing is changed."""
    return _result(target, "shown", entry)


def install(target: EntryTarget, entry: Entry, *, force: bool) -> Installation:
    """Write an entry, unless it exists or its name is taken."""
    try:
        file = Configuration.read(target.client, target.file)
        present = file.entry(target.name)
        if same_server(present, entry):
            return _result(target, "present", entry)
        difference = "" if present is None else _differences(present, entry)
        if difference and not force:
            raise _taken(target, difference)
        backup = file.write(file.put(target.name, entry))
    except InstallError as error:
        if error.data:
            raise
        snippet = spell_entry(target.client, target.name, entry)
        raise InstallError(
            f"{error.message}; nothing was changed, so add this by hand:\n{snippet}",
            file=str(target.file),
            snippet=snippet,
        ) from None
    return _result(target, "replaced" if difference else "installed", entry, backup, difference)


def uninstall(target: EntryTarget, entries: Sequence[Entry]) -> Installation:
    """Remove an entry that is one of these; if none are given, remove any."""
    file = Configuration.read(target.client, target.file)
    present = file.entry(target.name)
    if present is None:
        return _result(target, "absent")
    if entries and not any(same_server(present, each) for each in entries):
        raise InstallError(
            f"{target.name!r} in {target.file} is not the server of this graph; "
            "use --force to remove it anyway"
        )
    return _result(target, "removed", backup=file.write(file.drop(target.name)))


def _taken(target: EntryTarget, difference: str) -> InstallError:
    return InstallError(
        f"{target.file} has another server called {target.name!r}; use --force to replace it, "
        f"or --name to choose another name; the difference:\n{difference}",
        file=str(target.file),
        difference=difference,
    )


def _differences(present: object, entry: Entry) -> str:
    """Return a line-by-line diff."""
    old, new = (json.dumps(each, indent=2, default=str).split("\n") for each in (present, entry))
    return "\n".join(unified_diff(old, new, "there", "wanted", lineterm="", n=99))


def _result(
    target: EntryTarget,
    outcome: Outcome,
    entry: Entry | None = None,
    backup: Path | None = None,
    difference: str = "",
) -> Installation:
    client = target.client
    return Installation(
        client=client.name,
        title=client.title,
        outcome=outcome,
        name=target.name,
        scope=target.scope,
        file=str(target.file),
        snippet="" if entry is None else spell_entry(client, target.name, entry),
        backup=None if backup is None else str(backup),
        difference=difference,
        after=client.after if outcome in {"installed", "replaced", "removed"} else "",
    )


def list_clients(folder: Path) -> list[ClientPlace]:
    """List every client, with every file in which it looks for servers."""
    places = Places.here()
    found = []
    for client in CLIENTS.values():
        user = client.user(places)
        found.append(ClientPlace(client.name, client.title, "user", str(user), user.exists()))
        if client.project is not None:
            file = folder.resolve() / client.project
            found.append(
                ClientPlace(client.name, client.title, "project", str(file), file.exists())
            )
    return found


def install_client(folder: Path, request: InstallRequest, *, dry: bool) -> Installation:
    """Write a graph into a client's configuration; ``dry``: only return what would be written."""
    wanted = _wanted(folder, request)
    target, entry = wanted.target, wanted.make(http=request.http)
    done = show(target, entry) if dry else install(target, entry, force=request.force)
    return msgspec.structs.replace(done, lacks=wanted.missing_token(http=request.http))


def uninstall_client(folder: Path, request: InstallRequest) -> Installation:
    """Remove a graph from a client's configuration.

    With a name and ``force`` the project is not read: it may no longer exist.
    """
    if request.name is not None and request.force:
        client = find_client(request.client)
        places = Places.here()
        return uninstall(find_target(client, request.scope, request.name, folder, places), ())
    wanted = _wanted(folder, request)
    return uninstall(wanted.target, () if request.force else wanted.all())


@dataclass(frozen=True, slots=True)
class ProjectEntries:
    """The entries of a graph of a project folder."""

    target: EntryTarget
    folder: Path
    settings: Settings
    graph: str

    def make(self, *, http: bool) -> Entry:
        client = self.target.client
        if not http:
            return make_entry(client.dialect, launch_server(self.folder, self.graph))
        if not client.http:
            raise InstallError(
                f"{client.title} does not support addresses in its file, only servers that it "
                "starts itself; omit --http"
            )
        return make_entry(client.dialect, server_address(self.settings, self.graph))

    def all(self) -> list[Entry]:
        """Return every entry that reaches the graph."""
        has_address = self.target.client.http and self.settings.server.port
        return [self.make(http=http) for http in ((False, True) if has_address else (False,))]

    def missing_token(self, *, http: bool) -> str:
        """Say that a token is missing, if the project requires one: only its holder knows it."""
        oauth = self.settings.auth.oauth
        if (http and oauth is not None and oauth.advertise) or not (
            oauth is not None or TokenFile(self.folder / DATA_FOLDER).read()
        ):
            return ""
        return _TOKEN.format("This project requires a token", _PLACES[http])


@dataclass(frozen=True, slots=True)
class _OfServer:
    """The entry of a graph of a server elsewhere."""

    target: EntryTarget
    server: str
    graph: str

    def make(self, *, http: bool) -> Entry:
        if http:
            raise InstallError(
                "--http is for the server of this project; with --server it has no effect"
            )
        client = self.target.client
        return make_entry(client.dialect, remote_server(client, self.server, self.graph))

    def all(self) -> list[Entry]:
        """Return every entry that reaches the graph."""
        return [self.make(http=False)]

    def missing_token(self, *, http: bool) -> str:
        """Say where a token goes: whether one is required is not known here."""
        place = _PLACES[http or self.target.client.http]
        return _TOKEN.format("If the server requires a token", place)


_TOKEN: Final = "{} ('trails token new' creates one): add it to the entry's {}"  # noqa: S105 - a text
_PLACES: Final = {
    True: "header 'Authorization: Bearer <token>'",
    False: "environment as TRAILS_TOKEN=<token>",
}


def _wanted(folder: Path, request: InstallRequest) -> ProjectEntries | _OfServer:
    """Return the entries that a request means."""
    client, places = find_client(request.client), Places.here()
    if request.server is not None:
        graph = request.graph or "main"
        check_project_name(graph)
        name = request.name or ("trails" if graph == "main" else f"trails-{graph}")
        target = find_target(client, request.scope, name, folder, places)
        return _OfServer(target, request.server, graph)
    settings = read_settings(folder)
    graph = choose_graph(settings.graphs, request.graph)
    name = request.name or entry_name(settings, graph)
    target = find_target(client, request.scope, name, folder, places)
    return ProjectEntries(target, folder, settings, graph)
