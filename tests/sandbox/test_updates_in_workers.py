"""An update in a worker: its effect comes back, and nobody sees it done."""

import pytest
from tests.sandbox.branches import EX

from trails.errors import LimitError, QueryError
from trails.sandbox.limits import Limits


def test_an_update_gives_its_effect_and_changes_nothing(branch, sandbox):
    """At the position that it was computed for; a query after it sees the branch as it was."""
    text = f"DELETE {{ ?s <{EX}name> ?o }} INSERT {{ ?s <{EX}name> 'new' }} "
    text += f"WHERE {{ ?s <{EX}number> 7 ; <{EX}name> ?o }}"
    effect = sandbox.update(branch, text, caller="ann")
    assert effect.position == branch.head()
    assert effect.removed == f'<{EX}thing/7> <{EX}name> "thing 7" .\n'.encode()
    assert effect.added == f'<{EX}thing/7> <{EX}name> "new" .\n'.encode()
    ask = f"ASK {{ <{EX}thing/7> <{EX}name> 'new' }}"
    assert sandbox.query(branch, ask, caller="ann").truth is False
    branch.commit(effect.removed.decode(), effect.added.decode())
    assert sandbox.query(branch, ask, caller="ann").truth


def test_an_update_that_is_wrong_is_an_error(branch, sandbox):
    """With the parser's words."""
    with pytest.raises(QueryError, match="update can't be run"):
        sandbox.update(branch, "INSERT DATA {", caller="ann")


def test_an_update_of_death_is_stopped(branch, sandbox):
    """By the clock, as a query is."""
    text = "INSERT { ?a ?b ?f } WHERE { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l FILTER(?a=?l) }"
    with pytest.raises(LimitError):
        sandbox.update(branch, text, caller="ann", limits=Limits(seconds=0.5))
    assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="ann").truth


def test_an_effect_has_a_limit(branch, sandbox):
    """Large changes are for files."""
    small = Limits(seconds=60, effect_bytes=1000)
    with pytest.raises(LimitError, match="load a file") as caught:
        sandbox.update(branch, "DELETE WHERE { ?s ?p ?o }", caller="ann", limits=small)
    assert caught.value.data["limit"] == "effect_bytes"
