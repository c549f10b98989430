"""``/healthz``, ``/readyz`` and ``/metrics``: what monitors ask a server for.

The first two need no credential and name nothing of the project. Metrics are for administrators;
an operator can make sums without names public.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from trails.model.actors import ACTOR_KEY, Actor
from trails.model.metrics import METRICS_PATH
from trails.model.results import Failure
from trails.projections.prometheus import MEDIA_TYPE, project_prometheus
from trails.request.monitor import Monitor
from trails.surfaces.rest.negotiation import Representation, choose_form
from trails.surfaces.rest.replies import JSON, Refused, refused
from trails.surfaces.rest.routing import Methods, SegmentRoute

HEALTH_PATHS: Final = ("/healthz", "/readyz")
_FORMS: Final = (
    Representation("prometheus", MEDIA_TYPE),
    Representation("json", JSON),
)
_LOST: Final = "The log of a graph has lost commits; an administrator runs 'trails recover'."
_FIXES: Final = {
    "graphs": "a graph is not served, or has lost commits ('trails doctor' names it)",
    "log": "the PostgreSQL server of a log does not answer; reads show what was known before",
    "views": "a view has not caught up with the log",
    "disk": "the disk can't be written, or has no room left",
}
_Answer = Callable[[Request], Awaitable[Response]]


def health_routes(monitor: Monitor) -> list[SegmentRoute]:
    """The routes of monitors, at the root of the server."""
    alive, ready = HEALTH_PATHS
    return [
        SegmentRoute(alive, Methods({"GET": _health(monitor)})),
        SegmentRoute(ready, Methods({"GET": _readiness(monitor)})),
        SegmentRoute(METRICS_PATH, Methods({"GET": _metrics(monitor)})),
    ]


def _health(monitor: Monitor) -> _Answer:
    """Whether the server answers, and whether it can be written; lost data is not healthy."""

    async def answer(request: Request) -> Response:
        del request
        found = await monitor.health()
        if found.status == "behind":
            raise refused("behind", _LOST)
        return Response(msgspec.json.encode({"status": found.status}), media_type=JSON)

    return answer


def _readiness(monitor: Monitor) -> _Answer:
    """Whether the server can do all of its work."""

    async def answer(request: Request) -> Response:
        del request
        unready = (await monitor.health()).unready
        if unready:
            why = "; ".join(_FIXES[each] for each in unready)
            message = f"Not ready: {why}."
            raise Refused(Failure("semantic", "not_ready", message, {"checks": list(unready)}))
        return Response(msgspec.json.encode({"status": "ready"}), media_type=JSON)

    return answer


def _metrics(monitor: Monitor) -> _Answer:
    """Metrics for Prometheus or, if the client prefers that, as JSON."""

    async def answer(request: Request) -> Response:
        shown = choose_form(request, _FORMS)
        # Without a credential there is no actor: LOCAL is for servers that ask for none.
        actor = request.scope.get(ACTOR_KEY)
        found = monitor.metrics(actor if isinstance(actor, Actor) else None)
        if found is None:
            raise refused(
                "forbidden",
                "Metrics are for administrators: you need the Admin right on a graph. An operator "
                "can publish sums without names with public_metrics in [server].",
            )
        if shown.name == "json":
            return Response(msgspec.json.encode(found), media_type=JSON)
        return Response(project_prometheus(found), media_type=MEDIA_TYPE)

    return answer
