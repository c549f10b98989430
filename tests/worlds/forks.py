"""Start ``trails`` processes from a parent that has imported everything already.

This file, run as a program, is that parent: for each request on its standard input, a socket, it
forks a process that becomes the command, with the descriptors that came along, and one that waits
for its end and reports the exit code. It imports nothing of the tests.
"""

import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
from pathlib import Path

_NUMBER = struct.Struct("i")


class Fork:
    """A process that was forked elsewhere, used like a Popen."""

    def __init__(self, arguments, descriptors, environment, folder="."):
        self._status, told = os.pipe()
        asked = {
            "arguments": arguments,
            "environment": environment,
            "folder": str(Path(folder).resolve()),
        }
        socket.send_fds(_parent(), [json.dumps(asked).encode()], [*descriptors, told])
        os.close(told)
        (self.pid,) = _NUMBER.unpack(os.read(self._status, _NUMBER.size))
        self.returncode = None

    def wait(self, timeout=None):
        """Its exit code; minus a signal's number where one ended it."""
        if self.returncode is None:
            ready, _, _ = select.select([self._status], [], [], timeout)
            if not ready:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            (self.returncode,) = _NUMBER.unpack(os.read(self._status, _NUMBER.size))
            os.close(self._status)
        return self.returncode

    def poll(self):
        """Its exit code, if it has ended."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def send_signal(self, number):
        """Send it a signal, unless it has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self):
        """End it without warning."""
        self.send_signal(signal.SIGKILL)


_parents = []


def _parent():
    if not _parents:
        ours, theirs = socket.socketpair()
        process = subprocess.Popen([sys.executable, "-P", __file__], stdin=theirs)
        theirs.close()
        _parents.append(ours)
        atexit.register(_end, ours, process)
    return _parents[0]


def _end(requests, process):
    requests.close()
    process.wait()


def _be_command(arguments, environment, folder, descriptors):
    """Be the command; never returns."""
    from trails.app.main import main

    os.environ.update(environment)
    os.chdir(folder)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    os.closerange(3, 64)
    sys.argv = ["trails", *arguments]
    code = 1
    try:
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _mind(asked, descriptors):
    """Start the command, tell its number, and then its end; never returns."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    *standard, told = descriptors
    pid = os.fork()
    if pid == 0:
        _be_command(**asked, descriptors=standard)
    for descriptor in (0, *standard):
        os.close(descriptor)
    os.write(told, _NUMBER.pack(pid))
    _, status = os.waitpid(pid, 0)
    os.write(told, _NUMBER.pack(os.waitstatus_to_exitcode(status)))
    os._exit(0)


def _build_once():
    """Have the commands ready: their options take as long to inspect as most commands run."""
    import typer.main

    from trails.app.local import LocalOperations
    from trails.surfaces.cli import commands

    cli = commands.build_cli(LocalOperations())
    get_command = typer.main.get_command
    built = get_command(cli)
    commands._build = lambda *_: cli
    typer.main.get_command = lambda app: built if app is cli else get_command(app)


def fork_commands():
    """Fork for each request, until nobody can make one."""
    import re2  # noqa: F401

    import trails.app.main
    import trails.app.serve.commands
    import trails.app.serve.http.front
    import trails.app.serve.http.servers
    import trails.app.serve.relay.remote
    import trails.app.serve.relay.stdio
    import trails.app.serve.service
    import trails.app.serve.web
    import trails.surfaces.cli.serving  # noqa: F401 - so that the forks need not

    _build_once()
    gc.collect()
    gc.freeze()  # the collector would copy the pages of the parent into each fork
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    requests = socket.socket(fileno=0)
    while True:
        asked, descriptors, _, _ = socket.recv_fds(requests, 1 << 16, 4)
        if not asked:
            return
        if os.fork() == 0:
            _mind(json.loads(asked), descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


if __name__ == "__main__":
    fork_commands()
