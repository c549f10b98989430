"""The log: append-only streams, chained digests, segments, heads, schemas."""

import sqlite3
import threading
from itertools import pairwise

import msgspec
import pytest

from trails.errors import ConflictError, StorageError
from trails.log.append import Turn
from trails.log.sqlite import SqliteLog
from trails.model.history import Activity, CommitDraft, chain_digest, commit_id
from trails.model.types import Schema

BASE = "trails://tests/main"
LINE = b'<x:s> <x:p> "v" .\n'


def open_log(folder):
    """A log in a folder."""
    return SqliteLog(folder, "main", BASE, "2026-01-01T00:00:00Z")


TIME = "2026-01-01T00:00:00Z"


def add(log, turn, text=LINE, *, branch="main", time=TIME, merged=None, schema=None, call=None):
    """Put one commit with some added statements into a turn."""
    payload = log.new_payload()
    payload.added.write(text, text.count(b"\n"))
    schema = schema or Schema()
    draft = CommitDraft(branch, "ann", time, schema.digest, "m")
    return turn.add(draft, payload.seal(), schema, merged, call=call).commit


def write(log, *args, **options):
    """Append one commit in a turn of its own."""
    turn = Turn(log)
    commit = add(log, turn, *args, **options)
    turn.append()
    return commit


@pytest.fixture
def log(tmp_path):
    """An empty log on disk."""
    made = open_log(tmp_path)
    yield made
    made.close()


def test_commits_are_chained_to_their_parent(log):
    """Each commit names its parent, and its digest covers the parent's digest."""
    first, second = write(log), write(log, b'<x:s> <x:p> "w" .\n')
    assert first.parents == ()
    assert second.parents == (first.id,)
    draft = CommitDraft(
        "main", "ann", "2026-01-01T00:00:00Z", Schema().digest, "m", nonce=second.nonce
    )
    digest = chain_digest((first.digest,), draft, second.payload, "0 1")
    assert second.digest == digest
    assert second.id == commit_id(digest)
    other = chain_digest(("0" * 64,), draft, second.payload, "0 1")
    assert other != digest


def test_a_reopened_log_holds_everything(tmp_path):
    """Commits, heads, statements, schemas and activities are there after closing."""
    log = open_log(tmp_path)
    commit = write(log)
    activity = Activity("a1", "ann", "x.y", "t0", "t1", "ok")
    log.insert_activities([activity])
    log.close()
    log = open_log(tmp_path)
    assert log.commit(commit.id) == commit
    assert log.head("main").commit == commit.id
    assert log.open_added(commit).read() == LINE
    assert log.open_removed(commit).read() == b""
    assert log.schema(commit.schema) == Schema()
    assert list(log.activities()) == [(1, activity)]
    assert log.header.base_iri == BASE
    log.close()


@pytest.mark.parametrize("table", ["commits", "activities", "schemas", "header"])
def test_rows_can_not_be_changed_or_removed(tmp_path, table):
    """Both streams are append-only down to the database."""
    log = open_log(tmp_path)
    write(log)
    log.insert_activities([Activity("a1", "ann", "x.y", "t0", "t1", "ok")])
    log.close()
    db = sqlite3.connect(tmp_path / "log.db")
    column = {"commits": "id", "activities": "id", "schemas": "digest", "header": "graph"}[table]
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute(f"UPDATE {table} SET {column} = 'x'")
    with pytest.raises(sqlite3.IntegrityError, match="append-only"):
        db.execute(f"DELETE FROM {table}")
    db.close()


def test_appending_after_a_stale_head_is_refused(log):
    """The compare-and-swap happens inside the log, whatever the caller believes."""
    write(log)
    stale, turn = log.head("main"), Turn(log)
    add(log, turn)
    write(log)
    with pytest.raises(ConflictError) as caught:
        turn.append()
    assert caught.value.data["head"] == log.head("main").commit
    assert caught.value.data["expected_head"] == stale.commit
    assert len(list(log.commits())) == 2


def test_a_turn_is_appended_as_a_whole(log):
    """Commits on several branches follow each other, and all of them are there or none."""
    write(log)
    turn = Turn(log)
    made = [add(log, turn, branch=branch) for branch in ("main", "b", "main", "b")]
    assert [each.seq for each in made] == [2, 3, 4, 5]
    assert made[2].parents == (made[0].id,)
    assert made[3].parents == (made[1].id,)
    assert log.head("b") is None
    turn.append()
    assert [each.id for each in log.commits(1)] == [each.id for each in made]
    assert (log.head("main").commit, log.head("b").commit) == (made[2].id, made[3].id)
    late = Turn(log)
    for branch in ("main", "b"):
        add(log, late, branch=branch)
    write(log)
    with pytest.raises(ConflictError):
        late.append()
    assert log.last_seq() == 6
    assert log.head("b").commit == made[3].id


def test_a_call_that_a_crash_cuts_off_is_recorded_with_its_commit(tmp_path):
    """Its activity comes with the next opening, once; one that was recorded stays as it is."""
    log = open_log(tmp_path)
    for name in ("cut", "whole"):
        call = Activity(name, "ann", "x.y", TIME, TIME, "ok")
        turn = Turn(log)
        add(
            log,
            turn,
            call=lambda commit, call=call: msgspec.structs.replace(call, generated=(commit,)),
        )
        turn.append()
        if name == "whole":
            made = msgspec.structs.replace(call, generated=(turn.entries[0].commit.id,), detail="x")
            log.insert_activities([made])
    assert [each.id for _, each in log.activities()] == ["whole"]
    log.close()
    for _ in range(2):
        log = open_log(tmp_path)
        found = {each.id: each for _, each in log.activities()}
        assert set(found) == {"cut", "whole"}
        assert found["whole"].detail == "x"
        assert "recorded with its commit" in found["cut"].detail
        assert found["cut"].generated == (log.at(1).id,)
        log.close()


def test_racing_appenders_make_one_line(log):
    """Threads that append after the same head: one wins each round, none is lost."""
    wins = []

    def race():
        while len(wins) < 40:
            try:
                wins.append(write(log).id)
            except (ConflictError, StorageError):
                continue

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chain = list(log.commits())
    assert {commit.id for commit in chain} == set(wins)
    for parent, child in pairwise(chain):
        assert child.parents == (parent.id,)


def test_large_deltas_stream_into_compressed_segments(tmp_path):
    """Beyond the inline limit the text is in one file, named by its digest, and comes back."""
    log = open_log(tmp_path)
    text = b"".join(b'<x:s> <x:p> "%d" .\n' % number for number in range(50_000))
    payload = log.new_payload()
    for start in range(0, len(text), 100_000):
        piece = text[start : start + 100_000]
        payload.added.write(piece, piece.count(b"\n"))
    draft = CommitDraft("main", "ann", "t", Schema().digest)
    turn = Turn(log)
    commit = turn.add(draft, payload.seal(), Schema()).commit
    turn.append()
    files = list((tmp_path / "segments").iterdir())
    assert len(files) == 1
    assert files[0].stat().st_size < len(text) / 3
    assert log.open_added(commit).read() == text
    assert commit.added == 50_000
    log.close()


def test_segments_that_no_commit_names_are_swept(tmp_path):
    """Debris of a crash before the append is gone after the next opening; the rest stays."""
    log = open_log(tmp_path)
    commit = write(log, LINE * 20_000)
    log.close()
    (tmp_path / "segments" / "dead.tmp").write_bytes(b"x")
    (tmp_path / "segments" / ("f" * 64 + ".nq.zst")).write_bytes(b"x")
    log = open_log(tmp_path)
    assert len(list((tmp_path / "segments").iterdir())) == 1
    assert log.open_added(commit).read() == LINE * 20_000
    log.close()


def test_schemas_are_stored_once_by_content(tmp_path):
    """A schema is found by its digest however many commits name it."""
    log = open_log(tmp_path)
    for _ in range(3):
        write(log)
    log.close()
    db = sqlite3.connect(tmp_path / "log.db")
    assert db.execute("SELECT count(*) FROM schemas").fetchone() == (1,)
    db.close()


def test_an_unknown_format_is_refused(tmp_path):
    """A log of a later version is not touched, and the message says what to do."""
    open_log(tmp_path).close()
    db = sqlite3.connect(tmp_path / "log.db")
    db.execute("DROP TRIGGER header_UPDATE")
    db.execute("UPDATE header SET format = 99")
    db.commit()
    db.close()
    with pytest.raises(StorageError, match="format 99"):
        open_log(tmp_path)


def test_commits_are_read_in_pages_from_any_position(log):
    """Following the log from a position gives exactly what came after it."""
    for _ in range(7):
        write(log)
    assert [commit.seq for commit in log.commits(after=4)] == [5, 6, 7]
    assert [commit.seq for commit in log.commits(after=2, until=4)] == [3, 4]


def test_the_same_commit_twice_has_two_ids():
    """A nonce: what a commit holds can't be found by trying small values and comparing ids."""
    one, two = write(open_log(None)), write(open_log(None))
    assert (one.time, one.payload) == (two.time, two.payload)
    assert len(one.nonce) == len(two.nonce) == 32
    assert one.id != two.id


def test_a_commit_is_never_older_than_its_parents(log):
    """With a clock that was set back, the time is that of the parent."""
    times = [
        write(log, time=time).time
        for time in ("2026-03-01T00:00:00.000Z", "2026-02-01T00:00:00.000Z")
    ]
    assert times == ["2026-03-01T00:00:00.000Z"] * 2
    assert write(log, time="2026-03-01T00:00:00.001Z").time == "2026-03-01T00:00:00.001Z"
    newer = write(log, branch="b", time="2026-05-01T00:00:00.000Z")
    merged = write(log, time="2026-04-01T00:00:00.000Z", merged=newer.id)
    assert merged.time == newer.time


def test_a_log_in_memory_works_like_one_on_disk():
    """Without a folder nothing touches the disk, large deltas included."""
    log = open_log(None)
    commit = write(log, LINE * 20_000)
    assert log.open_added(commit).read() == LINE * 20_000
    assert msgspec.structs.asdict(commit)["branch"] == "main"
    log.close()
