"""How a built-in is declared, once for all surfaces.

A declaration has the fields (the descriptors that capabilities have too), the struct of its result,
the action that policies are asked for, the REST routes and the command. MCP tools, REST, the remote
client and the command line are made from it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import UnionType
from typing import Any, Final, Literal

import msgspec

from trails.authoring.predicates import Predicate, describe
from trails.engine.session.arguments import Arguments, Special
from trails.engine.session.service import GraphService
from trails.errors import FieldError, ValidationError
from trails.model.capabilities import Action, Hints, MetaFacts, Scope
from trails.model.constraints import Coerce
from trails.model.kinds import KindError
from trails.model.names import META_PREFIX, meta_tool_name
from trails.model.nodes import Near
from trails.model.results import MOST_CHARS
from trails.model.types import (
    ANY,
    LIST,
    MAP,
    OBJECT,
    PredicateDescriptor,
    Schema,
    ShapeDescriptor,
    ValueType,
)
from trails.projections.json_schema import project_fields
from trails.request.admission import KernelOptions
from trails.request.entries import Place

READER: Final = Hints(read_only=True, destructive=False, idempotent=True)
WRITER: Final = Hints(read_only=False, destructive=True, idempotent=False)
ADDER: Final = Hints(read_only=False, destructive=False, idempotent=False)


class ToolContext(msgspec.Struct, frozen=True, eq=False):
    """What a built-in works with."""

    service: GraphService
    options: KernelOptions
    bounded: bool = True
    """Whether an answer is for a model, which reads little; a program gets all of it."""

    def on(self, service: GraphService) -> ToolContext:
        """The same on a draft of the graph."""
        return msgspec.structs.replace(self, service=service)

    def most(self, given: int | None) -> int:
        """The most characters of an answer: as many as the call says, or the settings."""
        if given is not None:
            return given
        return self.options.max_chars if self.bounded else MOST_CHARS


class StreamOpened(msgspec.Struct, frozen=True):
    """The result of an operation that opens a stream: the stream says the rest."""


STREAM_OPENED: Final = StreamOpened()


class Route(msgspec.Struct, frozen=True):
    """A REST route below ``/graphs/{graph}/``; ``{name}`` in its path is an argument.

    GET and DELETE have the other arguments in the query string, POST in a JSON body.
    """

    method: Literal["GET", "POST", "DELETE"]
    path: str
    defaults: Mapping[str, object] = {}
    """Arguments that this route sets if the request does not."""
    text: tuple[str, str] | None = None
    """An argument and a media type: the body may be that argument alone, as text of that type."""
    gathers: str | None = None
    """The argument that gets all of the query string but the controls, as lists of texts."""
    name: str = ""
    """What OpenAPI calls it; empty: as the built-in."""
    sends: tuple[str, ...] = ()
    """Media types of a body that is a file; the arguments are in the query string."""
    gives: tuple[str, ...] = ()
    """Media types of the response, if it is not the result as JSON."""
    status: int = 200


class Builtin(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One built-in operation."""

    name: str
    title: str
    description: str
    fields: tuple[PredicateDescriptor, ...] = ()
    controls: tuple[PredicateDescriptor, ...] = ()
    unlisted: tuple[PredicateDescriptor, ...] = ()
    """Control arguments that are accepted though the list of tools does not repeat them."""
    shapes: tuple[ShapeDescriptor, ...] = ()
    """The objects that its fields hold."""
    result: type[msgspec.Struct] | UnionType
    hints: Hints
    action: Action | None = None
    also: tuple[Action, ...] = ()
    """What has to be allowed beside that."""
    whole: bool = False
    """Whether nothing may be hidden from who uses it."""
    place: Place = "thread"
    kind: str = "query"
    """What its activities say of their kind."""
    run: Callable[..., object]
    """Takes the tool context, the graph context, and the arguments by name; gives a ``result``, or
    a page of one."""
    offered: Literal["always", "by_name", "never"] = "always"
    """When it is an MCP tool: always, if stored queries are called by name, or never."""
    routes: tuple[Route, ...] = ()
    """REST routes; a remote client uses the first."""
    command: str | None = None
    """The command of the CLI, like ``branch list``."""
    meta: MetaFacts | None = None
    """For an operation on the application itself: the scope that it needs."""

    def is_hidden(self, env: str) -> bool:
        """Whether it does not exist in an environment: production has no development tools."""
        return self.meta is not None and self.meta.scope == "dev" and env == "production"

    def input_schema(self) -> dict[str, object]:
        """The JSON Schema of its arguments."""
        return project_fields((*self.fields, *self.controls), OwnShapes.of(*self.shapes))

    def full_schema(self) -> dict[str, object]:
        """The JSON Schema of its arguments, with those that the list of tools leaves out."""
        fields = (*self.fields, *self.controls, *self.unlisted)
        return project_fields(fields, OwnShapes.of(*self.shapes))


def meta_operation(identifier: str, scope: Scope, **declared: Any) -> Builtin:  # noqa: ANN401
    """An operation on the application, ``trails.meta.<namespace>.<op>``.

    It is a tool for credentials with its scope, a route ``admin/<namespace>.<op>`` and, with a
    ``command``, a command. The other arguments are those of a ``Builtin``.
    """
    route = Route("POST", f"admin/{identifier.removeprefix(META_PREFIX)}")
    given = {"routes": (route,), "kind": "meta", **declared}
    return Builtin(name=meta_tool_name(identifier), meta=MetaFacts.of(identifier, scope), **given)


class OwnShapes(msgspec.Struct, frozen=True):
    """A built-in's own shapes, as declarations: it knows no types of any graph."""

    shapes: Mapping[str, ShapeDescriptor]
    schema: Schema = Schema()

    @classmethod
    def of(cls, *shapes: ShapeDescriptor) -> OwnShapes:
        """By name."""
        return cls({shape.name: shape for shape in shapes})

    def special(self) -> Special:
        """Objects as dictionaries of checked values."""
        checks: dict[str, Arguments] = {}

        def special(wanted: ValueType) -> Mapping[str, Coerce]:
            own: dict[str, Coerce] = {ANY: _same, MAP: _object}
            if wanted.target in checks:
                own[OBJECT] = checks[wanted.target].read_object
            return own

        for name, shape in self.shapes.items():
            checks[name] = Arguments(name, shape.fields, special, prefix=".")
        return special


def _same(value: object) -> object:
    return value


def _object(value: object) -> object:
    if not isinstance(value, Mapping):
        raise KindError
    return value


def field(
    name: str,
    description: str,
    kind: str = "String",
    *,
    target: str | None = None,
    many: bool = False,
    **said: object,
) -> PredicateDescriptor:
    """A parameter; optional unless ``required`` says otherwise."""
    value_type = ValueType(kind, target=target)
    return describe(
        "tool",
        name,
        ValueType(LIST, item=value_type) if many else value_type,
        Predicate(description=description, **{"required": False, **said}),  # type: ignore[arg-type]
        stored=False,
    )


NEAR: Final = field("near", "{field, vector} or {field, text}", MAP)
_NEAR: Final = '{"field": "embedding", "vector": [0.1, …]}, or a "text" instead of the vector'


def read_near(given: Mapping[str, object]) -> Near:
    """What ``near`` of a call asks for."""
    try:
        return msgspec.convert(given, Near)
    except msgspec.ValidationError as error:
        message = f"near: {error}; write {_NEAR}"
        raise ValidationError([FieldError("near", "datatype", message)]) from None


MESSAGE: Final = field("message", "Why this is changed.", max_length=10_000)
