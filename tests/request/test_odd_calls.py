"""Odd calls: whatever is sent, the answer is a result or a failure that the caller can act on."""

import random

import pytest
from tests.request.library import DECLARED
from tests.worlds.graphs import Calls

from trails import App
from trails.model.actors import OPERATOR
from trails.model.results import Failure
from trails.request.operations import BUILTINS

NAMES = [each.name for each in BUILTINS] + ["books.add", "books.rename", "books.rate"]
ODD = [
    None,
    True,
    0,
    -1,
    2**70,
    1.5,
    1e308,
    "",
    "main",
    "work",
    "Book",
    "Book/0001",
    "0001",
    "\x00",
    "\ud800",
    "🐘" * 50,
    "x" * 300,
    "../../etc/passwd",
    "a/b/../c",
    "@main",
    "SELECT * { ?s ?p ?o }",
    "DELETE WHERE { ?s ?p ?o }",
    "INSERT DATA { <a:b> <a:c> <a:d> }",
    '{"type": "Book", "data": {"isbn": "0003", "title": "Three"}}',
    '{"type": "Book"',
    [],
    [None],
    [{}],
    [{"op": "create", "type": "Book", "data": {}}],
    [{"op": "nope", "type": 7}],
    [{"conflict": "x", "take": "value", "value": {"a": []}}],
    {},
    {"@id": "x y"},
    {"a": {"@id": 7}},
    {"s": "\ud800"},
    {"isbn": "0002", "title": "Two"},
    {"": {"": {"": []}}},
]


@pytest.fixture(scope="module")
def shop():
    """A library with a book and a branch."""
    made = Calls(App(*DECLARED))
    made.result("books.add", {"book": {"isbn": "0001", "title": "Emma"}})
    made.result("branch_create", {"name": "work"})
    yield made
    made.close()


@pytest.mark.parametrize("tool", NAMES)
def test_no_arguments_make_a_tool_fail_inside(shop, tool):
    """No failure is internal, and each call leaves its activity."""
    chance = random.Random(tool)
    fields = list(shop.tool(tool).input_schema["properties"])
    before = sum(each.calls for each in shop.activities())
    rounds = 60
    for _ in range(rounds):
        chosen = chance.sample(fields, chance.randint(0, min(4, len(fields))))
        arguments = {name: chance.choice(ODD) for name in chosen}
        if chance.random() < 0.1:
            arguments[chance.choice(["nope", "", "\ud800", "a.b[0]"])] = chance.choice(ODD)
        outcome = shop.outcome(tool, arguments, OPERATOR)
        assert not isinstance(outcome, Failure) or outcome.kind in {"validation", "semantic"}, (
            arguments,
            outcome,
        )
    assert sum(each.calls for each in shop.activities()) == before + rounds


@pytest.mark.parametrize("name", ["\ud800", "\x00", "🐘" * 400, "."])
def test_odd_names_are_unknown_tools(shop, name):
    """And are written to the log as far as they can be."""
    assert shop.failure(name).kind == "unknown"
    assert shop.activities()[-1].outcome == "unknown"
