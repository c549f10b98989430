"""The schema and the entities that policies are checked against and decided on."""

import json
from pathlib import Path

import cedarpy
import pytest
from tests.policies.reference import KNOWN, REGISTRY

from trails.model.decisions import Resource
from trails.policies.vocabulary import graph_world, project_schema, server_schema, server_world

GOLDEN = Path(__file__).parent / "golden"


def entities(world):
    """As JSON, one entity a line."""
    return "".join(json.dumps(each.record()) + "\n" for each in world.entities.values())


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("graph.cedarschema", lambda: project_schema(REGISTRY, "main")),
        ("server.cedarschema", lambda: server_schema(("main", "other"))),
        ("graph.ndjson", lambda: entities(graph_world(REGISTRY, "main"))),
        ("server.ndjson", lambda: entities(server_world(("main", "other")))),
    ],
)
def test_schema_and_entities_are_as_they_were(name, given):
    """The same registry gives the same text, byte for byte."""
    assert given() == (GOLDEN / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("schema", "world"),
    [
        (project_schema(REGISTRY, "main"), graph_world(REGISTRY, "main")),
        (server_schema(("main",)), server_world(("main",))),
    ],
    ids=["graph", "server"],
)
def test_entities_are_what_the_schema_says(schema, world):
    """Cedar itself finds the schema sound and the entities fitting."""
    records = [each.record() for each in world.entities.values()]
    handle = cedarpy.Entities.from_json_str(json.dumps(records), cedarpy.Schema.from_str(schema))
    assert len(handle) >= len(records)


def test_a_type_is_part_of_what_it_extends():
    """Inherited fields are part of the type that has them and of the field they come from."""
    above = KNOWN.world.above(Resource("Field", "Employee.salary"))
    assert above == {
        Resource("Type", "Employee"),
        Resource("Type", "Person"),
        Resource("Field", "Person.salary"),
        Resource("Graph", "main"),
        Resource("Server", "trails"),
    }
    assert Resource("Field", "Person.desk") not in KNOWN.world.entities
