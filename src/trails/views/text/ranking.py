"""Rank the records that a query finds in the texts of several fields.

BM25 with statistics that are common to all the fields searched, so that scores can be added: a
record has the sum of its best text in each field. A question in plain words is asked twice: the
best texts of the first round give words that go with it (RM3, relevance feedback). A record that
only such a word found is marked ``related``: it may fit, but nothing in it proves the query.

The order is total and depends on the query and the texts searched, on nothing else.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Final

import msgspec

from trails.views.text.corpus import FUZZY_SCORE, Candidate, Corpus, Plan
from trails.views.text.grammar import Clause, Leaf, TextQuery, required
from trails.views.text.index import Texts, items, order
from trails.views.text.scoring import K1, idf

MOST_LEAVES: Final = 128
"""Words and phrases that are looked for in the texts of one field."""
MOST_EXPANSIONS: Final = 64
"""How many words a prefix may be replaced by."""
MOST_TEXTS: Final = 4096
"""How many texts of each field are looked at to find the best sums."""
MOST_REQUIRED: Final = 2000
"""Up to so many records, what is required may be in another field than the other words."""

FEEDBACK_TEXTS: Final = 10
FEEDBACK_TERMS: Final = 20
FEEDBACK_WEIGHT: Final = 0.5
"""RM3 as it is usually set: so many texts and words, and the weight of the question itself."""
ANSWERED_WEIGHT: Final = 0.9
"""The weight of a question that some text has all the words of: what is added comes behind."""
NATURAL_TERMS: Final = 4
"""A question has at least so many different words; fewer are keywords, and taken literally."""
BONUS: Final = 0.2
"""What the whole of a joined word counts in a question, beside its parts."""
KEYWORD_BONUS: Final = 2.0
"""The same among keywords: texts that have it as it was written come first."""
FEEDBACK_LEAST: Final = 100
"""Among fewer texts, what the best ones have in common is chance."""
_LONGEST_FEEDBACK: Final = 20_000
"""Characters of a text that feedback reads."""


class Source(msgspec.Struct, frozen=True):
    """The texts of one field that are searched."""

    corpus: Corpus
    field: str
    read: Callable[[str], Texts] | None = None
    """The texts of a record in this field; without it there is no feedback from this field."""
    weight: float = 1.0
    kind: str = ""
    """Which records have this field: those with a text in sources of one kind."""


class Found(msgspec.Struct, frozen=True):
    """A text of a record that matched."""

    source: int
    """Which of the sources it is in."""
    item: int
    score: float


class Ranked(msgspec.Struct, frozen=True):
    """A record that was found."""

    handle: str
    score: float
    found: tuple[Found, ...]
    """Its texts, best first; one of each source."""
    related: bool = False
    """Whether only words that the query does not have found it."""


class Ranking(msgspec.Struct, frozen=True):
    records: tuple[Ranked, ...]
    notices: tuple[str, ...] = ()


def rank(
    query: TextQuery,
    sources: Sequence[Source],
    k: int,
    *,
    among: frozenset[str] | None = None,
    without: frozenset[str] = frozenset(),
    feedback: bool = True,
) -> Ranking:
    """The ``k`` best records; only those of ``among`` if it is given, and none of ``without``."""
    search = _Search(query, sources, among, without)
    asked_twice = feedback and query.natural and search.is_question()
    records = search.best(max(k, FEEDBACK_TEXTS) if asked_twice else k)
    if asked_twice:
        expanded = search.expanded(records[:FEEDBACK_TEXTS])
        records = expanded.best(k)
        literal = {each.handle for each in search.best(k, {each.handle for each in records})}
        records = [
            each if each.handle in literal else msgspec.structs.replace(each, related=True)
            for each in records
        ]
    return Ranking(tuple(records), tuple(search.notices))


class _Search:
    """A query, planned for each of its sources."""

    def __init__(
        self,
        query: TextQuery,
        sources: Sequence[Source],
        among: frozenset[str] | None,
        without: frozenset[str],
    ) -> None:
        self.notices = list(query.notices)
        self._sources = sources
        self._among = among
        self._without = without
        self._documents = sum(source.corpus.documents for source in sources)
        self._frequencies: dict[str, int] = {}
        self._bonus = BONUS if len(query.groups) >= NATURAL_TERMS else KEYWORD_BONUS
        self.most = MOST_LEAVES
        self.plans = [Plan() for _ in sources]
        common = self._common(query)
        for group in query.groups:
            kept = tuple(clause for clause in group if clause not in common) if common else group
            self._add_group(kept)
        for clause in query.excluded:
            for plan, leaves in zip(self.plans, self._leaves(clause), strict=True):
                plan.excluded += leaves
        if query.groups and not any(plan.weights for plan in self.plans):
            self._say_nothing_is_left(query)

    def _say_nothing_is_left(self, query: TextQuery) -> None:
        clauses = [clause for group in query.groups for clause in group]
        if not any(leaf for clause in clauses for leaf in self._leaves(clause)):
            self.notices.append("the query has no word that can be searched for")

    # ------------------------------------------------------------------------ planning

    def _common(self, query: TextQuery) -> set[Clause]:
        """Words that some field leaves out as stop words, if the query has others.

        In fields without a language they would be rare, so that they would count most.
        """
        analyzers = {source.corpus.analyzer for source in self._sources}
        analyzers = {each for each in analyzers if each.stop_words}
        if not analyzers:
            return set()
        words = [group[0] for group in query.groups if len(group) == 1 and group[0].is_plain]
        common = {word for word in words if any(not word.leaves(each) for each in analyzers)}
        return common if len(common) < len(words) else set()

    def _add_group(self, group: tuple[Clause, ...]) -> None:
        alternatives: list[list[Leaf]] = [[] for _ in self._sources]
        for clause in group:
            for place, leaves in enumerate(self._leaves(clause)):
                alternatives[place] += leaves
                blended = None
                if clause.prefix:
                    blended = max((self._frequency(leaf.terms[-1]) for leaf in leaves), default=0)
                for leaf in leaves:
                    self.weigh(place, leaf, blended)
        if required(group) and any(alternatives):
            for plan, leaves in zip(self.plans, alternatives, strict=True):
                plan.required.append(leaves)

    def _leaves(self, clause: Clause) -> list[list[Leaf]]:
        """What a clause asks of each source; prefixes are replaced by words."""
        found: list[list[Leaf]] = []
        for source in self._sources:
            applies = clause.field in {None, source.field}
            found.append(clause.leaves(source.corpus.analyzer) if applies else [])
        if clause.prefix:
            words = self._expansions(clause, found)
            found = [
                [Leaf((*leaf.terms[:-1], word)) for leaf in leaves for word in words]
                for leaves in found
            ]
        return found

    def _expansions(self, clause: Clause, found: list[list[Leaf]]) -> list[str]:
        words: set[str] = set()
        for source, leaves in zip(self._sources, found, strict=True):
            for leaf in leaves:
                words |= source.corpus.beginning(leaf.terms[-1], MOST_EXPANSIONS + 1)
        if len(words) > MOST_EXPANSIONS:
            notice = f"{clause.text[:100]}* stands for its {MOST_EXPANSIONS} most frequent words"
            if notice not in self.notices:
                self.notices.append(notice)
        return sorted(words, key=lambda word: (-self._frequency(word), word))[:MOST_EXPANSIONS]

    def _frequency(self, term: str) -> int:
        known = self._frequencies.get(term)
        if known is None:
            known = sum(source.corpus.frequency(term) for source in self._sources)
            self._frequencies[term] = known
        return known

    def weigh(self, place: int, leaf: Leaf, blended: int | None, times: float = 1.0) -> None:
        """Let a leaf count; words that stand for one prefix are as rare as the commonest."""
        weights = self.plans[place].weights
        if leaf not in weights and len(weights) >= self.most:
            notice = f"only the first {MOST_LEAVES} words and phrases were searched for"
            if notice not in self.notices:
                self.notices.append(notice)
            return
        if leaf.distance:
            weight = FUZZY_SCORE
        else:
            counts = [self._frequency(term) for term in leaf.terms]
            if 0 in counts:
                return
            if blended is not None:
                counts[-1] = blended
            weight = (K1 + 1) * sum([idf(count, self._documents) for count in counts])
        if leaf.bonus:
            times *= self._bonus
        weights[leaf] = weights.get(leaf, 0.0) + weight * times * self._sources[place].weight

    # ------------------------------------------------------------------------ searching

    def best(self, k: int, only: set[str] | None = None) -> list[Ranked]:
        among = self._among if only is None else frozenset(only)
        plans = self.plans
        if len(plans) > 1 and any(plan.required for plan in plans):
            plans, among = self._across_fields(among)
        wanted = k if len(plans) == 1 else k + 10
        while True:
            ranked, unseen = self._round(plans, wanted, among)
            # What was not seen yet can't be better than what is last here.
            if unseen == 0 or (len(ranked) >= k and ranked[k - 1].score >= unseen):
                break
            if wanted >= MOST_TEXTS:
                break
            wanted *= 4
        return ranked[:k]

    def _round(
        self, plans: list[Plan], wanted: int, among: frozenset[str] | None
    ) -> tuple[list[Ranked], float]:
        """The records of the best texts of each source, and what any other has at most."""
        if len(plans) == 1:
            candidates = self._candidates(plans, 0, wanted, among)
            unseen = candidates[-1].score if len(candidates) == wanted else 0.0
            return _ranked_alone(candidates), unseen
        found: dict[str, dict[int, Candidate]] = {}
        rest: dict[str, float] = {}
        kinds: dict[str, str] = {}
        for place, source in enumerate(self._sources):
            candidates = self._candidates(plans, place, wanted, among)
            if len(candidates) == wanted:
                rest[source.kind] = rest.get(source.kind, 0.0) + candidates[-1].score
            _collect(found, place, candidates)
            kinds.update((each.handle, source.kind) for each in candidates)
        for place, source in enumerate(self._sources):
            missing = frozenset(
                handle
                for handle, held in found.items()
                if place not in held and kinds[handle] == source.kind
            )
            if missing:
                # Every item of a list is a text.
                more = self._candidates(plans, place, 4 * len(missing), missing)
                _collect(found, place, more)
        for handle in self._violating(frozenset(found)):
            del found[handle]
        ranked = [_ranked(handle, held) for handle, held in found.items()]
        ranked.sort(key=lambda each: (-each.score, order(each.handle, 0), each.handle))
        return ranked, max(rest.values(), default=0.0)

    def _candidates(
        self, plans: list[Plan], place: int, wanted: int, among: frozenset[str] | None
    ) -> list[Candidate]:
        plan = plans[place]
        if not plan.weights:
            return []
        return self._sources[place].corpus.search(plan, wanted, among, self._without)

    def _violating(self, handles: frozenset[str]) -> set[str]:
        """The records of which some field has what the query excludes."""
        found: set[str] = set()
        for source, plan in zip(self._sources, self.plans, strict=True):
            if plan.excluded and handles:
                unwanted = Plan(dict.fromkeys(plan.excluded, 1.0))
                texts = source.corpus.search(unwanted, 16 * len(handles), handles)
                found |= {text.handle for text in texts}
        return found

    def _across_fields(
        self, among: frozenset[str] | None
    ) -> tuple[list[Plan], frozenset[str] | None]:
        """Let one field have what is required, and another field the other words."""
        for number in range(len(self.plans[0].required)):
            holding: set[str] = set()
            for source, plan in zip(self._sources, self.plans, strict=True):
                asked = Plan(dict.fromkeys(plan.required[number], 1.0))
                texts = source.corpus.search(asked, MOST_REQUIRED, among)
                if len(texts) == MOST_REQUIRED:
                    return self.plans, among
                holding |= {text.handle for text in texts}
            among = frozenset(holding)
        plans = [Plan(plan.weights, [], plan.excluded) for plan in self.plans]
        return plans, among

    # ------------------------------------------------------------------------ feedback

    def is_question(self) -> bool:
        """Whether there are enough words, and texts, to learn from."""
        return self._documents >= FEEDBACK_LEAST and any(
            source.read is not None
            and len(plan.weights) >= NATURAL_TERMS
            and sum(len(leaf.terms) == 1 for leaf in plan.weights) >= NATURAL_TERMS
            for source, plan in zip(self._sources, self.plans, strict=True)
        )

    def _is_answered(self) -> bool:
        """Whether a text has all the words: then it is what was meant."""
        for source, plan in zip(self._sources, self.plans, strict=True):
            words = [leaf for leaf in plan.weights if len(leaf.terms) == 1]
            asked = Plan(dict.fromkeys(words[:1], 1.0), [[leaf] for leaf in words])
            if words and source.corpus.search(asked, 1, self._among, self._without):
                return True
        return False

    def expanded(self, records: Sequence[Ranked]) -> _Search:
        """This search with the words that are typical of the best texts (RM3).

        Scores are taken as the logarithms of probabilities: a text that is far better than the
        others speaks almost alone, so what it has in common with them does not lead away from it.
        """
        typical: dict[str, dict[str, float]] = {}
        weight = ANSWERED_WEIGHT if self._is_answered() else FEEDBACK_WEIGHT
        best = max((record.score for record in records), default=0.0)
        for record in records:
            found = record.found[0]
            source = self._sources[found.source]
            texts = items(source.read(record.handle)) if source.read is not None else ()
            if found.item >= len(texts):
                continue
            analyzer = source.corpus.analyzer
            words = analyzer.words(texts[found.item][:_LONGEST_FEEDBACK])
            counts = typical.setdefault(analyzer.version, {})
            for word, count in Counter(words).items():
                share = math.exp(record.score - best) * count / len(words)
                counts[word] = counts.get(word, 0.0) + share
        other = copy(self)
        other.plans = [Plan(dict(plan.weights)) for plan in self.plans]
        other.most += FEEDBACK_TERMS
        for place, source in enumerate(self._sources):
            plan = self.plans[place]
            terms = self._typical(typical.get(source.corpus.analyzer.version, {}))
            asked = sum(len(leaf.terms) == 1 for leaf in plan.weights)
            mass = asked * (1 - weight) / weight
            for term, share in terms.items():
                other.weigh(place, Leaf((term,)), None, mass * share)
        return other

    @staticmethod
    def _typical(counts: Mapping[str, float]) -> dict[str, float]:
        """The words that count most, as shares of one."""
        ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
        chosen = dict([each for each in ordered if len(each[0]) > 1][:FEEDBACK_TERMS])
        total = sum(chosen.values())
        return {word: count / total for word, count in chosen.items()}


def _collect(
    found: dict[str, dict[int, Candidate]], place: int, candidates: Iterable[Candidate]
) -> None:
    """Keep the best text of each record in a source."""
    for candidate in candidates:
        found.setdefault(candidate.handle, {}).setdefault(place, candidate)


def _ranked_alone(candidates: Iterable[Candidate]) -> list[Ranked]:
    """The records of texts of the only source, which are in order."""
    found: dict[str, Ranked] = {}
    for handle, item, score in candidates:
        if handle not in found:
            found[handle] = Ranked(handle, score, (Found(0, item, score),))
    return list(found.values())


def _ranked(handle: str, held: Mapping[int, Candidate]) -> Ranked:
    texts = [Found(place, candidate.item, candidate.score) for place, candidate in held.items()]
    texts.sort(key=lambda each: (-each.score, each.source))
    return Ranked(handle, sum(each.score for each in texts), tuple(texts))
