"""N-Quads as the log has them, read back however long a text in them is.

The RDF parser takes no token of more than 16 MiB. Nodes can't hold such texts any more, but the
log may have older ones: their lines are read here.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import IO, Final

import pyoxigraph as ox

from trails.model.iris import XSD
from trails.model.nodes import MAX_NODE

_BLOCK: Final = 1 << 20
_LONGEST: Final = 16 << 20
"""Bytes of a token, and so of a line, that the parser always takes are fewer than these."""
_line = re.compile(rb'<([^>]*)> <([^>]*)> "(.*)"(?:\^\^<([^>]*)>)? \.', re.DOTALL).fullmatch
_escapes = re.compile(rb"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_SHORT: Final = {b"t": b"\t", b"b": b"\b", b"n": b"\n", b"r": b"\r", b"f": b"\f"}


def load_statements(store: ox.Store, text: bytes) -> None:
    """Add many statements to a store at once."""
    try:
        store.bulk_load(text, format=ox.RdfFormat.N_QUADS, lenient=True)
    except MemoryError:  # a token is too long
        store.extend(read_statements(text, lenient=True))


def long_token(error: MemoryError) -> str | None:
    """What to say of a file with a token that the parser does not take; None if it is not that."""
    if "buffer maximal size" not in str(error):
        return None
    return (
        f"it has a value that is too long to be read; a node may take {MAX_NODE:,} bytes, so keep "
        "large content elsewhere and store its URI in a Blob field"
    )


def read_statements(source: bytes | IO[bytes], *, lenient: bool = False) -> Iterator[ox.Quad]:
    """The statements of N-Quads text with one on each line; ``lenient`` trusts their IRIs."""
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    begun: list[bytes] = []
    while block := stream.read(_BLOCK):
        end = block.rfind(b"\n") + 1
        if end:
            yield from _parse(b"".join([*begun, block[:end]]), lenient=lenient)
            begun = []
        begun.append(block[end:])
    yield from _parse(b"".join(begun), lenient=lenient)


def _parse(lines: bytes, *, lenient: bool) -> Iterator[ox.Quad]:
    if len(lines) < _LONGEST:
        yield from ox.parse(lines, format=ox.RdfFormat.N_QUADS, lenient=lenient)
        return
    for line in lines.split(b"\n"):
        if len(line) < _LONGEST:
            yield from ox.parse(line, format=ox.RdfFormat.N_QUADS, lenient=lenient)
        else:
            yield _parse_long(line)


def _parse_long(line: bytes) -> ox.Quad:
    found = _line(line)
    if found is None:
        raise SyntaxError("a statement of more than 16 MiB has no literal at its end")
    subject, predicate, text, datatype = found.groups()
    value = _escapes.sub(_character, text).decode() if b"\\" in text else text.decode()
    literal = ox.Literal(
        value, datatype=ox.NamedNode(datatype.decode() if datatype else XSD + "string")
    )
    return ox.Quad(ox.NamedNode(subject.decode()), ox.NamedNode(predicate.decode()), literal)


def _character(escape: re.Match[bytes]) -> bytes:
    code = escape[1] or escape[2]
    return _SHORT.get(escape[3], escape[3]) if code is None else chr(int(code, 16)).encode()
