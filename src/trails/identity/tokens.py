"""``.trails/tokens.json``: all tokens of a project, by hash.

Commands write it, whoever serves the folder reads it, at the same time: it is replaced as a
whole, and writers take turns by a lock of its own. Nothing is ever taken out of it, so that it
tells for good that this project asks for tokens; the file of the lock says so, too, in case it
is deleted. A digest shows changes that leave the file readable, such as another actor's name.

The text of a token: ``trails_<id>_<secret>``. The id finds its record, the secret proves it.

Whether a token can be what is asked for: its actor, groups, scopes and end.

The tokens of a project while it is served: looked up often, read again when they change.
"""

from __future__ import annotations

import fcntl
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from secrets import token_hex, token_urlsafe
from time import monotonic, time
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from trails.errors import CorruptionError, NotFoundError, StorageError, TrailsError
from trails.files import (
    PRIVATE_FILE,
    private_folder,
    private_opener,
    remove_unfinished,
    replace_file,
)
from trails.model.actors import (
    LOCAL,
    Actor,
    IssuedToken,
    Secret,
    TokenRecord,
    TokenRequest,
    checked_actor,
)
from trails.model.capabilities import SCOPES, Scope
from trails.model.iris import digest_of

_ID_BYTES: Final = 6
_SECRET_BYTES: Final = 32
"""256 bits: more than can be guessed, so a plain hash keeps it."""
_TEXT: Final = re.compile(r"trails_([0-9a-f]{12})_([A-Za-z0-9_-]{43,128})", re.ASCII)


class NewToken(NamedTuple):
    """A token that nobody has seen yet."""

    id: str
    hash: str
    token: Secret


def make_token() -> NewToken:
    """A token from the system's source of randomness."""
    id_, secret = token_hex(_ID_BYTES), token_urlsafe(_SECRET_BYTES)
    return NewToken(id_, hash_of(secret).hex(), Secret(f"trails_{id_}_{secret}"))


def split_token(token: Secret) -> tuple[str, Secret] | None:
    """The id and the secret of a token; None for a text that is none."""
    found = _TEXT.fullmatch(token.reveal())
    return None if found is None else (found[1], Secret(found[2]))


def hash_of(secret: str) -> bytes:
    """What is kept of a secret."""
    return sha256(secret.encode()).digest()


MOST_GROUPS: Final = 64
_LONGEST_GROUP: Final = 256
_DURATION: Final = re.compile(r"([1-9][0-9]{0,5})([smhdw])", re.ASCII)
_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def check_groups(groups: tuple[str, ...]) -> tuple[str, ...]:
    """Groups, each once, in order; what can't be a group's name is refused."""
    for each in groups:
        if not each.strip() or each != each.strip() or "," in each or not each.isprintable():
            raise TrailsError(
                f"{each[:_LONGEST_GROUP]!r} can't be a group: printable characters without "
                "commas and without spaces around them; give --group once for each"
            )
        if len(each) > _LONGEST_GROUP:
            raise TrailsError(f"a group's name has {_LONGEST_GROUP} characters at most")
    named = tuple(sorted(set(groups)))
    if len(named) > MOST_GROUPS:
        raise TrailsError(f"an actor can be in {MOST_GROUPS} groups, not in {len(named)}")
    return named


def check_scopes(scopes: tuple[str, ...]) -> tuple[Scope, ...]:
    """Scopes, each once, from the least to the most."""
    for each in scopes:
        if each not in SCOPES:
            near = get_close_matches(each, SCOPES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TrailsError(f"there is no scope {each[:100]!r}, only {', '.join(SCOPES)}{hint}")
    return tuple(each for each in SCOPES if each in scopes)


def check_request(request: TokenRequest) -> TokenRequest:
    """A request that can be fulfilled, in order."""
    if request.actor == LOCAL.name:
        raise TrailsError(
            "'local' is whoever works on this machine without a token; name another actor"
        )
    return TokenRequest(
        actor=checked_actor(request.actor),
        groups=check_groups(request.groups),
        scopes=check_scopes(request.scopes),
        expires=request.expires,
    )


def parse_end(text: str, now: datetime) -> datetime:
    """When a token ends that is made now: ``30d``, a date, or a date and time."""
    found = _DURATION.fullmatch(text)
    try:
        end = now + int(found[1]) * _UNITS[found[2]] if found else _parse_time(text)
    except (ValueError, OverflowError):
        raise TrailsError(
            f"{text[:100]!r} is no end of a token: write a duration such as 30d, 12h or 90m, a "
            "date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z"
        ) from None
    if end <= now:
        raise TrailsError(f"{text!r} is over already: it is {now:%Y-%m-%dT%H:%M:%SZ}")
    return end.replace(microsecond=0)


def _parse_time(text: str) -> datetime:
    """A time; one without a zone is UTC."""
    end = datetime.fromisoformat(text)
    return end.replace(tzinfo=UTC) if end.tzinfo is None else end.astimezone(UTC)


TOKENS_FILE: Final = "tokens.json"
_LOCK_FILE: Final = "tokens.lock"
_HASH: Final = "^[0-9a-f]{64}$"
_SHOWN_IDS: Final = 5
_ID: Final = re.compile("[0-9a-f]{12}", re.ASCII)
"""What may be repeated in an error: anything else might be a secret at the wrong place."""


class StoredToken(TokenRecord, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record as the file has it."""

    hash: Annotated[str, msgspec.Meta(pattern=_HASH)]
    """SHA-256 of the secret, in hexadecimal."""


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    tokens: tuple[StoredToken, ...]
    digest: str = ""
    """SHA-256 of the tokens; files that were written by earlier versions have none."""


_decoder: Final = msgspec.json.Decoder(_Stored)


class TokenFile:
    """The tokens of one project."""

    def __init__(self, data: Path) -> None:
        """``data``: the project's ``.trails``."""
        self._folder = data
        self.path = data / TOKENS_FILE

    def read(self) -> tuple[StoredToken, ...]:
        """All tokens, oldest first; CorruptionError for a file that can't be believed."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            if not self._ever_written():
                return ()
            raise self._broken(f"it is missing, and {_LOCK_FILE} shows that it was there") from None
        except OSError as error:
            raise self._broken(error.strerror or str(error)) from None
        try:
            stored = _decoder.decode(text)
            found = stored.tokens
            _check(found)
            if stored.digest and stored.digest != digest_of(found):
                raise ValueError("its digest differs: something in it was changed")  # noqa: TRY301
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise self._broken(_without_values(str(error))) from None
        return found

    def _broken(self, why: str) -> CorruptionError:
        return CorruptionError(
            f"{self.path} can't be read as a list of tokens: {why}. Until it can, no token is "
            f"taken. Put back a copy of it, or remove it together with {_LOCK_FILE} and make new "
            "tokens"
        )

    def _ever_written(self) -> bool:
        """Whether the lock's file says that there were tokens."""
        with suppress(FileNotFoundError):
            return bool((self._folder / _LOCK_FILE).stat().st_size)
        return False

    def issue(self, request: TokenRequest) -> IssuedToken:
        """Make a token; its text is in the answer and nowhere else."""
        checked = check_request(request)
        now = datetime.now(UTC).replace(microsecond=0)
        end = None if checked.expires is None else parse_end(checked.expires, now)
        made = make_token()
        record = msgspec.convert(
            {
                "id": made.id,
                "actor": checked.actor,
                "groups": checked.groups,
                "scopes": checked.scopes,
                "created": now,
                "expires": end,
            },
            TokenRecord,
        )
        fields = msgspec.structs.asdict(record)
        with self._changing() as found:
            self._write([*found, StoredToken(**fields, hash=made.hash)])
        return IssuedToken(record, made.token)

    def revoke(self, ids: Sequence[str] = (), actor: str | None = None) -> list[TokenRecord]:
        """End tokens, by id or all of an actor; those that had ended before stay as they were."""
        wanted = {_id_in(each) for each in ids}
        now = datetime.now(UTC).replace(microsecond=0)
        with self._changing() as found:
            _check_known(wanted, found)
            if actor is not None and not any(each.actor == actor for each in found):
                raise NotFoundError(
                    f"no token is for the actor {actor!r}; 'trails token list' has all"
                )
            meant = [each for each in found if each.id in wanted or each.actor == actor]
            ended = {
                each.id: each if each.revoked else msgspec.structs.replace(each, revoked=now)
                for each in meant
            }
            self._write([ended.get(each.id, each) for each in found])
        return [_public(each) for each in ended.values()]

    def list(self) -> list[TokenRecord]:
        """All tokens, oldest first, without their hashes."""
        return [_public(each) for each in self.read()]

    @contextmanager
    def _changing(self) -> Iterator[tuple[StoredToken, ...]]:
        """The tokens, while nobody else changes them."""
        private_folder(self._folder)
        with open(self._folder / _LOCK_FILE, "ab", opener=private_opener) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except OSError as error:
                raise StorageError(
                    f"can't lock {self._folder / _LOCK_FILE}: {error.strerror or error}. Move the "
                    "project to a local disk, or mount this file system with locks"
                ) from None
            yield self.read()
            if not lock.tell() and self.path.exists():
                lock.write(b"tokens\n")

    def _write(self, tokens: Sequence[StoredToken]) -> None:
        """Replace the file: others see it before or after, and a power cut leaves one of them."""
        stored = _Stored(1, tuple(tokens), digest_of(tuple(tokens)))
        text = msgspec.json.format(msgspec.json.encode(stored), indent=1)
        remove_unfinished(self.path)
        replace_file(self.path, text + b"\n", PRIVATE_FILE)


def _check(tokens: Sequence[StoredToken]) -> None:
    """What the form of a record does not say."""
    if len({each.id for each in tokens}) != len(tokens):
        raise ValueError("two tokens have the same id")
    for each in tokens:
        _check_names(each)
        times = (each.created, each.expires, each.revoked)
        if any(time is not None and time.tzinfo is None for time in times):
            raise ValueError("a time has no zone")


def _check_names(token: StoredToken) -> None:
    """Whether a record names a token and an actor as those are named that were made here."""
    if not _ID.fullmatch(token.id):
        raise ValueError("an id is not 12 of 0-9 and a-f")
    try:
        checked_actor(token.actor)
        check_groups(token.groups)
    except TrailsError:
        raise ValueError("an actor or group has a name that it can't have") from None


def _without_values(problem: str) -> str:
    """A decoder's complaint without what it quotes."""
    return re.sub(r"'[^']*'", "a value", problem)


def _id_in(text: str) -> str:
    """The id that a text names; of a whole token, which somebody pasted, only that is used."""
    split = split_token(Secret(text))
    return text if split is None else split[0]


def _check_known(wanted: set[str], found: Sequence[StoredToken]) -> None:
    unknown = wanted.difference(each.id for each in found)
    if unknown:
        live = [each.id for each in found if each.revoked is None]
        shown = ", ".join(live[-_SHOWN_IDS:]) or "none"
        first = min(unknown)
        named = f"the id {first!r}" if _ID.fullmatch(first) else "such an id (12 of 0-9 and a-f)"
        raise NotFoundError(f"no token has {named}; there is {shown}: 'trails token list' has all")


def _public(token: StoredToken) -> TokenRecord:
    fields = {name: getattr(token, name) for name in TokenRecord.__struct_fields__}
    return TokenRecord(**fields)


_PAUSE: Final = 1.0
"""Seconds between two looks at the file."""
_Stamp = tuple[int, int, int]
_logger: Final = logging.getLogger("trails")


class _Known(NamedTuple):
    """A token as it is looked up."""

    actor: Actor
    hash: bytes
    ends: float
    """When, in seconds since 1970; a revoked one has ended long ago."""


_NOBODY: Final = _Known(Actor(""), bytes(32), 0.0)
"""What is compared where there is no record."""


_NEVER: Final[_Stamp] = (-2, -2, -2)
"""The stamp of a file that was not looked at."""


class TokenBook:
    """Whose token is whose, as the file says now.

    A file that can't be read is as if every token had been revoked: nobody gets in by breaking it.
    """

    def __init__(self, data: Path) -> None:
        """``data``: the project's ``.trails``."""
        self._file = TokenFile(data)
        self._tokens: dict[str, _Known] = {}
        self._stamp: _Stamp | None = _NEVER
        self._looked = float("-inf")
        self._configured = False

    @property
    def configured(self) -> bool:
        """Whether there ever was a token, or something is wrong with the file of tokens."""
        self._refresh()
        return self._configured

    def find(self, token: Secret) -> Actor | None:
        """Whose token it is, with the token's id as ``credential``; None for one that is not good.

        It takes the same time whether there is such an id or not.
        """
        self._refresh()
        split = split_token(token)
        if split is None:
            return None
        known = self._tokens.get(split[0], _NOBODY)
        same = compare_digest(hash_of(split[1].reveal()), known.hash)
        return known.actor if same and time() < known.ends else None

    def is_current(self, actor: Actor) -> bool:
        """Whether the token that an actor came with is still good, and still says the same."""
        self._refresh()
        known = self._tokens.get(actor.credential, _NOBODY)
        now = known.actor
        same = now.name == actor.name and now.groups == actor.groups
        return same and actor.scopes <= now.scopes and time() < known.ends

    def _refresh(self) -> None:
        """Look whether the file is another one, from time to time."""
        now = monotonic()
        if now < self._looked + _PAUSE:
            return
        self._looked = now
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            self._read()

    def _look(self) -> _Stamp | None:
        try:
            found = self._file.path.stat()
        except FileNotFoundError:
            return None
        except OSError as error:
            return (-1, -1, error.errno or 0)
        return (found.st_ino, found.st_size, found.st_mtime_ns)

    def _read(self) -> None:
        try:
            found = self._file.read()
        except CorruptionError as error:
            self._tokens, self._configured = {}, True
            _logger.error("%s", error.message)  # noqa: TRY400 - the trace says nothing more
            return
        if self._configured and not found:
            _logger.error("%s is gone or empty: no token is taken", self._file.path)
        self._configured = self._configured or bool(found)
        self._tokens = {each.id: _know(each) for each in found}


def _know(token: StoredToken) -> _Known:
    ends = float("inf") if token.expires is None else token.expires.timestamp()
    return _Known(
        Actor(token.actor, frozenset(token.scopes), frozenset(token.groups), token.id),
        bytes.fromhex(token.hash),
        ends if token.revoked is None else 0.0,
    )
