"""Stored queries: which of them a restricted actor may run, and that their answers are the twin's.

Queries are put together from pieces of the grammar. Each is run where something is hidden and
in the twin where it never was: one that is not masked must give the same answer in both.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.campaigns import sized
from tests.journeys.access.hidden_parts import (
    TYPES,
    Hidden,
    Restricted,
    World,
    hidden_sets,
    row_lists,
    twins,
)
from tests.journeys.access.test_sight_reads import CASES, fixed_rows

from trails.engine.session.context import GraphContext
from trails.engine.sparql.queries import ask_checkout
from trails.engine.sparql.reach import reach_of, touches_hidden
from trails.errors import ForbiddenError, NotFoundError
from trails.model.capabilities import StoredQuery
from trails.model.visibility import FULL
from trails.registry.registry import with_queries
from trails.request.builtins.queries import query_by_name

ANYTHING = {
    "variable predicate": "SELECT * WHERE { ?s ?p ?o }",
    "variable class": "SELECT * WHERE { ?s a ?t }",
    "negated path": "SELECT * WHERE { ?s !:name ?o }",
    "path of no length": "SELECT * WHERE { ?s :boss* ?o }",
    "optional step": "SELECT * WHERE { ?s :boss? ?o }",
    "path to a class": "SELECT * WHERE { ?s :boss/a ?t }",
    "one of several, a class": "SELECT * WHERE { ?s (a|:name) ?t }",
    "described": "DESCRIBE ?s WHERE { ?s :room 'x' }",
    "described by name": "DESCRIBE <http://x/>",
    "named graph": "SELECT * WHERE { GRAPH ?g { ?s :room ?o } }",
    "other graph": "SELECT * FROM <http://x/> WHERE { ?s :room ?o }",
    "base": "BASE <http://x/> SELECT * WHERE { ?s <room> ?o }",
    "relative": "SELECT * WHERE { ?s <room> ?o }",
    "parameter as predicate": "SELECT * WHERE { ?s $p ?o }",
    "unknown prefix": "SELECT * WHERE { ?s x:room ?o }",
    "escaped": "SELECT * WHERE { ?s <http://x/\\u0061> ?o }",
    "list": "SELECT * WHERE { ?s :tags (1 2) }",
    "in a blank node": "SELECT * WHERE { ?s :boss [ ?p 1 ] }",
    "in EXISTS": "SELECT * WHERE { ?s :room ?o FILTER (EXISTS { ?s ?p 1 }) }",
    "in NOT EXISTS": "SELECT * WHERE { ?s :room ?o FILTER NOT EXISTS { ?s ?p 1 } }",
    "in MINUS": "SELECT * WHERE { ?s :room ?o MINUS { ?s ?p 1 } }",
    "in UNION": "SELECT * WHERE { { ?s :room ?o } UNION { ?s ?p ?o } }",
    "in a subquery": "SELECT * WHERE { { SELECT ?s { ?s ?p ?o } } }",
    "in the head": "SELECT (EXISTS { ?s ?p ?o } AS ?e) WHERE { ?s :room ?o }",
    "in HAVING": "SELECT ?s WHERE { ?s :room ?o } GROUP BY ?s HAVING (EXISTS { ?s ?p 1 })",
    "in BIND": "SELECT * WHERE { ?s :room ?o BIND (EXISTS { ?s ?p 1 } AS ?e) }",
    "update of anything": "DELETE { ?s ?p ?o } WHERE { ?s :room 'x' . ?s ?p ?o }",
    "update with": "WITH <http://x/> DELETE { ?s :room ?o } WHERE { ?s :room ?o }",
    "clear": "CLEAR ALL",
    "service": "SELECT * WHERE { SERVICE <http://x/> { ?s :room ?o } }",
    "nonsense": "SELECT WHERE WHERE {",
}

REACHES = {
    "one field": ("SELECT * WHERE { ?s :room ?o }", {("Office", "room")}, set()),
    "a class": ("ASK { ?s a :Office }", set(), {"Office"}),
    "a family": ("ASK { ?s a :Employee }", set(), {"Employee", "Chief"}),
    "of one class": (
        "SELECT ?n WHERE { ?s a :Chief ; :name ?n }",
        {("Chief", "name")},
        {"Chief"},
    ),
    "over a reference": (
        "SELECT ?b WHERE { ?n :chief ?c . ?c :name ?b }",
        {("Note", "chief"), ("Chief", "name")},
        set(),
    ),
    "over a path": (
        "SELECT ?b WHERE { ?n :chief/:name ?b }",
        {("Note", "chief"), ("Chief", "name")},
        set(),
    ),
    "one of several": (
        "SELECT * WHERE { ?s (:room|:text) ?o }",
        {("Office", "room"), ("Note", "text")},
        set(),
    ),
    "of any length": (
        "SELECT * WHERE { ?s a :Chief ; :boss+ ?o }",
        {("Person", "boss"), ("Employee", "boss"), ("Chief", "boss")},
        {"Chief"},
    ),
    "backwards": (
        "SELECT ?n WHERE { ?c a :Chief . ?c ^:chief ?n }",
        {("Note", "chief")},
        {"Chief"},
    ),
    "in OPTIONAL, of what was found": (
        "SELECT * WHERE { ?c a :Chief OPTIONAL { ?c :name ?n } }",
        {("Chief", "name")},
        {"Chief"},
    ),
    "in OPTIONAL, before it is found": (
        "SELECT * WHERE { OPTIONAL { ?c :name ?n } ?c a :Chief }",
        {("Person", "name"), ("Employee", "name"), ("Chief", "name")},
        {"Chief"},
    ),
    "in OPTIONAL, deeper": (
        "SELECT * WHERE { ?c a :Chief OPTIONAL { ?o :room ?r OPTIONAL { ?c :name ?n } } }",
        {("Person", "name"), ("Employee", "name"), ("Chief", "name"), ("Office", "room")},
        {"Chief"},
    ),
    "in a subquery": (
        "SELECT * WHERE { ?c a :Chief { SELECT ?c ?n WHERE { ?c :name ?n } LIMIT 1 } }",
        {("Person", "name"), ("Employee", "name"), ("Chief", "name")},
        {"Chief"},
    ),
    "a function": (
        "SELECT * WHERE { ?s :room ?o FILTER regex(?o, 'x') }",
        {("Office", "room")},
        set(),
    ),
    "values": ("SELECT * WHERE { VALUES ?o { 'x' } ?s :room ?o }", {("Office", "room")}, set()),
    "grouped and sorted": (
        "SELECT (COUNT(*) AS ?n) WHERE { ?s :room ?o } GROUP BY ?o ORDER BY DESC(?n) LIMIT 3",
        {("Office", "room")},
        set(),
    ),
    "built": (
        "CONSTRUCT { ?s :name ?o } WHERE { ?s :room ?o }",
        {("Office", "room")},
        set(),
    ),
    "a constant": (
        "SELECT * WHERE { <urn:x:base/Chief/p1> :name ?n }",
        {("Chief", "name")},
        set(),
    ),
    "changed": (
        "DELETE { ?s :room ?o } INSERT { ?s :room 'new' } WHERE { ?s :room ?o }",
        {("Office", "room")},
        set(),
    ),
    "inserted": ("INSERT DATA { <urn:x> :name 'y' }", set(), set()),
    "unknown": ("SELECT * WHERE { ?s :nothing ?o ; a :Nobody }", set(), set()),
    "the items of a list": (
        "SELECT * WHERE { ?n :lines/rdf:rest*/rdf:first ?o }",
        {("Note", "lines")},
        set(),
    ),
    "the cells of a list": (
        "SELECT * WHERE { ?n :lines/rdf:rest* ?c . ?c rdf:first ?o } ORDER BY ?c",
        {("Note", "lines")},
        set(),
    ),
    "the second item": (
        "SELECT * WHERE { ?n :lines ?c . ?c rdf:rest ?d . ?d rdf:first ?o }",
        {("Note", "lines")},
        set(),
    ),
    "what items refer to": (
        "SELECT * WHERE { ?n :queue/rdf:first ?p . ?p :badge ?b }",
        {("Note", "queue"), ("Employee", "badge"), ("Chief", "badge")},
        set(),
    ),
    "any cell": (
        "SELECT * WHERE { ?c rdf:first ?o }",
        {("Note", "lines"), ("Note", "queue")},
        set(),
    ),
    "in OPTIONAL, any cell": (
        "SELECT * WHERE { ?n :lines ?c OPTIONAL { ?c rdf:first ?o } }",
        {("Note", "lines"), ("Note", "queue")},
        set(),
    ),
}


@pytest.fixture(scope="module")
def world():
    """Everything, in memory."""
    with twins(fixed_rows(), Hidden()) as (full, _):
        yield full


def stored(text: str) -> StoredQuery:
    """A query as it is stored."""
    return StoredQuery("q", "", text)


@pytest.mark.req("E11a")
@pytest.mark.parametrize("case", ANYTHING)
def test_what_can_reach_anything(world: GraphContext, case):
    """Where a text leaves open what it looks at, it counts as looking at everything."""
    assert reach_of(stored(ANYTHING[case]), world.kg.schema, world.names).anything


@pytest.mark.parametrize("case", REACHES)
def test_what_a_text_reaches(world: GraphContext, case):
    """Classes and references narrow what a variable can stand for; nothing else does."""
    text, fields, types = REACHES[case]
    text = text.replace("urn:x:base", world.names.base)
    found = reach_of(stored(text), world.kg.schema, world.names)
    assert (found.anything, found.fields, found.types) == (False, fields, types)


MASKED = {
    "a hidden field": ("a field", "SELECT * WHERE { ?s :rent ?o }", True),
    "another field": ("a field", "SELECT * WHERE { ?s :room ?o }", False),
    "a hidden type": ("a type", "SELECT * WHERE { ?s a :Note }", True),
    "a field of a hidden type": ("a type", "SELECT * WHERE { ?s :text ?o }", True),
    "a type above a hidden one": ("below", "SELECT * WHERE { ?s a :Person }", True),
    "a field that a hidden type has too": ("below", "SELECT * WHERE { ?s :name ?o }", True),
    "that field of another type": ("below", "SELECT * { ?s a :Chief ; :name ?o }", True),
    "a reference to perhaps a hidden type": ("below", "SELECT * WHERE { ?n :about ?p }", True),
    "edges of which some are hidden": ("below", "SELECT * WHERE { ?k :since ?o }", True),
    "what has nothing to do with it": ("below", "SELECT * WHERE { ?o :room ?r }", False),
    "a hidden class beside another": ("above", "ASK { ?s a :Employee, :Person }", True),
    "a hidden class by name": ("above", "ASK { ?s a :Person }", True),
    "what is left of its family": ("above", "SELECT * { ?s a :Employee ; :badge ?b }", False),
}
HIDDEN = {
    "a field": Hidden(fields=frozenset({("Office", "rent")})),
    "a type": Hidden(frozenset({"Note"})),
    "below": Hidden(frozenset({"Chief"})),
    "above": Hidden(frozenset({"Person"})),
}


@pytest.mark.req("E11a")
@pytest.mark.parametrize("case", MASKED)
def test_what_is_masked(world: GraphContext, case):
    """A query is masked when it can look at something hidden, and only then."""
    hidden, text, masked = MASKED[case]
    schema = world.kg.schema
    reach = reach_of(stored(text), schema, world.names)
    assert touches_hidden(reach, HIDDEN[hidden].sight(TYPES), schema) is masked
    assert not touches_hidden(reach, FULL, schema)


@pytest.mark.req("E11a")
def test_a_masked_query_is_unknown():
    """Whoever may not run a query is told that there is none, and is not led to it by a hint."""
    world = World(TYPES, fixed_rows())
    service = world.app.service()
    rents = StoredQuery("rents", "", "SELECT ?r WHERE { ?s :rent ?r }")
    rooms = StoredQuery("rooms", "", "SELECT ?r WHERE { ?s :room ?r }")
    registry = with_queries(service.registry, [rents, rooms])
    access = Restricted(HIDDEN["a field"].sight(TYPES))
    ctx = service.context("reader", registry=registry, access=access)
    for name in ("rents", "rentz"):
        with pytest.raises(NotFoundError) as raised:
            query_by_name(service, ctx, name, {})
        assert raised.value.message.replace(name, "…") == "there is no stored query '…'"
    assert len(query_by_name(service, ctx, "rooms", {}).rows) == 3
    with pytest.raises(ForbiddenError):
        service.ask(ctx, "SELECT ?r WHERE { ?s :room ?r }", {})
    with pytest.raises(ForbiddenError):
        ctx.kg.sparql("SELECT ?r WHERE { ?s :room ?r }")
    world.app.close()


# --- the same answers ------------------------------------------------------------------------

VARIABLES = st.sampled_from(["?a", "?b", "?c"])
PREDICATES = st.sampled_from(
    ["name", "alias", "age", "boss", "badge", "office", "bonus", "about", "chief", "room", "since",
     "source", "target", "tags", "readers", "queue", "lines", "words"]
)  # fmt: skip


LISTS = st.sampled_from(["queue", "queue", "lines", "boss"])


@st.composite
def triples(draw: st.DrawFn) -> str:
    """A pattern or two."""
    subject = draw(VARIABLES)
    kind = draw(st.integers(0, 9))
    if kind < 3:
        return f"{subject} a :{draw(st.sampled_from(sorted(TYPES)))} ."
    first = f":{draw(PREDICATES)}"
    if kind == 3:
        first += f"/:{draw(PREDICATES)}"
    elif kind == 4:
        first = f"({first}|:{draw(PREDICATES)})"
    elif kind == 5:
        first = f"^{first}"
    elif kind == 6:
        first += "+"
    elif kind == 7:
        first = draw(st.sampled_from(["rdf:first", "rdf:rest", "rdf:rest+", f"{first}/rdf:first"]))
    elif kind == 8:
        first = f":{draw(LISTS)}/rdf:rest*" + draw(st.sampled_from(["", "/rdf:first"]))
    thing = draw(VARIABLES | st.sampled_from(["?d", "?e", "'x'", "2", "[]"]))
    return f"{subject} {first} {thing} ."


def groups(depth: int) -> st.SearchStrategy[str]:
    """The inside of braces."""
    if depth == 0:
        return st.lists(triples(), min_size=1, max_size=3).map(" ".join)
    inner = groups(depth - 1)
    parts = st.one_of(
        triples(),
        triples(),
        inner.map("OPTIONAL {{ {} }}".format),
        inner.map("MINUS {{ {} }}".format),
        inner.map("FILTER NOT EXISTS {{ {} }}".format),
        inner.map("FILTER (EXISTS {{ {} }} || ?a = ?b)".format),
        inner.map("{{ {} }}".format),
        st.tuples(inner, inner).map(lambda two: f"{{ {two[0]} }} UNION {{ {two[1]} }}"),
        inner.map("{{ SELECT ?a WHERE {{ {} }} }}".format),
        inner.map("{{ SELECT ?b (COUNT(*) AS ?n) WHERE {{ {} }} GROUP BY ?b }}".format),
    )
    return st.lists(parts, min_size=1, max_size=4).map(" ".join)


HEADS = st.sampled_from(["SELECT * WHERE", "SELECT (COUNT(*) AS ?count) WHERE", "ASK"])


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A query."""
    return f"{draw(HEADS)} {{ {draw(groups(2))} }}"


def answers(ctx: GraphContext, text: str) -> object:
    """The rows, in no order."""
    found = ask_checkout(ctx._graph, ctx.checkout, text)
    if found.truth is not None:
        return found.truth
    return Counter(tuple(sorted((k, repr(v)) for k, v in row.items())) for row in found.rows)


def compare(restricted: GraphContext, twin: GraphContext, asked: list[str]) -> None:
    """Run what is not masked in both worlds."""
    schema = restricted.checkout.schema
    for text in asked:
        reach = reach_of(stored(text), schema, restricted.names)
        if not touches_hidden(reach, restricted.visibility, schema):
            assert answers(restricted, text) == answers(twin, text), text


ASKED = st.lists(texts(), min_size=12, max_size=12)


@pytest.mark.req("E11a")
@pytest.mark.parametrize("case", CASES)
def test_what_is_not_masked_answers_as_in_the_twin(case):
    """A query that reaches nothing hidden gives the answer of a graph without it."""
    with twins(fixed_rows(), CASES[case]) as (restricted, twin):

        @settings(max_examples=4)
        @given(ASKED)
        def check(asked):
            compare(restricted, twin, asked)

        check()


@pytest.mark.long
@settings(max_examples=sized(800, nightly=60))
@given(hidden_sets(), ASKED, row_lists())
def test_what_is_not_masked_answers_as_in_the_twin_at_length(hidden, asked, rows):
    """The same with anything hidden in any data."""
    with twins(rows, hidden) as (restricted, twin):
        compare(restricted, twin, asked)
