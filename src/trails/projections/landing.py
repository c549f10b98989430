"""Project what an actor sees of a server into its first page, for people or as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from shlex import quote
from typing import Final

import msgspec

from trails.model.texts import count
from trails.projections.manual import DOCS_PATH
from trails.projections.pages import project_page
from trails.projections.problems import ERRORS_PATH


class PageLink(msgspec.Struct, frozen=True):
    """Something else that a server may have."""

    name: str
    path: str
    title: str
    public: bool = False
    """Whether it needs no credential."""


LINKS: Final = (
    PageLink("reference", "/reference", "Reference of the REST interface"),
    PageLink("openapi", "/openapi.json", "The same for programs, as OpenAPI"),
    PageLink("directory", "/.well-known/wot", "Directory of cards (W3C Thing Descriptions)"),
    PageLink("documentation", DOCS_PATH, "Documentation", public=True),
    PageLink("llms", "/llms.txt", "Documentation for language models", public=True),
    PageLink("errors", ERRORS_PATH, "Codes of errors", public=True),
)


class TypeSummary(msgspec.Struct, frozen=True):
    type: str
    count: int
    description: str


class GraphSummary(msgspec.Struct, frozen=True):
    """One graph, as far as an actor sees it."""

    graph: str
    name: str
    """What clients call it: the project, and the graph unless it is ``main``."""
    nodes: int
    types: Sequence[TypeSummary]
    tools: int


class Landing(msgspec.Struct, frozen=True):
    """A server, as an actor sees it."""

    origin: str
    """Scheme, host and port, as the caller wrote them."""
    graphs: Sequence[GraphSummary]
    known: bool
    """Whether the caller is known; to others a server shows nothing of its graphs."""
    guarded: bool
    """Whether the server asks for credentials."""
    issuer: str = ""
    """Where tokens come from, if that is public."""
    links: Sequence[PageLink] = ()


def project_landing(landing: Landing) -> dict[str, object]:
    """The page as JSON."""
    found: dict[str, object] = {
        "server": "Trails",
        "authentication": "bearer" if landing.guarded else "none",
        "graphs": [
            {
                "graph": each.graph,
                "mcp": _mcp(landing, each),
                "rest": f"{landing.origin}/graphs/{each.graph}",
                "card": f"{landing.origin}/graphs/{each.graph}/card",
                "nodes": each.nodes,
                "tools": each.tools,
                "types": each.types,
            }
            for each in landing.graphs
        ],
        "links": {each.name: f"{landing.origin}{each.path}" for each in landing.links},
    }
    if landing.issuer:
        found["issuer"] = landing.issuer
    return found


def project_landing_page(landing: Landing) -> str:
    """The page as HTML."""
    title = landing.graphs[0].name if len(landing.graphs) == 1 else "Trails server"
    return project_page(title, "".join(_parts(title, landing)))


def _parts(title: str, landing: Landing) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    yield (
        "<p>A knowledge graph that agents and programs can read and change: validated and "
        "versioned, over MCP and REST. It is served by Trails.</p>"
    )
    if not landing.known:
        yield from _sign_in(landing)
    elif not landing.graphs:
        yield "<p>There is no graph that you may read.</p>"
    for graph in landing.graphs:
        yield from _graph(landing, graph)
    yield "<h2>More</h2><ul>"
    for each in landing.links:
        yield f'<li><a href="{each.path}">{each.title}</a></li>'
    yield "</ul>"


def _sign_in(landing: Landing) -> Iterator[str]:
    yield "<h2>Sign in</h2><p>This server needs a token with every request: "
    yield "<code>Authorization: Bearer &lt;token&gt;</code>. "
    if landing.issuer:
        yield f"MCP clients get one from <code>{escape(landing.issuer)}</code> by themselves.</p>"
    else:
        yield "Ask its administrator for one (<code>trails token new</code>).</p>"
    accept = "-H 'Accept: application/json'"
    address = quote(f"{landing.origin}/")
    command = f'curl {accept} -H "Authorization: Bearer $TRAILS_TOKEN" {address}'
    yield f"<p>With a token, this address lists the graphs that you may see:</p>{_code(command)}"


def _graph(landing: Landing, graph: GraphSummary) -> Iterator[str]:
    at = f"/graphs/{escape(graph.graph)}"
    yield f'<h2 id="{escape(graph.graph)}">Graph {escape(graph.graph)}</h2>'
    yield f"<p>{count(graph.nodes, 'node')}, {count(graph.tools, 'tool')}. "
    yield f'<a href="{at}/card">Card</a> · <a href="{at}/snapshot">Snapshot</a> · '
    yield f'<a href="{at}/capabilities">Capabilities</a></p>'
    if graph.types:
        yield "<table><tr><th>Type</th><th>Count</th><th>Description</th></tr>"
        for each in graph.types:
            summary = each.description.partition("\n\n")[0]
            yield (
                f'<tr><td><a href="{at}/kg/{escape(each.type)}">{escape(each.type)}</a></td>'
                f'<td class="count">{each.count:,}</td><td>{escape(summary)}</td></tr>'
            )
        yield "</table>"
    yield "<h3>Connect an agent</h3>"
    yield from _snippets(landing, graph)


def _snippets(landing: Landing, graph: GraphSummary) -> Iterator[str]:
    """What to paste into a client."""
    url = _mcp(landing, graph)
    sends = landing.guarded and not landing.issuer  # a header would turn signing in off
    header = ' --header "Authorization: Bearer $TRAILS_TOKEN"' if sends else ""
    add = f"claude mcp add --transport http {quote(graph.name)} {quote(url)}{header}"
    yield f"<p>Claude Code:</p>{_code(add)}"
    entry: dict[str, object] = {"type": "http", "url": url}
    if sends:
        entry["headers"] = {"Authorization": "Bearer <token>"}
    document = msgspec.json.encode({"mcpServers": {graph.name: entry}})
    yield "<p>Other MCP clients, in their configuration:</p>"
    yield _code(msgspec.json.format(document, indent=2).decode())
    rest = quote(f"{landing.origin}/graphs/{graph.graph}/snapshot")
    token = '-H "Authorization: Bearer $TRAILS_TOKEN" ' if landing.guarded else ""
    yield f"<p>Programs use REST:</p>{_code(f'curl {token}{rest}')}"


def _mcp(landing: Landing, graph: GraphSummary) -> str:
    return f"{landing.origin}/graphs/{graph.graph}/mcp"


def _code(text: str) -> str:
    return f"<pre><code>{escape(text)}</code></pre>"
