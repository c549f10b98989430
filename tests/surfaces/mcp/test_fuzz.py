"""A real server under fire: whatever is sent, it answers, stays and does not grow."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import pytest
from mcp.client import Client
from tests.surfaces.mcp.shots import Gun, Shot
from tests.worlds.processes import Process

NORTHLINE = Path(__file__).parents[3] / "examples" / "northline"
GUNS = 4
PATIENCE = 60
TYPES = ("Component", "Hazard", "Person", "Requirement", "Team", "Verification")


class Target(NamedTuple):
    """A server process and where it listens."""

    process: Process
    port: int
    path: str


@pytest.fixture
def target(tmp_path):
    """``trails serve`` on the Northline example, in a process of its own."""
    folder = tmp_path / "northline"
    shutil.copytree(NORTHLINE, folder, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    subprocess.run([sys.executable, "seed.py"], cwd=folder, check=True, capture_output=True)
    with Process("serve", "-p", folder, "--port", "0", "--json") as process:
        url = json.loads(process.line())["graphs"][0]["url"]
        port, _, path = url.removeprefix("http://127.0.0.1:").partition("/")
        yield Target(process, int(port), f"/{path}")


async def survey(target: Target) -> tuple[dict[str, Any], list[str]]:
    """The tools with their schemas, and URIs worth reading."""
    async with Client(f"http://127.0.0.1:{target.port}{target.path}") as client:
        tools = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        uris = [str(each.uri) for each in (await client.list_resources()).resources]
        for kind in TYPES:
            page = await client.read_resource(f"trails://kg/{kind}")
            iris = [each["iri"] for each in json.loads(page.contents[0].text)[:20]]
            uris += iris + [f"trails://kg/{kind}/{iri.rpartition('/')[2]}" for iri in iris]
        commit = json.loads((await client.call_tool("graph_snapshot", {})).content[0].text)
        uris.append(f"trails://at/{commit['head']}/kg/Hazard")
        return tools, uris


async def fire(port: int, shot: Shot) -> bytes | None:
    """Send a shot as it wants to be sent; the answer, or None where none is due."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        if shot.way == "slow":
            third = len(shot.data) // 3 + 1
            for start in range(0, len(shot.data), third):
                writer.write(shot.data[start : start + third])
                await asyncio.sleep(0.02)
        else:
            writer.write(
                shot.data[: -max(1, len(shot.data) // 4)] if shot.way == "cut" else shot.data
            )
        if shot.way in {"cut", "leave"}:
            await asyncio.sleep(0.005)
            return None
        return await reader.read()
    except ConnectionError:
        return None  # refused before it had been sent: a body beyond the limit
    finally:
        writer.close()


def complain(shot: Shot, answer: bytes) -> str | None:
    """What is wrong with an answer, or None."""
    status = answer[:12]
    if not answer.startswith(b"HTTP/1.1 ") or status[9:10] == b"5":
        return f"{shot.what}: {answer[:300]!r} to {shot.data[:1500]!r}"
    if b"-32603" in answer or b"Traceback" in answer:
        return f"{shot.what}: {answer[-600:]!r} to {shot.data[:1500]!r}"
    return None


def resident(pid: int) -> int:
    """Kilobytes of memory that a process holds."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(status.split("VmRSS:")[1].split()[0])


class Course:
    """How much memory a server held during a part of a campaign."""

    def __init__(self, part: str, kilobytes: list[int]) -> None:
        self._part = part
        self._megabytes = [each / 1024 for each in kilobytes]
        self.median = median(self._megabytes)

    def __str__(self) -> str:
        """Its median and its course, in tenths."""
        tenth = max(1, len(self._megabytes) // 10)
        tenths = [self._megabytes[at : at + tenth] for at in range(0, len(self._megabytes), tenth)]
        course = " ".join(f"{median(each):.0f}" for each in tenths[:10])
        return f"{self._part}: {self.median:.1f} MB; in tenths {course}"


async def campaign(target: Target, shots: int, seed: int) -> tuple[list[str], list[int]]:
    """Fire from several guns at once; what went wrong, and the memory along the way."""
    tools, uris = await survey(target)
    complaints: list[str] = []
    memory: list[int] = []

    async def keep_firing(gun: Gun) -> None:
        for number in range(shots // GUNS):
            shot = gun.shoot()
            try:
                async with asyncio.timeout(PATIENCE):
                    answer = await fire(target.port, shot)
            except TimeoutError:
                complaints.append(f"no answer to {shot.what}: {shot.data[:1500]!r}")
                continue
            if answer is not None:
                complaints.extend(filter(None, [complain(shot, answer)]))
            if number % 5 == 0:
                memory.append(resident(target.process.pid))

    guns = [Gun(seed * GUNS + each, target.path, tools, uris) for each in range(GUNS)]
    await asyncio.gather(*map(keep_firing, guns))
    await survey(target)
    return complaints, memory


def test_nothing_that_is_sent_breaks_the_server(target):
    """600 requests of all sorts: no 5xx, no internal error, no silence, no exit."""
    complaints, _memory = asyncio.run(campaign(target, 600, seed=1))
    assert complaints == []
    assert target.process.process.poll() is None
    assert "Traceback" not in target.process.errors


@pytest.mark.long(cases=10_000)
def test_ten_thousand_requests_leave_the_server_as_it_was(target, capsys):
    """As above, from its first request on; the memory of the halves differs by at most 5 %."""
    complaints, memory = asyncio.run(campaign(target, 10_000, seed=3))
    first = Course("first half", memory[: len(memory) // 2])
    second = Course("second half", memory[len(memory) // 2 :])
    with capsys.disabled():
        sys.stdout.write(f"\n{first}\n{second}\n")
    assert complaints == []
    assert target.process.process.poll() is None
    assert "Traceback" not in target.process.errors
    assert second.median <= 1.05 * first.median, f"{first}; {second}"
