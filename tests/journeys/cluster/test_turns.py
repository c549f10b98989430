"""Several servers write one log: one line of commits, whoever wrote them."""

import threading

import pytest
from tests.journeys.cluster.conftest import agree, level, put, scores

from trails.errors import ConflictError, NotFoundError, ValidationError
from trails.model.history import MergeRequest


def test_each_sees_what_the_other_writes(two):
    """Also without waiting: a write begins where the log is."""
    a, b = two
    for number in range(6):
        put(two[number % 2], f"p{number}", score=number)
    assert scores(b) == {f"p{number}": number for number in range(6)}
    level(a, b)
    assert scores(a) == scores(b)
    agree(a, b)


def test_threads_at_both_servers_make_one_line(two):
    """Groups of commits of both, interleaved."""
    errors = []

    def work(app, name):
        try:
            for number in range(8):
                put(app, f"{name}-{number}", score=number)
        except Exception as error:  # noqa: BLE001 - shown below
            errors.append(error)

    threads = [
        threading.Thread(target=work, args=(two[number % 2], f"t{number}")) for number in range(6)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []
    agree(*two)
    assert len(scores(two[0])) == 48
    seqs = [each.seq for each in two[0].graph().log.commits()]
    assert seqs == list(range(1, len(seqs) + 1))


def test_rules_hold_across_servers(two):
    """Unique fields and references are checked in what the other has just written."""
    a, b = two
    put(a, "ann", mail="x@y")
    with pytest.raises(ValidationError, match="mail"):
        put(b, "bob", mail="x@y")
    team = [{"op": "create", "type": "Team", "data": {"name": "red"}}]
    b.mutate(b.context(), team)
    put(a, "bob", team="red")
    with pytest.raises(ValidationError):
        b.mutate(b.context(), [{"op": "delete", "type": "Team", "id": "red"}])
    agree(a, b)


def test_a_key_works_at_every_server(two):
    """A retry elsewhere returns the first commit; a head that moved elsewhere is a conflict."""
    a, b = two
    head = a.graph().log_head("main").commit
    first = put(a, "ann", key="k", score=1)
    assert put(b, "ann", key="k", score=1) == first
    with pytest.raises(ConflictError):
        put(b, "ann", key="k", score=2)
    delete = [{"op": "delete", "type": "Person", "id": "ann"}]
    with pytest.raises(ConflictError):
        b.mutate(b.context(), delete, expected_head=head)
    b.mutate(b.context(), delete, expected_head=first)
    assert scores(b) == {}


def test_branches_come_move_and_go_everywhere(two):
    """Created at one server, written at the other, merged at the first, deleted at the second."""
    a, b = two
    put(a, "ann", score=1)
    a.versions().create_branch("side")
    level(a, b)
    put(b, "ann", branch="side", score=2)
    put(b, "bob", branch="side", score=2)
    put(a, "eve", score=3)
    level(a, b)
    assert scores(a, "side") == {"ann": 2, "bob": 2}
    found = a.versions().merge(MergeRequest(source="side", target="main"))
    assert found.outcome == "merged"
    level(a, b)
    b.versions().create_branch("next")
    put(b, "zoe", branch="next", score=4)
    level(a, b)
    moved = a.versions().merge(MergeRequest(source="next", target="main"))
    assert moved.outcome == "fast_forward"
    level(a, b)
    assert scores(b) == {"ann": 2, "bob": 2, "eve": 3, "zoe": 4}
    agree(a, b)
    b.versions().delete_branch("side")
    level(a, b)
    with pytest.raises(NotFoundError):
        a.context(branch="side")
    a.versions().create_branch("side")
    put(a, "new", branch="side", score=5)
    level(a, b)
    assert scores(b, "side")["new"] == 5
    agree(a, b)


def test_a_server_that_joins_late_or_comes_back_has_everything(cluster):
    """It builds its views from the log, or brings up those that it has."""
    a = cluster.start("a")
    put(a, "ann", score=1)
    b = cluster.start("b")
    assert scores(b) == {"ann": 1}
    put(b, "bob", score=2)
    cluster.stop(b)
    put(a, "eve", score=3)
    b = cluster.start("b")
    assert scores(b) == {"ann": 1, "bob": 2, "eve": 3}
    put(b, "ann", score=4)
    agree(a, b)
