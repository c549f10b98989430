"""What a check of a project or graph found."""

from __future__ import annotations

from typing import Literal

import msgspec

Status = Literal["ok", "note", "problem"]


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that was looked at: how it is and, if it is wrong, what to do."""

    name: str
    status: Status
    detail: str
    fix: str = ""


class Report(msgspec.Struct, frozen=True):
    """All findings of one check."""

    subject: str
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether there is no problem."""
        return all(finding.status != "problem" for finding in self.findings)
