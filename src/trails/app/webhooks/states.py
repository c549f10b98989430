"""Where a webhook is: the last commit that its receiver has, and what came of the last attempt.

One file for each webhook, in the folder of its graph, replaced and synced after each delivery: what
was acknowledged is not sent again after a restart, unless the process was killed in between.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from trails.app.webhooks.settings import WebhookSettings
from trails.engine.graph.graph import Graph
from trails.engine.upkeep.backups import WEBHOOKS
from trails.errors import ConflictError, CorruptionError, NotFoundError
from trails.files import make_folder, replace_file
from trails.log.storage import storage_errors
from trails.model.names import suggest
from trails.model.upkeep import WebhookStatus


class WebhookState(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored."""

    position: str
    """The commit up to which everything was delivered."""
    result: str = ""
    """The digest of the result that was last delivered, of a webhook with a query."""
    delivered: int = 0
    failures: int = 0
    """Attempts that failed since the last one that succeeded."""
    last_attempt: str | None = None
    last_status: int | None = None
    last_error: str = ""
    next_attempt: float | None = None
    """When the next attempt is due, in seconds since 1970; None: at once."""
    disabled: str = ""
    """Why it is disabled; empty if it is not."""


class StateFile:
    """The stored state of one webhook."""

    def __init__(self, folder: Path, name: str) -> None:
        self._path = folder / WEBHOOKS / f"{name}.json"

    def read(self) -> WebhookState | None:
        """The state; None before the first start."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=WebhookState)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise CorruptionError(
                f"{self._path} can't be read: {error}; delete it, and the webhook starts at the "
                "head of its branch"
            ) from None

    def write(self, state: WebhookState) -> None:
        """Store a state; it is on the disk when this returns."""
        with storage_errors("keep the position of a webhook"):
            make_folder(self._path.parent)
            replace_file(self._path, msgspec.json.encode(state))


def read_state(graph: Graph, given: WebhookSettings) -> WebhookState | None:
    """The state of a webhook; None if it has not started."""
    return None if graph.folder is None else StateFile(graph.folder, given.name).read()


def describe_webhook(
    graph: str, given: WebhookSettings, state: WebhookState | None
) -> WebhookStatus:
    """A webhook as a listing shows it."""
    if state is None:
        return WebhookStatus(graph, given.name, given.url, given.branch, "new")
    condition: Literal["active", "retrying", "disabled"] = (
        "disabled" if state.disabled else "retrying" if state.failures else "active"
    )
    return WebhookStatus(
        graph,
        given.name,
        given.url,
        given.branch,
        condition,
        position=state.position,
        delivered=state.delivered,
        failures=state.failures,
        last_attempt=state.last_attempt,
        last_status=state.last_status,
        last_error=state.last_error,
        next_attempt=None if state.next_attempt is None else _spell(state.next_attempt),
        disabled=state.disabled,
    )


def _spell(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def resume_webhook(
    graph: Graph, known: tuple[WebhookSettings, ...], name: str, since: str | None
) -> WebhookStatus:
    """Enable a webhook again and retry at once, from its position or from another commit."""
    given = next((each for each in known if each.name == name), None)
    if given is None:
        names = [each.name for each in known]
        hint = suggest(name, names) if names else "it has none"
        raise NotFoundError(f"graph {graph.name!r} has no webhook {name[:100]!r}; {hint}")
    assert graph.folder is not None  # noqa: S101 - a project has files
    file = StateFile(graph.folder, name)
    state = file.read()
    if state is None:
        raise ConflictError(f"webhook {name!r} has not started yet; 'trails serve' starts it")
    if since is not None:
        head = graph.log_head(given.branch).commit if since == "head" else since
        found = graph.log.commit(head)
        if found is None:
            raise NotFoundError(f"there is no commit {since[:100]!r}; give a whole id, or head")
        state = msgspec.structs.replace(state, position=found.id)
    state = msgspec.structs.replace(state, failures=0, next_attempt=None, disabled="")
    file.write(state)
    return describe_webhook(graph.name, given, state)
