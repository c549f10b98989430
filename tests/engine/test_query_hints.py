"""What whoever asks in SPARQL is told: of names that there are not, and of texts that are none."""

from __future__ import annotations

import pytest

from trails import App, Node, node_type, predicate
from trails.errors import QueryError


@node_type
class Task(Node):
    """Something to be done."""

    title: str = predicate()


@pytest.fixture(scope="module")
def app():
    """A graph with two tasks."""
    with App(Task) as made:
        made.context().kg.save_all([Task(title="first"), Task(title="second")])
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
        "PREFIX o: <http://other.example/> SELECT ?t { ?t a o:Tsk }",
    ],
)
def test_a_query_that_names_what_there_is_has_no_notice(app, text):
    """Also if it finds nothing, and whatever it names of other vocabularies."""
    assert app.ask(app.context(), text).notice is None


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
        (
            "SELECT ?t { ?t rdfs:label ?x }",
            "the prefix rdfs: is not declared: begin with PREFIX rdfs: <http://www.w3.org/2000/",
        ),
        ("SELECT ?t { ?t ex:y ?x }", "begin with PREFIX ex: <…>"),
        ("SELECT ?t { ?t :title ?x } LIMIT x", "expected one of HAVING"),
        ("INSERT DATA { <x:y> a :Task }", "write with graph_mutate"),
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
    with pytest.raises(QueryError, match=r"\$n stands after LIMIT or OFFSET and must be a count"):
        app.ask(app.context(), "SELECT ?x { ?t :title ?x } LIMIT $n", n=value)
