"""Hold a report against what was foreseen: any surprise, bad or good, is a finding."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from tests.conformance.suite import Report


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scenario that fails, and why it may."""

    scenario: str
    revision: str
    servers: tuple[str, ...]
    reason: str


def read_expected(file: Path) -> tuple[Expected, ...]:
    """The list in expected.toml."""
    found = tomllib.loads(file.read_text(encoding="utf-8")).get("failure", [])
    return msgspec.convert(found, tuple[Expected, ...])


def judge(
    server: str, report: Report, required: frozenset[str], expected: Sequence[Expected]
) -> Iterator[str]:
    """What is wrong: failures nobody foresaw, foreseen ones that pass, scenarios that never ran."""
    foreseen = {
        each.scenario
        for each in expected
        if each.revision == report.revision and server in each.servers
    }
    for scenario in sorted(foreseen - required):
        yield f"{scenario} is expected to fail, but is not required by {report.revision}"
    for scenario in sorted(required):
        if scenario not in report.failed:
            yield f"{scenario} did not run"
        elif report.failed[scenario] and scenario not in foreseen:
            yield f"{scenario} failed: {'; '.join(report.failed[scenario])}"
        elif not report.failed[scenario] and scenario in foreseen:
            yield f"{scenario} passes: take it off expected.toml"
