"""The quads view: several commits in one update are the same as one after the other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trails.model.history import Position
from trails.views.quads.view import QuadsView, sum_of

STATEMENTS = [f'<x:{subject}> <x:p> "{value}" .\n' for subject in "abc" for value in range(4)]
DELTAS = st.lists(
    st.tuples(st.sets(st.sampled_from(STATEMENTS)), st.sets(st.sampled_from(STATEMENTS))),
    min_size=1,
    max_size=6,
)


@given(DELTAS)
def test_commits_that_are_applied_together_are_applied_in_their_order(
    deltas: list[tuple[set[str], set[str]]],
) -> None:
    """Whatever they remove and add again; the position is that of the last."""
    model: set[str] = set()
    apart, together = QuadsView(None), QuadsView(None)
    texts = [("".join(gone).encode(), "".join(come).encode()) for gone, come in deltas]
    for number, ((gone, come), text) in enumerate(zip(deltas, texts, strict=True), 1):
        model = (model - gone) | come
        apart.apply(Position(number, f"c{number}"), *text)
    last = Position(len(deltas), f"c{len(deltas)}")
    together.apply_all(last, texts)
    assert {f"{quad.triple} .\n" for quad in together.data()} == model
    assert sum_of(together) == sum_of(apart)
    assert together.stored_position() == apart.stored_position() == together.position == last
