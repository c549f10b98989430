"""Files through the sandbox: every format, in pieces of any size, with bounded memory."""

from time import monotonic

import pyoxigraph as ox
import pytest
from tests.sandbox.branches import statements

from trails.errors import LimitError, QueryError
from trails.sandbox import processes, results

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
FILES = {
    "turtle": '@prefix e: <http://e/> . e:a e:b 1, "x"@en ; e:c [ e:d <rel> ] .',
    "n-triples": '<http://e/a> <http://e/b> "1" .\n',
    "n-quads": '<http://e/a> <http://e/b> "1" <http://e/g> .\n',
    "trig": "@prefix e: <http://e/> . e:g { e:a e:b true }",
    "rdf-xml": f'<rdf:RDF xmlns:rdf="{RDF}" xmlns:e="http://e/">'
    '<rdf:Description rdf:about="rel"><e:b>x</e:b></rdf:Description></rdf:RDF>',
    "json-ld": '{"@context": {"b": "http://e/b"}, "@id": "rel", "b": [1, "x"]}',
}
BASE = "http://base/"


def canonical(text, format=ox.RdfFormat.N_QUADS):
    """Statements as a set that does not depend on the names of blank nodes."""
    dataset = ox.Dataset(ox.parse(text, format, base_iri=BASE))
    dataset.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return set(dataset)


@pytest.mark.parametrize("size", [1, 7, 100_000])
@pytest.mark.parametrize("format", FILES)
def test_every_format_becomes_n_quads(sandbox, format, size):
    """The statements are those that the library reads."""
    data = FILES[format].encode()
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    written = b"".join(sandbox.parse(chunks, format, base_iri=BASE))
    known = ox.RdfFormat.from_media_type(
        {
            "turtle": "text/turtle",
            "n-triples": "application/n-triples",
            "n-quads": "application/n-quads",
            "trig": "application/trig",
            "rdf-xml": "application/rdf+xml",
            "json-ld": "application/ld+json",
        }[format]
    )
    assert canonical(written) == canonical(data, known)


def test_large_files_stream(sandbox):
    """Statements come out before the file has ended, and none is lost."""
    fed = 0

    def chunks():
        nonlocal fed
        for n in range(60):
            fed += 1
            yield statements(2_000, start=n * 2_000).encode()

    lines = 0
    first = None
    for piece in sandbox.parse(chunks(), "n-quads"):
        first = first or fed
        lines += piece.count(b"\n")
    assert lines == 240_000
    assert first < 60


def test_a_reader_that_stops_leaves_nothing_running(sandbox):
    """The worker is stopped, and the next file is read by another."""
    stream = sandbox.parse([statements(50_000).encode()], "n-quads")
    next(stream)
    stream.close()
    assert not sandbox._groups[""]._running
    assert b"".join(sandbox.parse([b"<a:a> <a:b> 1 ."], "turtle"))


def test_a_source_that_fails_fails_the_parse(sandbox):
    """With its own error; the worker is not used again."""

    def chunks():
        yield b"<a:a> <a:b> 1 .\n"
        raise ConnectionResetError("gone")

    with pytest.raises(ConnectionResetError):
        list(sandbox.parse(chunks(), "turtle"))
    assert b"".join(sandbox.parse([b"<a:a> <a:b> 1 ."], "turtle"))


@pytest.mark.parametrize(
    ("format", "text"),
    [
        ("turtle", "<http://e/a> <http://e/b> ."),
        ("turtle", "<a> <b> <c> ."),
        ("n-quads", "nonsense"),
        ("rdf-xml", "<a>"),
        ("json-ld", '{"@id": '),
        ("json-ld", '{"@context": "http://127.0.0.1:9/c"}'),
    ],
)
def test_a_file_that_is_wrong_is_an_error(sandbox, format, text):
    """With the parser's words, whatever comes after the fault."""
    with pytest.raises(QueryError, match="the file can't be read"):
        list(sandbox.parse([text.encode(), b" " * 1_000_000], format))


def test_an_unknown_format_is_an_error(sandbox):
    """It names those that are known."""
    with pytest.raises(QueryError, match="use one of turtle, n-triples"):
        list(sandbox.parse([b""], "csv"))


def test_strings_that_look_like_nesting_are_no_nesting(sandbox):
    """Only the structure counts."""
    data = ('<a:a> <a:b> "' + "<<( " * 100 + '" .\n').encode()
    assert b"".join(sandbox.parse([data], "n-triples")) == data


def test_nested_terms_may_be_as_deep_as_the_limit(sandbox):
    """And not deeper, wherever the pieces are cut."""

    def nested(depth):
        return b"<a:a> <a:b> " + b"<<( <a:b> <a:c> " * depth + b"<a:d>" + b" )>>" * depth + b" .\n"

    filler = statements(400).encode()
    assert b"".join(sandbox.parse([filler, nested(32), filler], "n-triples"))
    with pytest.raises(LimitError, match="32 levels") as caught:
        list(sandbox.parse([filler, nested(33), filler], "n-triples"))
    assert caught.value.data == {"limit": "depth", "value": 32}


def test_a_slow_source_is_not_the_parsers_fault(sandbox, monkeypatch):
    """The clock runs while the parser works, not while a file arrives."""
    waited = 0
    for module in (results, processes):
        monkeypatch.setattr(module, "monotonic", lambda: monotonic() + waited)

    def chunks():
        nonlocal waited
        yield b"<a:a> <a:b> 1 .\n"
        waited = 3600
        yield b"<a:a> <a:b> 2 .\n"

    assert b"".join(sandbox.parse(chunks(), "turtle")).count(b"\n") == 2
