"""Credentials inside messages: taken out before anybody else sees the message.

Where there are no headers, a client says in its client info who it is and by what token. On
HTTP that counts for nothing, but it is taken out all the same.
"""

from __future__ import annotations

from typing import Final

from mcp_types import CLIENT_INFO_META_KEY

from trails.model.secrets import MISPLACED, Secret, holds_token, may_hide
from trails.surfaces.mcp.bodies import BodyError, parse
from trails.surfaces.mcp.wire import encode

_MEMBER: Final = "authorization"
_SAID: Final = _MEMBER.encode()


def take_bearer(message: object) -> Secret | None:
    """The token that a message carries; the message is left without it.

    One that is not a text, or not the same wherever it stands, is an empty one: presented, and
    wrong.
    """
    begins = isinstance(message, dict) and message.get("method") == "initialize"
    said = [_bearer(given) for given, counts in _take(message) if counts or begins]
    found = [each for each in said if each is not None]
    if not found:
        return None
    same = all(isinstance(each, str) and each == found[0] for each in found)
    return Secret(str(found[0]) if same else "")


def without_bearer(body: bytes, presented: Secret | None = None) -> bytes:
    """A body without the token that its client info carries; one elsewhere is refused.

    ``presented`` came with the request; it is looked for by its text.
    """
    suspect = _SAID in body or holds_token(body, presented)
    if not suspect and not may_hide(body, presented):  # also the member's name could be hidden
        return body
    try:
        message = parse(body)
    except ValueError:
        return body  # whoever reads it next says what is wrong with it
    taken = _take(message)
    if has_token(message, body, presented):
        raise BodyError(400, MISPLACED)
    # What a suspect body says twice, and so only once, is in the text of it all the same.
    return encode(message) if taken or suspect else body


def has_token(message: object, line: bytes, presented: Secret | None) -> bool:
    """Whether a token stands in a message whose client info has none any more."""
    doubtful = may_hide(line, presented) or holds_token(line, presented)
    return doubtful and holds_token(encode(message), presented)


def _take(message: object) -> list[tuple[object, bool]]:
    """What client infos say of authorization, which is gone then; whether that always counts."""
    params = message.get("params") if isinstance(message, dict) else None
    if not isinstance(params, dict):
        return []
    meta = params.get("_meta")
    infos = [
        (params.get("clientInfo"), False),
        (meta.get(CLIENT_INFO_META_KEY) if isinstance(meta, dict) else None, True),
    ]
    return [
        (info.pop(_MEMBER), counts)
        for info, counts in infos
        if isinstance(info, dict) and _MEMBER in info
    ]


def _bearer(given: object) -> object:
    return given.get("bearer") if isinstance(given, dict) else given
