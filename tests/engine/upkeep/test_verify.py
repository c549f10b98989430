"""Verifying: one pass over the log, branches by their differences, and nothing overlooked."""

from __future__ import annotations

import re
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyoxigraph as ox
import pytest

from trails import App, Edge, Node, Ref, edge_type, node_type, predicate
from trails.engine.graph import stores
from trails.engine.graph.folding import Refold
from trails.engine.graph.log_sums import LogSums
from trails.engine.graph.open import open_graph
from trails.engine.history.branches import create_branch
from trails.engine.session.context import GraphContext
from trails.engine.upkeep.verify import verify, verify_and_repair
from trails.model.history import Commit
from trails.model.names import branch_folder
from trails.model.results import ReadOnly
from trails.model.texts import count
from trails.model.upkeep import Finding
from trails.views.nodes.compare import States, compare
from trails.views.nodes.file import NodeFile
from trails.views.nodes.rows import Docs, seal, unseal
from trails.views.nodes.sums import rows_as_logged
from trails.views.quads.view import QuadsView


@node_type(unique=[("shelf", "place")])
class Box(Node):
    """Holds values."""

    code: str = predicate(key=True)
    serial: int | None = predicate(unique=True)
    size: int | None = predicate(max_value=100)
    shelf: str | None = predicate()
    place: int | None = predicate()
    near: Ref[Box] | None = predicate()


@edge_type(source=Box, target=Box, per_source=(0, 1))
class Link(Edge):
    """Joins boxes."""


def silent(text: str) -> None:
    """Nobody wants to know."""


def open_app(folder: Path | None) -> App:
    """A graph of boxes."""
    return App(Box, Link, name="boxes", folder=folder)


def boxes(count: int, size: int) -> Iterator[Box]:
    """So many boxes of a size."""
    return (Box(code=f"b{number}", size=size) for number in range(count))


def problems(app: App) -> dict[str, Finding]:
    """What is wrong with a graph, by name."""
    return {each.name: each for each in verify(app.graph(), silent) if each.severity != "ok"}


# --- what it costs ------------------------------------------------------------------------


def work(branches: int, commits: int) -> tuple[int, int, int]:
    """(commits read, rows compared, documents read) with so many branches of so many commits."""
    app = open_app(None)
    app.context().kg.save_all(boxes(300, 1))
    for number in range(branches):
        create_branch(app.graph(), f"side-{number}", actor="me")
        for step in range(commits):
            side = app.context(branch=f"side-{number}")
            Box(code=f"b{step}", size=number + 5).save(side, upsert=True)
        Box(code=f"main-{number}").save(app.context())
    read: list[str] = []
    documents: list[str] = []
    add, decode = LogSums._add, Docs.decode

    def note(sums: LogSums, commit: Commit) -> None:
        read.append(commit.id)
        add(sums, commit)

    def note_document(docs: Docs, *of: object, **how: object) -> object:
        documents.append("")
        return decode(docs, *of, **how)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogSums, "_add", note)
        patch.setattr(Docs, "decode", note_document)
        patch.setattr(Refold, "fold", None)  # neither the log
        patch.setattr(QuadsView, "apply_stream", None)  # nor a store is made again
        found = {each.name: each for each in verify(app.graph(), silent)}
    assert [each.severity for each in found.values()] == ["ok"] * len(found)
    rows = re.match(r"([\d,]+) row", found["node index"].detail)
    assert rows is not None
    assert found["rules"].detail == f"kept on {count(branches + 1, 'branch', 'branches')}"
    return len(read), int(rows[1].replace(",", "")), len(documents)


def test_the_log_is_read_once_and_branches_are_compared_by_their_differences() -> None:
    """Neither commits nor nodes are multiplied by the number of branches."""
    read, rows, documents = work(12, 3)
    assert read == 2 + 12 * (3 + 1)  # types, boxes, and of each branch its own and main's
    assert 300 < rows < 300 + 12 * 10
    assert documents < work(0, 0)[2] + 12 * 60


# --- what it finds -------------------------------------------------------------------------


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A graph with a branch and with versions that only the branch sees, closed."""
    folder = tmp_path_factory.mktemp("original") / "boxes"
    with open_app(folder) as app:
        app.context().kg.save_all(boxes(30, 1))
        create_branch(app.graph(), "side", actor="me")
        side = app.context(branch="side")
        side.kg.save_all(boxes(5, 2), upsert=True)
        Box.get(side, "b9").delete(side)
        Box(code="b10", size=3).save(app.context(), upsert=True)
        Box(code="late", size=4).save(app.context())
        assert len(list(side.kg.sparql("SELECT ?s { ?s a :Box }"))) == 29
        assert not problems(app)
    return folder


@pytest.fixture
def folder(original: Path, tmp_path: Path) -> Path:
    """A copy that a test may damage."""
    return shutil.copytree(original, tmp_path / "boxes")


OWN = "(SELECT layer FROM refs WHERE name = 'side')"
SIZE = "(SELECT sid FROM slots WHERE name = 'Box.size')"
TAMPERED = {
    "a node of main": "UPDATE nodes SET doc = changed(handle, doc, ':1', ':7') "
    "WHERE handle = 'Box/b20'",
    "a node that is gone": "DELETE FROM nodes WHERE handle = 'Box/b20'",
    "a node of a branch": "UPDATE rows SET doc = changed(handle, doc, ':2', ':7') "
    f"WHERE layer = {OWN}",
    "a node that a branch lost": f"DELETE FROM rows WHERE layer = {OWN} AND handle = 'Box/b4'",
    "a version that only a branch sees": "UPDATE rows SET doc = changed(handle, doc, ':1', ':7') "
    "WHERE layer = 0",
    "a node that came back": f"DELETE FROM hides WHERE layer = {OWN}",
    "a node that is hidden": f"INSERT INTO hides SELECT nid, {OWN}, 3 FROM nodes "
    "WHERE handle = 'Box/b25'",
    "a node that a branch sees too early": "UPDATE nodes SET seq = 1 WHERE handle = 'Box/late'",
    "a node that a branch sees no more": "UPDATE nodes SET seq = 99 WHERE handle = 'Box/b20'",
    "a key of main": f"UPDATE keys SET key = x'01ff' WHERE sid = {SIZE} "
    "AND nid = (SELECT nid FROM nodes WHERE handle = 'Box/b20')",
    "a key that is gone": f"DELETE FROM keys WHERE sid = {SIZE} "
    "AND nid = (SELECT nid FROM nodes WHERE handle = 'Box/b20')",
    "a key of no node": f"INSERT INTO keys VALUES ({SIZE}, x'01ff', 99999)",
    "a key of a branch": f"UPDATE row_keys SET key = x'01ff' WHERE layer = {OWN} AND sid = {SIZE}",
    "a key that a branch lost": f"DELETE FROM row_keys WHERE layer = {OWN} AND sid = {SIZE}",
    "one more key of a branch": f"INSERT INTO row_keys SELECT layer, sid, x'01ff', nid, seq, until "
    f"FROM row_keys WHERE layer = {OWN} AND sid = {SIZE} LIMIT 1",
    "a key of a branch that ended": f"UPDATE row_keys SET until = 2 WHERE layer = {OWN}",
    "a number of nodes": f"UPDATE lives SET n = n + 1 WHERE layer = {OWN}",
    "bytes that are no document": "UPDATE nodes SET doc = x'ff' WHERE handle = 'Box/b20'",
}


def tamper(path: Path, statement: str) -> sqlite3.Connection:
    """Change a node index as a program would that knows all about it, checksums included."""

    def changed(handle: str, doc: bytes, old: str, new: str) -> bytes:
        return seal(handle, unseal(handle, doc).replace(old.encode(), new.encode()))

    db = sqlite3.connect(path, isolation_level=None)
    db.create_function("changed", 4, changed)
    assert db.execute(statement).rowcount
    return db


@pytest.fixture(scope="module")
def folded(original: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeFile]:
    """The same states, folded anew."""
    place = tmp_path_factory.mktemp("folded")
    with open_app(shutil.copytree(original, place / "boxes")) as app:
        graph = app.graph()
        heads = {name: graph.log_head(name).commit for name in ("main", "side")}
        fresh = NodeFile(place / "nodes.db", graph.file.schema_of)
        graph.nodes.refold.fold(fresh, heads["main"], heads, silent)
        with closing(fresh):
            yield fresh


@pytest.mark.parametrize("statement", ["SELECT 1", *TAMPERED.values()], ids=["none", *TAMPERED])
def test_every_change_of_the_index_is_found(
    original: Path, folded: NodeFile, tmp_path: Path, statement: str
) -> None:
    """In what main shows, in what only a branch shows, and in what finds them."""
    copy = shutil.copy(next(original.rglob("nodes.db")), tmp_path / "nodes.db")
    with closing(tamper(copy, statement)) as db:
        ours, fresh = (States(each, folded.schema_of) for each in (db, folded.db))
        assert bool(compare(ours, fresh).problems) == (statement in TAMPERED.values())


@pytest.mark.parametrize("statement", ["SELECT 1", *TAMPERED.values()], ids=["none", *TAMPERED])
def test_sums_differ_wherever_anything_does(original: Path, tmp_path: Path, statement: str) -> None:
    """So that what is wrong is never left out because sums are compared first."""
    with open_app(shutil.copytree(original, tmp_path / "boxes")) as app:
        graph = app.graph()
        sums = LogSums(graph.log, graph.folding)
        copy = shutil.copy(next(original.rglob("nodes.db")), tmp_path / "nodes.db")
        with closing(tamper(copy, statement)) as db:
            rows = rows_as_logged(
                States(db, graph.file.schema_of),
                lambda schema: graph.compiled(schema.digest).terms,
                lambda commit: sums.at(commit).logged,
                silent,
            )
        assert (rows is None) == (statement in TAMPERED.values())


@pytest.mark.parametrize("what", ["a node of a branch", "a key of no node"])
def test_what_differs_from_the_log_is_repaired(folder: Path, what: str) -> None:
    """And only the index is named."""
    tamper(next(folder.rglob("nodes.db")), TAMPERED[what]).close()
    with open_app(folder) as app:
        assert set(problems(app)) == {"node index"}
        assert all(each.severity == "ok" for each in verify_and_repair(app.graph(), silent))


@pytest.mark.parametrize(("branch", "change"), [("main", "remove"), ("side", "add")])
def test_a_changed_statement_is_found_in_the_store_of_a_branch(
    folder: Path, branch: str, change: str
) -> None:
    """One statement more or less, in a store that RocksDB finds sound."""
    quads = next(folder.rglob(f"branches/{branch_folder(branch)}/quads"))
    store = ox.Store(quads)
    quad = next(store.quads_for_pattern(None, None, None, ox.DefaultGraph()))
    if change == "add":
        store.add(ox.Quad(quad.subject, ox.NamedNode("x:p"), ox.Literal("new")))
    else:
        store.remove(quad)
    store.flush()
    del store
    quads.with_name("quads.closed").unlink()
    with open_app(folder) as app:
        found = problems(app)
        assert found["quads view"].detail == f"1 statement of {branch} differ from the log"
        assert all(each.severity == "ok" for each in verify_and_repair(app.graph(), silent))


def test_a_store_stays_open_while_it_is_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However soon idle stores are closed."""
    monkeypatch.setattr(stores, "_IDLE", 0.001)
    with open_app(tmp_path / "boxes") as app:
        app.context().kg.save_all(boxes(400, 1))
        create_branch(app.graph(), "side", actor="me")
        side = app.context(branch="side")
        Box(code="own").save(side)
        assert len(list(side.kg.sparql("SELECT ?s { ?s a :Box }"))) == 401
        assert not problems(app)


def test_what_others_write_meanwhile_is_no_difference(folder: Path) -> None:
    """Verifying looks at one state, and keeps nobody waiting for its end."""
    with open_app(folder) as app:
        written = 0

        def write(text: str) -> None:
            nonlocal written
            written += 1
            for branch in ("main", "side"):
                Box(code=f"meanwhile-{written}").save(app.context(branch=branch))
            create_branch(app.graph(), f"new-{written}", actor="me")

        found = list(verify(app.graph(), write))
        assert [each.severity for each in found] == ["ok"] * len(found)
        assert written > 2


# --- rules ---------------------------------------------------------------------------------


def write_raw(app: App, ctx: GraphContext, subject: str, field: str, value: str) -> None:
    """Give a field a value without asking whether it may have it."""
    graph = app.graph()
    graph.allow_bypass = True
    type_name, _, identifier = subject.partition("/")
    node, term = graph.names.node(type_name, identifier), graph.names.term(field)
    ctx.kg.raw_sparql(f"INSERT DATA {{ <{node}> <{term}> {value} }}", skip_validation=True)


def remove_raw(app: App, ctx: GraphContext, subject: str, field: str | None = None) -> None:
    """Remove a node, or a field of it, without asking whether that may be."""
    graph = app.graph()
    graph.allow_bypass = True
    state = ctx.kg.find(*subject.split("/"))
    assert state is not None
    lines = graph.checkout(ctx.branch).terms.statements(state)
    term = None if field is None else f"<{graph.names.term(field)}>"
    gone = " ".join(line for line in lines if term is None or line.split()[1] == term)
    ctx.kg.raw_sparql(f"DELETE DATA {{ {gone} }}", skip_validation=True)


def break_rule(app: App, ctx: GraphContext, rule: str) -> None:
    """Bring a graph into a state that a rule forbids."""
    if rule == "unique":
        write_raw(app, ctx, "Box/b1", "serial", "7")
        write_raw(app, ctx, "Box/b2", "serial", "7")
    elif rule == "group":
        for code in ("b1", "b2"):
            write_raw(app, ctx, f"Box/{code}", "shelf", '"top"')
            write_raw(app, ctx, f"Box/{code}", "place", "1")
    elif rule == "value":
        write_raw(app, ctx, "Box/b1", "size", "101")
    elif rule == "reference":
        write_raw(app, ctx, "Box/b1", "near", f"<{app.graph().names.node('Box', 'nowhere')}>")
    elif rule == "deleted":
        Box(code="b1", near="Box/b2").save(ctx, upsert=True)
        remove_raw(app, ctx, "Box/b2")
    elif rule == "edges":
        Link(source="Box/b1", target="Box/b2").save(ctx)
        second = Link(source="Box/b3", target="Box/b2")
        second.save(ctx)
        remove_raw(app, ctx, str(second.handle), "source")
        node = app.graph().names.node("Box", "b1")
        write_raw(app, ctx, str(second.handle), "source", f"<{node}>")


RULES = {
    "unique": "Box.serial [unique]",
    "group": "Box.shelf, place [unique]",
    "value": "Box.size [max_value]",
    "reference": "Box.near [reference]",
    "deleted": "Box.near [reference]",
    "edges": "Box.source [max_count]",
}


@pytest.mark.parametrize("branch", ["main", "side"])
@pytest.mark.parametrize("rule", RULES)
def test_every_rule_is_checked_on_every_branch(branch: str, rule: str) -> None:
    """On main by looking at all nodes, on a branch at those in which it differs."""
    app = open_app(None)
    app.context().kg.save_all(boxes(5, 1))
    create_branch(app.graph(), "side", actor="me")
    Box(code="own").save(app.context(branch="side"))
    assert not problems(app)
    break_rule(app, app.context(branch=branch), rule)
    found = problems(app)
    assert set(found) == {"rules"}
    assert f"{branch}: {RULES[rule]}" in found["rules"].detail
    assert "declarations" in found["rules"].fix


@pytest.mark.parametrize("repair", [False, True])
def test_a_graph_that_is_open_read_only_can_be_verified(folder: Path, repair: bool) -> None:
    """Nothing is written to do so, and what differs is named."""
    (nodes,) = folder.rglob("nodes.db")
    tamper(nodes, TAMPERED["a node of a branch"]).close()
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with closing(
        open_graph(
            nodes.parent,
            name=nodes.parent.name,
            base_iri="trails://boxes/main",
            read_only=ReadOnly("requested", "on request"),
        )
    ) as graph:
        found = {
            each.name: each.detail
            for each in (verify_and_repair if repair else verify)(graph, silent)
            if each.severity == "problem"
        }
    assert "rows of side differ from the log" in found["node index"]
    assert ("repair" in found) == repair
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
