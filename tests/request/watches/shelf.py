"""A small graph to watch: things, books (which are things), shelves."""

from __future__ import annotations

from trails import App, Node, Ref, node_type, predicate
from trails.engine.history.branches import create_branch
from trails.engine.history.merge import merge
from trails.engine.session.context import GraphContext
from trails.model.history import MergeRequest, MergeResult


@node_type
class Shelf(Node):
    """Where things stand."""

    code: str = predicate(key=True)
    room: str | None = predicate()


@node_type
class Thing(Node):
    """Something that stands on a shelf."""

    code: str = predicate(key=True)
    name: str = predicate()
    shelf: Ref[Shelf] | None = predicate()


@node_type
class Book(Thing):
    """A thing that can be read."""

    pages: int | None = predicate()


TYPES = (Shelf, Thing, Book)


def make_app(**options: object) -> App:
    """A graph in memory, or in a folder."""
    return App(*TYPES, name="shelf", **options)


def save(ctx: GraphContext, kind: type[Node], code: str, **values: object) -> None:
    """Make a node, or change some of its fields, in one commit."""
    found = ctx.kg.find(kind.__name__, code)
    if found is None:
        if kind is not Shelf:
            values = {"name": "a thing", **values}
        kind(code=code, **values).save(ctx)
        return
    node = ctx.hydrate(found)
    for name, value in values.items():
        setattr(node, name, value)
    node.save(ctx)


def branch(app: App, name: str, source: str = "main") -> None:
    """Fork a branch."""
    create_branch(app.graph(), name, source=source, actor="a")


def merge_into(app: App, source: str, target: str = "main") -> MergeResult:
    """Merge without resolutions."""
    return merge(app.graph(), MergeRequest(source, target), actor="a")
