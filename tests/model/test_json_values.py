"""``Json`` values: one text for one value, pointers into it, and the texts inside."""

from __future__ import annotations

import json
from datetime import date
from enum import IntEnum
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from trails import App, BigInt, Context, Iri, Json, Node, capability, node_type, predicate
from trails.engine.upkeep.verify import verify
from trails.errors import DeclarationError, TrailsError, ValidationError
from trails.model.values.json_values import MAX_JSON_DEPTH, JsonError, resolve

TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**60), 10**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
PRESENT = VALUES.filter(lambda value: value is not None)


def shuffled(value: object) -> object:
    """The same value with its members in another order."""
    if isinstance(value, dict):
        return {name: shuffled(value[name]) for name in reversed(list(value))}
    return [shuffled(each) for each in value] if isinstance(value, list) else value


def places(value: object, pointer: str = "") -> list[tuple[str, object]]:
    """Every place in a value."""
    found = [(pointer, value)]
    if isinstance(value, dict):
        for name, each in value.items():
            found += places(each, f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}")
    if isinstance(value, list):
        for at, each in enumerate(value):
            found += places(each, f"{pointer}/{at}")
    return found


@given(PRESENT)
@example({"a/b": {"~1": [""]}, "": {"": 0}})
def test_a_value_has_one_text_and_comes_back_from_it(value):
    """The order of members does not matter; every number and text is exact."""
    made = Json(value)
    assert made == Json(shuffled(value)) == Json.from_text(json.dumps(value, indent=1))
    assert hash(made) == hash(Json(shuffled(value)))
    assert repr(made.value) == repr(json.loads(made.text))
    assert json.dumps(made.value, sort_keys=True) == json.dumps(value, sort_keys=True)
    assert Json.trusted(made.text) == Json(made) == made


@given(PRESENT)
def test_every_place_has_a_pointer(value):
    """A pointer finds what is there, and every text is listed with its own, in order."""
    made, known = Json(value), places(Json(value).value)
    for pointer, held in known:
        assert repr(made.at(pointer)) == repr(held)
    assert list(made.texts()) == [each for each in known if isinstance(each[1], str)]


@pytest.mark.parametrize(
    "pointer", ["a", "/b", "/a/3", "/a/-1", "/a/00", "/a/1x", "/a/٣", "/a/-", "/a~2", "/a/0/x", "/"]
)
def test_a_wrong_pointer_says_what_is_there(pointer):
    """The message names the place that was reached, or the form of a pointer."""
    with pytest.raises(JsonError, match=r"has no .*; (it|its) |is not a JSON pointer; write"):
        resolve({"a": [1, 2, 3]}, pointer)


def nested(levels: int) -> object:
    """Arrays in arrays."""
    value: object = 1
    for _ in range(levels):
        value = [value]
    return value


class Level(IntEnum):
    """A number with a name."""

    HIGH = 3


def test_what_is_equal_to_python_is_not_equal_as_json():
    """One, one point zero and true are three values."""
    assert len({Json({"a": value}) for value in (1, 1.0, True)}) == 3
    assert Json(1) != 1
    assert Json((1, 2)) == Json([1, 2])
    assert Json([Iri("urn:a"), BigInt(5), Level.HIGH]) == Json(["urn:a", 5, 3])


REFUSED = {
    "null": (None, "null means that there is no value"),
    "NaN": ([float("nan")], "infinity and NaN are not JSON"),
    "infinity": ({"a": float("-inf")}, "infinity and NaN are not JSON"),
    "surrogate": ({"a": "\ud800"}, "half of a surrogate pair"),
    "surrogate in a name": ({"\udfff": 1}, "half of a surrogate pair"),
    "a number as a name": ({1: 2}, "the name of a member is a string, not 1"),
    "a date": ([date(2026, 1, 1)], "a date is not JSON"),
    "bytes": (b"x", "a bytes is not JSON"),
    "many digits": (10**1000, "at most 1,000 digits"),
    "too deep": (nested(MAX_JSON_DEPTH + 1), "nest deeper than 64 levels"),
    "much too deep": (nested(5000), "nest deeper than 64 levels"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_json_is_refused(name):
    """By the class, and as a violation of the field when it is saved."""
    value, said = REFUSED[name]
    with pytest.raises(JsonError, match=said):
        Json(value)
    if value is not None:
        with App(Doc) as app, pytest.raises(ValidationError) as caught:
            Doc(key="k", data=value).save(app.context())
        assert said in caught.value.fields[0].message
        assert caught.value.fields[0].field == "data"


@pytest.mark.parametrize("text", ["", "{", "nul", "null", "1e400", "[" * 5000, '"\\ud800"', "'a'"])
def test_a_text_that_is_not_json_is_refused(text):
    """With one error, whatever is wrong."""
    with pytest.raises(JsonError):
        Json.from_text(text)


def test_the_last_of_two_members_with_one_name_counts():
    """As in the parsers of every surface."""
    assert Json.from_text('{"a": 1, "a": 2}') == Json({"a": 2})
    assert Json(nested(MAX_JSON_DEPTH)).text.count("[") == MAX_JSON_DEPTH


# --- as a field ------------------------------------------------------------------


@node_type
class Doc(Node):
    """Something with data of its own."""

    key: str = predicate(key=True)
    data: Json | None = predicate()


@capability("doc.put")
def put_doc(ctx: Context, key: str, data: Json) -> Json:
    """Store a value and return the part that is called 'a'."""
    assert isinstance(data, Json)
    Doc(key=key, data=data).save(ctx, upsert=True)
    return Json(data.at("/a"))


@pytest.mark.req("E7")
def test_a_field_is_one_value_that_never_changes_in_place(tmp_path: Path):
    """It is stored, compared and read again as a whole; what is equal writes nothing."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "p"\n', encoding="utf-8")
    value = {"b": [1, 2.5, None, {"é": "x" * 1000}], "a": True}
    with App(Doc, put_doc, folder=tmp_path) as app:
        ctx = app.context()
        Doc(key="k", data=value).save(ctx)
        doc = Doc.get(ctx, "k")
        assert doc.data == Json(value)
        assert doc.data.at("/b/3/é") == "x" * 1000
        doc.data.value["b"].clear()
        assert doc.save(ctx) is None
        doc.data = shuffled(value)
        assert doc.save(ctx) is None
        doc.data = {**value, "a": 1}  # equal to true for Python
        assert doc.save(ctx) is not None
    with App(Doc, put_doc, folder=tmp_path) as app:
        ctx = app.context()
        assert Doc.get(ctx, "k").data == Json({**value, "a": 1})
        (row,) = ctx.kg.sparql("SELECT ?v (DATATYPE(?v) AS ?d) { ?x :data ?v }").rows
        assert (row["v"], row["d"]) == (Json({**value, "a": 1}), Iri(RDF_JSON))
        found = ctx.kg.sparql("ASK { ?x :data $v }", v=Json({**value, "a": 1}))
        assert found.truth
        assert app.call(ctx, "doc.put", {"key": "n", "data": {"a": [1]}}) == [1]
        assert {each.severity for each in verify(app.graph(), lambda _: None)} == {"ok"}


RDF_JSON = "http://www.w3.org/1999/02/22-rdf-syntax-ns#JSON"


def declare(annotation: object, **given: object) -> None:
    """Declare a type with one field."""
    node_type(type("Wrong", (Node,), {"__annotations__": {"a": annotation}, **given}))


def test_what_a_field_of_json_can_not_be():
    """It has no order, so it is no key, not unique, and in no list; a dict is not a type."""
    for said, wrong in (("key=True", {"key": True}), ("unique=True", {"unique": True})):
        with pytest.raises(DeclarationError, match=f"{said} does not apply to Json"):
            declare(Json, a=predicate(**wrong))
    for annotation, said in ((list[Json], "write Json"), (dict, "use Json")):
        with pytest.raises(DeclarationError, match=said):
            declare(annotation)
    with App(Doc) as app:
        for lookup in ("data", "data__gt", "data__in"):
            with pytest.raises(TrailsError):
                Doc.objects(app.context()).where(**{lookup: [1]}).fetch()
        assert Doc.objects(app.context()).where(data__isnull=True).count() == 0
