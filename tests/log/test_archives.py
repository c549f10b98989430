"""Archives of activities: sealed files beside the log, in which nothing is lost."""

import shutil
import sqlite3
from contextlib import nullcontext

import pytest
from tests.log.test_log import open_log, write
from tests.worlds.processes import wait_until

from trails import App, Node, node_type, predicate
from trails.engine.graph.activities import Activities, CallRecord
from trails.engine.upkeep.backups import back_up, read_parts, rebuild
from trails.engine.upkeep.doctor import examine
from trails.engine.upkeep.maintenance import cleanup
from trails.engine.upkeep.verify import verify
from trails.errors import CorruptionError
from trails.log import archives as archives_module
from trails.log.storage import connect, give_back_space
from trails.model.history import Activity
from trails.model.upkeep import Retention

OLD = "2020-01-01T00:00:00.000Z"


@node_type
class Page(Node):
    """A page."""

    title: str = predicate(key=True)


def activity(number, ended=OLD, detail="x" * 200):
    """One activity."""
    return Activity(f"a{number}", "ann", "pages.read", OLD, ended, "ok", detail=detail)


@pytest.fixture
def log(tmp_path):
    """A log with a commit, 5 000 activities of long ago and 3 of a time to come."""
    made = open_log(tmp_path / "graph")
    write(made)
    made.insert_activities([activity(number) for number in range(5000)])
    made.insert_activities([activity(number, "9999") for number in range(5000, 5003)])
    yield made
    made.close()


def archive(log, days=90, rows=None):
    """Archive what is old; the lines that were told."""
    told = []
    Activities(log, Retention(days, rows), told.append).archive()
    return told


def test_old_activities_move_into_sealed_files_and_are_read_as_before(log, tmp_path, monkeypatch):
    """Several files, in order; lists, places and new activities go on as if nothing happened."""
    monkeypatch.setattr("trails.log.sqlite.AT_ONCE", 2000)
    before, newest = list(log.activities()), log.newest_activities(4000)
    told = archive(log)
    assert [each.count for each in log.archives()] == [2000, 2000, 1000]
    assert told[0].startswith("archived 2,000 activities, from 2020-01-01")
    assert list(log.activities()) == before
    assert list(log.activities(after=1999)) == before[1999:]
    assert log.newest_activities(4000) == newest
    log.insert_activities([activity(5003, "9999")])
    assert list(log.activities())[-1] == (5004, activity(5003, "9999"))
    assert not archive(log)
    log.close()
    again = open_log(tmp_path / "graph")
    assert list(again.activities())[:5003] == before
    assert again.check_archives() == []
    again.close()


def test_more_activities_than_are_kept_are_archived_whatever_their_age(log):
    """The newest one stays in the log at any rate: places are counted from there."""
    archive(log, days=None, rows=4)
    assert log.archives()[-1].last == 5003 - 4
    archive(log, days=1, rows=1)
    log.insert_activities([activity(9000, "9999")])
    assert [seq for seq, _ in log.activities()] == list(range(1, 5005))


def test_only_archived_activities_can_be_deleted(log, tmp_path):
    """The trigger looks at what archives have, and archives are append-only."""
    archive(log)
    log.close()
    db = sqlite3.connect(tmp_path / "graph" / "log.db")
    for statement in (
        "DELETE FROM activities",
        "DELETE FROM archives",
        "UPDATE archives SET last=9",
    ):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"):
            db.execute(statement)
    db.close()


@pytest.mark.parametrize("point", ["write_archive", "insert_archive", "_delete_archived"])
def test_a_crash_at_any_point_leaves_every_activity(log, tmp_path, monkeypatch, point):
    """Before the file is named, after it, and while rows are deleted."""
    before = list(log.activities())
    where = log if point == "_delete_archived" else "trails.log.sqlite"
    passed = []

    def crash(*_):
        if point == "_delete_archived" and not passed:  # it also looks for leftovers first
            passed.append(1)
            return
        raise KeyboardInterrupt

    name = point if where is log else f"{where}.{point}"
    monkeypatch.setattr(*((log, name) if where is log else (name,)), crash)
    with pytest.raises(KeyboardInterrupt):
        archive(log)
    assert list(log.activities()) == before
    monkeypatch.undo()
    log.close()
    again = open_log(tmp_path / "graph")
    assert list(again.activities()) == before
    archive(again)
    assert list(again.activities()) == before
    assert again.check_archives() == []
    again.close()
    db = sqlite3.connect(tmp_path / "graph" / "log.db")
    assert db.execute("SELECT count(*) FROM activities").fetchone() == (3,)
    db.close()


def test_a_reader_beside_an_archiver_sees_each_activity_once(log):
    """Also where the rows that it was about to read have just moved."""
    before = list(log.activities())
    reading = log.activities()
    found = [next(reading) for _ in range(10)]
    archive(log)
    assert [*found, *reading] == before


@pytest.mark.parametrize("damage", ["flip", "truncate", "remove", "exchange"])
def test_damage_to_an_archive_is_found_and_named(log, tmp_path, damage):
    """By reading, by verify and, where the file is gone, by doctor; commits are not affected."""
    archive(log)
    path = tmp_path / "graph" / "activities" / log.archives()[0].name
    text = path.read_bytes()
    if damage == "remove":
        path.unlink()
    else:
        other = archives_module.zstd.compress(b"")
        changed = {"flip": bytes([text[90] ^ 1]).join([text[:90], text[91:]])}
        changed |= {"truncate": text[:-20], "exchange": other}
        path.write_bytes(changed[damage])
    assert path.name in " ".join(log.check_archives())
    with pytest.raises(CorruptionError, match=path.name):
        list(log.activities())
    assert len(list(log.commits())) == 1


def test_backups_have_the_archives(log, tmp_path):
    """Whether activities were archived before the first backup or after it."""
    before = list(log.activities())
    back_up(log, tmp_path / "set", print)
    archive(log)
    back_up(log, tmp_path / "set", print)
    rebuild(read_parts(tmp_path / "set"), tmp_path / "copy")
    copy = open_log(tmp_path / "copy")
    assert not copy.check_archives()
    assert list(copy.activities()) == before
    copy.close()


def test_a_log_of_an_earlier_version_shrinks_too(tmp_path):
    """Its file can't give pages back in steps, so it is written anew once."""
    path = tmp_path / "old.db"
    db = connect(path, synchronous="FULL")
    db.execute("CREATE TABLE t (x)")
    db.executemany("INSERT INTO t VALUES (?)", [(b"x" * 1000,)] * 4000)
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    before = path.stat().st_size
    db.execute("DELETE FROM t")
    give_back_space(db, path, nullcontext())
    assert path.stat().st_size < before / 10
    assert db.execute("PRAGMA auto_vacuum").fetchone() == (2,)
    db.close()


def test_cleanup_archives_what_the_settings_say_and_frees_disk(tmp_path):
    """A row of its report says how much; verify, doctor and the stream still have everything."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "trails.toml").write_text("[project]\nname = 'p'\n[log]\nactivity_rows = 100\n")
    (folder / "app.py").write_text("")
    with App.open(folder) as app:
        app.register(Page)
        graph = app.graph()
        ctx = app.context(actor="ann")
        for number in range(20):
            Page(title=str(number)).save(ctx)
        graph.log.insert_activities([activity(number) for number in range(20_000)])
        before = list(graph.activities.read())
        (graph.folder / "scratch").mkdir(exist_ok=True)
        (graph.folder / "scratch" / "run-dead.lock").touch()
        (graph.folder / "scratch" / "run-dead").mkdir()
        (graph.folder / "scratch" / "run-dead" / "file").write_bytes(b"x" * 100_000)
        planned = cleanup(graph, dry_run=True)
        assert planned.activities >= 19_900
        assert planned.runs == ("run-dead",)
        assert not graph.log.archives()
        log_file = graph.folder / "log.db"
        size = log_file.stat().st_size
        done = cleanup(graph)
        assert done.activities >= 19_900
        assert done.bytes > 3_000_000
        assert log_file.stat().st_size < size / 5
        assert not (graph.folder / "scratch" / "run-dead").exists()
        assert (graph.folder / "log.db-wal").stat().st_size == 0
        assert list(graph.activities.read()) == before
        found = {each.name: each for each in verify(graph, lambda _: None)}
        assert found["activities"].detail.startswith(f"{done.activities:,} activities archived")
        assert (
            "archived in 1 file" in {e.name: e for e in examine(graph, None)}["activities"].detail
        )
        shutil.rmtree(graph.folder / "activities")
        assert {e.name: e for e in verify(graph, lambda _: None)}[
            "activities"
        ].severity == "problem"
        assert {e.name: e for e in examine(graph, None)}["activities"].severity == "problem"


def test_a_server_archives_by_itself_and_says_so(tmp_path, monkeypatch):
    """When enough is old; the line is the server's."""
    monkeypatch.setattr("trails.engine.graph.activities._WORTHWHILE", 500)
    log = open_log(tmp_path / "graph")
    told = []
    stream = Activities(log, Retention(90, None), told.append)
    log.insert_activities([activity(number) for number in range(1000)])
    stream.end(CallRecord("ann", "pages.read", "runtime", reads=True), "ok")
    wait_until(lambda: told, "an archive")
    stream.close()
    assert told[0].startswith("archived 1,000 activities")
    log.close()
