"""Good access tokens: whom they name, what they permit, and for how long."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from tests.identity.oauth.forgeries import P256_ORDER, parts, unb64
from tests.identity.oauth.provider import AUDIENCE, ISSUER, KeyServer, Provider, b64, pair, spell

from trails.identity.oauth import verifier as module
from trails.identity.oauth.settings import ALGORITHMS, OAuth
from trails.identity.oauth.verifier import AccessTokenVerifier
from trails.model.actors import LOCAL, Actor, Secret
from trails.model.results import Failure

PROVIDER = Provider()
KINDS = {
    "RS": "RSA2048",
    "PS": "RSA2048",
    "ES256": "P-256",
    "ES384": "P-384",
    "ES512": "P-521",
    "EdDSA": "Ed25519",
    "Ed25519": "Ed25519",
    "Ed448": "Ed448",
}


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = time.time()

    def __call__(self):
        """The time."""
        return self.now


def make(provider=PROVIDER, clock=time.time, **more):
    """A verifier of a provider's tokens."""
    given = {"jwks": spell(provider.keys).decode(), **more}
    return AccessTokenVerifier(
        OAuth(issuer=ISSUER, audience=AUDIENCE, **given), Path(), clock=clock
    )


def verify(token, verifier=None, **more):
    """What comes of a token."""
    return asyncio.run((verifier or make(**more)).verify(Secret(token)))


def reason(found):
    """Why a token is refused."""
    assert isinstance(found, Failure)
    return found.message.partition(": ")[2]


@pytest.mark.req("G15")
def test_a_good_token_becomes_an_actor():
    """With the name, the known scopes and the groups that it claims, and no more."""
    found = verify(PROVIDER.token(scope="openid builder runtime email"))
    assert isinstance(found, Actor)
    assert (found.name, found.scopes, found.groups) == (
        "ada",
        {"runtime", "builder"},
        {"readers"},
    )


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_listed_algorithm_is_taken(algorithm):
    """Each with a key of its kind; the same token is refused where only others are listed."""
    key = pair("k", KINDS.get(algorithm) or KINDS[algorithm[:2]], "algorithms")
    provider = Provider()
    provider.pairs = [key]
    token = provider.token(key, algorithm)
    others = tuple(each for each in ALGORITHMS if each != algorithm)
    assert isinstance(verify(token, provider=provider, algorithms=(algorithm,)), Actor)
    assert isinstance(verify(token, provider=provider, algorithms=others), Failure)


def test_without_a_name_the_only_key_that_fits_is_meant():
    """One key for RS256, one for ES256: neither token has to say which."""
    for key, algorithm in [(PROVIDER.rsa, "RS256"), (PROVIDER.ec, "ES256")]:
        assert isinstance(verify(PROVIDER.token(key, algorithm, {"kid": ...})), Actor)


@pytest.mark.parametrize("kid", [None, 1, ["r1"], {}, True])
def test_a_name_that_is_no_text_is_not_taken_for_none(kid):
    """A token whose header can't be read is not helped by guessing."""
    assert reason(verify(PROVIDER.token(header={"kid": kid}))) == "its header can't be read"


@pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt", "Application/AT+jwt"])
def test_the_type_of_access_tokens_is_a_media_type(typ):
    """Written short or long, in any case."""
    assert isinstance(verify(PROVIDER.token(header={"typ": typ})), Actor)


@pytest.mark.parametrize(
    ("types", "typ", "taken"),
    [
        (("at+jwt", "JWT"), "JWT", True),
        (("at+jwt", "JWT"), "jwt", True),
        (("at+jwt", "JWT"), "at+jwt", True),
        (("at+jwt", "JWT"), ..., False),
        (("JWT",), "at+jwt", False),
        (("at+jwt", ""), ..., True),
        (("at+jwt", ""), "JWT", False),
        (("JWT", ""), "id+jwt", False),
    ],
)
def test_other_types_are_taken_where_the_settings_say(types, typ, taken):
    """Many issuers call everything JWT, or nothing."""
    found = verify(PROVIDER.token(header={"typ": typ}), token_types=types)
    assert isinstance(found, Actor if taken else Failure)


@pytest.mark.parametrize("claims", [{"nonce": "n"}, {"at_hash": "x"}, {"token_use": "id"}])
def test_an_id_token_is_refused_also_where_everything_is_called_jwt(claims):
    """It has claims that no access token has."""
    token = PROVIDER.token(header={"typ": "JWT"}, **claims)
    assert reason(verify(token, token_types=("JWT",))) == "it is not an access token"


def test_what_issuers_say_of_access_tokens_is_understood():
    """Cognito says ``token_use``, Keycloak ``typ``."""
    assert isinstance(verify(PROVIDER.token(token_use="access", typ="Bearer")), Actor)


def test_what_a_header_says_about_keys_is_not_looked_at():
    """A good token with addresses in its header is good, and nobody is asked there."""
    with KeyServer(PROVIDER) as stranger:
        more = {"jku": stranger.url, "x5u": stranger.url, "x5t": "abc", "jwk": {"kty": "oct"}}
        assert isinstance(verify(PROVIDER.token(header=more)), Actor)
        assert stranger.asked == []


@pytest.mark.parametrize("aud", [AUDIENCE, [AUDIENCE], ["other", AUDIENCE]])
def test_the_audience_is_a_text_or_a_list(aud):
    """It is enough that we are among those meant."""
    assert isinstance(verify(PROVIDER.token(aud=aud)), Actor)


# --- times -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "leeway", "why"),
    [
        ({"exp": 1}, 0, ""),
        ({"exp": 0}, 0, "it has expired; get a new one"),
        ({"exp": 0}, 10, ""),
        ({"exp": -9}, 10, ""),
        ({"exp": -10}, 10, "it has expired; get a new one"),
        ({"exp": -29}, 30, ""),
        ({"exp": -30}, 30, "it has expired; get a new one"),
        ({"nbf": 0}, 0, ""),
        ({"nbf": 1}, 0, "it is not valid yet; compare the clocks"),
        ({"nbf": 10}, 10, ""),
        ({"nbf": 11}, 10, "it is not valid yet; compare the clocks"),
        ({"iat": 10}, 10, ""),
        ({"iat": 11}, 10, "it is not valid yet; compare the clocks"),
    ],
)
def test_times_are_taken_to_the_second(claims, leeway, why):
    """With the leeway on either side, and nothing beyond it."""
    clock = Clock()
    clock.now = float(int(clock.now))
    times = {name: int(clock.now) + offset for name, offset in claims.items()}
    found = verify(PROVIDER.token(**times), make(clock=clock, leeway=leeway))
    assert (reason(found) if isinstance(found, Failure) else "") == why


@pytest.mark.req("G15")
def test_a_token_that_was_good_ends_with_its_time():
    """Also one that is known again by its hash, and for those who hold a stream open."""
    clock = Clock()
    verifier = make(clock=clock, leeway=0)
    token = PROVIDER.token(exp=int(clock.now) + 60)
    actor = verify(token, verifier)
    assert isinstance(actor, Actor)
    assert verifier.is_current(actor)
    clock.now += 58
    assert verify(token, verifier) is actor
    assert verifier.is_current(actor)
    clock.now += 3
    assert reason(verify(token, verifier)) == "it has expired; get a new one"
    assert not verifier.is_current(actor)


@pytest.mark.parametrize("credential", ["", "oauth:", "oauth:x:y:z", "t-1", "oauth:-5:a:b"])
def test_only_actors_of_an_issuer_are_current(credential):
    """Whoever came otherwise, or with something else, is not vouched for here."""
    assert not make().is_current(Actor("ada", credential=credential))


# --- names, scopes and groups --------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "more", "name"),
    [
        ({"sub": "auth0|5f7c"}, {}, "auth0|5f7c"),
        ({"sub": "Zoë Ångström"}, {}, "Zoë Ångström"),
        ({"email": "ada@example.com"}, {"actor_claim": "email"}, "ada@example.com"),
        ({"https://x.y/name": "ada"}, {"actor_claim": "https://x.y/name"}, "ada"),
        ({"user": {"name": "eve"}}, {"actor_claim": "user.name"}, "eve"),
        ({"user.name": "ada", "user": {"name": "eve"}}, {"actor_claim": "user.name"}, "ada"),
    ],
)
def test_the_actor_is_named_by_the_claim_of_the_settings(claims, more, name):
    """By its whole name first, then by the path that its dots make."""
    found = verify(PROVIDER.token(**claims), **more)
    assert isinstance(found, Actor)
    assert found.name == name


@pytest.mark.parametrize("claim", ["email", "user.name", "sub.name", "user.name.first"])
def test_a_token_that_names_nobody_is_refused(claim):
    """A claim that is missing is not replaced by another."""
    token = PROVIDER.token(user={"x": 1})
    assert reason(verify(token, actor_claim=claim)) == "it has no subject"


def test_nobody_is_whoever_sits_at_this_machine():
    """That name means somebody without a token."""
    assert reason(verify(PROVIDER.token(sub=LOCAL.name))) == "its subject is a reserved name"


@pytest.mark.parametrize(
    ("scope", "mapping", "scopes"),
    [
        ("runtime builder dev", {}, {"runtime", "builder", "dev"}),
        (["runtime", "dev"], {}, {"runtime", "dev"}),
        ("", {}, set()),
        (..., {}, set()),
        (None, {}, set()),
        ([], {}, set()),
        ("openid profile Runtime runtime2 RUNTIME", {}, set()),
        ("runtime  dev", {}, {"runtime", "dev"}),
        ("runtime\tdev", {}, set()),
        ("graph.read", {"graph.read": "runtime"}, {"runtime"}),
        ("graph.read builder", {"graph.read": "runtime"}, {"runtime", "builder"}),
        ("dev", {"dev": "runtime"}, {"runtime"}),
        (["Graph Readers"], {"Graph Readers": "runtime"}, {"runtime"}),
    ],
)
def test_scopes_are_those_that_are_ours(scope, mapping, scopes):
    """By their own names or by those of the settings; any other means something elsewhere."""
    found = verify(PROVIDER.token(scope=scope), scopes=mapping)
    assert isinstance(found, Actor)
    assert found.scopes == scopes


@pytest.mark.parametrize(
    ("groups", "found"),
    [
        (["a", "b"], {"a", "b"}),
        ("a b", {"a b"}),
        (..., set()),
        (None, set()),
        ([], set()),
        (["/staff/ops", "local"], {"/staff/ops", "local"}),
    ],
)
def test_groups_are_a_list_or_one_text(groups, found):
    """None are as good as an empty list."""
    actor = verify(PROVIDER.token(groups=groups))
    assert isinstance(actor, Actor)
    assert actor.groups == found


def test_groups_can_be_deep_inside():
    """As Keycloak writes roles."""
    token = PROVIDER.token(realm_access={"roles": ["editors"]})
    actor = verify(token, groups_claim="realm_access.roles")
    assert isinstance(actor, Actor)
    assert actor.groups == {"editors"}


def test_groups_that_are_elsewhere_are_missed_also_deep_inside():
    """What they would stand in is named as being elsewhere."""
    token = PROVIDER.token(_claim_names={"realm_access": "src1"})
    assert "required claim is missing" in reason(verify(token, groups_claim="realm_access.roles"))
    assert isinstance(verify(token), Actor)


# --- what is kept --------------------------------------------------------------------------


def test_a_token_that_is_known_is_not_checked_again():
    """It is the same actor, and its signature is not looked at a second time."""
    verifier = make()
    token = PROVIDER.token()
    first = verify(token, verifier)
    verifier._accept = None
    assert verify(token, verifier) is first


def test_what_is_known_is_bounded(monkeypatch):
    """The token that was not used for longest is forgotten first."""
    monkeypatch.setattr(module, "_MOST_KNOWN", 3)
    verifier = make()
    tokens = [PROVIDER.token(PROVIDER.ed, "EdDSA", jti=str(at)) for at in range(4)]
    for token in (*tokens[:3], tokens[0], tokens[3]):
        assert isinstance(verify(token, verifier), Actor)
    assert len(verifier._known) == 3
    verifier._accept = None
    for at in (0, 2, 3):
        assert isinstance(verify(tokens[at], verifier), Actor)
    with pytest.raises(TypeError):
        verify(tokens[1], verifier)


@pytest.mark.req("G15")
def test_nothing_of_a_token_is_kept():
    """Neither the actor nor the memory of the verifier has any part of it."""
    verifier = make()
    token = PROVIDER.token()
    actor = verify(token, verifier)
    assert isinstance(actor, Actor)
    shown = repr((actor, verifier._known))
    for part in (*parts(token), parts(token)[2][:16]):
        assert part not in shown


def test_the_twin_of_an_ec_signature_says_nothing_else():
    """(r, n − s) is as good as (r, s); whoever makes it gains nothing, the content is signed."""
    token = PROVIDER.token(PROVIDER.ec, "ES256")
    header, claims, signature = parts(token)
    raw = unb64(signature)
    s = P256_ORDER - int.from_bytes(raw[32:], "big")
    twin = f"{header}.{claims}.{b64(raw[:32] + s.to_bytes(32, 'big'))}"
    first, second = verify(token), verify(twin)
    assert isinstance(first, Actor)
    assert isinstance(second, Actor)
    assert (first.name, first.scopes, first.groups) == (second.name, second.scopes, second.groups)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"header": {"typ": "JWT"}}, "its type is not that of an access token (at+jwt)"),
        ({"header": {"alg": "RS512"}}, "its algorithm is not allowed"),
        ({"header": {"kid": "x"}}, "none of the issuer's keys matches its signature"),
        ({"key": pair("r1", "RSA2048", "stranger")}, "its signature is invalid"),
        ({"iss": "https://x.example"}, "it is from another issuer"),
        ({"aud": "other"}, "it is for another audience"),
        ({"exp": 5}, "it has expired; get a new one"),
        ({"exp": ...}, "it has no expiry"),
    ],
)
def test_the_reason_is_one_that_helps(change, why):
    """Whoever sets up an issuer learns what to change; nothing of the token is repeated."""
    assert reason(verify(PROVIDER.token(**change))) == why


def test_claims_of_a_forgery_are_not_read():
    """A wrong signature is told as such, whatever else is wrong."""
    forged = PROVIDER.token(pair("r1", "RSA2048", "stranger"), exp=5, aud="other")
    assert reason(verify(forged)) == "its signature is invalid"
