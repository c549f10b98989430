"""A project's function for embeddings: checked, limited in time, and never in the way of others."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from trails.engine.graph import embeddings
from trails.engine.graph.embeddings import Embedder
from trails.errors import BusyError, EmbeddingError


def test_vectors_may_be_lists_arrays_or_iterators():
    """Whatever gives numbers, one vector for each text."""
    for embed in (
        lambda texts: [[len(each), 0.5] for each in texts],
        lambda texts: np.array([[len(each), 0.5] for each in texts], np.float32),
        lambda texts: ((len(each), 0.5) for each in texts),
    ):
        found = Embedder("app:embed", embed).embed(["a", "bcd"])
        assert [list(each) for each in found] == [[1.0, 0.5], [3.0, 0.5]]


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (None, "TypeError"),
        ([], "gave 0 vectors for 1 text"),
        ([[1.0], [2.0]], "gave 2 vectors for 1 text"),
        ([["one"]], "TypeError"),
        ([[float("inf")]], "NaN or infinity"),
        (7, "TypeError"),
        ("text", "TypeError"),
    ],
)
def test_what_is_not_a_vector_for_each_text_is_refused(result, says):
    """The error names the function and what it gave."""
    with pytest.raises(EmbeddingError, match=r"\(app:embed\)") as raised:
        Embedder("app:embed", lambda _: result).embed(["a"])
    assert says in raised.value.message


def test_an_exception_stays_in_the_log(caplog):
    """Callers get its kind; it may hold a secret."""

    def embed(texts):
        raise ValueError("token hunter2 was refused")

    with pytest.raises(EmbeddingError) as raised:
        Embedder("app:embed", embed).embed(["a"])
    assert "ValueError" in raised.value.message
    assert "hunter2" not in raised.value.message
    assert "hunter2" in caplog.text


def test_the_function_can_t_change_what_was_asked():
    """It gets a list of its own."""

    def embed(texts):
        found = [[1.0] for _ in texts]
        texts.clear()
        return found

    assert len(Embedder("app:embed", embed).embed(["a", "b"])) == 2


def test_a_query_has_one_vector_while_it_is_kept(monkeypatch):
    """All pages of a search use the same; the oldest are dropped."""
    monkeypatch.setattr(embeddings, "_KEPT", 2)
    asked: list[str] = []

    def embed(texts):
        asked.extend(texts)
        return [[float(len(asked))]]

    embedder = Embedder("app:embed", embed)
    assert [list(embedder.query(each)) for each in "aabab"] == [[1], [1], [2], [1], [2]]
    embedder.query("c")
    embedder.query("b")
    embedder.query("a")
    assert asked == ["a", "b", "c", "a"]


def test_calls_that_do_not_return_stop_nobody_else():
    """They count until they end: others wait in vain, or are refused at once, and then go on."""
    going_on = threading.Event()

    def embed(texts):
        if texts == ["stuck"]:
            going_on.wait(20)
        return [[1.0] for _ in texts]

    embedder = Embedder("app:embed", embed, 0.2)
    with ThreadPoolExecutor(40) as pool:
        stuck = [pool.submit(embedder.embed, ["stuck"]) for _ in range(4)]
        for each in stuck:
            with pytest.raises(EmbeddingError, match=r"did not return within 0\.2 seconds"):
                each.result()
        begun = time.monotonic()
        waiting = [pool.submit(embedder.embed, ["x"]) for _ in range(30)]
        for each in waiting:
            with pytest.raises(BusyError, match="busy with 4 other calls"):
                each.result()
        assert time.monotonic() - begun < 10
        refused = sum(each.done() for each in waiting)
        assert refused == 30
    going_on.set()
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            assert [list(each) for each in embedder.embed(["x"])] == [[1.0]]
            break
        except BusyError:
            time.sleep(0.01)
    else:
        pytest.fail("the calls that ended still count")


def test_at_most_a_few_wait(monkeypatch):
    """The others are refused at once, so that they do not hold the threads of the graph."""
    monkeypatch.setattr(embeddings, "_WAITING", 2)
    going_on, running = threading.Event(), threading.Semaphore(0)

    def embed(texts):
        running.release()
        going_on.wait(20)
        return [[1.0] for _ in texts]

    embedder = Embedder("app:embed", embed, 20)
    with ThreadPoolExecutor(10) as pool:
        begun = [pool.submit(embedder.embed, ["x"]) for _ in range(4)]
        for _ in begun:
            running.acquire()
        waiting = [pool.submit(embedder.embed, ["x"]) for _ in range(2)]
        while embedder._waiting < 2:
            time.sleep(0.01)
        with pytest.raises(BusyError):
            embedder.embed(["x"])
        going_on.set()
        assert all(len(each.result()) == 1 for each in (*begun, *waiting))
