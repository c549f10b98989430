"""The pages of the documentation: links, paths and code blocks."""

import contextlib
import io
import re
from pathlib import Path

import pytest

import trails
from trails import errors

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_error_tree_is_drawn_completely():
    """The header of errors.py shows every class."""
    for each in vars(errors).values():
        if isinstance(each, type) and issubclass(each, errors.TrailsError):
            assert each.__name__ in (errors.__doc__ or "")


def anchors(page):
    """The anchors of a page's headings, as GitHub and the site make them."""
    text = re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    }


def test_links_lead_somewhere():
    """Relative links in the documentation point at files and headings that exist."""
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            target, _, anchor = link.partition("#")
            if "://" not in target:
                found = page.parent / target if target else page
                assert found.exists(), f"{page.name}: {link}"
                assert not anchor or anchor in anchors(found), f"{page.name}: {link}"


def test_the_index_lists_every_page_once():
    """So every page is in the navigation of the site."""
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\): \S", index, re.MULTILINE)
    pages = {each.relative_to(ROOT / "docs").as_posix() for each in PAGES[1:]} - {"index.md"}
    assert sorted(listed) == sorted(pages)


def test_paths_lead_somewhere():
    """Files that the documentation names exist; packages are relative to ``src/trails``."""
    packages = "|".join(each.name for each in (ROOT / "src/trails").iterdir() if each.is_dir())
    named = re.compile(rf"`((?:src|tests|bench|{packages})/[\w/.*-]+)(?:::\w+)?`")
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for path in named.findall(page.read_text(encoding="utf-8")):
            if not path.startswith("policies/"):  # also a folder of every project
                found = [*ROOT.glob(path), *(ROOT / "src/trails").glob(path)]
                assert found, f"{page.name}: {path}"


def test_the_readme_runs():
    """Its Python blocks, run one after the other, print what they say."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    said = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("# ")]
    printed = io.StringIO()
    scope = {"__name__": "readme"}
    with contextlib.redirect_stdout(printed):
        for block in blocks:
            exec(block, scope)  # noqa: S102 - our own text
    assert printed.getvalue().splitlines() == said
    scope["app"].close()


def test_all_public_names_can_be_imported():
    """What ``trails`` lists is there, and what is there is listed."""
    for name in trails.__all__:
        assert getattr(trails, name) is not None
    assert set(dir(trails)) == set(trails.__all__)
    with pytest.raises(AttributeError):
        _ = trails.nonsense


def test_a_subpackage_takes_no_public_name_away():
    """Python puts a subpackage under its name into the package around it, once it is imported."""
    subpackages = {each.parent.name for each in Path(trails.__file__).parent.glob("*/__init__.py")}
    assert subpackages.isdisjoint(trails.__all__)
