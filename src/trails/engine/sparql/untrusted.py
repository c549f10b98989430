"""Untrusted text on a graph's lines: queries, updates and files go through the sandbox."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyoxigraph as ox

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.sparql.hints import add_number_notices, explain_refusal, find_mistakes
from trails.engine.sparql.queries import bind, read_term
from trails.errors import QueryError
from trails.model.history import Position
from trails.model.results import QueryAnswer
from trails.model.sparql import query_form, tokenize
from trails.sandbox.pool import Sandbox
from trails.sandbox.results import Result
from trails.sandbox.workers import CommitDelta
from trails.views.quads.view import QuadsView

_FAR: Final = 500
"""Commits from which a worker begins again at a checkpoint instead of following."""
_MUCH: Final = 20_000
"""Statements, likewise."""
_SPELLED: Final = {"ntriples": "n-triples", "nquads": "n-quads", "jsonld": "json-ld"}
"""Formats as the sandbox spells them."""


class LineSource:
    """A branch or snapshot, as the sandbox follows it."""

    def __init__(self, graph: Graph, checkout: Checkout) -> None:
        self._graph = graph
        self._checkout = checkout

    @property
    def key(self) -> str:
        """The line itself: a branch that is made again under the same name is another."""
        return f"{self._checkout.name} {self._checkout.born}"

    def head(self) -> Position:
        """The head that readers see."""
        head = self._checkout.head
        return Position(head.seq, head.commit)

    def checkpoint(self, folder: Path) -> Position:
        """A store of the line, by hard links where it has files."""

        def copy(quads: QuadsView) -> Position:
            # Asked first: a commit that comes in between is applied again, which does no harm.
            position = quads.position
            shutil.rmtree(folder, ignore_errors=True)  # of a read that had to be repeated
            if quads.linkable:
                quads.checkpoint(folder)
            else:
                made = ox.Store(folder)
                made.bulk_extend(quads.store)
                made.flush()
            return position

        return self._graph.reading_quads(self._checkout, copy)

    def deltas(self, after: Position, until: Position) -> Sequence[CommitDelta] | None:
        """The commits between two positions, where they are few and in one line."""
        path = self._graph.ancestry.path(after.commit, until.commit)
        size = sum(commit.added + commit.removed for commit in path.redo)
        if path.undo or len(path.redo) > _FAR or size > _MUCH:
            return None
        found: list[CommitDelta] = []
        for commit in path.redo:
            with self._graph.folding.statements(commit) as (removed, added):
                found.append(
                    CommitDelta(Position(commit.seq, commit.id), removed.read(), added.read())
                )
        return found


class Untrusted:
    """What others' text may do on one graph."""

    def __init__(self, graph: Graph, sandbox: Sandbox) -> None:
        self._graph = graph
        self.sandbox = sandbox

    def ask(
        self, checkout: Checkout, text: str, params: Mapping[str, object], *, caller: str
    ) -> QueryAnswer:
        """Run a query; ``$name`` in the text takes the parameter of that name."""
        tokens = tokenize(text)
        query_form(tokens)
        vocabulary = checkout.compiled.vocabulary
        bound = bind(tokens, params)
        try:
            answer = self.run(checkout, bound, caller=caller)
        except QueryError as error:
            raise QueryError(explain_refusal(error.message, tokens, vocabulary)) from None
        mistakes = find_mistakes(tokenize(bound) if params else tokens, vocabulary)
        return answer.with_notice(mistakes)

    def run(self, checkout: Checkout, text: str, *, caller: str) -> QueryAnswer:
        """Run a query whose text was checked and has its parameters in place."""
        result = self.sandbox.query(
            LineSource(self._graph, checkout),
            text,
            caller=caller,
            prefixes=self._graph.names.prefixes,
            base_iri=self._graph.names.nodes,
        )
        return add_number_notices(_answer(result), text, checkout.compiled.vocabulary)

    def effect(self, checkout: Checkout, *, caller: str) -> Callable[[str], tuple[bytes, bytes]]:
        """How to find out what an update would change on a line."""

        def effect(text: str) -> tuple[bytes, bytes]:
            found = self.sandbox.update(
                LineSource(self._graph, checkout),
                text,
                caller=caller,
                prefixes=self._graph.names.prefixes,
                base_iri=self._graph.names.nodes,
            )
            return found.removed, found.added

        return effect

    def parse(
        self,
        chunks: Iterable[bytes],
        format: str,
        base_iri: str | None = None,
        *,
        caller: str = "",
    ) -> Iterator[bytes]:
        """A file of RDF as N-Quads, chunk by chunk."""
        spelled = _SPELLED.get(format, format)
        return self.sandbox.parse(chunks, spelled, base_iri=base_iri, caller=caller)


def _answer(result: Result) -> QueryAnswer:
    if result.form == "ask":
        return QueryAnswer((), (), truth=result.truth)
    names = result.variables
    rows = tuple(
        {name: read_term(term) for name, term in zip(names, row, strict=True)}
        for row in result.rows
    )
    return QueryAnswer(names, rows, truncated=result.truncated, notice=result.notice)
