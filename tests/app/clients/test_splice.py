"""Property: a text is changed in one spot, and says what it said and the entry."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import sized

from trails.app.clients.jsonc import JsoncError, drop_entry, parse_jsonc, put_entry, read_entry

ENTRY = {"command": "/opt/trails", "args": ["serve", "--graph", "Ünï"]}
OTHER = {"url": "http://127.0.0.1:8321/graphs/main/mcp"}
PATH = ("mcpServers",)
NAME = "acme"

KEYS = st.one_of(st.sampled_from(["a", "b", "url", "//", "/*", "}", '"', "\\", ","]), st.text())
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(['"', "\\", "// no comment", "/* none */", "},{", ""]),
    st.text(),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=8,
)
SERVERS = st.dictionaries(KEYS.filter(lambda key: key != NAME), VALUES, max_size=4)
DOCUMENTS = st.tuples(
    st.dictionaries(KEYS.filter(lambda key: key != PATH[0]), VALUES, max_size=3),
    st.one_of(st.none(), SERVERS),
    st.dictionaries(KEYS.filter(lambda key: key != PATH[0]), VALUES, max_size=3),
).map(lambda parts: {**parts[0], **({} if parts[1] is None else {PATH[0]: parts[1]}), **parts[2]})
COMMENTS = st.text(alphabet=st.characters(exclude_characters="\r\n*", codec="utf-8"), max_size=6)


@st.composite
def blanks(draw):
    """What may stand between two tokens."""
    parts = draw(
        st.lists(
            st.one_of(
                st.sampled_from([" ", "  ", "\t", "\n", "\r\n"]),
                COMMENTS.map(lambda text: f"/*{text}*/"),
                COMMENTS.map(lambda text: f"/*{text}\n*/"),
                COMMENTS.map(lambda text: f"//{text}\n"),
            ),
            max_size=2,
        )
    )
    return "".join(parts)


@st.composite
def texts(draw, value):
    """A value as somebody might have written it, with comments and commas at ends."""
    gap = draw(blanks())
    if not isinstance(value, dict | list):
        return gap + json.dumps(value, ensure_ascii=draw(st.booleans())) + draw(blanks())
    if isinstance(value, list):
        parts = [draw(texts(each)) for each in value]
    else:
        parts = [
            f"{draw(blanks())}{json.dumps(key)}{draw(blanks())}:{draw(texts(each))}"
            for key, each in value.items()
        ]
    end = "," if parts and draw(st.booleans()) else ""
    marks = "{}" if isinstance(value, dict) else "[]"
    return f"{gap}{marks[0]}{','.join(parts)}{end}{draw(blanks())}{marks[1]}{draw(blanks())}"


WRITTEN = DOCUMENTS.flatmap(lambda value: st.tuples(st.just(value), texts(value)))


def parse(text):
    """What a text says."""
    found = parse_jsonc(text)
    return None if found is None else found.value


def place(text):
    """Where the entry stands."""
    return parse_jsonc(text).find(PATH[0])[0].value.find(NAME)[0].value


def pieces(old, new):
    """Where two texts differ: the part of the one, and of the other."""
    start = 0
    while start < len(old) and old[start] == new[start]:
        start += 1
    rest = 0
    while rest < len(old) - start and old[-1 - rest] == new[-1 - rest]:
        rest += 1
    return old[start : len(old) - rest], new[start : len(new) - rest]


@pytest.mark.req("G20")
@settings(max_examples=40)
@given(WRITTEN)
def test_an_entry_is_added_and_nothing_else_changes(written):
    """The text says the old and the entry; all that was put in is a comma and the entry."""
    value, text = written
    assert parse(text) == value
    new = put_entry(text, PATH, NAME, ENTRY)
    assert parse(new) == {**value, PATH[0]: {**value.get(PATH[0], {}), NAME: ENTRY}}
    kept, put = pieces(text, new)
    assert not kept or put.startswith(f",{kept}")  # a comment between the comma and the entry
    assert read_entry(new, PATH, NAME) == ENTRY


@pytest.mark.req("G20")
@settings(max_examples=40)
@given(WRITTEN)
def test_an_entry_is_taken_out_and_nothing_else_changes(written):
    """Without its entry the text says what it said; but for blanks and commas it is the same."""
    value, text = written
    back = drop_entry(put_entry(text, PATH, NAME, ENTRY), PATH, NAME)
    assert parse(back) == {PATH[0]: {}, **value}
    if PATH[0] in value:
        assert "".join(back.replace(",", "").split()) == "".join(text.replace(",", "").split())


@pytest.mark.req("G20")
@settings(max_examples=40)
@given(WRITTEN)
def test_an_entry_is_replaced_and_nothing_else_changes(written):
    """Only the value of the entry is different afterwards, byte for byte."""
    _, text = written
    old = put_entry(text, PATH, NAME, ENTRY)
    new = put_entry(old, PATH, NAME, OTHER)
    before, after = place(old), place(new)
    assert new[: after.start] == old[: before.start]
    assert new[after.end :] == old[before.end :]
    assert json.loads(new[after.start : after.end]) == OTHER


@pytest.mark.long
@settings(max_examples=sized(500, nightly=200))
@given(WRITTEN)
def test_entries_come_and_go_in_thousands_of_texts(written):
    """Put in, replaced and taken out, an entry leaves every text saying what it said."""
    value, text = written
    new = put_entry(put_entry(text, PATH, NAME, ENTRY), PATH, NAME, OTHER)
    assert parse(new) == {**value, PATH[0]: {**value.get(PATH[0], {}), NAME: OTHER}}
    assert parse(drop_entry(new, PATH, NAME)) == {PATH[0]: {}, **value}


@given(st.text())
def test_any_text_is_read_or_refused(text):
    """No text makes the reader fail in another way, and what JSON reads it reads alike."""
    try:
        found = parse(text)
    except JsoncError:
        with pytest.raises(ValueError):  # noqa: PT011 - any text that is not JSON
            json.loads(text, parse_constant=lambda name: int(name + "!"))
    else:
        if found is not None and "/" not in text and ",}" not in text and ",]" not in text:
            assert json.loads(text.removeprefix("\ufeff")) == found


KEPT = """\
// Zed settings
{
  "theme": "One Dark", // dark
  "context_servers": {
    /* the one */
    "github": { "command": "gh-mcp" } // keep this
    // and that
  },
  "vim_mode": true,
}
"""


def test_a_comment_stays_with_its_line():
    """A comment beside the last server stays beside it, and the comma goes before it."""
    assert put_entry(KEPT, ("context_servers",), NAME, {"url": "http://x"}) == KEPT.replace(
        '"gh-mcp" } // keep this',
        '"gh-mcp" }, // keep this\n    "acme": {\n      "url": "http://x"\n    }',
    )


@pytest.mark.parametrize(
    "text",
    [
        KEPT,
        '{"context_servers": {"a": 1}}',
        '{"context_servers": {"a": 1, "b": 2,}}',
        '{\r\n\t"context_servers": {\r\n\t\t"a": {}\r\n\t}\r\n}\r\n',
    ],
)
def test_what_was_put_in_comes_out_without_a_trace(text):
    """Where servers stood before, putting one in and taking it out gives the same bytes."""
    new = put_entry(text, ("context_servers",), NAME, ENTRY)
    assert new != text
    assert drop_entry(new, ("context_servers",), NAME) == text.replace(",}}", "}}")


@pytest.mark.parametrize(
    ("text", "without"),
    [
        ('{"mcpServers": {"acme": 1, "b": 2}}', '{"mcpServers": {"b": 2}}'),
        ('{"mcpServers": {"a": 1, "acme": 2, "b": 3}}', '{"mcpServers": {"a": 1, "b": 3}}'),
        ('{"mcpServers": {\n  "acme": 1,\n  "b": 2\n}}', '{"mcpServers": {\n  "b": 2\n}}'),
        ('{"mcpServers": {"a": 1, "acme": 2,}}', '{"mcpServers": {"a": 1,}}'),
        ('{"mcpServers": {"acme": 1}}', '{"mcpServers": {}}'),
    ],
)
def test_an_entry_goes_with_one_comma(text, without):
    """Wherever it stands, what is left is written as if it had never been there."""
    assert drop_entry(text, PATH, NAME).replace(", }", ",}") == without


def test_an_object_that_spans_lines_gets_no_line_more():
    """An empty object keeps its own closing line."""
    assert put_entry('{"mcpServers": {\n}}', PATH, NAME, {}) == (
        '{"mcpServers": {\n  "acme": {}\n}}'
    )


def test_the_manner_of_the_text_is_kept():
    """Tabs, CRLF and a byte order mark are taken over into what is put in."""
    text = '\ufeff{\r\n\t"mcpServers": {}\r\n}\r\n'
    assert put_entry(text, PATH, NAME, {"url": "u"}) == (
        '\ufeff{\r\n\t"mcpServers": {\r\n\t\t"acme": {\r\n\t\t\t"url": "u"\r\n\t\t}\r\n\t}\r\n}\r\n'
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"mcpServers": {}, "mcpServers": {}}', "'mcpServers' occurs twice"),
        ('{"mcpServers": {"acme": 1, "acme": 2}}', "'acme' occurs twice"),
        ('{"mcpServers": []}', "'mcpServers' is not an object"),
        ("[1]", "the file is not an object"),
        ('{"a": 1', "line 1: expected a comma or }, found the end"),
        ('{\n"a" 1}', "line 2: expected a colon, found '1}'"),
        ('{"a": 01}', "line 1: expected a comma or }, found '1}'"),
        ("{} {}", "line 1: expected the end of the file, found '{}'"),
        ("[" * 10_000, "line 1: expected at most 100 levels, found"),
        ('{"a": "\n"}', "line 1: expected a text in double quotes, found"),
    ],
)
def test_what_is_not_clear_is_refused(text, reason):
    """A text that is wrong, or in which a key stands twice, is not changed."""
    with pytest.raises(JsoncError) as caught:
        read_entry(text, PATH, NAME)
    assert reason in str(caught.value)
