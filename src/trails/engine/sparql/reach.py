"""Reach: which types and fields a stored query can read.

Derived from its text and the types: a variable with a known class, or that a reference leads to,
matches instances of few types; any other variable can match everything. Hidden data outside the
reach of a query can't change its answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from trails.engine.sparql.patterns import (
    REST_PATH,
    GroupPart,
    GroupPattern,
    QueryStep,
    Triple,
    UnclearError,
    read_patterns,
)
from trails.model.caches import LRUCache
from trails.model.capabilities import StoredQuery
from trails.model.iris import RDF_FIRST, RDF_REST, RDF_TYPE, Names
from trails.model.types import PredicateDescriptor, Schema
from trails.model.visibility import Visibility

Env = Mapping[str, frozenset[str]]
"""Variable → the types whose instances it can match."""
Lists = set[tuple[str, str]]
"""(type, field) of ordered lists."""


class Reach(msgspec.Struct, frozen=True):
    """What a query can read."""

    anything: bool
    types: frozenset[str] = frozenset()
    """Types whose membership it tests."""
    fields: frozenset[tuple[str, str]] = frozenset()
    """(type, field) of the values that it reads."""


ANYTHING: Final = Reach(anything=True)

_reaches: Final[LRUCache[tuple[str, str, Names], Reach]] = LRUCache(512)


def reach_of(query: StoredQuery, schema: Schema, names: Names) -> Reach:
    """What a stored query can read in a graph with these types; cached."""
    return _reaches.get((query.text, schema.digest, names), lambda: _reach(query, schema, names))


def _reach(query: StoredQuery, schema: Schema, names: Names) -> Reach:
    try:
        operations = read_patterns(query.text, names.prefixes)
    except UnclearError:
        return ANYTHING
    analysis = _Analysis(schema, names)
    for operation in operations:
        analysis.follow(operation)
    return Reach(False, frozenset(analysis.types), frozenset(analysis.fields))


def touches_hidden(reach: Reach, visibility: Visibility, schema: Schema) -> bool:
    """Whether a query can read hidden data."""
    if visibility.reads_all:
        return False
    schema_filter = visibility.filter(schema)
    if reach.anything:
        return True
    partly = schema_filter.hidden | schema_filter.partial_edges
    if not partly.isdisjoint(reach.types):
        return True
    return any(
        name in partly
        or field in schema_filter.hidden_fields.get(name, ())
        or field in schema_filter.partial_refs.get(name, ())
        for name, field in reach.fields
    )


class _Analysis:
    """Follows patterns and records what they read."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self.types: set[str] = set()
        self.fields: set[tuple[str, str]] = set()
        self._schema = schema
        self._names = names
        self._every = frozenset(schema.by_name)
        self._classes = {names.term(each.iri): each.name for each in schema.types}
        self._holders: dict[str, dict[str, PredicateDescriptor]] = {}
        for each in schema.types:
            for field in each.fields:
                self._holders.setdefault(names.term(field.iri), {})[each.name] = field
        self._lists = [
            (each.name, field) for each in schema.types for field in each.fields if field.ordered
        ]

    def follow(self, operation: QueryStep) -> None:
        """Record what one operation reads and writes."""
        env = self._group(operation.where, {})
        for triple in operation.template:
            self._note(triple, env, {})
        for part in operation.more:
            self._part(part, {})

    # --- groups --------------------------------------------------------------------------

    def _group(self, group: GroupPattern, around: Env) -> Env:
        """Record what a group reads; ``around`` has the types of variables outside of it.

        It holds inside for those that the group's own statements bind. Where a variable may be
        left unbound in a part of the group, nothing is known of it there; and nothing is known
        inside of a subquery, which is a group in a group without statements.
        """
        triples = [item for item in group.items if isinstance(item, Triple)]
        own = [each for each in triples if not each.loose]
        env = self._infer(own, around)
        lists = self._infer_lists(triples, env)
        before: list[Triple] = []
        for item in group.items:
            if isinstance(item, Triple):
                self._note(item, env, lists)
                before += () if item.loose else (item,)
            else:
                # Only earlier patterns are certain to be joined with what follows.
                self._part(item, self._infer(before, around))
        return env

    def _part(self, part: GroupPart, env: Env) -> None:
        for group in part.groups:
            self._group(group, env)

    # --- variables -----------------------------------------------------------------------

    def _infer(self, triples: Iterable[Triple], around: Env) -> Env:
        """The types of the variables in patterns that must all hold."""
        given = list(triples)
        names = {term for triple in given for term in (triple.subject, triple.object)}
        env = {name: around.get(name, self._every) for name in names if name.startswith("?")}
        env |= {name: self._constant(name) for name in names if name.startswith("<")}
        while True:
            narrowed = False
            for triple in given:
                for name, types in self._narrow(triple, env):
                    if name in env and not env[name] <= types:
                        env[name] &= types
                        narrowed = True
            if not narrowed:
                return {name: types for name, types in env.items() if name.startswith("?")}

    def _infer_lists(self, triples: Iterable[Triple], env: Env) -> Mapping[str, Lists]:
        """The lists of which a variable or constant can be a cell, where that is known."""
        found: dict[str, Lists] = {}
        for triple in triples:  # a path is read from its beginning, so once is enough
            lists: Lists | None = None
            if triple.predicate == REST_PATH or (triple.predicate == RDF_REST and not triple.loose):
                lists = found.get(triple.subject)
            elif not triple.loose and triple.predicate in self._holders:
                holders = self._holders[triple.predicate]
                if all(field.ordered for field in holders.values()):
                    subjects = env.get(triple.subject, self._every)
                    lists = {
                        (name, each.name) for name, each in holders.items() if name in subjects
                    }
            if lists is not None and triple.object.startswith("?"):
                found[triple.object] = lists & found.get(triple.object, lists)
        return found

    def _constant(self, term: str) -> frozenset[str]:
        parsed = self._names.parse_node(term[1:-1])
        return frozenset() if parsed is None else self._every & {parsed[0]}

    def _narrow(self, triple: Triple, env: Env) -> Iterator[tuple[str, frozenset[str]]]:
        """What one pattern implies for its two ends."""
        if triple.predicate == RDF_TYPE:
            name = self._classes.get(triple.object[1:-1])
            family = () if name is None else self._schema.family(name)
            yield triple.subject, frozenset(family)
            return
        if triple.predicate in {RDF_FIRST, RDF_REST}:  # of cells, which are no nodes
            yield triple.subject, frozenset()
            targets = {target for _, field in self._lists if (target := field.target)}
            if triple.predicate == RDF_REST:
                targets = set()
            yield triple.object, self._families(targets)
            return
        holders = self._holders.get(triple.predicate, {})
        yield triple.subject, frozenset(holders)
        targets = {
            target
            for name, field in holders.items()
            if name in env.get(triple.subject, self._every)
            and not field.ordered
            and (target := field.target)
        }
        yield triple.object, self._families(targets)

    def _families(self, targets: Iterable[str]) -> frozenset[str]:
        return frozenset(each for target in targets for each in self._schema.family(target))

    # --- reads -------------------------------------------------------------------------------

    def _note(self, triple: Triple, env: Env, lists: Mapping[str, Lists]) -> None:
        subjects = env.get(triple.subject, self._every)
        if triple.subject.startswith("<"):
            subjects = self._constant(triple.subject)
        if triple.predicate == RDF_TYPE:
            name = self._classes.get(triple.object[1:-1])
            if name is not None:
                self.types.add(name)
                self.types |= subjects.intersection(self._schema.family(name))
            return
        if triple.predicate in {RDF_FIRST, RDF_REST, REST_PATH}:
            every = {(name, field.name) for name, field in self._lists}
            self.fields |= lists.get(triple.subject, every)
        for name, field in self._holders.get(triple.predicate, {}).items():
            if name in subjects:
                self.fields.add((name, field.name))
