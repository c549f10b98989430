"""Rename classes and fields in stored queries, after types or fields were renamed.

Pure. Only names that nothing has any more are replaced, and only where they became one other name:
each occurrence of such a name would be a mistake.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trails.errors import QueryError
from trails.model.history import Renames
from trails.model.sparql.tokens import tokenize
from trails.model.types import Schema


def renamed_terms(before: Schema, after: Schema, renames: Renames) -> dict[str, str]:
    """Old → new local name of each class and field that got another."""
    types, fields = renames.types, renames.fields
    used = set(_terms(after))
    found: dict[str, set[str]] = {}
    former = {new: old for old, new in types.items()}
    for old, new in types.items():
        if old in before.by_name and new in after.by_name:
            found.setdefault(before.by_name[old].iri, set()).add(after.by_name[new].iri)
    for (owner, old), new in fields.items():
        was = before.by_name.get(former.get(owner, owner))
        now = after.by_name.get(owner)
        if was is not None and now is not None and old in was.by_name and new in now.by_name:
            found.setdefault(was.by_name[old].iri, set()).add(now.by_name[new].iri)
    return {
        old: next(iter(new))
        for old, new in found.items()
        if len(new) == 1 and old not in used and ":" not in f"{old}{next(iter(new))}"
    }


def _terms(schema: Schema) -> Iterator[str]:
    for each in schema.types:
        yield each.iri
        yield from (field.iri for field in each.fields)


def rename_terms(text: str, terms: Mapping[str, str]) -> str:
    """A query with ``:old`` as ``:new``; everything else stays, comments and texts too."""
    try:
        tokens = tokenize(text)
    except QueryError:
        return text  # what can't be read is reported where queries are checked
    return "".join(
        f":{terms[token.text[1:]]}"
        if token.kind == "name" and token.text.startswith(":") and token.text[1:] in terms
        else token.text
        for token in tokens
    )
