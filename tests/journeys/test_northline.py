"""The example application: its data loads, its capabilities and queries work."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest

from trails import App, LoadRequest
from trails.errors import CapabilityError, ValidationError
from trails.projections.documents import project_reference

NORTHLINE = Path(__file__).parents[2] / "examples" / "northline"


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """Northline with its data, in a folder of its own."""
    folder = tmp_path_factory.mktemp("demo") / "northline"
    shutil.copytree(NORTHLINE, folder, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    subprocess.run([sys.executable, "seed.py"], cwd=folder, check=True, capture_output=True)
    with App.open(folder) as opened:
        yield opened


@pytest.fixture
def app_with_data(tmp_path):
    """Northline with its data, for one test."""
    folder = tmp_path / "northline"
    shutil.copytree(NORTHLINE, folder, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    subprocess.run([sys.executable, "seed.py"], cwd=folder, check=True, capture_output=True)
    with App.open(folder) as opened:
        yield opened


@pytest.fixture
def app_registry(tmp_path):
    """What Northline declares, without any data."""
    shutil.copytree(NORTHLINE, tmp_path / "northline")
    with App.open(tmp_path / "northline", declarations=False) as opened:
        yield opened.declared()


def test_the_data_is_a_few_hundred_connected_instances(app):
    """Every declared type but the abstract one has instances, in one commit."""
    ctx = app.context()
    counts = {name: cls.objects(ctx).count() for name, cls in app.registry().classes.items()}
    assert sum(counts.values()) - counts["Party"] == 450
    assert counts["Party"] == counts["Person"] + counts["Supplier"]
    assert all(counts.values())
    assert ctx.kg.head.seq == 2


def test_the_data_can_be_loaded_as_files(app, tmp_path):
    """``load`` of ``data/*.ndjson`` into an empty project gives what ``seed.py`` gives."""
    folder = tmp_path / "northline"
    shutil.copytree(NORTHLINE, folder, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    files = tuple(sorted((folder / "data").glob("*.ndjson")))
    with App.open(folder) as opened:
        opened.load(LoadRequest(files=files))
        loaded = sorted(b"".join(opened.export(opened.context())).splitlines())
    assert loaded == sorted(b"".join(app.export(app.context())).splitlines())


def test_loading_twice_is_refused_as_a_whole(app):
    """The data exists already: an error that names nodes, and nothing is written."""
    folder = app.folder
    head = app.context().kg.head
    app.close()
    done = subprocess.run(
        [sys.executable, "seed.py"], cwd=folder, check=False, capture_output=True, text=True
    )
    assert "already exists" in done.stderr
    with App.open(folder) as again:
        assert again.context().kg.head == head


QUERIES = {
    "incidents_by_component": {"since": "2024-01-01T00:00:00Z"},
    "open_hazards_by_severity": {},
    "requirement_trace": {"req_id": "REQ-001"},
    "supplier_exposure": {},
    "unverified_requirements": {"max_priority": 3},
}


def test_every_stored_query_runs(app_with_data):
    """Each is registered with its parameters, and gives rows with the columns it says."""
    app = app_with_data
    assert set(app.registry().queries) == set(QUERIES)
    ctx = app.context()
    for name, params in QUERIES.items():
        query = app.registry().queries[name]
        assert not query.mutation
        answer = app.query(ctx, name, params)
        assert answer.rows, name
        assert answer.columns == query.columns
    assert len(app.query(ctx, "incidents_by_component")) >= len(
        app.query(ctx, "incidents_by_component", QUERIES["incidents_by_component"])
    )
    with pytest.raises(ValidationError, match=r"params\.req_id must match"):
        app.query(ctx, "requirement_trace", {"req_id": "17"})


def test_capabilities_work_end_to_end(tmp_path):
    """Propose, refuse to accept without an owner, accept with one, and see it counted."""
    folder = tmp_path / "northline"
    shutil.copytree(NORTHLINE, folder, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    subprocess.run([sys.executable, "seed.py"], cwd=folder, check=True, capture_output=True)
    with App.open(folder) as app:
        ctx = app.context(actor="ann")
        before = app.call(ctx, "programme.summary")
        rationale = "Drivers reported that the bell can't be heard in the tunnel. " * 3
        made = app.call(
            ctx,
            "requirements.propose",
            {"title": "The bell shall be heard in the tunnel", "rationale": rationale},
        )
        assert made["status"] == "proposed"
        with pytest.raises(CapabilityError, match="no owner"):
            app.call(ctx, "requirements.accept", {"req": made["iri"]})
        requirement = app.registry().classes["Requirement"].get(ctx, made["iri"])
        requirement.owner = app.registry().classes["Person"].objects(ctx).first()
        requirement.save(ctx)
        app.call(ctx, "requirements.accept", {"req": made["iri"]})
        after = app.call(ctx, "programme.summary")
        assert after["accepted"] == before["accepted"] + 1
        with pytest.raises(ValidationError):
            app.call(ctx, "requirements.propose", {"title": "Short", "rationale": "-"})
        assert app.call(ctx, "hazards.open")
        part = app.registry().classes["Component"].objects(ctx).where(part_of__isnull=False).first()
        affected = app.call(ctx, "components.impact", {"component": part.iri(ctx)})
        assert part.part_of.iri(ctx) in {each["iri"] for each in affected}


def run_demo(tmp_path, **settings):
    """What ``make demo`` runs, on a copy of the example, with no terminal."""
    home = tmp_path / "repository" / "examples" / "northline"
    shutil.copytree(NORTHLINE, home, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
    return subprocess.Popen(
        [sys.executable, home / "demo.py"],
        env={**os.environ, "PYTHONUNBUFFERED": "1", **settings},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.long  # each run of CI takes the whole tour by ``make demo``
def test_the_whole_tour_runs_to_its_end(tmp_path):
    """It loses nothing to a kill, proves the log, and leaves no process or folder behind."""
    with run_demo(tmp_path, DEMO_ONCE="1", TOUR="all") as demo:
        said = demo.stdout.read()
    assert demo.returncode == 0, said
    assert "0 of them are missing" in said
    assert "✗" not in said
    assert "Traceback" not in said
    assert "ResourceUpdated trails://kg/Requirement" in said
    assert "Ctrl-C" not in said
    assert not (tmp_path / "repository" / ".demo").exists()


def test_the_demo_serves_without_a_terminal_until_it_is_stopped(tmp_path):
    """The address comes first, the tour uses that server, and the data stays."""
    said = ""
    with run_demo(tmp_path) as demo:
        for line in demo.stdout:
            said += line
            if "Ctrl-C" in line:
                break
        url = re.search(r"http://127\.0\.0\.1:[0-9]+", said)[0]
        assert httpx2.get(f"{url}/graphs/main/kg/Hazard?limit=1").is_success
        demo.send_signal(signal.SIGTERM)
        said += demo.stdout.read()
    assert demo.returncode == 0, said
    assert said.index(f"claude mcp add --transport http northline {url}") < said.index("1. Load")
    assert len(re.findall(r"^[0-9]+\. ", said, re.MULTILINE)) == 5
    assert "Traceback" not in said
    with App.open(tmp_path / "repository" / ".demo" / "northline") as again:
        assert again.context().kg.head.seq > 1


def test_a_second_demo_serves_the_data_of_the_first(app_with_data, tmp_path):
    """What somebody did with the demo is never thrown away."""
    project = app_with_data.folder
    app_with_data.close()
    demo = tmp_path / "repository" / ".demo" / "northline"
    demo.parent.mkdir(parents=True)
    project.rename(demo)
    said = ""
    with run_demo(tmp_path) as again:
        for line in again.stdout:
            said += line
            if "Ctrl-C" in line:
                again.send_signal(signal.SIGINT)
    assert again.returncode == 0, said
    assert "data of your last demo" in said
    assert "1. Load" not in said
    with App.open(demo) as app:
        hazard = app.registry().classes["Hazard"]
        assert hazard.objects(app.context()).count() == 37


def test_the_reference_is_what_the_registry_says(app_registry):
    """The generated page is up to date; TRAILS_UPDATE_GOLDEN=1 rewrites it."""
    page = NORTHLINE / "REFERENCE.md"
    text = project_reference(app_registry, "Northline")
    if os.environ.get("TRAILS_UPDATE_GOLDEN"):
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text
