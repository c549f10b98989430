"""No forged token is ever taken, whatever is wrong with it."""

from __future__ import annotations

import asyncio
import json
import time
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.identity.oauth.forgeries import FORGERIES, parts, prepared, unb64
from tests.identity.oauth.provider import AUDIENCE, ISSUER, b64, pair, spell

from trails.identity.oauth.settings import OAuth
from trails.identity.oauth.verifier import AccessTokenVerifier
from trails.model.actors import Actor, Secret
from trails.model.results import Failure

PROVIDER = prepared()
VERIFIER = AccessTokenVerifier(
    OAuth(issuer=ISSUER, audience=AUDIENCE, jwks=spell(PROVIDER.keys).decode()), Path()
)
BAD_TOKEN = "Invalid access token: "


def verify(token, verifier=VERIFIER):
    """What comes of a token."""
    return asyncio.run(verifier.verify(Secret(token)))


@cache
def good_tokens():
    """One of each key, the same for an hour."""
    until = int(time.time()) + 3600
    return [
        PROVIDER.token(PROVIDER.rsa, "RS256", exp=until),
        PROVIDER.token(PROVIDER.ec, "ES256", exp=until),
        PROVIDER.token(PROVIDER.ed, "EdDSA", exp=until),
    ]


def test_there_are_many():
    """The corpus has more than twice the forgeries that were asked for."""
    assert len(FORGERIES) > 100


def test_what_they_are_made_from_is_good():
    """The provider's own tokens are taken, so a forgery fails for what was done to it."""
    for token in good_tokens():
        assert isinstance(verify(token), Actor)


@pytest.mark.req("G15")
@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_refused(name):
    """With a reason that is one of ours, and says nothing of the token."""
    token = FORGERIES[name](PROVIDER)
    refused = verify(token)
    assert isinstance(refused, Failure)
    assert (refused.kind, refused.code) == ("unauthenticated", "unauthenticated")
    assert refused.message.startswith(BAD_TOKEN)
    assert not refused.data
    for part in filter(None, token.split(".")):
        assert part not in refused.message


@pytest.mark.req("G15")
def test_a_key_that_was_withdrawn_opens_nothing():
    """A token that is good in all else, by a key that the issuer no longer publishes."""
    retired = pair("r0", "RSA2048")
    assert isinstance(verify(PROVIDER.token(retired)), Failure)


# --- mutations ---------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
NAMES = st.sampled_from(
    ["alg", "typ", "kid", "crit", "jwk", "jku", "iss", "aud", "exp", "nbf", "sub", "scope"]
) | st.text(max_size=8)


@st.composite
def flipped(draw):
    """A bit of one character."""
    token = draw(st.sampled_from(good_tokens()))
    at = draw(st.integers(0, len(token) - 1))
    letter = chr(ord(token[at]) ^ (1 << draw(st.integers(0, 6))))
    return token[:at] + letter + token[at + 1 :]


@st.composite
def cut(draw):
    """A piece taken out, doubled, or replaced by another text."""
    token = draw(st.sampled_from(good_tokens()))
    begin, end = sorted(draw(st.tuples(*[st.integers(0, len(token))] * 2)))
    piece = token[begin:end]
    instead = draw(st.sampled_from(["", piece * 2, piece[::-1]]) | st.text(max_size=12))
    return token[:begin] + instead + token[end:]


@st.composite
def shuffled(draw):
    """Parts of several good tokens, in any order."""
    pieces = [piece for each in good_tokens() for piece in parts(each)]
    return ".".join(draw(st.lists(st.sampled_from(pieces), min_size=1, max_size=5)))


@st.composite
def edited(draw):
    """A header or claims with another value somewhere, encoded again; the signature stays."""
    token = draw(st.sampled_from(good_tokens()))
    pieces = parts(token)
    at = draw(st.sampled_from([0, 1]))
    value = json.loads(unb64(pieces[at]))
    value[draw(NAMES)] = draw(JSON)
    pieces[at] = b64(json.dumps(value, separators=(",", ":")).encode())
    return ".".join(pieces)


@st.composite
def bent(draw):
    """Some bytes of the signature changed."""
    token = draw(st.sampled_from(good_tokens()))
    pieces = parts(token)
    raw = bytearray(unb64(pieces[2]))
    for _ in range(draw(st.integers(1, 4))):
        raw[draw(st.integers(0, len(raw) - 1))] = draw(st.integers(0, 255))
    pieces[2] = b64(bytes(raw))
    return ".".join(pieces)


@pytest.mark.req("G15")
@settings(max_examples=600)
@given(flipped() | cut() | shuffled() | edited() | bent())
def test_a_good_token_that_was_changed_is_refused(changed):
    """Whatever was changed: only the tokens that were issued are taken."""
    if changed not in good_tokens():
        assert isinstance(verify(changed), Failure)


@settings(max_examples=300)
@given(st.text(max_size=200) | st.from_regex(r"[\w-]{1,40}\.[\w-]{1,40}\.[\w-]{0,40}"))
def test_any_text_is_refused_calmly(text):
    """Nothing is raised, whatever is presented."""
    assert isinstance(verify(text), Failure)


@settings(max_examples=300)
@given(NAMES, JSON, st.booleans())
def test_a_signed_oddity_is_taken_or_refused_but_never_raised(name, value, in_header):
    """An issuer may sign anything; what is taken then has a name and known scopes."""
    token = PROVIDER.token(header={name: value}) if in_header else PROVIDER.token(**{name: value})
    found = verify(token)
    assert isinstance(found, Actor | Failure)
    if isinstance(found, Actor):
        assert found.name.isprintable()
        assert found.scopes <= {"runtime", "builder", "dev"}
