"""The change feed over HTTP: streams that resume, waits, what each reader sees, and how it ends."""

import asyncio
import http.client
import json
import re
import signal
import threading
from types import SimpleNamespace
from urllib.parse import urlencode, urlsplit

import msgspec
import pytest
from tests.worlds.clients import Desk
from tests.worlds.processes import Web, wait_until
from tests.worlds.projects import NOTES, give_token, id_of, make_project, tokens_of

from trails.surfaces.rest.changes import HEARTBEAT, EventStream

VAULT = '''

@node_type
class Vault:
    """What some may not see."""

    key: str = predicate(key=True)
    code: str | None = predicate()
'''
ALL = "permit(principal, action, resource);\n"
HIDING = 'forbid(principal in Group::"guests", action, resource in Type::"Vault");\n'
PATIENCE = 60


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A project with a hidden type that a process serves, and its tokens."""
    folder = make_project(
        tmp_path_factory.mktemp("changes"),
        NOTES + VAULT,
        policies={"all.cedar": ALL, "hiding.cedar": HIDING},
    )
    tokens = {
        "ann": give_token(folder, "ann"),
        "guest": give_token(folder, "guest", groups=("guests",)),
    }
    with Web(folder) as web:
        yield World(folder, Desk(web), tokens)


class World:
    """A served project, written and read by name."""

    def __init__(self, folder, desk, tokens):
        self.folder = folder
        self.desk = desk
        self.tokens = tokens

    def write(self, *operations, branch="main", **more):
        """A commit of operations like ``"Note/a"``, ``"-Note/a"`` and ``"~Note/a"``."""
        given = [self._operation(each) for each in operations]
        body = {"operations": given, "branch": branch, **more}
        got = self.desk.ask("POST", "/graphs/main/mutate", self.tokens["ann"], body)
        assert got.status == 200, got.body
        return got.json["commit"]

    @staticmethod
    def _operation(text):
        kind, name = text.lstrip("-~").split("/")
        if text.startswith("-"):
            return {"op": "delete", "type": kind, "id": name}
        if text.startswith("~"):
            field = {"title": "Another title"} if kind == "Note" else {"code": "changed"}
            return {"op": "update", "type": kind, "id": name, "data": field}
        data = {"key": name, **({"title": f"Note {name}"} if kind == "Note" else {})}
        return {"op": "create", "type": kind, "data": data}

    def poll(self, who="ann", path="changes", status=200, **query):
        """A page of changes."""
        asked = f"/graphs/main/{path}?{urlencode(query, doseq=True)}"
        headers = [("Accept", "application/json")]
        got = plain(self.desk.url, "GET", asked, self.tokens[who], headers)
        assert got[0] == status, got
        return json.loads(got[1])

    def head(self, **query):
        """Where the feed is."""
        return self.poll(**query)["since"]

    def stream(self, who="ann", path="changes", last=None, **query):
        """An open stream."""
        asked = f"/graphs/main/{path}?{urlencode(query, doseq=True)}"
        token = self.tokens.get(who, who)
        return Events(self.desk.url, asked, token, last)


def plain(url, method, path, token, headers):
    """Status and body of a request."""
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
    connection.request(method, path, headers={"Authorization": f"Bearer {token}", **dict(headers)})
    got = connection.getresponse()
    found = got.status, got.read()
    connection.close()
    return found


class Events:
    """A client of server-sent events, as the standard describes it."""

    def __init__(self, url, path, token, last=None):
        headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {token}"}
        if last is not None:
            headers["Last-Event-ID"] = last
        self._connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)
        self._connection.request("GET", path, headers=headers)
        self._response = self._connection.getresponse()
        assert self._response.status == 200, self._response.read()
        assert self._response.headers["content-type"].startswith("text/event-stream")
        self.last = last

    def next(self):
        """The next event: its name and its data; None at the end."""
        name, data = "message", []
        while line := self._response.readline():
            text = line.decode().rstrip("\n")
            field, _, value = text.partition(": ")
            if not text:
                if data:
                    return name, json.loads("\n".join(data))
                name, data = "message", []
            elif field == "id":
                self.last = value
            elif field == "event":
                name = value
            elif field == "data":
                data.append(value)
        return None

    def handles(self, count):
        """The commits of some events, and what they changed."""
        found = []
        for _ in range(count):
            name, data = self.next()
            assert name == "change", data
            found.append((data["commit"], shown(data)))
        return found

    def close(self):
        """Leave."""
        self._connection.close()
        self._response.close()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def shown(event):
    """The changed nodes as they are written above."""
    marks = {"created": "", "updated": "~", "deleted": "-"}
    return [marks[each["change"]] + each["handle"] for each in event["changes"]]


def test_a_stream_begins_now_and_resumes_where_it_was(world):
    """With the id of the last event, nothing is lost and nothing comes twice."""
    world.write("Note/before")
    with world.stream() as stream:
        first = world.write("Note/r1", "Vault/r1")
        assert stream.handles(1) == [(first, ["Note/r1", "Vault/r1"])]
        assert stream.last == first
    second, third = world.write("~Note/r1"), world.write("-Note/r1", message="gone")
    with world.stream(last=first, since="0") as stream:
        assert stream.handles(2) == [(second, ["~Note/r1"]), (third, ["-Note/r1"])]
        fourth = world.write("Note/r2")
        assert stream.handles(1) == [(fourth, ["Note/r2"])]


def test_a_stream_that_has_seen_nothing_can_resume_too(world):
    """Its first id is where it begins, also if there is something to send at once."""
    start = world.head()
    assert first_id(world) == start
    world.write("Note/quiet")
    assert first_id(world, since=start) == start
    assert first_id(world, since="0") == "0"
    with world.stream(since="") as stream:
        assert stream.next()[1]["position"] is None


def first_id(world, **query):
    """The id with which a stream begins, before any event."""
    with world.stream(**query) as stream:
        lines = [stream._response.readline().decode() for _ in range(3)]
    assert lines[0].startswith("retry: ")
    assert lines[2] == "\n"
    return lines[1].removeprefix("id: ").strip()


def test_an_event_says_who_did_what_when_and_why(world):
    """All that is known of a commit; not where it is in the log, since policies may hide others."""
    start = world.head()
    commit = world.write("Note/who", message="Because.")
    (event,) = world.poll(since=start)["events"]
    assert event["commit"] == commit
    assert (event["actor"], event["message"], event["branch"]) == ("ann", "Because.", "main")
    assert (event["created"], event["updated"], event["deleted"]) == (1, 0, 0)
    assert event["position"] is None
    assert re.fullmatch(r"20\d\d-\d\d-\d\dT.*Z", event["time"])
    assert (event["schema_changed"], event["next"]) == (False, None)


def test_a_poll_waits_for_a_change(world):
    """It is answered when there is one, and at the latest when its time is over."""
    start = world.head()
    assert world.poll(since=start, wait=1) == {"events": [], "since": start, "complete": True}
    found = []
    waiting = threading.Thread(target=lambda: found.append(world.poll(since=start, wait=60)))
    waiting.start()
    commit = world.write("Note/awaited")
    waiting.join(PATIENCE)
    assert [each["commit"] for each in found[0]["events"]] == [commit]
    assert found[0]["since"] == commit


def test_pages_follow_each_other(world):
    """Each answer says where the next one begins; types are those that were asked for."""
    start = world.head()
    commits = [world.write(f"Note/p{number}", f"Vault/p{number}") for number in range(5)]
    found, since = [], start
    while True:
        page = world.poll(since=since, limit=2, type=["Vault"])
        found += page["events"]
        since = page["since"]
        if page["complete"]:
            break
    assert [each["commit"] for each in found] == commits
    assert [shown(each) for each in found] == [[f"Vault/p{number}"] for number in range(5)]


def test_a_branch_has_its_own_feed(world):
    """It ends with the branch."""
    ann = world.tokens["ann"]
    assert world.desk.ask("POST", "/graphs/main/branches", ann, {"name": "own"}).status == 200
    with world.stream(path="branches/own/changes") as stream:
        world.write("Note/elsewhere")
        commit = world.write("Note/here", branch="own")
        assert stream.handles(1) == [(commit, ["Note/here"])]
        assert world.poll(branch="own")["since"] == commit
        got = world.desk.ask("DELETE", "/graphs/main/branches/own?force=true", ann)
        assert got.status == 200, got.body
        name, data = stream.next()
        assert (name, data["code"], data["status"]) == ("end", "not_found", 404)
        assert stream.next() is None


def test_a_reader_gets_only_what_it_may_see(world):
    """No hidden node, no commit without a visible one, no position, by stream or poll."""
    start = world.head()
    with world.stream("guest") as stream:
        world.write("Vault/g1")
        mixed = world.write("Vault/g2", "Note/g2")
        world.write("~Vault/g2")
        last = world.write("~Note/g2")
        assert stream.handles(2) == [(mixed, ["Note/g2"]), (last, ["~Note/g2"])]
    page = world.poll("guest", since=start)
    assert [each["commit"] for each in page["events"]] == [mixed, last]
    assert {each["position"] for each in page["events"]} == {None}
    assert "Vault" not in json.dumps(page)
    assert page["events"][0]["created"] == 1
    unknown = world.poll("guest", since=start, type="Vault", status=404)
    assert unknown["code"] == "not_found"
    assert "Vault" not in unknown["detail"].replace("'Vault'", "", 1)
    assert world.poll("guest", since=last, wait=1)["events"] == []


def test_what_is_wrong_is_said(world):
    """Each refusal has its code."""
    ann = world.tokens["ann"]
    assert world.poll(since="f" * 32, status=404)["code"] == "not_found"
    assert world.poll(path="branches/nowhere/changes", status=404)["code"] == "not_found"
    assert world.poll(since="0", wait=61, status=422)["code"] == "validation"
    assert world.poll(since="0", limit="many", status=422)["code"] == "validation"
    assert world.poll(since="\x00", status=404)["code"] == "not_found"
    assert world.poll(since="0", type="Nute", status=404)["detail"].endswith("mean 'Note'?")
    got = plain(
        world.desk.url, "GET", "/graphs/main/changes?wait=1", ann, [("Accept", "text/event-stream")]
    )
    assert got[0] == 400
    assert plain(world.desk.url, "GET", "/graphs/main/changes", ann, [("Accept", "a/b")])[0] == 406
    stream = [("Accept", "text/event-stream")]
    assert plain(world.desk.url, "HEAD", "/graphs/main/changes", ann, stream) == (200, b"")


def test_a_stream_ends_with_its_credential(world):
    """The last event says so."""
    token = give_token(world.folder, "carl")
    path = "/graphs/main/changes"
    wait_until(lambda: plain(world.desk.url, "GET", path, token, [])[0] == 200, "the token")
    with world.stream(token) as stream:
        commit = world.write("Note/carl")
        assert stream.handles(1) == [(commit, ["Note/carl"])]
        tokens_of(world.folder).revoke([id_of(token)])
        name, data = stream.next()
        assert (name, data["code"], data["status"]) == ("end", "revoked", 401)
        assert stream.next() is None


def test_a_stream_ends_when_what_it_shows_has_changed(world):
    """Those whose rights are the same go on."""
    hiding = world.folder / "policies" / "hiding.cedar"
    with world.stream("guest") as guest, world.stream("ann") as ann:
        hiding.write_text("// nothing is hidden\n", encoding="utf-8")
        try:
            name, data = guest.next()
            assert (name, data["code"]) == ("end", "stale")
            assert data["data"]["reason"] == "policy_changed"
            commit = world.write("Note/changed")
            assert ann.handles(1) == [(commit, ["Note/changed"])]
        finally:
            hiding.write_text(HIDING, encoding="utf-8")


def test_a_slow_reader_misses_nothing(world):
    """It reads when all is written, and gets every commit once."""
    with world.stream() as stream:
        commits = [world.write(f"Note/s{number}", message="x" * 10_000) for number in range(150)]
        assert [commit for commit, _ in stream.handles(len(commits))] == commits


def test_nothing_is_read_from_the_log_for_a_client_that_takes_nothing():
    """One page is on its way, however many commits there are."""
    taken = []

    class Endless:
        position = "0"

        async def next(self, seconds):
            taken.append(seconds)
            return SimpleNamespace(events=[BareEvent(str(len(taken)))] * 3)

        def close(self):
            taken.append("closed")

    async def serve():
        stuck, sent = asyncio.Event(), []

        async def send(message):
            sent.append(message)
            if len(sent) > 3:
                stuck.set()
                await asyncio.Event().wait()

        async def receive():
            await stuck.wait()
            for _ in range(100):
                await asyncio.sleep(0)
            return {"type": "http.disconnect"}

        await EventStream(Endless())({"type": "http", "method": "GET"}, receive, send)
        return sent

    sent = asyncio.run(serve())
    assert [each["type"] for each in sent] == ["http.response.start", *["http.response.body"] * 3]
    assert taken == [HEARTBEAT, "closed"]


class BareEvent(msgspec.Struct):
    """An event with nothing but its commit."""

    commit: str


def test_streams_count_as_watches_of_their_actor(tmp_path):
    """One too many is refused, and a closed one counts no longer; at the end all are told."""
    settings = '[project]\nname = "acme"\n[graphs.main.budgets]\nwatches = 2\n'
    folder = make_project(tmp_path, NOTES, settings=settings, policies={"all.cedar": ALL})
    token = give_token(folder, "ann")
    with Web(folder) as web:
        path, stream = "/graphs/main/changes", [("Accept", "text/event-stream")]
        first, second = Events(web.url, path, token), Events(web.url, path, token)
        status, body = plain(web.url, "GET", path, token, stream)
        assert (status, json.loads(body)["data"]["limit"]) == (429, "watches")
        first.close()

        def room():
            try:
                return Events(web.url, path, token)
            except AssertionError:
                return None

        third = wait_until(room, "room for a stream")
        web.process.send_signal(signal.SIGTERM)
        for each in (second, third):
            name, data = each.next()
            assert (name, data["code"]) == ("end", "unavailable")
            each.close()
        assert web.process.wait(PATIENCE) in {0, -signal.SIGTERM}


def test_a_stream_resumes_after_the_server_was_killed(tmp_path):
    """From the last event that arrived, over any number of commits."""
    folder = make_project(tmp_path, NOTES, policies={"all.cedar": ALL})
    world = World(folder, None, {"ann": give_token(folder, "ann")})
    commits, received, last = [], [], None
    for number in range(3):
        with Web(folder) as web:
            world.desk = Desk(web)
            with world.stream(last=last or world.head()) as stream:
                commits += [world.write(f"Note/k{number}{each}") for each in range(3)]
                received += [commit for commit, _ in stream.handles(2 + (number > 0))]
                last = stream.last
            web.kill()
    with Web(folder) as web:
        world.desk = Desk(web)
        with world.stream(last=last) as stream:
            received += [commit for commit, _ in stream.handles(1)]
    assert received == commits
