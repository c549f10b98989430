"""Whole files in and out hold little in memory, and one reader's haste is no one else's trouble."""

import asyncio
import http.client
import json
import re
import socket
import tracemalloc
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.worlds.processes import Web
from tests.worlds.projects import NOTES

from trails.request.transfers import drop, spool, stream

MIB = 1 << 20
BLANK = (b" " * 1023 + b"\n") * 64


def test_a_body_is_taken_to_disk_block_by_block(tmp_path):
    """Sixty-four MiB pass, and at no time are more than a few in memory."""

    async def body():
        for _ in range(1024):
            yield bytes(1 << 16)

    async def keep():
        tracemalloc.start()
        try:
            path = await spool(body(), ".gz", tmp_path)
            return path, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    path, peak = asyncio.run(keep())
    try:
        assert path.suffix == ".gz"
        assert path.stat().st_size == 64 * MIB
    finally:
        drop(path)
    assert peak < 8 * MIB


def test_a_body_that_breaks_off_leaves_no_file(tmp_path):
    """What was kept of it is gone."""

    async def body():
        yield bytes(2 * MIB)
        raise ConnectionError

    with pytest.raises(ConnectionError):
        asyncio.run(spool(body(), "", tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_nobody_reads_on_is_closed():
    """As soon as the block is made that was being made."""
    closed = []

    def blocks():
        try:
            while True:
                yield b"block"
        finally:
            closed.append(True)

    async def read_some():
        opened = stream(blocks())
        assert await anext(opened) == b"block"
        await opened.aclose()

    asyncio.run(read_some())
    assert closed == [True]


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A project that a process of its own serves."""
    folder = tmp_path_factory.mktemp("streams")
    (folder / "trails.toml").write_text('[project]\nname = "acme"\n', encoding="utf-8")
    (folder / "app.py").write_text(NOTES, encoding="utf-8")
    with Web(folder, cold=True) as opened:
        yield opened


def peak_of(served):
    """The most memory that the process ever had, in bytes."""
    status = Path(f"/proc/{served.process.pid}/status").read_text(encoding="utf-8")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


def load(served, blocks, query=""):
    """Send a body in chunks; what the server says."""
    connection = http.client.HTTPConnection(urlsplit(served.url).netloc, timeout=120)
    headers = {"Content-Type": "application/x-ndjson", "Transfer-Encoding": "chunked"}
    try:
        path = f"/graphs/main/load{query}"
        connection.request("POST", path, blocks, headers, encode_chunked=True)
        got = connection.getresponse()
        return got.status, json.loads(got.read())
    finally:
        connection.close()


def test_a_large_load_needs_little_memory(served):
    """Fifty MB more than before raise the server's peak by a fraction of that."""
    node = b'{"type": "Note", "data": {"key": "k", "title": "After the void"}}\n'
    assert load(served, iter([BLANK, node]))[0] == 200
    before = peak_of(served)
    status, done = load(served, (BLANK for _ in range(800)), "?message=nothing")
    assert (status, done["nodes"], done["commit"]) == (200, 0, None)
    assert peak_of(served) - before < 24 * MIB


def test_a_slow_sender_keeps_nobody_waiting(served):
    """While half a load is under way, others write."""
    address = urlsplit(served.url)
    with socket.create_connection((address.hostname, address.port), timeout=60) as slow:
        slow.sendall(
            b"POST /graphs/main/load HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/x-ndjson\r\nContent-Length: 1000\r\n\r\n"
            b'{"type": "Note", "data": {"key": "slow", "title": "Slow"}}'
        )
        node = b'{"type": "Note", "data": {"key": "fast", "title": "Fast"}}\n'
        assert load(served, iter([node]))[1]["nodes"] == 1
