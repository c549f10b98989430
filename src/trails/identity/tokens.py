"""Tokens of a project: their text, the file that stores their hashes, and fast lookup.

A token is ``trails_<id>_<secret>``: the id finds its record, the secret proves it.
``.trails/tokens.json`` stores SHA-256 hashes only. Commands write the file while a server
reads it, so it is replaced as a whole, and writers take a lock. Records are never removed, so
the file (and its lock file, in case it is deleted) shows forever that this project requires
tokens. A digest detects edits that leave the file readable.

``TokenBook`` answers lookups from memory and reloads the file when it changes.
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
"""256 bits can't be guessed, so a plain hash protects them."""
_TEXT: Final = re.compile(r"trails_([0-9a-f]{12})_([A-Za-z0-9_-]{43,128})", re.ASCII)


class NewToken(NamedTuple):
    """A token that was just made, with its secret."""

    id: str
    hash: str
    token: Secret


def make_token() -> NewToken:
    """Make a token from the system's source of randomness."""
    id_, secret = token_hex(_ID_BYTES), token_urlsafe(_SECRET_BYTES)
    return NewToken(id_, hash_of(secret).hex(), Secret(f"trails_{id_}_{secret}"))


def split_token(token: Secret) -> tuple[str, Secret] | None:
    """Return the id and the secret of a token; None if the text isn't a token."""
    found = _TEXT.fullmatch(token.reveal())
    return None if found is None else (found[1], Secret(found[2]))


def hash_of(secret: str) -> bytes:
    """Return the stored form of a secret."""
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
    """Return the groups, sorted and without duplicates; refuse invalid names."""
    for each in groups:
        if not each.strip() or each != each.strip() or "," in each or not each.isprintable():
            raise TrailsError(
                f"{each[:_LONGEST_GROUP]!r} is not a valid group: use printable characters without "
                "commas and without spaces around them; give --group once for each"
            )
        if len(each) > _LONGEST_GROUP:
            raise TrailsError(f"a group name may have at most {_LONGEST_GROUP} characters")
    named = tuple(sorted(set(groups)))
    if len(named) > MOST_GROUPS:
        raise TrailsError(f"an actor can be in at most {MOST_GROUPS} groups, not {len(named)}")
    return named


def check_scopes(scopes: tuple[str, ...]) -> tuple[Scope, ...]:
    """Return the scopes without duplicates, least powerful first."""
    for each in scopes:
        if each not in SCOPES:
            near = get_close_matches(each, SCOPES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise TrailsError(f"unknown scope {each[:100]!r}; use {', '.join(SCOPES)}{hint}")
    return tuple(each for each in SCOPES if each in scopes)


def check_request(request: TokenRequest) -> TokenRequest:
    """Check and normalise a request."""
    if request.actor == LOCAL.name:
        raise TrailsError(
            "'local' is reserved for users of this machine without a token; name another actor"
        )
    return TokenRequest(
        actor=checked_actor(request.actor),
        groups=check_groups(request.groups),
        scopes=check_scopes(request.scopes),
        expires=request.expires,
    )


def parse_end(text: str, now: datetime) -> datetime:
    """Parse the end of a new token: ``30d``, a date, or a date and time."""
    found = _DURATION.fullmatch(text)
    try:
        end = now + int(found[1]) * _UNITS[found[2]] if found else _parse_time(text)
    except (ValueError, OverflowError):
        raise TrailsError(
            f"{text[:100]!r} is not a valid end: use a duration such as 30d, 12h or 90m, a "
            "date such as 2027-01-31, or a time such as 2027-01-31T12:00:00Z"
        ) from None
    if end <= now:
        raise TrailsError(f"{text!r} is in the past: it is now {now:%Y-%m-%dT%H:%M:%SZ}")
    return end.replace(microsecond=0)


def _parse_time(text: str) -> datetime:
    """Parse a time; one without a zone is UTC."""
    end = datetime.fromisoformat(text)
    return end.replace(tzinfo=UTC) if end.tzinfo is None else end.astimezone(UTC)


TOKENS_FILE: Final = "tokens.json"
_LOCK_FILE: Final = "tokens.lock"
_HASH: Final = "^[0-9a-f]{64}$"
_SHOWN_IDS: Final = 5
_ID: Final = re.compile("[0-9a-f]{12}", re.ASCII)
"""What an error may repeat: anything else might be a secret in the wrong place."""


class StoredToken(TokenRecord, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record in the file."""

    hash: Annotated[str, msgspec.Meta(pattern=_HASH)]
    """SHA-256 of the secret, in hexadecimal."""


class _Stored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: Literal[1]
    tokens: tuple[StoredToken, ...]
    digest: str = ""
    """SHA-256 of the tokens; files of earlier versions have none."""


_decoder: Final = msgspec.json.Decoder(_Stored)


class TokenFile:
    def __init__(self, data: Path) -> None:
        """``data``: the project's ``.trails``."""
        self._folder = data
        self.path = data / TOKENS_FILE

    def read(self) -> tuple[StoredToken, ...]:
        """Return all tokens, oldest first; raise CorruptionError if the file can't be trusted."""
        try:
            text = self.path.read_bytes()
        except FileNotFoundError:
            if not self._ever_written():
                return ()
            raise self._broken(f"it is missing, but {_LOCK_FILE} shows that it existed") from None
        except OSError as error:
            raise self._broken(error.strerror or str(error)) from None
        try:
            stored = _decoder.decode(text)
            found = stored.tokens
            _check(found)
            if stored.digest and stored.digest != digest_of(found):
                raise ValueError("its digest does not match, so it was edited")  # noqa: TRY301
        except (msgspec.DecodeError, UnicodeDecodeError, ValueError) as error:
            raise self._broken(_without_values(str(error))) from None
        return found

    def _broken(self, why: str) -> CorruptionError:
        return CorruptionError(
            f"{self.path} can't be read as a list of tokens: {why}. Until that is fixed, all "
            f"tokens are refused. Restore a copy, or remove it together with {_LOCK_FILE} and "
            "make new tokens"
        )

    def _ever_written(self) -> bool:
        """Whether the lock file says that tokens were made."""
        with suppress(FileNotFoundError):
            return bool((self._folder / _LOCK_FILE).stat().st_size)
        return False

    def issue(self, request: TokenRequest) -> IssuedToken:
        """Make a token; its secret is only in the result."""
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
        """Revoke tokens by id, or all of an actor; tokens that have ended stay unchanged."""
        wanted = {_id_in(each) for each in ids}
        now = datetime.now(UTC).replace(microsecond=0)
        with self._changing() as found:
            _check_known(wanted, found)
            if actor is not None and not any(each.actor == actor for each in found):
                raise NotFoundError(
                    f"the actor {actor!r} has no tokens; 'trails token list' shows all"
                )
            meant = [each for each in found if each.id in wanted or each.actor == actor]
            ended = {
                each.id: each if each.revoked else msgspec.structs.replace(each, revoked=now)
                for each in meant
            }
            self._write([ended.get(each.id, each) for each in found])
        return [_public(each) for each in ended.values()]

    def list(self) -> list[TokenRecord]:
        """Return all tokens, oldest first, without their hashes."""
        return [_public(each) for each in self.read()]

    @contextmanager
    def _changing(self) -> Iterator[tuple[StoredToken, ...]]:
        """Return the tokens while holding the lock."""
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
        """Replace the file atomically; a power cut leaves the old or the new one."""
        stored = _Stored(1, tuple(tokens), digest_of(tuple(tokens)))
        text = msgspec.json.format(msgspec.json.encode(stored), indent=1)
        remove_unfinished(self.path)
        replace_file(self.path, text + b"\n", PRIVATE_FILE)


def _check(tokens: Sequence[StoredToken]) -> None:
    """Check what the struct's types don't express."""
    if len({each.id for each in tokens}) != len(tokens):
        raise ValueError("two tokens have the same id")
    for each in tokens:
        _check_names(each)
        times = (each.created, each.expires, each.revoked)
        if any(time is not None and time.tzinfo is None for time in times):
            raise ValueError("a time has no zone")


def _check_names(token: StoredToken) -> None:
    """Check that a record's id and names have the form that we write."""
    if not _ID.fullmatch(token.id):
        raise ValueError("an id is not 12 of 0-9 and a-f")
    try:
        checked_actor(token.actor)
        check_groups(token.groups)
    except TrailsError:
        raise ValueError("an actor or group has a name that it can't have") from None


def _without_values(problem: str) -> str:
    """Return a decoder's message without the values it quotes."""
    return re.sub(r"'[^']*'", "a value", problem)


def _id_in(text: str) -> str:
    """Return the id in a text; of a whole token that was pasted, use only the id."""
    split = split_token(Secret(text))
    return text if split is None else split[0]


def _check_known(wanted: set[str], found: Sequence[StoredToken]) -> None:
    unknown = wanted.difference(each.id for each in found)
    if unknown:
        live = [each.id for each in found if each.revoked is None]
        shown = ", ".join(live[-_SHOWN_IDS:]) or "none"
        first = min(unknown)
        named = f"the id {first!r}" if _ID.fullmatch(first) else "such an id (12 of 0-9 and a-f)"
        raise NotFoundError(
            f"no token has {named}; there is {shown}: 'trails token list' shows all"
        )


def _public(token: StoredToken) -> TokenRecord:
    fields = {name: getattr(token, name) for name in TokenRecord.__struct_fields__}
    return TokenRecord(**fields)


_PAUSE: Final = 1.0
"""Seconds between two checks of the file."""
_Stamp = tuple[int, int, int]
_logger: Final = logging.getLogger("trails")


class _Known(NamedTuple):
    """A token as it is looked up."""

    actor: Actor
    hash: bytes
    ends: float
    """Seconds since 1970; far in the past if the token was revoked."""


_NOBODY: Final = _Known(Actor(""), bytes(32), 0.0)
"""Compared with when there is no record, to keep timing constant."""


_NEVER: Final[_Stamp] = (-2, -2, -2)
"""The stamp of a file that was not read yet."""


class TokenBook:
    """Looks up tokens, as the file says now.

    If the file can't be read, all tokens are refused: damaging it grants no access.
    """

    def __init__(self, data: Path) -> None:
        """``data``: the project's ``.trails``."""
        self._file = TokenFile(data)
        self._tokens: dict[str, _Known] = {}
        self._stamp: _Stamp | None = _NEVER
        self._next_look = float("-inf")
        self._configured = False

    @property
    def configured(self) -> bool:
        """Whether tokens were ever made, or the file of tokens is damaged."""
        if monotonic() >= self._next_look:
            self._refresh()
        return self._configured

    def look(self) -> None:
        """Look at the file now: a token was presented, which may be new."""
        self._next_look = float("-inf")
        self._refresh()

    def find(self, token: Secret) -> Actor | None:
        """Return the actor of a token, with the token's id as ``credential``; None if invalid.

        Unknown and known ids take the same time.
        """
        self.look()
        split = split_token(token)
        if split is None:
            return None
        known = self._tokens.get(split[0], _NOBODY)
        same = compare_digest(hash_of(split[1].reveal()), known.hash)
        return known.actor if same and time() < known.ends else None

    def is_current(self, actor: Actor) -> bool:
        """Whether an actor's token is still valid and unchanged."""
        self._refresh()
        known = self._tokens.get(actor.credential, _NOBODY)
        now = known.actor
        same = now.name == actor.name and now.groups == actor.groups
        return same and actor.scopes <= now.scopes and time() < known.ends

    def _refresh(self) -> None:
        """Reload the file if it has changed; checks at most once a second."""
        now = monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _PAUSE
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
            _logger.error(  # noqa: TRY400 - the message says it all
                "%s", error.message, extra={"event": "tokens.unreadable"}
            )
            return
        if self._configured and not found:
            _logger.error(
                "%s is missing or empty: all tokens are refused",
                self._file.path,
                extra={"event": "tokens.missing"},
            )
        self._configured = self._configured or bool(found)
        self._tokens = {each.id: _know(each) for each in found}


def _know(token: StoredToken) -> _Known:
    ends = float("inf") if token.expires is None else token.expires.timestamp()
    return _Known(
        Actor(token.actor, frozenset(token.scopes), frozenset(token.groups), token.id),
        bytes.fromhex(token.hash),
        ends if token.revoked is None else 0.0,
    )
