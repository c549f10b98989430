"""An identity provider: real keys, a real HTTP server with a key set, tokens that are good.

Signing is done here with plain cryptography, so that what checks the tokens is never also
what made them. ``Login`` is as much of OAuth 2.1 as the official MCP client needs to get a
token by itself (registration, codes with PKCE): everybody is logged in as ``ada``, with the
scopes that were asked for.
"""

from __future__ import annotations

import json
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa, x25519
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER = "https://login.example/realm"
AUDIENCE = "https://graphs.example/"

HASHES = {"256": hashes.SHA256, "384": hashes.SHA384, "512": hashes.SHA512}
CURVES = {"P-256": ec.SECP256R1, "P-384": ec.SECP384R1, "P-521": ec.SECP521R1}
SIZES = {"P-256": 32, "P-384": 48, "P-521": 66}


def b64(raw: bytes) -> str:
    """base64url without padding."""
    return urlsafe_b64encode(raw).rstrip(b"=").decode()


def number(value: int, size: int | None = None) -> str:
    """A number as a member of a JWK."""
    return b64(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


def spell(value: object) -> bytes:
    """JSON, as most issuers write it."""
    return json.dumps(value, separators=(",", ":")).encode()


class Pair:
    """A private key and the JWK of its public half."""

    def __init__(self, kid: str | None, kind: str, **members: object) -> None:
        self.kid = kid
        self.kind = kind
        self.key = _make(kind)
        self.members = members

    @property
    def jwk(self) -> dict[str, object]:
        """What the provider publishes."""
        named = {} if self.kid is None else {"kid": self.kid}
        return {**_public(self.key.public_key(), self.kind), **named, **self.members}

    def sign(self, algorithm: str, content: bytes) -> bytes:
        """A signature, in the form that JOSE wants."""
        digest = HASHES.get(algorithm[2:], hashes.SHA256)()
        if isinstance(self.key, rsa.RSAPrivateKey):
            if algorithm.startswith("PS"):
                salted = padding.PSS(padding.MGF1(digest), digest.digest_size)
                return self.key.sign(content, salted, digest)
            return self.key.sign(content, padding.PKCS1v15(), digest)
        if isinstance(self.key, ec.EllipticCurvePrivateKey):
            r, s = decode_dss_signature(self.key.sign(content, ec.ECDSA(digest)))
            size = SIZES[self.kind]
            return r.to_bytes(size, "big") + s.to_bytes(size, "big")
        return self.key.sign(content)


def _make(kind: str) -> Any:
    if kind.startswith("RSA"):
        return _make_rsa(int(kind.removeprefix("RSA")))
    if kind in CURVES:
        return ec.generate_private_key(CURVES[kind]())
    others = {
        "Ed25519": ed25519.Ed25519PrivateKey,
        "Ed448": ed448.Ed448PrivateKey,
        "X25519": x25519.X25519PrivateKey,
    }
    return others[kind].generate()


def _make_rsa(size: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, size)


def _public(key: Any, kind: str) -> dict[str, object]:
    if isinstance(key, rsa.RSAPublicKey):
        numbers = key.public_numbers()
        return {"kty": "RSA", "n": number(numbers.n), "e": number(numbers.e)}
    if isinstance(key, ec.EllipticCurvePublicKey):
        point, size = key.public_numbers(), SIZES[kind]
        return {"kty": "EC", "crv": kind, "x": number(point.x, size), "y": number(point.y, size)}
    raw = key.public_bytes(Encoding.Raw, PublicFormat.Raw)
    return {"kty": "OKP", "crv": kind, "x": b64(raw)}


@cache
def pair(kid: str | None, kind: str, purpose: str = "") -> Pair:
    """A key that is made once a process; ``purpose`` tells keys of the same name apart."""
    del purpose
    return Pair(kid, kind)


class Provider:
    """Issues tokens; its keys are what it publishes."""

    def __init__(self) -> None:
        self.rsa = pair("r1", "RSA2048")
        self.ec = pair("e1", "P-256")
        self.ed = pair("o1", "Ed25519")
        self.extra: list[Mapping[str, object]] = []
        self.pairs = [self.rsa, self.ec, self.ed]

    @property
    def keys(self) -> dict[str, object]:
        """The key set."""
        return {"keys": [*(each.jwk for each in self.pairs), *self.extra]}

    def claims(self, **changes: object) -> dict[str, object]:
        """The claims of a good token; ``...`` takes one away."""
        now = int(time.time())
        good: dict[str, object] = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "ada",
            "client_id": "studio",
            "iat": now - 5,
            "exp": now + 300,
            "jti": "7d1f",
            "scope": "openid runtime",
            "groups": ["readers"],
        }
        return {name: value for name, value in {**good, **changes}.items() if value is not ...}

    def header(self, key: Pair, algorithm: str, **changes: object) -> dict[str, object]:
        """The header of a good token; ``...`` takes a member away."""
        good = {"typ": "at+jwt", "alg": algorithm, "kid": key.kid, **changes}
        return {name: value for name, value in good.items() if value is not ...}

    def token(
        self,
        key: Pair | None = None,
        algorithm: str = "RS256",
        header: Mapping[str, object] | None = None,
        **claims: object,
    ) -> str:
        """A signed token: a good one, but for what is changed."""
        key = key or self.rsa
        full = self.header(key, algorithm, **(header or {}))
        return self.sign(spell(full), spell(self.claims(**claims)), key, algorithm)

    def sign(
        self, header: bytes, claims: bytes, key: Pair | None = None, algorithm: str = "RS256"
    ) -> str:
        """A token of any bytes, with a signature that is right for them."""
        content = f"{b64(header)}.{b64(claims)}"
        return f"{content}.{b64((key or self.rsa).sign(algorithm, content.encode()))}"


class Handler(BaseHTTPRequestHandler):
    """Answers as its server's mode says."""

    keys: ClassVar[KeyServer]

    def do_GET(self) -> None:
        """The key set, however it comes."""
        keys, mode = self.keys, self.keys.mode
        keys.asked.append(self.path)
        if mode == "silent":
            keys.release.wait(keys.TOO_LONG)
        if mode == "trickle":
            self._trickle()
        status, body = keys.answer()
        self.send_response(status)
        for name, value in keys.headers.items():
            self.send_header(name, value)
        if mode == "redirect":
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with suppress(OSError):
            self._write(body, slowly=mode == "drip")

    def _trickle(self) -> None:
        """Be busy with the headers for ever."""
        self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Long: ")
        while not self.keys.release.wait(0.02):
            self.wfile.write(b"x")

    def _write(self, body: bytes, *, slowly: bool) -> None:
        size = 1 if slowly else len(body)
        for at in range(0, len(body), size):
            self.wfile.write(body[at : at + size])
            self.wfile.flush()
            if slowly and self.keys.release.wait(0.05):
                return

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class KeyServer:
    """A real server with a key set at ``url``, which can fail in many ways."""

    TOO_LONG: ClassVar[float] = 30.0

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.asked: list[str] = []
        self.mode = "good"
        self.headers: dict[str, str] = {}
        self.release = threading.Event()
        """Lets slow answers end."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self.handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        """Where the key set is."""
        return f"http://127.0.0.1:{self._server.server_port}/keys"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End; nobody listens any more."""
        self.release.set()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()

    def handler(self) -> type[Handler]:
        """What answers for this server."""
        return type("Handler", (Handler,), {"keys": self})

    def answer(self) -> tuple[int, bytes]:
        """What it says now."""
        good = spell(self.provider.keys)
        answers = {
            "good": (200, good),
            "error": (500, good),
            "missing": (404, good),
            "created": (201, good),
            "redirect": (302, good),
            "garbage": (200, b"<html>please sign in</html>"),
            "cut": (200, good[:-20]),
            "list": (200, b"[]"),
            "no list": (200, b'{"keys": {"r1": {}}}'),
            "no objects": (200, b'{"keys": ["r1"]}'),
            "twice": (200, b'{"keys": [], "keys": []}'),
            "huge": (200, good[:-1] + b', "x": "' + b"x" * (600 << 10) + b'"}'),
            "many": (200, spell({"keys": [self.provider.rsa.jwk] * 101})),
            "empty": (200, b'{"keys": []}'),
        }
        return answers.get(self.mode, (200, good))


class _LoginHandler(Handler):
    """The endpoints of the server."""

    keys: Login

    def do_GET(self) -> None:
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

    def do_POST(self) -> None:
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
        return type("Handler", (_LoginHandler,), {"keys": self})

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
