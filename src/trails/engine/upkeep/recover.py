"""Recover a damaged graph from its log's tail and its views.

Everything is built in a folder next to the graph's. The two are exchanged only when it is
complete, so the damaged files are kept under another name. Commits whose records survive in the
log or its tail come back exactly. For the rest there is one commit per branch: the difference
between the state of the log and that of a view.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec

from trails.engine.graph.checkouts import SNAPSHOT, Checkout
from trails.engine.graph.graph import MAIN, Graph, now
from trails.engine.graph.open import find_loss, named_commits, open_graph
from trails.engine.history.branches import create_branch
from trails.engine.upkeep.backups import GRAPHS, discard_prepared, prepare_graphs, put_in_place
from trails.engine.write.lists import whole_lists
from trails.engine.write.write import Write
from trails.errors import StorageError, TrailsError
from trails.log.recovery import (
    damaged_commit,
    damaged_pages,
    put_back,
    read_activities,
    read_rows,
    schemas_of,
)
from trails.log.sqlite import SqliteLog
from trails.log.storage import find_log, log_problem, storage_errors
from trails.log.tail import read_tail
from trails.model.history import Activity, Position
from trails.model.iris import uuid7
from trails.model.names import branch_folder
from trails.model.nodes import NodeState
from trails.model.results import Loss, Trace
from trails.model.types import Schema
from trails.model.upkeep import Recovery
from trails.model.values.blobs import is_digest
from trails.views.lines import Change
from trails.views.nodes.file import NodeFile
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.layers import ROOT_NAME, UNFINISHED
from trails.views.quads.view import QuadsView

ACTOR: Final = "trails-recovery"
"""The actor of commits with data recovered from views."""
_VIEWS: Final = ("nodes.db*", "branches", "snapshots", "text", "scratch", "tail*", "*-shm")
"""Files that are not copied: rebuilt, or read in place."""


class Recovering(msgspec.Struct, frozen=True):
    """The options of a recovery."""

    data: Path
    """The project's ``.trails``."""
    graph: str
    base_iri: str
    declared: Callable[[], Schema | None]
    """The declared types, for a log that has lost its own."""
    progress: Callable[[str], None]
    dry_run: bool = False
    accept_loss: bool = False

    @property
    def folder(self) -> Path:
        """The folder of the graph."""
        return self.data / GRAPHS / self.graph


def recover(asked: Recovering) -> Recovery:
    """Recover one graph, if it has lost anything."""
    folder, graph = asked.folder, asked.graph
    with storage_errors("read the log"):
        unreadable = log_problem(folder) or damaged_pages(folder)
        problem = unreadable or damaged_commit(folder)
    loss = find_loss(folder) if problem is None else None
    if loss is None and (problem is None or not _left(folder, graph)):
        return Recovery(graph, "sound")
    stamp = now().replace(":", "").replace(".", "")
    with storage_errors("recover the graph"):
        work = prepare_graphs(asked.data) / graph
        try:
            found = _Recovery(asked, work, loss or named_commits(folder), problem).run()
            if problem and not unreadable and found.without_history is not None:
                # Readable later commits are given up only on request.
                found = msgspec.structs.replace(found, status="lost")
            if asked.dry_run or (found.status == "lost" and not asked.accept_loss):
                discard_prepared(asked.data)
                return msgspec.structs.replace(found, dry_run=asked.dry_run)
        except BaseException:
            discard_prepared(asked.data)
            raise
    kept = put_in_place(asked.data, [graph], "damaged", stamp, asked.progress)
    return msgspec.structs.replace(found, copy=str(kept[graph]))


def _left(folder: Path, graph: str) -> bool:
    """Whether any data is left at a log, also at one that can't be opened."""
    with suppress(StorageError):
        return find_log(folder, graph)
    return True


class _Recovery:
    """One recovery in progress, in its own folder."""

    def __init__(self, asked: Recovering, work: Path, loss: Loss, problem: str | None) -> None:
        self._asked = asked
        self._damaged = asked.folder
        self._work = work
        self._missing = loss.missing
        self._problem = problem  # the error of the log's file
        self._frames = read_tail(self._damaged)
        self._schemas: Mapping[str, Schema] = schemas_of(self._frames)

    def run(self) -> Recovery:
        """Build a valid graph from what is left."""
        asked = self._asked
        segments = self._work / "segments"
        restored: list[str] = []
        with closing(self._open_log()) as log:
            if self._problem:
                asked.progress("reading what is left of the log")
                restored += put_back(log, read_rows(self._damaged), segments)
                log.put_back_activities(
                    read_activities(self._damaged), _activity("the log was rebuilt")
                )
            asked.progress("putting back commits from the tail")
            restored += put_back(log, self._frames, segments)
        asked.progress("folding the log")
        graph = open_graph(
            self._work, name=asked.graph, base_iri=asked.base_iri, progress=asked.progress
        )
        try:
            return self._finish(graph, restored)
        finally:
            graph.close()

    def _open_log(self) -> SqliteLog:
        """A copy of the log, or a new one, with the segments and archives that are left."""
        asked = self._asked
        if not self._problem:
            self._copy(_VIEWS)
        log = SqliteLog(self._work, asked.graph, asked.base_iri, now())
        if self._problem:  # after the log was created, which needs an empty folder
            self._copy((*_VIEWS, "log.db*"))
        return log

    def _copy(self, skipped: Sequence[str]) -> None:
        self._asked.progress("copying the log")
        shutil.copytree(
            self._damaged,
            self._work,
            ignore=shutil.ignore_patterns(*skipped),
            copy_function=_link_segments,
            dirs_exist_ok=True,
        )

    def _finish(self, graph: Graph, restored: list[str]) -> Recovery:
        rebuilt: dict[str, str] = {}
        complete, reached = graph.log.last_seq(), self._last_sure(graph)
        unusable: list[str] = []
        with ExitStack() as opened:
            for source in self._sources(graph, opened):
                self._asked.progress(f"comparing {source.where} with the log")
                try:
                    commit = _rebuild(graph, source)
                except (TrailsError, sqlite3.DatabaseError) as error:
                    unusable.append(f"{source.where}: {error}")
                    continue
                reached = max(reached, source.position.seq)
                if commit is not None:
                    rebuilt[source.branch] = commit
        lost = [
            each
            for each in self._missing
            if graph.log.commit(each.commit) is None and each.seq > reached
        ]
        nothing = not restored and not rebuilt and not graph.log.last_seq()
        if nothing and not lost:
            lost = [Trace("the log", 0, "every commit")]
        detail = f"{len(restored)} commits put back, {len(rebuilt)} branches rebuilt"
        graph.log.insert_activities([_activity(detail)])
        return Recovery(
            self._asked.graph,
            "lost" if lost else "recovered",
            restored=tuple(restored),
            rebuilt=rebuilt,
            lost=tuple(f"{each.seq} {each.commit}" for each in lost),
            unusable=tuple(unusable),
            without_history=(complete + 1, reached) if reached > complete else None,
            log_problem=self._problem,
        )

    # --- data in views -----------------------------------------------------------------

    def _sources(self, graph: Graph, opened: ExitStack) -> Iterator[_Source]:
        """Views at a commit that the log lacks, one per branch, ``main`` first.

        Where the log has the last commit of its tail, a view at an unknown commit that is no newer
        is of another graph, or damaged: nothing is taken from it.
        """
        found: dict[str, _Source] = {}
        views: list[_Source] = [*self._indexes(graph, opened), *self._stores(graph, opened)]
        sure = self._last_sure(graph)
        for source in views:
            if source.position.seq <= sure and not graph.ancestry.has(source.position):
                continue
            known = found.get(source.branch)
            if known is None or known.position.seq < source.position.seq:
                found[source.branch] = source
        for name in sorted(found, key=lambda name: (name != MAIN, name)):
            if not graph.ancestry.has(found[name].position):
                yield found[name]

    def _last_sure(self, graph: Graph) -> int:
        """The number of the tail's last commit, if the log has it."""
        kept = [each for each in self._frames if each.kind == "commit"]
        return kept[-1].number if kept and graph.log.commit(kept[-1].id) is not None else 0

    def _indexes(self, graph: Graph, opened: ExitStack) -> Iterator[_Index]:
        try:
            file = NodeFile(
                self._damaged / "nodes.db",
                lambda digest: self._schema(graph, digest),
                read_only=True,
            )
        except (TrailsError, sqlite3.DatabaseError) as error:
            self._asked.progress(f"skipping the node index, which can't be read: {error}")
            return
        opened.callback(file.close)
        for name in file.layers.refs:
            if name != ROOT_NAME and not name.startswith((SNAPSHOT, UNFINISHED)):
                yield _Index(file, name, lambda digest: self._schema(graph, digest))

    def _stores(self, graph: Graph, opened: ExitStack) -> Iterator[_Store]:
        for path in sorted((self._damaged / "branches").glob("*/quads")):
            name = path.parent.name.rpartition("~")[0].replace("+", "/") or path.parent.name
            if branch_folder(name) != path.parent.name:
                continue
            try:
                quads = QuadsView(path, read_only=True)
            except TrailsError as error:
                self._asked.progress(
                    f"skipping the quads view of {name}, which can't be read: {error}"
                )
                continue
            opened.callback(quads.close)
            yield _Store(graph, quads, name, lambda digest: self._schema(graph, digest))

    def _schema(self, graph: Graph, digest: str) -> Schema:
        found = graph.log.schema(digest) or self._schemas.get(digest)
        if found is None:
            declared = self._asked.declared()
            if declared is not None and (not digest or declared.digest == digest):
                return declared
            raise StorageError(
                f"the types that the data was written with (schema {digest[:12]}) are in no file "
                "that is left, and the project declares other types"
            )
        return found


def _activity(detail: str) -> Activity:
    time = now()
    return Activity(uuid7(), ACTOR, "recover", time, time, "ok", detail=detail)


class _Source(Protocol):
    """A view of one branch as a source of data."""

    branch: str
    where: str
    position: Position

    def schema(self) -> Schema:
        """The types of the data."""

    def states(self, schema: Schema) -> Iterator[tuple[str, NodeState]]:
        """Every node by handle."""


class _Index:
    """A branch in the node index."""

    def __init__(self, file: NodeFile, branch: str, schema_of: Callable[[str], Schema]) -> None:
        self._nodes = NodeIndex(file, branch)
        self._schema_of = schema_of
        self.branch = branch
        self.where = f"the node index of {branch}"
        self.position = self._nodes.position

    def schema(self) -> Schema:
        """The types recorded in the layer."""
        return self._schema_of(self._nodes.layer.schema)

    def states(self, schema: Schema) -> Iterator[tuple[str, NodeState]]:
        """Every node, type by type."""
        self._nodes.follow(schema)
        for state in self._nodes.states(self._nodes.file.db, schema.by_name):
            yield state.handle, state


class _Store:
    """A branch in the quads view."""

    def __init__(
        self, graph: Graph, quads: QuadsView, branch: str, schema_of: Callable[[str], Schema]
    ) -> None:
        self._graph = graph
        self._quads = quads
        self._schema_of = schema_of
        self.branch = branch
        self.where = f"the quads view of {branch}"
        self.position = quads.position

    def schema(self) -> Schema:
        """The last types of the branch; a store does not record its own."""
        return self._schema_of(self._graph.log_head(self.branch).schema)

    def states(self, schema: Schema) -> Iterator[tuple[str, NodeState]]:
        """Every node that the statements describe."""
        terms = self._graph.compile(schema).terms
        _, whole = whole_lists(terms, [], list(self._quads.data()), lambda _: None)
        changes: dict[str, Change] = terms.changes((), whole)
        for handle, change in changes.items():
            state = terms.state_after(handle, None, change)
            if state is not None:
                yield handle, state


def _rebuild(graph: Graph, source: _Source) -> str | None:
    """Bring a branch to the state of a view in one commit; None if they are equal."""
    schema = source.schema()
    states = dict(source.states(schema))
    checkout = _checkout(graph, source.branch)
    message = (
        f"Recovered from {source.where}, which was at commit {source.position.seq} "
        f"({source.position.commit}): the log has lost the commits that made these changes"
    )
    write = Write(graph, checkout, actor=ACTOR, message=message)
    write.begin()
    try:
        nodes = write.nodes
        old = list(checkout.schema.by_name)
        if schema.digest != checkout.schema.digest:
            write.change_schema(schema)
            nodes = write.nodes
        for stored in nodes.index.stored(nodes.db, old):
            if stored.state.handle not in states:
                nodes.store(stored, stored.state.handle, None)
        for handle, state in states.items():
            before = nodes.index.find(nodes.db, handle)
            if before is None or before.state != state:
                nodes.store(before, handle, state)
    except BaseException:
        write.abandon()
        raise
    commit = write.finish()
    return None if commit is None else commit.id


def _checkout(graph: Graph, branch: str) -> Checkout:
    if branch != MAIN and branch not in graph.log.branches():
        create_branch(graph, branch, actor=ACTOR)
    return graph.checkout(branch)


def _link_segments(source: str, target: str) -> None:
    """Copy a file; segments and blobs, which never change, are hard-linked if possible."""
    if source.endswith(".zst") or is_digest(Path(source).name):
        with suppress(OSError):
            os.link(source, target)
            return
    shutil.copy2(source, target)
