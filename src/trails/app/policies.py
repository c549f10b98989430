"""Access control of each graph: its policies, or the defaults if it has none.

A graph without policies is open as long as no credentials are required, and read-only from
then on. Policies, tokens and declarations may change while a graph is served:
``ReloadingAuthorizer`` checks for changes at most once a second, and keeps the last valid
policies if new ones are broken.
"""

from __future__ import annotations

import logging
import re
import stat
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from time import monotonic, time_ns
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from trails.app.settings import GraphSettings, Settings
from trails.errors import PolicyError
from trails.model.actors import Actor
from trails.model.capabilities import Action
from trails.model.decisions import (
    ALLOW_ALL,
    Explanation,
    Judge,
    PolicyCase,
    PolicyCheck,
    PolicyQuestion,
    PolicyResult,
    Resource,
)
from trails.policies.sources import PolicyFile
from trails.registry.registry import Registry

if TYPE_CHECKING:
    from trails.app.policy_inspection import PolicyInspector

SUFFIX: Final = ".cedar"
_ENTITY: Final = re.compile(r'\b(Type|Field)::"([^"]*)"')
_SETTLED: Final = 250_000_000
"""Nanoseconds without a change after which a file counts as complete."""
_LARGEST: Final = 4 << 20

Look = tuple[tuple[str, int, int, int], ...]
"""Name, inode, size and time of every file."""


class PolicyFiles(msgspec.Struct, frozen=True):
    """The ``*.cedar`` files of one folder in name order, without hidden ones."""

    folder: Path | None
    shown: str = ""
    """The folder as the settings name it."""

    def look(self) -> Look:
        """Return the state of the files without reading them; empty if there is no folder."""
        return () if self.folder is None else tuple(sorted(_look(self.folder)))

    def is_settled(self) -> bool:
        """Whether the last change is old enough that no file is half written."""
        if self.folder is None:
            return True
        try:
            times = [self.folder.stat().st_mtime_ns, *(each[3] for each in self.look())]
        except OSError:
            return True
        age = time_ns() - max(times)
        return not 0 <= age < _SETTLED

    def read(self) -> tuple[PolicyFile, ...]:
        """Read all files."""
        return tuple(self._read(name) for name, *_ in self.look())

    def _read(self, name: str) -> PolicyFile:
        path = Path(self.folder or "") / name
        shown = f"{self.shown}/{name}"
        try:
            if not path.is_file():
                raise PolicyError(f"{shown} is not a file; remove or rename it")
            if path.stat().st_size > _LARGEST:
                raise PolicyError(f"{shown} is larger than {_LARGEST >> 20} MiB; split it")
            return PolicyFile(shown, path.read_text(encoding="utf-8-sig"))
        except UnicodeDecodeError as error:
            raise PolicyError(
                f"{shown} is not UTF-8 text (byte {error.start}); save it as UTF-8"
            ) from None
        except OSError as error:
            raise PolicyError(
                f"{shown} can't be read: {error.strerror or error}; fix or remove it"
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
                yield name, 0, 0, 0  # it exists, and reading it will report the problem
            else:
                kind = stat.S_IFMT(found.st_mode)
                yield name, found.st_ino + kind, found.st_size, found.st_mtime_ns


Mode = Literal["open", "read only", "policies"]
Make = Callable[[Mode, tuple[PolicyFile, ...], Registry | None], Judge]

_PATIENCE: Final = 1.0
"""Seconds between two checks of the files."""
_logger: Final = logging.getLogger("trails")


def undeclared(graph: str) -> None:
    """Stands for a registry that was not read."""
    del graph


def unguarded() -> bool:
    """No credentials are required."""
    return False


class _State(msgspec.Struct, frozen=True):
    """What the last check found, and the resulting judge."""

    look: Look
    guarded: bool
    mode: Mode
    sources: tuple[PolicyFile, ...]
    registry: Registry | None
    judge: Judge


class ReloadingAuthorizer:
    """An authorizer that replaces its judge when policies or declarations change."""

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
        """The access mode now in force."""
        return self._look().mode

    @property
    def version(self) -> str:
        """Changes whenever an answer may change."""
        return self.current.version

    def allows(
        self, actor: Actor, action: Action, resource: Resource, branch: str = "", target: str = ""
    ) -> bool:
        return self.current.allows(actor, action, resource, branch, target)

    def allows_somewhere(
        self, actor: Actor, action: Action, resource: Resource, branches: Collection[str]
    ) -> bool:
        return self.current.allows_somewhere(actor, action, resource, branches)

    def alike(self, actor: Actor, branches: Collection[str]) -> Mapping[str, str]:
        return self.current.alike(actor, branches)

    @property
    def current(self) -> Judge:
        """Return the current judge; cheap unless something has changed."""
        state = self._state
        if monotonic() >= self._next_look:
            state = self._look()
        if not state.guarded and self._guarded():
            state = self._guard()
        if self._registry() is not state.registry:
            state = self._renew()
        return state.judge

    def refresh(self) -> None:
        """Follow files and declarations at once, not at the next check."""
        with self._lock:
            try:
                look = self._files.look()
                if look or self._state.mode != "policies":
                    self._state = self._read(look, self._guarded())
                    self._warned = ""
            except PolicyError as error:
                self._warn(f"the last good policies stay in force: {error.message}")
        self._renew()

    def _look(self) -> _State:
        """Check whether files or credentials have changed; one caller a second does."""
        if self._lock.acquire(blocking=False):
            try:
                self._next_look = monotonic() + _PATIENCE
                self._follow(self._files.look(), self._guarded())
            except PolicyError as error:
                self._warn(f"the last good policies stay in force: {error.message}")
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
            self._warn(
                "all policies were removed; the last ones stay in force until the next start"
            )
            self._state = msgspec.structs.replace(old, look=look, guarded=guarded)
            return
        try:
            self._state = self._read(look, guarded)
        except PolicyError:
            self._state = msgspec.structs.replace(old, look=look, guarded=guarded)
            raise
        self._warned = ""
        _logger.info(
            "%s: access changed: %s",
            self._name,
            self._state.mode,
            extra={"event": "access.changed"},
        )

    def _warn(self, text: str) -> None:
        """Log a warning, unless it repeats the last one."""
        if text != self._warned:
            self._warned = text
            _logger.warning("%s: %s", self._name, text, extra={"event": "policies.invalid"})

    def _read(self, look: Look, guarded: bool) -> _State:  # noqa: FBT001
        sources = self._files.read()
        mode = _mode(look, guarded=guarded)
        registry = self._registry()
        return _State(look, guarded, mode, sources, registry, self._make(mode, sources, registry))

    def _guard(self) -> _State:
        """The first credential was made: access changes at once, not at the next check."""
        with self._lock:
            old = self._state
            if not old.guarded:
                mode: Mode = "policies" if old.look else "read only"
                judge = self._make(mode, old.sources, old.registry)
                self._state = msgspec.structs.replace(old, guarded=True, mode=mode, judge=judge)
                _logger.info(
                    "%s: access changed: %s", self._name, mode, extra={"event": "access.changed"}
                )
            return self._state

    def _renew(self) -> _State:
        """Apply the same policies to new declarations."""
        with self._lock:
            old, registry = self._state, self._registry()
            if registry is not old.registry:
                try:
                    judge = self._make(old.mode, old.sources, registry)
                except PolicyError as error:
                    # The old judge denies what it does not know.
                    self._warn(f"with the current declarations: {error.message}")
                    judge = old.judge
                self._state = msgspec.structs.replace(old, registry=registry, judge=judge)
            return self._state


def _mode(look: Look, *, guarded: bool) -> Mode:
    return "policies" if look else "read only" if guarded else "open"


class ProjectPolicies:
    """The authorizers of a project."""

    def __init__(
        self,
        folder: Path | None,
        settings: Settings,
        registry: Callable[[str], Registry | None],
        guarded: Callable[[], bool] = unguarded,
    ) -> None:
        """``registry`` returns what a graph declares; None if that was not read."""
        self._folder = folder
        self._settings = settings
        self._registry = registry
        self._guarded = guarded
        self._judges: dict[str, ReloadingAuthorizer] = {}
        self._server: ReloadingAuthorizer | None = None

    def check(self, graph: str, registry: Registry) -> None:
        """Raise PolicyError if a graph's policies, as their files are now, don't fit a registry."""
        files = self._files(f"graph {graph!r}", self._settings.graphs[graph].policies)
        mode = _mode(files.look(), guarded=self._guarded())
        self._make(graph, mode, files.read(), registry)

    def judge(self, graph: str) -> ReloadingAuthorizer:
        """Return a graph's authorizer; raise PolicyError on first use if they are broken."""
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

    def check_new(self, graph: str, name: str, text: str) -> None:
        """Raise PolicyError unless a new file fits the policies of a graph and its types."""
        given = self._settings.graphs[graph].policies
        files = self._files(f"graph {graph!r}", given).read()
        added = PolicyFile(f"{given}/{name}", text)
        self._make(graph, "policies", (*files, added), self._registry(graph))

    def server(self) -> ReloadingAuthorizer:
        """Return the server's authorizer; raises PolicyError likewise."""
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
            raise PolicyError(f"{owner}: policies = {given!r} is not a folder")
        if given != GraphSettings().policies and not files.folder.is_dir():
            raise PolicyError(
                f"{owner}: policies = {given!r} does not exist; create the folder or fix the "
                "setting"
            )
        return files

    def _make(
        self, graph: str, mode: Mode, sources: tuple[PolicyFile, ...], registry: Registry | None
    ) -> Judge:
        if mode == "open":
            return ALLOW_ALL
        # Cedar is slow to import, and most projects don't need it.
        from trails.policies.judge import READ_ONLY, know_graph, know_server, make_judge  # noqa: PLC0415

        if registry is None:
            return make_judge((), know_server(()), "undeclared")  # unknown resources are denied
        texts = sources if mode == "policies" else (READ_ONLY,)
        known = know_graph(registry, graph, self._settings.graphs)
        return make_judge(texts, known, str(registry.version))

    def _make_server(
        self, mode: Mode, sources: tuple[PolicyFile, ...], registry: Registry | None
    ) -> Judge:
        del registry
        if mode == "open":
            return ALLOW_ALL
        from trails.policies.judge import know_server, make_judge  # noqa: PLC0415

        return make_judge(sources, know_server(self._settings.graphs), "")


class ServedPolicies:
    """The policies of one graph of an open project; satisfies ``PolicyAnswers``.

    Each question is answered from the files as they are now, with the declarations in use.
    """

    def __init__(self, folder: Path, graph: str, registry: Callable[[str], Registry]) -> None:
        self._folder = folder
        self._graph = graph
        self._registry = registry

    def _inspect(self) -> PolicyInspector:
        # Cedar is slow to import, and most servers are not asked about their policies.
        from trails.app.policy_inspection import PolicyInspector  # noqa: PLC0415

        return PolicyInspector(self._folder, self._registry)

    def check(self) -> PolicyCheck:
        return self._inspect().check_one(self._graph)

    def test(self, cases: Sequence[PolicyCase]) -> list[PolicyResult]:
        inspector = self._inspect()
        if cases:
            return inspector.try_cases(self._graph, cases)
        return inspector.test(self._graph, None)

    def explain(self, question: PolicyQuestion) -> Explanation:
        return self._inspect().explain(self._graph, question)

    def check_new(self, name: str, text: str) -> None:
        self._inspect().check_new(self._graph, name, text)

    def named(self) -> list[tuple[str, str]]:
        folder = self._inspect().policies_folder(self._graph)
        found = []
        for each in PolicyFiles(folder, folder.name).read():
            for match in _ENTITY.finditer(each.text):
                line = each.text.count("\n", 0, match.start()) + 1
                found.append((f"{each.name}:{line}", f"{match[1]}::{match[2]}"))
        return found
