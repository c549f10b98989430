"""Resources as the official MCP client finds them: both doors, lines, several revisions."""

import asyncio
import json

import pytest
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceTemplateReference
from tests.worlds.mcp_clients import connect, serve_http
from tests.worlds.surfaces import LEGACY, MODERN

from trails.app.kernels import kernel_of

WAYS = [
    ("fast", MODERN),
    ("fast", "2025-11-25"),
    ("sdk", MODERN),
    ("sdk", "2025-03-26"),
    ("stream", "2024-11-05"),
    ("stream", MODERN),
]
XSD = "http://www.w3.org/2001/XMLSchema#"


@pytest.fixture(scope="module")
def kernel(northline):
    """The kernel of the example application."""
    kernel = kernel_of(northline.app)
    yield kernel
    kernel.close()


@pytest.fixture(scope="module")
def urls(kernel):
    """A server with the fast door, and one without it."""
    with serve_http(kernel) as fast, serve_http(kernel, fast=False) as slow:
        yield {"fast": fast, "sdk": slow, "stream": ""}


@pytest.fixture(params=WAYS, ids=["-".join(way) for way in WAYS])
def talk(request, kernel, urls, monkeypatch):
    """Run a scenario with a client that is connected in one of the ways."""
    transport, revision = request.param
    if revision in LEGACY:
        monkeypatch.setattr("mcp.client.session.LATEST_HANDSHAKE_VERSION", revision)

    def run(scenario):
        async def main():
            async with connect(transport, revision, kernel, urls[transport]) as client:
                await asyncio.wait_for(scenario(client), 30)

        asyncio.run(main())

    return run


async def read(client, uri: str):
    """A document, decoded."""
    return json.loads((await client.read_resource(uri)).contents[0].text)


async def refusal(client, uri: str):
    """The error with which a read is answered."""
    with pytest.raises(MCPError) as refused:
        await client.read_resource(uri)
    return refused.value.error


@pytest.mark.req("T9", "T22", "G18")
def test_a_client_discovers_what_can_be_read(talk, northline):
    """Types and documents are listed, and templates say how to reach instances."""

    async def scenario(client):
        listed = (await client.list_resources()).resources
        uris = [each.uri for each in listed]
        for name in northline.app.registry().types:
            umbrella = listed[uris.index(f"trails://kg/{name}")]
            assert umbrella.description.startswith(f"List all {name} instances")
            assert "one notification for every change" in umbrella.description
        for document in ("schema", "kg/types", "stats", "doctor", "prov/latest", "branches"):
            assert f"trails://{document}" in uris
        assert not any("REQ-" in uri for uri in uris)
        found = (await client.list_resource_templates()).resource_templates
        templates = [each.uri_template for each in found]
        assert "trails://kg/Requirement{?where,limit,offset,cursor}" in templates
        assert "trails://kg/Requirement/{id}" in templates
        assert "trails://queries/{name}" in templates

    talk(scenario)


@pytest.mark.req("T10")
def test_a_client_pages_through_a_list(talk, northline):
    """Following the URIs that the pages give, a client meets every instance once, in order."""
    everything = northline.body("trails://kg/Requirement?limit=1000")

    async def scenario(client):
        seen, uri = [], "trails://kg/Requirement?limit=40"
        while uri:
            contents = (await client.read_resource(uri)).contents
            seen += json.loads(contents[0].text)
            uri = contents[1].uri if len(contents) > 1 else None
            assert all(each.mime_type == "text/plain" and uri in each.text for each in contents[1:])
        assert seen == everything
        assert len(seen) == 88
        assert await read(client, "trails://kg/Requirement?limit=40&offset=80") == seen[80:]
        error = await refusal(client, "trails://kg/Requirement?limit=1001")
        assert error.code == -32602
        assert error.data["fields"][0]["field"] == "limit"

    talk(scenario)


@pytest.mark.req("T11")
def test_a_client_reads_an_instance(talk, northline):
    """An instance is JSON-LD, by its handle and by its own IRI alike."""

    async def scenario(client):
        contents = (await client.read_resource("trails://kg/Requirement/REQ-001")).contents
        assert [each.mime_type for each in contents] == ["application/ld+json"]
        document = json.loads(contents[0].text)
        assert document == await read(client, document["@id"])
        words = northline.app.graph().names.vocabulary
        assert document["@type"] == [words + "Requirement"]
        assert document[words + "priority"] == {"@value": "1", "@type": XSD + "integer"}

    talk(scenario)


@pytest.mark.req("T12")
def test_a_client_is_told_what_is_wrong_with_a_filter(talk):
    """A wrong value is an invalid parameter whose data says what was expected."""

    async def scenario(client):
        error = await refusal(client, "trails://kg/Requirement?where=priority=high")
        assert error.code == -32602
        said = {name: error.data[name] for name in ("field", "reason", "expected_datatype")}
        assert said == {
            "field": "priority",
            "reason": "type_mismatch",
            "expected_datatype": "xsd:integer",
        }
        for uri in (
            "trails://kg/Requirement?where=priority>1",
            "trails://kg/Requirement?where=status=x%22",
            "trails://kg/Requirement?where=status=x%0Ay",
            "trails://kg/Requirement?where=status=x%5C",
            "trails://kg/Requirement?where=a=1&where=b=2",
            "trails://kg/Requirement?where=nope=1",
        ):
            assert (await refusal(client, uri)).code == -32602

    talk(scenario)


@pytest.mark.req("T20")
def test_a_clients_filter_equals_the_orm(talk, northline):
    """What a client reads with a filter is what the ORM finds."""
    ctx = northline.app.context()
    requirement = northline.app.registry().classes["Requirement"]

    async def scenario(client):
        for status in ("proposed", "accepted", "rejected"):
            found = await read(client, f"trails://kg/Requirement?where=status={status}")
            wanted = requirement.objects(ctx).where(status=status)
            assert found == [
                {"iri": ctx.kg.iri(each.handle), "label": each.title} for each in wanted
            ]

    talk(scenario)


@pytest.mark.req("T22", "G18")
def test_a_client_reads_the_documents(talk, northline):
    """Schema, types, statistics, health, provenance, branches and queries are JSON."""

    async def scenario(client):
        counts = {each["type"]: each["count"] for each in await read(client, "trails://kg/types")}
        assert counts["Requirement"] == 88
        assert (await read(client, "trails://stats"))["by_type"] == counts
        types = [each["type"] for each in (await read(client, "trails://schema"))["types"]]
        assert types == sorted(counts)
        assert (await read(client, "trails://doctor"))["healthy"] is True
        assert (await read(client, "trails://branches"))[0]["name"] == "main"
        query = await read(client, "trails://queries/requirement_trace")
        assert query["parameters"]["required"] == ["req_id"]
        latest = await read(client, "trails://prov/latest")
        assert latest["commits"][0]["message"] == "Load Northline"
        newest = latest["activities"][0]
        assert (newest["activity"], newest["agent"]) == ("resources/read", "local")
        assert (newest["outcome"], newest["detail"]) == ("ok", "trails://queries/requirement_trace")

    talk(scenario)


def test_a_client_is_told_what_does_not_exist(talk):
    """What is unknown has the revision's own code, and a message that says what exists."""

    async def scenario(client):
        code = -32602 if client.protocol_version == MODERN else -32002
        for uri in (
            "trails://kg/Requirment",
            "trails://kg/Requirement/REQ-999",
            "trails://branch/nope/schema",
            "trails://at/ffffffff/schema",
            "trails://queries/nope",
            "file:///etc/passwd",
        ):
            error = await refusal(client, uri)
            assert error.code == code
            assert error.data["code"] == "not_found"

    talk(scenario)


def test_a_client_completes_variables(talk):
    """Values for ids and filters come as they are typed."""

    async def scenario(client):
        one = ResourceTemplateReference(type="ref/resource", uri="trails://kg/Requirement/{id}")
        found = await client.complete(one, {"name": "id", "value": "REQ-08"})
        assert found.completion.values == [f"REQ-{number:03}" for number in range(80, 89)]
        some = ResourceTemplateReference(
            type="ref/resource", uri="trails://kg/Requirement{?where,limit,offset,cursor}"
        )
        found = await client.complete(some, {"name": "where", "value": "status=p"})
        assert found.completion.values == ["status=proposed"]

    talk(scenario)
