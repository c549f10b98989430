"""The files of one export: what was asked for, the data, the checkpoints, and how it ended.

A folder has ``export.json`` (written once), ``data`` (the records so far), ``checkpoints`` (one
line for each part of the data: where the next one begins, and a digest of the part and of that
line) and, at the end, ``outcome.json``. The data is shown only when there is an outcome.

A process can be killed at any moment: what follows the last checkpoint is dropped, and the same
records are written again. A part that does not match its digest, because the disk has damaged it
or a power cut has lost it, is dropped with everything after it. All files are private.
"""

from __future__ import annotations

import os
import shutil
from bisect import bisect_right
from collections.abc import Generator, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from typing import IO, Final, Self

import msgspec

from trails.errors import CorruptionError
from trails.files import create_file, make_folder, private_opener, replace_file, sync_file
from trails.log.storage import storage_errors
from trails.model.visibility import Visibility

_SPEC, _DATA, _CHECKPOINTS, _OUTCOME = "export.json", "data", "checkpoints", "outcome.json"
_WRITING: Final = "write the export"
_READING: Final = "read the export"
_encode: Final = msgspec.json.encode


class ExportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to export, and in which format."""

    format: str = "ndjson"
    types: tuple[str, ...] = ()
    """With their subtypes; empty: all types."""
    where: dict[str, object] = {}
    """Conditions as in ``objects(ctx).where(…)``, all of which must hold."""
    fields: tuple[str, ...] = ()
    """Only these, and those that identify a record; empty: all fields."""
    escape_formulas: bool = False
    """For CSV: make texts harmless that a spreadsheet would run."""


class ExportSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One export: the request, whose it is, and the state that it is pinned to."""

    handle: str
    actor: str
    request: ExportRequest
    commit: str
    branch: str | None
    """The branch that the actor named; None for a snapshot."""
    hidden: tuple[str, ...]
    hidden_fields: dict[str, tuple[str, ...]]
    """What the actor could not see when it began."""
    created: float
    expires: float
    most_bytes: int = 0
    """Bytes that all exports of the actor may have; 0 is no limit."""

    @property
    def visibility(self) -> Visibility:
        """What the data was restricted to."""
        fields = {name: frozenset(each) for name, each in self.hidden_fields.items()}
        return Visibility(frozenset(self.hidden), fields)

    def is_same(self, other: ExportSpec) -> bool:
        """Whether the other one gives the same bytes to the same actor."""
        return (
            msgspec.structs.replace(
                other, handle=self.handle, created=self.created, expires=self.expires
            )
            == self
        )


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """A part of the data ends here."""

    type: int
    """Which of the types is being written."""
    after: str
    """The last handle of it that was looked at."""
    records: int
    bytes: int
    chars: int
    digest: str
    """Of the part, and of the numbers above."""


START: Final = Checkpoint(0, "", 0, 0, 0, "")


class Outcome(msgspec.Struct, frozen=True):
    """How an export ended: with a whole file, or with an error."""

    sha256: str = ""
    code: str = ""
    message: str = ""


class ExportFiles:
    """The folder of one export. One thread writes; any thread may read."""

    def __init__(self, folder: Path, spec: ExportSpec) -> None:
        self.folder = folder
        self.spec = spec
        self.checkpoints: list[Checkpoint] = [START]
        self.outcome: Outcome | None = None
        self._sha = sha256()
        self._data: IO[bytes] | None = None
        self._log: IO[bytes] | None = None

    @classmethod
    def create(cls, folder: Path, spec: ExportSpec) -> Self:
        """A new export, which survives a crash from here on."""
        with storage_errors("begin the export"):
            make_folder(folder)
            create_file(folder / _SPEC, _encode(spec))
        return cls(folder, spec)

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """An export of an earlier process; None if its creation was not finished."""
        try:
            spec = msgspec.json.decode((folder / _SPEC).read_bytes(), type=ExportSpec)
        except (OSError, msgspec.MsgspecError):
            return None
        found = cls(folder, spec)
        found.checkpoints += _read_checkpoints(folder / _CHECKPOINTS)
        with suppress(OSError, msgspec.MsgspecError):
            outcome = (folder / _OUTCOME).read_bytes()
            found.outcome = msgspec.json.decode(outcome, type=Outcome)
        return found

    @property
    def last(self) -> Checkpoint:
        """How far it is."""
        return self.checkpoints[-1]

    def size(self) -> int:
        """Bytes on the disk."""
        with suppress(OSError):
            return (self.folder / _DATA).stat().st_size
        return 0

    # --- writing ---------------------------------------------------------------------------

    def open(self) -> None:
        """Continue after the last part that is whole."""
        with storage_errors(_WRITING):
            kept = self._verified()
            del self.checkpoints[kept + 1 :]
            lines = b"".join(map(_line, self.checkpoints[1:]))
            replace_file(self.folder / _CHECKPOINTS, lines)
            self._data = open(self.folder / _DATA, "ab", opener=private_opener)  # noqa: SIM115
            self._data.truncate(self.last.bytes)
            self._log = open(self.folder / _CHECKPOINTS, "ab", opener=private_opener)  # noqa: SIM115

    def _verified(self) -> int:
        """How many parts are whole; their digest is taken again."""
        self._sha = sha256()
        try:
            file = (self.folder / _DATA).open("rb")
        except FileNotFoundError:
            return 0
        with file:
            for at, (before, part) in enumerate(pairwise(self.checkpoints)):
                block = file.read(part.bytes - before.bytes)
                if _digest(block, part) != part.digest:
                    return at
                self._sha.update(block)
        return len(self.checkpoints) - 1

    @property
    def is_open(self) -> bool:
        """Whether parts can be added."""
        return self._data is not None

    def add(self, block: bytes, records: int, type: int, after: str) -> None:
        """Add a part, and where the next one begins."""
        assert self._data is not None and self._log is not None  # noqa: S101, PT018 - it is open
        last = self.last
        text = len(block.decode())
        part = Checkpoint(
            type, after, last.records + records, last.bytes + len(block), last.chars + text, ""
        )
        part = msgspec.structs.replace(part, digest=_digest(block, part))
        with storage_errors(_WRITING):
            self._data.write(block)
            self._data.flush()
            self._log.write(_line(part))
            self._log.flush()
        self._sha.update(block)
        self.checkpoints.append(part)

    def finish(self) -> None:
        """All records are there: from here on the data is shown, and survives a power cut."""
        with storage_errors(_WRITING):
            self.close()
            sync_file(self.folder / _DATA)
            sync_file(self.folder / _CHECKPOINTS)
            self._end(Outcome(self._sha.hexdigest()))

    def fail(self, code: str, message: str) -> None:
        """End without data; on a full disk only this process knows why."""
        self.outcome = outcome = Outcome(code=code, message=message)
        self.close()
        with suppress(OSError):
            (self.folder / _DATA).unlink(missing_ok=True)
        with suppress(OSError):
            self._end(outcome)

    def _end(self, outcome: Outcome) -> None:
        replace_file(self.folder / _OUTCOME, _encode(outcome))
        self.outcome = outcome

    def rewind(self, part: int) -> None:
        """Go back to before a part that is damaged, and go on from there."""
        self.outcome = None
        (self.folder / _OUTCOME).unlink(missing_ok=True)
        del self.checkpoints[part + 1 :]

    def close(self) -> None:
        """Stop writing; it can be opened again."""
        for file in (self._data, self._log):
            if file is not None:
                with suppress(OSError):
                    file.close()
        self._data = self._log = None

    def remove(self) -> None:
        """Delete all of it."""
        self.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # --- reading ---------------------------------------------------------------------------

    def read(self, start: int, end: int) -> Generator[bytes, None, None]:
        """The bytes from ``start`` up to ``end``; DamagedError if a part is not as written."""
        checkpoints = tuple(self.checkpoints)
        part = bisect_right(checkpoints, start, key=_bytes)
        while part < len(checkpoints) and start < end:
            base, following = checkpoints[part - 1].bytes, checkpoints[part].bytes
            if following > base:  # else a part without records that match
                yield self._part(checkpoints, part)[start - base : end - base]
            start, part = following, part + 1

    def texts(self, start: int) -> Iterator[str]:
        """The text from the code point ``start`` on, part by part."""
        checkpoints = tuple(self.checkpoints)
        first = bisect_right(checkpoints, start, key=_chars)
        for part in range(first, len(checkpoints)):
            text = self._part(checkpoints, part).decode()
            yield text[start - checkpoints[part - 1].chars :] if part == first else text

    def _part(self, checkpoints: tuple[Checkpoint, ...], part: int) -> bytes:
        before, this = checkpoints[part - 1], checkpoints[part]
        with storage_errors(_READING):
            try:
                with (self.folder / _DATA).open("rb") as file:
                    block = os.pread(file.fileno(), this.bytes - before.bytes, before.bytes)
            except FileNotFoundError:
                block = b""
        if _digest(block, this) != this.digest:
            raise DamagedError(part - 1)
        return block


class DamagedError(CorruptionError):
    """A part of an export is not as it was written."""

    def __init__(self, part: int) -> None:
        super().__init__("a part of this export was damaged on the disk")
        self.part = part


def _bytes(checkpoint: Checkpoint) -> int:
    return checkpoint.bytes


def _chars(checkpoint: Checkpoint) -> int:
    return checkpoint.chars


def _digest(block: bytes, part: Checkpoint) -> str:
    facts = _encode([part.type, part.after, part.records, part.bytes, part.chars])
    return sha256(facts + block).hexdigest()


def _line(part: Checkpoint) -> bytes:
    return _encode(part) + b"\n"


def _read_checkpoints(path: Path) -> list[Checkpoint]:
    """The lines that are whole and go forward."""
    found = [START]
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError:
        return []
    with suppress(msgspec.MsgspecError):
        for line in lines[:-1]:
            part = msgspec.json.decode(line, type=Checkpoint)
            if part.bytes < found[-1].bytes or part.chars < found[-1].chars:
                break
            found.append(part)
    return found[1:]


def hidden_of(visibility: Visibility) -> Mapping[str, object]:
    """What a visibility hides, in the form that an export stores."""
    fields = {
        name: tuple(sorted(each)) for name, each in sorted(visibility.hidden_fields.items()) if each
    }
    return {"hidden": tuple(sorted(visibility.hidden)), "hidden_fields": fields}
