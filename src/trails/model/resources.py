"""What can be read by URI, and what reading gives."""

from __future__ import annotations

import msgspec


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A URI that is listed."""

    uri: str
    name: str
    title: str
    description: str
    mime_type: str


class ResourceTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A family of URIs (RFC 6570)."""

    uri_template: str
    name: str
    title: str
    description: str
    mime_type: str


class ResourceList(msgspec.Struct, frozen=True):
    """What an actor may read."""

    version: str
    """Changes whenever the lists do; what is encoded from them is kept under it."""
    resources: tuple[Resource, ...]
    templates: tuple[ResourceTemplate, ...]


class Content(msgspec.Struct, frozen=True):
    """A document, as text."""

    uri: str
    mime_type: str
    text: str


class Completions(msgspec.Struct, frozen=True):
    """Values that may stand in a template, nearest first."""

    values: tuple[str, ...]
    """At most 100."""
    total: int | None = None
    more: bool = False
