"""Reload declarations while a project is served: when files change, and on request.

In development one thread looks at the files of each graph every half second: the module of the
graph, the modules of the project that were imported, the stored queries and, after a failure, the
policies and folders too. A change is taken when two looks in a row find the same, so that a file
that is being written, or a series of saves, causes one reload. Looking reads the states of files
only. In production nothing is watched.

SIGHUP reloads all graphs in either case, unless the terminal of the process is gone: then it means
what it always did, and the server stops.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from trails.app.app import App
from trails.app.modules import project_modules

INTERVAL: Final = 0.5
"""Seconds between two looks."""
_BUSY: Final = 20
"""The thread looks at most this share of the time, however many files there are: 1 of 20."""
_logger: Final = logging.getLogger("trails")

FileState = tuple[str, int, int, int]
"""Path, inode, size and time of a file."""


class FileStates(msgspec.Struct, frozen=True):
    """The files of a graph at one moment."""

    declared: frozenset[FileState]
    """Modules and stored queries."""
    beside: frozenset[FileState]
    """What matters only after a failure: policies, and folders in which a module may be missing."""


def look_at_files(app: App, graph: str) -> FileStates:
    """Return the states of all files that decide what a graph declares."""
    assert app.folder is not None  # noqa: S101 - only a project in a folder is served
    given, folder = app.settings.graphs[graph], app.folder
    imported = (getattr(each, "__file__", None) for each in project_modules(folder).values())
    modules = {folder / given.app, *(Path(each) for each in imported if each is not None)}
    folders = {folder, *(each.parent for each in modules)}
    return FileStates(
        frozenset((*_states(modules), *_states(_files(folder / given.queries)))),
        frozenset((*_states(folders), *_states(_files(folder / given.policies)))),
    )


def _files(folder: Path) -> Iterator[Path]:
    with suppress(OSError):  # it does not exist, or can't be read, which a reload will report
        yield from (each for each in folder.iterdir() if not each.name.startswith("."))


def _states(paths: Iterator[Path] | set[Path]) -> Iterator[FileState]:
    for path in paths:
        try:
            found = path.stat()
        except OSError:
            yield str(path), 0, 0, 0
        else:
            yield str(path), found.st_ino, found.st_size, found.st_mtime_ns


class FileWatch(threading.Thread):
    """Reloads graphs whose files have changed."""

    def __init__(self, app: App) -> None:
        super().__init__(name="trails-reload", daemon=True)
        self._app = app
        self._ended = threading.Event()
        self._used = {graph: look_at_files(app, graph) for graph in app.settings.graphs}
        """What the last reload, or the start, has read."""
        self._last = dict(self._used)

    def run(self) -> None:
        pause = INTERVAL
        while not self._ended.wait(pause):
            started = monotonic()
            for graph in self._app.settings.graphs:
                self._look(graph)
            pause = max(INTERVAL, _BUSY * (monotonic() - started))

    def _look(self, graph: str) -> None:
        """Reload a graph if its files have changed, and are the same as at the last look."""
        try:
            found, last = look_at_files(self._app, graph), self._last[graph]
            self._last[graph] = found
            if found == last and self._is_due(graph, found):
                self._app.reload(graph)
                self._used[graph] = self._after(graph, found)
        except Exception:
            _logger.exception(
                "graph %s: its files could not be watched", graph, extra={"event": "reload.failed"}
            )

    def _after(self, graph: str, before: FileStates) -> FileStates:
        """What a reload has read: with the modules that it imported first."""
        found = look_at_files(self._app, graph)
        known = {each[0] for each in before.declared}
        fresh = (each for each in found.declared if each[0] not in known)
        gone = known - {each[0] for each in found.declared}
        kept = (each for each in before.declared if each[0] not in gone)
        return FileStates(frozenset((*kept, *fresh)), found.beside)

    def _is_due(self, graph: str, found: FileStates) -> bool:
        used = self._used[graph]
        if found.declared != used.declared:
            return True
        broken = graph in self._app.reload_errors or graph in self._app.quarantined
        return broken and found.beside != used.beside

    def end(self) -> None:
        """Stop watching; a reload that has begun is finished first."""
        self._ended.set()
        if self.is_alive():
            self.join()


def _reload_all(app: App) -> None:
    for graph in app.settings.graphs:
        app.reload(graph)


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _handle_hangups(app: App) -> Callable[[], None]:
    """Reload on SIGHUP; the returned function stops that."""
    loop = asyncio.get_running_loop()
    attached = [_has_terminal()]
    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # as nohup does

    def hang_up() -> None:
        if attached[0] and not _has_terminal():
            attached[0] = False
            if not ignored:
                os.kill(os.getpid(), signal.SIGTERM)
        else:
            loop.run_in_executor(None, _reload_all, app)

    with suppress(RuntimeError, ValueError):  # only the main thread handles signals
        loop.add_signal_handler(signal.SIGHUP, hang_up)

    def stop() -> None:
        with suppress(RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGHUP)

    return stop


@asynccontextmanager
async def reloading(app: App) -> AsyncIterator[None]:
    """Reload declarations of a served app: on SIGHUP and, in development, when files change."""
    watch = FileWatch(app) if app.settings.project.env == "development" else None
    if watch is not None:
        watch.start()
    stop = _handle_hangups(app)
    try:
        yield
    finally:
        stop()
        if watch is not None:
            await asyncio.to_thread(watch.end)
