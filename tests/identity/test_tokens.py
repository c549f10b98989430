"""Tokens: what is kept of them, what they open, and when they stop."""

import asyncio
import hmac
import json
import multiprocessing
import os
import re
import stat
from datetime import UTC, datetime, timedelta

import pytest
from tests.worlds.projects import give_token, id_of, make_workshop, tokens_of

from trails.app.access import access_of
from trails.app.settings import read_settings
from trails.errors import CorruptionError, NotFoundError, TrailsError
from trails.identity import tokens as token_book
from trails.identity.tokens import TokenBook, make_token, parse_end
from trails.model.actors import Actor, Secret, TokenRequest
from trails.model.results import Failure
from trails.request.authenticate import Authenticator, HttpCallers, Refusal

NOW = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.fixture
def data(tmp_path):
    """The data folder of a project that was never opened."""
    return tmp_path / ".trails"


@pytest.fixture
def eager(monkeypatch):
    """Books that look at their file every time."""
    monkeypatch.setattr(token_book, "_PAUSE", 0.0)


def issue(data, **request):
    """A token, and its record."""
    return tokens_of(data.parent).issue(TokenRequest(**{"actor": "ann", **request}))


# --- what is kept ------------------------------------------------------------------


@pytest.mark.req("G15")
def test_only_the_hash_of_a_token_is_kept(data):
    """In a file for its owner alone; the secret has 256 bits and goes into a header or URL."""
    issued = issue(data, groups=("b", "a", "b"), scopes=("dev", "runtime"), expires="1d")
    text = issued.token.reveal()
    prefix, id_, secret = text.split("_", 2)
    assert (prefix, id_, len(secret)) == ("trails", issued.record.id, 43)
    assert secret.replace("-", "").replace("_", "").isalnum()
    kept = (data / "tokens.json").read_text()
    assert secret not in kept
    assert stat.S_IMODE((data / "tokens.json").stat().st_mode) == 0o600
    (record,) = json.loads(kept)["tokens"]
    assert record["groups"] == ["a", "b"]
    assert record["scopes"] == ["runtime", "dev"]
    assert set(record) == {
        *("id", "actor", "groups", "scopes", "created", "expires", "revoked", "hash"),
    }
    assert sorted(each.name for each in data.iterdir()) == ["tokens.json", "tokens.lock"]


def test_a_secret_shows_itself_to_nobody():
    """Not as text, not in an error, not by copying."""
    secret = Secret("canary")
    assert "canary" not in f"{secret} {secret!r} {[secret]}"
    with pytest.raises(TypeError):
        __import__("copy").deepcopy(secret)


def test_tokens_are_different_and_long():
    """No two have an id or a secret in common."""
    made = [make_token() for _ in range(500)]
    assert len({each.id for each in made}) == len({each.hash for each in made}) == 500


@pytest.mark.parametrize(
    "request_",
    [
        {"actor": ""},
        {"actor": "a\nb"},
        {"actor": "local"},
        {"actor": "x" * 257},
        {"actor": "a\u202eb"},
        {"scopes": ("root",)},
        {"scopes": ("Runtime",)},
        {"groups": (" a",)},
        {"groups": ("a,b",)},
        {"groups": ("",)},
        {"groups": ("a\x00",)},
        {"groups": ("g" * 257,)},
        {"groups": tuple(map(str, range(65)))},
        {"expires": "0d"},
        {"expires": "2020-01-01"},
        {"expires": "soon"},
        {"expires": "-1d"},
        {"expires": "999999w"},
        {"expires": "30 d"},
    ],
    ids=str,
)
def test_what_can_t_be_a_token_is_refused(data, request_):
    """With a message that says what could; nothing is written."""
    with pytest.raises(TrailsError) as refused:
        issue(data, **request_)
    assert len(refused.value.message) < 700
    assert not (data / "tokens.json").exists()


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("90s", NOW + timedelta(seconds=90)),
        ("15m", NOW + timedelta(minutes=15)),
        ("12h", NOW + timedelta(hours=12)),
        ("30d", NOW + timedelta(days=30)),
        ("2w", NOW + timedelta(days=14)),
        ("2027-01-31", datetime(2027, 1, 31, tzinfo=UTC)),
        ("2027-01-31T12:00:00Z", datetime(2027, 1, 31, 12, tzinfo=UTC)),
        ("2027-01-31T12:00:00+02:00", datetime(2027, 1, 31, 10, tzinfo=UTC)),
    ],
)
def test_an_end_is_a_duration_or_a_time(text, end):
    """A time without a zone is UTC."""
    assert parse_end(text, NOW) == end


def _issue_many(data, actor):
    for _ in range(20):
        issue(data, actor=actor)


def test_writers_take_turns(data):
    """What several processes make at the same time is all there."""
    start = multiprocessing.get_context("fork").Process
    writers = [start(target=_issue_many, args=(data, f"a{n}")) for n in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    assert [each.exitcode for each in writers] == [0] * 4
    found = tokens_of(data.parent).list()
    assert {f"a{n}": sum(t.actor == f"a{n}" for t in found) for n in range(4)} == dict.fromkeys(
        (f"a{n}" for n in range(4)), 20
    )


def test_what_a_killed_writer_left_is_in_nobody_s_way(data):
    """Half a file is not read, and the next writer replaces it."""
    issue(data)
    left = data / ".tokens.json.0123456789ab"
    left.write_text("{")
    issue(data)
    assert len(tokens_of(data.parent).list()) == 2
    assert not left.exists()


# --- what they open ----------------------------------------------------------------


@pytest.mark.usefixtures("eager")
def test_a_token_stands_for_its_actor(data):
    """With its groups, its scopes, and the id by which it can be named."""
    issued = issue(data, groups=("agents",), scopes=("runtime", "builder"))
    found = TokenBook(data).find(issued.token)
    scopes = frozenset({"runtime", "builder"})
    assert found == Actor("ann", scopes, frozenset({"agents"}), issued.record.id)
    assert TokenBook(data).is_current(found)


def mangled(token):
    """Texts that are nearly a token."""
    prefix, id_, secret = token.split("_", 2)
    other = "0" * 12 if id_ != "0" * 12 else "1" * 12
    yield from ("", " ", "trails", token[:-1], f"{token}A", f" {token}", f"{token}\n")
    yield from (secret, f"{prefix}_{other}_{secret}", f"{prefix}__{secret}", f"_{id_}_{secret}")
    yield from (token.upper(), token.swapcase(), f"{prefix}_{id_}_{secret[::-1]}")
    yield from (f"{prefix}_{id_.upper()}_{secret}", f"{prefix}_{id_}_", f"{prefix}_{id_}")
    yield from (token.replace("_", "-"), f"{token}\x00", token + token, f"Bearer {token}")
    yield f"{prefix}_{id_}_{secret[:-1]}{'A' if secret[-1] != 'A' else 'B'}"


@pytest.mark.usefixtures("eager")
def test_nothing_but_a_token_is_one(data):
    """Whatever is nearly one is as good as nothing."""
    token = issue(data).token.reveal()
    book = TokenBook(data)
    assert book.find(Secret(token)) is not None
    for near in mangled(token):
        assert book.find(Secret(near)) is None, near


@pytest.mark.usefixtures("eager")
def test_the_hash_is_not_a_token(data):
    """Whoever reads the file has nothing to present."""
    issued = issue(data)
    (record,) = json.loads((data / "tokens.json").read_text())["tokens"]
    book = TokenBook(data)
    for text in (record["hash"], f"trails_{issued.record.id}_{record['hash']}"):
        assert book.find(Secret(text)) is None


@pytest.mark.req("G15")
@pytest.mark.usefixtures("eager")
def test_comparing_takes_no_shortcut(data, monkeypatch):
    """A known id and an unknown one cost the same comparison, of whole hashes."""
    compared = []

    def compare(one, other):
        compared.append((len(one), len(other)))
        return hmac.compare_digest(one, other)

    token = issue(data).token.reveal()
    _, id_, secret = token.split("_", 2)
    monkeypatch.setattr(token_book, "compare_digest", compare)
    book = TokenBook(data)
    other = f"{int(id_, 16) ^ 1:012x}"
    for text in (token, f"trails_{id_}_{'A' * 43}", f"trails_{other}_{secret}"):
        book.find(Secret(text))
    assert compared == [(32, 32)] * 3


# --- when they stop ----------------------------------------------------------------


@pytest.mark.usefixtures("eager")
def test_a_revoked_token_is_refused_and_stays_in_the_file(data):
    """By its id, by a whole token that somebody pasted, or with all others of its actor."""
    one, two, three, other = (issue(data, actor=actor) for actor in ("ann", "ann", "ann", "bob"))
    book = TokenBook(data)
    holders = [book.find(each.token) for each in (one, two, three, other)]
    file = tokens_of(data.parent)
    file.revoke([one.record.id])
    assert [book.is_current(each) for each in holders] == [False, True, True, True]
    file.revoke([two.token.reveal()])
    assert [book.is_current(each) for each in holders] == [False, False, True, True]
    value = json.loads(file.path.read_text())
    value["tokens"][0]["revoked"] = "2026-01-01T00:00:00Z"
    del value["digest"]  # as a file that was written by hand
    file.path.write_text(json.dumps(value))
    assert [each.id for each in file.revoke(actor="ann")] == [
        each.record.id for each in (one, two, three)
    ]
    assert [book.is_current(each) for each in holders] == [False, False, False, True]
    assert [book.find(each.token) is None for each in (one, two, three, other)] == [
        *(True, True, True, False),
    ]
    assert file.list()[0].revoked == datetime(2026, 1, 1, tzinfo=UTC)
    assert len(file.list()) == 4
    assert book.configured


def test_an_id_that_is_none_is_not_repeated(data):
    """It may be a token at the wrong place; nothing is revoked then."""
    issued = issue(data)
    file = tokens_of(data.parent)
    for wrong in ("trails_canary", issued.token.reveal()[:-30], "x" * 5000):
        with pytest.raises(NotFoundError) as refused:
            file.revoke([issued.record.id, wrong])
        assert wrong not in refused.value.message
    with pytest.raises(NotFoundError):
        file.revoke(actor="nobody")
    assert file.list()[0].revoked is None


@pytest.mark.usefixtures("eager")
def test_an_expired_token_is_refused(data, monkeypatch):
    """From that second on, without anybody doing anything."""
    issued = issue(data, expires="1h")
    book = TokenBook(data)
    end = issued.record.expires.timestamp()
    monkeypatch.setattr(token_book, "time", lambda: end - 1)
    holder = book.find(issued.token)
    assert holder is not None
    monkeypatch.setattr(token_book, "time", lambda: end)
    assert book.find(issued.token) is None
    assert not book.is_current(holder)
    assert book.configured


@pytest.mark.usefixtures("eager")
def test_a_token_whose_record_says_less_is_not_current(data):
    """Whoever opened something with more must come again."""
    issued = issue(data, groups=("a",), scopes=("runtime", "dev"))
    book = TokenBook(data)
    holder = book.find(issued.token)
    path = data / "tokens.json"
    whole = without_digest(path.read_text())
    for less in (
        whole.replace('"a"', '"b"'),
        whole.replace('"dev"', '"builder"'),
        whole.replace('"ann"', '"bob"'),
    ):
        assert less != whole
        path.write_text(less)
        assert not book.is_current(holder)
        path.write_text(whole)
        assert book.is_current(holder)


def test_the_first_token_holds_from_its_first_use(data):
    """However shortly before it was made; also a later one."""
    book = TokenBook(data)
    callers = HttpCallers(Authenticator(Actor("local"), tokens=book))
    nobody = callers.recognise(None)
    assert nobody is not None
    assert nobody.name == "local"
    for actor in ("ann", "bob"):
        token = issue(data, actor=actor).token.reveal()
        found = asyncio.run(callers.authenticate(f"Bearer {token}".encode()))
        assert isinstance(found, Actor)
        assert found.name == actor
    assert callers.recognise(None) is None


def test_a_server_looks_at_the_file_once_a_second(data, monkeypatch):
    """However many requests there are; what changed is known within that second."""
    clock = [100.0]
    monkeypatch.setattr(token_book, "monotonic", lambda: clock[0])
    book = TokenBook(data)
    assert not book.configured
    issued = issue(data)
    assert not book.configured
    clock[0] += 1
    assert book.configured
    holder = book.find(issued.token)
    tokens_of(data.parent).revoke([issued.record.id])
    assert book.is_current(holder)
    clock[0] += 1
    assert not book.is_current(holder)


# --- a file that is broken ------------------------------------------------------------


def broken_texts(whole):
    """What a file of tokens can't be, though it looks like one."""
    value = json.loads(whole)
    (record,) = value["tokens"]

    def with_(**changes):
        return json.dumps({**value, "tokens": [{**record, **changes}]})

    yield from ("", "{", "null", "[]", "{}", '{"version": 1}', "\x00" * 50, whole[:-20])
    yield json.dumps({**value, "version": 2})
    yield json.dumps({**value, "more": 1})
    yield json.dumps({**value, "tokens": [record, record]})
    yield json.dumps({**value, "tokens": {}})
    yield with_(hash="")
    yield with_(hash="0" * 63)
    yield with_(hash=record["hash"].upper())
    yield with_(scopes=["root"])
    yield with_(created="2026-01-01T00:00:00")
    yield with_(expires="never")
    yield with_(expires=0)
    yield with_(revoked=False)
    yield with_(actor=None)
    yield with_(actor="")
    yield with_(actor="a\nb")
    yield with_(groups=[" "])
    yield with_(id="static")
    yield with_(id="operator")
    yield with_(id="oauth:1")
    yield with_(id="")
    yield with_(unknown=1)


@pytest.mark.usefixtures("eager")
def test_a_broken_file_lets_nobody_in(data, caplog):
    """It is told in the log and to whoever changes it; repaired, it is as before."""
    issued = issue(data)
    path = data / "tokens.json"
    whole = path.read_text()
    for text in broken_texts(whole):
        path.write_text(text)
        book = TokenBook(data)
        caplog.clear()
        assert book.configured, text
        assert book.find(issued.token) is None, text
        assert "tokens.json" in caplog.text, text
        with pytest.raises(CorruptionError):
            tokens_of(data.parent).list()
        with pytest.raises(CorruptionError):
            issue(data)
        assert path.read_text() == text
        path.write_text(whole)
        assert book.find(issued.token) is not None


@pytest.mark.usefixtures("eager")
def test_what_asked_for_tokens_does_so_until_it_ends(data, caplog):
    """Also when the file is emptied, taken away, or can't be opened."""
    issued = issue(data)
    book = TokenBook(data)
    holder = book.find(issued.token)
    path = data / "tokens.json"
    whole = path.read_text()
    path.write_text('{"version": 1, "tokens": []}')
    assert book.configured
    assert not book.is_current(holder)
    path.write_text(whole)
    assert book.is_current(holder)
    path.unlink()
    assert book.configured
    assert not book.is_current(holder)
    assert "all tokens are refused" in caplog.text
    path.mkdir()
    assert TokenBook(data).configured
    path.rmdir()
    assert TokenBook(data).configured
    (data / "tokens.lock").unlink()
    assert not TokenBook(data).configured


def without_digest(text):
    """A file of tokens as earlier versions wrote it, and as people may change it."""
    return re.sub(r',\s*"digest": "[0-9a-f]{64}"', "", text)


def test_a_file_without_a_digest_is_read_and_gets_one(data):
    """Earlier versions wrote none."""
    issued = issue(data)
    path = data / "tokens.json"
    path.write_text(without_digest(path.read_text()))
    assert "digest" not in path.read_text()
    assert TokenBook(data).find(issued.token) is not None
    issue(data)
    assert "digest" in path.read_text()


def test_a_flipped_bit_gives_no_token_to_another(data):
    """Whatever bit it is: the file is refused, or says what it said."""
    issue(data, groups=("a",), expires="30d")
    path = data / "tokens.json"
    whole = path.read_bytes()
    tokens = tokens_of(data.parent)
    before = tokens.read()
    refused = 0
    for at in range(8 * len(whole)):
        spoilt = bytearray(whole)
        spoilt[at // 8] ^= 1 << at % 8
        path.write_bytes(spoilt)
        try:
            assert tokens.read() == before
        except CorruptionError:
            refused += 1
    assert refused > 6 * len(whole)


@pytest.mark.usefixtures("eager")
def test_a_file_that_is_gone_lets_nobody_in(data, caplog):
    """The project does not become one without tokens."""
    issued = issue(data)
    path = data / "tokens.json"
    whole = path.read_bytes()
    path.unlink()
    book = TokenBook(data)
    assert book.configured
    assert book.find(issued.token) is None
    assert "it is missing" in caplog.text
    with pytest.raises(CorruptionError, match=r"remove it together with tokens\.lock"):
        issue(data)
    path.write_bytes(whole)
    assert book.find(issued.token) is not None


# --- whoever asks ------------------------------------------------------------------


def test_all_that_is_wrong_with_a_token_is_told_in_the_same_words(tmp_path):
    """Unknown, mangled, expired, revoked: nobody learns which."""
    folder = make_workshop(tmp_path / "p")
    good, dead = give_token(folder), give_token(folder)
    tokens_of(folder).revoke([id_of(dead)])
    gate = access_of(folder, read_settings(folder), {"TRAILS_MCP_TOKEN": "static"})

    async def ask(token):
        found = await HttpCallers(gate.authenticator).authenticate(b"Bearer " + token.encode())
        return found.failure if isinstance(found, Refusal) else found

    async def ask_all():
        return [await ask(each) for each in (dead, good[:-1], "nope", "trails_x_y", "static ")]

    *wrong, right = asyncio.run(ask_all())
    assert {each.message for each in wrong} == {wrong[0].message}
    assert all(isinstance(each, Failure) and each.kind == "unauthenticated" for each in wrong)
    assert right.credential == "static"
    assert good not in wrong[0].message


@pytest.mark.parametrize(
    ("process", "held", "left"),
    [
        (("runtime",), ("runtime", "builder", "dev"), {"runtime"}),
        (("runtime", "dev"), ("runtime", "builder"), {"runtime"}),
        (("builder",), ("runtime",), set()),
        (("runtime", "builder", "dev"), ("dev",), {"dev"}),
    ],
)
@pytest.mark.req("T5")
def test_scopes_are_those_of_process_and_credential(data, process, held, left):
    """A token never adds to what the process may, nor the process to what the token may."""
    issued = issue(data, scopes=held)
    gate = Authenticator(Actor("local", frozenset(process)), None, TokenBook(data))
    header = b"Bearer " + issued.token.reveal().encode()
    assert asyncio.run(HttpCallers(gate).authenticate(header)).scopes == left
    presented = gate.authenticate(issued.token, frozenset(process))
    assert asyncio.run(presented).scopes == left


def test_without_a_credential_there_is_runtime_at_most(data):
    """Whatever the process may; with its token, everything that it may."""
    every = frozenset({"runtime", "builder", "dev"})
    process = Actor("local", every)
    open_ = Authenticator(process, None, TokenBook(data))
    assert not open_.required
    unnamed = asyncio.run(HttpCallers(open_).authenticate(b"Bearer whatever"))
    assert unnamed == Actor("local")
    assert asyncio.run(open_.authenticate(None, frozenset({"dev"}))).scopes == set()
    assert open_.is_current(unnamed)
    closed = Authenticator(process, Secret("static"), TokenBook(data))
    named = asyncio.run(HttpCallers(closed).authenticate(b"Bearer static"))
    assert named == Actor("local", every, credential="static")
    assert closed.is_current(named)
    assert not closed.is_current(unnamed)


def test_a_token_of_others_is_not_tried_as_ours(data):
    """What is too long is not even hashed."""
    gate = Authenticator(Actor("local"), Secret("x" * 20_000), TokenBook(data))
    refused = asyncio.run(gate.authenticate(Secret("x" * 20_000), frozenset({"runtime"})))
    assert isinstance(refused, Failure)


def test_the_file_is_for_its_owner_whatever_the_umask(data):
    """Also when it is replaced."""
    old = os.umask(0)
    try:
        issue(data)
        issue(data)
    finally:
        os.umask(old)
    for each in ("tokens.json", "tokens.lock"):
        assert stat.S_IMODE((data / each).stat().st_mode) == 0o600
