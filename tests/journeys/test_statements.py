"""An index leads every statement of SQLite to its rows, in a graph that does everything.

The statements are those that a scripted world really runs, with the plan that each has on its
connection. Whatever reads a table or a layer from end to end is listed here with its reason.
"""

from __future__ import annotations

import ast
import io
import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final
from unittest.mock import patch

import pytest
from tests.worlds.graphs import Calls
from tests.worlds.statements import SOURCE, Statement, Statements, recorded

from trails import (
    App,
    Edge,
    LoadRequest,
    MergeRequest,
    Node,
    Ref,
    edge_type,
    node_type,
    predicate,
)
from trails.app.upkeep import backup_project
from trails.engine.graph.activities import Activities
from trails.engine.history.branches import create_branch, delete_branch
from trails.engine.history.change_feed import ChangeQuery
from trails.engine.history.provenance import ProvenanceQuery, list_provenance
from trails.engine.session.context import GraphContext
from trails.engine.upkeep.maintenance import cleanup, optimize
from trails.engine.upkeep.verify import verify, verify_and_repair
from trails.engine.visibility.access import OPEN
from trails.log.sqlite import SqliteLog
from trails.log.storage import SEGMENTED, SEGMENTS, connect
from trails.model.nodes import Selection
from trails.model.upkeep import Retention
from trails.views.nodes import file as files
from trails.views.nodes import index, select


@node_type
class Team(Node):
    """Who looks after items."""

    code: str = predicate(key=True)
    size: int | None = predicate()


@node_type(unique=[("name", "rank")], index=[("rank", "name")])
class Item(Node):
    """Fields of the sorts that are looked up in different ways."""

    code: str = predicate(key=True)
    name: str | None = predicate(search=True)
    sku: str | None = predicate(unique=True)
    rank: int | None = predicate()
    tags: list[str] = predicate()
    text: str | None = predicate()
    team: Ref[Team] | None = predicate()
    peers: list[Ref[Item]] = predicate()


@edge_type(source=Item, target=Item, per_source=(0, 3))
class Link(Edge):
    """An edge, of which a node has few."""

    weight: int | None = predicate()


def later() -> tuple[type[Node], ...]:
    """The same types after a change: fields that come and go, and another index."""

    @node_type
    class Team(Node):
        """With another field."""

        code: str = predicate(key=True)
        size: int | None = predicate()
        lead: str | None = predicate()

    @node_type(index=[("name", "rank")])
    class Item(Node):
        """Without three rules."""

        code: str = predicate(key=True)
        name: str | None = predicate(search=True)
        sku: str | None = predicate()
        rank: int | None = predicate()
        tags: list[str] = predicate()
        text: str | None = predicate()
        team: Ref[Team] | None = predicate()
        peers: list[Ref[Item]] = predicate()
        color: str | None = predicate()

    @edge_type(source=Item, target=Item, per_source=(0, 3))
    class Link(Edge):
        """The same."""

        weight: int | None = predicate()

    return Team, Item, Link


TYPES: Final = (Team, Item, Link)
LATER: Final = later()
LONG: Final = "x" * 100_000


def open_app(folder: Path, *types: type) -> App:
    """The graph in a folder."""
    return App(*(types or TYPES), name="plans", folder=folder)


def items(start: int, count: int) -> list[Item]:
    """So many items that are alike."""
    return [
        Item(
            code=f"i{number}",
            name=f"name {number}",
            sku=f"s{number}",
            rank=number % 7,
            tags=["all", f"tag{number % 3}"],
            team=f"Team/t{number % 3}",
            peers=[f"Item/i{number - 1}"] if number % 1000 else [],
        )
        for number in range(start, start + count)
    ]


def changed(ctx: GraphContext, start: int, count: int, rank: int) -> None:
    """Give so many items a rank, in one commit."""
    each = (Item(code=f"i{number}", rank=rank) for number in range(start, start + count))
    ctx.kg.save_all(each, upsert=True)


def write(app: App) -> None:
    """Save, change and delete nodes, alone and together, on branches of branches."""
    ctx, graph = app.context(), app.graph()
    ctx.kg.save_all([Team(code=f"t{number}", size=number) for number in range(3)])
    ctx.kg.save_all(items(0, 200))
    links = [Link(source=f"Item/i{n}", target=f"Item/i{n + 1}", weight=n) for n in range(20)]
    ctx.kg.save_all(links)
    changed(ctx, 0, 30, 20)
    Item(code="long", text=LONG).save(ctx)
    one = Item.get(ctx, "i5")
    one.rank, one.text = 100, LONG + "y"
    one.save(ctx)
    Item(code="gone").save(ctx)
    Item.get(ctx, "gone").delete(ctx)
    Item(code="gone").save(ctx)
    with ctx.kg.transaction(idempotency_key="once"):
        Item(code="once").save(ctx)
    with ctx.kg.transaction(idempotency_key="once"):
        Item(code="once").save(ctx)
    for number in range(3):
        create_branch(graph, f"b{number}", actor="me")
        side = app.context(branch=f"b{number}")
        changed(side, 40 + 30 * number, 40, 50 + number)
        side.kg.save_all(items(1000 * (number + 1), 30))
        Item.get(side, "i7").delete(side, cascade=True)
        Item(code="long", text=LONG + "z").save(side, upsert=True)
        create_branch(graph, f"b{number}/c", source=f"b{number}", actor="me")
        deep = app.context(branch=f"b{number}/c")
        changed(deep, 60, 10, 60)
        for each in (ctx, side, deep):
            read(each)
        changed(side, 60, 20, 61)  # of which a branch still sees the former ones
    changed(ctx, 0, 10, 21)
    for each in (ctx, app.context(branch="b1"), app.context(branch="b1/c")):
        for number in (61, 150):
            before = Item.get(each, f"i{number}").rank or 0
            with each.kg.transaction():  # it leaves one node as it was
                changed(each, number, 1, 1)
                Item(code=f"other{number}").save(each)
                changed(each, number, 1, before)


def read(ctx: GraphContext) -> None:
    """Look nodes up, list them and count them."""
    Item.get(ctx, "i5").text  # noqa: B018 - read in parts
    ctx.kg.find("Item", "nothing")
    ctx.kg.counts()
    ctx.kg.ids_from("Item", "i", 3)
    ctx.kg.has_long_texts("Item")
    ctx.kg.has_long_texts("Team")
    ctx.kg.page_by_handle(Selection("Item"), "Item", "Item/i1", 3, 10_000)
    found, edges = Item.objects(ctx), Link.objects(ctx).where(source="Item/i3")
    for each in (
        found,
        found.where(rank=3),
        found.where(rank__lt=3),
        found.where(name__startswith="name"),
        found.where(team__size=1),
        found.where(tags="all"),
        found.where(sku="s3"),
        found.where(text=LONG),
        found.where(name__icontains="E 1"),
        edges,
    ):
        list(each.limit(3))
        each.count()
        if each is not edges:
            list(each.order_by("name").limit(3))
            list(each.order_by("-rank").limit(3))
            list(each.order_by("name", "-rank").limit(3))


def ask(app: App) -> None:
    """Merge, compare and look into the history."""
    ctx, graph, versions = app.context(), app.graph(), app.versions()
    before = ctx.kg.head.commit
    versions.merge(MergeRequest("b0", dry_run=True))
    versions.merge(MergeRequest("b0"))
    versions.merge(MergeRequest("b1/c", "b1"))
    versions.merge(MergeRequest("main", "b2", resolve_all="ours"))
    versions.merge(MergeRequest("b2"))
    read(app.context(snapshot=before))
    versions.diff("main", "b1")
    versions.diff(before, "main")
    for wanted in ({}, {"actor": "me"}, {"node": "Item/i5"}):
        for branch in ("main", None):
            versions.commits(branch, limit=3, **wanted)
    versions.commit(ctx.kg.head.commit[:12])
    versions.changes(ChangeQuery("main", before))
    state = ctx.kg.find("Item", "i5")
    assert state is not None
    versions.blame(state, ctx.kg.head.commit)
    graph.activities.flush()
    for query in (
        ProvenanceQuery(),
        ProvenanceQuery(actor="local"),
        ProvenanceQuery(node="Item/i5"),
        ProvenanceQuery(capability="graph_mutate"),
        ProvenanceQuery(outcome="ok"),
        ProvenanceQuery(outcome="denied"),
        ProvenanceQuery(commit=before),
        ProvenanceQuery(since="2020-01-01T00:00:00Z", until="2100-01-01T00:00:00Z"),
    ):
        list_provenance(graph, OPEN, "me", query, masks=("", ""))


def call(app: App) -> None:
    """What only calls do: activities, drafts, idempotency keys."""
    calls = Calls(app)
    for number in range(3):
        create = {"op": "create", "type": "Team", "values": {"code": f"n{number}"}}
        for more in ({"dry_run": True}, {"idempotency_key": f"k{number}"}):
            calls.outcome("graph_mutate", {"operations": [create], **more})
    calls.outcome("node_get", {"reference": "Item/i5"})
    calls.outcome("node_select", {"type": "Item", "where": {"rank": 3}})
    calls.outcome("search", {"query": "name"})
    calls.kernel.close()
    graph = app.graph()
    graph.activities.flush()
    for activity in graph.log.newest_activities(3):
        graph.log.find_activities({activity.id: activity.ended})
    assert list(graph.log.activities())
    assert not [*graph.log.migrations(), *graph.log.renames()]


def load(app: App) -> None:
    """Lines and statements, whose references may come later."""
    line = '{{"type": "Item", "data": {{"code": "{}", "peers": ["{}"]}}}}\n'
    lines = line.format("x1", "x2") + line.format("x2", "x1")
    app.load(LoadRequest(files=(io.BytesIO(lines.encode()),), format="ndjson"))
    text = b"".join(app.service().export(app.context(), "turtle"))
    app.load(LoadRequest(files=(io.BytesIO(text),), format="turtle", mode="merge"))


def keep(app: App, folder: Path) -> None:
    """Upkeep."""
    graph = app.graph()
    delete_branch(graph, "b0/c", force=True, actor="me")
    Activities(graph.log, Retention(None, 2), lambda _: None).archive()
    list(graph.log.activities())
    backup_project(app, folder / "backup", lambda _: None)
    for text in ("1", "2", "1", "3"):
        Item(code="long", text=LONG + text).save(app.context(), upsert=True)
        with graph.file.transaction():
            graph.file.texts.collect(graph.file.db)
    cleanup(graph, keep=0)
    assert all(each.severity != "problem" for each in verify(graph, lambda _: None))
    verify_and_repair(graph, lambda _: None)
    optimize(graph, lambda _: None)
    assert graph.folder is not None
    (graph.folder / SEGMENTS).mkdir(exist_ok=True)


def again(app: App) -> None:
    """Some of it once more, on files that were closed and made compact."""
    ctx = app.context()
    changed(ctx, 0, 20, 70)
    Item(code="last", sku="last").save(ctx)
    create_branch(app.graph(), "last", actor="me")
    changed(app.context(branch="last"), 0, 20, 71)
    app.versions().merge(MergeRequest("last"))
    app.versions().diff("b1", "main")
    delete_branch(app.graph(), "last", force=True, actor="me")
    for branch in ("main", "b1/c"):
        read(app.context(branch=branch))


@pytest.fixture(scope="module")
def statements(tmp_path_factory: pytest.TempPathFactory) -> Statements:
    """All that the world ran."""
    folder = tmp_path_factory.mktemp("world")
    with recorded() as found:
        with open_app(folder / "graph") as app:
            write(app)
            with patch.object(select, "_FEW", 0):  # what is few in a small world
                for branch in ("main", "b1", "b1/c"):
                    read(app.context(branch=branch))
            load(app)
            call(app)
            ask(app)
            keep(app, folder)
        with open_app(folder / "graph") as app:
            again(app)
        few = patch.object(index, "_PATIENT", 50), patch.object(files, "_MANY", 100)
        with open_app(folder / "large") as app, few[0], few[1]:
            lines = (b'{"type": "Item", "data": {"code": "%d"}}\n' % n for n in range(100))
            app.load(LoadRequest(files=(io.BytesIO(b"".join(lines)),), format="ndjson"))
        with open_app(folder / "graph", *LATER) as app:
            LATER[0].objects(app.context()).where(lead="ann").count()
    return found


SMALL: Final = {
    "header": "one row",
    "sqlite_master": "the tables",
    "types": "the types",
    "slots": "the fields",
    "schemas": "the versions of the types",
    "heads": "the branches",
    "layers": "the branches and snapshots",
    "refs": "the branches and snapshots",
    "lives": "the branches and snapshots, and their types",
    "archives": "the archives",
    "calls": "the calls under way",
}
"""Tables that grow neither with the nodes nor with the commits."""
WALKS: Final = {
    ("engine/transfer/rdf.py", "SELECT DISTINCT cell FROM cells"): "a load's own cells, at its end",
    ("engine/transfer/staging.py", "SELECT item FROM waiting"): "a load's own items, in order",
    ("log/extracts.py", "INSERT INTO copy."): "a backup copies what is there",
    ("log/extracts.py", "SELECT removed_segment"): "a backup names the files of its copy",
    ("log/extracts.py", "SELECT seq, id FROM main.commits"): "the first row",
    ("log/sqlite.py", "DELETE FROM activity_nodes"): "an archive takes most of them",
    ("log/sqlite.py", "SELECT record FROM moves"): "to verify; who made branches, once a process",
    ("views/nodes/compare.py", "SELECT"): "verification reads everything",
    ("views/nodes/file.py", "DELETE FROM row"): "cleanup looks for what no branch sees",
    ("views/nodes/file.py", "INSERT OR IGNORE INTO keys SELECT"): "a large write's own keys",
    ("views/nodes/file.py", "SELECT 1 FROM main.gone"): "the first row",
    ("views/nodes/layers.py", "SELECT 1 FROM nodes"): "the first row",
    ("views/nodes/layers.py", "SELECT sid, key"): "a layer is removed, some rows at a time",
    ("views/nodes/layers.py", "SELECT nid"): "a layer is removed, some rows at a time",
    ("views/nodes/layers.py", "DELETE FROM"): "a layer is removed",
    ("views/nodes/layers.py", "INSERT OR IGNORE INTO past"): "a layer is removed",
    ("views/nodes/layers.py", "SELECT count(*) FROM rows"): "a snapshot, which is counted once",
    ("views/nodes/long_texts.py", "SELECT tid, digest"): "the long texts, now and then",
}
"""By file and beginning: why a statement may read a table or a layer from end to end."""


PARTIAL: Final = {
    "commits_migrations",
    "commits_renames",
    "commits_segments",
    "long_nodes",
    "long_rows",
}
"""Indexes that have only the few rows that are asked for."""

INDEXES: Final = PARTIAL | {
    "activities_actor",
    "activities_name",
    "activities_outcome",
    "commits_idempotency",
    "hides_layer",
    "idempotency_keys_expiry",
    "rows_handle",
    "sqlite_autoindex_activities_1",
    "sqlite_autoindex_commits_1",
    "sqlite_autoindex_nodes_1",
}


def reason(statement: Statement) -> tuple[str, str] | None:
    """Its entry in ``WALKS``."""
    text = " ".join(statement.text.split())
    found = [each for each in WALKS if each[0] == statement.file and text.startswith(each[1])]
    return found[0] if found else None


def test_an_index_leads_every_statement_to_its_rows(statements: Statements) -> None:
    """Nothing walks over a table or a layer without a reason, and no reason is left over."""
    used = set()
    for each in statements:
        walks = [
            line
            for table, line in each.walks
            if table not in SMALL and line.rpartition(" INDEX ")[2] not in PARTIAL
        ]
        if walks:
            assert reason(each) is not None, (each.file, each.line, each.text, walks)
            used.add(reason(each))
    assert used == set(WALKS)


def test_every_index_is_used(statements: Statements) -> None:
    """Also those without which a table would be walked from one of its rows on."""
    plans = " ".join(line for each in statements for line in each.plan)
    assert set(re.findall(r" INDEX (\w+)", plans)) >= INDEXES


UNREACHED: Final = {
    ("log/sqlite.py", "self._db.execute(query)"): "a log that can't be written",
    ("log/sqlite.py", "SELECT seq FROM activities WHERE id"): "cursors of lists with archives",
    ("log/sqlite.py", "INSERT OR IGNORE INTO activities"): "recovery",
    ("log/sqlite.py", "last_named(folder)"): "recovery",
    ("log/sqlite.py", "SELECT coalesce(max(seq), 0) FROM activities"): "recovery",
    ("views/nodes/compare.py", "_db.execute"): "to verify a damaged index",
    ("views/nodes/file.py", "UPDATE meta SET value"): "a file of an earlier version",
    ("views/nodes/file.py", "DELETE FROM keys WHERE sid"): "cleanup after the last branch is gone",
    ("views/nodes/index.py", "DELETE FROM hides WHERE nid"): "a branch's copy is taken back",
    ("views/nodes/index.py", "UPDATE nodes SET seq"): "a commit of main is taken back",
    ("views/nodes/index.py", "FROM slots s CROSS JOIN"): "to compare whole indexes in tests",
    ("views/nodes/long_texts.py", "idle = NULL WHERE tid = ?', (tid,)"): "a text is used again",
}
"""Statements that the world does not run."""
ROOMS: Final = ("log/sqlite.py", "log/activities.py", "log/archives.py", "views/nodes")
_PREPARED: Final = re.compile(r"SELECT|INSERT|UPDATE|DELETE|query|values|start")


def prepared() -> Iterator[tuple[str, ast.Call]]:
    """Every call in the log and the node index that runs a statement on tables."""
    for path in sorted(SOURCE.rglob("*.py")):
        file = str(path.relative_to(SOURCE))
        if not file.startswith(ROOMS):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            runs = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
            if not runs or node.func.attr not in {"execute", "executemany"}:
                continue
            text = ast.unparse(node)
            if _PREPARED.search(text) and "PRAGMA" not in text:
                yield file, node


def test_the_world_runs_every_statement(statements: Statements) -> None:
    """A new one in the log or the node index is looked at too."""
    used = set()
    for file, node in prepared():
        text = ast.unparse(node)
        lines = range(node.lineno, (node.end_lineno or 0) + 1)
        if any(name == file and line in lines for name, line in statements.places):
            continue
        found = [each for each in UNREACHED if each[0] == file and each[1] in text]
        assert found, (file, node.lineno, text)
        used.update(found)
    assert used == set(UNREACHED)


def test_a_statement_without_its_index_is_found(tmp_path: Path) -> None:
    """Walks over tables, layers and other indexes, also under another name."""
    with open_app(tmp_path / "graph") as app:
        Item(code="a").save(app.context())
    path = next((tmp_path / "graph").rglob("nodes.db"))
    with recorded() as found:
        for index_name, query, walked in (
            ("rows_handle", "SELECT n.doc FROM rows n WHERE n.handle = ?", "rows"),
            ("", "SELECT key FROM row_keys k WHERE k.layer = ? AND k.nid = ?", "row_keys"),
            ("", "SELECT handle FROM main.nodes AS each WHERE doc = ?", "nodes"),
        ):
            with closing(connect(path, synchronous="NORMAL")) as db:
                if index_name:
                    found.note(db, query)
                    assert not list(found)[-1].walks
                    db.execute(f"DROP INDEX {index_name}")
                    query += " "  # noqa: PLW2901 - another text
                found.note(db, query)
                assert [table for table, _ in list(found)[-1].walks] == [walked]


def test_what_was_noted_about_short_tables_is_forgotten(tmp_path: Path) -> None:
    """The planner would go on to read them from end to end when they are long."""
    with open_app(tmp_path / "graph") as app:
        app.context().kg.save_all([Item(code=f"i{number}") for number in range(30)])
    for name in ("nodes.db", "log.db"):
        path = next((tmp_path / "graph").rglob(name))
        with closing(connect(path, synchronous="NORMAL")) as db:
            db.execute("ANALYZE")
            assert db.execute("SELECT count(*) FROM sqlite_stat1").fetchone()[0]
    with recorded() as found, open_app(tmp_path / "graph") as app:
        noted = "SELECT * FROM sqlite_stat1"
        graph = app.graph()
        assert isinstance(graph.log, SqliteLog)
        for db in (graph.file.db, graph.log._db):
            assert not db.execute(noted).fetchall()
        many = f"SELECT doc FROM nodes WHERE nid IN ({','.join('?' * 200)})"
        found.note(graph.file.db, many)
        assert not list(found)[-1].walks
        optimize(graph, lambda _: None)
        assert not graph.file.db.execute(noted).fetchall()


def test_a_log_of_an_earlier_version_gets_its_indexes(tmp_path: Path) -> None:
    """Without them, opening it would read every statement for the names of files."""
    with open_app(tmp_path / "graph") as app:
        Item(code="a").save(app.context())
    path = next((tmp_path / "graph").rglob("log.db"))
    with closing(connect(path, synchronous="NORMAL")) as db:
        db.execute("DROP INDEX commits_segments")
    with recorded() as found, open_app(tmp_path / "graph") as app:
        assert isinstance(app.graph().log, SqliteLog)
        found.note(
            app.graph().log._db,
            f"SELECT removed_segment, added_segment FROM commits WHERE {SEGMENTED}",
        )
        assert "COVERING INDEX commits_segments" in list(found)[-1].plan[0]
