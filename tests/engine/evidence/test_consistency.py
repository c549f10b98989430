"""What a read says of its commit is true, while others write."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
from tests.worlds.graphs import Calls
from tests.worlds.projects import make_project

from trails import App, Node, node_type, predicate
from trails.model.actors import LOCAL
from trails.model.results import Failure, Success

APP = """
from trails import Node, node_type, predicate

@node_type
class Doc(Node):
    "Something to read."
    slug: str = predicate(key=True)
    number: int = predicate()
    body: str = predicate()
"""
ROUNDS = 60


@node_type
class Doc(Node):
    """Something to read."""

    slug: str = predicate(key=True)
    number: int = predicate()
    body: str = predicate()


@pytest.fixture(params=["memory", "folder"])
def calls(request, tmp_path: Path):
    """A graph in memory, and one in a folder."""
    if request.param == "memory":
        made = Calls(App(Doc))
    else:
        made = Calls(App.open(make_project(tmp_path, APP)))
    yield made
    made.close()


@pytest.mark.req("E10")
def test_commits_and_values_belong_together(calls):
    """Records, windows and pages are of the commit that they name, and are continued there."""
    cls = calls.app.registry().classes["Doc"]
    ctx = calls.app.context()
    size = 70_000  # longer than what is stored within the document
    made: dict[str, int] = {}

    def write(number: int) -> None:
        nodes = [cls(slug=name, number=number, body=f"{number % 10}" * size) for name in ("a", "b")]
        commit = ctx.kg.save_all(nodes, upsert=True)
        made[commit.id] = number

    write(0)
    done = threading.Event()

    def keep_writing() -> None:
        for number in range(1, ROUNDS):
            write(number)
        done.set()

    writer = threading.Thread(target=keep_writing)
    writer.start()
    seen: list[tuple[str, int]] = []

    async def ask(name: str, **arguments: object) -> dict:
        found = await calls.kernel.execute(LOCAL, name, arguments)
        assert isinstance(found, Success), found
        return json.loads(found.body)

    async def read() -> None:
        while not done.is_set():
            got = await ask("node_get", record="Doc/a", fields=["number"])
            seen.append((got["commit"], got["values"]["number"]))
            page = await ask("node_list", type="Doc", fields=["number"], limit=1)
            rest = await ask("node_list", **page["next"]["arguments"])
            numbers = {each["values"]["number"] for each in page["records"] + rest["records"]}
            assert len(numbers) == 1
            assert rest["commit"] == page["commit"]
            seen.append((page["commit"], numbers.pop()))
            window = await ask("read_record_field", record="Doc/b", field="body", length=10)
            later = await ask("read_record_field", **window["next"]["arguments"])
            assert window["text"] == later["text"]
            assert window["commit"] == later["commit"]
            seen.append((window["commit"], int(window["text"][0])))

    asyncio.run(read())
    writer.join()
    for commit, number in seen:
        assert made[commit] % 10 == number % 10
    assert len({commit for commit, _ in seen}) > 1


ODD = (
    *("", " ", "/", "Doc/", "/a", "Doc//a", "Doc/a/b", "Doc/..", "Doc/%", "Doc/%zz", "Doc/%ff"),
    *("Doc/\0", "Doc/\u202e", "Doc/\n", "\ufeffDoc/a", "doc/a", "DOC/a", "Doc/A", "x" * 8192),
    *("trails://", "trails://kg", "trails://kg/", "trails://kg/Doc/", "trails://kg/Doc/a/b"),
    *("trails://kg/Doc/a?x=1", "trails://kg/Doc/a#x", "trails://branch//kg/Doc/a", "trails://at/x"),
    *("trails://at/zz/kg/Doc/a", "trails://kg/types", "http://", "urn:x", "Doc/" + "é" * 3000),
    *("trails://kg/Doc/" + "%F0%9F" * 100, "Doc/" + "a" * 513, "{}", "[]", "null", "0", "-1"),
)


@pytest.mark.parametrize("tool", ["fetch", "node_get", "read_record_field"])
def test_odd_references_are_refused_in_words(calls, tool):
    """Whatever is sent: an error that a caller can act on, never an internal one."""
    calls.app.registry().classes["Doc"](slug="a", number=1, body="x").save(calls.app.context())
    for text in ODD:
        given = {"id": text} if tool == "fetch" else {"record": text}
        more = {"field": "body"} if tool == "read_record_field" else {}
        failure = calls.outcome(tool, {**given, **more})
        assert isinstance(failure, Failure), text
        assert failure.kind in {"validation", "semantic"}, (text, failure)
        assert failure.code in {"validation", "not_found"}, (text, failure)
        assert len(failure.message) < 2000
    for value in (None, 1, True, [], {}, ["Doc/a"], "x" * 9000):
        failure = calls.outcome(tool, {"id" if tool == "fetch" else "record": value})
        assert isinstance(failure, Failure)
        assert failure.kind == "validation"
