"""A real ``trails serve`` in a process of its own."""

import re
import subprocess
import sys

_MAIN = "from trails.app.main import main; main()"


class Served:
    """A project that another process serves, until it is closed."""

    def __init__(self, project):
        self.process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, "serve", "--port", "0"],
            cwd=project,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = []
        for line in self.process.stdout:
            said.append(line)
            found = re.search(r"served at (http://\S+?)\.?\s", line)
            if found:
                self.url = found[1]
                return
        self.process.wait()
        raise AssertionError("".join(said))

    def close(self):
        """End it as Ctrl-C does."""
        self.process.terminate()
        try:
            self.process.wait(20)
        finally:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
