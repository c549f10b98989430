"""Scenarios of a disk that is full or can't be written, each run in a process of its own.

    python unwritable.py SCENARIO PROJECT

``RLIMIT_FSIZE`` makes every file refuse to grow (the soft limit can be raised again), which
the kernel reports like a full disk. On a small file system, ``filler`` takes the room instead.
A process of root gives its rights up first, since permissions do not hold for root.
"""

from __future__ import annotations

import os
import random
import resource
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.journeys.durability.campaign import (
    BULK,
    assert_sound,
    bulk,
    bulk_items,
    fold,
    items_of,
    perform,
    values_of,
)
from tests.journeys.durability.damage import files_of

from trails import App
from trails.app.local import LocalOperations
from trails.engine.graph.activities import CallRecord
from trails.errors import ReadOnlyError, StorageFullError, TransactionError, UnwritableError
from trails.imports import import_all
from trails.log.storage import files_below
from trails.model.upkeep import Cleaned

NO_LIMIT = resource.RLIM_INFINITY


def limit(size: int) -> None:
    """Let no file grow beyond a size."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))


@contextmanager
def full_at(app: App, step: str):
    """The disk is full from one step of the next write on, until the block ends."""
    app.graph().on_step = lambda reached: limit(1) if reached == step else None
    try:
        yield
    finally:
        limit(NO_LIMIT)
        app.graph().on_step = lambda reached: None


def put(app: App, code: str, value: int) -> None:
    """Save one item."""
    item_type = app.registry().classes["Item"]
    item_type(code=code, value=value, text="x" * 500).save(app.context(), upsert=True)


def start(project: Path) -> tuple[App, dict]:
    """Open a project that holds a few items."""
    app = App.open(project)
    for number in range(20):
        put(app, f"item-{number}", number)
    return app, items_of(app)


def assert_reads(app: App, items: dict) -> None:
    """Listing, point reads and SPARQL all answer, from a whole state."""
    item_type = app.registry().classes["Item"]
    assert items_of(app) == items
    assert item_type.get(app.context(), "item-3").value == items["item-3"][0]
    assert item_type.objects(app.context()).where(value__gte=0).count() == len(items)


def end(app: App, items: dict) -> None:
    """Writing goes on in this process; afterwards everything is sound, here and reopened."""
    put(app, "later", 1)
    items = {**items, "later": [1, "x" * 500, []]}
    assert items_of(app) == items
    assert values_of(app) == {code: state[0] for code, state in items.items()}
    assert_sound(app)
    app.close()
    with App.open(app.folder) as again:
        assert items_of(again) == items
        assert_sound(again)


def log_refuses(project: Path) -> None:
    """Nothing is written, and the error says what to do."""
    app, items = start(project)
    head = app.context().kg.head
    with full_at(app, "before_append"):
        for _ in range(3):
            with pytest.raises(StorageFullError, match="free some space and try again"):
                put(app, "item-3", 99)
            assert_reads(app, items)
            assert values_of(app)["item-3"] == 3
    assert app.context().kg.head == head
    put(app, "item-3", 100)
    assert items_of(app)["item-3"][0] == 100
    end(app, {**items, "item-3": [100, "x" * 500, []]})


def node_index_refuses(project: Path) -> None:
    """The commit is safe, the error says so, and reads go on from before it."""
    app, items = start(project)
    head = app.context().kg.head
    with full_at(app, "after_append"):
        with pytest.raises(StorageFullError, match="was written, but a view") as caught:
            put(app, "item-3", 99)
        assert_reads(app, items)
        assert values_of(app)["item-3"] == 3
        assert app.context().kg.head == head  # never ahead of what is read
        with pytest.raises(StorageFullError):
            put(app, "item-4", 99)
        assert_reads(app, items)
    put(app, "item-5", 55)
    assert app.graph().log.commit(caught.value.data["commit"]) is not None
    change = {"item-3": [99, "x" * 500, []], "item-5": [55, "x" * 500, []]}
    end(app, {**items, **change})


def quads_view_refuses(project: Path) -> None:
    """The commit is safe, listing shows it, and SPARQL goes on from before it."""
    app, items = start(project)
    with full_at(app, "mid_apply"):
        with pytest.raises(StorageFullError, match="was written, but a view"):
            put(app, "item-3", 99)
        for _ in range(3):
            assert_reads(app, {**items, "item-3": [99, "x" * 500, []]})
            assert values_of(app)["item-3"] == 3
        with pytest.raises(StorageFullError):
            put(app, "item-4", 99)
        assert values_of(app) == {code: state[0] for code, state in items.items()}
    end(app, {**items, "item-3": [99, "x" * 500, []]})


def bulk_fails_half_way(project: Path) -> None:
    """A streamed save that runs out of room in the middle leaves nothing behind."""
    app, items = start(project)
    item_type = app.registry().classes["Item"]

    def growing():
        for number, (code, (value, _, tags)) in enumerate(bulk_items(2 * BULK, 1)):
            if number == BULK:
                limit(100_000)
            noise = random.randbytes(300).hex()  # so that the segment grows in spite of zstd
            yield item_type(code=code, value=value, text=noise, tags=tags)

    head = app.context().kg.head
    with pytest.raises(StorageFullError, match="free some space"):
        app.context().kg.save_all(growing())
    assert_reads(app, items)
    assert values_of(app)["item-3"] == 3
    limit(NO_LIMIT)
    assert app.context().kg.head == head
    perform(app.context(), item_type, bulk(BULK, 2))
    end(app, fold(items, bulk(BULK, 2)))


def bulk_load_fails_half_way(project: Path) -> None:
    """SPARQL sees the state before a bulk that the quads view could not take, and then all."""
    app, items = start(project)
    item_type = app.registry().classes["Item"]
    perform(app.context(), item_type, bulk(BULK, 1))
    items = fold(items, bulk(BULK, 1))
    before = values_of(app)

    def on_step(reached: str) -> None:
        if reached == "mid_apply":
            limit(1)  # the load is done beside; what is left can't be written

    app.graph().on_step = on_step
    with pytest.raises(StorageFullError, match="was written, but a view"):
        perform(app.context(), item_type, bulk(BULK, 2))
    items = fold(items, bulk(BULK, 2))
    limit(1)
    assert_reads(app, items)
    assert values_of(app) == before
    limit(NO_LIMIT)
    app.graph().on_step = lambda reached: None
    end(app, items)


def error_caught_in_a_transaction(project: Path) -> None:
    """A transaction that met a full disk can't be finished as if nothing had happened."""
    app, items = start(project)
    ctx, item_type = app.context(), app.registry().classes["Item"]

    def go_on_regardless() -> None:
        with ctx.kg.transaction():
            limit(1)
            with pytest.raises(StorageFullError):
                fill_the_cache()
            limit(NO_LIMIT)

    def fill_the_cache() -> None:
        for number in range(2_000):
            item_type(code=f"big-{number}", value=1, text=f"{number:5}" * 40_000).save(ctx)

    with pytest.raises(TransactionError, match="rolled back"):
        go_on_regardless()
    assert_reads(app, items)
    end(app, items)


def reads_outlive_their_activities(project: Path) -> None:
    """While no activity can be written, reads are answered and the oldest records make room."""
    app, items = start(project)
    activities = app.graph().activities
    limit(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trails.engine.graph.activities._MOST", 10)
        for number in range(50):
            activities.end(CallRecord("ann", f"read-{number}", "query"), "ok")
        assert_reads(app, items)
    limit(NO_LIMIT)
    names = {each.name for _, each in activities.read()}
    assert "read-49" in names
    assert "read-0" not in names
    end(app, items)


def activity_refuses(project: Path) -> None:
    """A call was recorded with its commit; the rest of its record is written later."""
    app, items = start(project)
    change = {"op": "update", "type": "Item", "id": "item-3", "data": {"value": 99}}
    items = {**items, "item-3": [99, "x" * 500, []]}
    with full_at(app, "before_acknowledge"):
        app.mutate(app.context(), [change])
        assert_reads(app, items)
        (newest,) = app.graph().activities.newest(1)
        assert (newest.name, newest.outcome) == ("graph_mutate", "ok")
    assert [each for _, each in app.graph().activities.read()][-1] == newest
    end(app, items)


def files_stop_growing(project: Path) -> None:
    """Wherever the limit is met, saves fail clearly, and what was acknowledged is read."""
    app, items = start(project)
    for room in (9_000, 60_000, 250_000):
        largest = max(facts.st_size for _, facts in files_below(project))
        limit(largest + room)
        items = save_until_full(app, items)
        limit(NO_LIMIT)
        put(app, "between", room)
        items = {**items_of(app)}
    end(app, items)


def file_system_fills(project: Path) -> None:
    """The same on a file system that is really full."""
    app, items = start(project)
    filler = project.parent / "filler"
    for spare in (0, 50_000):
        free = os.statvfs(project).f_bavail * os.statvfs(project).f_frsize
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, free - spare)
        items = save_until_full(app, items)
        filler.unlink()
        put(app, "between", spare)
        items = {**items_of(app)}
    end(app, items)


def save_until_full(app: App, items: dict) -> dict:
    """Save until the disk is full; the items acknowledged, and perhaps the last one."""
    for number in range(10_000):
        code = f"more-{len(items)}-{number}"
        try:
            put(app, code, number)
        except StorageFullError as error:
            found = items_of(app)
            if "commit" in error.data and code in found:
                items = {**items, code: [number, "x" * 500, []]}
            assert_reads(app, items)
            assert values_of(app)["item-3"] == 3
            return items
        items = {**items, code: [number, "x" * 500, []]}
    raise AssertionError("the disk never filled")


NOBODY = 65534


def assert_only_read(app: App, items: dict, kind: type[ReadOnlyError]) -> None:
    """Everything can be read, nothing can be written, and the graph says so."""
    assert app.graph().status == "read_only"
    assert items_of(app) == items
    assert values_of(app) == {code: state[0] for code, state in items.items()}
    assert b"".join(app.export(app.context())).count(b"\n") == len(items)
    for write in (
        lambda: put(app, "new", 1),
        lambda: app.versions().create_branch("new"),
        lambda: app.mutate(app.context(), [{"op": "delete", "type": "Item", "id": "item-1"}]),
    ):
        with pytest.raises(kind, match="open read-only"):
            write()
    assert items_of(app) == items


def permissions(project: Path) -> None:
    """A folder without write permission is read, and no file in it changes."""
    with App.open(project) as app:
        items = items_of(app)
    below = [project / ".trails", *(project / ".trails").rglob("*")]
    for path in below:
        if os.getuid() == 0:
            os.chown(path, NOBODY, NOBODY)
        path.chmod(0o500 if path.is_dir() else 0o400)
    import_all()  # another user may not read the folder of the interpreter
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    before = files_of(project / ".trails")
    with App.open(project) as app:
        assert_only_read(app, items, UnwritableError)
        assert "permission denied" in app.graph().read_only.reason
    assert files_of(project / ".trails") == before
    for path in below:
        path.chmod(0o700 if path.is_dir() else 0o600)
    with App.open(project) as app:
        put(app, "later", 1)
        assert_sound(app)


def clean_up(project: Path, *, dry_run: bool = False) -> Cleaned:
    """What ``trails cleanup`` does to the only graph."""
    operations = LocalOperations()
    done = operations.cleanup(project, None, lambda text: None, keep=0, dry_run=dry_run)
    return done["main"]


def full(project: Path) -> None:
    """A project on a full disk is read; ``cleanup`` works, and with the room writes work again."""
    with App.open(project) as app:
        items = items_of(app)
        first = next(app.graph().log.commits())
        assert app.context(snapshot=first.id).kg.sparql("SELECT * { ?s ?p ?o }") is not None
    limit(1)
    with App.open(project) as app:
        assert_only_read(app, items, UnwritableError)
        assert "trails cleanup" in app.graph().read_only.reason
    planned = clean_up(project, dry_run=True)
    assert planned.snapshots == (first.id,)
    done = clean_up(project)
    assert done.snapshots == (first.id,)
    assert done.bytes > 0
    with pytest.raises(UnwritableError, match="can be removed without writing"):
        clean_up(project)
    limit(NO_LIMIT)
    with App.open(project) as app:
        put(app, "later", 1)
        assert_sound(app)


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
