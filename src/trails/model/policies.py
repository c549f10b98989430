"""What is told about policies: what is wrong with them, and why they decide as they do."""

from __future__ import annotations

import msgspec


class PolicyProblem(msgspec.Struct, frozen=True):
    """A mistake in a policy, with where it is and what to do."""

    file: str
    line: int
    policy: str
    """Its ``@id``, or its place among the policies of its file."""
    message: str

    def __str__(self) -> str:
        """As an error says it."""
        return f"{self.file}:{self.line}: {self.policy}: {self.message}"
