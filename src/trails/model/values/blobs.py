"""``Blob``: the URI of binary content, which is kept in the graph or elsewhere.

Content that the graph keeps is named by what it is, ``sha256:<digest>?size=…&type=…&name=…``, so
the value alone says size, media type and file name, in every format. Any other URI names content
that somebody else keeps. The media type is what the sender said: nobody looks at the content.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Final, Protocol
from urllib.parse import quote, unquote

import msgspec

SCHEME: Final = "sha256:"
ANY_TYPE: Final = "application/octet-stream"
_LONGEST_NAME: Final = 255
_WORD: Final = r"[a-z0-9][a-z0-9!#$&^_.+-]{0,126}"
_is_media_type = re.compile(rf"{_WORD}/{_WORD}").fullmatch
_stored = re.compile(
    r"sha256:([0-9a-f]{64})\?size=(0|[1-9][0-9]{0,15})&type=([^&#]+)(?:&name=([^&#]+))?"
).fullmatch
is_digest = re.compile("[0-9a-f]{64}").fullmatch
"""Whether a text can be the digest of a blob."""
_readable = re.compile(r"text/[^/]+|application/(?:json|xml|[^/]+\+(?:json|xml))").fullmatch


class BlobError(ValueError):
    """A media type or file name that a blob can't have."""


class BlobFacts(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of content that the graph keeps."""

    digest: str
    """SHA-256, in hex."""
    size: int
    media_type: str
    name: str = ""
    """The file name, if one was given."""

    @property
    def is_text(self) -> bool:
        """Whether its media type says that it is text, so that a part of it can be shown."""
        return _readable(self.media_type) is not None


class Blobs(Protocol):
    """What ``ctx.kg.blobs`` is."""

    def put(self, data: BlobData, media_type: str, name: str) -> Blob:
        """Keep content."""

    def read(self, blob: Blob, start: int, length: int | None) -> bytes:
        """A part of it."""


class BlobGraph(Protocol):
    """A graph, as far as blobs need one."""

    @property
    def blobs(self) -> Blobs:
        """Its blobs."""


class BlobContext(Protocol):
    """A context, as far as blobs need one."""

    @property
    def kg(self) -> BlobGraph:
        """The graph."""


BlobData = bytes | Path | IO[bytes]


class Blob(str):
    """The URI of binary content: of the graph's own, or of what is kept elsewhere."""

    __slots__ = ()

    @classmethod
    def put(
        cls, ctx: BlobContext, data: BlobData, *, media_type: str = ANY_TYPE, name: str = ""
    ) -> Blob:
        """Keep bytes, a file or a stream in the graph; the result goes into a field.

        It is on disk when this returns, and is removed again if no commit names it within a day.
        """
        if not name and isinstance(data, Path):
            name = data.name
        return ctx.kg.blobs.put(data, media_type, name)

    def read(self, ctx: BlobContext, start: int = 0, length: int | None = None) -> bytes:
        """A part of the content; all of it by default."""
        return ctx.kg.blobs.read(self, start, length)

    @property
    def facts(self) -> BlobFacts | None:
        """Digest, size, media type and name; None for content that is kept elsewhere."""
        found = _stored(self)
        if found is None:
            return None
        digest, size, media_type, name = found.groups(default="")
        try:
            kept = BlobFacts(digest, int(size), unquote(media_type), unquote(name, errors="strict"))
            return kept if write_blob(kept) == self else None
        except (BlobError, UnicodeDecodeError):
            return None


def write_blob(facts: BlobFacts) -> Blob:
    """The URI of content that the graph keeps."""
    media_type, name = check_media_type(facts.media_type), check_name(facts.name)
    uri = f"{SCHEME}{facts.digest}?size={facts.size}&type={quote(media_type, safe='/+')}"
    return Blob(f"{uri}&name={quote(name, safe='')}" if name else uri)


def check_media_type(given: str) -> str:
    """A media type without parameters, in lower case; BlobError if it is none."""
    media_type = given.partition(";")[0].strip().lower() or ANY_TYPE
    if not _is_media_type(media_type):
        raise BlobError(f"{given[:100]!r} is not a media type; write it like 'image/png'")
    return media_type


def check_name(given: str) -> str:
    """A file name without folders; BlobError if it can't be one."""
    name = given.replace("\\", "/").rpartition("/")[2]
    if len(name) > _LONGEST_NAME:
        raise BlobError(f"a file name may have {_LONGEST_NAME} characters, not {len(name)}")
    if not name.isprintable() or name in {".", ".."}:
        raise BlobError(f"{name[:100]!r} is not a file name; give one without control characters")
    return name


def describe_blob(blob: Blob) -> Mapping[str, object]:
    """What a result says of a blob: its URI and, if the graph keeps it, all that is known."""
    facts = blob.facts
    return {"blob": str(blob), **({} if facts is None else msgspec.to_builtins(facts))}
