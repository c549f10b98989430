"""A real project, and the real command on it."""

import shutil

import pytest
from tests.worlds.processes import Shell

LINES = """\
{"type": "Person", "data": {"email": "ann@example.org", "name": "Ann"}}
{"type": "Person", "data": {"email": "ben@example.org", "name": "Ben"}}
{"type": "Task", "id": "t1", "data": {"title": "Read the tour", "priority": 1}}
{"edge": "owner", "from": "Task/t1", "to": "ann@example.org"}
{"type": "Task", "id": "t2", "data": {"title": "Write the report"}}
"""

QUERY = """\
#+ description: Tasks of a priority, or of any.
#+ params:
#+   priority: { type: Int, min_value: 1, nullable: true }
#+   titles: { type: [String], nullable: true }
SELECT ?title ?p WHERE {
  ?task a :Task ; :title ?title .
  OPTIONAL { ?task :priority ?p }
  FILTER (!BOUND($priority) || ?p = $priority)
  FILTER (!BOUND($titles) || ?title IN $titles)
} ORDER BY ?title
"""


@pytest.fixture(scope="session")
def template(tmp_path_factory):
    """A project with two people, two tasks and a stored query."""
    folder = tmp_path_factory.mktemp("cli") / "acme"
    shell = Shell(folder.parent)
    shell.run("new", "acme")
    shell.project = folder
    (folder / "queries").mkdir()
    shell.write("queries/tasks.rq", QUERY)
    shell.write("data.ndjson", LINES)
    shell.run("load", "data.ndjson", "-m", "First load")
    return folder


@pytest.fixture
def shell(template, tmp_path):
    """A copy of that project for one test."""
    return Shell(shutil.copytree(template, tmp_path / "acme"))
