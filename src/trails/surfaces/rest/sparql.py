"""The SPARQL 1.1 Protocol: queries by GET, as a form, or as the body itself.

Parameters that the protocol does not define are ignored, because clients send some of their own
(``format``, ``output``). Those that would change what is read are refused where they can't be
obeyed: a graph here is one default graph, its branches and snapshots are in the path, and it is
changed by ``mutate``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from starlette.responses import Response

from trails.model.results import Failure
from trails.request.builtins.sparql import FORM, QUERY, ResultKind
from trails.surfaces.rest.bodies import media_type, read_text, wrong_type
from trails.surfaces.rest.negotiation import Representation, choose
from trails.surfaces.rest.replies import Refused, refused
from trails.surfaces.rest.routing import RestCall

FORMATS: Final[Mapping[ResultKind, tuple[Representation, ...]]] = {
    "solutions": (
        Representation("json", "application/sparql-results+json", ("application/json",)),
        Representation("xml", "application/sparql-results+xml", ("application/xml", "text/xml")),
        Representation("csv", "text/csv; charset=utf-8"),
        Representation("tsv", "text/tab-separated-values; charset=utf-8"),
    ),
    "graph": (
        Representation("turtle", "text/turtle; charset=utf-8", ("application/x-turtle",)),
        Representation("ntriples", "application/n-triples", ("text/plain",)),
        Representation("jsonld", "application/ld+json", ("application/json",)),
        Representation("rdfxml", "application/rdf+xml", ("application/xml", "text/xml")),
    ),
}
UPDATE: Final = "application/sparql-update"
_MOST: Final = 1000
"""Parameters of a form."""
_INSTEAD: Final = "send updates to the route 'mutate', which checks them and makes a commit"


async def sparql(call: RestCall) -> Response:
    """Run a query, on the branch or at the commit that the path names."""
    given = call.request.path_params
    place = {name: given[part] for part, name in _PLACES.items() if part in given}
    query = _read_query(call, await _parameters(call))
    accept = ", ".join(call.request.headers.getlist("accept"))
    found = await call.backend.transfers.sparql(
        call.actor, {"query": query, **place}, lambda kind: choose(accept, FORMATS[kind]).name
    )
    if isinstance(found, Failure):
        raise Refused(found)
    media = next(each.media_type for each in FORMATS[found.kind] if each.name == found.format)
    return Response(found.body, headers={"Content-Type": media, "Vary": "Accept"})


_PLACES: Final = {"branch": "branch", "commit": "snapshot"}
"""Parameters of the path, and the arguments that they are."""


async def _parameters(call: RestCall) -> list[tuple[str, str]]:
    """The parameters of a request, wherever its form has them."""
    parameters = call.request.query_params.multi_items()
    if call.request.method != "POST":
        return parameters
    media = media_type(call.request)
    if media == UPDATE:
        raise refused("media_type", f"this endpoint only reads; {_INSTEAD}")
    if media not in {QUERY, FORM}:
        raise wrong_type(media, QUERY, FORM)
    text = await read_text(call)
    if media == QUERY:
        return [*parameters, ("query", text)]
    try:
        return [*parameters, *parse_qsl(text, True, errors="strict", max_num_fields=_MOST)]
    except ValueError:  # bytes that are not UTF-8, or too many parameters
        raise refused("text", f"the form must be UTF-8 with at most {_MOST} parameters") from None


def _read_query(call: RestCall, parameters: list[tuple[str, str]]) -> str:
    names = [name for name, _ in parameters]
    if "update" in names:
        raise refused("query", f"this endpoint only reads; {_INSTEAD}")
    for name in ("branch", "snapshot"):
        if name in names:
            where = "branches/{branch}/sparql" if name == "branch" else "commits/{commit}/sparql"
            message = f"a {name} is a part of the path here: …/{where}"
            raise refused("query_string", message)
    own = call.backend.transfers.uri
    for name, value in parameters:
        if name == "named-graph-uri" or (name == "default-graph-uri" and value != own):
            message = (
                f"{name}={value[:200]!r}: graphs here have no named graphs; leave it out, or name "
                f"this graph with default-graph-uri={own}"
            )
            raise refused("query", message)
    queries = [value for name, value in parameters if name == "query"]
    if len(queries) != 1:
        problem = "the query is given twice" if queries else "there is no query"
        raise refused(
            "query_string",
            f"{problem}; send it once: as the parameter 'query' of a GET or of a form, or as a "
            f"body of the type {QUERY}",
        )
    return queries[0]
