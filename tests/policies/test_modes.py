"""Which policies hold on a graph: its own, read only, or none."""

import subprocess
import sys

import pytest
from tests.worlds.projects import READERS, make_acme

from trails import App
from trails.errors import PolicyError, QuarantineError
from trails.model.actors import Actor
from trails.model.decisions import Resource

ADA = Actor("ada")
READER = Actor("bo", groups=frozenset({"readers"}))
GRAPH = Resource("Graph", "main")


def test_a_graph_without_policies_and_tokens_is_open(tmp_path):
    """Local development: everything is allowed."""
    with App.open(make_acme(tmp_path)) as app:
        judge = app.policies.judge("main")
        assert judge.mode == "open"
        assert judge.allows(ADA, "Admin", GRAPH)
        assert judge.allows_somewhere(ADA, "Change", GRAPH, ["main"])


READ_ONLY = {
    ("Read", "Graph", "main"): True,
    ("Read", "Field", "Person.salary"): True,
    ("Export", "Graph", "main"): True,
    ("InvokeQuery", "Query", "names"): True,
    ("InvokeQuery", "Query", "raise_all"): False,
    ("InvokeCapability", "Capability", "people.count"): True,
    ("InvokeCapability", "Capability", "people.hire"): False,
    ("Change", "Graph", "main"): False,
    ("Change", "Type", "Person"): False,
    ("SchemaApply", "Graph", "main"): False,
    ("BranchCreate", "Graph", "main"): False,
    ("BranchDelete", "Graph", "main"): False,
    ("BranchMerge", "Graph", "main"): False,
    ("Admin", "Graph", "main"): False,
    ("GraphList", "Server", "trails"): False,
}


@pytest.mark.parametrize("asked", READ_ONLY, ids="-".join)
def test_tokens_without_policies_mean_read_only(tmp_path, asked):
    """Where credentials are asked for and no policy says more, data can be read."""
    action, kind, identifier = asked
    with App.open(make_acme(tmp_path), guarded=lambda: True) as app:
        judge = app.policies.judge("main")
        assert judge.mode == "read only"
        given = judge.allows(ADA, action, Resource(kind, identifier), "main")
        assert given is READ_ONLY[asked]
        assert not app.policies.server().allows(ADA, "GraphList", Resource("Server", "trails"))


def test_the_first_credential_changes_access_at_once(tmp_path):
    """Not when the files are looked at the next time, which is within a second."""
    made: list[str] = []
    with App.open(make_acme(tmp_path), guarded=lambda: bool(made)) as app:
        judge = app.policies.judge("main")
        assert judge.allows(ADA, "Change", GRAPH, "main")
        made.append("a token")
        assert not judge.allows(ADA, "Change", GRAPH, "main")
        assert judge.allows(ADA, "Read", GRAPH, "main")
        assert judge.mode == "read only"


def test_policies_decide(tmp_path):
    """A policy permits what it says, and nothing else is permitted."""
    with App.open(make_acme(tmp_path, {"a.cedar": READERS})) as app:
        judge = app.policies.judge("main")
        assert judge.mode == "policies"
        assert judge.allows(READER, "Read", GRAPH, "main")
        assert not judge.allows(ADA, "Read", GRAPH, "main")
        assert not judge.allows(READER, "Change", GRAPH, "main")
        assert not app.policies.server().allows(READER, "GraphList", Resource("Server", "trails"))


def test_a_wrong_policy_quarantines_the_graph(tmp_path):
    """A graph whose policies can't be used is not served."""
    folder = make_acme(tmp_path, {"a.cedar": READERS.replace("Read", "Raed", 1)})
    with App.open(folder) as app:
        assert isinstance(app.quarantined["main"], PolicyError)
        with pytest.raises(QuarantineError, match=r"a\.cedar:1.*did you mean 'Read'"):
            app.registry("main")


def test_cedar_is_imported_only_where_it_decides(tmp_path):
    """A project without policies and tokens does not wait for Cedar."""
    code = f"""
import sys
from trails import App
import trails.app.local, trails.surfaces.cli.commands
with App.open({str(make_acme(tmp_path))!r}) as app:
    app.policies.judge("main").version, app.policies.server().version
assert "cedarpy" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
