"""Scenarios of a disk that can't be written, each run in a process of its own.

    python unwritable.py SCENARIO PROJECT

``RLIMIT_FSIZE`` makes every file refuse to grow, as a full disk does. A process of root gives its
rights up first, since permissions do not hold for root.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from tests.journeys.durability.campaign import assert_sound, items_of, values_of
from tests.journeys.durability.damage import files_of
from tests.journeys.durability.full_disk import NO_LIMIT, limit, put

from trails import App
from trails.app.local import LocalOperations
from trails.errors import ReadOnlyError, UnwritableError
from trails.model.upkeep import Cleaned

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
