"""The health and the metrics of a server, for its HTTP routes.

Health is examined at most once a second, however many ask, in a thread: a disk may not answer. What
needs no credential costs no more if it is asked for more often.
Metrics have the names of graphs and tools, so a caller gets those of the graphs that it
administers; where the operator makes metrics public, others get sums without names.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic, time
from typing import Final, NamedTuple, Protocol, TypeVar, cast

from trails.model.actors import Actor
from trails.model.metrics import GraphMetrics, ProcessMetrics, ServerMetrics, add_up
from trails.model.results import Failure, Health, Status

_FRESH: Final = 1.0
"""Seconds for which a result is used that anyone can ask for."""
_PATIENCE: Final = 5.0
"""Seconds that a disk has to answer."""
_ROOM: Final = bytes(64 << 10)
"""What is written to see whether a disk has room: more than a small commit needs."""
_PAGE: Final = os.sysconf("SC_PAGE_SIZE")
_STARTED: Final = time()
T = TypeVar("T")


class Traffic(NamedTuple):
    """What a server counts of its connections; it goes on counting."""

    connections: Collection[object] = ()
    """The open ones."""
    responses: Mapping[int, int] = {}
    """Answers by status."""


class MonitoredGraph(Protocol):
    """What is asked of a graph; a Kernel answers it."""

    @property
    def status(self) -> Status:
        """Whether it is written and read, or only read."""

    @property
    def folder(self) -> Path | None:
        """The folder that it is written to; None if it is not, or has none."""

    @property
    def lacks_disk(self) -> bool:
        """Whether it is read-only because its disk could not be written."""

    @property
    def log_answers(self) -> bool:
        """Whether its log can be read and written, as far as is known."""

    def caught_up(self) -> bool:
        """Whether its views have followed main to its head."""

    def administers(self, actor: Actor) -> bool:
        """Whether an actor may see what others do on it."""

    def measure(self) -> GraphMetrics:
        """What was counted so far, and what is busy now."""


class Monitor:
    """Examines and measures the graphs of a server."""

    project = ""
    version = ""
    public = False
    """Whether callers who administer no graph get metrics without names."""

    def __init__(self, graphs: Mapping[str, MonitoredGraph | Failure]) -> None:
        self._graphs = graphs
        self.traffic = Traffic()
        self._examining: asyncio.Task[Health] | None = None
        self._looking: asyncio.Future[Health] | None = None
        self._health: tuple[float, Health] | None = None
        self._sums: tuple[float, ServerMetrics] | None = None
        """What everyone may see, if that is anything."""

    def _served(self) -> list[MonitoredGraph]:
        return [each for each in self._graphs.values() if not isinstance(each, Failure)]

    def _unserved(self) -> list[Failure]:
        return [each for each in self._graphs.values() if isinstance(each, Failure)]

    # --- health ----------------------------------------------------------------------

    async def health(self) -> Health:
        """How the server is, examined just now or within the last second."""
        known = self._health
        if known is not None and monotonic() - known[0] < _FRESH:
            return known[1]
        if self._examining is None or self._examining.done():
            self._examining = asyncio.create_task(self._examine())
        # Others may wait for the same examination, so it goes on if this caller leaves.
        return await asyncio.shield(self._examining)

    async def _examine(self) -> Health:
        if self._looking is None or self._looking.done():
            self._looking = run_in_thread(self._look)
        done, _ = await asyncio.wait({self._looking}, timeout=_PATIENCE)
        # A disk that does not answer keeps its thread; no second one is sent after it.
        found = self._looking.result() if done else Health("read_only", ("disk",))
        self._health = monotonic(), found
        return found

    def _look(self) -> Health:
        kernels, failures = self._served(), self._unserved()
        statuses = {each.status for each in kernels}
        statuses |= {"behind" for each in failures if each.data.get("reason") == "behind"}
        checks = {
            "graphs": not failures and "behind" not in statuses,
            "log": all(each.log_answers for each in kernels),
            "views": all(each.caught_up() for each in kernels),
            "disk": not any(each.lacks_disk for each in kernels)
            and all(map(_has_room, _folders(kernels))),
        }
        unready = tuple(name for name, passed in checks.items() if not passed)
        if "behind" in statuses:
            return Health("behind", unready)
        held = "read_only" in statuses or "disk" in unready
        return Health("read_only" if held else "ok", unready)

    # --- metrics ---------------------------------------------------------------------

    def metrics(self, actor: Actor | None) -> ServerMetrics | None:
        """What a caller may see; None if that is nothing. ``actor`` is None without a credential.

        The process is shown to all of them: a monitor that sees one graph must see why it is slow.
        """
        kernels = self._served()
        own = [each for each in kernels if actor is not None and each.administers(actor)]
        if own:
            return self._describe(kernels, tuple(each.measure() for each in own), self.project)
        if not self.public:
            return None
        known = self._sums
        if known is None or monotonic() - known[0] >= _FRESH:
            sums = add_up([each.measure() for each in kernels])
            self._sums = known = monotonic(), self._describe(kernels, (sums,), "")
        return known[1]

    def _describe(
        self, kernels: list[MonitoredGraph], graphs: tuple[GraphMetrics, ...], project: str
    ) -> ServerMetrics:
        return ServerMetrics(
            version=self.version,
            project=project,
            time=time(),
            process=self._process(),
            disk_free_bytes=_free(kernels),
            graphs=graphs,
        )

    def _process(self) -> ProcessMetrics:
        times = os.times()
        return ProcessMetrics(
            pid=os.getpid(),
            started=_STARTED,
            cpu_seconds=times.user + times.system,
            memory_bytes=_resident(),
            threads=threading.active_count(),
            open_files=_open_files(),
            connections=len(self.traffic.connections),
            responses=dict(self.traffic.responses),
        )


def run_in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run work in a daemon thread of its own: one that never ends holds up nothing else."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def settle(found: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast(T, found))

    def run() -> None:
        found, error = None, None
        try:
            found = work()
        except BaseException as raised:  # noqa: BLE001 - it is the waiter's
            error = raised
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, found, error)

    threading.Thread(target=run, name="trails-health", daemon=True).start()
    return future


def _folders(kernels: Iterable[MonitoredGraph]) -> list[Path]:
    """A folder on each disk that is written to."""
    found = {}
    for each in kernels:
        if each.folder is not None:
            with suppress(OSError):
                found[each.folder.stat().st_dev] = each.folder
    return list(found.values())


def _has_room(folder: Path) -> bool:
    """Whether a folder can be written to: by writing a file that has no name, where there are such.

    A quota or a limit of the process refuses writes while the disk has free blocks.
    """
    try:
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return file.write(_ROOM) == len(_ROOM)
    except OSError:
        return False


def _free(kernels: Iterable[MonitoredGraph]) -> int | None:
    """The free space of the disk that has the least."""
    try:
        return min((shutil.disk_usage(each).free for each in _folders(kernels)), default=None)
    except OSError:
        return None


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE
    except OSError:  # not Linux: the most that it ever was, in kilobytes or in bytes
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _open_files() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names are all that is needed
    except OSError:
        return 0
