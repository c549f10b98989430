"""A server of a project, for as long as a block of code runs."""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def serving(project: Path, port: int = 0) -> Iterator[dict[str, Any]]:
    """Start a server and yield what it printed when it was ready; port 0 is any free one."""
    server = subprocess.Popen(  # noqa: S603 - the command that this project installs
        [sys.executable, "-m", "trails", "serve", f"--port={port}", "--json", "--project", project],
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for this process, which then ends the server in order
    )
    try:
        ready = server.stdout.readline() if server.stdout else b""
        if not ready:
            sys.exit(f"the server did not start (exit code {server.wait()})")
        yield json.loads(ready)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=30)


def is_free(port: int) -> bool:
    """Say whether nothing listens on a port of this machine."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
