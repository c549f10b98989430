"""Full-text search over a million short texts, and the rate at which an index is built.

The peer is tantivy as it comes: its default analyzer, the texts added one by one by one indexing
thread, the query parsed by it, the handles of ten hits fetched. Ours parses, ranks with exact
statistics and a total order, and proves each hit: the matches are located in its text.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from itertools import accumulate, chain
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Final

import tantivy

from bench.measure import Goal, Result, Times, clock, interleave
from trails.views.text.analysis import Analyzer
from trails.views.text.corpus import Corpus
from trails.views.text.grammar import parse
from trails.views.text.index import TextIndex
from trails.views.text.matching import Finder
from trails.views.text.ranking import Source, rank

HITS: Final = 10
_VOCABULARY: Final = 60_000
_DRAWN: Final = 1 << 20
_HEAP: Final = 256_000_000
_PROVEN: Final = 3
"""Matches that a preview shows."""


def texts(count: int) -> Iterator[tuple[str, str]]:
    """Titles of 4 to 14 words, which are as frequent as the words of a language (Zipf)."""
    rng = Random(7)
    letters = "etaoinshrdlucmfwyp"
    words = ["".join(rng.choices(letters, k=rng.randint(2, 9))) for _ in range(_VOCABULARY)]
    shares = list(accumulate(1 / (place + 3) for place in range(_VOCABULARY)))
    drawn = rng.choices(words, cum_weights=shares, k=_DRAWN)
    for number in range(count):
        # Words far apart in what was drawn, so that drawing is a small share of the time.
        start, size = number * 7919 % (_DRAWN // 2), 4 + number * 31 % 11
        step = 1 + number * 17 % (_DRAWN // 32)
        yield f"Part/p{number}", " ".join(drawn[start : start + size * step : step])


def run(*, quick: bool) -> list[Result]:
    """Build both indexes, then ask both the same."""
    given = list(texts(20_000 if quick else 1_000_000))
    gc.freeze()  # a collection between the rounds that walks a million texts would empty the caches
    with TemporaryDirectory() as folder:
        ours, bare = Path(folder, "ours"), Path(folder, "bare")
        index = TextIndex(ours, Analyzer())
        built = clock(lambda: _build(index, given))
        peer = _bare(bare)
        peer_built = clock(lambda: _build_bare(peer, given))
        results = [
            Result(
                "text index: texts added per second",
                "texts/s",
                len(given) / built,
                len(given) / peer_built,
                len(given) / peer_built,
                Goal(">=", 0.6),
                "tantivy · the same",
                {"texts": len(given), "bytes": _size(ours), "peer bytes": _size(bare)},
            )
        ]
        peer.reload()
        results.append(_searches(index, peer, given, 20 if quick else 200))
        index.close()
    return results


def _build(index: TextIndex, given: list[tuple[str, str]]) -> None:
    index.fill(given)
    index.flush()


def _bare(folder: Path) -> tantivy.Index:
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("handle", stored=True, tokenizer_name="raw", index_option="basic")
    builder.add_text_field("text")
    folder.mkdir()
    return tantivy.Index(builder.build(), path=str(folder))


def _build_bare(index: tantivy.Index, given: list[tuple[str, str]]) -> None:
    writer = index.writer(_HEAP, 1)
    for handle, text in given:
        writer.add_document(tantivy.Document(handle=handle, text=text))
    writer.commit()
    writer.wait_merging_threads()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _searches(
    index: TextIndex, peer: tantivy.Index, given: list[tuple[str, str]], rounds: int
) -> Result:
    """Queries of one, two and three words of a text, as many of each."""
    rng = Random(11)
    held = dict(given)
    searcher = peer.searcher()
    ours: dict[int, list[float]] = {1: [], 2: [], 3: []}
    bare: dict[int, list[float]] = {1: [], 2: [], 3: []}
    for turn in range(3 * rounds):
        size = turn % 3 + 1
        query = " ".join(rng.sample(rng.choice(given)[1].split(), size))

        def ask(query: str = query) -> None:
            _ask(index, query, held)

        def ask_bare(query: str = query) -> None:
            _ask_bare(peer, searcher, query)

        times = interleave({"ours": ask, "bare": ask_bare}, 3, warmup=1)
        ours[size] += times["ours"].seconds
        bare[size] += times["bare"].seconds
    both = Times([*chain(*ours.values())]), Times([*chain(*bare.values())])
    return Result(
        f"search {len(given):,} texts, {HITS} hits proven",
        "ms",
        both[0].p50 * 1e3,
        both[1].p50 * 1e3,
        both[1].p50 * 1e3,
        Goal("<=", 2),
        "tantivy · the same",
        {
            "p99": both[0].p99 * 1e3,
            "peer p99": both[1].p99 * 1e3,
            "by words": {size: Times(each).p50 * 1e3 for size, each in ours.items()},
            "peer by words": {size: Times(each).p50 * 1e3 for size, each in bare.items()},
        },
    )


def _ask(index: TextIndex, text: str, held: dict[str, str]) -> None:
    query = parse(text)
    corpus = Corpus(index, {})
    finder = Finder(query, corpus.analyzer, "title")
    for record in rank(query, [Source(corpus, "title", held.get)], HITS).records:
        if not finder.find(held[record.handle], _PROVEN):
            raise AssertionError(f"{record.handle} is not proven for {text!r}")


def _ask_bare(index: tantivy.Index, searcher: tantivy.Searcher, text: str) -> list[object]:
    found = searcher.search(index.parse_query(text, ["text"]), HITS, count=False)
    return [searcher.doc(address).get_first("handle") for _, address in found.hits]
