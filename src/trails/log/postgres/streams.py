"""The names of a log's streams, whose rows are locked by those who add to them.

That of commits says whether the log is in use: see ``rows``.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Final

from trails.errors import StorageError
from trails.log.postgres.connections import Connection

COMMITS: Final = "commits"
ACTIVITIES: Final = "activities"
MOVED: Final = "moved commits"
"""In place of ``commits``: the log is in a file of a project now."""
MOVED_ACTIVITIES: Final = "moved activities"
"""In place of ``activities``, as long as the log is not in use."""


def copying_name(graph: str, base_iri: str, created: str) -> str:
    """In place of ``commits``: a log with this header is being copied to here."""
    header = sha256(f"{graph}\0{base_iri}\0{created}".encode()).hexdigest()
    return f"{_copying(graph)}{header}"


def _copying(graph: str) -> str:
    return f"copying {graph.encode().hex()} "


def check_complete(connection: Connection, graph: str, place: str) -> None:
    """Refuse a log that is being copied to the server."""
    query = "SELECT 1 FROM trails_streams WHERE starts_with(name, %s)"
    if connection.execute(query, (_copying(graph),)).fetchone() is not None:
        raise StorageError(
            f"the log of graph {graph!r} is being copied to {place}, and is not complete. Run "
            "'trails log copy' or 'trails restore' again in that project: it goes on where it "
            "stopped"
        )


def check_in_use(connection: Connection, graph: str, number: int, place: str) -> None:
    """Refuse a log that was moved away."""
    query = "SELECT 1 FROM trails_streams WHERE graph = %s AND name = %s"
    if connection.execute(query, (number, COMMITS)).fetchone() is None:
        raise moved_away(graph, place)


def moved_away(graph: str, place: str) -> StorageError:
    """The error of a log that is not in use any more."""
    return StorageError(
        f"the log of graph {graph!r} on {place} is not in use: it was moved to a project folder, "
        "or is being copied back. In that project, remove the URL from the settings (or from "
        "TRAILS_LOG_URL), or move the log here with 'trails log copy --to postgresql'"
    )
