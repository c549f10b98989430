"""``trails policy``: from a project folder to reports about its policies.

Cedar is imported only when a command needs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trails.model.decisions import (
    Explanation,
    PolicyActor,
    PolicyCheck,
    PolicyMatrix,
    PolicyQuestion,
    PolicyResult,
)


class LocalPolicies:
    """The policies of project folders of this machine."""

    def check_policies(self, folder: Path) -> list[PolicyCheck]:
        """Check the policies of every graph and of the server."""
        from trails.app.policy_inspection import PolicyInspector  # noqa: PLC0415

        return PolicyInspector(folder).check()

    def test_policies(
        self, folder: Path, graph: str | None, file: Path | None
    ) -> list[PolicyResult]:
        """Run the cases of a file."""
        from trails.app.policy_inspection import PolicyInspector  # noqa: PLC0415

        return PolicyInspector(folder).test(graph, file)

    def explain_policy(
        self, folder: Path, graph: str | None, question: PolicyQuestion
    ) -> Explanation:
        """Explain why something is allowed or denied."""
        from trails.app.policy_inspection import PolicyInspector  # noqa: PLC0415

        return PolicyInspector(folder).explain(graph, question)

    def policy_matrix(
        self, folder: Path, graph: str | None, actors: Sequence[PolicyActor], branch: str
    ) -> PolicyMatrix:
        """Show which actor may use which tool."""
        from trails.app.policy_inspection import PolicyInspector  # noqa: PLC0415

        return PolicyInspector(folder).matrix(graph, actors, branch)
