"""Answers of queries, as results show them: columns, rows, and whether that is all.

Results as the JSON text of an object: what every surface hands on.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Final

from trails.engine.session.results import conformer, encoded
from trails.errors import TrailsError
from trails.model.iris import Names
from trails.model.kinds import BigInt, kind_of
from trails.model.results import QueryAnswer
from trails.model.types import JSON, ValueType
from trails.projections.tools import RESULT, is_wrapped
from trails.registry.registry import Declared

ANSWER: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {
        "columns": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The variables of a row, in order.",
        },
        "rows": {
            "type": "array",
            "items": {"type": "object"},
            "description": "One object a row: variable → value. IRIs and dates are strings; a "
            "variable without a value is null.",
        },
        "truth": {"type": "boolean", "description": "The answer of an ASK query."},
        "truncated": {"type": "boolean", "description": "Whether there are more rows."},
        "notice": {
            "type": "string",
            "description": "Where truncated: how to go on. Otherwise: what the query names and "
            "the graph does not have.",
        },
    },
    "required": ["columns", "rows", "truncated"],
}
"""The schema of what ``show_answer`` gives."""

CHANGED: Final[Mapping[str, object]] = {
    "type": "object",
    "properties": {
        "commit": {
            "type": ["string", "null"],
            "description": "The commit that was made; null when nothing changed.",
        },
        "changed": {"type": "boolean"},
    },
    "required": ["commit", "changed"],
}
"""The schema of what ``show_change`` gives."""


def show_answer(answer: QueryAnswer) -> dict[str, object]:
    """The answer of a query that reads."""
    body: dict[str, object] = {
        "columns": answer.variables,
        "rows": plain_rows(answer),
        "truncated": answer.truncated is not None,
    }
    if answer.truth is not None:
        body["truth"] = answer.truth
    if answer.truncated is not None:
        body["notice"] = (
            f"{answer.notice}. The rows after these: the same query with ORDER BY, "
            f"OFFSET {len(answer.rows)} and a LIMIT"
        )
    elif answer.notice is not None:
        body["notice"] = answer.notice
    return body


def plain_rows(answer: QueryAnswer) -> list[dict[str, object]]:
    """Its rows as JSON values."""
    return [{name: _cell(value) for name, value in row.items()} for row in answer.rows]


def show_change(commit: str | None) -> dict[str, object]:
    """What came of a query that changes."""
    return {"commit": commit, "changed": commit is not None}


def _cell(value: object) -> object:
    """A value in its JSON form: as its kind says, and never silently null."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, BigInt):
        return int(value)
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, list | tuple):
        return list(value)
    kind = kind_of(value)
    return str(value) if kind is None else kind.lexical(value)


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
                f"{name} declares that it returns {output}, but returned {found}; correct it"
            )
        return body

    return shape


def shape_object(names: Names) -> Shape:
    """How an object that a built-in makes is written."""
    return lambda result, declared: encoded(names, result, declared)
