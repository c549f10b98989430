"""Hints for SPARQL: names and values that match nothing, and texts that are not SPARQL."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from unittest.mock import patch

import pytest

from trails import App, BigInt, Iri, Node, Ref, node_type, predicate
from trails.engine.sparql import queries
from trails.errors import QueryError
from trails.model.sparql.tokens import tokenize


@node_type
class Task(Node):
    """Something to be done."""

    title: str = predicate()
    status: str = predicate(one_of=["open", "done"], default="open")
    due: date | None = predicate()
    at: datetime | None = predicate()
    hours: Decimal | None = predicate()
    points: int | None = predicate()
    urgent: bool | None = predicate()
    page: Iri | None = predicate()
    after: Ref[Task] | None = predicate()


@pytest.fixture(scope="module")
def app():
    """A graph with two tasks."""
    with App(Task) as made:
        first = Task(title="first", due=date(2026, 2, 1), hours=Decimal("1.5"), points=3)
        made.context().kg.save_all([first, Task(title="second", after=first)])
        yield made


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT ?t { ?t a :Tsk }", "there is no class :Tsk; did you mean :Task?"),
        (
            "SELECT (COUNT(?t) AS ?n) { ?t a :Task ; :titel ?x }",
            "there is no field :titel; did you mean :title?",
        ),
        ("ASK { ?t a :Tsk ; :titel 1 }", "did you mean :Task?; there is no field :titel; did"),
        ("SELECT ?t { ?t ?p ?o FILTER(?p = :titl) }", "there is no class or field :titl; did"),
    ],
)
def test_a_name_that_there_is_not_is_told(app, text, told):
    """Such a query is legal and finds nothing, which by itself looks like an answer."""
    assert told in app.ask(app.context(), text).notice


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?t { ?t a :Task ; :title ?x }",
        "SELECT ?t { ?t a :Task ; :title 'third' }",
        "SELECT ?t { ?t rdf:type :Task ; :status ?s FILTER(?s IN ('open', \"done\")) }",
        "SELECT ?t { ?t :due ?d FILTER(?d > '2026-01-01'^^xsd:date) }",
        "SELECT ?t { ?t :hours ?h ; :points ?p FILTER(?h > 1 && ?p < 4.5 && ?p != 1e0) }",
        "SELECT ?t { ?t :points 3 ; :urgent true ; :title 'a', 'b' ; :hours 1.5 }",
        "SELECT ?x { ?t :due ?d BIND(STR(?d) AS ?x) FILTER(?x > '2026') }",
        "SELECT ?s { VALUES ?s { 'x' } ?t :title ?s FILTER(?s = 'x') }",
        "SELECT ?t { ?t :title ?d } ORDER BY ?d",
        "SELECT ?d { { ?t :due ?d } UNION { ?t :title ?d } FILTER(?d = 'first') }",
        "CONSTRUCT { ?t <http://other.example/p> 'x' } WHERE { ?t :due ?d }",
        "BASE <http://other.example/> SELECT ?t { ?t :page ?p . FILTER(<x> = ?t) }",
        "SELECT ?t { ?t :after/:title 'x' ; ^:after [ :title 'y' ], ?z }",
    ],
)
def test_a_query_that_can_match_has_no_notice(app, text):
    """Also if it finds nothing."""
    assert app.ask(app.context(), text).notice is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "PREFIX o: <http://other.example/> ASK { ?t a o:Task }",
            "no class o:Task; did you mean :Task?",
        ),
        (
            "PREFIX o: <http://o.example/> ASK { ?t o:title ?x }",
            "no field o:title; did you mean :title?",
        ),
        ("ASK { ?t rdfs:label ?x }", "there is no field rdfs:label; there are :after, "),
        ("ASK { ?t a <Task> }", "there is no class <Task>; did you mean :Task?"),
    ],
)
def test_a_name_of_another_vocabulary_gets_a_notice(app, text, told):
    """Only declared classes and fields are stored, so a wrong prefix matches nothing."""
    assert told in app.ask(app.context(), text).notice


DUE = ":due holds xsd:date, so it can't be compared with {}"


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        (
            "?t :due ?d FILTER(?d > '2026-01-01')",
            DUE.format("'2026-01-01'") + '; write "2026-01-01"^^xsd:date',
        ),
        ("?t :due ?d FILTER('2026-01-01' < ?d)", DUE.format("'2026-01-01'")),
        ("?t :due ?d FILTER('x'@en = ?d)", DUE.format("'x'@en")),
        (
            "?t :due ?d FILTER('2026-01-01T00:00:00Z'^^xsd:dateTime < ?d)",
            DUE.format("'2026-01-01T00:00:00Z'^^xsd:dateTime"),
        ),
        ("?t :due ?d FILTER(?d IN (2026, 2027))", DUE.format("2026")),
        (
            "?t :due 'soon'",
            "xsd:date, so it never equals 'soon'; write it like \"2026-03-01\"^^xsd:date",
        ),
        (
            "VALUES ?s { 'opn' 'open' } ?t :status ?s",
            ":status is never 'opn'; did you mean \"open\"?",
        ),
        ("?t :hours 1.5e0", 'so it never equals 1.5e0; write "1.5"^^xsd:decimal'),
        ("?t :hours 1", ':hours holds xsd:decimal, so it never equals 1; write "1"^^xsd:decimal'),
        ("?t :points '3'", "so it never equals '3'; write \"3\"^^xsd:integer"),
        (
            "?t :hours -1",
            ':hours holds xsd:decimal, so it never equals -1; write "-1"^^xsd:decimal',
        ),
        ("VALUES ?h { -1 } ?t :hours ?h", 'so it never equals -1; write "-1"^^xsd:decimal'),
        ("?t :points 'three'", ":points holds xsd:integer, so it never equals 'three'"),
        ("?t :urgent 1", ":urgent holds xsd:boolean, so it never equals 1"),
        ("?t :title 'x'@en", ":title holds xsd:string, so it never equals 'x'@en"),
        ("?t :page <http://a.example/>", 'so it never equals <http://a.example/>; write "http'),
        ("?t :after 'first'", "holds references to Task, so it never equals 'first'; write an IRI"),
        ("?t :status 'opn'", ":status is never 'opn'; did you mean \"open\"?"),
        ("?t :status ?s FILTER(?s = 'xyz')", 'never \'xyz\'; its values are "open", "done"'),
        ("?t :status ?s FILTER(?s NOT IN ('open', 'dne'))", 'did you mean "done"?'),
        (
            "?t :after [ :status 'opn' ] , 'x'",
            ":status is never 'opn'; did you mean \"open\"?; :after",
        ),
    ],
)
def test_a_value_that_the_field_never_holds_gets_a_notice(app, pattern, told):
    """The answer is empty whatever is stored, which by itself looks like an answer."""
    assert told in app.ask(app.context(), f"SELECT ?t {{ {pattern} }}").notice


def test_a_parameter_of_the_wrong_type_gets_a_notice(app):
    """It is looked at with its value in place."""
    text = "SELECT ?t { ?t :due ?d FILTER(?d > $since) }"
    ctx = app.context()
    assert 'be compared with "2026-01-01"' in app.ask(ctx, text, since="2026-01-01").notice
    answer = app.ask(ctx, text, since=date(2026, 1, 1))
    assert answer.notice is None
    assert len(answer.rows) == 1


def test_an_instance_that_does_not_exist_gets_a_notice(app):
    """In the text or a parameter; in any form but that of another base."""
    ctx = app.context()
    node = Task.objects(ctx).where(title="first").first()
    iri, handle = node.iri(ctx), f"trails://kg/Task/{node.id}"
    for text in (f"ASK {{ <Task/{node.id}> ?p ?o }}", f"ASK {{ <{iri}> ?p ?o }}"):
        answer = app.ask(ctx, text)
        assert answer.truth
        assert answer.notice is None
    wrong = f"Task/{node.id[:-1]}"
    for text in (
        f"ASK {{ ?t :after <{wrong}> }}",
        f"ASK {{ VALUES ?t {{ <{iri[:-1]}> }} ?t ?p ?o }}",
    ):
        notice = app.ask(ctx, text).notice
        assert notice.startswith(f"there is no Task '{wrong}'; did you mean Task/{node.id[:8]}")
    assert app.ask(ctx, f"BASE <http://other.example/> ASK {{ <{wrong}> ?p ?o }}").notice is None
    told = app.ask(ctx, f"ASK {{ <{handle}> ?p ?o }}").notice
    assert told == f"<{handle}> matches nothing; write <Task/{node.id}>"


@pytest.mark.parametrize(
    "form", ["{iri}", "Task/{id}", "trails://kg/Task/{id}", "trails://branch/b/kg/Task/{id}"]
)
def test_a_parameter_refers_to_an_instance_in_every_form(app, form):
    """As references do everywhere else; one to nothing gets a notice."""
    ctx = app.context()
    node = Task.objects(ctx).where(title="first").first()
    text = "SELECT ?x { $task :title ?x }"
    answer = app.ask(ctx, text, task=Iri(form.format(iri=node.iri(ctx), id=node.id)))
    assert [row["x"] for row in answer] == ["first"]
    assert answer.notice is None
    missing = Iri(form.format(iri=node.iri(ctx)[:-1], id=node.id[:-1]))
    assert "did you mean Task/" in app.ask(ctx, text, task=missing).notice


def test_common_prefixes_and_the_graphs_base_need_no_declaration(app):
    """In queries, updates and trusted SPARQL alike; a text may declare others."""
    ctx = app.context()
    node = Task.objects(ctx).where(title="first").first()
    for ask in (app.ask, lambda ctx, text: ctx.kg.sparql(text)):
        assert len(ask(ctx, f"SELECT ?x {{ <Task/{node.id}> :title ?x }}").rows) == 1
        assert ask(ctx, "ASK { ?t rdf:type :Task . FILTER(xsd:integer('3') = 3) }").truth
        other = "BASE <http://other.example/> PREFIX xsd: <http://other.example/#> "
        assert not ask(ctx, f"{other} ASK {{ <Task/{node.id}> ?p ?o }}").truth
    app.mutate(ctx, f'INSERT DATA {{ <Task/{node.id}> :page "urn:x"^^xsd:anyURI }}')
    assert Task.get(ctx, node.id).page == "urn:x"


def test_a_text_is_checked_once_for_each_caller(app):
    """How long a check takes tells nobody what others have asked; long texts are not kept."""
    text = "SELECT ?t { ?t a :Tsk }"
    long = f"ASK {{}} #{'x' * 2000}"
    with patch.object(queries, "tokenize", side_effect=tokenize) as cut:
        for caller, question, times in (
            ("ann", text, 1),
            ("ann", text, 1),
            ("bob", text, 2),
            ("ann", long, 3),
            ("ann", long, 4),
        ):
            answer = app.ask(app.context(actor=caller), question)
            assert cut.call_count == times
            assert question is long or "there is no class :Tsk" in answer.notice
        for _ in range(2):
            with pytest.raises(QueryError, match="SERVICE"):
                app.ask(app.context(actor="ann"), "ASK { SERVICE <http://other.example/> {} }")
        assert cut.call_count == 6


def test_a_remembered_text_is_read_again_when_the_types_change():
    """Its notice is about the types of now."""

    @node_type
    class Tsk(Node):
        title: str = predicate()

    text = "SELECT ?t { ?t a :Tsk }"
    with App(Task) as app:
        checked = queries.CheckedText(text)
        assert "there is no class" in checked.mistakes(app.graph().main.compiled.vocabulary)
        with App(Task, Tsk) as other:
            assert checked.mistakes(other.graph().main.compiled.vocabulary) is None


def test_there_are_no_named_graphs(app, tmp_path):
    """What a view keeps for itself beside the data can't be read."""
    ctx = app.context()
    assert not app.ask(ctx, "SELECT ?g { GRAPH ?g { ?s ?p ?o } }").rows
    assert not ctx.kg.sparql("SELECT ?g { GRAPH ?g { ?s ?p ?o } }").rows


def test_both_notices_are_told(app):
    """Where rows were cut off and a name is wrong."""
    text = "SELECT ?a { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n ?o . ?p ?q ?r . ?s ?t ?u "
    notice = app.ask(app.context(), text + "OPTIONAL { ?a :titel ?x } }").notice
    assert notice.startswith("only the first 10,000 rows are shown; ")
    assert notice.endswith("there is no field :titel; did you mean :title?")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("SELECT ?t { ?t a Task }", "; Task is written :Task"),
        ("SELECT ?t { ?t ex:y ?x }", "begin with PREFIX ex: <…>"),
        ("SELECT ?t { ?t :title ?x } LIMIT x", "expected one of HAVING"),
        ("INSERT DATA { <x:y> a :Task }", "use graph_mutate"),
    ],
)
def test_a_refusal_says_what_to_write(app, text, told):
    """Without the letters of the grammar."""
    with pytest.raises(QueryError) as caught:
        app.ask(app.context(), text)
    assert told in caught.value.message
    assert ".." not in caught.value.message
    assert "\\u{" not in caught.value.message


def test_a_count_can_be_a_parameter(app):
    """After LIMIT and OFFSET, as in stored queries."""
    text = "SELECT ?x { ?t :title ?x } ORDER BY ?x LIMIT $n OFFSET $k"
    assert app.ask(app.context(), text, n=1, k=1).rows == ({"x": "second"},)


@pytest.mark.parametrize("value", [-1, "1", 1.0, True, "1 UNION"])
def test_only_a_count_can_stand_after_limit(app, value):
    """It is written into the text, so it is digits or nothing."""
    with pytest.raises(QueryError, match=r"\$n is used after LIMIT or OFFSET and must be a count"):
        app.ask(app.context(), "SELECT ?x { ?t :title ?x } LIMIT $n", n=value)


@node_type
class Star(Node):
    """Something heavy."""

    name: str = predicate(key=True)
    mass: BigInt = predicate()
    planets: int | None = predicate()


@pytest.fixture(scope="module")
def stars():
    """A graph with an integer beyond 64 bits and a value that is missing."""
    with App(Star) as made:
        known = [Star(name="a", mass=BigInt(2**70), planets=2), Star(name="b", mass=BigInt(3))]
        made.context().kg.save_all(known)
        yield made


@pytest.mark.parametrize(
    "text",
    [
        "SELECT ?m { ?s :mass ?m FILTER(?m > 5) }",
        "SELECT (SUM(?m) AS ?n) { ?s :mass ?m }",
        "SELECT ?m { ?s :mass ?m } ORDER BY DESC(?m)",
        "SELECT ?m { ?s :mass ?m } ORDER BY ?m",
        "SELECT ?n { ?s :mass ?m BIND(?m + 1 AS ?n) }",
        "SELECT ?m { ?s (:mass|:planets) ?m FILTER(?m > 5) }",
        "SELECT ?m { ?m ^:mass ?s FILTER(?m > 5) }",
        "SELECT ?s { ?s ?p ?m FILTER(?m > 5) }",
        "SELECT ?s { ?s !:name ?m FILTER(?m > 5) }",
        "SELECT ?m { { SELECT ?m { ?s :mass ?m } } FILTER(?m > 5) }",
    ],
)
def test_computing_with_large_integers_gets_a_notice(stars, text):
    """What has more than 64 bits is silently left out by the engine."""
    for ask in (stars.ask, lambda ctx, text: ctx.kg.sparql(text)):
        assert ":mass holds integers of any size" in ask(stars.context(), text).notice


def test_reading_large_integers_is_exact(stars):
    """A pattern compares terms, so it needs no arithmetic."""
    ctx = stars.context()
    found = stars.ask(ctx, f"SELECT ?m {{ ?s :mass {2**70} ; :mass ?m }}")
    assert [row["m"] for row in found.rows] == [2**70]
    assert found.notice is None
    counted = stars.ask(ctx, "SELECT (COUNT(?m) AS ?n) (STR(MAX(?s)) AS ?t) { ?s :mass ?m }")
    assert (counted.rows[0]["n"], counted.notice) == (2, None)


@pytest.mark.parametrize("constant", [str(2**63), f'"{2**63}"^^xsd:integer'])
def test_a_large_constant_in_an_expression_gets_a_notice(stars, constant):
    """No number is smaller than it, which is wrong."""
    text = f"SELECT ?p {{ ?s :planets ?p FILTER(?p < {constant}) }}"
    answer = stars.ask(stars.context(), text)
    assert answer.rows == ()
    assert f"{2**63} has more than 64 bits" in answer.notice
    fits = stars.ask(stars.context(), text.replace(str(2**63), str(2**63 - 1)))
    assert (len(fits), fits.notice) == (1, None)


def test_a_sum_over_missing_values_gets_a_notice(stars):
    """It has no value at all, not even of those that are there."""
    ctx = stars.context()
    text = "SELECT (SUM({}) AS ?total) {{ ?s a :Star OPTIONAL {{ ?s :planets ?p }} }}"
    answer = stars.ask(ctx, text.format("?p"))
    assert answer.rows[0]["total"] is None
    assert "?total has no value in some rows, because SUM fails" in answer.notice
    answer = stars.ask(ctx, text.format("COALESCE(?p, 0)"))
    assert (answer.rows[0]["total"], answer.notice) == (2, None)


@pytest.mark.parametrize("function", ["AVG", "MIN", "MAX"])
def test_other_aggregates_fail_alike(stars, function):
    """One value that is missing takes all of them."""
    text = f"SELECT ({function}(?p) AS ?x) {{ ?s a :Star OPTIONAL {{ ?s :planets ?p }} }}"
    answer = stars.ask(stars.context(), text)
    assert answer.rows[0]["x"] is None
    assert f"?x has no value in some rows, because {function} fails" in answer.notice


@pytest.mark.parametrize(
    "text",
    [
        "SELECT (COALESCE(SUM(?p), 0) AS ?n) {}",
        "SELECT ?n {{ {{ SELECT (SUM(?p) AS ?t) {} }} BIND(COALESCE(?t, 0) AS ?n) }}",
        "SELECT ?n {{ {{ SELECT (SUM(?p) AS ?n) {} }} FILTER(?n > 0) }}",
        "SELECT ?k {} GROUP BY ?k HAVING (SUM(?p) > 0)",
    ],
)
def test_a_sum_that_fails_unseen_gets_a_notice(stars, text):
    """An expression around the sum hides that it failed."""
    pattern = '{ ?s a :Star BIND("k" AS ?k) OPTIONAL { ?s :planets ?p } }'
    answer = stars.ask(stars.context(), text.format(pattern))
    assert "SUM fails where ?p is missing" in answer.notice
    mended = text.format(pattern).replace("SUM(?p)", "SUM(COALESCE(?p, 0))")
    assert stars.ask(stars.context(), mended).notice is None
    bound = text.format('{ ?s :planets ?p BIND("k" AS ?k) }')
    assert stars.ask(stars.context(), bound).notice is None


@node_type
class Sighting(Node):
    """Something seen."""

    name: str = predicate(key=True)
    at: datetime = predicate()
    drift: float = predicate()


@pytest.mark.parametrize(
    ("written", "stored"),
    [
        (
            ":at '2026-01-01T10:00:00+02:00'^^xsd:dateTime",
            '"2026-01-01T08:00:00Z"^^xsd:dateTime',
        ),
        (":drift '-0.0'^^xsd:double", '"0"^^xsd:double'),
        (":drift -0.0e0", '"0"^^xsd:double'),
    ],
)
def test_an_equal_value_that_is_another_term_gets_a_notice(written, stored):
    """A pattern compares terms, and a field holds one form of each value."""
    with App(Sighting) as app:
        ctx = app.context()
        Sighting(name="a", at="2026-01-01T10:00:00+02:00", drift=-0.0).save(ctx)
        found = app.ask(ctx, f"SELECT ?s {{ ?s {written} }}")
        assert len(found) == 0
        assert f"; write {stored}, or compare in a FILTER" in found.notice
        mended = app.ask(ctx, f"SELECT ?s {{ ?s {written.split()[0]} {stored} }}")
        assert (len(mended), mended.notice) == (1, None)
        field, value = written.split()
        compared = app.ask(ctx, f"SELECT ?s {{ ?s {field} ?v FILTER(?v = {value}) }}")
        assert (len(compared), compared.notice) == (1, None)
