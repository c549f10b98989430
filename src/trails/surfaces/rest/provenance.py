"""``/prov``: the activities of a graph as JSON, or as PROV-O in Turtle or JSON-LD."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.responses import Response

from trails.model.operations.history import ActivityList
from trails.projections.provenance import project_provenance, write_json_ld, write_turtle
from trails.surfaces.rest.negotiation import Representation, choose_form
from trails.surfaces.rest.replies import JSON
from trails.surfaces.rest.routing import Handler, RestCall

FORMATS: Final = (
    Representation("json", JSON),
    Representation("jsonld", "application/ld+json"),
    Representation("turtle", "text/turtle; charset=utf-8", ("application/x-turtle",)),
)


def provenance(plain: Handler) -> Handler:
    """The handler of the list; ``plain`` answers with JSON, and with the cursor of the next page.

    Other forms have that cursor in their Link header.
    """

    async def answer(call: RestCall) -> Response:
        wanted = choose_form(call.request, FORMATS)
        response = await plain(call)
        if wanted.name == "json" or response.status_code != 200:
            return response
        page = msgspec.json.decode(response.body, type=ActivityList)
        found = project_provenance(page.activities, call.backend.transfers.uri)
        body = write_turtle(found) if wanted.name == "turtle" else write_json_ld(found)
        links = {"Link": response.headers["link"]} if "link" in response.headers else {}
        headers = {**links, "Vary": "Accept"}
        return Response(body, headers=headers, media_type=wanted.media_type)

    return answer
