"""Policies where they are used: the tools that a kernel lists, and the documentation."""

import os
import re
from pathlib import Path

import cedarpy
import pytest
from cedarpy import pst
from tests.worlds.projects import READERS, make_acme

from trails import App
from trails.app.kernels import kernel_of
from trails.model.actors import Actor
from trails.policies.vocabulary import ATTRIBUTES, GRAPH_ACTIONS, SERVER_ACTIONS

READER = Actor("bo", groups=frozenset({"readers"}), credential="t")
AGENTS = (
    'permit(principal in Group::"readers", action == Action::"Change", resource) '
    'when { context.branch like "agents/*" };\n'
)
ROOT = Path(__file__).parent.parent.parent
BLOCKS = [
    (page, block)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    for block in re.findall(r"```cedar\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
]


def test_a_kernel_lists_what_policies_permit_somewhere(tmp_path):
    """A tool is there if some branch permits it, and when policies change, so do the tools."""
    folder = make_acme(tmp_path, {"a.cedar": READERS + AGENTS})
    with App.open(folder) as app:
        kernel = kernel_of(app)

        def names(actor=READER):
            return {each.name for each in kernel.tools(actor).tools}

        try:
            assert "schema_get" in names()
            assert "graph_mutate" not in names()
            assert "branch_delete" not in names()
            assert names(Actor("cy", credential="t")) <= {"graph_health", "trails_meta_ping"}
            app.versions().create_branch("agents/x")
            assert "graph_mutate" in names()
            path = folder / "policies" / "a.cedar"
            path.write_text(READERS, encoding="utf-8")
            os.utime(path, (1, 1))
            os.utime(path.parent, (1, 1))
            app.policies.judge("main")._next_look = 0.0
            assert "graph_mutate" not in names()
        finally:
            kernel.close()


@pytest.mark.parametrize(("page", "block"), BLOCKS, ids=range(len(BLOCKS)))
def test_examples_are_policies(page, block):
    """Every Cedar text in the documentation parses, and speaks of what there is."""
    found = cedarpy.policies_to_pst(block)
    uids = pst.entity_uids(found.static_policies)
    assert found.static_policies, page
    assert not found.templates
    actions = {each.id for each in uids if str(each.type) == "Action"}
    assert actions <= {*GRAPH_ACTIONS, *SERVER_ACTIONS}
    assert {str(each.type) for each in uids} <= {*ATTRIBUTES, "Action"}
