"""What a front remembers of a session, and says again to the next owner."""

import json

import pytest
from tests.worlds.surfaces import META

from trails.app.serve.relay.conversation import Conversation

INITIALIZE = {"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18"}}
INITIALIZED = {"method": "notifications/initialized"}
WELCOME = {"id": 0, "result": {"capabilities": {"tools": {"listChanged": True}}}}
STREAM = "io.modelcontextprotocol/subscriptionId"


def line(message):
    """A message as a line."""
    return json.dumps({"jsonrpc": "2.0", **message}).encode()


def said(lines):
    """Lines as messages, without what all of them have."""
    return [{k: v for k, v in json.loads(each).items() if k != "jsonrpc"} for each in lines]


class Session:
    """A conversation, spoken with messages instead of lines."""

    def __init__(self):
        self.conversation = Conversation()
        self.conversation.attach()

    def say(self, message):
        """The client says something; what the owner hears."""
        return said(self.conversation.say(line(message)))

    def hear(self, message):
        """The owner says something; what client and owner hear."""
        passed = self.conversation.hear(line(message))
        return said(passed.to_client), said(passed.to_owner)

    def lose(self, taken=None):
        """The owner is gone; what the client hears."""
        return said(self.conversation.lose(taken))

    def attach(self):
        """There is another owner; what it hears."""
        return said(self.conversation.attach())

    def open(self):
        """Shake hands."""
        self.say(INITIALIZE)
        self.hear(WELCOME)
        self.say(INITIALIZED)


def call(id_, name, **more):
    """A call of a tool."""
    return {"id": id_, "method": "tools/call", "params": {"name": name, "arguments": {}, **more}}


def test_messages_pass_as_they_are():
    """While the owner lives nothing is added, changed or held back, odd lines included."""
    session = Session()
    for message in (INITIALIZE, INITIALIZED, call(1, "add"), {"method": "x"}, {"id": [], "a": 1}):
        assert session.say(message) == [message]
    for message in (WELCOME, {"id": 1, "result": {}}, {"method": "n"}, {"id": None, "error": {}}):
        assert session.hear(message) == ([message], [])
    assert session.conversation.say(b"garbage") == [b"garbage"]
    assert session.conversation.hear(b"garbage").to_client == [b"garbage"]


def test_the_handshake_is_repeated_and_its_answer_kept_from_the_client():
    """The next owner hears initialize first, and the rest when it has answered."""
    session = Session()
    session.open()
    session.say({"id": 5, "method": "resources/read", "params": {"uri": "a"}})
    assert session.lose() == []
    assert session.say({"id": 6, "method": "tools/list"}) == []
    assert session.attach() == [INITIALIZE]
    assert session.say({"id": 7, "method": "ping"}) == []
    to_client, to_owner = session.hear(WELCOME)
    assert [each["method"] for each in to_client] == ["notifications/tools/list_changed"]
    assert [each.get("id", each["method"]) for each in to_owner] == [
        "notifications/initialized",
        5,
        6,
        7,
    ]
    assert session.say({"id": 8, "method": "ping"})[0]["id"] == 8


def test_an_unanswered_handshake_is_answered_by_the_next_owner():
    """A client that waits for its first answer gets it."""
    session = Session()
    session.say(INITIALIZE)
    session.lose()
    assert session.attach() == [INITIALIZE]
    assert session.hear(WELCOME) == ([WELCOME], [])


def test_subscriptions_stand_and_what_was_missed_is_told():
    """The next owner is subscribed again; the client is told that it may have missed changes."""
    session = Session()
    session.open()
    for id_, uri in ((1, "a"), (2, "b"), (3, "c")):
        session.say({"id": id_, "method": "resources/subscribe", "params": {"uri": uri}})
    session.hear({"id": 1, "result": {}})
    session.hear({"id": 2, "result": {}})
    session.hear({"id": 3, "error": {"code": 1, "message": "no"}})
    session.say({"id": 4, "method": "resources/unsubscribe", "params": {"uri": "b"}})
    session.hear({"id": 4, "result": {}})
    for _ in range(2):
        session.lose()
        session.attach()
        _, to_owner = session.hear(WELCOME)
        assert [each.get("id") for each in to_owner] == [None, 1]
        (told,), _ = session.hear({"id": 1, "result": {}})
        assert told == {"method": "notifications/resources/updated", "params": {"uri": "a"}}


def test_a_subscription_that_is_refused_later_is_forgotten():
    """A URI that the next owner does not know is not asked for again."""
    session = Session()
    session.open()
    session.say({"id": 1, "method": "resources/subscribe", "params": {"uri": "a"}})
    session.hear({"id": 1, "result": {}})
    session.lose()
    session.attach()
    session.hear(WELCOME)
    assert session.hear({"id": 1, "error": {"code": 1, "message": "no"}}) == ([], [])
    session.lose()
    session.attach()
    assert said_methods(session.hear(WELCOME)[1]) == ["notifications/initialized"]


def said_methods(messages):
    """The methods of messages."""
    return [each.get("method") for each in messages]


def test_a_call_that_may_have_written_is_not_repeated():
    """Its client is told that the outcome is unknown, and how to find out."""
    session = Session()
    session.say(call(1, "add"))
    session.say(call(2, "add", _meta=META))
    (old, new) = session.lose()
    assert old["id"] == 1
    assert old["result"]["isError"] is True
    assert "commit_list" in old["result"]["content"][0]["text"]
    assert old["result"]["_meta"]["dev.trails/error"]["code"] == "interrupted"
    assert "resultType" not in old["result"]
    assert new["result"]["resultType"] == "complete"
    assert session.attach() == []


@pytest.mark.parametrize("hint", ["readOnlyHint", "idempotentHint"])
def test_a_call_that_can_be_repeated_is(hint):
    """A tool that the list calls read-only or idempotent is called again, by itself."""
    session = Session()
    session.say({"id": 1, "method": "tools/list"})
    tools = [{"name": "look", "annotations": {hint: True}}, {"name": "add", "annotations": {}}]
    session.hear({"id": 1, "result": {"tools": tools}})
    session.say(call(2, "look"))
    session.say(call(3, "add"))
    assert [each["id"] for each in session.lose()] == [3]
    assert [each["id"] for each in session.attach()] == [2]


def test_a_client_need_not_list_tools_for_its_reads_to_be_repeated():
    """The owner says which ones can be, in every spelling; odd answers say nothing."""
    session = Session()
    session.conversation.know(["notes.look", "notes_look"])
    for name in ("notes.look", "notes_look", "notes.add"):
        session.say(call(name, name))
    assert [each["id"] for each in session.lose()] == ["notes.add"]
    assert [each["id"] for each in session.attach()] == ["notes.look", "notes_look"]
    for odd in (None, 7, [7, None], {}):
        session.conversation.know(odd)


@pytest.mark.parametrize(
    ("arguments", "repeated"),
    [
        ({"idempotency_key": "k"}, True),
        ({"idempotency_key": ""}, False),
        ({"idempotency_key": 7}, False),
        ({"text": "idempotency_key"}, False),
        (["idempotency_key"], False),
        ({"dry_run": True}, True),
        ({"dry_run": True, "idempotency_key": 7}, True),
        ({"dry_run": False}, False),
        ({"dry_run": "true"}, False),
        ({"dry_run": 1}, False),
    ],
)
def test_a_write_with_an_idempotency_key_or_a_dry_run_is_repeated(arguments, repeated):
    """Nothing is done twice with the same key, and a dry run does nothing."""
    session = Session()
    session.say(call(1, "graph_mutate", arguments=arguments))
    assert bool(session.lose()) is not repeated
    assert bool(session.attach()) is repeated


def test_lines_that_an_owner_did_not_take_are_said_to_the_next():
    """An owner that ends in order tells how many it took: the others can't have written."""
    session = Session()
    session.say(call(1, "add"))
    session.say({"method": "notifications/progress"})
    session.say(call(2, "add"))
    session.hear({"id": 1, "result": {}})
    assert session.lose(taken=2) == []
    assert [each["id"] for each in session.attach()] == [2]
    assert session.lose(taken=0) == []
    assert [each["id"] for each in session.attach()] == [2]
    assert [each["id"] for each in session.lose(taken=1)] == [2]


def test_a_request_that_ends_owners_is_given_up():
    """What ended three owners is not tried on a fourth."""
    session = Session()
    session.say({"id": 1, "method": "resources/read", "params": {"uri": "poison"}})
    for _ in range(2):
        assert session.lose() == []
        assert [each["id"] for each in session.attach()] == [1]
    (given_up,) = session.lose()
    assert given_up["error"]["data"] == {"code": "interrupted"}
    assert session.attach() == []


def test_streams_of_changes_are_opened_again():
    """The acknowledgement is not repeated; what it is about may have changed."""
    session = Session()
    wanted = {"resourceSubscriptions": ["a", "b"], "toolsListChanged": True}
    listen = {
        "id": "s",
        "method": "subscriptions/listen",
        "params": {"notifications": wanted, "_meta": META},
    }
    acknowledged = {
        "method": "notifications/subscriptions/acknowledged",
        "params": {"_meta": {STREAM: "s"}, "notifications": wanted},
    }
    session.say(listen)
    assert session.hear(acknowledged) == ([acknowledged], [])
    for _ in range(4):
        assert session.lose() == []
        assert session.attach() == [listen]
        told, _ = session.hear(acknowledged)
        assert said_methods(told) == [
            "notifications/resources/updated",
            "notifications/resources/updated",
            "notifications/tools/list_changed",
        ]
        assert {each["params"]["_meta"][STREAM] for each in told} == {"s"}
    session.say({"method": "notifications/cancelled", "params": {"requestId": "s"}})
    session.lose()
    assert session.attach() == []


def test_nobody_waits_for_a_cancelled_call():
    """It is neither repeated nor answered."""
    session = Session()
    session.say(call(1, "add"))
    session.say({"method": "notifications/cancelled", "params": {"requestId": 1}})
    assert session.conversation.idle
    assert session.lose() == []


def test_answers_to_an_owner_that_is_gone_are_dropped():
    """The next owner does not hear answers to questions that it did not ask."""
    session = Session()
    session.hear({"id": "q", "method": "ping"})
    assert session.say({"id": "q", "result": {}}) == [{"id": "q", "result": {}}]
    session.hear({"id": "r", "method": "ping"})
    session.lose()
    session.attach()
    assert session.say({"id": "r", "result": {}}) == []


def test_without_an_owner_everything_is_refused_at_last():
    """Requests get an error with the reason; nothing of them is said later."""
    session = Session()
    session.lose()
    session.say({"id": 1, "method": "ping"})
    session.say({"method": "notifications/progress"})
    assert session.conversation.waiting
    (refused,) = said(session.conversation.refuse("locked by pid 7", {"pid": 7}))
    assert refused["error"] == {"code": -32000, "message": "locked by pid 7", "data": {"pid": 7}}
    assert session.attach() == []
