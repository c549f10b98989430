"""Text indexes of a graph: what they cost a write, and how fast they are built when it is opened.

A save of a node with one searched field is compared with the same save in a graph that has no text
indexes; a build from a graph without files of them, with the library given the same texts.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.measure import OUT, Goal, Result, Times, clock
from bench.search import texts
from trails import App, Node, node_type, predicate
from trails.engine.graph import open as opening
from trails.engine.graph.texts.field_index import FOLDER
from trails.views.text.analysis import Analyzer
from trails.views.text.index import TextIndex


@node_type
class Memo(Node):
    """A node with one searched field."""

    code: str = predicate(key=True)
    rank: int = predicate()
    body: str = predicate(search=True)


def run(*, quick: bool) -> list[Result]:
    """Saves side by side, then a build."""
    return [_saves(200 if quick else 2_000), _build(2_000 if quick else 100_000)]


def _memos(count: int) -> Iterator[Memo]:
    for number, (_, text) in enumerate(texts(count)):
        yield Memo(code=f"m{number}", rank=number, body=text)


def _saves(rounds: int) -> Result:
    """Each in turn, so that both meet the same disk."""
    times: dict[str, list[float]] = {"with": [], "without": []}
    every = opening.VIEWS
    with ExitStack() as stack:
        contexts = {}
        for name in times:
            opening.VIEWS = every if name == "with" else every[:-1]
            folder = Path(stack.enter_context(TemporaryDirectory(dir=OUT)))
            app = App(Memo, name=name, folder=folder)
            contexts[name] = app.context(actor="bench")
            stack.callback(app.close)
        opening.VIEWS = every
        for memo in _memos(rounds):
            for name, ctx in contexts.items():
                again = Memo(code=memo.code, rank=memo.rank, body=memo.body)
                times[name].append(clock(partial(again.save, ctx)))
    ours, peer = Times(times["with"]), Times(times["without"])
    return Result(
        "save with a searched field, durably",
        "ms",
        ours.p50 * 1e3,
        peer.p50 * 1e3,
        peer.p50 * 1e3,
        Goal("<=", 1.2),
        "the same without text indexes · the same",
        {"p99": ours.p99 * 1e3, "peer_p99": peer.p99 * 1e3, "rounds": rounds},
    )


def _build(count: int) -> Result:
    with TemporaryDirectory(dir=OUT) as folder:
        with App(Memo, name="built", folder=Path(folder)) as app:
            app.context(actor="bench").kg.save_all(_memos(count))
            place = app.graph().folder
        assert place is not None  # noqa: S101 - it has a folder
        shutil.rmtree(place / FOLDER, ignore_errors=True)
        with App(Memo, name="built", folder=Path(folder)) as app:
            graph = app.graph()
            ours = clock(lambda: graph.texts.of(graph.main, "Memo", "body"))
            tail = len(graph.texts.of(graph.main, "Memo", "body")[1])
            size = graph.texts.size()
        given = list(texts(count))
        index = TextIndex(Path(folder, "library"), Analyzer())
        peer = clock(lambda: (index.fill(given), index.flush()))
        index.close()
    return Result(
        "text index of a graph: texts per second",
        "texts/s",
        count / ours,
        count / peer,
        count / peer,
        Goal(">=", 0.6),
        "the library alone · the same",
        {"texts": count, "bytes": size, "in the tail": tail},
    )
