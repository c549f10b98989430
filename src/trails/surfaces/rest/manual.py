"""``/docs``, ``/llms.txt`` and ``/llms-full.txt``: the documentation of this version.

They have no data of any graph and need no credential. A wheel has the pages as ``trails/docs``; a
checkout has them beside ``src``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from trails.projections.manual import DOCS_PATH, Manual, read_manual
from trails.projections.pages import HTML, PAGE_HEADERS
from trails.surfaces.rest.replies import refused
from trails.surfaces.rest.routing import Methods, SegmentRoute

LLMS_PATHS: Final = ("/llms.txt", "/llms-full.txt")
_MARKDOWN: Final = "text/markdown; charset=utf-8"


def manual_routes() -> list[SegmentRoute]:
    """The routes of the documentation, at the root of the server."""
    index, full = LLMS_PATHS
    return [
        SegmentRoute(index, Methods({"GET": _llms})),
        SegmentRoute(full, Methods({"GET": _llms_full})),
        SegmentRoute(DOCS_PATH, Methods({"GET": _page})),
        SegmentRoute(f"{DOCS_PATH}/{{page:path}}", Methods({"GET": _page})),
    ]


@cache
def manual() -> Manual:
    """The pages; they do not change while a server runs."""
    package = Path(__file__).parents[2]
    packed = package / "docs"
    return read_manual(packed if packed.is_dir() else package.parents[1] / "docs")


# Anybody may ask for these, so each is made once; there are as many as pages.


@cache
def _index() -> str:
    return manual().llms(DOCS_PATH)


@cache
def _whole() -> str:
    return manual().llms_full(DOCS_PATH)


@cache
def _html(path: str) -> str | None:
    return manual().html(path)


async def _llms(request: Request) -> Response:
    """The index of the documentation, for language models."""
    del request
    return Response(_index(), media_type="text/plain")


async def _llms_full(request: Request) -> Response:
    """The whole documentation, for language models."""
    del request
    return Response(_whole(), media_type="text/plain")


async def _page(request: Request) -> Response:
    """A page of the documentation: for people, or as Markdown if its name ends with ``.md``."""
    path = str(request.path_params.get("page", "")) or "index"
    source = manual().pages.get(path.removesuffix(".md")) if path.endswith(".md") else None
    if source is not None:
        return Response(source, media_type=_MARKDOWN)
    page = _html(path) if path in manual().pages else None
    if page is None:
        raise refused("not_found", f"There is no page {path[:100]!r}; see {DOCS_PATH}.")
    return Response(page, headers=PAGE_HEADERS, media_type=HTML)
