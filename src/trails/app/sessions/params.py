"""Parameters of a query text in JSON: what JSON has no form for is written as in JSON-LD."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Final

from trails.model.kinds import KINDS, BigInt, Blob, Iri

_KINDS: Final[Mapping[type, str]] = {
    date: "Date",
    datetime: "DateTime",
    Decimal: "Decimal",
    BigInt: "BigInt",
    Blob: "Blob",
}


def write_params(params: Mapping[str, object]) -> dict[str, object]:
    """Values for ``$name``, as a server takes them."""
    return {name: _write(value) for name, value in params.items()}


def _write(value: object) -> object:
    if isinstance(value, Iri):
        return {"@id": str(value)}
    name = _KINDS.get(type(value))
    if name is None:
        return value
    return {"@value": KINDS[name].lexical(value), "@type": KINDS[name].datatype}
