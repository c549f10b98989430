"""Chains: which commits lie on the way along first parents from another one back to the start.

A state is reached along first parents, so who wrote a value is found there. A commit that is the
first to follow another one continues its chain; every other one begins a new chain. So a commit is
found on the way from another by passing a few chains, however many commits there are.

Beside that, the rows say which commits the file knows: all up to the newest of them. A commit that
was applied while the file was behind, on a branch that is gone by now, has to be added by hand.
"""

from __future__ import annotations

import sqlite3
from typing import Final

CHAIN_TABLES: Final = """
-- the chain of each commit; chains are named by their first commit
CREATE TABLE IF NOT EXISTS chain_commits (seq INTEGER PRIMARY KEY, chain INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS chains (
    chain INTEGER PRIMARY KEY, parent INTEGER NOT NULL, last INTEGER NOT NULL
);
"""


def known_commits(db: sqlite3.Connection) -> int:
    """The place in the log up to which the file knows every commit."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM chain_commits").fetchone()[0])


def add_commit(db: sqlite3.Connection, seq: int, parent: int) -> None:
    """Add the commit after the last known one; any other is left for later.

    ``parent`` is the place of its first parent; 0 if it has none.
    """
    if known_commits(db) != seq - 1:
        return
    row = db.execute("SELECT chain FROM chain_commits WHERE seq = ?", (parent,)).fetchone()
    chain = seq if row is None else row[0]
    continued = db.execute(
        "UPDATE chains SET last = ? WHERE chain = ? AND last = ?", (seq, chain, parent)
    ).rowcount
    if not continued:
        chain = seq
        db.execute("INSERT OR REPLACE INTO chains VALUES (?, ?, ?)", (seq, parent, seq))
    db.execute("INSERT OR REPLACE INTO chain_commits VALUES (?, ?)", (seq, chain))


class ChainWalk:
    """The way from one commit back to the start, along first parents."""

    def __init__(self, start: int) -> None:
        self._place = start
        self._chain: int | None = None

    def meets(self, db: sqlite3.Connection, seq: int) -> bool:
        """Whether a commit lies on it; asked about from the newest to the oldest."""
        if self._chain is None:
            self._chain = _chain_of(db, self._place)
        while self._place and seq < self._chain:
            row = db.execute("SELECT parent FROM chains WHERE chain = ?", (self._chain,)).fetchone()
            self._place = 0 if row is None else row[0]
            self._chain = _chain_of(db, self._place)
        return seq <= self._place and _chain_of(db, seq) == self._chain


def _chain_of(db: sqlite3.Connection, seq: int) -> int:
    row = db.execute("SELECT chain FROM chain_commits WHERE seq = ?", (seq,)).fetchone()
    return 0 if row is None else int(row[0])
