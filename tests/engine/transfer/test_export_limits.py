"""Every export loads again, up to the largest node that a graph takes; larger ones are refused."""

from __future__ import annotations

import shutil
import unicodedata
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds.graphs import writing

from trails import App, BigInt, Blob, Edge, Iri, Node, Ref, Vector, edge_type, node_type, predicate
from trails.engine.graph.graph import Graph
from trails.engine.session.context import GraphContext
from trails.engine.transfer.files import LOADABLE
from trails.engine.transfer.load import load_lines
from trails.engine.transfer.rdf import load_rdf
from trails.engine.upkeep.verify import content_digest
from trails.engine.validation import validate as node_sizes
from trails.errors import QueryError, ValidationError
from trails.model.history import MergeRequest
from trails.model.nodes import LARGE_NODE, MAX_NODE
from trails.model.writes import LoadRequest
from trails.sandbox.limits import DEFAULTS
from trails.views import terms as statements

_ROOM = 400
"""Bytes that the other fields of a node take."""


@node_type
class Doc(Node):
    """A node that can hold much."""

    key: str = predicate(key=True)
    text: str | None = predicate()
    other: str | None = predicate(default="none")
    words: list[str] = predicate()
    numbers: list[float] = predicate()
    spot: Vector(2) | None = predicate()
    huge: BigInt | None = predicate()
    price: Decimal | None = predicate()
    day: date | None = predicate()
    moment: datetime | None = predicate()
    page: Iri | None = predicate()
    picture: Blob | None = predicate()
    about: list[Ref[Doc]] = predicate()


@node_type
class Wide(Node):
    """A vector as long as there can be."""

    spot: Vector(65_536) | None = predicate()


@edge_type(source=Doc, target=Doc)
class Cites(Edge):
    """An edge with fields."""

    note: str | None = predicate(default="none")
    tags: list[str] = predicate()


TYPES = (Doc, Wide, Cites)


def digest(graph: Graph) -> str:
    """What a graph holds, as a number."""
    with graph.file.reader() as db:
        states = graph.main.nodes.states(db, graph.main.schema.by_name)
        return content_digest(graph.main.terms, states)


def load(app: App, blocks: Iterable[bytes], format: str) -> None:
    """Load a file as a request does: RDF is parsed in the sandbox."""
    app.service().load("test", LoadRequest(files=(blocks,), format=format, mode="append"))


def load_here(app: App, blocks: Iterable[bytes], format: str) -> None:
    """Load a file without a sandbox, which takes long to start."""
    graph = app.graph()
    with writing(graph) as write:
        if format == "ndjson":
            load_lines(write, graph.main.schema, graph.names, blocks, mode="append")
        else:
            load_rdf(write, graph.main.schema, graph.names, blocks, format=format, mode="append")


def check_survives(
    nodes: list[Node],
    formats: Iterable[str] = sorted(LOADABLE),
    load: Callable[[App, Iterable[bytes], str], None] = load,
) -> None:
    """Written in each format and loaded into an empty graph, the content is the same."""
    with App(*TYPES) as first:
        ctx = first.context(actor="test")
        ctx.kg.save_all(nodes)
        for format in formats:
            with App(*TYPES) as second:
                load(second, first.service().export(ctx, format), format)
                assert digest(second.graph()) == digest(first.graph()), format


# --- random nodes at the edges of what fields take --------------------------------------------

ODD = (
    "\0\x01\b\t\n\v\f\r\x1f \"'<>\\^`{|}%/#?\x7f\x80\x85\xa0"
    "\u2028\u2029\ufdd0\ufeff\ufffd\ufffe\uffff\U0001fffe🜚e\u0301"
)
texts = st.text(st.sampled_from(ODD) | st.characters(exclude_categories=("Cs",)), max_size=12)
keys = st.text(st.sampled_from(ODD), min_size=1, max_size=8) | st.sampled_from(
    ["ß" * 256, "\x01" * 512]
)
floats = st.sampled_from([5e-324, -1.7976931348623157e308, 1e16, 2.0**49 + 0.25]) | st.floats(
    allow_nan=False, allow_infinity=False
)
DOC = st.fixed_dictionaries(
    {},
    optional={
        "text": texts,
        "other": st.none() | texts,
        "words": st.lists(texts, max_size=5) | st.just([f"w{at}" for at in range(300)]),
        "numbers": st.lists(floats, max_size=5),
        "spot": st.tuples(floats, floats).map(list),
        "huge": st.sampled_from([10**1000 - 1, 1 - 10**1000, 0, 2**64]).map(BigInt),
        "price": st.sampled_from(
            ["-99999999999999999999.999999999999999999", "0.000000000000000001"]
        ).map(Decimal),
        "day": st.sampled_from([date.min, date.max]),
        "moment": st.sampled_from(
            [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)]
        ),
        "page": st.sampled_from(["urn:ä:%20", "https://example.org/?q=~!$&'()*+,;=:@#x"]).map(Iri),
        "picture": st.sampled_from(["data:,%0A", "https://example.org/(a)"]).map(Blob),
    },
)


@st.composite
def graphs(draw: st.DrawFn) -> list[Node]:
    """Some nodes that refer to each other, and edges between them."""
    named = draw(st.lists(keys, unique_by=_normal, min_size=1, max_size=4))
    docs = [Doc(key=key, **draw(DOC)) for key in named]
    for doc in docs:
        doc.about = draw(st.lists(st.sampled_from(docs), max_size=2))
    edge = Cites(
        source=docs[0],
        target=docs[-1],
        note=draw(st.none() | texts),
        tags=draw(st.lists(texts, max_size=3)),
    )
    return [*docs, edge]


def _normal(key: str) -> str:
    return unicodedata.normalize("NFC", key)


@settings(max_examples=12)
@given(nodes=graphs())
def test_odd_nodes_survive_their_export(nodes: list[Node]) -> None:
    """In every format."""
    check_survives(nodes, load=load_here)


@pytest.mark.long
@settings(max_examples=600)
@given(nodes=graphs())
def test_many_odd_nodes_survive_their_export(nodes: list[Node]) -> None:
    """In every format."""
    check_survives(nodes)


# --- large nodes ------------------------------------------------------------------------------


def filled(character: str, written: int) -> Node:
    """The largest node with one text, of a character that takes so many bytes."""
    return Doc(key="k", text=character * ((MAX_NODE - _ROOM) // written))


LARGE: dict[str, Callable[[], Node]] = {
    "plain": lambda: filled("a", 1),
    "escaped": lambda: filled("\x01", 6),
    "longer in RDF": lambda: filled("\x7f", 6),
    "twice as long in RDF": lambda: filled("\uffff", 6),
    "not ASCII": lambda: filled("语", 3),
    "several fields": lambda: Doc(
        key="k", text="a" * (MAX_NODE // 2), other="ß" * (MAX_NODE // 4 - _ROOM)
    ),
    "many members": lambda: Doc(key="k" * 9, words=[f"{at:06}" for at in range(100_000)]),
    "many members of a long name": lambda: Doc(
        key="\x01" * 512, words=[f"{at:05}" for at in range(60_000)]
    ),
    "many numbers": lambda: Doc(key="k", numbers=[at * 1e300 for at in range(20_000)]),
    "a vector": lambda: Wide(spot=[-1.2345678901234567e-300] * 65_536),
}


@pytest.mark.parametrize(
    ("name", "format"),
    [("plain", "ndjson"), ("not ASCII", "jsonld"), ("twice as long in RDF", "turtle")],
)
def test_the_largest_text_survives_its_export(name: str, format: str) -> None:
    """Whatever its characters take in a format."""
    check_survives([LARGE[name]()], [format])


@pytest.mark.long
@pytest.mark.parametrize("format", sorted(LOADABLE))
@pytest.mark.parametrize("name", sorted(LARGE))
def test_the_largest_nodes_survive_their_export(name: str, format: str) -> None:
    """Also those with many values, which make far more statements than they have bytes."""
    check_survives([LARGE[name]()], [format])


@pytest.mark.parametrize("format", ["turtle", "jsonld"])
def test_no_export_grows_as_a_hostile_file_does(format: str) -> None:
    """Also where each of many short values makes a statement with a long name."""
    with App(*TYPES) as app:
        ctx = app.context(actor="test")
        Doc(key="\x01" * 512, words=[f"{at:03x}" for at in range(4096)]).save(ctx)
        size = len(b"".join(app.service().export(ctx, "nquads")))
        assert size < DEFAULTS.expansion / 2 * len(b"".join(app.service().export(ctx, format)))


def test_a_table_takes_large_cells() -> None:
    """Larger ones than the library takes unless told."""
    with App(*TYPES) as app:
        text = "long " * 100_000
        rows = f"key,text\na,{text}\n".encode()
        app.service().load(
            "test", LoadRequest(files=([rows],), format="csv", type_name="Doc", mode="append")
        )
        assert Doc.get(app.context(actor="test"), "a").text == text


# --- too large --------------------------------------------------------------------------------


def refusal(error: pytest.ExceptionInfo[ValidationError]) -> str:
    """What is told of the only thing that is wrong."""
    (only,) = error.value.fields
    assert (only.code, only.constraint) == ("max_size", MAX_NODE)
    return only.message


def ways(app: App, ctx: GraphContext) -> dict[str, Callable[[str], object]]:
    """The ways to write a node with a text."""
    service = app.service()
    return {
        "save": lambda text: Doc(key="k", text=text).save(ctx),
        "save_all": lambda text: ctx.kg.save_all([Doc(key="k", text=text)]),
        "mutate": lambda text: service.mutate(
            ctx, [{"op": "create", "type": "Doc", "data": {"key": "k", "text": text}}]
        ),
        "load": lambda text: load(
            app, [b'{"type":"Doc","data":{"key":"k","text":"%b"}}\n' % text.encode()], "ndjson"
        ),
        "load rdf": lambda text: load(
            app,
            [f"<Doc/k> a <schema#Doc> ; <schema#key> 'k' ; <schema#text> '{text}' .".encode()],
            "turtle",
        ),
    }


def test_no_way_of_writing_takes_a_larger_node() -> None:
    """The field, its size, the limit and what to do are told; nothing is written."""
    with App(*TYPES) as app:
        ctx = app.context(actor="test")
        for name, write in ways(app, ctx).items():
            with pytest.raises(ValidationError) as error:
                write("a" * (MAX_NODE + 1))
            told = refusal(error)
            assert "Doc/k takes 16,000,0" in told, name
            assert "'text'; a node may take 16,000,000. Shorten 'text'" in told
        assert Doc.objects(ctx).count() == 0


@pytest.mark.parametrize("character", ["\x7f", "\x01", "\uffff", "\ufffe"])
def test_what_is_written_in_six_bytes_counts_so(character: str) -> None:
    """The limit is one of the longest form."""
    with App(*TYPES) as app:
        ctx = app.context(actor="test")
        with pytest.raises(ValidationError) as error:
            Doc(key="k", text=character * (LARGE_NODE + 1)).save(ctx)
        assert "Doc/k takes 16,000,0" in refusal(error)


def test_a_write_is_judged_by_its_end() -> None:
    """What is shortened again in the same transaction was never too large."""
    with App(*TYPES) as app:
        ctx = app.context(actor="test")
        with ctx.kg.transaction():
            doc = Doc(key="k", text="a" * MAX_NODE)
            doc.save(ctx)
            doc.text = "short"
            doc.save(ctx)
        assert Doc.get(ctx, "k").text == "short"


def test_two_sides_that_are_too_large_together_are_a_conflict() -> None:
    """Either side settles it."""
    with App(*TYPES) as app:
        ctx, versions = app.context(actor="test"), app.versions()
        Doc(key="k").save(ctx)
        versions.create_branch("side")
        there = app.context(actor="test", branch="side")
        for field, where in (("text", ctx), ("other", there)):
            doc = Doc.get(where, "k")
            setattr(doc, field, "a" * (MAX_NODE // 2))
            doc.save(where)
        result = versions.merge(MergeRequest("side"))
        (conflict,) = result.conflicts
        assert (conflict.kind, conflict.takes[:2]) == ("constraint", ("ours", "theirs"))
        assert "a node may take 16,000,000" in conflict.message


# --- nodes of before ----------------------------------------------------------------------------

APP = """
from trails import Node, node_type, predicate

@node_type
class Doc(Node):
    key: str = predicate(key=True)
    text: str | None = predicate()
    other: str | None = predicate()
"""


@pytest.mark.parametrize("character", ["a", pytest.param("\x01", marks=pytest.mark.long)])
def test_a_larger_node_of_before_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, character: str
) -> None:
    """It is read, rebuilt from the log, exported, shortened and deleted; it can't grow."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "p"\n')
    (tmp_path / "app.py").write_text(APP)
    text = character * (33_000_000 // len(msgspec.json.encode(character)[1:-1]))
    with App.open(tmp_path) as app, monkeypatch.context() as patch:
        patch.setattr(node_sizes, "MAX_NODE", 1 << 30)
        change(app, [{"op": "create", "type": "Doc", "data": {"key": "k", "text": text}}])
    graph = tmp_path / ".trails/graphs/main"
    (graph / "nodes.db").unlink()
    shutil.rmtree(graph / "branches")
    with App.open(tmp_path) as app:
        exported = b"".join(app.service().export(app.context(actor="test"), "ndjson"))
        assert msgspec.json.decode(exported)["data"] == {"key": "k", "text": text}
        for format, told in (
            (
                "ndjson",
                "line 1: it is longer than 32,000,000 bytes, and a node may take 16,000,000",
            ),
            ("turtle", "it has a value that is too long to be read; a node may take 16,000,000"),
        ):
            blocks = app.service().export(app.context(actor="test"), format)
            with pytest.raises((ValidationError, QueryError), match=told):
                load(app, blocks, format)
        with pytest.raises(ValidationError, match="Shorten 'text'"):
            change(app, [{"op": "update", "type": "Doc", "id": "k", "data": {"other": "more"}}])
        change(app, [{"op": "update", "type": "Doc", "id": "k", "data": {"text": text[:-1]}}])
        change(app, [{"op": "delete", "type": "Doc", "id": "k"}])
        assert b"".join(app.service().export(app.context(actor="test"), "ndjson")) == b""


@settings(max_examples=50)
@given(text=texts)
def test_a_long_statement_is_read_as_a_short_one(text: str) -> None:
    """Those that the library does not take are read as it reads the others."""
    for literal in (ox.Literal(text), ox.Literal(text, datatype=ox.NamedNode("urn:x"))):
        quad = ox.Quad(ox.NamedNode("urn:s"), ox.NamedNode("urn:p"), literal)
        line = ox.serialize([quad], format=ox.RdfFormat.N_QUADS).rstrip(b"\n")
        assert statements._parse_long(line) == quad


def change(app: App, operations: list[dict[str, object]]) -> None:
    """Change the graph."""
    app.service().mutate(app.context(actor="test"), operations)
