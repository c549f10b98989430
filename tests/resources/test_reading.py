"""Reading instances and lists by URI, on a real graph."""

import json

import pytest

from trails import App, Node, node_type, predicate
from trails.model.actors import LOCAL
from trails.model.outcomes import Failure
from trails.request.reading import Reader


@node_type
class Requirement(Node):
    """Something the product must do."""

    req_id: str = predicate(key=True)
    title: str = predicate()
    status: str = predicate(one_of=["proposed", "accepted"])
    priority: int | None = predicate()


@pytest.fixture
def app():
    """Three requirements."""
    with App(Requirement) as app:
        ctx = app.context()
        for number, status in enumerate(["proposed", "accepted", "proposed"]):
            Requirement(
                req_id=f"REQ-{number}", title=f"Title {number}", status=status, priority=number
            ).save(ctx)
        yield app


@pytest.fixture
def reader(app):
    """Its reader."""
    return Reader(app.service())


async def body(reader: Reader, uri: str) -> object:
    """The first document of a read, which succeeds."""
    contents = await reader.read(LOCAL, uri)
    assert not isinstance(contents, Failure), contents
    return json.loads(contents[0].text)


def read(reader: Reader, uri: str) -> object:
    """The same, from a test that is not a coroutine."""
    import asyncio

    return asyncio.run(body(reader, uri))


def test_a_type_lists_its_instances(reader):
    """A list is an array of iri and label."""
    assert read(reader, "trails://kg/Requirement")[0] == {
        "iri": "trails://app/main/Requirement/REQ-0",
        "label": "Title 0",
    }


def test_an_instance_reads_by_handle_and_by_its_own_iri(reader):
    """Both names of an instance give the same document."""
    by_handle = read(reader, "trails://kg/Requirement/REQ-1")
    assert by_handle["@id"] == "trails://app/main/Requirement/REQ-1"
    assert read(reader, by_handle["@id"]) == by_handle
