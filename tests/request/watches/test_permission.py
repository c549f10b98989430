"""Who may not read may not watch."""

import asyncio

from trails import App, Node, node_type, predicate
from trails.app.kernels import kernel_of
from trails.model.actors import LOCAL, Actor


@node_type
class Note(Node):
    """Something written down."""

    text: str = predicate()


def test_watching_needs_what_reading_needs():
    """The same refusal as for a read, and for what does not exist as for what does."""
    stranger = Actor("stranger", frozenset({"builder"}))
    with App(Note) as app:
        kernel = kernel_of(app)
        for uri in ("trails://kg/Note", "trails://kg/Note/1", "trails://kg/Nothing"):
            refused = kernel.refuse_watch(stranger, uri)
            assert refused is not None
            assert refused.kind == "unauthenticated"
            assert refused == asyncio.run(kernel.read(stranger, uri))
        assert kernel.refuse_watch(LOCAL, "trails://kg/Note") is None
        kernel.close()
