"""Who decides on each graph of a project: its policies, or what holds where there are none.

A graph without policies is open as long as nobody has to show a credential, and read only
from then on. Policies, tokens and declarations may change while a graph is served; the judge
of a graph looks for that when it is asked, at most once a second.

A folder of policies: what it holds, and whether it has changed.
"""

from __future__ import annotations

import logging
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from time import monotonic, time_ns
from typing import Final, Literal

import msgspec

from trails.app.settings import GraphSettings, Settings
from trails.errors import PolicyError
from trails.model.actors import Actor
from trails.model.capabilities import Action
from trails.model.decisions import EVERYTHING, Judge, Resource
from trails.policies.sources import PolicyFile
from trails.registry.registry import Registry

SUFFIX: Final = ".cedar"
_SETTLED: Final = 250_000_000
"""Nanoseconds after which nobody is writing any more."""
_LARGEST: Final = 4 << 20

Look = tuple[tuple[str, int, int, int], ...]
"""Name, inode, size and time of every file."""


class PolicyFiles(msgspec.Struct, frozen=True):
    """The ``*.cedar`` files of one folder, in name order; those that begin with a dot are not."""

    folder: Path | None
    shown: str = ""
    """What the settings call the folder."""

    def look(self) -> Look:
        """What there is, without reading it; nothing where there is no folder."""
        return () if self.folder is None else tuple(sorted(_look(self.folder)))

    def is_settled(self) -> bool:
        """Whether the last change is a while ago, so that no file is half written."""
        if self.folder is None:
            return True
        try:
            times = [self.folder.stat().st_mtime_ns, *(each[3] for each in self.look())]
        except OSError:
            return True
        age = time_ns() - max(times)
        return not 0 <= age < _SETTLED

    def read(self) -> tuple[PolicyFile, ...]:
        """All of it."""
        return tuple(self._read(name) for name, *_ in self.look())

    def _read(self, name: str) -> PolicyFile:
        path = Path(self.folder or "") / name
        shown = f"{self.shown}/{name}"
        try:
            if not path.is_file():
                raise PolicyError(f"{shown} is not a file; rename it or make it one")
            if path.stat().st_size > _LARGEST:
                raise PolicyError(f"{shown} has more than {_LARGEST >> 20} MiB; split it")
            return PolicyFile(shown, path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise PolicyError(
                f"{shown} is not UTF-8 text (byte {error.start}); save it as such"
            ) from None
        except OSError as error:
            raise PolicyError(
                f"{shown} can't be read: {error.strerror or error}; correct that or remove it"
            ) from None


def _look(folder: Path) -> Iterator[tuple[str, int, int, int]]:
    try:
        paths = list(folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise PolicyError(
            f"the folder of policies {str(folder)!r} can't be read: {error.strerror or error}"
        ) from None
    for path in paths:
        name = path.name
        if name.endswith(SUFFIX) and not name.startswith("."):
            try:
                found = path.stat()
            except OSError:
                yield name, 0, 0, 0  # it is there, and reading it will say what is wrong
            else:
                kind = stat.S_IFMT(found.st_mode)
                yield name, found.st_ino + kind, found.st_size, found.st_mtime_ns


Mode = Literal["open", "read only", "policies"]
Make = Callable[[Mode, tuple[PolicyFile, ...], Registry | None], Judge]

_PATIENCE: Final = 1.0
"""Seconds between two looks at the files."""
_logger: Final = logging.getLogger("trails")


def undeclared(graph: str) -> None:
    """Nothing was read of what a graph declares."""
    del graph


def unguarded() -> bool:
    """Nobody has to show a credential."""
    return False


class _State(msgspec.Struct, frozen=True):
    """What was found at the last look, and who decides by that."""

    look: Look
    guarded: bool
    mode: Mode
    sources: tuple[PolicyFile, ...]
    registry: Registry | None
    judge: Judge


class ReloadingAuthorizer:
    """A judge that is replaced whenever what it decides by has changed."""

    def __init__(
        self,
        name: str,
        files: PolicyFiles,
        guarded: Callable[[], bool],
        registry: Callable[[], Registry | None],
        make: Make,
    ) -> None:
        """Read the policies; raises PolicyError."""
        self._name = name
        self._files = files
        self._guarded = guarded
        self._registry = registry
        self._make = make
        self._lock = threading.Lock()
        self._warned = ""
        self._state = self._read(files.look(), guarded())
        self._next_look = monotonic() + _PATIENCE

    @property
    def mode(self) -> Mode:
        """What holds now."""
        return self._look().mode

    @property
    def version(self) -> str:
        """Changes whenever an answer may."""
        return self.current.version

    def allows(
        self, actor: Actor, action: Action, resource: Resource, branch: str = "", target: str = ""
    ) -> bool:
        """As the current judge says."""
        return self.current.allows(actor, action, resource, branch, target)

    def allows_somewhere(
        self, actor: Actor, action: Action, resource: Resource, branches: Collection[str]
    ) -> bool:
        """As the current judge says."""
        return self.current.allows_somewhere(actor, action, resource, branches)

    def alike(self, actor: Actor, branches: Collection[str]) -> Mapping[str, str]:
        """As the current judge says."""
        return self.current.alike(actor, branches)

    @property
    def current(self) -> Judge:
        """Who decides now. Costs a comparison or two, unless something has changed."""
        state = self._state
        if monotonic() >= self._next_look:
            state = self._look()
        if self._registry() is not state.registry:
            state = self._renew()
        return state.judge

    def _look(self) -> _State:
        """See whether files or credentials have changed; one caller a second does."""
        if self._lock.acquire(blocking=False):
            try:
                self._next_look = monotonic() + _PATIENCE
                self._follow(self._files.look(), self._guarded())
            except PolicyError as error:
                self._warn(f"the last good policies stay: {error.message}")
            finally:
                self._lock.release()
        return self._state

    def _follow(self, look: Look, guarded: bool) -> None:  # noqa: FBT001
        old = self._state
        if (look, guarded) == (old.look, old.guarded):
            return
        if look != old.look and not self._files.is_settled():
            self._next_look = monotonic() + _PATIENCE / 4
            return
        if old.mode == "policies" and not look:
            self._warn("all policies are gone; the last ones stay until the next start")
            self._state = msgspec.structs.replace(old, look=look, guarded=guarded)
            return
        try:
            self._state = self._read(look, guarded)
        except PolicyError:
            self._state = msgspec.structs.replace(old, look=look, guarded=guarded)
            raise
        self._warned = ""
        _logger.info("%s: access follows: %s", self._name, self._state.mode)

    def _warn(self, text: str) -> None:
        """Log what was not logged just before."""
        if text != self._warned:
            self._warned = text
            _logger.warning("%s: %s", self._name, text)

    def _read(self, look: Look, guarded: bool) -> _State:  # noqa: FBT001
        sources = self._files.read()
        mode: Mode = "policies" if look else "read only" if guarded else "open"
        registry = self._registry()
        return _State(look, guarded, mode, sources, registry, self._make(mode, sources, registry))

    def _renew(self) -> _State:
        """The same policies about other declarations."""
        with self._lock:
            old, registry = self._state, self._registry()
            if registry is not old.registry:
                try:
                    judge = self._make(old.mode, old.sources, registry)
                except PolicyError as error:
                    # What is new is unknown to the old judge, and so denied.
                    self._warn(f"with what is declared now: {error.message}")
                    judge = old.judge
                self._state = msgspec.structs.replace(old, registry=registry, judge=judge)
            return self._state


class ProjectPolicies:
    """The judges of a project."""

    def __init__(
        self,
        folder: Path | None,
        settings: Settings,
        registry: Callable[[str], Registry | None],
        guarded: Callable[[], bool] = unguarded,
    ) -> None:
        """``registry`` gives what a graph declares; None if that was not read."""
        self._folder = folder
        self._settings = settings
        self._registry = registry
        self._guarded = guarded
        self._judges: dict[str, ReloadingAuthorizer] = {}
        self._server: ReloadingAuthorizer | None = None

    def judge(self, graph: str) -> ReloadingAuthorizer:
        """Who decides on a graph; raises PolicyError the first time, if its policies are wrong."""
        found = self._judges.get(graph)
        if found is None:
            found = self._judges[graph] = ReloadingAuthorizer(
                f"graph {graph!r}",
                self._files(f"graph {graph!r}", self._settings.graphs[graph].policies),
                self._guarded,
                lambda: self._registry(graph),
                lambda mode, sources, registry: self._make(graph, mode, sources, registry),
            )
        return found

    def server(self) -> ReloadingAuthorizer:
        """Who decides about the server itself; raises PolicyError as well."""
        if self._server is None:
            self._server = ReloadingAuthorizer(
                "[server]",
                self._files("[server]", self._settings.server.policies),
                self._is_closed,
                lambda: None,
                self._make_server,
            )
        return self._server

    def _is_closed(self) -> bool:
        """Whether any access control is configured."""
        if self._guarded():
            return True
        given = (each.policies for each in self._settings.graphs.values())
        return any(self._place(each).look() for each in given)

    def _place(self, given: str) -> PolicyFiles:
        if self._folder is None or not given:
            return PolicyFiles(None)
        return PolicyFiles(self._folder / given, given)

    def _files(self, owner: str, given: str) -> PolicyFiles:
        files = self._place(given)
        if files.folder is None:
            return files
        if files.folder.exists() and not files.folder.is_dir():
            raise PolicyError(f"{owner}: policies = {given!r} is not a folder; name one")
        if given != GraphSettings().policies and not files.folder.is_dir():
            raise PolicyError(
                f"{owner}: policies = {given!r} does not exist; make the folder, or correct the "
                "name: without policies others would decide"
            )
        return files

    def _make(
        self, graph: str, mode: Mode, sources: tuple[PolicyFile, ...], registry: Registry | None
    ) -> Judge:
        if mode == "open":
            return EVERYTHING
        # Cedar takes a while to import, and most projects never need it.
        from trails.policies.judge import READ_ONLY, know_graph, know_server, make_judge  # noqa: PLC0415

        if registry is None:
            return make_judge((), know_server(()), "undeclared")  # what is not known is denied
        texts = sources if mode == "policies" else (READ_ONLY,)
        known = know_graph(registry, graph, self._settings.graphs)
        return make_judge(texts, known, str(registry.version))

    def _make_server(
        self, mode: Mode, sources: tuple[PolicyFile, ...], registry: Registry | None
    ) -> Judge:
        del registry
        if mode == "open":
            return EVERYTHING
        from trails.policies.judge import know_server, make_judge  # noqa: PLC0415

        return make_judge(sources, know_server(self._settings.graphs), "")
