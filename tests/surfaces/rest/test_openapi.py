"""The OpenAPI document says what is served, and what is served does what it says."""

import json
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import jsonschema
import msgspec
import pytest
from openapi_spec_validator import validate
from tests.surfaces.rest.test_routes import note
from tests.worlds.clients import RestClient
from tests.worlds.processes import Web
from tests.worlds.projects import NOTES, NOTES_QUERIES, PERMIT_ALL, give_token, make_project

from trails.app.kernels import kernel_of
from trails.model.actors import OPERATOR
from trails.model.capabilities import SCOPES
from trails.projections.openapi import example_of, without_null
from trails.projections.results import struct_types
from trails.projections.thing_description import Security
from trails.request.builtins.sparql import MEDIA_TYPES
from trails.request.operations import OPERATIONS
from trails.request.transfers import TRANSFERS
from trails.surfaces.rest.openapi import describe_server
from trails.surfaces.rest.routes import build_routes
from trails.surfaces.rest.sparql import FORMATS

CONFIG = """
[checks.negative_data_rejection]
expected-statuses = [400, 403, 404, 405, 406, 409, 410, 412, 413, 414, 415, 416, 422, 428, 429]
"""

CHECKS = """not_a_server_error,status_code_conformance,content_type_conformance,\
response_schema_conformance,negative_data_rejection"""


@pytest.fixture(scope="module")
def document(client):
    """The document of a server with one graph."""
    client.post("mutate", {"operations": [note("a"), note("b", stars=2)]})
    return json.loads(client.send("GET", "/openapi.json").body)


@pytest.fixture(scope="module")
def complete(project):
    """The document for a caller with every scope."""
    kernel = kernel_of(project)
    made = describe_server([kernel.card(OPERATOR)], "http://127.0.0.1", Security())
    kernel.close()
    return json.loads(msgspec.json.encode(made))


def test_what_needs_a_scope_is_described_to_callers_that_have_it(document, complete):
    """And to nobody else."""
    needs = {f"/graphs/{{graph}}/{each.routes[0].path}" for each in OPERATIONS if each.meta}
    assert needs
    assert needs <= complete["paths"].keys()
    assert not needs & document["paths"].keys()


def operations(document):
    """Every operation of a document."""
    for path, methods in document["paths"].items():
        for method, each in methods.items():
            yield method.upper(), path, each


@pytest.mark.parametrize("which", ["document", "complete"])
def test_the_document_is_valid(which, request):
    """By an independent validator; every operation has a name of its own."""
    document = request.getfixturevalue(which)
    validate(document)
    names = [each["operationId"] for *_, each in operations(document)]
    assert len(names) == len(set(names))
    assert document["openapi"] == "3.1.0"


def test_every_route_is_described_and_nothing_else(complete):
    """Those of the server itself, and those of every graph."""
    served = set()
    for route in build_routes({}):
        path = route.path.replace(":path}", "}")
        served |= {(method, path) for method in route.app.methods - {"HEAD"}}
    general = {
        (method, path) for method, path, _ in operations(complete) if "/graphs/main/" not in path
    }
    # A branch may be called merge: its routes are those of any branch.
    assert served - general == {("DELETE", "/graphs/{graph}/branches/merge")}
    assert general <= served


def test_every_operation_says_what_it_gives(complete):
    """A struct with named members: never an object of which nothing is known."""
    for each in (*OPERATIONS, *TRANSFERS):
        for struct in struct_types(each.result):
            assert struct.__doc__
    schemas = complete["components"]["schemas"]
    for each in OPERATIONS:
        for struct in struct_types(each.result) if each.routes else ():
            assert schemas[struct.__name__]["properties"]


def test_the_formats_of_sparql_are_those_that_are_served():
    """The declaration lists what the protocol's handler can write."""
    served = [each.media_type.partition(";")[0] for kind in FORMATS.values() for each in kind]
    assert list(MEDIA_TYPES) == served


def test_capabilities_queries_and_types_have_routes_of_their_own(document, client):
    """With the schemas that they have as tools."""
    listed = {
        each["name"]: each
        for each in client.get("capabilities")["capabilities"]
        if "." in each["name"]
    }
    paths = document["paths"]
    for name, tool in listed.items():
        body = paths[f"/graphs/main/invoke/{name}"]["post"]["requestBody"]
        schema = body["content"]["application/json"]["schema"]
        own = tool["input_schema"]["properties"].keys()
        assert schema["properties"].keys() == own | tool["controls"].keys()
        assert bool(tool["controls"]) is not tool["hints"]["read_only"]
    assert paths["/graphs/main/kg/Note"]["get"]["operationId"] == "list_Note"
    found = paths["/graphs/main/kg/Note/{id}"]["get"]["responses"]["200"]["content"]
    assert "title" in found["application/json"]["schema"]["properties"]


def test_examples_are_right(document):
    """Each passes the schema that it is an example of."""
    shown = 0
    for *_, each in operations(document):
        content = each.get("requestBody", {}).get("content", {}).get("application/json", {})
        if "example" in content:
            jsonschema.validate(content["example"], content["schema"])
            shown += 1
    assert shown > 10


@pytest.mark.parametrize(
    ("schema", "example"),
    [
        ({"type": "object", "required": ["a"], "properties": {"a": {"type": "string"}}}, "text"),
        ({"required": ["a"], "properties": {"a": {"enum": ["x"]}}, "type": "object"}, "x"),
        ({"required": ["a"], "properties": {"a": {"pattern": "[0-9]"}}, "type": "object"}, None),
    ],
)
def test_an_example_is_made_up_only_where_it_can_be(schema, example):
    """A pattern can't be guessed."""
    found = example_of(schema)
    assert found == (None if example is None else {"a": example})


def test_a_parameter_is_never_null():
    """What is left out has no value in a query string."""
    assert without_null({"type": ["string", "null"], "enum": ["a", None]}) == {
        "type": "string",
        "enum": ["a"],
    }
    assert without_null({"anyOf": [{"type": "null"}, {"type": "integer"}]}) == {"type": "integer"}


def test_the_document_says_which_registry_it_is_of(document, client):
    """By its digest, as on every other wire."""
    assert document["info"]["x-trails-registry"] == client.get("capabilities")["registry"]


@pytest.fixture
def web(tmp_path):
    """A real server of a project with some notes."""
    folder = make_project(
        tmp_path, NOTES, queries=NOTES_QUERIES, policies={"all.cedar": PERMIT_ALL}
    )
    token = give_token(folder, scopes=SCOPES)
    with Web(folder, env={"TRAILS_MCP_SCOPES": ",".join(SCOPES)}) as opened:
        RestClient(urlsplit(opened.url).port, token).post(
            "mutate", {"operations": [note("a"), note("b", stars=2)]}
        )
        opened.token = token
        yield opened


def fuzz(web, tmp_path: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Run schemathesis on all operations that end by themselves."""
    config = tmp_path / "schemathesis.toml"
    config.write_text(CONFIG)
    return subprocess.run(
        [
            Path(sys.executable).parent / "st",
            "--config-file",
            config,
            "run",
            f"{web.url.rstrip('/')}/openapi.json",
            f"--checks={CHECKS}",
            f"--header=Authorization: Bearer {web.token}",
            "--exclude-path-regex=changes$",
            "--no-color",
            "--generation-database=none",
            *more,
        ],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )


def test_what_is_served_conforms(web, tmp_path):
    """No server error, responses match their schemas, and requests that do not are refused."""
    ran = fuzz(web, tmp_path, "--phases=examples,coverage", "--max-examples=1", "--seed=1")
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]


@pytest.mark.long
def test_what_is_served_conforms_in_many_ways(web, tmp_path):
    """The same with many random requests, one after the other and in sequences."""
    ran = fuzz(web, tmp_path, "--phases=fuzzing,stateful", "--max-examples=200")
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
