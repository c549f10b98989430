"""A merge that leaves rules between nodes to its write does what one planned in full does."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.campaigns import sized
from tests.engine.history.repo import Repo
from tests.engine.history.world import TYPES, World

from trails import App
from trails.engine.graph.graph import Graph
from trails.engine.history import merge as history_merge
from trails.engine.history import merge_plan
from trails.engine.history.merge import merge
from trails.engine.history.merge_plan import Merging
from trails.engine.upkeep.verify import verify
from trails.engine.write import edits
from trails.errors import TrailsError
from trails.model.history import MergeRequest, Resolution

TABLES = ("nodes", "keys", "rows", "row_keys", "hides", "lives", "past", "gone")


def rows_of(graph: Graph) -> dict[str, list[tuple[object, ...]]]:
    """Every row of the node index, when main is back on the root."""
    graph.nodes.settling.run()
    with graph.file.reader() as db:
        return {name: sorted(db.execute(f"SELECT * FROM {name}")) for name in TABLES}


def statements_of(graph: Graph, commit: str | None) -> tuple[list[bytes], list[bytes]]:
    """What a commit removed and added."""
    if commit is None:
        return [], []
    found = graph.ancestry.commit(commit)
    with graph.log.open_removed(found) as removed, graph.log.open_added(found) as added:
        return sorted(removed), sorted(added)


def merged(folder: Path, asked: list[MergeRequest]) -> list[object]:
    """What merges give, one after the other, and what they leave behind."""
    app = App(*TYPES, name="versions", folder=folder)
    try:
        graph, found = app.graph(), list[object]()
        graph.nodes.settling.run()
        for each in asked:
            heads = {name: head.commit for name, head in graph.log.branches().items()}
            try:
                result = merge(graph, each, actor="a")
            except TrailsError as error:
                found.append((type(error), error.message))
                continue
            commit = None if result.commit in heads.values() else result.commit
            found += [
                result.outcome,
                (result.created, result.updated, result.deleted),
                result.conflicts,
                result.suggested,
                result.unused,
                statements_of(graph, commit),
                rows_of(graph),
            ]
        problems = [each for each in verify(graph, lambda _: None) if each.severity != "ok"]
        assert not problems
        return found
    finally:
        app.close()


@pytest.fixture
def ways(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many merges were planned in full, and how many not; all begin without."""
    count = [0, 0]
    plain = Merging._is_plain

    def counted(self: Merging, *given: object) -> bool:
        found = plain(self, *given)  # type: ignore[arg-type]
        count[found] += 1
        return found

    monkeypatch.setattr(merge_plan, "_MANY", 0)
    monkeypatch.setattr(Merging, "_is_plain", counted)
    return count


def compare(tmp_path: Path, number: int, wanted: float) -> None:
    """Merge copies of one history in both ways."""
    world = World(tmp_path / "world", number)
    rng = world.rng
    asked: list[MergeRequest] = []
    try:
        for _ in range(6):
            world.write("main", 1)
        for name in ("b", "c"):
            world.create(name, "main")
        for _ in range(rng.randrange(3, 12)):
            world.write(rng.choice(["main", "b", "b", "c"]), 1)
        if rng.random() < wanted:  # two newest common commits
            world.merge(world.history.branches["main"], "b")
            world.merge(world.history.branches["b"], "main")
            world.write("b", 1)
            world.write("main", 1)
        for source, target in (("b", "main"), ("main", "c"), ("c", "main")):
            settles = rng.choice([None, None, "ours", "theirs"])
            given = {"divergent_field:Item/i9.rank": Resolution("ours")}
            asked.append(
                MergeRequest(
                    source,
                    target,
                    resolutions=given if rng.random() < wanted else {},
                    resolve_all=settles,
                )
            )
        world.app.close()
        copies = [tmp_path / "quick", tmp_path / "full"]
        for copy in copies:
            shutil.copytree(tmp_path / "world", copy)
        quick = merged(copies[0], asked)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Merging, "_is_plain", lambda *_: False)
            full = merged(copies[1], asked)
        assert quick == full
    finally:
        for each in tmp_path.iterdir():
            shutil.rmtree(each)


@settings(
    max_examples=sized(25, nightly=1500),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(number=st.integers(0, 2**32))
def test_both_ways_are_one(tmp_path: Path, ways: list[int], number: int) -> None:
    """The same conflicts, statements and rows, whatever was merged."""
    compare(tmp_path, number, 0.3)


@settings(
    max_examples=sized(15, nightly=1000),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)
@given(number=st.integers(0, 2**32))
def test_few_nodes_are_checked_before_the_write(tmp_path: Path, number: int) -> None:
    """What is left to the write of a small merge can't break a rule between nodes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(history_merge, "_UnkeptRuleError", None)  # to raise it is an error
        compare(tmp_path, number, 0.3)


def test_a_rule_that_is_broken_together(tmp_path: Path, ways: list[int]) -> None:
    """What the write refuses is planned again, and reported as conflicts."""
    repo = Repo(tmp_path)
    repo.put("main", "Item/i0", name="n")
    repo.branch("b")
    repo.put("main", "Item/i1", sku="s1")
    repo.put("b", "Item/i2", sku="s1")
    found = repo.merge("b")
    assert ways == [1, 1]
    assert [each.kind for each in found.conflicts] == ["uniqueness"]
    assert repo.get("main", "Item/i2") is None
    repo.sound()
    repo.app.close()


def test_a_node_that_was_never_valid(tmp_path: Path, ways: list[int]) -> None:
    """What was written without validation is a conflict, as it ever was."""
    repo = Repo(tmp_path)
    repo.put("main", "Item/i0", tags=["a"])
    repo.branch("b")
    repo.put("main", "Item/i1")
    repo.graph.allow_bypass = True
    names, tags = repo.graph.names, repo.graph.main.schema.by_name["Item"].by_name["tags"]
    subject = repo.graph.main.terms.subject("Item/i0")
    added = "".join(f'{subject} <{names.term(tags.iri)}> "{each}" .\n' for each in "bcd")
    repo.ctx("b").kg.raw_sparql(f"INSERT DATA {{ {added} }}", skip_validation=True)
    found = repo.merge("b")
    assert [each.kind for each in found.conflicts] == ["constraint"]
    assert ways == [1, 0]
    repo.app.close()


def test_rows_that_were_read_are_used_once_only(
    tmp_path: Path, ways: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write takes the rows of the plan, unless the index has moved or was read anew."""
    repo = Repo(tmp_path)
    repo.put("main", "Item/i0", name="n")
    repo.branch("b")
    repo.put("main", "Item/i1")
    repo.put("b", "Item/i0", rank=1)
    current = list[bool]()
    known = edits.KnownNodes.are_current

    def looked(self: edits.KnownNodes, index: object) -> bool:
        current.append(known(self, index))  # type: ignore[arg-type]
        return current[-1]

    monkeypatch.setattr(edits.KnownNodes, "are_current", looked)
    assert repo.merge("b").outcome == "merged"
    repo.put("b", "Item/i0", rank=2)
    write = Merging.run

    def refused(self: Merging) -> object:
        with repo.graph.writing():  # somebody's write that is rolled back
            repo.graph.file.begin()
            repo.graph.file.rollback()
        return write(self)

    monkeypatch.setattr(Merging, "run", refused)
    assert repo.merge("b").outcome == "merged"
    assert current == [True, False]
    repo.sound()
    repo.app.close()
