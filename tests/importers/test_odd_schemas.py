"""Whatever text is imported, it becomes a schema or is refused with a reason."""

import json
from contextlib import suppress

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from trails.authoring.specs import describe_types
from trails.errors import ValidationError
from trails.importers.json_schema import read_json_schema
from trails.importers.linkml import read_linkml
from trails.importers.omnigraph import read_omnigraph
from trails.importers.shacl import SH, ShaclValue, read_shacl
from trails.model.iris import RDF
from trails.model.types import Schema


def words(text):
    """The words of a text."""
    return text.split()


NAMES = st.sampled_from(["a", "B", "type", "class", "from", "x y", "é", "", "1", "a-b", "_", "Id"])
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | NAMES
JSON_WORDS = words(
    """type properties required items enum const $ref $defs allOf anyOf oneOf minLength
    maxLength pattern minimum exclusiveMaximum minItems uniqueItems default format title description
    additionalProperties string integer number array object null #/$defs/a trails:node_type"""
)
LINKML_WORDS = words(
    """classes slots attributes slot_usage enums types range required multivalued is_a
    mixins abstract identifier pattern minimum_value permissible_values ifabsent unique_keys
    unique_key_slots default_range prefixes imports class_uri description string integer"""
)
OMNIGRAPH_WORDS = words(
    """node edge interface implements query match return order limit insert update
    delete where set not exists and or in is null contains starts_with count search String I32 enum
    Vector ? @ key unique index range check card ( ) [ ] { } : , -> .. . < > = * | $p $q _ Person
    knows Knows "text" 1 2.5 -3 true date now as asc desc"""
)


def documents(words):
    """Nested documents whose keys and values are mostly the words of a language."""
    keys = st.sampled_from(words) | NAMES
    leaves = SCALARS | st.sampled_from(words)
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=15,
    )


def works(read):
    """Read a text, and make types of it; only a refusal with a reason may be raised."""
    with suppress(ValidationError):
        describe_types(read().types, Schema())


@given(documents(JSON_WORDS), documents(JSON_WORDS))
def test_any_json(definitions, properties):
    """Also where a keyword has a value that it never has."""
    works(lambda: read_json_schema(json.dumps({"$defs": definitions, "properties": properties})))
    named = {"$defs": {"a": definitions}, "properties": {"x": properties}}
    works(lambda: read_json_schema(json.dumps(named)))


@given(documents(LINKML_WORDS), documents(LINKML_WORDS), documents(LINKML_WORDS))
def test_any_yaml(classes, slots, slot):
    """Also where a keyword has a value that it never has."""
    for document in (
        {"classes": classes, "slots": slots},
        {"classes": {"A": classes}, "slots": {"a": slot}},
        {"classes": {"A": {"slots": ["a"], "attributes": {"b": slot}}}, "slots": {"a": slots}},
    ):
        works(lambda document=document: read_linkml(yaml.safe_dump(document)))


@given(
    st.lists(st.sampled_from(OMNIGRAPH_WORDS), max_size=40),
    st.lists(st.sampled_from(OMNIGRAPH_WORDS), max_size=40),
)
def test_any_words_of_omnigraph(schema, query):
    """In any order."""
    text = " ".join(query)
    works(lambda: read_omnigraph(" ".join(schema)))
    known = "node Person { name: String @key } edge Knows: Person -> Person"
    works(lambda: read_omnigraph(known, {"q.gq": text}))
    works(lambda: read_omnigraph(known, {"q.gq": f"query q($q: String) {{ match {{ {text}"}))
    whole = f"query q() {{ match {{ $p: Person {text} }} return {{ $p.name {text} }} }}"
    works(lambda: read_omnigraph(known, {"q.gq": whole}))


PREDICATES = [
    *(SH + word for word in words("targetClass property path in minLength maxInclusive datatype")),
    *(SH + word for word in words("class node pattern minCount")),
    *(RDF + word for word in words("type first rest")),
]
TERMS = st.sampled_from(
    [SH + "NodeShape", "_:a", "_:b", "https://example.org/A", RDF + "nil", *PREDICATES]
)
VALUES = st.builds(ShaclValue, TERMS | st.text(max_size=3), st.none() | TERMS)


@given(st.lists(st.tuples(TERMS, st.sampled_from(PREDICATES), VALUES), max_size=12))
def test_any_statements(statements):
    """Lists that never end, shapes of shapes, numbers that are none."""
    works(lambda: read_shacl(statements))


@pytest.mark.parametrize("read", [read_json_schema, read_linkml, read_omnigraph])
def test_a_text_that_is_too_long_is_refused(read):
    """Before it is read."""
    with pytest.raises(ValidationError, match="can be imported"):
        read(" " * (5 << 20))
