"""Files on their way into a graph: what is said about them, and their bytes, as one stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from trails.engine.load.joined import Joined, common_format
from trails.errors import NotFoundError, ValidationError
from trails.model.loads import LoadRequest

_BLOCK: Final = 1 << 18
_CODINGS: Final = {".gz": "gzip", ".zst": "zstd"}


class Shipment:
    """The files of one load."""

    def __init__(self, request: LoadRequest) -> None:
        self._files = request.files
        self._several = Joined(request.files) if len(request.files) > 1 else None
        self.arguments = {
            "format": common_format(request.files, request.format),
            "mode": request.mode,
            "type": request.type_name,
            "branch": request.branch,
            "from": request.source,
            "message": request.message or None,
            "expected_head": request.expected_head,
            "idempotency_key": request.idempotency_key,
        }
        """What is said about them; None where nothing is."""
        self.coding = _coding(request.files) if self._several is None else ""
        """How a single file is compressed; several are sent as they are inside."""

    @property
    def headers(self) -> dict[str, str]:
        """As HTTP says it."""
        return {"Content-Encoding": self.coding} if self.coding else {}

    def blocks(self, progress: Callable[[int, int | None], None]) -> Iterator[bytes]:
        """The bytes, told as they go."""
        several = self._several
        blocks = _read(self._files[0]) if several is None else several.blocks()
        return _telling(blocks, _size(self._files), progress)

    def placed(self, error: ValidationError) -> ValidationError:
        """What is wrong, with the file that it is in."""
        return error if self._several is None else self._several.placed(error)


def _coding(files: Sequence[object]) -> str:
    suffix = files[0].suffix if isinstance(files[0], Path) else ""
    return _CODINGS.get(suffix, "")


def _read(given: Path | IO[bytes] | Iterable[bytes]) -> Iterator[bytes]:
    """A file as it is, compressed or not."""
    if isinstance(given, Path):
        try:
            with given.open("rb") as file:
                while block := file.read(_BLOCK):
                    yield block
        except OSError as error:
            raise NotFoundError(f"{given} can't be read: {error.strerror}") from None
        return
    read = getattr(given, "read", None)
    if read is None:
        yield from given
        return
    while block := read(_BLOCK):
        yield block


def _size(files: Sequence[object]) -> int | None:
    """Bytes of all files, where that is known."""
    if not all(isinstance(each, Path) for each in files):
        return None
    return sum(each.stat().st_size for each in files if isinstance(each, Path))


def _telling(
    blocks: Iterable[bytes], total: int | None, progress: Callable[[int, int | None], None]
) -> Iterator[bytes]:
    done = 0
    for block in blocks:
        yield block
        done += len(block)
        progress(done, total)
