"""Run ``trails`` commands to their end, each in a process of its own."""

import tempfile
from types import SimpleNamespace

from tests.app.serve.forks import Fork
from tests.waiting import PATIENCE


def run_command(arguments, folder, stdin=""):
    """Run a command in a folder: its exit code, and what it said."""
    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
    ):
        given.write(stdin.encode())
        given.seek(0)
        streams = [given.fileno(), out.fileno(), err.fileno()]
        returncode = Fork([*map(str, arguments)], streams, {}, folder).wait(PATIENCE)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return SimpleNamespace(returncode=returncode, stdout=texts[0], stderr=texts[1])
