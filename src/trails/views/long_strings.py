"""Strings of JSON-LD that are too long for the RDF parser: short names stand in for them.

The parser takes no JSON string of more than 8 MiB. While a file is read, each long string is kept
aside, and the parser gets a name in its place that nobody can guess; the values of the statements
that come out are put back. Only values can be that long: an IRI that has such a name is refused.

Works block by block, in the time of a search for quotation marks. Text that is not JSON passes as
it is: the parser reports what is wrong with it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator
from typing import IO, Final, cast

import msgspec
import pyoxigraph as ox

from trails.model.nodes import MAX_NODE

LONG_STRING: Final = 1 << 20
"""Bytes of a string in the file from which on it is kept aside."""
_LONGEST: Final = 2 * MAX_NODE
"""Room for the largest value, even with more escapes than exports have."""
_BLOCK: Final = 1 << 18
_whole_strings = re.compile(rb'(?:[^"]*"[^"\\]*+(?:\\.[^"\\]*+)*+")*+', re.DOTALL).match
_inside = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL).match


def parse_file(
    read: Callable[[int], bytes], format: ox.RdfFormat, base_iri: str | None
) -> Iterator[ox.Quad]:
    """The statements of a file, which ``read`` gives in blocks of the size that is asked for."""
    if format != ox.RdfFormat.JSON_LD:
        return iter(ox.parse(cast(IO[bytes], _Source(read)), format=format, base_iri=base_iri))
    strings = LongStrings(read)
    return strings.restored(ox.parse(cast(IO[bytes], strings), format=format, base_iri=base_iri))


class _Source(msgspec.Struct, frozen=True):
    """A file as the parser reads it."""

    read: Callable[[int], bytes]


class LongStrings:
    """A JSON-LD file with names in place of its long strings."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        """``read`` gives the next block of the file, of about so many bytes; none at its end."""
        self._read = read
        self._mark = secrets.token_hex(16)
        self._kept: dict[str, bytes] = {}
        self._blocks = self._shortened()
        self._rest = memoryview(b"")
        self._names = 0

    def read(self, size: int) -> bytes:
        """As many bytes as the parser asks for, unless the file ends."""
        pieces: list[memoryview] = []
        while size:
            if not self._rest:
                self._rest = memoryview(next(self._blocks, b""))
                if not self._rest:
                    break
            pieces.append(self._rest[:size])
            self._rest = self._rest[size:]
            size -= len(pieces[-1])
        return b"".join(pieces)

    def _shortened(self) -> Iterator[bytes]:
        rest = b""
        while block := self._read(_BLOCK):
            text = rest + block
            found = _whole_strings(text)
            end = 0 if found is None else found.end()
            if end:
                yield text[:end]
            rest = text[end:]
            start = rest.find(b'"')
            if start < 0:
                if rest:
                    yield rest
                rest = b""
            elif len(rest) - start > LONG_STRING:
                if start:
                    yield rest[:start]
                string, rest = self._to_its_end(rest[start + 1 :])
                yield self._name(string) if string is not None else b'"'
        if rest:
            yield rest

    def _to_its_end(self, begun: bytes) -> tuple[bytes | None, bytes]:
        """The rest of a string, without its quotation marks, and what follows it.

        A string that does not end is left out: the parser misses its end.
        """
        parts, size, block = [], 0, begun
        while True:
            found = _inside(block)
            end = 0 if found is None else found.end()
            if end < len(block) and block[end : end + 1] == b'"':
                parts.append(block[:end])
                return b"".join(parts), block[end + 1 :]
            # At most one backslash is left, which belongs to the first byte of the next block.
            parts.append(block[:end])
            size += end
            if size > _LONGEST:
                raise MemoryError(f"the buffer maximal size of {_LONGEST} is reached")
            following = self._read(_BLOCK)
            if not following:
                return None, b""
            block = block[end:] + following

    def _name(self, string: bytes) -> bytes:
        self._names += 1
        name = f"{self._mark}{self._names}"
        self._kept[name] = string
        return b'"%s"' % name.encode()

    def restored(self, quads: Iterable[ox.Quad]) -> Iterator[ox.Quad]:
        """Statements with the strings in place of their names."""
        for quad in quads:
            yield self._restore(quad) if self._names else quad

    def _restore(self, quad: ox.Quad) -> ox.Quad:
        subject, predicate, value, graph = quad
        if isinstance(value, ox.Literal) and value.value in self._kept:
            value = self._literal(value)
            named: tuple[object, ...] = (subject, predicate, value.datatype, graph)
            quad = ox.Quad(subject, predicate, value, graph)
        else:
            named = (subject, predicate, value, graph)
        if any(self._mark in str(each) for each in named):
            raise ValueError("a string of more than 1 MiB is used as an IRI, or twice")
        return quad

    def _literal(self, value: ox.Literal) -> ox.Literal:
        try:
            text = msgspec.json.decode(b'"%s"' % self._kept.pop(value.value), type=str)
        except msgspec.DecodeError as error:
            raise ValueError(f"a string of more than 1 MiB is not valid JSON: {error}") from None
        if value.language is not None:
            return ox.Literal(text, language=value.language)
        return ox.Literal(text, datatype=value.datatype)
