"""What projections say of one callable is equal, for any descriptor; an edit in one is found."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp_types.methods import serialize_server_result

from trails import Context, Node, Shape, node_type, predicate, shape
from trails.model.capabilities import (
    Capability,
    CapabilityDescriptor,
    StoredQuery,
    Tool,
    content_version,
)
from trails.model.kinds import KINDS
from trails.model.types import ANY, LIST, MAP, OBJECT, REF, PredicateDescriptor, ValueType
from trails.projections.coherence import (
    CARD,
    CLI,
    MCP,
    OPENAPI,
    PROJECTIONS,
    REST,
    Projection,
    compare,
    describe,
    recognise,
)
from trails.projections.mcp_tools import project_mcp_tool
from trails.projections.openapi import ApiInfo, invocation_route, project_openapi
from trails.projections.thing_description import Card, CardAction, Security, project_card
from trails.projections.tools import (
    ProjectedTools,
    controls_of,
    project_capability,
    project_query,
    query_controls,
)
from trails.registry.registry import Registry, RegistryCell
from trails.request.builtins.declare import field as declare_field
from trails.surfaces.cli.shell.tool_options import describe_tool as describe_command
from trails.surfaces.cli.shell.tool_options import tool_options


@node_type
class Person(Node):
    """A person."""

    name: str


@shape
class Report(Shape):
    """What came of it."""

    total: int
    about: Person | None = None
    lines: list[str] | None = None


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    ["", "A\nB", "{{x}}", '"', "\x00", "\u202e", "[bold]no[/]", "é" * 300]
)


def do_nothing(ctx: Context) -> None:
    """Do nothing."""


def limits_of(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    """Constraints that a field of a kind may have."""
    row = KINDS[kind]
    options: list[dict[str, Any]] = [{}]
    if row.text:
        options += [{"min_length": 1}, {"max_length": 9, "pattern": "^a"}]
    if row.quantity and kind == "Int":
        options += [{"min_value": 1, "max_value": 5}, {"one_of": (1, 2, 3)}]
    if kind == "String":
        options.append({"one_of": ("a", "b", "ü")})
    return st.sampled_from(options)


@st.composite
def fields(draw: st.DrawFn, name: str) -> PredicateDescriptor:
    """A parameter of any kind: a value, a list, a reference, an object or any JSON."""
    required = draw(st.booleans())
    said: dict[str, Any] = {"required": required}
    kind = draw(st.sampled_from(["String", "Int", "Float", "Bool", "Date", "Decimal", REF, OBJECT]))
    target = {REF: "Person", OBJECT: "Report"}.get(kind)
    if target is None:
        said |= draw(limits_of(kind))
        if kind == "String" and "one_of" not in said and "pattern" not in said:
            said |= draw(st.sampled_from([{}, {"default": "x"}])) if not required else {}
    many = kind != OBJECT and draw(st.booleans())
    if many:
        said |= draw(st.sampled_from([{}, {"max_count": 3}]))
        said.pop("default", None)
    return declare_field(name, draw(TEXTS), kind, target=target, many=many, **said)


OUTPUTS = st.none() | st.builds(
    lambda scalar, many, null: (
        ValueType(LIST, item=scalar, nullable=null)
        if many
        else msgspec.structs.replace(scalar, nullable=null)
    ),
    st.sampled_from(
        [
            *(ValueType(kind) for kind in ("String", "Int", "Bool", "Date")),
            ValueType(REF, target="Person"),
            ValueType(OBJECT, target="Report"),
            ValueType(ANY),
            ValueType(MAP),
        ]
    ),
    st.booleans(),
    st.booleans(),
)


@st.composite
def capabilities(draw: st.DrawFn, name: str) -> Capability:
    """A capability with any descriptor."""
    names = draw(st.lists(st.sampled_from(["a", "b", "c_d", "text"]), unique=True, max_size=4))
    made = CapabilityDescriptor(
        name,
        "",
        draw(TEXTS),
        tuple(draw(fields(each)) for each in names),
        draw(OUTPUTS),
        side_effects=draw(st.sampled_from([(), ("none",), ("mail",)])),
        cost=draw(st.sampled_from([{}, {"usd": 0.5}])),
        idempotent=draw(st.booleans()),
        deprecates=draw(st.sampled_from([(), ("old.one",)])),
        assurance=draw(st.sampled_from(["", "tested"])),
        consent_required=draw(st.booleans()),
    )
    return Capability(msgspec.structs.replace(made, version=content_version(made)), do_nothing)


@st.composite
def queries(draw: st.DrawFn, name: str) -> StoredQuery:
    """A stored query with any header."""
    names = draw(st.lists(st.sampled_from(["a", "b"]), unique=True, max_size=2))
    return StoredQuery(
        name,
        draw(TEXTS),
        "SELECT ?s { ?s ?p ?o }",
        tuple(draw(fields(each)) for each in names),
        mutation=draw(st.booleans()),
    )


@st.composite
def registries(draw: st.DrawFn) -> Registry:
    """A registry with a few of each."""
    return RegistryCell().register(
        types=[Person],
        shapes=[Report],
        capabilities=[draw(capabilities(f"do.x{at}")) for at in range(draw(st.integers(1, 3)))],
        queries=[draw(queries("find_it"))],
    )


INFO = ApiInfo(title="T", version="1", description="", registry="digest")


def documents_of(registry: Registry) -> list[tuple[Projection, dict[str, Any]]]:
    """Every projection of a registry, after a trip over its wire."""
    sources = [*registry.capabilities.values(), *registry.queries.values()]
    actions = [CardAction(tool_of(registry, each), each) for each in sources]
    tools = [each.tool for each in actions]
    routes = [invocation_route("/graphs/main", each) for each in actions]
    card = Card("T", "main", "https://t/", "1", "digest", actions, registry.schema)
    listed = {"tools": [project_mcp_tool(each) for each in tools], "resultType": "complete"}
    whole = json.dumps(listed)
    found: list[tuple[Projection, object]] = [
        *(
            (MCP, serialize_server_result("tools/list", revision, {**json.loads(whole), **extra}))
            for revision, extra in (
                ("2025-06-18", {}),
                ("2026-07-28", {"ttlMs": 0, "cacheScope": "private"}),
            )
        ),
        (CARD, project_card(card, "https://t/", Security())),
        (OPENAPI, project_openapi(INFO, routes, "https://t/", Security())),
        (REST, {"capabilities": tools, "registry": "digest"}),
        (CLI, {"tools": tools}),
    ]
    return [(kind, msgspec.json.decode(msgspec.json.encode(each))) for kind, each in found]


def tool_of(registry: Registry, source: Capability | StoredQuery) -> Tool:
    """The tool of a capability or stored query."""
    if isinstance(source, StoredQuery):
        return project_query(source, registry, {"type": "object"})
    return project_capability(source, registry)


def expected_of(registry: Registry) -> dict[str, Any]:
    """What descriptors say."""
    sources = [*registry.capabilities.values(), *registry.queries.values()]
    return {each.id: each for each in (describe(source, registry) for source in sources)}


@pytest.mark.req("W4")
@settings(max_examples=60, deadline=None)
@given(registries())
def test_every_projection_says_what_the_descriptor_says(registry):
    """Of id, description, idempotence, arguments and result, whatever they are."""
    expected = expected_of(registry)
    documents = documents_of(registry)
    assert {kind for kind, _ in documents} == set(PROJECTIONS)
    for kind, document in documents:
        assert list(compare(kind, expected, document)) == []
        assert recognise(document) == (kind, document)
    for source in registry.capabilities.values():
        said, given = expected[source.id], source.descriptor
        needed = [each.name for each in given.input_shape if each.required and not each.default]
        assert said.input.get("required", []) == sorted(needed)
        assert {each.name for each in given.input_shape} <= set(said.input["properties"])
        for each in given.input_shape:
            assert (
                said.input["properties"][each.name]
                .get("description", "")
                .startswith(each.description)
            )
        assert (said.description, said.idempotent) == (
            given.description,
            given.idempotent or given.side_effects == ("none",),
        )


@pytest.mark.req("W4")
@settings(max_examples=40, deadline=None)
@given(registries())
def test_a_command_has_the_arguments_of_its_descriptor(registry):
    """Its options are the fields, required where they are; nothing else but the controls."""
    sources = [*registry.capabilities.values(), *registry.queries.values()]
    for source in sources:
        tool = tool_of(registry, source)
        is_query = isinstance(source, StoredQuery)
        fields = source.params if is_query else source.descriptor.input_shape
        controls = query_controls(source) if is_query else controls_of(source)
        options = tool_options(tool.input_schema)
        assert {(each.spelled, each.required) for each in options} == {
            *((f"--{each.name.replace('_', '-')}", is_needed(each)) for each in fields),
            *((f"--{each.name.replace('_', '-')}", False) for each in controls),
        }
        shown = "\n".join(describe_command(tool.name, tool.description, tool.input_schema))
        assert all(each.spelled in shown for each in options)


def is_needed(field: PredicateDescriptor) -> bool:
    """Whether a call must give a field."""
    return field.required and field.default is None


EDITS = {
    "description": {"description": "Edited by hand."},
    "idempotent": {
        "annotations": {"idempotentHint": None},
        "idempotent": None,
        "hints": None,
        "x-trails-idempotent": None,
    },
    "input": {
        "inputSchema": {"type": "array"},
        "input": {},
        "input_schema": {"type": "array"},
        "requestBody": {},
    },
    "output": {
        "outputSchema": {"type": "array"},
        "output": {},
        "output_schema": {"type": "x"},
        "responses": {},
    },
}


@pytest.mark.req("W4")
@pytest.mark.req("W6")
@settings(max_examples=60, deadline=None)
@given(registries(), st.data())
def test_an_edit_of_any_projection_is_found(registry, data):
    """Named with capability and field; so is one that is lacking, new or there twice."""
    expected = expected_of(registry)
    kind, document = data.draw(st.sampled_from(documents_of(registry)))
    name = data.draw(st.sampled_from(sorted(expected)))
    field = data.draw(st.sampled_from([*EDITS, "gone", "new", "twice"]))
    entries = entries_of(kind, document)
    entry = entries[name]
    if field in EDITS:
        for key, value in EDITS[field].items():
            if key in entry:
                entry[key] = edited(kind, entry, key, value)
        assert [(each.name, each.field) for each in compare(kind, expected, document)] == [
            (name, field)
        ]
        return
    if field == "gone":
        remove(kind, document, name)
    elif field == "new":
        add(kind, document, "new.one", entry)
    elif kind is not CARD:
        add(kind, document, name, entry)
    found = [(each.name, each.field) for each in compare(kind, expected, document)]
    wanted = {"gone": name, "new": "new.one", "twice": name}[field]
    assert found == ([] if field == "twice" and kind is CARD else [(wanted, "")])


def edited(kind: Projection, entry: dict[str, Any], key: str, value: object) -> object:
    """Another value of a member; flags are turned."""
    if key in {"idempotent", "x-trails-idempotent"}:
        return not entry[key]
    if key == "hints":
        return {**entry["hints"], "idempotent": not entry["hints"]["idempotent"]}
    if key == "annotations":
        hints = entry["annotations"]
        return {**hints, "idempotentHint": not hints.get("idempotentHint", hints["readOnlyHint"])}
    return value


def entries_of(kind: Projection, document: dict[str, Any]) -> dict[str, Any]:
    """The entries themselves, to be edited."""
    if kind is CARD:
        return document["actions"]
    if kind is OPENAPI:
        return {each["post"]["x-trails-tool"]: each["post"] for each in document["paths"].values()}
    listed = document["capabilities" if kind is REST else "tools"]
    return {each["name"]: each for each in listed}


def remove(kind: Projection, document: dict[str, Any], name: str) -> None:
    """Take an entry out."""
    if kind is CARD:
        del document["actions"][name]
    elif kind is OPENAPI:
        paths = document["paths"]
        kept = {k: v for k, v in paths.items() if v["post"]["x-trails-tool"] != name}
        document["paths"] = kept
    else:
        key = "capabilities" if kind is REST else "tools"
        document[key] = [each for each in document[key] if each["name"] != name]


def add(kind: Projection, document: dict[str, Any], name: str, entry: dict[str, Any]) -> None:
    """Put another entry in."""
    if kind is CARD:
        document["actions"][name] = entry
    elif kind is OPENAPI:
        document["paths"]["/x/invoke/again"] = {"post": {**entry, "x-trails-tool": name}}
    else:
        document["capabilities" if kind is REST else "tools"].append({**entry, "name": name})


@pytest.mark.req("W2")
@settings(max_examples=20, deadline=None)
@given(registries())
def test_projections_are_pure(registry):
    """The same registry gives the same bytes, in any order of declaration, and stays as it was."""
    before = registry.digest
    again = RegistryCell().register(
        types=[Person],
        shapes=[Report],
        capabilities=reversed(registry.capabilities.values()),
        queries=registry.queries.values(),
    )
    first, second = documents_of(registry), documents_of(again)
    assert json.dumps([each for _, each in first]) == json.dumps([each for _, each in second])
    assert registry.digest == before == again.digest


@shape(target=Person)
class Named(Shape):
    """What a person must have."""

    name: str = predicate(min_length=2)


def register(cell: RegistryCell, description: str, **more: Any) -> Registry:
    """A registry with two capabilities, one of them with another description."""
    fields = (declare_field("person", "Who.", OBJECT, target="Person", required=True),)
    made = [
        CapabilityDescriptor("people.add", "", description, fields),
        CapabilityDescriptor("people.drop", "", "Drop one.", fields),
    ]
    versioned = [msgspec.structs.replace(each, version=content_version(each)) for each in made]
    own = [Capability(each, do_nothing) for each in versioned]
    return cell.register(types=[Person], capabilities=own, **more)


@pytest.mark.req("W2")
def test_a_cached_tool_is_of_the_current_descriptor_and_types():
    """Kept where neither has changed, made again where one of them has."""
    cell = RegistryCell()
    first = register(cell, "Add one.")
    tools = ProjectedTools(first)
    names = ("people.add", "people.drop")
    before = [tools.of(first.capabilities[each]) for each in names]
    second = register(cell, "Add somebody.")
    tools = ProjectedTools(second, tools)
    changed, kept = (tools.of(second.capabilities[each]) for each in names)
    assert changed.description == "Add somebody."
    assert kept is before[1]
    third = register(cell, "Add somebody.", shapes=[Named])
    tools = ProjectedTools(third, tools)
    for each in names:
        capability = third.capabilities[each]
        assert tools.of(capability) == project_capability(capability, third)
        assert "When saved, name must" in str(tools.of(capability).input_schema)
    assert tools.of(third.capabilities["people.drop"]) != kept
    back = register(cell, "Add one.")  # an earlier version comes back
    assert ProjectedTools(back, tools).of(back.capabilities["people.add"]).description == "Add one."
