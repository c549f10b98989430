"""Omnigraph's schemas and queries, imported and then really used."""

from datetime import date

import pytest
from tests.importers.projects import import_files, new_project

from trails import App
from trails.authoring.specs import describe_types
from trails.errors import ValidationError
from trails.importers.omnigraph import read_omnigraph
from trails.model.types import Schema

DAY = date(2026, 1, 2)
SCHEMA = """
// People and where they work
interface Named {
    name: String @index
}

/* A person. */
node Person @description("Somebody.") implements Named {
    slug: String @key
    age: I32? @unique
    size: U32?
    kind: enum(staff, data-eng, 3d)?
    tags: [String]?
    photo: Blob?
    born: Date?
    type: String?
    face: Vector(8)? @embed("name", model="some/model")
    @range(age, 0..150)
    @check(slug, "^[a-z]+$")
    @unique(kind, born)
    @index(kind, born)
}

node Company { slug: String @key  name: String }

edge Knows: Person -> Person { since: Date? }
edge WorksAt: Person -> Company @card(0..1)
edge Owns: Person -> Company { @unique(src) }
edge Rated: Person -> Company { topic: String  stars: I32  @key(@src, @dst, topic) }
"""
QUERIES = """
query friends_of($slug: String, $least: I32?) @description("Friends of a \\"person\\".") {
    match {
        $p: Person { slug: $slug }
        $p $k:knows $f
        $f.age >= $least and ($f.name starts_with "A" or not $f.name contains "z")
        not { $f worksAt $_ }
    }
    return { $f.slug, $f.name, $k.since, $f.age as years }
    order { $f.name desc, years }
    limit 10
}
query counts() {
    match { $p: Person
            $p <knows> $f }
    return { $p.name count($f) as friends }
    order { friends desc, $p.name }
}
query nobody() { match { $p: Person  $p.age is null } return { $p.slug } }
query some_of($names: [String]) { match { $p: Person  $p.name in $names } return { $p.name } }
query works_or_owns($who: String) {
    match { $p: Person { slug: $who }  $p (worksAt | owns) $c }
    return { $c.name }
}
query add_person($slug: String, $name: String, $age: I32?) {
    insert Person { slug: $slug, name: $name, age: $age }
}
query add_company($slug: String) { insert Company { slug: $slug, name: "Acme \\"Ltd\\"" } }
query link($from: String, $to: String, $since: Date?) {
    insert Knows { from: $from, to: $to, since: $since }
}
query hire($who: String, $where: String) { insert WorksAt { from: $who, to: $where } }
query rate($who: String, $what: String, $topic: String, $stars: I32) {
    insert Rated { from: $who, to: $what, topic: $topic, stars: $stars }
}
query ratings() {
    match { $p: Person  $p $r:rated $c }
    return { $r.topic, $r.stars }
    order { $r.topic }
}
query add_friend($slug: String, $name: String, $of: String) {
    insert Person { slug: $slug, name: $name }
    insert Knows { from: $slug, to: $of }
}
query rename($slug: String, $name: String) {
    update Person set { name: $name } where slug = $slug
}
query unlink($slug: String) { delete Knows where @src = $slug }
query remove($slug: String) { delete Person where slug = $slug }
query find($q: String) { match { $p: Person  search($p.name, $q) } return { $p.slug } }
query far($slug: String) {
    match { $p: Person { slug: $slug }  $p knows{1,3} $f } return { $f.slug }
}
query busy() { match { $p: Person  count { $p knows $f } > 2 } return { $p.slug } }
query tagged($t: String) { match { $p: Person  $p.tags contains $t } return { $p.slug } }
query near($v: Vector(8)) { match { $p: Person } return { $p.slug } limit 3 }
query unknown() { match { $x: Nothing } return { $x } }
"""


@pytest.fixture(scope="module")
def imported():
    """What comes of both files."""
    return read_omnigraph(SCHEMA, {"queries.gq": QUERIES})


def test_types_are_those_of_the_file(imported):
    """With keys, enumerations, ranges, groups, and the fields of interfaces."""
    types = describe_types(imported.types, Schema())
    person = types["Person"]
    fields = person.by_name
    assert person.description == "Somebody."
    assert person.key.name == "slug"
    assert fields["slug"].pattern == "^[a-z]+$"
    assert (fields["age"].min_value, fields["age"].max_value) == (0, 150)
    assert fields["age"].unique
    assert fields["size"].min_value == 0
    assert fields["kind"].one_of == ("staff", "data-eng", "3d")
    assert fields["tags"].many
    assert fields["name"].search
    assert fields["name"].required
    assert not fields["born"].required
    assert fields["face"].type.dimension == 8
    assert (fields["person_type"].iri, person.unique, person.index) == (
        "type",
        (("kind", "born"),),
        (("kind", "born"),),
    )
    assert types["WorksAt"].edge.per_source == types["Owns"].edge.per_source == (0, 1)
    assert (types["Knows"].edge.source, types["Knows"].edge.target) == ("Person", "Person")


def test_a_key_of_an_edge_stays_one(imported):
    """So that several edges between two nodes are possible, as there."""
    rated = next(each for each in imported.types if each.name == "Rated")
    assert [each.name for each in rated.fields if each.key] == ["topic"]


def test_nothing_is_dropped_silently(imported):
    """Every query without a translation has a note that names it and why."""
    done = {each.name for each in imported.queries}
    notes = [each for each in imported.notes if each.kind == "left_out"]
    for name, reason in {
        "find": "search",
        "far": "hops",
        "busy": "counts",
        "tagged": "list",
        "near": "Vector",
        "unknown": "Nothing",
    }.items():
        assert name not in done
        assert any(f"query {name}:" in each.message and reason in each.message for each in notes)
    assert len(done) == QUERIES.count("query ") - 6
    text = " ".join(each.message for each in imported.notes)
    for word in ("embeddings", "person_type", "interface Named", "one edge between two nodes"):
        assert word in text


@pytest.fixture
def world(tmp_path):
    """A project with the imported types and queries, opened from its files."""
    folder = new_project(tmp_path)
    found = import_files(folder, text=SCHEMA, file="people.pg", queries={"queries.gq": QUERIES})
    assert len(found.queries) == QUERIES.count("query ") - 6
    with App.open(folder, strict=True) as app:
        yield app


def rows(app, name, /, **params):
    """The rows of a stored query, as plain values."""
    return [tuple(row.values()) for row in app.query(app.context(), name, params)]


def test_the_queries_do_what_they_say(world):
    """Each is run; inserts of keyed types replace, edges are found by the keys of their ends."""
    app: App = world

    def run(name, /, **params):
        return app.query(app.context(), name, params)

    run("add_person", slug="ann", name="Ann", age=30)
    run("add_person", slug="abe", name="Abe", age=40)
    run("add_person", slug="zoe", name="Azz", age=50)
    run("add_person", slug="bob", name="Bob")
    run("add_company", slug="acme")
    for other in ("abe", "zoe", "bob"):
        run("link", **{"from": "ann", "to": other, "since": "2026-01-02"})
    assert rows(app, "friends_of", slug="ann", least=35) == [
        ("zoe", "Azz", DAY, 50),
        ("abe", "Abe", DAY, 40),
    ]
    run("hire", who="abe", where="acme")
    assert [row[0] for row in rows(app, "friends_of", slug="ann", least=35)] == ["zoe"]
    assert rows(app, "counts") == [("Ann", 3), ("Abe", 1), ("Azz", 1), ("Bob", 1)]
    assert rows(app, "nobody") == [("bob",)]
    assert sorted(rows(app, "some_of", names=["Ann", "Bob", "Eve"])) == [("Ann",), ("Bob",)]
    assert rows(app, "works_or_owns", who="abe") == [('Acme "Ltd"',)]
    run("add_person", slug="bob", name="Bobby", age=7)
    run("rename", slug="ann", name="Anna")
    assert ("Anna", 3) in rows(app, "counts")
    assert rows(app, "nobody") == []
    run("rate", who="ann", what="acme", topic="pay", stars=2)
    run("rate", who="ann", what="acme", topic="food", stars=4)
    run("rate", who="ann", what="acme", topic="pay", stars=3)
    assert rows(app, "ratings") == [("food", 4), ("pay", 3)]
    run("add_friend", slug="eve", name="Eve", of="ann")
    assert ("Anna", 4) in rows(app, "counts")
    run("unlink", slug="ann")
    assert rows(app, "counts") == [("Anna", 1), ("Eve", 1)]
    run("remove", slug="bob")
    assert ("Bobby",) not in rows(app, "some_of", names=["Bobby"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nodes Person {}", "schema.pg:1: expected node, edge or interface, not 'nodes'"),
        ("node Person {\n  age: Integer\n}", "schema.pg:3: 'Integer' is not a type"),
        ("node Person { name String }", "expected ':'"),
        ("node Person { name: String", "expected a property, not 'the end of the file'"),
        ("edge A: B > C", "expected '->'"),
        ("node P { a: String # no }", "schema.pg:1: '# no }' can't be read here"),
        ("node P { a: enum(x y", "expected a value"),
        ("node P { a: Vector(x) }", "expected a number"),
        ("node P { @key( }", "expected a property"),
    ],
)
def test_a_mistake_is_found_where_it_is(text, message):
    """With file and line."""
    with pytest.raises(ValidationError) as caught:
        read_omnigraph(text)
    assert message in caught.value.fields[0].message


@pytest.mark.parametrize("text", ["(" * 5000, "not { " * 5000, "$p.a in " + "[" * 5000])
def test_deep_nesting_is_refused(text):
    """It neither crashes nor takes long."""
    query = f"query q() {{ match {{ $p: P  {text} }} return {{ $p }} }}"
    with pytest.raises(ValidationError, match="nested more than"):
        read_omnigraph("node P { a: String }", {"q.gq": query})


def test_texts_can_not_leave_their_quotes():
    """Whatever a text holds, the query says what it said."""
    text = 'x" } DELETE { ?a ?b ?c } # \\\\'
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    source = f'query q() {{ match {{ $p: P {{ a: "{escaped}" }} }} return {{ $p }} }}'
    query = read_omnigraph("node P { a: String }", {"q.gq": source}).queries[0]
    assert query.text.count("DELETE") == 1
    assert '\\"' in query.text
