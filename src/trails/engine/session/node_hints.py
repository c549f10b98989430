"""Instances that a SPARQL text names: any form of reference, and whether they exist.

In SPARQL an unknown IRI is legal and matches nothing. The notices here name instances that do not
exist and suggest existing ones; they are for readers who may see the whole graph.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Final

from trails.engine.session.graph_session import GraphSession
from trails.model.iris import Names
from trails.model.kinds import Iri
from trails.model.nodes import split_handle
from trails.model.sparql import significant, tokenize

_LOOKED_UP: Final = 50
_MOST: Final = 5
"""The most hints in one notice."""


def spell_instances(
    kg: GraphSession, names: Names, params: Mapping[str, object]
) -> Mapping[str, object]:
    """Parameters with each ``Iri`` that refers to an instance, in any form, as a full IRI."""
    spelled: dict[str, object] = {}
    for name, value in params.items():
        handle = kg.compiled.validator.references.exact(value) if isinstance(value, Iri) else None
        spelled[name] = value if handle is None else Iri(names.node(*split_handle(handle)))
    return spelled


def find_missing_nodes(
    kg: GraphSession, names: Names, text: str, params: Mapping[str, object]
) -> str | None:
    """Notices about named instances that do not exist or have a form unknown to SPARQL."""
    named = [*_named(text), *(value for value in params.values() if isinstance(value, Iri))]
    hints = _hints(kg, names, islice(dict.fromkeys(named), _LOOKED_UP))
    return "; ".join(islice(hints, _MOST)) or None


def _named(text: str) -> Iterator[str]:
    tokens = significant(tokenize(text))
    based = any(each.kind == "word" and each.text.upper() == "BASE" for each in tokens)
    for token in tokens:
        iri = token.text[1:-1]
        if token.kind == "iri" and (":" in iri or not based):
            yield iri


def _hints(kg: GraphSession, names: Names, iris: Iterable[str]) -> Iterator[str]:
    references = kg.compiled.validator.references
    for iri in iris:
        handle = references.exact(iri)
        if handle is None:
            continue
        type_name, identifier = split_handle(handle)
        if kg.find_by_id(type_name, identifier) is None:
            yield kg.describe_missing(type_name, handle)
        elif ":" in iri and not iri.startswith(names.nodes):
            yield f"<{iri}> matches nothing; write <{handle}>"
