"""What the front looks at in the headers of a request, read in one pass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.types import Scope

from trails.app.serving.responses import Headers
from trails.model.secrets import BEGINNING

AUTHORIZATION: Final = b"authorization"
_HOST: Final = b"host"
_ORIGIN: Final = b"origin"
_LENGTH: Final = b"content-length"
_CODING: Final = b"transfer-encoding"


class Head:
    """The headers that decide whether a request is answered, and to whom.

    The credential is taken out of the scope: nobody else sees it.
    """

    __slots__ = ("_authorizations", "doubtful", "hosts", "is_chunked", "length", "origins")

    def __init__(self, scope: Scope) -> None:
        headers = scope["headers"]
        found = dict(headers)
        once = len(found) == len(headers)
        self.hosts = _values(_HOST, found, headers, once=once)
        self.origins = _values(_ORIGIN, found, headers, once=once)
        self._authorizations = _values(AUTHORIZATION, found, headers, once=once)
        if self._authorizations:
            del found[AUTHORIZATION]
            scope["headers"] = headers = [each for each in headers if each[0] != AUTHORIZATION]
        length = found.get(_LENGTH, b"")
        self.length = int(length) if length.isdigit() else 0
        """How long the body is said to be; 0 where that is not told."""
        self.is_chunked = _CODING in found
        target = raw_path(scope) + scope["query_string"]
        said = b"\n".join(found.values() if once else [value for _, value in headers])
        self.doubtful = BEGINNING in target or b"%" in target or BEGINNING in said
        """Whether a token may stand where none belongs."""

    @property
    def authorization(self) -> bytes | None:
        """The credential; of several none can be trusted."""
        found = self._authorizations
        if not found:
            return None
        return found[0] if len(found) == 1 else b""


def _values(
    name: bytes, found: Mapping[bytes, bytes], headers: Headers, *, once: bool
) -> Sequence[bytes]:
    """What a header says, each time that it is there; ``once`` is whether none is there twice."""
    if name not in found:
        return ()
    return (found[name],) if once else [value for each, value in headers if each == name]


def raw_path(scope: Scope) -> bytes:
    """The path as it was sent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw
