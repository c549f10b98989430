"""A full disk: a clear error, nothing half-written, reads go on, writes resume with the room."""

import shutil
import subprocess
import sys

import pytest
from tests.journeys.durability import unwritable
from tests.journeys.durability.campaign import environment, make_project


def run(scenario, project):
    """Run a scenario in a process of its own, which may be limited as a whole."""
    done = subprocess.run(
        [sys.executable, unwritable.__file__, scenario, str(project)],
        capture_output=True,
        text=True,
        env=environment(),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize(
    "scenario",
    [
        "log_refuses",
        "node_index_refuses",
        "quads_view_refuses",
        "activity_refuses",
        "bulk_fails_half_way",
        "bulk_load_fails_half_way",
        "files_stop_growing",
        "reads_outlive_their_activities",
    ],
)
def test_files_that_can_not_grow(tmp_path, scenario):
    """With RLIMIT_FSIZE: whichever file is refused, the graph stays whole and readable."""
    run(scenario, make_project(tmp_path / "project"))


def test_a_transaction_does_not_outlive_a_failed_change(tmp_path):
    """An error that a block swallows still fails its transaction, and nothing is written."""
    run("error_caught_in_a_transaction", make_project(tmp_path / "project"))


@pytest.fixture
def small_disk(tmp_path):
    """A file system of a few megabytes."""
    place = tmp_path / "disk"
    place.mkdir()
    mount, unmount = shutil.which("mount"), shutil.which("umount")
    if mount is None or unmount is None:
        pytest.skip("there is no mount command")
    mounting = [mount, "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(place)]
    mounted = subprocess.run(mounting, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run([unmount, "--lazy", str(place)], check=True)


def test_a_file_system_without_room(small_disk):
    """With a real ENOSPC: saves fail clearly, reads go on, and freed room is used."""
    run("file_system_fills", make_project(small_disk / "project"))
