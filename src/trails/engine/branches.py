"""Branches: make, list and delete them.

A branch is a row in the log and a layer in the node file; its own store is made by
hard links when somebody first asks for SPARQL. So a branch costs the same on a graph of
any size.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice

from trails.engine.access import OPEN, Access
from trails.engine.activities import Call
from trails.engine.feed import Change
from trails.engine.forks import forkable
from trails.engine.graph import MAIN, Graph, now
from trails.engine.hindsight import Hindsight
from trails.engine.lines import Line
from trails.engine.seen import Seen, permitting, reader
from trails.engine.snapshots import build_distant
from trails.engine.traces import Traces
from trails.errors import BudgetError, ConflictError, NotFoundError, TransactionError
from trails.model.actors import is_limited
from trails.model.history import GENESIS, Head, Move
from trails.model.names import check_branch_name
from trails.model.versions import ALL_BRANCHES, BranchFilter, BranchInfo, BranchPage
from trails.model.wording import count


def list_branches(
    graph: Graph,
    seen: Seen | None = None,
    hindsight: Hindsight | None = None,
    wanted: BranchFilter = ALL_BRANCHES,
) -> BranchPage:
    """Branches that are seen: ``main`` first, the others by name.

    Only those of the page are looked at, however many there are.
    """
    known, heads = seen or Seen(graph), {MAIN: graph.log_head(MAIN), **graph.log.branches()}
    start = None if wanted.after is None else _main_first(wanted.after)
    names = (
        name
        for name in sorted(heads, key=_main_first)
        if name.startswith(wanted.prefix)
        and (start is None or _main_first(name) > start)
        and known.has(name)
    )
    page = list(names if wanted.limit is None else islice(names, wanted.limit + 1))
    more = wanted.limit is not None and len(page) > wanted.limit
    shown = [_info(graph, name, heads[name], hindsight) for name in page[: wanted.limit]]
    return BranchPage(shown, shown[-1].name if more else None)


def _main_first(name: str) -> tuple[bool, str]:
    return name != MAIN, name


def _info(graph: Graph, name: str, head: Head, hindsight: Hindsight | None) -> BranchInfo:
    """A branch with its newest commit, of those that are seen; the head is told anyway."""
    newest = head.commit if hindsight is None else hindsight.along(name).newest(head.commit)
    if newest == GENESIS:
        return BranchInfo(name, head.commit, 0, "", "", "")
    commit = graph.ancestry.commit(newest)
    if hindsight is not None:
        commit = hindsight.along(name).told(commit)
    return BranchInfo(name, head.commit, commit.seq, commit.time, commit.message, commit.actor)


def create_branch(
    graph: Graph,
    name: str,
    *,
    source: str = MAIN,
    actor: str,
    seen: Seen | None = None,
    hindsight: Hindsight | None = None,
    most: int = 0,
) -> BranchInfo:
    """Make a branch where another branch is, or at any commit, among what is seen.

    ``most`` is how many the actor may have; 0 is no limit.
    """
    check_branch_name(name)
    graph.check_writable()
    if source not in graph.lines:
        with suppress(NotFoundError):  # which is reported below
            start = (seen or Seen(graph)).resolve(source).commit
            if start != GENESIS:
                build_distant(graph, graph.ancestry.commit(start))
    with graph.writing(actor):
        if name == MAIN or name in graph.log.branches():
            raise ConflictError(
                f"there is a branch {name!r} already; choose another name, or delete it first",
                branch=name,
            )
        makers = _makers(graph)
        if most:
            _check_number(graph, actor, most)
        head = (seen or Seen(graph)).resolve(source)
        move = Move(name, "create", head.commit, GENESIS, actor, now())
        graph.log.move(move, head.schema)
        makers[name] = actor
        graph.add_branch(name, _line_in_use(graph, source, head))
        info = _info(graph, name, head, hindsight)
    graph.feed.tell(Change(name, traces=Traces(), turn=(None, head.schema)))
    return info


def most_branches(graph: Graph, call: Call | None) -> int:
    """How many branches the actor of a call may have; 0 where there is no limit."""
    return graph.most_branches if call is not None and is_limited(call.caller) else 0


def _makers(graph: Graph) -> dict[str, str]:
    """Who made each branch that is there; called with the writer's lock."""
    if graph.branch_makers is None:
        found: dict[str, str] = {}
        for move in graph.log.moves():
            if move.action == "create":
                found[move.branch] = move.actor
            elif move.action == "delete":
                found.pop(move.branch, None)
        graph.branch_makers = found
    return graph.branch_makers


def _check_number(graph: Graph, actor: str, most: int) -> None:
    used = sum(each == actor for each in _makers(graph).values())
    if used >= most:
        raise BudgetError(
            f"{actor} has {count(used, 'branch', 'branches')}, and {most} are allowed (branches in "
            f"[graphs.{graph.name}.budgets]); delete one that is not needed, then try again",
            limit="branches",
            allowed=most,
            used=used,
        )


def _line_in_use(graph: Graph, source: str, head: Head) -> Line | None:
    """The branch that is forked, where its index is at hand and at its head."""
    line = graph.lines.get(source)
    if line is None or line.nodes.position.commit != head.commit:
        return None
    return line


def delete_branch(
    graph: Graph,
    name: str,
    *,
    force: bool = False,
    actor: str,
    seen: Seen | None = None,
    hindsight: Hindsight | None = None,
) -> BranchInfo:
    """Delete a branch that is seen. Its commits stay in the log, where their ids find them."""
    seen = seen or Seen(graph)
    if name == MAIN and seen.has(MAIN):
        raise TransactionError("main can't be deleted: it is where every graph begins")
    graph.check_writable()
    with graph.writing(actor):
        seen.check(name)
        heads = graph.log.branches()
        head = heads[name]
        if not force:
            _check_merged(graph, name, heads, hindsight)
        info = _info(graph, name, head, hindsight)
        move = Move(name, "delete", head.commit, head.commit, actor, now())
        makers = _makers(graph)
        graph.log.move(move, head.schema)
        makers.pop(name, None)
        graph.forget_lines([name])
    graph.feed.tell(Change(name, traces=Traces(), turn=(head.schema, None)))
    return info


@contextmanager
def forked_branch(
    graph: Graph,
    name: str,
    *,
    source: str | None,
    actor: str,
    access: Access = OPEN,
    most: int = 0,
) -> Iterator[bool]:
    """Work on a branch that is there or, where ``source`` is given, made for it.

    Gives whether it was made. One that was made is gone again when the work fails.
    """
    changeable = Seen(graph, permitting(access, "Change"), tells=reader(access))
    if changeable.has(name):
        yield False
        return
    if source is None or not access.may("Change", name):
        raise changeable.unknown(
            name,
            "; to make it, say from which branch or commit it is to be forked (from)",
        )
    seen = forkable(graph, access, name)
    made = create_branch(graph, name, source=source, actor=actor, seen=seen, most=most)
    try:
        yield True
    except BaseException:
        # What somebody else committed meanwhile is theirs.
        if graph.log_head(name).commit == made.commit:
            delete_branch(graph, name, force=True, actor=actor)
        raise


def _check_merged(
    graph: Graph, name: str, heads: dict[str, Head], hindsight: Hindsight | None
) -> None:
    """Refuse to delete a branch with commits that no other has, of those that are seen."""
    head = heads[name]
    if hindsight is not None:
        heads = hindsight.branches()
    others = [heads[other] for other in sorted(heads, key=_main_first) if other != name]
    if any(
        other.seq >= head.seq and graph.ancestry.is_ancestor(head.commit, other.commit)
        for other in others
    ):
        return
    unmerged, _ = graph.ancestry.sides(head.commit, graph.log_head(MAIN).commit)
    if hindsight is not None:
        unmerged = hindsight.along(name).only_shown(unmerged)
    if not unmerged:
        return
    raise ConflictError(
        f"branch {name!r} has {count(len(unmerged), 'unmerged commit')}; merge it "
        "first, or delete it by force: its commits can still be read by their ids, the last "
        f"one is {head.commit}",
        branch=name,
        unmerged=[commit.id for commit in unmerged[-20:]],
        head=head.commit,
    )
