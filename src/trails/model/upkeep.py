"""Results of maintenance: cleanup, compaction, backups and MCP client configuration."""

from __future__ import annotations

from typing import Final, Literal

import msgspec


class Retention(msgspec.Struct, frozen=True):
    """How many activities stay in the log before the oldest are archived; None is no limit."""

    days: int | None = None
    rows: int | None = None


KEEP_ALL: Final = Retention()


class Cleaned(msgspec.Struct, frozen=True):
    """What a cleanup removed."""

    snapshots: tuple[str, ...]
    folders: tuple[str, ...]
    rows: int
    bytes: int
    activities: int = 0
    """Activities that were moved into archives."""
    archives: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    """Scratch folders of sandboxes that crashed."""
    exports: tuple[str, ...] = ()
    """Exports that had expired."""
    dry_run: bool = False


class Optimized(msgspec.Struct, frozen=True):
    """Bytes on disk before and after."""

    before: int
    after: int


class Recovery(msgspec.Struct, frozen=True):
    """The result of recovering a graph whose log had lost data."""

    graph: str
    status: Literal["sound", "recovered", "lost"]
    """Nothing was missing; everything is back; or something can't be put back."""
    restored: tuple[str, ...] = ()
    """Commits that were restored exactly."""
    rebuilt: dict[str, str] = {}
    """Branch → the new commit with data that only a view still had."""
    lost: tuple[str, ...] = ()
    """Commits that are lost."""
    without_history: tuple[int, int] | None = None
    """The first and last commit of which only the resulting data was restored."""
    log_problem: str | None = None
    """What is wrong with ``log.db``; its keys, and activities that can't be read, are not back."""
    unusable: tuple[str, ...] = ()
    """Views that could not be used, and why."""
    copy: str | None = None
    """Where the damaged files are now; None where nothing was changed."""
    dry_run: bool = False


class BackupFile(msgspec.Struct, frozen=True):
    """A file of a backup."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The content of one backup of a graph: everything since the previous one."""

    format: int
    graph: str
    base_iri: str
    created: str
    """The time of the backed-up state."""
    made: str
    number: int
    """Its number in the set, from 1."""
    previous: str
    """The digest of the previous manifest; empty for the first."""
    seq: int
    commit: str
    """The newest commit and its position in the log."""
    heads: dict[str, str]
    ends: dict[str, int]
    """Stream of the log → its last position."""
    files: dict[str, BackupFile]
    digest: str = ""
    """SHA-256 of this manifest without its digest."""

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(each.bytes for each in self.files.values())


class RestoreRequest(msgspec.Struct, frozen=True):
    """What to restore from a backup, and how."""

    force: bool = False
    """Move existing data aside."""
    graph: str | None = None
    """None: all graphs in the backup."""
    at: str | None = None
    """A commit, a log position or a time; None: the last backup."""


Scope = Literal["user", "project"]
Outcome = Literal["installed", "replaced", "present", "removed", "absent", "shown"]


class ClientPlace(msgspec.Struct, frozen=True):
    """A configuration file of a client."""

    client: str
    title: str
    scope: Scope
    file: str
    exists: bool


class InstallRequest(msgspec.Struct, frozen=True):
    """Which graph to add to which client's configuration, and how it is reached."""

    client: str
    graph: str | None = None
    name: str | None = None
    scope: Scope = "user"
    http: bool = False
    force: bool = False
    server: str | None = None
    """A server elsewhere; the graph is one of its graphs."""


class Installation(msgspec.Struct, frozen=True):
    """The outcome of an installation, and the entry."""

    client: str
    title: str
    outcome: Outcome
    name: str
    scope: Scope
    file: str
    snippet: str
    """The text to paste into the file by hand."""
    backup: str | None = None
    """The backup copy of the file."""
    difference: str = ""
    """How an existing entry differed, line by line."""
    after: str = ""
    """How to make the client reload its configuration."""
    lacks: str = ""
    """What to add to the entry by hand, because other users can read the file."""
