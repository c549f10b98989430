"""Entries as a sight shows them: a tool speaks of no type or field that its caller can't see."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from trails.engine.arguments import checks_of
from trails.model.capabilities import StoredQuery
from trails.projections.queries import project_query, with_params
from trails.projections.tools import project_capability
from trails.registry.declared import Declared
from trails.registry.registry import Registry
from trails.request.entries import Entry

_kept: Final[WeakKeyDictionary[Declared, dict[Entry, Entry | None]]] = WeakKeyDictionary()


def see_entry(entry: Entry, registry: Registry, declared: Registry | Declared) -> Entry | None:
    """An entry with what is left of its types; None when one that it names does not exist.

    ``declared`` is what is left of the registry; each entry is made once for it.
    """
    if entry.source is None or not isinstance(declared, Declared):
        return entry
    made = _kept.setdefault(declared, {})
    if entry not in made:
        made[entry] = _see(entry, registry, declared)
    return made[entry]


def _see(entry: Entry, registry: Registry, declared: Declared) -> Entry | None:
    source = entry.source
    assert source is not None  # noqa: S101 - the caller has looked
    if not declared.knows(source):
        return None
    checks = checks_of(registry, declared)
    if isinstance(source, StoredQuery):
        return msgspec.structs.replace(
            entry,
            tool=project_query(source, declared, entry.tool.output_schema or {}),
            arguments=checks.of_query(source),
            declared=with_params(source, declared),
        )
    return msgspec.structs.replace(
        entry,
        tool=project_capability(source, declared),
        arguments=checks.of_capability(source),
        declared=declared,
    )
