"""What the routes are that no built-in declares: the server's own, instances, and calls by name.

A test compares this table with the routes that are served, so that none is undocumented.
"""

from __future__ import annotations

from typing import Final

import msgspec

from trails.model.operations.server import (
    BatchResult,
    CapabilityList,
    GraphList,
    Health,
    InstanceList,
)
from trails.model.types import PredicateDescriptor
from trails.projections.json_schema import Document, project_fields
from trails.projections.openapi import ApiRoute
from trails.projections.results import ResultType
from trails.projections.thing_description import MEDIA_TYPE as CARD
from trails.request.builtins.declare import field
from trails.surfaces.rest.replies import JSON

_LD_JSON: Final = "application/ld+json"
_TURTLE: Final = "text/turtle"
_HTML: Final = "text/html"
_METRICS: Final = "text/plain"
_SERVER: Final = "Server"
_BRANCH: Final = field("branch", "The branch to read; main by default.", max_length=100)
_SNAPSHOT: Final = field("snapshot", "A commit, to read the graph as it was then.", max_length=100)
_FIELDS: Final = field("fields", "Only these fields, separated by commas.")


class RouteReference(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One method of one path."""

    path: str
    method: str = "GET"
    name: str
    title: str
    description: str = ""
    group: str = _SERVER
    fields: tuple[PredicateDescriptor, ...] = ()
    arguments: Document | None = None
    """The schema of its arguments, if they are not fields."""
    headers: tuple[str, ...] = ()
    result: ResultType | Document | None = None
    media: tuple[str, ...] = (JSON,)
    refused: tuple[int, ...] = ()
    public: bool = False

    def describe(self, prefix: str) -> ApiRoute:
        """As OpenAPI has it; ``prefix`` begins its name."""
        given = project_fields(self.fields) if self.arguments is None else self.arguments
        return ApiRoute(
            method=self.method,
            path=self.path,
            name=f"{prefix}{self.name}",
            title=self.title,
            description=self.description,
            group=self.group,
            arguments=given,
            headers=self.headers,
            result=self.result,
            media=self.media,
            refused=self.refused,
            public=self.public,
        )


REFERENCE: Final = (
    RouteReference(
        path="/",
        name="landing",
        title="What this server is, and how to connect an agent",
        media=(_HTML, JSON),
        refused=(406,),
        public=True,
    ),
    RouteReference(
        path="/docs",
        name="documentation",
        title="The documentation",
        media=(_HTML,),
        public=True,
    ),
    RouteReference(
        path="/docs/{page}",
        name="documentation_page",
        title="A page of the documentation",
        fields=(field("page", "Its path; with .md, it is Markdown.", required=True),),
        media=(_HTML, "text/markdown"),
        refused=(404,),
        public=True,
    ),
    RouteReference(
        path="/llms.txt",
        name="llms",
        title="The index of the documentation, for language models",
        media=("text/plain",),
        public=True,
    ),
    RouteReference(
        path="/llms-full.txt",
        name="llms_full",
        title="The whole documentation, for language models",
        media=("text/plain",),
        public=True,
    ),
    RouteReference(
        path="/healthz",
        name="health",
        title="Whether the server answers",
        description="status is ok, or read_only if nothing can be written.",
        result=Health,
        refused=(503,),
        public=True,
    ),
    RouteReference(
        path="/readyz",
        name="readiness",
        title="Whether the server can take requests",
        description="All graphs are open, their views have caught up, and the disk can be written.",
        result={"type": "object"},
        refused=(503,),
        public=True,
    ),
    RouteReference(
        path="/metrics",
        name="metrics",
        title="Metrics",
        description="For Prometheus, or as JSON; for administrators.",
        result={"type": "object"},
        media=(_METRICS, JSON),
        refused=(404, 406),
    ),
    RouteReference(
        path="/reference",
        name="reference",
        title="This document as a page",
        media=(_HTML,),
    ),
    RouteReference(
        path="/graphs",
        name="graph_list",
        title="List graphs",
        result=GraphList,
        refused=(404,),
    ),
    RouteReference(
        path="/openapi.json",
        name="openapi",
        title="This document",
        result={"type": "object"},
    ),
    RouteReference(
        path="/.well-known/wot",
        name="card_list",
        title="The directory of cards",
        description="A W3C Thing Description that links to the card of each graph.",
        result={"type": "object"},
        media=(CARD,),
    ),
    RouteReference(
        path="/errors",
        name="error_list",
        title="The codes of errors",
        media=(_HTML,),
        public=True,
    ),
    RouteReference(
        path="/errors/{code}",
        name="error_page",
        title="What a code means",
        fields=(field("code", "The code of an error.", required=True),),
        media=(_HTML,),
        refused=(404,),
        public=True,
    ),
    RouteReference(
        path="/graphs/{graph}/card",
        name="card",
        title="The card of a graph",
        description="A W3C Thing Description 1.1: what the caller can call, read and watch.",
        group="Graph",
        result={"type": "object"},
        media=(CARD,),
        refused=(404,),
    ),
    RouteReference(
        path="/graphs/{graph}/capabilities",
        name="capability_list",
        title="List capabilities",
        description="Everything that the caller can invoke, with schemas.",
        group="Capabilities",
        result=CapabilityList,
        refused=(404,),
    ),
    RouteReference(
        path="/graphs/{graph}/schema",
        name="schema",
        title="The types of a graph",
        description="All that is known of them, as JSON Schema, or as SHACL shapes in Turtle.",
        group="Graph",
        fields=(_BRANCH, _SNAPSHOT),
        headers=("If-None-Match",),
        result={"type": "object"},
        media=(JSON, "application/schema+json", _TURTLE),
        refused=(400, 404, 406, 422),
    ),
    RouteReference(
        path="/graphs/{graph}/stats",
        name="stats",
        title="How much of everything there is",
        group="Graph",
        fields=(_BRANCH, _SNAPSHOT),
        headers=("If-None-Match",),
        result={"type": "object"},
        refused=(400, 404, 422),
    ),
    RouteReference(
        path="/graphs/{graph}/doctor",
        name="doctor",
        title="Check a graph",
        description="What 'trails doctor' finds; for those who may do the action Admin.",
        group="Graph",
        headers=("If-None-Match",),
        result={"type": "object"},
        refused=(400, 404),
    ),
    RouteReference(
        path="/graphs/{graph}/plugins/{plugin}/{path}",
        name="plugin_document",
        title="Read a document of a plugin",
        description="As the resource trails://plugins/{plugin}/{path}.",
        group="Graph",
        arguments={
            "type": "object",
            "properties": {"plugin": {"type": "string"}, "path": {"type": "string"}},
            "required": ["plugin", "path"],
        },
        headers=("If-None-Match",),
        result={"type": "object"},
        refused=(400, 404),
    ),
    RouteReference(
        path="/graphs/{graph}/admin/{op}",
        method="POST",
        name="admin",
        title="Call an operation on the application",
        description="trails.meta.<op>; the body has its arguments.",
        group="Capabilities",
        arguments={
            "type": "object",
            "properties": {"op": {"type": "string"}},
            "required": ["op"],
        },
        result={"type": "object"},
        refused=(400, 403, 404, 409, 415, 422),
    ),
    RouteReference(
        path="/graphs/{graph}/invoke/{name}",
        method="POST",
        name="invoke",
        title="Call a capability, stored query or built-in by its name",
        description="The body has its arguments; each has its own route and schemas below.",
        group="Capabilities",
        arguments={
            "type": "object",
            "properties": {"name": {"type": "string"}},
            "required": ["name"],
        },
        headers=("Idempotency-Key", "If-Match"),
        result={"type": "object"},
        refused=(400, 403, 404, 409, 412, 415, 422),
    ),
    RouteReference(
        path="/graphs/{graph}/batch",
        method="POST",
        name="batch",
        title="Make several calls, one after the other",
        description="Each is answered on its own: a status, with a result or a problem.",
        group="Capabilities",
        arguments={
            "type": "object",
            "properties": {
                "calls": {
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 100,
                    "items": {
                        "type": "object",
                        "properties": {
                            "name": {"type": "string"},
                            "arguments": {"type": "object"},
                        },
                        "required": ["name"],
                        "additionalProperties": False,
                    },
                },
                "stop_on_error": {"type": "boolean", "default": False},
            },
            "required": ["calls"],
            "additionalProperties": False,
        },
        result=BatchResult,
        refused=(400, 404, 415, 422),
    ),
    RouteReference(
        path="/graphs/{graph}/kg/{type}",
        name="instance_list",
        title="List the instances of a type",
        description="With those of its subtypes; as JSON, JSON-LD, Turtle or CSV.",
        group="Records",
        fields=(
            field("type", "The name of the type.", required=True),
            field("where", "A filter, like status=open.", min_length=1, max_length=2000),
            field("limit", "The most to list.", "Int", min_value=1),
            field("offset", "How many to skip.", "Int", min_value=0),
            field("cursor", "From next of the page before."),
            _FIELDS,
            _BRANCH,
            _SNAPSHOT,
        ),
        headers=("If-None-Match",),
        result=InstanceList,
        media=(JSON, _LD_JSON, _TURTLE, "text/csv"),
        refused=(400, 404, 406, 410, 422),
    ),
    RouteReference(
        path="/graphs/{graph}/kg/{type}/{id}",
        name="instance_get",
        title="Get an instance",
        description="As JSON-LD or, if it is asked for, as JSON or Turtle.",
        group="Records",
        fields=(
            field("type", "The name of the type.", required=True),
            field("id", "Its id.", required=True),
            _FIELDS,
            _BRANCH,
            _SNAPSHOT,
        ),
        headers=("If-None-Match",),
        result={"type": "object"},
        media=(_LD_JSON, JSON, _TURTLE),
        refused=(400, 404, 406, 410, 422),
    ),
)
