"""Tools as they are shown, byte for byte."""

import inspect
import json
import os
from collections.abc import Callable, Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Final

import msgspec
import pytest
from jsonschema import Draft202012Validator
from tests.worlds.graphs import Calls

from trails import (
    App,
    BigInt,
    Context,
    LangText,
    Node,
    Ref,
    Shape,
    Vector,
    capability,
    node_type,
    predicate,
    shape,
)
from trails.authoring.predicates import Predicate
from trails.model.actors import OPERATOR
from trails.model.capabilities import StoredQuery, Tool
from trails.model.types import PredicateDescriptor, ValueType
from trails.projections.tools import project_capability
from trails.registry.registry import Registry, collect
from trails.request.operations import BUILTINS, BY_NAME

Said = Mapping[str, Mapping[str, object]]


@node_type
class Person(Node):
    """Somebody."""

    email: str = predicate(key=True)


@shape
class Period(Shape):
    """A stretch of time."""

    start: date = predicate(description="The first day.")
    days: int = predicate(min_value=1, default=7)


TYPES: Final[Mapping[str, object]] = {
    "code": str,
    "title": str,
    "status": str,
    "rank": int,
    "ratio": float | None,
    "price": Decimal | None,
    "total": BigInt | None,
    "day": date | None,
    "tags": list[str],
    "done": bool,
    "owner": Ref[Person] | None,
    "friends": list[Ref[Person]],
    "vector": Vector,
    "words": LangText | None,
}
SAID: Final[Said] = {
    "code": {"pattern": "^[A-Z]+$", "min_length": 2, "max_length": 9},
    "title": {"min_length": 3, "max_length": 200, "description": "What it is called."},
    "status": {"one_of": ["open", "closed"], "default": "open"},
    "rank": {"min_value": 1, "max_value": 5, "required": True},
    "ratio": {"min_value": 0.5, "max_value": 1.5},
    "price": {"min_value": "0.50", "max_value": "99.50"},
    "total": {"min_value": "1", "max_value": "100000000000000000000"},
    "day": {"min_value": "2026-01-01", "max_value": "2026-12-31"},
    "tags": {"min_count": 1, "max_count": 3, "one_of": ["a", "b", "c"]},
    "done": {"default": False},
    "owner": {},
    "friends": {"max_count": 2},
    "vector": {"dimension": 3},
    "words": {"max_length": 40},
}
OTHER: Final[Said] = {
    "code": {"pattern": "^[a-z]+$", "min_length": 3, "max_length": 8},
    "title": {
        "min_length": 4,
        "max_length": 100,
        "description": "Its name.",
        "default": "Untitled",
    },
    "status": {"one_of": ["open", "shut"], "default": "closed"},
    "rank": {"min_value": 2, "max_value": 4, "required": False, "one_of": [1, 2]},
    "ratio": {"min_value": 0.6, "max_value": 1.4, "default": 1.0},
    "price": {"min_value": "0.60", "max_value": "99.40"},
    "total": {"min_value": "2", "max_value": "100000000000000000001"},
    "day": {"min_value": "2026-01-02", "max_value": "2026-12-30"},
    "tags": {"min_count": 2, "max_count": 2, "one_of": ["a", "b"]},
    "done": {"default": True, "description": "Whether it is done."},
    "owner": {"description": "Whose it is."},
    "friends": {"max_count": 4, "min_count": 1, "required": True},
    "vector": {"dimension": 4},
    "words": {"max_length": 41},
}
"""Another value for each argument of each field, and for some that it was not given."""
STORED: Final[Said] = {
    "code": {"key": True, "iri": "https://schema.org/sku"},
    "title": {"unique": True, "label": True, "search": True, "iri": "https://schema.org/name"},
    "owner": {"iri": "https://schema.org/owner"},
    "vector": {"metric": "dot"},
    "tags": {"ordered": True},
    "words": {"languages": ["de"]},
}
"""Arguments that mean something for what is stored only."""
SEARCHED: Final[Mapping[str, object]] = {"language": "german", "stop_words": False}
"""Arguments of a text that is searched as English."""


def changed(field: str, **said: object) -> Said:
    """What is said of all fields, with one argument of one of them changed."""
    return {**SAID, field: {**SAID[field], **said}}


def make_matrix(said: Said = SAID) -> Callable[..., object]:
    """A capability with a parameter of each kind."""

    def everything(ctx: Context) -> None:
        """Take one of everything."""

    kind = inspect.Parameter.KEYWORD_ONLY
    annotations = {**TYPES, "vector": Vector}
    everything.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [
            inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Context),
            *(
                inspect.Parameter(
                    name, kind, annotation=annotations[name], default=predicate(**said[name])
                )
                for name in TYPES
            ),
            inspect.Parameter("period", kind, annotation=Period),
            inspect.Parameter("anything", kind, annotation=dict[str, object]),
        ],
        return_annotation=None,
    )
    return capability("matrix.everything")(everything)


def make_specimen(said: Said = SAID) -> type[Node]:
    """A node type with a field of each kind."""
    body = {
        "__doc__": "Something to look at.",
        "__annotations__": dict(TYPES),
        "__module__": __name__,
        **{name: predicate(**said[name]) for name in TYPES},
    }
    return node_type(unique=[("title", "rank")])(type("Specimen", (Node,), body))


def make_add(specimen: type[Node]) -> Callable[..., object]:
    """A capability that takes a node."""

    def add(ctx: Context, specimen):
        """Add a specimen to the collection."""

    add.__annotations__ = {"ctx": Context, "specimen": specimen, "return": specimen}
    return capability("specimens.add", idempotent=True)(add)


@capability("research.search")
async def search(
    ctx: Context,
    query: str = predicate(min_length=1, max_length=500, description="What to look for."),
    limit: int = predicate(min_value=1, max_value=100, default=10),
    author: Ref[Person] | None = None,
) -> list[Person]:
    """Search the collection; the best matches come first."""
    return []


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
        found |= {tool.name: tool for tool in calls.kernel.tools(OPERATOR).tools}
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


@pytest.mark.req("T15", "T18")
@pytest.mark.parametrize("argument", SEARCHED)
def test_changing_how_a_text_is_searched_changes_the_tool_that_takes_it(argument):
    """A caller learns which words are found."""
    english = {"search": True, "language": "english"}
    plain = make_specimen(changed("title", **english))
    other = make_specimen(changed("title", **{**english, argument: SEARCHED[argument]}))
    assert project(plain, make_add(plain)) != project(other, make_add(other))


@pytest.mark.req("T18")
def test_every_argument_of_predicate_is_changed_by_some_test():
    """A new one fails here until it is projected."""
    covered = {argument for each in (OTHER, STORED) for said in each.values() for argument in said}
    assert covered | SEARCHED.keys() == set(Predicate.__struct_fields__)


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
