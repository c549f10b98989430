"""What every log must do: the same tests for SQLite and PostgreSQL."""

import threading
from itertools import pairwise

import msgspec
import pytest

from trails.errors import ConflictError, CorruptionError, NotFoundError, ReadOnlyError, StorageError
from trails.log.append import Turn
from trails.log.extracts import assemble
from trails.log.overlay import OverlayLog
from trails.log.payloads import INLINE_LIMIT
from trails.log.sqlite import SqliteLog
from trails.model.history import (
    GENESIS,
    Activity,
    ActivityQuery,
    CommitDraft,
    Head,
    MigrationMark,
    Move,
    Rename,
    is_chained,
)
from trails.model.types import Schema, TypeDescriptor
from trails.model.writes import KeyedOutcome

LINE = b'<x:s> <x:p> "v" .\n'
TIME = "2026-01-01T00:00:00.000Z"
STRANGE = "nul \0 quote \" ' backslash \\ \u00e9 \U0001f600 \u2028 %s"


def draft(branch="main", schema=None, **more):
    """A commit to be."""
    digest = (schema or Schema()).digest
    return CommitDraft(branch, "ann", TIME, digest, **{"message": "m", **more})


def write(log, text=LINE, *, branch="main", head="now", removed=b"", **more):
    """Append one commit; ``head`` is where the branch is believed to be."""
    payload = log.new_payload()
    payload.added.write(text, text.count(b"\n"))
    if removed:
        payload.removed.write(removed, removed.count(b"\n"))
    given = {name: more.pop(name, None) for name in ("keyed", "call")}
    schema = more.pop("schema", Schema())
    turn = Turn(log)
    entry = turn.add(draft(branch, schema, **more), payload.seal(), schema, **given)
    if head != "now":
        expected = GENESIS if head is None else head.commit
        turn.entries[0] = msgspec.structs.replace(entry, expected=expected)
    turn.append()
    return entry.commit


def act(number, *, actor="ann", name="a.b", outcome="ok", used=(), at="10"):
    """An activity that ended at a second of a minute."""
    time = f"2026-01-01T{at}:00:{number % 60:02}.000Z"
    return Activity(f"id-{number}", actor, name, time, time, outcome, used=used)


def key(name="k", *, actor="ann", branch="main", expires="2027", commit=None, result=None):
    """The outcome of a keyed write."""
    return KeyedOutcome(branch, actor, name, "digest", expires, commit, result or {})


def other_schema():
    """Types that differ from none."""
    return Schema(types=(TypeDescriptor("Person", ()),))


# --- commits and heads --------------------------------------------------------------------


def test_a_new_log_is_empty_and_says_what_it_is(place):
    """Header, heads and streams of a log that was just made."""
    log = place.open()
    assert (log.header.graph, log.header.base_iri) == ("main", "trails://tests/main")
    assert (log.head("main"), log.branches(), log.last_seq()) == (None, {}, 0)
    assert list(log.commits()) == list(log.newest()) == list(log.moves()) == []
    assert (log.commit("x"), log.at(1), log.schema("x")) == (None, None, None)
    assert (log.migrations(), log.renames(), log.starting_with("")) == ([], [], [])
    assert (list(log.activities()), log.newest_activities(5), log.archives()) == ([], [], ())
    assert (log.check(), log.check_archives(), log.missing_archives()) == ([], [], [])
    assert log.size() > 0


def test_commits_are_found_in_every_way_after_reopening(place):
    """By id, place, prefix, in both directions and between places, with chained digests."""
    log = place.open()
    made = [write(log, b'<x:s> <x:p> "%d" .\n' % number) for number in range(7)]
    for again in (False, True):
        log = place.open() if again else log
        assert list(log.commits()) == made
        assert list(log.newest()) == made[::-1]
        assert list(log.commits(after=2, until=4)) == made[2:4]
        assert list(log.newest(before=4)) == made[2::-1]
        assert [log.at(each.seq) for each in made] == [log.commit(each.id) for each in made] == made
        assert log.starting_with(made[3].id[:20]) == [made[3].id]
        assert log.starting_with("") == sorted(each.id for each in made)[:5]
        assert log.starting_with("\0") == []
        assert log.head("main") == Head(made[-1].id, 7, made[-1].schema)
        assert log.last_seq() == 7
    assert is_chained(made[0], ())
    assert all(is_chained(child, (parent.digest,)) for parent, child in pairwise(made))


def test_deltas_of_every_size_come_back(place):
    """Nothing, a line, and texts beyond the inline limit, compressible or not, in both halves."""
    log = place.open()
    noise = b"".join(b'<x:s> <x:p> "%064x" .\n' % (number * 7919**9) for number in range(60_000))
    assert len(noise) > 12 * INLINE_LIMIT
    texts = [(b"", LINE), (LINE * 20_000, b""), (noise, LINE * 30_000), ("\0é".encode(), LINE)]
    made = [write(log, added, removed=removed) for added, removed in texts]
    log = place.open()
    for commit, (added, removed) in zip(made, texts, strict=True):
        assert log.open_added(commit).read() == added
        assert log.open_removed(commit).read() == removed
    with log.open_added(made[2]) as stream:
        assert stream.read(1000) == noise[:1000]


def test_large_deltas_are_collected_in_pieces(place):
    """What is written in small pieces is one text; a discarded one leaves no file."""
    log = place.open()
    payload = log.new_payload()
    for _ in range(40):
        payload.added.write(LINE * 1000, 1000)
    turn = Turn(log)
    commit = turn.add(draft(), payload.seal(), Schema()).commit
    turn.append()
    assert commit.added == 40_000
    assert log.open_added(commit).read() == LINE * 40_000
    thrown = log.new_payload()
    thrown.added.write(LINE * 20_000, 20_000)
    thrown.discard()
    log = place.open()
    assert log.open_added(commit).read() == LINE * 40_000
    assert not list(place.folder.glob("segments/*.tmp"))


def test_a_stale_head_is_refused_and_nothing_is_written(place):
    """The compare-and-swap happens inside the log, whatever the caller believes."""
    log = place.open()
    first = write(log)
    stale = log.head("main")
    second = write(log)
    for head, branch in ((stale, "main"), (None, "main"), (stale, "other")):
        with pytest.raises(ConflictError):
            write(log, head=head, branch=branch, keyed=key())
    with pytest.raises(ConflictError) as caught:
        write(log, head=stale)
    assert caught.value.data == {"branch": "main", "expected_head": first.id, "head": second.id}
    assert list(log.commits()) == [first, second]
    assert log.keyed("main", "ann", "k", TIME) is None
    assert write(log).seq == 3


def test_schemas_are_found_by_digest_and_change_the_version_of_branches(place):
    """A schema is stored with the first commit that names it."""
    log = place.open()
    write(log)
    before = log.branches_version
    write(log)
    assert log.branches_version == before
    commit = write(log, schema=other_schema())
    assert log.branches_version > before
    log = place.open()
    assert log.schema(commit.schema) == other_schema()
    assert log.schema(Schema().digest) == Schema()


def test_marked_commits_are_found(place):
    """Migrations and renames; a message that looks like one is none."""
    log = place.open()
    write(log, message='"migration":{ "renames":[[')
    moved = write(log, migration=MigrationMark("m1"))
    named = write(log, renames=(Rename("A", "B"),))
    assert (log.migrations(), log.renames()) == ([moved], [named])


def test_texts_with_every_character_are_kept(place):
    """NUL, quotes and characters beyond the first plane, in messages, actors, keys and handles."""
    log = place.open()
    commit = write(log, message=STRANGE, keyed=key(STRANGE, actor=STRANGE), nonce="")
    activity = Activity("i", STRANGE, STRANGE, TIME, TIME, STRANGE, used=(f"T/{STRANGE}",))
    log.insert_activities([activity])
    long = "x" * 5000
    log.remember(key(long, actor=long), TIME)
    log = place.open()
    assert log.at(1).message == STRANGE == commit.message
    assert log.keyed("main", STRANGE, STRANGE, TIME).commit == commit.id
    assert log.keyed("main", STRANGE, STRANGE + "x", TIME) is None
    assert log.keyed("main", long, long, TIME) == key(long, actor=long)
    assert log.keyed("main", long, long + "x", TIME) is None
    for wanted in (
        ActivityQuery(actor=STRANGE),
        ActivityQuery(name=STRANGE),
        ActivityQuery(outcomes=(STRANGE,)),
        ActivityQuery(node=f"T/{STRANGE}"),
    ):
        assert log.list_activities(wanted, 5) == [activity]
    assert log.commit("\0") is None
    assert log.find_activities({"\0": TIME}) == {}
    with pytest.raises(NotFoundError):
        log.list_activities(ActivityQuery(), 5, after="\0")


# --- branches and keys ----------------------------------------------------------------------


def test_branches_are_made_moved_and_deleted(place):
    """Each move is compared with where the branch is, is numbered, and survives."""
    log = place.open()
    first, second = write(log), write(log)
    made = log.move(Move("b", "create", first.id, GENESIS, "ann", TIME), first.schema)
    assert made.after == 2
    assert log.head("b") == Head(first.id, 1, first.schema)
    with pytest.raises(ConflictError) as caught:
        log.move(Move("b", "fast_forward", second.id, second.id, "ann", TIME), first.schema)
    assert caught.value.data["head"] == first.id
    moved = log.move(Move("b", "fast_forward", second.id, first.id, "ann", TIME), first.schema)
    empty = log.move(Move("e", "create", GENESIS, GENESIS, "ann", TIME), Schema().digest)
    assert log.head("e") == Head(GENESIS, 0, Schema().digest)
    version = log.branches_version
    gone = log.move(Move("b", "delete", second.id, second.id, "ann", TIME), first.schema)
    assert log.branches_version > version
    log = place.open()
    assert list(log.moves()) == [made, moved, empty, gone]
    assert set(log.branches()) == {"main", "e"}
    with pytest.raises(CorruptionError):
        log.move(Move("c", "create", "f" * 32, GENESIS, "ann", TIME), "")
    assert set(log.branches()) == {"main", "e"}


def test_several_commits_and_a_branch_are_all_or_nothing(place):
    """What a draft holds lands in one transaction, large deltas included."""
    log = place.open()
    first = write(log)
    overlay = OverlayLog(log, {"b": log.head("main")}, place.folder / "draft")
    made = [write(overlay, LINE * 20_000, branch="b"), write(overlay, branch="b")]
    entries = overlay.entries
    for each in entries:
        log.adopt(each.payload, overlay.folder)
    wrong = [msgspec.structs.replace(entries[0], commit=made[1]), entries[0]]
    with pytest.raises((ConflictError, StorageError)):
        log.insert_all(wrong, move=Move("b", "create", first.id, GENESIS, "ann", TIME))
    assert (list(log.moves()), log.head("b"), log.last_seq()) == ([], None, 1)
    move = Move("b", "create", first.id, GENESIS, "ann", TIME)
    entries[1] = msgspec.structs.replace(entries[1], keyed=key(branch="b", commit=made[1].id))
    log.insert_all(entries, move=move, activities=[act(1)])
    assert list(log.activities()) == [(1, act(1))]
    log = place.open()
    assert list(log.commits()) == [first, *made]
    assert log.head("b").commit == made[1].id
    assert [each.branch for each in log.moves()] == ["b"]
    assert log.open_added(made[0]).read() == LINE * 20_000
    assert log.keyed("b", "ann", "k", TIME).commit == made[1].id


def test_keys_are_remembered_until_they_expire(place):
    """With a commit, with a move and alone; a deleted branch takes its keys along."""
    log = place.open()
    commit = write(log, keyed=key("with"))
    log.remember(key("alone", result={"long": "x" * 5000}), TIME)
    log.move(
        Move("b", "create", commit.id, GENESIS, "ann", TIME), commit.schema, key("m", branch="b")
    )
    log = place.open()
    assert log.keyed("main", "ann", "with", TIME).commit == commit.id
    assert log.keyed("main", "ann", "alone", TIME).result == {"long": "x" * 5000}
    assert log.keyed("b", "ann", "m", TIME) is not None
    assert log.keyed("main", "bob", "with", TIME) is None
    assert log.keyed("main", "ann", "with", "2028") is None
    log.remember(key("alone", result={"n": 2}), TIME)
    assert log.keyed("main", "ann", "alone", TIME).result == {"n": 2}
    log.move(Move("b", "delete", commit.id, commit.id, "ann", TIME), commit.schema)
    assert log.keyed("b", "ann", "m", TIME) is None
    log.remember(key("late"), "2028")  # removes what has expired by then
    assert log.keyed("main", "ann", "with", TIME) is None


# --- activities -------------------------------------------------------------------------------


def test_activities_are_searched_in_every_way(place):
    """Each question gives what a plain filter of all activities gives, newest first."""
    log = place.open()
    every = [
        act(
            number,
            actor="ann" if number % 3 else "bob",
            name="a.b" if number % 2 else "c.d",
            outcome="ok" if number % 5 else "denied",
            used=(f"T/{number % 4}", "c0ffee") if number % 2 else (),
        )
        for number in range(50)
    ]
    log.insert_activities(every[:20])
    log.insert_activities(every[20:])
    log.insert_activities([])
    log = place.open()
    assert list(log.activities()) == list(enumerate(every, 1))
    assert [seq for seq, _ in log.activities(after=47)] == [48, 49, 50]
    assert log.newest_activities(3) == every[:-4:-1]
    assert log.find_activities({"id-3": TIME, "none": TIME}) == {"id-3": every[3]}
    tests = {
        ActivityQuery(): lambda _: True,
        ActivityQuery(actor="bob"): lambda each: each.actor == "bob",
        ActivityQuery(name="c.d", outcomes=("denied",)): lambda each: (
            each.name == "c.d" and each.outcome == "denied"
        ),
        ActivityQuery(outcomes=("ok", "denied")): lambda _: True,
        ActivityQuery(since=every[30].ended): lambda each: each.ended >= every[30].ended,
        ActivityQuery(until=every[9].ended): lambda each: each.started <= every[9].ended,
        ActivityQuery(node="T/1"): lambda each: "T/1" in each.used,
        ActivityQuery(ids=frozenset({"id-7", "x"})): lambda each: each.id == "id-7",
        ActivityQuery(node="T/1", ids=frozenset({"id-8"}), actor="ann"): lambda each: (
            ("T/1" in each.used or each.id == "id-8") and each.actor == "ann"
        ),
    }
    for wanted, fits in tests.items():
        expected = [each for each in reversed(every) if fits(each)]
        assert log.list_activities(wanted, 100) == expected, wanted
        assert log.list_activities(wanted, 2) == expected[:2]
        if len(expected) > 1:
            assert log.list_activities(wanted, 100, after=expected[0].id) == expected[1:]


def test_archived_activities_stay_in_the_stream(place):
    """Sealed files hold the oldest; every way to read finds them where that is asked for."""
    log = place.open()
    every = [act(number, used=(f"T/{number}",)) for number in range(40)]
    log.insert_activities(every)
    assert log.find_archivable(every[0].ended, None) == range(1, 1)
    assert log.find_archivable("9999", None) == range(1, 40)
    assert log.find_archivable("", 15) == range(1, 26)
    places = log.find_archivable(every[10].ended, None)
    assert places == range(1, 11)
    (first,) = log.archive_activities(places)
    assert (first.first, first.last, first.count) == (1, 10, 10)
    log.insert_activities([act(40)])
    every.append(act(40))
    list(log.archive_activities(log.find_archivable(every[20].ended, None)))
    for again in (False, True):
        log = place.open() if again else log
        assert [(each.first, each.last) for each in log.archives()] == [(1, 10), (11, 20)]
        assert (log.check_archives(), log.missing_archives()) == ([], [])
        assert list(log.activities()) == list(enumerate(every, 1))
        assert list(log.activities(after=15)) == list(enumerate(every, 1))[15:]
        assert log.newest_activities(25) == every[:-26:-1]
        assert log.newest_activities(25, archived=False) == every[:-22:-1]
        assert log.find_activities({"id-3": TIME, "id-30": TIME}) == {
            "id-3": every[3],
            "id-30": every[30],
        }
        everything = log.list_activities(ActivityQuery(), 99, archived=True)
        assert everything == every[::-1]
        assert len(log.list_activities(ActivityQuery(), 99)) == 21
        assert log.list_activities(ActivityQuery(), 3, after="id-2", archived=True) == every[1::-1]
        assert log.list_activities(ActivityQuery(node="T/3"), 5, archived=True) == [every[3]]
    log.insert_activities([act(41)])
    assert max(seq for seq, _ in log.activities()) == 42


# --- concurrency, modes, copies -----------------------------------------------------------------


def test_threads_that_append_make_one_line(place):
    """Each thread appends after the head that it has seen: one wins, none is lost."""
    log = place.open()
    wins = []

    def race():
        while len(wins) < 30:
            try:
                wins.append(write(log).id)
            except (ConflictError, StorageError):
                continue

    def record(start):
        for number in range(start, start + 30):
            log.insert_activities([act(number)])

    threads = [threading.Thread(target=race) for _ in range(4)]
    threads += [threading.Thread(target=record, args=(start,)) for start in (100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    chain = list(log.commits())
    assert {commit.id for commit in chain} == set(wins)
    assert all(child.parents == (parent.id,) for parent, child in pairwise(chain))
    assert [seq for seq, _ in log.activities()] == list(range(1, 61))


def test_a_read_only_log_is_read_and_never_changed(place):
    """Every way to write is refused; without a log there is nothing to read."""
    with pytest.raises(StorageError):
        place.open(read_only=True)
    log = place.open()
    commit = write(log)
    log = place.open(read_only=True)
    assert list(log.commits()) == [commit]
    move = Move("b", "create", commit.id, GENESIS, "ann", TIME)
    for change in (
        lambda: write(log),
        lambda: log.move(move, commit.schema),
        lambda: log.remember(key(), TIME),
        lambda: log.insert_activities([act(1)]),
    ):
        with pytest.raises(ReadOnlyError):
            change()
    assert log.keyed("main", "ann", "k", TIME) is None
    assert list(log.commits()) == [commit]


def test_a_damaged_delta_is_never_read_to_its_end(place, postgres):
    """The digest of the text is compared, small and large."""
    log = place.open()
    small, large = write(log), write(log, LINE * 50_000)
    place.close()
    if place.url:
        postgres.run("ALTER TABLE trails_commits DISABLE TRIGGER USER", place.url)
        postgres.run("ALTER TABLE trails_chunks DISABLE TRIGGER USER", place.url)
        postgres.run("UPDATE trails_commits SET added = '\\x' WHERE seq = 1", place.url)
        postgres.run("UPDATE trails_chunks SET body = substr(body, 1, 99)", place.url)
    else:
        import sqlite3

        with sqlite3.connect(place.folder / "log.db") as db:
            db.execute("DROP TRIGGER commits_UPDATE")
            db.execute("UPDATE commits SET added = X'' WHERE seq = 1")
        db.close()
        (segment,) = (place.folder / "segments").iterdir()
        segment.write_bytes(segment.read_bytes()[:99])
    log = place.open()
    for commit in (small, large):
        with pytest.raises(CorruptionError):
            log.open_added(commit).read()


def test_a_copy_is_restored_as_an_embedded_log(place, tmp_path):
    """A first copy and one of what came later, put together, hold every record and delta."""
    log = place.open()
    write(log, LINE * 50_000, schema=other_schema(), message=STRANGE, keyed=key(STRANGE))
    log.insert_activities([act(number, used=("T/1",)) for number in range(20)])
    list(log.archive_activities(log.find_archivable("", 5)))
    first = log.copy_new(tmp_path / "one", {}, set())
    assert len(first.files) == 2
    write(log, removed=LINE * 60_000)
    log.move(Move("b", "create", log.head("main").commit, GENESIS, "ann", TIME), Schema().digest)
    log.insert_activities([act(50)])
    second = log.copy_new(tmp_path / "two", first.ends, set(first.files))
    assert (second.seq, second.commit) == (2, log.head("main").commit)
    assert second.heads == {"main": second.commit, "b": second.commit}
    assert second.ends == {"commits": 2, "activities": 21, "moves": 1}
    target = tmp_path / "restored"
    target.mkdir()
    assemble([tmp_path / "one" / "rows.db", tmp_path / "two" / "rows.db"], target / "log.db")
    for part, copied in (("one", first), ("two", second)):
        for name in copied.files:
            if (tmp_path / part / name).exists():
                (target / name).parent.mkdir(exist_ok=True)
                (target / name).write_bytes((tmp_path / part / name).read_bytes())
    copy = SqliteLog(target, "main", "", "")
    try:
        assert copy.header == log.header
        assert list(copy.commits()) == list(log.commits())
        assert copy.branches() == log.branches()
        assert list(copy.moves()) == list(log.moves())
        assert list(copy.activities()) == list(log.activities())
        assert copy.archives() == log.archives()
        assert copy.schema(other_schema().digest) == other_schema()
        assert copy.keyed("main", "ann", STRANGE, TIME) == log.keyed("main", "ann", STRANGE, TIME)
        for commit in log.commits():
            assert copy.open_added(commit).read() == log.open_added(commit).read()
            assert copy.open_removed(commit).read() == log.open_removed(commit).read()
        assert copy.list_activities(ActivityQuery(node="T/1"), 9) == log.list_activities(
            ActivityQuery(node="T/1"), 9
        )
    finally:
        copy.close()


def test_commits_of_several_branches_are_appended_together(place):
    """One turn, one transaction: all of them, or none if one branch has moved."""
    log = place.open()
    first = write(log)
    log.move(Move("b", "create", first.id, GENESIS, "ann", TIME), first.schema)

    def collect(expected=None):
        turn = Turn(log)
        for branch in ("main", "b", "main"):
            payload = log.new_payload()
            payload.added.write(LINE, 1)
            turn.add(draft(branch), payload.seal(), Schema(), keyed=key(f"k{turn.next_seq}"))
        if expected is not None:
            turn.entries[2] = msgspec.structs.replace(turn.entries[2], expected=expected)
        return turn

    with pytest.raises(ConflictError):
        collect("f" * 32).append([act(1)])
    assert (log.last_seq(), list(log.activities())) == (1, [])
    assert {head.commit for head in log.branches().values()} == {first.id}
    turn = collect()
    turn.append([act(1), act(2)])
    made = [each.commit for each in turn.entries]
    log = place.open()
    assert list(log.commits()) == [first, *made]
    assert (log.head("main").commit, log.head("b").commit) == (made[2].id, made[1].id)
    assert [each for _, each in log.activities()] == [act(1), act(2)]
    assert log.keyed("main", "ann", "k3", TIME).commit == made[1].id


def test_a_call_is_recorded_with_its_commit(place):
    """Its activity replaces the record; after a crash the record becomes the activity, once."""
    log = place.open()

    def call(number):
        return lambda commit: msgspec.structs.replace(act(number), generated=(commit,))

    first = write(log, call=call(1))
    second = write(log, call=call(2))
    ended = msgspec.structs.replace(act(1), generated=(first.id,), detail="whole")
    log.insert_activities([ended])
    for _ in range(2):
        log = place.open()
        found = [each for _, each in log.activities()]
        assert [each.id for each in found] == ["id-1", "id-2"]
        assert found[0] == ended
        assert found[1].generated == (second.id,)
        assert "process ended" in found[1].detail


def test_activities_that_are_there_are_not_added_again(place):
    """A writer that did not learn of its success tries again."""
    log = place.open()
    log.insert_activities([act(1), act(2)])
    log.insert_activities([act(1), act(2), act(3)])
    assert [each.id for _, each in log.activities()] == ["id-1", "id-2", "id-3"]


def test_space_is_given_back_whatever_that_means(place):
    """Upkeep changes nothing that can be read."""
    log = place.open()
    commit = write(log)
    log.give_back_space()
    log.compact()
    assert list(log.commits()) == [commit]
    assert log.check() == []
