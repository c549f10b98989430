"""The policies that the documents show: they are valid, and do what is said of them."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tests.worlds.projects import make_acme

from trails import App
from trails.app.kernels import kernel_of
from trails.app.policy_inspection import PolicyInspector
from trails.model.actors import Actor
from trails.model.decisions import PolicyQuestion
from trails.model.results import Success

DOCS = Path(__file__).parents[2] / "docs"
TICKETS = """
@node_type
class Ticket(Node):
    "What a customer wants."
    number: str = predicate(key=True)

@node_type
class Invoice(Node):
    "What a customer pays."
    number: str = predicate(key=True)
"""
SHOWN = [
    (file.relative_to(DOCS).as_posix(), number, text)
    for file in (DOCS / "how-to" / "access.md", DOCS / "reference" / "access.md")
    for number, text in enumerate(re.findall(r"```cedar\n(.*?)```", file.read_text(), re.DOTALL))
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A project with all policies of the documents, each block in a file of its own."""
    folder = make_acme(tmp_path_factory.mktemp("shown") / "acme")
    settings = folder / "trails.toml"
    settings.write_text(settings.read_text() + '[server]\npolicies = "server"\n')
    with (folder / "app.py").open("a") as app:
        app.write(TICKETS)
    for file, number, text in SHOWN:
        place = folder / ("server" if "GraphList" in text else "policies")
        place.mkdir(exist_ok=True)
        # the same name may stand in two documents, and not in one folder
        named = text.replace('@id("', f'@id("{file} {number} ')
        (place / f"{Path(file).stem}-{number}.cedar").write_text(named)
    return folder


def test_what_is_shown_is_valid(folder):
    """Every block names what can exist, and surprises nobody."""
    assert len(SHOWN) >= 5
    for check in PolicyInspector(folder).check():
        assert check.mode == "policies"
        assert check.problems == ()
        assert check.notes == ()


@pytest.mark.parametrize(
    ("group", "asked", "allowed"),
    [
        ("support", {"action": "Read"}, True),
        ("support", {"action": "Read", "resource": "Type::Ticket"}, True),
        ("support", {"action": "Read", "resource": "Field::Person.name"}, True),
        ("support", {"action": "Read", "resource": "Field::Person.salary"}, False),
        ("support", {"action": "Read", "resource": "Type::Invoice"}, False),
        ("support", {"action": "Read", "resource": "Field::Invoice.number"}, False),
        ("support", {"action": "Change"}, False),
        ("importers", {"action": "Read"}, True),
        ("importers", {"action": "Change"}, False),
        ("importers", {"action": "Change", "branch": "import/a"}, True),
        ("importers", {"action": "Change", "branch": "imports"}, False),
        ("importers", {"action": "BranchCreate", "target": "import/a"}, True),
        ("importers", {"action": "BranchCreate", "target": "release"}, False),
        ("importers", {"action": "BranchDelete", "branch": "import/a"}, True),
        ("importers", {"action": "BranchMerge", "branch": "import/a", "target": "main"}, False),
        ("operators", {"action": "GraphList"}, True),
        ("support", {"action": "GraphList"}, False),
    ],
)
def test_what_is_shown_does_what_is_said(folder, group, asked, allowed):
    """The recipes of the how-to, asked."""
    question = PolicyQuestion(actor="sue", groups=(group,), **asked)
    assert PolicyInspector(folder).explain("main", question).allowed is allowed


def test_the_first_policy_lets_an_agent_work(tmp_path):
    """It reads main, makes a branch of its own, writes there, and writes nowhere else."""
    folder = make_acme(tmp_path / "acme", {"first.cedar": SHOWN[0][2]})
    agent = Actor("planner", groups=frozenset({"agents"}), credential="t")
    change = {"operations": [{"op": "create", "type": "Person", "data": {"name": "ann"}}]}
    with App.open(folder, strict=True) as app:
        kernel = kernel_of(app)

        def call(tool, **arguments):
            return asyncio.run(kernel.execute(agent, tool, arguments))

        try:
            assert "graph_mutate" not in {each.name for each in kernel.tools(agent).tools}
            assert isinstance(call("branch_create", name="agents/planner/a"), Success)
            assert isinstance(call("graph_mutate", branch="agents/planner/a", **change), Success)
            assert isinstance(call("people.count", branch="agents/planner/a"), Success)
            assert isinstance(call("people.count"), Success)
            assert call("graph_mutate", **change).code == "not_found"
            assert call("branch_create", name="release").code == "forbidden"
            assert call("people.hire", name="bo").code == "unknown"
            assert call("branch_merge", source="agents/planner/a").code == "unknown"
        finally:
            kernel.close()
