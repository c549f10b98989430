"""Costs: what a capability is said to take stands beside what its calls took."""

import asyncio
import json
import time

import pytest

from trails import App, Context, Node, capability, meta_capability, node_type, predicate
from trails.app.doctor import examine_project, examine_served
from trails.app.kernels import kernel_of
from trails.engine.graph.activities import CallRecord
from trails.engine.session.results import fold_costs
from trails.errors import CapabilityError, DeclarationError
from trails.model.actors import LOCAL


@node_type
class Note(Node):
    """A note."""

    key: str = predicate(key=True)


@capability("notes.write", cost={"seconds": 0.0001, "statements": 2, "bytes": 1000, "usd": 0.5})
def write(ctx: Context, key: str) -> str:
    """Write a note."""
    time.sleep(0.01)
    Note(key=key).save(ctx)
    ctx.spend(usd=0.25)
    ctx.spend(usd=0.25, tokens=3)
    return key


@capability("notes.quick", cost={"bytes": 10})
async def quick(ctx: Context) -> int:
    """Do next to nothing."""
    return 1


@capability("notes.fail", cost={"seconds": 1})
def fail(ctx: Context) -> int:
    """Fail."""
    raise CapabilityError("no")


@capability("notes.free")
def free(ctx: Context) -> int:
    """Cost nothing that is known."""
    ctx.spend(usd=1)
    return 1


@capability("notes.outer", cost={"statements": 1})
def outer(ctx: Context) -> int:
    """Do what another does."""
    write(ctx, "inner")
    return 1


@pytest.fixture
def app():
    """All of them, in memory."""
    with App(Note, write, quick, fail, free, outer) as app:
        yield app


def call(app, name, arguments=None):
    """A call on the path of a request."""
    kernel = kernel_of(app)
    try:
        return asyncio.run(kernel.execute(LOCAL, name, arguments or {}))
    finally:
        kernel.close()


def last(app):
    """The newest activity."""
    return app.graph().activities.newest(1)[0]


def taken(app):
    """What the newest activity says that it took."""
    mark, *pairs = last(app).detail.split()
    assert mark == "cost"
    return {name: float(amount) for name, amount in (each.split("=") for each in pairs)}


def test_a_call_leaves_what_it_took_of_what_was_estimated(app):
    """Measured, or told by the capability; over the path of a request and in the program."""
    call(app, "notes.write", {"key": "a"})
    over = taken(app)
    app.call(app.context(), "notes.write", {"key": "b"})
    inside = taken(app)
    for found in (over, inside):
        assert list(found) == ["seconds", "statements", "bytes", "usd"]
        assert found["seconds"] >= 0.01
        assert found["statements"] == 2
        assert found["usd"] == 0.5
    assert over["bytes"] == len('{"result":"a"}')
    assert inside["bytes"] == len('"b"')


def test_only_what_was_estimated_and_went_well_is_recorded(app):
    """Failures, and capabilities that estimate nothing, leave what they always left."""
    call(app, "notes.fail")
    assert last(app).detail == "no"
    call(app, "notes.free")
    assert last(app).detail == ""
    call(app, "graph_snapshot")
    assert last(app).detail == ""


def test_what_is_done_on_behalf_of_a_call_is_part_of_it(app):
    """Its statements are the outer call's."""
    call(app, "notes.outer")
    assert taken(app) == {"statements": 2}
    outside = CallRecord("local", "outer", "runtime")
    app.call(app.context().for_call(outside), "notes.write", {"key": "z"})
    assert (outside.note, outside.statements) == ("", 2)


def test_estimates_are_folded_from_activities(app):
    """Calls, mean and the highest but for one in twenty, by capability and measure."""
    for number in range(5):
        call(app, "notes.write", {"key": f"k{number}"})
    registry = app.registry()
    found = {
        (each.capability, each.measure): each
        for each in fold_costs(app.graph().activities.newest(100), registry)
    }
    assert set(found) == {
        ("notes.write", each) for each in ("seconds", "statements", "bytes", "usd")
    }
    statements = found["notes.write", "statements"]
    assert (statements.calls, statements.mean, statements.high) == (5, 2, 2)
    assert not statements.is_off
    assert found["notes.write", "seconds"].is_off
    assert found["notes.write", "bytes"].is_off
    assert not found["notes.write", "usd"].is_off


def test_a_few_calls_prove_nothing(app):
    """Four are not enough, however wrong the estimate is."""
    for number in range(4):
        call(app, "notes.write", {"key": f"k{number}"})
    assert not any(
        each.is_off for each in fold_costs(app.graph().activities.newest(9), app.registry())
    )


def test_the_doctor_tells_which_estimates_mislead(app):
    """With what to write instead; it is a note, not an illness."""
    assert "costs" not in {each.name for each in examine_served(app, "main").findings}
    for _ in range(5):
        call(app, "notes.quick")
    (fine,) = [each for each in examine_served(app, "main").findings if each.name == "costs"]
    assert (fine.severity, fine.detail) == ("ok", "1 estimate agrees with what calls took")
    for number in range(5):
        call(app, "notes.write", {"key": f"k{number}"})
    report = examine_served(app, "main")
    found = [each for each in report.findings if each.name == "costs"]
    assert [each.severity for each in found] == ["note", "note"]
    assert found[0].detail.startswith("notes.write is estimated at 0.0001 seconds, but 5 calls")
    assert found[0].fix.startswith("declare cost={'seconds': ")
    assert found[1].fix == "declare cost={'bytes': 15}"
    assert report.healthy


def test_the_command_line_and_the_resource_tell_it_too(tmp_path):
    """It is known from the log, so also after a restart."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "notes"\n')
    (tmp_path / "app.py").write_text(
        "from trails import Context, capability\n\n\n"
        '@capability("notes.slow", cost={"bytes": 1})\n'
        'def slow(ctx: Context) -> str:\n    """Be long."""\n    return "x" * 90\n'
    )
    with App.open(tmp_path, strict=True) as app:
        for _ in range(5):
            app.call(app.context(), "notes.slow")
    with App.open(tmp_path, strict=True) as app:
        told = [each for report in examine_project(app) for each in report.findings]
        assert "declare cost={'bytes': 92}" in [each.fix for each in told if each.name == "costs"]
        kernel = kernel_of(app)
        (document,) = asyncio.run(kernel.read(LOCAL, "trails://doctor"))
        kernel.close()
        names = [each["name"] for each in json.loads(document.text)["findings"]]
        assert "costs" in names


def test_a_meta_capability_is_found_by_its_tool_name():
    """Estimates exist for capabilities alone, so none is asked of others."""

    @meta_capability("trails.meta.notes.tidy", scope="runtime")
    def tidy(ctx: Context) -> int:
        """Tidy."""
        return 1

    with App(tidy) as app:
        call(app, "trails_meta_notes_tidy")
        assert last(app).detail == ""
        assert fold_costs(app.graph().activities.newest(9), app.registry()) == []


@pytest.mark.parametrize(
    "cost",
    [
        *({name: 1} for name in ("", "a b", "Usd", "a=b")),
        *({"usd": amount} for amount in (-1, float("nan"), float("inf"), True, "1")),
    ],
)
def test_what_is_no_estimate_is_refused(cost):
    """When it is declared."""
    with pytest.raises(DeclarationError, match="is not an estimate"):
        capability("a.op", cost=cost)
