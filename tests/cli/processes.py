"""Run ``trails`` in a process of its own, without importing it anew for each command.

This file is the parent of those processes: it has everything imported, and for each
line of JSON on standard input it forks a child that is the command.
"""

import json
import os
import subprocess
import sys
import tempfile
from types import SimpleNamespace


class Commands:
    """Starts commands from a parent that is ready."""

    def __init__(self):
        self._parent = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, arguments, cwd, stdin):
        """Run one command to its end."""
        asked = {"arguments": arguments, "cwd": str(cwd), "stdin": stdin or ""}
        self._parent.stdin.write(json.dumps(asked) + "\n")
        self._parent.stdin.flush()
        return SimpleNamespace(**json.loads(self._parent.stdout.readline()))

    def close(self):
        """End the parent."""
        self._parent.stdin.close()
        self._parent.wait()
        self._parent.stdout.close()


def command(asked, files):
    """Be the command: in its folder, with files for its streams."""
    from trails.app.main import main

    os.chdir(asked["cwd"])
    for number, file in enumerate(files):
        os.dup2(file.fileno(), number)
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.argv = ["trails", *asked["arguments"]]
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


def serve():
    """Fork a child for each line."""
    import trails.app.local
    import trails.app.main
    import trails.surfaces.cli.commands  # noqa: F401 - so that the children need not

    for line in sys.stdin:
        asked = json.loads(line)
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write(asked["stdin"].encode())
            given.seek(0)
            child = os.fork()
            if child == 0:
                command(asked, (given, out, err))
            _, status = os.waitpid(child, 0)
            texts = []
            for file in (out, err):
                file.seek(0)
                texts.append(file.read().decode())
        told = {"returncode": os.waitstatus_to_exitcode(status), "stdout": texts[0]}
        print(json.dumps({**told, "stderr": texts[1]}), flush=True)  # noqa: T201


if __name__ == "__main__":
    serve()
