"""The workers of one branch or snapshot: idle ones, running ones, and a warm spare.

A follower has its own store, cloned from a *base* (a checkpoint of the branch), and applies
the deltas that come with each job. The base is renewed when the branch has moved far. The
engine supplies checkpoints and deltas as a ``CommitSource``.
"""

from __future__ import annotations

import contextlib
import logging
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Final, Protocol

import msgspec
import pyoxigraph as ox

from trails.errors import BusyError, StorageError, TrailsError, UnavailableError
from trails.log.storage import full, says_full, storage_errors
from trails.model.fairness import FairQueue
from trails.model.history import Position
from trails.model.metrics import SandboxCount
from trails.sandbox.limits import MIB, Limits
from trails.sandbox.processes import DeathError, LateError, WorkerHandle, WorkerSpawner
from trails.sandbox.scratch import Scratch, clone, protect, size
from trails.sandbox.wire import Job


class CommitDelta(msgspec.Struct, frozen=True):
    """One commit: its position, and the statements it removes and adds, as N-Quads."""

    position: Position
    removed: bytes
    added: bytes


class CommitSource(Protocol):
    """A branch or a snapshot, supplied by the engine."""

    @property
    def key(self) -> str:
        """Identifies this source for the lifetime of the sandbox."""
        ...

    def head(self) -> Position:
        """Return the position that a read must reach."""
        ...

    def checkpoint(self, folder: Path) -> Position:
        """Write an Oxigraph store of the current state to a new folder."""
        ...

    def deltas(self, after: Position, until: Position) -> Sequence[CommitDelta] | None:
        """Return the commits between two positions; None if there is no path or a very long one."""
        ...


_logger: Final = logging.getLogger("trails")
_MAX_LAG: Final = 5_000
"""Commits after which a new base is cheaper than following."""
_MAX_FED: Final = 64 * MIB
"""Bytes of deltas that a worker applies in one step; a worker further behind is replaced."""
_MAX_HELD: Final = 32 * MIB
"""Bytes of memory that commits may take over a worker's life; then it is replaced."""
_PER_COMMIT: Final = 512
"""Bytes of memory that the smallest commit takes."""
_LOADED: Final = MIB
"""Bytes above which a delta is kept in files rather than in memory."""
_COMPACTED: Final = 128 * MIB
"""Bases up to this size are compacted once, in about a second, instead of by each worker."""
_BLINK, _BLINKS = 0.002, 50
_STRUCK: Final = 1_000
"""How many callers are remembered."""
_SOON: Final = 5
"""Seconds after which a retry may succeed."""
_FOLLOW: Final = 60.0
"""Seconds that a new worker may take to reach the head."""


class BackgroundTasks:
    """A background thread: starts spare workers, removes folders."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def submit(self, task: Callable[[], None]) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="trails-sandbox", daemon=True
                )
                self._thread.start()
        self._tasks.put(task)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            try:
                task()
            except UnavailableError:
                pass  # the sandbox was closed meanwhile
            except (TrailsError, OSError) as error:  # a full disk, for instance
                # Not fatal: a call that needs the worker starts it itself, and gets the error.
                _logger.warning(
                    "A background task of the sandbox failed: %s",
                    error,
                    extra={"event": "sandbox.task_failed"},
                )
            except Exception:
                _logger.exception(
                    "A background task of the sandbox failed.",
                    extra={"event": "sandbox.task_failed"},
                )

    def close(self) -> None:
        """Finish the queued tasks and end the thread."""
        with self._lock:
            if self._thread is not None:
                self._tasks.put(None)
                self._thread.join()
                self._thread = None


class BorrowedWorker(msgspec.Struct, frozen=True):
    """A borrowed worker, and the deltas that bring it to the head."""

    worker: WorkerHandle
    head: Position
    deltas: tuple[tuple[bytes, bytes], ...] = ()

    def done(self) -> None:
        """Record that the worker has applied them."""
        self.worker.position = self.head
        self.worker.fed += _held_by(self.deltas)


class WorkerGroup:
    """The workers of one source; without a source, workers that have no store."""

    def __init__(
        self,
        nursery: WorkerSpawner,
        scratch: Scratch,
        background: BackgroundTasks,
        limits: Limits,
        source: CommitSource | None,
        is_heavy: Callable[[str], bool],
    ) -> None:
        """``is_heavy`` says whether a caller has used much time lately."""
        self._spawner = nursery
        self._scratch = scratch
        self._background = background
        self._limits = limits
        self._source = source
        self._capacity = limits.parsers if source is None else limits.followers
        # One more place, served by the warm worker, is reserved for light users.
        places = self._capacity + (source is not None)
        self._places = FairQueue(places, is_heavy=is_heavy)
        self._free = threading.Lock()
        self._idle: list[WorkerHandle] = []
        self._running = 0
        self._starting = 0
        self._closed = False
        self._offenders: set[str] = set()
        """Callers whose last worker had to be killed."""
        self._base_lock = threading.Lock()
        self._base: Path | None = None
        self._compacted: Path | None = None
        self._base_position = Position(0, "")
        self.users = 0
        """Calls in progress; the pool counts them."""

    def count(self) -> SandboxCount:
        """How many of its processes do what."""
        with self._free:
            return SandboxCount(
                self._running, len(self._idle), self._starting, self._places.waiting
            )

    @contextlib.contextmanager
    def borrow(
        self, source: CommitSource | None, patience: float, caller: str = "", *, new: bool = False
    ) -> Iterator[BorrowedWorker]:
        """Lend an idle or new worker for one call; it is killed if the call fails."""
        self._enter(patience, caller)
        worker: WorkerHandle | None = None
        try:
            step = self._step(source, caller, new=new)
            worker = step.worker
            worker.caller = caller
            yield step
            self._offenders.discard(caller)
        except BaseException:
            if worker is not None:
                worker.kill()
                self._remember_offender(caller)
            raise
        finally:
            self._leave(worker)
            self._places.release(caller)

    def _remember_offender(self, caller: str) -> None:
        if len(self._offenders) >= _STRUCK:
            self._offenders.clear()
        self._offenders.add(caller)

    def _enter(self, patience: float, caller: str) -> None:
        """Wait for a free place; callers take turns."""
        if not self._places.acquire(caller, patience):
            parses = self._source is None
            setting = "parsers" if parses else "followers"
            advice = "" if parses else f", or raise '[sandbox] {setting}' in trails.toml"
            raise BusyError(
                f"all {self._capacity} workers were busy for {patience:g} s; retry in "
                f"{_SOON} s{advice}",
                limit=setting,
                allowed=self._capacity,
                retry_after=_SOON,
            )
        with self._free:
            self._running += 1

    def _leave(self, worker: WorkerHandle | None) -> None:
        with self._free:
            self._running -= 1
            room = len(self._idle) + self._running <= self._capacity
            keep = worker is not None and not self._closed and room and self._fit(worker)
            if keep and worker is not None:
                self._idle.append(worker)
        if worker is not None and not keep:
            self._discard(worker)
        self._keep_spare()

    def _fit(self, worker: WorkerHandle) -> bool:
        most = max(256 * MIB, self._limits.memory // 2)
        return worker.alive and worker.fed < _MAX_HELD and worker.held < most

    def _discard(self, worker: WorkerHandle) -> None:
        worker.kill()
        self._background.submit(lambda: _remove_worker(worker))

    # --- spares --------------------------------------------------------------------

    def _keep_spare(self) -> None:
        """Start a spare if there is none."""
        with self._free:
            if self._closed or self._starting or any(not each.caller for each in self._idle):
                return
            if len(self._idle) + self._running > self._capacity:
                return
            self._starting += 1
        self._background.submit(self._add_spare)

    def _add_spare(self) -> None:
        worker: WorkerHandle | None = None
        try:
            if self._closed:
                return
            self._compact()
            worker = self._start_worker(self._source)
            if self._source is not None:
                step = self._catch_up(worker, self._source)
                if step is not None and step.deltas:
                    worker.ask(
                        Job("follow", deltas=step.deltas, memory=self._limits.memory),
                        monotonic() + _FOLLOW,
                    )
                    step.done()
        except (StorageError, DeathError, LateError):
            if not self._closed:  # closing ends the processes that are just starting
                raise
        finally:
            with self._free:
                self._starting -= 1
                keep = worker is not None and worker.alive and not self._closed
                if keep and worker is not None:
                    self._idle.insert(0, worker)  # the most recently used one is the furthest ahead
            if worker is not None and not keep:
                _remove_worker(worker)

    # --- followers -----------------------------------------------------------------

    def _pick(self, caller: str) -> WorkerHandle | None:
        """Return an idle worker: the caller's last one, else an unused one, else the most recent.

        A caller whose worker was killed doesn't get one that another caller used.
        """
        with self._free:
            for owner in (caller, ""):
                for at in reversed(range(len(self._idle))):
                    if self._idle[at].caller == owner:
                        return self._idle.pop(at)
            if not self._idle or (caller and caller in self._offenders):
                return None
            return self._idle.pop()

    def _step(self, source: CommitSource | None, caller: str, *, new: bool) -> BorrowedWorker:
        """Return a worker with the deltas that bring it to the head."""
        while not new and (worker := self._pick(caller)) is not None:
            self._keep_spare()
            step = self._catch_up(worker, source)
            if step is not None and worker.quiet():
                return step
            self._discard(worker)
        for _ in range(3):
            worker = self._start_worker(source)
            step = self._catch_up(worker, source)
            if step is not None:
                return step
            self._discard(worker)
        raise BusyError("this branch changes faster than a reader can follow; retry")

    def _catch_up(self, worker: WorkerHandle, source: CommitSource | None) -> BorrowedWorker | None:
        """Return the deltas that bring a worker to the head; None if it should be replaced."""
        if source is None:
            return BorrowedWorker(worker, worker.position)
        head = source.head()
        if worker.position == head:
            return BorrowedWorker(worker, head)
        for _ in range(_BLINKS):  # a checkpoint may be ahead of the head for a moment
            if head.seq >= worker.position.seq:
                break
            sleep(_BLINK)
            head = source.head()
        if head.seq - worker.position.seq > _MAX_LAG:
            return None
        found = source.deltas(worker.position, head)
        if found is None:
            return None
        deltas = tuple((delta.removed, delta.added) for delta in found)
        return None if _bytes_of(deltas) > _MAX_FED else BorrowedWorker(worker, head, deltas)

    def _start_worker(self, source: CommitSource | None) -> WorkerHandle:
        """Start a worker; a follower starts at the position of the base."""
        try:
            if source is None:
                return self._spawner.spawn(None)
            folder = self._scratch.path("worker")
            with self._base_lock, storage_errors("make a copy for a worker"):
                if self._closed:
                    raise UnavailableError("the sandbox is closed")
                if self._base is None or not self._reaches(source):
                    self._renew(source)
                assert self._base is not None  # noqa: S101 - made above
                clone(self._base, folder)
                position = self._base_position
            worker = self._spawner.spawn(folder)
        except (DeathError, LateError) as error:
            if isinstance(error, DeathError) and says_full(error.words):
                raise full("start a worker of the sandbox") from None
            words = f": {error.words}" if isinstance(error, DeathError) and error.words else ""
            raise StorageError(f"a sandbox worker did not start{words}") from None
        worker.position = position
        return worker

    def _reaches(self, source: CommitSource) -> bool:
        """Whether a new worker can reach the head with half of its memory left."""
        head = source.head()
        if head == self._base_position:
            return True
        if not 0 < head.seq - self._base_position.seq <= _MAX_LAG:
            return False
        found = source.deltas(self._base_position, head)
        if found is None:
            return False
        return _held_by(tuple((each.removed, each.added) for each in found)) <= _MAX_HELD // 2

    def _renew(self, source: CommitSource) -> None:
        old, self._base = self._base, None
        base = self._scratch.path("base")
        self._base_position = source.checkpoint(base)
        protect(base)
        self._base = base
        if old is not None:
            self._background.submit(lambda: shutil.rmtree(old, ignore_errors=True))

    def _compact(self) -> None:
        """Compact the base before its second clone; the first clone could not wait."""
        with self._base_lock:
            raw = self._base
            if raw is None or raw == self._compacted or size(raw) > _COMPACTED:
                return
            base = self._compacted = self._scratch.path("base")
            clone(raw, base)
        store = ox.Store(base)
        store.optimize()
        del store
        protect(base)
        with self._base_lock:
            if self._base is raw:
                self._base, base = base, raw
        shutil.rmtree(base, ignore_errors=True)

    def close(self) -> None:
        """Stop the idle workers; running ones stop when they are returned."""
        with self._free:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            self._discard(worker)
        with self._base_lock:
            base, self._base = self._base, None
        if base is not None:
            self._background.submit(lambda: shutil.rmtree(base, ignore_errors=True))


def _held_by(deltas: tuple[tuple[bytes, bytes], ...]) -> int:
    """Return the memory that commits take in a store that never writes them to files."""
    return sum(
        _PER_COMMIT + 2 * (min(len(removed), _LOADED) + min(len(added), _LOADED))
        for removed, added in deltas
    )


def _bytes_of(deltas: tuple[tuple[bytes, bytes], ...]) -> int:
    return sum(len(removed) + len(added) for removed, added in deltas)


def _remove_worker(worker: WorkerHandle) -> None:
    """Kill a worker and remove its folder."""
    worker.end()
    if worker.folder is not None:
        shutil.rmtree(worker.folder, ignore_errors=True)
