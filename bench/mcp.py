"""The MCP surface beside its peers: the official SDK's bare server, FastMCP, a bare route.

Every server has the same core, uvicorn with uvloop and httptools, and the same generator,
which takes turns. What is compared is how many answers a second of the server's core
gives: a machine that is busy with other things slows the clock, and not that. The rate by
the clock, and how busy the core was, stand beside it in results.json.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import msgspec

from bench.measure import OUT, Goal, Result
from bench.serving.load import Case, Slice, take_turns
from bench.serving.projects import guard, make_project
from bench.serving.requests import call, legacy, modern
from bench.serving.servers import Server, fastmcp_python, generator_pinned, ours, peer

TOOLS = 200
SDK = "the SDK's bare server · bare Starlette route"
HELLO = {"text": "hello"}


class Servers(msgspec.Struct, frozen=True):
    """What is compared; FastMCP is absent where it can't be installed."""

    ours: Server
    ours_many: Server
    ours_guarded: Server
    token: str
    """For the guarded one: with policies, a token, and everything else."""
    sdk: Server
    sdk_many: Server
    route: Server
    fastmcp: Server | None


def run(*, quick: bool) -> list[Result]:
    """Start all servers, and load them in turns."""
    with generator_pinned(), TemporaryDirectory(dir=OUT) as folder, ExitStack() as stack:
        servers = _start(Path(folder), stack)
        cases = {**_calls(servers), **_others(servers)}
        slices = take_turns(cases, *((0.2, 3) if quick else (0.8, 7)))
        return list(_judge(slices))


def _start(folder: Path, stack: ExitStack) -> Servers:
    python = fastmcp_python()
    enter = stack.enter_context
    guarded = make_project(folder / "guarded", 4)
    token = guard(guarded)
    return Servers(
        ours=enter(ours(make_project(folder / "few", 4))),
        ours_many=enter(ours(make_project(folder / "many", TOOLS))),
        ours_guarded=enter(ours(guarded)),
        token=token,
        sdk=enter(peer("sdk", 4)),
        sdk_many=enter(peer("sdk", TOOLS)),
        route=enter(peer("route", 1)),
        fastmcp=enter(peer("fastmcp", 1, python)) if python is not None else None,
    )


def _calls(servers: Servers) -> dict[str, Case]:
    """A trivial call, of everybody."""

    def echo(server: Server, tool: str = "echo") -> Case:
        return server.case(b"hello", call(server.path, tool, HELLO))

    def old(server: Server) -> Case:
        params = {"name": "echo", "arguments": HELLO}
        return server.case(b"hello", legacy(server.path, "tools/call", params))

    cases = {
        "ours": echo(servers.ours),
        "ours def": echo(servers.ours, "echo_thread"),
        "ours many": echo(servers.ours_many),
        "ours guarded": servers.ours_guarded.case(
            b"hello", call(servers.ours_guarded.path, "echo", HELLO, servers.token)
        ),
        "ours old": old(servers.ours),
        "sdk": echo(servers.sdk),
        "sdk old": old(servers.sdk),
        "route": echo(servers.route),
    }
    if servers.fastmcp is not None:
        cases["fastmcp"] = echo(servers.fastmcp)
    return cases


def _others(servers: Servers) -> dict[str, Case]:
    """The list of tools, and a large result."""

    def listing(server: Server) -> Case:
        return server.case(b"echo_150", modern(server.path, "tools/list", {}))

    def large(server: Server, tool: str = "large") -> Case:
        return server.case(b"P-00000999", call(server.path, tool, HELLO))

    return {
        "ours list": listing(servers.ours_many),
        "sdk list": listing(servers.sdk_many),
        "ours large": large(servers.ours),
        "ours shapes": large(servers.ours, "shapes"),
        "sdk large": large(servers.sdk),
    }


def _judge(slices: Mapping[str, Sequence[Slice]]) -> Iterator[Result]:
    def compare(name: str, ours: str, peer: str, goal: Goal, versus: str = SDK) -> Result:
        used = {"ours": ours, "peer": peer, "floor": "route"}
        return Result(
            f"mcp {name}",
            "/s",
            *(capacity(slices[each]) for each in used.values()),
            goal,
            versus,
            {
                "by the clock": {each: rate(slices[which]) for each, which in used.items()},
                "busy": {each: busy(slices[which]) for each, which in used.items()},
            },
        )

    yield compare("tools/call, async", "ours", "sdk", Goal(">=", 4.5))
    if "fastmcp" in slices:
        versus = "FastMCP · bare Starlette route"
        yield compare("tools/call, async", "ours", "fastmcp", Goal(">=", 18), versus)
    bare = "bare Starlette route · the same"
    yield compare("tools/call, async", "ours", "route", Goal(">=", 0.85), bare)
    yield compare("tools/call, token and policies", "ours guarded", "sdk", Goal(">=", 4))
    yield compare("tools/call, token and policies", "ours guarded", "route", Goal(">=", 0.75), bare)
    yield compare("tools/call, def", "ours def", "sdk", Goal(">=", 3.5))
    yield compare("tools/call, legacy revision", "ours old", "sdk old", Goal(">=", 3))
    versus = "our own with 4 tools · bare Starlette route"
    yield compare(f"tools/call among {TOOLS}", "ours many", "ours", Goal(">=", 0.9), versus)
    yield compare(f"tools/list of {TOOLS}", "ours list", "sdk list", Goal(">=", 30))
    yield compare("tools/call, 100 KB", "ours large", "sdk large", Goal(">=", 20))
    yield compare("tools/call, 100 KB of shapes", "ours shapes", "sdk large", Goal(">=", 12))


def capacity(slices: Sequence[Slice]) -> float:
    """Answers that a second of the server's core gives."""
    return 1 / median(each.cpu for each in slices)


def rate(slices: Sequence[Slice]) -> float:
    """Answers a second of the clock."""
    return median(each.rate for each in slices)


def busy(slices: Sequence[Slice]) -> float:
    """The server's share of its core."""
    return median(each.busy for each in slices)
