"""Merge by example: every outcome, every kind of conflict, every way to settle one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.engine.history.oracle import State
from tests.engine.history.repo import Repo

from trails.errors import ConflictError, NotFoundError, ValidationError
from trails.model.history import Conflict, MergeResult, Resolution


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[Repo]:
    """A graph in a folder, whose merges are planned without the writer's lock."""
    found = Repo(tmp_path)
    yield found
    found.sound()
    found.app.close()


@pytest.fixture
def forked(repo: Repo) -> Repo:
    """Some nodes on main, and branch b where main is."""
    repo.put("main", "Team/t0", title="red")
    repo.put("main", "Item/i0", name="n1", note="x", rank=1, tags=["a", "b"], team="Team/t0")
    repo.put("main", "Item/i1", name="n1")
    repo.branch("b")
    return repo


def only(result: MergeResult) -> Conflict:
    """The one conflict that there is."""
    assert result.outcome == "conflicts"
    assert len(result.conflicts) == 1, result.conflicts
    return result.conflicts[0]


def split(repo: Repo, field: str) -> tuple[str, State]:
    """Two branches that disagree on a field of Item/i0; main's head and state."""
    for team in ("t0", "t1", "t2"):
        repo.put("main", f"Team/{team}")
    repo.put("main", "Item/i1", sku="taken")
    repo.put("main", "Item/i0", name="a")
    repo.branch("b")
    values = {"rank": (1, 2), "team": ("Team/t0", "Team/t1"), "sku": ("s1", "s2")}
    mine, other = values.get(field, ("x", "y"))
    repo.put("main", "Item/i0", **{field: mine})
    repo.put("b", "Item/i0", **{field: other})
    return repo.head(), repo.state()


class TestOutcomes:
    def test_nothing_to_do(self, forked: Repo) -> None:
        """What is behind the target already is up to date."""
        head = forked.put("main", "Item/i0", rank=2)
        result = forked.merge("b")
        assert (result.outcome, result.commit) == ("already_up_to_date", head)

    def test_fast_forward(self, forked: Repo) -> None:
        """A target that the source grew out of is moved, without a commit."""
        last = forked.graph.log.last_seq()
        head = forked.put("b", "Item/i0", rank=2)
        result = forked.merge("b")
        assert (result.outcome, result.commit) == ("fast_forward", head)
        assert forked.head() == forked.head("b") == head
        assert forked.graph.log.last_seq() == last + 1
        assert forked.get("main", "Item/i0")["rank"] == 2
        assert forked.merge("main", "b").outcome == "already_up_to_date"

    @pytest.mark.parametrize("dry_run", [True, False])
    def test_a_fast_forward_counts_what_it_brings(self, forked: Repo, *, dry_run: bool) -> None:
        """Net, as any other merge counts: what was made and deleted again is not there."""
        forked.put("b", "Item/i0", rank=2)
        forked.put("b", "Item/i0", rank=3)
        forked.put("b", "Item/i7")
        forked.put("b", "Item/i8")
        forked.drop("b", "Item/i8")
        forked.drop("b", "Item/i1")
        result = forked.merge("b", dry_run=dry_run)
        assert (result.created, result.updated, result.deleted) == (1, 1, 1)

    def test_main_is_written_after_a_fast_forward(self, forked: Repo) -> None:
        """Main and the branch go on apart from the commit that they share."""
        forked.put("b", "Item/i0", rank=2)
        forked.merge("b")
        forked.put("main", "Item/i1", note="main")
        forked.put("b", "Item/i1", rank=9)
        assert forked.get("main", "Item/i1") == {"code": "i1", "name": "n1", "note": "main"}
        assert forked.get("b", "Item/i1") == {"code": "i1", "name": "n1", "rank": 9}
        assert forked.merge("b").outcome == "merged"
        assert forked.get("main", "Item/i1")["rank"] == 9

    def test_merged(self, forked: Repo) -> None:
        """Different fields of one node meet in a commit with two parents."""
        ours, theirs = forked.put("main", "Item/i0", rank=2), forked.put("b", "Item/i0", note="y")
        forked.put("b", "Item/i2", name="new")
        theirs = forked.drop("b", "Item/i1")
        result = forked.merge("b")
        assert (result.outcome, result.created, result.updated, result.deleted) == (
            "merged",
            1,
            1,
            1,
        )
        commit = forked.graph.log.commit(result.commit or "")
        assert commit is not None
        assert commit.parents == (ours, theirs)
        assert commit.message == "merge b into main"
        assert commit.actor == "a"
        node = forked.get("main", "Item/i0")
        assert (node["rank"], node["note"]) == (2, "y")
        assert forked.get("main", "Item/i1") is None
        assert forked.get("main", "Item/i2") is not None

    def test_a_merge_without_effect_is_still_remembered(self, forked: Repo) -> None:
        """Both sides did the same: the commit changes nothing, and the next merge has no work."""
        forked.put("main", "Item/i0", rank=7)
        forked.put("b", "Item/i0", rank=7)
        result = forked.merge("b")
        assert (result.outcome, result.created, result.updated, result.deleted) == (
            "merged",
            0,
            0,
            0,
        )
        assert forked.merge("b").outcome == "already_up_to_date"
        assert forked.merge("main", "b").outcome == "fast_forward"

    def test_a_commit_can_be_merged(self, forked: Repo) -> None:
        """Only what lies behind the commit comes along, also by the beginning of its id."""
        first = forked.put("b", "Item/i0", note="y")
        forked.put("b", "Item/i0", rank=5)
        forked.put("main", "Item/i1", note="z")
        assert forked.merge(first[:12]).outcome == "merged"
        node = forked.get("main", "Item/i0")
        assert (node["note"], node["rank"]) == ("y", 1)

    def test_unknown_names(self, forked: Repo) -> None:
        """The nearest name is suggested."""
        with pytest.raises(NotFoundError, match="no branch or commit 'bb'"):
            forked.merge("bb")
        with pytest.raises(NotFoundError, match="no branch 'mian'; did you mean 'main'"):
            forked.merge("b", "mian")

    def test_a_branch_merged_into_itself(self, forked: Repo) -> None:
        """There is nothing to do."""
        assert forked.merge("b", "b").outcome == "already_up_to_date"


class TestConflicts:
    def test_divergent_field(self, forked: Repo) -> None:
        """Both sides changed one field to different values."""
        mine = forked.put("main", "Item/i0", rank=2)
        other = forked.put("b", "Item/i0", rank=3)
        found = only(forked.merge("b"))
        assert found.id == "divergent_field:Item/i0.rank"
        assert (found.kind, found.handle, found.field) == ("divergent_field", "Item/i0", "rank")
        assert (found.base, found.ours, found.theirs) == (1, 2, 3)
        assert (found.ours_commits, found.theirs_commits) == ((mine,), (other,))
        for word in ("Item/i0.rank", "2", "3", "it was 1", "resolve with"):
            assert word in found.message

    @pytest.mark.parametrize(
        ("take", "rank"),
        [("ours", 2), ("theirs", 3), (Resolution("value", 4), 4), (Resolution("value"), None)],
        ids=["ours", "theirs", "value", "no value"],
    )
    def test_divergent_field_settled(
        self, forked: Repo, take: Resolution | str, rank: int | None
    ) -> None:
        """Either side's value, another one, or none."""
        forked.put("main", "Item/i0", rank=2)
        forked.put("b", "Item/i0", rank=3)
        result = forked.merge("b", take={"divergent_field:Item/i0.rank": take})
        assert result.outcome == "merged"
        assert forked.get("main", "Item/i0").get("rank") == rank

    def test_divergent_reference(self, forked: Repo) -> None:
        """References are shown as IRIs, and a value may be given as one."""
        forked.put("main", "Team/t1")
        forked.put("main", "Team/t2")
        forked.merge("main", "b")
        forked.put("main", "Item/i0", team="Team/t1")
        forked.put("b", "Item/i0", team="Team/t2")
        found = only(forked.merge("b"))
        iri = forked.ctx().kg.iri
        assert (found.base, found.ours, found.theirs) == (
            iri("Team/t0"),
            iri("Team/t1"),
            iri("Team/t2"),
        )
        chosen = Resolution("value", iri("Team/t0"))
        assert forked.merge("b", take={found.id: chosen}).outcome == "merged"
        assert forked.get("main", "Item/i0")["team"] == "Team/t0"

    def test_a_value_against_no_value(self, forked: Repo) -> None:
        """Emptying a field is a change like any other."""
        forked.put("main", "Item/i0", note=None)
        forked.put("b", "Item/i0", note="z")
        found = only(forked.merge("b"))
        assert (found.base, found.ours, found.theirs) == ("x", None, "z")
        assert forked.merge("b", take={found.id: "ours"}).outcome == "merged"
        assert "note" not in forked.get("main", "Item/i0")

    def test_divergent_insert(self, forked: Repo) -> None:
        """The same key with different values is a conflict; what one side left out is taken."""
        mine = forked.put("main", "Item/i2", name="a", rank=1, tags=["a"])
        other = forked.put("b", "Item/i2", name="b", rank=1, note="y", tags=["b"])
        name = only(forked.merge("b"))
        assert (name.kind, name.field) == ("divergent_insert", "name")
        assert (name.base, name.ours, name.theirs) == (None, "a", "b")
        assert (name.ours_commits, name.theirs_commits) == ((mine,), (other,))
        assert "made it with 'a'" in name.message
        settled = forked.merge("b", take={name.id: Resolution("value", "c")})
        assert settled.outcome == "merged"
        assert forked.get("main", "Item/i2") == {
            "code": "i2",
            "name": "c",
            "rank": 1,
            "note": "y",
            "tags": frozenset({"a", "b"}),
        }

    def test_the_same_insert_twice_is_none(self, forked: Repo) -> None:
        """Equal nodes are one node."""
        forked.put("main", "Item/i2", name="a", tags=["a"])
        forked.put("b", "Item/i2", name="a", tags=["a"])
        assert forked.merge("b").outcome == "merged"

    @pytest.mark.parametrize("ours_deletes", [True, False])
    @pytest.mark.parametrize("take", ["ours", "theirs"])
    def test_delete_against_update(self, forked: Repo, ours_deletes: bool, take: str) -> None:
        """One side deleted what the other changed; each side's node is shown, and can be taken."""
        deleting, updating = ("main", "b") if ours_deletes else ("b", "main")
        gone = forked.drop(deleting, "Item/i0")
        changed = forked.put(updating, "Item/i0", rank=5)
        found = only(forked.merge("b"))
        assert (found.id, found.field) == ("delete_update:Item/i0", "")
        there = found.theirs if ours_deletes else found.ours
        assert (found.ours if ours_deletes else found.theirs) is None
        assert there == {
            "code": "i0",
            "name": "n1",
            "note": "x",
            "rank": 5,
            "tags": ["a", "b"],
            "team": forked.ctx().kg.iri("Team/t0"),
        }
        commits = (gone,), (changed,)
        assert (found.ours_commits, found.theirs_commits) == (
            commits if ours_deletes else commits[::-1]
        )
        who = "ours deleted it" if ours_deletes else "theirs deleted it"
        assert who in found.message
        with pytest.raises(ConflictError, match="can't be settled by a value"):
            forked.merge("b", take={found.id: Resolution("value", 1)})
        assert forked.merge("b", take={found.id: take}).outcome == "merged"
        stays = (take == "theirs") == ours_deletes
        assert (forked.get("main", "Item/i0") is not None) == stays

    def test_delete_against_a_set(self, forked: Repo) -> None:
        """A member more is an update too."""
        forked.drop("main", "Item/i0")
        forked.put("b", "Item/i0", tags=["a"])
        assert only(forked.merge("b")).kind == "delete_update"

    @pytest.mark.parametrize("ours_deletes", [True, False])
    def test_dangling_reference(self, forked: Repo, ours_deletes: bool) -> None:
        """One side refers to what the other deleted."""
        forked.put("main", "Item/i2")
        forked.merge("main", "b")
        deleting, using = ("main", "b") if ours_deletes else ("b", "main")
        gone = forked.drop(deleting, "Item/i2")
        used = forked.put(using, "Item/i0", peers=["Item/i2"])
        found = only(forked.merge("b"))
        assert (found.kind, found.handle, found.field) == ("dangling_reference", "Item/i0", "peers")
        assert "Item/i2" in found.message
        causes = (gone,), (used,)
        ours, theirs = causes if ours_deletes else causes[::-1]
        assert (found.ours_commits, found.theirs_commits) == (ours, theirs)
        for take, state in (("ours", forked.state("main")), ("theirs", forked.state("b"))):
            tried = forked.merge("b", take={found.id: take}, dry_run=True)
            assert tried.outcome == "merged", (take, state)
        assert forked.merge("b", take={found.id: "theirs"}).outcome == "merged"
        assert ("Item/i2" in forked.state()) == ours_deletes

    def test_dangling_reference_settled_with_a_value(self, forked: Repo) -> None:
        """The reference may be replaced."""
        forked.put("main", "Team/t1")
        forked.merge("main", "b")
        forked.drop("main", "Team/t1")
        forked.put("b", "Item/i1", team="Team/t1")
        found = only(forked.merge("b"))
        chosen = Resolution("value", "Team/t0")
        assert forked.merge("b", take={found.id: chosen}).outcome == "merged"
        assert forked.get("main", "Item/i1")["team"] == "Team/t0"

    def test_an_edge_at_a_deleted_node(self, forked: Repo) -> None:
        """An edge refers to its ends."""
        handle = forked.link("b", "Item/i0", "Item/i1", weight=1)
        forked.drop("main", "Item/i1")
        found = only(forked.merge("b"))
        assert (found.kind, found.handle, found.field) == ("dangling_reference", handle, "target")
        assert forked.merge("b", take={found.id: "ours"}).outcome == "merged"
        assert handle not in forked.state()

    def test_uniqueness(self, forked: Repo) -> None:
        """Each side gave the same value to another node."""
        mine = forked.put("main", "Item/i0", sku="s1")
        other = forked.put("b", "Item/i1", sku="s1")
        found = only(forked.merge("b"))
        assert found.id == "uniqueness:Item/i0+Item/i1.sku"
        assert (found.kind, found.handle, found.field) == ("uniqueness", "Item/i0", "sku")
        assert (found.base, found.ours, found.theirs) == (None, "s1", None)
        assert (found.ours_commits, found.theirs_commits) == ((mine,), (other,))
        assert "sku must be unique: 's1' is shared by Item/i0, Item/i1" in found.message

    @pytest.mark.parametrize(
        ("take", "skus"),
        [
            ("ours", ("s1", None)),
            ("theirs", (None, "s1")),
            (Resolution("value", "s2"), ("s2", "s1")),
            (Resolution("value"), (None, "s1")),
        ],
        ids=["ours", "theirs", "value", "no value"],
    )
    def test_uniqueness_settled(
        self, forked: Repo, take: Resolution | str, skus: tuple[str | None, str | None]
    ) -> None:
        """Both nodes as on one side, or another value for the first."""
        forked.put("main", "Item/i0", sku="s1")
        forked.put("b", "Item/i1", sku="s1")
        result = forked.merge("b", take={"uniqueness:Item/i0+Item/i1.sku": take})
        assert result.outcome == "merged"
        state = forked.state()
        assert (state["Item/i0"].get("sku"), state["Item/i1"].get("sku")) == skus

    def test_a_resolution_that_mends_nothing_leaves_the_conflict(self, forked: Repo) -> None:
        """The value that is the trouble is no way out; the conflict is listed again."""
        forked.put("main", "Item/i0", sku="s1")
        forked.put("b", "Item/i1", sku="s1")
        name, before = "uniqueness:Item/i0+Item/i1.sku", forked.state()
        result = forked.merge("b", take={name: Resolution("value", "s1")})
        assert [found.id for found in result.conflicts] == [name]
        assert forked.state() == before

    def test_uniqueness_holds_for_subtypes(self, forked: Repo) -> None:
        """A part may not have the value of an item."""
        forked.put("main", "Item/i0", sku="s1")
        forked.put("b", "Part/p0", sku="s1", volts=12)
        assert only(forked.merge("b")).kind == "uniqueness"

    def test_a_value_that_moved_is_no_conflict(self, forked: Repo) -> None:
        """A unique value may go from one node to another on one side."""
        forked.put("b", "Item/i0", sku="s1")
        forked.merge("b")
        forked.put("b", "Item/i0", sku=None)
        forked.put("b", "Item/i1", sku="s1")
        forked.put("main", "Item/i1", note="y")
        assert forked.merge("b").outcome == "merged"

    def test_constraint(self, forked: Repo) -> None:
        """Members that each side added are too many together."""
        mine = forked.put("main", "Item/i0", tags=["a", "b", "c"])
        other = forked.put("b", "Item/i0", tags=["a", "b", "d"])
        found = only(forked.merge("b"))
        assert (found.kind, found.handle, found.field) == ("constraint", "Item/i0", "tags")
        assert found.id.startswith("constraint:Item/i0.tags:")
        assert (found.ours, found.theirs) == (["a", "b", "c"], ["a", "b", "d"])
        assert (found.ours_commits, found.theirs_commits) == ((mine,), (other,))

    @pytest.mark.parametrize(
        ("take", "tags"),
        [("ours", "abc"), ("theirs", "abd"), (Resolution("value", ["z"]), "z")],
        ids=["ours", "theirs", "value"],
    )
    def test_constraint_settled(self, forked: Repo, take: Resolution | str, tags: str) -> None:
        """Either side's members, or others."""
        forked.put("main", "Item/i0", tags=["a", "b", "c"])
        forked.put("b", "Item/i0", tags=["a", "b", "d"])
        found = only(forked.merge("b"))
        assert forked.merge("b", take={found.id: take}).outcome == "merged"
        assert forked.get("main", "Item/i0")["tags"] == frozenset(tags)

    def test_the_base_of_a_broken_set_is_shown(self, forked: Repo) -> None:
        """A conflict about a set tells its members in the common state."""
        forked.put("main", "Item/i0", tags=["a", "b", "c"])
        forked.put("b", "Item/i0", tags=["a", "b", "d"])
        assert only(forked.merge("b")).base == ["a", "b"]

    def test_all_are_listed(self, forked: Repo) -> None:
        """Conflicts of every kind come at once."""
        forked.put("main", "Item/i2")
        forked.merge("main", "b")
        for branch, sign in (("main", 1), ("b", 2)):
            forked.put(branch, "Item/i0", rank=sign + 10)
            forked.put(branch, "Item/new", name=f"n{sign}")
            forked.put(branch, f"Item/u{sign}", sku="s1")
            forked.put(branch, "Part/p0", tags=["a", f"{sign}b", f"{sign}c"])
        forked.drop("main", "Item/i1")
        forked.put("b", "Item/i1", note="q")
        forked.drop("main", "Item/i2")
        forked.put("b", "Part/p1", peers=["Item/i2"])
        result = forked.merge("b")
        assert sorted(each.kind for each in result.conflicts) == [
            "constraint",
            "dangling_reference",
            "delete_update",
            "divergent_field",
            "divergent_insert",
            "uniqueness",
        ]
        assert len({each.id for each in result.conflicts}) == 6
        assert all(each.ours_commits or each.theirs_commits for each in result.conflicts)
        settled = forked.merge("b", take={each.id: "ours" for each in result.conflicts})
        assert settled.outcome == "merged"

    def test_causes_are_the_commits_that_touched_the_field(self, forked: Repo) -> None:
        """Commits that changed something else are not blamed."""
        first = forked.put("main", "Item/i0", rank=2)
        forked.put("main", "Item/i0", note="y")
        second = forked.put("main", "Item/i0", rank=3)
        other = forked.put("b", "Item/i0", rank=4)
        found = only(forked.merge("b"))
        assert (found.ours_commits, found.theirs_commits) == ((first, second), (other,))


class TestResolutions:
    def test_some_are_not_enough(self, forked: Repo) -> None:
        """What is left is listed again, and nothing is written."""
        for branch, rank in (("main", 2), ("b", 3)):
            forked.put(branch, "Item/i0", rank=rank, note=branch)
        head = forked.head()
        result = forked.merge("b", take={"divergent_field:Item/i0.rank": "theirs"})
        assert only(result).field == "note"
        assert forked.head() == head

    def test_one_of_no_conflict_is_reported(self, forked: Repo) -> None:
        """What settles another conflict may dissolve one, so it is no error; nonsense is."""
        forked.put("main", "Item/i0", rank=2)
        forked.put("b", "Item/i0", note="y")
        head = forked.head()
        with pytest.raises(NotFoundError, match="'Item/i9' is not the id of a conflict"):
            forked.merge("b", take={"Item/i9": "ours"})
        assert forked.head() == head
        unused = "divergent_field:Item/i9.rank"
        result = forked.merge("b", take={unused: "ours"})
        assert (result.outcome, result.unused) == ("merged", (unused,))

    @pytest.mark.req("T21b")
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("rank", "many"),
            ("rank", [1]),
            ("rank", 2**70),
            ("rank", {"a": 1}),
            ("name", None),
            ("name", 7),
            ("team", 3),
        ],
    )
    def test_an_invalid_value_is_refused(self, repo: Repo, field: str, value: object) -> None:
        """A value that a write of the node would refuse fails the merge the same way."""
        head, state = split(repo, field)
        chosen = Resolution("value", value)
        with pytest.raises(ValidationError, match=field):
            repo.merge("b", take={f"divergent_field:Item/i0.{field}": chosen})
        assert repo.head() == head
        assert repo.state() == state

    @pytest.mark.req("T21b")
    @pytest.mark.parametrize(
        ("field", "value", "kind"),
        [
            ("team", "Team/none", "dangling_reference"),
            ("team", "Item/i1", "dangling_reference"),
            ("sku", "taken", "uniqueness"),
        ],
    )
    def test_a_value_that_breaks_a_rule_is_a_conflict(
        self, repo: Repo, field: str, value: object, kind: str
    ) -> None:
        """What another node forbids is listed, and nothing is written."""
        head, state = split(repo, field)
        chosen = Resolution("value", value)
        found = only(repo.merge("b", take={f"divergent_field:Item/i0.{field}": chosen}))
        assert found.kind == kind
        assert repo.head() == head
        assert repo.state() == state

    def test_a_settled_conflict_may_bring_another(self, forked: Repo) -> None:
        """Taking their value breaks uniqueness, which has an id of its own."""
        forked.put("main", "Item/i1", sku="s1")
        forked.put("main", "Item/i0", sku="s2")
        forked.put("b", "Item/i0", sku="s1")
        first = only(forked.merge("b"))
        second = only(forked.merge("b", take={first.id: "theirs"}))
        assert second.kind == "uniqueness"
        both = {first.id: Resolution("theirs"), second.id: Resolution("value", "s3")}
        assert forked.merge("b", take=dict(both)).outcome == "merged"


class TestNothingWritten:
    @pytest.mark.parametrize("dry_run", [True, False])
    def test_conflicts_leave_no_trace(self, forked: Repo, dry_run: bool) -> None:
        """Neither log nor views change, and the graph can be written at once."""
        forked.put("main", "Item/i0", rank=2)
        forked.put("b", "Item/i0", rank=3)
        forked.put("b", "Item/i2")
        before = forked.head(), forked.graph.log.last_seq(), forked.state(), forked.state("b")
        rows = list(forked.graph.main.nodes.dump())
        assert forked.merge("b", dry_run=dry_run).outcome == "conflicts"
        after = forked.head(), forked.graph.log.last_seq(), forked.state(), forked.state("b")
        assert after == before
        assert list(forked.graph.main.nodes.dump()) == rows
        forked.sound()
        forked.put("main", "Item/i1", note="z")

    def test_a_dry_run_says_what_would_be(self, forked: Repo) -> None:
        """Every outcome can be asked for without bringing it about."""
        assert forked.merge("b", dry_run=True).outcome == "already_up_to_date"
        theirs = forked.put("b", "Item/i0", rank=3)
        ahead = forked.merge("b", dry_run=True)
        assert (ahead.outcome, ahead.commit, ahead.dry_run) == ("fast_forward", theirs, True)
        forked.put("main", "Item/i2")
        head, rows = forked.head(), list(forked.graph.main.nodes.dump())
        result = forked.merge("b", dry_run=True)
        assert (result.outcome, result.commit, result.updated) == ("merged", None, 1)
        assert forked.head() == head
        assert list(forked.graph.main.nodes.dump()) == rows
        assert forked.merge("b").updated == 1


class TestHistories:
    def test_criss_cross(self, forked: Repo) -> None:
        """Both merged the other's old head: two bases, no conflict out of thin air."""
        one, two = forked.put("main", "Item/i0", rank=2), forked.put("b", "Item/i0", note="y")
        forked.merge(two, "main")
        forked.merge(one, "b")
        forked.put("main", "Item/i0", rank=5)
        forked.put("b", "Item/i1", note="b")
        result = forked.merge("b")
        assert result.outcome == "merged"
        assert set(result.bases) == {one, two}
        node = forked.get("main", "Item/i0")
        assert (node["rank"], node["note"]) == (5, "y")

    def test_criss_cross_settled_differently(self, forked: Repo) -> None:
        """Bases that conflict have no common value: any difference is a conflict again."""
        one, two = forked.put("main", "Item/i0", rank=2), forked.put("b", "Item/i0", rank=3)
        conflict = "divergent_field:Item/i0.rank"
        forked.merge(two, "main", take={conflict: "ours"})
        forked.merge(one, "b", take={conflict: "ours"})
        found = only(forked.merge("b"))
        assert (found.base, found.ours, found.theirs) == (None, 2, 3)
        assert forked.merge("b", take={found.id: "theirs"}).outcome == "merged"
        assert forked.merge("main", "b").outcome == "fast_forward"

    def test_criss_cross_settled_alike(self, forked: Repo) -> None:
        """Both sides chose the same value."""
        one, two = forked.put("main", "Item/i0", rank=2), forked.put("b", "Item/i0", rank=3)
        conflict = "divergent_field:Item/i0.rank"
        forked.merge(two, "main", take={conflict: "ours"})
        forked.merge(one, "b", take={conflict: "theirs"})
        assert forked.merge("b").outcome == "merged"
        assert forked.get("main", "Item/i0")["rank"] == 2

    @pytest.mark.parametrize("deleting", ["main", "b"])
    @pytest.mark.parametrize("target", ["main", "b"])
    def test_a_torn_field_of_a_deleted_node(self, forked: Repo, target: str, deleting: str) -> None:
        """Deleting a node whose bases conflict is a conflict, seen from either side."""
        one, two = forked.put("main", "Item/i1", rank=2), forked.put("b", "Item/i1", rank=3)
        conflict = "divergent_field:Item/i1.rank"
        forked.merge(two, "main", take={conflict: "ours"})
        forked.merge(one, "b", take={conflict: "ours"})
        forked.drop(deleting, "Item/i1")
        source = "b" if target == "main" else "main"
        assert only(forked.merge(source, target)).kind == "delete_update"

    @pytest.mark.parametrize("target", ["main", "b"])
    def test_a_node_that_bases_deleted_and_changed(self, forked: Repo, target: str) -> None:
        """Both sides kept it in their way: what differs is a conflict, seen from either side."""
        one, two = forked.drop("main", "Item/i1"), forked.put("b", "Item/i1", rank=3)
        forked.merge(two, "main", take={"delete_update:Item/i1": "theirs"})
        forked.merge(one, "b", take={"delete_update:Item/i1": "ours"})
        forked.put("main", "Item/i1", note="y", tags=["a"])
        forked.put("b", "Item/i1", tags=["b"])
        source = "b" if target == "main" else "main"
        found = only(forked.merge(source, target))
        assert (found.kind, found.field, found.base) == ("divergent_field", "note", None)
        assert forked.merge(source, target, take={found.id: "ours"}).outcome == "merged"
        assert forked.get(target, "Item/i1")["tags"] == frozenset({"a", "b"})

    @pytest.mark.parametrize("target", ["main", "b"])
    def test_a_set_of_a_node_that_bases_deleted_and_changed(
        self, forked: Repo, target: str
    ) -> None:
        """Members that either side still has stay: there is no common set to compare with."""
        one, two = forked.drop("main", "Item/i0"), forked.put("b", "Item/i0", rank=3)
        forked.merge(two, "main", take={"delete_update:Item/i0": "theirs"})
        forked.merge(one, "b", take={"delete_update:Item/i0": "ours"})
        forked.put("main", "Item/i0", tags=["a"])
        assert forked.merge("b" if target == "main" else "main", target).outcome == "merged"
        assert forked.get(target, "Item/i0")["tags"] == frozenset({"a", "b"})

    def test_a_revert_after_a_criss_cross_is_kept(self, forked: Repo) -> None:
        """A value that goes back to what one base had is a change of the common one."""
        one, two = forked.put("main", "Item/i1", rank=2), forked.put("b", "Item/i0", note="y")
        forked.merge(two, "main")
        forked.merge(one, "b")
        forked.put("b", "Item/i0", note="x")
        forked.put("main", "Item/i1", name="m")
        assert forked.merge("b").outcome == "merged"
        assert forked.get("main", "Item/i0")["note"] == "x"

    def test_three_bases(self, forked: Repo) -> None:
        """Fields that three bases changed are put together before the sides are compared."""
        forked.branch("c")
        bases = [
            forked.put("main", "Item/i0", rank=2),
            forked.put("b", "Item/i0", note="y"),
            forked.put("c", "Item/i0", name="c"),
        ]
        for name in ("x", "y"):
            forked.branch(name, bases[0])
            forked.put(name, f"Item/{name}")
            for each in bases[1:]:
                assert forked.merge(each, name).outcome == "merged"
        forked.put("y", "Item/i0", name="n1", note="x")
        result = forked.merge("y", "x")
        assert result.outcome == "merged"
        assert set(result.bases) == set(bases)
        node = forked.get("x", "Item/i0")
        assert (node["rank"], node["note"], node["name"]) == (2, "x", "n1")

    def test_repeated_merges_in_both_directions(self, forked: Repo) -> None:
        """What was merged once is not seen again."""
        for number in range(4):
            forked.put("main", "Item/i0", rank=number + 10)
            forked.put("b", "Item/i1", rank=number + 20)
            assert forked.merge("b").outcome == "merged"
            forked.put("main", "Item/i0", note=f"m{number}")
            forked.put("b", "Item/i1", note=f"b{number}")
            assert forked.merge("main", "b").outcome == "merged"
        assert forked.merge("b").outcome == "fast_forward"
        state = forked.state()
        assert (state["Item/i0"]["rank"], state["Item/i1"]["rank"]) == (13, 23)
        assert (state["Item/i0"]["note"], state["Item/i1"]["note"]) == ("m3", "b3")

    def test_net_zero(self, forked: Repo) -> None:
        """A branch that ends as it began changes nothing, and conflicts with nothing."""
        forked.put("b", "Item/i0", rank=7)
        forked.put("b", "Item/i0", rank=1)
        forked.put("b", "Item/new")
        forked.drop("b", "Item/new")
        forked.put("b", "Item/i0", tags=["c"])
        forked.put("b", "Item/i0", tags=["b", "a"])
        forked.put("main", "Item/i0", rank=9, tags=["a"])
        result = forked.merge("b")
        assert (result.outcome, result.updated, result.created, result.deleted) == (
            "merged",
            0,
            0,
            0,
        )
        assert forked.get("main", "Item/i0")["rank"] == 9

    def test_net_zero_against_a_deletion(self, forked: Repo) -> None:
        """Touching a node without changing it does not keep it."""
        forked.put("b", "Item/i1", rank=7)
        forked.put("b", "Item/i1", rank=None)
        forked.drop("main", "Item/i1")
        assert forked.merge("b").outcome == "merged"
        assert forked.get("main", "Item/i1") is None

    def test_deleted_and_made_again(self, forked: Repo) -> None:
        """What came back changed is an update; what came back the same is nothing."""
        forked.drop("b", "Item/i1")
        forked.put("b", "Item/i1", name="n1", note="again")
        forked.put("main", "Item/i1", rank=4)
        assert forked.merge("b").outcome == "merged"
        assert forked.get("main", "Item/i1") == {
            "code": "i1",
            "name": "n1",
            "note": "again",
            "rank": 4,
        }
        forked.drop("b", "Item/i0")
        forked.put("b", "Item/i0", name="n1", note="x", rank=1, tags=["b", "a"], team="Team/t0")
        forked.drop("main", "Item/i0")
        assert forked.merge("b").outcome == "merged"
        assert forked.get("main", "Item/i0") is None

    def test_deleted_on_both_sides(self, forked: Repo) -> None:
        """Both agree."""
        forked.drop("main", "Item/i1")
        forked.drop("b", "Item/i1")
        assert forked.merge("b").outcome == "merged"

    def test_sets_merge_member_by_member(self, forked: Repo) -> None:
        """What one side added and the other removed both count."""
        forked.put("main", "Item/i0", tags=["b", "c"], peers=["Item/i1"])
        forked.put("b", "Item/i0", tags=["a", "b", "d"], peers=["Item/i0"])
        assert forked.merge("b").outcome == "merged"
        node = forked.get("main", "Item/i0")
        assert node["tags"] == frozenset({"b", "c", "d"})
        assert node["peers"] == frozenset({"Item/i0", "Item/i1"})

    def test_a_set_that_both_emptied(self, forked: Repo) -> None:
        """Each removed one of two: none is left, and the field is gone."""
        forked.put("main", "Item/i0", tags=["a"])
        forked.put("b", "Item/i0", tags=["b"])
        assert forked.merge("b").outcome == "merged"
        assert "tags" not in forked.get("main", "Item/i0")

    def test_edges(self, forked: Repo) -> None:
        """The edge between two nodes is one edge, whichever side made it."""
        first = forked.link("main", "Item/i0", "Item/i1", weight=1)
        assert forked.link("b", "Item/i0", "Item/i1", weight=2) == first
        back = forked.link("b", "Item/i1", "Item/i0")
        found = only(forked.merge("b"))
        assert (found.kind, found.handle, found.field) == ("divergent_insert", first, "weight")
        assert forked.merge("b", take={found.id: "theirs"}).outcome == "merged"
        assert forked.get("main", first)["weight"] == 2
        assert forked.get("main", back) is not None

    def test_a_merge_of_a_merge(self, forked: Repo) -> None:
        """Work passes through a branch between two others."""
        forked.branch("c")
        forked.put("c", "Item/i0", note="c")
        forked.put("b", "Item/i0", rank=8)
        forked.merge("c", "b")
        forked.put("main", "Item/i1", note="m")
        forked.merge("b")
        assert forked.merge("c").outcome == "already_up_to_date"
        forked.put("c", "Item/i0", note="d")
        assert forked.merge("c").outcome == "merged"
        assert forked.get("main", "Item/i0")["note"] == "d"


class TestRequests:
    def test_expected_head(self, forked: Repo) -> None:
        """A target that moved is not merged into, whatever the outcome would be."""
        old = forked.head()
        forked.put("b", "Item/i0", rank=3)
        head = forked.put("main", "Item/i1", note="y")
        with pytest.raises(ConflictError):
            forked.merge("b", expected_head=old)
        assert forked.head() == head
        assert forked.merge("b", expected_head=head).outcome == "merged"
        forked.put("b", "Item/i0", rank=4)
        forked.merge("main", "b")
        with pytest.raises(ConflictError):
            forked.merge("b", expected_head=head)

    def test_idempotency_key(self, forked: Repo) -> None:
        """The same merge twice is one commit, though the target moved on."""
        forked.put("b", "Item/i0", rank=3)
        forked.put("main", "Item/i1", note="y")
        first = forked.merge("b", idempotency_key="k1")
        forked.put("b", "Item/i0", rank=4)
        head = forked.put("main", "Item/i1", note="z")
        again = forked.merge("b", idempotency_key="k1")
        assert (again.outcome, again.commit) == ("merged", first.commit)
        assert forked.head() == head
        assert forked.merge("b", idempotency_key="k2").outcome == "merged"

    def test_merges_from_threads(self, repo: Repo) -> None:
        """Branches merged at the same time all arrive, each in a commit of its own."""
        repo.put("main", "Item/i0")
        names = [f"t{number}" for number in range(6)]
        for number, name in enumerate(names):
            repo.branch(name)
            repo.put(name, f"Item/{name}", rank=number)
        results: dict[str, MergeResult | BaseException] = {}

        def work(name: str) -> None:
            try:
                results[name] = repo.merge(name)
            except BaseException as error:  # noqa: BLE001 - the assertion below shows it
                results[name] = error

        threads = [threading.Thread(target=work, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        outcomes = sorted(getattr(each, "outcome", repr(each)) for each in results.values())
        assert outcomes == ["fast_forward", *["merged"] * 5]
        assert {f"Item/{name}" for name in names} <= set(repo.state())
