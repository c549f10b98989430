"""What is particular to a log on PostgreSQL: turns, outages, privileges, secrets."""

import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import psycopg
import pytest
from tests.log.conftest import BASE, MADE
from tests.log.test_conformance import LINE, TIME, act, key, write
from tests.worlds.processes import state_of, wait_until

from trails.errors import (
    BehindError,
    ConflictError,
    LogUnavailableError,
    OutcomeUnknownError,
    SettingsError,
    StorageError,
    TrailsError,
    UnwritableError,
)
from trails.log.postgres import connections as connections_module
from trails.log.postgres import following as following_module
from trails.log.postgres import turns as turns_module
from trails.log.postgres.connections import Connections
from trails.log.postgres.log import PostgresLog
from trails.log.protocol import Missed
from trails.log.records import CUT_OFF
from trails.model.history import GENESIS, ActivityQuery, Move

STREAMS = ("graphs", "commits", "chunks", "schemas", "moves", "archives", "archive_chunks")


def open_at(url, folder=None, graph="main", **options):
    """A log at a URL."""
    return PostgresLog(url, folder, graph, BASE, MADE, **options)


# --- the database itself ----------------------------------------------------------------------


def test_the_database_refuses_changes_of_streams(remote, postgres):
    """Rows can be added and never changed or removed, whoever asks."""
    log = remote.open()
    commit = write(log, LINE * 50_000)
    log.move(Move("b", "create", commit.id, GENESIS, "ann", TIME), commit.schema)
    log.insert_activities([act(number) for number in range(9)])
    list(log.archive_activities(log.find_archivable("", 5)))
    for table in (*STREAMS, "activities"):
        (column,) = postgres.run(
            "SELECT column_name FROM information_schema.columns "
            f"WHERE table_name = 'trails_{table}' AND column_name IN ('record', 'body', 'sha', "
            "'format') LIMIT 1",
            remote.url,
        )[0]
        for statement in (
            f"UPDATE trails_{table} SET {column} = {column}",
            f"DELETE FROM trails_{table}",
            f"TRUNCATE trails_{table}",
        ):
            with pytest.raises(psycopg.errors.RaiseException, match="append-only"):
                postgres.run(statement, remote.url)
    assert list(log.commits()) == [commit]


def test_graphs_in_one_schema_do_not_mix(postgres):
    """Each has its own streams, heads and numbers."""
    url = postgres.schema()
    one, two = open_at(url, graph="one"), open_at(url, graph="two")
    first, second = write(one, keyed=key()), write(two)
    two.insert_activities([act(1)])
    assert (first.seq, second.seq) == (1, 1)
    assert list(one.commits()) == [first]
    assert list(one.activities()) == []
    assert two.keyed("main", "ann", "k", TIME) is None
    one.close()
    two.close()


def test_another_project_is_refused(postgres):
    """A graph of the same name with another base IRI is another graph."""
    url = postgres.schema()
    open_at(url).close()
    with pytest.raises(StorageError, match="search_path"):
        PostgresLog(url, None, "main", "trails://others/main", MADE)


def test_tables_are_created_once_and_later_versions_refused(postgres):
    """Openers at the same time do not meet; tables of a later version are left alone."""
    url = postgres.schema()
    errors = []

    def start(number):
        try:
            open_at(url, graph=f"g{number}").close()
        except TrailsError as error:
            errors.append(error)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert postgres.run("SELECT version FROM trails_versions", url) == [(1,)]
    postgres.run("INSERT INTO trails_versions VALUES (99)", url)
    with pytest.raises(StorageError, match="version 99"):
        open_at(url)


def test_a_role_with_few_privileges_is_enough(remote, postgres, tmp_path):
    """What the documentation grants lets a server work, and change no history."""
    log = remote.open()
    write(log)
    name = remote.url.rpartition("%3D")[2]
    role = f"role_{name}"
    remote.close()
    text = (postgres.documented_grants()).replace("trails_server", role)
    postgres.run(f"CREATE ROLE {role} LOGIN; GRANT USAGE ON SCHEMA {name} TO {role}")
    postgres.run(text, remote.url)
    url = remote.url.replace("postgresql://postgres:@", f"postgresql://{role}@")
    log = open_at(url, tmp_path / "other")
    commit = write(log, LINE * 50_000, keyed=key())
    move = Move("b", "create", commit.id, GENESIS, "ann", TIME)
    log.move(move, commit.schema)
    log.move(Move("b", "delete", commit.id, commit.id, "ann", TIME), commit.schema)
    log.insert_activities([act(number, used=("T/1",)) for number in range(9)])
    list(log.archive_activities(log.find_archivable("", 5)))
    log.remember(key("late"), "2028")
    assert (log.check(), log.check_archives(), log.size() > 0) == ([], [], True)
    log.copy_new(tmp_path / "copy", {}, set())
    log.close()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        postgres.run("UPDATE trails_commits SET record = ''", url)
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        postgres.run("ALTER TABLE trails_commits DISABLE TRIGGER USER", url)
    with pytest.raises(UnwritableError, match="privilege"):
        open_at(url, graph="new")


def test_commits_are_synced_whatever_the_database_says(remote, postgres):
    """A default of synchronous_commit = off does not weaken an acknowledgement."""
    postgres.run("ALTER ROLE postgres SET synchronous_commit = off")
    try:
        connections = Connections(remote.url)
        with connections.borrowed() as connection:
            assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)
        connections.close()
    finally:
        postgres.run("ALTER ROLE postgres RESET synchronous_commit")


# --- turns ------------------------------------------------------------------------------------


def test_a_turn_keeps_others_from_writing(remote):
    """They wait, and learn what was written before they write themselves."""
    one, two = remote.open(), open_at(remote.url)
    first = write(one)
    assert one.begin_turn() is None
    missed = []
    waiting = threading.Thread(target=lambda: missed.append(two.begin_turn()))
    waiting.start()
    second = write(one)
    move = Move("b", "create", second.id, GENESIS, "ann", TIME)
    waiting.join()
    assert missed == [Missed((), frozenset({"main"}))]
    assert (two.last_seq(), two.head("main").commit) == (2, second.id)
    third = write(two)
    assert [each.id for each in one.commits()] == [first.id, second.id, third.id]
    two.begin_turn()
    two.end_turn()
    assert one.refresh() == Missed((), frozenset({"main"}))
    assert one.refresh() is None
    version = two.branches_version
    one.move(move, second.schema)
    found = two.refresh()
    assert found.branches == {"b"}
    assert [each.branch for each in found.moves] == ["b"]
    assert (two.branches(), two.branches_version) == (one.branches(), version + 1)
    one.move(Move("b", "delete", second.id, second.id, "ann", TIME), second.schema)
    assert two.refresh().branches == {"b"}
    assert two.branches() == one.branches()
    assert two.refresh() is None
    two.close()


def test_a_write_that_looked_at_an_older_log_is_refused(remote):
    """A log that is used without turns, too: what came in between is a conflict."""
    one, two = remote.open(), open_at(remote.url)
    write(one)
    with pytest.raises(ConflictError, match="in between"):
        write(two)
    assert two.refresh() == Missed((), frozenset({"main"}))
    assert write(two).seq == 2
    two.close()


def test_what_others_wrote_is_read_with_few_questions(remote, postgres):
    """Commits and their statements come along with the look at the log."""
    one, two = remote.open(), open_at(remote.url)
    made = [write(one) for _ in range(5)]
    two.refresh()
    two._connections.close()
    two._connections.connect = None
    for each in made:
        assert two.commit(each.id) == each
        assert two.open_added(each).read() == LINE
        assert two.open_removed(each).read() == b""
    two.close()


def test_followers_are_woken_by_notifications(remote, monkeypatch):
    """Those of others, not those of their own commits."""
    monkeypatch.setattr(following_module, "POLL_SECONDS", 60)
    one, two = remote.open(), open_at(remote.url)
    woken, own = threading.Event(), threading.Event()
    one.follow(own.set)
    two.follow(woken.set)
    write(one)
    assert woken.wait(30)
    assert two.refresh() is not None
    assert not own.is_set()
    two.close()


def test_followers_look_for_themselves(remote, monkeypatch):
    """Where notifications get lost."""
    monkeypatch.setattr(following_module, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(PostgresLog, "_announce", lambda *_: None)
    one, two = remote.open(), open_at(remote.url)
    woken = threading.Event()
    two.follow(woken.set)
    write(one)
    assert woken.wait(30)
    two.close()


def test_a_server_whose_connections_are_cut_follows_again(remote, postgres):
    """It hears of what was written meanwhile, and says when it could not."""
    one, two = remote.open(), open_at(remote.url)
    woken = threading.Event()
    two.follow(woken.set)
    for _ in range(2):
        woken.clear()
        postgres.cut_connections()
        write(one)
        assert woken.wait(20)
        assert two.refresh() is not None
    two.close()


def test_servers_know_of_each_other(remote):
    """Until they end."""
    one = remote.open()
    assert not one.shared
    two = open_at(remote.url)
    assert one.shared
    assert two.shared
    other = open_at(remote.url, graph="other")
    two.close()
    wait_until(lambda: not one.shared)
    other.close()


def test_calls_of_a_server_that_ended_are_recorded(remote):
    """Not those of one that is at work."""
    one = remote.open()
    write(one, call=lambda _: act(1))
    two = open_at(remote.url)
    assert list(two.activities()) == []
    two.close()
    one._connections.close()  # as if it were killed
    one._listener.close()
    two = open_at(remote.url)
    assert [each.detail for _, each in two.activities()] == [CUT_OFF]
    two.close()


def test_two_servers_archive_activities_once(remote):
    """Whoever is faster; the other one reads them from the archive."""
    one, two = remote.open(), open_at(remote.url)
    one.insert_activities([act(number) for number in range(9)])
    before = list(one.activities())
    places = two.find_archivable("", 5)
    assert len(list(one.archive_activities(one.find_archivable("", 3)))) == 1
    assert list(two.archive_activities(places)) == []
    for log in (one, two):
        assert list(log.activities()) == before
        assert len(log.newest_activities(20)) == 9
        assert len(log.list_activities(ActivityQuery(), 20, archived=True)) == 9
        assert log.find_activities({"id-1": "2026-01-01T10:00:00.000Z"})
    two.close()


def test_a_database_that_went_back_is_not_written(remote, postgres):
    """It was restored to an earlier state while servers used it."""
    log = remote.open()
    write(log)
    lost = write(log)
    postgres.run(
        "ALTER TABLE trails_commits DISABLE TRIGGER USER; DELETE FROM trails_commits WHERE seq = 2",
        remote.url,
    )
    for attempt in (log.refresh, log.begin_turn, lambda: write(log)):
        with pytest.raises(BehindError, match=lost.id):
            attempt()


def _pause_in_turn(url, outcome):
    turns_module.TURN_SECONDS = 1
    log = PostgresLog(url, None, "main", BASE, MADE)
    log.begin_turn()
    os.kill(os.getpid(), signal.SIGSTOP)
    try:
        write(log)
    except TrailsError as error:
        outcome.put(error.code)
    else:
        outcome.put("written")


def test_a_server_that_was_paused_can_not_write(postgres):
    """SIGSTOP for longer than a turn may take: others go on, and what it had begun is refused."""
    url = postgres.schema()
    log = open_at(url)
    context = multiprocessing.get_context("spawn")
    outcome = context.Queue()
    worker = context.Process(target=_pause_in_turn, args=(url, outcome))
    worker.start()
    wait_until(lambda: state_of(Path(f"/proc/{worker.pid}")) == "T", "the pause")
    log.begin_turn()  # waits until the server has ended the turn
    write(log)
    os.kill(worker.pid, signal.SIGCONT)
    assert outcome.get(timeout=60) == "log_unavailable"
    worker.join()
    assert [each.seq for each in log.commits()] == [1]
    log.close()


def test_a_long_turn_is_kept_while_its_server_is_at_work(remote, monkeypatch):
    """Nothing is written for longer than a silent server may keep the turn."""
    monkeypatch.setattr(turns_module, "TURN_SECONDS", 1)
    monkeypatch.setattr(following_module, "POLL_SECONDS", 0.1)
    log = remote.open()
    log.follow(lambda: None)
    log.begin_turn()
    time.sleep(2)
    assert write(log).seq == 1


def _die_while_writing(url, folder, ready):
    log = PostgresLog(url, folder, "main", BASE, MADE)
    made = write(log).id

    def stop(*_):
        ready.put(made)
        time.sleep(60)

    log._commit = stop
    write(log, LINE * 60_000, keyed=key())


def test_a_writer_that_is_killed_leaves_nothing(postgres, tmp_path):
    """Kill -9 with all rows sent: the next owner finds the log as it was, and writes."""
    url = postgres.schema()
    context = multiprocessing.get_context("spawn")
    ready = context.Queue()
    worker = context.Process(target=_die_while_writing, args=(url, tmp_path, ready))
    worker.start()
    made = ready.get(timeout=60)
    os.kill(worker.pid, signal.SIGKILL)
    worker.join()
    log = open_at(url, tmp_path)
    assert [each.id for each in log.commits()] == [made]
    assert log.keyed("main", "ann", "k", TIME) is None
    assert list((tmp_path / "segments").iterdir()) == []
    assert (write(log).seq, log.check()) == (2, [])
    log.close()


# --- outages ----------------------------------------------------------------------------------


def test_a_restart_of_the_server_is_survived(remote, postgres):
    """Reads and writes go on, and everything acknowledged is there."""
    log = remote.open()
    first = write(log, LINE * 50_000, keyed=key())
    log.insert_activities([act(1)])
    postgres.restart()
    assert log.open_added(first).read() == LINE * 50_000
    log.insert_activities([act(2)])
    second = write(log)
    assert list(remote.open().commits()) == [first, second]


def test_cut_connections_are_replaced(remote, postgres):
    """Both kinds: those that read, and the one that writes."""
    log = remote.open()
    made = []
    for _ in range(3):
        postgres.cut_connections()
        made.append(write(log))
        postgres.cut_connections()
        assert list(log.commits()) == made


def test_a_server_that_stays_away_gives_typed_errors(remote, postgres, monkeypatch):
    """Whatever is asked; and when it is back, everything works again."""
    monkeypatch.setattr(connections_module, "RETRY_SECONDS", 0.3)
    log = remote.open()
    commit = write(log)
    postgres.stop()
    try:
        for ask in (
            lambda: log.at(1),
            lambda: write(log),
            lambda: log.insert_activities([act(1)]),
            lambda: open_at(remote.url),
        ):
            with pytest.raises(LogUnavailableError, match="Nothing was written"):
                ask()
    finally:
        postgres.start()
    assert list(log.commits()) == [commit]
    assert write(log).seq == 2


class _Breaking:
    """A connection that breaks at a COMMIT, before the server gets it or after it was done."""

    def __init__(self, connection, *, done):
        self._connection, self._done = connection, done

    def __getattr__(self, name):
        return getattr(self._connection, name)

    def execute(self, query, *arguments, **options):
        if query != "COMMIT":
            return self._connection.execute(query, *arguments, **options)
        if self._done:
            self._connection.execute(query)
        self._connection.close()
        raise psycopg.OperationalError("the connection is lost")


@pytest.mark.parametrize("done", [True, False])
def test_the_outcome_of_a_lost_commit_is_looked_up(remote, done):
    """What was written is acknowledged, once; what was not is refused as such."""
    log = remote.open()
    start = write(log)
    move = Move("b", "create", start.id, GENESIS, "ann", TIME)
    writes = {
        "commit": lambda: write(log, keyed=key()),
        "move": lambda: log.move(move, start.schema),
        "key": lambda: log.remember(key("alone"), TIME),
    }
    for change in writes.values():
        log.begin_turn()  # it may have to connect again first
        log.end_turn()
        connection = log._writer
        log._writer = _Breaking(connection, done=done)
        if done:
            change()
        else:
            with pytest.raises(LogUnavailableError, match="Nothing was written"):
                change()
    assert log.last_seq() == (2 if done else 1)
    assert ("b" in log.branches(), len(list(log.moves()))) == (done, int(done))
    assert (log.keyed("main", "ann", "alone", TIME) is not None) is done
    assert (log.keyed("main", "ann", "k", TIME) is not None) is done
    assert write(log).seq == log.last_seq()
    assert remote.open().check() == []


@pytest.mark.parametrize("done", [True, False])
def test_an_outcome_that_nobody_can_look_up_is_unknown(remote, postgres, monkeypatch, done):
    """It names the commit; when the server is back, the log goes on from what happened."""
    monkeypatch.setattr(turns_module, "SETTLE_SECONDS", 0.3)
    log = remote.open()
    first = write(log)
    breaking = _Breaking(log._writer, done=done)
    log._writer = breaking
    close = breaking._connection.close
    monkeypatch.setattr(breaking._connection, "close", lambda: (close(), postgres.stop()))
    try:
        with pytest.raises(OutcomeUnknownError) as caught:
            write(log)
    finally:
        postgres.start()
    found = log.commit(str(caught.value.data["commit"]))
    assert (found is not None) is done
    if done:  # what the caller believed to be the head is not
        with pytest.raises(ConflictError):
            write(log)
    last = write(log)
    assert last.parents == ((found or first).id,)
    assert [each.seq for each in log.commits()] == list(range(1, last.seq + 1))


def test_a_read_only_server_is_said_to_be_one(remote, postgres):
    """The error names what to put into the URL."""
    log = remote.open()
    connections = log._connections
    with (
        pytest.raises(UnwritableError, match="target_session_attrs"),
        connections.errors("append to the log"),
        connections.borrowed() as connection,
    ):
        connection.execute("BEGIN READ ONLY; DELETE FROM trails_heads")


def test_secrets_of_a_url_are_in_no_error():
    """Neither of one that can't be read, nor of one that leads nowhere."""
    for url, kind in (
        ("postgresql://ann:geheim@host:port/db?geheim", SettingsError),
        ("postgresql//ann:geheim@host/db", SettingsError),
        ("postgresql://ann:geheim@127.0.0.1:1/geheim", LogUnavailableError),
    ):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(connections_module, "RETRY_SECONDS", 0)
            with pytest.raises(kind) as caught:
                open_at(url)
        chain = [caught.value, caught.value.__cause__]
        assert "geheim" not in str(caught.value)
        if kind is SettingsError:
            assert chain[1] is None


def test_what_a_server_says_is_told_without_secrets():
    """Also where it repeats the password."""
    connections = Connections("postgresql://ann:geheim@host/db")
    said = psycopg.OperationalError("geheim is wrong")
    assert "can't open the log: … is wrong" in str(connections.translate(said, "open the log"))
