"""The tables of the reference that say what MCP clients meet are made from the code."""

import os
import re
from pathlib import Path
from typing import get_args

import pytest

from trails import App, Node, node_type, predicate
from trails.model.names import portable_name
from trails.model.results import Failure, FailureKind
from trails.projections.resources import project_resources
from trails.request.builtins import BUILTINS, BY_NAME
from trails.surfaces.mcp.failures import ErrorResult, map_failure
from trails.surfaces.mcp.wire import MODERN
from trails.surfaces.rest.replies import BY_CODE, BY_KIND, status_of

PAGE = Path(__file__).parents[2] / "docs" / "reference.md"
OLDER, NEWEST = "2025-11-25", max(MODERN)


@node_type
class Thing(Node):
    """Something."""

    name: str = predicate(key=True)


def sentence(text):
    """The first sentence of a description, on one line of a table."""
    first = " ".join(re.split(r"(?<=\.)\s", text.strip())[0].split())
    return first.replace("|", "\\|")


def tools():
    """Every tool that any graph may have."""
    yield from ("| tool | takes | does |", "|---|---|---|")
    for tool in sorted((*BUILTINS, *BY_NAME), key=lambda each: each.name):
        takes = ", ".join(f"`{each.name}`" for each in (*tool.fields, *tool.controls))
        yield f"| `{tool.name}` | {takes} | {sentence(tool.description)} |"
    for meta in App(Thing).registry().metas.values():
        yield f"| `{portable_name(meta.id)}` | | {sentence(meta.descriptor.description)} |"


def resources():
    """Every resource and template; ``Type`` stands for each type of the graph."""
    yield from ("| URI | is |", "|---|---|")
    listed = project_resources(App(Thing).registry().schema)
    uris = [(each.uri, each) for each in listed.resources]
    uris += [(each.uri_template, each) for each in listed.templates]
    for uri, each in uris:
        yield f"| `{uri}` | {sentence(each.description)} |".replace("Thing", "Type")


def failures():
    """Every kind of failure, on each surface."""
    yield from (f"| failure | MCP until {OLDER} | MCP {NEWEST} | REST |", "|---|---|---|---|")
    for kind in get_args(FailureKind):
        failure = Failure(kind, kind, "message")
        said = [said_by_mcp(failure, revision) for revision in (OLDER, NEWEST)]
        status = BY_KIND.get(kind) or f"by its code, else {status_of(failure)}"
        yield f"| {kind} | {said[0]} | {said[1]} | {status} |"
    yield ""
    yield "By its code:"
    yield ""
    by_status = {}
    for code, status in BY_CODE.items():
        by_status.setdefault(status, []).append(f"`{code}`")
    rows = (f"{status} {', '.join(by_status[status])}" for status in sorted(by_status))
    yield "; ".join(rows) + "."


def said_by_mcp(failure, revision):
    """How a tool's failure is told."""
    told = map_failure(failure, revision, "protocol")
    return "a result with `isError`" if isinstance(told, ErrorResult) else f"error {told.code}"


PARTS = {"tools": tools, "resources": resources, "failures": failures}


@pytest.mark.parametrize("name", PARTS)
def test_a_table_is_what_the_code_says(name):
    """What lacks its row fails; TRAILS_UPDATE_GOLDEN=1 writes the rows anew."""
    part = re.compile(rf"(<!-- made: {name} -->\n)(.*?)(\n<!-- end -->)", re.DOTALL)
    wanted = "\n".join(PARTS[name]())
    text = PAGE.read_text(encoding="utf-8")
    if os.environ.get("TRAILS_UPDATE_GOLDEN"):
        text = part.sub(lambda found: found[1] + wanted + found[3], text)
        PAGE.write_text(text, encoding="utf-8")
    assert part.search(text)[2] == wanted
