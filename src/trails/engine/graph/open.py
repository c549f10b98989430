"""Open a graph: the one place that says which log and which views it has.

The log is a file in the graph's folder or, with an address, on a PostgreSQL server; blobs and views
are in the folder either way.

Looks first whether the log has lost commits (``find_loss``); such a graph is opened read-only.
Every trace of a commit is written after the log has it: the tail, the positions of views, the
folders of snapshots. A trace of a commit that the log does not have shows that the log was
damaged, replaced or shortened. Looking changes no file.

The node index of a graph that can't be written is used as it is, or copied to memory where it lags.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trails.engine.graph.graph import MAIN, Graph, MakeView, ignore, now
from trails.engine.graph.node_indexes import NodeIndexes
from trails.engine.graph.stores import Stores
from trails.engine.graph.texts.field_index import FOLDER as TEXT_FOLDER
from trails.engine.graph.texts.indexes import TextIndexes
from trails.engine.graph.texts.source import TextSource
from trails.errors import SettingsError, StorageError
from trails.imports import later
from trails.log.protocol import Log
from trails.log.sqlite import SqliteLog
from trails.log.storage import LOG_FILE, connect_read_only, log_problem, storage_errors
from trails.log.tail import Trail, look_at_tail
from trails.model.history import Head
from trails.model.results import Loss, ReadOnly, Trace
from trails.model.types import Schema
from trails.model.upkeep import KEEP_ALL, Retention
from trails.model.writes import KEEP_DAYS
from trails.views.nodes.file import NodeFile
from trails.views.nodes.layers import ROOT_NAME
from trails.views.text.manifest import read_manifest

if TYPE_CHECKING:
    import pyoxigraph as ox

    from trails.views.quads import view
else:
    ox = later("pyoxigraph")
    view = later("trails.views.quads.view")

_TAIL = "the tail of the log"


def find_loss(folder: Path) -> Loss | None:
    """What a graph's log has lost, if other files in its folder prove that.

    Views are looked into only where the tail does not vouch for the log: a tail that was closed
    in order and ends with a commit that the log has knows of every commit there ever was. A tail
    that was not closed vouches for the log as far as it goes: a view that is at another commit
    with such a number is of another graph, or damaged, and proves nothing about this log.
    """
    with storage_errors("look into the graph's folder"):
        if log_problem(folder) is not None:
            return None
    with storage_errors("read the log"), closing(connect_read_only(folder / LOG_FILE)) as log:
        tail = look_at_tail(folder)
        agrees = not tail.commits or _has(log, *tail.commits[-1])
        if tail.closed and agrees and _has_moves(log, tail):
            return None
        traces = [
            *_commits(log, tail),
            *_moves(log, tail),
            *_log_heads(log),
            *_views(log, folder, after=tail.commits[-1][0] if tail.commits and agrees else 0),
        ]
        (last,) = log.execute("SELECT coalesce(max(seq), 0) FROM commits").fetchone()
    return Loss(last, tuple(traces)) if traces else None


def named_commits(folder: Path) -> Loss:
    """Every commit that a file names, for a graph whose log can't be read."""
    with storage_errors("look into the graph's folder"):
        tail = [Trace(_TAIL, number, commit) for number, commit in look_at_tail(folder).commits]
        views = [Trace(*each) for each in _positions(folder) if each[1]]
    return Loss(0, (*tail, *views))


def _has(log: sqlite3.Connection, seq: int, commit: str) -> bool:
    query = "SELECT 1 FROM commits WHERE id = ? AND seq = ?"
    return log.execute(query, (commit, seq)).fetchone() is not None


def _commits(log: sqlite3.Connection, tail: Trail) -> Iterator[Trace]:
    if tail.commits:
        query = "SELECT seq, id FROM commits WHERE seq >= ?"
        known = set(log.execute(query, (tail.commits[0][0],)))
        for number, commit in tail.commits:
            if (number, commit) not in known:
                yield Trace(_TAIL, number, commit)


def _has_moves(log: sqlite3.Connection, tail: Trail) -> bool:
    if tail.last_move is None:
        return True
    with suppress(sqlite3.OperationalError):  # a log without branches has no such table
        (last,) = log.execute("SELECT coalesce(max(seq), 0) FROM moves").fetchone()
        return bool(last >= tail.last_move[0])
    return False


def _moves(log: sqlite3.Connection, tail: Trail) -> Iterator[Trace]:
    if tail.last_move is not None and not _has_moves(log, tail):
        number, commit = tail.last_move
        yield Trace(f"{_TAIL} (change {number} of a branch)", number, commit)


def _log_heads(log: sqlite3.Connection) -> Iterator[Trace]:
    query = (
        "SELECT h.branch, h.seq, h.id FROM heads h LEFT JOIN commits c ON c.id = h.id "
        "AND c.seq = h.seq WHERE c.seq IS NULL AND h.id <> ''"
    )
    for branch, seq, commit in log.execute(query):
        yield Trace(f"the head of branch {branch}", seq, commit)


def _views(log: sqlite3.Connection, folder: Path, *, after: int) -> Iterator[Trace]:
    for where, seq, commit in _positions(folder):
        if seq > after and not _has(log, seq, commit):
            yield Trace(where, seq, commit)


def _positions(folder: Path) -> Iterator[tuple[str, int, str]]:
    """How far each view is; 0 for a view of nothing."""
    yield from _layers(folder)
    yield from _snapshots(folder)
    yield from _stores(folder)
    texts = read_manifest(folder / TEXT_FOLDER)
    if texts is not None:
        yield "the text index", texts.position.seq, texts.position.commit


def _layers(folder: Path) -> list[tuple[str, int, str]]:
    """How far the node index is, on every branch and snapshot; nothing if it can't be read."""
    path = folder / "nodes.db"
    if not path.is_file():
        return []
    with suppress(sqlite3.DatabaseError), closing(connect_read_only(path)) as db:
        rows = db.execute(
            "SELECT r.name, l.seq, l.head FROM layers l LEFT JOIN refs r ON r.layer = l.layer"
        ).fetchall()
        names = {None: "the node index", ROOT_NAME: "the node index"}
        return [
            (names.get(name) or f"the node index of {name}", seq, head) for name, seq, head in rows
        ]
    return []


def _snapshots(folder: Path) -> Iterator[tuple[str, int, str]]:
    """Stores of snapshots that were made with a position in them."""
    for path in sorted((folder / "snapshots").glob("*/quads")):
        yield from _store(path, f"snapshots/{path.parent.name}")


def _stores(folder: Path) -> Iterator[tuple[str, int, str]]:
    for path in sorted((folder / "branches").glob("*/quads")):
        yield from _store(path, f"branches/{path.parent.name}")


def _store(path: Path, name: str) -> Iterator[tuple[str, int, str]]:
    """How far a quads view is; nothing if it can't be read."""
    with suppress(OSError, RuntimeError):
        position = view.position_of(ox.Store.read_only(str(path)))
        if position is not None:
            yield f"the quads view in {name}", position.seq, position.commit


def _make_node_indexes(graph: Graph) -> NodeIndexes:
    return NodeIndexes(
        _open_file(graph),
        graph.checkouts,
        graph.folding,
        lambda: _heads(graph),
        graph.drop_checkouts,
        graph.writing,
        graph.progress,
    )


def _make_stores(graph: Graph) -> Stores:
    read_only = graph.read_only is not None
    return Stores(
        graph.main,
        graph.folding,
        graph.reading_store,
        graph.writing,
        graph.progress,
        read_only=read_only,
    )


def _make_text_indexes(graph: Graph) -> TextIndexes:
    return TextIndexes(
        graph.main,
        graph.folder,
        TextSource(graph.folding, graph.names),
        _owner(graph),
        graph.reading_nodes,
        graph.progress,
        read_only=graph.read_only is not None,
    )


VIEWS: Final[tuple[MakeView, ...]] = (_make_node_indexes, _make_stores, _make_text_indexes)
"""What makes the views of a graph, in the order in which they follow a commit.

The node indexes come first: a write is checked in them, and texts are read from them.
"""


def make_log(
    folder: Path | None,
    url: str,
    *,
    name: str,
    base_iri: str,
    read_only: bool = False,
) -> Log:
    """The log of a graph; an empty ``url`` means the one in its folder."""
    if not url:
        return SqliteLog(folder, name, base_iri, now(), read_only=read_only)
    if folder is not None and (folder / LOG_FILE).exists():
        raise StorageError(
            f"graph {name!r} has a log in its folder, {folder / LOG_FILE}, and the settings name "
            "another one on a PostgreSQL server. A graph has one log: run 'trails log copy --to "
            "postgresql' to move it there, or remove the setting to use the one in the folder"
        )
    need_driver(name)
    from trails.log.postgres.log import PostgresLog  # noqa: PLC0415 - an optional dependency

    return PostgresLog(
        url,
        folder,
        name,
        base_iri,
        now(),
        read_only=read_only,
        create=folder is None or not any(seq for _, seq, _ in _positions(folder)),
    )


def need_driver(graph: str) -> None:
    """Refuse a log on a server where its driver is not installed."""
    try:
        import psycopg  # noqa: F401, PLC0415 - an optional dependency
    except ImportError as error:
        raise SettingsError(
            f"the log of graph {graph!r} is on a PostgreSQL server, which needs psycopg: install "
            "it with pip install 'trails[postgres]'"
        ) from error


def read_stored_schema(folder: Path, url: str, *, name: str, base_iri: str) -> Schema:
    """The types of ``main`` as the log has them, while another process may own it."""
    if not url and not folder.is_dir():
        return Schema()
    log = make_log(folder, url, name=name, base_iri=base_iri, read_only=True)
    try:
        head = log.head(MAIN)
        return (None if head is None else log.schema(head.schema)) or Schema()
    finally:
        log.close()


def _find_missing(log: Log, folder: Path) -> Loss | None:
    """What a log on a server has lost, if views in the folder prove that."""
    traces = [
        Trace(where, seq, commit)
        for where, seq, commit in _positions(folder)
        if seq and ((found := log.at(seq)) is None or found.id != commit)
    ]
    return Loss(log.last_seq(), tuple(traces)) if traces else None


def open_graph(  # noqa: PLR0913 - the settings of a graph
    folder: Path | None,
    *,
    name: str,
    base_iri: str,
    log_url: str = "",
    allow_bypass: bool = False,
    retention: Retention = KEEP_ALL,
    keep_keys_days: int = KEEP_DAYS,
    read_only: ReadOnly | None = None,
    progress: Callable[[str], None] = ignore,
) -> Graph:
    """Open the graph of a folder, which is created if it is empty; None is one in memory."""
    make = partial(make_log, folder, log_url, name=name, base_iri=base_iri)
    log = None
    loss = None
    if folder is not None and not log_url:
        loss = find_loss(folder)
    elif folder is not None:
        log = make(read_only=read_only is not None)
        loss = _find_missing(log, folder)
    if loss is not None:
        read_only = ReadOnly("behind", loss.describe(name))
        if log is not None:
            log.close()
            log = None
    if read_only is not None:
        progress(f"graph {name}: {read_only.reason}")
    if log is None:
        log = make(read_only=read_only is not None)
    try:
        graph = Graph(
            log,
            VIEWS,
            folder,
            name=name,
            retention=retention,
            read_only=read_only,
            loss=loss,
            progress=progress,
        )
    except BaseException:
        log.close()
        raise
    graph.allow_bypass = allow_bypass
    graph.keep_keys_days = keep_keys_days
    return graph


def _heads(graph: Graph) -> dict[str, Head]:
    return {MAIN: graph.log_head(MAIN), **graph.log.branches()}


def _open_file(graph: Graph) -> NodeFile:
    """The node index: the file itself or, where it can't be used as it is, a copy in memory."""
    path = None if graph.folder is None else graph.folder / "nodes.db"

    def schema_of(digest: str) -> Schema:
        return graph.compiled(digest).schema

    if path is None or graph.read_only is None:
        return NodeFile(path, schema_of)
    try:
        found = NodeFile(path, schema_of, read_only=True)
    except StorageError:
        graph.progress("the node index can't be read; making one in memory")
        return NodeFile(None, schema_of)
    if _is_usable(graph, found):
        return found
    found.close()
    graph.progress("the node index is not at the head of every branch; copying it to memory")
    return NodeFile(None, schema_of, source=path)


def _owner(graph: Graph) -> str:
    return f"{graph.name} {graph.names.base}"


def _is_usable(graph: Graph, file: NodeFile) -> bool:
    """Whether an index that can't be changed has everything that the log has."""
    layers = file.layers
    if graph.loss is not None:
        return MAIN in layers.refs and all(
            not each.schema or graph.find_schema(each.schema) is not None for each in layers
        )
    return all(
        name in layers.refs and layers[layers.refs[name]].position.commit == head.commit
        for name, head in _heads(graph).items()
    )
