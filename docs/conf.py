"""How Sphinx builds the site: ``make docs``.

The pages are plain Markdown, readable without the site. ``index.md`` is the navigation: the links
under each of its headings become a part of the sidebar. The site also has ``llms.txt``,
``llms-full.txt`` and the Markdown of each page.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

from trails.projections.manual import read_manual

project = "Trails"
html_title = "Trails"
project_copyright = "The Trails authors"
extensions = ["myst_parser"]
root_doc = "index"
exclude_patterns = ["conf.py"]

html_theme = "furo"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"font-stack": "system-ui, sans-serif"},
}

# Headings have the anchors that GitHub gives them, so that links work in both places.
myst_heading_anchors = 4
nitpicky = True
suppress_warnings = ["misc.highlighting_failure"]  # "…" in a block is not JSON or TOML to Pygments

_OUTSIDE = re.compile(r"\[([^\]]*)\]\((?:\.\./)+(?:CONTRIBUTING|CHANGELOG|README|examples)[^)]*\)")
_SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
_LINK = re.compile(r"^- \[[^\]]*\]\(([^)#]+)\.md\)", re.MULTILINE)


def adapt(app: Sphinx, page: str, source: list[str]) -> None:
    """Name files outside of the site instead of linking them, and make the navigation."""
    del app
    text = _OUTSIDE.sub(r"\1 (in the repository)", source[0])
    source[0] = text + navigation(text) if page == root_doc else text


def navigation(index: str) -> str:
    """A hidden table of contents for each heading of the index."""
    _, *parts = _SECTION.split(index)
    tables = (
        f"```{{toctree}}\n:hidden:\n:caption: {caption}\n\n{pages}\n```\n"
        for caption, part in zip(parts[::2], parts[1::2], strict=True)
        if (pages := "\n".join(_LINK.findall(part)))
    )
    return "\n".join(("", *tables))


def add_texts(app: Sphinx, error: Exception | None) -> None:
    """Write what language models read."""
    if error is not None:
        return
    manual, out = read_manual(Path(app.srcdir)), Path(app.outdir)
    for name, text in manual.pages.items():
        page = out / f"{name}.md"
        page.parent.mkdir(exist_ok=True)
        page.write_text(text, encoding="utf-8")
    (out / "llms.txt").write_text(manual.llms("."), encoding="utf-8")
    (out / "llms-full.txt").write_text(manual.llms_full("."), encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("source-read", adapt)
    app.connect("build-finished", add_texts)
