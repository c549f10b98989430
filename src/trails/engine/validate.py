"""Check values against a type: every field, every rule, every violation at once.

Compiled once a schema. What a node's own values can break is found here; what
needs a look at other nodes is the write path's.
"""

from __future__ import annotations

from collections.abc import Mapping

from trails.authoring.nodes import Node
from trails.engine.references import References
from trails.errors import FieldError
from trails.model.constraints import Coerce, compile_field, showable
from trails.model.iris import Names
from trails.model.kinds import KindError
from trails.model.names import suggest
from trails.model.types import REF, Schema


class Validator:
    """Checks the values of nodes of one schema."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self.references = References(schema, names)
        self.special: dict[str, Coerce] = {REF: reference_coercer(self.references)}
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


def reference_coercer(references: References) -> Coerce:
    """Accept an instance, an IRI or ``Type/id``; give the handle.

    Bare keys are settled before values are checked, because that may need a look at the graph.
    """

    def coerce(value: object) -> object:
        handle = references.exact(value)
        if handle is not None:
            return handle
        if isinstance(value, Node) or hasattr(value, "__trails__"):
            handle = getattr(value, "handle", None)
            if handle is not None:
                return handle
            raise KindError("it has no key yet")
        raise KindError

    return coerce
