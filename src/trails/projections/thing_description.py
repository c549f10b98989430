"""Project a graph into a card, a W3C Thing Description 1.1: what can be called, read and watched.

Pure, like the other projections. Schemas are those of the tools, in the subset that a Thing
Description has: a value that may be null is one of two. What only a card says (``forms``, security
and the ``trails:`` members) is made here, and appears in no other projection.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal
from urllib.parse import quote

import msgspec

from trails.model.capabilities import Capability, StoredQuery, Tool
from trails.model.types import Schema, TypeDescriptor
from trails.projections.json_schema import Document

MEDIA_TYPE: Final = "application/td+json"
CONTEXT: Final = "https://www.w3.org/2022/wot/td/v1.1"
VOCABULARY: Final = "urn:trails:card#"
"""What ``trails:`` stands for in a card."""
JSON: Final = "application/json"
_LIST: Final = "{?where,limit,cursor,branch,snapshot}"
_ITEM: Final = "{?branch,snapshot}"
_TEXT: Final = {"type": "string"}
_VARIABLES: Final[Mapping[str, Document]] = {
    "where": {**_TEXT, "description": "A filter, like status=open."},
    "limit": {"type": "integer", "minimum": 1, "description": "The most to list."},
    "cursor": {**_TEXT, "description": "From next of the page before."},
    "branch": {**_TEXT, "description": "The branch to read; main by default."},
    "snapshot": {**_TEXT, "description": "A commit, to read the graph as it was then."},
}


_SAID: Final = ("title", "description", "default")
"""What is said of a value as a whole, whichever of its types it has."""


class Security(msgspec.Struct, frozen=True):
    """How a server recognises its callers."""

    scheme: Literal["nosec", "bearer"] = "nosec"
    issuer: str = ""
    """Where a token can be obtained, if clients can find that out."""

    def definitions(self) -> Document:
        """As a Thing Description has it: the only definition, by the name of its scheme."""
        if self.scheme == "nosec":
            return {self.scheme: {"scheme": "nosec"}}
        found: dict[str, object] = {"scheme": "bearer", "in": "header", "name": "Authorization"}
        found["format"] = "jwt" if self.issuer else "opaque"
        if self.issuer:
            found["authorization"] = self.issuer
        return {self.scheme: found}


class CardAction(msgspec.Struct, frozen=True, eq=False):
    """A tool and what it is made of; None for a built-in."""

    tool: Tool
    source: Capability | StoredQuery | None = None


class Card(msgspec.Struct, frozen=True, eq=False):
    """A graph, as far as one actor sees it."""

    title: str
    graph: str
    iri: str
    """What the IRIs of the graph begin with."""
    version: str
    """The version of the server."""
    registry: str
    """The digest of what the actor sees of the registry."""
    actions: Sequence[CardAction]
    schema: Schema
    """The types that the actor may read."""


def project_card(card: Card, base: str, security: Security) -> Document:
    """The Thing Description of a graph whose routes begin with ``base``."""
    return {
        **_head(f"{card.title}: {card.graph}", card.iri, security),
        "description": f"The graph {card.graph} of {card.title}.",
        "version": {"instance": card.registry, "model": card.version},
        "base": base,
        "trails:registry": card.registry,
        "actions": {each.tool.name: project_action(each) for each in card.actions},
        "properties": dict(_properties(card.schema.types)),
        "events": {each.name: _event(each) for each in card.schema.types},
        "links": [
            {"href": "/.well-known/wot", "rel": "collection", "type": MEDIA_TYPE},
            *_successors(card.actions),
        ],
    }


def _successors(actions: Iterable[CardAction]) -> Iterator[Document]:
    """What replaces deprecated actions (RFC 5829)."""
    for each in actions:
        if each.tool.deprecated is not None:
            yield {
                "href": _invocation(each.tool.deprecated.by),
                "rel": "successor-version",
                "anchor": _invocation(each.tool.name),
            }


def _invocation(name: str) -> str:
    return f"invoke/{quote(name, safe='')}"


def project_directory(graphs: Iterable[str], base: str, security: Security) -> Document:
    """A Thing Description that lists the cards of some graphs."""
    links = [
        {"href": f"graphs/{quote(name, safe='')}/card", "rel": "item", "type": MEDIA_TYPE}
        for name in graphs
    ]
    return {
        **_head("Graphs", "urn:trails:directory", security),
        "description": "The graphs of this server; each link leads to the card of one.",
        "base": base,
        "links": links,
    }


def _head(title: str, identifier: str, security: Security) -> Document:
    return {
        "@context": [CONTEXT, {"trails": VOCABULARY}],
        "@type": "Thing",
        "id": identifier,
        "title": title,
        "securityDefinitions": security.definitions(),
        "security": [security.scheme],
    }


# --- what can be called ------------------------------------------------------------------


def project_action(action: CardAction) -> Document:
    """An action of a card."""
    tool = action.tool
    mark: Document = {} if tool.deprecated is None else {"@type": "trails:Deprecated"}
    return {
        **mark,
        "title": tool.title,
        "description": tool.description,
        "input": data_schema(tool.input_schema),
        "output": data_schema(tool.output_schema or {"type": "object"}),
        "safe": tool.hints.read_only,
        "idempotent": tool.hints.idempotent,
        "synchronous": True,
        "forms": [
            {
                "op": "invokeaction",
                "href": _invocation(tool.name),
                "htv:methodName": "POST",
                "contentType": JSON,
            },
            {
                "op": "invokeaction",
                "href": "mcp",
                "htv:methodName": "POST",
                "contentType": JSON,
                "subprotocol": "mcp",
                "trails:method": "tools/call",
                "trails:tool": tool.name,
            },
        ],
        **_extensions(action.source),
    }


def _extensions(source: Capability | StoredQuery | None) -> Document:
    """What the descriptor of a capability says beyond a tool."""
    if not isinstance(source, Capability):
        return {}
    given = source.descriptor
    return {
        "trails:assurance": given.assurance,
        "trails:costEstimate": dict(given.cost),
        "trails:policyRequired": list(given.policy_required),
        "trails:consentRequired": given.consent_required,
        "trails:preconditions": list(given.preconditions),
        "trails:sideEffects": list(given.side_effects),
    }


# --- what can be read and watched --------------------------------------------------------


def _properties(types: Iterable[TypeDescriptor]) -> Iterator[tuple[str, Document]]:
    for each in types:
        path = f"kg/{quote(each.name, safe='')}"
        item = {
            "type": "object",
            "properties": {"iri": {**_TEXT, "format": "iri"}, "label": _TEXT},
            "required": ["iri", "label"],
        }
        yield (
            each.name,
            {
                **_described(f"All {each.name} instances", each),
                "readOnly": True,
                "type": "object",
                "properties": {
                    "instances": {"type": "array", "items": item},
                    "next": {"oneOf": [_TEXT, {"type": "null"}]},
                },
                "required": ["instances", "next"],
                "uriVariables": dict(_VARIABLES),
                "forms": [_reading(f"{path}{_LIST}", JSON)],
            },
        )
        place = {name: _VARIABLES[name] for name in ("branch", "snapshot")}
        yield (
            f"{each.name}.instance",
            {
                **_described(f"One {each.name}", each),
                "readOnly": True,
                "observable": False,
                "type": "object",
                "uriVariables": {"id": {**_TEXT, "description": "Its id."}, **place},
                "forms": [_reading(f"{path}/{{id}}{_ITEM}", "application/ld+json")],
            },
        )


def _described(title: str, descriptor: TypeDescriptor) -> Document:
    return {"title": title, "description": descriptor.meaning or title}


def _reading(href: str, media_type: str) -> Document:
    return {
        "op": "readproperty",
        "href": href,
        "htv:methodName": "GET",
        "contentType": media_type,
    }


def _event(descriptor: TypeDescriptor) -> Document:
    """A type that can be watched: each change of an instance is told."""
    return {
        **_described(f"Changes of {descriptor.name} instances", descriptor),
        "data": {"type": "object", "properties": {"uri": _TEXT}},
        "forms": [
            {
                "op": ["subscribeevent", "unsubscribeevent"],
                "href": "mcp",
                "contentType": JSON,
                "subprotocol": "mcp",
                "trails:method": "resources/subscribe",
                "trails:resource": f"trails://kg/{descriptor.name}",
            }
        ],
    }


# --- schemas -----------------------------------------------------------------------------


def data_schema(schema: Mapping[str, object]) -> Document:
    """A JSON Schema as a Thing Description has it: one type at most, alternatives in ``oneOf``."""
    found: dict[str, object] = {}
    for name, value in schema.items():
        if name == "properties" and isinstance(value, Mapping):
            found[name] = {key: data_schema(_object(each)) for key, each in value.items()}
        elif name == "oneOf" and isinstance(value, Sequence):
            found["oneOf"] = [data_schema(_object(each)) for each in value]
        elif name in {"items", "additionalProperties", "contains"} and isinstance(value, Mapping):
            found[name] = data_schema(value)
        elif name != "$schema":
            found[name] = value
    types = found.pop("type", None)
    if not isinstance(types, list | tuple):
        return found if types is None else {"type": types, **found}
    said: dict[str, object] = {each: found.pop(each) for each in _SAID if each in found}
    choices = found.get("enum")
    if isinstance(choices, list | tuple):
        found["enum"] = [each for each in choices if each is not None]
    kept: list[Document] = [{"type": each, **found} for each in types if each != "null"]
    return {**said, "oneOf": [*kept, {"type": "null"}] if "null" in types else kept}


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}
