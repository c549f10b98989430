"""Three MCP clients, an HTTP server and the command line on one folder, whose owner is killed."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import warnings
from contextlib import AsyncExitStack
from pathlib import Path

from mcp import Client, MCPError, StdioServerParameters
from mcp.shared.exceptions import MCPDeprecationWarning
from tests.worlds.processes import PATIENCE, Web, command, files_opened_by, wait_until
from tests.worlds.projects import make_notebook

from trails import App
from trails.app.local import LocalOperations
from trails.app.serve.relay.owners import find_owner

WATCHED = "trails://kg/Note"


class Writer:
    """One client that adds notes, one after the other, and remembers what it was told."""

    def __init__(self, name, client):
        self.name = name
        self.client = client
        self.acknowledged = []
        self.unknown = []
        self.told = asyncio.Event()

    async def write(self, stop):
        """Add notes until told to stop."""
        number = 0
        while not stop.is_set():
            text = f"{self.name}-{number}"
            number += 1
            try:
                await self.add(text)
            except MCPError as error:
                if error.error.data != {"code": "interrupted"}:
                    raise
                self.unknown.append(text)

    async def add(self, text):
        """Add one note; whether it is there is known, or known to be unknown."""
        async with asyncio.timeout(PATIENCE):
            done = await self.client.call_tool("notes.add", {"text": text})
        if not done.is_error:
            assert done.structured_content == {"result": text}
            self.acknowledged.append(text)
        else:
            assert done.meta["dev.trails/error"]["code"] == "interrupted", done
            self.unknown.append(text)

    async def hear(self, message):
        """Notice that something changed."""
        if type(message).__name__ == "ResourceUpdatedNotification":
            self.told.set()

    async def listen(self):
        """Notice the same on a stream of the newest revision."""
        async with self.client.listen(resource_subscriptions=[WATCHED]) as events:
            self.told.set()
            async for _ in events:
                self.told.set()


async def open_clients(stack, folder, url):
    """Two clients of older revisions, two of the newest, and one over HTTP."""
    started = StdioServerParameters(
        command=sys.executable,
        args=command("serve", "--stdio", "-p", folder)[1:],
        env=dict(os.environ),
    )
    writers = []
    for number, mode in enumerate(["legacy", "2026-07-28", "legacy"]):
        writer = Writer(f"stdio{number}", None)
        with warnings.catch_warnings(action="ignore", category=MCPDeprecationWarning):
            client = Client(started, mode=mode, message_handler=writer.hear)
            writer.client = await stack.enter_async_context(client)
            if mode == "legacy":
                await writer.client.subscribe_resource(WATCHED)
        writers.append(writer)
    writers.append(Writer("http", await stack.enter_async_context(Client(url))))
    return writers


async def load_files(folder, place, stop):
    """Load files with the command line; one that failed is loaded again with the same key."""
    loaded = []
    while not stop.is_set():
        texts = [f"load-{len(loaded)}-{n}" for n in range(50)]
        file = place / f"{len(loaded)}.ndjson"
        file.write_text(
            "".join(json.dumps({"type": "Note", "data": {"text": t}}) + "\n" for t in texts)
        )
        asked = command("load", file, "-p", folder, "--idempotency-key", file.name, "--json")
        for _ in range(10):
            process = await asyncio.create_subprocess_exec(
                *asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
            out, _ = await process.communicate()
            if process.returncode == 0:
                break
            assert json.loads(out)["error"]["code"] in {"unreachable", "locked"}, out
        assert process.returncode == 0, out
        loaded += texts
    return loaded


def owners_of(folder):
    """The processes that have the data open."""
    data = str(folder / ".trails" / "graphs")
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if any(path.startswith(data) for path in files_opened_by(int(process.name))):
                found.add(int(process.name))
    return found


def has_one_owner(folder):
    """Whether just the owner has the data open; a load may be one, and end while this looks."""
    owner = find_owner(folder)
    return owner is not None and owners_of(folder) == {owner.pid}


async def all_wrote_more(writers):
    """Wait until every writer had notes acknowledged that it began from now on."""
    before = {each: len(each.acknowledged) for each in writers}
    async with asyncio.timeout(PATIENCE):
        while any(len(each.acknowledged) < before[each] + 3 for each in writers):  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def all_are_told(writers):
    """Wait until every writer that watches was told of a change from now on."""
    for each in writers:
        each.told.clear()
    async with asyncio.timeout(PATIENCE):
        for each in writers:
            await each.told.wait()


async def work_together(folder, place):
    """Everybody writes while owners are killed; the writers, and what was loaded."""
    stop = asyncio.Event()
    with Web(folder, cold=True) as first, Web(folder, cold=True) as web:
        assert find_owner(folder).pid == first.pid
        async with AsyncExitStack() as stack:
            writers = await open_clients(stack, folder, web.served["graphs"][0]["url"])
            tasks = [asyncio.create_task(each.write(stop)) for each in writers]
            listening = asyncio.create_task(writers[1].listen())
            loading = asyncio.create_task(load_files(folder, place, stop))
            await all_wrote_more(writers)
            first.kill()
            await all_wrote_more(writers)
            await all_are_told(writers[:3])
            await asyncio.to_thread(wait_until, lambda: has_one_owner(folder), "one owner")
            stop.set()
            await asyncio.gather(*tasks)
            loaded = await loading
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
    return writers, loaded


def test_many_processes_work_on_one_folder_and_survive_its_owner(tmp_path):
    """What was acknowledged is there, nothing else is, and no client had to connect again."""
    folder = make_notebook(tmp_path / "notebook")
    place = tmp_path / "files"
    place.mkdir()
    writers, loaded = asyncio.run(work_together(folder, place))
    wait_until(lambda: not owners_of(folder), "the end of all processes")
    with App.open(folder) as app:
        ctx = app.context()
        found = {each.text for each in app.registry().classes["Note"].objects(ctx)}
    acknowledged = {text for each in writers for text in each.acknowledged}
    unknown = {text for each in writers for text in each.unknown}
    assert acknowledged | set(loaded) <= found
    assert found <= acknowledged | unknown | set(loaded)
    assert loaded
    reports = LocalOperations().verify(folder, repair=False, progress=lambda text: None)
    assert all(report.healthy for report in reports)
