"""The tail: a second, unsynced record of the newest commits, independent of SQLite's WAL.

SQLite ignores a WAL from its first damaged frame on and says nothing: commits that were
acknowledged would be gone without a word. So each commit and each move of a branch is also
written to a file of frames, after the log has it. The tail may lag, after a power cut, and
never leads. A frame that the log does not know is proof that the log has lost something, and
holds all that is needed to put it back.

Two files of ``LIMIT`` bytes each are kept, so the tail reaches further back than the WAL,
which SQLite moves into the log's file every four megabytes.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal
from zlib import crc32

import msgspec

from trails.log.payloads import DeltaPart, Payload
from trails.model.history import Commit, Move
from trails.model.iris import canonical
from trails.model.writes import KeyedOutcome

TAIL_FILE: Final = "tail"
OLD_TAIL: Final = "tail.old"
LIMIT: Final = 8 * 2**20
_MAGIC: Final = b"TRT1"
_HEAD: Final = struct.Struct("<4sBIIQ32s")
"""Magic, kind, length and checksum of the body, number, id."""
_SUM: Final = struct.Struct("<I")
_SIZE: Final = _HEAD.size + _SUM.size
_KINDS: Final[tuple[Literal["commit", "move", "closed"], ...]] = ("commit", "move", "closed")


_COMMIT: Final = _KINDS.index("commit")
_CLOSED: Final = _KINDS.index("closed")


class TailDelta(msgspec.Struct, frozen=True):
    """Half of a delta, as a row of the log has it."""

    count: int
    sha: str
    blob: bytes | None
    segment: str | None

    @classmethod
    def of(cls, part: DeltaPart) -> TailDelta:
        """Without the text, which the blob holds."""
        return cls(part.count, part.sha, part.blob, part.segment)

    @property
    def part(self) -> DeltaPart:
        """As the log takes it."""
        return DeltaPart(self.count, self.sha, self.blob, self.segment)


class KeptCommit(msgspec.Struct, frozen=True):
    """A commit with its statements, and its schema where it was the first to name it."""

    commit: bytes
    removed: TailDelta
    added: TailDelta
    schema: bytes | None
    before: str
    """Where its branch was."""
    keyed: KeyedOutcome | None = None
    """What a retry with its idempotency key is answered."""

    @property
    def payload(self) -> Payload:
        """Its statements."""
        return Payload(self.removed.part, self.added.part)


class KeptMove(msgspec.Struct, frozen=True):
    """A move of a branch, and the schema that the branch has then."""

    move: bytes
    schema: str
    keyed: KeyedOutcome | None = None


class TailFrame(msgspec.Struct, frozen=True):
    """One entry of a tail; the body is empty where only the fact is known."""

    kind: Literal["commit", "move", "closed"]
    number: int
    """The place of a commit, or of a move, in the log."""
    id: str
    body: bytes | None
    """None when it can't be read."""

    def commit(self) -> KeptCommit | None:
        """What a commit's frame holds, if that is left."""
        return msgspec.msgpack.decode(self.body, type=KeptCommit) if self.body else None

    def move(self) -> KeptMove | None:
        """What a move's frame holds, if that is left."""
        return msgspec.msgpack.decode(self.body, type=KeptMove) if self.body else None


class Mark(msgspec.Struct, frozen=True):
    """What a frame says, and where it is in its file; its body is not looked at."""

    kind: int
    number: int
    id: bytes
    start: int
    end: int
    checksum: int


class Trail(msgspec.Struct, frozen=True):
    """What a tail names."""

    commits: tuple[tuple[int, str], ...]
    last_move: tuple[int, str] | None
    """The newest change of a branch, and the commit where that branch was then."""
    closed: bool
    """Whether the log was closed in order when it was last used."""


def look_at_tail(folder: Path) -> Trail:
    """What a tail names, without its statements."""
    commits: list[tuple[int, str]] = []
    last_move, closed = None, False
    for data in _files(folder):
        for mark in _marks(data):
            closed = mark.kind == _CLOSED
            if not closed:
                named = (mark.number, _spell(mark.id))
                if mark.kind == _COMMIT:
                    commits.append(named)
                else:
                    last_move = named
    return Trail(tuple(commits), last_move, closed)


def _spell(identifier: bytes) -> str:
    return identifier.rstrip(b"\0").decode("ascii", "replace")


def read_tail(folder: Path) -> list[TailFrame]:
    """Every frame that is left, oldest first."""
    frames: list[TailFrame] = []
    for data in _files(folder):
        for mark in _marks(data):
            body = data[mark.start : mark.end]
            whole = len(body) == mark.end - mark.start and crc32(body) == mark.checksum
            frames.append(
                TailFrame(_KINDS[mark.kind], mark.number, _spell(mark.id), body if whole else None)
            )
    return frames


def _files(folder: Path) -> Iterator[bytes]:
    for name in (OLD_TAIL, TAIL_FILE):
        with suppress(FileNotFoundError):
            yield (folder / name).read_bytes()


def _marks(data: bytes) -> Iterator[Mark]:
    """The frames of a file; damaged bytes between them are skipped."""
    at = 0
    while at + _SIZE <= len(data):
        magic, kind, length, checksum, number, identifier = _HEAD.unpack_from(data, at)
        (known,) = _SUM.unpack_from(data, at + _HEAD.size)
        head = data[at : at + _HEAD.size]
        if magic != _MAGIC or known != crc32(head) or kind >= len(_KINDS):
            at = data.find(_MAGIC, at + 1)
            if at < 0:
                return
            continue
        start = at + _SIZE
        at = start + length
        yield Mark(kind, number, identifier, start, at, checksum)


def _frame(kind: Literal["commit", "move", "closed"], number: int, id: str, body: bytes) -> bytes:
    head = _HEAD.pack(
        _MAGIC, _KINDS.index(kind), len(body), crc32(body), number, id.encode("ascii")
    )
    return head + _SUM.pack(crc32(head)) + body


class Tail:
    """The tail of a log that this process writes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / TAIL_FILE
        self._file = -1
        self._at = 0
        self.last_seq = 0
        """The newest commit in it."""
        self.closed = False
        """Whether the log was closed in order when it was last used."""
        self._open()

    def _open(self) -> None:
        # A disk that refuses is met again by the log, which says so.
        with suppress(OSError):
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            for mark in _marks(self._path.read_bytes()):
                self.closed = mark.kind == _CLOSED
                if mark.kind == _COMMIT:
                    self.last_seq = max(self.last_seq, mark.number)
                if not self.closed:  # else the next frame takes its place
                    self._at = mark.end

    def add_commit(
        self,
        commit: Commit,
        payload: Payload,
        schema: bytes | None,
        before: str,
        keyed: KeyedOutcome | None,
    ) -> None:
        """A commit that the log has."""
        removed, added = TailDelta.of(payload.removed), TailDelta.of(payload.added)
        kept = KeptCommit(canonical(commit), removed, added, schema, before, keyed)
        self._write(_frame("commit", commit.seq, commit.id, msgspec.msgpack.encode(kept)))
        self.last_seq = commit.seq

    def add_tip(self, commit: Commit) -> None:
        """The newest commit of a log that has more than its tail; the log's file has it all."""
        self._write(_frame("commit", commit.seq, commit.id, b""))
        self.last_seq = commit.seq

    def add_move(self, number: int, move: Move, schema: str, keyed: KeyedOutcome | None) -> None:
        """A move of a branch that the log has."""
        kept = msgspec.msgpack.encode(KeptMove(canonical(move), schema, keyed))
        self._write(_frame("move", number, move.commit, kept))

    def _write(self, frame: bytes) -> None:
        """Write without syncing. What the disk refuses is left out: the log has it."""
        with suppress(OSError):
            if self._at >= LIMIT:
                self._turn_over()
            if self._file < 0:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o600)
            if os.pwrite(self._file, frame, self._at) == len(frame):
                self._at += len(frame)

    def _turn_over(self) -> None:
        self._path.replace(self._folder / OLD_TAIL)
        os.close(self._file)
        self._file, self._at = -1, 0

    def close(self) -> None:
        """The log was closed in order: its file has everything, and no WAL is left."""
        with suppress(OSError):
            if self._file >= 0:
                frame = _frame("closed", self.last_seq, "", b"")
                os.pwrite(self._file, frame, self._at)
                os.ftruncate(self._file, self._at + len(frame))
        self.release()

    def release(self) -> None:
        """Let go of the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
