"""IRIs: their grammar, and how nodes, types and fields are named.

A node is ``<base>/<Type>/<id>``; classes and fields are in ``<base>/schema#``. The grammar is
the part of RFC 3986 and 3987 that every RDF engine and every ``format: uri`` or ``format: iri``
checker agrees on (no IP literals in brackets), so one pattern serves schema and coercer. Nodes
without a key get a UUIDv7, so that creation order is index order. Digests are made from
canonical bytes: equal content has an equal digest in any process.
"""

from __future__ import annotations

import os
import re
import threading
import time
import unicodedata
from hashlib import sha256
from typing import Final
from urllib.parse import quote, unquote

import msgspec

RDF: Final = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDF_TYPE: Final = RDF + "type"
RDF_FIRST: Final = RDF + "first"
RDF_REST: Final = RDF + "rest"
RDF_NIL: Final = RDF + "nil"
XSD: Final = "http://www.w3.org/2001/XMLSchema#"
COMMON_PREFIXES: Final = {
    "rdf": RDF,
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": XSD,
    "owl": "http://www.w3.org/2002/07/owl#",
    "skos": "http://www.w3.org/2004/02/skos/core#",
}
"""Prefixes that every SPARQL text may use without declaring them."""
TRAILS: Final = "https://trails.dev/ns#"
HANDLE_PREFIX: Final = "trails://kg/"

MAX_ID_BYTES: Final = 512

_is_placed = re.compile(r"trails://(?:branch|at)/[^/]+/kg/").match

_PCT = "%[0-9A-Fa-f]{2}"
_ASCII = "A-Za-z0-9._~!$&'()*+,;="
_UCS = "\\u00A0-\\uD7FF\\uF900-\\uFDCF\\uFDF0-\\uFFEF"  # RFC 3987 ucschar of the basic plane


def _grammar(extra: str) -> str:
    char = f"(?:[{_ASCII}{extra}:@-]|{_PCT})"
    host = f"(?:[{_ASCII}{extra}-]|{_PCT})"
    user = f"(?:[{_ASCII}{extra}:-]|{_PCT})"
    authority = f"//(?:{user}*@)?{host}*(?::[0-9]{{0,5}})?(?:/{char}*)*"
    path = f"/(?:{char}+(?:/{char}*)*)?|{char}+(?:/{char}*)*"
    tail = f"(?:[/?]|{char})*"
    return f"^[A-Za-z][A-Za-z0-9+.-]*:(?:{authority}|{path})(?:[?]{tail})?(?:#{tail})?$"


URI_PATTERN: Final = _grammar("")
IRI_PATTERN: Final = _grammar(_UCS)


_is_plain = re.compile(r"[A-Za-z0-9._~-]*").fullmatch  # RFC 3986 unreserved


def encode_id(identifier: str) -> str:
    """An id as one IRI path segment."""
    if _is_plain(identifier):
        return identifier
    # A lone surrogate gets a segment that no id has, so it names nothing.
    return quote(identifier, safe="", errors="surrogatepass")


def decode_id(segment: str) -> str:
    """The id in a path segment."""
    return unquote(segment, errors="strict")


def normal_id(identifier: str) -> str:
    """Ids are compared in Unicode normal form C."""
    return unicodedata.normalize("NFC", identifier)


def id_problem(identifier: str) -> str | None:
    """Why a text can't be an id, or None."""
    if not identifier:
        return "it is empty"
    if identifier in {".", ".."}:
        return "'.' and '..' are path steps"
    if len(identifier.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES:
        return f"it is longer than {MAX_ID_BYTES} bytes"
    return None


def _place_prefix(uri: str) -> tuple[str, ...]:
    """The start of a handle on a branch or in the past: ``trails://branch/<name>/kg/``."""
    found = _is_placed(uri)
    return () if found is None else (found.group(),)


class Names:
    """The IRIs of one graph; ``base`` is set when the graph is created and never changes."""

    __slots__ = ("base", "nodes", "prefixes", "vocabulary")

    def __init__(self, base: str) -> None:
        self.base = base.rstrip("/")
        self.nodes = self.base + "/"
        """The base of relative IRIs in SPARQL: ``<Task/t1>`` is an instance."""
        self.vocabulary = self.base + "/schema#"
        self.prefixes = {"": self.vocabulary, **COMMON_PREFIXES}
        """Prefixes that SPARQL texts may use without declaring them."""

    def node(self, type_name: str, identifier: str) -> str:
        """The IRI of an instance."""
        return f"{self.nodes}{type_name}/{quote(identifier, safe='')}"

    def term(self, name: str) -> str:
        """The IRI of a class or field; a declared absolute IRI stays as it is."""
        return name if ":" in name else self.vocabulary + name

    def parse_node(self, iri: str) -> tuple[str, str] | None:
        """``(type, id)`` of an instance's IRI or MCP handle, on any branch or commit, or None."""
        for prefix in (self.nodes, HANDLE_PREFIX, *_place_prefix(iri)):
            if iri.startswith(prefix):
                type_name, slash, segment = iri[len(prefix) :].partition("/")
                if slash and type_name and segment and "/" not in segment:
                    try:
                        return type_name, normal_id(decode_id(segment))
                    except UnicodeDecodeError:
                        return None
        return None


_RANDOM: Final = 4096
"""Random bytes drawn at once: a draw is a system call, and the most costly part."""
_DIGITS: Final = 16
"""Hexadecimal digits of an id that are random, but for two bits of the first."""
_VARIANT: Final = {digit: "89ab"[int(digit, 16) % 4] for digit in "0123456789abcdef"}

_lock = threading.Lock()
_last = 0
_random = ""
_drawn = 0


def uuid7() -> str:
    """A UUID version 7 (RFC 9562), strictly increasing within this process."""
    global _last, _random, _drawn  # noqa: PLW0603 - one clock a process is the point
    with _lock:
        # 48 bits of milliseconds and 12 of a counter make one number that only grows.
        ticks = max(time.time_ns() // 1_000_000 << 12, _last + 1)
        _last = ticks
        if _drawn >= len(_random):
            _random, _drawn = os.urandom(_RANDOM).hex(), 0
        drawn = _random[_drawn : _drawn + _DIGITS]
        _drawn += _DIGITS
    at = f"{ticks:015x}"
    return f"{at[:8]}-{at[8:12]}-7{at[12:]}-{_VARIANT[drawn[0]]}{drawn[1:4]}-{drawn[4:]}"


def _forget_random() -> None:
    """Drop the drawn bytes after a fork: parent and child would use the same."""
    global _random, _lock
    _random, _lock = "", threading.Lock()


os.register_at_fork(after_in_child=_forget_random)


def edge_id(source: str, target: str, key: str | None = None) -> str:
    """The id of the one edge of its type between two nodes, the same on every branch.

    ``key`` distinguishes several of them, if the type has one; no handle contains a new line.
    """
    parts = (source, target) if key is None else (source, target, normal_id(key))
    return sha256("\n".join(parts).encode()).hexdigest()[:32]


def canonical(value: object) -> bytes:
    """JSON with sorted keys and no white space."""
    return msgspec.json.encode(value, order="sorted")


def digest_of(value: object) -> str:
    """SHA-256 of the canonical bytes, in hex."""
    return sha256(canonical(value)).hexdigest()
