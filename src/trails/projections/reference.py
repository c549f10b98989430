"""Project the registry into a reference for readers, as Markdown.

Pure: same Registry, same text. What a field or parameter allows is spelled from the
same rule table that enforces it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trails.model.capabilities import Capability, StoredQuery
from trails.model.constraints import RULES
from trails.model.types import PredicateDescriptor, ShapeDescriptor, TypeDescriptor
from trails.registry.registry import Registry


def project_reference(registry: Registry, title: str) -> str:
    """A page that lists every type, shape, capability and stored query."""
    lines = [f"# {title}", "", *_section("Types", map(_type, registry.types.values()))]
    lines += _section("Shapes", map(_shape, registry.shapes.values()))
    lines += _section("Capabilities", map(_capability, registry.capabilities.values()))
    lines += _section("Meta-capabilities", map(_capability, registry.metas.values()))
    lines += _section("Stored queries", map(_query, registry.queries.values()))
    return "\n".join(lines).rstrip() + "\n"


def _section(title: str, entries: Iterable[Iterator[str]]) -> list[str]:
    lines = [line for entry in entries for line in entry]
    return [f"## {title}", "", *lines] if lines else []


def _type(descriptor: TypeDescriptor) -> Iterator[str]:
    yield f"### {descriptor.name}"
    yield ""
    yield _paragraph(descriptor.description)
    yield ""
    edge = descriptor.edge
    if edge is not None:
        yield f"An edge from {edge.source} to {edge.target}."
        yield ""
    if descriptor.extends is not None:
        yield f"Extends {descriptor.extends}."
        yield ""
    yield from _fields("field", descriptor.fields)
    for group in descriptor.unique:
        yield f"Unique together: {', '.join(group)}."
        yield ""


def _shape(descriptor: ShapeDescriptor) -> Iterator[str]:
    yield f"### {descriptor.name}"
    yield ""
    yield _paragraph(descriptor.description)
    yield ""
    if descriptor.target is not None:
        yield f"Adds rules to {descriptor.target}."
        yield ""
    yield from _fields("field", descriptor.fields)


def _capability(capability: Capability) -> Iterator[str]:
    descriptor = capability.descriptor
    yield f"### {descriptor.id}"
    yield ""
    yield _paragraph(descriptor.description)
    yield ""
    returns = descriptor.output_shape
    facts = [f"returns {returns}" if returns is not None else "returns nothing"]
    if descriptor.idempotent:
        facts.append("idempotent")
    if capability.meta is not None:
        facts.append(f"scope {capability.meta.scope}")
    facts += [f"needs that {each}" for each in descriptor.preconditions]
    facts += ["only reads"] if descriptor.reads_only else descriptor.side_effects
    yield f"*{'; '.join(facts)}.*"
    yield ""
    yield from _fields("parameter", descriptor.input_shape)


def _query(query: StoredQuery) -> Iterator[str]:
    yield f"### {query.name}"
    yield ""
    yield _paragraph(query.description)
    yield ""
    facts = ["changes data" if query.mutation else "reads"]
    if query.columns:
        facts.append(f"gives {', '.join(query.columns)}")
    if query.tool_name:
        facts.append(f"tool name {query.tool_name}")
    if not query.expose:
        facts.append("not offered to agents")
    yield f"*{'; '.join(facts)}.*"
    yield ""
    yield from _fields("parameter", query.params)


def _fields(what: str, fields: Iterable[PredicateDescriptor]) -> Iterator[str]:
    rows = [_row(field) for field in fields]
    if rows:
        yield f"| {what} | type | rules | meaning |"
        yield "|---|---|---|---|"
        yield from rows
        yield ""


def _row(field: PredicateDescriptor) -> str:
    cells = (f"`{field.name}`", str(field.type), "; ".join(_rules(field)), field.description)
    return f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _rules(field: PredicateDescriptor) -> Iterator[str]:
    if field.many:
        high = "any number" if field.max_count is None else field.max_count
        if field.min_count or field.max_count is not None:
            yield f"{field.min_count} to {high} values"
    else:
        yield "required" if field.required else "optional"
    for mark in ("key", "unique", "label", "search"):
        if getattr(field, mark):
            yield mark
    for rule in RULES:
        limit = getattr(field, rule.code)
        if limit is not None:
            shown = ", ".join(map(str, limit)) if isinstance(limit, tuple) else limit
            yield f"{rule.code.replace('_', ' ')}: `{shown}`"
    if field.default is not None:
        yield f"default `{field.default}`"


def _paragraph(text: str) -> str:
    return text.strip()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
