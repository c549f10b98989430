"""Instances that a SPARQL text names: in every form of a reference, and whether they exist.

In SPARQL an IRI that no statement has is legal and matches nothing. The notices here say which
instances do not exist and which do; for readers who may see the whole graph.
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
"""Hints in one notice."""


def spell_instances(
    kg: GraphSession, names: Names, params: Mapping[str, object]
) -> Mapping[str, object]:
    """Parameters with each ``Iri`` that refers to an instance, in whatever form, as its IRI."""
    spelled: dict[str, object] = {}
    for name, value in params.items():
        handle = kg.compiled.validator.references.exact(value) if isinstance(value, Iri) else None
        spelled[name] = value if handle is None else Iri(names.node(*split_handle(handle)))
    return spelled


def find_missing_nodes(
    kg: GraphSession, names: Names, text: str, params: Mapping[str, object]
) -> str | None:
    """Instances that are named and do not exist, or in a form that SPARQL does not know."""
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
