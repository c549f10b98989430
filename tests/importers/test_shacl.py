"""SHACL shapes, as types; our own export comes back as what it was."""

import pyoxigraph as ox
import pytest

from trails import App, Node, Ref, node_type, predicate
from trails.authoring.specs import describe_types
from trails.errors import ValidationError
from trails.importers.shacl import ShaclValue, read_shacl
from trails.model.types import Schema
from trails.projections.shacl import project_shacl

SHAPES = """
@prefix sh: <http://www.w3.org/ns/shacl#> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix ex: <https://example.org/> .

ex:Agent a rdfs:Class, sh:NodeShape .
ex:Person a rdfs:Class ; rdfs:subClassOf ex:Agent ; rdfs:comment "A person." .
ex:PersonShape a sh:NodeShape ; sh:targetClass ex:Person ;
  sh:property [ sh:path ex:fullName ; sh:datatype xsd:string ; sh:minCount 1 ; sh:maxCount 1 ;
                sh:minLength 2 ; sh:pattern "^[A-Z]" ; sh:description "The whole name." ] ;
  sh:property [ sh:path ex:age ; sh:datatype xsd:integer ; sh:maxCount 1 ; sh:minInclusive 0 ;
                sh:maxInclusive 150 ] ;
  sh:property [ sh:path ex:status ; sh:in ("open" "done") ; sh:maxCount 1 ;
                sh:defaultValue "open" ] ;
  sh:property [ sh:path ex:knows ; sh:class ex:Person ] ;
  sh:property [ sh:path ex:employer ; sh:node ex:CompanyShape ; sh:maxCount 1 ] ;
  sh:property [ sh:path ex:homepage ; sh:nodeKind sh:IRI ; sh:maxCount 1 ] ;
  sh:property [ sh:path ex:born ; sh:datatype xsd:date ; sh:maxCount 1 ;
                sh:lessThan ex:died ] ;
  sh:property [ sh:path ( ex:knows ex:age ) ; sh:maxCount 3 ] .
ex:CompanyShape a sh:NodeShape ; sh:targetClass ex:Company ;
  sh:property [ sh:path ex:vat ; sh:datatype ex:Vat ; sh:maxCount 1 ] .
ex:Loose a sh:NodeShape .
"""


def statements(text):
    """The statements of a text in Turtle, as the sandbox gives them."""

    def spelled(term):
        return f"_:{term.value}" if isinstance(term, ox.BlankNode) else term.value

    for each in ox.parse(text, format=ox.RdfFormat.TURTLE):
        literal = isinstance(each.object, ox.Literal)
        kind = each.object.datatype.value if literal else None
        value = each.object.value if literal else spelled(each.object)
        yield spelled(each.subject), each.predicate.value, ShaclValue(value, kind)


@pytest.fixture(scope="module")
def imported():
    """What comes of the shapes."""
    return read_shacl(statements(SHAPES))


@pytest.fixture(scope="module")
def types(imported):
    """As descriptors."""
    return describe_types(imported.types, Schema())


def test_shapes_are_types(types):
    """With the IRIs of their classes, and what they extend."""
    assert sorted(types) == ["Agent", "Company", "Person"]
    person = types["Person"]
    assert (person.extends, person.iri) == ("Agent", "https://example.org/Person")
    assert person.description == "A person."


@pytest.mark.parametrize(
    ("field", "kind", "said"),
    [
        ("fullName", "String", {"min_count": 1, "min_length": 2, "pattern": "^[A-Z]"}),
        ("fullName", "String", {"iri": "https://example.org/fullName"}),
        ("age", "Int", {"min_value": 0, "max_value": 150, "min_count": 0}),
        ("status", "String", {"one_of": ("open", "done"), "default": "open"}),
        ("knows", "List[Ref[Person]]", {"ordered": False}),
        ("employer", "Ref[Company]", {}),
        ("homepage", "Iri", {}),
        ("born", "Date", {}),
    ],
)
def test_a_property_is_a_field_with_its_rules(types, field, kind, said):
    """Each constraint that has a counterpart."""
    found = types["Person"].by_name[field]
    assert str(found.type) == kind
    for name, value in said.items():
        assert getattr(found, name) == value, name


def test_what_has_no_counterpart_is_noted(imported):
    """By its place."""
    text = " ".join(f"{each.where}: {each.message};" for each in imported.notes)
    for part in ("Person.born: sh:lessThan", "several steps", "Loose: a shape without", "Vat"):
        assert part in text


def test_our_own_shapes_come_back(tmp_path):
    """What is exported is imported with the same fields, rules and references."""

    @node_type
    class Team(Node):
        """A team."""

        name: str = predicate(key=True, min_length=2)

    @node_type
    class Player(Node):
        """A player."""

        number: int = predicate(min_value=1, max_value=99)
        team: Ref[Team] | None = predicate()
        friends: list[Ref["Player"]] = predicate(max_count=5)
        nick: str | None = predicate(pattern="^[a-z]+$", max_length=9)
        kind: str = predicate(one_of=["a", "b"])

    app = App(Team, Player)
    names = app.graph().names
    text = project_shacl(app.registry().schema, names)
    found = describe_types(read_shacl(statements(text), names.vocabulary).types, Schema())
    for declared in app.registry().schema.types:
        back = found[declared.name]
        assert (back.iri, back.description) == (declared.iri, declared.description)
        for field in declared.fields:
            got = back.by_name[field.name]
            for what in ("type", "iri", "min_count", "max_count", "min_length", "max_length"):
                assert getattr(got, what) == getattr(field, what), (field.name, what)
            for what in ("pattern", "min_value", "max_value"):
                assert getattr(got, what) == getattr(field, what), (field.name, what)
            assert set(got.one_of or ()) == set(field.one_of or ())


def test_a_file_without_shapes_is_refused():
    """With the reason."""
    with pytest.raises(ValidationError) as caught:
        read_shacl([])
    assert "no node shape with a target class" in caught.value.fields[0].message
