"""``trails.meta.impact``: what a change of types would break, each with the reason.

Stored queries by the classes and fields that they name, capabilities by their parameters and by
the names in their code, policies by the types and fields that they name, webhooks and
subscriptions by what they watch, and branches by the types that they have changed themselves.
What the caller may not see is not named.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from trails.engine.graph.changes import describe_changes
from trails.engine.graph.graph import MAIN
from trails.engine.session.context import GraphContext
from trails.engine.sparql.reach import reach_of
from trails.model.capabilities import Capability, StoredQuery
from trails.model.history import Rename, Renames
from trails.model.names import INTERNAL_BRANCH
from trails.model.operations.schema import ImpactItem
from trails.model.sparql.renames import rename_terms, renamed_terms
from trails.model.sparql.terms import TermScan, Vocabulary, pieces_of
from trails.model.sparql.tokens import tokenize
from trails.model.types import Schema
from trails.model.uris import parse_address
from trails.request.authorize import rights_of
from trails.request.builtins.declare import ToolContext
from trails.request.entries import of_capability, of_query

_SHOWN: Final = 5


class TypeChanges(msgspec.Struct, frozen=True):
    """What differs between two schemas, by name."""

    gone: frozenset[str]
    """Types that are gone, or have another name."""
    gone_fields: frozenset[tuple[str, str]]
    changed: frozenset[str]
    changed_fields: frozenset[tuple[str, str]]

    @classmethod
    def between(cls, before: Schema, after: Schema) -> TypeChanges:
        gone: set[str] = set()
        changed: set[str] = set()
        gone_fields: set[tuple[str, str]] = set()
        changed_fields: set[tuple[str, str]] = set()
        for each in before.types:
            now = after.by_name.get(each.name)
            if now is None:
                gone.add(each.name)
                gone_fields.update((each.name, field.name) for field in each.fields)
            elif now != each:
                changed.add(each.name)
                for field in each.fields:
                    left = now.by_name.get(field.name)
                    if left is None:
                        gone_fields.add((each.name, field.name))
                    elif left != field:
                        changed_fields.add((each.name, field.name))
        return cls(
            frozenset(gone), frozenset(gone_fields), frozenset(changed), frozenset(changed_fields)
        )

    def words(self) -> frozenset[str]:
        """The names that code may still use."""
        return self.gone | {field for _, field in self.gone_fields}


def find_impact(
    tool: ToolContext,
    ctx: GraphContext,
    before: Schema,
    after: Schema,
    renames: Sequence[Rename] = (),
) -> list[ImpactItem]:
    """Everything that a change of types of the context's branch would break."""
    if before.digest == after.digest:
        return []
    changes = TypeChanges.between(before, after)
    terms = _followed(tool, before, after, renames)
    broken = {each.name: each for each in _queries(ctx, changes, before, after, terms)}
    found = [*broken.values(), *_capabilities(ctx, changes)]
    if ctx.access.may("Admin", MAIN):
        # Who may do what, and who watches what, is for administrators.
        found += _policies(tool, changes)
        found += _webhooks(tool, changes, broken)
        found += _subscriptions(tool, changes)
    if ctx.branch == MAIN:
        found += _branches(tool, ctx, before, after)
    order = {"breaks": 0, "check": 1}
    return sorted(found, key=lambda each: (order[each.severity], each.kind, each.name))


def may_call(ctx: GraphContext, called: Capability | StoredQuery) -> bool:
    """Whether the caller may use something, on any branch."""
    if ctx.access.unrestricted:
        return True
    if isinstance(called, StoredQuery):
        return rights_of(ctx).passes(of_query(called))
    return rights_of(ctx).passes(of_capability(called, ctx.graph, MAIN))


def _followed(
    tool: ToolContext, before: Schema, after: Schema, renames: Sequence[Rename]
) -> Mapping[str, str]:
    """The names that are changed in stored queries with the types, where files declare these."""
    workspace = tool.options.workspace
    if workspace is None or workspace.layout.schema != "python":
        return {}
    return renamed_terms(before, after, Renames.of(renames))


def _queries(
    ctx: GraphContext,
    changes: TypeChanges,
    before: Schema,
    after: Schema,
    terms: Mapping[str, str],
) -> Iterator[ImpactItem]:
    vocabulary = Vocabulary(after, ctx.names)

    def unknown(text: str) -> list[str]:
        named = TermScan(pieces_of(tokenize(text)), ctx.names).named
        return [message for _, message in vocabulary.unknown(named)]

    for query in ctx.registry.queries.values():
        if not may_call(ctx, query):
            continue
        problems = unknown(query.text)
        if problems and terms and not unknown(rename_terms(query.text, terms)):
            why = "its text follows the renamed names when the types of main change"
            yield ImpactItem("query", query.name, "check", why)
            continue
        every = (param.type.scalar.target for param in query.params)
        targets = changes.gone.intersection(name for name in every if name is not None)
        problems += [f"a parameter of it is a {name}, which is gone" for name in sorted(targets)]
        if problems:
            yield ImpactItem("query", query.name, "breaks", _join(problems))
            continue
        reach = reach_of(query, before, ctx.names)
        touched = {f"{name}.{field}" for name, field in reach.fields & _differing(changes)}
        if touched:
            why = f"it uses {_join(sorted(touched), ', ')}, which change"
            yield ImpactItem("query", query.name, "check", why)


def _differing(changes: TypeChanges) -> frozenset[tuple[str, str]]:
    return changes.gone_fields | changes.changed_fields


def _capabilities(ctx: GraphContext, changes: TypeChanges) -> Iterator[ImpactItem]:
    words = changes.words()
    for each in (*ctx.registry.capabilities.values(), *ctx.registry.metas.values()):
        if not may_call(ctx, each):
            continue
        given = each.descriptor
        outputs = () if given.output_shape is None else (given.output_shape,)
        used = [kind.scalar.target for kind in (*(f.type for f in given.input_shape), *outputs)]
        gone = sorted(changes.gone.intersection(name for name in used if name is not None))
        if gone:
            yield ImpactItem("capability", each.id, "breaks", f"it takes or returns {_join(gone)}")
        elif mentioned := sorted(_names_in(each) & words):
            why = f"its code has the name {_join(mentioned, ', ')}; change it if it means the type"
            yield ImpactItem("capability", each.id, "check", why)


def _names_in(capability: Capability) -> frozenset[str]:
    """The attributes, keywords and names that the code of a capability uses."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(capability.handler)))
    except (OSError, TypeError, SyntaxError):
        return frozenset()
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.keyword) and node.arg is not None:
            found.add(node.arg)
            found.add(node.arg.partition("__")[0])
    return frozenset(found)


def _policies(tool: ToolContext, changes: TypeChanges) -> Iterator[ImpactItem]:
    answers = tool.options.policies
    if answers is None:
        return
    gone = {f"Type::{name}" for name in changes.gone}
    gone |= {f"Field::{name}.{field}" for name, field in changes.gone_fields}
    for where, named in answers.named():
        if named in gone:
            yield ImpactItem("policy", where, "breaks", f"it names {named}, which is gone")


def _webhooks(
    tool: ToolContext, changes: TypeChanges, queries: dict[str, ImpactItem]
) -> Iterator[ImpactItem]:
    for hook in tool.options.webhooks:
        gone = sorted(changes.gone.intersection(hook.types))
        query = queries.get(hook.query)
        if gone:
            why = f"it sends changes of {_join(gone)}, which {_are(gone)} gone"
            yield ImpactItem("webhook", hook.name, "breaks", why)
        elif query is not None:
            why = f"it follows the stored query {hook.query}: {query.why}"
            yield ImpactItem("webhook", hook.name, query.severity, why)


def _subscriptions(tool: ToolContext, changes: TypeChanges) -> Iterator[ImpactItem]:
    nodes = tool.service.graph.names.nodes
    for uri, count in sorted(tool.service.watched().items()):
        name = str(getattr(parse_address(uri, nodes), "type", ""))
        severity: Literal["breaks", "check"] = "breaks" if name in changes.gone else "check"
        if name in changes.gone | changes.changed:
            how = "is gone" if name in changes.gone else "changes"
            why = f"{count} watch {uri}, whose type {name} {how}"
            yield ImpactItem("subscription", uri, severity, why)


def _branches(
    tool: ToolContext, ctx: GraphContext, before: Schema, after: Schema
) -> Iterator[ImpactItem]:
    graph = tool.service.graph
    for name, head in sorted(graph.log.branches().items()):
        internal = name.startswith(INTERNAL_BRANCH)
        if name == MAIN or internal or not ctx.access.may("Read", name):
            continue
        own = graph.compiled(head.schema).schema
        if own.digest == before.digest:
            why = "it has the types from before; it gets the new ones with its next write, if its "
            why += "data fits them, and a merge checks its data by the new rules"
            yield ImpactItem("branch", name, "check", why)
            continue
        both = [
            each
            for each in sorted({*before.by_name, *own.by_name})
            if _differs(before, own, each) and _differs(before, after, each)
        ]
        why = f"it has types of its own: {_join(describe_changes(before, own))}"
        if both:
            why += f"; both change {', '.join(both)}, which is a conflict of a merge"
        yield ImpactItem("branch", name, "breaks" if both else "check", why)


def _differs(one: Schema, other: Schema, name: str) -> bool:
    return one.by_name.get(name) != other.by_name.get(name)


def _are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _join(items: Iterable[str], separator: str = "; ") -> str:
    every = list(items)
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return separator.join(every[:_SHOWN]) + more
