"""What one server writes, the others show and tell, also when nobody writes there."""

import threading

import pytest
from tests.journeys.cluster.conftest import APP, agree, level, put, scores
from tests.worlds.processes import wait_until

from trails.engine.graph.graph import Graph
from trails.engine.schema.evolution import apply_schema
from trails.errors import LogUnavailableError, ReadOnlyError, SchemaMismatchError
from trails.log.postgres import connections as connections_module
from trails.log.postgres import following as following_module
from trails.log.postgres.log import PostgresLog

WIDER = APP.replace("score: int", "nick: str | None = predicate()\n    score: int")


def test_listeners_hear_of_commits_of_other_servers(two):
    """And of branches that come and go there."""
    a, b = two
    heard, woken = [], threading.Condition()

    def listen(change):
        with woken:
            heard.append((change.branch, change.schema_change))
            woken.notify()

    b.graph().feed.listen(listen)
    types = a.graph().main.schema.digest

    def wait_for(event):
        with woken:
            assert woken.wait_for(lambda: event in heard, 60), heard

    put(a, "ann")
    wait_for(("main", None))
    a.versions().create_branch("side")
    wait_for(("side", (None, types)))
    heard.clear()
    put(a, "bob", branch="side")
    wait_for(("side", None))
    a.versions().delete_branch("side", force=True)
    wait_for(("side", (types, None)))


def test_lost_notifications_are_made_up_for(two, monkeypatch):
    """Servers look for themselves."""
    monkeypatch.setattr(following_module, "POLL_SECONDS", 0.1)
    monkeypatch.setattr(PostgresLog, "_announce", lambda *_: None)
    a, b = two
    put(a, "ann", score=1)
    level(a, b)
    assert scores(b) == {"ann": 1}


def test_cut_connections_are_survived(two, postgres):
    """In the middle of a write it is refused, and nothing of it is left; the next one works."""
    a, b = two
    put(a, "ann", score=1)

    def cut(step):
        if step == "before_append":
            postgres.cut_connections()

    a.graph().on_step = cut
    with pytest.raises(LogUnavailableError, match="Nothing was written"):
        put(a, "zoe")
    a.graph().on_step = lambda _: None
    for number, app in enumerate((b, a, b)):
        put(app, "bob", score=number)
    level(a, b)
    assert scores(a) == scores(b) == {"ann": 1, "bob": 2}


def test_a_group_whose_turn_was_lost_leaves_nothing_in_the_views(two, postgres, monkeypatch):
    """Others have written since: what was checked before is not mixed with that."""
    a, b = two
    put(a, "ann", score=0)
    level(a, b)
    graph, take_turn, cuts = a.graph(), Graph.take_turn, []

    def lose_turn(asked):
        if asked is graph and graph._group is not None and graph._group.tickets and not cuts:
            cuts.append(postgres.cut_connections())
            graph.log.show_life()  # which finds out
            put(b, "ann", score=9)
        take_turn(asked)

    monkeypatch.setattr(Graph, "take_turn", lose_turn)
    outcomes = {}

    def write(name):
        try:
            outcomes[name] = put(a, name, score=1)
        except LogUnavailableError:
            outcomes[name] = None

    threads = [threading.Thread(target=write, args=(name,)) for name in ("bob", "eve")]
    with graph.writing():
        for each in threads:
            each.start()
        wait_until(lambda: graph.writers()[1] == 2)
    for each in threads:
        each.join()
    assert cuts
    expected = {name: 1 for name, commit in outcomes.items() if commit is not None}
    agree(a, b)
    assert scores(a) == scores(b) == {"ann": 9, **expected}
    assert len(expected) == 1


def test_reads_go_on_without_postgres(two, postgres, monkeypatch):
    """At the last head; a server says that its log is away, and goes on when it is back."""
    monkeypatch.setattr(connections_module, "RETRY_SECONDS", 0.2)
    monkeypatch.setattr(following_module, "POLL_SECONDS", 0.1)
    a, b = two
    put(a, "ann", score=1)
    level(a, b)
    postgres.stop()
    try:
        assert scores(b) == {"ann": 1}
        wait_until(lambda: not b.graph().log.available)
        with pytest.raises(LogUnavailableError):
            put(b, "bob")
        assert scores(b) == {"ann": 1}
    finally:
        postgres.start()
    wait_until(lambda: a.graph().log.available and b.graph().log.available)
    put(a, "eve", score=2)
    level(a, b)
    assert scores(b) == {"ann": 1, "eve": 2}


# --- types ------------------------------------------------------------------------------------


def test_a_server_with_other_types_does_not_change_them(two, cluster):
    """It says why it is not served; when the others have ended, it may."""
    a, b = two
    put(a, "ann", score=1)
    cluster.stop(b)
    (cluster.folder / "b" / "app.py").write_text(WIDER)
    b = cluster.open("b")
    assert isinstance(b.quarantined["main"], SchemaMismatchError)
    assert "Other servers" in b.quarantined["main"].message
    put(a, "bob", score=2)
    cluster.stop(b)
    cluster.stop(a)
    b = cluster.start("b")
    assert "nick" in {each.name for each in b.graph().main.schema.by_name["Person"].fields}


def test_a_server_whose_types_were_changed_elsewhere_only_reads(two, cluster):
    """Until its files say the same."""
    a, b = two
    put(a, "ann", score=1)
    (cluster.folder / "a" / "app.py").write_text(WIDER)
    registry = a.declared()
    apply_schema(a.graph(), a.graph().main, registry.schema)
    a.reload()
    put(a, "bob", nick="b")
    level(a, b)
    with pytest.raises(ReadOnlyError, match="another server"):
        put(b, "eve")
    assert set(scores(b)) == {"ann", "bob"}
    (cluster.folder / "b" / "app.py").write_text(WIDER)
    assert b.reload().status == "reloaded"
    put(b, "eve", nick="e")
    level(a, b)
    assert set(scores(a)) == {"ann", "bob", "eve"}
