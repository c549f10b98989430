"""Copy a log that nobody writes to, row by row, and compare the copy with it.

What is copied is checked before: the chain of digests, and the statements of each commit. A copy
that was interrupted goes on where it stopped, because the streams of a log only grow: what the
target has of a stream must be its beginning. Memory holds a batch, never a large commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from hashlib import sha256
from itertools import zip_longest
from time import monotonic
from typing import Final, TypeVar

import msgspec

from trails.errors import CorruptionError, StorageError
from trails.log.payloads import payload_digest
from trails.log.records import ACTIVITY, COMMIT, SCHEMA, decode
from trails.log.rows import HALVES, CommitRow, Ends, Half, LogRows, LogTarget
from trails.log.storage import zstd
from trails.model.history import ActivityArchive, Commit, is_chained
from trails.model.iris import digest_of

Progress = Callable[[str], None]
BATCH: Final = 1000
"""Rows of one transaction."""
BATCH_BYTES: Final = 8 << 20
_KNOWN: Final = 50_000
"""Digests of commits that are kept in memory; those of older parents are read again."""
_REPORT_SECONDS: Final = 1.0
_DAMAGE: Final = (zstd.ZstdError, EOFError, TypeError, StorageError)
T = TypeVar("T")


class DivergedError(StorageError):
    """The target holds something that is not the beginning of the source."""


def copy_rows(source: LogRows, target: LogTarget, report: Progress) -> Ends:
    """Add to the target what it lacks; what it had before."""
    before, last = target.ends(), source.ends()
    check_beginning(source, target)
    schemas = source.schemas()
    _check_schemas(schemas, source)
    target.add_schemas(schemas)
    chain = _Chain(source, before.commits)
    copied = _Rate("copied", last.commits - before.commits, report)
    with closing(source.commits(before.commits)) as commits:
        checked = ((row, chain.check(row, schemas)) for row in commits)
        for batch in _batches(checked, lambda each: each[0].size, lambda each: each[0].has_large):
            target.add_commits(batch, source)
            copied.add(len(batch))
    with closing(source.moves(before.moves)) as moves:
        for some in _batches(moves, lambda each: len(each[1])):
            target.add_moves(some)
    known = {each.first for each in target.archives()}
    for archive in source.archives():
        if archive.first not in known:
            report(f"copying {archive.name}")
            _check_archive(archive, source)
            target.add_archive(archive, source.archive(archive))
    archived = max((each.last for each in source.archives()), default=0)
    with closing(source.activities(max(before.activities, archived))) as activities:
        decoded = ((seq, record, decode(ACTIVITY, record)) for seq, record in activities)
        for each in _batches(decoded, lambda each: len(each[1])):
            target.add_activities(each)
    target.replace_rest(source.heads(), source.keys(), source.calls())
    return before


def check_beginning(source: LogRows, target: LogRows) -> None:
    """DivergedError unless each stream of the target is the beginning of the source's."""
    ours, theirs = target.ends(), source.ends()
    longer = [
        name
        for name in ("commits", "moves", "activities")
        if getattr(ours, name) > getattr(theirs, name)
    ]
    if longer:
        raise DivergedError(
            f"{target.place} has {longer[0]} of graph {target.header.graph!r} that {source.place} "
            "does not have"
        )
    if ours.commits and source.record(ours.commits) != target.record(ours.commits):
        raise DivergedError(
            f"{target.place} has another history of graph {target.header.graph!r} than "
            f"{source.place}: they differ at commit {ours.commits} or before"
        )


def compare(source: LogRows, target: LogRows, report: Progress) -> None:
    """Check the digests of all commits of the target, and that nothing differs from the source."""
    schemas = target.schemas()
    chain = _Chain(target, 0)
    checked = _Rate("verified", target.ends().commits, report)
    with closing(source.records()) as records, closing(target.commits()) as rows:
        for number, (record, row) in enumerate(zip_longest(records, rows), 1):
            if row is None or record != (row.seq, row.record):
                raise _differs(source, target, f"commit {number}")
            chain.check(row, schemas)
            checked.add(1)
    with closing(source.moves()) as ours, closing(target.moves()) as theirs:
        _compare("branch changes", source, target, ours, theirs)
    last = max((each.last for each in source.archives()), default=0)
    with closing(source.activities(last)) as ours, closing(target.activities(last)) as theirs:
        _compare("activities", source, target, ours, theirs)
    _compare("archives", source, target, source.archives(), target.archives())
    for archive in source.archives():
        if _digest(source.archive(archive)) != _digest(target.archive(archive)):
            raise _differs(source, target, f"archive {archive.name}")
    _compare("schemas", source, target, sorted(source.schemas().items()), sorted(schemas.items()))
    _compare("branch heads", source, target, sorted(source.heads()), sorted(target.heads()))
    _compare("idempotency keys", source, target, sorted(source.keys()), sorted(target.keys()))
    _compare("calls", source, target, sorted(source.calls()), sorted(target.calls()))


def _compare(
    what: str, source: LogRows, target: LogRows, ours: Iterable[T], theirs: Iterable[T]
) -> None:
    for a, b in zip_longest(ours, theirs):
        if a != b:
            raise _differs(source, target, what)


def _differs(source: LogRows, target: LogRows, what: str) -> CorruptionError:
    return CorruptionError(
        f"the copy of graph {source.header.graph!r} in {target.place} differs from {source.place}: "
        f"{what}; the copy is not used"
    )


def _digest(pieces: Iterable[bytes]) -> str:
    digest = sha256()
    for each in pieces:
        digest.update(each)
    return digest.hexdigest()


def _check_schemas(schemas: Mapping[str, bytes], source: LogRows) -> None:
    for digest, body in schemas.items():
        if digest_of(decode(SCHEMA, body)) != digest:
            raise _damaged(source, f"the schema {digest[:12]} was changed")


def _check_archive(archive: ActivityArchive, source: LogRows) -> None:
    try:
        found = _text_digest(source.archive(archive))
    except _DAMAGE as error:
        raise _damaged(source, f"the archive {archive.name} can't be read ({error})") from error
    if found != archive.sha:
        raise _damaged(source, f"the archive {archive.name} was changed")


def _damaged(rows: LogRows, what: str) -> CorruptionError:
    return CorruptionError(f"{rows.place} is damaged: {what}. Nothing was switched; {rows.repair}")


class _Chain:
    """Checks one commit after the other, in their order."""

    def __init__(self, rows: LogRows, after: int) -> None:
        self._rows = rows
        self._last = after
        self._known: dict[str, str] = {}

    def check(self, row: CommitRow, schemas: Mapping[str, bytes]) -> Commit:
        """The commit of a row; CorruptionError if it is not what was committed."""
        try:
            commit = COMMIT.decode(row.record)
        except (msgspec.DecodeError, UnicodeDecodeError, TypeError) as error:
            raise _damaged(self._rows, f"commit {row.seq} can't be read ({error})") from error
        problem = self._problem(row, commit, schemas)
        if problem is not None:
            raise _damaged(self._rows, f"commit {commit.id} (number {row.seq}): {problem}")
        self._last = row.seq
        self._known[commit.id] = commit.digest
        if len(self._known) > _KNOWN:
            del self._known[next(iter(self._known))]
        return commit

    def _problem(self, row: CommitRow, commit: Commit, schemas: Mapping[str, bytes]) -> str | None:
        if row.seq != self._last + 1 or commit.seq != row.seq:
            return f"it follows commit {self._last}"
        parents = []
        for parent in commit.parents:
            digest = self._parent(parent)
            if digest is None:
                return f"its parent {parent} is missing"
            parents.append(digest)
        if not is_chained(commit, tuple(parents)):
            return "its digest does not follow from its content"
        if commit.schema not in schemas:
            return f"its schema {commit.schema[:12]} is missing"
        if payload_digest(row.removed.sha, row.added.sha) != commit.payload:
            return "its statements differ from the committed ones"
        for half in HALVES:
            try:
                found = self._text_digest(row, half)
            except _DAMAGE as error:
                return f"its statements can't be read ({error})"
            if found != row.part(half).sha:
                return "its statements differ from the committed ones"
        return None

    def _parent(self, identifier: str) -> str | None:
        known = self._known.get(identifier)
        if known is None:
            record = self._rows.find(identifier)
            known = None if record is None else decode(COMMIT, record).digest
        return known

    def _text_digest(self, row: CommitRow, half: Half) -> str:
        blob = row.part(half).blob
        if blob is None:
            return _text_digest(self._rows.pieces(row, half))
        return sha256(zstd.decompress(blob) if blob else b"").hexdigest()


def _text_digest(pieces: Iterable[bytes]) -> str:
    """The digest of a compressed text, which may not fit into memory."""
    digest, text = sha256(), zstd.ZstdDecompressor()
    for piece in pieces:
        digest.update(text.decompress(piece, _TEXT))
        while not text.needs_input and not text.eof:
            digest.update(text.decompress(b"", _TEXT))
    if not text.eof:
        raise EOFError("it ends too early")
    return digest.hexdigest()


_TEXT: Final = 4 << 20
"""Bytes of text that are in memory at once."""


def _batches(
    rows: Iterable[T],
    size: Callable[[T], int],
    alone: Callable[[T], bool] = lambda _: False,
) -> Iterator[list[T]]:
    """Rows in groups of one transaction each; one that is ``alone`` ends its group."""
    batch: list[T] = []
    total = 0
    for each in rows:
        batch.append(each)
        total += size(each)
        if len(batch) == BATCH or total > BATCH_BYTES or alone(each):
            yield batch
            batch, total = [], 0
    if batch:
        yield batch


class _Rate:
    """Reports how many commits are done, about once a second."""

    def __init__(self, verb: str, total: int, report: Progress) -> None:
        self._verb, self._total, self._report = verb, total, report
        self._done = 0
        self._begun = self._said = monotonic()

    def add(self, number: int) -> None:
        self._done += number
        now = monotonic()
        if now - self._said >= _REPORT_SECONDS:
            self._said = now
            rate = self._done / (now - self._begun)
            self._report(
                f"{self._verb} {self._done:,} of {self._total:,} commits ({rate:,.0f} a second)"
            )
