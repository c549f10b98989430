"""The REST surface beside bare Starlette routes: a call, and documents that come from a cache.

As for MCP, what is compared is how many answers a second of the server's core gives. How long the
documents of two hundred capabilities take to be made anew is measured in this process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Final

import msgspec

from bench.mcp import busy, capacity, rate
from bench.measure import OUT, Goal, Result
from bench.serving.load import Slice, get, post, take_turns
from bench.serving.projects import make_project
from bench.serving.servers import Server, generator_pinned, ours, peer
from trails import App
from trails.app.kernels import kernel_of
from trails.model.actors import LOCAL
from trails.projections.thing_description import Security, project_card
from trails.surfaces.rest.openapi import describe_server

TOOLS: Final = 200
SOON: Final = 0.05
"""Seconds in which a document must be made anew after a change."""
CARD: Final = "/graphs/main/card"
OPENAPI: Final = "/openapi.json"
HELLO: Final = msgspec.json.encode({"text": "hello"})


def run(*, quick: bool) -> list[Result]:
    """Load the servers in turns, then make the documents anew."""
    with generator_pinned(), TemporaryDirectory(dir=OUT) as name:
        folder = make_project(Path(name) / "many", TOOLS)
        with ours(folder) as server, peer("route", 1) as route:
            sizes = {path: _size(server, path) for path in (CARD, OPENAPI)}
            echo = {"params": {"arguments": {"text": "hello"}}}
            cases = {
                "call": server.case(b"hello", post("/graphs/main/invoke/echo", {}, HELLO)),
                "route": route.case(b"hello", post(route.path, {}, msgspec.json.encode(echo))),
                CARD: server.case(b"actions", get(CARD)),
                OPENAPI: server.case(b"openapi", get(OPENAPI)),
                **{
                    f"static {path}": route.case(b"xxxx", get(f"/static/{size}"))
                    for path, size in sizes.items()
                },
            }
            slices = take_turns(cases, *((0.2, 3) if quick else (0.8, 7)))
        return [*_judge(slices), *_rebuild(folder)]


def _size(server: Server, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", server.port)
    connection.request("GET", path)
    body = connection.getresponse().read()
    connection.close()
    return len(body)


def _judge(slices: Mapping[str, Sequence[Slice]]) -> Iterator[Result]:
    def compare(name: str, mine: str, other: str, goal: Goal, versus: str) -> Result:
        used = {"ours": mine, "peer": other, "floor": other}
        return Result(
            f"rest {name}",
            "/s",
            *(capacity(slices[each]) for each in used.values()),
            goal,
            versus,
            {
                "by the clock": {each: rate(slices[which]) for each, which in used.items()},
                "busy": {each: busy(slices[which]) for each, which in used.items()},
            },
        )

    bare = "bare Starlette route · the same"
    yield compare("call of a capability", "call", "route", Goal(">=", 0.6), bare)
    bare = "static bytes of that size · the same"
    for name, path in (("card", CARD), ("openapi", OPENAPI)):
        yield compare(f"{name} of {TOOLS}", path, f"static {path}", Goal(">=", 0.5), bare)


def _rebuild(folder: Path) -> Iterator[Result]:
    """Milliseconds for a document of a registry that has just changed, beside the limit."""
    with App.open(folder) as app:
        kernel = kernel_of(app)
        card = kernel.card(LOCAL)
        made = {
            "card": lambda: project_card(card, "http://127.0.0.1/", Security()),
            "openapi": lambda: describe_server([card], "http://127.0.0.1", Security()),
        }
        for name, make in made.items():
            found = []
            for _ in range(9):
                start = perf_counter()
                msgspec.json.encode(make())
                found.append(perf_counter() - start)
            took, limit = median(found) * 1000, SOON * 1000
            title = f"rest {name} of {TOOLS} after a change"
            yield Result(title, "ms", took, limit, limit, Goal("<=", 1), "the limit · the same")
        kernel.close()
