"""Write results of queries in the formats of the SPARQL standards, with the RDF library.

A worker's rows (TSV or N-Triples) are read and written again, so what a client gets is well-formed
whatever the worker wrote, and bounded. XML is checked: the library writes characters and
names that XML does not have, and leaves a carriage return to be normalized away by the reader.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Final, cast
from xml.parsers import expat

import pyoxigraph as ox

from trails.errors import LimitError, NotAcceptableError, QueryError
from trails.sandbox.limits import MIB
from trails.sandbox.results import Result, check_nesting

SOLUTIONS: Final[Mapping[str, ox.QueryResultsFormat]] = {
    "json": ox.QueryResultsFormat.JSON,
    "xml": ox.QueryResultsFormat.XML,
    "csv": ox.QueryResultsFormat.CSV,
    "tsv": ox.QueryResultsFormat.TSV,
}
"""Formats for SELECT and ASK."""
GRAPHS: Final[Mapping[str, ox.RdfFormat]] = {
    "turtle": ox.RdfFormat.TURTLE,
    "ntriples": ox.RdfFormat.N_TRIPLES,
    "jsonld": ox.RdfFormat.JSON_LD,
    "rdfxml": ox.RdfFormat.RDF_XML,
}
"""Formats for CONSTRUCT and DESCRIBE."""
_XML: Final = frozenset({"xml", "rdfxml"})
_LARGEST: Final = 64 * MIB
_TRUTHS: Final = {True: b'{"head":{},"boolean":true}', False: b'{"head":{},"boolean":false}'}


def serialize_result(result: Result, format: str, prefixes: Mapping[str, str]) -> bytes:
    """A whole result in one of the formats for its form; prefixes shorten Turtle."""
    output = _Bounded()
    try:
        _write(result, format, prefixes, cast(IO[bytes], output))
    except (SyntaxError, ValueError):
        raise QueryError("the result contains a term that can't be written") from None
    written = bytes(output.buffer)
    return _checked_xml(written) if format in _XML else written


def _write(result: Result, format: str, prefixes: Mapping[str, str], output: IO[bytes]) -> None:
    if result.form == "graph":
        check_nesting(result.body, result.depth)
        triples = ox.parse(result.body, ox.RdfFormat.N_TRIPLES, lenient=True)
        ox.serialize(triples, output, GRAPHS[format], prefixes=dict(prefixes))
    elif result.form == "ask":
        truth = ox.parse_query_results(_TRUTHS[bool(result.truth)], ox.QueryResultsFormat.JSON)
        truth.serialize(output, SOLUTIONS[format])
    else:
        check_nesting(result.body, result.depth)
        rows = ox.parse_query_results(result.body, ox.QueryResultsFormat.TSV)
        rows.serialize(output, SOLUTIONS[format])


class _Bounded:
    """A file that accepts a limited number of bytes: JSON repeats long names in every row."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def write(self, data: bytes) -> int:
        """Accept a piece."""
        self.buffer += data
        if len(self.buffer) > _LARGEST:
            raise LimitError(
                f"the result has more than {_LARGEST // MIB} MiB in this format; select fewer "
                "variables or rows, shorten the names of variables, or ask for another format",
                limit="result_bytes",
                value=_LARGEST,
            )
        return len(data)

    def flush(self) -> None:
        """Do nothing: there is no buffer behind this one."""


def _checked_xml(written: bytes) -> bytes:
    """XML that a parser reads as it was meant; a carriage return is in text only."""
    escaped = written.replace(b"\r", b"&#13;")
    try:
        expat.ParserCreate(namespace_separator=" ").Parse(escaped, True)
    except expat.ExpatError:
        raise NotAcceptableError(
            "the result has characters or property names that XML can't express; accept another "
            "format, such as JSON or Turtle"
        ) from None
    return escaped
