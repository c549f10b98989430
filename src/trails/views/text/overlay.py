"""Overlay: the texts that differ from those of an index, analysed.

Overlays are looked through at each search. Their texts are analysed once; an overlay with one more
text than another shares what is known of the others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple

import tantivy

from trails.model.caches import LRUCache
from trails.views.text.analysis import Analyzer
from trails.views.text.index import Texts, items

_SHORT: Final = 4096
"""Characters of a text whose analysis is kept."""


class Document(NamedTuple):
    """A text of an overlay, analysed."""

    words: list[str]
    vocabulary: frozenset[str]


class Replaced:
    """What an overlay hides of an index: computed once for each state of the index."""

    def __init__(self) -> None:
        self.searcher: tantivy.Searcher | None = None
        self.query: tantivy.Query | None = None
        self.documents = 0
        self.words = 0
        self.frequencies: dict[str, int] = {}


class Overlay:
    """The texts that differ from those of an index; () for what is not there. Never changes."""

    def __init__(self, texts: Mapping[str, Texts], analyzer: Analyzer) -> None:
        self.handles = texts.keys()
        self.documents = [
            (handle, item, _analysed(text, analyzer))
            for handle, held in texts.items()
            for item, text in enumerate(items(held))
        ]
        self.words = sum(len(document.words) for _, _, document in self.documents)
        self.replaced = Replaced()


@lru_cache(maxsize=16_384)  # of an overlay with one more text, all the others are known
def _short(text: str, analyzer: Analyzer) -> Document:
    words = analyzer.words(text)
    return Document(words, frozenset(words))


def _analysed(text: str, analyzer: Analyzer) -> Document:
    return (_short if len(text) <= _SHORT else _short.__wrapped__)(text, analyzer)


_OVERLAYS: Final = LRUCache[tuple[int, Analyzer], tuple[Mapping[str, Texts], Overlay]](64)
"""By the identity of the mapping, which is kept, so that its identity is not used again."""


_EMPTY: Final = Overlay({}, Analyzer())


def overlay_of(texts: Mapping[str, Texts], analyzer: Analyzer) -> Overlay:
    if not texts:
        return _EMPTY
    key = id(texts), analyzer
    return _OVERLAYS.get(key, lambda: (texts, Overlay(texts, analyzer)))[1]
