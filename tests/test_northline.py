"""The example application: its data loads, its capabilities and queries work."""

import fcntl
import os
import pty
import shutil
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from trails import App, LoadRequest
from trails.errors import CapabilityError, ValidationError
from trails.projections.reference import project_reference

NORTHLINE = Path(__file__).parent.parent / "examples" / "northline"


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
    assert "exists already" in done.stderr
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
        assert answer.variables == query.columns
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


def test_the_tour_runs_to_its_end():
    """What ``make demo`` runs exits cleanly and loses nothing to a kill."""
    done = subprocess.run(
        [sys.executable, NORTHLINE / "tour.py"],
        check=False,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "0 of them are missing" in done.stdout
    assert "✗" not in done.stdout
    assert "ResourceUpdated trails://kg/Requirement" in done.stdout
    assert "Ctrl-C" not in done.stdout


def test_the_demo_is_served_until_ctrl_c(app_with_data):
    """On a terminal the server stays, tells how to let a client in, and goes with one key."""
    project = app_with_data.folder
    app_with_data.close()
    ours, theirs = pty.openpty()
    code = f"import tour; tour.show_agent(tour.Path({str(project)!r}), stay=True)"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=NORTHLINE,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: take_terminal(theirs),  # noqa: PLW1509 - no threads here
        text=True,
    ) as demo:
        said = ""
        for line in demo.stdout:
            said += line
            if "Ctrl-C" in line:
                os.write(ours, b"\x03")
        assert demo.wait(timeout=120) == 0, said
    for each in (ours, theirs):
        os.close(each)
    assert "claude mcp add --transport http northline http://127.0.0.1:" in said
    assert "Traceback" not in said
    with App.open(project) as again:  # nobody holds the folder any more
        assert again.registry().types


def take_terminal(terminal):
    """Be the process to which keys like Ctrl-C go."""
    os.setsid()
    fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)


def test_the_reference_is_what_the_registry_says(app_registry):
    """The generated page is up to date; TRAILS_UPDATE_GOLDEN=1 rewrites it."""
    page = NORTHLINE / "REFERENCE.md"
    text = project_reference(app_registry, "Northline")
    if os.environ.get("TRAILS_UPDATE_GOLDEN"):
        page.write_text(text, encoding="utf-8")
    assert page.read_text(encoding="utf-8") == text
