"""What the front looks at in the headers of a request, read in one pass."""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from trails.model.secrets import BEGINNING

AUTHORIZATION: Final = b"authorization"


class Head:
    """The headers that decide whether a request is answered, and to whom.

    The credential is taken out of the scope: nobody else sees it.
    """

    __slots__ = ("_authorizations", "doubtful", "hosts", "length", "origins")

    def __init__(self, scope: Scope) -> None:
        self.hosts: list[bytes] = []
        self.origins: list[bytes] = []
        self.length = 0
        """How long the body is said to be; 0 where that is not told."""
        self._authorizations: list[bytes] = []
        target = raw_path(scope) + scope["query_string"]
        doubtful = BEGINNING in target or b"%" in target
        headers = scope["headers"]
        for name, value in headers:
            if name == AUTHORIZATION:
                self._authorizations.append(value)
                continue
            if BEGINNING in value:
                doubtful = True
            if name == b"host":
                self.hosts.append(value)
            elif name == b"origin":
                self.origins.append(value)
            elif name == b"content-length" and value.isdigit():
                self.length = int(value)
        self.doubtful = doubtful
        """Whether a token may stand where none belongs."""
        if self._authorizations:
            scope["headers"] = [each for each in headers if each[0] != AUTHORIZATION]

    @property
    def authorization(self) -> bytes | None:
        """The credential; of several none can be trusted."""
        found = self._authorizations
        if not found:
            return None
        return found[0] if len(found) == 1 else b""


def raw_path(scope: Scope) -> bytes:
    """The path as it was sent."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    return raw
