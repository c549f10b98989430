"""Read what statements of the log say about nodes, line by line, without a term for each.

Takes statements in the form in which ``terms`` writes them: less than the RDF parser, never more.
For a block of lines with any other one, ``UnusualError`` says that it has to be parsed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Final, NamedTuple

from trails.model.iris import RDF_TYPE, XSD
from trails.model.types import PredicateDescriptor

_IN_HANDLE: Final = "[A-Za-z0-9_.~/@:!$&'()*+,;=-]*"
_HANDLE: Final = f"{_IN_HANDLE}(?:%[0-9A-Fa-f]{{2}}{_IN_HANDLE})*"
_TERMS: Final = (
    rf"({_HANDLE})> <([^>\n]*)> "
    r'(?:"([^"\\\n\r]*(?:\\[tbnrf"\\][^"\\\n\r]*)*)"'
    r"(?:\^\^<([^>\n]+)>|@([a-z]{1,8}(?:-[a-z0-9]{1,8})*))?|<([^>\n]+)>) \.\n"
)
"""A statement from the handle on: handle, predicate; text, datatype and language of a literal, or
else an IRI."""
_handle = re.compile(_HANDLE).fullmatch
_escape = re.compile(r"\\(.)")
_SHORT: Final = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}
_STRING: Final = XSD + "string"
_TAGGED: Final = "@"
"""In place of the datatype of literals that have a language."""


class UnusualError(Exception):
    """Lines that have to be parsed."""


class Change:
    """What one commit says about one node, field by field."""

    __slots__ = ("added", "gone", "new", "removed")

    def __init__(self) -> None:
        self.new = False
        self.gone = False
        self.added: dict[str, list[object]] = {}
        self.removed: dict[str, list[object]] = {}


class _Reading(NamedTuple):
    """How the values of a field are read."""

    name: str
    datatype: str
    """Of its literals; empty for references."""
    parse: Callable[[str], object]


class TypeLines:
    """How the statements of one type are read."""

    def __init__(
        self, classes: frozenset[str], main_class: str, fields: Mapping[str, PredicateDescriptor]
    ) -> None:
        """``fields``: by predicate. Ordered lists are left to the parser."""
        self.readings: dict[str, _Reading] = {}
        for predicate, field in fields.items():
            row = field.type.scalar.row
            if row is None and not field.ordered:
                self.readings[predicate] = _Reading(field.name, "", str)
            elif row is not None and not field.ordered:
                datatype = _TAGGED if row.tagged else row.datatype
                self.readings[predicate] = _Reading(field.name, datatype, row.parse)
        self._classes = classes
        self._main_class = main_class

    def read_class(self, change: Change, predicate: str, iri: str, *, adding: bool) -> None:
        """Take down that a node gets or loses a class."""
        if predicate != RDF_TYPE or iri not in self._classes:
            raise UnusualError
        if iri == self._main_class:
            change.new, change.gone = (True, change.gone) if adding else (change.new, True)


class Lines:
    """Reads the statements of one graph under one schema."""

    def __init__(self, nodes: str, types: Mapping[str, TypeLines]) -> None:
        """``nodes``: how the IRIs of nodes begin."""
        self._nodes = nodes
        self._types = types
        self._usual = re.compile(f"^<{re.escape(nodes)}{_TERMS}", re.MULTILINE)

    def read(self, block: str, *, adding: bool) -> dict[str, Change]:
        """What whole lines add or remove, by node."""
        lines = self._usual.findall(block)
        if len(lines) != block.count("\n") or (block and block[-1] != "\n"):
            raise UnusualError
        found: dict[str, Change] = {}
        for handle, of_node in groupby(lines, itemgetter(0)):
            known = self._types.get(handle.partition("/")[0])
            if known is None:
                raise UnusualError
            change = found.get(handle)
            if change is None:
                change = found[handle] = Change()
            side = change.added if adding else change.removed
            for _, predicate, text, datatype, tag, iri in of_node:
                reading = known.readings.get(predicate)
                if reading is None:
                    known.read_class(change, predicate, iri, adding=adding)
                    continue
                value: object
                if iri and not reading.datatype:
                    value = self._target(iri)
                elif (datatype or _STRING) == reading.datatype and not (iri or tag):
                    value = parsed(reading.parse, _unescape(text) if "\\" in text else text)
                elif tag and reading.datatype == _TAGGED:
                    value = tag, _unescape(text)
                else:
                    raise UnusualError
                if value is not None:
                    side.setdefault(reading.name, []).append(value)
        return found

    def _target(self, iri: str) -> str:
        handle = iri[len(self._nodes) :]
        if (
            not iri.startswith(self._nodes)
            or handle.partition("/")[0] not in self._types
            or _handle(handle) is None
        ):
            raise UnusualError
        return handle


def parsed(parse: Callable[[str], object], text: str) -> object:
    """The value of a literal; None if it is not of the kind."""
    try:
        return parse(text)
    except (ValueError, ArithmeticError):
        return None


def _unescape(text: str) -> str:
    return _escape.sub(lambda escape: _SHORT.get(escape[1], escape[1]), text)
