"""Results of reading records: one or many, a window of a field, a search, an export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from trails.model.operations.pages import Call, Continued

Id = Annotated[
    str, Meta(description="trails://kg/<Type>/<id>, which everything that reads a record takes.")
]
Title = Annotated[str, Meta(description="Its label, or its key.")]
AtCommit = Annotated[str, Meta(description="The commit whose state it is.")]
Expires = Annotated[str | None, Meta(description="Until when the calls that continue work.")]


class ShortenedValue(msgspec.Struct, frozen=True, kw_only=True):
    """What is not shown of a value, and how to read it."""

    field: str
    shown: int
    of: int
    unit: Annotated[
        str,
        Meta(
            description="characters or items; of a value that is not shown at all, characters of "
            "its JSON."
        ),
    ]
    read: Call


class RecordResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record with the values of its fields."""

    id: Id
    type: str
    title: Title
    iri: str
    commit: AtCommit
    values: Annotated[Mapping[str, object], Meta(description="Field → value.")]
    complete: Annotated[bool, Meta(description="Whether every value is shown whole.")]
    left_out: tuple[ShortenedValue, ...] = ()


class RecordOrigin(msgspec.Struct, frozen=True):
    """Where a fetched record was read."""

    type: str
    branch: Annotated[str, Meta(description="The branch; empty at a past commit.")]
    commit: AtCommit


class FetchedRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record as a text to read."""

    id: Id
    title: Title
    text: Annotated[str, Meta(description="A line for each field.")]
    url: Annotated[str, Meta(description="Its IRI.")]
    metadata: RecordOrigin
    complete: bool
    left_out: tuple[ShortenedValue, ...] = ()


class RecordItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record in a list."""

    id: Id
    title: Title
    values: Annotated[
        Mapping[str, object] | None, Meta(description="The fields that were asked for.")
    ] = None
    left_out: tuple[ShortenedValue, ...] = ()
    score: Annotated[
        float | None, Meta(description="In a list of the nearest: how near it is.")
    ] = None


class RecordList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Records of one type and its subtypes, all of one commit."""

    type: str
    commit: AtCommit
    total: Annotated[int | None, Meta(description="How many there are, if known.")] = None
    records: tuple[RecordItem, ...] = msgspec.field()
    next: Annotated[
        Call | None, Meta(description="The call that continues; absent at the end.")
    ] = None
    expires: Expires = None


# --- windows of a text -------------------------------------------------------------------


class MatchedText(msgspec.Struct, frozen=True):
    """A match, in characters of the whole text."""

    start: int
    end: int
    text: str


class BlobInfo(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of the content that a field names."""

    digest: Annotated[str, Meta(description="SHA-256, in hex.")]
    size: int
    media_type: str
    name: Annotated[str, Meta(description="The file name, if one was given.")] = ""
    preview: Annotated[str | None, Meta(description="How a text begins.")] = None
    truncated: bool | None = None


class FieldWindow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A verbatim part of one field's text; offsets count characters of the whole text."""

    id: Id
    title: Title
    field: str
    item: Annotated[int | None, Meta(description="Which item of a list, from 0.")] = None
    path: Annotated[str | None, Meta(description="Of JSON: a JSON Pointer.")] = None
    items: Annotated[int | None, Meta(description="How many items a list has.")] = None
    commit: AtCommit
    media_type: str
    digest: Annotated[str, Meta(description="SHA-256 of the whole text.")]
    text: str
    start: int
    end: int
    total: int
    complete: Annotated[bool, Meta(description="Whether text is all of it.")]
    truncated: bool
    matches: tuple[MatchedText, ...] = ()
    blob: BlobInfo | None = None
    notice: str | None = None
    next: Call | None = None
    previous: Call | None = None
    next_match: Call | None = None
    expires: Expires = None


class EvidenceWindow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The text around a match, as it is stored."""

    field: str
    item: int | None = None
    path: str | None = None
    text: str
    start: int
    end: int
    total: int
    complete: bool
    truncated: bool
    matches: tuple[MatchedText, ...] = ()


class SearchHit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A record that was found."""

    id: Id
    title: Title
    url: Annotated[str, Meta(description="Its IRI.")]
    type: str
    score: float
    related: Annotated[
        bool,
        Meta(description="Whether it has none of the words, only words that go with them."),
    ] = False
    evidence: Annotated[
        EvidenceWindow | None, Meta(description="The proof; null if no text shows the match.")
    ]
    notice: str | None = None
    read: Annotated[Call, Meta(description="The call that reads on from there.")]


class SearchResult(Continued, frozen=True):
    """Records by the words in their texts, best first."""

    results: tuple[SearchHit, ...]
    commit: AtCommit
    searched: Annotated[tuple[str, ...], Meta(description="The fields that were searched.")]
    notice: str | None = None
    expires: Expires = None


# --- exports -----------------------------------------------------------------------------


class ExportProblem(msgspec.Struct, frozen=True):
    """Why something failed."""

    code: str
    message: str


class DownloadHint(msgspec.Struct, frozen=True):
    """How to get the file of an export."""

    rest: str
    command: str


class FileWindow(msgspec.Struct, frozen=True):
    """A part of the file of an export; offsets count characters."""

    text: str
    start: int
    end: int
    total: int
    complete: bool


class ExportStatus(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An export: how far it is and, when it is done, a window of its file."""

    export: Annotated[str, Meta(description="Its handle.")]
    state: Literal["waiting", "running", "done", "failed", "discarded"]
    format: str
    commit: AtCommit
    records: Annotated[int, Meta(description="Records written so far.")]
    total: int | None
    bytes: int
    created: str
    expires: str
    chars: int | None = None
    sha256: str | None = None
    error: ExportProblem | None = None
    download: DownloadHint | None = None
    window: FileWindow | None = None
    next: Call | None = None
