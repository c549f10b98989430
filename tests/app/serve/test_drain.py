"""The signal to end: running calls have time to finish, and what is cut off is named."""

import signal
import threading
from http.client import HTTPException

import pytest
from tests.app.serve.test_http import ask, call
from tests.worlds.processes import PATIENCE, Stdio, Web, wait_until
from tests.worlds.projects import make_notebook


def start(tmp_path, seconds):
    """A project whose servers drain for so long."""
    folder = make_notebook(tmp_path / "notebook")
    with (folder / "trails.toml").open("a") as file:
        file.write(f"\n[server]\ndrain_seconds = {seconds}\n")
    return folder


class Slow(threading.Thread):
    """A call that goes on until it is told to end."""

    def __init__(self, url, place, name):
        super().__init__()
        self._url = url
        self._begun = place / name
        self.answer = None
        self.start()
        wait_until(self._begun.exists, "the call")

    def run(self):
        """Call."""
        try:
            given = {"text": self._begun.name, "begun": str(self._begun)}
            self.answer = call(self._url, "notes.slow", **given)
        except (OSError, HTTPException) as error:
            self.answer = error

    def finish(self):
        """Let it end."""
        self._begun.with_name(f"{self._begun.name}-go").touch()
        self.join()


def is_closed(url):
    """Whether a port takes no more connections."""
    try:
        ask(url, "GET", "/healthz")
    except OSError:
        return True
    return False


def test_calls_end_in_their_time_while_nothing_new_is_accepted(tmp_path):
    """The server says whom it waits for, and ends when they have."""
    with Web(start(tmp_path, PATIENCE)) as web:
        slow = Slow(web.url, tmp_path, "slow")
        web.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "waiting up to 120 s for 1 call (notes.slow)" in web.errors, "a line")
        wait_until(lambda: is_closed(web.url), "an end of new connections")
        assert web.process.poll() is None
        slow.finish()
        assert slow.answer[0] == 200
        assert web.process.wait(PATIENCE) == 0
        assert "cut off" not in web.errors


@pytest.mark.parametrize("kind", [Web, Stdio])
def test_what_is_cut_off_is_counted_and_named(tmp_path, kind):
    """In one line, with the time that it had; over HTTP and over standard streams."""
    folder = start(tmp_path, 0.2)
    begun = [tmp_path / "one", tmp_path / "two"]
    with kind(folder) as server:
        if kind is Web:
            running = [Slow(server.url, tmp_path, each.name) for each in begun]
        else:
            running = []
            server.initialize()
            for file in begun:
                given = {"text": file.name, "begun": str(file)}
                server.ask("tools/call", {"name": "notes.slow", "arguments": given})
                wait_until(file.exists, "the call")
        server.process.send_signal(signal.SIGTERM)
        server.process.wait(PATIENCE)
        lines = [line for line in server.errors.splitlines() if "cut off" in line]
        assert len(lines) == 1
        assert "Cancel" not in server.errors
        assert "cut off after 0.2 s: 2 calls (notes.slow x 2)" in lines[0]
        for each in running:
            each.join()


def test_a_front_says_what_it_cut_off(tmp_path):
    """It passes requests on, so their outcome is the owner's."""
    folder = start(tmp_path, 0.2)
    with Web(folder) as owner, Web(folder) as front:
        slow = Slow(front.url, tmp_path, "slow")
        assert front.close() == 0
        assert "cut off after 0.2 s: 1 request without an answer" in front.errors
        slow.finish()
        assert owner.close() == 0
