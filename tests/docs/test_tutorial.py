"""The tutorial, typed command by command into an empty folder, prints what it says.

Ids, times and paths are replaced by others that are the same each time. TRAILS_UPDATE_GOLDEN=1
writes what is printed into the page.
"""

import hashlib
import os
import re
import shlex
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tests.worlds.clients import free_port
from tests.worlds.processes import PATIENCE, Process, run_command

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"`([\w./-]+)`:\s*\Z")
"""A block after such words is the content of that file."""
TIME = re.compile(r"\d{4}-\d\d-\d\d([T ])\d\d:\d\d:\d\d(\.\d+)?")
PORT = "8321"
BIN = Path(sys.executable).parent
WIDE = {"COLUMNS": "200", "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
"""A wide terminal, in which the environment is active."""
READY = "Press Ctrl-C"


class Reader:
    """Someone who follows the page, in a folder."""

    def __init__(self, folder, servers):
        self._home = folder
        self._folder = folder
        self._servers = servers
        self._port = str(free_port())
        self._ids = {}

    def save(self, name, text):
        """Write a file as the page shows it."""
        file = self._folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text.replace(PORT, self._port), encoding="utf-8")

    def type(self, line):
        """Run a command; what it prints, as the page shows it."""
        words = shlex.split(line.replace(PORT, self._port))
        if words[0] == "cd":
            self._folder /= words[1]
            return ""
        return self._shown(self._run(words))

    def _run(self, words):
        match words:
            case ["python", *arguments]:
                done = subprocess.run(
                    [sys.executable, *arguments],
                    cwd=self._folder,
                    capture_output=True,
                    text=True,
                    timeout=PATIENCE,
                    check=False,
                )
                return done.stdout + done.stderr
            case ["trails", "serve", *_]:
                return "".join(self._serve(words[1:]))
            case ["trails", *arguments, ">", name]:
                done = run_command(arguments, self._folder, environment=WIDE)
                (self._folder / name).write_text(done.stdout, encoding="utf-8")
                return done.stderr
            case ["trails", *arguments]:
                done = run_command(arguments, self._folder, environment=WIDE)
                return done.stdout + done.stderr
        raise AssertionError(words)

    def _serve(self, arguments):
        """Start a server, which runs until the end of the page; what it says until it is ready."""
        server = self._servers.enter_context(Process(*arguments, "-p", self._folder))
        while (line := server.line()) is not None:
            yield line.decode()
            if line.decode().startswith(READY):
                return
        raise AssertionError(server.errors)

    def _shown(self, text):
        for real in (self._home, Path.home()):
            text = text.replace(str(real), "/home/ann")
        text = re.sub(r"\b[0-9a-f]{12,64}\b", self._renamed, text.replace(self._port, PORT))
        text = TIME.sub(r"2026-03-01\g<1>09:30:00", text)
        return "".join(f"{line.rstrip()}\n" for line in text.splitlines())

    def _renamed(self, found):
        """The id of a commit: another one, the same wherever it is printed."""
        number = self._ids.setdefault(found[0][:12], len(self._ids))
        return hashlib.sha256(b"%d" % number).hexdigest()[: len(found[0])]


def follow(text, reader):
    """Do what the page says; the page with what is really printed."""

    def done(block):
        name = FILE.search(text, 0, block.start())
        if name is not None:
            reader.save(name[1], block[2])
        if block[1] != "console":
            return block[0]
        typed = [line for line in block[2].splitlines() if line.startswith("$ ")]
        printed = "".join(f"{line}\n{reader.type(line[2:])}" for line in typed)
        return f"```console\n{printed}```"

    return BLOCK.sub(done, text)


def test_the_tutorial_does_what_it_says(tmp_path):
    """Every command runs, and what it prints is what the page shows."""
    text = PAGE.read_text(encoding="utf-8")
    with ExitStack() as servers:
        found = follow(text, Reader(tmp_path, servers))
    assert "Traceback" not in found, found
    if os.environ.get("TRAILS_UPDATE_GOLDEN"):
        PAGE.write_text(found, encoding="utf-8")
    assert found == PAGE.read_text(encoding="utf-8")
