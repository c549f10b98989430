"""Forged tokens, each with one thing wrong: none may ever be taken.

Each is made from a provider whose good tokens are taken, and is good but for what its name
says: a check that is left out shows as a forgery that passes.
"""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64encode, urlsafe_b64decode
from collections.abc import Callable
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from tests.identity.oauth.provider import AUDIENCE, ISSUER, Provider, b64, pair, spell

Forge = Callable[[Provider], str]
P256_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
ED25519_ORDER = 2**252 + 27742317777372353535851937790883648493
MAC_SECRET = b"a secret that stands in the key set by mistake"
FORGERIES: dict[str, Forge] = {}


def prepared() -> Provider:
    """A provider that publishes, beside three good keys, all that must not be used."""
    provider = Provider()
    twins = [pair("twin", "RSA2048", purpose).jwk for purpose in ("one", "two")]
    provider.extra = [
        *twins,
        pair("p384", "P-384").jwk,
        {**pair("enc", "RSA2048").jwk, "use": "enc"},
        {**pair("ps", "RSA2048").jwk, "alg": "PS256"},
        {**pair("ops", "RSA2048").jwk, "key_ops": ["encrypt"]},
        pair("weak", "RSA1024").jwk,
        pair("x", "X25519").jwk,
        {"kty": "oct", "kid": "mac", "k": b64(MAC_SECRET)},
    ]
    return provider


def forgery(name: str) -> Callable[[Forge], Forge]:
    """Name a forgery."""

    def add(forge: Forge) -> Forge:
        assert name not in FORGERIES
        FORGERIES[name] = forge
        return forge

    return add


def parts(token: str) -> list[str]:
    """The three parts."""
    return token.split(".")


def unb64(part: str) -> bytes:
    """The bytes of a part."""
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))


def mac(provider: Provider, secret: bytes, **header: object) -> str:
    """A good token, but with an HMAC for a signature."""
    full = {"typ": "at+jwt", "alg": "HS256", "kid": "r1", **header}
    content = f"{b64(spell(full))}.{b64(spell(provider.claims()))}"
    return f"{content}.{b64(hmac.new(secret, content.encode(), sha256).digest())}"


def resigned(provider: Provider, change: Callable[[bytes], bytes], key: str = "ec") -> str:
    """A good token with another signature."""
    pairs = {"rsa": (provider.rsa, "RS256"), "ec": (provider.ec, "ES256")}
    header, claims, signature = parts(provider.token(*pairs.get(key, (provider.ed, "EdDSA"))))
    return f"{header}.{claims}.{b64(change(unb64(signature)))}"


def in_der(raw: bytes) -> bytes:
    """An EC signature as most other protocols write it."""
    r, s = (int.from_bytes(half, "big") for half in (raw[:32], raw[32:]))
    return encode_dss_signature(r, s)


def shifted(raw: bytes) -> bytes:
    """R + n: the same number to whoever forgets to look at its range."""
    r = int.from_bytes(raw[:32], "big") + P256_ORDER
    return r.to_bytes(33, "big") + b"\0" + raw[32:]


def plus_order(raw: bytes) -> bytes:
    """S + L: the other spelling of an Ed25519 signature."""
    return (int.from_bytes(raw, "little") + ED25519_ORDER).to_bytes(32, "little")


# --- signatures and algorithms -----------------------------------------------------------

for spelled in ("none", "None", "NONE", "nOnE"):

    @forgery(f"alg {spelled}, no signature")
    def _(provider: Provider, spelled: str = spelled) -> str:
        return (
            f"{b64(spell(provider.header(provider.rsa, spelled)))}.{b64(spell(provider.claims()))}."
        )

    @forgery(f"alg {spelled}, a signature")
    def _(provider: Provider, spelled: str = spelled) -> str:
        header = b64(spell(provider.header(provider.rsa, spelled)))
        return f"{header}.{b64(spell(provider.claims()))}.{b64(b'x' * 256)}"


@forgery("HMAC with the public key in PEM")
def _(provider: Provider) -> str:
    public = provider.rsa.key.public_key()
    return mac(provider, public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))


@forgery("HMAC with the public key in DER")
def _(provider: Provider) -> str:
    public = provider.rsa.key.public_key()
    return mac(provider, public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo))


@forgery("HMAC with the public key as JWK")
def _(provider: Provider) -> str:
    return mac(provider, spell(provider.rsa.jwk))


@forgery("HMAC with the modulus")
def _(provider: Provider) -> str:
    return mac(provider, unb64(str(provider.rsa.jwk["n"])))


@forgery("HMAC with no key at all")
def _(provider: Provider) -> str:
    return mac(provider, b"")


@forgery("HMAC with a secret of the key set")
def _(provider: Provider) -> str:
    return mac(provider, MAC_SECRET, kid="mac")


@forgery("HMAC that calls itself RS256")
def _(provider: Provider) -> str:
    return mac(provider, MAC_SECRET, kid="mac", alg="RS256")


@forgery("HS256 without kid")
def _(provider: Provider) -> str:
    token = mac(provider, MAC_SECRET)
    header = {"typ": "at+jwt", "alg": "HS256"}
    content = f"{b64(spell(header))}.{parts(token)[1]}"
    return f"{content}.{b64(hmac.new(MAC_SECRET, content.encode(), sha256).digest())}"


@forgery("a stranger's key under a known name")
def _(provider: Provider) -> str:
    return provider.token(pair("r1", "RSA2048", "stranger"))


@forgery("a stranger's EC key under a known name")
def _(provider: Provider) -> str:
    return provider.token(pair("e1", "P-256", "stranger"), "ES256")


@forgery("a stranger's Ed25519 key under a known name")
def _(provider: Provider) -> str:
    return provider.token(pair("o1", "Ed25519", "stranger"), "EdDSA")


@forgery("a stranger's key in the header (jwk)")
def _(provider: Provider) -> str:
    stranger = pair("r1", "RSA2048", "stranger")
    return provider.token(stranger, header={"jwk": stranger.jwk})


@forgery("a stranger's key in the header, under a new name")
def _(provider: Provider) -> str:
    stranger = pair("mine", "RSA2048", "stranger")
    return provider.token(stranger, header={"jwk": stranger.jwk})


@forgery("a stranger's keys at a URL (jku)")
def _(provider: Provider) -> str:
    stranger = pair("r1", "RSA2048", "stranger")
    return provider.token(stranger, header={"jku": "http://127.0.0.1:9/keys"})


@forgery("a stranger's certificate at a URL (x5u)")
def _(provider: Provider) -> str:
    stranger = pair("r1", "RSA2048", "stranger")
    return provider.token(stranger, header={"x5u": "http://127.0.0.1:9/certificate"})


@forgery("a stranger's certificate in the header (x5c)")
def _(provider: Provider) -> str:
    stranger = pair("r1", "RSA2048", "stranger")
    public = stranger.key.public_key()
    der = public.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return provider.token(stranger, header={"x5c": [b64encode(der).decode()]})


@forgery("an algorithm that is not listed (RS512)")
def _(provider: Provider) -> str:
    return provider.token(provider.rsa, "RS512")


@forgery("an algorithm that is not listed (PS256)")
def _(provider: Provider) -> str:
    return provider.token(provider.rsa, "PS256")


@forgery("an algorithm that is not listed (ES384)")
def _(provider: Provider) -> str:
    return provider.token(pair("p384", "P-384"), "ES384")


@forgery("an algorithm that is not listed (Ed25519)")
def _(provider: Provider) -> str:
    return provider.token(provider.ed, "Ed25519")


@forgery("ES256 with a key of another curve")
def _(provider: Provider) -> str:
    return provider.token(pair("p384", "P-384"), "ES256")


@forgery("ES256 that names an RSA key")
def _(provider: Provider) -> str:
    return provider.token(provider.ec, "ES256", {"kid": "r1"})


@forgery("RS256 that names an EC key")
def _(provider: Provider) -> str:
    return provider.token(provider.rsa, header={"kid": "e1"})


@forgery("EdDSA that names a key for exchange")
def _(provider: Provider) -> str:
    return provider.token(provider.ed, "EdDSA", {"kid": "x"})


@forgery("PS256 that calls itself RS256")
def _(provider: Provider) -> str:
    header = spell(provider.header(provider.rsa, "RS256"))
    return provider.sign(header, spell(provider.claims()), algorithm="PS256")


@forgery("RS256 over SHA-512")
def _(provider: Provider) -> str:
    header = spell(provider.header(provider.rsa, "RS256"))
    return provider.sign(header, spell(provider.claims()), algorithm="RS512")


for title, value in {
    "missing": ...,
    "null": None,
    "a list": ["RS256"],
    "empty": "",
    "in lower case": "rs256",
    "with a space": "RS256 ",
    "a number": 256,
    "unknown": "XS256",
}.items():

    @forgery(f"alg {title}")
    def _(provider: Provider, value: object = value) -> str:
        return provider.token(header={"alg": value})


@forgery("a key for encryption")
def _(provider: Provider) -> str:
    return provider.token(pair("enc", "RSA2048"))


@forgery("a key for another algorithm")
def _(provider: Provider) -> str:
    return provider.token(pair("ps", "RSA2048"))


@forgery("a key for other operations")
def _(provider: Provider) -> str:
    return provider.token(pair("ops", "RSA2048"))


@forgery("a key that is too short")
def _(provider: Provider) -> str:
    return provider.token(pair("weak", "RSA1024"))


@forgery("a name that two keys have, by the first")
def _(provider: Provider) -> str:
    return provider.token(pair("twin", "RSA2048", "one"))


@forgery("a name that two keys have, by the second")
def _(provider: Provider) -> str:
    return provider.token(pair("twin", "RSA2048", "two"))


@forgery("no name of a key, where several fit")
def _(provider: Provider) -> str:
    return provider.token(header={"kid": ...})


for title, value in {
    "unknown": "r2",
    "in another case": "R1",
    "with a space": "r1 ",
    "empty": "",
    "a number": 1,
    "null": None,
    "a list": ["r1"],
    "a path": "../keys/r1",
    "a statement": "r1' OR '1'='1",
    "a URL": "http://127.0.0.1:9/r1",
    "very long": "r1" * 2000,
    "with a NUL": "r1\0",
}.items():

    @forgery(f"kid {title}")
    def _(provider: Provider, value: object = value) -> str:
        return provider.token(header={"kid": value})


@forgery("no signature")
def _(provider: Provider) -> str:
    header, claims, _ = parts(provider.token())
    return f"{header}.{claims}."


@forgery("the signature of another token")
def _(provider: Provider) -> str:
    header, claims, _ = parts(provider.token(sub="root"))
    return f"{header}.{claims}.{parts(provider.token())[2]}"


@forgery("claims of another token")
def _(provider: Provider) -> str:
    header, _, signature = parts(provider.token())
    return f"{header}.{parts(provider.token(scope='runtime builder dev'))[1]}.{signature}"


@forgery("the header of another token")
def _(provider: Provider) -> str:
    _, claims, signature = parts(provider.token(header={"typ": "JWT"}))
    return f"{parts(provider.token())[0]}.{claims}.{signature}"


@forgery("a header that was spelled anew")
def _(provider: Provider) -> str:
    header, claims, signature = parts(provider.token())
    again = json.dumps(json.loads(unb64(header)), indent=1).encode()
    return f"{b64(again)}.{claims}.{signature}"


for title, key, change in [
    ("RSA, one byte short", "rsa", lambda raw: raw[:-1]),
    ("RSA, one byte more", "rsa", lambda raw: raw + b"\0"),
    ("RSA, a leading zero", "rsa", lambda raw: b"\0" + raw),
    ("RSA, all zero", "rsa", lambda raw: bytes(len(raw))),
    ("RSA, one", "rsa", lambda raw: bytes(len(raw) - 1) + b"\1"),
    ("RSA, reversed", "rsa", lambda raw: raw[::-1]),
    ("EC, r = s = 0", "ec", lambda raw: bytes(len(raw))),
    ("EC, r = s = 1", "ec", lambda raw: (bytes(31) + b"\1") * 2),
    ("EC, r = s = n", "ec", lambda raw: P256_ORDER.to_bytes(32, "big") * 2),
    ("EC, r = 0", "ec", lambda raw: bytes(32) + raw[32:]),
    ("EC, s = 0", "ec", lambda raw: raw[:32] + bytes(32)),
    ("EC, r and s swapped", "ec", lambda raw: raw[32:] + raw[:32]),
    ("EC, r alone", "ec", lambda raw: raw[:32]),
    ("EC, in DER", "ec", in_der),
    ("EC, wider numbers", "ec", lambda raw: b"\0" + raw[:32] + b"\0" + raw[32:]),
    ("EC, a byte more", "ec", lambda raw: raw + b"\0"),
    ("EC, r + n", "ec", shifted),
    ("EC, empty twice", "ec", lambda _raw: b"\0\0"),
    ("Ed25519, all zero", "ed", lambda raw: bytes(len(raw))),
    ("Ed25519, s + L", "ed", lambda raw: raw[:32] + plus_order(raw[32:])),
    ("Ed25519, the neutral point", "ed", lambda _raw: b"\1" + bytes(63)),
    ("Ed25519, one byte short", "ed", lambda raw: raw[:-1]),
]:

    @forgery(f"signature: {title}")
    def _(provider: Provider, key: str = key, change: Callable[[bytes], bytes] = change) -> str:
        return resigned(provider, change, key)


# --- headers -----------------------------------------------------------------------------

for title, value in {
    "JWT": "JWT",
    "missing": ...,
    "null": None,
    "empty": "",
    "a number": 1,
    "a list": ["at+jwt"],
    "of an ID token": "id+jwt",
    "of a logout token": "logout+jwt",
    "of a DPoP proof": "dpop+jwt",
    "of a security event": "secevent+jwt",
    "of something longer": "at+jwt+x",
    "with another prefix": "text/at+jwt",
    "with the prefix twice": "application/application/at+jwt",
}.items():

    @forgery(f"typ {title}")
    def _(provider: Provider, value: object = value) -> str:
        return provider.token(header={"typ": value})


for title, more in {
    "crit": {"crit": ["exp"], "exp": 1},
    "crit, empty": {"crit": []},
    "crit, unknown": {"crit": ["x"], "x": 1},
    "crit, null": {"crit": None},
    "b64": {"b64": True},
    "cty JWT: a token in a token": {"cty": "JWT"},
    "enc": {"enc": "A256GCM"},
    "zip": {"zip": "DEF"},
}.items():

    @forgery(f"header with {title}")
    def _(provider: Provider, more: dict[str, object] = more) -> str:
        return provider.token(header=more)


@forgery("a payload that is not encoded (b64 false)")
def _(provider: Provider) -> str:
    header = b64(spell(provider.header(provider.rsa, "RS256", b64=False, crit=["b64"])))
    claims = b64(spell(provider.claims()))
    signature = provider.rsa.sign("RS256", f"{header}.{claims}".encode())
    return f"{header}.{claims}.{b64(signature)}"


for title, text in {
    "alg twice": b'{"alg":"none","typ":"at+jwt","kid":"r1","alg":"RS256"}',
    "alg twice, once escaped": b'{"\\u0061lg":"none","typ":"at+jwt","kid":"r1","alg":"RS256"}',
    "typ twice": b'{"alg":"RS256","typ":"JWT","kid":"r1","typ":"at+jwt"}',
    "kid twice": b'{"alg":"RS256","kid":"x","typ":"at+jwt","kid":"r1"}',
    "a byte order mark": b'\xef\xbb\xbf{"alg":"RS256","typ":"at+jwt","kid":"r1"}',
    "UTF-16": '{"alg":"RS256","typ":"at+jwt","kid":"r1"}'.encode("utf-16-le"),
    "something after it": b'{"alg":"RS256","typ":"at+jwt","kid":"r1"}{}',
    "no UTF-8": b'{"alg":"RS256","typ":"at+jwt","kid":"r1","x":"\xff"}',
    "a NaN": b'{"alg":"RS256","typ":"at+jwt","kid":"r1","x":NaN}',
    "a list": b'[{"alg":"RS256","typ":"at+jwt","kid":"r1"}]',
    "a text": b'"RS256"',
    "a comment": b'{"alg":"RS256","typ":"at+jwt",/**/"kid":"r1"}',
    "great depth": b'{"alg":"RS256","typ":"at+jwt","kid":"r1","x":'
    + b"[" * 5000
    + b"]" * 5000
    + b"}",
}.items():

    @forgery(f"header: {title}")
    def _(provider: Provider, text: bytes = text) -> str:
        return provider.sign(text, spell(provider.claims()))


# --- form --------------------------------------------------------------------------------


@forgery("form: empty")
def _(provider: Provider) -> str:
    return ""


@forgery("form: dots")
def _(provider: Provider) -> str:
    return ".."


@forgery("form: two parts")
def _(provider: Provider) -> str:
    return provider.token().rpartition(".")[0]


@forgery("form: four parts")
def _(provider: Provider) -> str:
    return provider.token() + ".AA"


@forgery("form: a dot at the end")
def _(provider: Provider) -> str:
    return provider.token() + "."


@forgery("form: a dot at the beginning")
def _(provider: Provider) -> str:
    return "." + provider.token()


@forgery("form: five parts, encrypted")
def _(provider: Provider) -> str:
    header = {"typ": "at+jwt", "alg": "RSA-OAEP", "enc": "A256GCM", "kid": "r1"}
    return ".".join([b64(spell(header)), *(b64(b"x" * n) for n in (256, 12, 300, 16))])


@forgery("form: JSON serialization")
def _(provider: Provider) -> str:
    header, claims, signature = parts(provider.token())
    return json.dumps({"protected": header, "payload": claims, "signature": signature})


@forgery("form: padded base64")
def _(provider: Provider) -> str:
    return ".".join(each + "=" * (-len(each) % 4) for each in parts(provider.token(jti="xx")))


@forgery("form: a padding too many")
def _(provider: Provider) -> str:
    return provider.token() + "===="


@forgery("form: the other base64 alphabet")
def _(provider: Provider) -> str:
    while True:
        token = provider.token()
        if {"-", "_"} & set(token):
            return token.replace("-", "+").replace("_", "/")


@forgery("form: bits that are not used are set")
def _(provider: Provider) -> str:
    token = provider.token()  # 256 bytes of signature leave four bits
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    return token[:-1] + letters[letters.index(token[-1]) + 1]


for title, change in {
    "a line break": lambda token: token[:40] + "\n" + token[40:],
    "a space": lambda token: token[:40] + " " + token[40:],
    "a line break at the end": lambda token: token + "\n",
    "a NUL": lambda token: token + "\0",
    "letters outside the alphabet": lambda token: token[:40] + "!*" + token[40:],
    "letters of another script": lambda token: token.replace("A", "А"),  # noqa: RUF001 - the point
    "lone surrogates": lambda token: token + "\udc80",
    "percent-encoding": lambda token: token.replace(".", "%2E"),
    "a prefix": lambda token: "Bearer " + token,
    "twice": lambda token: f"{token},{token}",
}.items():

    @forgery(f"form: {title}")
    def _(provider: Provider, change: Callable[[str], str] = change) -> str:
        return change(provider.token())


@forgery("form: too long")
def _(provider: Provider) -> str:
    return provider.token(padding="x" * (16 << 10))


# --- claims ------------------------------------------------------------------------------

for title, text in {
    "empty": b"{}",
    "a list": b"[]",
    "a number": b"1",
    "a text": b'"ada"',
    "null": b"null",
    "not JSON": b"sub=ada",
    "white space": b"  ",
}.items():

    @forgery(f"claims: {title}")
    def _(provider: Provider, text: bytes = text) -> str:
        return provider.sign(spell(provider.header(provider.rsa, "RS256")), text)


for title, change in {
    "a name twice": lambda text: text[:-1] + b',"sub":"root"}',
    "a name twice, once escaped": lambda text: text[:-1] + b',"\\u0073ub":"root"}',
    "the end twice": lambda text: text[:-1] + b',"exp":9999999999}',
    "the audience twice": lambda text: b'{"aud":"elsewhere",' + text[1:],
    "a name twice, deep inside": lambda text: text[:-1] + b',"x":{"a":1,"a":2}}',
    "something after them": lambda text: text + b"{}",
    "a NUL after them": lambda text: text + b"\0",
    "a byte order mark": lambda text: b"\xef\xbb\xbf" + text,
    "UTF-16": lambda text: text.decode().encode("utf-16-le"),
    "UTF-32": lambda text: text.decode().encode("utf-32-be"),
    "no UTF-8": lambda text: text[:-1] + b',"x":"\xc3\x28"}',
    "overlong UTF-8": lambda text: text.replace(b'"ada"', b'"\xc1\xa1da"'),
    "surrogates as UTF-8": lambda text: text[:-1] + b',"x":"\xed\xa0\x80"}',
    "a NaN": lambda text: text[:-1] + b',"x":NaN}',
    "an infinity": lambda text: text[:-1] + b',"x":-Infinity}',
    "a comma too many": lambda text: text[:-1] + b",}",
    "single quotes": lambda text: text.replace(b'"', b"'"),
    "great depth": lambda text: text[:-1] + b',"x":' + b"[" * 4000 + b"]" * 4000 + b"}",
    "great depth, never closed": lambda text: text[:-1] + b',"x":' + b'{"a":' * 1500,
    "a number with too many digits": lambda text: text[:-1] + b',"x":' + b"9" * 5000 + b"}",
}.items():

    @forgery(f"claims: {title}")
    def _(provider: Provider, change: Callable[[bytes], bytes] = change) -> str:
        header = spell(provider.header(provider.rsa, "RS256"))
        return provider.sign(header, change(spell(provider.claims())))


def now() -> int:
    """This second."""
    return int(time.time())


CLAIMS: dict[str, Callable[[], dict[str, object]]] = {
    "iss missing": lambda: {"iss": ...},
    "iss null": lambda: {"iss": None},
    "iss of another": lambda: {"iss": "https://login.example/other"},
    "iss with a slash": lambda: {"iss": ISSUER + "/"},
    "iss in another case": lambda: {"iss": ISSUER.upper()},
    "iss with a space": lambda: {"iss": ISSUER + " "},
    "iss that begins so": lambda: {"iss": ISSUER + ".evil.example"},
    "iss a list": lambda: {"iss": [ISSUER]},
    "iss empty": lambda: {"iss": ""},
    "aud missing": lambda: {"aud": ...},
    "aud null": lambda: {"aud": None},
    "aud of another": lambda: {"aud": "https://other.example/"},
    "aud without the slash": lambda: {"aud": AUDIENCE.rstrip("/")},
    "aud that begins so": lambda: {"aud": AUDIENCE + "main"},
    "aud in another case": lambda: {"aud": AUDIENCE.upper()},
    "aud empty": lambda: {"aud": ""},
    "aud an empty list": lambda: {"aud": []},
    "aud a list of others": lambda: {"aud": ["a", "b"]},
    "aud a list in a list": lambda: {"aud": [[AUDIENCE]]},
    "aud a list with a number": lambda: {"aud": [AUDIENCE, 1]},
    "aud an object": lambda: {"aud": {AUDIENCE: True}},
    "aud several in one text": lambda: {"aud": f"other {AUDIENCE}"},
    "exp missing": lambda: {"exp": ...},
    "exp null": lambda: {"exp": None},
    "exp a minute ago": lambda: {"exp": now() - 60},
    "exp beyond the leeway": lambda: {"exp": now() - 11},
    "exp a text": lambda: {"exp": str(now() + 300)},
    "exp a fraction": lambda: {"exp": now() + 300.5},
    "exp a whole fraction": lambda: {"exp": float(now() + 300)},
    "exp true": lambda: {"exp": True},
    "exp NaN": lambda: {"exp": float("nan")},
    "exp infinite": lambda: {"exp": float("inf")},
    "exp larger than a float": lambda: {"exp": 10**400},
    "exp negative": lambda: {"exp": -1},
    "exp zero": lambda: {"exp": 0},
    "exp in milliseconds": lambda: {"exp": (now() + 300) * 1000},
    "exp a list": lambda: {"exp": [now() + 300]},
    "exp an object": lambda: {"exp": {"value": now() + 300}},
    "nbf in a minute": lambda: {"nbf": now() + 60},
    "nbf a text": lambda: {"nbf": "0"},
    "nbf null": lambda: {"nbf": None},
    "nbf a fraction": lambda: {"nbf": 0.5},
    "nbf negative": lambda: {"nbf": -1},
    "nbf true": lambda: {"nbf": True},
    "iat in a minute": lambda: {"iat": now() + 60},
    "iat a text": lambda: {"iat": "now"},
    "iat null": lambda: {"iat": None},
    "iat a fraction": lambda: {"iat": 0.5},
    "sub missing": lambda: {"sub": ...},
    "sub null": lambda: {"sub": None},
    "sub empty": lambda: {"sub": ""},
    "sub a number": lambda: {"sub": 7},
    "sub a list": lambda: {"sub": ["ada"]},
    "sub with a line break": lambda: {"sub": "ada\nroot"},
    "sub with a NUL": lambda: {"sub": "ada\0"},
    "sub turned around": lambda: {"sub": "\u202eada"},
    "sub invisible": lambda: {"sub": "ada\u200b"},
    "sub a lone surrogate": lambda: {"sub": "\ud800"},
    "sub too long": lambda: {"sub": "a" * 257},
    "sub whoever sits here": lambda: {"sub": "local"},
    "groups an object": lambda: {"groups": {"readers": True}},
    "groups a number": lambda: {"groups": 1},
    "groups with a number": lambda: {"groups": ["readers", 1]},
    "groups with null": lambda: {"groups": ["readers", None]},
    "groups with an empty one": lambda: {"groups": [""]},
    "groups with a line break": lambda: {"groups": ["a\nb"]},
    "groups elsewhere": lambda: {"groups": ..., "_claim_names": {"groups": "src1"}},
    "groups here and elsewhere": lambda: {"_claim_names": {"groups": "src1"}},
    "claims elsewhere, unreadable": lambda: {"_claim_names": "groups"},
    "scope a number": lambda: {"scope": 1},
    "scope an object": lambda: {"scope": {"runtime": True}},
    "scope with a number": lambda: {"scope": ["runtime", 1]},
    "an ID token: nonce": lambda: {"nonce": "n"},
    "an ID token: at_hash": lambda: {"at_hash": "h"},
    "an ID token: c_hash": lambda: {"c_hash": "h"},
    "an ID token: s_hash": lambda: {"s_hash": "h"},
    "an ID token: token_use": lambda: {"token_use": "id"},
    "an ID token: typ": lambda: {"typ": "ID"},
    "a refresh token: typ": lambda: {"typ": "Refresh"},
    "an unknown use": lambda: {"token_use": ["access"]},
    "a logout token": lambda: {
        "events": {"http://schemas.openid.net/event/backchannel-logout": {}}
    },
}

for title, make in CLAIMS.items():

    @forgery(title)
    def _(provider: Provider, make: Callable[[], dict[str, object]] = make) -> str:
        return provider.token(**make())
