"""Commits, differences, upkeep: what the log tells about itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from trails import App, node_type, predicate
from trails.app.upkeep import backup_project, restore_project
from trails.engine.graph import cursors
from trails.engine.graph.cursors import LIFETIME, STEP
from trails.engine.upkeep.maintenance import cleanup, optimize
from trails.engine.upkeep.verify import verify
from trails.errors import (
    CursorError,
    NotFoundError,
    QueryError,
    StaleError,
    StorageError,
    TransactionError,
)
from trails.log.storage import files_below
from trails.model.history import MergeRequest
from trails.model.upkeep import RestoreRequest


@node_type
class Part:
    """Something that is built in."""

    tag: str = predicate(key=True)
    mass: float | None = predicate()
    colours: list[str] = predicate()
    inside: Part | None = predicate()


@pytest.fixture
def app() -> App:
    """A graph in memory."""
    return App(Part, name="history")


def save(app: App, tag: str, branch: str = "main", actor: str = "local", **values: object) -> str:
    """Save a part; the commit's id."""
    ctx = app.context(branch=branch, actor=actor)
    commit = ctx.kg.save(Part(tag=tag, **values), upsert=True, message=f"save {tag}")
    assert commit is not None
    return commit.id


class TestListing:
    def test_newest_come_first_page_by_page(self, app: App) -> None:
        """Pages of any size list every commit once, from the newest to the oldest."""
        made = [save(app, f"p{n}") for n in range(7)]
        first_of_all = app.versions().commits(limit=100).commits[-1].id
        for limit in (1, 2, 3, 8):
            seen, cursor = [], None
            while True:
                page = app.versions().commits(limit=limit, after=cursor)
                seen += [commit.id for commit in page.commits]
                cursor = page.next
                if cursor is None:
                    break
            assert seen == [*reversed(made), first_of_all]

    def test_a_branch_lists_what_lies_behind_it(self, app: App) -> None:
        """Commits of other branches appear once they are merged."""
        save(app, "a")
        app.versions().create_branch("b")
        ours, theirs = save(app, "m"), save(app, "x", branch="b")
        listed = [commit.id for commit in app.versions().commits("main").commits]
        assert ours in listed
        assert theirs not in listed
        merged = app.versions().merge(MergeRequest("b")).commit
        listed = [commit.id for commit in app.versions().commits("main").commits]
        assert listed[:3] == [merged, theirs, ours]
        assert len(listed) == len(set(listed))

    def test_by_actor_and_by_node(self, app: App) -> None:
        """Filters leave only commits of an actor, or that changed a node."""
        first = save(app, "a", actor="ann")
        save(app, "b", actor="bob")
        second = save(app, "a", actor="bob", mass=2.0)
        Part.get(app.context(), "a").delete(app.context())
        gone = app.context().kg.head.commit
        third = save(app, "a", actor="ann")
        versions = app.versions()
        assert [c.id for c in versions.commits(actor="ann").commits] == [third, first]
        assert [c.id for c in versions.commits(node="Part/a").commits] == [
            third,
            gone,
            second,
            first,
        ]
        iri = app.context().kg.iri("Part/a")
        assert len(versions.commits(node=iri, actor="bob").commits) == 1

    def test_a_node_is_followed_over_branches_and_merges(self, app: App) -> None:
        """A node's history on a branch has the commits that the branch has, and no others."""
        base = save(app, "a")
        app.versions().create_branch("b")
        on_b = save(app, "a", branch="b", mass=3.0)
        on_main = save(app, "a", colours=["red"])
        history = app.versions().commits
        assert [c.id for c in history("main", node="Part/a").commits] == [on_main, base]
        assert [c.id for c in history("b", node="Part/a").commits] == [on_b, base]
        assert [c.id for c in history(None, node="Part/a").commits] == [on_main, on_b, base]

    @pytest.mark.req("E4")
    def test_a_cursor_is_for_one_actor_and_one_list(
        self, app: App, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It goes on with that list, whatever the size of pages, for a day."""
        made = [save(app, "a", mass=float(number + 1)) for number in range(5)]
        app.versions().create_branch("b")
        versions = app.versions(actor="ann")
        cursor = versions.commits(limit=2).next
        assert cursor is not None
        rest = versions.commits(after=cursor, limit=100).commits
        assert [each.id for each in rest][:3] == made[2::-1]
        save(app, "z")
        assert versions.commits(after=cursor, limit=100).commits == rest
        others: list[tuple[str, dict[str, str | None]]] = [
            ("bob", {}),
            ("ann", {"branch": "b"}),
            ("ann", {"branch": None}),
            ("ann", {"actor": "local"}),
            ("ann", {"node": "Part/a"}),
        ]
        for actor, changed in others:
            with pytest.raises(CursorError) as refused:
                app.versions(actor=actor).commits(**changed, after=cursor)  # type: ignore[arg-type]
            assert refused.value.code == "cursor"
        with pytest.raises(CursorError):
            versions.commits(after=cursor[:-1] + ("A" if cursor[-1] != "A" else "B"))
        later = cursors.time() + LIFETIME + STEP + 2
        monkeypatch.setattr(cursors, "time", lambda: later)
        with pytest.raises(StaleError, match="expired"):
            versions.commits(after=cursor)

    def test_what_can_not_be_listed_is_refused(self, app: App) -> None:
        """Unknown branches, nodes, cursors and limits have clear errors."""
        save(app, "a")
        versions = app.versions()
        for wrong in ({"limit": 0}, {"limit": 1001}):
            with pytest.raises(QueryError):
                versions.commits(**wrong)
        for text in ("nonsense!", "AAAA", "", "\ud800"):
            with pytest.raises(CursorError):
                versions.commits(after=text)
        with pytest.raises(NotFoundError, match="did you mean 'main'"):
            versions.commits("mian")
        with pytest.raises(NotFoundError, match="ever changed"):
            versions.commits(node="Part/none")


class TestChanges:
    def test_a_commit_tells_before_and_after(self, app: App) -> None:
        """Values of fields before and after, members of sets that went and came."""
        save(app, "a", mass=1.5, colours=["red", "blue"])
        commit = save(app, "a", mass=2.5, colours=["blue", "green"])
        detail = app.versions().commit(commit)
        (change,) = detail.difference.changes
        assert (change.handle, change.change) == ("Part/a", "updated")
        colours, mass = change.fields
        assert (colours.removed, colours.added) == (("red",), ("green",))
        assert (mass.before, mass.after) == (1.5, 2.5)
        assert detail.commit.parents == (detail.difference.start,)

    def test_creation_and_deletion(self, app: App) -> None:
        """What was made has no before, what was deleted no after; references are IRIs."""
        save(app, "whole")
        made = save(app, "a", inside="Part/whole")
        (change,) = app.versions().commit(made[:12]).difference.changes
        assert change.change == "created"
        inside = {field.field: field for field in change.fields}["inside"]
        assert inside.before is None
        assert inside.after == app.context().kg.iri("Part/whole")
        Part.get(app.context(), "a").delete(app.context())
        difference = app.versions().commit("main").difference
        assert (difference.created, difference.updated, difference.deleted) == (0, 0, 1)

    def test_a_difference_is_net_and_has_a_direction(self, app: App) -> None:
        """What comes and goes in between leaves no trace; the way back is the inverse."""
        start = save(app, "a", mass=1.0)
        save(app, "a", mass=9.0)
        save(app, "gone")
        Part.get(app.context(), "gone").delete(app.context())
        end = save(app, "a", mass=1.0)
        assert app.versions().diff(start, end).changes == ()
        end = save(app, "b")
        forth, back = app.versions().diff(start, end), app.versions().diff(end, start)
        assert [(c.handle, c.change) for c in forth.changes] == [("Part/b", "created")]
        assert [(c.handle, c.change) for c in back.changes] == [("Part/b", "deleted")]

    def test_branches_are_compared_with_each_other(self, app: App) -> None:
        """A diff of branches is what turns one into the other."""
        save(app, "a", mass=1.0)
        app.versions().create_branch("b")
        save(app, "a", branch="b", mass=2.0)
        save(app, "only-main")
        changes = app.versions().diff("main", "b").changes
        assert [(c.handle, c.change) for c in changes] == [
            ("Part/a", "updated"),
            ("Part/only-main", "deleted"),
        ]

    def test_long_differences_are_cut_and_say_so(self, app: App) -> None:
        """The counts are of everything, the list of what was asked for."""
        start = app.versions().commits().commits[0].id
        app.context().kg.save_all([Part(tag=f"p{n:03}") for n in range(30)])
        difference = app.versions().diff(start, "main", limit=10)
        assert (difference.created, len(difference.changes), difference.truncated) == (30, 10, True)
        with pytest.raises(QueryError):
            app.versions().diff(start, "main", limit=0)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project folder with some history."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "trails.toml").write_text('[project]\nname = "upkeep"\n')
    (folder / "app.py").write_text(
        "from trails import node_type, predicate\n\n@node_type\nclass Part:\n"
        '    """A part."""\n    tag: str = predicate(key=True)\n'
        "    mass: float | None = predicate()\n"
    )
    with App.open(folder) as app:
        part = app.registry().classes["Part"]
        ctx = app.context()
        ctx.kg.save_all([part(tag=f"p{n}", mass=float(n)) for n in range(50)])
        app.versions().create_branch("kept")
        app.versions().create_branch("gone")
        part(tag="extra").save(app.context(branch="kept"))
        app.context(branch="kept").kg.sparql("SELECT ?s { ?s ?p ?o } LIMIT 1")
        for n in range(12):
            part(tag=f"later{n}").save(ctx)
            app.context(snapshot=ctx.kg.head.commit)
    return folder


def masses(app: App, **where: object) -> set[str]:
    """The tags that can be read somewhere."""
    part = app.registry().classes["Part"]
    return {each.tag for each in part.objects(app.context(**where))}


class TestUpkeep:
    def test_cleanup_drops_only_what_nobody_needs(self, project: Path) -> None:
        """Snapshots beyond a few, folders of nothing, versions of nothing; branches stay."""
        with App.open(project) as app:
            graph = app.graph()
            old = app.versions().commits().commits[5].id
            before = masses(app), masses(app, branch="kept"), masses(app, snapshot=old)
            app.versions().delete_branch("gone")
            stray = graph.folder / "branches" / "stray~00000000"
            stray.mkdir(parents=True)
            planned = cleanup(graph, keep=3, dry_run=True)
            assert stray.is_dir()
            done = cleanup(graph, keep=3)
            assert done.snapshots == planned.snapshots
            assert len(done.snapshots) >= 9
            assert done.folders == planned.folders == (stray.name,)
            assert not stray.exists()
            assert (masses(app), masses(app, branch="kept"), masses(app, snapshot=old)) == before
            assert cleanup(graph, keep=3).folders == ()
            assert all(finding.severity == "ok" for finding in verify(graph, print))

    def test_optimize_keeps_everything(self, project: Path) -> None:
        """Compacting changes no answer, on branches neither."""
        with App.open(project) as app:
            before = masses(app), masses(app, branch="kept")
            sizes = optimize(app.graph(), print)
            assert sizes.after > 0
            assert (masses(app), masses(app, branch="kept")) == before
            assert all(finding.severity == "ok" for finding in verify(app.graph(), print))

    def test_a_backup_brings_everything_back(self, project: Path, tmp_path: Path) -> None:
        """Restored in an empty place, all branches and commits are there, views made anew."""
        with App.open(project) as app:
            heads = {each.name: each.head for each in app.versions().branches()}
            expected = masses(app), masses(app, branch="kept")
            manifest = backup_project(app, tmp_path / "copy", print)["main"]
            assert manifest is not None
            assert manifest.heads == heads
        shutil.rmtree(project / ".trails")
        with App.open(project, declarations=False) as app:
            done = restore_project(app, tmp_path / "copy", print, RestoreRequest())
            assert done == {"main": None}
        with App.open(project) as app:
            assert {each.name: each.head for each in app.versions().branches()} == heads
            assert (masses(app), masses(app, branch="kept")) == expected
            assert all(finding.severity == "ok" for finding in verify(app.graph(), print))

    def test_restoring_over_data_needs_force_and_keeps_it(
        self, project: Path, tmp_path: Path
    ) -> None:
        """What was there is moved aside, never deleted."""
        with App.open(project) as app:
            backup_project(app, tmp_path / "copy", print)
        with App.open(project, declarations=False) as app:
            with pytest.raises(StorageError, match="--force"):
                restore_project(app, tmp_path / "copy", print, RestoreRequest())
            done = restore_project(app, tmp_path / "copy", print, RestoreRequest(force=True))
        aside = done["main"]
        assert aside is not None
        assert (aside / "log.db").is_file()


class TestStaleContexts:
    def test_a_deleted_branch_is_not_written_or_read(self, app: App) -> None:
        """A context on a branch that was deleted since can do nothing, and brings nothing back."""
        save(app, "a")
        app.versions().create_branch("b")
        ctx = app.context(branch="b")
        app.versions().delete_branch("b")
        with pytest.raises(NotFoundError, match="was deleted"):
            Part(tag="x").save(ctx)
        with pytest.raises(NotFoundError, match="was deleted"):
            Part.objects(ctx).count()
        assert [each.name for each in app.versions().branches()] == ["main"]
        app.versions().create_branch("b")
        with pytest.raises(NotFoundError, match="was deleted"):
            Part(tag="x").save(ctx)
        Part(tag="y").save(app.context(branch="b"))

    def test_a_snapshot_that_made_room_is_made_again(self, project: Path) -> None:
        """Whoever holds a context on the past keeps reading it."""
        with App.open(project) as app:
            old = app.versions().commits().commits[4].id
            ctx = app.context(snapshot=old)
            part = app.registry().classes["Part"]
            before = part.objects(ctx).count(), len(ctx.kg.sparql("SELECT ?s { ?s :tag ?t }"))
            cleanup(app.graph(), keep=0)
            again = part.objects(ctx).count(), len(ctx.kg.sparql("SELECT ?s { ?s :tag ?t }"))
            assert before == again
            with pytest.raises(TransactionError, match="read-only"):
                part(tag="never").save(ctx)


class TestExport:
    def test_an_export_is_of_one_commit_whatever_is_written_meanwhile(self, project: Path) -> None:
        """Blocks read later belong to the head at which the export began."""
        with App.open(project) as app:
            part, ctx = app.registry().classes["Part"], app.context()
            ctx.kg.save_all([part(tag=f"more{n:05}") for n in range(5000)])
            expected = b"".join(app.export(ctx))
            blocks = app.export(ctx)
            first = next(blocks)
            part.get(ctx, "more04999").delete(ctx)
            part(tag="late").save(ctx)
            assert first + b"".join(blocks) == expected

    def test_an_export_that_nobody_reads_on_holds_nothing(self, project: Path) -> None:
        """The project can be closed with it half read."""
        with App.open(project) as app:
            next(app.export(app.context()))


class TestLayers:
    def test_filters_of_a_walk_look_at_the_same_version(self, app: App) -> None:
        """A version that a fork still sees does not answer for the one that replaced it."""
        save(app, "a")
        versions = app.versions()
        versions.create_branch("b")
        ctx = app.context(branch="b")
        parts = [Part(tag=f"p{n:03}", mass=float(n), colours=["red"]) for n in range(400)]
        ctx.kg.save_all(parts)
        versions.create_branch("c", "b")
        for part in parts:
            part.mass, part.colours = part.mass + 1000, ["blue"]
        ctx.kg.save_all(parts)
        old = app.context(branch="c")
        for where, here, there in (
            ({"colours": "red"}, 0, 400),
            ({"colours": "blue"}, 400, 0),
            ({"mass__lt": 500.0}, 0, 400),
            ({"mass__gte": 1000.0}, 400, 0),
        ):
            for order in ("tag", "mass", "-mass"):
                for line, count in ((ctx, here), (old, there)):
                    found = Part.objects(line).where(**where).order_by(order)
                    assert len(found.page(100).items) == min(count, 100)
                    assert found.count() == count
                    assert len(list(found)) == count


def test_every_conflict_of_a_merge_is_listed(app: App) -> None:
    """However many there are."""
    parts = [Part(tag=f"p{n:03}", mass=1.0) for n in range(300)]
    app.context().kg.save_all(parts)
    app.versions().create_branch("b")
    for mass, branch in ((2.0, "main"), (3.0, "b")):
        ctx = app.context(branch=branch)
        changed = list(Part.objects(ctx))
        for part in changed:
            part.mass = mass
        ctx.kg.save_all(changed)
    result = app.versions().merge(MergeRequest("b"))
    assert len(result.conflicts) == 300


def test_files_that_vanish_while_they_are_counted_are_left_out(tmp_path: Path) -> None:
    """A store removes files whenever it likes; sizes are told all the same."""
    for name in ("a", "b", "c"):
        (tmp_path / name).write_bytes(b"12345")
    found = files_below(tmp_path)
    first, _ = next(found)
    gone = next(path for path in sorted(tmp_path.iterdir()) if path != first)
    gone.unlink()
    assert {path for path, _ in found} == set(tmp_path.iterdir()) - {first}
    assert list(files_below(tmp_path / "nowhere")) == []
