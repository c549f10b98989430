"""Results of maintenance: cleanup, compaction, backups, checks, and MCP client configuration."""

from __future__ import annotations

from typing import Final, Literal

import msgspec


class Retention(msgspec.Struct, frozen=True):
    """How many activities stay in the log before the oldest are archived; None is no limit."""

    days: int | None = None
    rows: int | None = None


KEEP_ALL: Final = Retention()


class Cleaned(msgspec.Struct, frozen=True):
    """What a cleanup dropped."""

    snapshots: tuple[str, ...]
    folders: tuple[str, ...]
    rows: int
    bytes: int
    activities: int = 0
    """Those that moved into archives."""
    archives: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    """Scratch space of sandboxes that did not end in order."""
    dry_run: bool = False


class Optimized(msgspec.Struct, frozen=True):
    """Bytes on disk before and after."""

    before: int
    after: int


class Recovery(msgspec.Struct, frozen=True):
    """What was recovered of a graph whose log had lost something."""

    graph: str
    status: Literal["sound", "recovered", "lost"]
    """Nothing was missing; everything is back; or something can't be put back."""
    restored: tuple[str, ...] = ()
    """Commits that came back exactly as they were."""
    rebuilt: dict[str, str] = {}
    """Branch → the commit that holds what a view had and no commit has."""
    lost: tuple[str, ...] = ()
    """Commits of which nothing is left."""
    without_history: tuple[int, int] | None = None
    """The first and the last of the commits of which only the resulting data is back."""
    log_problem: str | None = None
    """What is wrong with ``log.db``; its keys, and activities that can't be read, are not back."""
    unusable: tuple[str, ...] = ()
    """Views that nothing could be taken from, and why."""
    copy: str | None = None
    """Where the damaged files are now; None where nothing was changed."""
    dry_run: bool = False


class BackupFile(msgspec.Struct, frozen=True):
    """A file of a backup."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What one backup of a graph holds: all that was new since the one before."""

    format: int
    graph: str
    base_iri: str
    created: str
    """When the graph was."""
    made: str
    number: int
    """Its place in the set, from 1."""
    previous: str
    """The digest of the manifest before; empty for the first."""
    seq: int
    commit: str
    """The newest commit, and its place in the log."""
    heads: dict[str, str]
    ends: dict[str, int]
    """Stream of the log → its last place."""
    files: dict[str, BackupFile]
    digest: str = ""
    """SHA-256 of this manifest without its digest."""

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(each.bytes for each in self.files.values())


class RestoreRequest(msgspec.Struct, frozen=True):
    """What is put back of a backup, and how."""

    force: bool = False
    """Move data that is there aside."""
    graph: str | None = None
    """None: all that the backup has."""
    at: str | None = None
    """As of a commit, a place in the log or a time; None: as of the last backup."""


Status = Literal["ok", "note", "problem"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at: how it is and, if it is wrong, what to do."""

    name: str
    status: Status
    detail: str
    fix: str = ""


class Report(msgspec.Struct, frozen=True):
    """All findings of one check."""

    subject: str
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether there is no problem."""
        return all(finding.status != "problem" for finding in self.findings)


Scope = Literal["user", "project"]
Outcome = Literal["installed", "replaced", "present", "removed", "absent", "shown"]


class ClientPlace(msgspec.Struct, frozen=True):
    """A file in which a client looks for servers."""

    client: str
    title: str
    scope: Scope
    file: str
    exists: bool


class InstallRequest(msgspec.Struct, frozen=True):
    """Which graph goes into which client's configuration, and how it is reached there."""

    client: str
    graph: str | None = None
    name: str | None = None
    scope: Scope = "user"
    http: bool = False
    force: bool = False


class Installation(msgspec.Struct, frozen=True):
    """What became of a request, and what the entry is."""

    client: str
    title: str
    outcome: Outcome
    name: str
    scope: Scope
    file: str
    snippet: str
    """What one would paste into the file by hand."""
    backup: str | None = None
    """The copy of the file as it was."""
    difference: str = ""
    """How an entry that was there differed, line by line."""
    after: str = ""
    """What makes the client notice."""
    lacks: str = ""
    """What must be added to the entry by hand, because it is not for files that others read."""
