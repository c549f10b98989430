"""Project the structs of results into JSON Schema: components, and references to them."""

from __future__ import annotations

from collections.abc import Iterable
from types import UnionType
from typing import Final, get_args

import msgspec

from trails.projections.json_schema import Document

ResultType = type[msgspec.Struct] | UnionType
"""The struct of a result, or a union of several."""
REFERENCE: Final = "#/components/schemas/{name}"


def struct_types(result: ResultType) -> tuple[type[msgspec.Struct], ...]:
    """The structs that a result may be."""
    return get_args(result) if isinstance(result, UnionType) else (result,)


def project_result(result: ResultType) -> Document:
    """A reference to the schema of a result."""
    found: list[Document] = [
        {"$ref": REFERENCE.format(name=each.__name__)} for each in struct_types(result)
    ]
    return found[0] if len(found) == 1 else {"anyOf": found}


def project_components(results: Iterable[ResultType]) -> dict[str, Document]:
    """The schemas of some results, and of all structs in them, by name."""
    wanted = {each.__name__: each for result in results for each in struct_types(result)}
    _, found = msgspec.json.schema_components(
        [wanted[name] for name in sorted(wanted)], schema_hook=_any, ref_template=REFERENCE
    )
    return {name: found[name] for name in sorted(found)}


def _any(wanted: object) -> Document:
    """A value of any JSON type is declared as ``object``."""
    if wanted is object:
        return {"description": "Any JSON value."}
    raise NotImplementedError
