"""One kernel behind every surface: MCP by both doors and over lines, and REST."""

from __future__ import annotations

import json

from tests.surfaces.mcp.doors import Doors, ask_app, headers_of
from tests.surfaces.mcp.messages import LEGACY, MODERN, REVISIONS, message_of, session_of
from tests.surfaces.mcp.talks import talk

from trails.app.kernels import kernel_of
from trails.model.actors import LOCAL
from trails.surfaces.rest.routes import build_app

WIRES = 2 * len(REVISIONS) + len(LEGACY) + 1
"""Answers that one MCP request gets: two doors with and without a revision, and lines."""


class Wires:
    """A graph of an app, asked over all of them."""

    def __init__(self, app, graph="main"):
        self.kernel = kernel_of(app, graph)
        self.doors = Doors(lambda: self.kernel)
        self.rest_app = build_app({graph: self.kernel})
        self.graph = graph

    def __enter__(self):
        self.doors.__enter__()
        return self

    def __exit__(self, *_):
        self.doors.__exit__()
        self.kernel.close()

    def by_doors(self, revision, method, params, actor=LOCAL):
        """What both doors answer, as they answer it."""
        headers = headers_of(revision, method, params)
        body = json.dumps(message_of(revision, method, params)).encode()
        return self.doors.ask(headers, body, **{"trails.actor": actor})

    def by_lines(self, revision, method, params, actor=LOCAL):
        """What a session of lines answers."""
        said = self.doors.run(talk(self.kernel, session_of(revision, method, params), actor))
        return [one for one in said if one.get("id") == 1]

    def everywhere(self, method, params, actor=LOCAL):
        """All answers to one MCP request, each with its revision."""
        for revision in REVISIONS:
            for reply in self.by_doors(revision, method, params, actor):
                yield revision, reply.message
        for revision in (*LEGACY, MODERN):
            for message in self.by_lines(revision, method, params, actor):
                yield revision, message

    def rest(self, method, path, document=None, actor=LOCAL, query=b""):
        """What REST answers on a path of the graph."""
        body = b"" if document is None else json.dumps(document).encode()
        headers = [] if document is None else [(b"content-type", b"application/json")]
        full = f"/graphs/{self.graph}{path}"
        scope = {"path": full, "raw_path": full.encode(), "query_string": query}
        return self.doors.run(
            ask_app(self.rest_app, headers, [body], method, **{"trails.actor": actor}, **scope)
        )
