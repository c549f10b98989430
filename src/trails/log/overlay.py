"""A log above another one, which keeps what is appended to it in memory.

A draft of a graph writes to it; the log below is not changed. It shows the log
below as of the moment when it was made, with its own commits after that. ``entries`` is what a
landing appends to the log below.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

import msgspec

from trails.log.extracts import Extract
from trails.log.payloads import Payload, PayloadWriter, open_part
from trails.log.protocol import Header, Log, LogEntry, SoleWriter, head_moved
from trails.model.history import (
    GENESIS,
    Activity,
    ActivityArchive,
    ActivityQuery,
    Commit,
    Head,
    Move,
)
from trails.model.types import Schema
from trails.model.writes import KeyedOutcome


class OverlayLog(SoleWriter):
    """A Log whose commits, moves and keys nobody else sees."""

    def __init__(self, below: Log, heads: Mapping[str, Head], folder: Path | None) -> None:
        """``heads`` replace those of the log below; ``folder`` takes large deltas."""
        self._below = below
        self._last = below.last_seq()
        self._heads: dict[str, Head | None] = dict(heads)
        self._moves: list[Move] = []
        self._keys: dict[tuple[str, str, str], KeyedOutcome] = {}
        self._commits: dict[str, Commit] = {}
        self._folder = folder
        self._version = 0
        self.entries: list[LogEntry] = []
        """Its own commits, in order."""

    @property
    def folder(self) -> Path | None:
        """Where its large deltas are."""
        return self._folder

    # --- reading ---------------------------------------------------------------------

    @property
    def header(self) -> Header:
        """That of the log below."""
        return self._below.header

    def head(self, branch: str) -> Head | None:
        """Where a branch is."""
        return self._heads[branch] if branch in self._heads else self._below.head(branch)

    def branches(self) -> dict[str, Head]:
        """All branch heads by name."""
        found = {**self._below.branches(), **self._heads}
        return {name: head for name, head in found.items() if head is not None}

    @property
    def branches_version(self) -> int:
        """Changes when branches come, go, or get other types."""
        return self._below.branches_version + self._version

    def commit(self, identifier: str) -> Commit | None:
        """A commit by id."""
        return self._commits.get(identifier) or self._below.commit(identifier)

    def commits(self, after: int = 0, until: int | None = None) -> Iterator[Commit]:
        """Commits in log order, those after a position."""
        bound = 2**62 if until is None else until
        yield from self._below.commits(after, min(bound, self._last))
        yield from (each.commit for each in self.entries if after < each.commit.seq <= bound)

    def newest(self, before: int | None = None) -> Iterator[Commit]:
        """Commits from the newest to the oldest, those before a position."""
        bound = 2**62 if before is None else before
        yield from (each.commit for each in reversed(self.entries) if each.commit.seq < bound)
        yield from self._below.newest(min(bound, self._last + 1))

    def at(self, seq: int) -> Commit | None:
        """A commit by its place."""
        if seq <= self._last:
            return self._below.at(seq)
        own = seq - self._last - 1
        return self.entries[own].commit if own < len(self.entries) else None

    def migrations(self) -> list[Commit]:
        """The commits of migrations on all branches, in log order."""
        own = [each.commit for each in self.entries if each.commit.migration is not None]
        return [*self._below.migrations(), *own]

    def renames(self) -> list[Commit]:
        """The commits on all branches that rename types or fields, in log order."""
        own = [each.commit for each in self.entries if each.commit.renames]
        return [*self._below.renames(), *own]

    def starting_with(self, prefix: str, limit: int = 5) -> list[str]:
        """The ids of the first few commits that begin so."""
        own = [identifier for identifier in self._commits if identifier.startswith(prefix)]
        return sorted([*own, *self._below.starting_with(prefix, limit)])[:limit]

    def last_seq(self) -> int:
        """The place of the newest commit."""
        return self._last + len(self.entries)

    def moves(self) -> Iterator[Move]:
        """What happened to branches beside commits, in order."""
        yield from self._below.moves()
        yield from self._moves

    def keyed(self, branch: str, actor: str, key: str, now: str) -> KeyedOutcome | None:
        """What came of the actor's write with this key."""
        found = self._keys.get((branch, actor, key))
        return self._below.keyed(branch, actor, key, now) if found is None else found

    def open_removed(self, commit: Commit) -> IO[bytes]:
        """The statements that a commit removed, as N-Quads."""
        own = self._payload(commit)
        return self._below.open_removed(commit) if own is None else self._open(own, removed=True)

    def open_added(self, commit: Commit) -> IO[bytes]:
        """The statements that a commit added, as N-Quads."""
        own = self._payload(commit)
        return self._below.open_added(commit) if own is None else self._open(own, removed=False)

    def _payload(self, commit: Commit) -> Payload | None:
        if commit.id not in self._commits:
            return None
        return self.entries[commit.seq - self._last - 1].payload

    def _open(self, payload: Payload, *, removed: bool) -> IO[bytes]:
        return open_part(payload.removed if removed else payload.added, self._folder)

    def schema(self, digest: str) -> Schema | None:
        """A schema by its content address."""
        own = (each.schema for each in self.entries if each.schema.digest == digest)
        return next(own, None) or self._below.schema(digest)

    def activities(self, after: int = 0) -> Iterator[tuple[int, Activity]]:
        """Those of the log below."""
        return self._below.activities(after)

    def newest_activities(self, limit: int, *, archived: bool = True) -> list[Activity]:
        """Those of the log below."""
        return self._below.newest_activities(limit, archived=archived)

    def find_activities(self, wanted: Mapping[str, str]) -> dict[str, Activity]:
        """Those of the log below."""
        return self._below.find_activities(wanted)

    def list_activities(
        self,
        wanted: ActivityQuery,
        limit: int,
        *,
        after: str | None = None,
        archived: bool = False,
    ) -> list[Activity]:
        """Those of the log below."""
        return self._below.list_activities(wanted, limit, after=after, archived=archived)

    def archives(self) -> tuple[ActivityArchive, ...]:
        """Those of the log below."""
        return self._below.archives()

    def find_archivable(self, ended_before: str, keep: int | None) -> range:
        """Nothing: what is below is not changed."""
        del ended_before, keep
        return range(0)

    def archive_activities(self, places: range) -> Iterator[ActivityArchive]:
        """Nothing."""
        del places
        return iter(())

    def missing_archives(self) -> list[str]:
        """None is missing that is not there."""
        return []

    def check_archives(self) -> list[str]:
        """Nothing is wrong with what is not there."""
        return []

    # --- appending -------------------------------------------------------------------

    def new_payload(self) -> PayloadWriter:
        """Where the next commit's delta is collected."""
        return PayloadWriter(self._folder)

    def insert_all(
        self,
        entries: Iterable[LogEntry],
        *,
        move: Move | None = None,
        activities: Sequence[Activity] = (),
    ) -> None:
        """Keep commits, if the branch of each is where it is expected to be."""
        self.insert_activities(activities)
        if move is not None:
            self.move(move, "")
        for each in entries:
            commit = each.commit
            self._check(commit.branch, each.expected)
            if (self.head(commit.branch) or Head("", 0, "")).schema != commit.schema:
                self._version += 1
            self._heads[commit.branch] = Head(commit.id, commit.seq, commit.schema)
            self._commits[commit.id] = commit
            self.entries.append(each)
            if each.keyed is not None:
                self.remember(each.keyed, "")

    def move(self, move: Move, schema: str, keyed: KeyedOutcome | None = None) -> Move:
        """Make, move or delete a branch, if it is still where ``move.before`` says."""
        self._check(move.branch, move.before)
        move = msgspec.structs.replace(move, after=self.last_seq())
        if move.action == "delete":
            self._heads[move.branch] = None
        else:
            found = self.commit(move.commit)
            self._heads[move.branch] = Head(move.commit, 0 if found is None else found.seq, schema)
        self._moves.append(move)
        self._version += 1
        if keyed is not None:
            self.remember(keyed, "")
        return move

    def _check(self, branch: str, expected: str) -> None:
        head = self.head(branch)
        actual = GENESIS if head is None else head.commit
        if actual != expected:
            raise head_moved(branch, expected, actual)

    def remember(self, keyed: KeyedOutcome, now: str) -> None:
        """Keep the outcome of a write."""
        del now
        self._keys[keyed.branch, keyed.actor, keyed.key] = keyed

    def insert_activities(self, activities: Iterable[Activity]) -> None:
        """Drop them: a call is recorded by the graph below."""
        del activities

    def adopt(self, payload: Payload, folder: Path | None) -> None:
        """Nothing: its deltas are where they were made."""
        del payload, folder

    # --- upkeep: there is none ---------------------------------------------------------

    def check(self) -> list[str]:
        """Nothing is wrong with what is in memory."""
        return []

    def copy_new(self, folder: Path, since: Mapping[str, int], known: Container[str]) -> Extract:
        """A copy of the log below."""
        return self._below.copy_new(folder, since, known)

    def size(self) -> int:
        """It takes no space on disk."""
        return 0

    def give_back_space(self) -> None:
        """Nothing to do."""

    def compact(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Nothing to do: the log below is someone else's."""
