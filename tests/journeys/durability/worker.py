"""A process that writes to a project until it is killed.

Every line it prints is flushed JSON: ``opened`` once, then ``intent`` before each operation
and ``ack`` after it. An ``ack`` names the commit, and how far the log's WAL was synced: its
generation (two salts) and its number of frames, read from SQLite's shared memory.

    python worker.py PROJECT --seed 1 [--die STEP:COUNT] [--commits N] [--bulk-at N ...]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import struct
import sys
from pathlib import Path

from tests.journeys.durability.operations import BULK, bulk, graph_folder, next_operation, perform

from trails import App


def main() -> None:
    """Open the project and write."""
    given = arguments()
    with App.open(given.project) as app:
        ctx = app.context(actor="worker")
        item_type = app.registry().classes["Item"]
        known = {item.code for item in item_type.objects(ctx)}
        say(opened=ctx.kg.head.commit, wal=synced(given.project))
        if given.die:
            app.graph().on_step = dying(given.die)
        rng = random.Random(given.seed)
        first = app.graph().main.head.seq
        for number in range(first, first + given.commits):
            if number - first in given.bulk_at:
                operation = bulk(BULK, number)
            else:
                operation = next_operation(rng, sorted(known), number)
            say(intent=operation)
            commit = perform(ctx, item_type, operation)
            known = known.difference(operation["deletes"]).union(operation["puts"])
            say(ack=None if commit is None else commit.id, wal=synced(given.project))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("project", type=Path)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--die")
    parser.add_argument("--commits", type=int, default=1_000_000)
    parser.add_argument("--bulk-at", type=int, nargs="*", default=())
    return parser.parse_args()


def dying(where):
    """A step listener that kills this process the nth time a step is reached."""
    step, _, left = where.partition(":")
    remaining = int(left)

    def on_step(reached: str) -> None:
        nonlocal remaining
        remaining -= reached == step
        if not remaining:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_step


def synced(project: Path):
    """The salts and the frame count of the log's WAL, as SQLite's wal-index header has them."""
    with (graph_folder(project) / "log.db-shm").open("rb") as file:
        header = file.read(48)
    (frames,) = struct.unpack_from("=I", header, 16)
    return [header[32:40].hex(), frames]


def say(**what) -> None:
    """Print one line, at once."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
