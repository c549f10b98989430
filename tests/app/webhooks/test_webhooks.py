"""Webhooks: in order, at least once, whatever is killed; as their actor, and only where allowed."""

import asyncio
import json
import signal
from ipaddress import ip_address

import pytest
from tests.app.webhooks.receiver import KEY, SECRET, Receiver
from tests.worlds.clients import Desk
from tests.worlds.processes import Shell, Web, wait_until
from tests.worlds.projects import NOTES, NOTES_QUERIES, make_project

from trails.app.settings import read_settings
from trails.app.webhooks.requests import WebhookMessage, send, sign
from trails.app.webhooks.settings import WebhookSettings, is_public, url_problem
from trails.errors import SettingsError

ENV = {"HOOK_SECRET": SECRET}
HEADERS = {
    "webhook-id": "1",
    "webhook-timestamp": "1",
    "webhook-signature": sign([KEY], WebhookMessage("1", b"{}"), 1),
}
STORED = ".trails/graphs/main/webhooks/hook.json"
VAULT = '''

@node_type
class Vault:
    """What some may not see."""

    key: str = predicate(key=True)
'''
HIDING = """\
permit(principal, action, resource);
forbid(principal in Group::"guests", action, resource in Type::"Vault");
"""
QUERIES = {
    **NOTES_QUERIES,
    "done.rq": """\
#+ description: What is done.
SELECT ?title { ?n :status 'done' ; :title ?title }
""",
}


def hook(receiver, name="hook", **more):
    """The settings of a webhook."""
    given = {
        "name": name,
        "url": receiver if isinstance(receiver, str) else receiver.url,
        "secret": "HOOK_SECRET",
        "actor": "hook",
        "allow_private": True,
        "retry_seconds": [0.1, 0.1],
        **more,
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in given.items()]
    return "\n".join(["[[graphs.main.webhooks]]", *lines, ""])


def make(folder, *hooks, policies=()):
    """A project with webhooks."""
    settings = "\n".join(['[project]\nname = "acme"\n[graphs.main]\n', *hooks])
    return make_project(
        folder, NOTES + VAULT, settings=settings, queries=QUERIES, policies=policies
    )


def write(web, *names, kind="Note", **more):
    """A commit that creates nodes."""
    operations = [
        {
            "op": "create",
            "type": kind,
            "data": {"key": each, **more, **({"title": f"Note {each}"} if kind == "Note" else {})},
        }
        for each in names
    ]
    got = Desk(web).ask("POST", "/graphs/main/mutate", None, {"operations": operations})
    assert got.status == 200, got.body
    return got.json["commit"]


@pytest.fixture
def receiver():
    """A receiver."""
    opened = Receiver()
    yield opened
    opened.close()


def state_of(folder, name="hook"):
    """What is known of a webhook, from the command line."""
    found = Shell(folder).json("webhooks", "list")["webhooks"]
    return next(each for each in found if each["name"] == name)


def stored(folder, name="hook"):
    """What is stored of a webhook; nothing before it has started."""
    path = folder / STORED.replace("hook.json", f"{name}.json")
    return json.loads(path.read_bytes()) if path.exists() else {}


def test_changes_are_delivered_in_order_and_signed(tmp_path, receiver):
    """One that fails is sent again with its id before the next; all is over a restart."""
    folder = make(tmp_path, hook(receiver))
    with Web(folder, env=ENV) as web:
        wait_until((folder / STORED).exists, "a start")
        first = write(web, "a", "b")
        wait_until(lambda: receiver.commits == [first], "a delivery")
        identifier, body = receiver.got[0]
        assert identifier == f"hook_{first}"
        assert (body["type"], body["project"]) == ("graph.changed", "acme")
        assert body["data"]["graph"] == "main"
        assert [each["handle"] for each in body["data"]["changes"]] == ["Note/a", "Note/b"]
        receiver.answers = [500, 302]
        second, third = write(web, "c"), write(web, "d")
        wait_until(lambda: receiver.commits[1:] == [second, second, second, third], "retries")
        assert len({each for each, _ in receiver.got}) == 3
        wait_until(lambda: stored(folder)["delivered"] == 3, "three deliveries")
        found = state_of(folder)
        assert (found["state"], found["position"], found["last_status"]) == ("active", third, 204)
        assert web.close() == 0
    fourth = Shell(folder).json("mutate", "--operations", operations(folder))["commit"]
    with Web(folder, env=ENV):
        wait_until(lambda: receiver.commits[5:] == [fourth], "what was written without a server")


def operations(folder):
    """A file with a change."""
    change = [{"op": "create", "type": "Note", "data": {"key": "offline", "title": "Offline"}}]
    (folder / "change.json").write_text(json.dumps(change), encoding="utf-8")
    return "change.json"


def test_nothing_is_lost_when_the_server_is_killed(tmp_path, receiver):
    """Between the commit and its delivery, and between the delivery and its record."""
    folder = make(tmp_path, hook(receiver))
    commits = []
    receiver.hold.clear()
    with Web(folder, env=ENV) as web:
        wait_until((folder / STORED).exists, "a start")
        commits += [write(web, "a"), write(web, "b")]  # the writer does not wait for the receiver
        wait_until(lambda: receiver.got, "a request without an answer")
        web.process.send_signal(signal.SIGKILL)
        web.process.wait(60)
    receiver.hold.set()
    with Web(folder, env=ENV) as web:
        commits.append(write(web, "c"))
        wait_until(lambda: receiver.commits[-1] == commits[-1], "the rest")
    assert receiver.commits == [commits[0], *commits]
    assert receiver.got[0][0] == receiver.got[1][0]


def test_a_webhook_that_fails_is_disabled_until_it_is_resumed(tmp_path, receiver):
    """It continues where it was, or where the operator says."""
    folder = make(tmp_path, hook(receiver), hook(receiver, "gone", types=["Vault"]))
    shell = Shell(folder)
    with Web(folder, env=ENV) as web:
        wait_until(lambda: stored(folder) and stored(folder, "gone"), "a start")
        receiver.answers = [500] * 3
        first, second = write(web, "a"), write(web, "b")
        wait_until(lambda: stored(folder)["disabled"], "an end")
        assert receiver.commits == [first] * 3
        assert "3 attempts failed" in state_of(folder)["disabled"]
        assert "3 attempts failed" in shell.out("webhooks", "list")
        assert shell.json("webhooks", "resume", "hook")["state"] == "active"
        wait_until(lambda: receiver.commits[3:] == [first, second], "the rest")
        receiver.answers = [410]
        third = write(web, "v", kind="Vault")
        wait_until(lambda: len(receiver.commits) >= 7, "both")

        def disabled_ones():
            return [each for each in ("hook", "gone") if stored(folder, each)["disabled"]]

        (disabled,) = wait_until(disabled_ones, "an end")
        write(web, "w", kind="Vault")
        shell.out("webhooks", "resume", disabled, "--since", "head")
        last = write(web, "x", kind="Vault")
        wait_until(lambda: receiver.commits.count(last) == 2, "the one after")
        assert receiver.commits.count(third) == 2
    assert "did you mean 'hook'" in shell.error("webhooks", "resume", "hok")


def test_a_webhook_sees_what_its_actor_sees(tmp_path, receiver):
    """Hidden types are not sent; a query is sent when its result changes."""
    folder = make(
        tmp_path,
        hook(receiver, "guest", groups=["guests"]),
        hook(receiver, "query", query="done"),
        policies={"all.cedar": HIDING},
    )
    with Web(folder, env=ENV) as web:
        wait_until(lambda: stored(folder, "guest") and stored(folder, "query"), "a start")
        write(web, "v", kind="Vault")
        visible = write(web, "a")
        done = write(web, "b", status="done")
        wait_until(lambda: len(receiver.got) == 3, "three messages")
        by_hook = {}
        for identifier, body in receiver.got:
            by_hook.setdefault(identifier.split("_")[0], []).append(body)
        assert [each["data"]["commit"] for each in by_hook["guest"]] == [visible, done]
        (changed,) = by_hook["query"]
        assert (changed["type"], changed["data"]["query"]) == ("query.changed", "done")
        assert changed["data"]["rows"] == [{"title": "Note b"}]


def test_a_missing_secret_disables_a_webhook_until_the_next_start(tmp_path, receiver):
    """The others, and the server, are not affected."""
    folder = make(tmp_path, hook(receiver), hook(receiver, "other", secret="NO_SUCH"))
    with Web(folder, env=ENV) as web:
        wait_until(lambda: stored(folder, "other").get("disabled"), "an end")
        assert "NO_SUCH is not set" in state_of(folder, "other")["disabled"]
        commit = write(web, "a")
        wait_until(lambda: receiver.commits == [commit], "a delivery")
    with Web(folder, env={**ENV, "NO_SUCH": SECRET}):
        wait_until(lambda: receiver.commits == [commit] * 2, "the other delivery")


def test_a_position_survives_a_restore(tmp_path, receiver):
    """One that the older log does not have disables the webhook."""
    folder = make(tmp_path / "acme", hook(receiver))
    shell = Shell(folder)
    with Web(folder, env=ENV) as web:
        wait_until((folder / STORED).exists, "a start")
        delivered = write(web, "a")
        wait_until(lambda: stored(folder)["position"] == delivered, "a delivery")
        shell.out("backup", "--to", tmp_path / "backups")
    shell.out("restore", tmp_path / "backups", "--force")
    with Web(folder, env=ENV) as web:
        second = write(web, "b")
        wait_until(lambda: receiver.commits == [delivered, second], "the next")
        wait_until(lambda: stored(folder)["position"] == second, "its record")
    shell.out("restore", tmp_path / "backups", "--force")
    with Web(folder, env=ENV):
        wait_until(lambda: stored(folder)["disabled"], "an end")
        assert "there is no commit" in stored(folder)["disabled"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"url": "http://example.org/"}, "must begin with https://"),
        ({"url": "ftp://example.org/", "allow_private": True}, "must begin with https://"),
        ({"url": "https://user:pw@example.org/"}, "no user, password or fragment"),
        ({"url": "https://127.0.0.1/"}, "private address"),
        ({"url": "https://[::1]/"}, "private address"),
        ({"url": "https://169.254.169.254/latest"}, "private address"),
        ({"url": "https://a\\r\\nx: y/"}, "printable"),
        ({"url": "https://host:99999/"}, "is not a URL"),
        ({"name": "Hook"}, "lower-case letter"),
        ({"actor": ""}, "actor is empty"),
        ({"secret": SECRET}, "not be the secret itself$"),
    ],
)
def test_settings_that_can_not_work_are_refused(tmp_path, more, words):
    """Before anything is sent."""
    given = {"allow_private": False, "url": "https://example.org/", **more}
    folder = make(tmp_path, hook(given.pop("url").replace("\\r\\n", "\r\n"), **given))
    with pytest.raises(SettingsError, match=words):
        read_settings(folder)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("8.8.8.8", True),
        ("2606:4700::1111", True),
        ("10.0.0.1", False),
        ("100.64.0.1", False),
        ("0.0.0.1", False),
        ("224.0.0.1", False),
        ("::ffff:127.0.0.1", False),
        ("::ffff:8.8.8.8", True),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("fd00::1", False),
        ("fe80::1", False),
    ],
)
def test_addresses_of_private_networks_are_known(address, public):
    """Also if they are wrapped in others."""
    assert is_public(ip_address(address)) == public


def test_a_name_that_leads_to_a_private_address_is_not_connected_to(receiver):
    """The address decides, not the name."""
    url = receiver.url.replace("127.0.0.1", "localhost")
    assert url_problem(url.replace("http:", "https:"), allow_private=False) is None
    answer = asyncio.run(send(url, {}, b"{}", seconds=5, allow_private=False))
    assert "has the private address" in answer.error
    assert receiver.got == []
    answer = asyncio.run(send(url, HEADERS, b"{}", seconds=5, allow_private=True))
    assert answer.status == 204, answer  # whatever other address the name has


def test_an_answer_is_bounded_in_size_and_time():
    """A server that sends much, slowly, or something else, is a failure."""

    async def answer_with(*parts, forever=False):
        async def serve(reader, writer):
            await reader.read(10)
            for part in parts:
                writer.write(part)
            if forever:
                await ended.wait()
            writer.transport.abort()
            done.set()

        ended, done = asyncio.Event(), asyncio.Event()
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/"
        found = await send(url, {}, b"{}", seconds=0.3, allow_private=True)
        ended.set()
        await done.wait()
        server.close()
        await server.wait_closed()
        return found

    async def try_all():
        return [
            await answer_with(b"HTTP/1.1 200 OK\r\nx: ", b"y" * 100_000),
            await answer_with(b"HTTP/1.1 200 OK\r\n", forever=True),
            await answer_with(b"SSH-2.0-hello\r\n\r\n"),
            await answer_with(b""),
            await answer_with(
                b"HTTP/1.1 103 Early\r\n\r\nHTTP/1.1 429 Slow\r\nRetry-After: 7\r\n\r\n"
            ),
            await answer_with(b"HTTP/1.1 200 OK\r\n\r\n", b"z" * 1_000_000),
        ]

    large, slow, other, silent, busy, fine = asyncio.run(try_all())
    assert "larger than" in large.error
    assert "no answer within" in slow.error
    assert "not HTTP" in other.error
    assert "without an answer" in silent.error
    assert (busy.status, busy.retry_after) == (429, 7)
    assert (fine.status, fine.error) == (200, "")


def test_signatures_are_those_of_the_standard():
    """The example of the specification; with two secrets there are two signatures."""
    given = WebhookSettings("h", "https://example.org", "S", "a")
    (key,) = given.secrets({"S": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"})
    message = WebhookMessage("msg_p5jXN8AQM9LWM0D4loKWxJek", b'{"test": 2432232314}')
    signed = sign([key], message, 1614265330)
    assert signed == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert len(sign([key, KEY], message, 1).split()) == 2
    for wrong in ("", "secret", "whsec_", "whsec_%%%", "whsec_c2hvcnQ="):
        with pytest.raises(SettingsError):
            given.secrets({"S": wrong})


def test_doctor_reports_webhooks_that_do_not_deliver(tmp_path):
    """From their stored states: disabled, failing, damaged, or in order."""
    folder = make(tmp_path, *(hook("http://127.0.0.1:9/", name) for name in ("hook", "other")))
    shell = Shell(folder)

    def found(code=0):
        reports = shell.json("doctor", code=code)["reports"]
        (graph,) = (each for each in reports if each["subject"] == "Graph main")
        return [each for each in graph["findings"] if each["name"] == "webhooks"]

    assert [(each["severity"], each["detail"]) for each in found()] == [
        ("ok", "2 webhooks, none failing")
    ]
    path = folder / STORED
    path.parent.mkdir()
    path.write_text('{"position": "1", "failures": 2, "last_error": "refused"}')
    (folder / STORED.replace("hook.json", "other.json")).write_text(
        '{"position": "1", "disabled": "3 attempts failed"}'
    )
    failing, disabled = found(code=1)
    assert (failing["code"], failing["severity"]) == ("webhook_failing", "note")
    assert "2 attempts failed, the last with refused" in failing["detail"]
    assert (disabled["code"], disabled["severity"]) == ("webhook_disabled", "problem")
    assert "trails webhooks resume other --graph main" in disabled["fix"]
    path.write_bytes(b"{")
    assert found(code=1)[0]["code"] == "webhook_unreadable"
