"""One program on a graph: in the process that owns it, and over ``trails.connect``.

Each scenario runs in both ways. Errors are compared with those of the other way.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import decimal
import importlib.util
import itertools
import re
import socket
import sys
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.worlds.processes import Web
from tests.worlds.projects import give_token, make_project

import trails
from trails import App, BigInt, Iri, Json, LoadRequest, MergeRequest, Q
from trails.app.remote.client import ServerClient
from trails.app.sessions.graphs import LocalGraphClient
from trails.app.sessions.session import CommandSession
from trails.errors import (
    ConflictError,
    NotFoundError,
    QueryError,
    TrailsError,
    TransactionError,
    UnreachableError,
    ValidationError,
)
from trails.request.operations import OPERATIONS

SHOP = Path(__file__).with_name("shop.py").read_text(encoding="utf-8")
QUERY = """#+ name: cheap
#+ description: Items below a price.
#+ params:
#+   most: {type: Decimal}
SELECT ?code WHERE { ?i a :Item ; :code ?code ; :price ?p . FILTER(?p < $most) }
"""
NUMBERS = itertools.count(1)


class Program:
    """What a program works with: its classes, contexts and operations."""

    def __init__(self, module, client, context):
        self.module = module
        self.client = client
        self.context = context
        self.branch = ""

    def fresh(self):
        """A context on a branch of its own, with the same few records."""
        self.branch = f"b{next(NUMBERS)}"
        self.client.create_branch(self.branch)
        ctx = self.context(branch=self.branch)
        module = self.module
        ann = module.Maker(name="Ann", city="Oslo")
        bob = module.Maker(name="Bob")
        lamp = module.Item(code="lamp", title="Lamp", price=decimal.Decimal("9.90"), stock=3)
        desk = module.Item(
            code="desk", title="Desk ÄÖ", stock=7, tags=["wood", "new"], maker=ann, parts=[lamp]
        )
        book = module.Book(code="book1", title="On Desks", author="Cy", maker=bob, stock=5)
        ctx.kg.save_all([ann, bob, lamp, desk, book])
        return ctx


def load_shop(folder):
    """The module of a project, as a program imports it."""
    name = f"shop_{next(NUMBERS)}"
    spec = importlib.util.spec_from_file_location(name, folder / "app.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """In the process that has the project open."""
    folder = make_project(
        tmp_path_factory.mktemp("local") / "shop", SHOP, queries={"cheap.rq": QUERY}
    )
    module = load_shop(folder)
    with App.open(folder) as app, LocalGraphClient(app, "main") as graph:
        client = ServerClient(lambda: CommandSession(graph), app.registry(), lambda: None)
        yield Program(module, client, app.context)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server."""
    folder = make_project(
        tmp_path_factory.mktemp("remote") / "shop", SHOP, queries={"cheap.rq": QUERY}
    )
    with Web(folder) as web:
        web.folder = folder
        yield web


@pytest.fixture(scope="module")
def remote(served):
    """Over HTTP."""
    module = load_shop(served.folder)
    with trails.connect(served.url, None, module) as client:
        yield Program(module, client, client.context)


@pytest.fixture(params=["local", "remote"])
def program(request):
    """The same program, here and elsewhere."""
    return request.getfixturevalue(request.param)


def test_every_kind_of_value_comes_back(program):
    """Saved, changed, emptied; what was read is what was written."""
    ctx, item = program.fresh(), program.module.Item
    values = {
        "title": "Lämp 🧭",
        "price": decimal.Decimal("12.50"),
        "stock": -(2**62),
        "weight": 0.1,
        "big": BigInt(10**40),
        "since": dt.date(1999, 12, 31),
        "seen": dt.datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=dt.UTC),
        "sold": True,
        "page": Iri("https://example.org/ä"),
        "facts": Json({"a": [1, {"b": None}]}),
        "place": (0.5, -1.5),
        "tags": ["a", "b"],
        "steps": ["b", "a", "b"],
        "maker": program.module.Maker.get(ctx, "Ann"),
        "parts": [item.get(ctx, "lamp")],
        "state": program.module.State.USED,
        "grades": [program.module.Grade.LOW, program.module.Grade.HIGH],
    }
    node = item(code="äß1/2", **values)
    assert node.save(ctx).id
    assert (node.id, node.handle) == ("äß1/2", "Item/%C3%A4%C3%9F1%2F2")
    for found in (node, item.get(ctx, "äß1/2"), item.get(ctx, node.handle)):
        read = {name: getattr(found, name) for name in values}
        assert read == values
        assert {name: type(value) for name, value in read.items()} == {
            name: type(value) for name, value in values.items()
        }
        assert found.maker.city == "Oslo"
    assert node.save(ctx) is None
    node.tags.reverse()
    assert node.save(ctx) is None
    node.steps.sort()
    assert node.save(ctx).id
    assert item.get(ctx, "äß1/2").steps == ["a", "b", "b"]
    node.tags, node.maker, node.facts, node.stock = [], None, None, 4
    assert node.save(ctx).id
    found = item.get(ctx, "äß1/2")
    assert (found.tags, found.maker, found.facts, found.stock) == ([], None, None, 4)
    assert found.title == "Lämp 🧭"
    found.delete(ctx)
    assert not item.objects(ctx).where(code="äß1/2").exists()


QUERIES = [
    (lambda m: m.Item.where(title__icontains="desk"), "book1 desk"),
    (lambda m: m.Item.where(stock__gte=5).order_by("-stock"), "desk book1"),
    (lambda m: m.Item.where(stock__in=[3, 5]).order_by("stock"), "lamp book1"),
    (lambda m: m.Item.where(maker__city="Oslo"), "desk"),
    (lambda m: m.Item.where(maker=None), "lamp"),
    (lambda m: m.Item.where(maker="Ann"), "desk"),
    (lambda m: m.Item.where(price__lt=decimal.Decimal(10)), "lamp"),
    (lambda m: m.Item.where(tags="new"), "desk"),
    (lambda m: m.Item.where(parts__code="lamp"), "desk"),
    (lambda m: m.Item.where(~Q(code__startswith="b"), Q(stock=3) | Q(stock=7)), "desk lamp"),
    (lambda m: m.Item.where().order_by("code").limit(2).offset(1), "desk lamp"),
    (lambda m: m.Item.where(stock__gt=3).exclude(maker__name="Bob"), "desk"),
    (lambda m: m.Book.where(author="Cy"), "book1"),
    (lambda m: m.Item.where(title="nothing"), ""),
    (lambda m: m.Item.where(state=m.State.NEW, stock=7), "desk"),
    (lambda m: m.Item.where(state__in=[m.State.USED, "old"]), ""),
]


def test_queries(program):
    """Conditions, hops, negation, orders, parts and subtypes."""
    ctx = program.fresh()
    for make, wanted in QUERIES:
        query = make(program.module)
        found = [each.code for each in query.fetch(ctx)]
        if not query.selection.order:
            found.sort()
        assert found == wanted.split(), wanted
        if query.selection.limit is None:
            assert query.count(ctx) == len(found)
        assert query.exists(ctx) is bool(found)
    items = program.module.Item.objects(ctx)
    assert (items.get_or_none if hasattr(items, "get_or_none") else None) is None
    assert isinstance(items.where(code="book1").get(), program.module.Book)
    assert items.order_by("code").values("code", "maker")[1] == {
        "code": "desk",
        "maker": ctx.kg.iri("Maker/Ann"),
    }
    assert [each.code for each in items.order_by("code")] == ["book1", "desk", "lamp"]


def test_pages(program):
    """As many as were asked for, to the end; also where one answer does not hold all."""
    ctx, note = program.fresh(), program.module.Note
    ctx.kg.save_all(note(text=f"{number:04}") for number in range(1_100))
    assert len(note.objects(ctx).fetch()) == 1_100
    assert len(note.objects(ctx).limit(1_050).fetch()) == 1_050
    texts, after = [], None
    while True:
        page = note.objects(ctx).order_by("text").page(400, after=after)
        texts += [each.text for each in page.items]
        after = page.next
        if after is None:
            break
    assert texts == [f"{number:04}" for number in range(1_100)]
    big = "x" * 3_000_000
    ctx.kg.save_all(note(text=f"big{number}{big}") for number in range(3))
    found = note.where(text__startswith="big").fetch(ctx)
    assert sorted(each.text[:4] for each in found) == ["big0", "big1", "big2"]


def test_edges_and_nearest(program):
    """An edge has an id of its ends; vectors are compared by the server."""
    ctx, module = program.fresh(), program.module
    ann, bob = module.Maker.get(ctx, "Ann"), module.Maker.get(ctx, "Bob")
    edge = module.Knows(source=ann, target=bob, years=3)
    edge.save(ctx)
    (found,) = module.Knows.objects(ctx).where(source=ann).fetch()
    assert (found.id, found.years, found.target.name) == (edge.id, 3, "Bob")
    days = [dt.date(2026, 1, day) for day in (1, 2)]
    ctx.kg.save_all([module.Meets(source=ann, target=bob, day=day) for day in days])
    meetings = module.Meets.objects(ctx).order_by("day").fetch()
    assert [each.day for each in meetings] == days
    meetings[0].place = "here"
    meetings[0].save(ctx)
    meetings[1].delete(ctx)
    (found,) = module.Meets.objects(ctx).fetch()
    assert (found.id, found.place) == (meetings[0].id, "here")
    for code, place in (("near", (1.0, 0.1)), ("far", (-1.0, 0.0)), ("middle", (0.0, 1.0))):
        module.Item(code=code, place=place).save(ctx)
    nearest = module.Item.objects(ctx).nearest("place", [1.0, 0.0], 2)
    assert [each.code for each, _ in nearest] == ["near", "middle"]
    assert nearest[0][1] > nearest[1][1]


def failure(action):
    """What an action raises, as a value."""
    with pytest.raises(TrailsError) as caught:
        action()
    error = caught.value
    fields = [
        (each.field, each.code, each.message, each.value, each.constraint)
        for each in getattr(error, "fields", ())
    ]
    return type(error), error.code, error.message, fields


def stale(ctx, module):
    """Save what was deleted meanwhile."""
    found = module.Item.get(ctx, "lamp")
    module.Item.get(ctx, "desk").delete(ctx)
    module.Item.get(ctx, "lamp").delete(ctx)
    found.stock = 99
    found.save(ctx)


def rename(ctx, module):
    """Change a key."""
    found = module.Item.get(ctx, "desk")
    found.code = "table"
    found.save(ctx)


FAILURES = [
    (ValidationError, lambda c, m: m.Item(code="x", title="ab", price=-1, stock="many").save(c)),
    (ValidationError, lambda c, m: m.Item(code="X Y").save(c)),
    (ValidationError, lambda c, m: m.Item(code="lamp").save(c)),
    (ValidationError, lambda c, m: m.Item(code="new", maker="Zoe").save(c)),
    (
        ValidationError,
        lambda c, m: c.kg.save_all([m.Maker(name="Eve"), m.Item(code="y", title="a")]),
    ),
    (ValidationError, lambda c, m: m.Maker.get(c, "Ann").delete(c)),
    (ValidationError, rename),
    (ValidationError, lambda c, m: m.Item(code="x", state=5).save(c)),
    (ValidationError, lambda c, m: m.Place(code="x").save(c)),
    (ValidationError, lambda c, m: c.kg.save_all([m.Shelf(code="a"), m.Place(code="b")])),
    (NotFoundError, stale),
    (NotFoundError, lambda c, m: m.Item.get(c, "lmap")),
    (NotFoundError, lambda c, m: m.Item.where(code="zzz").get(c)),
    (NotFoundError, lambda c, m: m.Maker(name="Ida").delete(c)),
    (QueryError, lambda c, m: m.Item.where(colour="red").fetch(c)),
    (QueryError, lambda c, m: m.Item.where(title__gt="a", maker__age=3).fetch(c)),
    (QueryError, lambda c, m: m.Item.where(stock="many").fetch(c)),
    (QueryError, lambda c, m: m.Item.where(maker="Zoe").count(c)),
    (QueryError, lambda c, m: m.Item.objects(c).order_by("colour").fetch()),
    (QueryError, lambda c, m: m.Item.objects(c).values("colour")),
    (QueryError, lambda c, m: m.Item.where(stock__gt=0).get(c)),
    (QueryError, lambda c, m: m.Item.objects(c).nearest("stock", [1.0])),
    (ConflictError, lambda c, m: m.Maker(name="Ida").save(c, expected_head="0" * 32)),
    (TransactionError, lambda c, m: c.kg.save("text")),
]


@pytest.mark.parametrize("number", range(len(FAILURES)))
def test_errors_are_the_same(local, remote, number):
    """Class, code, message and fields."""
    kind, action = FAILURES[number]
    found = [failure(lambda p=p: action(p.fresh(), p.module)) for p in (local, remote)]
    assert found[0][0] is kind
    first, second = (
        repr(each).replace(p.context(branch=p.branch).kg.head.commit, "…").replace(p.branch, "…")
        for each, p in zip(found, (local, remote), strict=True)
    )
    assert first == second


def test_a_transaction_is_one_commit_or_none(program):
    """Saves and deletions in the block land together."""
    ctx, module = program.fresh(), program.module
    with ctx.kg.transaction(message="Rearrange") as opened:
        module.Maker(name="Cat").save(ctx)
        bob = module.Maker.get(ctx, "Bob")
        bob.city = "Rome"
        bob.save(ctx)
        module.Item.get(ctx, "desk").delete(ctx)
    shown = program.client.commit(opened.commit.id)
    assert (shown.message, shown.created, shown.updated, shown.deleted) == ("Rearrange", 1, 1, 1)
    assert bob.city == "Rome"


def test_a_transaction_that_fails_writes_nothing(program):
    """Whether a rule is broken, or the program itself fails."""
    ctx, module = program.fresh(), program.module

    def write(then):
        with ctx.kg.transaction():
            module.Maker(name="Dee").save(ctx)
            then()

    def fail():
        raise RuntimeError

    for then, kind in (
        (lambda: module.Item(code="bad", title="x").save(ctx), ValidationError),
        (fail, RuntimeError),
    ):
        with pytest.raises(kind):
            write(then)
        assert not module.Maker.where(name="Dee").exists(ctx)


def test_keys_and_heads(program):
    """A key returns the first commit; an expected head refuses what it does not expect."""
    ctx, maker = program.fresh(), program.module.Maker
    head = ctx.kg.head.commit
    first = maker(name="Eva").save(ctx, idempotency_key="k1", expected_head=head)
    again = maker(name="Eva").save(ctx, idempotency_key="k1", expected_head=head)
    assert again.id == first.id == ctx.kg.head.commit
    with pytest.raises(ConflictError):
        maker(name="Fay").save(ctx, idempotency_key="k1")
    with pytest.raises(ConflictError):
        maker(name="Fay").save(ctx, expected_head=head)
    maker(name="Eva", city="Bonn").save(ctx, upsert=True)
    assert maker.get(ctx, "Eva").city == "Bonn"


def test_branches_merges_and_the_past(program):
    """Work on a branch, merge it, and read what was."""
    ctx, module, client = program.fresh(), program.module, program.client
    before = ctx.kg.head.commit
    desk = module.Item.get(ctx, "desk")
    desk.stock = 1
    desk.save(ctx)
    past = program.context(branch="main", snapshot=before)
    assert past.snapshot == before
    assert module.Item.get(past, "desk").stock == 7
    with pytest.raises(TrailsError, match="read-only"):
        module.Maker(name="Gil").save(past)
    work = f"{program.branch}-work"
    client.create_branch(work, program.branch)
    there = program.context(branch=work)
    module.Maker(name="Gil").save(there)
    assert not module.Maker.where(name="Gil").exists(ctx)
    changed = client.diff(program.branch, work)
    assert [each.handle for each in changed.changes] == ["Maker/Gil"]
    merged = client.merge(MergeRequest(source=work, target=program.branch))
    assert merged.created == 1
    assert module.Maker.where(name="Gil").exists(ctx)
    assert client.commits(program.branch, limit=1).commits[0].commit == merged.commit
    client.delete_branch(work)
    assert work not in [each.name for each in client.branches()]


def test_operations(program, tmp_path):
    """Capabilities, queries, changes, loads, exports, search."""
    program.fresh()
    client, branch = program.client, program.branch
    sold = client.call("shop.sell", {"item": "lamp"}, branch=branch)
    assert sold["sold"] is True
    found = client.query("cheap", {"most": "10"}, branch=branch)
    assert found.rows == ({"code": "lamp"},)
    text = "SELECT ?c WHERE { ?i a :Item ; :code ?c ; :stock ?s . FILTER(?s > $least) } ORDER BY ?c"
    assert [row["c"] for row in client.ask(text, {"least": 4}, branch=branch).rows] == [
        "book1",
        "desk",
    ]
    made = client.mutate(
        [{"op": "create", "type": "Maker", "data": {"name": "Hal"}}], branch=branch
    )
    assert made.applied[0].id == "Hal"
    file = tmp_path / "makers.ndjson"
    file.write_text('{"type": "Maker", "data": {"name": "Ivy"}}\n')
    assert client.load(LoadRequest(files=(file,), branch=branch)).nodes == 1
    text = b"".join(client.export(types=["Maker"], branch=branch)).decode()
    assert all(name in text for name in ("Ann", "Hal", "Ivy"))
    listed = client.operation("commit_list", branch=branch, limit=1)
    assert len(listed.commits) == 1
    with pytest.raises(NotFoundError, match="no operation"):
        client.operation("nonsense")
    assert "shop.sell" in [each.name for each in client.capabilities()]


ARGUMENTS = {
    "branch_list": {},
    "commit_get": {"commit": "HEAD"},
    "commit_list": {"limit": 1},
    "fetch": {"id": "Item/desk"},
    "graph_changes": {"since": "0", "limit": 1},
    "graph_diff": {"from": "main", "to": "HEAD"},
    "graph_health": {},
    "graph_query": {"query": "ASK { ?i a :Item }"},
    "graph_snapshot": {},
    "node_blame": {"type": "Item", "record": "desk"},
    "node_get": {"record": "Item/desk"},
    "node_list": {"type": "Item", "where": "stock=7", "fields": ["stock"]},
    "node_select": {"type": "Item", "where": {"field": "stock", "value": 7}},
    "proposal_list": {},
    "prov_list": {"limit": 1},
    "read_record_field": {"type": "Item", "record": "desk", "field": "title"},
    "schema_get": {},
    "search": {"query": "desk", "types": ["Item"]},
    "stored_query_list": {},
}
WITHOUT_BRANCH = {
    "branch_list",
    "commit_get",
    "fetch",
    "graph_diff",
    "graph_health",
    "proposal_list",
    "prov_list",
}


def test_every_reading_operation_has_its_typed_result(local, remote):
    """By its name, with one result here and elsewhere."""
    reading = {each.name for each in OPERATIONS if each.hints.read_only and each.meta is None}
    assert reading - ARGUMENTS.keys() == {"export_records"}  # it starts a job
    for program in (local, remote):
        head = program.fresh().kg.head.commit
        for name, given in ARGUMENTS.items():
            arguments = {key: head if value == "HEAD" else value for key, value in given.items()}
            if name == "fetch":
                arguments["id"] = f"trails://branch/{program.branch}/kg/Item/desk"
            if name not in WITHOUT_BRANCH | {"stored_query_list"}:
                arguments["branch"] = program.branch
            found = program.client.operation(name, **arguments)
            (declared,) = [each.result for each in OPERATIONS if each.name == name]
            assert type(found) is declared, name
    nearest = remote.client.operation("search", query="desk", branch=remote.branch)
    assert nearest.results


def test_changes_are_followed(program):
    """From a commit on, in order; only those of a type if one is named."""
    ctx, module = program.fresh(), program.module
    head = ctx.kg.head.commit
    made = [module.Maker(name=f"w{n}").save(ctx).id for n in range(3)]
    module.Item(code="watched").save(ctx)
    made.append(module.Maker(name="last").save(ctx).id)
    events = program.client.watch("Maker", since=head, branch=program.branch)
    found = list(itertools.islice(events, 4))
    assert [each.commit for each in found] == made
    assert [node.handle for node in found[0].changes] == ["Maker/w0"]


# --- over the network alone --------------------------------------------------------------


def test_coroutines(served, remote):
    """``async with`` gives the same as coroutines, which run at the same time."""
    remote.fresh()
    module, branch = remote.module, remote.branch

    async def run():
        async with trails.connect(served.url, None, module) as client:
            desk = await client.get(module.Item, "desk", branch=branch)
            desk.stock = 8
            assert (await client.save(desk, branch=branch)).id
            query = module.Item.where(stock__gte=5)
            found = await asyncio.gather(*(client.fetch(query, branch=branch) for _ in range(20)))
            assert {len(each) for each in found} == {2}
            assert await client.count(query, branch=branch) == 2
            page = await client.page(query.order_by("stock"), 1, branch=branch)
            assert [each.code for each in page.items] == ["book1"]
            assert await client.run(lambda: page.items[0].maker.name) == "Bob"
            assert (await client.call("shop.sell", {"item": "desk"}, branch=branch))["sold"]
            await client.delete(desk, branch=branch)
            assert await client.count(query, branch=branch) == 1
            rows = (await client.ask("SELECT ?c { ?i :code ?c }", branch=branch)).rows
            assert len(rows) == 2
            assert (await client.operation("graph_snapshot", branch=branch)).nodes == 4
            events = client.watch("Maker", branch=branch)
            coming = asyncio.ensure_future(anext(events))
            while not coming.done():
                await client.save(module.Maker(name=f"m{next(NUMBERS)}"), branch=branch)
            assert coming.result().created == 1
            await events.aclose()

    asyncio.run(run())


def test_a_type_that_the_program_does_not_declare(served, remote):
    """The error says what to pass."""
    ctx, module = remote.fresh(), remote.module
    with trails.connect(served.url, None, module.Maker) as client:
        ctx = client.context(remote.branch)
        assert module.Maker.get(ctx, "Ann").city == "Oslo"
        with pytest.raises(NotFoundError, match=r"no class is declared.*pass it.*connect"):
            module.Item.get(ctx, "desk")


def test_credentials(tmp_path):
    """A token in the call, or in the environment; refusals are typed."""
    folder = make_project(
        tmp_path / "shop", SHOP, policies={"all.cedar": "permit(principal, action, resource);"}
    )
    token = give_token(folder)
    with Web(folder) as web:
        for wrong in (None, "trails_wrong"):
            with trails.connect(web.url, wrong, graph="main") as client:
                with pytest.raises(TrailsError) as caught:
                    client.branches()
                assert caught.value.code == "unauthenticated"
        with trails.connect(web.url, token, graph="main") as client:
            assert [each.name for each in client.branches()] == ["main"]
    with trails.connect(web.url, token) as client, pytest.raises(UnreachableError, match="serve"):
        client.branches()


class Flaky:
    """A connection to a server that is cut off for some requests, before or after their answer."""

    def __init__(self, url):
        self._target = ("127.0.0.1", urlsplit(url).port)
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        self.cuts = []
        """What happens to the next requests: "before" or "after" the server has answered."""
        self.requests = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._server.accept()
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client):
        with client, socket.create_connection(self._target) as server:
            while request := _message(client):
                self.requests += 1
                cut = self.cuts.pop(0) if self.cuts else None
                if cut == "before":
                    return
                server.sendall(request)
                answer = _message(server)
                if cut == "after":
                    return
                client.sendall(answer)

    def close(self):
        """Accept no more connections."""
        self._server.close()


def _message(connection):
    """A whole message of HTTP; nothing at the end."""
    data = b""
    while block := connection.recv(1 << 20):
        data += block
        head, found, body = data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head.lower())
        if found and len(body) >= (int(length[1]) if length else 0):
            return data
    return b""


@pytest.fixture
def flaky(served):
    """A bad way to the server."""
    found = Flaky(served.url)
    yield found
    found.close()


@pytest.mark.parametrize("cut", ["before", "after"])
def test_what_can_be_repeated_is(flaky, remote, cut):
    """Reads and writes with a key are sent again, and are done once."""
    ctx, module = remote.fresh(), remote.module
    before = len(remote.client.commits(remote.branch, limit=100).commits)
    with trails.connect(flaky.url, None, module) as client:
        ctx = client.context(remote.branch)
        flaky.cuts = [cut, cut]
        assert module.Item.get(ctx, "desk").stock == 7
        flaky.cuts = [cut]
        assert len(client.branches()) > 1
        flaky.cuts = [cut, cut]
        module.Maker(name="Jo").save(ctx)
        flaky.cuts = [cut]
        assert client.call("shop.sell", {"item": "desk"}, branch=remote.branch)["sold"]
    commits = remote.client.commits(remote.branch, limit=100).commits
    assert len(commits) == before + 2


@pytest.mark.parametrize("cut", ["before", "after"])
def test_what_can_not_be_repeated_is_not(flaky, remote, cut):
    """The error says that the outcome is not known."""
    remote.fresh()
    with trails.connect(flaky.url, None, remote.module) as client:
        client.branches()
        flaky.cuts, asked = [cut], flaky.requests
        with pytest.raises(UnreachableError, match="may or may not have been carried out"):
            client.call("shop.remark", {"text": "once"}, branch=remote.branch)
        # One request for the call, and one that asks whether it may be repeated.
        assert flaky.requests == asked + 2
    found = remote.module.Note.where(text="once").count(remote.context(remote.branch))
    assert found == (cut == "after")


def test_a_request_that_takes_too_long_ends(remote):
    """It is not repeated: the server may still be at work on it."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            trails.connect(url, None, remote.module, timeout=0.2) as client,
            pytest.raises(UnreachableError, match="lost the connection"),
        ):
            client.branches()
        silent.accept()[0].close()
        silent.settimeout(0.3)
        with pytest.raises(TimeoutError):
            silent.accept()
