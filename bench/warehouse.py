"""A project with a million items, and an ordinary SQLite table of the same rows.

Built once under bench/out and used again while nothing that shapes it changes.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Final

from bench.measure import OUT
from bench.parts import COLUMNS, Item, columns, make_project, nodes, values
from trails import App
from trails.model.history import LOG_FORMAT
from trails.model.iris import digest_of
from trails.views.nodes.file import INDEX_FORMAT

BATCH: Final = 100_000
PEER: Final = "peer.db"


def warehouse(count: int, progress: Callable[[str], None]) -> Path:
    """The folder that holds both; its name says what it was made of."""
    made_of = digest_of([digest_of(Item.__trails__), LOG_FORMAT, INDEX_FORMAT, count, _sample()])
    folder = OUT / f"items-{count}-{made_of[:12]}"
    if not folder.exists():
        for stale in OUT.glob(f"items-{count}-*"):
            shutil.rmtree(stale)
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        _build_ours(unfinished, count, progress)
        progress("building the peer's table")
        _build_peer(unfinished / PEER, count)
        unfinished.rename(folder)
    return folder


def _sample() -> str:
    """Changes when the values of items are made in another way."""
    return sha256(repr([values(number) for number in range(100)]).encode()).hexdigest()


def _build_ours(folder: Path, count: int, progress: Callable[[str], None]) -> None:
    with App.open(make_project(folder)) as app:
        ctx = app.context(actor="bench")
        for start in range(0, count, BATCH):
            ctx.kg.save_all(nodes(Item, min(BATCH, count - start), start))
            progress(f"{min(start + BATCH, count):,} of {count:,} items saved")


def _build_peer(path: Path, count: int) -> None:
    """A table with one index a column, and the composite ones that Item declares."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute(
        "CREATE TABLE item (id INTEGER PRIMARY KEY, code TEXT, title TEXT, lot TEXT, site TEXT, "
        "state TEXT, score INTEGER, weight REAL, made TEXT)"
    )
    db.executemany(
        "INSERT INTO item (code, title, lot, site, state, score, weight, made) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (columns(values(number)) for number in range(count)),
    )
    for column in COLUMNS:
        db.execute(f"CREATE INDEX item_{column} ON item ({column})")
    for group in Item.__trails__.index:
        db.execute(f"CREATE INDEX item_{'_'.join(group)} ON item ({', '.join(group)})")
    db.execute("ANALYZE")
    db.commit()
    db.close()
