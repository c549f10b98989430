"""Check values against a type: every field, every rule, every violation at once.

Compiled once a schema. What a node's own values can break is found here; what
needs a look at other nodes is the write path's.
"""

from __future__ import annotations

from collections.abc import Mapping

from trails.authoring.nodes import Node
from trails.errors import FieldError
from trails.model.constraints import Coerce, compile_field, showable
from trails.model.iris import Names
from trails.model.kinds import KindError
from trails.model.names import suggest
from trails.model.nodes import make_handle, split_handle
from trails.model.types import REF, Schema


class Validator:
    """Checks the values of nodes of one schema."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self.special: dict[str, Coerce] = {REF: reference_coercer(schema, names)}
        self._known = {each.name: each.by_name.keys() for each in schema.types}
        self._checks = {
            each.name: [
                (field.name, compile_field(field, self.special, stored=True))
                for field in each.fields
            ]
            for each in schema.types
        }
        self._extra = {
            each.name: [
                (field.name, compile_field(field, self.special, stored=True))
                for shape in schema.shapes_of(each.name)
                for field in shape.fields
            ]
            for each in schema.types
        }

    def check(
        self, type_name: str, raw: Mapping[str, object], prefix: str, errors: list[FieldError]
    ) -> dict[str, object]:
        """The coerced values; violations are added to ``errors``, each path with ``prefix``."""
        values: dict[str, object] = {}
        get = raw.get
        for name, check in self._checks[type_name]:
            value = check(get(name), prefix + name, errors)
            if value or (value is not None and value != ()):
                values[name] = value
        if not raw.keys() <= self._known[type_name]:
            errors.extend(self._unknown(type_name, raw, prefix))
        for name, check in self._extra[type_name]:
            more: list[FieldError] = []
            check(get(name), prefix + name, more)
            if more:  # the type's own check may have said the same
                said = {error.message for error in errors}
                errors.extend(error for error in more if error.message not in said)
        return values

    def _unknown(self, type_name: str, raw: Mapping[str, object], prefix: str) -> list[FieldError]:
        known = [name for name, _ in self._checks[type_name]]
        errors = []
        for name in raw:
            if name not in known:
                message = f"{prefix}{name} is not a field of {type_name}; {suggest(name, known)}"
                errors.append(
                    FieldError(prefix + name, "unknown_field", message, showable(raw[name]))
                )
        return errors


def _spelled_as_stored(handle: str) -> str:
    """A handle with its id percent-encoded, as every handle that is written must be."""
    try:
        return make_handle(*split_handle(handle))
    except UnicodeDecodeError:
        raise KindError("its id is not text") from None


def reference_coercer(schema: Schema, names: Names) -> Coerce:
    """Accept an instance, an IRI, an MCP handle or a plain handle; give the handle."""
    known = schema.by_name

    def coerce(value: object) -> object:
        if isinstance(value, str):
            parsed = names.parse_node(value)
            if parsed is not None and parsed[0] in known:
                return make_handle(*parsed)
            if value.isascii() and value.count("/") == 1 and value.partition("/")[0] in known:
                return _spelled_as_stored(value)
        elif isinstance(value, Node) or hasattr(value, "__trails__"):
            handle = getattr(value, "handle", None)
            if handle is not None:
                return handle
            raise KindError("it has no key yet")
        raise KindError

    return coerce
