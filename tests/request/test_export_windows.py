"""Windows of an export: joined they are the file, whatever its records hold."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds.graphs import Calls

from trails import App, Node, node_type, predicate
from trails.engine.evidence.exports import exports_of
from trails.model.evidence.graphemes import boundary_before
from trails.request.builtins import exports


@node_type
class Note(Node):
    """A note."""

    key: str = predicate(key=True)
    text: str | None = predicate()


ROCKETEER = "\U0001f469\u200d\U0001f680"
ODD = st.sampled_from(
    ["\0", "\r\n", "\u2028", "e\u0301", ROCKETEER, "\u05d0\u200f", "\\", '"', "界", "\x1b"]
)
TEXTS = st.lists(st.text(max_size=20) | ODD, max_size=60).map("".join)


@settings(max_examples=40, deadline=None)
@given(
    texts=st.lists(TEXTS, min_size=1, max_size=12),
    times=st.integers(1, 80),
    format=st.sampled_from(["ndjson", "turtle", "csv"]),
    max_chars=st.integers(2000, 6000),
    patience=st.sampled_from([0.0, 0.25]),
)
def test_windows_joined_are_the_file(
    texts: list[str], times: int, format: str, max_chars: int, patience: float
) -> None:
    """Each has at most as many characters as asked, and is cut between what readers see as one."""
    calls = Calls(App(Note))
    with pytest.MonkeyPatch.context() as patch, closing(calls):
        patch.setattr(exports, "_SOON", patience)  # 0: it is not finished when it is answered
        ctx = calls.app.context(actor="test")
        ctx.kg.save_all(Note(key=f"k{at}", text=text * times) for at, text in enumerate(texts))
        arguments: dict[str, object] = {"format": format, "max_chars": max_chars}
        shown: list[str] = []
        while True:
            outcome = calls.outcome("export_records", arguments)
            assert len(outcome.body.decode()) <= max_chars
            answer = json.loads(outcome.body)
            if "window" in answer:
                window = answer["window"]
                assert window["start"] == sum(map(len, shown))
                shown.append(window["text"])
                assert window["end"] == sum(map(len, shown))
                assert window["text"] or window["total"] == 0
            if "next" not in answer:
                break
            arguments = answer["next"]["arguments"]
        manager = exports_of(calls.graph)
        export = manager._known[answer["export"]]
        whole = b"".join(manager.read(export, 0, export.files.last.bytes)).decode()
        assert "".join(shown) == whole
        assert answer["window"]["complete"] == (len(shown) == 1)
        end = 0
        for each in shown[:-1]:
            end += len(each)
            assert each.endswith("\n") or boundary_before(whole, end) == end
