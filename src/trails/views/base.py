"""View: what a graph needs of anything that is computed from its log.

A graph holds a list of views and treats them alike. Each follows branches and snapshots (``Ref``)
along the commits of the log (``History``), and can be made again from it at any time. Readers see
a new head when ``follow`` or ``land`` has returned for every view; a view that does its work only
when it is asked returns from them at once.

Unless it says otherwise, a method is called with the writer's lock. ``ReadWriteLock`` lets a view
close, remove and replace its files while other threads read. Knows nothing of the engine.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Protocol, TypeVar

import msgspec

from trails.log.payloads import Payload
from trails.model.history import Commit, Head, Position
from trails.views.sums import StateSum


class Ref(Protocol):
    """A branch, or the graph as of one commit."""

    @property
    def name(self) -> str: ...
    @property
    def folder(self) -> Path | None:
        """Where views keep files that belong to it alone; None in memory."""

    @property
    def head(self) -> Head:
        """Where it is, as far as readers can see."""

    @property
    def fixed(self) -> bool:
        """Whether it is a snapshot, which never changes."""


class Step(msgspec.Struct, frozen=True):
    """What takes a view from one commit to the next one, or back."""

    position: Position
    """Where it leads."""
    removed: IO[bytes]
    """Statements (N-Quads) to remove; read them before those to add."""
    added: IO[bytes]
    count: int
    """How many statements that are."""


class History(Protocol):
    """What a view reads the log through."""

    def steps_between(self, start: str, end: str) -> Iterator[Step]:
        """The steps from one commit to another; the streams of one are closed by the next."""

    def step(self, commit: Commit, payload: Payload) -> AbstractContextManager[Step]:
        """The step that a commit is, whose statements are still at hand."""


class Readable(Protocol):
    """Files that can be read while others are replaced."""

    damaged: bool
    """Whether something unreadable was found."""
    whole: bool
    """Whether it is the graph as of its position, and not on the way there."""

    def reading(self) -> AbstractContextManager[None]:
        """Keep the files in place; needs no lock."""


class Sums(Protocol):
    """What the statements of each state in the log add up to."""

    def at(self, commit: str) -> StateSum:
        """The sum of the state at a commit."""


class Reference(msgspec.Struct):
    """What views are compared with."""

    sums: Sums
    folder: Path
    """For a fold of the log, where sums differ: views may use each other's."""
    nodes_proven: bool = False
    """Whether the node index has been found to be what the log says."""


class Comparison(msgspec.Struct, frozen=True):
    """What comparing a view with the log found."""

    compared: str
    """How much was compared, such as ``1,200 rows``."""
    problems: Sequence[str] = ()


R_contra = TypeVar("R_contra", bound=Ref, contravariant=True)


class View(Protocol[R_contra]):
    """One view of all branches and snapshots of a graph."""

    @property
    def name(self) -> str:
        """What it is called in reports."""

    @property
    def ready(self) -> bool:
        """Whether a branch can be followed by itself, without a call of ``check`` before."""

    def check(self) -> None:
        """Make it usable: rebuild what is damaged or belongs to another history."""

    def open(self) -> None:
        """Open what is left closed until it is first used: a server does not wait until then."""

    def names(self) -> Collection[str]:
        """The branches and snapshots for which it holds something that ``drop`` would remove."""

    def position(self, ref: R_contra) -> Position | None:
        """How far it has followed a branch; None where it has nothing of it. Needs no lock."""

    def follow(self, ref: R_contra, head: Head) -> None:
        """Bring a branch to a head, from wherever it is."""

    def fork(self, ref: R_contra, head: Head, source: R_contra | None) -> None:
        """Begin with a branch or snapshot, best from ``source``, whose state is near."""

    def forward(self, ref: R_contra, head: Head, source: R_contra) -> None:
        """Bring a branch to where another one is."""

    def land(self, commits: Sequence[tuple[R_contra, Commit, Payload]]) -> None:
        """Apply commits that were just appended to branches, in their order."""

    def drop(self, names: Sequence[str]) -> None:
        """Remove everything about branches and snapshots that are gone."""

    def rebuild(self, refs: Iterable[R_contra]) -> None:
        """Make it again from the log; ``refs`` opens the branches that may have files."""

    def verify(
        self, refs: Iterable[R_contra], reference: Reference, progress: Callable[[str], None]
    ) -> Comparison:
        """Compare it with the log.

        ``refs`` are the branches that a view may hold, at their heads. Called without the lock,
        which is to be held for moments only: others write meanwhile.
        """

    def size(self) -> int:
        """How many bytes of disk it takes; a file that several branches share counts once."""

    def is_open(self, ref: R_contra) -> bool:
        """Whether files in the folder of a branch or snapshot are open. Needs no lock."""

    def clean(self) -> int:
        """Remove what no branch or snapshot needs, and release the space; how many rows."""

    def compact(self) -> None:
        """Rewrite the files in the least space, however long it takes."""

    def close(self) -> None:
        """Let go of all files; no lock is held."""


class ReadWriteLock:
    """A lock that readers share. Both sides may be entered again by the thread that is in."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._readers = 0
        self._waiting = 0
        self._replacer: int | None = None
        self._mine = threading.local()

    @property
    def taken(self) -> bool:
        """Whether a thread reads at this moment."""
        return self._readers > 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Read: nothing is replaced meanwhile."""
        if self._inside():
            yield
            return
        with self._changed:
            # Replacing goes first, or a stream of readers would keep it out for ever.
            self._changed.wait_for(lambda: self._replacer is None and not self._waiting)
            self._readers += 1
        self._mine.reading = True
        try:
            yield
        finally:
            self._mine.reading = False
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Read, for as long as a call takes: it may end in another thread than it began in."""
        with self._changed:
            self._changed.wait_for(lambda: self._replacer is None and not self._waiting)
            self._readers += 1
        try:
            yield
        finally:
            with self._changed:
                self._readers -= 1
                self._changed.notify_all()

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Replace: no one reads meanwhile. Not to be entered by a thread that reads."""
        if self._replacer == threading.get_ident():
            yield
            return
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: self._replacer is None and not self._readers)
            finally:
                self._waiting -= 1
            self._replacer = threading.get_ident()
        try:
            yield
        finally:
            with self._changed:
                self._replacer = None
                self._changed.notify_all()

    def _inside(self) -> bool:
        return getattr(self._mine, "reading", False) or self._replacer == threading.get_ident()
