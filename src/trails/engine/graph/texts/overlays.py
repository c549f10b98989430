"""Overlays: the texts of branches and snapshots, as differences from main's indexes.

An overlay is a tail (``field_index``) for each field: the nodes that commits between ``main`` and
the branch touch, and those in main's own tail. It grows with the difference, whatever the size of
the graph. Where it has grown long, nodes whose text is the same are removed; where it is long
still, the field gets an index of its own, which begins with links to main's files, or is built
if the branch has little in common with ``main``. These indexes last as long as the process.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.texts.field_index import (
    LONG_BYTES,
    SCANNED,
    FieldIndex,
    TextTail,
    Workplace,
    complete,
)
from trails.engine.graph.texts.fields import Key, TextField, Touch, by_predicate
from trails.engine.graph.texts.source import Texts, TextSource
from trails.views.text.index import TextIndex

FAR: Final = 2 * SCANNED
"""Nodes of an overlay from which a field gets an index of its own."""
FLOOD: Final = 50_000
"""Nodes in a tail from which an index that has no more of them is built anew."""
_KEPT: Final = 32
"""Branches and snapshots whose overlays are kept."""


def is_flooded(tail: TextTail, index: FieldIndex | None) -> bool:
    """Whether building an index takes less time than following, and less memory."""
    return len(tail) > FLOOD and (index is None or len(tail) > index.documents)


class _Overlay:
    """What distinguishes one branch or snapshot from the texts that main's indexes have."""

    def __init__(
        self, anchor: str, schema: str, fields: Mapping[Key, TextField], place: Workplace
    ) -> None:
        self.lock = threading.RLock()
        """Held while it is brought up."""
        self.schema = schema
        self.fields = fields
        self.place = place
        self.anchor = anchor
        """The commit of ``main`` to which it is relative."""
        self.at = anchor
        """The commit of the branch up to which it is complete."""
        self.wanted = by_predicate(fields.values())
        self.tails: dict[Key, TextTail] = {key: TextTail() for key in fields}
        self.own: dict[Key, FieldIndex] = {}
        """Fields that have an index of their own here."""

    def is_far(self, key: Key) -> bool:
        """Whether a search would take long."""
        return len(self.tails[key]) > FAR or self.tails[key].bytes > LONG_BYTES

    def remove(self) -> None:
        """Close its indexes, and remove their files."""
        for index in self.own.values():
            index.close()
        if self.place.folder is not None:
            shutil.rmtree(self.place.folder, ignore_errors=True)


class Overlays:
    """The overlays of all checkouts but ``main``."""

    def __init__(
        self,
        main: Workplace,
        position: Callable[[], str],
        base: Callable[[Key], FieldIndex | None],
        folder: Callable[[Checkout], Path | None],
        *,
        read_only: bool,
    ) -> None:
        """``position``: the commit at which main's indexes are; ``base``: one of them."""
        self._main = main
        self._lock = main.lock
        self._source: TextSource = main.source
        self._position = position
        self._base = base
        self._folder = folder
        self._read_only = read_only
        self._kept: dict[Checkout, _Overlay] = {}

    def texts(self, checkout: Checkout, field: TextField) -> tuple[TextIndex, Texts]:
        """An index, and the texts that replace what it has of these nodes."""
        overlay = self._overlay(checkout)
        with overlay.lock:
            while True:
                self._advance(overlay)
                base, own = self._base(field.key), overlay.own.get(field.key)
                if own is not None:
                    return own.texts()
                if base is None or base.field.stamp != field.stamp:
                    # Main has no such field, or analyses it in another way.
                    overlay.own[field.key] = FieldIndex(field, overlay.place)
                    continue
                base.bring()
                tail = overlay.tails[field.key]
                with self._lock:
                    if overlay.anchor != self._position():
                        continue
                    tail.include(base.tail.marks)
                    pinned, looked = base.pinned(), tail.look()
                if overlay.is_far(field.key):
                    self._shorten(overlay, base)
                elif pinned is not None:
                    return pinned, complete(tail, looked, field, overlay.place)

    def _overlay(self, checkout: Checkout) -> _Overlay:
        """The overlay of a checkout; those that were used longest ago are let go."""
        surplus: list[_Overlay] = []
        with self._lock:
            found = self._kept.pop(checkout, None)
            if found is not None and found.schema != checkout.schema.digest:
                surplus.append(found)
                found = None
            if found is None:
                found = self._make(checkout)
            self._kept[checkout] = found
            while len(self._kept) > _KEPT:
                surplus.append(self._kept.pop(next(iter(self._kept))))
        for each in surplus:
            each.remove()
        return found

    def _make(self, checkout: Checkout) -> _Overlay:
        place = self._main._replace(
            folder=self._folder(checkout), checkout=checkout, cover=_nothing_is_early
        )
        fields = self._source.fields(checkout.schema)
        return _Overlay(self._position(), checkout.schema.digest, fields, place)

    # --- bringing up -----------------------------------------------------------------------

    def _advance(self, overlay: _Overlay) -> None:
        """Bring an overlay to where ``main`` and its own branch are."""
        main, end = self._position(), overlay.place.checkout.nodes.position.commit
        touched = self._source.touched_between
        if overlay.anchor != main:
            for touch in touched(overlay.anchor, main, overlay.wanted):
                if touch.key not in overlay.own:
                    self._mark(overlay, touch)
            overlay.anchor = main
        if overlay.at != end:
            for touch in touched(overlay.at, end, overlay.wanted):
                self._mark(overlay, touch)
            overlay.at = end

    def _mark(self, overlay: _Overlay, touch: Touch) -> None:
        own, tail = overlay.own.get(touch.key), overlay.tails[touch.key]
        with self._lock:
            if own is not None:
                own.mark(touch.handle, touch.size)
                return
            tail.mark(touch.handle, touch.size)
            if is_flooded(tail, self._base(touch.key)):
                overlay.own[touch.key] = FieldIndex(overlay.fields[touch.key], overlay.place)
                tail.clear()

    def _shorten(self, overlay: _Overlay, base: FieldIndex) -> None:
        """Remove nodes whose text is the same on ``main``; if too many are left, fork."""
        field, tail = base.field, overlay.tails[base.field.key]
        with self._lock:
            marks = tail.marks
        handles, main = list(marks), self._main.checkout.nodes
        ours = self._source.read(main, field, handles)
        theirs = self._source.read(overlay.place.checkout.nodes, field, handles)
        same = {each: marks[each] for each in handles if ours[each] == theirs[each]}
        # Texts of a later commit than that to which the overlay is relative prove nothing.
        if main.position.commit == overlay.anchor:
            with self._lock:
                for handle in base.tail.marks.keys() & same.keys():
                    del same[handle]  # main's index has another text
                tail.remove(same)
        if overlay.is_far(field.key):
            self._fork(overlay, base)

    def _fork(self, overlay: _Overlay, base: FieldIndex) -> None:
        key = base.field.key
        with base.work:  # nothing is flushed meanwhile
            with self._lock:
                if overlay.anchor != self._position():
                    return
                tail = overlay.tails[key]
                tail.include(base.tail.marks)
                handles = list(tail.marks)
            overlay.own[key] = base.fork(overlay.place, handles, symbolic=self._read_only)
            with self._lock:
                tail.clear()

    # --- upkeep ----------------------------------------------------------------------------

    def own(self, checkout: Checkout) -> Sequence[FieldIndex]:
        """The indexes that a checkout has of its own."""
        found = self._kept.get(checkout)
        return () if found is None else tuple(found.own.values())

    def distrust(self, checkout: Checkout, key: Key) -> bool:
        """Have an index of a checkout's own built anew; whether there is one."""
        found = self._kept.get(checkout)
        index = None if found is None else found.own.get(key)
        if index is not None:
            index.distrust()
        return index is not None

    def drop(self, names: Sequence[str] | None = None) -> None:
        """Forget the overlays of checkouts of these names; without names, all of them."""
        with self._lock:
            gone = [each for each in self._kept if names is None or each.name in names]
            overlays = [self._kept.pop(each) for each in gone]
        for overlay in overlays:
            overlay.remove()


def _nothing_is_early(index: FieldIndex) -> None:
    """An index of its own is searched for one branch, which is at the commit that was read."""
    del index
