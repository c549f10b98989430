"""Branches: make, list and delete them.

A branch is a row in the log and a layer in the node file; its own store is made by
hard links when somebody first asks for SPARQL. So a branch costs the same on a graph of
any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trails.engine.feed import Change
from trails.engine.graph import MAIN, Graph, now
from trails.engine.lines import Line
from trails.engine.snapshots import find_commit
from trails.errors import ConflictError, NotFoundError, TransactionError
from trails.model.history import GENESIS, Head, Move
from trails.model.names import check_branch_name, suggest
from trails.model.versions import BranchInfo


def list_branches(graph: Graph) -> list[BranchInfo]:
    """All branches: ``main`` first, the others by name."""
    heads = {MAIN: graph.log_head(MAIN), **graph.log.branches()}
    return [_info(graph, name, heads[name]) for name in sorted(heads, key=_main_first)]


def _main_first(name: str) -> tuple[bool, str]:
    return name != MAIN, name


def _info(graph: Graph, name: str, head: Head) -> BranchInfo:
    if head.commit == GENESIS:
        return BranchInfo(name, GENESIS, 0, "", "", "")
    commit = graph.ancestry.commit(head.commit)
    return BranchInfo(name, commit.id, commit.seq, commit.time, commit.message, commit.actor)


def resolve(graph: Graph, reference: str) -> Head:
    """Where a branch is, or the commit that a text names."""
    if reference == MAIN or reference in graph.log.branches():
        return graph.log_head(reference)
    try:
        commit = find_commit(graph, reference)
    except NotFoundError:
        hint = suggest(reference, sorted({MAIN, *graph.log.branches()}))
        raise NotFoundError(
            f"there is no branch or commit {reference[:100]!r}; {hint}", reference=reference[:100]
        ) from None
    return Head(commit.id, commit.seq, commit.schema)


def create_branch(graph: Graph, name: str, *, source: str = MAIN, actor: str) -> BranchInfo:
    """Make a branch where another branch is, or at any commit."""
    check_branch_name(name)
    with graph.writing():
        if name == MAIN or name in graph.log.branches():
            raise ConflictError(
                f"there is a branch {name!r} already; choose another name, or delete it first",
                branch=name,
            )
        head = resolve(graph, source)
        move = Move(name, "create", head.commit, GENESIS, actor, now())
        graph.log.move(move, head.schema)
        graph.add_branch(name, _line_in_use(graph, source, head))
        info = _info(graph, name, head)
    graph.feed.tell(Change(name))
    return info


def _line_in_use(graph: Graph, source: str, head: Head) -> Line | None:
    """The branch that is forked, where its index is at hand and at its head."""
    line = graph.lines.get(source)
    if line is None or line.nodes.position.commit != head.commit:
        return None
    return line


def delete_branch(graph: Graph, name: str, *, force: bool = False, actor: str) -> BranchInfo:
    """Delete a branch. Its commits stay in the log, where their ids find them."""
    if name == MAIN:
        raise TransactionError("main can't be deleted: it is where every graph begins")
    with graph.writing():
        heads = graph.log.branches()
        head = heads.get(name)
        if head is None:
            hint = suggest(name, sorted({MAIN, *heads}))
            raise NotFoundError(f"there is no branch {name!r}; {hint}", branch=name)
        if not force:
            _check_merged(graph, name, heads)
        info = _info(graph, name, head)
        move = Move(name, "delete", head.commit, head.commit, actor, now())
        graph.log.move(move, head.schema)
        graph.forget_lines([name])
    graph.feed.tell(Change(name))
    return info


@contextmanager
def forked_branch(graph: Graph, name: str, *, source: str | None, actor: str) -> Iterator[bool]:
    """Work on a branch that is there or, where ``source`` is given, made for it.

    Gives whether it was made. One that was made is gone again when the work fails.
    """
    if name == MAIN or name in graph.log.branches():
        yield False
        return
    if source is None:
        hint = suggest(name, sorted({MAIN, *graph.log.branches()}))
        raise NotFoundError(
            f"there is no branch {name[:100]!r}; {hint}; to make it, say from which branch or "
            "commit it is to be forked (from)",
            branch=name[:100],
        )
    made = create_branch(graph, name, source=source, actor=actor)
    try:
        yield True
    except BaseException:
        # What somebody else committed meanwhile is theirs.
        if graph.log_head(name).commit == made.commit:
            delete_branch(graph, name, force=True, actor=actor)
        raise


def _check_merged(graph: Graph, name: str, heads: dict[str, Head]) -> None:
    head = heads[name]
    others = [heads[other] for other in sorted(heads, key=_main_first) if other != name]
    if any(
        other.seq >= head.seq and graph.ancestry.is_ancestor(head.commit, other.commit)
        for other in others
    ):
        return
    unmerged, _ = graph.ancestry.sides(head.commit, graph.log_head(MAIN).commit)
    if not unmerged:
        return
    raise ConflictError(
        f"branch {name!r} has {len(unmerged)} commit(s) that are not merged anywhere; merge it "
        "first, or delete it by force: its commits can still be read by their ids, the last "
        f"one is {head.commit}",
        branch=name,
        unmerged=[commit.id for commit in unmerged[-20:]],
        head=head.commit,
    )
