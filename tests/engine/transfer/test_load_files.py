"""Loading RDF and CSV: what their statements and cells mean, and what they can't do."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import count

import pytest
from tests.worlds.graphs import writing

from trails import (
    App,
    BigInt,
    Blob,
    Context,
    Edge,
    Iri,
    Json,
    Node,
    Ref,
    Vector,
    edge_type,
    node_type,
    predicate,
)
from trails.engine.transfer import rdf as sort
from trails.engine.transfer.formats import How, format_of, load_table
from trails.engine.transfer.formats import load as load_any
from trails.engine.transfer.load import LoadOutcome, Mode
from trails.engine.transfer.rdf import load_rdf, sorted_lines
from trails.errors import NotFoundError, QueryError, ValidationError

BASE = "trails://app/main/"
SCHEMA = f"{BASE}schema#"
XSD = "http://www.w3.org/2001/XMLSchema#"
RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
HEAD = (
    f"@prefix : <{SCHEMA}> . @prefix n: <{BASE}> . @prefix xsd: <{XSD}> .\n@prefix rdf: <{RDF}> .\n"
)


@node_type
class Person(Node):
    """Someone who owns things."""

    email: str = predicate(key=True)
    name: str | None = predicate(min_length=2, default="nobody")
    tags: list[str] = predicate()


@node_type
class Manager(Person):
    """A person with a level."""

    level: int | None = predicate()


@node_type
class Thing(Node):
    """One field of every kind."""

    flag: bool | None = predicate()
    count: int | None = predicate()
    huge: BigInt | None = predicate()
    share: float | None = predicate()
    price: Decimal | None = predicate()
    day: date | None = predicate()
    moment: datetime | None = predicate()
    page: Iri | None = predicate()
    picture: Blob | None = predicate()
    spot: Vector(2) | None = predicate()
    data: Json | None = predicate()
    owner: Ref[Person] | None = predicate()
    helpers: list[Ref[Person]] = predicate()
    counts: list[int] = predicate()


@edge_type(source=Person, target=Person)
class Knows(Edge):
    """Who knows whom."""

    since: int | None = predicate()


@pytest.fixture
def app() -> Iterator[App]:
    """A graph in memory."""
    with App(Person, Manager, Thing, Knows) as opened:
        yield opened


def ctx(app: App) -> Context:
    """A context of the test's own."""
    return app.context(actor="test")


def load(app: App, text: str | bytes, how: str = "turtle", *, mode: Mode = "merge") -> LoadOutcome:
    """Load RDF, or CSV where ``how`` is a type, in one write."""
    graph = app.graph()
    data = [text if isinstance(text, bytes) else text.encode()]
    with writing(graph) as write:
        given = write, graph.main.schema, graph.names, data
        if how[0].isupper():
            return load_table(*given, type_name=how, mode=mode)
        return load_rdf(*given, format=how, mode=mode)


def refused(app: App, text: str | bytes, how: str = "turtle", *, mode: Mode = "merge") -> list[str]:
    """The messages of a load that must fail and leave the graph as it was."""
    head = app.graph().main.head
    with pytest.raises(ValidationError) as caught:
        load(app, text, how, mode=mode)
    assert app.graph().main.head == head
    return [error.message for error in caught.value.fields]


# --- RDF --------------------------------------------------------------------------------------


def test_statements_of_a_node_may_stand_anywhere(app: App) -> None:
    """They are brought together; one load is one commit."""
    before = app.graph().main.head.seq
    loaded = load(
        app,
        HEAD
        + 'n:Person\\/ann :email "ann" . n:Person\\/bob :email "bob"; a :Person .\n'
        + 'n:Person\\/ann :name "Ann"; :tags "x", "y" . n:Person\\/ann a :Person .',
    )
    assert (loaded, app.graph().main.head.seq) == (LoadOutcome(2), before + 1)
    ann = Person.get(ctx(app), "ann")
    assert (ann.name, ann.tags) == ("Ann", ["x", "y"])
    assert Person.get(ctx(app), "bob").name is None


def test_merging_statements_replaces_values_and_unites_sets(app: App) -> None:
    """Statements add to a set; a field of one value has the new one."""
    load(app, HEAD + 'n:Person\\/ann :email "ann"; :name "Ann"; :tags "x" .')
    load(app, HEAD + 'n:Person\\/ann :email "ann"; :name "Anna"; :tags "y" .')
    ann = Person.get(ctx(app), "ann")
    assert (ann.name, ann.tags) == ("Anna", ["x", "y"])
    load(app, HEAD + 'n:Person\\/ann :email "ann"; :tags "z" .', mode="overwrite")
    ann = Person.get(ctx(app), "ann")
    assert (ann.name, ann.tags) == (None, ["z"])
    told = refused(app, HEAD + 'n:Person\\/ann :email "ann" .', mode="append")
    assert told == [
        "Person/ann.email: Person/ann already exists; load it with mode 'merge' to change it"
    ]


def test_literals_are_read_as_values(app: App) -> None:
    """Numbers in narrower datatypes and unusual spellings are what they stand for."""
    load(app, HEAD + 'n:Person\\/ann :email "ann" .')
    load(
        app,
        HEAD
        + """n:Thing\\/1 :flag "1"^^xsd:boolean; :count +007; :huge 123456789012345678901234567890;
        :share 1.5; :price 12.50; :day "2026-03-01"^^xsd:date;
        :moment "2026-03-01T09:30:00+00:00"^^xsd:dateTime; :page <https://example.org/ü>;
        :picture "urn:x"^^xsd:anyURI; :spot "[1, 2.5]"^^<https://trails.dev/ns#vector>;
        :data "{ \\"b\\": 1, \\"a\\": [1.0, 1e3] }"^^rdf:JSON;
        :owner n:Person\\/ann; :counts 1, 2 . n:Thing\\/2 :share 2e3; :price 5 .""",
    )
    one = Thing.get(ctx(app), "1")
    assert (one.flag, one.count, one.huge, one.share) == (
        True,
        7,
        123456789012345678901234567890,
        1.5,
    )
    assert (one.price, one.day) == (Decimal("12.5"), date(2026, 3, 1))
    assert one.moment == datetime(2026, 3, 1, 9, 30, tzinfo=UTC)
    assert (one.page, one.picture, list(one.spot)) == ("https://example.org/ü", "urn:x", [1.0, 2.5])
    assert one.data == Json({"a": [1.0, 1000.0], "b": 1})
    assert (one.owner.email, one.counts) == ("ann", [1, 2])
    two = Thing.get(ctx(app), "2")
    assert (two.share, two.price) == (2000.0, Decimal(5))


BAD_STATEMENTS = {
    "blank subject": ('[] :email "x" .', "is a blank node, which has no name"),
    "blank object": ("n:Thing\\/1 :owner [] .", "must be the IRI of a Person, not '_:"),
    "elsewhere": ("<urn:x> a :Person .", "urn:x' is not a node of this graph: a node's IRI is"),
    "unknown type": ("n:Persn\\/x a :Person .", "there is no type 'Persn'; did you mean 'Person'?"),
    "unknown field": (
        "n:Thing\\/1 :cuont 1 .",
        f"Thing/1.<{SCHEMA}cuont> is not a field of this type; did you mean <{SCHEMA}count>?",
    ),
    "wrong class": ("n:Thing\\/1 a :Person .", "for a node under Thing/, not"),
    "wrong datatype": ('n:Thing\\/1 :count "1" .', "count must be a literal of <http://www.w3.org"),
    "language": ('n:Person\\/a :email "a"; :name "Aa"@en .', "keeps no language"),
    "literal reference": ('n:Thing\\/1 :owner "ann" .', "must be the IRI of a Person"),
    "IRI for a number": ("n:Thing\\/1 :count n:x .", "count must be a literal, not '<trails:"),
    "two values": ("n:Thing\\/1 :count 1, 2 .", "Thing/1.count may have at most 1 value"),
    "own rule": ('n:Person\\/a :email "a"; :name "A" .', "Person/a.name must have at least 2"),
    "other key": ('n:Person\\/a :email "b" .', "Person/a: its id is 'a', but its key gives 'b'"),
    "no key": ('n:Person\\/a :name "Aa" .', "Person/a.email is required"),
    "bad lexical": ('n:Thing\\/1 :count "1_0"^^xsd:integer .', "must be an integer of at most 64"),
    "not finite": ('n:Thing\\/1 :share "INF"^^xsd:double .', "share must be a finite number"),
    "bad vector": ('n:Thing\\/1 :spot "[1"^^<https://trails.dev/ns#vector> .', "an array of 2"),
    "no JSON": ('n:Thing\\/1 :data "{"^^rdf:JSON .', "must be a JSON value, not '{'"),
    "JSON null": ('n:Thing\\/1 :data "null"^^rdf:JSON .', "data must be a JSON value"),
    "dangling": ("n:Thing\\/1 :owner n:Person\\/zoe .", "which does not exist"),
    "syntax": ("n:Thing\\/1 :owner", "the file is not valid turtle:"),
    "no UTF-8": ('n:Person\\/a :email "\udcff" .', "the file is not valid turtle:"),
}


@pytest.mark.parametrize("case", BAD_STATEMENTS)
def test_a_bad_statement_is_told(app: App, case: str) -> None:
    """The message names subject and field, what is wrong and what to write."""
    text, expected = BAD_STATEMENTS[case]
    (told,) = refused(app, (HEAD + text).encode(errors="surrogateescape"))
    assert expected in told


def test_named_graphs_are_refused(app: App) -> None:
    """There is one graph."""
    text = f'<{BASE}Person/a> <{BASE}schema#email> "a" <urn:g> .\n'
    (told,) = refused(app, text, "nquads")
    assert told.startswith("Person/a.email is stated in the named graph <urn:g>")


def test_the_ends_of_an_edge_name_it(app: App) -> None:
    """An edge under another name than its ends give is refused."""
    text = (
        HEAD + 'n:Person\\/a :email "a" . n:Knows\\/x :source n:Person\\/a; :target n:Person\\/a .'
    )
    (told,) = refused(app, text)
    assert told.startswith("Knows/x: its id is 'x', but its ends give ")


def test_two_spellings_of_one_node_are_one_node_too_many(app: App) -> None:
    """An IRI that means the same node in other characters gives it twice."""
    text = HEAD + f'<{BASE}Person/a> :email "a" . <{BASE}Person/%61> :email "a" .'
    assert refused(app, text) == ["Person/a is given twice; give each node once"]


def test_an_unknown_rdf_format_is_told(app: App) -> None:
    """With the nearest that there is."""
    with pytest.raises(QueryError, match="did you mean 'turtle'"):
        load(app, "", "turtel")


def test_json_ld_fetches_nothing(app: App) -> None:
    """A context elsewhere is refused."""
    text = '{"@context": "http://127.0.0.1:9/context", "@id": "Person/a", "email": "a"}'
    (told,) = refused(app, text, "jsonld")
    assert told.startswith("the file is not valid jsonld:")


def test_more_lines_than_memory_are_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs on disk, and runs of runs, come out in order, each line once."""
    monkeypatch.setattr(sort, "_RUNS", 3)
    lines = [b"%06d" % (number * 7919 % 5000) for number in range(10_000)]
    text = b"\n".join(lines)
    blocks = [text[at : at + 100] for at in range(0, len(text), 100)]
    assert list(sorted_lines(blocks, run=1000)) == sorted(set(lines))
    assert list(sorted_lines([])) == []


# --- CSV --------------------------------------------------------------------------------------


def test_rows_are_nodes(app: App) -> None:
    """Quoted commas, quotes and newlines, lists, empty cells and blank rows."""
    text = '\ufeffemail,name,tags\r\nann,"Ann, ""the\r\nfirst""",x|y\r\n\r\nbob,,\r\n,,\r\n'
    assert load(app, text, "Person") == LoadOutcome(2)
    ann = Person.get(ctx(app), "ann")
    assert (ann.name, ann.tags) == ('Ann, "the\r\nfirst"', ["x", "y"])
    assert Person.get(ctx(app), "bob").name == "nobody"


def test_cells_are_read_as_values(app: App) -> None:
    """Every kind from its text; references by key, handle or IRI."""
    load(app, "email\nann\n", "Person")
    load(app, "email\nmax\n", "Manager")
    load(
        app,
        "id,flag,count,huge,share,price,day,moment,page,picture,spot,data,owner,helpers,counts\n"
        "1,true,-5,99999999999999999999,1.5,12.50,2026-03-01,2026-03-01T09:30:00Z,urn:a,urn:b,"
        f'"[1,2]","{{""a"": 1}}",max,Person/ann|{BASE}Manager/max,1|2\n',
        "Thing",
    )
    one = Thing.get(ctx(app), "1")
    assert (one.flag, one.count, one.huge, one.share) == (True, -5, 99999999999999999999, 1.5)
    assert (one.price, one.owner.handle) == (Decimal("12.5"), "Manager/max")
    assert [each.handle for each in one.helpers] == ["Manager/max", "Person/ann"]
    assert (one.counts, list(one.spot)) == ([1, 2], [1.0, 2.0])
    assert one.data == Json({"a": 1})


def test_merging_rows_keeps_empty_cells_and_columns_that_are_not_there(app: App) -> None:
    """An empty cell is no value, so it takes none away."""
    load(app, "email,name,tags\nann,Ann,x\n", "Person")
    load(app, "email,name\nann,\n", "Person")
    assert (Person.get(ctx(app), "ann").name, Person.get(ctx(app), "ann").tags) == ("Ann", ["x"])


def test_edges_come_from_rows_too(app: App) -> None:
    """Their ends are the columns source and target."""
    load(app, "email\nann\nbob\n", "Person")
    load(app, "source,target,since\nann,bob,7\n", "Knows")
    assert [(each.target.email, each.since) for each in Knows.objects(ctx(app))] == [("bob", 7)]


BAD_ROWS: dict[str, tuple[str, str | bytes, str]] = {
    "own rule": ("Person", "email,name\na,Aa\nb,B\n", "row 3, column name must have at least 2"),
    "number": ("Thing", "count\n1\n1_0\n", "row 3, column count must be an integer"),
    "list": ("Thing", "count,counts\n1,1|x\n", "row 2, column counts[1] must be an integer"),
    "unknown column": ("Person", "email,nmae\n", "row 1: 'nmae' is not a field of Person; did you"),
    "column twice": ("Person", "email,name,name\n", "row 1: the column 'name' appears twice"),
    "too few cells": ("Person", "email,name\na\n", "row 2: it has 1 cells, and the header has 2"),
    "quote": ("Person", 'email\n"a"b\n', "row 2: it can't be read as CSV"),
    "open quote": ("Person", 'email\n"a\n', "row 2: it can't be read as CSV"),
    "not UTF-8": (
        "Person",
        b"email\n\xff\n",
        "row 2: it can't be read as CSV (invalid start byte)",
    ),
    "huge cell": ("Person", 'email,name\na,"' + "x\n" * 100_000, "row 2: it can't be read as CSV"),
    "huge line": ("Person", b"email\n" + b"x" * (9 << 20), "it is longer than"),
    "no header": ("Person", "", "row 1: there is no header row"),
    "same twice": ("Person", "email\na\nb\na\n", "row 4: Person/a is given on row 2 already"),
    "dangling": ("Thing", "id,owner\nx,Person/zoe\n", "row 2: owner must refer to a Person"),
    "open key": ("Thing", "owner\nzoe\n", "row 2: Person 'zoe' is in neither"),
    "id": ("Thing", "id,count\n..,1\n", "row 2, column id '.' and '..' are path steps"),
    "no key": ("Person", "email,name\n,Aa\n", "row 2, column email is required"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_a_bad_row_is_told_with_its_number(app: App, case: str) -> None:
    """And with its column, where it is one cell."""
    type_name, text, expected = BAD_ROWS[case]
    (told,) = refused(app, text, type_name)
    assert expected in told


def test_rows_need_a_type(app: App) -> None:
    """An unknown one is told with the nearest."""
    with pytest.raises(NotFoundError, match="did you mean 'Person'"):
        load(app, "email\n", "Persn")


def test_many_bad_rows_are_cut(app: App) -> None:
    """Reading ends when there is enough to tell."""
    rows = count()
    graph = app.graph()
    blocks = [b"count\n", *(b"x%d\n" % next(rows) for _ in range(5000))]
    with pytest.raises(ValidationError) as caught, writing(graph) as write:
        load_table(write, graph.main.schema, graph.names, blocks, type_name="Thing")
    assert (len(caught.value.fields), caught.value.more) == (1000, 1000)


# --- any format -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.ndjson", "ndjson"),
        ("b.c.jsonl.gz", "ndjson"),
        ("A.TTL", "turtle"),
        ("a.nt", "ntriples"),
        ("a.nq.zst", "nquads"),
        ("a.jsonld", "jsonld"),
        ("a.csv", "csv"),
    ],
)
def test_a_name_tells_the_format(name: str, format: str) -> None:
    """By its suffix, before that of compression."""
    assert format_of(name) == format


@pytest.mark.parametrize("name", ["a.txt", "a", "a.gz", ".csv"])
def test_a_name_that_tells_no_format_is_told(name: str) -> None:
    """With what there is."""
    with pytest.raises(QueryError, match="does not imply a format"):
        format_of(name)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (How(), b'{"type":"Person","data":{"email":"ann"}}'),
        (How(format="csv", type_name="Person"), b"email\nann\n"),
        (How(format="csv", type_name="Person", separator=";"), b"email,tags\nann,a;b\n"),
        (How(format="turtle"), (HEAD + 'n:Person\\/ann :email "ann" .').encode()),
        (How(format="jsonld"), f'{{"@id":"Person/ann","{SCHEMA}email":"ann"}}'.encode()),
        (How(format="nquads"), f'<{BASE}Person/ann> <{SCHEMA}email> "ann" .'.encode()),
    ],
)
def test_every_format_is_loaded(app: App, how: How, text: bytes) -> None:
    """The same node from each."""
    graph = app.graph()
    with writing(graph) as write:
        assert load_any(write, graph.main.schema, graph.names, [text], how) == LoadOutcome(1)
    assert Person.get(ctx(app), "ann").handle == "Person/ann"


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (How(format="ndjsn"), "there is no format 'ndjsn'; did you mean 'ndjson'"),
        (How(mode="mrege"), "there is no mode 'mrege'; did you mean 'merge'"),  # type: ignore[arg-type]
        (How(format="csv"), "does not name the type of its rows"),
        (How(format="csv", type_name="Person", separator=""), "must not be empty"),
    ],
)
def test_what_can_not_be_loaded_is_told(app: App, how: How, message: str) -> None:
    """Before anything is read."""
    graph = app.graph()
    with pytest.raises(QueryError, match=message), writing(graph) as write:
        load_any(write, graph.main.schema, graph.names, [], how)


@pytest.mark.parametrize("how", ["turtle", "ntriples", "nquads"])
def test_merging_needs_no_more_than_what_changes(app: App, how: str) -> None:
    """A node that exists is known by its IRI; its key and required fields stay."""
    ctx = app.context()
    ann, ben = Person(email="ann", name="Ann"), Person(email="ben")
    knows = Knows(source=ann, target=ben, since=2020)
    ctx.kg.save_all([ann, ben, knows])
    subject = f"<{knows.iri(ctx)}> <{SCHEMA}since> "
    text = f'<{BASE}Person/ann> <{SCHEMA}name> "Anne" .\n{subject} "2021"^^<{XSD}integer> .\n'
    load(app, text, how)
    assert Person.get(ctx, "ann").name == "Anne"
    assert [(each.source.id, each.since) for each in Knows.objects(ctx)] == [("ann", 2021)]
    with pytest.raises(ValidationError, match=r"Person/eve\.email is required"):
        load(app, f'<{BASE}Person/eve> <{SCHEMA}name> "Eve" .\n', how)
    with pytest.raises(ValidationError, match=r"Person/ann\.email is required"):
        load(app, text, how, mode="overwrite")
