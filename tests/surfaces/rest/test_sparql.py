"""The SPARQL protocol, with the clients that people have, against a real server."""

import csv
import io
import json
from urllib.parse import quote, urlencode

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rdflib import Graph, Literal, URIRef
from rdflib.namespace import XSD
from rdflib.plugins.stores.sparqlstore import SPARQLStore
from SPARQLWrapper import CSV, JSON, JSONLD, POST, POSTDIRECTLY, TSV, TURTLE, XML, SPARQLWrapper

from trails.errors import NotAcceptableError
from trails.surfaces.rest.negotiation import choose
from trails.surfaces.rest.sparql import FORMATS

TITLES = "SELECT ?title WHERE { ?n a :Note ; :title ?title } ORDER BY ?title"
VOCABULARY = "trails://acme/main/schema#"


@pytest.fixture(scope="module", autouse=True)
def notes(client):
    """Two notes on main, and one more on a branch whose name has a slash."""

    def put(key, title, **place):
        data = {"key": key, "title": title, "stars": 3}
        operation = {"op": "upsert", "type": "Note", "data": data}
        return client.post("mutate", {"operations": [operation], **place})

    first = put("a", "Note a")["commit"]
    put("b", 'Nöte "b"\t<&>')
    client.post("branches", {"name": "agents/ada"})
    put("c", "Note c", branch="agents/ada")
    return first


def url_of(client, path="sparql"):
    """The address of an endpoint."""
    return f"http://127.0.0.1:{client.port}/graphs/main/{path}"


def ask(client, query, accept=None, path="sparql", **more):
    """A query by GET."""
    headers = {} if accept is None else {"accept": accept}
    asked = urlencode({"query": query, **more})
    return client.send("GET", f"/graphs/main/{path}?{asked}", **headers)


# --- clients ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "POST", "POST_FORM"])
@pytest.mark.parametrize("form", ["xml", "json", "csv"])
def test_rdflib_reads_it_as_a_store(client, method, form):
    """Queries in each way of the protocol, and triples; with datatypes, which CSV lacks."""
    store = SPARQLStore(url_of(client), method=method, returnFormat=form)
    graph = Graph(store)
    rows = [str(row.title) for row in graph.query(TITLES)]
    assert rows == ["Note a", 'Nöte "b"\t<&>']
    if form != "csv":
        assert graph.query("ASK { ?n :title 'Note a' }").askAnswer is True
        note = URIRef("trails://acme/main/Note/a")
        (stars,) = graph.objects(note, URIRef(f"{VOCABULARY}stars"))
        assert stars == Literal(3)
        assert stars.datatype == XSD.integer
        assert len(list(graph.triples((note, None, None)))) > 3


def test_rdflib_constructs(client):
    """With what it accepts by default: RDF/XML."""
    made = Graph(SPARQLStore(url_of(client))).query("CONSTRUCT WHERE { ?n :title ?t }").graph
    assert {str(title) for title in made.objects()} == {"Note a", 'Nöte "b"\t<&>'}


def test_rdflib_is_told_that_there_is_one_graph(client):
    """A named graph is refused, not answered with another one; the graph's own name is right."""
    own = Graph(SPARQLStore(url_of(client)), identifier=URIRef("trails://acme/main"))
    assert len(list(own.query(TITLES))) == 2
    other = Graph(SPARQLStore(url_of(client)), identifier=URIRef("http://example.org/other"))
    with pytest.raises(ValueError, match="wrong"):
        other.query(TITLES)


def wrapper(client, query, form, method=None, path="sparql"):
    """A client that is about to send a query."""
    made = SPARQLWrapper(url_of(client, path))
    made.setQuery(query)
    made.setReturnFormat(form)
    if method is not None:
        made.setMethod(POST)
        made.setRequestMethod(method)
    return made


@pytest.mark.parametrize("method", [None, "urlencoded", POSTDIRECTLY])
def test_sparqlwrapper_reads_solutions(client, method):
    """In every format."""
    found = wrapper(client, TITLES, JSON, method).queryAndConvert()
    assert [each["title"]["value"] for each in found["results"]["bindings"]] == [
        "Note a",
        'Nöte "b"\t<&>',
    ]
    document = wrapper(client, TITLES, XML, method).queryAndConvert()
    assert [each.firstChild.data for each in document.getElementsByTagName("literal")] == [
        "Note a",
        'Nöte "b"\t<&>',
    ]
    rows = wrapper(client, TITLES, CSV, method).queryAndConvert().decode()
    assert [*csv.reader(io.StringIO(rows))] == [["title"], ["Note a"], ['Nöte "b"\t<&>']]
    rows = wrapper(client, TITLES, TSV, method).queryAndConvert().decode()
    assert rows.splitlines()[:2] == ["?title", '"Note a"']


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph")  # SPARQLWrapper uses it
def test_sparqlwrapper_reads_graphs(client):
    """CONSTRUCT and DESCRIBE."""
    query = "CONSTRUCT WHERE { ?n :title ?t }"
    turtle = wrapper(client, query, TURTLE).queryAndConvert()
    linked = wrapper(client, query, JSONLD).queryAndConvert()
    plain = wrapper(client, query, XML).queryAndConvert()
    assert set(Graph().parse(data=turtle, format="turtle")) == set(linked) == set(plain)
    described = wrapper(client, "DESCRIBE <Note/a>", XML).queryAndConvert()
    assert URIRef("trails://acme/main/Note/a") in set(described.subjects())


# --- places ----------------------------------------------------------------------------------


def test_branches_and_snapshots_are_in_the_path(client, notes):
    """Percent-encoded; one that is not there is not found."""
    branch = quote("agents/ada", safe="")
    count = "SELECT (COUNT(*) AS ?n) { ?x a :Note }"
    for path, expected in (
        ("sparql", "2"),
        (f"branches/{branch}/sparql", "3"),
        ("branches/main/sparql", "2"),
        (f"commits/{notes}/sparql", "1"),
    ):
        assert ask(client, count, "text/csv", path).body == b"n\r\n%s\r\n" % expected.encode()
        store = Graph(SPARQLStore(url_of(client, path)))
        assert [str(row.n) for row in store.query(count)] == [expected]
    for path in ("branches/nope/sparql", "commits/nope/sparql", "branches/agents/sparql"):
        assert ask(client, count, path=path).status == 404
    for place in ({"branch": "main"}, {"snapshot": notes}):
        assert b"part of the path here" in ask(client, count, **place).body


# --- the protocol ----------------------------------------------------------------------------

FORM = "application/x-www-form-urlencoded"
REFUSED = {
    "no query": ("GET", "", None, None, 400, "query_string"),
    "two queries": ("GET", "?query=ASK{}&query=ASK{}", None, None, 400, "query_string"),
    "two in two places": ("POST", "?query=ASK{}", b"query=ASK{}", FORM, 400, "query_string"),
    "an update in a form": ("POST", "", b"update=DELETE WHERE {}", FORM, 400, "query"),
    "an update as a body": ("POST", "", b"x", "application/sparql-update", 415, "media_type"),
    "an update as a query": ("GET", "?query=INSERT+DATA{}", None, None, 400, "query"),
    "another type": ("POST", "", b"{}", "application/json", 415, "media_type"),
    "no type": ("POST", "", b"query=ASK{}", None, 415, "media_type"),
    "no UTF-8": ("POST", "", b"query=%ff", FORM, 400, "text"),
    "no UTF-8 at all": ("POST", "", b"query=\xff", FORM, 400, "text"),
    "too many parameters": ("POST", "", b"a=&" * 2000 + b"query=ASK{}", FORM, 400, "text"),
    "another graph": ("GET", "?query=ASK{}&default-graph-uri=x:y", None, None, 400, "query"),
    "a named graph": ("GET", "?query=ASK{}&named-graph-uri=x:y", None, None, 400, "query"),
    "nonsense": ("GET", "?query=SELECT+nonsense", None, None, 400, "query"),
    "empty": ("GET", "?query=", None, None, 422, "validation"),
    "NUL": ("GET", "?query=ASK{}%00", None, None, 400, "query"),
    "another service": ("GET", "?query=ASK{SERVICE+<x:y>{}}", None, None, 400, "query"),
    "FROM": ("GET", "?query=ASK+FROM+<x:y>{}", None, None, 400, "query"),
    "deep": ("POST", "", b"query=ASK" + b"{" * 5000 + b"}" * 5000, FORM, 400, "query"),
    "long": ("POST", "", b"query=ASK{}#" + b"x" * 100_000, FORM, 400, "query"),
    "PUT": ("PUT", "", b"ASK{}", "application/sparql-query", 405, "not_allowed"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(client, name):
    """Each with a problem that says what to do; an update with where to send it."""
    method, query, body, media, status, code = REFUSED[name]
    headers = {} if media is None else {"content_type": media}
    got = client.send(method, f"/graphs/main/sparql{query}", body, **headers)
    problem = json.loads(got.body)
    assert (got.status, problem["code"]) == (status, code), problem
    assert got.headers["content-type"] == "application/problem+json"
    if "update" in name:
        assert "mutate" in problem["detail"]


def test_parameters_of_clients_are_ignored(client):
    """SPARQLWrapper sends the format four times."""
    got = ask(client, "ASK {}", "text/csv", format="json", output="json", results="json")
    assert (got.status, got.body) == (200, b"true")


def test_a_dollar_sign_begins_a_variable(client):
    """As in the standard; parameters are for ``query``."""
    assert ask(client, "SELECT $x { VALUES $x { 1 } }", "text/csv").body == b"x\r\n1\r\n"


def test_a_result_that_is_cut_is_refused(client):
    """It could be taken for all of it; how to get the rest is said."""
    values = " ".join(map(str, range(101)))
    query = f"SELECT ?a ?b {{ VALUES ?a {{ {values} }} VALUES ?b {{ {values} }} }}"
    got = ask(client, query)
    problem = json.loads(got.body)
    assert (got.status, problem["code"], problem["data"]["limit"]) == (422, "limit", "rows")
    assert "ORDER BY, LIMIT and OFFSET" in problem["detail"]
    assert ask(client, f"{query} LIMIT 10000", "text/csv").body.count(b"\r\n") == 10_001


def test_json_that_repeats_long_names_is_bounded(client):
    """Ten thousand rows of one letter, under a name of 20 KB."""
    values = " ".join(map(str, range(100)))
    name = "x" * 20_000
    query = f"SELECT (1 AS ?{name}) {{ VALUES ?a {{ {values} }} VALUES ?b {{ {values} }} }}"
    body = urlencode({"query": query}).encode()
    got = client.send("POST", "/graphs/main/sparql", body, content_type=FORM)
    assert (got.status, json.loads(got.body)["code"]) == (422, "limit")
    got = client.send("POST", "/graphs/main/sparql", body, content_type=FORM, accept="text/csv")
    assert got.status == 200


# --- formats ---------------------------------------------------------------------------------

TERMS = (
    '"" "a"@en "a"@en-GB 1 1.5 1e3 true "01"^^xsd:integer "x"^^xsd:integer "\\r\\n\\t" '
    '"2026-01-01"^^xsd:date "p"^^<x:y#z> <x:y> "ü😀"'
)
READERS = {
    "application/sparql-results+json": ox.QueryResultsFormat.JSON,
    "application/sparql-results+xml": ox.QueryResultsFormat.XML,
    "text/tab-separated-values": ox.QueryResultsFormat.TSV,
}


@pytest.mark.parametrize("media", READERS)
def test_datatypes_and_languages_survive(client, media):
    """Each term is the one that an engine gives directly; an unbound variable stays one."""
    prefix = "PREFIX xsd: <http://www.w3.org/2001/XMLSchema#>"
    query = f"{prefix} SELECT ?x ?y {{ VALUES ?x {{ {TERMS} }} }}"
    got = ask(client, query, media)
    assert got.headers["content-type"].partition(";")[0] == media
    assert got.headers["vary"].partition(",")[0] == "Accept"
    expected = sorted(str(tuple(row)) for row in ox.Store().query(query))
    found = ox.parse_query_results(got.body, READERS[media])
    assert sorted(str(tuple(row)) for row in found) == expected


def test_what_xml_can_not_express_is_refused_in_xml_only(client):
    """A control character, and a property that ends with a digit."""
    for query, media in (
        ('SELECT ("\\u0007" AS ?x) {}', "application/sparql-results+xml"),
        ("CONSTRUCT { <x:y> <x:z/9> 1 } WHERE {}", "application/rdf+xml"),
    ):
        got = ask(client, query, media)
        assert (got.status, json.loads(got.body)["code"]) == (406, "not_acceptable"), got.body
        assert ask(client, query, f"{media};q=0.5, */*").status == 200


ACCEPTED = {
    None: ("json", "turtle"),
    "": ("json", "turtle"),
    "*/*": ("json", "turtle"),
    "nonsense": ("json", "turtle"),
    "text/*": ("csv", "turtle"),
    "TEXT/CSV": ("csv", None),
    "text/csv;q=0.5, text/tab-separated-values": ("tsv", None),
    "text/csv;q=0.1, */*;q=0.01": ("csv", "turtle"),
    "application/sparql-results+json;q=0, */*": ("xml", "turtle"),
    "application/json": ("json", "jsonld"),
    "application/ld+json;q=0.9,text/turtle;q=0.8": (None, "jsonld"),
    "application/n-triples": (None, "ntriples"),
    "text/csv; q=2, text/html": (None, None),
    "*/*;q=0": (None, None),
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8": ("xml", "rdfxml"),
}


@pytest.mark.parametrize("accept", ACCEPTED)
def test_the_format_is_negotiated(client, accept):
    """By weight, then by how exactly a range names it; 406 lists what there is."""
    for kind, query, wanted in zip(
        ("solutions", "graph"), ("ASK {}", "DESCRIBE <Note/a>"), ACCEPTED[accept], strict=True
    ):
        got = ask(client, query, accept)
        if wanted is None:
            problem = json.loads(got.body)
            assert (got.status, problem["code"]) == (406, "not_acceptable")
            media = [each.media_type.partition(";")[0] for each in FORMATS[kind]]
            assert problem["data"]["available"] == media
        else:
            (media,) = (each.media_type for each in FORMATS[kind] if each.name == wanted)
            assert (got.status, got.headers["content-type"]) == (200, media)


@given(st.text(max_size=60))
def test_any_accept_header_is_read(header):
    """It gives a representation, or the one error."""
    try:
        found = choose(header, FORMATS["graph"])
    except NotAcceptableError:
        return
    assert found in FORMATS["graph"]


# --- access ----------------------------------------------------------------------------------


def test_it_is_recorded_as_graph_query(client, project):
    """Whatever its outcome, as ``query`` is."""

    def newest():
        return [each for _, each in project.graph().activities.read()][-1]

    ask(client, "ASK {}")
    assert (newest().name, newest().outcome) == ("graph_query", "ok")
    ask(client, "ASK {")
    assert (newest().name, newest().outcome) == ("graph_query", "query")
