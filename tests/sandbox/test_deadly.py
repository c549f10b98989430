"""Queries and files of death: stopped in time, and nobody else notices."""

import threading
from contextlib import contextmanager, suppress
from statistics import quantiles
from time import monotonic

import pytest
from tests.sandbox.branches import EX, Branch, statements
from tests.worlds.processes import kill_workers_of

from trails.errors import BudgetError, BusyError, LimitError, QueryError, TrailsError
from trails.sandbox.limits import Limits
from trails.sandbox.pool import Sandbox

DOUBLING = " ".join(f"BIND(CONCAT(?x{n}, ?x{n}) AS ?x{n + 1})" for n in range(60))
NESTED_TERMS = " ".join(f"BIND(TRIPLE(<a:b>, <a:c>, ?x{n}) AS ?x{n + 1})" for n in range(400))

QUERIES = {
    "nested groups": "SELECT * {" + "{" * 20_000 + "}" * 20_000 + "}",
    "nested parentheses": "SELECT * { FILTER(" + "(" * 20_000 + "1" + ")" * 20_000 + ") }",
    "nested negations": "SELECT * { ?s ?p ?o FILTER(" + "!" * 40_000 + "?o) }",
    "nested optionals": "SELECT * {" + "OPTIONAL{" * 6_000 + "}" * 6_000 + "}",
    "nested collections": "SELECT * { ?s ?p " + "(" * 20_000 + ")" * 20_000 + " }",
    "nested blank nodes": "SELECT * { ?s ?p " + "[?p " * 10_000 + "1" + "]" * 10_000 + " }",
    "nested subqueries": "SELECT * " + "{ SELECT * " * 4_000 + "{}" + "}" * 4_000,
    "nested exists": "SELECT * { ?s ?p ?o " + "FILTER EXISTS { " * 3_500 + "} " * 3_500 + "}",
    "nested paths": f"SELECT * {{ ?s {'(' * 20_000}<{EX}p>{')*' * 20_000} ?o }}",
    "nested triple terms": "SELECT * { ?s ?p "
    + "<<( <a:b> <a:c> " * 3_500
    + "1"
    + " )>>" * 3_500
    + "}",
    "long sum": "SELECT (" + "1+" * 30_000 + "1 AS ?x) {}",
    "long or": "SELECT * { ?s ?p ?o FILTER(" + "?o = 1 || " * 6_000 + "?o = 2) }",
    "cartesian product": "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }",
    "repeated patterns": "SELECT (COUNT(*) AS ?n) {"
    + " ".join(f"?s{n} ?p{n} ?o{n} ." for n in range(300))
    + "}",
    "repeated pattern on one node": "SELECT (COUNT(*) AS ?n) {"
    + " ".join(f"?s <{EX}name> ?o{n} ." for n in range(10))
    + " ?t ?p ?o . ?u ?q ?r . ?v ?w ?x }",
    "many joins to plan": "SELECT * {"
    + " ".join(f"?v{n} <{EX}p{n}> ?v{n * 7919 % 1000} ." for n in range(1_500))
    + "}",
    "doubling": f"SELECT * {{ BIND('{'a' * 100}' AS ?x0) {DOUBLING} }}",
    "doubling in an aggregate": "SELECT (GROUP_CONCAT(?o; separator=', ') AS ?x) "
    "{ ?s ?p ?o . ?t ?q ?r . ?u ?v ?w }",
    "huge sort": "SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i } ORDER BY ?c ?f ?i ?a",
    "huge distinct": "SELECT DISTINCT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i FILTER(?a = ?g) }",
    "huge group": "SELECT ?a ?d ?g (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i } "
    "GROUP BY ?a ?d ?g",
    "huge values": "SELECT (COUNT(*) AS ?n) {"
    + " ".join(f"VALUES ?v{n} {{ {'1 ' * 100} }}" for n in range(20))
    + "}",
    "regular expressions": "SELECT * { ?s ?p ?o . ?t ?q ?r . ?u ?v ?w "
    "FILTER REGEX(STR(?o), '((a*)*)*((b*)*)*$x') }",
    "huge repetition in a pattern": "SELECT * { ?s ?p ?o "
    "FILTER REGEX(STR(?o), '((((a{100}){100}){100}){100}){100}') }",
    "replacing": f"SELECT * {{ BIND('{'a' * 1000}' AS ?x0) "
    + " ".join(f"BIND(REPLACE(?x{n}, 'a', '{'a' * 200}') AS ?x{n + 1})" for n in range(10))
    + "}",
    "paths without end": "SELECT (COUNT(*) AS ?n) { ?s (!<a:a>|^!<a:a>)* ?o . "
    "?t (!<a:a>|^!<a:a>)* ?q . ?u (!<a:a>|^!<a:a>)* ?v }",
    "terms in terms": f"SELECT ?x400 {{ BIND(<a:a> AS ?x0) {NESTED_TERMS} }}",
    "a graph of terms in terms": "CONSTRUCT { <a:a> <a:b> ?x400 } "
    f"WHERE {{ BIND(<a:a> AS ?x0) {NESTED_TERMS} }}",
    "null characters": "SELECT * { ?s ?p '\0' }" + "\0" * 1000,
    "an update": "INSERT DATA { <a:a> <a:b> <a:c> }",
    "nothing": "",
}

ENTITIES = "".join(f'<!ENTITY a{n + 1} "{f"&a{n};" * 10}">' for n in range(14))
RDF = 'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:e="http://e/"'

FILES = {
    "json-ld depth": ("json-ld", '{"@id": "a:a", "b:b": ' * 60_000),
    "json-ld lists": ("json-ld", '{"@id": "a:a", "b:b": ' + '{"@list": [' * 30_000),
    "json arrays": ("json-ld", "[" * 500_000 + "]" * 500_000),
    "json-ld contexts": ("json-ld", '{"@context": ' + "[" * 60_000 + "]" * 60_000 + "}"),
    "json-ld graphs": ("json-ld", '{"@graph": ' * 60_000 + "1" + "}" * 60_000),
    "remote context": ("json-ld", '{"@context": "http://127.0.0.1:9/c", "@id": "a:a"}'),
    "entity bomb": (
        "rdf-xml",
        (
            f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a0 "lol">{ENTITIES}]><rdf:RDF {RDF}>'
            '<rdf:Description rdf:about="http://e/x"><e:p>&a14;</e:p></rdf:Description></rdf:RDF>'
        ),
    ),
    "entity that is itself": (
        "rdf-xml",
        (
            f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a "&b;"><!ENTITY b "&a;">]><rdf:RDF {RDF}>'
            '<rdf:Description rdf:about="http://e/x"><e:p>&a;</e:p></rdf:Description></rdf:RDF>'
        ),
    ),
    "entity from a file": (
        "rdf-xml",
        (
            f'<?xml version="1.0"?><!DOCTYPE r [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
            f"<rdf:RDF {RDF}><rdf:Description><e:p>&a;</e:p></rdf:Description></rdf:RDF>"
        ),
    ),
    "xml depth": (
        "rdf-xml",
        f"<rdf:RDF {RDF}>" + "<rdf:Description><e:p>" * 100_000,
    ),
    "turtle collections": ("turtle", "<a:a> <a:b> " + "(" * 200_000),
    "turtle blank nodes": ("turtle", "<a:a> <a:b> " + "[ <a:b> " * 100_000),
    "turtle triple terms": (
        "turtle",
        "<a:a> <a:b> " + "<<( <a:b> <a:c> " * 50_000 + "1" + " )>>" * 50_000 + " .",
    ),
    "nested triple terms that fit": (
        "n-quads",
        "<a:a> <a:b> " + "<<( <a:b> <a:c> " * 100 + "<a:d>" + " )>>" * 100 + " .\n",
    ),
    "a prefix that grows": (
        "turtle",
        f"@prefix p: <http://e/{'x' * 60_000}> .\n" + "p:a p:b p:c, p:d, p:e, p:f .\n" * 3_000,
    ),
    "not text": ("turtle", "\udcff\udcfe" * 1000),
    "a name without end": ("n-triples", "<http://e/" + "a" * 3_000_000),
}


SHORT = Limits(seconds=0.5, memory=400 << 20)
IN_TIME = SHORT.seconds + 0.1
LOADED = 10
"""Seconds that a test allows on top: the machine may be doing other things."""
CARTESIAN = QUERIES["cartesian product"]
GOOD = f"SELECT * {{ <{EX}thing/7> ?p ?o }}"


@pytest.fixture(scope="module")
def branch(tmp_path_factory):
    """A thousand things, for all tests of this file: none of them can change it."""
    branch = Branch(tmp_path_factory.mktemp("deadly") / "store")
    branch.commit(added=statements(1000))
    return branch


@pytest.fixture(scope="module")
def sandbox(tmp_path_factory):
    """One for all: each text must leave it usable for the next."""
    patient = Limits(seconds=60, memory=400 << 20)
    sandbox = Sandbox(tmp_path_factory.mktemp("scratch"), patient)
    yield sandbox
    sandbox.close()


@pytest.mark.parametrize("name", QUERIES)
def test_a_deadly_query_is_stopped_in_time(branch, sandbox, name):
    """It ends with an answer or an error that says why; the next query is answered."""
    sandbox.query(branch, "ASK {}", caller="ann")
    started = monotonic()
    with suppress(QueryError, LimitError):
        found = sandbox.query(branch, QUERIES[name], caller="eve", limits=SHORT)
        assert len(found.rows) <= 10_000
    assert monotonic() - started < IN_TIME + LOADED
    assert sandbox.query(branch, f"ASK {{ <{EX}thing/7> ?p ?o }}", caller="eve").truth


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("cartesian product", "seconds"),
        ("nested groups", "depth"),
        ("nested negations", "depth"),
        ("terms in terms", "depth"),
    ],
)
def test_the_error_names_the_limit(branch, sandbox, name, limit):
    """And its value, and what to do."""
    limits = SHORT if limit == "seconds" else sandbox.limits
    with pytest.raises(LimitError) as caught:
        len(sandbox.query(branch, QUERIES[name], caller="eve", limits=limits))
    assert caught.value.data["limit"] == limit
    assert caught.value.data["value"] == getattr(limits, limit)


def test_memory_is_limited(branch, sandbox):
    """A text that doubles and doubles is stopped by memory, long before the clock."""
    patient = Limits(seconds=60, memory=300 << 20)
    with pytest.raises(LimitError, match="300 MiB of memory") as caught:
        sandbox.query(branch, QUERIES["doubling"], caller="eve", limits=patient)
    assert caught.value.data == {"limit": "memory", "value": 300 << 20}


@pytest.mark.parametrize("name", FILES)
def test_a_deadly_file_is_stopped(sandbox, name):
    """It ends with statements or an error; the next file is read."""
    format, text = FILES[name]
    data = text.encode("utf-8", "surrogateescape")
    started = monotonic()
    with suppress(QueryError, LimitError):
        for piece in sandbox.parse([data], format, limits=SHORT):
            assert b"root:" not in piece
    assert monotonic() - started < 10 + LOADED
    assert b"".join(sandbox.parse([b"<a:a> <a:b> 1 ."], "turtle"))


def test_output_may_grow_only_so_far(sandbox):
    """A small file that would write without end is stopped by what it writes."""
    format, text = FILES["a prefix that grows"]
    few = Limits(seconds=60, memory=400 << 20, expansion=2)
    with pytest.raises(LimitError, match="times its size") as caught:
        for _ in sandbox.parse([text.encode()], format, limits=few):
            pass
    assert caught.value.data == {"limit": "expansion", "value": 2}


def test_the_check_of_a_text_is_contained_too(sandbox):
    """Parsing alone kills an engine."""
    for text, update in ((QUERIES["nested groups"], False), (QUERIES["nested negations"], True)):
        with pytest.raises((LimitError, QueryError)):
            sandbox.check(text, update=update)
    sandbox.check("ASK {}")


def test_neighbours_of_a_deadly_query_go_on(branch, sandbox):
    """While one query is killed, another on the same branch gets its answers."""
    failed = []

    def deadly():
        try:
            sandbox.query(branch, CARTESIAN, caller="eve")
        except TrailsError as error:
            failed.append(error)

    sandbox.query(branch, "ASK {}", caller="ann")
    thread = threading.Thread(target=deadly)
    thread.start()
    for _ in range(30):
        assert sandbox.query(branch, f"ASK {{ <{EX}thing/7> ?p ?o }}", caller="ann").truth
    assert not failed
    kill_workers_of(sandbox)
    while thread.is_alive():
        assert sandbox.query(branch, f"ASK {{ <{EX}thing/7> ?p ?o }}", caller="ann").truth
    assert failed


def test_good_queries_are_answered_beside_a_stream_of_deadly_ones(branch, sandbox):
    """Three threads of one caller send deadly queries without a pause; another is answered."""
    with deadly_stream(branch, sandbox) as outcomes:
        while outcomes.count("limit") <= 3:
            assert sandbox.query(branch, GOOD, caller="ann").rows


@pytest.mark.long
@pytest.mark.alone
def test_good_queries_stay_fast_under_a_stream_of_deadly_ones(branch, sandbox):
    """Their p99 stays within five times that of a quiet sandbox."""

    def p99(count):
        times = []
        for _ in range(count):
            started = monotonic()
            assert sandbox.query(branch, GOOD, caller="ann").rows
            times.append(monotonic() - started)
        return quantiles(times, n=100)[-1]

    p99(100)
    quiet = p99(500)
    with deadly_stream(branch, sandbox):
        busy = p99(1000)
    assert busy < 5 * max(quiet, 0.001)


@contextmanager
def deadly_stream(branch, sandbox):
    """Deadly queries of one caller, sent by three threads; the codes of their errors."""
    short = Limits(seconds=0.1, memory=400 << 20, patience=0.02)
    ended = threading.Event()
    outcomes = []

    def stream():
        while not ended.is_set():
            try:
                sandbox.query(branch, CARTESIAN, caller="eve", limits=short)
            except (LimitError, BusyError, BudgetError) as error:
                outcomes.append(error.code)

    threads = [threading.Thread(target=stream) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        yield outcomes
    finally:
        ended.set()
        for thread in threads:
            thread.join()
