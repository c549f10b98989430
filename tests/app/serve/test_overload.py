"""Overload: calls that could only wait are refused at once, whoever asks and however."""

import asyncio
import json
import threading
from contextlib import closing
from http.client import HTTPConnection
from urllib.parse import urlsplit

import pytest
from tests.app.serve.test_http import ask, call
from tests.worlds.processes import PATIENCE, Stdio, Web, run_command, wait_until
from tests.worlds.projects import make_notebook

from trails import App, Context, capability
from trails.app.kernels import kernel_of
from trails.app.settings import GraphSettings, Project, ServerSettings, Settings
from trails.model.actors import LOCAL
from trails.model.results import Success


@pytest.fixture
def folder(tmp_path):
    """A project that has two calls under way at most."""
    made = make_notebook(tmp_path / "notebook")
    with (made / "trails.toml").open("a") as file:
        file.write("\n[server]\nmax_calls = 2\n")
    return made


def refused(url, path, body):
    """A request that is refused: its status, what it says, and when to try again."""
    headers = {"Content-Type": "application/json"}
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)) as connection:
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.headers["Retry-After"]


def test_calls_beyond_the_limit_are_refused_on_every_surface(folder, tmp_path):
    """Without credentials too; health and the operator get through, and it ends with the load."""
    begun = [tmp_path / f"begun-{number}" for number in range(2)]
    with Web(folder) as server, Stdio(folder) as client:
        client.initialize()
        running = [
            threading.Thread(target=call, args=(server.url, "notes.slow"), kwargs=each)
            for each in ({"text": file.name, "begun": str(file)} for file in begun)
        ]
        for thread in running:
            thread.start()
        wait_until(lambda: all(file.exists() for file in begun), "two calls under way")

        given = {"name": "notes.count", "arguments": {}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": given}
        status, error, again = refused(server.url, "/graphs/main/mcp", message)
        assert (status, again) == (503, "1")
        assert error["error"]["data"] == {
            "code": "busy",
            "limit": "calls",
            "allowed": 2,
            "retry_after": 1,
        }
        status, error, again = refused(server.url, "/graphs/main/tools/notes.count", {})
        assert (status, again, error["code"]) == (503, "1", "busy")
        assert "try again in 1 s" in error["detail"]
        result = client.request("tools/call", given)
        assert result["isError"]
        assert result["content"][0]["text"].startswith("the server is overloaded: 2 calls")

        assert ask(server.url, "GET", "/healthz")[0] == 200
        done = run_command(["call", "notes.count", "-p", folder, "--json"], folder)
        assert json.loads(done.stdout) == {"result": 2}

        for file in begun:
            file.with_name(f"{file.name}-go").touch()
        for thread in running:
            thread.join()
        wait_until(lambda: not client.request("tools/call", given).get("isError"), "an answer")


def test_a_crowd_without_credentials_waits_in_a_bounded_queue():
    """As many as the limit allows are served, the others are told at once, and nothing is left."""
    go = asyncio.Event()

    @capability("wait")
    async def wait(ctx: Context) -> int:
        """Wait."""
        await go.wait()
        return 1

    settings = Settings(
        Project("app"), {"main": GraphSettings()}, server=ServerSettings(max_calls=8)
    )
    with App(wait, settings=settings) as app:
        kernel = kernel_of(app)

        async def crowd():
            calls = [asyncio.create_task(kernel.execute(LOCAL, "wait", {})) for _ in range(300)]
            while sum(each.done() for each in calls) < 292:  # noqa: ASYNC110 - no event for it
                await asyncio.sleep(0.01)
            done = [each for each in calls if each.done()]
            waiting = [each for each in calls if not each.done()]
            go.set()
            served = await asyncio.gather(*waiting)
            assert kernel.refuse_overload(LOCAL) is None
            return [each.result() for each in done], served

        refused, served = asyncio.run(crowd())
        assert len(served) == 8
        assert all(isinstance(each, Success) for each in served)
        assert {each.code for each in refused} == {"busy"}
        kernel.close()
