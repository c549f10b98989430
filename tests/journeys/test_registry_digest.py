"""The digest of the registry on every wire: a client of several sees whether they agree."""

from __future__ import annotations

import json
import threading

import pytest
from tests.journeys.access.shop import ACTORS, Shop, actor
from tests.worlds.surfaces import LEGACY, MODERN, Wires, hello

from trails import App, Context, Node, capability, node_type, predicate
from trails.app.kernels import kernel_of
from trails.model.actors import LOCAL
from trails.projections.mcp_tools import REGISTRY_META


@node_type
class Note(Node):
    """A note."""

    text: str = predicate()


@capability("notes.count", side_effects=["none"], assurance="tested")
def count(ctx: Context) -> int:
    """How many notes there are."""
    return Note.objects(ctx).count()


@pytest.fixture
def app():
    """Notes."""
    with App(Note, count) as app:
        yield app


def on_rest(wires, path, method="GET", document=None):
    """The digest in the header of an answer."""
    reply = wires.rest(method, path, document)
    assert reply.status == 200, reply.body
    return dict(reply.headers)[b"trails-registry"].decode()


def digests(wires):
    """By wire."""
    found = {}
    for at, (revision, message) in enumerate(wires.everywhere("tools/list", {})):
        found[f"tools/list {revision} {at}"] = message["result"]["_meta"][REGISTRY_META]
    for revision in LEGACY:
        said = wires.by_lines(revision, "initialize", hello(revision))
        found[f"initialize {revision}"] = said[-1]["result"]["_meta"][REGISTRY_META]
    for reply in wires.by_doors(MODERN, "server/discover", {}):
        found["discover"] = reply.message["result"]["_meta"][REGISTRY_META]
    card = json.loads(wires.rest("GET", "/card").body)
    found |= {"card": card["trails:registry"], "version": card["version"]["instance"]}
    listed = json.loads(wires.rest("GET", "/capabilities").body)
    found["capabilities"] = listed["registry"]
    for path in ("/card", "/capabilities", "/snapshot", "/kg/Note", "/branches"):
        found[f"GET {path}"] = on_rest(wires, path)
    found["invoke"] = on_rest(wires, "/invoke/notes.count", "POST", {})
    return found


@pytest.mark.req("W2")
@pytest.mark.req("W5")
def test_every_wire_carries_the_digest_of_one_registry(app):
    """Of both doors, sessions, REST and the card; all of them change together."""
    with Wires(app) as wires:
        before = digests(wires)
        assert len(set(before.values())) == 1, before

        @capability("notes.count", side_effects=["none"], assurance="proven")
        def count(ctx: Context) -> int:
            """How many notes there are."""
            return 0

        app.register(count)  # only what a card says of it is new
        after = digests(wires)
        assert len(set(after.values())) == 1, after
        assert set(after.values()).isdisjoint(before.values())


@pytest.mark.req("W5")
def test_a_list_and_a_card_with_one_digest_are_of_one_registry(app):
    """While others register: whenever the digests are equal, so is what they list."""
    kernel, ended = kernel_of(app), threading.Event()

    def register():
        for number in range(60):

            @capability(f"notes.more.x{number}", side_effects=["none"])
            def more(ctx: Context) -> int:
                """One more."""
                return 0

            app.register(more)
        ended.set()

    thread = threading.Thread(target=register)
    thread.start()
    agreed = 0
    while not ended.is_set() or not agreed:
        card, tools = kernel.card(LOCAL), kernel.tools(LOCAL)
        names = [each.tool.name for each in card.actions]
        if card.registry == tools.registry:
            agreed += 1
            assert names == [each.name for each in tools.tools]
    thread.join()
    assert kernel.card(LOCAL).registry == kernel.tools(LOCAL).registry
    kernel.close()


def test_what_is_hidden_changes_no_digest(tmp_path):
    """A type and a capability that an actor may not see: for it the registry stays what it was."""
    with Shop(tmp_path / "shop") as shop:
        actors = {**ACTORS, "dev": actor("dev")}  # which reads tasks alone
        before = {name: shop.kernel.tools(each).registry for name, each in actors.items()}

        @capability("canary.more", side_effects=["none"])
        def more(ctx: Context) -> int:
            """Be there."""
            return 1

        shop.app.register(more)
        between = {name: shop.kernel.tools(each).registry for name, each in actors.items()}
        assert {name for name in actors if before[name] != between[name]} == {"admin", "clerk"}
        shop.app.register(Note)
        after = {name: shop.kernel.tools(each).registry for name, each in actors.items()}
        unaware = {name for name in actors if between[name] == after[name]}
        assert unaware == {"dev", "asker", "runner", "nobody"}
