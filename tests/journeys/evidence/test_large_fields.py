"""A text of 10 MB that is not ASCII: written, read in windows, searched, merged, moved, kept."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from tests.worlds.graphs import Calls
from tests.worlds.projects import make_project

from trails import App
from trails.app.kernels import kernel_of
from trails.app.upkeep import backup_project, restore_project
from trails.engine.upkeep.verify import verify
from trails.model.actors import LOCAL
from trails.model.history import MergeRequest
from trails.model.results import Success
from trails.model.upkeep import RestoreRequest
from trails.model.writes import LoadRequest

APP = """
from trails import Node, node_type, predicate

@node_type
class Report(Node):
    "Something long."
    code: str = predicate(key=True)
    note: str | None = predicate()
    body: str | None = predicate(search=True)
"""
LINE = f"{'zażółćgęśląjaźń👩‍🚀' * 40}\r\n"
TEXT = f"{LINE}A sphinx.\r\n" + LINE * (10_000_000 // len(LINE.encode()) + 1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with the text on a branch, and another change on main."""
    made = make_project(tmp_path_factory.mktemp("large") / "acme", APP)
    assert len(TEXT.encode()) > 10_000_000
    with App.open(made) as app:
        calls = Calls(app)
        create = {"op": "create", "type": "Report", "data": {"code": "r"}}
        calls.result("graph_mutate", {"operations": [create]})
        calls.result("branch_create", {"name": "draft"})
        for branch, data in (("draft", {"body": TEXT}), ("main", {"note": "seen"})):
            update = {"op": "update", "type": "Report", "id": "r", "data": data}
            calls.result("graph_mutate", {"operations": [update], "branch": branch})
        assert not app.versions().merge(MergeRequest("draft")).conflicts
    return made


@pytest.mark.req("E6", "E7")
def test_it_is_read_at_any_offset_and_found(folder: Path) -> None:
    """By windows, around a match, by search, in a difference and in a record; always bounded."""
    with App.open(folder) as app:
        calls = Calls(app)
        for offset in (0, len(TEXT) // 2, len(TEXT) - 100):
            where = {"record": "Report/r", "field": "body", "offset": offset, "length": 100}
            found = calls.result("read_record_field", where)
            assert found["text"] == TEXT[found["start"] : found["end"]]
            assert found["total"] == len(TEXT)
        (hit,) = calls.result("search", {"query": "sphinx"})["results"]
        read = hit["read"]
        window = calls.result(read["tool"], read["arguments"])
        assert "A sphinx." in window["text"]
        for tool, arguments in (
            ("node_get", {"record": "Report/r"}),
            ("fetch", {"id": "trails://kg/Report/r"}),
            ("commit_get", {"commit": "draft"}),
            ("graph_query", {"query": "SELECT ?b WHERE { ?x :body ?b }"}),
        ):
            assert len(calls.outcome(tool, arguments).body.decode()) <= 32_768  # type: ignore[union-attr]
        body, note = asyncio.run(calls.kernel.read(LOCAL, "trails://kg/Report/r"))
        assert len(body.text) + len(note.text) <= 32_768
        (left,) = json.loads(note.text)["left_out"]["fields"]
        assert left["characters"] == len(TEXT)
        read = left["read"]
        assert TEXT.startswith(calls.result(read["tool"], read["arguments"])["text"])


def test_it_is_exported_and_loaded(folder: Path, tmp_path: Path) -> None:
    """In the formats of exports, and as a backup."""
    with App.open(folder) as app:
        ctx = app.context(actor="test")
        assert all(each.severity == "ok" for each in verify(app.graph(), print))
        for format in ("ndjson", "jsonld", "turtle"):
            blocks = app.service().export(ctx, format)
            with App(app.registry().classes["Report"], name="acme") as other:
                request = LoadRequest(files=(blocks,), format=format, mode="append")
                other.service().load("test", request)
                state = other.context(actor="test").kg.find("Report", "r")
                assert state is not None
                assert dict(state.values) == {"code": "r", "note": "seen", "body": TEXT}
        backup_project(app, tmp_path / "kept", print)
    copy = make_project(tmp_path / "acme", APP)
    with App.open(copy) as app:
        restore_project(app, tmp_path / "kept", print, RestoreRequest(force=True))
    with App.open(copy) as app:
        state = app.context(actor="test").kg.find("Report", "r")
        assert state is not None
        assert state.values["body"] == TEXT


def test_a_program_gets_more_than_a_model(folder: Path) -> None:
    """As much of a field as it asks for; a model gets as much as an answer may have."""
    asked = {"record": "r", "type": "Report", "field": "body", "length": 50_000}
    with App.open(folder) as app:
        kernel = kernel_of(app)
        got = asyncio.run(kernel.transfers.record(LOCAL, "read_record_field", asked))
        bounded = Calls(app).result("read_record_field", asked)
        kernel.close()
    assert isinstance(got, Success)
    whole = json.loads(got.body)["text"]
    assert len(TEXT[:50_000]) - len(whole) < 100  # it ends between two characters
    assert len(bounded["text"]) < 32_768 < len(whole)
    assert whole.startswith(bounded["text"])
