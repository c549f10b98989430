"""A capability that another replaces: each surface says so, to those who may use the other."""

import json
from email.utils import parsedate_to_datetime

import pytest
from tests.conformance.cards import problems_of
from tests.journeys.access.shop import ACTORS, Shop
from tests.worlds.processes import run_command
from tests.worlds.projects import make_project
from tests.worlds.surfaces import Wires, ask_app

from trails import App, Context, capability
from trails.errors import DeclarationError

APP = '''
"""Notes."""

from __future__ import annotations

from trails import Context, capability


@capability("notes.put")
def put(ctx: Context, slug: str = "") -> str:
    """Put a note."""
    return slug


@capability("notes.old")
def old(ctx: Context) -> str:
    """An older one."""
    return ""


@capability(
    "notes.add", deprecates=["notes.put; since=2026-10-01; sunset=2027-04-01", "notes.old"]
)
def add(ctx: Context, slug: str = "") -> str:
    """Add a note."""
    return slug
'''
MARK = {"by": "notes.add", "since": "2026-10-01", "sunset": "2027-04-01"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A project with two deprecated capabilities."""
    return make_project(tmp_path_factory.mktemp("deprecations") / "acme", APP)


def test_every_surface_says_what_is_deprecated_and_what_replaces_it(folder):
    """MCP, the card, REST and OpenAPI; other tools carry no mark."""
    with App.open(folder) as app, Wires(app) as wires:
        for _, message in wires.everywhere("tools/list", {}):
            marks = {
                each["name"]: each["_meta"]["dev.trails/tool"].get("deprecated")
                for each in message["result"]["tools"]
            }
            assert {name: each for name, each in marks.items() if each} == {
                "notes.put": MARK,
                "notes.old": {"by": "notes.add"},
            }
        card = json.loads(wires.rest("GET", "/card").body)
        assert problems_of(card) == []
        marked = {name for name, each in card["actions"].items() if "@type" in each}
        assert marked == {"notes.put", "notes.old"}
        assert {
            "href": "invoke/notes.add",
            "rel": "successor-version",
            "anchor": "invoke/notes.put",
        } in card["links"]
        listed = json.loads(wires.rest("GET", "/capabilities").body)["capabilities"]
        assert {each["name"]: each["deprecated"] for each in listed if each.get("deprecated")} == {
            "notes.put": MARK,
            "notes.old": {"by": "notes.add"},
        }
        scope = {"path": "/openapi.json", "raw_path": b"/openapi.json"}
        reply = wires.doors.run(ask_app(wires.rest_app, [], [b""], "GET", **scope))
        marked = {
            operation["x-trails-tool"]
            for methods in reply.message["paths"].values()
            for operation in methods.values()
            if operation.get("deprecated")
        }
        assert marked == {"notes.put", "notes.old"}


@pytest.mark.parametrize("spelled", ["notes.put", "notes_put"])
def test_a_deprecated_call_says_so_in_its_headers(folder, spelled):
    """With the dates that the declaration has; a call of its successor has none of them."""
    with App.open(folder) as app, Wires(app) as wires:
        reply = wires.rest("POST", f"/invoke/{spelled}", {})
        headers = {name.decode(): value.decode() for name, value in reply.headers}
        assert reply.status == 200
        assert headers["deprecation"] == "@1790812800"  # 2026-10-01
        sunset = parsedate_to_datetime(headers["sunset"])
        assert sunset.isoformat() == "2027-04-01T00:00:00+00:00"
        assert headers["link"] == '<notes.add>; rel="successor-version"'
        undated = dict(wires.rest("POST", "/invoke/notes.old", {}).headers)
        assert undated[b"deprecation"].startswith(b"@1")
        assert b"sunset" not in undated
        for name in ("notes.add", "graph_health", "trails_meta_ping"):
            fresh = dict(wires.rest("POST", f"/invoke/{name}", {}).headers)
            assert not {b"deprecation", b"sunset", b"link"} & fresh.keys()


def test_the_command_line_warns(folder):
    """On standard error, so that its output stays what it was."""
    done = run_command(("call", "notes.put", "--json"), folder)
    assert (done.returncode, json.loads(done.stdout)) == (0, {"result": ""})
    assert "notes.put is deprecated; use notes.add" in done.stderr
    listed = run_command(("tools", "notes.put"), folder).stdout
    assert "deprecated: use notes.add" in listed
    assert "deprecated" not in run_command(("tools", "notes.add"), folder).stdout


def test_a_successor_that_is_hidden_is_not_named(tmp_path):
    """Nor is what it deprecates marked: for who can't use it, nothing has changed."""
    with Shop(tmp_path / "shop") as shop:

        @capability("canary.more", side_effects=["none"], deprecates=["tasks.count"])
        def more(ctx: Context) -> int:
            """Count more."""
            return 1

        shop.app.register(more)
        for name, marked in (("admin", {"tasks.count"}), ("runner", set())):
            listed = shop.kernel.tools(ACTORS[name])
            assert "tasks.count" in {each.name for each in listed.tools}
            assert set(listed.deprecated) == marked
            assert {each.name for each in listed.tools if each.deprecated} == marked


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("notes.put; since=yesterday", "is not a date"),
        ("notes.put; until=2027-01-01", "is not since=DATE or sunset=DATE"),
        ("notes.put; since=2026-01-01; since=2026-01-02", "at most once"),
        ("notes.put; since=2027-01-01; sunset=2026-01-01", "is before since"),
    ],
)
def test_a_deprecation_that_cannot_be_read_is_refused(text, reason):
    """When it is declared, with what is wrong."""
    with pytest.raises(DeclarationError, match=reason):
        capability("notes.add", deprecates=[text])
