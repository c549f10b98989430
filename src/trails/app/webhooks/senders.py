"""Deliver the changes of a graph to webhooks: in order, at least once, and never in a writer's way.

A sender follows the change feed as the actor that its settings name, and sends one message at a
time. It stores the commit of each message that was accepted, so after a restart it goes on from the
log. A message that is refused is sent again with growing pauses, and those after it wait for it; in
the end the webhook is disabled until the operator resumes it. A retry has the id of the first
attempt: receivers can drop what they have already.

The stored state is read again before each step, because another process may have resumed it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from typing import Final

import msgspec

from trails.app.app import App
from trails.app.kernels import ServedGraphs
from trails.app.webhooks.requests import DeliveryResult, WebhookMessage, send, sign
from trails.app.webhooks.settings import WebhookSettings
from trails.app.webhooks.states import StateFile, WebhookState
from trails.engine.graph.graph import Graph, now
from trails.engine.history.change_feed import START, ChangeEvent
from trails.errors import SettingsError, TrailsError
from trails.model.origins import ORIGIN, Origin
from trails.model.results import Failure
from trails.request.changes import ChangeStream
from trails.request.pipeline import Kernel

_GLANCE: Final = 1.0
"""Seconds between two looks at a webhook that is disabled or waits."""
_IDLE: Final = 15.0
"""Seconds without a change after which the position is stored, past commits without one."""
_LONGEST: Final = 86_400
"""The longest pause that a receiver can ask for."""
_LARGEST: Final = 256 << 10
"""Bytes of a query's result that are sent."""
_SETTINGS: Final = "settings: "
"""How a state says that the next start may find better settings."""
_GONE: Final = 410
_ENDING: Final = "unavailable"
_STALE: Final = "stale"
_logger: Final = logging.getLogger("trails")
_change = msgspec.structs.replace


async def deliver_webhooks(
    app: App, graphs: ServedGraphs, environment: Mapping[str, str], report: Callable[[str], None]
) -> None:
    """Deliver to all webhooks of a project until cancelled."""
    given = {name: each.webhooks for name, each in app.settings.graphs.items() if each.webhooks}
    await asyncio.gather(
        *(_deliver(app, graphs, name, each, environment, report) for name, each in given.items())
    )


async def _deliver(
    app: App,
    graphs: ServedGraphs,
    name: str,
    given: Sequence[WebhookSettings],
    environment: Mapping[str, str],
    report: Callable[[str], None],
) -> None:
    """Deliver to the webhooks of a graph, as soon as it is served."""
    while isinstance(kernel := graphs[name], Failure):
        if name not in app.quarantined:
            return
        await asyncio.sleep(_GLANCE)  # a reload may end the quarantine
    graph = app.graph(name)
    if graph.folder is None or graph.read_only is not None:
        report(f"graph {name} is read-only: its webhooks are not served")
        return
    senders = [WebhookSender(kernel, graph, each, app.settings.project.name) for each in given]
    await asyncio.gather(*(each.run(environment, report) for each in senders))


class _Pending(msgspec.Struct, frozen=True):
    """A message, and the state after it was accepted."""

    message: WebhookMessage | None
    """None if there is nothing to send, and only the position changes."""
    position: str
    result: str = ""


class WebhookSender:
    """Delivers to one webhook."""

    def __init__(self, kernel: Kernel, graph: Graph, given: WebhookSettings, project: str) -> None:
        assert graph.folder is not None  # noqa: S101 - the caller has checked
        self._kernel = kernel
        self._graph = graph
        self._given = given
        self._project = project
        self._actor = given.identity
        self._file = StateFile(graph.folder, given.name)
        self._secrets: list[bytes] = []
        self._stream: ChangeStream | None = None
        self._position = ""
        """The commit that the stream and the pending messages continue after."""
        self._pending: deque[_Pending] = deque()

    async def run(self, environment: Mapping[str, str], report: Callable[[str], None]) -> None:
        """Deliver until cancelled, or until the server stops."""
        ORIGIN.set(Origin("webhook"))
        try:
            await self._start(environment, report)
            while await self._step():
                pass
        except TrailsError as error:
            report(f"webhook {self._given.name} stopped: {error.message}")
        except Exception as error:
            report(f"webhook {self._given.name} stopped: {type(error).__name__}")
            _logger.exception(
                "webhook %s stopped", self._given.name, extra={"event": "webhook.stopped"}
            )
        finally:
            self._close()

    async def _start(self, environment: Mapping[str, str], report: Callable[[str], None]) -> None:
        """Store where a new webhook begins: at the head of its branch, with what follows."""
        state = await asyncio.to_thread(self._file.read)
        if state is None:
            state = WebhookState(position=self._head())
        elif state.disabled.startswith(_SETTINGS):
            state = _change(state, disabled="")
        try:
            self._secrets = self._given.secrets(environment)
        except SettingsError as error:
            state = _change(state, disabled=_SETTINGS + error.message)
            report(error.message)
        if self._given.query and not state.result:
            found = await self._ask(state, state.position)
            if not isinstance(found, Failure):  # else it is asked again, and the failure counts
                state = _change(state, result=found.result)
        await self._store(state)

    def _head(self) -> str:
        head = self._graph.log.head(self._given.branch)
        return START if head is None or not head.commit else head.commit

    async def _store(self, state: WebhookState) -> None:
        self._position = state.position
        await asyncio.to_thread(self._file.write, state)

    async def _step(self) -> bool:
        """Do one thing; returns whether there is more to do."""
        state = await asyncio.to_thread(self._file.read)
        if state is None:
            raise SettingsError("its stored position was deleted; restart the server")
        due = state.next_attempt is None or time.time() >= state.next_attempt
        if state.disabled or not due:
            await asyncio.sleep(_GLANCE)
            return True
        if state.position != self._position:
            self._close()
            self._position = state.position
        if not self._pending:
            refused = await self._read(state)
            if refused is not None:
                return await self._refuse(state, refused)
        if self._pending:
            await self._deliver(state, self._pending[0])
        return True

    # --- from the feed to messages -------------------------------------------------------------

    async def _read(self, state: WebhookState) -> Failure | None:
        """Wait for changes, and make messages of them; or say why there can't be any."""
        if self._stream is None:
            opened = await self._open(state.position)
            if isinstance(opened, Failure):
                return opened
            self._stream = opened
        baseline = bool(self._given.query) and not state.result
        page = None if baseline else await self._stream.next(_IDLE)
        if isinstance(page, Failure):
            return page
        if baseline or (self._given.query and page is not None):
            pending = await self._ask(state, self._stream.position)
            if isinstance(pending, Failure):
                self._close()  # these changes are read again
                return pending
            self._pending.append(pending)
        elif page is not None:
            self._pending.extend(map(self._announce, page.events))
        elif self._stream.position != state.position:
            self._pending.append(_Pending(None, self._stream.position, state.result))
        return None

    async def _open(self, position: str) -> ChangeStream | Failure:
        given = self._given
        arguments: dict[str, object] = {"branch": given.branch, "since": position}
        if given.types:
            arguments["type"] = list(given.types)
        return await self._kernel.changes.open(self._actor, arguments)

    def _announce(self, event: ChangeEvent) -> _Pending:
        data = {"graph": self._graph.name, **msgspec.to_builtins(event)}
        return _Pending(self._message("graph.changed", event.commit, data), event.commit)

    async def _ask(self, state: WebhookState, commit: str) -> _Pending | Failure:
        """Run the query; there is a message if its result differs from the last one."""
        name, branch = self._given.query, self._given.branch
        arguments = {"name": name, "branch": branch}
        outcome = await self._kernel.transfers.record(self._actor, "stored_query_run", arguments)
        if isinstance(outcome, Failure):
            return outcome
        found = msgspec.json.decode(outcome.body, type=dict[str, object])
        rows = found.get("rows")
        every = sorted(map(msgspec.json.encode, rows)) if isinstance(rows, list) else [outcome.body]
        digest = sha256(b"\n".join(every)).hexdigest()
        if digest == state.result or not state.result:
            return _Pending(None, commit, digest)
        if len(outcome.body) > _LARGEST:
            found = {"truncated": True}
        data = {"graph": self._graph.name, "branch": branch, "commit": commit, "query": name}
        return _Pending(self._message("query.changed", commit, {**data, **found}), commit, digest)

    def _message(self, kind: str, commit: str, data: Mapping[str, object]) -> WebhookMessage:
        body = {"type": kind, "timestamp": now(), "project": self._project, "data": data}
        return WebhookMessage(f"{self._given.name}_{commit}", msgspec.json.encode(body))

    # --- from messages to the receiver -----------------------------------------------------------

    async def _deliver(self, state: WebhookState, pending: _Pending) -> None:
        if pending.message is None:
            answer = None
        else:
            answer = await self._send(pending.message)
            state = _change(
                state, last_attempt=now(), last_status=answer.status, last_error=answer.error
            )
        if answer is not None and answer.error:
            await self._store(self._failed(state, answer))
            return
        state = _change(
            state,
            position=pending.position,
            result=pending.result,
            delivered=state.delivered + (answer is not None),
            failures=0,
            next_attempt=None,
        )
        await self._store(state)
        self._pending.popleft()

    async def _send(self, message: WebhookMessage) -> DeliveryResult:
        timestamp = int(time.time())
        headers = {
            "webhook-id": message.id,
            "webhook-timestamp": str(timestamp),
            "webhook-signature": sign(self._secrets, message, timestamp),
        }
        given = self._given
        return await send(
            given.url,
            headers,
            message.body,
            seconds=given.timeout_seconds,
            allow_private=given.allow_private,
        )

    def _failed(self, state: WebhookState, answer: DeliveryResult) -> WebhookState:
        """The state after a failure: when it is tried again, or that it is disabled."""
        failures, pauses = state.failures + 1, self._given.retry_seconds
        state = _change(state, failures=failures, next_attempt=None, last_error=answer.error)
        if answer.status == _GONE:
            return self._disabled(state, "the server answered 410: it wants no more messages")
        if failures > len(pauses):
            attempts = f"{failures} attempts failed, the last one because {answer.error}"
            return self._disabled(state, attempts)
        jitter = 1 + random.random() / 10  # noqa: S311 - so that retries of many do not coincide
        pause = max(pauses[failures - 1] * jitter, min(answer.retry_after, _LONGEST))
        _logger.warning(
            "webhook %s of graph %s: %s; trying again in %.0f s",
            self._given.name,
            self._graph.name,
            answer.error,
            pause,
            extra={"event": "webhook.failed"},
        )
        return _change(state, next_attempt=time.time() + pause)

    def _disabled(self, state: WebhookState, reason: str) -> WebhookState:
        _logger.error(
            "webhook %s of graph %s is disabled: %s; see 'trails webhooks list'",
            self._given.name,
            self._graph.name,
            reason,
            extra={"event": "webhook.disabled"},
        )
        return _change(state, disabled=reason, next_attempt=None)

    async def _refuse(self, state: WebhookState, refused: Failure) -> bool:
        """Handle the end of the feed; returns whether to go on."""
        self._close()
        if refused.code == _ENDING:
            return False
        if refused.code == _STALE and "reason" in refused.data:
            return True  # its rights have changed, and it goes on with those
        if "commit" in refused.data:  # its position is unknown
            await self._store(self._disabled(state, refused.message))
            return True
        await self._store(self._failed(state, DeliveryResult(error=refused.message)))
        return True

    def _close(self) -> None:
        self._pending.clear()
        if self._stream is not None:
            self._stream.close()
            self._stream = None
