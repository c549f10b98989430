"""Project routes into OpenAPI 3.1: what a program can call over HTTP, with types and examples.

Pure. A route is described once (``ApiRoute``), whoever serves it; here it becomes an operation with
typed parameters, bodies, results and errors. Results are structs, which become components. Every
error is a problem of RFC 9457.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import msgspec

from trails.model.capabilities import StoredQuery
from trails.model.operations.graph import ChangeResult, QueryResult
from trails.projections.json_schema import Document
from trails.projections.problems import PROBLEM
from trails.projections.results import ResultType, project_components, project_result
from trails.projections.thing_description import CardAction, Security

JSON: Final = "application/json"
OPENAPI: Final = "3.1.0"
REGISTRY: Final = "x-trails-registry"
"""The digest of the registry that a document comes from, in its ``info``."""
TOOL: Final = "x-trails-tool"
"""The MCP tool that does the same."""
IDEMPOTENT: Final = "x-trails-idempotent"
CONTROLS: Final = "x-trails-controls"
"""The arguments that every operation that writes has beside its own."""
_BEARER: Final = "bearer"
_TEXT: Final[Document] = {"type": "string"}
_HEADERS: Final[Mapping[str, str]] = {
    "Idempotency-Key": "A retry with the same key returns the first outcome.",
    "If-Match": "The ETag of the state that is to be changed; 412 if the branch has moved.",
    "If-None-Match": "An ETag: 304 if nothing has changed since.",
    "Last-Event-ID": "The last event that was received: the stream goes on after it.",
}
_SECRETS: Final = frozenset({401, 403})


class ProblemField(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is wrong with one field of a request."""

    field: str
    code: str
    message: str
    value: object = None
    constraint: object = None
    suggestion: object = None


class ProblemDetails(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    fields: tuple[ProblemField, ...] = ()
    data: Mapping[str, object] = {}


class ApiRoute(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One method of one path."""

    method: str
    path: str
    name: str
    """Its ``operationId``, unique in a document."""
    title: str
    description: str = ""
    group: str
    arguments: Document = {}
    """The schema of its arguments, an object: those in the path, the query string and the body."""
    sends: tuple[str, ...] = ()
    """Media types of a body that is not JSON arguments; all arguments are in the query string."""
    texts: tuple[str, ...] = ()
    """Media types of a body that is one argument as a text; the others are in the query string."""
    headers: tuple[str, ...] = ()
    result: ResultType | Document | None = None
    """What a successful response has, if it is JSON."""
    media: tuple[str, ...] = (JSON,)
    status: int = 200
    refused: tuple[int, ...] = (400, 404, 422)
    """Statuses of errors that this route can have, beside those that any route has."""
    public: bool = False
    """Whether it needs no token."""
    deprecated: bool = False
    extensions: Mapping[str, object] = {}
    """More members, whose names begin with ``x-``."""


class ApiInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What a document says of itself."""

    title: str
    version: str
    description: str
    registry: str


def invocation_route(
    root: str, action: CardAction, result: ResultType | None = None, prefix: str = ""
) -> ApiRoute:
    """The route that calls a tool; ``result`` is the struct of a built-in's result."""
    tool, source = action.tool, action.source
    if isinstance(source, StoredQuery):
        result = ChangeResult if source.mutation else QueryResult
    return ApiRoute(
        method="POST",
        path=f"{root}/invoke/{quote(tool.name, safe='')}",
        name=f"{prefix}invoke_{spell_identifier(tool.name)}",
        title=tool.title,
        description=tool.description,
        group="Queries" if isinstance(source, StoredQuery) else "Capabilities",
        arguments=dict(tool.full_schema),
        result=result or dict(tool.output_schema or {"type": "object"}),
        refused=(400, 403, 404, 409, 412, 415, 422),
        deprecated=tool.deprecated is not None,
        extensions={
            TOOL: tool.name,
            "x-trails-command": f"trails call {tool.name}",
            "x-trails-scope": tool.scope,
            IDEMPOTENT: tool.hints.idempotent,
            **({CONTROLS: list(tool.controls)} if tool.controls else {}),
        },
    )


def spell_identifier(name: str) -> str:
    """A name as a part of an ``operationId``, from which generators make names of functions."""
    return "".join(each if each.isalnum() else "_" for each in name)


def project_paths(routes: Iterable[ApiRoute], security: Security) -> dict[str, Document]:
    """Routes as operations, by path and method."""
    paths: dict[str, Document] = {}
    for each in routes:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, security)
    return paths


def project_openapi(
    info: ApiInfo, routes: Sequence[ApiRoute], server: str, security: Security
) -> Document:
    """The document of a server that is reached at ``server``."""
    structs = [each.result for each in routes if each.result is not None]
    declared = [each for each in structs if not isinstance(each, dict)]
    return {
        "openapi": OPENAPI,
        "info": {
            "title": info.title,
            "version": info.version,
            "description": info.description,
            REGISTRY: info.registry,
        },
        "servers": [{"url": server}],
        "tags": [{"name": name} for name in dict.fromkeys(each.group for each in routes)],
        "paths": project_paths(routes, security),
        "components": {
            "schemas": project_components([*declared, ProblemDetails]),
            "responses": dict(_problems(routes, security)),
            **_schemes(security),
        },
    }


def _schemes(security: Security) -> Document:
    if security.scheme == "nosec":
        return {}
    scheme: Document = {"type": "http", "scheme": "bearer"}
    if security.issuer:
        scheme["bearerFormat"] = "JWT"
        scheme["description"] = f"A token of {security.issuer}, or one made by 'trails token'."
    return {"securitySchemes": {_BEARER: scheme}}


def _operation(route: ApiRoute, security: Security) -> Document:
    operation: Document = {
        "operationId": route.name,
        "summary": route.title,
        "tags": [route.group],
    }
    if route.description:
        operation["description"] = route.description
    if route.deprecated:
        operation["deprecated"] = True
    parameters = [*_parameters(route), *_headers(route)]
    if parameters:
        operation["parameters"] = parameters
    body = _body(route)
    if body is not None:
        operation["requestBody"] = body
    operation["responses"] = _responses(route, security)
    if security.scheme != "nosec":
        operation["security"] = [] if route.public else [{_BEARER: []}]
    return {**operation, **route.extensions}


# --- requests ----------------------------------------------------------------------------


def _in_path(route: ApiRoute) -> list[str]:
    return re.findall(r"{(\w+)}", route.path)


def _properties(route: ApiRoute) -> Mapping[str, Document]:
    found = route.arguments.get("properties")
    return found if isinstance(found, Mapping) else {}


def _required(route: ApiRoute) -> frozenset[str]:
    found = route.arguments.get("required")
    return frozenset(found) if isinstance(found, list) else frozenset()


def _has_json_body(route: ApiRoute) -> bool:
    return route.method == "POST" and not route.sends


def _parameters(route: ApiRoute) -> Iterator[Document]:
    declared, path = _properties(route), _in_path(route)
    for name in path:
        yield _parameter(name, "path", declared.get(name, _TEXT), required=True)
    if _has_json_body(route):
        return
    needed = _required(route)
    for name, schema in declared.items():
        if name not in path:
            yield _parameter(name, "query", schema, required=name in needed)


def _parameter(name: str, place: str, schema: Document, *, required: bool) -> Document:
    """A parameter; what is not a text, a number or a list of those is sent as JSON."""
    schema = without_null(schema)
    said = schema.pop("description", None)
    if place == "path" and schema.get("type") == "string":
        schema.setdefault("minLength", 1)  # else the path would be another one
    found: Document = {"name": name, "in": place, "required": required}
    if said:
        found["description"] = said
    if _is_plain(schema):
        return {**found, "schema": schema}
    return {**found, "content": {JSON: {"schema": schema}}}


def _is_plain(schema: Mapping[str, object]) -> bool:
    kind = schema.get("type")
    if kind == "array":
        items = schema.get("items")
        return isinstance(items, Mapping) and _is_plain(items) and items.get("type") != "array"
    return kind not in {"object", None} or "enum" in schema


def without_null(schema: Mapping[str, object]) -> Document:
    """A schema of a value that is there: a parameter that is left out has none."""
    found = dict(schema)
    kind = found.get("type")
    if isinstance(kind, list):
        rest = [each for each in kind if each != "null"]
        found["type"] = rest[0] if len(rest) == 1 else rest
    if isinstance(found.get("enum"), list):
        found["enum"] = [each for each in found["enum"] if each is not None]  # type: ignore[attr-defined]
    for key in ("anyOf", "oneOf"):
        choices = found.get(key)
        if isinstance(choices, list):
            rest = [each for each in choices if each != {"type": "null"}]
            found[key] = rest
            if len(rest) == 1:
                del found[key]
                found = {**without_null(rest[0]), **found}
    return found


def _headers(route: ApiRoute) -> Iterator[Document]:
    for name in route.headers:
        yield {
            "name": name,
            "in": "header",
            "required": False,
            "description": _HEADERS[name],
            "schema": _TEXT,
        }


def _body(route: ApiRoute) -> Document | None:
    if route.sends:
        file: Document = {"schema": {"type": "string", "format": "binary"}}
        return {"required": False, "content": dict.fromkeys(route.sends, file)}  # or empty
    if not _has_json_body(route):
        return None
    path = frozenset(_in_path(route))
    schema: Document = {
        **route.arguments,
        "type": "object",
        "properties": {
            name: _without_empty_default(each)
            for name, each in _properties(route).items()
            if name not in path
        },
    }
    needed = sorted(_required(route) - path)
    schema.pop("required", None)
    if needed:
        schema["required"] = needed
    content: Document = {"schema": schema}
    example = example_of(schema)
    if example is not None:
        content["example"] = example
    texts: Document = {media: {"schema": _TEXT} for media in route.texts}
    return {"required": bool(needed), "content": {JSON: content, **texts}}


def _without_empty_default(schema: Document) -> Document:
    """A schema as generators of clients accept it: they have no empty object as a default."""
    if schema.get("default") == {}:
        return {name: value for name, value in schema.items() if name != "default"}
    return schema


# --- responses ---------------------------------------------------------------------------


def _responses(route: ApiRoute, security: Security) -> Document:
    found: Document = {str(route.status): _success(route)}
    if "If-None-Match" in route.headers:
        found["304"] = {"description": "Nothing has changed since."}
    for status in _refusals(route, security):
        found[str(status)] = {"$ref": f"#/components/responses/{_response_name(status)}"}
    found["default"] = {"$ref": "#/components/responses/Problem"}
    return found


def _success(route: ApiRoute) -> Document:
    content: dict[str, Document] = {media: {} for media in route.media}
    typed = JSON if JSON in content else next(iter(content), "")
    if route.result is not None and typed:
        shown = route.result
        schema = shown if isinstance(shown, dict) else project_result(shown)
        content[typed] = {"schema": schema}
    said = HTTPStatus(route.status).phrase
    return {"description": said, "content": content} if content else {"description": said}


def _refusals(route: ApiRoute, security: Security) -> list[int]:
    secret = () if security.scheme == "nosec" or route.public else _SECRETS
    return sorted({*route.refused, *secret})


def _response_name(status: int) -> str:
    return re.sub(r"\W", "", HTTPStatus(status).phrase.title())


def _problems(routes: Iterable[ApiRoute], security: Security) -> Iterator[tuple[str, Document]]:
    """The responses of errors, each once."""
    schema = project_result(ProblemDetails)
    yield "Problem", {"description": "An error.", "content": {PROBLEM: {"schema": schema}}}
    for status in sorted({each for route in routes for each in _refusals(route, security)}):
        said = HTTPStatus(status).phrase
        content = {PROBLEM: {"schema": schema, "example": _problem_example(status)}}
        yield _response_name(status), {"description": said, "content": content}


def _problem_example(status: int) -> Document:
    code = _CODES.get(status, "bad_request")
    found: Document = {
        "type": f"/errors/{code}",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": "What is wrong, where, and what to do about it.",
        "code": code,
    }
    if code == "validation":
        field = {"field": "name", "code": "required", "message": "name: missing"}
        found["fields"] = [field]
    return found


_CODES: Final[Mapping[int, str]] = {
    400: "query_string",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    406: "not_acceptable",
    409: "conflict",
    410: "stale",
    412: "precondition_failed",
    413: "too_large",
    415: "media_type",
    422: "validation",
}

# --- examples ----------------------------------------------------------------------------

_FORMATS: Final[Mapping[str, str]] = {
    "date": "2026-03-01",
    "date-time": "2026-03-01T12:00:00Z",
    "time": "12:00:00Z",
    "duration": "PT1H",
    "uri": "https://example.org/thing",
    "iri": "https://example.org/thing",
    "email": "ada@example.org",
    "uuid": "00000000-0000-4000-8000-000000000000",
}
_NOTHING: Final = object()


def example_of(schema: Mapping[str, object]) -> object | None:
    """An object with the required members; None if a value can't be made up."""
    found = _example(schema)
    return None if found is _NOTHING else found


def _example(schema: Mapping[str, object]) -> object:
    if "default" in schema and schema["default"] is not None:
        return schema["default"]
    choices = schema.get("enum")
    if isinstance(choices, list) and choices:
        return choices[0]
    for key in ("anyOf", "oneOf"):
        options = schema.get(key)
        if isinstance(options, list) and options:
            return _example(options[0])
    if "pattern" in schema or "allOf" in schema or "not" in schema:
        return _NOTHING
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    make = _MAKERS.get(str(kind))
    return _NOTHING if make is None else make(schema)


def _text(schema: Mapping[str, object]) -> object:
    known = schema.get("format")
    if isinstance(known, str):
        return _FORMATS.get(known, _NOTHING)
    least = schema.get("minLength", 0)
    most = schema.get("maxLength", 1 << 20)
    text = "text".ljust(least if isinstance(least, int) else 0, "x")
    return text[: most if isinstance(most, int) else None]


def _number(schema: Mapping[str, object]) -> object:
    for key in ("minimum", "maximum"):
        if isinstance(schema.get(key), int | float):
            return schema[key]
    if any(key in schema for key in ("exclusiveMinimum", "exclusiveMaximum", "multipleOf")):
        return _NOTHING
    return 1


def _array(schema: Mapping[str, object]) -> object:
    least, items = schema.get("minItems", 0), schema.get("items")
    if not isinstance(least, int) or not least or not isinstance(items, Mapping):
        return [] if not least else _NOTHING
    one = _example(items)
    return _NOTHING if one is _NOTHING or least > 1 else [one]


def _object(schema: Mapping[str, object]) -> object:
    declared, needed = schema.get("properties"), schema.get("required")
    found: dict[str, object] = {}
    for name in needed if isinstance(needed, list) else ():
        inner = declared.get(name) if isinstance(declared, Mapping) else None
        value = _example(inner) if isinstance(inner, Mapping) else _NOTHING
        if value is _NOTHING:
            return _NOTHING
        found[name] = value
    return found


_MAKERS: Final[Mapping[str, Callable[[Mapping[str, object]], object]]] = {
    "string": _text,
    "integer": _number,
    "number": _number,
    "boolean": lambda schema: bool(schema.get("default", True)),
    "array": _array,
    "object": _object,
    "null": lambda schema: schema.get("default"),
}
