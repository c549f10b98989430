"""Stored queries: what a file may say, what its author is told, and what a call gives."""

import os
from datetime import UTC, date, datetime
from pathlib import Path
from random import Random

import pytest
from tests.engine.sparql.broken_queries import BROKEN, GOOD, OK, with_params
from tests.worlds.graphs import Calls

from trails import App, Edge, Iri, Node, Ref, edge_type, node_type, predicate
from trails.engine.sparql.stored_queries import MAX_QUERIES, load_queries, read_queries
from trails.errors import (
    DeclarationError,
    LimitError,
    NotFoundError,
    RegistryError,
    ValidationError,
)
from trails.model.capabilities import StoredQuery
from trails.model.iris import Names
from trails.model.kinds import KINDS
from trails.model.sparql.terms import TermScan, pieces_of
from trails.model.sparql.tokens import tokenize
from trails.model.types import REF, PredicateDescriptor, ValueType
from trails.projections.json_schema import is_omissible
from trails.registry.registry import RegistryCell


@node_type
class Person(Node):
    """A person."""

    name: str = predicate(key=True)
    age: int | None = predicate()
    home: Iri | None = predicate()


@node_type
class Task(Node):
    """Something to do."""

    title: str = predicate(key=True)
    status: str = predicate(default="open")
    due: date | None = predicate()
    tags: list[str] = predicate()
    owner: Ref[Person] | None = predicate()
    summary: str | None = predicate(iri="https://schema.org/abstract")


@edge_type(source=Task, target=Task)
class Blocks(Edge):
    """One task waits for another."""

    since: date | None = predicate()


@pytest.fixture(scope="module")
def types():
    """The registry that queries are checked against."""
    with App(Person, Task, Blocks) as app:
        yield app.registry()


@pytest.fixture
def read(tmp_path, types):
    """Read files as stored queries of this schema; each text is the file's content."""

    def read(**texts):
        folder = tmp_path / "queries"
        folder.mkdir(exist_ok=True)
        for name, text in texts.items():
            content = text if isinstance(text, bytes) else text.encode()
            (folder / f"{name}.rq").write_bytes(content)
        return read_queries(folder, types.schema, Names("trails://app/main"))

    return read


@pytest.fixture
def project(tmp_path):
    """A graph in memory with a few tasks, and a way to give it stored queries."""
    with App(Person, Task, Blocks) as app:
        ctx = app.context()
        ann = Person(name="Ann", age=40)
        ann.save(ctx)
        ctx.kg.save_all(
            [
                Task(title="a", owner=ann, due=date(2026, 1, 1), tags=["x", "y"]),
                Task(title="b", status="done", tags=["y"]),
                Task(title="c", owner=ann, due=date(2026, 3, 1)),
            ]
        )
        yield Project(app, tmp_path / "queries")


class Project:
    """An app whose stored queries a test writes."""

    def __init__(self, app, folder):
        self.app = app
        self.folder = folder
        folder.mkdir()

    def add(self, name, text):
        """Write a query and register it."""
        (self.folder / f"{name}.rq").write_text(text)
        names = self.app.graph().names
        found = load_queries(self.folder, self.app.registry().schema, names)
        new = [each for each in found if each.name not in self.app.registry().queries]
        self.app._cells["main"].register(queries=new)

    def run(self, name, **params):
        """The answer to a query."""
        return self.app.query(self.app.context(), name, params)

    def titles(self, name, **params):
        """The titles that a query finds, sorted."""
        return sorted(row["title"] for row in self.run(name, **params))


# --- files that are wrong ----------------------------------------------------------------


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_explained(read, name):
    """The file, the line and the key are named, with the rule and what to write."""
    text, says = BROKEN[name]
    loaded = read(**{name: text, "sound": OK + GOOD})
    told = [str(problem) for problem in loaded.problems]
    assert any(says in each for each in told), told
    assert all(each.startswith(f"queries/{name}.rq:") for each in told)
    assert [query.name for query in loaded.queries] == ["sound"]


def test_all_mistakes_of_all_files_are_told_at_once(read, tmp_path, types):
    """An author corrects a folder in one go."""
    read(
        one="#+ descripton: It.\n#+ params: { p: Strin }\nSELECT ?t { ?t a :Tsak ; :titel ?x }",
        two=GOOD,
    )
    with pytest.raises(DeclarationError) as caught:
        load_queries(tmp_path / "queries", types.schema, Names("trails://app/main"))
    told = caught.value.data["problems"]
    assert len(told) == 6
    assert all(each in caught.value.message for each in told)


def test_a_file_that_is_not_utf_8_is_refused(read):
    """The line of the first wrong byte is named."""
    loaded = read(latin=b"#+ description: It.\n# caf\xe9\n" + GOOD.encode())
    assert [str(each) for each in loaded.problems] == [
        "queries/latin.rq:2: is not UTF-8; save it in that encoding"
    ]


@pytest.mark.parametrize("kind", ["link_out", "loop", "folder", "dangling"])
def test_what_is_not_a_file_of_the_folder_is_refused(read, tmp_path, kind):
    """A link that leads out, one that leads nowhere, a folder: told, not followed."""
    read(sound=OK + GOOD)
    path = tmp_path / "queries" / f"{kind}.rq"
    if kind == "link_out":
        secret = tmp_path / "secret.rq"
        secret.write_text(OK + GOOD)
        path.symlink_to(secret)
    elif kind == "loop":
        path.symlink_to(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "queries" / "gone")
    loaded = read()
    assert [query.name for query in loaded.queries] == ["sound"]
    assert len(loaded.problems) == 1
    assert f"{kind}.rq" in str(loaded.problems[0])


def test_a_fifo_does_not_block(read, tmp_path):
    """Only plain files are opened."""
    read()
    os.mkfifo(tmp_path / "queries" / "pipe.rq")
    assert "is not a file" in str(read().problems[0])


def test_there_is_a_limit_to_how_many_queries(read, tmp_path):
    """A folder of many thousands is refused before anything is read."""
    read()
    for number in range(MAX_QUERIES + 1):
        (tmp_path / "queries" / f"q{number}.rq").touch()
    loaded = read()
    assert len(loaded.problems) == 1
    assert "more than 1000" in str(loaded.problems[0])


def test_the_parser_can_be_another(tmp_path, types):
    """What the given check says reaches the author, with its line."""
    (tmp_path / "q.rq").write_text(OK + GOOD)
    seen = []

    def check(text, names, *, update):
        seen.append((text, names.prefixes[""], update))
        return "error at 2:7: no"

    loaded = read_queries(tmp_path, types.schema, Names("trails://app/main"), check)
    assert str(loaded.problems[0]).endswith("q.rq:2: the query can't be parsed: no (column 7)")
    assert seen == [(f"\n{GOOD}", "trails://app/main/schema#", False)]


SOUND = (
    "#+ name: q\n#+ description: 'It: finds'\n#+ params:\n"
    "#+   p: { type: [String], nullable: true }\n#+   n: { type: Int, min_value: 0, default: 3 }\n"
    "PREFIX s: <https://schema.org/> SELECT ?t (COUNT(?o) AS ?c) {\n  ?t a :Task ; :owner/:name ?w"
    ", [] ; s:abstract ?x .\n  VALUES ?w { $p } FILTER (!BOUND($p) || EXISTS { ?t :due ?d })\n"
    "} GROUP BY ?t LIMIT $n"
)


@pytest.mark.parametrize("seed", range(4))
def test_no_text_surprises_the_reader(read, seed):
    """Whatever is cut out, doubled or put in: a query or problems, each with a line."""
    rng = Random(seed)
    bits = [
        *"{}[]()<>;.,|^!*+?$#\"'\\:@&- \n\t\0\ufeffé",
        "#+ ",
        "$p",
        "SELECT",
        "INSERT",
        "a",
        "~",
    ]
    assert not read(q=SOUND).problems
    for _ in range(150):
        text = SOUND
        for _ in range(rng.randint(1, 3)):
            start = rng.randrange(len(text))
            end = min(len(text), start + rng.randint(0, 12))
            text = text[:start] + rng.choice(["", text[start:end] * 2, *bits]) + text[end:]
        loaded = read(q=text)
        assert len(loaded.queries) + bool(loaded.problems) == 1
        assert all(1 <= each.line <= text.count("\n") + 2 for each in loaded.problems)


# --- files that are right ----------------------------------------------------------------


def test_no_folder_and_an_empty_folder_have_no_queries(tmp_path, types):
    """Neither is a mistake."""
    names = Names("trails://app/main")
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert load_queries(folder, types.schema, names) == ()


def test_a_header_says_everything_about_a_query(read):
    """Name, description, tool name, exposure, form, columns and source."""
    loaded = read(
        late=(
            "#+ name: late\n"
            "#+ description: >-\n"
            "#+   What is late,\n"
            "#+   and whose it is.\n"
            "#+ expose: false\n"
            "#+ tool_name: tasks.late\n"
            "#+ params:\n"
            "#+   day: { type: Date, description: Due before this day. }\n"
            "#+   limit: { type: Int, default: 10, min_value: 1, max_value: 100 }\n"
            "SELECT ?title (COUNT(?o) AS ?owners) WHERE { ?t :title ?title ; :due ?d .\n"
            "  FILTER (?d < $day) OPTIONAL { ?t :owner ?o } } GROUP BY ?title LIMIT $limit\n"
        )
    )
    assert not loaded.problems
    (query,) = loaded.queries
    assert query.name == "late"
    assert query.description == "What is late, and whose it is."
    assert (query.expose, query.tool_name, query.effective_tool_name) == (
        False,
        "tasks.late",
        "tasks.late",
    )
    assert query.columns == ("title", "owners")
    assert query.source == "queries/late.rq"
    assert query.text.startswith("SELECT ?title")
    day, limit = query.params
    assert (str(day.type), day.required, day.description) == ("Date", True, "Due before this day.")
    assert (limit.default, limit.max_value, is_omissible(limit)) == (10, 100, True)


def test_carriage_returns_and_a_byte_order_mark_are_harmless(read):
    """As some editors write files."""
    text = "\ufeff" + (OK + "#+ params: { p: String }\nSELECT ?t { ?t :title $p }\n").replace(
        "\n", "\r\n"
    )
    assert not read(windows=text).problems


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_can_be_a_parameter(read, kind):
    """Alone and, but for vectors, in a list; each text is parsed with a sample of its kind."""
    spelled = "{ type: Vector, dimension: 3 }" if kind == "Vector" else kind
    texts = {"one": with_params(f"{{ p: {spelled} }}", "SELECT ?t { ?t ?q ?o FILTER (?o = $p) }")}
    if kind != "Vector":
        for name, form in (("short", f"[{kind}]"), ("long", f"{{ type: List, of: {kind} }}")):
            texts[name] = with_params(f"{{ p: {form} }}", "SELECT ?t { VALUES ?t { $p } }")
    loaded = read(**texts)
    assert not loaded.problems
    assert all(query.params[0].type.scalar.kind == kind for query in loaded.queries)


@pytest.mark.parametrize(
    ("text", "mutation", "columns"),
    [
        ("SELECT * { ?t a :Task }", False, ()),
        ("SELECT DISTINCT ?t (1 + (2) AS ?n) FROM <x:g> { ?t a :Task }", False, ("t", "n")),
        ("ASK { ?t a :Task }", False, ()),
        ("CONSTRUCT { ?t :madeUp ?x } { ?t :title ?x }", False, ("subject", "predicate", "object")),
        ("DESCRIBE ?t { ?t a :Task }", False, ("subject", "predicate", "object")),
        ('SELECT ?t { ?t :title "INSERT"@add ; :status ?DELETE } # DROP', False, ("t",)),
        ("INSERT DATA { <x:a> :title 'x' }", True, ()),
        ("DELETE WHERE { ?t :title ?x }", True, ()),
        ("INSERT { ?t :status 'x' } WHERE { SELECT ?t { ?t a :Task } }", True, ()),
        ("DELETE { ?t :due ?d } INSERT { ?t :due ?d } WHERE { ?t :due ?d }", True, ()),
    ],
)
def test_reads_and_mutations_are_told_apart(read, text, mutation, columns):
    """By keywords at the top, not by words in strings, comments, variables or subqueries."""
    loaded = read(q=OK + text)
    assert not loaded.problems
    (query,) = loaded.queries
    assert (query.mutation, query.columns) == (mutation, columns)


@pytest.mark.parametrize(
    "text",
    [
        "PREFIX : <https://other.org/> SELECT ?t { ?t a :Anything ; :at_all ?x }",
        "PREFIX s: <https://schema.org/> SELECT ?t { ?t s:abstract ?x ; s:unknown ?y }",
        "SELECT ?t { ?t a :Task. ?t :title ?x.?t :owner/:name ?n }",
        "SELECT ?t { [] a :Blocks ; :source ?t ; :target [ :title ?x ; a :Task ] . }",
        "SELECT ?t { ?t :owner? ?o ; ^:owner ?p , ?q ; (:owner|:title)* ?r }",
        "SELECT ?t { ?t a ?c FILTER (?c IN (:Task, :Person)) }",
        "SELECT ?t { ?t a :Task ; ; :age 1.5, .5, 1e3, -2 ; :title 'a'@en, 'b'^^<x:y> }",
        "SELECT ?c { VALUES (?c ?n) { (:Task 1) (:Person 2) } } ORDER BY DESC(?n) ?c LIMIT 3",
        "SELECT ?t { ?t !(a|^:title) ?x . GRAPH ?g { ?t :title ?y } MINUS { ?t :due ?d } }",
        "SELECT ?t { ?t a :Task FILTER regex(?x, 'a') BIND (STR(?t) AS ?x) }",
        "SELECT ?t { { SELECT ?t (MAX(?d) AS ?m) { ?t :due ?d } GROUP BY ?t HAVING (?m > 1) } }",
    ],
)
def test_known_names_are_accepted_wherever_they_stand(read, text):
    """No sound query is refused for its classes and fields."""
    assert [str(each) for each in read(q=OK + text).problems] == []


def test_roles_are_read_from_the_position():
    """A verb is a field, the object of `a` a class, anything else a term."""
    text = "SELECT ?s { ?s a :A, :B ; :c/^:d+ :E . FILTER (?s != :F) [] :g [ a :H ] }"
    found = TermScan(pieces_of(tokenize(text)), Names("x:")).named
    assert [(each.role, each.written) for each in found] == [
        ("class", ":A"),
        ("class", ":B"),
        ("predicate", ":c"),
        ("predicate", ":d"),
        ("term", ":E"),
        ("term", ":F"),
        ("predicate", ":g"),
        ("class", ":H"),
    ]


# --- running -----------------------------------------------------------------------------

BY_STATUS = with_params(
    "{ status: { type: String, one_of: [open, done] } }",
    "SELECT ?title { ?t :title ?title ; :status $status }",
)


def test_a_read_takes_json_and_gives_rows(project):
    """Parameters are bound as values of their kind."""
    project.add("by_status", BY_STATUS)
    project.add(
        "due_before",
        with_params("{ day: Date }", "SELECT ?title { ?t :title ?title ; :due ?d FILTER(?d<$day)}"),
    )
    assert project.titles("by_status", status="open") == ["a", "c"]
    assert project.titles("due_before", day="2026-02-01") == ["a"]
    assert project.titles("due_before", day=date(2026, 4, 1)) == ["a", "c"]


def test_every_wrong_parameter_is_named_at_once(project):
    """Unknown, missing, mistyped and out of range, each with its path."""
    project.add(
        "picky",
        with_params(
            "{ status: { type: String, one_of: [open] }, day: Date,"
            " n: { type: Int, min_value: 0, max_value: 3 },"
            " who: Person, tags: { type: [String], max_count: 1 } }",
            "SELECT ?title { ?t :title ?title ; :status $status ; :due $day ; :owner $who ;"
            " :tags ?tag FILTER (?tag IN $tags) } LIMIT $n",
        ),
    )
    with pytest.raises(ValidationError) as caught:
        project.run(
            "picky", statu="x", status="shut", n=4, who="trails://kg/Task/a", tags=["x", 7, "y"]
        )
    found = {error.field: error.code for error in caught.value.fields}
    assert found == {
        "params.statu": "unknown_field",
        "params.status": "one_of",
        "params.day": "required",
        "params.n": "max_value",
        "params.who": "reference",
        "params.tags[1]": "datatype",
    }
    assert "did you mean 'status'?" in caught.value.message


def test_a_query_without_parameters_says_so(project):
    """A parameter too many is told."""
    project.add("all", OK + "SELECT ?title { ?t :title ?title }")
    with pytest.raises(ValidationError, match="it has none"):
        project.run("all", x=1)


NULLABLE = "{ status: { type: String, nullable: true } }"


@pytest.mark.parametrize("given", [{}, {"status": None}])
def test_a_null_parameter_is_an_unbound_variable(project, given):
    """Omitted or null: in a pattern it matches everything, in a comparison nothing."""
    project.add(
        "pattern",
        with_params(NULLABLE, "SELECT ?title $status { ?t :title ?title ; :status $status }"),
    )
    project.add(
        "compared",
        with_params(NULLABLE, "SELECT ?title { ?t :title ?title ; :status ?s FILTER(?s=$status) }"),
    )
    project.add(
        "data",
        with_params(
            NULLABLE, "SELECT ?title { VALUES ?s { $status } ?t :title ?title ; :status ?s }"
        ),
    )
    assert project.titles("pattern", **given) == ["a", "b", "c"]
    assert {row["status"] for row in project.run("pattern", **given)} == {"open", "done"}
    assert project.titles("compared", **given) == []
    assert project.titles("data", **given) == ["a", "b", "c"]
    for name in ("pattern", "compared", "data"):
        assert project.titles(name, status="done") == ["b"]


def test_bound_tells_whether_a_parameter_was_given(project):
    """`BOUND($p)` makes a comparison optional, for values and for lists."""
    project.add(
        "maybe",
        with_params(
            NULLABLE.removesuffix("}") + ", tags: { type: [String], nullable: true } }",
            "SELECT DISTINCT ?title { ?t :title ?title ; :status ?s OPTIONAL { ?t :tags ?tag }\n"
            "FILTER (!BOUND($status) || ?s = $status)\n"
            "FILTER (!bound ( $tags ) || ?tag IN $tags) }",
        ),
    )
    assert project.titles("maybe") == ["a", "b", "c"]
    assert project.titles("maybe", tags=[]) == ["a", "b", "c"]
    assert project.titles("maybe", status="done") == ["b"]
    assert project.titles("maybe", tags=["x"]) == ["a"]
    assert project.titles("maybe", tags=["x", "y"], status="open") == ["a"]


def test_a_list_stands_after_in_or_in_values(project):
    """Each place takes any number of values."""
    bodies = {
        "bare": "SELECT ?title { ?t :title ?title FILTER (?title IN $titles) }",
        "braced": "SELECT ?title { ?t :title ?title FILTER (?title IN ($titles)) }",
        "negated": "SELECT ?title { ?t :title ?title FILTER (?title NOT IN $titles) }",
        "values": "SELECT ?title { VALUES ?title { $titles } ?t :title ?title }",
    }
    for name, body in bodies.items():
        project.add(name, with_params("{ titles: { type: [String], nullable: true } }", body))
    for name in ("bare", "braced", "values"):
        assert project.titles(name, titles=["a", "c", "zz"]) == ["a", "c"]
        assert project.titles(name) == []
    assert project.titles("negated", titles=["a"]) == ["b", "c"]
    assert project.titles("negated") == ["a", "b", "c"]


def test_a_list_that_is_not_nullable_needs_a_value(project):
    """Nullable means omissible; a list without it has at least one value."""
    project.add(
        "some",
        with_params("{ p: [String] }", "SELECT ?title { VALUES ?title { $p } ?t :title ?title }"),
    )
    for given in ({}, {"p": None}, {"p": []}):
        with pytest.raises(ValidationError, match=r"params\.p needs at least 1"):
            project.run("some", **given)


def test_defaults_stand_in_for_what_is_missing_or_null(project):
    """And a LIMIT can be a parameter."""
    project.add(
        "first",
        with_params(
            "{ n: { type: Int, default: 2, min_value: 0 }, "
            "skip: { type: Int, default: 0, min_value: 0 } }",
            "SELECT ?title { ?t :title ?title } ORDER BY ?title LIMIT $n OFFSET $skip",
        ),
    )
    assert project.titles("first") == project.titles("first", n=None) == ["a", "b"]
    assert project.titles("first", n=1, skip=1) == ["b"]
    with pytest.raises(ValidationError, match=r"params\.n must be at least 0"):
        project.run("first", n=-1)


def test_a_node_is_given_by_any_of_its_names(project):
    """IRI, handle, key or instance; it is bound as its IRI, and has to exist."""
    project.add(
        "of_person",
        with_params("{ who: Person }", "SELECT ?title { ?t :title ?title ; :owner $who }"),
    )
    ann = Person.get(project.app.context(), "Ann")
    for who in ("trails://app/main/Person/Ann", "trails://kg/Person/Ann", "Person/Ann", "Ann", ann):
        assert project.titles("of_person", who=who) == ["a", "c"]
    with pytest.raises(ValidationError, match="there is no Person 'Person/Nobody'") as caught:
        project.titles("of_person", who="Person/Nobody")
    assert caught.value.fields[0].code == "reference"


DEFAULTS = {
    "handle": "Person/Ann",
    "uri": "trails://kg/Person/Ann",
    "iri": "trails://app/main/Person/Ann",
    "key": "Ann",
}


@pytest.mark.parametrize("form", DEFAULTS)
def test_a_reference_has_a_default(project, form):
    """In every form; it is resolved at the call, and a given node counts instead."""
    declared = f"{{ who: {{ type: Person, default: '{DEFAULTS[form]}' }} }}"
    body = "SELECT ?title { ?t :title ?title ; :owner $who }"
    project.add("mine", with_params(declared, body))
    (param,) = project.app.registry().queries["mine"].params
    assert (param.default, is_omissible(param)) == (DEFAULTS[form], True)
    assert project.titles("mine") == project.titles("mine", who=None) == ["a", "c"]
    ctx = project.app.context()
    Person(name="Bob").save(ctx)
    assert project.titles("mine", who="Bob") == []
    calls = Calls(project.app)
    assert len(calls.result("mine")["rows"]) == 2
    schema = calls.tool("mine").input_schema["properties"]["params"]
    assert schema["properties"]["who"]["default"] == DEFAULTS[form]
    assert "required" not in schema
    for title in ("a", "c"):
        Task.get(ctx, title).delete(ctx)
    Person.get(ctx, "Ann").delete(ctx)
    with pytest.raises(ValidationError, match=r"params\.who: there is no Person '.*Ann'") as caught:
        project.run("mine")
    assert caught.value.fields[0].code == "reference"
    assert "params.who: there is no Person" in calls.failure("mine").message
    Person(name="Ann").save(ctx)
    assert project.titles("mine") == []


def test_a_list_of_references_has_a_default(project):
    """Each item in its own form."""
    declared = "{ who: { type: [Person], default: [Ann, 'trails://kg/Person/Bob'] } }"
    body = "SELECT ?title { VALUES ?p { $who } ?t :title ?title ; :owner ?p }"
    project.add("ours", with_params(declared, body))
    ctx = project.app.context()
    with pytest.raises(ValidationError, match=r"params\.who\[1\]: there is no Person"):
        project.run("ours")
    bob = Person(name="Bob")
    ctx.kg.save_all([bob, Task(title="d", owner=bob)])
    assert project.titles("ours") == ["a", "c", "d"]
    assert project.titles("ours", who=["Bob"]) == ["d"]


def test_a_default_may_name_a_subtype_or_a_number(tmp_path):
    """A family is looked up as a whole; a key that is a number may be written as one."""

    @node_type(abstract=True)
    class Party(Node):
        number: int = predicate(key=True)

    @node_type
    class Firm(Party):
        pass

    with App(Party, Firm) as app:
        Firm(number=7).save(app.context())
        (tmp_path / "queries").mkdir()
        project = Project.__new__(Project)
        project.app, project.folder = app, tmp_path / "queries"
        body = "SELECT ?n { $who :number ?n }"
        for name, default in (("a", "7"), ("b", "Firm/7"), ("c", "'7'")):
            project.add(
                name, with_params(f"{{ who: {{ type: Party, default: {default} }} }}", body)
            )
            assert [row["n"] for row in project.run(name)] == [7]


@pytest.mark.parametrize(
    "attack",
    [
        '" } DELETE WHERE { ?s ?p ?o } #',
        "'; DROP ALL",
        "a\\",
        "$status",
        "?x",
        "\n#+ x",
        "<x:y>",
        "(true)",
        "UNDEF",
    ],
)
def test_a_value_never_becomes_syntax(project, attack):
    """Quotes, comments and parameters in values are text, alone and in lists."""
    params = "{ status: String, more: [String] }"
    project.add(
        "attacked",
        with_params(
            params,
            "SELECT ?title ?m { ?t :title ?title . VALUES ?m { $more } FILTER (?m = $status) }",
        ),
    )
    rows = project.run("attacked", status=attack, more=["z", attack]).rows
    assert {row["m"] for row in rows} == {attack}
    assert len(rows) == 3


def test_a_vector_is_bound_as_it_is_stored(project):
    """With its own datatype, and only in its dimension."""
    body = "SELECT (STR($v) AS ?text) (STR(DATATYPE($v)) AS ?kind) {}"
    project.add("vector", with_params("{ v: { type: Vector, dimension: 2 } }", body))
    row = project.run("vector", v=[1, 2.5]).rows[0]
    assert row == {"text": "[1.0,2.5]", "kind": KINDS["Vector"].datatype}
    with pytest.raises(ValidationError, match="2 finite numbers"):
        project.run("vector", v=[1])


def test_a_mutation_goes_down_the_write_path(project):
    """It is validated like any write, gives the commit, and the commit names its activity."""
    project.add(
        "set_status",
        with_params(
            "{ task: Task, old: String, new: String }",
            "DELETE DATA { $task :status $old } ; INSERT DATA { $task :status $new }",
        ),
    )
    made = project.run("set_status", task="Task/a", old="open", new="done")
    ctx = project.app.context()
    assert Task.get(ctx, "a").status == "done"
    activities = [each for _, each in project.app.graph().activities.read()]
    assert [(each.name, each.kind, each.outcome) for each in activities] == [
        ("set_status", "mutation", "ok")
    ]
    commit = project.app.graph().log.commit(made)
    assert commit.activity == activities[0].id


def test_an_activity_is_left_by_every_query(project):
    """Whatever its outcome."""
    project.add("by_status", BY_STATUS)
    project.run("by_status", status="open")
    with pytest.raises(ValidationError):
        project.run("by_status")
    activities = [each for _, each in project.app.graph().activities.read()]
    assert [(each.name, each.kind, each.outcome) for each in activities] == [
        ("by_status", "query", "ok"),
        ("by_status", "query", "validation"),
    ]


def test_an_unknown_query_suggests_the_nearest(project):
    """A typing mistake costs one round trip."""
    project.add("by_status", BY_STATUS)
    with pytest.raises(NotFoundError, match="did you mean 'by_status'"):
        project.run("by_statsu")


def test_a_value_that_is_too_long_is_an_error_of_the_query(project):
    """The limit of a text holds for the text that is run."""
    project.add("by_title", with_params("{ p: String }"))
    with pytest.raises(LimitError, match="65,536 are allowed"):
        project.run("by_title", p="x" * 70_000)


def test_a_parameter_of_an_unregistered_type_is_refused():
    """A registry never holds a query that refers to nothing."""
    param = PredicateDescriptor("who", ValueType(REF, target="Nobody"), min_count=1)
    query = StoredQuery("q", "It.", GOOD, (param,))
    with pytest.raises(RegistryError, match="q: who refers to Nobody, which is not a registered"):
        RegistryCell().register(types=[Task, Person], queries=[query])


def test_the_example_of_the_guide_is_a_sound_query(read):
    """What docs/how-to/stored-queries.md shows can be copied."""
    guide = Path(__file__).parents[3] / "docs/how-to/stored-queries.md"
    example = guide.read_text().split("```sparql\n")[1].split("```")[0]
    loaded = read(due_tasks=example)
    assert [str(each) for each in loaded.problems] == []
    assert len(loaded.queries[0].params) == 5


def test_dates_of_a_header_may_be_written_bare(read):
    """YAML reads them as dates, and so do we."""
    loaded = read(
        q=with_params(
            "{ p: { type: Date, default: 2026-01-02 }, "
            "q: { type: DateTime, default: 2026-01-02T03:04:05Z } }",
            "SELECT ?t { ?t :due $p FILTER (NOW() > $q) }",
        )
    )
    assert not loaded.problems
    defaults = [param.default for param in loaded.queries[0].params]
    assert defaults == ["2026-01-02", "2026-01-02T03:04:05Z"]
    assert datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC) == datetime.fromisoformat(defaults[1])
