"""``dry_run`` says what a call would do, and does none of it."""

import json
import threading

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.request.drafts import shelf
from tests.request.drafts.shelf import log_of
from tests.worlds.graphs import Calls

from trails import App
from trails.model.actors import Actor

BOOK = {"op": "create", "type": "Book", "data": {"isbn": "01", "title": "First"}}


@pytest.fixture(params=["memory", "folder"])
def calls(request, tmp_path):
    """The shelf, in memory and in a folder."""
    if request.param == "memory":
        made = Calls(App(*shelf.DECLARED))
    else:
        (tmp_path / "trails.toml").write_text('[project]\nname = "shelf"\n')
        (tmp_path / "app.py").write_text("from tests.request.drafts.shelf import *\n")
        made = Calls(App.open(tmp_path, strict=True))
    yield made
    made.close()


def changed(calls, start, end="main"):
    """The difference of two states, as it is shown."""
    found = calls.app.service("main").versions("test").diff(start, end)
    shown = json.loads(msgspec.json.encode(found))
    return {name: shown[name] for name in ("created", "updated", "deleted", "changes")}


def promised(report):
    """What a dry run says of that."""
    return {name: report[name] for name in ("created", "updated", "deleted", "changes")}


def test_a_capability_reads_its_own_writes_and_leaves_nothing(calls):
    """Three commits, read back by conditions and by SPARQL; then the graph is as it was."""
    given = {"isbn": "01", "title": "First", "author": "ada"}
    before, heard = log_of(calls.graph), []
    stop = calls.graph.feed.listen(heard.append)
    report = calls.result("books.write", {**given, "dry_run": True})
    stop()
    assert report["dry_run"] is True
    assert report["result"] == {"books": 1, "all": 1, "branch": "main"}
    assert (report["created"], report["updated"], report["deleted"]) == (2, 0, 0)
    assert {each["handle"] for each in report["changes"]} == {"Author/ada", "Book/01"}
    assert log_of(calls.graph) == before
    assert heard == []
    assert calls.result("graph_snapshot")["types"][0]["count"] == 0
    head = calls.graph.log_head("main").commit
    assert calls.result("books.write", given) == report["result"]
    assert changed(calls, head) == promised(report)


def test_an_async_handler_and_a_branch(calls):
    """A dry run works on the branch of the call."""
    calls.result("graph_mutate", {"operations": [BOOK]})
    calls.result("branch_create", {"name": "other"})
    before = log_of(calls.graph)
    given = {"book": "01", "title": "Second", "branch": "other", "dry_run": True}
    report = calls.result("books.retitle", given)
    assert report["branch"] == "other"
    assert report["result"]["title"] == "Second"
    assert report["changes"] == [
        {
            "handle": "Book/01",
            "change": "updated",
            "fields": [{"field": "title", "before": "First", "after": "Second"}],
        }
    ]
    assert log_of(calls.graph) == before


def test_a_call_that_would_fail_fails_in_the_same_words(calls):
    """All violations, as the call itself reports them."""
    wrong = [
        {"op": "create", "type": "Book", "data": {"isbn": "x", "title": "a"}},
        {"op": "update", "type": "Book", "id": "99", "data": {"title": "None"}},
    ]
    dry = calls.failure("graph_mutate", {"operations": wrong, "dry_run": True})
    real = calls.failure("graph_mutate", {"operations": wrong})
    assert (dry.code, dry.message, dry.data) == (real.code, real.message, real.data)
    assert len(dry.data["fields"]) == 3
    given = {"isbn": "01", "title": "First", "author": "Ada"}
    dry, real = (calls.failure("books.write", {**given, "dry_run": each}) for each in (True, False))
    assert (dry.code, dry.message) == (real.code, real.message)


def test_a_load_and_a_branch_that_it_would_fork(calls):
    """Nothing is forked."""
    calls.result("graph_mutate", {"operations": [BOOK]})
    before = log_of(calls.graph)
    data = '{"type": "Book", "data": {"isbn": "02", "title": "Second"}}\n'
    given = {"data": data, "mode": "overwrite", "branch": "new", "from": "main"}
    report = calls.result("graph_load", {**given, "dry_run": True})
    assert (report["created"], report["deleted"], report["branch"]) == (1, 1, "new")
    assert report["result"]["forked"] is True
    assert report["result"]["commit"] is None
    assert log_of(calls.graph) == before
    assert calls.failure("graph_load", {"data": data, "branch": "new", "dry_run": True}).code == (
        "not_found"
    )


def test_branches(calls):
    """What creating and deleting them would do, or why not."""
    before = log_of(calls.graph)
    assert calls.result("branch_create", {"name": "x", "dry_run": True})["result"]["from"] == "main"
    assert calls.failure("branch_create", {"name": "main", "dry_run": True}).code == "conflict"
    assert calls.failure("branch_delete", {"name": "x", "dry_run": True}).code == "not_found"
    assert log_of(calls.graph) == before
    calls.result("branch_create", {"name": "x"})
    calls.result("branch_delete", {"name": "x", "dry_run": True})
    assert calls.graph.log.head("x") is not None


def test_effects_beyond_the_graph_are_refused(calls):
    """Mail can't be taken back, so neither a dry run nor a proposal sends any."""
    shelf.SENT.clear()
    given = {"isbn": "01", "title": "First"}
    for control in ("dry_run", "propose"):
        failure = calls.failure("books.announce", {**given, control: True})
        assert failure.code == "validation"
        assert failure.data["fields"][0]["code"] == "side_effects"
        assert "sends mail about a Book" in failure.message
    assert shelf.SENT == []
    calls.result("books.announce", {**given, "idempotency_key": "once"})
    calls.result("books.announce", {**given, "idempotency_key": "once"})
    assert shelf.SENT == ["01"]


def test_an_expected_head_and_a_known_key_are_checked(calls):
    """As they would be; the key of a dry run is not kept."""
    given = {"operations": [BOOK], "idempotency_key": "k"}
    failure = calls.failure("graph_mutate", {**given, "expected_head": "f" * 32, "dry_run": True})
    assert failure.code == "conflict"
    assert calls.result("graph_mutate", {**given, "dry_run": True})["created"] == 1
    calls.result("graph_mutate", given)
    again = calls.result("graph_mutate", {**given, "dry_run": True})
    assert (again["created"], again["result"]["replayed"]) == (0, True)


def test_a_reader_takes_no_dry_run(calls):
    """It changes nothing anyway, and unknown arguments are refused."""
    failure = calls.failure("branch_list", {"dry_run": True})
    assert failure.data["fields"][0]["code"] == "unknown_field"
    wrong = calls.failure("books.write", {"dry_run": "perhaps"})
    assert wrong.data["fields"][0]["field"] == "dry_run"


def test_a_dry_run_does_not_wait_for_writers(calls):
    """It takes no lock of theirs, so neither delays the other."""
    with calls.graph.writing("other"):
        found = []
        asking = threading.Thread(
            target=lambda: found.append(
                calls.result("graph_mutate", {"operations": [BOOK], "dry_run": True})
            )
        )
        asking.start()
        asking.join(60)
        assert found[0]["created"] == 1


def test_the_call_is_recorded_without_a_commit(calls):
    """Who tried what is part of the record; no commit is named."""
    calls.result("graph_mutate", {"operations": [BOOK], "dry_run": True})
    (made,) = [each for each in calls.activities() if each.name == "graph_mutate"]
    assert (made.outcome, made.detail, made.generated) == ("ok", "dry run", ())


def test_an_expensive_dry_run_meets_its_budget(calls):
    """A write that would block others for too long fails in a dry run too."""
    actor = Actor("ada", credential="c1")
    calls.graph.write_seconds = 1e-9
    data = "".join(
        f'{{"type": "Book", "data": {{"isbn": "{at:02}", "title": "Book {at}"}}}}\n'
        for at in range(100)
    )
    failure = calls.failure("graph_load", {"data": data, "dry_run": True}, actor)
    assert failure.code == "limit"
    assert "write_seconds" in failure.message


OPERATIONS = st.one_of(
    st.builds(
        lambda op, isbn, title, tags: {
            "op": op,
            "type": "Book",
            "data": {"isbn": isbn, "title": title, "tags": tags},
        },
        st.sampled_from(["create", "upsert"]),
        st.sampled_from(["01", "02", "03", "bad"]),
        st.sampled_from(["First", "Second", "x"]),
        st.lists(st.sampled_from(["a", "b"]), max_size=2, unique=True),
    ),
    st.builds(
        lambda isbn, author: {
            "op": "update",
            "type": "Book",
            "id": isbn,
            "data": {"author": author},
        },
        st.sampled_from(["01", "02", "04"]),
        st.sampled_from(["ada", "bob", None]),
    ),
    st.builds(
        lambda slug: {"op": "upsert", "type": "Author", "data": {"slug": slug}},
        st.sampled_from(["ada", "bob"]),
    ),
    st.builds(
        lambda kind, identifier, cascade: {
            "op": "delete",
            "type": kind,
            "id": identifier,
            "cascade": cascade,
        },
        st.sampled_from(["Book", "Author"]),
        st.sampled_from(["01", "02", "ada"]),
        st.booleans(),
    ),
)
CALLS = st.one_of(
    st.tuples(
        st.just("graph_mutate"),
        st.lists(OPERATIONS, min_size=1, max_size=4).map(lambda each: {"operations": each}),
    ),
    st.tuples(
        st.just("books.write"),
        st.fixed_dictionaries(
            {
                "isbn": st.sampled_from(["01", "02", "05"]),
                "title": st.sampled_from(["Third", "y"]),
                "author": st.sampled_from(["ada", "Bad"]),
            }
        ),
    ),
    st.tuples(
        st.just("graph_load"),
        st.fixed_dictionaries(
            {
                "data": st.lists(st.sampled_from(["01", "02", "06"]), unique=True).map(
                    lambda each: "".join(
                        json.dumps({"type": "Book", "data": {"isbn": one, "title": f"No {one}"}})
                        + "\n"
                        for one in each
                    )
                ),
                "mode": st.sampled_from(["merge", "append", "overwrite"]),
            }
        ),
    ),
    st.tuples(
        st.just("books.retitle"),
        st.fixed_dictionaries(
            {"book": st.sampled_from(["01", "02"]), "title": st.sampled_from(["Fourth", "z"])}
        ),
    ),
)


@given(steps=st.lists(CALLS, min_size=1, max_size=6))
@settings(max_examples=25)
def test_a_dry_run_says_what_the_call_then_does(steps):
    """Its result, its changes or its failure; and the log has the same bytes after it."""
    calls = Calls(App(*shelf.DECLARED))
    try:
        for name, arguments in steps:
            head, before = calls.graph.log_head("main").commit, log_of(calls.graph)
            dry = calls.outcome(name, {**arguments, "dry_run": True})
            assert log_of(calls.graph) == before
            real = calls.outcome(name, arguments)
            if hasattr(real, "code"):
                assert (dry.code, dry.message) == (real.code, real.message)
                continue
            report, result = json.loads(dry.body), json.loads(real.body)
            assert promised(report) == changed(calls, head)
            if "commit" in result:
                result["commit"] = None
            assert report["result"] == result
    finally:
        calls.close()
