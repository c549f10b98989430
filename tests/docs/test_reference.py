"""The reference says what the code does, and leaves nothing out."""

import inspect
import os
import re
from pathlib import Path

import pytest
from tests.docs.reference_tables import ERRORS, PAGES, PARTS

import trails
from trails import predicate
from trails.model.constraints import FIELD_CODES
from trails.model.kinds import KINDS
from trails.registry.query_headers import HEADER_KEYS, PARAM_KEYS
from trails.surfaces.rest.routes import build_routes
from trails.views.nodes.conditions import LOOKUPS


def marked(name):
    """The place of a part: between two comments of a page."""
    return re.compile(rf"(<!-- made: {name} -->\n)(.*?)(\n<!-- end -->)", re.DOTALL)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_is_what_the_code_says(name):
    """What lacks its entry fails; TRAILS_UPDATE_GOLDEN=1 writes the part anew."""
    wanted = "\n".join(PARTS[name]()).strip()
    (page,) = (each for each in PAGES.glob("*.md") if marked(name).search(each.read_text("utf-8")))
    text = page.read_text(encoding="utf-8")
    if os.environ.get("TRAILS_UPDATE_GOLDEN"):
        text = marked(name).sub(lambda found: found[1] + wanted + found[3], text)
        page.write_text(text, encoding="utf-8")
    assert marked(name).search(text)[2] == wanted


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("declarations", list(inspect.signature(predicate).parameters)),
        ("declarations", [*KINDS, "Ref", "List"]),
        ("declarations", [f"__{name}" for name in LOOKUPS]),
        ("errors", sorted(FIELD_CODES)),
        ("errors", [each.__name__ for each in ERRORS]),
        ("errors", [each.code for each in ERRORS]),
        ("stored-queries", [*HEADER_KEYS, *PARAM_KEYS]),
    ],
)
def test_the_reference_names_everything(page, names):
    """An argument, kind, lookup, code, error or key of a header without an entry fails."""
    text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
    missing = [name for name in names if not re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)]
    assert not missing


def test_the_reference_names_every_route():
    """A path or method that the server answers without an entry fails, and an entry without one."""
    text = (PAGES / "rest.md").read_text(encoding="utf-8")
    served = {
        (each.path.removeprefix("/graphs/{graph}").replace(":path}", "}"), method)
        for each in build_routes({})
        for method in each.app.methods - {"HEAD"}
        if not re.fullmatch(r"/graphs/\{graph\}/admin/[a-z.]+", each.path)  # rows of /admin/{op}
    }
    rows = re.findall(r"^\| (`/[^|]*) \| ([A-Z, ]+) \|", text, re.MULTILINE)
    listed = {
        (path, method)
        for paths, methods in rows
        for path in re.findall(r"`([^`]+)`", paths)
        for method in methods.split(", ")
    }
    assert listed - {("/.well-known/oauth-protected-resource", "GET")} == served


def test_the_reference_names_every_environment_variable():
    """A variable that the program reads without an entry fails."""
    source = Path(trails.__file__).parent.rglob("*.py")
    read = {
        name
        for each in source
        for name in re.findall(r"\bTRAILS_[A-Z_]+\b", each.read_text(encoding="utf-8"))
    }
    pages = "".join(each.read_text(encoding="utf-8") for each in PAGES.glob("*.md"))
    assert read
    assert not {name for name in read if f"`{name}`" not in pages}
