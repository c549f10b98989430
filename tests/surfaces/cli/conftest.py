"""A real project, and the real command on it."""

import json
import shutil

import pytest
from tests.worlds.processes import run_command


class Shell:
    """Runs ``trails`` in a project folder."""

    def __init__(self, project):
        self.project = project

    def run(self, *arguments, code=0, stdin=""):
        """Run a command and expect an exit code; what it printed."""
        done = run_command(arguments, self.project, stdin)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def out(self, *arguments, **more):
        """What a command says."""
        return self.run(*arguments, **more).stdout

    def json(self, *arguments, **more):
        """What a command says as JSON."""
        return json.loads(self.out(*arguments, "--json", **more))

    def error(self, *arguments, **more):
        """What a command that can't be carried out complains about."""
        return self.run(*arguments, code=2, **more).stderr

    def write(self, name, content):
        """A file in the project: text, or JSON of anything else."""
        text = content if isinstance(content, str) else json.dumps(content)
        (self.project / name).write_text(text, encoding="utf-8")
        return name

    def update(self, handle, branch="main", **data):
        """Change fields of a node; the commit."""
        type_name, identifier = handle.split("/")
        change = {"op": "update", "type": type_name, "id": identifier, "data": data}
        name = self.write("change.json", [change])
        return self.json("mutate", "--operations", name, "--branch", branch)["commit"]


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
