"""A real server on a free port, on a real project, in this process."""

import pytest
from tests.worlds.clients import RestClient, ThreadedServer
from tests.worlds.projects import NOTES, NOTES_QUERIES, make_project

from trails import App
from trails.app.kernels import kernel_of
from trails.model.results import Failure
from trails.surfaces.rest.routes import build_app


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A project of one graph, opened."""
    folder = make_project(tmp_path_factory.mktemp("rest"), NOTES, queries=NOTES_QUERIES)
    with App.open(folder, strict=True) as app:
        yield app


@pytest.fixture(scope="module")
def client(project):
    """A client of the server of that project; ``broken`` is a graph in quarantine."""
    kernel = kernel_of(project)
    broken = Failure("semantic", "quarantined", "graph 'broken' is not served: bad app")
    serving = ThreadedServer(build_app({"main": kernel, "broken": broken}))
    yield RestClient(serving.port)
    serving.close()
    kernel.close()
