"""Strings of JSON-LD that the parser does not take are read as it reads the others."""

from __future__ import annotations

import io
import json

import pyoxigraph as ox
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trails.views import long_strings
from trails.views.long_strings import LongStrings, parse_file

JSON_LD = ox.RdfFormat.JSON_LD
texts = st.text(st.sampled_from('a"\\\n\0é语🜚/ ') | st.characters(exclude_categories=("Cs",)))


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strings of a few bytes count as long."""
    monkeypatch.setattr(long_strings, "LONG_STRING", 8)


def pieces(text: bytes, size: int) -> list[ox.Quad]:
    """The statements of a file that is read in blocks of a size."""
    file = io.BytesIO(text)
    return list(parse_file(lambda _: file.read(size), JSON_LD, "urn:base/"))


def document(values: list[str], *, ascii_only: bool = False) -> bytes:
    """A file with a node that has some values."""
    node = {"@id": "urn:s", "urn:p": [{"@value": each} for each in values]}
    return json.dumps([node, {"@id": "urn:o", "urn:p": values}], ensure_ascii=ascii_only).encode()


@given(st.lists(texts, max_size=6), st.integers(1, 40), st.booleans())
def test_a_file_means_the_same(values: list[str], size: int, ascii_only: bool) -> None:
    """Wherever blocks end: in a character, after a backslash, in an escape."""
    text = document(values, ascii_only=ascii_only)
    assert pieces(text, size) == list(ox.parse(text, format=JSON_LD, base_iri="urn:base/"))


def test_datatypes_and_languages_stay() -> None:
    """Of a value whose string was kept aside."""
    long = "x" * 100
    node = {
        "@id": "urn:s",
        "urn:p": [{"@value": long, "@type": "urn:t"}, {"@value": long, "@language": "de"}],
    }
    first, second = pieces(json.dumps(node).encode(), 7)
    assert first.object == ox.Literal(long, datatype=ox.NamedNode("urn:t"))
    assert second.object == ox.Literal(long, language="de")


@pytest.mark.parametrize(
    "text",
    [
        b'{"@id": "urn:s", "urn:p": "' + b"x" * 100,
        b'{"@id": "urn:s", "urn:p": "' + b"x" * 100 + b"\\",
        b'{"@id": "urn:s", "urn:p": "' + b"x" * 100 + b'\\u12"}',
        b'{"@id": "urn:s", "urn:p": "' + b"x" * 100 + b'\\ud800"}',
        b'{"@id": "urn:s", "urn:p": "' + b"x" * 100 + b'\\q"}',
        b'{"@id": "urn:s", "urn:p": "' + b"\xff" * 100 + b'"}',
        b'{"@id": "urn:s", "urn:p": {"@id": "' + b"x" * 100 + b'"}}',
        b'{"@id": "' + b"x" * 100 + b'", "urn:p": 1}',
        b'{"@id": "urn:s", "urn:' + b"x" * 100 + b'": 1, "urn:p": {"@id": "' + b"y" * 99 + b'"}}',
    ],
)
def test_what_is_not_a_long_value_is_refused(text: bytes) -> None:
    """With an error that a file can have; the names that stand in for strings never get out."""
    with pytest.raises((SyntaxError, ValueError)):
        pieces(text, 11)


def test_a_string_can_be_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not kept in memory without a bound."""
    monkeypatch.setattr(long_strings, "_LONGEST", 1000)
    with pytest.raises(MemoryError, match="buffer maximal size"):
        pieces(document(["x" * 2000]), 50)


def test_strings_are_kept_until_they_are_read() -> None:
    """Not longer: a file may have many."""
    file = io.BytesIO(document(["x" * 100] * 50))
    strings = LongStrings(lambda _: file.read(64))
    for _ in strings.restored(ox.parse(strings, format=JSON_LD)):  # type: ignore[arg-type]
        pass
    assert not strings._kept
