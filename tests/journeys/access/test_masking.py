"""What an actor can learn beside what it may: nothing, in words, lists, orders and changes."""

import asyncio
import json
import re
from functools import partial
from itertools import product

import pytest
from tests.journeys.access.shop import (
    ACTORS,
    QUERIES,
    WIRES,
    Ask,
    Shop,
    actor,
    call,
    is_unknown,
    put_back,
    read,
)
from tests.worlds.surfaces import LEGACY, MODERN, ask_app

from trails import Context, capability
from trails.app.serve.http.front import HttpInterface
from trails.app.serve.http.hosts import HostPolicy
from trails.engine.graph import activities as refusals
from trails.model.actors import LOCAL, OPERATOR, Actor
from trails.model.results import Failure
from trails.request.authenticate import Authenticator
from trails.request.authorize import lists_graphs
from trails.surfaces.rest.routes import build_app

INFO = {"name": "t", "version": "1"}
HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": INFO}


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The shop, served."""
    with Shop(tmp_path_factory.mktemp("masking") / "shop") as shop:
        yield shop


# --- nothing is told -------------------------------------------------------------------------


def _near(name):
    """A slip of the pen, to be told what was meant."""
    return name[:-1] + "z"


SLIPS = [
    Ask("tools/list", {}, ("GET", "/capabilities", None)),
    Ask("resources/list", {}, ("GET", "/card", None)),
    Ask("resources/templates/list", {}),
    Ask("server/discover", {}),
    Ask("initialize", HELLO),
    *(call(_near(each)) for each in (*QUERIES, "canary.open", "graph_query")),
    *(
        call(tool, {"branch": _near("canary-branch")})
        for tool in ("graph_snapshot", "tasks.count", "task_titles", "graph_mutate")
    ),
    call("commit_list", {"branch": _near("canary-branch")}),
    call("commit_list", {"all_branches": True}),
    call("commit_list", {"node": "CanaryVault/V-1"}),
    call("commit_get", {"commit": "main"}),
    call("branch_list"),
    call("branch_delete", {"name": _near("canary-branch")}),
    call("branch_create", {"name": "agents/x", "from": _near("canary-branch")}),
    call("branch_merge", {"source": _near("canary-branch"), "target": "agents/ada"}),
    call("branch_merge", {"source": "dev", "target": _near("canary-branch")}),
    call("graph_load", {"branch": _near("canary-branch"), "data": ""}),
    call("schema_get"),
    call("schema_get", {"types": ["CanaryVaulz"]}),
    call("graph_snapshot"),
    call("people.show", {"person": "ann"}),
    call("people.show", {"person": "canarx"}),
    call("tasks.add", {"code": "T-9"}),
    call("graph_mutate", {"operations": [{"op": "create", "type": "CanaryVaulz", "data": {}}]}),
    call(
        "graph_mutate",
        {
            "branch": "agents/ada",
            "operations": [
                {"op": "update", "type": "Person", "id": "ann", "data": {"canary_salarz": 1}}
            ],
        },
    ),
    read("trails://kg/types"),
    read("trails://schema"),
    read("trails://stats"),
    read("trails://branches"),
    read("trails://prov/latest"),
    read("trails://doctor"),
    read("trails://kg/CanaryVaulz"),
    read("trails://kg/Person"),
    read("trails://kg/Person/ann"),
    read("trails://kg/Person?where=canary_salarz=1"),
    read("trails://queries/canary_paz"),
    read(f"trails://branch/{_near('canary-branch')}/kg/Task"),
    Ask("ping", {}, ("GET", "/queries", None)),
    Ask("ping", {}, ("GET", "/queries/canary_paz", None)),
    Ask("ping", {}, ("GET", "/export", None)),
    Ask("ping", {}, ("POST", "/export", {"offset": 0})),
    Ask("ping", {}, ("POST", "/export", {"types": ["CanaryVaulz"]})),
    Ask("ping", {}, ("POST", "/export", {"fields": ["canary_salarz"]})),
    Ask("ping", {}, ("POST", "/export", {"types": ["Person"], "where": "canary_salarz=1"})),
    Ask("ping", {}, ("GET", "/export?type=CanaryVaulz", None)),
    Ask("ping", {}, ("GET", f"/branches/{_near('canary-branch')}/diff", None)),
    Ask("ping", {}, ("GET", "/diff?from=dev&to=main", None)),
    Ask("ping", {}, ("GET", "/kg/Person?where=canary_salarz=1", None)),
]
ASKED = re.compile("|".join(sorted(set(re.findall(r"[\w.-]*[Cc]anar[\w.-]*", json.dumps(SLIPS))))))
HIDDEN = {
    "reader": ("canary-branch", "canary-gone", "canary_pay", "canary_all", "canary.open"),
    "writer": ("canary-branch", "canary-gone", "canary_pay", "canary_all", "canary.open"),
    "clerk": ("canary-", "canary_", "canary.", "CanaryVault"),
    "asker": ("canary-", "canary_", "canary.", "CanaryVault", "Somebody", "agents/gone"),
    "runner": ("canary-", "canary_", "canary.", "CanaryVault", "Somebody", "agents/gone"),
    "nobody": ("canary-", "canary_", "canary.", "CanaryVault", "Somebody", "agents/gone"),
}


@pytest.mark.req("G6")
@pytest.mark.parametrize(("name", "wire"), list(product(HIDDEN, WIRES)))
def test_no_answer_names_what_is_hidden(shop, name, wire):
    """Not lists, suggestions, error data, schemas, introductions or the latest activity.

    An admin who asks the same is answered with those names.
    """

    def answers(actor):
        for ask, reply in zip(SLIPS, shop.ask(wire, actor, SLIPS), strict=True):
            if reply is not None:  # REST has no route for some methods of MCP
                # What was asked may come back; what was not, must not.
                yield ask, ASKED.sub("", reply.body.decode())

    for ask, said in answers(ACTORS[name]):
        for hidden in HIDDEN[name]:
            assert hidden not in said, (ask, said)
    everything = "".join(said for _, said in answers(ACTORS["admin"]))
    for hidden in HIDDEN[name]:
        assert hidden in everything or hidden in ASKED.pattern


@pytest.mark.req("G6")
def test_an_introduction_names_what_may_be_used(shop):
    """By ``initialize`` and ``server/discover``: types and tools of this actor, no others."""
    for method, params, wire in (("initialize", HELLO, "legacy"), ("server/discover", {}, "sdk")):
        told = {
            name: shop.ask(wire, each, [Ask(method, params)])[0].message["result"]["instructions"]
            for name, each in ACTORS.items()
        }
        assert "CanaryVault" in told["admin"]
        assert "canary.open" in told["admin"]
        assert "graph_query" in told["reader"]
        for name in ("clerk", "asker", "runner", "nobody"):
            assert "anary" not in told[name]
            assert "graph_query" not in told[name]
        assert "- Person: Somebody." in told["clerk"]
        assert "people.show" in told["clerk"]
        assert "Person" not in told["runner"]
        assert "tasks.count" in told["runner"]
        for word in ("schema_get", "graph_mutate", "branch_create"):
            assert word not in told["nobody"]


@pytest.mark.req("G6")
def test_own_activities_do_not_tell_denied_from_unknown(shop, monkeypatch):
    """The latest activity has for both the same words; an admin is told the truth."""
    monkeypatch.setattr(refusals, "NAMES", 10_000)  # other tests have asked for many
    reader, admin = ACTORS["reader"], ACTORS["admin"]
    shop.ask("fast", reader, [call("canary_pay"), call("qqqqqq_qqq")])
    (mine,) = shop.ask("fast", reader, [read("trails://prov/latest")])
    found = json.loads(mine.message["result"]["contents"][0]["text"])["activities"]
    assert {each["agent"] for each in found} == {"reader"}
    entries = {each["activity"]: each for each in found}
    denied, unknown = (
        {key: entries[name][key] for key in ("kind", "outcome", "detail")}
        for name in ("canary_pay", "qqqqqq_qqq")
    )
    unknown["detail"] = unknown["detail"].replace("qqqqqq_qqq", "canary_pay")
    assert denied == unknown
    (theirs,) = shop.ask("fast", admin, [read("trails://prov/latest")])
    every = json.loads(theirs.message["result"]["contents"][0]["text"])["activities"]
    assert ("canary_pay", "masked") in {(each["activity"], each["outcome"]) for each in every}


def test_a_commit_of_a_hidden_branch_keeps_its_name_to_itself(shop):
    """Once another branch has it, it is seen, but not where it was made."""
    history = shop.app.versions()
    history.create_branch("canary-merged")
    made = shop.load("canary-merged", ["T-merged"])
    history.create_branch("open", "canary-merged")
    asked = [
        call("commit_get", {"commit": made}),
        call("commit_list", {"branch": "open", "limit": 1}),
    ]
    one, listed = shop.ask("fast", ACTORS["reader"], asked)
    for name in ("open", "canary-merged"):
        history.delete_branch(name, force=True)
    assert one.message["result"]["structuredContent"]["commit"] == made
    found = listed.message["result"]["structuredContent"]["commits"]
    assert [each["commit"] for each in found] == [made]
    assert b"canary" not in one.body + listed.body


def test_a_cursor_does_not_lead_to_hidden_commits(shop):
    """A reader can't continue an admin's pages: every cursor is as a forged one."""

    def page(name, **arguments):
        asked = call("commit_list", {"all_branches": True, **arguments})
        (reply,) = shop.ask("fast", ACTORS[name], [asked])
        return reply.message["result"]

    def ids(result):
        return [each["commit"] for each in result["structuredContent"]["commits"]]

    hidden = {shop.commits["canary-branch"], shop.commits["canary-gone"]}
    every, visible = (ids(page(name, limit=1000)) for name in ("admin", "reader"))
    assert hidden <= set(every)
    assert visible == [each for each in every if each in visible]
    assert hidden.isdisjoint(visible)
    forged = page("reader", limit=1000, after="forged")
    assert forged["isError"]
    cursor = {}
    for commit in every[:-1]:
        begun = page("admin", limit=1, **cursor)
        assert ids(begun) == [commit]
        cursor = {"after": begun["structuredContent"]["next"]["arguments"]["after"]}
        assert page("reader", limit=1000, **cursor) == forged


# --- the order of denials ----------------------------------------------------------------------


@pytest.mark.req("T6")
@pytest.mark.parametrize("wire", WIRES)
def test_policy_comes_before_scope(shop, wire):
    """What policy denies is unknown, whatever the scope; what it permits tells the scope."""
    build = [call("trails_meta_shop_build"), call("trails.meta.shop.build")]
    for each in (ACTORS["reader"], actor("reader", scopes=("runtime", "builder", "dev"))):
        for reply in shop.ask(wire, each, build[:1]):
            assert is_unknown(reply)
    (lacking,) = shop.ask(wire, ACTORS["admin"], build[:1])
    error = lacking.message.get("error", lacking.message)
    data = {key: value for key, value in error["data"].items() if key != "code"}
    assert data == {
        "tool": "trails_meta_shop_build",
        "required_scope": "builder",
        "caller_scopes": ["runtime"],
    }
    if wire == "rest":
        assert (lacking.status, error["code"]) == (403, "scope")
    else:
        assert error["code"] == -32004
    anonymous = Actor("admin", groups=frozenset({"admins"}))
    (unknown,) = shop.ask(wire, anonymous, build[:1])
    if wire == "rest":
        assert (unknown.status, unknown.message["code"]) == (401, "unauthenticated")
    else:
        assert unknown.message["error"]["code"] == -32001
    names = {each.name for each in shop.kernel.tools(ACTORS["admin"]).tools}
    assert "trails_meta_shop_build" not in names
    builder = actor("admin", scopes=("runtime", "builder"))
    assert names < {each.name for each in shop.kernel.tools(builder).tools}


# --- stored queries ------------------------------------------------------------------------------


@pytest.mark.req("G7")
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("asker", "query"),
    [("asker", "task_titles"), ("asker", "task_rename"), ("typist", "task_titles")],
)
def test_a_query_that_may_be_run_still_has_to_be_allowed_inside(shop, wire, asker, query):
    """Reading and changing are asked for again: an error that a model reads, and no commit.

    To read some types is not to read the graph, and a query reads that.
    """
    before = shop.app.graph().log_head("main")
    (reply,) = shop.ask(wire, actor(asker), [call(query)])
    message = reply.message
    if wire == "rest":
        assert (reply.status, message["code"]) == (403, "forbidden")
    else:
        assert message["result"]["isError"] is True
        assert message["result"]["_meta"]["dev.trails/error"]["code"] == "forbidden"
    assert shop.app.graph().log_head("main") == before


@pytest.mark.req("G7")
@pytest.mark.parametrize("wire", WIRES)
def test_queries_by_name_are_those_that_may_be_run(shop, wire):
    """Together in two tools they are gated one by one: listed, run, or as unknown as nonsense."""
    seen = {
        "admin": set(QUERIES),
        "reader": {"task_titles"},
        "clerk": {"task_titles", "task_rename"},
        "asker": {"task_titles", "task_rename"},
    }
    with shop.with_mode("meta") as there:
        for name in ACTORS:
            asked = [call("stored_query_list", {"detail_level": "full"})]
            (reply,) = there.ask(wire, ACTORS[name], asked)
            if name not in seen:
                assert is_unknown(reply)
                continue
            result = reply.message.get("result", reply.message)
            listed = result.get("structuredContent", result)["queries"]
            assert {each["name"] for each in listed} == seen[name]
            for query in set(QUERIES) - seen[name]:
                phantom = "q" * len(query)
                asked = [call("stored_query_run", {"name": each}) for each in (query, phantom)]
                found, other = there.ask(wire, ACTORS[name], asked)
                assert b"there is no stored query" in found.body
                assert found == put_back(other, phantom, query)


# --- what changes --------------------------------------------------------------------------------


def test_lists_follow_policies_and_branches(tmp_path):
    """A policy that is edited and a branch that comes are told of, and lists are others."""
    with Shop(tmp_path / "shop") as shop:
        names = lambda: {each.name for each in shop.kernel.tools(agent).tools}  # noqa: E731
        agent = actor("agent")
        file = shop.folder / "policies" / "shop.cedar"
        told = []

        async def scenario():
            stop = shop.kernel.listen(lambda: told.append(names()))
            assert "graph_snapshot" not in names()
            file.write_text(
                file.read_text()
                + 'permit(principal in Group::"agents", action == Action::"Read", resource) '
                'when { context.branch == "later" };\n'
            )
            await _until(lambda: told)
            assert "graph_snapshot" not in told[-1]  # there is no such branch yet
            await asyncio.to_thread(shop.app.versions().create_branch, "later")
            await _until(lambda: "graph_snapshot" in told[-1])
            versions = {shop.kernel.tools(each).version for each in (agent, ACTORS["reader"])}
            assert len(versions) == 2
            stop()

        shop.doors.run(scenario())
        (reply,) = shop.ask("fast", agent, [call("branch_list")])
        found = reply.message["result"]["structuredContent"]["branches"]
        assert [each["name"] for each in found] == ["later"]


def test_who_may_read_no_longer_is_not_told_of_changes(tmp_path):
    """A watch stays open, and silent from then on; the others still hear."""
    with Shop(tmp_path / "shop") as shop:
        file = shop.folder / "policies" / "shop.cedar"
        policies = file.read_text()
        watched = "trails://branch/dev/kg/Task"

        async def scenario():
            reader, admin = (
                shop.kernel.watch(ACTORS[name], [watched]) for name in ("reader", "admin")
            )
            await asyncio.to_thread(shop.load, "dev", ["T-a"])
            await _until(lambda: reader._due and admin._due)
            assert (list(reader.take()), list(admin.take())) == ([watched], [watched])
            file.write_text(policies.replace('Group::"readers"', 'Group::"others"'))
            await _until(lambda: shop.kernel.refuse_watch(ACTORS["reader"], watched))
            await asyncio.to_thread(shop.load, "dev", ["T-b"])
            await _until(lambda: admin._due)
            assert list(reader.take()) == []
            reader.close()
            admin.close()

        shop.doors.run(scenario())


async def _until(holds, seconds=60):
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - files and other threads tell nobody
            await asyncio.sleep(0.02)


def test_lists_that_are_equal_have_one_version(shop):
    """What was encoded for one actor serves another with the same rights, and no other."""
    twin = actor("twin", group="readers")
    assert shop.kernel.tools(twin).version == shop.kernel.tools(ACTORS["reader"]).version
    versions = {shop.kernel.tools(each).version for each in ACTORS.values()}
    assert len(versions) == len(ACTORS)


@pytest.mark.parametrize("wire", WIRES)
def test_lists_of_the_same_names_may_show_other_fields(shop, wire):
    """What was encoded for one who sees a field is not shown to one who does not."""
    listing = [Ask("tools/list", {}, ("GET", "/capabilities", None))]
    steward, porter = actor("steward"), actor("porter")
    lists = [shop.kernel.tools(each) for each in (steward, porter)]
    assert len({tuple(tool.name for tool in each.tools) for each in lists}) == 1
    assert lists[0].version != lists[1].version
    for _ in range(2):
        (told,), (masked,) = (shop.ask(wire, each, listing) for each in (steward, porter))
        assert b"canary_salary" in told.body
        assert b"canary" not in masked.body


def test_what_comes_hidden_changes_no_list(tmp_path):
    """A tool that an actor may not see is registered, and its list stays what it was."""
    with Shop(tmp_path / "shop") as shop:
        before = {name: shop.kernel.tools(each).version for name, each in ACTORS.items()}

        @capability("canary.more", side_effects=["none"])
        def more(ctx: Context) -> int:
            """Be there."""
            return 1

        shop.app.register(more)
        after = {name: shop.kernel.tools(each).version for name, each in ACTORS.items()}
        assert {name for name in ACTORS if before[name] != after[name]} == {"admin", "clerk"}


def test_an_instance_by_its_own_iri_is_masked_too(shop):
    """The other spelling of a resource is judged as the first."""
    for name in ("clerk", "nobody"):
        iri = f"{shop.app.graph().names.nodes}CanaryVault/V-1"
        other = iri.replace("CanaryVault", "Qqqqqqqqqqq")
        found, phantom = shop.ask("fast", ACTORS[name], [read(iri), read(other)])
        assert "error" in found.message
        assert found == put_back(phantom, "Qqqqqqqqqqq", "CanaryVault")
    (found,) = shop.ask("fast", ACTORS["admin"], [read(iri)])
    assert "result" in found.message


PLACED = "branch/…, at/…"
ROOTS = {
    "admin": f"one of schema, stats, doctor, branches, prov/latest, queries/…, kg/…, {PLACED}",
    "reader": f"one of schema, stats, branches, prov/latest, queries/…, kg/…, {PLACED}",
    "writer": f"one of schema, stats, branches, prov/latest, kg/…, {PLACED}",
    "dev": f"one of branches, prov/latest, {PLACED}",
    "asker": "after trails:// comes one of queries/…",
    "nobody": "there is nothing that you may read here",
}


@pytest.mark.parametrize("name", ROOTS)
def test_a_uri_that_names_nothing_is_told_what_may_be_read(shop, name):
    """What is offered instead is what the actor may read; a denied document is as unknown."""
    who = ACTORS.get(name) or actor(name)
    spelled = [f"trails://{each}" for each in ("schema", "doctor", "branches", "nope", "kg")]
    spelled += ["https://elsewhere.example/x", "trails://me@nope/x"]
    for uri, reply in zip(spelled, shop.ask("fast", who, map(read, spelled)), strict=True):
        if "error" in reply.message:
            told = reply.message["error"]["message"]
            assert ROOTS[name] in told
            root = uri.removeprefix("trails://")
            assert root not in told.partition("one of ")[2].split(", ")


def test_who_reads_one_branch_only_reads_nothing_elsewhere(shop):
    """To see a type is not to read the branch it is on: not by URI, and not by completion."""
    dev = actor("dev")
    placed = "trails://branch/{branch}/kg/{type}/{id}"

    def complete(**given):
        return Ask(
            "completion/complete",
            {
                "ref": {"type": "ref/resource", "uri": placed},
                "argument": {"name": "id", "value": ""},
                "context": {"arguments": {"type": "Task", **given}},
            },
        )

    asked = [complete(), complete(branch="dev"), complete(branch="main")]
    nowhere, there, denied = shop.ask("sdk", dev, asked)
    assert nowhere.message["result"]["completion"]["values"] == []
    assert "T-dev" in there.message["result"]["completion"]["values"]
    assert "there is no branch 'main'" in denied.message["error"]["message"]
    asked = [read("trails://kg/Task"), read("trails://branch/dev/kg/Task"), call("branch_list")]
    nowhere, there, listed = shop.ask("sdk", dev, asked)
    assert "error" in nowhere.message
    assert "result" in there.message
    found = listed.message["result"]["structuredContent"]["branches"]
    assert [each["name"] for each in found] == ["dev"]


def test_the_operator_is_not_judged(shop):
    """Whoever may read the project's own files may do everything."""
    names = {each.name for each in shop.kernel.tools(OPERATOR).tools}
    admin = actor("admin", scopes=("runtime", "builder", "dev"))
    assert names == {each.name for each in shop.kernel.tools(admin).tools}
    pretender = Actor("local", OPERATOR.scopes, credential="else")
    assert len(shop.kernel.tools(pretender).tools) == 2


# --- graphs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "OPTIONS"])
def test_which_graphs_there_are_is_for_those_who_may_know(shop, method):
    """Without GraphList there is nothing at /graphs, whatever the method; with it, a list."""
    app = build_app({"main": shop.kernel}, lists=partial(lists_graphs, shop.app.policies.server()))

    def visit(asker, path):
        scope = {"path": path, "raw_path": path.encode(), "trails.actor": asker}
        return asyncio.run(ask_app(app, [(b"host", b"127.0.0.1")], [b""], method, **scope))

    for name in set(ACTORS) - {"admin"}:
        denied, nothing = (visit(ACTORS[name], path) for path in ("/graphs", "/qqqqqq"))
        assert denied.status == 404
        assert denied == put_back(nothing, "/qqqqqq", "/graphs")
    for each in (ACTORS["admin"], OPERATOR):
        allowed = visit(each, "/graphs")
        assert allowed.status == {"GET": 200, "HEAD": 200, "POST": 405, "OPTIONS": 204}[method]
        if method == "GET":
            assert [each["graph_id"] for each in allowed.message["graphs"]] == ["main"]


def test_a_graph_that_is_not_there_names_no_other(shop):
    """Neither REST nor MCP says which there are."""
    for path in ("/graphs/nope/snapshot", "/graphs/nope/mcp"):
        interface = HttpInterface(
            {"main": shop.kernel},
            shop.app.settings.graphs,
            Authenticator(LOCAL),
            HostPolicy.for_bind("127.0.0.1"),
        )
        reply = asyncio.run(ask_app(interface, [(b"host", b"127.0.0.1")], [b""], "GET", path=path))
        assert reply.status == 404
        assert b"main" not in reply.body


def test_every_revision_masks_alike(shop):
    """Also those between the oldest and the newest."""
    for revision in (*LEGACY, MODERN, None):
        answers = shop.ask_in(revision, ACTORS["reader"], [call("canary_pay"), call("qqqqqq_qqq")])
        denied, unknown = answers
        assert denied == put_back(unknown, "qqqqqq_qqq", "canary_pay")
        assert denied.message["error"]["code"] == -32602


def test_why_a_graph_is_not_served_is_told_to_those_who_work_on_it(shop):
    """The reasons name what is declared; others learn that it is so."""
    broken = Failure("semantic", "quarantined", "Person.canary_salary is declared twice")
    app = build_app({"main": shop.kernel, "broken": broken})

    def visit(asker):
        path = "/graphs/broken/snapshot"
        scope = {"path": path, "raw_path": path.encode(), "trails.actor": asker}
        return asyncio.run(ask_app(app, [(b"host", b"127.0.0.1")], [b""], "GET", **scope))

    for each in (LOCAL, OPERATOR):
        assert b"canary" in visit(each).body
    for each in ACTORS.values():
        reply = visit(each)
        assert reply.status == 503
        assert b"canary" not in reply.body


def test_numbers_are_of_what_may_be_seen(shop):
    """Statistics count the branches that may be read, and no log that holds others."""
    asked = [read("trails://stats")]
    for name, branches in (("admin", 4), ("reader", 3), ("clerk", 3)):
        (reply,) = shop.ask("fast", ACTORS[name], asked)
        told = json.loads(reply.message["result"]["contents"][0]["text"])
        assert told["branches"] == branches
        assert (told["commits"] is None) == (told["bytes"] is None) == (name != "admin")


def test_health_tells_the_head_to_those_who_may_read_it(shop):
    """Others learn that the graph is there."""
    for name in ("admin", "reader", "nobody"):
        (reply,) = shop.ask("fast", ACTORS[name], [call("graph_health")])
        told = reply.message["result"]["structuredContent"]
        assert told["status"] == "ok"
        assert bool(told["head"]) == (name != "nobody")
