"""The workers of one line: who is idle, who runs, and one that is kept warm.

A follower has its own store and moves it by the deltas that come with each job. It
is made from the line's base, a checkpoint that is renewed when the line has moved far.

What the sandbox reads: a line of commits, offered by the engine.

A line is a branch or a snapshot. The sandbox makes a base from a checkpoint of it, and
its workers follow the line by the deltas that the engine hands over.
"""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Final, Protocol

import msgspec
import pyoxigraph as ox

from trails.errors import BusyError, StorageError, UnavailableError
from trails.log.storage import full, says_full, storage_errors
from trails.model.fairness import FairQueue
from trails.model.history import Position
from trails.sandbox.limits import MIB, Limits
from trails.sandbox.processes import DeathError, LateError, Nursery, WorkerHandle
from trails.sandbox.scratch import Scratch, clone, protect, size
from trails.sandbox.wire import Job


class CommitDelta(msgspec.Struct, frozen=True):
    """One commit: where it leads, and the statements it removes and adds, as N-Quads."""

    position: Position
    removed: bytes
    added: bytes


class CommitSource(Protocol):
    """A branch or a snapshot."""

    @property
    def key(self) -> str:
        """What tells this line from others, for as long as the sandbox lives."""
        ...

    def head(self) -> Position:
        """Up to where a read must see the line."""
        ...

    def checkpoint(self, folder: Path) -> Position:
        """Make an Oxigraph store of the line in a folder that does not exist yet."""
        ...

    def deltas(self, after: Position, until: Position) -> Sequence[CommitDelta] | None:
        """The commits between two positions; None if there is no way, or a very long one."""
        ...


_MAX_LAG: Final = 5_000
"""Commits after which a new base is cheaper than following."""
_MAX_FED: Final = 64 * MIB
"""Bytes of deltas that a worker takes in one step; one that lacks more is replaced."""
_MAX_HELD: Final = 32 * MIB
"""Bytes that the commits of a worker's life may take in its memory; then it is replaced."""
_PER_COMMIT: Final = 512
"""Bytes that a commit takes in a worker's memory, however small it is."""
_LOADED: Final = MIB
"""Bytes of a delta from which it is in files rather than in memory."""
_COMPACTED: Final = 128 * MIB
"""Bases up to this size are compacted once, in a second or so, instead of by each worker."""
_BLINK, _BLINKS = 0.002, 50
_STRUCK: Final = 1_000
"""Callers to remember."""
_SOON: Final = 5
"""Seconds after which it may be worth asking again."""
_FOLLOW: Final = 60.0
"""Seconds that a new worker may take to reach the head."""


class Keeper:
    """A thread for what nobody waits for: warming spares, removing folders."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def later(self, task: Callable[[], None]) -> None:
        """Do this soon."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="trails-sandbox", daemon=True
                )
                self._thread.start()
        self._tasks.put(task)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            # What fails here fails again, with a caller to tell, when it is needed.
            with contextlib.suppress(Exception):
                task()

    def close(self) -> None:
        """Do what is left, and end."""
        with self._lock:
            if self._thread is not None:
                self._tasks.put(None)
                self._thread.join()
                self._thread = None


class Step(msgspec.Struct, frozen=True):
    """A borrowed worker and what it must apply to be at the head."""

    worker: WorkerHandle
    head: Position
    deltas: tuple[tuple[bytes, bytes], ...] = ()

    def done(self) -> None:
        """Note that the worker has applied them."""
        self.worker.position = self.head
        self.worker.fed += _held_by(self.deltas)


class WorkerGroup:
    """Workers on one line; or, without a source, workers that have no store."""

    def __init__(
        self,
        nursery: Nursery,
        scratch: Scratch,
        keeper: Keeper,
        limits: Limits,
        source: CommitSource | None,
        is_heavy: Callable[[str], bool],
    ) -> None:
        """``is_heavy`` says of a caller whether it has used much time lately."""
        self._nursery = nursery
        self._scratch = scratch
        self._keeper = keeper
        self._limits = limits
        self._source = source
        self._capacity = limits.parsers if source is None else limits.followers
        # One place more, which the warm worker serves, is for those who have used little.
        places = self._capacity + (source is not None)
        self._places = FairQueue(places, is_heavy=is_heavy)
        self._free = threading.Lock()
        self._idle: list[WorkerHandle] = []
        self._running = 0
        self._growing = 0
        self._closed = False
        self._struck: set[str] = set()
        """Callers whose last worker had to be killed."""
        self._base_lock = threading.Lock()
        self._base: Path | None = None
        self._compacted: Path | None = None
        self._base_position = Position(0, "")
        self.users = 0
        """Calls that are on their way through; the pool counts them."""

    @contextlib.contextmanager
    def borrow(
        self, source: CommitSource | None, patience: float, caller: str = "", *, new: bool = False
    ) -> Iterator[Step]:
        """A worker, or a new one, for one call. It is killed if the call fails in the middle."""
        self._enter(patience, caller)
        worker: WorkerHandle | None = None
        try:
            step = self._step(source, caller, new=new)
            worker = step.worker
            worker.caller = caller
            yield step
            self._struck.discard(caller)
        except BaseException:
            if worker is not None:
                worker.kill()
                self._strike(caller)
            raise
        finally:
            self._leave(worker)
            self._places.release(caller)

    def _strike(self, caller: str) -> None:
        if len(self._struck) >= _STRUCK:
            self._struck.clear()
        self._struck.add(caller)

    def _enter(self, patience: float, caller: str) -> None:
        """Wait for a place; callers take turns."""
        if not self._places.acquire(caller, patience):
            parses = self._source is None
            setting = "parsers" if parses else "followers"
            advice = "" if parses else f", or raise '[sandbox] {setting}' in trails.toml"
            raise BusyError(
                f"all {self._capacity} workers here were busy for {patience:g} s; try again in "
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
        self._warm()

    def _fit(self, worker: WorkerHandle) -> bool:
        most = max(256 * MIB, self._limits.memory // 2)
        return worker.alive and worker.fed < _MAX_HELD and worker.held < most

    def _discard(self, worker: WorkerHandle) -> None:
        worker.kill()
        self._keeper.later(lambda: _bury(worker))

    # --- spares --------------------------------------------------------------------

    def _warm(self) -> None:
        """See to it that one worker is idle."""
        with self._free:
            if self._closed or self._growing or any(not each.caller for each in self._idle):
                return
            if len(self._idle) + self._running > self._capacity:
                return
            self._growing += 1
        self._keeper.later(self._grow)

    def _grow(self) -> None:
        worker: WorkerHandle | None = None
        try:
            if self._closed:
                return
            self._compact()
            worker = self._hatch(self._source)
            if self._source is not None:
                step = self._catch_up(worker, self._source)
                if step is not None and step.deltas:
                    worker.ask(
                        Job("follow", deltas=step.deltas, memory=self._limits.memory),
                        monotonic() + _FOLLOW,
                    )
                    step.done()
        finally:
            with self._free:
                self._growing -= 1
                keep = worker is not None and worker.alive and not self._closed
                if keep and worker is not None:
                    self._idle.insert(0, worker)  # the one used last knows the most
            if worker is not None and not keep:
                _bury(worker)

    # --- followers -----------------------------------------------------------------

    def _pick(self, caller: str) -> WorkerHandle | None:
        """An idle worker: the caller's last one, else an unused one, else the most recent.

        Who had a worker killed gets no other's: it would be missing there.
        """
        with self._free:
            for owner in (caller, ""):
                for at in reversed(range(len(self._idle))):
                    if self._idle[at].caller == owner:
                        return self._idle.pop(at)
            if not self._idle or (caller and caller in self._struck):
                return None
            return self._idle.pop()

    def _step(self, source: CommitSource | None, caller: str, *, new: bool) -> Step:
        """A worker and its way to the head."""
        while not new and (worker := self._pick(caller)) is not None:
            self._warm()
            step = self._catch_up(worker, source)
            if step is not None and worker.quiet():
                return step
            self._discard(worker)
        for _ in range(3):
            worker = self._hatch(source)
            step = self._catch_up(worker, source)
            if step is not None:
                return step
            self._discard(worker)
        raise BusyError("this branch changes faster than a reader can follow; try again")

    def _catch_up(self, worker: WorkerHandle, source: CommitSource | None) -> Step | None:
        """What leads a worker to the head; None if it is better replaced."""
        if source is None:
            return Step(worker, worker.position)
        head = source.head()
        if worker.position == head:
            return Step(worker, head)
        for _ in range(_BLINKS):  # a checkpoint may hold a commit that becomes the head now
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
        return None if _bytes_of(deltas) > _MAX_FED else Step(worker, head, deltas)

    def _hatch(self, source: CommitSource | None) -> WorkerHandle:
        """A new worker; a follower is at the position of the base."""
        try:
            if source is None:
                return self._nursery.spawn(None)
            folder = self._scratch.path("worker")
            with self._base_lock, storage_errors("make a copy for a worker"):
                if self._closed:
                    raise UnavailableError("the sandbox is closed")
                if self._base is None or not self._reaches(source):
                    self._renew(source)
                assert self._base is not None  # noqa: S101 - made above
                clone(self._base, folder)
                position = self._base_position
            worker = self._nursery.spawn(folder)
        except (DeathError, LateError) as error:
            if isinstance(error, DeathError) and says_full(error.words):
                raise full("start a worker of the sandbox") from None
            words = f": {error.words}" if isinstance(error, DeathError) and error.words else ""
            raise StorageError(f"a worker of the sandbox does not start{words}") from None
        worker.position = position
        return worker

    def _reaches(self, source: CommitSource) -> bool:
        """Whether a worker gets from the base to the head with half of its life before it."""
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
            self._keeper.later(lambda: shutil.rmtree(old, ignore_errors=True))

    def _compact(self) -> None:
        """Compact the base before its second clone; the first was needed at once."""
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
        """End the idle workers; running ones end when they are returned."""
        with self._free:
            self._closed = True
            idle, self._idle = self._idle, []
        for worker in idle:
            self._discard(worker)
        with self._base_lock:
            base, self._base = self._base, None
        if base is not None:
            self._keeper.later(lambda: shutil.rmtree(base, ignore_errors=True))


def _held_by(deltas: tuple[tuple[bytes, bytes], ...]) -> int:
    """What commits take in the memory of a store that is never written to files."""
    return sum(
        _PER_COMMIT + 2 * (min(len(removed), _LOADED) + min(len(added), _LOADED))
        for removed, added in deltas
    )


def _bytes_of(deltas: tuple[tuple[bytes, bytes], ...]) -> int:
    return sum(len(removed) + len(added) for removed, added in deltas)


def _bury(worker: WorkerHandle) -> None:
    """Let go of a worker and its folder, which is never used again."""
    worker.end()
    if worker.folder is not None:
        shutil.rmtree(worker.folder, ignore_errors=True)
