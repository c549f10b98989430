"""No text opens a socket: SERVICE and LOAD, however they are spelled."""

import socket
import threading
from contextlib import suppress
from time import sleep

import pyoxigraph as ox
import pytest
from tests.sandbox.branches import Branch, statements

from trails.errors import LimitError, QueryError
from trails.sandbox.limits import Limits
from trails.sandbox.pool import Sandbox

PATTERN = "{ ?s ?p ?o }"
SERVICES = [
    "SELECT * { SERVICE <URL> PATTERN }",
    "SELECT * { service <URL> PATTERN }",
    "SELECT * { SeRvIcE <URL> PATTERN }",
    "SELECT * { SERVICE<URL>PATTERN }",
    "SELECT * {SERVICE<URL>{?s ?p ?o}}",
    "SELECT * { SERVICE\t<URL>\tPATTERN }",
    "SELECT * { SERVICE\n\n<URL>\nPATTERN }",
    "SELECT * { SERVICE\r\n<URL> PATTERN }",
    "SELECT * { SERVICE # comment\n <URL> PATTERN }",
    "SELECT * { SERVICE #'\"<\n <URL> PATTERN }",
    "#SERVICE\nSELECT * { SERVICE <URL> PATTERN }",
    "SELECT * { SERVICE SILENT <URL> PATTERN }",
    "SELECT * { SERVICE silent<URL>PATTERN }",
    "SELECT * { SERVICE Silent\n<URL> PATTERN }",
    "PREFIX e: <URL> SELECT * { SERVICE e: PATTERN }",
    "PREFIX e: <ROOT> SELECT * { SERVICE e:sparql PATTERN }",
    "PREFIX : <URL> SELECT * { SERVICE : PATTERN }",
    "BASE <ROOT> SELECT * { SERVICE <sparql> PATTERN }",
    "BASE <ROOT> SELECT * { SERVICE <> PATTERN }",
    "BASE <ROOT> PREFIX e: <sparql> SELECT * { SERVICE e: PATTERN }",
    "SELECT * { VALUES ?u { <URL> } SERVICE ?u PATTERN }",
    "SELECT * { BIND(<URL> AS ?u) SERVICE ?u PATTERN }",
    "SELECT * { BIND(IRI('URL') AS ?u) SERVICE ?u PATTERN }",
    "SELECT * { BIND(IRI(CONCAT('ht', 'SUFFIX')) AS ?u) SERVICE ?u PATTERN }",
    "SELECT * { VALUES $u { <URL> } SERVICE $u PATTERN }",
    "SELECT * { OPTIONAL { SERVICE <URL> PATTERN } }",
    "SELECT * { { SERVICE <URL> PATTERN } UNION { ?s ?p ?o } }",
    "SELECT * { { { { SERVICE <URL> PATTERN } } } }",
    "SELECT * { ?s ?p ?o MINUS { SERVICE <URL> PATTERN } }",
    "SELECT * { ?s ?p ?o FILTER EXISTS { SERVICE <URL> PATTERN } }",
    "SELECT * { ?s ?p ?o FILTER NOT EXISTS { SERVICE <URL> PATTERN } }",
    "SELECT * { { SELECT * { SERVICE <URL> PATTERN } } }",
    "SELECT * { SERVICE <URL> { SERVICE <URL> PATTERN } }",
    "SELECT * { LATERAL { SERVICE <URL> PATTERN } }",
    "SELECT * { ?a ?b true.SERVICE <URL> PATTERN }",
    "SELECT * { FILTER(true)SERVICE <URL> PATTERN }",
    "SELECT * { BIND(1 AS ?x)SERVICE <URL> PATTERN }",
    "SELECT (COUNT(*) AS ?n) { SERVICE <URL> PATTERN }",
    "SELECT * { SERVICE <URL> PATTERN } ORDER BY ?s",
    "ASK { SERVICE <URL> PATTERN }",
    "ASK{SERVICE SILENT<URL>PATTERN}",
    "CONSTRUCT { ?s ?p ?o } WHERE { SERVICE <URL> PATTERN }",
    "DESCRIBE ?s { SERVICE <URL> PATTERN }",
    "SELECT * { SERVICE <https://HOST/sparql> PATTERN }",
    "SELECT * { SERVICE SILENT <https://HOST/sparql> PATTERN }",
    "SELECT * { SERVICE <HTTP://HOST/sparql> PATTERN }",
    "SELECT * { SERVICE <http://user:word@HOST/sparql> PATTERN }",
    "SELECT * { SERVICE <http://localhost:PORT/sparql> PATTERN }",
    "SELECT * { SERVICE <http://LOCALHOST:PORT/sparql> PATTERN }",
    "SELECT * { SERVICE <http://127.1:PORT/sparql> PATTERN }",
    "SELECT * { SERVICE <http://2130706433:PORT/sparql> PATTERN }",
    "SELECT * { SERVICE <http://0x7f000001:PORT/sparql> PATTERN }",
    "SELECT * { SERVICE <http://0:PORT/sparql> PATTERN }",
    "SELECT * { SERVICE <http://[::ffff:127.0.0.1]:PORT/sparql> PATTERN }",
    "SELECT * { SERVICE <http://HOST/a?b=c&d> PATTERN }",
    "SELECT * { \\u0053ERVICE <URL> PATTERN }",
    "SELECT * { SERVICE <http://\\u006cocalhost:PORT/sparql> PATTERN }",
    "SELECT * { ?s ?p trueSERVICE <URL> PATTERN }",
]
LOADS = [
    "LOAD <URL>",
    "load <URL>",
    "LoAd<URL>",
    "LOAD\n<URL>",
    "LOAD #\n<URL>",
    "LOAD SILENT <URL>",
    "LOAD silent<URL>",
    "LOAD <URL> INTO GRAPH <a:g>",
    "LOAD SILENT <URL> INTO GRAPH <a:g>",
    "PREFIX e: <URL> LOAD e:",
    "BASE <ROOT> LOAD <sparql>",
    "LOAD <https://HOST/sparql>",
    "LOAD <http://localhost:PORT/sparql>",
    "INSERT DATA { <a:a> <a:b> 1 } ; LOAD <URL>",
    "LOAD <URL> ; LOAD <URL>",
    "INSERT { ?s ?p ?o } WHERE { SERVICE <URL> PATTERN }",
    "DELETE { ?s ?p ?o } WHERE { SERVICE SILENT <URL> PATTERN }",
    "LOAD <file:///etc/passwd>",
]


@pytest.fixture(scope="module")
def server():
    """A server that notes every connection, and hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))
    connections = []

    def accept():
        while True:
            try:
                link, address = listener.accept()
            except OSError:
                return
            connections.append(address)
            link.close()

    thread = threading.Thread(target=accept)
    thread.start()
    yield listener.getsockname()[1], connections
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def spell(text, port):
    """A text with the server's address in it."""
    host = f"127.0.0.1:{port}"
    return (
        text.replace("PATTERN", PATTERN)
        .replace("SUFFIX", f"tp://{host}/sparql")
        .replace("URL", f"http://{host}/sparql")
        .replace("ROOT", f"http://{host}/")
        .replace("HOST", host)
        .replace("PORT", str(port))
    )


def form_of(text):
    """How the engine writes the answer to a query."""
    graph = text.startswith(("CONSTRUCT", "DESCRIBE"))
    return ox.RdfFormat.N_TRIPLES if graph else ox.QueryResultsFormat.JSON


def test_the_spellings_do_reach_a_server_from_an_open_process(server):
    """Most of them, so that the next test is about something."""
    port, connections = server
    reached = 0
    for text in SERVICES + LOADS:
        before = len(connections)
        store = ox.Store()
        store.add(ox.Quad(ox.NamedNode("a:a"), ox.NamedNode("a:b"), ox.Literal(True)))
        with suppress(OSError, SyntaxError, RuntimeError):
            if text in LOADS:
                store.update(spell(text, port))
            else:
                store.query(spell(text, port)).serialize(format=form_of(text))
        for _ in range(20):
            if len(connections) > before:
                break
            sleep(0.005)
        reached += len(connections) > before
    assert reached >= 50


def test_no_spelling_opens_a_socket(tmp_path, server):
    """Whatever each of them ends with, no one connects."""
    port, connections = server
    branch = Branch(tmp_path / "store")
    branch.commit(added=statements(5) + '<a:a> <a:b> "true" .\n')
    sandbox = Sandbox(tmp_path / "scratch", Limits(seconds=2, memory=400 << 20))
    before = len(connections)
    try:
        for text in SERVICES:
            with suppress(QueryError, LimitError):
                sandbox.query(branch, spell(text, port), caller="eve")
        for text in LOADS:
            with suppress(QueryError, LimitError):
                sandbox.check(spell(text, port), update=True)
        patient = Limits(seconds=60)
        assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="eve", limits=patient).truth
    finally:
        sandbox.close()
    assert len(connections) == before
