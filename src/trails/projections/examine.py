"""Check declarations and their projections, by the registry and by documents alone.

Part of ``trails doctor``: names that clients refuse, arguments that ask for secrets, declarations
that nothing uses, and projections that say something else than their descriptors. Served and
stored documents are passed in; a divergence is named with capability and field.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from trails.model.capabilities import Capability, StoredQuery, Tool, parse_deprecation
from trails.model.names import portable_name, suggest
from trails.model.texts import count
from trails.model.types import OBJECT
from trails.model.upkeep import Finding, flag, passed
from trails.projections.coherence import (
    CARD,
    MCP,
    OPENAPI,
    REST,
    Divergence,
    Projection,
    SharedFields,
    compare,
    describe,
    describe_tool,
    recognise,
)
from trails.projections.json_schema import Document, TypeLookup
from trails.projections.mcp_tools import project_mcp_tool
from trails.projections.openapi import invocation_route, project_paths
from trails.projections.thing_description import CardAction, Security, project_action
from trails.projections.tools import project_capability, project_query
from trails.registry.registry import Registry

_COMMON: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Names that every common client accepts."""
_SECRET: Final = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|token|api_?key|credentials?|private_?key)($|_)"
)
_SHOWN: Final = 5


def examine_tools(registry: Registry) -> Iterator[Finding]:
    """Report names that some clients refuse, and arguments that ask for secrets."""
    names = list(registry.tools)
    long = [name for name in names if len(name) > 64]
    dotted = [name for name in names if len(name) <= 64 and not _COMMON.fullmatch(name)]
    if long:
        yield flag(
            "tool_name_long",
            f"{_several(long)} longer than 64 characters, which common clients refuse",
            "choose shorter names, or set tool_name in the header of a stored query",
            where=long[0],
        )
    if dotted:
        yield flag(
            "tool_name_dotted",
            f"{_several(dotted)} written with dots, which some clients refuse; a call spelled "
            f"{portable_name(dotted[0])!r} works as well",
            where=dotted[0],
        )
    if not long and not dotted:
        yield passed("tool names", f"{len(names)} that every common client accepts")
    for capability in (*registry.capabilities.values(), *registry.metas.values()):
        yield from _examine_arguments(capability)


def _examine_arguments(capability: Capability) -> Iterator[Finding]:
    asked = [
        field.name
        for field in capability.descriptor.input_shape
        if _SECRET.search(field.name.lower())
    ]
    if asked:
        yield flag(
            "argument_secret",
            f"{capability.id} takes {', '.join(asked)}: what a model is given ends up in its "
            "context and in logs",
            "let the server read the secret from its environment, and take a name for it instead",
            where=capability.id,
        )


def _several(names: Iterable[str]) -> str:
    """Some names, and the number of the others."""
    names = list(names)
    shown, more = ", ".join(names[:_SHOWN]), len(names) - _SHOWN
    listed = f"{shown} and {more} more" if more > 0 else shown
    return f"{listed} {'is' if len(names) == 1 else 'are'}"


# --- declarations that nothing uses ------------------------------------------------------------


def examine_declarations(registry: Registry) -> Iterator[Finding]:
    """Report shapes and rules without use, and what deprecates or is deprecated."""
    yield from _unused_shapes(registry)
    callables = (*registry.capabilities.values(), *registry.metas.values())
    required = {name for each in callables for name in each.descriptor.policy_required}
    for name in registry.rules.keys() - required:
        fix = f"add @policy({name!r}) to a capability, or delete the rule"
        yield flag("rule_unused", f"no capability is judged by the rule {name!r}", fix, where=name)
    for each in callables:
        for text in each.descriptor.deprecates:
            old, _, _ = parse_deprecation(text)
            if registry.capability(old) is None:
                hint = suggest(old, [known.id for known in callables if known is not each])
                yield flag(
                    "deprecates_unknown",
                    f"{each.id} deprecates {old}, which does not exist; {hint}",
                    f"correct the name in deprecates of {each.id}, or remove it",
                    where=each.id,
                )
            else:
                yield flag(
                    "deprecated_tool",
                    f"{old} is deprecated by {each.id}, and still offered",
                    f"let callers use {each.id}, then delete {old}",
                    where=old,
                )


def _unused_shapes(registry: Registry) -> Iterator[Finding]:
    callables = (*registry.capabilities.values(), *registry.metas.values())
    fields = [field for each in callables for field in each.descriptor.input_shape]
    fields += [field for query in registry.queries.values() for field in query.params]
    named = {field.type.scalar.target for field in fields if field.type.scalar.kind == OBJECT}
    for each in callables:
        if each.descriptor.output_shape is not None:
            named.add(each.descriptor.output_shape.scalar.target)
    for shape in registry.shapes.values():
        named |= {field.type.scalar.target for field in shape.fields}
    for name, shape in registry.shapes.items():
        if name not in named and shape.target is None:
            fix = "use it in a capability, attach it to a type with target=…, or delete it"
            yield flag("shape_unused", f"nothing uses the shape {name}", fix, where=name)


# --- projections -------------------------------------------------------------------------------

Documents = Sequence[tuple[Projection, Document]]


def callables_of(registry: Registry) -> list[Capability | StoredQuery]:
    """Everything that a registry declares to be called."""
    exposed = (each for each in registry.queries.values() if each.expose)
    return [*registry.capabilities.values(), *registry.metas.values(), *exposed]


def describe_callables(
    sources: Iterable[Capability | StoredQuery], declared: TypeLookup
) -> dict[str, SharedFields]:
    """What projections must say, by name."""
    return {each.id: each for each in (describe(source, declared) for source in sources)}


def project_documents(tools: Iterable[Tool]) -> Documents:
    """What each surface makes of some tools, as its clients read it."""
    listed = list(tools)
    routes = [invocation_route("", CardAction(each)) for each in listed]
    made: list[tuple[Projection, object]] = [
        (MCP, {"tools": [project_mcp_tool(each) for each in listed]}),
        (CARD, {"actions": {each.name: project_action(CardAction(each)) for each in listed}}),
        (OPENAPI, {"openapi": "", "paths": project_paths(routes, Security())}),
        (REST, {"capabilities": listed}),
    ]
    return [(kind, msgspec.json.decode(msgspec.json.encode(each))) for kind, each in made]


def examine_round_trips(registry: Registry) -> Iterator[Finding]:
    """Take every descriptor through every projection and back."""
    sources = callables_of(registry)
    tools = [
        project_query(each, registry, {"type": "object"})
        if isinstance(each, StoredQuery)
        else project_capability(each, registry)
        for each in sources
    ]
    yield from examine_documents(describe_callables(sources, registry), project_documents(tools))


def examine_documents(
    expected: Mapping[str, SharedFields], documents: Documents, where: str = ""
) -> Iterator[Finding]:
    """Report each field of a document that differs from its descriptor."""
    wrong = [each for kind, document in documents for each in compare(kind, expected, document)]
    for each in wrong[:_MOST]:
        yield diverges(each, where)
    if not wrong:
        surfaces = ", ".join(dict.fromkeys(kind.title for kind, _ in documents))
        declared = count(len(expected), "callable")
        yield passed("projections", f"{declared}, as declared on each surface ({surfaces})")


def diverges(found: Divergence, where: str = "") -> Finding:
    """A divergence as a finding."""
    return flag(
        "projection_diverges",
        describe_divergence(found),
        "a projection is made from its declaration and never edited: change the declaration, "
        "restart the server, and look for what rewrites its answers",
        where=f"{where or found.projection}: {found.name}",
    )


def describe_divergence(found: Divergence) -> str:
    """In words, with both values."""
    if not found.field:
        expected, there = found.expected, found.found
        wanted = "declared once" if expected else "not declared"
        return f"{found.name} is {wanted}, and {found.projection} lists it {there} times"
    return (
        f"{found.name}: {found.field} of the {found.projection} is {_short(found.found)}, and its "
        f"declaration says {_short(found.expected)}"
    )


_MOST: Final = 20
_LONGEST: Final = 120


def _short(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return repr(shown) if isinstance(value, str) else shown


def examine_document(
    document: object, expected: Mapping[str, SharedFields], registry: str, where: str
) -> Iterator[Finding]:
    """Compare a stored document with what is declared now.

    ``expected`` has built-ins too; ``registry`` is the digest that a document made now has.
    """
    known = recognise(document)
    if known is None:
        detail = "it is neither a card, an OpenAPI document nor a list of tools"
        fix = "give a document of a server: its card, /openapi.json, /capabilities or tools/list"
        yield flag("projection_unknown", detail, fix, where=where)
        return
    kind, found = known
    wrong = list(compare(kind, expected, found))
    if kind.digest(found) == registry:
        for each in wrong[:_MOST]:
            fix = "make the document anew, and put the change into the declaration"
            yield flag("projection_edited", describe_divergence(each), fix, where=where)
        if not wrong:
            yield passed("projections", f"{where} is as it was made, of these declarations")
        return
    changed = sorted({each.name for each in wrong})
    about = f": {', '.join(changed[:_SHOWN])}" if changed else ", though nothing here differs"
    detail = f"its digest is not that of the declarations ({registry}){about}"
    yield flag("projection_outdated", detail, "make the document anew", where=where)


def describe_tools(tools: Iterable[Tool]) -> dict[str, SharedFields]:
    """What declarations say of built-ins, which are tools themselves."""
    return {each.name: describe_tool(each) for each in tools}
