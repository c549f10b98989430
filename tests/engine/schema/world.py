"""A graph without declared types, whose schema is changed by steps alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from trails import App
from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.history.branches import create_branch
from trails.engine.history.merge import merge
from trails.engine.schema.plan import ChangeRequest, apply_change, plan_change
from trails.engine.sparql.queries import ask_checkout
from trails.engine.upkeep.verify import verify
from trails.engine.write.edits import put, remove
from trails.engine.write.puts import Put
from trails.engine.write.write import Write
from trails.model.changes.steps import AddType, AppliedChanges, ChangePlan, Step
from trails.model.history import MergeRequest, MergeResult
from trails.model.types import Schema

Values = dict[str, object]


def steps_of(*given: dict[str, Any] | Step) -> list[Step]:
    """Steps from their JSON form."""
    return [msgspec.convert(each, Step) if isinstance(each, dict) else each for each in given]


def add_type(name: str, *fields: dict[str, Any] | str, **more: Any) -> AddType:
    """A step that adds a type; a field that is only named is an optional text."""
    spelled = [
        {"name": each, "type": "str | None"} if isinstance(each, str) else each for each in fields
    ]
    return msgspec.convert({"type": {"name": name, "fields": spelled, **more}}, AddType)


class World:
    """A graph with short ways to write and to change types."""

    def __init__(self, folder: Path | None, *types: Step) -> None:
        self.folder = folder
        self.app = App(name="steps", folder=folder)
        self.apply(*types)

    def close(self) -> None:
        """Close the graph."""
        self.app.close()

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.app.graph()

    def checkout(self, branch: str = "main") -> Checkout:
        """A branch."""
        return self.graph.checkout(branch)

    def schema(self, branch: str = "main") -> Schema:
        """The types of a branch."""
        return self.checkout(branch).schema

    def head(self, branch: str = "main") -> str:
        """The newest commit of a branch."""
        return self.graph.log_head(branch).commit

    def apply(
        self, *steps: dict[str, Any] | Step, branch: str = "main", **more: Any
    ) -> AppliedChanges:
        """Apply steps."""
        checkout = self.checkout(branch)

        def ask(text: str) -> Any:
            return ask_checkout(self.graph, checkout, text)

        asked = ChangeRequest(steps=tuple(steps_of(*steps)), actor="ada", ask=ask, **more)
        return apply_change(self.graph, checkout, asked)

    def plan(self, *steps: dict[str, Any] | Step, branch: str = "main", **more: Any) -> ChangePlan:
        """Plan steps."""
        checkout = self.checkout(branch)
        return plan_change(
            self.graph,
            checkout,
            steps_of(*steps),
            ask=lambda text: ask_checkout(self.graph, checkout, text),
            **more,
        )

    def put(self, type_name: str, branch: str = "main", **values: object) -> str:
        """Create a node, or change one by its ``id`` or key; its handle."""
        identifier = values.pop("id", None)
        write = Write(self.graph, self.checkout(branch), actor="ada")
        write.begin()
        try:
            state = put(
                write.nodes,
                Put(type_name, values, None if identifier is None else str(identifier), "upsert"),
                alone=True,
            )
        except BaseException:
            write.abandon()
            raise
        write.finish()
        assert state is not None
        return state.handle

    def delete(self, handle: str, branch: str = "main") -> None:
        """Delete a node."""
        write = Write(self.graph, self.checkout(branch), actor="ada")
        write.begin()
        try:
            remove(write.nodes, handle, cascade=True)
        except BaseException:
            write.abandon()
            raise
        write.finish()

    def state(self, branch: str = "main") -> dict[str, Values]:
        """Every node of a branch."""
        return states_of(self.checkout(branch))

    def branch(self, name: str, start: str = "main") -> None:
        """Create a branch."""
        create_branch(self.graph, name, source=start, actor="ada")

    def merge(self, source: str, target: str = "main", **more: Any) -> MergeResult:
        """Merge a branch into another."""
        return merge(self.graph, MergeRequest(source, target, **more), actor="ada")

    def ask(self, text: str, branch: str = "main") -> list[Values]:
        """Run a query."""
        answer = ask_checkout(self.graph, self.checkout(branch), text)
        return [dict(each) for each in answer.rows]

    def check(self) -> None:
        """Everything is sound, and views are as a fold of the log makes them."""
        wrong = [
            f"{each.name}: {each.detail}"
            for each in verify(self.graph, lambda text: None)
            if each.severity == "problem"
        ]
        assert not wrong, wrong


def states_of(checkout: Checkout) -> dict[str, Values]:
    """Every node of a branch or snapshot."""
    with checkout.nodes.file.reader() as db:
        names = [each.name for each in checkout.schema.types]
        return {each.handle: dict(each.values) for each in checkout.nodes.states(db, names)}
