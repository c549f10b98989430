"""What the kernel saw: the log is synced between its last write and each acknowledgement."""

import re
import shutil

import pytest
from tests.journeys.durability.campaign import Account, Victim

CALL = re.compile(r"^(?P<pid>\d+) +(?P<name>\w+)\((?P<rest>.*)$")
RESUMED = re.compile(r"^(?P<pid>\d+) +<\.\.\. (?P<name>\w+) resumed>")
COMMITS = 60


def finished_calls(trace):
    """(call, path of its file, text) in the order in which the calls ended."""
    waiting = {}
    for line in trace.read_text(errors="replace").splitlines():
        resumed, call = RESUMED.match(line), CALL.match(line)
        if resumed:
            begun = waiting.pop(resumed["pid"], None)
            if begun:
                yield begun
        elif call:
            path = re.match(r"\d+<([^>]*)>", call["rest"])
            found = (call["name"], path[1] if path else "", call["rest"])
            if call["rest"].endswith("<unfinished ...>"):
                waiting[call["pid"]] = found
            else:
                yield found


@pytest.mark.long
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_log_is_synced_before_every_acknowledgement(tmp_path):
    """No acknowledgement follows an unsynced write to the log's WAL or to a segment."""
    trace = tmp_path / "trace"
    account = Account(tmp_path / "project")
    calls = "trace=fsync,fdatasync,write,pwrite64"
    tracer = ("strace", "-f", "-y", "-s", "48", "-e", calls, "-e", "signal=none", "-o", str(trace))
    options = ("--seed", 5, "--commits", COMMITS, "--bulk-at", 20, 40)
    victim = Victim(account.project, *options, under=tracer)
    victim.outlive()
    account.settle(victim)
    written, unsynced, acknowledged, segments = set(), set(), 0, 0
    for name, path, text in finished_calls(trace):
        if name in {"write", "pwrite64"} and ('"{\\"ack\\"' in text or '"{\\"opened\\"' in text):
            assert any(each.endswith("log.db-wal") for each in written)
            assert not unsynced
            acknowledged += 1
            written.clear()
        elif name in {"write", "pwrite64"} and path.endswith(("log.db-wal", ".tmp")):
            written.add(path)
            unsynced.add(path)
        elif name in {"fsync", "fdatasync"}:
            segments += path.endswith(".tmp")
            unsynced.discard(path)
    assert acknowledged == COMMITS + 1
    assert segments >= 2
