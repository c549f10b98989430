"""Loads are read before the writer's lock is taken, within limits, and while they are wanted."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import pytest
from tests.worlds.clients import ThreadedServer
from tests.worlds.processes import PATIENCE, wait_until

from trails import App, Node, node_type, predicate
from trails.app.kernels import kernel_of
from trails.app.settings import GraphSettings, Loads, Project, Settings
from trails.engine.graph.activities import CallRecord
from trails.errors import AbandonedError, BudgetError, LimitError, ValidationError
from trails.model.actors import OPERATOR, Actor
from trails.model.writes import LoadRequest
from trails.surfaces.rest.routes import build_app

ANN, BOB = Actor("ann", credential="t1"), Actor("bob", credential="t2")
LINE = b'{"type": "Note", "data": {"name": "%d", "text": "some text"}}\n'
GOOD = {
    "ndjson": LINE % 1,
    "csv": b"name,text\n1,some text\n",
    "nquads": b"".join(
        b"<trails://app/main/Note/1> <%b> %b .\n" % pair
        for pair in (
            (
                b"http://www.w3.org/1999/02/22-rdf-syntax-ns#type",
                b"<trails://app/main/schema#Note>",
            ),
            (b"trails://app/main/schema#name", b'"1"'),
            (b"trails://app/main/schema#text", b'"some text"'),
        )
    ),
}


@node_type
class Note(Node):
    """A line of text."""

    name: str = predicate(key=True)
    text: str = predicate(min_length=3)


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    """A graph in a folder, with small limits."""
    limits = Loads(expanded_mb=80, ratio=50, blank_lines=1000)
    settings = Settings(Project("app"), {"main": GraphSettings()}, loads=limits)
    with App(Note, folder=tmp_path / "app", settings=settings) as opened:
        yield opened


def asked(*blocks: bytes | Path, format: str = "ndjson", **more: str) -> LoadRequest:
    """A request to load a file or some blocks."""
    file = blocks[0] if isinstance(blocks[0], Path) else list(blocks)
    return LoadRequest(files=(file,), format=format, type_name="Note", **more)  # type: ignore[arg-type]


def call_of(actor: Actor) -> CallRecord:
    """A call under way."""
    return CallRecord(actor.name, "graph_load", "load", caller=actor)


# --- without the lock --------------------------------------------------------------------


@pytest.mark.parametrize("format", ["ndjson", "csv", "nquads"])
def test_others_can_write_while_a_file_is_read(app: App, format: str) -> None:
    """Nothing is locked while it comes in, nor while it is parsed."""
    graph, written = app.graph(), []
    text = GOOD[format].replace(b"trails://app/main/schema#", graph.names.vocabulary.encode())
    text = text.replace(b"trails://app/main/Note", f"{graph.names.nodes}Note".encode())

    def write(*_: object) -> None:
        Note(name=f"w{len(written)}", text="between").save(app.context())
        written.append(1)

    def coming() -> Iterator[bytes]:
        write()
        yield text

    done = app.service("main").load(
        "ann", LoadRequest(files=(coming(),), format=format, type_name="Note"), write
    )
    assert done.nodes == 1
    assert Note.objects(app.context()).count() == 1 + len(written) >= 3


def test_what_is_wrong_with_a_file_is_found_without_the_lock(app: App) -> None:
    """Lines that can't be read, and nodes that break a rule: all told, and nobody had to wait."""
    app.load(asked(LINE % 1))
    file = asked(LINE % 1, b"{\n", LINE % 2, mode="append")
    with ThreadPoolExecutor(1) as thread, app.graph().writing():
        failed = thread.submit(app.load, file).exception(PATIENCE)
    assert isinstance(failed, ValidationError)
    assert [each.field for each in failed.fields] == ["line 1: name", "line 2"]
    assert Note.objects(app.context()).count() == 1


def test_many_nodes_wait_on_disk(app: App) -> None:
    """What was read arrives whole and in order, however much it is."""
    lines = [LINE % each for each in range(9_001)]
    done = app.load(asked(*lines))
    assert done.nodes == 9_001
    assert {each.name for each in Note.objects(app.context())} == {str(n) for n in range(9_001)}


# --- limits ------------------------------------------------------------------------------


def bomb(folder: Path, block: bytes, times: int) -> Path:
    """A compressed file that grows when it is read."""
    path = folder / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(times):
            file.write(block)
    return path


def test_a_file_that_grows_too_much(app: App, tmp_path: Path) -> None:
    """The error names the limit, its value and the setting."""
    path = bomb(tmp_path, b" " * (1 << 20), 70)
    with pytest.raises(LimitError, match=r"50 times its size.*'\[loads\] ratio'") as caught:
        app.load(asked(path))
    assert caught.value.data == {"limit": "ratio", "value": 50}


def test_a_file_that_is_too_large(app: App) -> None:
    """However it is compressed, or not at all."""
    blocks = [b" " * (1 << 20)] * 81
    with pytest.raises(LimitError, match=r"80 MiB.*'\[loads\] expanded_mb'"):
        app.load(asked(*blocks))


@pytest.mark.parametrize("format", ["ndjson", "csv"])
def test_lines_of_nothing(app: App, format: str) -> None:
    """A few are fine; many are no file."""
    app.load(asked(GOOD[format], b"\n" * 999, format=format))
    with pytest.raises(LimitError, match=r"1,000 blank lines.*'\[loads\] blank_lines'"):
        app.load(asked(GOOD[format], b" \n" * 1001, format=format))


def test_a_table_that_is_too_wide(app: App) -> None:
    """Told in one line, and not column by column."""
    with pytest.raises(ValidationError) as caught:
        app.load(asked(b",".join([b"x"] * 100_000) + b"\n", format="csv"))
    assert [each.message for each in caught.value.fields] == [
        "row 1: it has 100000 columns, and Note has 2 fields"
    ]


# --- time under the lock -------------------------------------------------------------------


def test_one_write_keeps_others_waiting_for_so_long(app: App) -> None:
    """Of an actor with a credential; whoever owns the project is not limited."""
    service = app.service("main")
    kernel_of(app).close()
    assert service.graph.write_seconds == 20
    service.graph.write_seconds = 1e-9
    with pytest.raises(LimitError, match=r"\[graphs.main.budgets\] write_seconds") as caught:
        service.load("ann", asked(LINE % 1), call=call_of(ANN))
    assert caught.value.data["limit"] == "write_seconds"
    assert service.load("local", asked(LINE % 1), call=call_of(OPERATOR)).nodes == 1


def test_one_actor_keeps_others_waiting_for_so_long_a_minute(app: App) -> None:
    """What its long writes took while others waited is counted; the others write on."""
    service = app.service("main")
    kernel_of(app).close()
    graph = service.graph
    assert graph.blocking.limit == 10
    graph.blocking.limit = 0.2
    with ThreadPoolExecutor(1) as thread:
        with graph.writing("ann"):
            waiting = thread.submit(service.load, "bob", asked(LINE % 2), call=call_of(BOB))
            wait_until(lambda: graph._writers._waiting)
            sleep(0.25)
        assert waiting.result(PATIENCE).nodes == 1
    with pytest.raises(BudgetError, match=r"writes of ann blocked other writers") as caught:
        service.load("ann", asked(LINE % 3), call=call_of(ANN))
    assert caught.value.data["limit"] == "write_seconds_per_minute"
    assert caught.value.data["used"] >= caught.value.data["allowed"] == 0.2
    assert 1 <= caught.value.data["retry_after"] <= 61
    assert service.load("bob", asked(LINE % 4), call=call_of(BOB)).nodes == 1
    assert service.load("local", asked(LINE % 5), call=call_of(OPERATOR)).nodes == 1


def test_a_long_write_that_nobody_waits_for_is_free(app: App) -> None:
    """An importer that is alone is not limited."""
    service = app.service("main")
    kernel_of(app).close()
    service.graph.blocking.limit = 0.2
    with service.graph.writing("ann"):
        sleep(0.25)
    assert service.load("ann", asked(LINE % 1), call=call_of(ANN)).nodes == 1


# --- nobody waits for the answer -----------------------------------------------------------


def test_a_load_that_nobody_wants_any_more(app: App) -> None:
    """It stops where it is, and nothing is written."""
    call = call_of(ANN)
    call.abandoned = True
    with pytest.raises(AbandonedError):
        app.service("main").load("ann", asked(LINE % 1), call=call)
    assert Note.objects(app.context()).count() == 0


def test_a_client_that_leaves_ends_its_load(app: App) -> None:
    """It has sent everything, then leaves: what it sent is not written."""
    kernel, graph = kernel_of(app), app.graph()
    server = ThreadedServer(build_app({"main": kernel}))
    try:
        with graph.writing():
            client = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
            headers = {"Content-Type": "application/x-ndjson"}
            client.request("POST", "/graphs/main/load", LINE % 1, headers)
            wait_until(lambda: graph._writers._waiting)
            client.close()
            ended = wait_until(lambda: graph.activities.newest(1))
            assert [each.outcome for each in ended] == ["cancelled"]
    finally:
        server.close()
        kernel.close()  # waits for what runs
    assert Note.objects(app.context()).count() == 0
