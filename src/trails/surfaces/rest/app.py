"""REST as an application of its own, for whoever serves it."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from trails.model.large_bodies import LargeBodies
from trails.surfaces.rest.bodies import MAX_BODY
from trails.surfaces.rest.replies import refuse_http
from trails.surfaces.rest.routes import build_routes
from trails.surfaces.rest.routing import Graphs, Lists, everybody


def build_app(
    graphs: Graphs,
    max_body: int = MAX_BODY,
    lists: Lists = everybody,
    large: LargeBodies | None = None,
) -> Starlette:
    """Everything that REST offers; what no route answers is told in the same form.

    ``lists`` says to whom it is told which graphs there are; ``large`` is where large bodies wait.
    """
    routes = build_routes(graphs, lists)
    app = Starlette(routes=routes, exception_handlers={HTTPException: refuse_http})
    app.router.redirect_slashes = False
    app.state.max_body = max_body
    app.state.large = LargeBodies() if large is None else large
    return app
