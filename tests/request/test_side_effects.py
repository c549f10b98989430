"""A capability that says that it only reads is shown as such, and is held to it."""

import asyncio

import pytest

from trails import App, Context, Node, capability, meta_capability, node_type, predicate
from trails.app.kernels import kernel_of
from trails.errors import DeclarationError, TransactionError
from trails.model.actors import LOCAL
from trails.model.capabilities import Hints
from trails.model.results import Failure, Success


@node_type
class Note(Node):
    """Something written down."""

    text: str = predicate()


@capability("notes.count", side_effects=["none"])
def count(ctx: Context) -> int:
    """Count the notes."""
    return Note.objects(ctx).count()


@capability("notes.sneak", side_effects=["none"])
def sneak(ctx: Context) -> int:
    """Say that it reads, and write."""
    Note(text="x").save(ctx)
    return 1


@capability("notes.add")
def add(ctx: Context) -> int:
    """Write."""
    Note(text="x").save(ctx)
    return 1


@pytest.fixture
def app():
    """A graph with the three."""
    with App(Note, count, sneak, add) as app:
        yield app


def test_readers_are_shown_as_readers(app):
    """Hints are explicit: what only reads may be called unasked, the rest may change things."""
    kernel = kernel_of(app)
    hints = {tool.name: tool.hints for tool in kernel.tools(LOCAL).tools}
    kernel.close()
    reader = Hints(read_only=True, destructive=False, idempotent=True, open_world=False)
    assert hints["notes.count"] == hints["trails_meta_ping"] == reader
    assert hints["notes.add"] == Hints(
        read_only=False, destructive=True, idempotent=False, open_world=True
    )


def test_a_reader_can_not_write(app):
    """In a call over a surface and in the program alike; nothing is stored."""
    kernel, ctx = kernel_of(app), app.context()
    failed = asyncio.run(kernel.execute(LOCAL, "notes.sneak", {}))
    assert isinstance(failed, Failure)
    assert failed.kind == "semantic"
    assert "notes.sneak declares no side effects" in failed.message
    assert isinstance(asyncio.run(kernel.execute(LOCAL, "notes.count", {})), Success)
    kernel.close()
    with pytest.raises(TransactionError, match="no side effects"):
        app.call(ctx, "notes.sneak", {})
    assert app.call(ctx, "notes.count", {}) == 0
    app.call(ctx, "notes.add", {})
    assert app.call(ctx, "notes.count", {}) == 1


@pytest.mark.parametrize("declare", [capability, meta_capability])
def test_none_stands_alone(declare):
    """'none' beside an effect is a contradiction, told when it is declared."""
    name = "a.b" if declare is capability else "trails.meta.a"
    with pytest.raises(DeclarationError, match="'none' and others"):
        declare(name, side_effects=["none", "sends mail"])
