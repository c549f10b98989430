"""Mutate by SPARQL Update.

**The race.** The effect of an update text depends on the state that it is computed on,
and computing may take seconds, so it is done before the writer's lock is taken. Under the
lock the head is compared with the head before computing: if it moved, the effect is
thrown away and computed again. After a few rounds it is computed under the lock, so a
busy graph delays a caller but never turns it away. A head is shown to readers only after
the views have reached it, so an effect can be of a newer state than the head that was
read, which the comparison notices, never of an older one.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pyoxigraph as ox

from trails.engine.graph import Graph
from trails.engine.lines import Line
from trails.engine.statements import apply_statements
from trails.engine.write.opened import Opening, OutdatedError
from trails.errors import QueryError
from trails.model.mutations import Mutation
from trails.model.sparql import tokenize
from trails.model.updates import update_form
from trails.sandbox.updates import effect_of
from trails.views.quads import QuadsView

_ROUNDS: Final = 3
"""How often an effect is computed without the lock before it is computed under it."""

Effect = Callable[[str], tuple[bytes, bytes]]
"""An update text → what it removes and adds, on the branch as it is now or was later."""


def mutate_sparql(
    graph: Graph, line: Line, opening: Opening, text: str, effect: Effect
) -> Mutation:
    """Write the effect of an update text."""
    update_form(tokenize(text))
    for attempt in range(_ROUNDS + 1):
        locked = attempt == _ROUNDS
        at = line.head.commit
        delta = (b"", b"") if locked else effect(text)
        with suppress(OutdatedError), opening(request=["update", text]) as opened:
            nodes = opened.write.nodes
            if nodes.changed:
                raise QueryError(
                    "an update sees what is committed, and this transaction has changes that are "
                    "not; update before the first change"
                )
            if not opened.replayed:
                if not locked and graph.log_head(line.name).commit != at:
                    raise OutdatedError
                if locked:
                    delta = effect(text)
                apply_statements(opened.write, *delta, validate=True, alone=True)
            break
    return Mutation(opened.commit_id, (), replayed=opened.replayed)


def local_effect(graph: Graph, line: Line) -> Effect:
    """Compute effects in this process: for graphs in memory, where no one else's text runs.

    Only an update of several operations changes the store while it is computed, so only
    that one gets a copy.
    """
    names = graph.names

    def effect(text: str) -> tuple[bytes, bytes]:
        alone = len(update_form(tokenize(text))) == 1

        def read(quads: QuadsView) -> tuple[bytes, bytes]:
            if alone:
                return effect_of(quads.store, text, names.prefixes, base=names.nodes)
            copy = ox.Store()
            copy.bulk_extend(quads.data())
            return effect_of(copy, text, names.prefixes, base=names.nodes)

        return graph.reading_quads(line, read)

    return effect
