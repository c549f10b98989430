"""A project that takes the access tokens of a provider, served by a process of its own."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import contextmanager
from urllib.parse import urlsplit

from tests.worlds.processes import Web
from tests.worlds.surfaces import message_of

APP = '''
"""A desk: notes to read, and a drawer for those who may open it."""

from __future__ import annotations

from trails import Context, Node, capability, meta_capability, node_type, predicate


@node_type
class Note(Node):
    """A note."""

    text: str = predicate(key=True, label=True)


@capability("notes.add")
async def add(ctx: Context, text: str) -> str:
    """Add a note."""
    Note(text=text).save(ctx)
    return ctx.actor


@meta_capability("trails.meta.drawer.open", scope="builder", idempotent=True)
def open_drawer(ctx: Context) -> str:
    """Open the drawer."""
    return "open"


@meta_capability("trails.meta.drawer.burn", scope="dev")
def burn_drawer(ctx: Context) -> str:
    """Burn the drawer."""
    return "burnt"
'''
EVERYTHING = "permit(principal, action, resource);\n"
SCOPES = {"TRAILS_MCP_SCOPES": "runtime,builder"}


def make_desk(folder, **oauth):
    """A project folder whose policies permit everything; scopes are what is left."""
    (folder / "policies").mkdir(parents=True)
    (folder / "policies" / "all.cedar").write_text(EVERYTHING)
    (folder / "app.py").write_text(APP)
    lines = ["[project]", "name = 'desk'", "[graphs.main]", "[auth.oauth]"]
    tables = {name: value for name, value in oauth.items() if isinstance(value, dict)}
    lines += [f"{name} = {json.dumps(oauth[name])}" for name in oauth if name not in tables]
    for name, table in tables.items():
        lines += [f"[auth.oauth.{name}]"]
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()]
    (folder / "trails.toml").write_text("\n".join(lines))
    return folder


def free_port():
    """A port that nobody has at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Answer:
    """What came back."""

    def __init__(self, response):
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self.body = response.read()

    @property
    def json(self):
        """The JSON of the body."""
        return json.loads(self.body)

    @property
    def challenge(self):
        """What is asked for."""
        return self.headers.get("www-authenticate")


class Desk:
    """A served project, and a client that asks it on a connection a request."""

    def __init__(self, web):
        self.web = web
        self.url = web.url

    def ask(self, method, path, token=None, body=None, headers=()):
        """Make a request; a token may be bytes of any kind."""
        connection = http.client.HTTPConnection(urlsplit(self.url).netloc, timeout=120)
        connection.putrequest(method, path)
        text = b"" if body is None else json.dumps(body).encode()
        connection.putheader("Content-Length", str(len(text)))
        if body is not None:
            connection.putheader("Content-Type", "application/json")
        connection.putheader("Accept", "application/json, text/event-stream")
        for name, value in headers:
            connection.putheader(name, value)
        if token is not None:
            given = token if isinstance(token, bytes) else token.encode("utf-8", "surrogateescape")
            connection.putheader("Authorization", b"Bearer " + given)
        connection.endheaders(text)
        try:
            return Answer(connection.getresponse())
        finally:
            connection.close()

    def call(self, name, token, revision="2025-06-18", **arguments):
        """Call a tool over MCP."""
        body = message_of(None, "tools/call", {"name": name, "arguments": arguments})
        headers = [("MCP-Protocol-Version", revision)]
        return self.ask("POST", "/graphs/main/mcp", token, body, headers)


@contextmanager
def served(folder, *arguments, env=None):
    """A desk that is served until it is left."""
    with Web(folder, *arguments, env={**SCOPES, **(env or {})}) as web:
        yield Desk(web)
