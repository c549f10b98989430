"""Walk four paths through our own code, and print each as a table: ``python -m bench.walk``.

The paths: ``tools/call`` and ``resources/read`` of a page over a real socket, a durable save,
a merge. Each is warmed up, then traced once. A hop is a call from one module to another, counted
once however often it is made; a hop is upward when it leads to a layer above the caller's.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import IO, Final, cast

ROOT: Final = Path(__file__).parents[1]
SOURCES: Final = str(ROOT / "src" / "trails") + "/"
LAYERS: Final = (
    "errors", "files", "model", "authoring", "log", "registry", "views", "projections", "identity",
    "policies", "sandbox", "engine/validation", "engine/graph", "engine/visibility",
    "engine/write", "engine/schema", "engine/sparql", "engine/history", "engine/transfer",
    "engine/session", "engine/upkeep", "engine", "request", "surfaces", "app",
)  # fmt: skip
"""From the lowest to the highest."""
APP: Final = """
from bench.parts import Item
from trails import Context, capability, predicate


@capability("items.count", idempotent=True)
def count(ctx: Context, state: str = predicate(one_of=["open", "done"])) -> int:
    \"\"\"How many items are in a state.\"\"\"
    return Item.objects(ctx).where(state=state).count()
"""
Hop = tuple[str, str, str, str]
"""The caller's module and function, then those that it calls."""


class Trace:
    """The hops of everything that runs while it records."""

    def __init__(self) -> None:
        self.hops: dict[Hop, None] = {}
        self.modules: dict[str, None] = {}
        self.recording = False

    def install(self) -> None:
        """See every call, of threads that are made from now on too."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not self.recording or not _ours(frame):
            return
        caller = frame.f_back
        while caller is not None and not _ours(caller):
            caller = caller.f_back
        target = _module(frame)
        self.modules[target] = None
        if caller is None:
            self.hops["", "event loop", target, frame.f_code.co_qualname] = None
        elif _module(caller) != target:
            hop = _module(caller), caller.f_code.co_qualname, target, frame.f_code.co_qualname
            self.hops[hop] = None


def _ours(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(SOURCES)


def _module(frame: FrameType) -> str:
    return frame.f_code.co_filename.removeprefix(SOURCES).removesuffix(".py")


def _rank(module: str) -> int:
    names = [name for name in LAYERS if module == name or module.startswith(f"{name}/")]
    return LAYERS.index(max(names, key=len)) if names else len(LAYERS)


def is_upward(hop: Hop) -> bool:
    """Whether a call leads to a higher layer than its caller's."""
    return bool(hop[0]) and _rank(hop[2]) > _rank(hop[0])


# --- the two paths over a socket ---------------------------------------------------------------


def serve(folder: str) -> None:
    """In a process of its own: ``trails serve``, traced between two lines on standard input."""
    from trails.app.main import main  # noqa: PLC0415 - before it, a tracer could not be installed

    trace = Trace()
    trace.install()

    def follow_orders() -> None:
        for line in sys.stdin:
            trace.recording = line.strip() == "start"
            if trace.recording:
                print("started", flush=True)
            else:
                print(json.dumps([list(trace.hops), list(trace.modules)]), flush=True)
                trace.hops.clear()
                trace.modules.clear()

    threading.Thread(target=follow_orders, daemon=True).start()
    sys.argv = ["trails", "serve", "--port", "0", "--json", "-p", folder]
    main()


class Server:
    """A traced server, and a client of it."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._input = cast(IO[str], process.stdin)
        self._output = cast(IO[str], process.stdout)
        url = json.loads(self._output.readline())["url"]
        self._client = http.client.HTTPConnection(url.removeprefix("http://"))

    def post(self, method: str, params: dict[str, object]) -> None:
        """One MCP request of the newest revision."""
        meta = {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": {"name": "walk", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        headers = {
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": method,
            "mcp-name": str(params.get("name") or params.get("uri")),
        }
        self._client.request("POST", "/graphs/main/mcp", json.dumps(body), headers)
        answer = self._client.getresponse().read()
        if b'"result"' not in answer:
            raise RuntimeError(answer.decode())

    def trace(self, method: str, params: dict[str, object]) -> Trace:
        """What one such request goes through, once everything is warm."""
        for _ in range(3):
            self.post(method, params)
        print("start", file=self._input, flush=True)
        self._output.readline()
        self.post(method, params)
        print("stop", file=self._input, flush=True)
        found = Trace()
        hops, modules = json.loads(self._output.readline())
        found.hops = dict.fromkeys(tuple(hop) for hop in hops)
        found.modules = dict.fromkeys(modules)
        return found


@contextmanager
def served(folder: Path) -> Iterator[Server]:
    """A server for a project."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.walk", "serve", str(folder)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        yield Server(process)
    finally:
        process.terminate()
        process.communicate()


# --- the two paths in a program ----------------------------------------------------------------


def trace_call(work: Callable[[], object]) -> Trace:
    """What a function goes through."""
    trace = Trace()
    trace.install()
    trace.recording = True
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return trace


def trace_writes(folder: Path) -> dict[str, Trace]:
    """A save, and a merge of two branches that both have changes."""
    from bench.parts import Item, nodes  # noqa: PLC0415 - the other process traces imports of it
    from trails import App, MergeRequest  # noqa: PLC0415

    with App.open(folder) as app:
        versions, ctx = app.versions(), app.context()
        first, second, third, fourth, *rest = nodes(Item, 100)
        ctx.kg.save_all(rest)
        first.save(ctx)
        saved = trace_call(lambda: second.save(ctx))
        versions.create_branch("work")
        third.save(app.context(branch="work"))
        fourth.save(ctx)
        merged = trace_call(lambda: versions.merge(MergeRequest("work", "main")))
    return {"save": saved, "merge": merged}


def main() -> None:
    """Trace all four and print them."""
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "trails.toml").write_text('[project]\nname = "walk"\n', encoding="utf-8")
        (folder / "app.py").write_text(APP, encoding="utf-8")
        traces = trace_writes(folder)
        with served(folder) as server:
            call: dict[str, object] = {"name": "items_count", "arguments": {"state": "open"}}
            traces["tools/call"] = server.trace("tools/call", call)
            traces["resources/read"] = server.trace("resources/read", {"uri": "trails://kg/Item"})
    for name, trace in traces.items() if "--hops" in sys.argv else ():
        print(f"\n{name}")
        for hop in trace.hops:
            mark = "↑" if is_upward(hop) else " "
            print(f"  {mark} {hop[0] or '-'}.{hop[1]} → {hop[2]}.{hop[3]}")
    print(f"\n{'path':16}{'hops':>6}{'files':>7}{'upward':>8}")
    for name, trace in traces.items():
        upward = sum(map(is_upward, trace.hops))
        print(f"{name:16}{len(trace.hops):>6}{len(trace.modules):>7}{upward:>8}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    else:
        main()
