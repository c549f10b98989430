"""The official MCP client with access tokens: handed to it, or fetched by itself."""

from __future__ import annotations

import asyncio
import http.client
from contextlib import asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.client import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from tests.identity.oauth.provider import Login, Provider
from tests.worlds.clients import free_port, served
from tests.worlds.projects import make_desk

DRAWER = "trails_meta_drawer_open"
MODES = ["auto", "legacy"]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A login, and a desk that sends those who come without a token there."""
    port = free_port()
    with Login(Provider()) as login:
        folder = make_desk(
            tmp_path_factory.mktemp("clients") / "desk",
            issuer=login.issuer,
            audience=f"http://127.0.0.1:{port}",
            jwks_url=login.url,
            advertise=True,
        )
        with served(folder, "--port", str(port)) as desk:
            yield login, desk


@asynccontextmanager
async def connected(desk, mode, **options):
    """The client, with a way to authenticate."""
    async with (
        httpx2.AsyncClient(timeout=60, **options) as http_client,
        Client(
            streamable_http_client(f"{desk.url}/graphs/main/mcp", http_client=http_client),
            mode=mode,
        ) as client,
    ):
        yield client


class Memory:
    """What a client keeps."""

    tokens = info = None

    async def get_tokens(self):
        """Its tokens."""
        return self.tokens

    async def set_tokens(self, tokens):
        """Keep tokens."""
        self.tokens = tokens

    async def get_client_info(self):
        """Its registration."""
        return self.info

    async def set_client_info(self, info):
        """Keep a registration."""
        self.info = info


class Browser:
    """Follows the one redirect that a login is."""

    async def open(self, url):
        """Go there."""
        self.sent_to = await asyncio.to_thread(self._visit, url)

    async def come_back(self):
        """What came back."""
        query = {k: v[0] for k, v in parse_qs(urlsplit(self.sent_to).query).items()}
        return AuthorizationCodeResult(**query)

    def _visit(self, url):
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.netloc, timeout=60)
        try:
            connection.request("GET", f"{parts.path}?{parts.query}")
            return connection.getresponse().headers["Location"]
        finally:
            connection.close()


@pytest.mark.req("G15")
@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_is_given_a_token_is_served(world, mode):
    """A header is all it needs."""
    login, desk = world
    claims = {"iss": login.issuer, "aud": desk.url, "scope": "runtime"}
    headers = {"Authorization": f"Bearer {login.provider.token(**claims)}"}

    async def visit():
        async with connected(desk, mode, headers=headers) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert "graph_snapshot" in tools
            assert DRAWER not in tools
            result = await client.call_tool("trails_meta_ping", {})
            return result.structured_content

    assert asyncio.run(visit())["actor"] == "ada"


@pytest.mark.req("G15")
@pytest.mark.parametrize("mode", MODES)
def test_a_client_finds_its_way_to_a_token_and_to_a_better_one(world, mode):
    """From a 401 to the metadata, to the issuer, and in; a scope that is lacking is fetched too."""
    login, desk = world
    login.granted.clear()
    browser = Browser()
    provider = OAuthClientProvider(
        f"{desk.url}/graphs/main/mcp",
        OAuthClientMetadata(redirect_uris=["http://127.0.0.1:9/back"], client_name="studio"),
        Memory(),
        browser.open,
        browser.come_back,
    )

    async def visit():
        async with connected(desk, mode, auth=provider) as client:
            ping = await client.call_tool("trails_meta_ping", {})
            opened = await client.call_tool(DRAWER, {})
            return ping.structured_content, opened.structured_content

    ping, opened = asyncio.run(visit())
    assert ping["actor"] == "ada"
    assert opened == {"result": "open"}
    assert login.granted == ["runtime", "runtime builder"]
