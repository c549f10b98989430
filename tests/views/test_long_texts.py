"""Texts that are too long for a document: read in parts, shared, checked and collected."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trails import App, Json, MergeRequest, Node, node_type, predicate
from trails.engine.upkeep.maintenance import cleanup
from trails.engine.upkeep.verify import verify
from trails.errors import CorruptionError, ValidationError
from trails.model.evidence.windows import text_digest
from trails.views.nodes import index as node_index
from trails.views.nodes.file import INDEX_FORMAT
from trails.views.nodes.index import NodeIndex
from trails.views.nodes.long_texts import CHUNK, LONG_TEXT, LongTexts

PATTERN = "Grüße, 世界! 👩‍👩‍👧 e\u0301\r\n\x00 \u202eabc\u202c "
LONG = (PATTERN * (LONG_TEXT // len(PATTERN) * 3))[: LONG_TEXT * 2 + 77]
OTHER = "x" + LONG
EDGES = (0, 1, CHUNK - 1, CHUNK, CHUNK + 1, LONG_TEXT, len(LONG) - 1, len(LONG), len(LONG) + 5)


@node_type
class Doc(Node):
    """Something to read."""

    key: str = predicate(key=True)
    text: str | None = predicate()
    more: str | None = predicate()
    data: Json | None = predicate()
    size: int | None = predicate(max_value=9)


def open_app(folder: Path | None) -> App:
    """A graph of documents."""
    if folder is not None and not (folder / "trails.toml").exists():
        (folder / "trails.toml").write_text('[project]\nname = "docs"\n', encoding="utf-8")
    return App(Doc, name="docs", folder=folder)


@pytest.fixture(params=["file", "memory"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[App]:
    """On disk and in memory."""
    with open_app(tmp_path if request.param == "file" else None) as opened:
        yield opened


def rows(app: App, table: str) -> int:
    """How many rows a table of the node index has."""
    with app.graph().main.nodes.file.reader() as db:
        return db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def part(nodes: NodeIndex, field: str, start: int, end: int) -> str:
    """A part of a field of the document k."""
    with nodes.file.reader() as db:
        text = nodes.text_of(db, "Doc/k", field)
        assert text is not None
        return text[start:end]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[App]:
    """A graph that is only read."""
    with open_app(tmp_path_factory.mktemp("kept")) as opened:
        Doc(key="k", text=LONG, more="short", data={"a": LONG}).save(opened.context())
        yield opened


@pytest.mark.req("E7")
@given(st.integers(0, len(LONG) + 9), st.integers(0, 3 * CHUNK))
@example(0, len(LONG))
@settings(max_examples=60, deadline=None)
def test_every_part_is_a_verbatim_slice(kept: App, start: int, length: int) -> None:
    """Of a text, and of a JSON value's text; the digest is that of the whole."""
    nodes = kept.graph().main.nodes
    assert part(nodes, "text", start, start + length) == LONG[start : start + length]
    whole = Json({"a": LONG}).text
    assert part(nodes, "data", start, start + length) == whole[start : start + length]
    assert part(nodes, "more", 1, 3) == "ho"
    with nodes.file.reader() as db:
        text = nodes.text_of(db, "Doc/k", "text")
        assert (len(text), text.digest) == (len(LONG), text_digest(LONG))
        assert nodes.text_of(db, "Doc/k", "size") is None
        assert nodes.text_of(db, "Doc/none", "text") is None


def test_edges_of_chunks(kept: App) -> None:
    """Every pair of offsets at which something could be off by one."""
    nodes = kept.graph().main.nodes
    for start in EDGES:
        for end in EDGES:
            assert part(nodes, "text", start, end) == LONG[start:end]


def test_a_part_reads_few_chunks(kept: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window in a long text costs no more than one in a text of a few chunks."""
    read: list[int] = []
    original = LongTexts._chunks

    def counting(self: LongTexts, db: sqlite3.Connection, *given: int) -> Iterator[object]:
        for each in original(self, db, *given):
            read.append(each[0])
            yield each

    monkeypatch.setattr(LongTexts, "_chunks", counting)
    part(kept.graph().main.nodes, "text", 2 * CHUNK + 100, 3 * CHUNK)
    assert read == [2]


@pytest.mark.parametrize("length", [LONG_TEXT - 1, LONG_TEXT, LONG_TEXT + 1, LONG_TEXT + CHUNK])
def test_a_text_of_any_length_is_read_as_it_was_written(app: App, length: int) -> None:
    """Around the limit, alone and with another, over updates that leave it alone."""
    ctx = app.context()
    text = LONG[:length]
    Doc(key="k", text=text, more=OTHER, size=1).save(ctx)
    assert rows(app, "texts") == (2 if length > LONG_TEXT else 1)
    doc = Doc.get(ctx, "k")
    assert (doc.text, doc.more, doc.size) == (text, OTHER, 1)
    doc.size = 2
    doc.save(ctx)
    doc = Doc.get(ctx, "k")
    assert (doc.text, doc.more, doc.size) == (text, OTHER, 2)
    assert Doc.objects(ctx).where(text=text).count() == 1
    assert Doc.objects(ctx).where(text__startswith=text[:70_000]).count() == 1
    assert {each.severity for each in verify(app.graph(), lambda _: None)} == {"ok"}


def test_equal_texts_are_stored_once_and_go_with_the_last_that_has_them(app: App) -> None:
    """Nodes, branches and snapshots share them; a cleanup removes what none of them shows."""
    ctx = app.context()
    Doc(key="a", text=LONG).save(ctx)
    Doc(key="b", text=LONG, more=LONG).save(ctx)
    app.versions().create_branch("side")
    side = app.context(branch="side")
    doc = Doc.get(side, "b")
    doc.text, doc.size = OTHER, 3
    doc.save(side)
    assert rows(app, "texts") == 2
    before = app.graph().main.head.commit
    for key in "ab":
        Doc.get(ctx, key).delete(ctx)
    past = app.context(snapshot=before)
    assert Doc.get(past, "a").text == LONG
    assert (Doc.get(side, "b").text, Doc.get(side, "b").more) == (OTHER, LONG)
    app.versions().delete_branch("side", force=True)
    cleanup(app.graph(), keep=0)
    assert (rows(app, "texts"), rows(app, "chunks")) == (0, 0)
    assert {each.severity for each in verify(app.graph(), lambda _: None)} == {"ok"}
    assert Doc.get(app.context(snapshot=before), "a").text == LONG


def test_a_merge_reads_and_writes_long_texts(app: App) -> None:
    """Both sides changed other fields of one node, and one of them the text."""
    ctx = app.context()
    Doc(key="k", text=LONG, more="m").save(ctx)
    app.versions().create_branch("side")
    side = app.context(branch="side")
    theirs = Doc.get(side, "k")
    theirs.text, theirs.data = OTHER, {"long": LONG}
    theirs.save(side)
    ours = Doc.get(ctx, "k")
    ours.size = 5
    ours.save(ctx)
    assert app.versions().merge(MergeRequest("side")).commit is not None
    doc = Doc.get(ctx, "k")
    assert (doc.text, doc.data, doc.size) == (OTHER, Json({"long": LONG}), 5)
    doc.text = LONG + "!"
    doc.save(ctx)
    theirs.text = LONG + "?"
    theirs.save(side)
    found = app.versions().merge(MergeRequest("side"))
    assert [each.field for each in found.conflicts] == ["text"]
    assert {each.severity for each in verify(app.graph(), lambda _: None)} == {"ok"}


def test_a_refused_write_leaves_no_text_behind(app: App) -> None:
    """The chunks are part of the transaction."""
    with pytest.raises(ValidationError):
        Doc(key="k", text=LONG, size=10).save(app.context())
    assert (rows(app, "texts"), rows(app, "chunks")) == (0, 0)


def test_texts_without_a_document_wait_for_readers_before_they_go(app: App) -> None:
    """A reader may have seen the document and not yet the chunks."""
    ctx = app.context()
    Doc(key="k", text=LONG).save(ctx)
    doc = Doc.get(ctx, "k")
    doc.text = None
    doc.save(ctx)
    file = app.graph().main.nodes.file
    with file.transaction():
        assert file.texts.collect(file.db) == 0
        assert file.texts.collect(file.db) == 0
    doc.text = LONG  # it is needed again
    doc.save(ctx)
    with file.transaction():
        assert file.texts.collect(file.db, grace=0) == 0
    assert Doc.get(ctx, "k").text == LONG
    doc.text = OTHER
    doc.save(ctx)
    with file.transaction():
        file.texts.collect(file.db)
        file.db.execute("UPDATE texts SET idle = idle - 4000")
        assert file.texts.collect(file.db) == 1
    assert (rows(app, "texts"), Doc.get(ctx, "k").text) == (1, OTHER)


def test_much_writing_collects_by_itself(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that is edited again and again does not fill the disk until a cleanup."""
    monkeypatch.setattr("trails.views.nodes.long_texts._MUCH", 3 * LONG_TEXT)
    monkeypatch.setattr(LongTexts.collect, "__defaults__", (-1,))
    ctx = app.context()
    doc = Doc(key="k", text=LONG)
    doc.save(ctx)
    for number in range(12):
        doc.text = f"{number} {LONG}"
        doc.save(ctx)
    assert rows(app, "texts") < 8
    assert Doc.get(ctx, "k").text == f"11 {LONG}"


DAMAGE = {
    "a chunk": "UPDATE chunks SET data = CAST('A' || substr(data, 2) AS BLOB)",
    "no chunk": "DELETE FROM chunks WHERE cid = (SELECT max(cid) FROM chunks)",
    "swapped": "UPDATE chunks SET data = (SELECT data FROM chunks ORDER BY cid LIMIT 1)",
    "no text": "DELETE FROM texts",
    "another digest": "UPDATE texts SET digest = 'a'",
}


@pytest.mark.parametrize("how", DAMAGE)
def test_damage_is_found_and_repaired(how: str, tmp_path: Path) -> None:
    """By a read, by a window, and by verify; the log has the text."""
    with open_app(tmp_path) as app:
        Doc(key="k", text=LONG).save(app.context())
    (path,) = (tmp_path / ".trails").rglob("nodes.db")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(DAMAGE[how])
    with open_app(tmp_path) as app:
        found = {each.name: each for each in verify(app.graph(), lambda _: None)}
        assert "1 long text can't be read" in found["node index"].detail
    with open_app(tmp_path) as app:
        nodes = app.graph().main.nodes
        with pytest.raises(CorruptionError):
            part(nodes, "text", 0, len(LONG))
        assert nodes.file.damaged
    with open_app(tmp_path) as app:
        assert Doc.get(app.context(), "k").text == LONG
        assert {each.severity for each in verify(app.graph(), lambda _: None)} == {"ok"}


def test_a_file_of_the_format_before_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its texts are in the documents, and are read from there until they are written again."""
    with monkeypatch.context() as patch:
        patch.setattr(node_index, "LONG_TEXT", 1 << 30)
        with open_app(tmp_path) as app:
            Doc(key="k", text=LONG).save(app.context())
            assert rows(app, "texts") == 0
    (path,) = (tmp_path / ".trails").rglob("nodes.db")
    with closing(sqlite3.connect(path)) as db, db:
        for what in ("TABLE texts", "TABLE chunks", "INDEX long_nodes", "INDEX long_rows"):
            db.execute(f"DROP {what}")
        db.execute("UPDATE meta SET value = 4 WHERE name = 'format'")
    with open_app(tmp_path) as app:
        nodes = app.graph().main.nodes
        assert part(nodes, "text", 5, 500) == LONG[5:500]
        assert {each.severity for each in verify(app.graph(), lambda _: None)} == {"ok"}
        doc = Doc.get(app.context(), "k")
        doc.size = 1
        doc.save(app.context())
        assert rows(app, "texts") == 1
        assert Doc.get(app.context(), "k").text == LONG
        with nodes.file.reader() as db:
            (stamp,) = db.execute("SELECT value FROM meta WHERE name = 'format'").fetchone()
        assert stamp == INDEX_FORMAT


def test_the_digest_is_of_the_text_alone() -> None:
    """So that a window and a cursor mean the same text as anybody else's SHA-256."""
    assert text_digest(LONG) == sha256(LONG.encode()).hexdigest()
