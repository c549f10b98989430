"""Overlays: the texts of branches and snapshots, as differences from main's indexes.

An overlay is a tail (``field_index``) for each field: the nodes that commits between ``main`` and
the branch touch, and those in main's own tail. It grows with the difference, whatever the size of
the graph. Where it has grown long, nodes whose text is the same are removed; where it is long
still, the field gets an index of its own, which begins with links to main's files, or is built
if the branch has little in common with ``main``.

Indexes of a branch's own have a manifest, as those of ``main`` do, and are used again after a
restart if their files are exactly those that it names. Those of snapshots are not kept.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.texts.field_index import (
    FOLDER,
    LONG_BYTES,
    SCANNED,
    FieldIndex,
    TextTail,
    Workplace,
    complete,
)
from trails.engine.graph.texts.source import Texts, TextSource
from trails.errors import StorageError, TrailsError
from trails.imports import later
from trails.model.history import Position
from trails.views.text.manifest import (
    MANIFEST,
    IndexRecord,
    link_index,
    make_manifest,
    operations_of,
    read_manifest,
    write_manifest,
)

if TYPE_CHECKING:
    from trails.engine.graph.texts import fields as texts_fields
    from trails.engine.graph.texts.fields import Key, TextField, Touch
    from trails.views.text.index import TextIndex
else:
    texts_fields = later("trails.engine.graph.texts.fields")

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
        self.wanted = texts_fields.by_predicate(fields.values())
        self.tails: dict[Key, TextTail] = {key: TextTail() for key in fields}
        self.own: dict[Key, FieldIndex] = {}
        """Fields that have an index of their own here."""
        self.restored = False
        """Whether indexes of an earlier process were looked for."""
        self.saved: frozenset[tuple[str, int]] = frozenset()
        """The files that the manifest names."""

    def is_far(self, key: Key) -> bool:
        """Whether a search would take long."""
        return len(self.tails[key]) > FAR or self.tails[key].bytes > LONG_BYTES

    @property
    def lasts(self) -> bool:
        """Whether its indexes are kept for the next process."""
        return self.place.folder is not None and not self.place.checkout.fixed

    def close(self) -> None:
        """Close its indexes."""
        for index in self.own.values():
            index.close()

    def remove(self) -> None:
        """Close its indexes, and remove their files."""
        self.close()
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
        owner: str,
        read_only: bool,
    ) -> None:
        """``position``: the commit at which main's indexes are; ``base``: one of them."""
        self._main = main
        self._lock = main.lock
        self._source: TextSource = main.source
        self._position = position
        self._base = base
        self._folder = folder
        self._owner = owner
        self._read_only = read_only
        self._kept: dict[Checkout, _Overlay] = {}

    def texts(self, checkout: Checkout, field: TextField) -> tuple[TextIndex, Texts]:
        """An index, and the texts that replace what it has of these nodes."""
        overlay = self._overlay(checkout)
        with overlay.lock:
            self._restore(overlay)
            while True:
                self._advance(overlay)
                base, own = self._base(field.key), overlay.own.get(field.key)
                if own is not None:
                    found = own.texts()
                    with suppress(StorageError):  # then it is forked again
                        self._save(overlay)
                    return found
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
            self._close(each)
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

    # --- files -----------------------------------------------------------------------------

    def _restore(self, overlay: _Overlay) -> None:
        """Use the indexes that an earlier process left, once; remove what else it left."""
        if overlay.restored or not overlay.lasts:
            return
        overlay.restored = True
        place = overlay.place
        stored = place.checkout.folder
        folder = None if stored is None else stored / FOLDER
        manifest = None if folder is None else read_manifest(folder)
        if folder is None or not folder.is_dir():
            return
        if manifest is not None and self._is_ours(manifest.owner, manifest.position):
            for record in manifest.indexes:
                field = overlay.fields.get((record.type, record.field))
                if field is not None and field.stamp == record.stamp:
                    self._take(overlay, folder, field, record)
            self._begin_at(overlay, manifest.position.commit)
        if not self._read_only:
            _sweep(folder, {each.record.folder for each in overlay.own.values()})

    def _is_ours(self, owner: str, position: Position) -> bool:
        return owner == self._owner and self._source.ancestry.has(position)

    def _take(self, overlay: _Overlay, folder: Path, field: TextField, record: IndexRecord) -> None:
        """Use an index if its files are those of the manifest: newer ones may have other texts."""
        if record.folder:
            if "/" in record.folder or operations_of(folder / record.folder) != record.operations:
                return
            if self._read_only and overlay.place.folder is not None:
                link_index(
                    folder / record.folder, overlay.place.folder / record.folder, symbolic=True
                )
        overlay.own[field.key] = FieldIndex(field, overlay.place, record)

    def _begin_at(self, overlay: _Overlay, commit: str) -> None:
        """Let the other fields be at the commit up to which these indexes are complete."""
        if not overlay.own:
            return
        others = [each for key, each in overlay.fields.items() if key not in overlay.own]
        if others:
            wanted = texts_fields.by_predicate(others)
            for touch in self._source.touched_between(overlay.anchor, commit, wanted):
                self._mark(overlay, touch)
        overlay.at = commit
        overlay.saved = _files(overlay)

    def _save(self, overlay: _Overlay, *, anyway: bool = False) -> None:
        """Write the manifest, where files have changed and have the texts of a known commit."""
        folder, files = overlay.place.folder, _files(overlay)
        if self._read_only or folder is None or not overlay.lasts or not overlay.own:
            return
        if files == overlay.saved and not anyway:
            return
        with self._lock:
            position = overlay.place.checkout.nodes.position
            if position.commit != overlay.at:
                return  # what was written meanwhile may be in the files
            records = tuple(each.record for each in overlay.own.values() if each.built)
        write_manifest(folder, make_manifest(self._owner, position, overlay.schema, records))
        overlay.saved = files

    def _close(self, overlay: _Overlay) -> None:
        """Let go of an overlay, and keep the indexes of a branch."""
        with overlay.lock:
            if self._read_only or not overlay.lasts:
                overlay.remove()
                return
            with suppress(TrailsError):
                if overlay.own and overlay.schema == overlay.place.checkout.schema.digest:
                    self._advance(overlay)
                    self._save(overlay, anyway=True)
            overlay.close()

    def close(self) -> None:
        """Let go of all overlays."""
        with self._lock:
            overlays, self._kept = list(self._kept.values()), {}
        for overlay in overlays:
            self._close(overlay)

    # --- upkeep ----------------------------------------------------------------------------

    def stored(self, checkout: Checkout) -> Sequence[FieldIndex]:
        """The same, those of an earlier process among them."""
        overlay = self._overlay(checkout)
        with overlay.lock:
            self._restore(overlay)
            self._advance(overlay)
            return tuple(overlay.own.values())

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


def _files(overlay: _Overlay) -> frozenset[tuple[str, int]]:
    return frozenset(each.files for each in overlay.own.values())


def _sweep(folder: Path, kept: set[str]) -> None:
    """Remove what no index has."""
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name not in {MANIFEST, *kept}:
                shutil.rmtree(path, ignore_errors=True)


def _nothing_is_early(index: FieldIndex) -> None:
    """An index of its own is searched for one branch, which is at the commit that was read."""
    del index
