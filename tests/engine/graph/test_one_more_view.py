"""A view is one class and one line: the graph needs no other change to keep one more."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from tests.engine.history.repo import Repo

from trails.engine.graph import open as opening
from trails.engine.graph.graph import Graph
from trails.engine.upkeep.doctor import examine
from trails.engine.upkeep.maintenance import cleanup, measure, optimize
from trails.engine.upkeep.verify import verify, verify_and_repair
from trails.errors import StorageError, StorageFullError
from trails.log.payloads import Payload
from trails.model.history import GENESIS, Commit, Head, Position
from trails.model.iris import RDF_TYPE
from trails.views.base import Comparison, History, Ref, Reference, Step, View


class TypeCounts:
    """How many nodes of each type a branch has; in memory, made again at each opening.

    A real one would keep files; the bytes that it reports are those of its counts.
    """

    name = "type counts"
    ready = True

    def __init__(
        self, history: History, writing: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._history = history
        self._writing = writing
        self.upkeep: list[str] = []
        self.counts: dict[str, Counter[str]] = {}
        self._positions: dict[str, Position] = {}
        self.refuses = False
        self.closed = False

    def of(self, branch: str) -> dict[str, int]:
        """The counts of a branch, without the base types."""
        wanted = ("Item", "Part", "Link")
        return {name: n for name, n in self.counts[branch].items() if n and name in wanted}

    def check(self) -> None:
        """Nothing can be damaged."""

    def open(self) -> None:
        """Nothing is left closed."""

    def names(self) -> Collection[str]:
        """All that were followed."""
        return list(self.counts)

    def position(self, ref: Ref) -> Position | None:
        """How far it is."""
        return self._positions.get(ref.name)

    def follow(self, ref: Ref, head: Head) -> None:
        """Apply, or undo, what lies between."""
        at = self._positions.get(ref.name, Position(0, GENESIS))
        for step in self._history.steps_between(at.commit, head.commit):
            self._apply(ref, step)
        self._positions[ref.name] = Position(head.seq, head.commit)
        self.counts.setdefault(ref.name, Counter())

    def fork(self, ref: Ref, head: Head, source: Ref | None) -> None:
        """Begin with the counts of the source."""
        if source is not None and source.name in self.counts:
            self.counts[ref.name] = Counter(self.counts[source.name])
            self._positions[ref.name] = self._positions[source.name]
        self.follow(ref, head)

    def forward(self, ref: Ref, head: Head, source: Ref) -> None:
        """As any other way to a head."""
        del source
        self.follow(ref, head)

    def land(self, commits: Sequence[tuple[Ref, Commit, Payload]]) -> None:
        """Count what writes did."""
        for ref, commit, payload in commits:
            with self._history.step(commit, payload) as step:
                self._apply(ref, step)

    def drop(self, names: Sequence[str]) -> None:
        """Forget branches."""
        for name in names:
            self.counts.pop(name, None)
            self._positions.pop(name, None)

    def rebuild(self, refs: Iterable[Ref]) -> None:
        """Count all of it again."""
        self.drop(list(self.counts))
        for ref in refs:
            self.follow(ref, ref.head)

    def verify(
        self, refs: Iterable[Ref], reference: Reference, progress: Callable[[str], None]
    ) -> Comparison:
        """Count again, from the first commit to where it is."""
        del reference
        problems: list[str] = []
        numbers = 0
        for ref in refs:
            with self._writing():
                at, held = self._positions[ref.name], Counter(self.counts[ref.name])
            fresh = TypeCounts(self._history, self._writing)
            fresh.follow(ref, Head(at.commit, at.seq, ""))
            progress(f"counted {ref.name}")
            numbers += len(held)
            if +held != +fresh.counts[ref.name]:
                problems.append(f"the counts of {ref.name} differ from the log")
        return Comparison(f"{numbers} counts", problems)

    def size(self) -> int:
        """Eight bytes for each count."""
        return 8 * sum(map(len, self.counts.values()))

    def is_open(self, ref: Ref) -> bool:
        """It has no files."""
        del ref
        return False

    def clean(self) -> int:
        """Forget types that have no nodes any more."""
        self.upkeep.append("clean")
        empty = [(each, name) for each in self.counts.values() for name in each if not each[name]]
        for counts, name in empty:
            del counts[name]
        return len(empty)

    def compact(self) -> None:
        """Nothing can be smaller."""
        self.upkeep.append("compact")

    def close(self) -> None:
        """Nothing is open."""
        self.closed = True

    def _apply(self, ref: Ref, step: Step) -> None:
        if self.refuses:
            raise StorageFullError("no room to count")
        counts = self.counts.setdefault(ref.name, Counter())
        for stream, change in ((step.removed, -1), (step.added, 1)):
            for line in stream:
                _, predicate, thing = line.decode().split(" ", 2)
                if predicate == f"<{RDF_TYPE}>":
                    counts[re.split("[/#]", thing.partition(">")[0])[-1]] += change
        self._positions[ref.name] = step.position


def make_type_counts(graph: Graph) -> TypeCounts:
    """A view of a graph."""
    return TypeCounts(graph.folding, graph.writing)


@pytest.fixture(params=["folder", "memory"])
def repo(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Repo]:
    """A graph whose type counts have to be what a count of its nodes gives."""
    monkeypatch.setattr(opening, "VIEWS", (*opening.VIEWS, make_type_counts))
    found = Repo(tmp_path if request.param == "folder" else None)
    found.put("main", "Item/a")
    found.put("main", "Item/b")
    yield found
    counted = counts_of(found)
    for name in ("main", *found.graph.log.branches()):
        assert (
            counted.position(found.graph.checkout(name))
            == found.graph.checkout(name).nodes.position
        )
        assert counted.of(name) == count_nodes(found, name)
    found.sound()
    found.app.close()
    assert counted.closed


def silent(text: str) -> None:
    """Ignore progress."""
    del text


def counts_of(repo: Repo) -> TypeCounts:
    """The additional view."""
    found = repo.graph.views[-1]
    assert isinstance(found, TypeCounts)
    view: View[Ref] = found  # mypy checks that it is one
    del view
    return found


def count_nodes(repo: Repo, branch: str) -> Counter[str]:
    """What it should have counted."""
    return Counter(handle.partition("/")[0] for handle in repo.state(branch))


def test_it_follows_writes(repo: Repo) -> None:
    """New nodes and deleted ones; a change of a field changes no count."""
    repo.put("main", "Item/a", rank=3)
    repo.link("main", "Item/a", "Item/b")
    repo.put("main", "Item/c")
    repo.drop("main", "Item/c")
    assert counts_of(repo).of("main") == {"Item": 2, "Link": 1}


def test_it_follows_branches_and_merges(repo: Repo) -> None:
    """Each has counts of its own; a merge brings them together, a fast-forward too."""
    repo.branch("side")
    repo.put("side", "Item/c")
    assert (counts_of(repo).of("main"), counts_of(repo).of("side")) == ({"Item": 2}, {"Item": 3})
    assert repo.merge("side").outcome == "fast_forward"
    assert counts_of(repo).of("main") == {"Item": 3}
    repo.put("main", "Item/d")
    repo.drop("side", "Item/a")
    repo.merge("side")
    assert counts_of(repo).of("main") == {"Item": 3}


def test_it_has_snapshots(repo: Repo) -> None:
    """The past is counted as well, by undoing what came since."""
    before = repo.head()
    repo.put("main", "Item/c")
    assert len(repo.at(before)) == 2
    assert counts_of(repo).of(f"@{before}") == {"Item": 2}


def test_it_drops_branches(repo: Repo) -> None:
    """A deleted branch is gone; another one of its name begins anew."""
    repo.branch("side")
    repo.put("side", "Item/c")
    repo.remove("side", force=True)
    assert "side" not in counts_of(repo).counts
    repo.branch("side")
    assert counts_of(repo).of("side") == {"Item": 2}


def test_it_is_rebuilt(repo: Repo) -> None:
    """With the others."""
    repo.branch("side")
    repo.put("side", "Item/c")
    counts_of(repo).counts["main"]["Item"] = 99
    repo.graph.rebuild()
    assert counts_of(repo).of("main") == {"Item": 2}


def test_it_is_verified_and_repaired(repo: Repo) -> None:
    """As the others are: what differs from the log is a problem of its own, on any branch."""
    repo.branch("side")
    repo.put("side", "Item/c")
    found = {each.name: each for each in verify(repo.graph, silent)}
    assert found["type counts"].severity == "ok"
    assert found["type counts"].detail.endswith(" counts, as the log says")
    counts_of(repo).counts["side"]["Item"] = 99
    found = {each.name: each for each in verify(repo.graph, silent) if each.severity == "problem"}
    assert list(found) == ["type counts"]
    assert found["type counts"].detail == "the counts of side differ from the log"
    assert found["type counts"].fix == "trails verify --repair"
    repaired = verify_and_repair(repo.graph, silent)
    assert all(each.severity == "ok" for each in repaired)
    assert counts_of(repo).of("side") == {"Item": 3}


def test_it_is_measured(repo: Repo) -> None:
    """Statistics have its bytes beside those of the others, and the doctor its position."""
    sizes = measure(repo.graph, repo.ctx()).bytes
    if repo.folder is None:
        assert sizes is None
    else:
        assert sizes is not None
        assert list(sizes) == ["log", "node_index", "quads_view", "text_index", "type_counts"]
        assert sizes["type_counts"] == counts_of(repo).size() > 0
    findings = {each.name: each for each in examine(repo.graph, None)}
    assert findings["type counts"].detail == f"at commit {repo.graph.main.head.seq}"


def test_it_is_cleaned_up(repo: Repo) -> None:
    """What it holds of snapshots goes with them; then it is asked to clean up and to compact."""
    before = repo.head()
    repo.link("main", "Item/a", "Item/b")
    assert len(repo.at(before)) == 2
    (edge,) = (handle for handle in repo.state() if handle.startswith("Link/"))
    repo.drop("main", edge)
    assert counts_of(repo).counts["main"]["Link"] == 0
    assert f"@{before}" in counts_of(repo).counts
    done = cleanup(repo.graph, keep=0)
    assert done.snapshots == (before,)
    assert f"@{before}" not in counts_of(repo).counts
    assert "Link" not in counts_of(repo).counts["main"]
    told: list[str] = []
    optimize(repo.graph, told.append)
    assert counts_of(repo).upkeep == ["clean", "compact"]
    assert told[-1] == "compacting the type counts"


def test_it_catches_up_when_it_refused_a_commit(repo: Repo) -> None:
    """The commit is safe; the view has it as soon as it can."""
    counts_of(repo).refuses = True
    with pytest.raises(StorageError, match="was written, but a view could not be updated"):
        repo.put("main", "Item/c")
    counts_of(repo).refuses = False
    repo.put("main", "Item/d")
    assert counts_of(repo).of("main") == {"Item": 4}


def test_it_follows_the_log_when_it_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A view that is new to a graph starts from the first commit."""
    repo = Repo(tmp_path)
    repo.put("main", "Item/a")
    repo.branch("side")
    repo.put("side", "Item/b")
    monkeypatch.setattr(opening, "VIEWS", (*opening.VIEWS, make_type_counts))
    repo.reopen()
    repo.graph.checkout("side")
    assert (counts_of(repo).of("main"), counts_of(repo).of("side")) == ({"Item": 1}, {"Item": 2})
    repo.app.close()
