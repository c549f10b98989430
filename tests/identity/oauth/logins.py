"""An authorization server around a provider: registration, codes with PKCE, tokens.

As much of OAuth 2.1 as the official MCP client needs to get a token by itself. Whoever asks
is logged in as ``ada``, with the scopes that were asked for.
"""

from __future__ import annotations

import json
import secrets
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.identity.oauth.provider import Handler, KeyServer, b64


class _Handler(Handler):
    """The endpoints of the server."""

    keys: Login

    def do_GET(self) -> None:  # noqa: N802 - named by the base class
        """Metadata, a login, or the key set."""
        path = urlsplit(self.path).path
        if path == "/.well-known/oauth-authorization-server/realm":
            self._send(200, self.keys.metadata)
        elif path == "/authorize":
            self.send_response(302)
            self.send_header("Location", self.keys.authorize(self._query(self.path)))
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            super().do_GET()

    def do_POST(self) -> None:  # noqa: N802 - likewise
        """A registration, or a code for a token."""
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        if self.path == "/register":
            self._send(201, {**json.loads(body), "client_id": "studio"})
        else:
            self._send(200, self.keys.exchange(self._query("?" + body)))

    def _query(self, target: str) -> dict[str, str]:
        return {name: value[0] for name, value in parse_qs(urlsplit(target).query).items()}

    def _send(self, status: int, value: object) -> None:
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


class Login(KeyServer):
    """A key server that also issues tokens."""

    def __init__(self, provider: Any) -> None:
        super().__init__(provider)
        self.granted: list[str] = []
        """The scopes of each token that was issued."""
        self._codes: dict[str, dict[str, str]] = {}

    @property
    def issuer(self) -> str:
        """Its name."""
        return self.url.replace("/keys", "/realm")

    @property
    def metadata(self) -> dict[str, object]:
        """RFC 8414."""
        base = self.url.removesuffix("/keys")
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{base}/authorize",
            "token_endpoint": f"{base}/token",
            "registration_endpoint": f"{base}/register",
            "jwks_uri": self.url,
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none"],
        }

    def handler(self) -> type[Handler]:
        """What answers for this server."""
        return type("Handler", (_Handler,), {"keys": self})

    def authorize(self, asked: dict[str, str]) -> str:
        """Where a browser is sent back to."""
        code = secrets.token_urlsafe(8)
        self._codes[code] = asked
        told = {"code": code, "state": asked["state"], "iss": self.issuer}
        return f"{asked['redirect_uri']}?{urlencode(told)}"

    def exchange(self, given: dict[str, str]) -> dict[str, object]:
        """A token for a code."""
        asked = self._codes.pop(given["code"])
        assert b64(sha256(given["code_verifier"].encode()).digest()) == asked["code_challenge"]
        assert given["resource"] == asked["resource"]
        self.granted.append(asked["scope"])
        claims = {"iss": self.issuer, "aud": asked["resource"], "scope": asked["scope"]}
        token = self.provider.token(**claims)
        return {"access_token": token, "token_type": "Bearer", "expires_in": 300}
