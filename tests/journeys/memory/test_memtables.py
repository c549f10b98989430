"""What is written to a store goes to its files in time."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

from tests.worlds.processes import wait_until

from trails.model.history import Position
from trails.views.quads.view import MIB, Memtables, QuadsView

WRITE = """
import sys
from pathlib import Path
from trails.app.memory import limit_pools
from trails.model.history import Position
from trails.views.quads.view import QuadsView

def held():
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0])

limit_pools()
quads = QuadsView(Path(sys.argv[1]))
removed, most, before = b"", 0, held()
for number in range(10_000):
    added = b'<a:Team/%d> <a:name> "name %d" .\\n' % (number % 9, number)
    added += b'<a:Team/%d> <a:mission> "mission %d, which is longer" .\\n' % (number % 9, number)
    quads.apply(Position(number + 1, f"{number:064}"), removed, added)
    removed = added
    if number % 100 == 0:
        most = max(most, held() - before)
print(most // 1024)
quads.close()
"""


def test_small_commits_do_not_stay_in_memory(tmp_path):
    """Of ten thousand, which would take some 30 MB, less than half is ever held."""
    done = subprocess.run(
        [sys.executable, "-c", WRITE, tmp_path / "quads"],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ,
    )
    assert int(done.stdout) < 15


def test_what_was_flushed_is_there(tmp_path):
    """Nothing is lost when a store is closed while what it holds goes to files."""
    quads = QuadsView(tmp_path / "quads")
    text = b"".join(b'<a:%d> <a:p> "%d" .\n' % (each, each) for each in range(2_000))
    for number in range(40):
        quads.apply(Position(number + 1, "c"), b"", text.replace(b"<a:p>", b"<a:p%d>" % number))
    quads.close()
    again = QuadsView(tmp_path / "quads")
    assert again.position == Position(40, "c")
    assert sum(1 for _ in again.data()) == 80_000
    again.close()


def test_flushes_are_rarer_in_a_large_store(tmp_path: Path) -> None:
    """Each makes RocksDB merge files, so a store may hold a part of what its files have."""
    flushed = threading.Event()
    with (tmp_path / "1.sst").open("wb") as file:
        file.truncate(160 * MIB)
    memtables = Memtables(tmp_path, flushed.set)
    for _ in range(19):
        memtables.add(MIB // 4)
    assert not flushed.is_set()
    memtables.add(MIB // 4)
    wait_until(flushed.is_set, "a flush")


def test_one_flush_at_a_time(tmp_path: Path) -> None:
    """Writers go on meanwhile, and what they add counts for the next."""
    going, flushes = threading.Event(), []

    def flush() -> None:
        flushes.append(threading.get_ident())
        going.wait()

    memtables = Memtables(tmp_path, flush)
    for _ in range(3):
        memtables.add(2 * MIB)
    wait_until(lambda: flushes, "a flush")
    assert len(flushes) == 1
    going.set()
    wait_until(lambda: not memtables._flushing, "its end")
    memtables.add(0)
    wait_until(lambda: len(flushes) == 2, "the next")
