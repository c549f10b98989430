"""``/schema``, ``/stats``, ``/doctor`` and documents of plugins, as resources have them.

Who may read them is decided there: types and statistics are of what the caller sees, and the
doctor is for those who may do the action ``Admin``; for others there is nothing at its path.
"""

from __future__ import annotations

from typing import Final

from starlette.responses import Response

from trails.model.results import Failure
from trails.request.resources.representations import MEDIA, RecordForm, RecordFormat
from trails.surfaces.rest.backend import place_problem, write_document_uri
from trails.surfaces.rest.conditions import send_tagged
from trails.surfaces.rest.negotiation import Representation, choose_form
from trails.surfaces.rest.query_strings import query_arguments
from trails.surfaces.rest.replies import JSON, Refused, refused
from trails.surfaces.rest.routing import RestCall

SCHEMAS: Final = (
    Representation("json", JSON),
    Representation("json_schema", MEDIA["json_schema"]),
    Representation("turtle", "text/turtle; charset=utf-8", ("application/x-turtle",)),
)
"""All that is known of the types; JSON Schema; SHACL shapes."""
_FORMATS: Final[dict[str, RecordFormat]] = {"json_schema": "json_schema", "turtle": "turtle"}


async def read_schema(call: RestCall) -> Response:
    """The types that the caller sees, on a branch or at a commit."""
    shown = choose_form(call.request, SCHEMAS)
    form = RecordForm(_FORMATS.get(shown.name))
    return await _send(call, ("schema",), form, shown.media_type, placed=True)


async def read_stats(call: RestCall) -> Response:
    """How much of everything there is, and how large it is on disk."""
    return await _send(call, ("stats",), RecordForm(), JSON, placed=True)


async def read_doctor(call: RestCall) -> Response:
    """What a check of the graph finds, as ``trails doctor`` reports it."""
    return await _send(call, ("doctor",), RecordForm(), JSON, placed=False)


async def read_plugin(call: RestCall) -> Response:
    """A document of a plugin."""
    names = "plugins", call.part("plugin"), call.part("path")
    return await _send(call, names, RecordForm(), None, placed=False)


async def _send(
    call: RestCall,
    names: tuple[str, ...],
    form: RecordForm,
    media_type: str | None,
    *,
    placed: bool,
) -> Response:
    given = {key: str(value) for key, value in query_arguments(call).items()}
    branch, snapshot = take_place(given) if placed else (None, None)
    if given:
        taken = "branch or snapshot" if placed else "nothing"
        raise refused(
            "query_string", f"{next(iter(given))[:100]!r} is unknown here; this path takes {taken}"
        )
    uri = write_document_uri(*names, branch=branch, snapshot=snapshot)
    found = await call.backend.read_whole(call.actor, uri, form)
    if isinstance(found, Failure):
        raise Refused(found)
    shown = media_type or found[0].mime_type
    return await send_tagged(call, found[0].text.encode(), found[0].commit, shown)


def take_place(given: dict[str, str]) -> tuple[str | None, str | None]:
    """Take branch and snapshot out of a query string."""
    branch, snapshot = given.pop("branch", None), given.pop("snapshot", None)
    if branch is not None and snapshot is not None:
        raise refused(
            "query_string", "branch and snapshot are mutually exclusive; give one of them"
        )
    problem = place_problem(branch, snapshot)
    if problem is not None:
        raise refused("query_string", problem)
    return branch, snapshot
