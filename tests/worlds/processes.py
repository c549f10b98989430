"""Processes: ``trails`` commands and servers, and what the system reports about any process."""

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

from tests.worlds.forks import Fork
from tests.worlds.surfaces import INITIALIZED, hello, message_of

from trails.app.serve.relay.owners import find_owner

PATIENCE = 120
"""Seconds until something that should happen did not."""


def wait_until(condition, what="it"):
    """Wait for something to become true; what it was."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)
    return found


def run_command(arguments, folder, stdin="", environment=None):
    """Run a command in a folder: its exit code, and what it said."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin.encode())
        given.seek(0)
        streams = [given.fileno(), out.fileno(), err.fileno()]
        returncode = Fork([*map(str, arguments)], streams, environment or {}, folder).wait(PATIENCE)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return SimpleNamespace(returncode=returncode, stdout=texts[0], stderr=texts[1])


class Shell:
    """Runs ``trails`` in a project folder."""

    def __init__(self, project):
        self.project = project

    def run(self, *arguments, code=0, stdin=""):
        """Run a command and expect an exit code; what it printed."""
        done = run_command(arguments, self.project, stdin)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def out(self, *arguments, **more):
        """What a command says."""
        return self.run(*arguments, **more).stdout

    def json(self, *arguments, **more):
        """What a command says as JSON."""
        return json.loads(self.out(*arguments, "--json", **more))

    def error(self, *arguments, **more):
        """What a command that can't be carried out complains about."""
        return self.run(*arguments, code=2, **more).stderr

    def write(self, name, content):
        """A file in the project: text, or JSON of anything else."""
        text = content if isinstance(content, str) else json.dumps(content)
        (self.project / name).write_text(text, encoding="utf-8")
        return name

    def update(self, handle, branch="main", **data):
        """Change fields of a node; the commit."""
        type_name, identifier = handle.split("/")
        change = {"op": "update", "type": type_name, "id": identifier, "data": data}
        name = self.write("change.json", [change])
        return self.json("mutate", "--operations", name, "--branch", branch)["commit"]


def command(*arguments):
    """How a trails process is started."""
    return [sys.executable, "-m", "trails", *map(str, arguments)]


class Process:
    """A trails process whose standard streams are pipes; ``cold``: one that imports everything."""

    def __init__(self, *arguments, env=None, cold=False):
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        streams = [theirs_in, theirs_out, self._errors.fileno()]
        if cold:
            stdin, stdout, stderr = streams
            environment = {**os.environ, **(env or {})}
            self.process = subprocess.Popen(
                command(*arguments), stdin=stdin, stdout=stdout, stderr=stderr, env=environment
            )
        else:
            self.process = Fork([*map(str, arguments)], streams, env or {})
        os.close(theirs_in)
        os.close(theirs_out)
        self.stdin = os.fdopen(ours_in, "wb")
        self.stdout = os.fdopen(ours_out, "rb")
        self.pid = self.process.pid
        self._lines = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self):
        for line in self.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def line(self):
        """The next line of output; None at its end."""
        return self._lines.get(timeout=PATIENCE)

    @property
    def errors(self):
        """Everything on standard error."""
        self._errors.seek(0)
        return self._errors.read().decode()

    def kill(self):
        """End it without warning."""
        self.process.kill()
        self.process.wait(PATIENCE)

    def close(self, number=None):
        """End it in order: by the end of its input, or by a signal; its exit code."""
        if number is None:
            with contextlib.suppress(OSError):
                self.stdin.close()
        elif self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(PATIENCE)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        for stream in (self.stdin, self.stdout, self._errors):
            with contextlib.suppress(OSError):
                stream.close()


class Stdio(Process):
    """``trails serve --stdio`` and its client."""

    def __init__(self, folder, *arguments, place="-p", **options):
        super().__init__("serve", "--stdio", place, folder, *arguments, **options)
        self._ids = count(1)
        self.notified = []
        self._answers = {}

    def send(self, message):
        """Send a message, or a line as it is."""
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.stdin.write(line + b"\n")
        self.stdin.flush()

    def receive(self):
        """The next message; every line is one."""
        line = self.line()
        assert line is not None, f"the process ended: {self.errors}"
        return json.loads(line)

    def ask(self, method, params=None):
        """Send a request; its id."""
        id_ = next(self._ids)
        self.send(message_of(None, method, {} if params is None else params, id_))
        return id_

    def answer(self, id_):
        """Wait for the answer to a request; what else comes on the way is kept."""
        while id_ not in self._answers:
            self._take()
        return self._answers.pop(id_)

    def _take(self):
        message = self.receive()
        if "method" in message:
            self.notified.append(message)
        else:
            self._answers[message["id"]] = message

    def request(self, method, params=None):
        """Send a request and wait for its result."""
        answer = self.answer(self.ask(method, params))
        assert "result" in answer, answer
        return answer["result"]

    def initialize(self):
        """Open a session of an older revision."""
        result = self.request("initialize", hello())
        self.send(INITIALIZED)
        return result

    def call(self, name, **arguments):
        """Call a tool of an older session; what it returns."""
        result = self.request("tools/call", {"name": name, "arguments": arguments})
        assert not result.get("isError"), result
        return result["structuredContent"]

    def wait_for(self, method):
        """Wait for a notification."""
        while not any(each.get("method") == method for each in self.notified):
            self._take()


class Bridge(Stdio):
    """``trails serve --stdio --server`` and its client."""

    def __init__(self, url, *arguments, **options):
        super().__init__(url, *arguments, place="--server", **options)


class Web(Process):
    """``trails serve`` on a free port."""

    def __init__(self, folder, *arguments, **options):
        super().__init__("serve", "-p", folder, "--port", "0", "--json", *arguments, **options)
        self.served = self.next_served()
        self.url = self.served["url"]

    def next_served(self):
        """What it says when it is ready."""
        line = self.line()
        assert line is not None, f"the process ended: {self.errors}"
        return json.loads(line)

    def close(self, number=signal.SIGTERM):
        """End it by a signal."""
        return super().close(number)


def wait_for_owner(folder, process):
    """Wait until a process owns a folder; what it sent before to one that is gone may be lost."""
    wait_until(lambda: (found := find_owner(folder)) and found.pid == process.pid, "a new owner")


def owner_first(folder, *processes):
    """Processes on a folder, the one that owns it first."""
    pid = wait_until(lambda: find_owner(folder), "an owner").pid
    return sorted(processes, key=lambda each: each.pid != pid)


def children_of(pid):
    """The processes that a process has started."""
    try:
        return [int(name) for name in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []


def state_of(folder):
    """The letter that the system has for what a process or a thread does."""
    return (folder / "stat").read_text().rsplit(")", 1)[1].split()[0]


def is_running(pid):
    """Whether a process runs; a dead one that nobody has asked about does not."""
    try:
        return state_of(Path(f"/proc/{pid}")) not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def seconds_used(pid):
    """The time that a process has had of the processors."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def stop(pid):
    """Have a process stand still, with each of its threads."""
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: set(_states_of_threads(pid)) == {"T"})


def _states_of_threads(pid):
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            yield state_of(task)


def kill_workers_of(sandbox):
    """End all of them, at work or not."""
    for pid in children_of(sandbox._spawner._process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def files_opened_by(pid: int) -> list[str]:
    """Paths and kinds; a store closes some of its files in the background."""
    opened = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            opened.append(str(entry.readlink()))
    return opened
