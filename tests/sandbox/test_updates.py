"""The effect of an update, computed without it, is what the engine itself would do."""

from __future__ import annotations

import re

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trails.errors import QueryError
from trails.model.iris import TRAILS
from trails.sandbox.updates import GENID, effect_of

# ruff: noqa: E501 - an update reads best on one line
PREFIXES = {"": "https://x/schema#", "xsd": "http://www.w3.org/2001/XMLSchema#"}
N = "https://x/n/"
DATA = f"""
<{N}a> a :Person ; :name "Ann" ; :age 50 ; :tag "x", "y" .
<{N}b> a :Person ; :name "Bob" ; :age 40 ; :boss <{N}a> ; :label "hallo"@de .
<{N}c> a :Person ; :name "Cy" ; :boss <{N}b> ; :note "braces }} {{ and # signs" .
<{N}d> a :Team ; :size 7 ; :lead <{N}a> ; :price 1.5 .
"""
VIEW = f"<{TRAILS}view>"


def filled() -> ox.Store:
    """Three people and a team, beside the view's own statement."""
    store = ox.Store()
    store.update(
        f'INSERT DATA {{ {DATA} GRAPH {VIEW} {{ {VIEW} <{TRAILS}position> "1 abc" }} }}',
        prefixes=PREFIXES,
    )
    return store


def lines(store: ox.Store) -> set[str]:
    """Every statement of a store, the view's own too."""
    return {f"{quad} ." for quad in store}


GENERATED = re.compile(
    r"_:[0-9a-f]+|<[^<>]*/\.well-known/genid/[0-9a-f-]{36}>|<?\"?(?:urn:uuid:)?"
    r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\"?>?"
)


def shape(statements: set[str]) -> list[str]:
    """Statements with what is new and random replaced: equal when they differ in nothing else."""
    return sorted(GENERATED.sub("~", each) for each in statements)


def both(text: str, store: ox.Store) -> tuple[list[str], list[str], list[str], list[str]]:
    """(removed, added) as computed, and as the engine does it on a copy."""
    before = lines(store)
    removed, added = effect_of(store, text, PREFIXES)
    assert lines(store) == before
    native = ox.Store()
    native.extend(store)
    native.update(text, prefixes=PREFIXES)
    after = lines(native)
    return (
        shape(set(removed.decode().split("\n")) - {""}),
        shape(set(added.decode().split("\n")) - {""}),
        shape(before - after),
        shape(after - before),
    )


FORMS = {
    "insert data": f'INSERT DATA {{ <{N}e> a :Person ; :name "Eve" }}',
    "insert what is there": f'INSERT DATA {{ <{N}a> :name "Ann" }}',
    "delete data": f'DELETE DATA {{ <{N}a> :name "Ann" ; :age 50 }}',
    "delete what is not there": f'DELETE DATA {{ <{N}a> :name "Zoe" }}',
    "modify": "DELETE { ?s :age ?a } INSERT { ?s :age ?b } WHERE { ?s :age ?a BIND (?a + 1 AS ?b) }",
    "insert only": "INSERT { ?s :seen true } WHERE { ?s a :Person }",
    "delete only": "DELETE { ?s :tag ?t } WHERE { ?s :tag ?t }",
    "delete where": "DELETE WHERE { ?s :name ?n }",
    "delete where of two patterns": "DELETE WHERE { ?s a :Person ; :boss ?b . ?b :name ?n }",
    "delete everything": "DELETE WHERE { ?s ?p ?o }",
    "overlap": "DELETE { ?s ?p ?o } INSERT { ?s ?p ?o } WHERE { ?s ?p ?o }",
    "partial overlap": "DELETE { ?s ?p ?o } INSERT { ?s :name ?o } WHERE { ?s ?p ?o }",
    "uuid": "INSERT { ?u a :Note ; :about ?s ; :id ?t } "
    "WHERE { ?s a :Person BIND (UUID() AS ?u) BIND (STRUUID() AS ?t) }",
    "bnode function": "INSERT { ?b :of ?s . ?s :has ?b } WHERE { ?s a :Person BIND (BNODE() AS ?b) }",
    "blank nodes in a template": "INSERT { _:n :of ?s ; :next [ :of ?s ] } WHERE { ?s a :Person }",
    "a blank node a solution": "INSERT { _:n :is 1 } WHERE { ?s a :Person ; :tag ?t }",
    "a collection": "INSERT { ?s :list (1 ?n) } WHERE { ?s :name ?n }",
    "blank nodes in data": "INSERT DATA { _:a :p _:b . _:b :p _:a }",
    "a blank node in where is a variable": "INSERT { ?s :has true } WHERE { ?s :boss _:b . _:b :age 50 }",
    "aggregate in a subquery": "INSERT { ?b :staff ?n } "
    "WHERE { { SELECT ?b (COUNT(?s) AS ?n) { ?s :boss ?b } GROUP BY ?b } }",
    "optional leaves a variable unbound": "INSERT { ?s :senior ?b ; :known true } "
    "WHERE { ?s a :Person OPTIONAL { ?s :boss ?b } }",
    "a variable that is never bound": "DELETE { ?s :age ?no } INSERT { ?s :p ?nope } WHERE { ?s a :Person }",
    "constants when there is a solution": f"INSERT {{ <{N}z> :p 1 }} WHERE {{ ?s a :Team }}",
    "constants when there is none": f"INSERT {{ <{N}z> :p 1 }} WHERE {{ ?s a :Nothing }}",
    "an empty where": f"INSERT {{ <{N}z> :p 1 }} WHERE {{}}",
    "empty templates": "DELETE {} INSERT {} WHERE { ?s ?p ?o }",
    "a literal as subject is left out": "INSERT { ?o :p 1 } WHERE { ?s :name|:boss ?o }",
    "a literal as predicate is left out": "INSERT { ?s ?o 1 } WHERE { ?s :name|:boss ?o }",
    "prefix": f"PREFIX p: <https://x/schema#> INSERT DATA {{ <{N}e> p:name 'Eve' }}",
    "base": "BASE <https://x/n/> DELETE { <a> :age ?x } INSERT { <a> :age 1 } WHERE { <a> :age ?x }",
    "a prefix that shadows": "PREFIX : <https://y/> INSERT { ?s :p 1 } WHERE { ?s ?p ?o }",
    "comments": "# INSERT { \nINSERT # } \n DATA { # { ' \n <https://x/n/e> :p 1 # }\n}",
    "braces in strings": "DELETE { ?s :note ?n } INSERT { ?s :note '} INSERT { # }' , '''}''{''' } "
    'WHERE { ?s :note ?n FILTER (?n = "braces } { and # signs") }',
    "two operations": f"INSERT DATA {{ <{N}e> a :Person }} ; INSERT {{ ?s :seen 1 }} WHERE {{ ?s a :Person }}",
    "undone by the next": f"INSERT DATA {{ <{N}e> :p 1 }} ; DELETE DATA {{ <{N}e> :p 1 }}",
    "done again by the next": "DELETE WHERE { ?s :name ?n } ; INSERT DATA { <https://x/n/a> :name 'Ann' }",
    "three operations and an end": "DELETE WHERE { ?s :tag ?t } ; INSERT { ?s :tag 'n' } WHERE "
    "{ ?s a :Person FILTER NOT EXISTS { ?s :tag ?t } } ; DELETE { ?s :boss ?b } WHERE { ?s :boss ?b } ;",
    "values": f"DELETE {{ ?s ?p ?o }} WHERE {{ VALUES (?s ?p) {{ (<{N}a> :age) (<{N}b> UNDEF) }} ?s ?p ?o }}",
    "paths": "INSERT { ?s :above ?t } WHERE { ?s :boss+ ?t }",
    "inverse and alternative paths": "INSERT { ?a :near ?b } WHERE { ?a (^:boss|:lead)/:boss? ?b }",
    "minus": "DELETE { ?s :name ?n } WHERE { ?s :name ?n MINUS { ?s :boss ?b } }",
    "union": "INSERT { ?s :u ?x } WHERE { { ?s :age ?x } UNION { ?s :size ?x } }",
    "language tags": "DELETE { ?s :label ?l } INSERT { ?s :label 'Hallo'@DE-at, 'x'@en } "
    "WHERE { ?s :label ?l FILTER LANGMATCHES(LANG(?l), 'de') }",
    "forms that are not canonical": f"INSERT DATA {{ <{N}e> :age '007'^^xsd:integer ; :price 1.50 ; "
    ":when '2026-01-01T00:00:00+00:00'^^xsd:dateTime ; :on '1'^^xsd:boolean ; :label 'x'@EN-us }",
    "a literal that is there in another form": f"INSERT DATA {{ <{N}a> :age '0050'^^xsd:integer }}",
    "deleting another form": f"DELETE DATA {{ <{N}d> :price 1.50 ; :size '007'^^xsd:integer }}",
    "forms from where": "INSERT { ?s :f ?x } WHERE { ?s a :Team BIND ('007'^^xsd:integer AS ?x) }",
    "a malformed literal": f"INSERT DATA {{ <{N}e> :age 'abc'^^xsd:integer , '1'^^<https://x/t> }}",
    "unicode escapes": "INSERT DATA { <https://x/n/\\u00e9> :name 'caf\\u00e9 \\U0001F469 \\n \\t \\\\ \\'' }",
    "any character": "INSERT { ?s :odd ?o } WHERE { ?s a :Team VALUES ?o "
    '{ "a\\nb\\rc\\t\\"\\\\ \u2028 \u00e9 \U0001f469 {}" } }',
    "computed": "DELETE { ?s :name ?n } INSERT { ?s :name ?m } WHERE { ?s :name ?n "
    "BIND (IF(STRLEN(?n) > 2, UCASE(?n), COALESCE(?no, 'short')) AS ?m) }",
    "negative numbers": "DELETE { ?s :age ?a } INSERT { ?s :age -5 , -1.5e3 } WHERE { ?s :age ?a }",
    "order of rows does not matter": "INSERT { ?s :first ?n } WHERE "
    "{ { SELECT ?s ?n { ?s :name ?n } ORDER BY DESC(?n) LIMIT 1 } }",
    "spelled as one likes": "prefix p:<https://x/schema#>insert{?s p:x 1}where{?s a p:Team}",
    "many rows": "INSERT { ?s :n ?c } WHERE { ?s :boss|:name|:age|a|:tag ?o . ?t ?q ?r . ?v ?w ?x "
    "BIND (CONCAT(STR(?o), STR(?r), STR(?x)) AS ?c) }",
}


@pytest.mark.parametrize("form", FORMS)
def test_the_effect_is_what_the_engine_does(form: str) -> None:
    """Computed and native effects are the same statements; the store is as it was."""
    removed, added, gone, come = both(FORMS[form], filled())
    assert (removed, added) == (gone, come)


def test_the_forms_do_something() -> None:
    """Most forms change something, so that comparing them means something."""
    busy = [form for form in FORMS if any(effect_of(filled(), FORMS[form], PREFIXES))]
    assert len(busy) > len(FORMS) - 12


def test_operations_may_have_prologues_of_their_own() -> None:
    """After a semicolon PREFIX and BASE may come again, as the standard says."""
    text = (
        "BASE <https://x/> PREFIX p: <p/> INSERT DATA { <a> p:b 1 } ; "
        "PREFIX p: <https://y/> INSERT DATA { <a> p:b 2 } ; INSERT DATA { <c> p:d 3 }"
    )
    removed, added = effect_of(ox.Store(), text, {})
    integer = "^^<http://www.w3.org/2001/XMLSchema#integer>"
    assert removed == b""
    assert added.decode().splitlines() == [
        f'<https://x/a> <https://x/p/b> "1"{integer} .',
        f'<https://x/a> <https://y/b> "2"{integer} .',
        f'<https://x/c> <https://y/d> "3"{integer} .',
    ]


def test_the_delta_is_sorted_and_canonical() -> None:
    """Lines come in byte order, in the form in which the library writes them."""
    removed, added = effect_of(filled(), FORMS["many rows"], PREFIXES)
    found = added.split(b"\n")[:-1]
    assert removed == b""
    assert found == sorted(found)
    parsed = ox.parse(added, format=ox.RdfFormat.N_QUADS)
    assert {f"{quad} ." for quad in parsed} == {line.decode() for line in found}


def test_blank_nodes_get_iris_that_are_never_used_again() -> None:
    """Each run makes other IRIs, under the base that was given; one node keeps one IRI."""
    text = "INSERT DATA { _:a :p _:b . _:b :p _:a }"
    one = effect_of(ox.Store(), text, PREFIXES, base="https://b.org/")[1].decode()
    two = effect_of(ox.Store(), text, PREFIXES, base="https://b.org/")[1].decode()
    first, second = (set(re.findall(r"<(https://b\.org[^>]*)>", each)) for each in (one, two))
    assert len(first) == len(second) == 2
    assert not first & second
    assert all(each.startswith("https://b.org" + GENID) for each in first)


@pytest.mark.parametrize(
    "text",
    [
        f"INSERT {{ ?s ?p ?o }} WHERE {{ GRAPH {VIEW} {{ ?s ?p ?o }} }}",
        "INSERT { ?s ?p ?o } WHERE { GRAPH ?g { ?s ?p ?o } }",
        f"DELETE WHERE {{ GRAPH {VIEW} {{ ?s ?p ?o }} }}",
        f"INSERT DATA {{ GRAPH {VIEW} {{ <a:a> <a:b> 1 }} }}",
        f"WITH {VIEW} DELETE {{ ?s ?p ?o }} WHERE {{ ?s ?p ?o }}",
        f"DELETE {{ ?s ?p ?o }} USING {VIEW} WHERE {{ ?s ?p ?o }}",
        f"DELETE {{ ?s ?p ?o }} USING NAMED {VIEW} WHERE {{ ?s ?p ?o }}",
        f"PREFIX v: <{TRAILS}> INSERT DATA {{ GRAPHv:view {{ <a:a> <a:b> 1 }} }}",
        f"PREFIX v: <{TRAILS}> DELETE WHERE {{ GRAPHv:view {{ ?s ?p ?o }} }}",
    ],
)
def test_named_graphs_can_not_be_named(text: str) -> None:
    """Whoever names a graph is refused, however it is spelled."""
    store = filled()
    before = lines(store)
    with pytest.raises(QueryError, match=r"named graphs|GRAPH"):
        effect_of(store, text, PREFIXES)
    assert lines(store) == before


def test_where_does_not_see_the_view() -> None:
    """Everything there is does not include the view's own statement."""
    everything = effect_of(filled(), "DELETE WHERE { ?s ?p ?o }", PREFIXES)[0]
    assert TRAILS.encode() not in everything


@pytest.mark.parametrize(
    "last",
    [
        "INSERT DATA { <a:a> unknown:b 1 }",
        "INSERT DATA { ?s :p 1 }",
        "DELETE DATA { _:b :p 1 }",
        "DELETE { _:b :p 1 } WHERE {}",
        "DELETE WHERE { _:b :p ?o }",
        "DELETE WHERE { ?s ?p ?o FILTER (1 = 1) }",
        "INSERT { ?s :p } WHERE { ?s ?p ?o }",
        "INSERT { ?s :p 1 } WHERE { ?s ?p }",
        "INSERT { ?s :p 1 } WHERE { ?s ?p ?o FILTER (<https://x/f>(?o)) }",
        "INSERT { ?s :p ?t } WHERE { ?s :boss ?o BIND (TRIPLE(?s, :p, ?o) AS ?t) }",
        "INSERT { ?s :p 1 } WHERE { ?s ?p ?o } LIMIT 1",
        "INSERT { ?s :p 1 } WHERE { ?s ?p ?o } } ; DELETE { ?s :p 1 } WHERE { { ?s ?p ?o }",
        "INSERT { ?s :p 1 } } WHERE { { ?s ?p ?o }",
    ],
)
def test_an_error_leaves_the_store_as_it_was(last: str) -> None:
    """Also when the first operations of a text were fine."""
    store = filled()
    before = lines(store)
    for text in (last, f"DELETE WHERE {{ ?s :name ?n }} ; INSERT DATA {{ :a :b 1 }} ; {last}"):
        with pytest.raises(QueryError):
            effect_of(store, text, PREFIXES)
        assert lines(store) == before


def test_a_store_on_disk_is_left_as_it_was(tmp_path) -> None:
    """What works in memory works on RocksDB, where the worker runs it."""
    store = ox.Store(tmp_path / "store")
    store.extend(filled())
    for form in ("three operations and an end", "undone by the next", "uuid"):
        removed, added, gone, come = both(FORMS[form], store)
        assert (removed, added) == (gone, come)


# --- any update ---------------------------------------------------------------------------

SUBJECTS = st.sampled_from([f"<{N}{name}>" for name in "abcde"])
VERBS = st.sampled_from([":name", ":age", ":boss", ":tag", "a"])
VALUES = st.sampled_from(
    ['"Ann"', '"x"', "50", "'050'^^xsd:integer", "1.50", '"h"@DE', f"<{N}a>", ":Person", "true"]
)
VARIABLES = st.sampled_from(["?s", "?p", "?o", "?x"])


def statements(subject, verb, value, *, least: int = 0):
    """A few statements, made of these parts."""
    one = st.tuples(subject, verb, value).map(" ".join)
    return st.lists(one, min_size=least, max_size=3).map(" . ".join)


DATA_BLOCK = statements(SUBJECTS, VERBS, VALUES, least=1)
TEMPLATE = statements(SUBJECTS | VARIABLES, VERBS | st.just("?p"), VALUES | VARIABLES)
PATTERN = statements(
    SUBJECTS | VARIABLES, VERBS | st.sampled_from(["?p", ":boss+", "^:boss"]), VALUES | VARIABLES
)
PLAIN = statements(SUBJECTS | VARIABLES, VERBS | st.just("?p"), VALUES | VARIABLES, least=1)
WHERE = st.one_of(
    PATTERN,
    st.tuples(PATTERN, PATTERN).map(lambda two: f"{{ {two[0]} }} UNION {{ {two[1]} }}"),
    st.tuples(PATTERN, PATTERN).map(lambda two: f"{{ {two[0]} }} OPTIONAL {{ {two[1]} }}"),
    st.tuples(PATTERN, PATTERN).map(lambda two: f"{{ {two[0]} }} MINUS {{ {two[1]} }}"),
    PATTERN.map(lambda one: f"{{ {one} }} BIND ('007'^^xsd:integer AS ?x2)"),
    VALUES.map(lambda value: f"?s ?p ?o FILTER (?o != {value})"),
)
OPERATION = st.one_of(
    DATA_BLOCK.map(lambda block: f"INSERT DATA {{ {block} }}"),
    DATA_BLOCK.map(lambda block: f"DELETE DATA {{ {block} }}"),
    PLAIN.map(lambda block: f"DELETE WHERE {{ {block} }}"),
    st.tuples(TEMPLATE, TEMPLATE, WHERE).map(
        lambda parts: "DELETE {{ {} }} INSERT {{ {} }} WHERE {{ {} }}".format(*parts)
    ),
)


@settings(max_examples=150)
@given(text=st.lists(OPERATION, min_size=1, max_size=4).map(" ;\n".join))
def test_any_update_has_the_effect_that_the_engine_gives_it(text: str) -> None:
    """Generated updates of one to four operations: computed and native effects agree."""
    removed, added, gone, come = both(text, filled())
    assert (removed, added) == (gone, come)
