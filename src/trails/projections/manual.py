"""The documentation that a server carries: its pages, ``llms.txt`` and ``llms-full.txt``.

The pages are the Markdown files of ``docs``. ``index.md`` is the navigation and, as it has the form
of https://llmstxt.org, the text of ``llms.txt`` too. ``llms-full.txt`` has all pages but those that
the index calls optional.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import TYPE_CHECKING, Final

import msgspec

from trails.projections.pages import project_page

if TYPE_CHECKING:
    from markdown_it.token import Token

DOCS_PATH: Final = "/docs"
_SUFFIX: Final = ".md"
_INDEX: Final = "index"
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_LISTED: Final = re.compile(r"^- \[[^\]]*\]\(([^)#]+)\.md\)", re.MULTILINE)
_OPTIONAL: Final = "\n## Optional\n"
_COMMENT: Final = re.compile(r"^<!--.*?-->\n", re.MULTILINE)


class Manual(msgspec.Struct, frozen=True, eq=False):
    """The pages by their path without suffix, such as ``how-to/agents``."""

    pages: Mapping[str, str]

    def llms(self, base: str) -> str:
        """The index, with links that begin with ``base``."""
        return _link_to(self.pages[_INDEX], _INDEX, base)

    def llms_full(self, base: str) -> str:
        """The index and the pages that it lists, one after the other."""
        index = self.pages[_INDEX].partition(_OPTIONAL)[0]
        texts = [_link_to(index, _INDEX, base)]
        texts += [_link_to(self.pages[path], path, base) for path in _LISTED.findall(index)]
        return "\n\n".join(text.strip() for text in texts) + "\n"

    def html(self, path: str) -> str | None:
        """A page for people; None if there is no such page."""
        text = self.pages.get(path)
        return None if text is None else _render(_link_to(text, path, DOCS_PATH, suffix=""))


def read_manual(folder: Path) -> Manual:
    """Read the pages of a folder; one without any has an empty index."""
    found = {
        file.relative_to(folder).as_posix().removesuffix(_SUFFIX): _COMMENT.sub(
            "", file.read_text(encoding="utf-8")
        )
        for file in sorted(folder.rglob(f"*{_SUFFIX}"))
    }
    return Manual({_INDEX: "# Trails\n", **found})


def _link_to(text: str, path: str, base: str, suffix: str = _SUFFIX) -> str:
    """A page with its links to other pages below ``base``; others stay as they are."""

    def link(found: re.Match[str]) -> str:
        target, mark, anchor = found[1].partition("#")
        if "://" in target or not target.endswith(_SUFFIX):
            return found[0]
        named = normpath(join(dirname(path), target)).removesuffix(_SUFFIX)
        if named.startswith(".."):
            return found[0]
        return f"]({base}/{named}{suffix}{mark}{anchor})"

    return _LINK.sub(link, text)


def _render(text: str) -> str:
    """Markdown as HTML; headings have the anchors that GitHub gives them."""
    from markdown_it import MarkdownIt  # noqa: PLC0415 - few servers are asked for a page

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(text)
    title = "Trails"
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = _text_of(tokens[at + 1])
            token.attrSet("id", re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
            title = heading if token.tag == "h1" else title
    return project_page(title, str(reader.renderer.render(tokens, reader.options, {})))


def _text_of(inline: Token) -> str:
    return "".join(each.content for each in inline.children or ())
