"""Tools as they are shown, byte for byte."""

import json
import os
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator
from tests.request.conftest import Calls
from tests.request.specimens import (
    OTHER,
    SAID,
    STORED,
    Period,
    Person,
    changed,
    make_add,
    make_matrix,
    make_specimen,
    search,
)

from trails import App
from trails.authoring.predicates import Predicate
from trails.model.actors import LOCAL
from trails.model.capabilities import StoredQuery, Tool
from trails.model.types import PredicateDescriptor, ValueType
from trails.projections.tools import project_capability
from trails.registry.registry import Registry, collect
from trails.request.builtins import BUILTINS, BY_NAME

GOLDEN = Path(__file__).parents[1] / "golden" / "mcp"
UPDATE = os.environ.get("TRAILS_UPDATE_MCP_SNAPSHOTS") == "1"
QUERY = StoredQuery(
    name="people_by_mail",
    description="People whose address holds a text.",
    text="SELECT ?p WHERE { ?p :email ?m FILTER(CONTAINS(?m, $text)) } LIMIT $limit",
    params=(
        PredicateDescriptor("text", ValueType("String"), min_count=1, min_length=1),
        PredicateDescriptor("limit", ValueType("Int", nullable=True), default=20, max_value=100),
        PredicateDescriptor("near", ValueType("Ref", target="Person", nullable=True)),
    ),
    columns=("p",),
)
NAMES = sorted(
    [
        *(each.name for each in (*BUILTINS, *BY_NAME)),
        "matrix.everything",
        "people_by_mail",
        "research.search",
        "specimens.add",
        "trails_meta_ping",
    ]
)


def shown(tool: Tool) -> str:
    """A tool as its golden file has it."""
    extension: dict[str, object] = {"kind": tool.kind}
    if tool.meta is not None:
        extension |= msgspec.to_builtins(tool.meta) | {"idempotent": tool.hints.idempotent}
    document = {
        "name": tool.name,
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "outputSchema": tool.output_schema,
        "annotations": {
            "readOnlyHint": tool.hints.read_only,
            "destructiveHint": tool.hints.destructive,
            "idempotentHint": tool.hints.idempotent,
            "openWorldHint": tool.hints.open_world,
        },
        "extension": extension,
    }
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


@pytest.fixture(scope="module")
def tools() -> dict[str, Tool]:
    """Every tool of the fixture, both ways to offer stored queries included."""
    specimen = make_specimen(stored())
    found: dict[str, Tool] = {}
    for mode in ("per_query", "meta"):
        app = App(Person, Period, specimen, make_matrix(), make_add(specimen), search)
        mcp = msgspec.structs.replace(app.settings.graphs["main"].mcp, stored_query_mode=mode)
        app.settings.graphs["main"] = msgspec.structs.replace(app.settings.graphs["main"], mcp=mcp)
        app.service().cell.register(queries=[QUERY])
        calls = Calls(app)
        found |= {tool.name: tool for tool in calls.kernel.tools(LOCAL).tools}
        calls.close()
    return found


def stored():
    """What is said of the specimen's fields, with what only stored fields can have."""
    return {name: {**said, **STORED.get(name, {})} for name, said in SAID.items()}


@pytest.mark.req("T18")
@pytest.mark.parametrize("name", NAMES)
def test_a_tool_is_shown_as_its_golden_file_says(tools, name):
    """Byte for byte; ``TRAILS_UPDATE_MCP_SNAPSHOTS=1`` rewrites the files."""
    path = GOLDEN / f"{name}.json"
    text = shown(tools[name])
    if UPDATE:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text


@pytest.mark.req("T18")
def test_every_tool_has_a_golden_file_and_every_golden_file_a_tool(tools):
    """None is forgotten, none is left over."""
    assert sorted(tools) == NAMES == sorted(each.stem for each in GOLDEN.glob("*.json"))


@pytest.mark.req("T18")
def test_the_golden_files_show_every_keyword_and_every_extension_key():
    """What a constraint can become is somewhere in them."""
    text = "".join(each.read_text(encoding="utf-8") for each in GOLDEN.glob("*.json"))
    keywords = "minLength maxLength pattern enum minimum maximum minItems maxItems required items"
    words = "format default additionalProperties trails:node_type description"
    keys = "kind scope namespace op idempotent"
    for word in f"{keywords} {words} {keys}".split():
        assert f'"{word}":' in text, word


@pytest.mark.parametrize("name", NAMES)
def test_schemas_of_tools_are_sound(tools, name):
    """JSON Schema, without references that clients would have to follow."""
    tool = tools[name]
    for schema in (tool.input_schema, tool.output_schema):
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        assert "$ref" not in json.dumps(schema)


# --- nothing that is declared is dropped -----------------------------------------------------


def project(*declared: object) -> str:
    """The fixture's capability, as its tool shows it."""
    found = collect((Person, Period, *declared))
    registry = Registry(types=found.types, shapes=found.shapes, capabilities=found.capabilities)
    return shown(project_capability(found.capabilities[0], registry))


@pytest.mark.req("T15", "T18")
@pytest.mark.parametrize(
    ("field", "argument"),
    [(field, argument) for field, said in OTHER.items() for argument in said],
)
def test_changing_an_argument_of_a_parameter_changes_the_tool(field, argument):
    """Every constraint reaches the schema or its description."""
    said = changed(field, **{argument: OTHER[field][argument]})
    assert project(make_matrix(said)) != project(make_matrix())


@pytest.mark.req("T15", "T18")
@pytest.mark.parametrize(
    ("field", "argument"),
    [
        (field, argument)
        for said in (OTHER, STORED)
        for field, arguments in said.items()
        for argument in arguments
    ],
)
def test_changing_an_argument_of_a_node_type_changes_the_tool_that_takes_it(field, argument):
    """Also what is judged only when it is stored."""
    value = STORED.get(field, {}).get(argument, OTHER[field].get(argument))
    plain, other = make_specimen(), make_specimen(changed(field, **{argument: value}))
    assert project(plain, make_add(plain)) != project(other, make_add(other))


@pytest.mark.req("T18")
def test_every_argument_of_predicate_is_changed_by_some_test():
    """A new one fails here until it is projected."""
    covered = {argument for each in (OTHER, STORED) for said in each.values() for argument in said}
    assert covered == set(Predicate.__struct_fields__)


@pytest.mark.req("T15")
def test_references_and_nodes_are_parameters(tools):
    """A reference is an IRI that names its type; a node type is the object of its fields."""
    matrix = tools["matrix.everything"].input_schema["properties"]
    assert matrix["owner"] == {
        "type": ["string", "null"],
        "format": "iri",
        "trails:node_type": "Person",
        "description": "An existing Person: its IRI, 'Person/id' or key.",
    }
    assert matrix["friends"]["items"]["trails:node_type"] == "Person"
    specimen = tools["specimens.add"].input_schema["properties"]["specimen"]
    assert specimen["type"] == "object"
    assert specimen["required"] == ["code", "title", "rank", "tags", "vector"]
    assert "Unique together: title, rank." in specimen["description"]
