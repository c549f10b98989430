"""What a write tells those who listen to the graph; without any, nothing is collected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trails.engine.feed import Change, Feed, Tally
from trails.engine.lines import Line
from trails.engine.write.touched import Touches
from trails.views.nodes.index import Replacement


class News:
    """What readers of a branch will see differently."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._tally = Tally(fields=feed.tells_fields) if feed.listened else None
        """None where nobody listened in time, or where any node may be seen differently."""

    def add(self, handles: Iterable[str]) -> None:
        """These nodes were changed."""
        if self._tally is not None:
            self._tally.add(handles)

    def add_puts(self, puts: Sequence[Replacement]) -> None:
        """These nodes were put."""
        tally = self._tally
        if tally is None:
            return
        if not tally.wants_fields:
            tally.add(put.handle for put in puts)
            return
        for put in puts:
            tally.compare(put.handle, None if put.before is None else put.before.state, put.after)

    def add_everything(self) -> None:
        """Any node may be seen differently."""
        self._tally = None

    def tell(self, line: Line, touches: Touches) -> None:
        """Hand everything to whoever listens now, these touched nodes included."""
        if self._feed.listened:
            self._feed.tell(self._change(line, touches))

    def _change(self, line: Line, touches: Touches) -> Change:
        tally = self._tally
        if tally is None:
            return Change(line.name)
        for handle, before, after in touches.differences():
            tally.compare(handle, before, after)
        return tally.change(line.name, line.schema)
