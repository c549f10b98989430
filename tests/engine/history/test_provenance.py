"""Which activities are listed, in which order, and how they are found."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.engine.history.repo import Repo

from trails.engine.history.provenance import ProvenanceQuery, list_provenance
from trails.engine.visibility.access import OPEN
from trails.errors import CursorError, ValidationError
from trails.log.activities import find_rows, matches
from trails.log.sqlite import SqliteLog
from trails.model.history import Activity, ActivityQuery
from trails.model.iris import uuid7
from trails.model.upkeep import Retention

ACTORS = ["ada", 'o"brien', "Ünal", "a\\b", ""]
NAMES = ["tasks.finish", "node_get", 'odd"name']
OUTCOMES = ["ok", "ok", "ok", "denied", "validation"]
NODES = ["Task/a", "Task/b%20c", "Person/x"]


def activity(rng: random.Random, minute: int) -> Activity:
    """Any activity that ended at about some minute."""
    at = f"2026-01-{1 + minute // 1440:02}T{minute // 60 % 24:02}:{minute % 60:02}:00.000Z"
    used = ("0" * 32, *rng.sample(NODES, rng.randrange(3)))
    return Activity(
        uuid7(),
        rng.choice(ACTORS),
        rng.choice(NAMES),
        at,
        at,
        rng.choice(OUTCOMES),
        surface="rest",
        used=used,
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_list_equals_a_scan(tmp_path: Path, seed: int) -> None:
    """Whatever is asked for, page by page, with a part of it in archives."""
    rng = random.Random(seed)
    log = SqliteLog(tmp_path, "g", "https://x.example", "now")
    every = [activity(rng, minute) for minute in range(300)]
    log.insert_activities(every[:200])
    if seed % 2:
        list(log.archive_activities(range(1, 120)))
    log.insert_activities(every[200:])
    every.reverse()
    for _ in range(60):
        chosen = rng.sample(every, 3)
        wanted = ActivityQuery(
            rng.choice([None, *ACTORS]),
            rng.choice([None, None, *NAMES]),
            rng.choice([(), (), ("denied",), ("denied", "ok")]),
            rng.choice([None, rng.choice(every).ended]),
            rng.choice([None, rng.choice(every).ended]),
            rng.choice([None, None, *NODES]),
            rng.choice([None, None, frozenset(each.id for each in chosen)]),
        )
        expected = [each for each in every if matches(wanted, each)]
        found: list[Activity] = []
        while page := log.list_activities(
            wanted, 7, after=found[-1].id if found else None, archived=True
        ):
            found += page
        assert found == expected, wanted
        live = [each for each in expected if not seed % 2 or each in every[:181]]
        assert log.list_activities(wanted, 1000) == live
    log.close()


@pytest.mark.parametrize(
    ("wanted", "index"),
    [
        (ActivityQuery(actor="ada"), "activities_actor"),
        (ActivityQuery(name="node_get"), "activities_name"),
        (ActivityQuery(outcomes=("denied",)), "activities_outcome"),
    ],
)
def test_a_list_looks_at_what_it_shows(tmp_path: Path, wanted: ActivityQuery, index: str) -> None:
    """An index leads to the rows, which are in order: nothing is sorted or passed over."""
    log = SqliteLog(tmp_path, "g", "https://x.example", "now")
    log.insert_activities([activity(random.Random(1), minute) for minute in range(100)])
    log.close()
    asked: list[tuple[str, tuple[object, ...]]] = []

    class Spy(sqlite3.Connection):
        def execute(self, sql, values=(), /):
            asked.append((sql, tuple(values)))
            return super().execute(sql, values)

    with closing(sqlite3.connect(tmp_path / "log.db", factory=Spy)) as db:
        list(find_rows(db, wanted, 2**62))
        sql, values = next(each for each in asked if "ORDER BY seq DESC" in each[0])
        plan = " ".join(row[3] for row in db.execute(f"EXPLAIN QUERY PLAN {sql}", values))
    assert index in plan
    assert "TEMP B-TREE" not in plan


def test_a_log_of_an_earlier_version_gets_the_indexes(tmp_path: Path) -> None:
    """Its activities stay as they are, and are found."""
    repo = Repo(tmp_path)
    repo.app.close()
    path = tmp_path / ".trails" / "graphs" / "main" / "log.db"
    old = Activity(
        uuid7(), "ada", "x", "2020-01-01T00:00:00.000Z", "2020-01-01T00:00:01.000Z", "ok"
    )
    with closing(sqlite3.connect(path)) as db, db:
        for name in ("actor", "name", "outcome"):
            db.execute(f"DROP INDEX activities_{name}")
        db.execute("DROP TABLE activity_nodes")
        db.execute(
            "INSERT INTO activities (id, record) VALUES (?, ?)",
            (
                old.id,
                b'{"actor":"ada","ended":"2020-01-01T00:00:01.000Z","id":"%s","name":"x",'
                b'"outcome":"ok","started":"2020-01-01T00:00:00.000Z"}' % old.id.encode(),
            ),
        )
    repo.reopen()
    page = list_provenance(
        repo.graph, OPEN, "me", ProvenanceQuery(actor="ada"), masks=("masked", "unknown")
    )
    assert page.activities == (old,)
    assert page.activities[0].trace_id == old.id.replace("-", "")
    repo.app.close()


def test_archived_calls_are_searched_or_named(tmp_path: Path) -> None:
    """A list says whether there is more in archives, and searches them if it is asked to."""
    repo = Repo(tmp_path)
    rng = random.Random(3)
    every = [activity(rng, minute) for minute in range(50)]
    repo.graph.log.insert_activities(every)
    repo.graph.activities._retention = Retention(None, 10)
    repo.graph.activities.archive()
    ask = ProvenanceQuery(actor="ada")
    page = list_provenance(repo.graph, OPEN, "me", ask, masks=("", ""))
    assert page.archived
    whole = list_provenance(
        repo.graph, OPEN, "me", ProvenanceQuery(actor="ada", archived=True), masks=("", "")
    )
    assert not whole.archived
    assert len(whole.activities) == sum(each.actor == "ada" for each in every)
    made = every[3]
    assert repo.graph.activities.find({made.id: made.ended}) == {made.id: made}
    repo.app.close()


def test_what_is_asked_for_wrongly_is_refused() -> None:
    """A time that is none, and a cursor of another question."""
    repo = Repo()
    repo.graph.log.insert_activities([activity(random.Random(n), n) for n in range(5)])
    with pytest.raises(ValidationError, match="since"):
        list_provenance(repo.graph, OPEN, "me", ProvenanceQuery(since="soon"), masks=("", ""))
    page = list_provenance(repo.graph, OPEN, "me", ProvenanceQuery(), masks=("", ""), limit=2)
    rest = list_provenance(
        repo.graph, OPEN, "me", ProvenanceQuery(), masks=("", ""), limit=9, after=page.next
    )
    assert len(page.activities + rest.activities) == 5
    with pytest.raises(CursorError):
        list_provenance(
            repo.graph,
            OPEN,
            "me",
            ProvenanceQuery(outcome="ok"),
            masks=("", ""),
            after=page.next,
        )
