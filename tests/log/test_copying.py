"""Move a log to PostgreSQL and back: nothing differs, and never do two logs take writes."""

import os
import shutil
import signal
import sqlite3
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.log.test_conformance import LINE, STRANGE, TIME, act, key, other_schema, write

from trails.engine.upkeep.log_moves import Moving, move_to_file, move_to_server, open_server
from trails.errors import (
    CorruptionError,
    LockedError,
    LogUnavailableError,
    NotFoundError,
    SettingsError,
    StorageError,
    StorageFullError,
    TrailsError,
)
from trails.log import copying, switching
from trails.log.copying import DivergedError
from trails.log.payloads import INLINE_LIMIT
from trails.log.postgres import turns as turns_module
from trails.log.postgres.log import PostgresLog
from trails.log.postgres.rows import PostgresRows
from trails.log.protocol import Header
from trails.log.records import CUT_OFF
from trails.log.sqlite import SqliteLog
from trails.log.sqlite_rows import SqliteRows
from trails.log.switching import NOTE, UNUSED
from trails.model.history import GENESIS, LOG_FORMAT, Activity, ActivityQuery, Move, Rename
from trails.model.iris import canonical

BASE = "trails://tests/{}"
NOISE = b"".join(b'<x:s> <x:p> "%064x" .\n' % (number * 7919**9) for number in range(60_000))
QUIET = {
    "max_examples": 6,
    "deadline": None,
    "suppress_health_check": [*HealthCheck],
}


class Graph:
    """A graph whose log is in a folder or on a server."""

    def __init__(self, folder, url, name="main", told=None):
        self.folder, self.url, self.name = Path(folder), url, name
        self.report = (lambda _: None) if told is None else told.append

    def embedded(self, **options):
        """The log in the folder."""
        return SqliteLog(self.folder, self.name, BASE.format(self.name), TIME, **options)

    def remote(self, **options):
        """The log on the server, as another machine uses it."""
        base, folder = BASE.format(self.name), self.folder.with_name("elsewhere")
        return PostgresLog(self.url, folder, self.name, base, TIME, create=False, **options)

    @property
    def asked(self):
        """What to move."""
        return Moving(self.folder, self.name, BASE.format(self.name), self.url, self.report)

    def to_server(self):
        """Move it there."""
        return move_to_server(self.asked)

    def to_file(self):
        """Move it back."""
        return move_to_file(self.asked)

    def dump(self):
        """Everything in the one log that can be opened."""
        log = self.open()
        try:
            return dump(log)
        finally:
            log.close()

    def open(self):
        """The one log that can be opened."""
        found = []
        for make in (self.embedded, self.remote):
            with suppress(StorageError):
                found.append(make())
        assert len(found) == 1
        return found[0]

    def usable(self):
        """How many logs can be opened to write."""
        found = 0
        for make in (self.embedded, self.remote):
            with suppress(StorageError):
                make().close()
                found += 1
        return found


@pytest.fixture
def graph(postgres, tmp_path):
    """A graph whose log is in a folder."""
    made = Graph(tmp_path / "graph", postgres.schema())
    made.embedded().close()
    return made


def dump(log):
    """Everything that a log says."""
    commits = list(log.commits())
    return {
        "header": log.header,
        "branches": log.branches(),
        "commits": [canonical(each) for each in commits],
        "deltas": [
            (log.open_added(each).read(), log.open_removed(each).read()) for each in commits
        ],
        "schemas": {each.schema: canonical(log.schema(each.schema)) for each in commits},
        "marked": (log.renames(), log.migrations()),
        "moves": list(log.moves()),
        "activities": list(log.activities()),
        "archives": log.archives(),
        "archived": log.check_archives(),
        "keys": [
            log.keyed(branch, actor, name, TIME)
            for branch in ("main", "side")
            for actor in ("ann", STRANGE)
            for name in ("k0", "k1", "k2", STRANGE * 99)
        ],
        "readers": log.list_activities(ActivityQuery(node="x:n1"), 99),
        "wrong": log.check(),
    }


# --- histories ------------------------------------------------------------------------------


def commit(log, number):
    """One more commit, of a kind that the number decides."""
    branch = "side" if number % 3 == 0 and "side" in log.branches() else "main"
    schema = {"schema": other_schema()} if number % 5 == 0 else {}
    renames = {"renames": (Rename("type", "A", "B"),)} if number % 7 == 0 else {}
    size = {1: 0, 2: 1, 3: 30_000}.get(number % 11, 2)
    write(
        log,
        b'<x:s> <x:p> "%d" .\n' % number * size,
        branch=branch,
        removed=LINE * (number % 3),
        idempotency_key=STRANGE if number % 13 == 0 and not keyed(log, branch) else None,
        keyed=key(f"k{number % 3}", branch=branch, result={"n": "x" * number * 50}),
        **schema,
        **renames,
    )


def keyed(log, branch):
    """Whether a commit of a branch has a key of its own."""
    return any(each.idempotency_key and each.branch == branch for each in log.commits())


def large(log, number):
    """A commit whose parts are in segments."""
    write(log, NOISE, removed=LINE * (number * 500))


def move(log, number):
    """A branch is created, moved or deleted."""
    head, side = log.head("main"), log.head("side")
    if head is None:
        return
    before = GENESIS if side is None else side.commit
    action = "create" if side is None else ("delete", "fast_forward")[number % 2]
    at = side if action == "delete" else head
    made = Move("side", action, at.commit, before, "ann", TIME)
    log.move(made, at.schema, key("k2", branch="side"))


def remember(log, number):
    """A key without a commit, with long texts."""
    log.remember(key(STRANGE * 99, actor=STRANGE, result={"n": number}), TIME)


def activities(log, number):
    """Some activities that have read nodes."""
    after = log.newest_activities(1)
    first = int(after[0].id[3:]) + 1 if after else 0
    log.insert_activities(
        act(each, actor=STRANGE, used=(f"x:n{each % 3}", "x:" + "n" * 3000))
        for each in range(first, first + number)
    )


def archive(log, number):
    """Old activities leave the table."""
    places = log.find_archivable("2025", number % 3)
    list(log.archive_activities(places))


OPERATIONS = {
    "commit": commit,
    "large": large,
    "move": move,
    "remember": remember,
    "activities": activities,
    "archive": archive,
}
HISTORY = st.lists(
    st.tuples(st.sampled_from([*OPERATIONS, "commit", "commit", "activities"]), st.integers(1, 30)),
    max_size=8,
)


def perform(log, history):
    """Write a history."""
    for name, number in history:
        OPERATIONS[name](log, number)
    log.close()


@settings(**QUIET)
@given(first=HISTORY, second=HISTORY, third=HISTORY)
def test_random_histories_are_equal_at_every_place(schema, first, second, third):
    """To the server, on there, back, on, and to the server again: every stream, every record."""
    with TemporaryDirectory() as folder:
        url, numbers = schema
        graph = Graph(Path(folder, "graph"), url, f"g{next(numbers)}")
        perform(graph.embedded(), first)
        before = graph.dump()
        assert graph.to_server().changed
        assert graph.dump() == before
        perform(graph.remote(), second)
        before = graph.dump()
        assert graph.to_file().commits == len(before["commits"])
        assert graph.dump() == before
        perform(graph.embedded(), third)
        before = graph.dump()
        done = graph.to_server()
        assert done.copied == sum(name in {"commit", "large"} for name, _ in third)
        assert graph.dump() == before
        assert not graph.to_server().changed


@pytest.fixture(scope="module")
def schema(postgres):
    """One schema, and numbers for the graphs in it."""
    return postgres.schema(), iter(range(10_000))


def fill(graph, commits=7):
    """Some of everything, with two large commits."""
    history = [("commit", number) for number in range(1, commits)]
    history[2:2] = [("large", 1), ("move", 1), ("activities", 9), ("archive", 1), ("remember", 1)]
    log = graph.embedded()
    perform(log, [*history, ("large", 2), ("activities", 5)])


# --- interruptions --------------------------------------------------------------------------


STEPS = (
    (SqliteRows, ("add_schemas", "add_commits", "add_moves", "add_archive", "add_activities")),
    (PostgresRows, ("add_schemas", "add_commits", "add_moves", "add_archive", "add_activities")),
    (SqliteRows, ("replace_rest", "_write", "close")),
    (PostgresRows, ("replace_rest", "_rename_streams", "deactivate", "begin", "close")),
    (switching, ("_rename", "write_note", "_clear")),
)


def run_until(step, task):
    """Run a task in a process that is killed after a step; whether it ended before."""
    pid = os.fork()
    if pid:
        _, status = os.waitpid(pid, 0)
        assert status in {0, signal.SIGKILL}
        return status == 0
    try:
        left = iter(range(step, -1, -1))

        def killing(function):
            def called(*args, **kwargs):
                result = function(*args, **kwargs)
                if next(left, 0) == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                return result

            return called

        for owner, names in STEPS:
            for name in names:
                setattr(owner, name, killing(getattr(owner, name)))
        copying.BATCH = 3
        task()
        os._exit(0)
    finally:
        os._exit(1)


@pytest.mark.parametrize("way", ["server", "file"])
def test_kill_9_at_every_step_loses_nothing(graph, way, monkeypatch):
    """Each run is killed one step later than the one before; at no time can two logs be used."""
    monkeypatch.setattr(turns_module, "OWNER_SECONDS", 1.0)
    fill(graph)
    before = graph.dump()
    if way == "file":
        graph.to_server()
    task = graph.to_server if way == "server" else graph.to_file
    step, usable = 0, []
    while not run_until(step, task):
        usable.append(graph.usable())
        step += 1
    assert step > 4
    assert set(usable) <= {0, 1}
    assert not task().changed
    assert graph.dump() == before
    back = graph.to_file if way == "server" else graph.to_server
    assert back().copied == 0
    assert graph.dump() == before


@pytest.mark.parametrize("way", ["server", "file"])
def test_either_way_leads_on_from_every_interruption(graph, way):
    """Killed on the way, the opposite command ends with the log where it says."""
    fill(graph)
    before, step = graph.dump(), 12
    if way == "file":
        graph.to_server()
    task = graph.to_server if way == "server" else graph.to_file
    back = graph.to_file if way == "server" else graph.to_server
    while not run_until(step, task):
        back()
        assert graph.dump() == before
        step += 3


@pytest.mark.parametrize("fault", [KeyboardInterrupt, StorageFullError, LogUnavailableError])
def test_what_was_copied_stays(graph, fault, monkeypatch):
    """Ctrl-C, a full disk, a server that is away: the log stays in use, the next run goes on."""
    fill(graph)
    before = graph.dump()
    monkeypatch.setattr(copying, "BATCH", 2)
    add, calls = PostgresRows.add_commits, []

    def failing(self, rows, source):
        calls.append(rows)
        if len(calls) == 3:
            raise fault("it failed")
        add(self, rows, source)

    monkeypatch.setattr(PostgresRows, "add_commits", failing)
    with pytest.raises(fault):
        graph.to_server()
    assert graph.dump() == before
    log = graph.embedded()
    write(log)
    log.close()
    before = graph.dump()
    copied = sum(map(len, calls[:2]))
    assert graph.to_server().copied == len(before["commits"]) - copied
    assert graph.dump() == before


def test_a_server_that_restarts_ends_a_copy_and_loses_nothing(graph, postgres, monkeypatch):
    """The message says that the copy goes on; it does."""
    fill(graph)
    before = graph.dump()
    monkeypatch.setattr(copying, "BATCH", 2)
    add = PostgresRows.add_moves

    def cut(self, rows):
        monkeypatch.undo()
        postgres.cut_connections()
        add(self, rows)

    monkeypatch.setattr(PostgresRows, "add_moves", cut)
    with pytest.raises(LogUnavailableError, match="run the command again"):
        graph.to_server()
    assert graph.dump() == before
    assert graph.to_server().copied == 0
    assert graph.dump() == before


def test_a_copy_holds_a_batch_in_memory(graph, monkeypatch):
    """Large commits come alone and in pieces; others in groups of limited size."""
    fill(graph)
    groups, pieces = [], []
    add, resize = PostgresRows.add_commits, SqliteRows._read
    monkeypatch.setattr(copying, "BATCH_BYTES", 2_000)

    def spied(self, rows, source):
        groups.append([each for each, _ in rows])
        add(self, rows, source)

    def read(self, path):
        for piece in resize(self, path):
            pieces.append(len(piece))
            yield piece

    monkeypatch.setattr(PostgresRows, "add_commits", spied)
    monkeypatch.setattr(SqliteRows, "_read", read)
    monkeypatch.setattr("trails.log.sqlite_rows.PIECE", INLINE_LIMIT)
    graph.to_server()
    assert sum(each.has_large for group in groups for each in group) == 3
    assert all(not each.has_large for group in groups for each in group[:-1])
    assert all(sum(each.size for each in group[:-1]) <= 2_000 for group in groups)
    assert max(pieces) <= INLINE_LIMIT


# --- damage ---------------------------------------------------------------------------------


def change(graph, *statements):
    """Change rows of the embedded log, as a disk might."""
    with sqlite3.connect(graph.folder / "log.db") as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
            db.execute(f"DROP TRIGGER {name}")
        for each in statements:
            db.execute(each)
    db.close()


DAMAGE = {
    "its statements": "UPDATE commits SET added = (SELECT added FROM commits WHERE seq = 1) "
    "WHERE seq = 2",
    "its digest": "UPDATE commits SET record = CAST(replace(CAST(record AS TEXT), "
    "'\"m\"', '\"n\"') AS BLOB) WHERE seq = 2",
    "can't be read": "UPDATE commits SET record = X'00' WHERE seq = 2",
    "it follows": "UPDATE commits SET seq = 99 WHERE seq = 2",
    "can't be read ": "UPDATE commits SET added = X'1234' WHERE seq = 2",
    "the schema": "UPDATE schemas SET body = CAST(replace(CAST(body AS TEXT), '{', '{ ') AS BLOB)",
}


@pytest.mark.parametrize("problem", [*DAMAGE, "segment", "archive"])
def test_a_damaged_log_is_not_copied(graph, problem):
    """The error names the commit and the next step; the log stays in use where it is."""
    fill(graph)
    log = graph.embedded()
    second = log.at(2).id
    log.close()
    if problem == "segment":
        path = next((graph.folder / "segments").iterdir())
        path.write_bytes(path.read_bytes()[:-9] + b"123456789")
    elif problem == "archive":
        path = next((graph.folder / "activities").iterdir())
        path.write_bytes(path.read_bytes()[:-9] + b"123456789")
    else:
        change(graph, DAMAGE[problem])
    if problem == "the schema":
        change(graph, "UPDATE schemas SET body = X'7B7D'")
    with pytest.raises(CorruptionError, match="recover") as caught:
        graph.to_server()
    assert "nothing was switched" in str(caught.value).lower()
    if problem.startswith(("its", "can't be read ")):
        assert second in str(caught.value)
    assert graph.usable() == 1
    assert (graph.folder / "log.db").exists()


def test_lost_commits_are_recovered_first(graph):
    """The tail has a commit that the log lacks."""
    fill(graph)
    change(graph, "DELETE FROM commits WHERE seq = (SELECT max(seq) FROM commits)")
    with pytest.raises(CorruptionError, match="trails recover"):
        graph.to_server()


def test_a_damaged_copy_is_not_used(graph, postgres):
    """A difference is found in what the server has; the next copy begins again."""
    fill(graph)
    before = graph.dump()
    replace = PostgresRows.replace_rest

    def damaging(self, *rows):
        replace(self, *rows)
        postgres.run(
            "ALTER TABLE trails_commits DISABLE TRIGGER USER; "
            "UPDATE trails_commits SET added = removed WHERE seq = 2; "
            "ALTER TABLE trails_commits ENABLE TRIGGER USER",
            graph.url,
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresRows, "replace_rest", damaging)
        with pytest.raises(CorruptionError, match="number 2"):
            graph.to_server()
    assert graph.dump() == before
    assert graph.to_server().copied == len(before["commits"])
    assert graph.dump() == before


@pytest.mark.parametrize("table", ["heads", "schemas", "keys", "moves", "activities", "archives"])
def test_every_stream_of_a_copy_is_compared(graph, postgres, table):
    """A row that is missing on the server is noticed."""
    fill(graph)
    replace = PostgresRows.replace_rest

    def losing(self, *rows):
        replace(self, *rows)
        name = f"trails_{table}"
        postgres.run(
            f"ALTER TABLE {name} DISABLE TRIGGER USER; DELETE FROM {name} WHERE ctid = "
            f"(SELECT max(ctid) FROM {name}); ALTER TABLE {name} ENABLE TRIGGER USER",
            graph.url,
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresRows, "replace_rest", losing)
        with pytest.raises(CorruptionError, match=r"differs|missing"):
            graph.to_server()
    assert graph.usable() == 1


# --- the wrong place ------------------------------------------------------------------------


def test_a_log_that_is_in_use_is_never_overwritten(graph, tmp_path):
    """Another graph of that name, or this one: nothing is copied."""
    other = Graph(tmp_path / "other", graph.url)
    fill(other)
    other.to_server()
    fill(graph)
    with pytest.raises(StorageError, match="in use; nothing was copied"):
        graph.to_server()
    assert (graph.usable(), len(other.dump()["commits"])) == (2, 8)


def test_an_empty_log_is_filled(graph, tmp_path):
    """Somebody opened the graph with the URL before the log was copied."""
    PostgresLog(graph.url, None, "main", BASE.format("main"), "2020-01-01T00:00:00Z").close()
    fill(graph)
    log = graph.embedded()
    before = dump(log)
    log.close()
    assert graph.to_server().copied == len(before["commits"])
    after = graph.dump()
    assert {**after, "header": None} == {**before, "header": None}


def test_half_a_copy_cannot_be_opened(graph, monkeypatch):
    """Not by a server with an empty folder either, which would begin another log."""
    fill(graph)
    monkeypatch.setattr(PostgresRows, "add_moves", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        graph.to_server()
    with pytest.raises(StorageError, match="is being copied"):
        PostgresLog(graph.url, None, "main", BASE.format("main"), TIME)
    assert graph.usable() == 1


def test_a_restored_log_is_copied_anew(graph, monkeypatch):
    """What an earlier, unfinished copy has is another history now."""
    fill(graph)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PostgresRows, "add_moves", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            graph.to_server()
    shutil.rmtree(graph.folder)
    log = graph.embedded()
    write(log)
    write(log)
    log.close()
    before = graph.dump()
    assert graph.to_server().copied == 2
    assert graph.dump() == before


def test_a_log_that_went_another_way_is_refused(graph):
    """The server has commits of this graph that the file does not have."""
    fill(graph)
    graph.to_server()
    graph.to_file()
    shutil.rmtree(graph.folder)
    log = graph.embedded()
    write(log)
    log.close()
    with pytest.raises(DivergedError, match="does not have"):
        graph.to_server()
    assert graph.usable() == 1


def test_a_log_is_not_copied_from_one_server_to_another(graph, postgres):
    """What the folder has of it may be old."""
    fill(graph)
    graph.to_server()
    other = Graph(graph.folder, postgres.schema())
    with pytest.raises(StorageError, match="move it to a file first"):
        other.to_server()
    with pytest.raises(NotFoundError, match="nothing was copied"):
        other.to_file()
    assert graph.usable() == 1


def test_a_graph_without_a_log_has_nothing_to_copy(postgres, tmp_path):
    """Neither here nor there; and a move back needs an address."""
    graph = Graph(tmp_path / "graph", postgres.schema())
    with pytest.raises(NotFoundError, match="nothing to copy"):
        graph.to_server()
    with pytest.raises(NotFoundError):
        graph.to_file()
    with pytest.raises(SettingsError, match="TRAILS_LOG_URL"):
        Graph(tmp_path / "graph", "").to_file()


# --- in use ---------------------------------------------------------------------------------


def test_a_log_that_a_server_has_open_is_not_moved(graph):
    """It could write meanwhile."""
    fill(graph)
    graph.to_server()
    log = graph.remote()
    with pytest.raises(LockedError, match="stop it"):
        graph.to_file()
    log.close()
    assert graph.to_file().changed


def test_a_server_that_lost_its_connection_never_writes_to_a_log_that_was_moved(graph, postgres):
    """It comes back after the move, and is told so: commits, moves and activities."""
    fill(graph)
    graph.to_server()
    log = graph.remote()
    postgres.cut_connections()
    graph.to_file()
    before = graph.dump()
    for task in (
        lambda: write(log),
        lambda: log.move(Move("new", "create", GENESIS, GENESIS, "ann", TIME), ""),
        lambda: log.remember(key("late"), TIME),
        lambda: log.insert_activities([Activity("late", "ann", "a", TIME, TIME, "ok")]),
    ):
        with pytest.raises(TrailsError, match="is not in use"):
            task()
    log.close()
    assert graph.dump() == before
    assert graph.to_server().copied == 0
    assert graph.dump() == before


def test_a_folder_whose_log_moved_begins_no_other_one(graph):
    """Not even when the old files are deleted; the note says where the log is."""
    fill(graph)
    graph.to_server()
    for _ in range(2):
        with pytest.raises(StorageError, match=r"set url in \[graphs.main.log\]"):
            graph.embedded()
        for each in sorted((graph.folder / UNUSED).rglob("*"), reverse=True):
            each.unlink() if each.is_file() else each.rmdir()
    (graph.folder / UNUSED).rmdir()
    before = graph.dump()
    assert graph.to_file().copied == len(before["commits"])
    assert graph.dump() == before
    assert not (graph.folder / NOTE).exists()


def test_calls_of_a_server_that_was_killed_are_copied(graph):
    """The log that is opened next records them, wherever it is."""
    fill(graph)
    graph.to_server()
    log = graph.remote()
    write(log, call=lambda _: act(99))
    log.close()
    graph.to_file()
    with sqlite3.connect(graph.folder / "log.db") as db:
        assert db.execute("SELECT id FROM calls").fetchall() == [("id-99",)]
    db.close()
    assert [each.detail for _, each in graph.dump()["activities"]][-1] == CUT_OFF


def test_opening_rows_of_a_server_changes_nothing(graph):
    """The log can be used when the rows are closed."""
    fill(graph)
    graph.to_server()
    before = graph.dump()
    header = Header(LOG_FORMAT, "main", BASE.format("main"), "")
    rows = open_server(graph.url, header)
    assert msgspec.structs.asdict(rows.ends())["commits"] == len(before["commits"])
    rows.close()
    assert graph.dump() == before
