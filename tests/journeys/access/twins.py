"""Two graphs of one project that have everything in common but their data."""

from __future__ import annotations

import asyncio
import json
from urllib.parse import quote

from tests.worlds.surfaces import MODERN, ask_app, headers_of, message_of

from trails import App
from trails.app.kernels import ServedGraphs
from trails.app.serve.http.front import HttpInterface
from trails.app.serve.http.hosts import HostPolicy
from trails.identity.tokens import TokenBook, TokenFile
from trails.model.actors import LOCAL, TokenRequest
from trails.request.authenticate import Authenticator

IBIS, ZEBRA = GRAPHS = ("ibis", "zebra")
"""Names that occur nowhere else: whatever holds the other one's was told of it."""

_APP = '''
from trails import Context, Node, Ref, capability, node_type, policy, policy_rule, predicate


@node_type
class Note(Node):
    """A note."""

    key: str = predicate(key=True)
    text: str = predicate(label=True)
    stars: int | None = predicate(max_value={stars})


@policy_rule("mine")
def mine(ctx: Context, note: Note) -> bool | str:
    return note.text.startswith("{graph}") or "not of here"


@capability("notes.read")
@policy("mine")
def read(ctx: Context, note: Ref[Note]) -> str:
    """Read a note."""
    return "{graph} read " + note.text


@capability("notes.where")
def where(ctx: Context) -> str:
    """Tell where this runs."""
    return "{graph} " + ctx.graph
'''
_QUERY = """#+ description: All texts.
SELECT ?key ?text WHERE {{ ?n a :Note ; :key ?key ; :text ?text {only} }} ORDER BY ?key
"""
ALL = "permit(principal, action, resource);\n"
_BASE = 'base_iri = "https://example.org/one"\n'


def make_project(folder, *, alike=True, same_base=False, extra=""):
    """A project with both; ``alike``: all their declarations mean the same."""
    text = '[project]\nname = "acme"\n'
    for graph in GRAPHS:
        text += f'[graphs.{graph}]\napp = "{graph}.py"\nqueries = "{graph}-queries"\n'
        text += f'policies = "{graph}-policies"\n'
        (folder / f"{graph}-policies").mkdir()
        (folder / f"{graph}-policies" / "all.cedar").write_text(ALL)
        text += _BASE if same_base else ""
        stars = 5 if alike or graph == IBIS else 9
        (folder / f"{graph}.py").write_text(
            _APP.replace("{graph}", graph).replace("{stars}", str(stars))
        )
        queries = folder / f"{graph}-queries"
        queries.mkdir()
        only = "" if alike else f'FILTER(STRSTARTS(?text, "{graph}"))'
        (queries / "texts.rq").write_text(_QUERY.format(only=only))
    (folder / "trails.toml").write_text(text + extra)
    return folder


class Twins:
    """The project, served by the interface that an owner has."""

    def __init__(self, folder):
        self.app = App.open(folder, strict=True)
        tokens = TokenFile(folder / ".trails")
        self._bearers = {
            name: b"Bearer " + tokens.issue(TokenRequest(actor=name)).token.reveal().encode()
            for name in ("ann", "bob")
        }
        self.graphs = ServedGraphs(self.app)
        self.interface = HttpInterface(
            self.graphs,
            self.app.settings.graphs,
            Authenticator(LOCAL, tokens=TokenBook(folder / ".trails")),
            HostPolicy.for_bind("127.0.0.1", credentials=True),
        )

    async def __aenter__(self):
        self._running = self.interface.run()
        await self._running.__aenter__()
        return self

    async def __aexit__(self, *error):
        await self._running.__aexit__(*error)

    def close(self):
        """End it all."""
        self.graphs.close()
        self.app.close()

    async def mcp(self, graph, method, params, revision=MODERN, actor="ann"):
        """What the endpoint of a graph answers."""
        bearer = (b"authorization", self._bearers[actor])
        headers = [*headers_of(revision, method, params), bearer]
        body = json.dumps(message_of(revision, method, params)).encode()
        path = f"/graphs/{graph}/mcp"
        return await ask_app(self.interface, headers, [body], path=path)

    async def rest(self, graph, method, path, document=None, query="", actor="ann"):
        """What REST answers."""
        headers = [(b"host", b"127.0.0.1"), (b"authorization", self._bearers[actor])]
        body = b""
        if document is not None:
            headers.append((b"content-type", b"application/json"))
            body = json.dumps(document).encode()
        full = f"/graphs/{graph}{path}"
        return await ask_app(
            self.interface,
            headers,
            [body],
            method,
            path=full,
            raw_path=quote(full, safe="/%").encode(),
            query_string=query.encode(),
        )


def run(folder, work):
    """Run a coroutine function on the served twins, in time."""
    twins = Twins(folder)

    async def main():
        async with twins:
            return await work(twins)

    try:
        return asyncio.run(asyncio.wait_for(main(), 300))
    finally:
        twins.close()
