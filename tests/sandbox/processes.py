"""Processes as the system tells about them."""

import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.waiting import wait_until


def children(pid):
    """The processes that a process has started."""
    try:
        return [int(name) for name in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def state(folder):
    """The letter that the system has for what a process or a thread does."""
    return (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]


def running(pid):
    """Whether a process runs; a dead one that nobody has asked about does not."""
    try:
        return state(Path(f"/proc/{pid}")) not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def seconds_used(pid):
    """The time that a process has had of the processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stop(pid):
    """Have a process stand still, with each of its threads."""
    os.kill(pid, signal.SIGSTOP)
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    wait_until(lambda: {state(task) for task in tasks} == {"T"})


def kill_workers_of(sandbox):
    """End all of them, at work or not."""
    for pid in children(sandbox._spawner._process.pid):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
