"""SPARQL with typed parameters: values come back as they went in and never become syntax."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trails import App, BigInt, Blob, Iri, Node, Ref, node_type, predicate
from trails.engine.session.context import GraphContext
from trails.engine.sparql.queries import bind, write_term
from trails.errors import QueryError, TrailsError
from trails.model.sparql.tokens import MAX_DEPTH, MAX_TEXT, tokenize


@node_type
class Person(Node):
    """Someone."""

    email: str = predicate(key=True)
    name: str = predicate()
    age: int | None = predicate()
    boss: Ref[Person] | None = predicate()


@pytest.fixture(scope="module")
def ctx() -> Iterator[GraphContext]:
    """Three people; nothing here writes after that."""
    with App(Person, name="people") as app:
        context = app.context()
        ann = Person(email="ann@x", name="Ann", age=50)
        context.kg.save_all(
            [
                ann,
                Person(email="bob@x", name="Bob", age=40, boss=ann),
                Person(email="cy@x", name="Cy", boss=ann),
            ]
        )
        yield context


# --- values ---------------------------------------------------------------------------

SECOND = timedelta(seconds=1)
VALUES: list[object] = [
    "",
    "plain",
    "say \"hi\" 'there'",
    'back\\slash \\u0022 \\" \\n',
    "tab\tline\nreturn\r\x00\x01\x7f\x85\u2028\ufeff",
    "e\u0301 \u05e9\u05dc\u05d5\u05dd \u202e \U0001f469\u200d\U0001f680",
    "?x $x {x} <x> # x",
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    BigInt(10**40),
    0.0,
    -1.5,
    1e300,
    5e-324,
    0.1,
    Decimal("12.50"),
    Decimal("-0.000000000000000001"),
    date(1, 1, 1),
    date(9999, 12, 31),
    datetime(2026, 3, 1, 9, 30, tzinfo=timezone(timedelta(hours=-5, minutes=-30))),
    datetime(2026, 3, 1, 9, 30, 0, 500_000, tzinfo=timezone(timedelta(hours=14))),
    Iri("https://example.org/a?b=c#d"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:30])
def test_a_bound_value_comes_back(ctx: GraphContext, value: object) -> None:
    """Projected, filtered or inside an expression, a parameter is the value that was given."""
    rows = ctx.kg.sparql("SELECT $it WHERE {}", it=value).rows
    assert rows == ({"it": value},)
    same_kind = bool if isinstance(value, bool) else (Iri if isinstance(value, Iri) else object)
    assert isinstance(rows[0]["it"], same_kind)
    assert ctx.kg.sparql("ASK { FILTER (sameTerm($it, $it)) }", it=value)
    assert ctx.kg.sparql("SELECT ?copy { BIND ($it AS ?copy) }", it=value).rows == (
        {"copy": value},
    )


def test_a_blob_is_bound_as_its_uri(ctx: GraphContext) -> None:
    """A Blob is an anyURI literal, as it is stored, and reads back as a URI."""
    rows = ctx.kg.sparql("SELECT $it (DATATYPE($it) AS ?kind) {}", it=Blob("s3://a/b")).rows
    assert rows[0]["it"] == "s3://a/b"
    assert str(rows[0]["kind"]).endswith("#anyURI")


@settings(max_examples=200, deadline=None)
@given(value=st.text(st.characters(exclude_categories=("Cs",))))
def test_any_text_comes_back(value: str) -> None:
    """Any text, bound, is one literal: tokenizing the bound query gives it back as one string."""
    tokens = tokenize(bind(tokenize("SELECT ?x { ?x ?p $it }"), {"it": value}))
    assert [token.text for token in tokens if token.kind == "string"] == [write_term("it", value)]


@pytest.mark.parametrize(
    "value",
    [
        None,
        [1],
        ("a",),
        {"a": 1},
        object,
        b"bytes",
        2**63,
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("1E-19"),
        datetime(2026, 1, 1),  # noqa: DTZ001 - the missing zone is the point
        Iri("not an iri"),
        Iri("https://x/> } SELECT * {"),
        "\ud800",
    ],
    ids=ascii,
)
def test_what_has_no_term_is_refused(ctx: GraphContext, value: object) -> None:
    """A value that RDF can't hold is a QueryError that names the parameter."""
    with pytest.raises(QueryError, match="'it'"):
        ctx.kg.sparql("SELECT $it WHERE {}", it=value)


def test_a_node_is_bound_as_its_iri(ctx: GraphContext) -> None:
    """A parameter may be an instance; one without a key is refused."""
    ann = Person.get(ctx, "ann@x")
    names = ctx.kg.sparql("SELECT ?n { ?p :boss $who ; :name ?n } ORDER BY ?n", who=ann)
    assert [row["n"] for row in names] == ["Bob", "Cy"]
    assert ctx.kg.sparql("SELECT $who {}", who=ann).rows[0]["who"] == ann.iri(ctx)
    with pytest.raises(QueryError, match="no key"):
        ctx.kg.sparql("SELECT $who {}", who=Person(name="new"))


# --- places -----------------------------------------------------------------------------

PLACES = {
    "object": "SELECT ?e { ?p :email ?e ; :name $name }",
    "question mark": "SELECT ?e { ?p :email ?e ; :name ?name }",
    "filter": "SELECT ?e { ?p :email ?e ; :name ?n FILTER (?n = $name) }",
    "filter without spaces": "SELECT ?e{?p :email ?e;:name ?n FILTER(?n=$name)}",
    "in list": "SELECT ?e { ?p :email ?e ; :name ?n FILTER (?n IN ('zzz', $name)) }",
    "function": "SELECT ?e { ?p :email ?e ; :name ?n FILTER STRSTARTS(?n, $name) }",
    "bind": "SELECT ?e { BIND ($name AS ?n) ?p :email ?e ; :name ?n }",
    "values": "SELECT ?e { VALUES ?n { $name } ?p :email ?e ; :name ?n }",
    "subquery": "SELECT ?e { { SELECT ?p { ?p :name $name } } ?p :email ?e }",
    "projected": "SELECT $name ?e WHERE { ?p :email ?e ; :name $name }",
    "projected, distinct": "select distinct ?e $name { ?p :email ?e ; :name $name }",
    "projected in a subquery": "SELECT ?e { { SELECT ?p $name { ?p :name $name } } ?p :email ?e }",
    "aggregate": "SELECT ?e (MAX($name) AS ?m) { ?p :email ?e ; :name $name } GROUP BY ?e",
    "having": "SELECT ?e { ?p :email ?e ; :name ?n } GROUP BY ?e HAVING (MAX(?n) = $name)",
    "optional": "SELECT ?e { ?p :email ?e OPTIONAL { ?p :name ?n FILTER (?n = $name) } "
    "FILTER BOUND(?n) }",
    "exists": "SELECT ?e { ?p :email ?e FILTER EXISTS { ?p :name $name } }",
    "path": "SELECT ?e { ?p :email ?e . ?p :name|:email $name }",
    "comment": "# $other and ?name and \"\nSELECT ?e { # $name '\n ?p :email ?e ; :name $name }",
    "string": "SELECT ?e { ?p :email ?e ; :name $name FILTER (?e != '$other ?name \\' $x') }",
    "long string": 'SELECT ?e { ?p :email ?e ; :name $name FILTER (?e != """$x "" \\""" $x""") }',
    "iri": "SELECT ?e { ?p :email ?e ; :name $name FILTER (?e != <https://x/$other?name>) }",
    "prefix": "PREFIX name: <https://x/$other> PREFIX p: <trails://people/main/schema#> "
    "SELECT ?e { ?x p:email ?e ; p:name $name }",
}


@pytest.mark.parametrize("place", PLACES)
def test_a_parameter_works_in_every_place(ctx: GraphContext, place: str) -> None:
    """Wherever a value may stand a parameter may, and text that only looks like one stays."""
    rows = ctx.kg.sparql(PLACES[place], name="Bob").rows
    assert [row["e"] for row in rows] == ["bob@x"]
    if "projected" in place and "subquery" not in place:
        assert rows[0]["name"] == "Bob"


def test_limit_and_offset_take_counts(ctx: GraphContext) -> None:
    """SPARQL has no place for a typed literal there: a count is written as digits."""
    text = "SELECT ?p { ?p :name ?n } LIMIT $count"
    assert len(ctx.kg.sparql(text, count=1)) == 1
    with pytest.raises(QueryError, match="must be a count"):
        ctx.kg.sparql(text, count="1")


def test_forms_of_answers(ctx: GraphContext) -> None:
    """SELECT gives rows by variable, ASK a truth value, CONSTRUCT and DESCRIBE triples."""
    select = ctx.kg.sparql("SELECT ?n ?a { ?p :name ?n OPTIONAL { ?p :age ?a } } ORDER BY ?n")
    assert select.columns == ("n", "a")
    assert [dict(row) for row in select] == [
        {"n": "Ann", "a": 50},
        {"n": "Bob", "a": 40},
        {"n": "Cy", "a": None},
    ]
    assert len(select) == 3
    assert ctx.kg.sparql("ASK { ?p :name $n }", n="Ann").truth is True
    assert not ctx.kg.sparql("ASK { ?p :name $n }", n="Zoe")
    built = ctx.kg.sparql("CONSTRUCT { ?p :is $n } WHERE { ?p :name $n }", n="Ann")
    assert [row["object"] for row in built] == ["Ann"]
    described = ctx.kg.sparql("DESCRIBE $who", who=Person.get(ctx, "bob@x"))
    assert {row["object"] for row in described} >= {"Bob", 40}


# --- what can't be asked ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "params", "says"),
    [
        ("SELECT ?p { ?p :name $n }", {}, r"\$n"),
        ("SELECT ?p { ?p :name $n }", {"n": "x", "more": 1}, "'more'"),
        ("SELECT ?p { ?p :name '$n' }", {"n": "x"}, "'n'"),
        ("SELECT ?p { ?p :name ?x } # $n", {"n": "x"}, "'n'"),
        ("SELECT (1 AS $n) {}", {"n": 2}, r"\?n"),
        ("SELECT ?p { BIND (1 AS ?n) }", {"n": 2}, r"\?n"),
        ("SELECT ?p { VALUES $n { 1 } }", {"n": 2}, "parse"),
    ],
)
def test_wrong_parameters_are_told(ctx: GraphContext, text: str, params: dict, says: str) -> None:
    """A missing, unused or rebound parameter is a QueryError that names it."""
    with pytest.raises(QueryError, match=says):
        ctx.kg.sparql(text, **params)


UPDATES = [
    "INSERT DATA { <x:a> <x:p> 1 }",
    "DELETE DATA { <x:a> <x:p> 1 }",
    "DELETE WHERE { ?s ?p ?o }",
    "insert { ?s :name 'x' } where { ?s ?p ?o }",
    "PREFIX ask: <x:> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
    "WITH <x:g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }",
    "LOAD <file:///etc/passwd>",
    "LOAD SILENT <https://example.org/>",
    "CLEAR ALL",
    "DROP ALL",
    "CREATE GRAPH <x:g>",
    "ADD DEFAULT TO <x:g>",
    "MOVE DEFAULT TO <x:g>",
    "COPY DEFAULT TO <x:g>",
    "SELECT ?s { ?s ?p ?o } ; DROP ALL",
    "ASK {} ; DELETE WHERE { ?s ?p ?o }",
    "# SELECT\nDROP ALL",
    "'SELECT' DROP ALL",
]
OUTSIDE = [
    "SELECT ?s { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }",
    "SELECT ?s { service SILENT <http://127.0.0.1:1/> { ?s ?p ?o } }",
    "ASK { { { SeRvIcE ?x { ?s ?p ?o } } } }",
    "SELECT ?s { OPTIONAL{SERVICE<http://127.0.0.1:1/>{ ?s ?p ?o }} }",
    "SELECT ?s { { SELECT ?s { SERVICE <http://127.0.0.1:1/> { ?s ?p ?o } } } }",
    "SELECT ?s { SER\\u0056ICE <http://127.0.0.1:1/> { ?s ?p ?o } }",
    "SELECT ?s { \\u0053ERVICE <http://127.0.0.1:1/> { ?s ?p ?o } }",
]
BROKEN = [
    "",
    " \n# only a comment",
    "SELECT",
    "SELECT ?s",
    "SELECT ?s {",
    "SELECT ?s { ?s ?p }",
    "SELECT ?s { ?s unknown:p ?o }",
    "SELECT ?s { ?s :name 'open }",
    'SELECT ?s { ?s :name """open }',
    "SELECT ?s { ?s :name <open }",
    "SELECT ?s { ?s :name \\u0022x\\u0022 }",
    "SELECT ?s ?s { } }",
    "SELECT ?s { ?s ?p ?o FILTER (nope(?o)) }",
    "\x00",
    "\ud800",
    "SELECT ?s { ?s :name '\ud800' }",
    "{" * MAX_DEPTH,
    ")" * 500 + "SELECT ?s { ?s ?p ?o }",
]


@pytest.mark.parametrize("text", [*UPDATES, *OUTSIDE, *BROKEN], ids=ascii)
def test_what_is_not_a_query_is_refused(ctx: GraphContext, text: str) -> None:
    """Updates, other servers and broken text are QueryErrors, and nothing changes."""
    before = ctx.kg.head
    with pytest.raises(QueryError):
        ctx.kg.sparql(text)
    assert ctx.kg.head == before
    assert len(ctx.kg.sparql("SELECT ?p { ?p a :Person }")) == 3


@pytest.mark.parametrize("text", OUTSIDE[:5])
def test_service_is_named_in_the_refusal(ctx: GraphContext, text: str) -> None:
    """The refusal says that SERVICE is the reason, before anything is sent anywhere."""
    with pytest.raises(QueryError, match="SERVICE"):
        ctx.kg.sparql(text)


def test_words_in_names_and_strings_are_no_keywords(ctx: GraphContext) -> None:
    """A field, prefix, string or variable may be called service or insert."""
    text = (
        "PREFIX service: <x:> SELECT ?insert { ?p :name ?insert "
        "FILTER (?insert != 'SERVICE' && ?insert != \"DROP\") OPTIONAL { ?p service:load ?x } }"
    )
    assert len(ctx.kg.sparql(text)) == 3


def test_size_and_depth_are_limited(ctx: GraphContext) -> None:
    """Text up to the limits runs, text beyond them is refused with the limit named."""
    query = "SELECT ?p { ?p a :Person } #"
    assert len(ctx.kg.sparql(query + "x" * (MAX_TEXT - len(query)))) == 3
    with pytest.raises(QueryError, match="64 KiB"):
        ctx.kg.sparql(query + "x" * (MAX_TEXT - len(query) + 1))
    with pytest.raises(QueryError, match="64 KiB"):
        ctx.kg.sparql(query + "é" * (MAX_TEXT // 2))
    depth = MAX_DEPTH - 1
    assert len(ctx.kg.sparql("SELECT ?p {" + "{" * depth + "?p a :Person" + "}" * (depth + 1))) == 3
    for opening, closing in ("{}", "()", "[]"):
        deep = opening * (MAX_DEPTH + 1) + closing * (MAX_DEPTH + 1)
        with pytest.raises(QueryError, match="32 levels"):
            ctx.kg.sparql("SELECT ?p " + deep)
    # Closing first does not earn more depth.
    with pytest.raises(QueryError):
        ctx.kg.sparql("}" * 1000 + "{" * 1000)


def test_long_parameters_are_not_text(ctx: GraphContext) -> None:
    """The limit is on what is asked, not on the values it is asked with."""
    long = "x" * 1_000_000
    assert ctx.kg.sparql("SELECT $it {}", it=long).rows[0]["it"] == long


# --- injection ------------------------------------------------------------------------------

ATTACKS = [
    '" } ; DROP ALL ; SELECT ?x { ?x ?y "',
    "' } UNION { ?p :email ?e } #",
    '" } UNION { ?p :email ?e . FILTER("" = "',
    '\\" } UNION { ?p :email ?e } #',
    '\\\\" } UNION { ?p :email ?e } #',
    '""" } UNION { ?p :email ?e } #',
    "''' } UNION { ?p :email ?e } #",
    "\\u0022 } UNION { ?p :email ?e } #",
    "\\U00000022 } UNION { ?p :email ?e } #",
    "\n} UNION { ?p :email ?e } #",
    "\r} UNION { ?p :email ?e } #",
    "\x85\u2028} UNION { ?p :email ?e } #",
    '"^^<x:y> } UNION { ?p :email ?e } #',
    '"@en } UNION { ?p :email ?e } #',
    "$name ?name {0} %s",
    "<x:y>",
    'x\x00" } UNION { ?p :email ?e } #',
]


@pytest.mark.parametrize("attack", ATTACKS, ids=ascii)
@pytest.mark.parametrize("place", PLACES)
def test_a_value_never_becomes_syntax(ctx: GraphContext, attack: str, place: str) -> None:
    """Whatever the value says, no row matches it and no error tells of its content."""
    assert ctx.kg.sparql(PLACES[place], name=attack).rows == ()


@pytest.mark.parametrize("attack", ATTACKS, ids=ascii)
def test_a_hostile_value_comes_back_as_itself(ctx: GraphContext, attack: str) -> None:
    """A hostile text is data: bound, compared and returned unchanged."""
    found = ctx.kg.sparql("SELECT $x { FILTER ($x = $y) }", x=attack, y=attack)
    assert found.rows == ({"x": attack},)


@pytest.mark.parametrize("attack", ATTACKS, ids=ascii)
def test_a_hostile_iri_is_refused_or_harmless(ctx: GraphContext, attack: str) -> None:
    """An Iri that is none is refused; nothing of it reaches the query."""
    with pytest.raises(QueryError):
        ctx.kg.sparql("SELECT ?e { $who :email ?e }", who=Iri(attack))
    with pytest.raises(QueryError):
        ctx.kg.sparql("SELECT ?e { $who :email ?e }", who=Iri("https://x/" + attack + " >"))


WORDS = ("?a", "$b", "$c", ":p", "a", "SELECT", "WHERE", "FILTER", "SERVICE", "DROP")


@settings(max_examples=300, deadline=None)
@given(
    text=st.lists(
        st.sampled_from([*"{}()\"'\\<>#.;1 \n", '"""', " AS ", *WORDS]),
        max_size=25,
    ).map("".join),
    value=st.sampled_from(ATTACKS),
)
def test_random_text_gives_rows_or_a_query_error(text: str, value: str) -> None:
    """Any text at all is run or refused with an error of ours, whatever is bound."""
    try:
        FUZZED.kg.sparql(text, b=value, c=1)
    except TrailsError as error:
        assert isinstance(error, QueryError)  # noqa: PT017 - both outcomes are right


FUZZED = App(Person, name="fuzz").context()
