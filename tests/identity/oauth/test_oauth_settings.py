"""``[auth.oauth]`` means what it says, or nothing is served."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.identity.oauth.provider import Provider, pair, spell

from trails.app.access import access_of
from trails.app.settings import read_settings
from trails.errors import SettingsError

PROVIDER = Provider()
GOOD = {
    "issuer": "https://login.example",
    "audience": "trails",
    "jwks": spell(PROVIDER.keys).decode(),
}


def as_set(*keys):
    """The text of a key set."""
    return spell({"keys": keys}).decode()


def write(folder, **given):
    """A project with these settings; None leaves one out."""
    lines = ["[project]", "name = 'kept'", "[auth.oauth]"]
    for name, value in {**GOOD, **given}.items():
        if isinstance(value, dict):
            inner = ", ".join(f"'{key}' = '{each}'" for key, each in value.items())
            lines.append(f"{name} = {{{inner}}}")
        elif isinstance(value, bool | int | list):
            lines.append(f"{name} = {str(value).lower() if isinstance(value, bool) else value}")
        elif value is not None:
            lines.append(f"{name} = '''{value}'''")
    (folder / "trails.toml").write_text("\n".join(lines))
    return folder


def open_gate(folder):
    """What a server does with them."""
    return access_of(folder, read_settings(folder), {})


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"issuer": "http://127.0.0.1:8080/realm"},
        {"issuer": "http://localhost:8080"},
        {"issuer": "http://[::1]:8080"},
        {"algorithms": ["PS512", "Ed448"]},
        {"token_types": ["at+jwt", "JWT", ""]},
        {"jwks": None, "jwks_url": "https://login.example/keys?v=2"},
        {"leeway": 30},
        {"scopes": {"graph.read": "runtime"}},
        {"advertise": True, "resource": "https://graphs.example/mcp"},
        {"advertise": True, "audience": "https://graphs.example"},
        {"resource": "https://graphs.example"},
    ],
)
def test_good_settings_are_taken(tmp_path, given):
    """A server that has them asks for tokens."""
    assert open_gate(write(tmp_path, **given)).configured()


@pytest.mark.req("G15")
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"algorithms": ["RS256", "none"]}, "'none', which is not a signature"),
        ({"algorithms": ["None"]}, "'None', which is not a signature"),
        ({"algorithms": ["HS256"]}, "'HS256', which is symmetric"),
        ({"algorithms": ["hs512"]}, "'hs512', which is symmetric"),
        ({"algorithms": ["rs256"]}, "'rs256', which is not supported"),
        ({"algorithms": ["ES256K"]}, "'ES256K', which is not supported"),
        ({"algorithms": ["RSA-OAEP"]}, "'RSA-OAEP', which is not supported"),
        ({"algorithms": []}, "algorithms is empty"),
        ({"jwks": None}, "exactly one of jwks_file, jwks_url, jwks; none is given"),
        ({"jwks_url": "https://login.example/k"}, "jwks_url and jwks are given"),
        ({"jwks_file": "keys.json"}, "jwks_file and jwks are given"),
        ({"issuer": "http://login.example"}, "issuer is 'http://login.example'; it must be"),
        ({"issuer": "login.example"}, "it must be an https:// URL"),
        ({"issuer": ""}, "it must be an https:// URL"),
        ({"issuer": "https://"}, "it must be an https:// URL"),
        ({"issuer": "https://a.example:x"}, "which is not a URL"),
        ({"issuer": "https://[a.example"}, "which is not a URL"),
        ({"issuer": "https://a.example/ b"}, "it must be an https:// URL"),
        ({"issuer": "https://a.example?x=1"}, "it must not have a query"),
        ({"issuer": "https://a.example#x"}, "it must not have a query"),
        ({"issuer": "https://ada:pw@a.example"}, "contains a user or password"),
        ({"issuer": "http://127.0.0.1.evil.example"}, "it must be an https:// URL"),
        ({"jwks": None, "jwks_url": "http://login.example/k"}, "jwks_url is"),
        ({"jwks": None, "jwks_url": "file:///etc/keys"}, "it must be an https:// URL"),
        ({"jwks": None, "jwks_url": "https://a:b@c.example/"}, "contains a user or password"),
        ({"jwks": None, "jwks_url": "https://c.example/#k"}, "it must not have a fragment"),
        ({"audience": " "}, "audience is empty"),
        ({"leeway": 31}, "leeway"),
        ({"leeway": -1}, "leeway"),
        ({"token_types": []}, "token_types is empty"),
        ({"token_types": ["id+jwt"]}, "token_types has 'id+jwt'"),
        ({"actor_claim": ""}, "actor_claim is empty"),
        ({"groups_claim": ""}, "groups_claim is empty"),
        ({"scopes_claim": ""}, "scopes_claim is empty"),
        ({"scopes": {"x": "root"}}, "maps 'x' to 'root'"),
        ({"advertise": True}, "audience is 'trails'; it must be an https:// URL"),
        ({"advertise": True, "resource": "graphs"}, "resource is 'graphs'"),
        ({"resource": "http://graphs.example"}, "resource is"),
        ({"algorithm": "RS256"}, "did you mean 'algorithms'?"),
    ],
)
def test_bad_settings_are_refused(tmp_path, given, told):
    """With the key, what is wrong, and what it can be."""
    with pytest.raises(SettingsError, match=r"trails\.toml") as caught:
        read_settings(write(tmp_path, **given))
    assert told in caught.value.message


BAD_KEYS = {
    "no JSON": ("no keys", "is not a key set"),
    "a list": ("[]", "it is not an object"),
    "no list": ('{"keys": 1}', 'it is not {"keys": [{…}, …]}'),
    "empty": ('{"keys": []}', "it is empty"),
    "twice": ('{"keys": [], "keys": []}', "a name occurs twice"),
    "symmetric": ('{"keys": [{"kty": "oct", "k": "AAAA"}]}', "its type is not supported"),
    "no modulus": ('{"keys": [{"kty": "RSA", "n": "AA", "e": "AQAB"}]}', "it can't be read"),
    "a number": ('{"keys": [{"kty": "RSA", "n": 5, "e": "AQAB"}]}', "it can't be read"),
    "no curve": ('{"keys": [{"kty": "EC", "crv": "P-1", "x": "AA", "y": "AA"}]}', "can't be read"),
    "no kind": ('{"keys": [{"kty": 1}]}', "its type is not supported"),
    "odd kind": ('{"keys": [{"kty": ["RSA"]}]}', "its type is not supported"),
    "short": (as_set(pair("w", "RSA1024").jwk), "none of the allowed algorithms"),
    "for exchange": (as_set(pair("x", "X25519").jwk), "none of the allowed algorithms"),
    "private": (as_set({**PROVIDER.rsa.jwk, "d": "AQAB"}), "it contains a private key"),
    "private EC": (as_set({**PROVIDER.ec.jwk, "d": "AQAB"}), "it contains a private key"),
    "odd key_ops": (as_set({**PROVIDER.rsa.jwk, "key_ops": "verify"}), "it can't be read"),
    "odd use": (as_set({**PROVIDER.rsa.jwk, "use": []}), "it can't be read"),
    "odd name": (as_set({**PROVIDER.rsa.jwk, "kid": 1}), "it can't be read"),
    "off the curve": (as_set({**PROVIDER.ec.jwk, "y": PROVIDER.ec.jwk["x"]}), "can't be read"),
    "many": (as_set(*[PROVIDER.rsa.jwk] * 101), "more than 100 keys"),
    "huge": (as_set({**PROVIDER.rsa.jwk, "x": "x" * (512 << 10)}), "larger than 524,288 bytes"),
}


@pytest.mark.parametrize("name", BAD_KEYS)
@pytest.mark.parametrize("where", ["jwks", "jwks_file"])
def test_a_server_does_not_start_without_a_key(tmp_path, name, where):
    """It says which key is of no use, and why."""
    keys, told = BAD_KEYS[name]
    (tmp_path / "keys.json").write_text(keys)
    given = {"jwks": keys} if where == "jwks" else {"jwks": None, "jwks_file": "keys.json"}
    folder = write(tmp_path, **given)
    with pytest.raises(SettingsError) as caught:
        open_gate(folder)
    assert f"[auth.oauth] {where} " in caught.value.message
    assert told in caught.value.message


def test_a_file_that_is_missing_is_named(tmp_path):
    """Relative to the project."""
    folder = write(tmp_path, jwks=None, jwks_file="secret/keys.json")
    with pytest.raises(SettingsError, match=r"secret/keys\.json can't be read: No such file"):
        open_gate(folder)


def test_commands_that_serve_nothing_need_no_cryptography(tmp_path):
    """Reading the settings is quick, also where an issuer is configured."""
    folder = write(tmp_path)
    code = (
        "import sys; from pathlib import Path; from trails.app.settings import read_settings; "
        f"read_settings(Path({str(folder)!r})); "
        "sys.exit(int('cryptography' in sys.modules or 'joserfc' in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
