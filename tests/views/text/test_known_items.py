"""Known items: who remembers a text finds it again, whatever else the ranking does.

Relevance feedback and language must not lead away from a text that has the words of the query. The
texts are made up: each is about a topic, whose words it shares with others, as in real collections.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping

import pytest
import tantivy

from trails.views.text.analysis import Analyzer
from trails.views.text.corpus import Corpus
from trails.views.text.grammar import parse
from trails.views.text.index import TextIndex
from trails.views.text.ranking import Source, rank

Search = Callable[[str], list[str]]
SYLLABLES = ("ba", "co", "di", "fu", "ge", "hi", "jo", "ka", "lu", "me", "no", "pra", "qui", "sto")
TEXTS = 500


def _word(rng: random.Random) -> str:
    return "".join(rng.choices(SYLLABLES, k=rng.randint(2, 4)))


def _texts(rng: random.Random) -> dict[str, str]:
    """Texts of 30 to 80 words on 20 topics; common words are common as in a language."""
    common = [_word(rng) for _ in range(2_000)]
    weights = [1 / (place + 2) for place in range(len(common))]
    topics = [[_word(rng) for _ in range(40)] for _ in range(20)]
    found = {}
    for number in range(TEXTS):
        topic, size = rng.choice(topics), rng.randint(30, 80)
        words = rng.choices(topic, k=size // 2) + rng.choices(common, weights, k=size // 2)
        rng.shuffle(words)
        found[f"N/{number}"] = " ".join(words)
    return found


def _ours(texts: Mapping[str, str]) -> Search:
    index = TextIndex(None, Analyzer())
    index.fill(texts.items())
    index.flush()
    sources = [Source(Corpus(index, {}), "text", texts.get)]
    return lambda query: [each.handle for each in rank(parse(query), sources, 10).records]


def _plain(texts: Mapping[str, str]) -> Search:
    """BM25 of tantivy as it comes."""
    builder = tantivy.SchemaBuilder()
    builder.add_text_field("id", stored=True, tokenizer_name="raw")
    builder.add_text_field("text")
    index = tantivy.Index(builder.build())
    writer = index.writer(15_000_000, 1)
    for name, text in texts.items():
        writer.add_document(tantivy.Document(id=name, text=text))
    writer.commit()
    writer.wait_merging_threads()
    index.reload()
    searcher = index.searcher()

    def search(query: str) -> list[str]:
        hits = searcher.search(index.parse_query(query, ["text"]), 10).hits
        return [str(searcher.doc(address).get_first("id")) for _, address in hits]

    return search


def _reciprocal_rank(queries: Mapping[str, str], search: Search) -> float:
    ranks = [
        next((1 / place for place, each in enumerate(search(query), 1) if each == wanted), 0.0)
        for query, wanted in queries.items()
    ]
    return sum(ranks) / len(ranks)


@pytest.fixture(scope="module")
def texts() -> dict[str, str]:
    """A collection."""
    return _texts(random.Random(5))


@pytest.mark.parametrize(("words", "wrong"), [(2, 0), (3, 0), (5, 0), (8, 0), (10, 2), (14, 3)])
def test_words_of_a_text_find_it(texts: dict[str, str], words: int, wrong: int) -> None:
    """As well as plain BM25 does, also if some of the words are those of another text."""
    rng = random.Random(words)
    queries = {}
    for name in rng.sample(sorted(texts), 120):
        known = rng.sample(sorted(set(texts[name].split())), words - wrong)
        other = rng.sample(sorted(set(rng.choice(list(texts.values())).split())), wrong)
        queries[" ".join(known + other)] = name
    ours, plain = (_reciprocal_rank(queries, each(texts)) for each in (_ours, _plain))
    assert ours >= plain - 0.01, (ours, plain)


def test_the_beginning_of_a_text_finds_it(texts: dict[str, str]) -> None:
    """A sentence that was copied is a question of many words."""
    queries = {" ".join(text.split()[:12]): name for name, text in sorted(texts.items())[::4]}
    assert _reciprocal_rank(queries, _ours(texts)) == 1.0
