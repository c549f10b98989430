"""A project that can't or shall not be written is read, says so, and changes no file."""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from tests.journeys.durability import unwritable
from tests.journeys.durability.campaign import environment, graph_folder, items_of, make_project
from tests.journeys.durability.damage import crash, delete, files_of
from tests.journeys.durability.unwritable import assert_only_read
from tests.worlds.clients import RestClient
from tests.worlds.processes import Process, run_command

from trails import App
from trails.errors import ReadOnlyError


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A closed project with a few items."""
    project = make_project(tmp_path_factory.mktemp("original") / "project")
    with App.open(project) as app:
        for number in range(5):
            app.registry().classes["Item"](code=f"item-{number}", value=number).save(app.context())
    return project


@pytest.fixture
def project(original, tmp_path):
    """A copy for one test."""
    return shutil.copytree(original, tmp_path / "project")


def data_of(project):
    """Every file of the graph."""
    return files_of(graph_folder(project))


def test_reading_on_request_changes_no_file(project):
    """Listing, SPARQL, untrusted SPARQL and exports answer; writes are refused."""
    before = data_of(project)
    with App.open(project, read_only=True) as app:
        items = items_of(app)
        assert_only_read(app, items, ReadOnlyError)
        asked = app.ask(app.context(), "SELECT (COUNT(?c) AS ?n) { ?i :code ?c }")
        assert asked.rows[0]["n"] == len(items)
    assert data_of(project) == before
    assert len(items) == 5


@pytest.mark.parametrize("views", ["kept", "gone"])
def test_a_crashed_project_is_read_without_catching_up_on_disk(tmp_path, views):
    """What the views lack is folded in memory, and the WAL stays where it is."""
    crashed = crash(tmp_path / "project", commits=15)
    graph = graph_folder(crashed.project)
    if views == "gone":
        shutil.rmtree(graph / "branches")
        for path in graph.glob("nodes.db*"):
            path.unlink()
    before = data_of(crashed.project)
    with App.open(crashed.project, read_only=True) as app:
        assert items_of(app) in crashed.states
        assert_only_read(app, items_of(app), ReadOnlyError)
    assert data_of(crashed.project) == before


def test_the_setting_asks_for_it_too(project):
    """``read_only`` in ``[project]`` holds for every command."""
    text = (project / "trails.toml").read_text()
    (project / "trails.toml").write_text(text.replace("[project]", "[project]\nread_only = true"))
    before = data_of(project)
    asked = run_command(("query", "SELECT ?c { ?i :code ?c }", "--json"), project)
    assert len(json.loads(asked.stdout)["rows"]) == 5
    (project / "change.json").write_text('[{"op": "delete", "type": "Item", "id": "item-1"}]')
    refused = run_command(("mutate", "--operations", "change.json"), project)
    assert refused.returncode == 2
    assert "nothing was written: the project is open read-only" in refused.stderr
    assert "open read-only" in run_command(("doctor",), project).stdout
    assert run_command(("verify",), project).returncode == 0
    assert data_of(project) == before


def serve(project, *options):
    """A server on a free port, and a client for it."""
    process = Process("serve", "-p", project, "--port", 0, "--json", *options)
    ready = process.line()
    assert ready is not None, process.errors
    return process, RestClient(int(json.loads(ready)["url"].rpartition(":")[2]))


CHANGE = {"operations": [{"op": "delete", "type": "Item", "id": "item-1"}]}
QUERY = {"query": "SELECT ?c { ?i :code ?c }"}


def test_a_server_only_reads_on_request(project):
    """Health says so, reads answer, a write gets 403 and one line in the log."""
    before = data_of(project)
    process, client = serve(project, "--read-only")
    with process:
        health = client.send("GET", "/healthz")
        assert (health.status, json.loads(health.body)) == (200, {"status": "read_only"})
        assert client.post("invoke/graph_health", {})["status"] == "read_only"
        assert len(client.get("kg/Item")["instances"]) == 5
        assert len(client.post("query", QUERY)["rows"]) == 5
        assert client.post("mutate", CHANGE, status=403)["code"] == "read_only"
        beside = run_command(("serve", "--read-only", "--port", 0), project)
        assert "--read-only has no effect" in beside.stderr
        process.close(signal.SIGTERM)
        said = process.errors
        assert "Traceback" not in said
        assert said.count("was refused") == 1
        assert "graph main: the project is open read-only, because that was asked for" in said
    assert data_of(project) == before


@pytest.mark.parametrize("scenario", ["permissions", "full"])
def test_a_disk_that_can_not_be_written(original, scenario):
    """Missing permissions, and files that can't grow."""
    with tempfile.TemporaryDirectory(prefix="trails-", dir="/tmp") as place:
        project = shutil.copytree(original, Path(place, "project"))
        for path in (Path(place), project, project / "trails.toml", project / "app.py"):
            path.chmod(0o755)
        done = subprocess.run(
            [sys.executable, unwritable.__file__, scenario, str(project)],
            capture_output=True,
            text=True,
            env={**environment(), "HOME": place},
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of a few megabytes, and how to mount it again."""
    place = tmp_path / "disk"
    place.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if mount is None or unmount is None:
        pytest.skip("there is no mount command")

    def run(*options):
        command = [mount, *options, str(place)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    mounted = run("-t", "tmpfs", "-o", "size=24m", "tmpfs")
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
    yield place, run
    subprocess.run([unmount, "--lazy", str(place)], check=True)


def test_a_read_only_mount(original, small_disk):
    """A server on it reads, with SPARQL in the system's temporary folder."""
    place, mount = small_disk
    project = shutil.copytree(original, place / "project")
    delete("../../owner").apply(project)
    assert not mount("-o", "remount,ro").returncode
    process, client = serve(project)
    with process:
        assert json.loads(client.send("GET", "/healthz").body) == {"status": "read_only"}
        assert len(client.get("kg/Item")["instances"]) == 5
        assert len(client.post("query", QUERY)["rows"]) == 5
        refused = client.post("mutate", CHANGE, status=503)
        assert refused["code"] == "unwritable"
        assert "read-only file system" in refused["detail"]
        process.close(signal.SIGTERM)
        assert "Traceback" not in process.errors
    mount("-o", "remount,rw")


def fill(place: Path) -> Path:
    """Take all the room that is left; unbuffered, since closing would write the rest again."""
    filler = place / "filler"
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    return filler


def test_a_full_disk(original, small_disk):
    """Reads go on, at the start and later; what needs room says 503; the room is used again."""
    place, _ = small_disk
    project = shutil.copytree(original, place / "project")
    filler = fill(place)
    process, client = serve(project)
    with process:
        assert json.loads(client.send("GET", "/healthz").body) == {"status": "read_only"}
        assert len(client.get("kg/Item")["instances"]) == 5
        assert len(client.post("query", QUERY)["rows"]) == 5
        assert client.post("mutate", CHANGE, status=503)["code"] == "unwritable"
        process.close(signal.SIGTERM)
        assert "Traceback" not in process.errors
    filler.unlink()
    process, client = serve(project)
    with process:
        filler = fill(place)
        assert query(client).status == 503
        # A commit may still find room in the WAL, which is not given back; then views lag.
        assert_done_or_full(client.send("POST", "/graphs/main/mutate", delete_item(1), **JSON))
        assert len(client.get("kg/Item")["instances"]) >= 4
        assert run_command(("verify",), project).returncode == 0
        assert "0 MiB free" in run_command(("doctor",), project).stdout
        filler.unlink()
        assert client.send("POST", "/graphs/main/mutate", delete_item(2), **JSON).status == 200
        left = client.get("kg/Item")["instances"]
        assert len(left) in {3, 4}
        assert len(json.loads(query(client).body)["rows"]) == len(left)
        client.send("POST", "/graphs/main/mutate", delete_item(3), **JSON)
        filler = fill(place)  # now a worker has to follow, and has no room for it
        assert_done_or_full(query(client))
        filler.unlink()
        assert len(json.loads(query(client).body)["rows"]) == len(left) - 1
        process.close(signal.SIGTERM)
        assert "Traceback" not in process.errors


def assert_done_or_full(response):
    """A request was answered, or refused because the disk is full."""
    full = response.status == 503 and json.loads(response.body)["code"] == "storage_full"
    assert response.status == 200 or full, response.body


JSON = {"content_type": "application/json"}


def query(client):
    """What comes of a query in the sandbox."""
    return client.send("POST", "/graphs/main/query", json.dumps(QUERY).encode(), **JSON)


def delete_item(number):
    """The body of a request that deletes an item."""
    operation = {"op": "delete", "type": "Item", "id": f"item-{number}"}
    return json.dumps({"operations": [operation]}).encode()
