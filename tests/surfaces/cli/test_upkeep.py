"""Upkeep on the command line: cleanup, optimize, backup, restore, doctor, interrupts."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TRAILS = Path(sys.executable).with_name("trails")
ASK = ("query", "SELECT ?title { ?t :title ?title } ORDER BY ?title")


def test_cleanup_drops_what_can_be_made_again(shell):
    """A dry run says so first; the past can still be read."""
    first = shell.json("commit", "list")["commits"][-1]["commit"]
    shell.run(*ASK, "--snapshot", first)
    assert shell.out("cleanup", "--keep", 0, "--dry-run").startswith(
        "main: would remove 1 snapshot,"
    )
    assert shell.json("cleanup", "--keep", 0)["graphs"]["main"]["snapshots"] == [first]
    assert shell.json(*ASK, "--snapshot", first)["rows"] == []
    assert shell.json("optimize")["graphs"]["main"]["before"] > 0


def test_a_backup_is_restored(shell):
    """Every graph into its place; data that was there is moved aside, and only by force."""
    before = shell.out(*ASK)
    assert "backup 1, 1 branch, at commit" in shell.out("backup", "../saved")
    assert "no changes since the last backup" in shell.out("backup", "--to", "../saved")
    assert "000001" in shell.out("backup", "list", "../saved", "--check")
    assert "is not a backup" in shell.error("backup", ".")
    shell.update("Task/t1", title="Something else")
    assert "--force" in shell.error("restore", "../saved")
    assert "Something else" in shell.out(*ASK)
    aside = shell.json("restore", "../saved", "--force")["graphs"]["main"]["moved_aside"]
    assert Path(aside).is_dir()
    assert shell.out(*ASK) == before
    assert shell.json("verify")["healthy"] is True
    shutil.rmtree(shell.project / ".trails")
    shell.run("restore", "../saved")
    assert shell.out(*ASK) == before


def test_a_damaged_backup_is_refused_before_anything_moves(shell):
    """All digests are compared first."""
    shell.run("backup", "../saved")
    log = shell.project.parent / "saved/main/000001/rows.db"
    log.write_bytes(log.read_bytes()[:-1] + b"x")
    assert "rows.db was changed" in shell.error("restore", "../saved", "--force")
    assert "is not a backup" in shell.error("restore", ".", "--force")
    assert len(shell.json(*ASK)["rows"]) == 2
    assert [each.name for each in (shell.project / ".trails/graphs").iterdir()] == ["main"]


def test_doctor_tells_of_the_sandbox_and_of_branches(shell):
    """What confines untrusted text here, how many branches, and their disk."""
    shell.run("branch", "create", "side")
    text = shell.out("doctor")
    assert "sandbox: " in text
    assert "branches: 2 (main, side); in addition to main, branches 0.0 MiB" in text


def test_graphs_are_chosen(shell):
    """With several graphs and no main, one must be named; backups hold all."""
    settings = "[project]\nname = 'acme'\n[graphs.one]\n[graphs.two]\n"
    shell.write("trails.toml", settings)
    shutil.rmtree(shell.project / ".trails")
    assert "one, two; choose one with --graph" in shell.error("branch", "list")
    assert "there is no graph 'tow'" in shell.error("branch", "list", "--graph", "tow")
    shell.run("load", "data.ndjson", "--graph", "two")
    assert set(shell.json("backup", "../saved")["graphs"]) == {"one", "two"}
    assert set(shell.json("cleanup")["graphs"]) == {"one", "two"}
    assert set(shell.json("cleanup", "-g", "one")["graphs"]) == {"one"}


@pytest.mark.parametrize(
    "command", ["branch list", "commit list", "diff", "query", "load", "backup create"]
)
def test_help_has_an_example(shell, command):
    """Every command shows how it is used."""
    text = shell.out(*command.split(), "--help")
    assert "Example" in text
    assert "--json" in text
    assert max(map(len, text.splitlines())) <= 80


def test_an_interrupt_loses_nothing(shell):
    """Ctrl-C during a load ends with 130 and without a trace; nothing was written."""
    started = subprocess.Popen(
        [TRAILS, "load", "-", "--format", "ndjson", "--branch", "b", "--from", "main"],
        cwd=shell.project,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    line = b'{"type": "Task", "id": "x%d", "data": {"title": "Many of them"}}\n'
    owner = shell.project / ".trails/owner"
    while started.poll() is None and str(started.pid) not in owner.read_text():
        os.sched_yield()
    started.stdin.write(b"".join(line % number for number in range(100)))
    started.stdin.flush()
    asleep = 0
    while started.poll() is None and asleep < 20:  # it has read what there is, and waits
        time.sleep(0.02)
        state = Path(f"/proc/{started.pid}/stat").read_text().rpartition(") ")[2][0]
        asleep = asleep + 1 if state == "S" else 0
    os.killpg(started.pid, signal.SIGINT)
    _, said = started.communicate()
    assert started.returncode == 130
    assert b"Traceback" not in said
    assert b"interrupted" in said
    assert [each["name"] for each in shell.json("branch", "list")["branches"]] == ["main"]
    assert shell.json("verify")["healthy"] is True


def test_a_reader_that_has_seen_enough_is_no_error(shell):
    """Output into a pipe that was closed ends quietly."""
    started = subprocess.Popen(
        [TRAILS, "export"],
        cwd=shell.project,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    started.stdout.close()
    assert started.stderr.read() == b""
    started.stderr.close()
    assert started.wait() == 1
