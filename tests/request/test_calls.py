"""Calls: what comes of them, and what is left of them."""

import asyncio
import json
import threading
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from tests.request import library

from trails import App, Context, capability, meta_capability
from trails.app.kernels import kernel_of
from trails.errors import RegistryError, TrailsError, ValidationError
from trails.model.actors import LOCAL, Actor
from trails.model.names import portable_name
from trails.model.results import Failure, Success
from trails.request.operations import BUILTINS

BUILDER = Actor("bob", frozenset({"runtime", "builder"}))
LARGEST = 4 << 20
BOOK = {"isbn": "0001", "title": "Emma", "year": 1815}


@pytest.mark.parametrize(
    ("tool", "arguments", "body"),
    [
        ("books.shelve", {"count": 3}, {"result": 3}),
        ("books.rate", {"stars": 5}, {"stars": 5, "mood": "neutral", "code": None, "days": None}),
        ("returns.nothing", {}, {"result": None}),
        ("returns.many", {}, {"result": []}),
        ("returns.maybe", {"isbn": "9999"}, {"result": None}),
        ("returns.day", {}, {"result": "2026-03-01"}),
        ("returns.price", {}, {"result": "12.5"}),
        ("returns.stretch", {}, {"start": "2026-03-01", "days": 7}),
        ("trails_meta_ping", {}, {"pong": True, "graph": "main", "actor": "local"}),
    ],
)
def test_a_result_is_an_object(calls, tool, arguments, body):
    """What a capability returns is an object, or is put into one."""
    assert calls.result(tool, arguments) == body


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("books.shelve", {"count": 3}),
        ("books.add", {"book": {"isbn": "0002", "title": "Two", "tags": ["a"]}}),
        ("books.rate", {"stars": 5}),
        ("returns.nothing", {}),
        ("returns.many", {}),
        ("returns.maybe", {"isbn": "9999"}),
        ("returns.maybe", {"isbn": "0001"}),
        ("returns.text", {"size": 3}),
        ("returns.day", {}),
        ("returns.price", {}),
        ("returns.stretch", {}),
        ("graph_health", {}),
        ("graph_snapshot", {}),
        ("schema_get", {}),
        ("schema_get", {"types": ["Book"]}),
        ("branch_list", {}),
        ("branch_create", {"name": "b"}),
        ("branch_merge", {"source": "main", "target": "work"}),
        ("branch_merge", {"source": "work", "dry_run": True}),
        ("branch_delete", {"name": "work", "force": True}),
        ("commit_list", {"limit": 1}),
        ("commit_get", {"commit": "main"}),
        ("graph_query", {"query": "SELECT ?t WHERE { ?b :title ?t }"}),
        ("graph_query", {"query": "ASK { ?b :title ?t }"}),
        ("graph_mutate", {"operations": [{"op": "delete", "type": "Book", "id": "0001"}]}),
        ("graph_load", {"data": '{"type": "Book", "data": {"isbn": "0009", "title": "Nine"}}'}),
        ("trails_meta_ping", {}),
        ("by_status", {"params": {"status": "ordered"}}),
        ("lose_all", {}),
    ],
)
def test_a_result_satisfies_the_schema_that_the_tool_declares(opened, tool, arguments):
    """Every tool declares the schema of an object, and its results validate against it."""
    opened.app.register(*library.DECLARED)
    opened.result("books.add", {"book": BOOK})
    opened.result("branch_create", {"name": "work"})
    schema = opened.tool(tool).output_schema
    assert schema["type"] == "object"
    Draft202012Validator.check_schema(schema)
    outcome = opened.outcome(tool, arguments)
    assert isinstance(outcome, Success), outcome
    Draft202012Validator(schema).validate(json.loads(outcome.body))


def test_a_declared_result_that_does_not_come_is_told(calls):
    """A result without a JSON form is an error that names it, and no crash."""
    failure = calls.failure("returns.nonsense")
    assert failure.kind == "semantic"
    assert "no JSON form" in failure.message


@pytest.mark.parametrize("result", ["x", None, 1.5, [1], {"a": 1}])
def test_a_result_of_another_kind_than_declared_is_told(result):
    """It would not satisfy the schema that the tool declares; the app refuses it as well."""

    @capability("returns.other")
    def other(ctx: Context) -> int:
        """Return something else."""
        return result

    with App(other) as app:
        kernel = kernel_of(app)
        failure = asyncio.run(kernel.execute(LOCAL, "returns.other", {}))
        kernel.close()
        assert "returns.other declares that it returns Int, but returned" in failure.message
        with pytest.raises(TrailsError, match="declares that it returns Int"):
            app.call(app.context(), "returns.other")


def test_a_result_that_is_too_large_for_a_program_is_refused_and_not_cut(calls):
    """The error names the size, the limit and what to do."""

    def invoke(size):
        return asyncio.run(calls.kernel.invoke(LOCAL, "returns.text", {"size": size}))

    assert len(invoke(LARGEST - 100).body) == LARGEST - 87
    failure = invoke(LARGEST)
    assert (failure.kind, failure.code) == ("semantic", "limit")
    assert failure.data == {"limit": LARGEST, "size": LARGEST + 13}
    assert str(LARGEST + 13) in failure.message
    assert "ask for less" in failure.message


# --- names -----------------------------------------------------------------------------


@pytest.mark.req("G3")
def test_list_and_call_know_one_kind_of_entry(opened):
    """What is listed can be called, in either spelling; nothing is listed twice or in pages."""
    listed = opened.kernel.tools(LOCAL)
    names = [tool.name for tool in listed.tools]
    assert names == sorted(set(names))
    assert {"graph_health", "books.add", "trails_meta_ping", "by_status"} <= set(names)
    for name in names:
        for spelled in {name, portable_name(name)}:
            wrong = opened.outcome(spelled, {"no_such_argument": 1})
            assert isinstance(wrong, Failure)
            assert wrong.kind == "validation", (spelled, wrong)
    entries = opened.kernel._pin().entries
    assert {type(entry) for entry in entries.values()} == {type(entries["graph_health"])}


@pytest.mark.parametrize("name", ["nope", "", "hidden", "books add", "x" * 500, "BOOKS.ADD"])
def test_an_unknown_tool_is_told_the_same_way_whatever_the_reason(opened, name):
    """The message names what was asked for, and nothing else."""
    failure = opened.failure(name)
    assert failure == Failure("unknown", "unknown", f"unknown tool: {name}", {})
    assert opened.activities()[-1].outcome == "unknown"


def test_dots_may_be_spelled_as_underscores(calls):
    """The activity has the name itself."""
    assert calls.result("books_shelve", {"count": 1}) == {"result": 1}
    assert calls.activities()[-1].name == "books.shelve"


# --- scopes ----------------------------------------------------------------------------


def test_a_scope_that_is_missing_hides_a_tool_and_refuses_its_call(calls):
    """One function decides both; the op did not run, and the refusal is recorded."""
    seen = {tool.name for tool in calls.kernel.tools(LOCAL).tools}
    assert "trails_meta_shop_close" not in seen
    assert calls.failure("trails_meta_shop_close").kind == "unauthenticated"
    failure = calls.outcome("trails_meta_shop_close", {}, Actor("ann", credential="t-1"))
    assert (failure.kind, failure.code) == ("scope", "scope")
    assert failure.data == {
        "tool": "trails_meta_shop_close",
        "required_scope": "builder",
        "caller_scopes": ["runtime"],
    }
    assert calls.activities()[-1].outcome == "scope"
    shown = {tool.name for tool in calls.kernel.tools(BUILDER).tools}
    needs = {each.name for each in BUILTINS if each.meta and each.meta.scope == "builder"}
    assert shown - seen == {"trails_meta_shop_close", *needs}
    assert isinstance(calls.outcome("trails_meta_shop_close", {}, BUILDER), Success)


def test_lists_of_different_actors_have_different_versions(calls):
    """What is encoded for one is never shown to another."""
    assert calls.kernel.tools(LOCAL).version != calls.kernel.tools(BUILDER).version
    assert calls.kernel.tools(LOCAL) is calls.kernel.tools(Actor("ann"))


@pytest.mark.req("T3")
def test_meta_tools_carry_scope_namespace_op_and_idempotence(calls):
    """And runtime tools carry nothing of the sort."""
    tools = {tool.name: tool for tool in calls.kernel.tools(BUILDER).tools}
    close, ping = tools["trails_meta_shop_close"], tools["trails_meta_ping"]
    assert (close.kind, close.meta.scope, close.meta.namespace, close.meta.op) == (
        "meta",
        "builder",
        "shop",
        "close",
    )
    assert close.hints.idempotent
    assert (ping.kind, ping.meta.scope, ping.meta.namespace, ping.meta.op) == (
        "meta",
        "runtime",
        "",
        "ping",
    )
    assert (tools["books.add"].kind, tools["books.add"].meta) == ("runtime", None)
    assert not tools["books.add"].hints.idempotent
    assert tools["books.rename"].hints.idempotent


def test_nobody_replaces_what_belongs_to_the_framework():
    """A project's own ping is refused."""

    @meta_capability("trails.meta.ping")
    def ping(ctx: Context) -> None:
        """Mine."""

    with pytest.raises(RegistryError, match=r"trails\.meta\.ping.*built-in id"):
        App(ping)


def test_production_has_no_dev_tools(tmp_path: Path):
    """They are unknown, also to who has the scope."""
    everything = Actor("bob", frozenset({"runtime", "builder", "dev"}))
    for env, known in (("development", True), ("production", False)):
        folder = tmp_path / env
        folder.mkdir()
        (folder / "trails.toml").write_text(f'[project]\nname = "x"\nenv = "{env}"\n')
        (folder / "app.py").write_text("from tests.request.library import burn_shop\n")
        with App.open(folder) as app:
            kernel = kernel_of(app)
            names = {tool.name for tool in kernel.tools(everything).tools}
            outcome = asyncio.run(kernel.execute(everything, "trails_meta_shop_burn", {}))
            kernel.close()
        assert ("trails_meta_shop_burn" in names) is known
        assert isinstance(outcome, Success) is known
        assert known or outcome.kind == "unknown"


# --- where it works ----------------------------------------------------------------------


def test_a_capability_works_on_the_branch_that_is_named(calls):
    """Without a branch it is main; a reference is looked up on the branch."""
    calls.result("branch_create", {"name": "work"})
    calls.result("books.add", {"book": BOOK, "branch": "work"})
    assert calls.result("returns.many") == {"result": []}
    found = calls.result("returns.many", {"branch": "work"})["result"]
    assert [book["title"] for book in found] == ["Emma"]
    iri = found[0]["iri"]
    arguments = {"book": iri, "title": "Emma II"}
    assert calls.failure("books.rename", arguments).data["fields"][0]["code"] == "reference"
    assert calls.result("books.rename", {**arguments, "branch": "work"})["title"] == "Emma II"


@pytest.mark.parametrize("tool", ["returns.many", "books.rate", "graph_snapshot", "graph_query"])
def test_an_unknown_branch_is_a_semantic_failure(calls, tool):
    """It names the branches that there are."""
    arguments = {"books.rate": {"stars": 1}, "graph_query": {"query": "ASK {}"}}.get(tool, {})
    failure = calls.failure(tool, {**arguments, "branch": "wrok"})
    assert (failure.kind, failure.code) == ("semantic", "not_found")
    assert "wrok" in failure.message
    assert "main" in failure.message


def test_control_arguments_are_checked_like_others(calls):
    """A branch that is no text, and a snapshot where there is none, are told as fields."""
    for tool, arguments, field, code in (
        ("returns.many", {"branch": 7}, "branch", "datatype"),
        ("graph_snapshot", {"snapshot": 7}, "snapshot", "datatype"),
        ("returns.many", {"snapshot": "x"}, "snapshot", "unknown_field"),
    ):
        failure = calls.failure(tool, arguments)
        assert failure.kind == "validation"
        assert [(each["field"], each["code"]) for each in failure.data["fields"]] == [(field, code)]


@pytest.mark.parametrize(
    ("tool", "arguments", "told"),
    [
        (
            "graph_query",
            {"zzz": 1},
            "graph_query; it has query, params, branch, snapshot, offset, max_chars",
        ),
        ("graph_query", {"brnch": "x"}, "graph_query; did you mean 'branch'?"),
        ("graph_snapshot", {"zzz": 1}, "graph_snapshot; it has after, branch, snapshot, max_chars"),
        (
            "returns.many",
            {"zzz": 1},
            "returns.many; it has branch, dry_run, propose, expected_head, idempotency_key",
        ),
        ("returns.many", {"dryrun": True}, "returns.many; did you mean 'dry_run'?"),
        ("graph_health", {"zzz": 1}, "graph_health; it has none"),
    ],
)
def test_an_unknown_parameter_is_told_all_that_there_are(calls, tool, arguments, told):
    """Those that say where to work are among them."""
    messages = [each["message"] for each in calls.failure(tool, arguments).data["fields"]]
    assert any(each.endswith(f" is not a parameter of {told}") for each in messages), messages


def test_the_past_can_be_read(calls):
    """A snapshot is a commit id."""
    calls.result("books.add", {"book": BOOK})
    first = calls.result("graph_snapshot")["head"]
    calls.result("books.add", {"book": {**BOOK, "isbn": "0002", "title": "Two"}})
    count = {each["type"]: each["count"] for each in calls.result("graph_snapshot")["types"]}
    then = calls.result("graph_snapshot", {"snapshot": first})
    assert count["Book"] == 2
    assert {each["type"]: each["count"] for each in then["types"]}["Book"] == 1
    assert (then["snapshot"], then["branch"], then["head"]) == (first, None, first)


# --- where it runs -----------------------------------------------------------------------


def test_async_handlers_run_on_the_loop_and_plain_ones_in_a_thread():
    """With the context variables of the request, either way."""
    from contextvars import ContextVar

    seen: dict[str, tuple[str, int]] = {}
    mark: ContextVar[str] = ContextVar("mark")

    @capability("where.awaits")
    async def awaits(ctx: Context) -> None:
        """Await."""
        seen["async"] = (mark.get(), threading.get_ident())

    @capability("where.plain")
    def plain(ctx: Context) -> None:
        """Call."""
        seen["plain"] = (mark.get(), threading.get_ident())

    async def main(kernel):
        mark.set("mine")
        for tool in ("where.awaits", "where.plain"):
            assert isinstance(await kernel.execute(LOCAL, tool, {}), Success)

    with App(awaits, plain) as app:
        kernel = kernel_of(app)
        asyncio.run(main(kernel))
        kernel.close()
    me = threading.get_ident()
    assert seen["async"] == ("mine", me)
    assert seen["plain"][0] == "mine"
    assert seen["plain"][1] != me


def test_the_framework_and_the_app_check_arguments_the_same_way(calls):
    """A call through the app raises the field errors that the kernel reports.

    Only the control arguments are not there: the context has the branch.
    """
    wrong = {"stars": 9, "mood": "angry", "window": {"start": "x"}, "nope": 1}
    with pytest.raises(ValidationError) as raised:
        calls.app.call(calls.app.context(), "books.rate", wrong)
    failure = calls.failure("books.rate", wrong)
    controls = ", branch, dry_run, propose, expected_head, idempotency_key"
    told = [
        (each["field"], each["code"], each["message"].removesuffix(controls))
        for each in failure.data["fields"]
    ]
    assert told == [(each.field, each.code, each.message) for each in raised.value.fields]
    assert {code for _, code, _ in told} == {"max_value", "one_of", "datatype", "unknown_field"}
