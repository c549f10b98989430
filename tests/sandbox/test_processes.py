"""Processes and folders: everything ends with its owner, and nothing is left."""

import errno
import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from tests.sandbox.branches import Branch, statements
from tests.worlds.processes import (
    children_of,
    is_running,
    kill_workers_of,
    seconds_used,
    stop,
    wait_until,
)

from trails.errors import LimitError, UnavailableError
from trails.sandbox.limits import Limits
from trails.sandbox.pool import Sandbox
from trails.sandbox.processes import WorkerHandle
from trails.sandbox.wire import encode, frame
from trails.sandbox.zygote import leave_terminal

SLOW = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
OWNER = """
import sys, threading, time
from pathlib import Path
from tests.sandbox.branches import Branch, statements
from trails.sandbox.limits import Limits
from trails.sandbox.pool import Sandbox

folder = Path(sys.argv[1])
branch = Branch(folder / "store")
branch.commit(added=statements(1000))
sandbox = Sandbox(folder / "scratch", Limits(seconds=60))
# From a thread that ends at once: what is started must not end with it.
thread = threading.Thread(target=lambda: sandbox.query(branch, "ASK {}", caller="a"))
thread.start()
thread.join()
line = sandbox._groups["main"]
while len(line._idle) < 2:
    time.sleep(0.01)
slow = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
threading.Thread(target=lambda: sandbox.query(branch, slow, caller="b"), daemon=True).start()
while not line._running:
    time.sleep(0.01)
assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="a").truth
print(sandbox._spawner._process.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def owner(tmp_path):
    """A process with a sandbox, of which one worker is busy."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, tmp_path],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    zygote = int(process.stdout.readline())
    yield process, zygote, children_of(zygote)
    process.kill()
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("victim", ["owner", "zygote"])
def test_workers_end_with_their_owner(owner, victim):
    """Killed without a chance to clean up, while a query runs."""
    process, zygote, workers = owner
    assert len(workers) >= 2
    os.kill(process.pid if victim == "owner" else zygote, signal.SIGKILL)
    wait_until(lambda: not any(map(is_running, [zygote, *workers])))


def test_the_debris_of_a_crash_is_removed(owner, tmp_path):
    """By the next sandbox on the folder; a living one's files stay."""
    process, _, _ = owner
    scratch = tmp_path / "scratch"
    (crashed,) = scratch.glob("run-*[!k]")
    branch = Branch(tmp_path / "other")
    second = Sandbox(scratch)
    assert second.query(branch, "ASK {}", caller="ann").truth
    assert crashed.exists()
    process.kill()
    process.wait()
    third = Sandbox(scratch)
    assert third.query(branch, "ASK {}", caller="ann").truth
    assert not crashed.exists()
    second.close()
    third.close()
    assert list(scratch.iterdir()) == []


def test_a_dead_zygote_is_replaced(branch, sandbox):
    """Its workers are gone with it; the next query gets new ones."""
    assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="ann").truth
    process = sandbox._spawner._process
    process.kill()
    process.wait()
    wait_until(lambda: not any(worker.quiet() for worker in sandbox._groups["main"]._idle))
    assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="ann").truth
    assert sandbox._spawner._process is not process


def test_a_worker_that_was_killed_from_outside_is_an_error_and_is_replaced(branch, sandbox):
    """Such as by a system that is out of memory."""
    sandbox.query(branch, "ASK {}", caller="ann")
    wait_until(lambda: sandbox._groups["main"]._idle)
    (worker,) = [each for each in sandbox._groups["main"]._idle if each.caller == "ann"]
    busy = seconds_used(worker.pid) + 0.2

    def kill():
        wait_until(lambda: seconds_used(worker.pid) > busy)
        kill_workers_of(sandbox)

    thread = threading.Thread(target=kill)
    thread.start()
    with pytest.raises(LimitError) as caught:
        sandbox.query(branch, SLOW, caller="ann")
    thread.join()
    assert caught.value.data["limit"] == "memory"
    assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="ann").truth


@pytest.mark.parametrize("spare", [False, True])
def test_a_query_that_its_worker_never_read_is_given_to_another(branch, sandbox, spare):
    """An idle worker that is killed, which the system tells only after the query was sent."""
    sandbox.query(branch, "ASK {}", caller="ann")
    wait_until(lambda: len(sandbox._groups["main"]._idle) == 2)
    workers = {each.caller: each for each in sandbox._groups["main"]._idle}
    for each in workers.values():
        stop(each.pid)
    taken = workers["" if spare else "ann"]
    caller = "bob" if spare else "ann"

    def kill():
        wait_until(lambda: fcntl.ioctl(taken._link, termios.TIOCOUTQ, bytes(4)) != bytes(4))
        for each in workers.values():
            os.kill(each.pid, signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller=caller).truth
    thread.join()
    assert not taken.alive


def test_a_query_is_given_to_another_once(branch, sandbox, monkeypatch):
    """Whose end is then said: nothing is tried for ever."""
    sandbox.query(branch, "ASK {}", caller="ann")
    asked = []

    def ask(worker, job, deadline):
        asked.append(worker)
        stop(worker.pid)
        worker.send(frame(encode(job)), deadline)
        os.kill(worker.pid, signal.SIGKILL)
        return worker.receive(deadline)

    monkeypatch.setattr(WorkerHandle, "ask", ask)
    with pytest.raises(LimitError):
        sandbox.query(branch, "ASK {}", caller="ann")
    assert len(asked) == 2


def test_nothing_is_started_before_it_is_needed(tmp_path):
    """A sandbox that nobody uses costs nothing."""
    sandbox = Sandbox(tmp_path / "scratch")
    assert sandbox._spawner._process is None
    assert not (tmp_path / "scratch").exists()
    sandbox.close()


def test_closing_leaves_nothing(branch, tmp_path):
    """No process, no folder, and no more answers."""
    sandbox = Sandbox(tmp_path / "scratch")
    sandbox.query(branch, "ASK {}", caller="ann")
    zygote = sandbox._spawner._process.pid
    workers = children_of(zygote)
    assert workers
    sandbox.close()
    wait_until(lambda: not any(map(is_running, [zygote, *workers])))
    assert list((tmp_path / "scratch").iterdir()) == []
    with pytest.raises(UnavailableError, match="closed"):
        sandbox.query(branch, "ASK {}", caller="ann")
    sandbox.close()


def test_a_killed_workers_folder_is_not_used_again(branch, sandbox, tmp_path):
    """It is removed, and the next worker has another."""
    sandbox.query(branch, "ASK {}", caller="ann")
    folders = {worker.folder for worker in sandbox._groups["main"]._idle}
    for _ in range(3):
        with pytest.raises(LimitError):
            sandbox.query(branch, SLOW, caller="ann", limits=Limits(seconds=0.2))
    sandbox.query(branch, "ASK {}", caller="ann")
    wait_until(lambda: not any(folder.exists() for folder in folders))
    assert not folders & {worker.folder for worker in sandbox._groups["main"]._idle}


def test_a_temporary_sandbox_has_a_folder_of_its_own(branch, tmp_path, monkeypatch):
    """Which only its user can enter, and which is empty after it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    sandbox = Sandbox(None)
    assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="ann").truth
    home = tmp_path / f"trails-sandbox-{os.getuid()}"
    assert home.stat().st_mode & 0o777 == 0o700
    sandbox.close()
    assert list(home.iterdir()) == []


def test_the_files_that_workers_share_can_not_be_written(branch, sandbox, tmp_path):
    """They are the same files as the store's own."""
    sandbox.query(branch, "ASK {}", caller="ann")

    def shared():
        # Of the first worker's base nothing may be left: it is compacted for those that follow.
        found = []
        for worker in sandbox._groups["main"]._idle:
            for path in worker.folder.glob("*.sst"):
                with suppress(FileNotFoundError):  # a store removes what it has compacted
                    found.append(path.stat())
        return [each for each in found if each.st_nlink > 1]

    assert all(each.st_mode & 0o222 == 0 for each in wait_until(shared))


def priorities(worker):
    """The priorities of a process's threads, by their number."""
    found = {}
    for stat in Path(f"/proc/{worker.pid}/task").glob("*/stat"):
        with suppress(FileNotFoundError, ProcessLookupError):
            found[int(stat.parent.name)] = int(stat.read_text().rsplit(")", 1)[1].split()[16])
    return found


def test_a_long_query_lets_others_go_first(branch, sandbox):
    """Its thread's priority is lowered while it runs; the next query has a fresh thread."""
    sandbox.query(branch, "ASK {}", caller="ann")
    line = sandbox._groups["main"]
    wait_until(lambda: line._idle)
    worker = line._idle[-1]
    first = worker._thread
    assert priorities(worker)[first] == 0

    def run():
        with suppress(LimitError):
            sandbox.query(branch, SLOW, caller="ann")

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: priorities(worker).get(first) == 19)
    # Linux may share processor time between sessions; priorities count within one.
    assert os.getsid(worker.pid) == os.getsid(0)
    os.kill(worker.pid, signal.SIGKILL)
    thread.join()
    branch.commit(added=statements(500))
    medium = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f }"
    seen = set()
    for _ in range(3):
        sandbox.query(branch, medium, caller="ann")
        (worker,) = (each for each in line._idle if each.caller == "ann")
        assert priorities(worker)[worker._thread] == 0
        seen.add(worker._thread)
    assert len(seen) == 3


def test_a_short_query_is_waited_for_once(branch, sandbox):
    """In the socket; a poll is asked whether the worker lives, and waits for long ones only."""
    sandbox.query(branch, "ASK {}", caller="ann")
    (worker,) = (each for each in sandbox._groups["main"]._idle if each.caller == "ann")
    waits = []

    class Poller:
        def __init__(self, poller):
            self._poller = poller

        def poll(self, timeout):
            waits.append(timeout)
            return self._poller.poll(timeout)

    worker._poller = Poller(worker._poller)
    for _ in range(20):
        assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="ann").truth
    assert waits.count(0) == 20
    assert len(waits) < 30  # a busy machine may delay some of them
    with pytest.raises(LimitError):  # shorter than that first wait
        sandbox.query(branch, SLOW, caller="ann", limits=Limits(seconds=0.01))
    assert 0 < waits[-1] <= 10


def test_workers_have_no_terminal(tmp_path):
    """They belong to the session of their owner, but can't read or write its terminal."""
    said = tmp_path / "said"
    pid, terminal = pty.fork()
    if pid == 0 and (worker := os.fork()):  # the first process of a session with a terminal
        os.waitpid(worker, 0)
        os._exit(0)
    if pid == 0:
        os.close(os.open("/dev/tty", os.O_RDWR))
        leave_terminal()
        try:
            os.open("/dev/tty", os.O_RDWR)
        except OSError as error:
            said.write_text(error.strerror, encoding="utf-8")
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(terminal)
    assert said.read_text(encoding="utf-8") == os.strerror(errno.ENXIO)


def test_a_worker_forked_by_a_dying_zygote_does_not_start():
    """Its parent is no longer the one that forked it, so no signal will ever come.

    The same worker serves while its zygote lives: nothing else keeps it from starting.
    """
    assert _fork_worker(zygote_dies=False) == ("served", "")
    assert _fork_worker(zygote_dies=True) == ("", "")  # a crash would leave a traceback


FORK_WORKER = """
import os, socket, sys, time
from trails.sandbox import zygote as module

reader, writer = os.pipe()
module.serve = lambda *_: os.write(writer, b"served")
if os.fork() == 0:
    zygote = os.getpid()
    if os.fork() == 0:
        while sys.argv[1] == "dies" and os.getppid() == zygote:
            time.sleep(0.01)
        module._become_worker(zygote, socket.socketpair()[0], [writer, os.dup(2)], 1 << 30)
    if sys.argv[1] == "lives":
        os.wait()
    os._exit(0)
os.close(writer)
print(os.read(reader, 10).decode(), end="")
"""


def _fork_worker(*, zygote_dies):
    """Fork a worker as a zygote does: what its ``serve`` wrote, and its standard error."""
    child = subprocess.run(
        [sys.executable, "-c", FORK_WORKER, "dies" if zygote_dies else "lives"],
        capture_output=True,
        check=True,
        text=True,
        env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    return child.stdout, child.stderr
