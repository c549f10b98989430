"""One table makes the JSON Schema and the coercer: an independent validator says so.

The oracle is the `jsonschema` library with formats asserted. Its own `pattern` uses Python's
reading of regular expressions; JSON Schema asks for ECMA-262's, so the oracle gets a `pattern`
keyword that reads as ECMA-262 does (tests/model/ecma.py). NaN, infinities and lone surrogates are
left out: they are not JSON.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError as SchemaViolation
from jsonschema.validators import extend
from pyoxigraph import Literal, NamedNode, Quad, Store
from tests.campaigns import sized
from tests.model.ecma import compile_ecma

from trails import App, Context, Node, Ref, Shape, Vector, capability, node_type, predicate, shape
from trails.authoring.capabilities import MARK
from trails.authoring.predicates import Predicate, describe
from trails.engine.session.arguments import checks_of
from trails.errors import FieldError, ValidationError
from trails.model.capabilities import CapabilityDescriptor
from trails.model.constraints import compile_field
from trails.model.kinds import (
    DATE_PATTERN,
    DATETIME_PATTERN,
    INT_MAX,
    INT_MIN,
    IRI_PATTERN,
    KINDS,
    URI_PATTERN,
    BigInt,
    Blob,
    Iri,
)
from trails.model.types import LIST, PredicateDescriptor, ValueType
from trails.model.values.json_values import Json
from trails.model.values.lang_texts import TAG_PATTERN, LangText
from trails.projections.json_schema import project_fields

# ---------------------------------------------------------------------------- the oracle


def ecma_pattern(validator, pattern, instance, schema):
    """`pattern` as JSON Schema means it."""
    if validator.is_type(instance, "string") and not compile_ecma(pattern).search(instance):
        yield SchemaViolation(f"{instance!r} does not match {pattern!r}")


Oracle = extend(Draft202012Validator, {"pattern": ecma_pattern})


def oracle_of(document: Mapping[str, object]) -> Draft202012Validator:
    """A validator that asserts formats."""
    Draft202012Validator.check_schema(document)
    return Oracle(document, format_checker=Draft202012Validator.FORMAT_CHECKER)


# ---------------------------------------------------------------------------- the fields


class Case:
    """One field, as its schema and as its coercer."""

    def __init__(self, field: PredicateDescriptor) -> None:
        self.field = field
        self.kind = field.type.scalar.kind
        self.document = project_fields([field])
        self.oracle = oracle_of(self.document)
        self.check = compile_field(field, {}, stored=False)

    def schema_accepts(self, arguments: Mapping[str, object]) -> bool:
        """What an agent would conclude from the published schema."""
        return self.oracle.is_valid(arguments)

    def coercer_accepts(self, arguments: Mapping[str, object]) -> bool:
        """What a call does: left out and null mean the default, or nothing."""
        raw = arguments.get("v")
        if raw is None:
            raw = self.field.default
        errors: list[FieldError] = []
        self.check(raw, "v", errors)
        return not errors

    def judge(self, arguments: Mapping[str, object]) -> bool:
        """Fail unless both sides agree; tell what they agree on."""
        published, enforced = self.schema_accepts(arguments), self.coercer_accepts(arguments)
        assert published == enforced, (
            f"schema {'accepts' if published else 'refuses'} and coercer "
            f"{'accepts' if enforced else 'refuses'} {arguments!r} for {self.field}"
        )
        return published


# Constraints that JSON Schema can say. Those it can't (min_value of a date, one_of of a
# decimal, which has many spellings) are told in the description and tested below.
CONSTRAINTS: Mapping[str, tuple[Mapping[str, object], ...]] = {
    "String": (
        {"min_length": 2, "max_length": 4},
        {"pattern": r"^\d+$"},
        {"pattern": r"^\w.\s?$", "max_length": 3},
        {"one_of": ["", "a", "1", "null"]},
        {"one_of": ["a", "b"], "default": "a"},
    ),
    "Bool": ({"one_of": [True]}, {"default": False}),
    "Int": (
        {"min_value": -3, "max_value": 3},
        {"one_of": [0, 1, 2**53 + 1]},
        {"max_value": 2**53},
        {"default": 7, "min_value": 7},
    ),
    "BigInt": ({},),
    "Float": (
        {"min_value": -0.5, "max_value": 1e300},
        {"one_of": [0.0, 1.0, 0.1]},
        {"max_value": float(2**53)},
        {"min_value": float(2**64), "default": 1e200},
    ),
    "Decimal": ({"default": "1.50"},),
    "Date": ({"one_of": ["2024-02-29", "0001-01-01"]},),
    "DateTime": ({},),
    "Iri": (
        {"pattern": "^https?:", "max_length": 30},
        {"one_of": ["urn:a:b", "https://e.org/é"]},
    ),
    "Blob": ({"pattern": "^s3:", "min_length": 8}, {"one_of": ["s3://b/k"]}),
    "Vector": ({"dimension": 1}, {"dimension": 3}),
    "Json": ({},),
    "LangText": (
        {"min_length": 2, "max_length": 4},
        {"pattern": r"^\d+$", "languages": ["en", "de-CH"]},
        {"languages": ["fr"], "default": {"fr": "a"}},
    ),
}


def make_field(kind: str, form: str, said: Mapping[str, object]) -> PredicateDescriptor:
    """A field as a declaration would make it."""
    value_type = ValueType(kind, nullable=form == "nullable" and "default" not in said)
    extra: dict[str, object] = {}
    if form == "list":
        value_type = ValueType(LIST, item=value_type)
        extra = {"min_count": 1, "max_count": 3}
    elif form == "free list":
        value_type = ValueType(LIST, item=value_type)
    said = {**said, **extra}
    if isinstance(options := said.get("one_of"), list):
        said["one_of"] = tuple(options)
    if "default" in said and value_type.kind == LIST:
        said["default"] = [said["default"]]
    return describe("Case", "v", value_type, Predicate(**said), stored=False)


def make_cases() -> Iterator[Case]:
    """Every kind, alone, nullable and in lists, without and with constraints."""
    for kind in KINDS:
        forms = ["plain", "nullable"]
        if KINDS[kind].sort_key is not None:  # a set needs an order
            forms += ["list", "free list"]
        for said in ({}, *CONSTRAINTS[kind]):
            for form in forms:
                yield Case(make_field(kind, form, said))


CASES = tuple(make_cases())

# ---------------------------------------------------------------------------- the values

VALID: Mapping[str, tuple[object, ...]] = {
    "String": ("", "a", "ab", "abc", "123", "1é ", "😀", "a\nb"),
    "Bool": (True, False),
    "Int": (0, 1, -3, 3, 2**53, 2**53 + 1, INT_MAX, INT_MIN, 1.0),
    "BigInt": ("0", "-0", "007", "1", str(10**30), "9" * 1000),
    "Float": (0, 0.0, -0.0, 1, 0.1, 1e300, 2**53, 2**53 + 1, 2**64 + 1, 1.7976931348623157e308),
    "Decimal": ("0", "-0.0", "1.50", "1.5", "12345678901234567890.123456789012345678"),
    "Date": ("2024-02-29", "0001-01-01", "9999-12-31", "2000-02-29", "1999-04-30"),
    "DateTime": (
        "2024-02-29T00:00:00Z",
        "2024-12-31T23:59:59.999999+14:00",
        "0001-01-01T00:00:00-14:00",
        "9999-12-31T23:59:59.5-13:59",
        "2024-01-01T12:00:00+00:00",
        "2024-01-01T12:00:00-00:00",
    ),
    "Iri": ("urn:a:b", "https://e.org/é", "http://u:p@h:80/a%20b?q=/?#f/?", "x:/", "a:b//c"),
    "Blob": ("s3://b/k", "s3://bucket/key%2F1", "file:///a", "http://h:?#", "mailto:a@b.c"),
    "Vector": ([], [1], [0.5], [1, 2.5, -0.0], [1e300, 2**53 + 1, 3]),
    "Json": (0, 1.0, True, "", "null", [], {}, [None], {"": {"a": [None, 10**400, -0.0, "\x00"]}}),
    "LangText": (
        {"en": ""},
        {"en": "12", "de-ch": "345"},
        {"fr": "ab", "zh-hant-tw": "😀"},
        {"sl-rozaj-biske": "x", "es-419": "y", "de-1996": "z", "fr": "1"},
    ),
}

FLOAT_TOP = int(1.7976931348623157e308)

NUMBERS = [True, False, 0, 1, -1, 1.0, -0.0, 0.1, 1.5, 1e300, -1e300, 5e-324, 10**30, -(10**30)]
NUMBERS += [INT_MAX, INT_MAX + 1, INT_MIN, INT_MIN - 1, float(2**63), -float(2**63), 1e19]
NUMBERS += [2**53 + 1, FLOAT_TOP, FLOAT_TOP + 1, -FLOAT_TOP - 1, 10**400, -(10**400)]


def words(text: str) -> list[str]:
    """Values without white space, as a text."""
    return text.split()


# The first are digits, but not ASCII: Arabic, full width, superscript, Roman.
NUMERALS = words("\u0663 \uff11\uff12 \xb2 \u2167 \u06f1.\u06f2")
NUMERALS += words("1 1.0 -1 +1 1_000 1e3 1E3 0x10 NaN Infinity --1 - . 1. .5 1.5.5 1,5 00 -00")
NUMERALS += ["0" * 21, "9" * 21, "1." + "0" * 19, "9" * 1001, " 1", "1 ", "12\n", "1\r", "\v1"]

DATES = words("""
    2024-02-29 2023-02-29 2023-02-30 2023-04-31 0000-01-01 0000-02-29 2024-13-01 2024-00-01
    2024-01-00 2024-01-32 2024-1-1 20240101 2024-W01-1 2024-060 \uff12024-01-01 10000-01-01
    -001-01-01 +2024-01-01 2024-01-01Z 2024/01/01 1900-02-29
""")
DATES += ["2024-01-01\n", " 2024-01-01", "2024-01-01 "]

TIMES = words("""
    2024-01-01T00:00:00 2024-01-01T24:00:00Z 2024-01-01T23:59:60Z 2016-12-31T23:59:60Z
    2024-01-01T00:00:00z 2024-01-01t00:00:00Z 2024-01-01T00:00Z 2024-01-01T00:00:00+14:01
    2024-01-01T00:00:00+15:00 2024-01-01T00:00:00-14:00 2024-01-01T00:00:00+0000
    2024-01-01T00:00:00+00 2024-01-01T00:00:00.Z 2024-01-01T00:00:00.1234567Z
    2024-01-01T00:00:00,5Z 2024-01-01T00:00:00+00:60 2023-02-29T00:00:00Z 0000-01-01T00:00:00Z
    0001-01-01T00:00:00+14:00 9999-12-31T23:59:59-14:00 2024-01-01T00:00:00+00:00:01 2024-01-01TZ
""")
TIMES += ["2024-01-01 00:00:00Z", "2024-01-01T00:00:00Z\n"]

GOOD_TIMES = words("""
    2024-01-01T00:00:00-14:00 0001-01-01T00:00:00+14:00 9999-12-31T23:59:59-14:00
""")

IRIS = words(r"""
    % a:% a:%2 a:%2G a:%GG a:%zz a:<b> a:[b] a:{b} http://[::1]/ http://h:99999/ http://h:999999/
    http://h:x/ http: http:// a: 1a:b :b /a //a ?a #a a a:b#c#d a:b?c?d é:b a:é a:\b a:" a:` a:^
    a:| a://u@h@i/ a://h:1:2/ a:/// a:@ A+.-:b
""")
IRIS += ["a:\xa0", "a:\u200b", "a:\ud7ff", "a:\ue000", "a:\ufffe", "a:\uffff", "a:😀", "a:b\n"]
IRIS += ["a b:c", "a:b c", "a:" + "%41" * 2000]

TEXTS = ["", " ", "\n", "\x00", "null", "true", "\u2028", "a\u2028", "\ufeff", "a1\u2029"]
TEXTS += ["x" * 100_000, "9" * 100_000]

ARRAYS = [[], [None], [[]], [[1]], [True], ["a"], [1, "1"], [1, None], [{}], [1] * 1000]
ARRAYS += [[1.0, 2, 3], [1, 2, 3, 4], [10**400], ["1", "2", "3", "4"], ["2024-01-01", "x"]]
ARRAYS += [[0.1, True], [FLOAT_TOP + 1]]

NASTY = (None, *NUMBERS, *NUMERALS, *DATES, *TIMES, *IRIS, *TEXTS, *ARRAYS, {}, {"v": 1})

SPLICES = words("0 1 9 \u0663 - + . : / % # @ T Z t z e _ é \x00 😀 [ 24 60 +14:01 a")
SPLICES += [" ", "\n", "\u2028", "x" * 30]


NEAR_MISSES: Mapping[str, tuple[object, ...]] = {
    "String": (None, 1, True, ["a"], {}),
    "Bool": (None, 0, 1, "true", ""),
    "Int": (None, True, 1.5, "1", INT_MAX + 1, INT_MIN - 1, 1e300),
    "BigInt": (1, "", "-", "+1", "1.0", "1_000", " 1", "1\n", "\u0663", "9" * 1001),
    "Float": (None, True, "1.0", 10**400, FLOAT_TOP + 1),
    "Decimal": (1, 1.5, "", ".5", "1.", "1e3", "+1", "NaN", "9" * 21, "1." + "1" * 19, "1\n"),
    "Date": (20240101, *DATES[1:]),
    "DateTime": (0, *(each for each in TIMES if each not in GOOD_TIMES)),
    "Iri": (1, "", "a", "a:", "a b:c", "a:<b>", "a:%2", "1a:b", "a:b\n", "a:😀", "http://[::1]/"),
    "Blob": (1, "", "a", "a:", "a:é", "a:b c", "a:%2", "s3://b/k\n"),
    "Vector": (None, 1, "1", [None], [True], ["1"], [[1]], [10**400]),
    "Json": (None,),
    "LangText": (
        *(None, "a", ["a"], {}, {"en": 1}, {"en": None}, {"e": "a"}, {"": "a"}, {"EN": "a"}),
        *({"de-CH": "a"}, {"en_us": "a"}, {"en ": "a"}, {"en\n": "a"}, {"english": "a"}),
        *({"en": "a", "x": "b"}, {"en-": "a"}, {"\u017fr": "a"}, {"en": ["a"]}),
    ),
}


def mutate(value: object, rng: random.Random) -> object:
    """A near neighbour of a value: most are wrong by a hair."""
    if isinstance(value, str):
        at = rng.randint(0, len(value))
        return value[:at] + rng.choice(SPLICES) + value[at + rng.randint(0, 2) :]
    if isinstance(value, bool) or value is None:
        return rng.choice([0, 1, "true", None, "", not value])
    if isinstance(value, int | float):
        near = [value + 1, value - 1, -value, str(value), bool(value), [value]]
        if abs(value) < 1e7:
            near += [int(value), value / 3, value * 10**300]
        return rng.choice(near)
    if isinstance(value, dict) and value and rng.random() < 0.7:
        name = rng.choice([*value])
        rest = {each: value[each] for each in value if each != name}
        if rng.random() < 0.3:
            return rest
        return {**rest, str(mutate(name, rng)): mutate(value[name], rng)}
    if isinstance(value, list) and value and rng.random() < 0.7:
        at = rng.randrange(len(value))
        return [*value[:at], mutate(value[at], rng), *value[at + rng.randint(0, 1) :]]
    return rng.choice([[value], None, [], {}, {"0": value}])


def is_json(value: object) -> bool:
    """Leave out what arithmetic made of a value that JSON has no word for."""
    try:
        json.dumps(value, allow_nan=False).encode()
    except (ValueError, UnicodeEncodeError):
        return False
    return True


def valid_for(case: Case) -> tuple[object, ...]:
    """Values of the kind, as the field's form takes them; constraints may refuse some."""
    valid = VALID[case.kind]
    if case.field.many:
        return (*([each] for each in valid), list(valid[:2]), list(valid[:4]))
    return valid


def mutants(count: int, seed: int) -> Iterator[tuple[Case, object]]:
    """Pairs of a field and a mutated value."""
    rng = random.Random(seed)
    for _ in range(count):
        case = rng.choice(CASES)
        value = rng.choice(valid_for(case) if rng.random() < 0.9 else NASTY)
        for _ in range(rng.choice([0, 1, 1, 1, 2, 3])):
            value = mutate(value, rng)
        if is_json(value):
            yield case, value


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)

NEAR: Mapping[str, st.SearchStrategy[object]] = {
    "String": st.text(max_size=5),
    "Bool": st.booleans(),
    "Int": st.integers(-5, 5) | st.integers(INT_MIN - 2, INT_MAX + 2) | st.floats(-9, 9),
    "BigInt": st.from_regex(r"^-?\d+$") | st.integers().map(str),
    "Float": st.floats(allow_nan=False, allow_infinity=False) | st.integers(),
    "Decimal": st.from_regex(r"^-?\d{1,21}(\.\d{1,19})?$"),
    "Date": st.from_regex(DATE_PATTERN) | st.dates().map(str),
    "DateTime": st.from_regex(DATETIME_PATTERN),
    "Iri": st.from_regex(IRI_PATTERN) | st.text(max_size=5).map("a:".__add__),
    "Blob": st.from_regex(URI_PATTERN) | st.text(max_size=5).map("s3://".__add__),
    "Vector": st.lists(
        st.floats(allow_nan=False, allow_infinity=False) | st.integers(), max_size=4
    ),
    "Json": JSON_VALUES,
    "LangText": st.dictionaries(
        st.from_regex(TAG_PATTERN) | st.text(max_size=3), st.text(max_size=5), max_size=3
    ),
}


@st.composite
def fuzzed(draw: st.DrawFn) -> tuple[Case, object]:
    """A field, and a value that is of its kind, nearly so, or anything."""
    case = draw(st.sampled_from(CASES))
    near = NEAR[case.kind]
    if case.field.many:
        near = st.lists(near, max_size=4)
    return case, draw(near | JSON_VALUES)


# ---------------------------------------------------------------------------- equivalence


def test_the_oracle_asserts_every_format_that_the_table_uses():
    """A format that the validator does not know would be accepted without a look."""
    used = {str(kind.schema["format"]) for kind in KINDS.values() if "format" in kind.schema}
    assert used == {"date", "date-time", "iri", "uri"}
    assert used <= Draft202012Validator.FORMAT_CHECKER.checkers.keys()


def test_the_fields_cover_every_kind_and_form():
    """Nothing in the table is left out of the fuzzing."""
    assert {case.kind for case in CASES} == set(KINDS) == set(VALID) == set(NEAR)
    assert {case.kind for case in CASES if case.field.many} == {
        name for name in KINDS if KINDS[name].sort_key
    }


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_takes_its_values_and_refuses_near_misses(kind):
    """Agreement alone would not notice a table row that both sides get wrong."""
    case = Case(make_field(kind, "plain", {}))
    assert [value for value in VALID[kind] if not case.judge({"v": value})] == []
    assert [value for value in NEAR_MISSES[kind] if case.judge({"v": value})] == []


@pytest.mark.req("G10")
@pytest.mark.parametrize("kind", KINDS)
def test_schema_and_coercer_agree_on_known_traps(kind):
    """Every valid and every nasty value gets one verdict from both sides."""
    verdicts = [
        case.judge(arguments)
        for case in CASES
        if case.kind == kind
        for arguments in ({}, *({"v": value} for value in (*valid_for(case), *NASTY)))
    ]
    assert {True, False} == set(verdicts)


@pytest.mark.req("G10")
def test_schema_and_coercer_agree_on_mutants():
    """Values that are wrong by a hair get one verdict from both sides."""
    verdicts = [case.judge({"v": value}) for case, value in mutants(5000, seed=1)]
    assert verdicts.count(True) > 500
    assert verdicts.count(False) > 500


@pytest.mark.req("G10")
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(fuzzed())
def test_schema_and_coercer_agree_on_generated_values(pair):
    """Generated values of the kind, near it and far from it get one verdict from both sides."""
    case, value = pair
    case.judge({"v": value})


@pytest.mark.long(cases=40_000)
@pytest.mark.req("G10")
@pytest.mark.parametrize("seed", range(2, 2 + sized(4, nightly=1)))
def test_schema_and_coercer_agree_on_very_many_mutants(seed):
    """The long campaign: well over a hundred thousand values in all."""
    verdicts = [case.judge({"v": value}) for case, value in mutants(40_000, seed)]
    assert len(verdicts) > 30_000


@pytest.mark.long
@pytest.mark.req("G10")
@settings(
    max_examples=sized(20_000, nightly=1_000),
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(fuzzed())
def test_schema_and_coercer_agree_on_very_many_generated_values(pair):
    """The long campaign of generated values, which shrinks what it finds."""
    case, value = pair
    case.judge({"v": value})


def test_a_constraint_that_json_schema_cannot_say_is_told_in_words():
    """Dates and decimals are strings there: a range, and a choice with many spellings."""
    told = {
        "Date": {"min_value": "2024-01-01", "max_value": "2024-12-31"},
        "DateTime": {"min_value": "2024-01-01T00:00:00Z", "one_of": ("2024-01-02T00:00:00Z",)},
        "Decimal": {"max_value": "99.5", "one_of": ("1.5", "2")},
        "BigInt": {"min_value": "12", "one_of": ("77", "78")},
    }
    for kind, said in told.items():
        field = describe("Case", "v", ValueType(kind), Predicate(**said), stored=False)
        document = Case(field).document["properties"]["v"]
        assert not {"minimum", "maximum", "enum"} & document.keys()
        for limit in said.values():
            for each in limit if isinstance(limit, tuple) else (limit,):
                assert each in document["description"], kind


# ---------------------------------------------------------------------------- real calls


@node_type
class Place(Node):
    """Somewhere."""

    name: str = predicate(key=True, min_length=1, max_length=20)
    size: int | None = predicate(min_value=0)
    tags: list[str] = predicate(max_count=2, pattern="^[a-z]+$")


@shape
class Window(Shape):
    """From when to when."""

    start: date
    days: int = predicate(min_value=1, default=7)


TWO_AT_MOST = predicate(max_count=2)
AT_LEAST_ONE = predicate(min_count=1)


@capability("test.everything")
def everything(
    ctx: Context,
    text: str,
    window: Window,
    anything: dict,
    windows: list[Window] = TWO_AT_MOST,
    place: Place | None = None,
    count: int | None = None,
    ratio: float = 0.5,
    days: list[date] = AT_LEAST_ONE,
    vector: Vector(2) | None = None,
    near: Ref[Place] | None = None,
    things: list[object] = (),
) -> None:
    """Take one of everything."""


GOOD_CALL: Mapping[str, object] = {
    "text": "x",
    "window": {"start": "2024-01-01"},
    "days": ["2024-01-01"],
    "anything": {"a": [1]},
}

CALL_VALUES = [None, 0, 1, 1.0, True, "", "x", "2024-01-01", [], {}, [None], ["2024-01-01"]]
CALL_VALUES += [[1, 2], [1, 2, 3], ["a", "b", "c"]]
CALL_VALUES += [{"start": "2024-01-01"}, {"start": "2024-02-30"}, {"start": None}, {"days": 1}]
CALL_VALUES += [{"start": "2024-01-01", "days": days} for days in (0, 2, 2.0, None, "2")]
CALL_VALUES += [[{"start": "2024-01-01"}] * count for count in (1, 2, 3)]
CALL_VALUES += [{"start": "2024-01-01", "more": 1}, [{"start": "x"}], [{"name": "a"}]]
CALL_VALUES += [{"name": "a"}, {"name": ""}, {"name": "a", "size": -1}, {"name": "a", "x": 1}]
CALL_VALUES += [{"name": "a", "tags": tags} for tags in (None, ["A"], ["a", None], list("abc"))]


@pytest.mark.req("G10")
def test_a_call_accepts_exactly_what_its_schema_accepts():
    """Arguments of all forms, objects in objects included, get one verdict from both sides."""
    declared: CapabilityDescriptor = getattr(everything, MARK).descriptor
    with App(Place, Window, everything) as app:
        ctx = app.context()
        oracle = oracle_of(project_fields(declared.input_shape, ctx.registry))
        check = checks_of(ctx.registry).of_capability(ctx.registry.capability("test.everything"))

        def call_accepts(arguments: Mapping[str, object]) -> bool:
            try:
                check.prepare(ctx, arguments)
            except ValidationError:
                return False
            return True

        names = [field.name for field in declared.input_shape]
        attempts = [GOOD_CALL, {}, {**GOOD_CALL, "unknown": 1}]
        attempts += [{k: v for k, v in GOOD_CALL.items() if k != name} for name in GOOD_CALL]
        attempts += [
            {**GOOD_CALL, name: value}
            for name in names
            for value in CALL_VALUES
            # Whether a reference's target exists is beyond any schema.
            if not (name == "near" and isinstance(value, str))
        ]
        verdicts = []
        for arguments in attempts:
            verdicts.append(oracle.is_valid(arguments))
            assert verdicts[-1] == call_accepts(arguments), arguments
    assert verdicts[0]
    assert verdicts.count(True) > 50
    assert verdicts.count(False) > 50


# ---------------------------------------------------------------------------- round trips

OFFSETS = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)

NATIVE: Mapping[str, st.SearchStrategy[object]] = {
    "String": st.text(),
    "Bool": st.booleans(),
    "Int": st.integers(INT_MIN, INT_MAX),
    "BigInt": st.integers(-(10**40), 10**40).map(BigInt),
    "Float": FLOATS,
    "Decimal": st.decimals(
        min_value=-(10**20) + 1, max_value=10**20 - 1, places=18, allow_nan=False
    )
    | st.decimals(min_value=-1000, max_value=1000, places=2, allow_nan=False),
    "Date": st.dates(),
    "DateTime": st.datetimes(timezones=OFFSETS),
    "Iri": st.text("aZ09-._~é\ud7ff/?:@").map(lambda tail: Iri("urn:x:" + tail)),
    "Blob": st.text("aZ09-._~/?:@").map(lambda tail: Blob("urn:x:" + tail)),
    "Vector": st.lists(FLOATS, max_size=5).map(tuple),
    "Json": JSON_VALUES.filter(lambda value: value is not None).map(Json),
    "LangText": st.dictionaries(
        st.from_regex(TAG_PATTERN, fullmatch=True), st.text(), min_size=1, max_size=3
    ).map(LangText),
}


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_every_form_of_a_value_reads_back(name, data):
    """A native value survives its JSON form and its RDF form, type and offset included."""
    kind = KINDS[name]
    value = kind.coerce(data.draw(NATIVE[name]))
    plain = kind.plain(value) if kind.plain is not None else value
    over_json = kind.coerce(json.loads(json.dumps(plain)))
    over_rdf = kind.parse(kind.lexical(value))
    for back in (over_json, over_rdf):
        assert back == value
        assert type(back) is type(value)
        if isinstance(value, datetime):
            assert back.utcoffset() == value.utcoffset()


@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_lexical_form_is_what_the_store_gives_back(name, data):
    """The engine rewrites literals on entry; ours are written that way from the start."""
    kind = KINDS[name]
    store = Store()
    written = [
        kind.lexical(kind.coerce(value))
        for value in data.draw(st.lists(NATIVE[name], min_size=1, max_size=8))
    ]
    subject, predicate_iri = NamedNode("urn:s"), NamedNode("urn:p")
    if kind.tagged:
        texts = {each for text in written for each in kind.parse(text).items()}
        for tag, text in texts:
            store.add(Quad(subject, predicate_iri, Literal(text, language=tag)))
        found = [quad.object for quad in store.quads_for_pattern(subject, None, None)]
        assert {(each.language, each.value) for each in found} == texts
        assert {each.datatype.value for each in found} == {kind.datatype}
        return
    for text in written:
        store.add(Quad(subject, predicate_iri, Literal(text, datatype=NamedNode(kind.datatype))))
    read = {quad.object.value for quad in store.quads_for_pattern(subject, None, None)}
    assert read == set(written)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind.sort_key])
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_sort_keys_sort_like_values(name, data):
    """The index compares bytes; that must be the order of the values."""
    kind = KINDS[name]
    assert kind.sort_key is not None
    first = kind.coerce(data.draw(NATIVE[name]))
    second = kind.coerce(data.draw(NATIVE[name] | st.just(first)))
    keys = kind.sort_key(first), kind.sort_key(second)
    assert (first < second) == (keys[0] < keys[1])
    assert (first == second) == (keys[0] == keys[1])


EDGES: Mapping[str, tuple[object, ...]] = {
    "Int": (INT_MIN, -1, 0, 1, 255, 256, INT_MAX),
    "BigInt": tuple(map(BigInt, (-(10**999), -256, -255, -1, 0, 1, 255, 256, 65536, 10**999))),
    "Float": (-1.7976931348623157e308, -1.0, -5e-324, 0.0, 5e-324, 1.0, 1.7976931348623157e308),
    "Decimal": tuple(map(Decimal, ("-99999999999999999999", "-0.5", "0", "1e-18", "0.5", "1e19"))),
    "Date": (date.min, date(1969, 12, 31), date(1970, 1, 1), date.max),
    "String": ("", "\x00", "A", "a", "\x7f", "é", "\uffff", "😀"),
}


@pytest.mark.parametrize("name", EDGES)
def test_sort_keys_hold_at_the_edges(name):
    """The extremes of each kind, in order, have keys in order."""
    keys = [KINDS[name].sort_key(KINDS[name].coerce(value)) for value in EDGES[name]]
    assert keys == sorted(set(keys))


def test_zero_has_one_sort_key():
    """Negative zero equals zero, so an equality search must find it."""
    assert KINDS["Float"].sort_key(-0.0) == KINDS["Float"].sort_key(0.0)


def test_one_instant_and_one_zero_have_one_form():
    """Whatever the offset or the sign, so that what is equal is also the same literal."""
    moment, zero = KINDS["DateTime"], KINDS["Float"]
    texts = ["2026-03-01T12:00:00Z", "2026-03-01T14:00:00+02:00", "2026-03-01T00:30:00-11:30"]
    assert {moment.lexical(moment.coerce(each)) for each in texts} == {texts[0]}
    assert {zero.lexical(zero.coerce(each)) for each in (0, 0.0, -0.0)} == {"0"}
    assert KINDS["Vector"].lexical(KINDS["Vector"].coerce([-0.0, 1])) == "[0.0,1.0]"
    for edge in ("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"):
        assert moment.lexical(moment.coerce(edge)) == edge
