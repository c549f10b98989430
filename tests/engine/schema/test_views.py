"""What follows the log over a change of types: search, vectors, the feed; and expressions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.engine.schema.test_branches import RENAME_FIELD, RENAME_TYPE, filled
from tests.engine.schema.world import World, add_type, steps_of

from trails.engine.evidence.search import SearchRequest, search
from trails.engine.history.change_feed import ChangeQuery, read_changes
from trails.engine.schema.plan import ChangeRequest, apply_change
from trails.engine.visibility.refs import RefResolver
from trails.errors import ForbiddenError, LimitError, ValidationError
from trails.model.nodes import Selection
from trails.model.types import Schema
from trails.model.visibility import Visibility

NOTE = add_type(
    "Note",
    {"name": "code", "key": True},
    {"name": "text", "type": "str | None", "search": True, "language": "english"},
    {"name": "spot", "type": "Vector[2] | None"},
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """Two notes with texts and vectors."""
    made = World(tmp_path / "graph", NOTE)
    made.put("Note", code="a", text="running horses", spot=[1.0, 0.0])
    made.put("Note", code="b", text="sleeping cats", spot=[0.0, 1.0])
    yield made
    made.check()
    made.close()


def found(world: World, query: str) -> list[str]:
    """What a search finds."""
    service = world.app.service("main")
    page = search(service, world.app.context(), SearchRequest(query=query))
    return [each.id.removeprefix("trails://kg/") for each in page.hits]


def test_search_and_vectors_follow_a_rename(world: World) -> None:
    """Under the new names, and with what is written later."""
    assert found(world, "horse") == ["Note/a"]
    world.apply(
        {"step": "rename_field", "type": "Note", "field": "text", "to": "body"},
        {"step": "rename_field", "type": "Note", "field": "spot", "to": "place"},
        {"step": "rename_type", "type": "Note", "to": "Memo"},
    )
    assert found(world, "horse") == ["Memo/a"]
    world.put("Memo", code="c", body="a horse sleeps", place=[0.9, 0.1])
    assert set(found(world, "horse")) == {"Memo/a", "Memo/c"}
    near = world.app.context().kg.nearest(Selection("Memo"), "place", [1.0, 0.0], 2)
    assert [state.handle for state, _ in near] == ["Memo/a", "Memo/c"]


def test_a_field_that_is_searched_from_now_on_is_found(world: World) -> None:
    """And one that is no longer searched is not."""
    to = {"name": "text", "type": "str | None"}
    world.apply({"step": "change_field", "type": "Note", "field": "text", "to": to})
    assert found(world, "horses") == []
    to = {**to, "search": True}
    world.apply({"step": "change_field", "type": "Note", "field": "text", "to": to})
    assert found(world, "horses") == ["Note/a"]


def test_the_feed_reports_a_rename(world: World) -> None:
    """As nodes that are gone and nodes that are new, and that the types changed."""
    before = world.head()
    heard: list[object] = []
    world.graph.feed.listen(heard.append)
    world.apply({"step": "rename_type", "type": "Note", "to": "Memo"})
    assert len(heard) == 1
    refs = RefResolver(world.graph, None)
    (event,) = read_changes(world.graph, ChangeQuery(since=before), refs, None).events
    assert event.schema_changed
    assert (event.created, event.deleted) == (2, 2)


def test_expressions_run_in_the_sandbox(tmp_path: Path) -> None:
    """In a process of its own, which is stopped when it takes too long or too much."""
    world = filled(tmp_path / "graph")
    untrusted, checkout = world.app.service("main").untrusted, world.checkout()
    field = {"name": "shout", "type": "str | None"}

    def apply(text: str) -> None:
        step = {
            "step": "add_field",
            "type": "Task",
            "field": field,
            "backfill": {"expression": text},
        }
        asked = ChangeRequest(
            steps=tuple(steps_of(step)),
            ask=lambda query: untrusted.run(checkout, query, caller="ada"),
        )
        apply_change(world.graph, checkout, asked)

    bomb = "CONCAT(?title, ?title)"
    for _ in range(25):
        bomb = f"REPLACE({bomb}, '.', 'aaaa')" if len(bomb) < 900 else bomb
    with pytest.raises((ValidationError, LimitError)):
        apply(bomb)
    assert "shout" not in world.schema().by_name["Task"].by_name
    apply("UCASE(?title)")
    assert world.state()["Task/a"]["shout"] == "A"
    world.check()
    world.close()


def test_progress_is_reported_and_a_plan_writes_nothing(tmp_path: Path) -> None:
    """By pages of nodes; the branch stays where it is."""
    world = filled(tmp_path / "graph")
    head = world.head()
    seen: list[tuple[int, int]] = []
    world.apply(RENAME_FIELD, RENAME_TYPE, dry_run=True, progress=lambda *each: seen.append(each))
    assert seen[-1][0] == seen[-1][1] > 0
    assert world.head() == head
    world.close()


class Limited:
    """An actor from whom something is hidden, or who may not change something."""

    unrestricted = False

    def __init__(self, visibility: Visibility) -> None:
        self._visibility = visibility

    def may(self, action: str, branch: str, target: str = "") -> bool:
        """Allow every action."""
        del action, branch, target
        return True

    def visibility(self, schema: Schema, branches: Iterable[str]) -> Visibility:
        """What is hidden and fixed."""
        del schema, branches
        return self._visibility


@pytest.mark.parametrize(
    ("visibility", "allowed"),
    [
        (Visibility(), True),
        (Visibility(hidden=frozenset({"Person"})), False),
        (Visibility(hidden_fields={"Task": frozenset({"title"})}), False),
        (Visibility(fixed=frozenset({"Task"})), False),
        (Visibility(fixed=frozenset({"Chore"})), False),
        (Visibility(fixed=frozenset({"Person"})), True),
    ],
)
def test_who_may_change_types(visibility: Visibility, allowed: bool, tmp_path: Path) -> None:
    """An actor who sees everything, and may change the types that change; a plan needs the same."""
    world = filled(tmp_path / "graph")
    access, head = Limited(visibility), world.head()
    for attempt in (world.plan, world.apply):
        if allowed:
            attempt(RENAME_FIELD, access=access)
        else:
            with pytest.raises(ForbiddenError):
                attempt(RENAME_FIELD, access=access)
    assert (world.head() == head) is not allowed
    world.close()
