"""Policy rules: what ``@policy`` names is a function that judges the arguments of a call."""

import asyncio
import json
import subprocess
import sys
import threading
from uuid import UUID

import pytest
from tests.worlds.surfaces import MODERN, WIRES, Wires

from trails import (
    App,
    Context,
    Node,
    Ref,
    capability,
    meta_capability,
    node_type,
    policy,
    policy_rule,
    predicate,
)
from trails.app.kernels import kernel_of
from trails.errors import CapabilityError, DeclarationError, DeniedError, RegistryError
from trails.model.actors import LOCAL, Actor
from trails.model.results import Failure, Success
from trails.registry.registry import RegistryCell, collect, with_queries

ran: list[str] = []
"""What handlers ran."""


@node_type
class Document(Node):
    """Something written."""

    key: str = predicate(key=True)
    owner: str = predicate()


@policy_rule("owner-only")
def owner_only(ctx: Context, document: Document) -> bool | str:
    """Only the owner of a document."""
    return document.owner == ctx.actor or f"it belongs to {document.owner}"


@policy_rule("small")
def small(ctx: Context, amount: int, limit: int = 100) -> bool:
    """No large amounts; ``limit`` is looked at where there is one."""
    return amount <= limit


@policy_rule("raises")
def raises(ctx: Context, **arguments: object) -> bool:
    """Deny by an error on purpose."""
    raise DeniedError(f"not with {sorted(arguments)}", opens="09:00")


@policy_rule("crashes")
def crashes(ctx: Context, how: str) -> bool:
    """Fail in some way, or permit."""
    if how == "forgets":
        return None  # type: ignore[return-value]
    if how == "truthy":
        return 1  # type: ignore[return-value]
    if how == "writes":
        Document(key="w", owner="rule").save(ctx)
    if how == "recurses":
        return crashes(ctx, how)
    errors = {"bug": RuntimeError("password=hunter2"), "purpose": CapabilityError("hunter2")}
    if how in errors:
        raise errors[how]
    return True


@capability("documents.withdraw")
@policy("owner-only")
def withdraw(ctx: Context, document: Ref[Document]) -> str:
    """Withdraw a document."""
    ran.append("withdraw")
    return document.key


@capability("money.pay")
@policy("small")
async def pay(ctx: Context, amount: int = predicate(min_value=1), limit: int = 50) -> int:
    """Pay."""
    ran.append("pay")
    return amount


@capability("money.give")
@policy("raises")
@policy("small")
async def give(ctx: Context, amount: int) -> int:
    """Give money away; both rules are asked, the upper one first."""
    ran.append("give")
    return amount


@capability("rules.try")
@policy("crashes")
def attempt(ctx: Context, how: str) -> str:
    """Be judged by a rule that fails."""
    ran.append("try")
    return how


@meta_capability("trails.meta.shop.limit", scope="runtime")
@policy("small")
def set_limit(ctx: Context, amount: int) -> int:
    """Set a limit."""
    ran.append("limit")
    return amount


DECLARED = (
    Document,
    owner_only,
    small,
    raises,
    crashes,
    withdraw,
    pay,
    give,
    attempt,
    set_limit,
)


@pytest.fixture
def app():
    """A graph in memory with a document of ann's."""
    ran.clear()
    with App(*DECLARED) as app:
        Document(key="d1", owner="ann").save(app.context())
        yield app


def executed(app, name, arguments, actor=LOCAL):
    """What comes of a call on the path of a request."""
    kernel = kernel_of(app)
    try:
        return asyncio.run(kernel.execute(actor, name, arguments))
    finally:
        kernel.close()


# --- judging -----------------------------------------------------------------------


def test_a_rule_judges_the_arguments():
    """The same tool, the same actor: one argument is permitted, the other is not."""
    ran.clear()
    with App(*DECLARED) as app:
        Document(key="d1", owner="ann").save(app.context())
        Document(key="d2", owner="bob").save(app.context())
        ann = Actor("ann")
        mine = executed(app, "documents.withdraw", {"document": "Document/d1"}, ann)
        assert isinstance(mine, Success)
        theirs = executed(app, "documents.withdraw", {"document": "Document/d2"}, ann)
        assert (theirs.kind, theirs.code) == ("denied", "denied")
        assert theirs.message == (
            "documents.withdraw is denied by the rule 'owner-only': it belongs to bob"
        )
        assert theirs.data == {"rule": "owner-only"}
        assert ran == ["withdraw"]


@pytest.mark.parametrize(
    ("name", "arguments", "denied"),
    [
        ("money.pay", {"amount": 50}, None),
        ("money.pay", {"amount": 51}, "small"),
        ("money.pay", {"amount": 51, "limit": 60}, None),
        ("money.give", {"amount": 5}, "raises"),
        ("money.give", {"amount": 500}, "raises"),
        ("trails.meta.shop.limit", {"amount": 100}, None),
        ("trails.meta.shop.limit", {"amount": 101}, "small"),
        ("rules.try", {"how": "well"}, None),
        ("rules.try", {"how": "bug"}, "crashes"),
        ("rules.try", {"how": "purpose"}, "crashes"),
        ("rules.try", {"how": "forgets"}, "crashes"),
        ("rules.try", {"how": "truthy"}, "crashes"),
        ("rules.try", {"how": "writes"}, "crashes"),
        ("rules.try", {"how": "recurses"}, "crashes"),
    ],
)
def test_every_way_to_a_capability_is_judged(app, name, arguments, denied):
    """As a tool, in the program, and inside another call; a denied handler does not run."""
    tool = name.replace(".", "_") if "meta" in name else name
    outcome = executed(app, tool, arguments)
    for inner in (False, True):
        ctx = app.context()
        if inner:
            ctx = ctx.for_call(app_call(ctx))
        if denied is None:
            assert app.call(ctx, name, arguments) is not None
        else:
            with pytest.raises(DeniedError) as raised:
                app.call(ctx, name, arguments)
            assert raised.value.data["rule"] == denied
            assert isinstance(outcome, Failure)
            if "trace_id" not in outcome.data:
                assert raised.value.message == outcome.message
    assert isinstance(outcome, Success) is (denied is None)
    assert ran == ([] if denied else [name.rpartition(".")[2]] * 3)
    assert Document.objects(app.context()).count() == 1
    last = [each for _, each in app.graph().activities.read()][-1]
    assert (last.outcome, last.name) == ("denied" if denied else "ok", name)


def app_call(ctx):
    """A call that is under way."""
    from trails.engine.graph.activities import CallRecord

    return CallRecord(ctx.actor, "outer", "runtime")


def test_a_rule_that_fails_denies_and_tells_the_log_alone(app, caplog):
    """The caller gets a trace id, the log has the reason under it."""
    failure = executed(app, "rules.try", {"how": "bug"})
    assert failure.kind == "denied"
    trace = failure.data["trace_id"]
    assert UUID(trace).hex == trace
    assert trace in failure.message
    assert "hunter2" not in json.dumps([failure.message, dict(failure.data)])
    (record,) = [each for each in caplog.records if trace in each.getMessage()]
    assert "hunter2" in str(record.exc_info[1])
    executed(app, "rules.try", {"how": "forgets"})
    assert "it returned NoneType; return True to permit, or a text" in caplog.text


def test_arguments_are_checked_before_they_are_judged(app):
    """A rule never sees an argument of the wrong kind, or out of its bounds."""
    wrong = executed(app, "money.pay", {"amount": "many"})
    assert wrong.kind == "validation"
    assert executed(app, "money.pay", {"amount": 0}).kind == "validation"
    assert executed(app, "documents.withdraw", {"document": "Document/no"}).kind == "validation"


def test_a_rule_of_an_async_capability_keeps_nobody_waiting():
    """It is asked in a thread, as a plain handler is."""
    seen = []

    @policy_rule("where")
    def where(ctx: Context) -> bool:
        seen.append(threading.current_thread())
        return True

    @capability("a.op")
    @policy("where")
    async def operate(ctx: Context) -> int:
        """Operate."""
        seen.append(threading.current_thread())
        return 1

    with App(where, operate) as app:
        assert isinstance(executed(app, "a.op", {}), Success)
    assert seen[0] is not seen[1]


def test_a_rule_sees_the_branch(app):
    """It reads where the call works."""

    @policy_rule("not-on-main")
    def not_on_main(ctx: Context) -> bool | str:
        return (ctx.branch != "main" and Document.objects(ctx).count() == 2) or "work on a branch"

    @capability("b.op")
    @policy("not-on-main")
    def operate(ctx: Context) -> int:
        """Operate."""
        return Document.objects(ctx).count()

    app.register(not_on_main, operate)
    app.versions().create_branch("work", "main")
    Document(key="d2", owner="bob").save(app.context(branch="work"))
    assert executed(app, "b.op", {}).message.endswith("work on a branch")
    assert isinstance(executed(app, "b.op", {"branch": "work"}), Success)


# --- on every wire -------------------------------------------------------------------


@pytest.mark.req("T17")
def test_a_denial_looks_the_same_on_every_wire(app):
    """−32002, on the newest revision a result with isError, over REST 403; nothing ran."""
    params = {"name": "documents.withdraw", "arguments": {"document": "Document/d1"}}
    told = "documents.withdraw is denied by the rule 'owner-only': it belongs to ann"
    with Wires(app) as wires:
        answers = list(wires.everywhere("tools/call", params))
        rest = wires.rest("POST", "/invoke/documents.withdraw", params["arguments"])
        listed = next(wires.everywhere("tools/list", {}))[1]
    assert len(answers) == WIRES
    for revision, message in answers:
        if revision == MODERN:
            assert message["result"]["isError"] is True
            assert message["result"]["content"][0]["text"].startswith(told)
            meta = message["result"]["_meta"]["dev.trails/error"]
            assert meta == {"code": "denied", "data": {"rule": "owner-only"}}
        else:
            assert message["error"]["code"] == -32002
            assert message["error"]["message"] == told
            assert message["error"]["data"] == {"rule": "owner-only", "code": "denied"}
    assert rest.status == 403
    assert rest.message == {
        "type": "/errors/denied",
        "title": "Denied by a rule",
        "status": 403,
        "detail": told,
        "code": "denied",
        "data": {"rule": "owner-only"},
    }
    assert ran == []
    assert "documents.withdraw" in {tool["name"] for tool in listed["result"]["tools"]}


def test_the_command_line_is_judged_too(tmp_path):
    """A denied call ends with the reason and changes nothing."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "app.py").write_text(
        "from trails import Context, capability, policy, policy_rule\n\n\n"
        '@policy_rule("small")\ndef small(ctx: Context, amount: int) -> bool:\n'
        "    return amount <= 50\n\n\n"
        '@capability("money.pay")\n@policy("small")\n'
        'def pay(ctx: Context, amount: int) -> int:\n    """Pay."""\n    return amount\n'
    )
    runs = [
        subprocess.run(
            [sys.executable, "-m", "trails", "call", "money.pay", "--arg", f"amount={amount}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        for amount in (50, 51)
    ]
    assert runs[0].returncode == 0, runs[0].stderr
    assert runs[1].returncode != 0
    told = " ".join((runs[1].stdout + runs[1].stderr).split())
    assert "money.pay is denied by the rule 'small'" in told


# --- declaring -----------------------------------------------------------------------


def test_a_rule_that_is_not_declared_is_told_with_the_nearest():
    """At boot: a capability without its rule would be open to all."""
    with pytest.raises(RegistryError, match=r"documents\.withdraw is judged by .*not declared"):
        App(Document, withdraw)

    @capability("a.op")
    @policy("owner-onyl")
    def operate(ctx: Context, document: Ref[Document]) -> int:
        """Operate."""
        return 1

    with pytest.raises(RegistryError, match=r"'owner-onyl', .*did you mean 'owner-only'\?"):
        App(Document, owner_only, operate)


def test_a_rule_must_find_its_arguments():
    """A rule that looks at what a capability does not have is told, with the nearest."""

    @capability("a.op")
    @policy("small")
    def operate(ctx: Context, amnt: int) -> int:
        """Operate."""
        return 1

    told = r"'small' uses 'amount', which is not a parameter of a\.op; did you mean 'amnt'\?"
    with pytest.raises(RegistryError, match=told):
        App(small, operate)


def test_two_rules_of_one_name_can_not_stand_beside_each_other():
    """Nor can a rule be replaced under a running server; the same again is no news."""

    @policy_rule("small")
    def other(ctx: Context) -> bool:
        return True

    with pytest.raises(RegistryError, match="'small' is declared twice"):
        App(small, other)
    with App(small) as app:
        app.register(small)
        with pytest.raises(RegistryError, match="'small' is declared twice"):
            app.register(other)


def test_a_graph_with_an_undeclared_rule_is_quarantined(tmp_path):
    """It is not served at all, and the reason names the rule."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "app.py").write_text(
        "from trails import Context, capability, policy\n\n\n"
        '@capability("a.op")\n@policy("four-eyes")\n'
        'def operate(ctx: Context) -> int:\n    """Operate."""\n    return 1\n'
    )
    with App.open(tmp_path) as app:
        assert "'four-eyes'" in app.quarantined["main"].message
        assert "no rule is declared at all" in app.quarantined["main"].message


def test_a_registry_keeps_its_rules():
    """Restricted, joined with queries or registered again, it has the rules it had."""
    found = collect(DECLARED)
    registry = RegistryCell().register(
        types=found.types, capabilities=found.capabilities, rules=found.rules
    )
    names = ["crashes", "owner-only", "raises", "small"]
    assert list(registry.rules) == names
    assert list(registry.restrict(lambda _: False).rules) == names
    assert list(with_queries(registry, ()).rules) == names
    give_rules = registry.rules_of(registry.capabilities["money.give"])
    assert [rule.name for rule in give_rules] == ["raises", "small"]


@pytest.mark.parametrize("name", ["", "Owner", "a b", "-a", "a--b", "x" * 65, "ä"])
def test_a_rule_has_a_plain_name(name):
    """As it is written in decorators and told to callers."""
    with pytest.raises(DeclarationError, match="can't name a rule"):
        policy_rule(name)


def no_context() -> bool:
    """Take nothing."""
    return True


def only_keywords(*, amount: int) -> bool:
    """Take no context."""
    return amount == 1


def many(ctx: Context, *amounts: int) -> bool:
    """Take any number."""
    return bool(amounts)


def by_place(ctx: Context, amount: int, /) -> bool:
    """Take by place."""
    return amount == 1


async def later(ctx: Context) -> bool:
    """Decide later."""
    return True


@pytest.mark.parametrize(
    ("function", "told"),
    [
        (no_context, "the first parameter must be the context"),
        (only_keywords, "the first parameter must be the context"),
        (many, "passed by name"),
        (by_place, "passed by name"),
        (later, "write 'def'"),
    ],
)
def test_a_function_that_can_not_judge_is_refused(function, told):
    """When it is declared."""
    with pytest.raises(DeclarationError, match=told):
        policy_rule("a-rule")(function)


def test_a_function_is_one_rule():
    """Not two."""
    with pytest.raises(DeclarationError, match="twice"):
        policy_rule("other")(small)
