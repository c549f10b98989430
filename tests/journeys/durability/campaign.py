"""Start a worker, end it, and judge what it left behind.

The judge keeps its own account of the graph as a dictionary of items. After a crash the
graph must equal the account of all acknowledged commits, or that plus the one commit that
was under way, whole.

This file, run as a program, is the worker: it writes to a project until it is killed. Every line
it prints is flushed JSON: ``opened`` once, then ``intent`` before each operation and ``ack`` after
it. An ``ack`` names the commit, and how far the log's WAL was synced: its generation (two salts)
and its number of frames, read from SQLite's shared memory.

    python campaign.py PROJECT --seed 1 [--die STEP:COUNT] [--commits N] [--bulk-at N ...]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

from trails import App
from trails.engine.graph.open import VIEWS
from trails.engine.graph.texts import field_index
from trails.engine.graph.texts import indexes as text_indexes
from trails.engine.upkeep.verify import verify
from trails.views.text.index import IndexedText, digest, items

APP = '''
from trails import Blob, Node, node_type, predicate


@node_type
class Item(Node):
    """Something to be kept."""

    code: str = predicate(key=True)
    value: int = predicate()
    text: str | None = predicate(search=True)
    tags: list[str] = predicate(search=True)
    file: Blob | None = predicate()
'''
SEGMENT = 300
"""Items whose statements go to a segment file, but are applied in one update."""
BULK = 1_500
"""Items with more statements than the bulk load's threshold, new or updated."""


def make_project(folder: Path) -> Path:
    """A project folder with one node type."""
    folder.mkdir(parents=True)
    (folder / "trails.toml").write_text('[project]\nname = "durable"\n')
    (folder / "app.py").write_text(APP)
    return folder


def graph_folder(project: Path) -> Path:
    """Where a project's only graph has its files."""
    return project / ".trails" / "graphs" / "main"


def index_eagerly():
    """Let few texts be many, so that text indexes are written all the time."""
    field_index.LARGE_TAIL = 5
    text_indexes._DELAY = 0.0


def bulk_items(count, stamp):
    """The items of a bulk: the same ids every time, other values for another stamp."""
    for number in range(count):
        text = f"text {stamp} of {number}, long enough to be worth compressing"
        yield f"bulk-{number}", [stamp, text, [f"tag {stamp} {each}" for each in range(10)]]


def next_operation(rng, known, number):
    """A random operation on a graph that has these ids."""
    plain = [each for each in known if not each.startswith("bulk-")]
    how = rng.choices(
        ["save", "update", "delete", "transaction", "segment", "bulk"], [40, 25, 10, 20, 2, 0.5]
    )[0]
    if how == "segment":
        return bulk(SEGMENT, number)
    if how == "bulk":
        return bulk(BULK, number)
    if not plain or how == "save":
        return {"how": "save", "puts": {f"item-{number}": _state(rng)}, "deletes": []}
    if how == "update":
        return {"how": "update", "puts": {rng.choice(plain): _state(rng)}, "deletes": []}
    if how == "delete":
        return {"how": "delete", "puts": {}, "deletes": [rng.choice(plain)]}
    chosen = rng.sample(plain, min(len(plain), rng.randint(1, 6)))
    cut = rng.randint(0, len(chosen))
    puts = {each: _state(rng) for each in chosen[cut:]}
    puts |= {f"item-{number}-{each}": _state(rng) for each in range(rng.randint(1, 5))}
    return {"how": "transaction", "puts": puts, "deletes": chosen[:cut]}


def bulk(count, stamp):
    """The operation that saves a bulk."""
    return {"how": "bulk", "puts": {}, "deletes": [], "bulk": [count, stamp]}


def _state(rng):
    text = rng.choice([None, "é" * rng.randint(0, 40), 'a "quoted" \\ line\nand another'])
    tags = sorted(set(rng.choices(["red", "green", "blue"], k=rng.randint(0, 3))))
    return [rng.randint(-(2**40), 2**40), text, tags]


def fold(model, operation):
    """The items after an operation."""
    after = {each: state for each, state in model.items() if each not in operation["deletes"]}
    after |= operation["puts"]
    if "bulk" in operation:
        after |= dict(bulk_items(*operation["bulk"]))
    return after


def perform(ctx, item_type, operation):
    """Do an operation on a graph: one commit, which is returned."""

    def make(code, state):
        value, text, tags = state
        return item_type(code=code, value=value, text=text, tags=tags)

    how = operation["how"]
    if how == "bulk":
        items = (make(code, state) for code, state in bulk_items(*operation["bulk"]))
        return ctx.kg.save_all(items, upsert=True)
    if how == "save":
        ((code, state),) = operation["puts"].items()
        return ctx.kg.save(make(code, state))
    if how == "update":
        ((code, state),) = operation["puts"].items()
        found = item_type.get(ctx, code)
        found.value, found.text, found.tags = state
        return ctx.kg.save(found)
    if how == "delete":
        (code,) = operation["deletes"]
        return ctx.kg.delete(item_type.get(ctx, code))
    with ctx.kg.transaction(message="several at once") as outcome:
        for code in operation["deletes"]:
            item_type.get(ctx, code).delete(ctx)
        for code, state in operation["puts"].items():
            make(code, state).save(ctx, upsert=True)
    return outcome.commit


def main() -> None:
    """Open the project and write."""
    given = arguments()
    index_eagerly()
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
    """A step listener that kills this process at a step of the nth commit.

    A step between two views is met once for each pair; the number of the commit decides which.
    """
    step, _, nth = where.partition(":")
    commits = met = 0

    def on_step(reached: str) -> None:
        nonlocal commits, met
        commits += reached == "before_append"
        if commits == int(nth) and reached == step:
            met += 1
            pairs = len(VIEWS) - 1 if step == "mid_apply" else 1
            if met == 1 + commits % pairs:
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


STEPS = ("before_append", "after_append", "mid_apply", "after_apply", "before_acknowledge")
LANDED = {"after_append", "mid_apply", "after_apply", "before_acknowledge"}
"""The steps after which the commit is in the log."""


def fresh_seed() -> int:
    """A seed, said so that a failed round can be replayed: TRAILS_SEED=… pytest …."""
    seed = int(os.environ.get("TRAILS_SEED") or random.SystemRandom().randrange(2**32))
    sys.stdout.write(f"TRAILS_SEED={seed}\n")
    return seed


def environment() -> dict[str, str]:
    """The environment in which a script finds what this process finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


class Victim:
    """A worker process, and what it said until it died."""

    def __init__(self, project: Path, *options: object, under: tuple[str, ...] = ()) -> None:
        command = [*under, sys.executable, __file__, project, *options]
        self._process = subprocess.Popen(
            [str(each) for each in command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        self.acknowledged: list[tuple[str | None, dict]] = []
        self.under_way: dict | None = None
        self.opened: str | None = None
        self.wal: list | None = None

    def listen(self) -> bool:
        """Take the next line; False when there is none any more."""
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            return False
        said = json.loads(line)
        self.wal = said.get("wal", self.wal)
        if "opened" in said:
            self.opened = said["opened"]
        elif "intent" in said:
            self.under_way = said["intent"]
        else:
            self.acknowledged.append((said["ack"], self.under_way))
            self.under_way = None
        return True

    def listen_until(self, commits: int) -> None:
        """Wait for a number of acknowledged commits."""
        while len(self.acknowledged) < commits and self.listen():
            pass

    def listen_until_bulk(self) -> None:
        """Wait until a bulk is about to be saved."""
        while not (self.under_way and "bulk" in self.under_way) and self.listen():
            pass

    def kill(self) -> None:
        """End it without warning, and hear what it still said."""
        self._process.kill()
        self.outlive()

    def outlive(self) -> None:
        """Wait for its end, and hear what it still said."""
        while self.listen():
            pass
        errors = self._process.stderr.read()
        code = self._process.wait()
        self._process.stdout.close()
        self._process.stderr.close()
        assert code in {0, -signal.SIGKILL}, errors


class Account:
    """A project folder, and what must be in it."""

    def __init__(self, project: Path) -> None:
        self.project = make_project(project)
        self.items: dict[str, list] = {}
        self.commits: list[str] = []

    def settle(self, victim: Victim) -> bool:
        """Compare the graph with the account; whether the commit under way had landed."""
        if not self.commits:
            self.commits = [victim.opened]  # the schema's commit, made by opening
        for commit, operation in victim.acknowledged:
            self.items = fold(self.items, operation)
            if commit is not None:
                self.commits.append(commit)
        with App.open(self.project) as app:
            found = items_of(app)
            logged = [commit.id for commit in app.graph().log.commits()]
            lost = [each for each in self.commits if each not in logged]
            assert not lost, f"{len(lost)} acknowledged commits lost"
            extra = logged[len(self.commits) :]
            assert logged[: len(self.commits)] == self.commits
            assert len(extra) <= 1, "more than one commit without acknowledgement"
            if extra:
                assert victim.under_way is not None
                self.items = fold(self.items, victim.under_way)
            self.commits = logged
            assert found == self.items, "the graph is not the fold of its commits"
            assert_sound(app)
        return bool(extra)


def items_of(app: App) -> dict[str, list]:
    """Every item, by id, as the node index has it."""
    item_type = app.registry().classes["Item"]
    return {
        item.code: [item.value, item.text, sorted(item.tags)]
        for item in item_type.objects(app.context())
    }


def values_of(app: App) -> dict[str, int]:
    """Every item's value, by id, as the quads view has it."""
    rows = app.context().kg.sparql("SELECT ?code ?value WHERE { ?i :code ?code ; :value ?value }")
    return {row["code"]: row["value"] for row in rows}


def texts_of(app: App, **where: str) -> list:
    """What a search of each field is given: the node, the number of the text, its digest."""
    graph = app.graph()
    app.context(**where)  # makes a snapshot
    name = where.get("branch") or f"@{where['snapshot']}" if where else "main"
    checkout = graph.checkouts.get(name) or graph.checkout(name)
    found = []
    for field in ("code", "text", "tags"):
        index, overlay = graph.texts.of(checkout, "Item", field)
        found += [each for each in index.entries() if each.handle not in overlay]
        found += [
            IndexedText(handle, item, digest(text))
            for handle, value in overlay.items()
            for item, text in enumerate(items(value))
        ]
    return sorted(found)


def assert_sound(app: App) -> None:
    """The log's digests add up, and all views are at its head and equal a fold of it."""
    graph = app.graph()
    main, head = graph.main, graph.log_head("main")
    quads = graph.stores.of(main)
    assert main.nodes.position.seq == quads.position.seq == head.seq
    assert main.head == head
    problems = [each for each in verify(graph, lambda text: None) if each.severity != "ok"]
    assert not problems
    assert {f"{quad} .\n".encode() for quad in quads.data()} == fold_statements(graph.log)
    segments = graph_folder(app.folder) / "segments"
    assert not [*segments.glob("*.tmp")]


def fold_statements(log) -> set[bytes]:
    """The statements of a graph, from its log alone."""
    statements: set[bytes] = set()
    for commit in log.commits():
        with log.open_removed(commit) as removed, log.open_added(commit) as added:
            statements = statements.difference(removed).union(added)
    return statements


def kill_at_random(account: Account, rng: random.Random, *, bulk: bool = False) -> bool:
    """One round: let a worker write, kill it at a random moment, settle."""
    seed, commits, delay = rng.randrange(2**32), rng.randint(1, 30), rng.random()
    options = ["--seed", seed]
    if bulk:
        victim = Victim(account.project, *options, "--bulk-at", rng.randint(0, 3))
        victim.listen_until_bulk()
        time.sleep(delay * 1.2)
    else:
        victim = Victim(account.project, *options)
        victim.listen_until(commits)
        time.sleep(delay * 0.03)
    victim.kill()
    return account.settle(victim)


def kill_at_step(account: Account, rng: random.Random, step: str, *, bulk: bool = False) -> bool:
    """One round: a worker kills itself at a named moment of a random commit, settle."""
    count = rng.randint(1, 12)
    options = ["--seed", rng.randrange(2**32), "--die", f"{step}:{count}"]
    if bulk:
        options += ["--bulk-at", count - 1]
    victim = Victim(account.project, *options)
    victim.outlive()
    return account.settle(victim)


if __name__ == "__main__":
    main()
