"""Commits over HTTP: one client beside sixteen, and how often the disk is synced for each commit.

The server is a real one, and so are the clients: each saves a part with eight fields by a call of a
capability, and waits for the answer. A small library, which is compiled when the benchmark runs and
loaded into the server before the C library, counts its syncs and makes each as slow as that of an
ordinary disk. Both numbers of clients take turns on one server.
"""

from __future__ import annotations

import mmap
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection
from itertools import count
from pathlib import Path
from statistics import median
from struct import Struct
from tempfile import TemporaryDirectory
from threading import Thread
from time import perf_counter
from typing import Final

import msgspec

from bench.measure import OUT, Goal, Result
from bench.parts import values
from bench.serving.servers import Server, generator_pinned, ours

CLIENTS: Final = 16
SLOW: Final = 0.001
"""Seconds that a sync takes at least."""
APP: Final = '''
from bench.parts import Part
from trails import Context, capability, predicate


@capability("put")
def put(ctx: Context, part: Part) -> str:
    """Save a part."""
    part.save(ctx)
    return part.code
'''
SHIM: Final = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static long *counter;
static struct timespec delay;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("SYNC_COUNTER"), O_RDWR);
    counter = mmap(0, sizeof(long), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    delay.tv_nsec = atol(getenv("SYNC_NANOSECONDS"));
}

static int slowed(const char *name, int file) {
    int (*real)(int) = dlsym(RTLD_NEXT, name);
    __sync_fetch_and_add(counter, 1);
    if (delay.tv_nsec) nanosleep(&delay, 0);
    return real(file);
}

int fsync(int file) { return slowed("fsync", file); }
int fdatasync(int file) { return slowed("fdatasync", file); }
"""
_LONG: Final = Struct("l")


class Syncs:
    """The syncs of processes that are started with ``environment``."""

    def __init__(self, folder: Path, seconds: float) -> None:
        source, library = folder / "syncs.c", folder / "syncs.so"
        source.write_text(SHIM, encoding="utf-8")
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError
        subprocess.run(
            [compiler, "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True
        )
        counter = folder / "syncs"
        counter.write_bytes(bytes(_LONG.size))
        with counter.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), _LONG.size)
        self.environment = {
            "LD_PRELOAD": str(library),
            "SYNC_COUNTER": str(counter),
            "SYNC_NANOSECONDS": str(int(seconds * 1e9)),
        }

    @property
    def count(self) -> int:
        """How many there were."""
        found: int = _LONG.unpack(self._map[:])[0]
        return found


class Measured(msgspec.Struct, frozen=True):
    """One slice of a run."""

    rate: float
    """Commits a second."""
    syncs: float
    """Syncs for each commit."""


def run(*, quick: bool) -> list[Result]:
    """Let one client and sixteen take turns, with slow syncs and with those of this machine."""
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        print("  left out: there is no C compiler, and syncs are counted by a small library")
        return []
    commits, rounds = (20, 2) if quick else (150, 5)
    with generator_pinned():
        slow, own = (
            {clients: list(each) for clients, each in _measure(seconds, commits, rounds).items()}
            for seconds in (SLOW, 0.0)
        )
    one, many = (_median(slow[clients]) for clients in (1, CLIENTS))
    figures = {
        f"{clients} with the syncs of this machine": _median(own[clients]).rate
        for clients in (1, CLIENTS)
    }
    versus = "one client · the same"
    title = f"commits over HTTP, {CLIENTS} clients"
    unit, goal = "/s", Goal(">=", 2.5)
    return [
        Result(title, unit, many.rate, one.rate, one.rate, goal, versus, figures),
        _syncs(CLIENTS, many, Goal("<=", 0.3)),
        _syncs(1, one, Goal("<=", 1.0)),
    ]


def _syncs(clients: int, found: Measured, goal: Goal) -> Result:
    title = f"syncs a commit, {clients} clients" if clients > 1 else "syncs a commit, one client"
    return Result(title, "", found.syncs, 1.0, 1.0, goal, "one sync for each commit · the same")


def _median(slices: list[Measured]) -> Measured:
    return Measured(median(each.rate for each in slices), median(each.syncs for each in slices))


def _measure(seconds: float, commits: int, rounds: int) -> dict[int, list[Measured]]:
    """The slices of each number of clients, on one server."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(dir=OUT)))
        syncs = Syncs(folder, seconds)
        server = stack.enter_context(ours(_make_project(folder / "project"), syncs.environment))
        numbers = count()
        _load(server, numbers, CLIENTS, 2)  # warm
        found: dict[int, list[Measured]] = {1: [], CLIENTS: []}
        for _ in range(rounds):
            for clients, slices in found.items():
                before = syncs.count
                rate = _load(server, numbers, clients, max(2, commits * 2 // (clients + 1)))
                done = clients * max(2, commits * 2 // (clients + 1))
                slices.append(Measured(rate, (syncs.count - before) / done))
        return found


def _make_project(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "trails.toml").write_text(
        '[project]\nname = "bench"\n\n[graphs.main]\napp = "app.py"\n', encoding="utf-8"
    )
    (folder / "app.py").write_text(APP, encoding="utf-8")
    return folder


def _load(server: Server, numbers: Iterator[int], clients: int, commits: int) -> float:
    """Commits a second, of so many clients with so many commits each."""
    threads = [
        Thread(target=_save, args=(server, [next(numbers) for _ in range(commits)]))
        for _ in range(clients)
    ]
    begun = perf_counter()
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return clients * commits / (perf_counter() - begun)


def _save(server: Server, numbers: list[int]) -> None:
    connection = HTTPConnection("127.0.0.1", server.port)
    for number in numbers:
        body = msgspec.json.encode({"part": values(number)})
        connection.request(
            "POST", "/graphs/main/invoke/put", body, {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != 200:
            raise AssertionError(said)
    connection.close()
