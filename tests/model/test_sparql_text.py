"""SPARQL text as tokens: exact, linear, limited; and SERVICE in none of its disguises."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.sparql_corpus import (
    HARMLESS_QUERIES,
    HARMLESS_UPDATES,
    QUERIES,
    REFUSED_QUERIES,
    REFUSED_UPDATES,
)

from trails.errors import QueryError
from trails.model.sparql.tokens import (
    MAX_CLAUSES,
    MAX_DEPTH,
    MAX_OPERATORS,
    MAX_PATTERNS,
    MAX_TEXT,
    MAX_TOKENS,
    _tokens,
    query_form,
    text_of,
    tokenize,
    update_form,
)

PREFIXES = {"": "https://x/schema#"}
STORED = sorted((Path(__file__).parents[2] / "examples/northline/queries").glob("*.rq"))


# --- reaching outside -----------------------------------------------------------------------


@pytest.mark.parametrize("text", REFUSED_QUERIES, ids=ascii)
def test_service_is_refused_however_it_is_spelled(text: str) -> None:
    """Glued, commented, hidden behind other readings of the text: it is refused."""
    with pytest.raises(QueryError):
        query_form(tokenize(text))


@pytest.mark.parametrize("text", REFUSED_QUERIES[:54], ids=ascii)
def test_the_refusal_names_service(text: str) -> None:
    """Where the word can be seen, the refusal says that it is the reason."""
    with pytest.raises(QueryError, match="SERVICE"):
        query_form(tokenize(text))


@pytest.mark.parametrize("text", REFUSED_UPDATES, ids=ascii)
def test_load_is_refused_however_it_is_spelled(text: str) -> None:
    """LOAD never runs, nor does SERVICE in an update."""
    with pytest.raises(QueryError):
        update_form(tokenize(text))


def test_the_disguises_are_real() -> None:
    """The engine takes most of the refused texts: SERVICE is what stops these."""
    reached = 0
    for text in REFUSED_QUERIES:
        try:
            list(ox.Store().query(text, prefixes=PREFIXES))
            reached += 1
        except (OSError, RuntimeError):  # it tried, and the port is one that no one may call
            reached += 1
        except (SyntaxError, TypeError):
            pass
    assert reached > 45


@pytest.mark.parametrize("text", HARMLESS_QUERIES, ids=ascii)
def test_a_query_may_mention_the_words(text: str) -> None:
    """In strings, comments, IRIs, names and variables the words are no keywords."""
    assert query_form(tokenize(text)) == "SELECT"
    ox.Store().query(text, prefixes=PREFIXES)


@pytest.mark.parametrize("text", HARMLESS_UPDATES, ids=ascii)
def test_an_update_may_mention_the_words(text: str) -> None:
    """Likewise in updates."""
    assert update_form(tokenize(text))
    ox.Store().update(text, prefixes=PREFIXES)


PARTS = [
    *("?s", "?p", ":o", "a", "true", "1", ".", ";", ",", "(", ")", "[", "]", "{", "}", "#", "\n"),
    *(
        "'",
        '"',
        "'''",
        '"""',
        "\\\\",
        "\\'",
        "\\q",
        "\\u0041",
        "<",
        ">",
        "<a:",
        "=",
        "&&",
        "|",
        "-",
    ),
    *(
        ":a.b",
        ".c",
        "_:d",
        "x:",
        ":",
        "@en",
        "^^",
        "FILTER",
        "BIND",
        "VALUES ?v",
        "AS ?x",
        "SELECT *",
    ),
    *(" ", " ", "é", "·", "%41", "$", "UNION", "OPTIONAL", "EXISTS", "/", "^", "!", "?"),
]
SOME = st.lists(st.sampled_from(PARTS), max_size=7).map("".join)
SPELLED = st.sampled_from(
    ["SERVICE", "service", " SERVICE ", "SERVICE\n", "SERVICE#\n", "SERVICEx"]
)
NAMED = st.sampled_from(["<http://127.0.0.1:9/>", ":x", "b:x", "?v", " <http://127.0.0.1:9/>"])


@settings(max_examples=1500)
@given(SOME, SPELLED, NAMED, SOME, SOME)
def test_what_passes_the_check_does_not_reach_outside(
    before: str, spelled: str, named: str, between: str, after: str
) -> None:
    """Whatever surrounds SERVICE: a text that passes makes the engine call no one."""
    text = (
        "PREFIX b: <http://127.0.0.1:9/> SELECT * { VALUES ?v { <http://127.0.0.1:9/> } "
        f"?s ?p {before}{spelled}{named}{between}{{ ?a ?b ?c }}{after}\n}}"
    )
    try:
        query_form(tokenize(text))
    except QueryError:
        return
    try:
        list(ox.Store().query(text, prefixes={"": "http://127.0.0.1:9/"}))
    except (SyntaxError, TypeError, RuntimeError):
        pass
    except OSError as error:
        pytest.fail(f"{text!r} reached out: {error}")


# --- what people ask ------------------------------------------------------------------------


@pytest.mark.parametrize("text", QUERIES, ids=range(len(QUERIES)))
def test_real_queries_pass(text: str) -> None:
    """A query of each kind passes the check, and the engine takes it too."""
    tokens = tokenize(text)
    assert text_of(tokens) == text
    assert query_form(tokens) in {"SELECT", "ASK", "CONSTRUCT", "DESCRIBE"}
    ox.Store().query(text, prefixes=PREFIXES)


@pytest.mark.parametrize("path", STORED, ids=lambda path: path.stem)
def test_the_stored_queries_of_the_example_pass(path: Path) -> None:
    """The example's own queries are within every limit."""
    assert query_form(tokenize(path.read_text(encoding="utf-8"))) == "SELECT"


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("?a<?b", "variable other variable"),
        ("(?a<?b&&?c>?d)", "open variable other variable other variable other variable close"),
        ("(?a<<http://x/>)", "open variable other iri close"),
        ("?s<p>?o", "variable iri variable"),
        ("(<p>|<q>)", "open iri other iri close"),
        ("1.5.", "number other"),
        ("1.e5 .5 5.", "number number number other"),
        ("true.a", "word other word"),
        ("a.b:c.d.", "name other"),
        ("_:a.b.", "blank other"),
        (":a\\'b'c'", "name string"),
        ("'a'@en.b", "string tag other word"),
        ("'''a'b''c'''''", "string string"),
        (":p?o", "name variable"),
        (":p?", "name other"),
        ("<a\\u0062'>'", None),
        ("<<?s ?p ?o>>", None),
        ("'a\\qb'", None),
        ("'a\nb'", None),
        ("'''a", None),
        ("a\\b", None),
        (":a%4", None),
        ("(?a<b#>)", None),
        ("(?a<b'>)", None),
        ("é", None),
        ("\ufeff", None),
        ("(]", None),
    ],
)
def test_text_is_cut_where_the_engine_cuts_it(text: str, kinds: str | None) -> None:
    """Each token has its kind; what SPARQL has no word for is refused."""
    if kinds is None:
        with pytest.raises(QueryError):
            tokenize(text)
    else:
        found = [token.kind for token in tokenize(text) if token.kind != "space"]
        assert " ".join(found) == kinds


PIECES = [*"{}()[]<>'\"\\#?$:.;,@^|&!=*+-/1aé \n", "'''", '"""', "\\'", "<a:b>", "?x", "x:y", "://"]


@settings(max_examples=500)
@given(text=st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_tokens_are_the_whole_text(text: str) -> None:
    """Any text is refused, or its tokens put together are the text again."""
    try:
        tokens = tokenize(text)
    except QueryError:
        return
    assert text_of(tokens) == text


# --- limits -----------------------------------------------------------------------------------


def group(inner: str) -> str:
    """A query of one group."""
    return f"SELECT * {{ {inner} }}"


@pytest.mark.parametrize(
    ("make", "limit", "unit"),
    [
        (lambda n: group("") + "#" + "x" * (n - len(group("")) - 1), MAX_TEXT, "64 KiB"),
        (lambda n: group(f"VALUES ?x {{ {'1 ' * (n - 8)} }}"), MAX_TOKENS, "20000"),
        (lambda n: "SELECT * " + "{" * n + "}" * n, MAX_DEPTH, "32 levels"),
        (lambda n: group("FILTER" + "(" * (n - 1) + "1" + ")" * (n - 1)), MAX_DEPTH, "32 levels"),
        (lambda n: group("?s ?p ?o . " * n), MAX_PATTERNS, "64"),
        (lambda n: group("?s ?p " + " , ".join(["?o"] * n)), MAX_PATTERNS, "64"),
        (lambda n: group("?s " + " ; ".join([":p ?o"] * n)), MAX_PATTERNS, "64"),
        (lambda n: group("?s " + "/".join([":p"] * n) + " ?o"), MAX_PATTERNS, "64"),
        (lambda n: group("{ ?s ?p ?o } " * n), MAX_PATTERNS, "64"),
        (lambda n: "ASK {" + "FILTER (1 = 1) " * n + "}", MAX_CLAUSES, "128"),
        (lambda n: group("OPTIONAL { ?s ?p ?o } " * (n - 1)), MAX_CLAUSES, "128"),
        (lambda n: "SELECT " + "(1 AS ?x) " * (n - 1) + "{}", MAX_CLAUSES, "128"),
        (lambda n: "DESCRIBE " + "<a:b> " * n, MAX_CLAUSES, "128"),
        (lambda n: group("FILTER (" + " || ".join(["1"] * (n)) + ")"), MAX_OPERATORS, "500"),
        (lambda n: group("FILTER (" + "!" * (n - 1) + "1)"), MAX_OPERATORS, "500"),
    ],
    ids=[
        *("text", "tokens", "groups", "parentheses", "patterns", "objects", "predicates", "path"),
        *("joined groups", "filters", "optionals", "projections", "described", "alternatives"),
        "negations",
    ],
)
def test_each_limit_is_where_it_is_said_to_be(make, limit: int, unit: str) -> None:
    """At the limit a text passes; beyond it the refusal names the limit and what to do."""
    assert query_form(tokenize(make(limit)))
    with pytest.raises(QueryError, match=rf"(?s)has \d+.*limit is {unit}.*; \w+") as caught:
        query_form(tokenize(make(limit + 2)))
    assert len(str(caught.value)) < 300


def test_data_is_not_limited_as_patterns_are() -> None:
    """Many statements of INSERT DATA, of a template or rows of VALUES are data."""
    many = ":a :b 1 . " * 500
    assert update_form(tokenize(f"INSERT DATA {{ {many} }}"))
    assert update_form(tokenize(f"DELETE {{ {many} }} INSERT {{ {many} }} WHERE {{ ?s ?p ?o }}"))
    assert query_form(tokenize(f"SELECT * {{ VALUES (?x ?y) {{ {'(1 2)' * 500} }} }}"))
    assert len(update_form(tokenize(" ; ".join(["INSERT DATA { :a :b 1 }"] * 500)))) == 500
    with pytest.raises(QueryError, match="patterns"):
        update_form(tokenize(f"DELETE WHERE {{ {many} }}"))


@pytest.mark.parametrize(
    "inner",
    [
        "?s :p (" + "1 " * 9000 + ")",
        "?s " + "/".join([":p"] * 500) + " ?o",
        "{ ?s ?p ?o } " * 3000,
    ],
    ids=["collection", "path", "groups"],
)
def test_what_crashes_or_stalls_the_engine_is_refused(inner: str) -> None:
    """Texts that killed or stalled the engine's process when they were tried."""
    with pytest.raises(QueryError, match="limit"):
        query_form(tokenize(group(inner)))


HOSTILE = [
    *map(chr, range(1, 128)),
    *("é", "·", "²", "a.", "a-", "a:", "a.b", "'a", '"a', "'''a", "<a", "<a>", "<a:", "?a<"),
    *("(?a<b", "\\u00", "\\'", ":a\\", ":a.", "_:a.", "1.", "1e", "1e+", "@a-", "a..", "<<"),
    *("''", '""', "<a://", "x:%4", "a::", "{}", "()", "(1 ", "#\n", "# a", "\\\\", ". "),
]


@pytest.mark.parametrize("start", ["", "SELECT * {", "ASK { FILTER(?a"])
def test_any_text_is_judged_in_linear_time(start: str) -> None:
    """64 KiB of anything takes some hundredths of a second; far less than a square would."""
    for unit in HOSTILE:
        text = (start + unit * MAX_TEXT)[: MAX_TEXT // len(unit.encode()) * len(unit)]
        text = text.encode()[:MAX_TEXT].decode(errors="ignore")
        began = time.process_time()
        with suppress(QueryError):
            query_form(tokenize(text))
        assert time.process_time() - began < 1.0, ascii(unit)


# --- what a text is -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "forms"),
    [
        ("INSERT DATA { :a :b 1 }", ["INSERT DATA"]),
        ("delete data{:a :b 1};", ["DELETE DATA"]),
        ("DELETE WHERE { ?s ?p ?o }", ["DELETE WHERE"]),
        ("INSERT {} WHERE {}", ["MODIFY"]),
        ("DELETE { ?s ?p 1 } WHERE { ?s ?p 1 }", ["MODIFY"]),
        ("DELETE {} INSERT {} WHERE {} ; DELETE WHERE { :a ?p ?o }", ["MODIFY", "DELETE WHERE"]),
        ("BASE <x:> INSERT DATA {} ; PREFIX b: <z> DELETE DATA {}", ["INSERT DATA", "DELETE DATA"]),
    ],
)
def test_an_update_is_a_row_of_operations(text: str, forms: list[str]) -> None:
    """Each operation is known by its form."""
    assert [each.form for each in update_form(tokenize(text))] == forms


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("CLEAR ALL", "CLEAR.*DELETE WHERE"),
        ("clear silent default", "CLEAR.*DELETE WHERE"),
        ("DROP GRAPH <x:g>", "DROP.*DELETE WHERE"),
        ("CREATE GRAPH <x:g>", "CREATE.*branch"),
        ("COPY DEFAULT TO <x:g>", "COPY.*branch"),
        ("MOVE DEFAULT TO <x:g>", "MOVE.*INSERT"),
        ("ADD DEFAULT TO <x:g>", "ADD.*INSERT"),
        ("WITH <x:g> DELETE { ?s ?p ?o } WHERE { ?s ?p ?o }", "WITH.*default graph"),
        ("DELETE { ?s ?p ?o } USING <x:g> WHERE { ?s ?p ?o }", "USING.*default graph"),
        ("INSERT DATA { GRAPH <x:g> { :a :b 1 } }", "GRAPH.*default graph"),
        ("INSERT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } }", "GRAPH.*default graph"),
        ("INSERT DATA { :a :b 1 } ; CLEAR ALL", "CLEAR"),
        ("SELECT * { ?s ?p ?o }", "INSERT or DELETE"),
        ("INSERTDATA { :a :b 1 }", "INSERT or DELETE"),
        ("INSERT DATA { :a :b 1 } INSERT DATA { :a :b 2 }", "';'"),
        ("INSERT { :a :b 1 }", "WHERE"),
        ("INSERT DATA", "'{'"),
        ("INSERT DATA { :a :b 1", "'{'"),
        ("; INSERT DATA {}", "INSERT or DELETE"),
        ("INSERT DATA {} ;; INSERT DATA {}", "INSERT or DELETE"),
        ("PREFIX a <b> INSERT DATA {}", "PREFIX"),
        ("", "is empty"),
        ("PREFIX a: <b:>", "is empty"),
        ("# INSERT DATA {}", "is empty"),
    ],
)
def test_other_updates_are_refused_with_what_to_do(text: str, says: str) -> None:
    """What manages or names graphs, and what is no update, is refused by name."""
    with pytest.raises(QueryError, match=says):
        update_form(tokenize(text))


@given(st.text(st.characters(codec="ascii"), max_size=60) | SOME)
def test_ascii_is_cut_alike_with_and_without_other_characters(text: str) -> None:
    """The short pattern for plain texts is the long one, as far as such texts go."""
    if text.isascii():
        short, long = _tokens(ascii_only=True), _tokens(ascii_only=False)
        for at in range(len(text)):
            found, same = short.match(text, at), long.match(text, at)
            assert (found and (found.lastgroup, found.span())) == (
                same and (same.lastgroup, same.span())
            )
