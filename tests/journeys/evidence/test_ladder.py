"""Every kind of client gets from a first question to the exact text, and on."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from tests.journeys.evidence.kinds import (
    KINDS,
    Call,
    ErrorTextOnly,
    Kind,
    StructuredOnly,
    calls_in,
)
from tests.worlds.processes import Web

from trails import App

NORTHLINE = Path(__file__).parents[3] / "examples" / "northline"
REPORT = '''

@node_type
class Report(Node):
    """A long report."""

    code: str = predicate(key=True)
    title: str = predicate(label=True)
    body: str = predicate(search=True)
'''
ROCKETEER = "\N{WOMAN}\N{ZERO WIDTH JOINER}\N{ROCKET}"
SENTENCE = f"Zażółć gęślą jaźń {ROCKETEER} — e\N{COMBINING ACUTE ACCENT}té.\r\n"
BODY = f"{SENTENCE * 600}The pantograph froze near Malá Strana. {SENTENCE * 900}"


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory):
    """Northline with one long report, on a real server."""
    folder = tmp_path_factory.mktemp("ladder") / "northline"
    shutil.copytree(NORTHLINE, folder, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    with (folder / "app.py").open("a", encoding="utf-8") as file:
        file.write(REPORT)
    subprocess.run([sys.executable, "seed.py"], cwd=folder, check=True, capture_output=True)
    with App.open(folder) as app:
        report = app.registry().classes["Report"]
        report(code="R-1", title="Winter", body=BODY).save(app.context(actor="test"))
    with Web(folder) as web:
        yield f"{web.url}/graphs/main/mcp"


def climbed(url: str, kind: type[Kind], start: Call):
    """The way of one client, and the client."""

    async def climb():
        async with Client(streamable_http_client(url)) as client:
            model = kind(client)
            return await model.climb(start), model

    return asyncio.run(climb())


@pytest.mark.req("E4", "E6")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_from_a_list_to_the_text(url, kind):
    """The windows are parts of the stored text, one after the other."""
    way, model = climbed(url, kind, Call("node_list", {"type": "Report", "fields": ["body"]}))
    for window in (way.first, way.second):
        assert window.text == BODY[window.start : window.end]
        assert window.total == len(BODY)
    assert way.first.end == way.second.start
    shown = way.record.text or str(way.record.data)
    assert "Winter" in shown
    assert "trails://kg/Report/R-1" in shown
    if isinstance(model, ErrorTextOnly):
        assert model.mistakes == 4


@pytest.mark.req("E4", "E7")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_large_export_is_read_to_its_end(url, kind):
    """The handle, the windows and the next calls are all that a client needs."""

    async def read():
        async with Client(streamable_http_client(url)) as client:
            model = kind(client)
            answer = await model.send(Call("export_records", {"types": ["Report", "Requirement"]}))
            texts = []
            while True:
                body = model.members(answer)
                if "window" in body:
                    texts.append(body["window"]["text"])
                    assert body["window"]["end"] == sum(map(len, texts))
                if "next" not in body:
                    return "".join(texts), body
                answer = await model.ask(model.call(answer, "export_records", "next"))
                assert not answer.failed, answer.text

    text, status = asyncio.run(read())
    assert len(text) == status["chars"] > len(BODY)
    assert sha256(text.encode()).hexdigest() == status["sha256"]
    lines = [json.loads(line) for line in text.splitlines()]
    assert len(lines) == status["records"]
    assert lines[0]["data"]["body"] == BODY


@pytest.mark.req("E1", "E2", "E6")
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_from_a_search_to_the_text(url, kind):
    """The evidence is a part of the stored text around the match, and the window holds it."""
    way, model = climbed(url, kind, Call("search", {"query": "pantograph froze"}))
    match = BODY.index("pantograph froze")
    results = model.members(way.found)["results"]
    hit = next(each for each in results if each["id"] == "trails://kg/Report/R-1")
    evidence = hit["evidence"]
    start, end = evidence["start"], evidence["end"]
    assert evidence["text"] == BODY[start:end]
    assert start < match < end
    assert 100 < end - start < 1000
    assert evidence["field"] == "body"
    assert not evidence["complete"]
    for each in evidence["matches"]:
        assert each["text"] == BODY[each["start"] : each["end"]]
        assert each["text"].lower() in {"pantograph", "froze", "pantograph froze"}
    for window in (way.first, way.second):
        assert window.text == BODY[window.start : window.end]
        assert window.total == len(BODY)
    assert way.first.start <= match < way.first.end == way.second.start
    assert "Winter" in (way.record.text or str(way.record.data))
    if isinstance(model, ErrorTextOnly):
        assert model.mistakes == 4


@pytest.mark.req("E4")
def test_what_is_shown_is_taken_as_it_is_shown(url):
    """Ids and addresses of a search, and of lists, by every tool that reads and as a resource."""

    async def read():
        async with Client(streamable_http_client(url)) as client:
            model = StructuredOnly(client)
            found = model.members(await model.send(Call("search", {"query": "brake"})))["results"]
            listing = Call("node_list", {"type": "Incident", "limit": 3})
            listed = model.members(await model.send(listing))["records"]
            assert len(found) > 3
            shown = [*(each["url"] for each in found), *(each["id"] for each in (*found, *listed))]
            for each in shown:
                fetched = model.members(await model.send(Call("fetch", {"id": each})))
                got = model.members(await model.send(Call("node_get", {"record": each})))
                assert fetched["id"] == got["id"]
                assert each in {got["id"], got["iri"]}
                contents = (await client.read_resource(each)).contents
                assert json.loads(contents[0].text)["@id"] == got["iri"]
            for hit in found:
                for _, call in calls_in(hit):
                    await model.send(call)

    asyncio.run(read())


def test_a_list_in_a_query_string_is_repeated(url):
    """REST filters a search by several types, and by one."""
    root = url.removesuffix("/mcp")
    for types in (["Report"], ["Incident", "Hazard"]):
        asked = {"query": "brake OR pantograph", "types": types}
        found = httpx2.get(f"{root}/search", params=asked).json()["results"]
        assert {each["type"] for each in found} == set(types)
