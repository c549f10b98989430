"""``.trails/tokens.json``: all tokens of a project, by hash.

Commands write it, whoever serves the folder reads it, at the same time: it is replaced as a
whole, and writers take turns by a lock of its own. Nothing is ever taken out of it, so that it
tells for good that this project asks for tokens; the file of the lock says so, too, in case it
is deleted. A digest shows changes that leave the file readable, such as another actor's name.
"""

from __future__ import annotations

import fcntl
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from trails.errors import CorruptionError, NotFoundError, StorageError, TrailsError
from trails.files import (
    PRIVATE_FILE,
    private_folder,
    private_opener,
    remove_unfinished,
    replace_file,
)
from trails.identity.requests import check_groups, check_request, parse_end
from trails.identity.tokens import make_token, split_token
from trails.model.actors import checked_actor
from trails.model.digests import digest_of
from trails.model.secrets import Secret
from trails.model.tokens import IssuedToken, TokenRecord, TokenRequest

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
