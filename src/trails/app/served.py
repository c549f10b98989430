"""Compare what a server sends, and documents that it once sent, with declarations.

Asks as clients do: MCP's ``tools/list``, the card, OpenAPI and the list of capabilities. They must
be of one registry, say the same of each callable, and say what the declarations on disk say. A
stored document with the digest of the current registry and other content was edited by hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from trails.app.sessions.connection import ServerConnection
from trails.app.sessions.graphs import list_graphs
from trails.errors import NotFoundError, TrailsError, UnreachableError
from trails.model.capabilities import Tool, ToolList
from trails.model.names import BUILTIN_TOOLS
from trails.model.upkeep import Finding, Report, flag, passed
from trails.projections.coherence import CARD, MCP, OPENAPI, REST, Projection, SharedFields, compare
from trails.projections.examine import (
    callables_of,
    describe_callables,
    describe_tools,
    diverges,
    examine_document,
)
from trails.projections.json_schema import Document
from trails.projections.openapi import REGISTRY
from trails.registry.registry import Registry

ENVIRONMENT: Final = ("TRAILS_MCP_SCOPES", "TRAILS_MCP_TOKEN", "TRAILS_SERVER", "TRAILS_TOKEN")
"""The variables that this program reads."""
_REVISION: Final = "2025-06-18"
_TRIES: Final = 3
_SHOWN: Final = 5
_LARGEST: Final = 32 << 20
_LIST: Final = b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{}}'
_HEADERS: Final = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "MCP-Protocol-Version": _REVISION,
}


class _Listed(msgspec.Struct):
    result: Document


class _Doctor(msgspec.Struct):
    subject: str
    findings: tuple[Finding, ...]


def examine_server(connection: ServerConnection) -> list[Report]:
    """What the server says of its graphs, and whether its surfaces agree."""
    graphs = list_graphs(connection)
    if graphs is None:
        raise NotFoundError(
            "the server does not list its graphs to this caller; doctor needs the action Admin"
        )
    return [
        Report(
            f"Graph {name}",
            (*served_findings(connection, name), *examine_wires(connection, name)),
        )
        for name in graphs
    ]


def served_findings(connection: ServerConnection, graph: str) -> tuple[Finding, ...]:
    """The findings of the server itself."""
    body = connection.ask("GET", f"/graphs/{quote(graph, safe='')}/doctor")
    try:
        return msgspec.json.decode(body, type=_Doctor).findings
    except msgspec.DecodeError:
        raise UnreachableError("the server has no doctor; it may be an older version") from None


def examine_wires(
    connection: ServerConnection, graph: str, declared: Registry | None = None
) -> Iterator[Finding]:
    """Compare the surfaces of a graph with each other and with what is declared on disk."""
    documents = _fetch_alike(connection, graph)
    digests = {kind.title: str(kind.digest(document)) for kind, document in documents}
    if len(set(digests.values())) > 1:
        shown = ", ".join(f"{title} {digest}" for title, digest in digests.items())
        yield flag(
            "registry_mixed",
            f"surfaces are of different registries: {shown}",
            "restart the server; if a proxy or cache is in front of it, let it keep none of these",
            where=graph,
        )
        return
    (_, listed), *others = documents
    expected = REST.callables(listed)
    wrong = [each for kind, document in others for each in compare(kind, expected, document)]
    for each in wrong:
        yield diverges(each, graph)
    if not wrong:
        yield passed(
            "surfaces", f"{len(expected)} tools, the same over MCP, REST, OpenAPI and the card"
        )
    if declared is not None:
        yield from _examine_files(expected, declared, graph)


def _examine_files(
    served: Mapping[str, SharedFields], declared: Registry, graph: str
) -> Iterator[Finding]:
    """Report what the files declare otherwise than the server, which read them before."""
    sources = callables_of(declared)
    wanted = describe_callables(sources, declared)
    needed = {each.id for each in declared.capabilities.values()}
    changed = sorted(
        {name for name in wanted if name in served and served[name] != wanted[name]}
        | (needed - served.keys())
        | (served.keys() - wanted.keys() - BUILTIN_TOOLS)
    )
    if changed:
        more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
        yield flag(
            "declarations_changed",
            f"the server runs other declarations than the files: {', '.join(changed[:_SHOWN])}"
            f"{more}",
            "run 'trails reload', so that the server reads the files again",
            where=graph,
        )


def _fetch_alike(connection: ServerConnection, graph: str) -> list[tuple[Projection, Document]]:
    """All lists of callables; again while a registration comes between them."""
    for _ in range(_TRIES):
        documents = _fetch(connection, graph)
        if len({str(kind.digest(document)) for kind, document in documents}) == 1:
            break
    return documents


def _fetch(connection: ServerConnection, graph: str) -> list[tuple[Projection, Document]]:
    """Ask for every list; an answer of another form is not of a Trails server."""
    try:
        return _ask(connection, graph)
    except (msgspec.MsgspecError, RecursionError):
        raise UnreachableError(
            f"what the server sends about graph {graph!r} is not what a Trails server sends; "
            "look for what is in front of it"
        ) from None


def _ask(connection: ServerConnection, graph: str) -> list[tuple[Projection, Document]]:
    root = f"/graphs/{quote(graph, safe='')}"
    decode = msgspec.json.Decoder(Document).decode
    listed = connection.send(f"{root}/mcp", {}, [_LIST], _HEADERS)
    capabilities = decode(connection.ask("GET", f"{root}/capabilities"))
    described = decode(connection.ask("GET", "/openapi.json"))
    return [
        (REST, capabilities),
        (CARD, decode(connection.ask("GET", f"{root}/card"))),
        (MCP, msgspec.json.decode(listed, type=_Listed).result),
        (OPENAPI, _of_graph(described, graph, str(REST.digest(capabilities)))),
    ]


def _of_graph(document: Document, graph: str, registry: str) -> Document:
    """The part of an OpenAPI document that is about one graph; it has the digests of all."""
    root = f"/graphs/{quote(graph, safe='')}/"
    paths, info = document.get("paths"), document.get("info")
    if not isinstance(paths, dict) or not isinstance(info, dict):
        return document
    digests = str(info.get(REGISTRY)).split()
    own = {path: each for path, each in paths.items() if path.startswith(root)}
    digest = registry if registry in digests else " ".join(digests)
    return {**document, "paths": own, "info": {**info, REGISTRY: digest}}


# --- stored documents ------------------------------------------------------------------------


def examine_stored(file: Path, graphs: Mapping[str, ToolList]) -> tuple[Finding, ...]:
    """Compare a stored document with the graph that it describes best."""
    where = str(file)
    try:
        document = _read(file)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        fix = "give a JSON document that a server of this project made"
        return (flag("projection_unknown", f"it can't be read: {reason}", fix, where=where),)
    found = []
    for name, each in graphs.items():
        own = document
        if isinstance(document, dict) and OPENAPI.is_of(document):
            own = _of_graph(document, name, each.registry)
        try:
            for tools in (each.tools, [tool for tool in each.tools if not _needs_scope(tool)]):
                expected = describe_tools(tools)
                found.append(tuple(examine_document(own, expected, each.registry, where)))
        except RecursionError:
            fix = "make the document anew"
            return (flag("projection_unknown", "it is nested too deeply", fix, where=where),)
    return min(found, key=_distance)


def _needs_scope(tool: Tool) -> bool:
    """Whether it is a built-in that callers without its scope have no document of."""
    return tool.meta is not None and tool.name in BUILTIN_TOOLS


def _read(file: Path) -> object:
    with file.open("rb") as stream:
        content = stream.read(_LARGEST + 1)
    if len(content) > _LARGEST:
        raise ValueError(f"it is larger than {_LARGEST >> 20} MiB")
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({error})") from None


def _distance(findings: Sequence[Finding]) -> tuple[bool, int]:
    """How far a document is from a graph: its digest first, then the number of findings."""
    outdated = any(each.code == "projection_outdated" for each in findings)
    return outdated, sum(len(each.detail) for each in findings)


def examine_environment(variables: Mapping[str, str], known: Sequence[str]) -> Iterator[Finding]:
    """Report variables that nothing reads, which are probably misspelt."""
    for name in sorted(variables):
        if name.startswith("TRAILS_") and name not in known:
            fix = f"use one of {', '.join(known)}, or unset it"
            yield flag("environment_unknown", f"nothing reads {name}", fix, where=name)


def safely(findings: Iterator[Finding], graph: str) -> tuple[Finding, ...]:
    """The findings of a check that asks a server; what it refuses is one, too."""
    try:
        return tuple(findings)
    except TrailsError as error:
        return (flag("graph_unreadable", error.message, where=graph),)
