"""The frame of a command that works on one graph: its report, and its session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trails.surfaces.cli.operations import Operations, Session
from trails.surfaces.cli.options import place_of
from trails.surfaces.cli.reporting import Reporting


@contextmanager
def open_session(
    operations: Operations,
    project: Path | None,
    server: str | None,
    graph: str | None,
    *,
    as_json: bool,
    declared: bool = False,
) -> Iterator[tuple[Reporting, Session]]:
    """Open a graph of a project or server, and report what its session says.

    ``declared``: the command needs what the project's own code declares.
    """
    with (
        Reporting(as_json=as_json) as report,
        operations.open(
            place_of(project, server), graph, report.tell, declared=declared
        ) as session,
    ):
        yield report, session
