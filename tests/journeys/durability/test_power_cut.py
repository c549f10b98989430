"""A power cut: what was written and not synced may be gone, in part or whole.

Simulated on the files that a killed worker leaves, by taking away what no sync promised:

- ``log.db-wal`` ends after the last synced frame, or goes on with noise: each commit syncs it
  (``synchronous=FULL``) before SQLite's shared memory counts its frames, which are kept. If
  its generation changed since, all older frames were synced into ``log.db`` before, and the
  whole file may go. ``log.db`` itself is synced by SQLite whenever it checkpoints.
- The tail of the log is cut or spoiled anywhere: nobody syncs it.
- ``*-shm`` is shared memory and never survives.
- ``nodes.db-wal`` goes whole: with ``synchronous=NORMAL`` it is synced only for a checkpoint.
  The worker dies at a named step, never inside a checkpoint, so ``nodes.db`` alone is the
  state of the last one.
- RocksDB's newest log is cut or spoiled anywhere: Oxigraph does not sync it. Its sorted files
  and MANIFEST are synced by RocksDB before they count.
- Segment files are synced, with their folder, before the row that names them, so only
  unfinished ``*.tmp`` ones are cut.
"""

import os
import random

import pytest
from tests.campaigns import sized
from tests.journeys.durability.campaign import (
    STEPS,
    Account,
    Victim,
    fresh_seed,
    graph_folder,
    synced,
)

WAL_HEADER = 32
FRAME = 24 + 4096


def cut_power(project, wal, rng):
    """Take away what was not synced."""
    folder = graph_folder(project)
    cut_log(folder / "log.db-wal", wal, rng)
    spoil_tail(folder / "tail", rng.randint(0, (folder / "tail").stat().st_size), rng)
    branch = folder / "branches" / "main"
    for name in (folder / "log.db-shm", folder / "nodes.db-shm", folder / "nodes.db-wal"):
        name.unlink(missing_ok=True)
    newest = max((branch / "quads").glob("*.log"), key=lambda path: path.stat().st_mtime_ns)
    spoil_tail(newest, rng.randint(0, newest.stat().st_size), rng)
    for unfinished in (folder / "segments").glob("*.tmp"):
        os.truncate(unfinished, rng.randint(0, unfinished.stat().st_size))


def cut_log(path, wal, rng):
    """Keep the synced frames of the log's WAL; spoil or drop the rest."""
    salts, frames = wal
    with path.open("rb") as file:
        generation = file.read(WAL_HEADER)[16:24].hex()
    if generation == salts:
        spoil_tail(path, WAL_HEADER + frames * FRAME, rng)
    else:
        path.unlink()


def spoil_tail(path, start, rng):
    """End a file at an offset, or let noise follow."""
    lost = path.stat().st_size - start
    os.truncate(path, start)
    if lost > 0 and rng.random() < 0.5:
        with path.open("ab") as file:
            file.write(rng.randbytes(rng.randint(1, lost)))


def one_cut(account, rng, step, *, bulk=False):
    """One round: a worker dies at a step, the power is cut, and the account is settled."""
    count = rng.randint(3, 25)
    options = ["--seed", rng.randrange(2**32), "--die", f"{step}:{count}"]
    if bulk:
        options += ["--bulk-at", count - 2]
    victim = Victim(account.project, *options)
    victim.outlive()
    assert len(victim.acknowledged) == count - 1
    cut_power(account.project, synced(account.project), rng)
    account.settle(victim)


@pytest.mark.parametrize("step", STEPS)
def test_a_power_cut_loses_nothing_acknowledged(tmp_path, step):
    """Unsynced writes of log and views are discarded; every acknowledged commit is there."""
    rng = random.Random(fresh_seed())
    account = Account(tmp_path / "project")
    for _ in range(2):
        one_cut(account, rng, step)


def test_a_power_cut_after_a_bulk_loses_nothing_acknowledged(tmp_path):
    """The last acknowledged commit is a segment file and a bulk load."""
    one_cut(Account(tmp_path / "project"), random.Random(fresh_seed()), "mid_apply", bulk=True)


def test_writes_that_were_acknowledged_depend_on_the_synced_frames(tmp_path):
    """The simulation bites: cutting one frame too many loses the last commit."""
    rng = random.Random(fresh_seed())
    account = Account(tmp_path / "project")
    victim = Victim(account.project, "--seed", 7, "--die", "before_append:6")
    victim.outlive()
    salts, frames = victim.wal
    cut_power(account.project, [salts, frames - 1], rng)
    with pytest.raises(AssertionError, match="1 acknowledged commits lost"):
        account.settle(victim)


@pytest.mark.long(cases=5 * sized(20, nightly=2))
def test_many_power_cuts_lose_nothing_acknowledged(tmp_path):
    """The campaign: projects with five cuts each."""
    rng = random.Random(fresh_seed())
    for number in range(sized(20, nightly=2)):
        account = Account(tmp_path / f"project-{number}")
        for step in rng.sample(STEPS, len(STEPS)):
            one_cut(account, rng, step, bulk=rng.random() < 0.15)
