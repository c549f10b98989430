"""Untrusted text on the checkouts of a graph: queries, updates and files run in the sandbox."""

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
"""Beyond this many commits, a worker restarts from a checkpoint instead of following."""
_MUCH: Final = 20_000
"""The same limit in statements."""
_SPELLED: Final = {"ntriples": "n-triples", "nquads": "n-quads", "jsonld": "json-ld"}
"""Formats by their sandbox names."""


class LineSource:
    """A checkout as a source for sandbox workers."""

    def __init__(self, graph: Graph, checkout: Checkout) -> None:
        self._graph = graph
        self._checkout = checkout

    @property
    def key(self) -> str:
        """Identifies the checkout: a branch that is recreated under its name is a different one."""
        return f"{self._checkout.name} {self._checkout.born}"

    def head(self) -> Position:
        """The head that readers see."""
        head = self._checkout.head
        return Position(head.seq, head.commit)

    def checkpoint(self, folder: Path) -> Position:
        """A copy of the checkout's store, by hard links if it has files."""

        def copy(quads: QuadsView) -> Position:
            # Read first: a commit in between is then applied twice, which is harmless.
            position = quads.position
            shutil.rmtree(folder, ignore_errors=True)  # left by a repeated read
            if quads.linkable:
                quads.checkpoint(folder)
            else:
                made = ox.Store(folder)
                made.bulk_extend(quads.store)
                made.flush()
            return position

        return self._graph.reading_quads(self._checkout, copy)

    def deltas(self, after: Position, until: Position) -> Sequence[CommitDelta] | None:
        """The commits between two positions, if they are few and linear."""
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
    """Runs untrusted text on one graph."""

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
        """Run a checked query with bound parameters."""
        result = self.sandbox.query(
            LineSource(self._graph, checkout),
            text,
            caller=caller,
            prefixes=self._graph.names.prefixes,
            base_iri=self._graph.names.nodes,
        )
        return add_number_notices(_answer(result), text, checkout.compiled.vocabulary)

    def effect(self, checkout: Checkout, *, caller: str) -> Callable[[str], tuple[bytes, bytes]]:
        """A function that computes the effect of an update on a checkout."""

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
        """Parse an RDF file into chunks of N-Quads."""
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
