"""Results as the JSON text of an object: what every surface hands on."""

from __future__ import annotations

from collections.abc import Callable

from trails.engine.results import conformer, encoded
from trails.errors import TrailsError
from trails.model.iris import Names
from trails.model.types import JSON, ValueType
from trails.projections.tools import RESULT, is_wrapped
from trails.registry.declared import Declared

Shape = Callable[[object, Declared | None], bytes]
"""(result, what may be shown of instances) → text; None where all may be shown."""


def shape_of(name: str, output: ValueType | None, names: Names) -> Shape:
    """How the results of a capability are written; what is no object is put into one."""
    loose = output is not None and output.kind == JSON and not output.nullable
    wrapped = is_wrapped(output)

    conform = conformer(name, output)

    def shape(result: object, declared: Declared | None) -> bytes:
        body = encoded(names, conform(result), declared)
        if wrapped or (loose and body[:1] != b"{"):
            return b'{"%s":%s}' % (RESULT.encode(), body)
        if body[:1] != b"{":
            found = body[:60].decode(errors="replace")
            raise TrailsError(
                f"{name} says that it returns {output}, but returned {found}; correct it"
            )
        return body

    return shape


def shape_object(names: Names) -> Shape:
    """How an object that a built-in makes is written."""
    return lambda result, declared: encoded(names, result, declared)
