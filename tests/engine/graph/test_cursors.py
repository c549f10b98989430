"""Cursors: signed, bound to who got them and for what, and good for a day."""

import base64
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.worlds.projects import make_project

from trails import App, Node, node_type, predicate
from trails.engine.graph import cursors
from trails.engine.graph.cursors import LIFETIME, STEP, Cursors, Holder, check_subject
from trails.errors import CursorError, StaleError

COMMIT = "0123456789abcdef" * 2
ANN = Holder("ann", "node_list", "main")


@node_type
class Note(Node):
    """A note."""

    text: str = predicate()


@pytest.fixture(scope="module")
def signer():
    """The cursors of a graph in memory."""
    app = App(Note)
    yield Cursors(app.graph())
    app.close()


def test_a_cursor_is_read_as_it_was_made(signer):
    """Commit, subject and place come back."""
    for place in (0, -7, 2**53, "", "ä" * 500):
        found = signer.read(ANN, signer.sign(ANN, COMMIT, ["a", 1], place))
        assert (found.commit_id, found.place) == (COMMIT, place)
        check_subject(found, ["a", 1])
        with pytest.raises(CursorError, match="other arguments"):
            check_subject(found, ["a", 2])


@pytest.mark.parametrize(
    "other",
    [
        Holder("bob", "node_list", "main"),
        Holder("ann", "read_record_field", "main"),
        Holder("ann", "node_list", "draft"),
        Holder("ann", "node_list", "@main"),
        Holder("annnode_list", "", "main"),
        Holder("ann", "node_listmain", ""),
    ],
)
def test_a_cursor_is_for_its_holder(signer, other):
    """Another actor, tool or branch gets an error that does not say which it was."""
    text = signer.sign(ANN, COMMIT, [], 0)
    with pytest.raises(CursorError) as raised:
        signer.read(other, text)
    assert raised.value.code == "cursor"
    assert "ann" not in raised.value.message.replace("another", "")


def test_every_altered_character_is_noticed(signer):
    """So are a cut, an addition, white space and padding."""
    text = signer.sign(ANN, COMMIT, [], 12)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    wrong = [text[:at] + each + text[at + 1 :] for at in range(len(text)) for each in alphabet]
    wrong += [text[:at] for at in range(len(text))]
    wrong += [f"{text}A", f"{text}=", f" {text}", f"{text}\n", text.replace(text[3], "+", 1), ""]
    for each in wrong:
        if each != text:
            with pytest.raises(CursorError):
                signer.read(ANN, each)


@given(
    st.text(max_size=200) | st.binary(max_size=200).map(base64.urlsafe_b64encode).map(bytes.decode)
)
def test_any_text_is_refused(signer, text):
    """Whatever is sent, with the one error."""
    with pytest.raises(CursorError):
        signer.read(ANN, text)


def test_a_cursor_expires(signer, monkeypatch):
    """The error is typed, and says when that was."""
    text = signer.sign(ANN, COMMIT, [], 0)
    began = cursors.time()
    monkeypatch.setattr(cursors, "time", lambda: began + LIFETIME - 2)
    signer.read(ANN, text)
    monkeypatch.setattr(cursors, "time", lambda: began + LIFETIME + STEP + 2)
    with pytest.raises(StaleError, match="expired at 20") as raised:
        signer.read(ANN, text)
    assert raised.value.code == "stale"


def test_a_place_has_the_same_cursor_for_an_hour(signer, monkeypatch):
    """So a page that has not changed is the same bytes; and each cursor lasts at least a day."""
    made = {}
    for second in range(0, 2 * STEP, 100):
        monkeypatch.setattr(cursors, "time", lambda now=second: 1_800_000_000.0 + now)
        made.setdefault(signer.sign(ANN, COMMIT, [], 0), []).append(second)
    assert [(each[0], each[-1]) for each in made.values()] == [(0, 3500), (3600, 7100)]
    for text, seconds in made.items():
        last = 1_800_000_000.0 + seconds[-1] + LIFETIME
        monkeypatch.setattr(cursors, "time", lambda last=last: last)
        signer.read(ANN, text)


def test_the_key_of_a_graph_stays(tmp_path: Path):
    """It is private, made once, and survives; another graph has another."""
    make_project(tmp_path, {"app.py": ""})
    with App.open(tmp_path) as app:
        text = Cursors(app.graph()).sign(ANN, COMMIT, [], 0)
        (key,) = tmp_path.rglob(cursors.KEY_FILE)
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert len(key.read_bytes()) == 32
    with App.open(tmp_path) as app:
        assert Cursors(app.graph()).read(ANN, text).commit_id == COMMIT
    key.write_bytes(b"short")
    with App.open(tmp_path) as app, pytest.raises(CursorError):
        Cursors(app.graph()).read(ANN, text)
    assert len(key.read_bytes()) == 32
    with App(Note) as app, pytest.raises(CursorError):
        Cursors(app.graph()).read(ANN, text)


def test_reading_needs_no_writable_folder(tmp_path: Path):
    """A graph that is read-only and has no key gets one in memory."""
    make_project(tmp_path, {"app.py": ""})
    with App.open(tmp_path) as app:
        app.graph()  # it is made on first use
    with App.open(tmp_path, read_only=True) as app:
        signer = Cursors(app.graph())
        signer.read(ANN, signer.sign(ANN, COMMIT, [], 0))
    assert not list(tmp_path.rglob(cursors.KEY_FILE))
