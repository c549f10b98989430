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
from bench.parts import (
    COLUMNS,
    MAKER_COLUMNS,
    MAKERS,
    Item,
    Maker,
    columns,
    item_values,
    make_project,
    maker_values,
    makers,
    nodes,
)
from trails import App
from trails.model.history import LOG_FORMAT
from trails.model.iris import digest_of
from trails.views.nodes.file import INDEX_FORMAT

BATCH: Final = 100_000
PEER: Final = "peer.db"


def warehouse(count: int, progress: Callable[[str], None]) -> Path:
    """The folder that holds both; its name says what it was made of."""
    types = [digest_of(each.__trails__) for each in (Item, Maker)]
    made_of = digest_of([*types, LOG_FORMAT, INDEX_FORMAT, count, _sample()])
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
    made = [(item_values(number), maker_values(number)) for number in range(100)]
    return sha256(repr(made).encode()).hexdigest()


def _build_ours(folder: Path, count: int, progress: Callable[[str], None]) -> None:
    with App.open(make_project(folder)) as app:
        ctx = app.context(actor="bench")
        ctx.kg.save_all(makers())
        for start in range(0, count, BATCH):
            ctx.kg.save_all(nodes(Item, min(BATCH, count - start), start))
            progress(f"{min(start + BATCH, count):,} of {count:,} items saved")


def _build_peer(path: Path, count: int) -> None:
    """Tables with one index a column, and the composite ones that Item declares."""
    db = sqlite3.connect(path)
    db.execute("PRAGMA journal_mode = WAL")
    db.execute("CREATE TABLE maker (id INTEGER PRIMARY KEY, code TEXT, city TEXT, region TEXT)")
    db.executemany(
        "INSERT INTO maker VALUES (?, ?, ?, ?)",
        ((number, *maker_values(number).values()) for number in range(MAKERS)),
    )
    db.execute(
        "CREATE TABLE item (id INTEGER PRIMARY KEY, code TEXT, title TEXT, lot TEXT, site TEXT, "
        "state TEXT, score INTEGER, weight REAL, made TEXT, grade TEXT, "
        "maker INTEGER REFERENCES maker)"
    )
    db.executemany(
        f"INSERT INTO item ({', '.join(COLUMNS)}) VALUES ({', '.join('?' * len(COLUMNS))})",
        (columns(item_values(number)) for number in range(count)),
    )
    for column in COLUMNS:
        db.execute(f"CREATE INDEX item_{column} ON item ({column})")
    for column in MAKER_COLUMNS:
        db.execute(f"CREATE INDEX maker_{column} ON maker ({column})")
    for group in Item.__trails__.index:
        db.execute(f"CREATE INDEX item_{'_'.join(group)} ON item ({', '.join(group)})")
    db.execute("ANALYZE")
    db.commit()
    db.close()
