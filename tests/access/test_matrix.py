"""Who sees and reaches what: seven actors, everything there is, every surface.

One decision for lists and calls, and what is denied answers as what does not exist.
"""

import json
from itertools import product

import pytest
from tests.access.shop import (
    ACTORS,
    EVERYTHING,
    LISTED,
    WIRES,
    Ask,
    Shop,
    call,
    is_unknown,
    phantom_of,
    put_back,
)

from trails.model.names import portable_name

PAIRS = list(product(ACTORS, WIRES))


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """The shop, served."""
    with Shop(tmp_path_factory.mktemp("matrix") / "shop") as shop:
        yield shop


@pytest.mark.req("G5")
@pytest.mark.parametrize(("name", "wire"), PAIRS)
def test_what_is_listed_is_what_can_be_called(shop, name, wire):
    """A tool is listed exactly where a call of it is not answered as unknown."""
    actor = ACTORS[name]
    (listed,) = shop.ask(wire, actor, [Ask("tools/list", {}, ("GET", "/capabilities", None))])
    result = listed.message.get("result", listed.message)
    tools = {each["name"] for each in result.get("tools", result.get("capabilities"))}
    assert tools == LISTED[name]
    answers = shop.ask(wire, actor, [call(tool) for tool in EVERYTHING])
    known = {tool for tool, reply in zip(EVERYTHING, answers, strict=True) if not is_unknown(reply)}
    assert known == tools


@pytest.mark.req("G6")
@pytest.mark.parametrize(("name", "wire"), PAIRS)
def test_a_denied_tool_answers_as_an_unknown_one(shop, name, wire):
    """Status, headers and bytes are the same, also for the spelling without dots."""
    denied = sorted(set(EVERYTHING) - LISTED[name])
    denied += [portable_name(each) for each in denied if "." in each]
    arguments = {"params": {}, "branch": "dev"}
    asked = [call(tool, arguments) for tool in denied]
    phantoms = [call(phantom_of(tool), arguments) for tool in denied]
    actor = ACTORS[name]
    found = zip(denied, shop.ask(wire, actor, asked), shop.ask(wire, actor, phantoms), strict=True)
    for tool, reply, phantom in found:
        assert is_unknown(reply), tool
        assert reply == put_back(phantom, phantom_of(tool), tool)
    assert json.dumps(denied)
