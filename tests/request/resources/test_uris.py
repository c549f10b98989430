"""The grammar of resource URIs: what is read, what is refused, and why."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from trails.errors import NotFoundError, ValidationError
from trails.model.iris import encode_id, normal_id
from trails.model.uris import (
    MAX_URI_BYTES,
    Clause,
    DocumentAddress,
    InstanceAddress,
    ListAddress,
    QueryAddress,
    ReadPoint,
    format_address,
    parse_address,
)

NODES = "https://data.example.org/northline/"


def parse(uri: str):
    """Parse with the base of a graph whose instances have https IRIs."""
    return parse_address(uri, NODES)


@pytest.mark.parametrize(
    ("uri", "address"),
    [
        ("trails://schema", DocumentAddress("schema")),
        ("trails://stats", DocumentAddress("stats")),
        ("trails://doctor", DocumentAddress("doctor")),
        ("trails://branches", DocumentAddress("branches")),
        ("trails://prov/latest", DocumentAddress("prov/latest")),
        ("trails://kg/types", DocumentAddress("kg/types")),
        ("trails://queries/open_hazards", QueryAddress("open_hazards")),
        ("trails://kg/Person", ListAddress("Person")),
        ("trails://kg/Person?limit=5", ListAddress("Person", limit=5)),
        (
            "trails://kg/Person?where=name=Ada%20L&limit=1000&offset=0&cursor=abc",
            ListAddress(
                "Person", where=Clause("name", "Ada L"), limit=1000, offset=0, cursor="abc"
            ),
        ),
        ("trails://kg/Person?where=name=a=b", ListAddress("Person", where=Clause("name", "a=b"))),
        ("trails://kg/Person?where=name=", ListAddress("Person", where=Clause("name", ""))),
        ("trails://kg/Person/ada", InstanceAddress("Person", "ada")),
        ("trails://kg/Person/a%2Fb%20%22", InstanceAddress("Person", 'a/b "')),
        ("trails://branch/main/schema", DocumentAddress("schema", ReadPoint("main"))),
        (
            "trails://branch/agents%2Fada/kg/Person/x",
            InstanceAddress("Person", "x", ReadPoint("agents/ada")),
        ),
        ("trails://branch/b/kg/types", DocumentAddress("kg/types", ReadPoint("b"))),
        (
            "trails://at/0123456789abcdef/stats",
            DocumentAddress("stats", ReadPoint(None, "0123456789abcdef")),
        ),
        (
            "trails://at/0123/kg/Person?limit=2",
            ListAddress("Person", ReadPoint(None, "0123"), limit=2),
        ),
    ],
)
def test_every_form_is_read_and_written_back(uri, address):
    """A canonical URI and its address stand for each other."""
    assert parse(uri) == address
    assert format_address(address) == uri


@pytest.mark.parametrize(
    ("uri", "canonical"),
    [
        (NODES + "Person/ada", "trails://kg/Person/ada"),
        (NODES + "Person/a%2fb", "trails://kg/Person/a%2Fb"),
        ("trails://kg/Person/Zoë", "trails://kg/Person/Zo%C3%AB"),
        ("trails://kg/Person/Zoe\u0308", "trails://kg/Person/Zo%C3%AB"),
        ("trails://kg/Person/%61da", "trails://kg/Person/ada"),
        ("trails://kg/P?where=status%3Dproposed", "trails://kg/P?where=status=proposed"),
        ("trails://kg/P?limit=05&where=a=1", "trails://kg/P?where=a=1&limit=5"),
        ("trails://kg/P?where=a=1+1", "trails://kg/P?where=a=1%2B1"),
    ],
)
def test_other_spellings_have_one_canonical_form(uri, canonical):
    """What names the same thing is written in one way."""
    assert format_address(parse(uri)) == canonical
    assert parse(canonical) == parse(uri)


REFUSED = [
    ("", "empty"),
    ("trails://kg/Person#top", "fragment"),
    ("trails://me@kg/Person", "a user or a port"),
    ("trails://kg:80/Person", "a user or a port"),
    ("trails://kg//Person", "empty part"),
    ("trails:///kg/Person", "empty part"),
    ("trails://kg/Person/", "empty part"),
    ("trails://kg/Person/..", "a path step"),
    ("trails://kg/Person/%2E%2e", "a path step"),
    ("trails://kg/Person/a/b", "%2F"),
    ("trails://kg/Person/%", "two hexadecimal digits"),
    ("trails://kg/Person/%4", "two hexadecimal digits"),
    ("trails://kg/Person/%+1", "two hexadecimal digits"),
    ("trails://kg/Person/%٣٣", "two hexadecimal digits"),
    ("trails://kg/Person/%FF", "not UTF-8"),
    ("trails://kg/Person/%ED%A0%80", "not UTF-8"),
    ("trails://kg/Person/%C0%AF", "not UTF-8"),
    ("trails://kg/Person/a\nb", "control character"),
    ("trails://kg/Person/a\x00b", "control character"),
    ("trails://kg/Person/a\ud800b", "control character"),
    ("trails://kg/Person/a b", "as %20: 'trails://kg/Person/a%20b'"),
    ("trails://kg/Person/<x>", "as %3C"),
    ("trails://kg/" + "x" * MAX_URI_BYTES, "longer than 8192"),
    ("trails://kg/" + "é" * (MAX_URI_BYTES // 2), "longer than 8192"),
    ("trails://schema?limit=5", "only lists"),
    ("trails://kg/types?limit=5", "only lists"),
    ("trails://kg/Person/ada?limit=5", "only lists"),
    (NODES + "Person/ada?limit=5", "no '?'"),
    (NODES + "Person", "{Type}/{id}"),
    (NODES + "Person/a/b", "{Type}/{id}"),
    (NODES + "Person/%zz", "two hexadecimal digits"),
    ("trails://branch/b", "schema, stats or kg"),
    ("trails://branch/b/doctor", "schema, stats or kg"),
    ("trails://at/0123/branches", "schema, stats or kg"),
    ("trails://branch/agents/ada/kg/Person", "trails://branch/agents%2Fada/"),
    ("trails://kg/P?", "no parameter"),
    ("trails://kg/P?limit=5&", "no parameter"),
    ("trails://kg/P?order=name", "where, limit, offset, cursor"),
    ("trails://kg/P?Limit=5", "where, limit, offset, cursor"),
    ("trails://kg/P?%6Cimit=5", "where, limit, offset, cursor"),
    ("trails://kg/P?limit=5&limit=5", "given twice"),
    ("trails://kg/P?where=a=1&where=b=2", "given twice"),
    ("trails://kg/P?where=a=1&b=2", "One filter"),
    ("trails://kg/P?limit", "no value"),
    ("trails://kg/P?cursor=", "no value"),
    ("trails://kg/P?limit=0", "at least 1"),
    ("trails://kg/P?limit=1001", "at most 1000"),
    ("trails://kg/P?limit=" + "9" * 21, "whole number"),
    ("trails://kg/P?limit=-1", "whole number"),
    ("trails://kg/P?limit=1_0", "whole number"),
    ("trails://kg/P?limit=%205", "whole number"),
    ("trails://kg/P?limit=٣", "whole number"),
    ("trails://kg/P?offset=1.5", "whole number"),
    ("trails://kg/P?offset=" + str(2**48 + 1), "at most"),
    ("trails://kg/P?where=status", "field=value"),
    ("trails://kg/P?where==x", "can't be a field"),
    ("trails://kg/P?where=a%20b=x", "can't be a field"),
    ("trails://kg/P?where=a!=1", "one '='"),
    ("trails://kg/P?where=a>1", "one '='"),
    ("trails://kg/P?where=a%3E=1", "one '='"),
    ("trails://kg/P?where=a<=1", "one '='"),
    ("trails://kg/P?where=a==1", "one '='"),
    ("trails://kg/P?where=a~=1", "one '='"),
    ("trails://kg/P?where=owner.email=x", "path or a lookup"),
    ("trails://kg/P?where=priority__gt=1", "path or a lookup"),
    ("trails://kg/P?where=a=1 AND b=2", "exactly one condition"),
    ("trails://kg/P?where=a=1%20and%20b%20=%202", "exactly one condition"),
    ("trails://kg/P?where=a=1%20OR%20b%3E2", "exactly one condition"),
    ("trails://kg/P?where=a=1%20%26%26%20b=2", "exactly one condition"),
    ('trails://kg/P?where=a="x"', "a quotation mark"),
    ("trails://kg/P?where=a=%22", "a quotation mark"),
    ("trails://kg/P?where=a=%5C", "a backslash"),
    ("trails://kg/P?where=a=x%0Ay", "a newline"),
    ("trails://kg/P?where=a=x%0dy", "a newline"),
]


@pytest.mark.req("T12")
@pytest.mark.parametrize(("uri", "words"), REFUSED, ids=range(len(REFUSED)))
def test_what_is_beyond_the_grammar_is_refused_with_what_would_be_right(uri, words):
    """Every refusal is a validation error whose message says what is wrong."""
    with pytest.raises(ValidationError) as refused:
        parse(uri)
    assert words in refused.value.message
    assert len(refused.value.message) < 1000


@pytest.mark.parametrize(
    "uri",
    [
        "trails://nothing",
        "trails://KG/Person",
        "trails://kg",
        "trails://prov",
        "trails://prov/earliest",
        "trails://queries",
        "trails://northline/main/Person/ada",
        "TRAILS://kg/Person",
        "https://data.example.org/other/Person/ada",
        "file:///etc/passwd",
        "kg/Person",
        "%",
    ],
)
def test_what_names_nothing_is_not_found(uri):
    """A text that Trails has no word for is not found, and the message lists what there is."""
    with pytest.raises(NotFoundError, match="kg/…"):
        parse(uri)


def test_a_value_may_speak_of_and_and_or():
    """Only what reads like a second condition is refused."""
    parsed = parse("trails://kg/P?where=a=1=salt%20and%20pepper%20or%20not")
    assert parsed.where == Clause("a", "1=salt and pepper or not")


PIECES = st.sampled_from(
    ["trails://", "kg", "/", "Person", "?", "where=", "limit=", "&", "=", "%", "%2F", "%C3%AB",
     "%22", "branch", "at", "schema", "types", NODES, "5", "é", " ", "#", ":", "@", "\n", "\ud800",
     "cursor=", "queries", "."]
)  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=40),
    st.lists(PIECES | st.text(max_size=3), max_size=12).map("".join),
    st.lists(PIECES | st.text(max_size=3), max_size=8).map(
        lambda some: "trails://kg/P" + "".join(some)
    ),
)


@given(TEXTS)
@settings(max_examples=1500, deadline=None)
@example("trails://kg/Person/a%EF%BF%BF")
def test_any_text_is_an_address_or_one_of_two_errors(uri):
    """Whatever is thrown at the parser, it answers; what it accepts has one canonical form."""
    try:
        address = parse(uri)
    except (ValidationError, NotFoundError):
        return
    canonical = format_address(address)
    assert parse(canonical) == address
    assert format_address(parse(canonical)) == canonical


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).filter(
    lambda text: text not in {".", ".."}
)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters='"\\\n\r'), max_size=20).filter(
    lambda text: not text.startswith("=") and "and" not in text.lower() and "or" not in text.lower()
)


@given(NAMES, NAMES, NAMES, VALUES)
@settings(max_examples=300, deadline=None)
def test_every_name_and_value_survives(type_name, identifier, branch, value):
    """What is written into a URI is read from it unchanged, whatever characters it has."""
    identifier = normal_id(identifier)
    place = ReadPoint(branch)
    for address in (
        InstanceAddress(type_name, identifier, place),
        ListAddress(type_name if type_name != "types" else "Type", place, Clause("field", value)),
        QueryAddress(identifier),
    ):
        assert parse(format_address(address)) == address
    own = f"{NODES}{encode_id(type_name)}/{encode_id(identifier)}"
    assert parse(own) == InstanceAddress(type_name, identifier)
