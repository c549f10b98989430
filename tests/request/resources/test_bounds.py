"""What a model reads by URI is bounded; what is left out is listed with the call that reads it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator

import pytest
from tests.worlds.graphs import Calls

from trails import App, Json, Node, node_type, predicate
from trails.model.actors import LOCAL
from trails.model.results import Failure
from trails.model.uris import Content
from trails.request.admission import KernelOptions
from trails.request.pipeline import Kernel
from trails.views.nodes.select import Selector

LIMIT = 4_000
LONG = 'It was "raining" — 停电了.\n' * 20_000
KEY = "a/b ä"


@node_type
class Note(Node):
    """Something written."""

    name: str = predicate(key=True)
    title: str | None = predicate(label=True)
    body: str | None = predicate()
    words: list[str] = predicate()
    data: Json | None = predicate()
    big: Json | None = predicate()


MANY = [
    node_type(type(f"Type{at:03}", (Node,), {"__doc__": "One of many.", "__module__": "x"}))
    for at in range(80)
]


class World:
    """A graph, read with a small budget."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.kernel = Kernel(app.service(), KernelOptions(max_chars=LIMIT))
        self.calls = Calls(app)

    def read(self, uri: str) -> list[Content]:
        """The contents, which fit."""
        found = asyncio.run(self.kernel.read(LOCAL, uri))
        assert not isinstance(found, Failure), found
        assert sum(len(each.text) for each in found) <= LIMIT, uri
        return list(found)

    def whole(self, uri: str) -> str:
        """What a program gets."""
        found = asyncio.run(self.kernel.read_whole(LOCAL, uri))
        assert not isinstance(found, Failure), found
        return found[0].text

    def rest(self, call: dict) -> str:
        """The text that a call begins to read, to its end."""
        text, following = "", call
        while following is not None:
            window = self.calls.result(following["tool"], following["arguments"])
            text += window["text"]
            following = window.get("next")
        return text


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    """Long texts, many records, branches and types."""
    with App(Note, *MANY, name="acme") as app:
        kg = app.context(actor="test").kg
        kg.save(
            Note(
                name=KEY,
                title="Hello",
                body=LONG,
                words=[f"word {at}" for at in range(3_000)],
                data=Json({"a": [1]}),
                big=Json({"text": LONG[:70_000]}),
            )
        )
        kg.save_all([Note(name=f"n{at:04}", title=f"Title {at} " * 20) for at in range(300)])
        for at in range(100):
            app.versions().create_branch(f"work/{at:03}")
        yield World(app)


@pytest.mark.req("E4", "E7")
@pytest.mark.parametrize("place", ["", "branch/work%2F001/", "at/{head}/"])
def test_a_record_leaves_out_whole_fields(world, place):
    """What is shown is true; each other field has its size, its beginning and a call."""
    place = place.format(head=world.app.context().kg.head.commit)
    uri = f"trails://{place}kg/Note/a%2Fb%20%C3%A4"
    body, note, *_ = world.read(uri)
    shown, whole = json.loads(body.text), json.loads(world.whole(uri))
    assert shown.items() <= whole.items()
    said = json.loads(note.text)["left_out"]
    assert said["notice"].startswith("3 of 6 fields are left out: an answer has at most ")
    fields = {each["field"]: each for each in said["fields"]}
    assert set(fields) == {"body", "words", "big"}
    missing = whole.keys() - shown.keys()
    assert {name.rpartition("#")[2] for name in missing} == set(fields)
    text = fields["body"]
    assert (text["characters"], text["media_type"]) == (len(LONG), "text/plain")
    assert LONG.startswith(text["begins"])
    assert text["begins"]
    assert world.rest(text["read"]) == LONG
    assert json.loads(world.rest(fields["big"]["read"])) == {"text": LONG[:70_000]}
    assert len(json.loads(world.rest(fields["words"]["read"]))) == 3_000


def test_the_smallest_budget_has_a_way_to_go_on(world):
    """At least one field is listed, and a call for the others."""
    kernel = Kernel(world.app.service(), KernelOptions(max_chars=1_000))
    body, note = asyncio.run(kernel.read(LOCAL, "trails://kg/Note/a%2Fb%20%C3%A4"))
    assert len(body.text) + len(note.text) <= 1_000
    said = json.loads(note.text)["left_out"]
    assert len(said["fields"]) + said["more"] >= 3
    record = world.calls.result(said["next"]["tool"], said["next"]["arguments"])
    assert {"body", "words", "big"} <= {each["field"] for each in record["left_out"]}


def test_a_record_that_fits_is_whole(world):
    """As a program gets it."""
    uri = "trails://kg/Note/n0001"
    (content,) = world.read(uri)
    assert content.text == world.whole(uri)


@pytest.mark.req("E4")
def test_pages_have_what_fits(world):
    """Fewer than asked for, if need be; following the URIs gives every instance once."""
    uri, seen = "trails://kg/Note?limit=1000", []
    while uri is not None:
        page, *note = world.read(uri)
        items = json.loads(page.text)
        assert items
        seen += [each["iri"] for each in items]
        uri = note[0].uri if note else None
        assert not note or note[0].text.endswith(uri)
    assert len(seen) == len(set(seen)) == 301
    assert len(json.loads(world.whole("trails://kg/Note?limit=1000"))) == 301


@pytest.mark.parametrize(
    ("uri", "key", "member"),
    [("trails://branches", "name", "branches"), ("trails://kg/types", "type", "types")],
)
def test_lists_go_on_with_a_tool(world, uri, key, member):
    """The first ones, how many there are, and the call for the others."""
    page, note = world.read(uri)
    found = [each[key] for each in json.loads(page.text)]
    said = json.loads(note.text)["left_out"]
    whole = [each[key] for each in json.loads(world.whole(uri))]
    assert (said["shown"], said["of"]) == (len(found), len(whole))
    following = said["next"]
    while following is not None:
        answer = world.calls.result(following["tool"], following["arguments"])
        found += [each[key] for each in answer[member]]
        following = answer.get("next")
    assert found == whole


@pytest.mark.parametrize("place", ["", "branch/work%2F001/"])
def test_a_large_schema_is_an_outline(world, place):
    """With the call that goes on, on the same branch."""
    (content,) = world.read(f"trails://{place}schema")
    answer = json.loads(content.text)
    found = [each["type"] for each in answer["types"]]
    while "next" in answer:
        following = answer["next"]
        assert following["arguments"].get("branch") == ("work/001" if place else None)
        answer = world.calls.result(following["tool"], following["arguments"])
        found += [each["type"] for each in answer["types"]]
    assert found == sorted(["Note", *(each.__name__ for each in MANY)])


@pytest.mark.parametrize("uri", ["trails://stats", "trails://prov/latest", "trails://doctor"])
def test_other_documents_are_shortened(world, uri):
    """What is missing is listed."""
    (content,) = world.read(uri)
    found, whole = json.loads(content.text), world.whole(uri)
    assert ("left_out" in found) == (len(whole) > LIMIT)
    if "left_out" in found:
        assert "max_chars" in found["left_out"]["notice"]
        assert found["left_out"]["values"]


def test_few_records_with_long_texts_are_read_at_once(world, monkeypatch):
    """Others of a page are read a hundred at a time."""
    asked = []
    plain = Selector.select

    def select(self, selection):
        asked.append((selection.type, selection.limit))
        return plain(self, selection)

    monkeypatch.setattr(Selector, "select", select)
    assert len(json.loads(world.whole("trails://kg/Note?limit=50"))) == 50
    world.read("trails://kg/Note?limit=50")
    assert {limit for _, limit in asked} <= {1, 2, 3, 4}
    asked.clear()
    world.whole("trails://kg/Type001?limit=50")
    assert asked == [("Type001", 50)]
