"""Idempotency keys: a retry gets the first outcome, another request a conflict, others nothing."""

from __future__ import annotations

import io
import sqlite3
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from tests.worlds.graphs import Calls

from trails import App, Context, Node, capability, node_type, predicate
from trails.engine.graph.open import open_graph
from trails.engine.write import write as idempotency
from trails.errors import ConflictError
from trails.log.protocol import LogEntry
from trails.log.sqlite import SqliteLog
from trails.model.actors import Actor
from trails.model.history import (
    Commit,
    CommitDraft,
    MergeRequest,
    Resolution,
    chain_digest,
    commit_id,
)
from trails.model.types import Schema
from trails.model.writes import KeyedOutcome, LoadRequest, RequestDigest


@node_type
class Item(Node):
    """Something with a count."""

    name: str = predicate(key=True)
    count: int = predicate(default=0)


@node_type
class Note(Node):
    """Something whose id is made at random."""

    text: str = predicate()


@pytest.fixture
def app():
    """A graph in memory with one item, and a branch that is ahead."""
    with App(Item, Note) as opened:
        fill(opened)
        yield opened


@pytest.fixture(params=["memory", "disk"])
def merging(request, tmp_path):
    """The same in memory and on disk: merges are planned under the lock and without it."""
    if request.param == "memory":
        opened = App(Item, Note)
    else:
        (tmp_path / "trails.toml").write_text('[project]\nname = "app"\n')
        (tmp_path / "app.py").write_text("")
        opened = App.open(tmp_path)
        opened.register(Item, Note)
    with opened:
        fill(opened)
        yield opened


def fill(app):
    """An item on main, another on a branch."""
    Item(name="a", count=1).save(app.context())
    app.versions().create_branch("ahead")
    Item(name="b", count=1).save(app.context(branch="ahead"))


def upsert(name, count):
    """One typed operation."""
    return [{"op": "upsert", "type": "Item", "data": {"name": name, "count": count}}]


def line(name, count):
    """One line of NDJSON."""
    return b'{"type": "Item", "data": {"name": "%s", "count": %d}}\n' % (name.encode(), count)


def asked(name, count, key, **more):
    """A request to load one item."""
    return LoadRequest(files=([line(name, count)],), format="ndjson", idempotency_key=key, **more)


UPDATE = (
    "DELETE {{ ?s :count ?c }} INSERT {{ ?s :count {count} }} "
    'WHERE {{ ?s :name "{name}"; :count ?c }}'
)


def by_transaction(app, actor, name, count, key):
    """A transaction that says what its key stands for."""
    ctx = app.context(actor=actor)
    request = {"name": name, "count": count}
    with ctx.kg.transaction(idempotency_key=key, request=request) as opened:
        if not opened.replayed:
            Item(name=name, count=count).save(ctx, upsert=True)
    return opened.commit


WRITES = {
    "operations": lambda app, actor, name, count, key: app.mutate(
        app.context(actor=actor), upsert(name, count), idempotency_key=key
    ),
    "update": lambda app, actor, name, count, key: app.mutate(
        app.context(actor=actor), UPDATE.format(name=name, count=count), idempotency_key=key
    ),
    "load": lambda app, actor, name, count, key: app.load(asked(name, count, key), actor=actor),
    "save": lambda app, actor, name, count, key: Item(name=name, count=count).save(
        app.context(actor=actor), upsert=True, idempotency_key=key
    ),
    "save_all": lambda app, actor, name, count, key: app.context(actor=actor).kg.save_all(
        iter([Item(name=name, count=count)]), upsert=True, idempotency_key=key
    ),
    "transaction": by_transaction,
}


def first(outcome):
    """What an outcome says, whether it is the first or a replay."""
    if hasattr(outcome, "replayed"):
        return msgspec.structs.replace(outcome, replayed=False)
    return outcome


def count(app, name="a", branch="main"):
    """What an item holds now."""
    return Item.get(app.context(branch=branch), name).count


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
class TestEveryWrite:
    """The same rules for whatever writes."""

    def test_a_retry_gets_the_first_outcome_after_newer_commits(self, app, write):
        """Same commit, same counts, and what was written since stays."""
        done = write(app, "ann", "a", 2, "k")
        write(app, "bob", "a", 3, "other")
        assert first(write(app, "ann", "a", 2, "k")) == first(done)
        assert count(app) == 3

    def test_a_write_that_changes_nothing_keeps_its_key(self, app, write):
        """A late retry must not overwrite what somebody wrote since."""
        write(app, "ann", "a", 1, "k")
        write(app, "bob", "a", 3, "other")
        write(app, "ann", "a", 1, "k")
        assert count(app) == 3

    def test_another_request_is_a_conflict(self, app, write):
        """It is refused with words, and neither done nor answered as done."""
        write(app, "ann", "a", 2, "k")
        with pytest.raises(ConflictError, match="'k' was used for another request") as caught:
            write(app, "ann", "a", 5, "k")
        assert caught.value.data == {"branch": "main", "idempotency_key": "k"}
        assert count(app) == 2

    def test_another_actors_key_is_another_key(self, app, write):
        """Two actors may use the same text, for the same request or for different ones."""
        write(app, "ann", "a", 2, "k")
        write(app, "bob", "a", 5, "k")
        assert count(app) == 5
        write(app, "ann", "a", 2, "k")
        assert count(app) == 5


def test_a_key_is_bound_to_the_operation(app):
    """The same values by another way are another request."""
    ctx = app.context()
    Item(name="c").save(ctx, idempotency_key="k")
    for other in (
        lambda: ctx.kg.save_all([Item(name="c")], idempotency_key="k"),
        lambda: Item.get(ctx, "c").delete(ctx, idempotency_key="k"),
        lambda: app.mutate(ctx, upsert("c", 0), idempotency_key="k"),
        lambda: app.load(asked("c", 0, "k")),
        lambda: app.versions().merge(MergeRequest("ahead", idempotency_key="k")),
    ):
        with pytest.raises(ConflictError, match="another request"):
            other()


def test_new_instances_may_be_made_again(app):
    """The random id of a new instance does not make a retry another request."""
    ctx = app.context()
    done = Note(text="x").save(ctx, idempotency_key="k")
    again = Note(text="x")
    assert again.save(ctx, idempotency_key="k") == done
    assert Note.objects(ctx).count() == 1
    saved = Note.objects(ctx).fetch()[0]
    with pytest.raises(ConflictError):
        saved.save(ctx, idempotency_key="k")


def test_a_retry_of_operations_names_the_same_nodes(app):
    """Ids that were made at random are told again."""
    many = [{"op": "create", "type": "Note", "data": {"text": f"{n}"}} for n in range(50)]
    done = app.mutate(app.context(), many, idempotency_key="k")
    assert app.mutate(app.context(), many, idempotency_key="k").applied == done.applied


def test_a_retry_of_a_fast_forward_does_not_merge_newer_commits(merging):
    """Its outcome, commit and counts are those of the first."""
    asked = MergeRequest("ahead", idempotency_key="k")
    done = merging.versions().merge(asked)
    assert (done.outcome, done.created, done.replayed) == ("fast_forward", 1, False)
    Item(name="c").save(merging.context(branch="ahead"))
    again = merging.versions().merge(asked)
    assert again.replayed
    assert first(again) == done
    assert Item.objects(merging.context()).count() == 2
    with pytest.raises(ConflictError, match="another request"):
        merging.versions().merge(msgspec.structs.replace(asked, message="else"))


def test_a_merge_that_finds_nothing_keeps_its_key(merging):
    """A retry after newer commits still finds nothing."""
    merging.versions().merge(MergeRequest("ahead"))
    asked = MergeRequest("ahead", idempotency_key="k")
    done = merging.versions().merge(asked)
    assert done.outcome == "already_up_to_date"
    Item(name="c").save(merging.context(branch="ahead"))
    assert first(merging.versions().merge(asked)) == done


def test_a_merge_is_answered_again_when_its_source_is_gone(merging):
    """Merging and deleting the branch, then hearing nothing: the retry is answered."""
    Item(name="z").save(merging.context())
    asked = MergeRequest("ahead", idempotency_key="k")
    done = merging.versions().merge(asked)
    merging.versions().delete_branch("ahead")
    assert first(merging.versions().merge(asked)) == done


def test_a_merge_with_conflicts_and_a_dry_run_keep_no_key(merging):
    """What wrote nothing can be sent again with resolutions, under the same key."""
    Item(name="b", count=9).save(merging.context())
    asked = MergeRequest("ahead", idempotency_key="k")
    dry = msgspec.structs.replace(asked, dry_run=True)
    assert merging.versions().merge(dry).outcome == "conflicts"
    conflicts = merging.versions().merge(asked).conflicts
    settled = {each.id: Resolution("ours") for each in conflicts}
    settled["divergent_field:Item/none.count"] = Resolution("ours")
    resolved = msgspec.structs.replace(asked, resolutions=settled)
    done = merging.versions().merge(resolved)
    assert (done.outcome, done.unused) == ("merged", ("divergent_field:Item/none.count",))
    assert first(merging.versions().merge(resolved)) == done


def test_a_key_of_two_actors_is_for_two_merges(merging):
    """Neither is answered with the other's outcome, and neither is lost."""
    merging.versions().create_branch("beside")
    Item(name="c", count=1).save(merging.context(branch="beside"))
    asked = {name: MergeRequest(name, idempotency_key="k") for name in ("ahead", "beside")}
    one = merging.versions(actor="ann").merge(asked["ahead"])
    two = merging.versions(actor="bob").merge(asked["beside"])
    assert (one.replayed, two.replayed) == (False, False)
    assert {item.name for item in Item.objects(merging.context())} == {"a", "b", "c"}
    assert first(merging.versions(actor="ann").merge(asked["ahead"])) == one
    assert first(merging.versions(actor="bob").merge(asked["beside"])) == two


def test_a_key_of_two_callers_is_for_two_calls_of_a_capability():
    """The key that a capability gives a write is that of its caller."""

    @capability("items.count")
    def count_to(ctx: Context, number: int) -> str:
        """Set the count of an item, once for a key."""
        return Item(name="a", count=number).save(ctx, upsert=True, idempotency_key="k").id

    with App(Item, count_to) as app:
        calls = Calls(app)
        ann, bob = (Actor(name, credential=name) for name in ("ann", "bob"))
        for actor, number, found in ((ann, 2, 2), (bob, 5, 5), (ann, 2, 5), (bob, 5, 5)):
            calls.result("items_count", {"number": number}, actor)
            assert count(app) == found
        refused = calls.failure("items_count", {"number": 7}, bob)
        assert refused.data["idempotency_key"] == "k"
        assert count(app) == 5
        calls.kernel.close()


def test_keys_of_a_deleted_branch_are_forgotten(app):
    """A branch of the same name is another branch."""
    versions = app.versions()
    request = asked("n", 1, "k", branch="import", source="main")
    done = app.load(request)
    assert (done.forked, app.load(request).forked) == (True, True)
    versions.delete_branch("import", force=True)
    again = app.load(request)
    assert (again.replayed, again.commit == done.commit) == (False, False)
    assert count(app, "n", "import") == 1


def test_a_stream_is_read_once_and_compared(app):
    """A pipe can't be read twice, and its content counts."""

    def load(text):
        return app.load(
            LoadRequest(files=(io.BytesIO(text),), format="ndjson", idempotency_key="k")
        )

    done = load(line("s", 1))
    assert (done.nodes, first(load(line("s", 1)))) == (1, done)
    with pytest.raises(ConflictError):
        load(line("s", 2))


def test_commits_show_no_keys(app):
    """Neither to the actor itself nor to anybody else; nor the nonce."""
    done = Item(name="c").save(app.context(actor="ann"), idempotency_key="secret-key")
    shown = [done, app.versions().commit(done.id).commit, app.versions().commits().commits[0]]
    for commit in shown:
        assert "secret-key" not in str(msgspec.to_builtins(commit))
        assert (commit.idempotency_key, commit.nonce) == (None, "")


def test_keys_expire_and_are_removed(app, monkeypatch):
    """After the time of the settings a key is free again, and new keys remove old ones."""
    graph = app.graph()
    assert graph.keep_keys_days == 30
    ctx = app.context()
    for number in range(3):
        app.mutate(ctx, upsert("a", 2), idempotency_key=f"k{number}")
    later = (datetime.now(UTC) + timedelta(days=31)).isoformat(timespec="milliseconds")
    monkeypatch.setattr(idempotency, "now", lambda: later.replace("+00:00", "Z"))
    assert not app.mutate(ctx, upsert("a", 4), idempotency_key="k0").replayed
    assert app.mutate(ctx, upsert("a", 4), idempotency_key="k0").replayed
    app.mutate(ctx, upsert("a", 4), idempotency_key="new")
    kept = graph.log._db.execute("SELECT key FROM idempotency_keys ORDER BY key").fetchall()
    assert kept == [("k0",), ("new",)]


def test_digests_do_not_depend_on_order_or_choke():
    """Equal requests are equal in any order of keys; what JSON can't say is taken, too."""
    assert RequestDigest({"a": 1, "b": 2}).hex() == RequestDigest({"b": 2, "a": 1}).hex()
    digests = {
        RequestDigest(part).hex()
        for part in ("\ud800", 2**80, float("nan"), b"x", {"a"}, datetime(2026, 1, 1, tzinfo=UTC))
    }
    assert len(digests) == 6


def old_commit(log, key):
    """A commit as versions before nonces and the table of keys wrote it."""
    payload = log.new_payload()
    payload.added.write(b'<x:s> <x:p> "v" .\n', 1)
    sealed, schema = payload.seal(), Schema()
    draft = CommitDraft("main", "ann", "2026-01-01T00:00:00.000Z", schema.digest, "m", None, key)
    digest = chain_digest((), draft, sealed.digest, "0 1")
    commit = Commit(
        1, commit_id(digest), "main", (), draft.actor, draft.time, draft.schema, 1, 0,
        sealed.digest, digest, "m", None, key,
    )  # fmt: skip
    log.insert_all([LogEntry(commit, sealed, schema, "")])
    return commit


def test_an_old_log_gets_the_table_and_honours_its_keys(tmp_path):
    """For the actor that wrote them, whatever the request was; its digest is as it was."""
    log = SqliteLog(tmp_path, "main", "trails://t/main", "2026-01-01T00:00:00Z")
    commit = old_commit(log, "k")
    log.close()
    assert commit.digest == "dae27c0e97f02f0b4f11f0c98b5931377491a8887a9dca1e9c82edd28e112545"
    db = sqlite3.connect(tmp_path / "log.db")
    db.execute("DROP TABLE idempotency_keys")
    db.commit()
    db.close()
    log = SqliteLog(tmp_path, "main", "trails://t/main", "2026-01-01T00:00:00Z")
    assert log.keyed("main", "ann", "k", "") == KeyedOutcome("main", "ann", "k", "", "", commit.id)
    assert log.keyed("main", "bob", "k", "") is None
    assert log.keyed("other", "ann", "k", "") is None
    log.close()


def test_keys_survive_closing(tmp_path):
    """Also those of writes that changed nothing: they were synced with nothing else."""
    for replayed in (False, True):
        graph = open_graph(tmp_path, name="main", base_iri="trails://t/main")
        key = idempotency.IdempotencyKey(graph, "main", "ann", "k")
        key.request.add("anything")
        assert (key.find() is not None) == replayed
        if not replayed:
            key.keep({"nodes": 7})
        else:
            assert key.find().result == {"nodes": 7}
        graph.close()
