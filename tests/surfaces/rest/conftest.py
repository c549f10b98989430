"""A real server on a free port, on a real project, in this process."""

import http.client
import json
import threading
import time
from types import SimpleNamespace
from urllib.parse import urlencode

import pytest
import uvicorn
from tests.surfaces.rest.project import APP, QUERIES

from trails import App
from trails.app.kernels import kernel_of
from trails.model.results import Failure
from trails.surfaces.rest.routes import build_app


class Client:
    """Sends requests, each on a connection of its own, and reads what comes back."""

    def __init__(self, port):
        self.port = port

    def send(self, method, path, body=None, **headers):
        """A response, whatever its status."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        try:
            connection.request(method, path, body=body, headers=given)
            got = connection.getresponse()
            data = got.read()
        finally:
            connection.close()
        return SimpleNamespace(status=got.status, headers=got.headers, body=data)

    def get(self, path, status=200, **query):
        """A JSON document."""
        asked = f"?{urlencode(query)}" if query else ""
        return self._json(self.send("GET", f"/graphs/main/{path}{asked}"), status)

    def post(self, path, document, status=200):
        """What comes of a JSON document."""
        body = json.dumps(document).encode()
        got = self.send("POST", f"/graphs/main/{path}", body, content_type="application/json")
        return self._json(got, status)

    @staticmethod
    def _json(got, status):
        assert got.status == status, got.body[:1000]
        return json.loads(got.body)


class Serving:
    """uvicorn in a thread."""

    def __init__(self, app):
        config = uvicorn.Config(app, port=0, log_config=None, lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            time.sleep(0.01)
        self.port = self._server.servers[0].sockets[0].getsockname()[1]

    def close(self):
        """Let it end."""
        self._server.should_exit = True
        self._thread.join(30)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project of one graph, opened."""
    folder = tmp_path_factory.mktemp("rest")
    (folder / "trails.toml").write_text('[project]\nname = "acme"\n', encoding="utf-8")
    (folder / "app.py").write_text(APP, encoding="utf-8")
    (folder / "queries").mkdir()
    for name, text in QUERIES.items():
        (folder / "queries" / f"{name}.rq").write_text(text, encoding="utf-8")
    with App.open(folder, strict=True) as app:
        yield app


@pytest.fixture(scope="module")
def client(project):
    """A client of the server of that project; ``broken`` is a graph in quarantine."""
    kernel = kernel_of(project)
    broken = Failure("semantic", "quarantined", "graph 'broken' is not served: bad app")
    serving = Serving(build_app({"main": kernel, "broken": broken}))
    yield Client(serving.port)
    serving.close()
    kernel.close()
