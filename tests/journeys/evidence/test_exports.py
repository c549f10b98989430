"""Export jobs as callers meet them: over MCP, REST and the command line, on a real server."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest
from tests.worlds.clients import Desk, served
from tests.worlds.processes import Shell, Web, wait_until
from tests.worlds.projects import give_token, make_project

from trails import App

APP = """
from trails import Node, node_type, predicate

@node_type
class Item(Node):
    "A thing."
    name: str = predicate(key=True)
    text: str | None = predicate()
    secret: str | None = predicate()
    group: int | None = predicate()

@node_type
class Vault(Node):
    "A thing that only some may see."
    name: str = predicate(key=True)
"""
POLICY = """
permit(principal in Group::"admins", action, resource);
permit(principal in Group::"clerks", action in [Action::"Read", Action::"Export"], resource);
permit(principal in Group::"readers", action == Action::"Read", resource);
forbid(principal in Group::"clerks", action == Action::"Read", resource == Field::"Item.secret");
forbid(principal in Group::"clerks", action == Action::"Read", resource == Type::"Vault");
"""
COUNT = 1500
TEXT = "né {} \N{WOMAN}\N{ZERO WIDTH JOINER}\N{ROCKET}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with more records than a window holds."""
    made = make_project(
        tmp_path_factory.mktemp("exports") / "acme", APP, policies={"p.cedar": POLICY}
    )
    with App.open(made) as app:
        item, vault = (app.registry().classes[name] for name in ("Item", "Vault"))
        app.context(actor="test").kg.save_all(
            [
                *(
                    item(
                        name=f"i{at:04}", text=TEXT.format(at), secret=f"hush-{at}", group=at % 100
                    )
                    for at in range(COUNT)
                ),
                vault(name="hush-vault"),
            ]
        )
    return made


TOKENS: dict[str, str] = {}


@pytest.fixture(scope="module")
def desk(folder: Path):
    """A server, for an admin, a clerk who sees less, and a reader who may not export."""
    groups = {"ann": "admins", "bob": "clerks", "joe": "readers"}
    TOKENS.update(
        {name: give_token(folder, name, groups=(group,)) for name, group in groups.items()}
    )
    with served(folder) as found:
        yield found


class Caller:
    """Somebody with a token, on both surfaces."""

    def __init__(self, desk: Desk, name: str) -> None:
        self.desk = desk
        self.token = TOKENS[name]

    def call(self, **arguments):
        """What the tool answers, in both forms, which say the same."""
        answer = self.desk.call("export_records", self.token, **arguments).json["result"]
        text = answer["content"][0]["text"]
        if "structuredContent" not in answer:
            return text
        assert json.loads(text) == answer["structuredContent"]
        assert len(text) <= arguments.get("max_chars", 32_768)
        return answer["structuredContent"]

    def error(self, **arguments):
        """The text of a refusal."""
        answer = self.desk.call("export_records", self.token, **arguments).json
        return answer.get("error", {}).get("message") or answer["result"]["content"][0]["text"]

    def rest(self, method, path, body=None, **headers):
        """What REST answers."""
        given = [(name.replace("_", "-"), value) for name, value in headers.items()]
        return self.desk.ask(method, f"/graphs/main/export{path}", self.token, body, given)

    def done(self, **arguments):
        """The status of an export that is finished."""
        status = self.rest("POST", "", arguments).json
        handle = status["export"]
        return wait_until(
            lambda: (found := self.rest("GET", f"/{handle}").json)["state"] == "done" and found
        )

    def windows(self, **arguments):
        """The windows of an export, each by the call that the one before has named."""
        answer = self.call(**arguments)
        while "window" not in answer:
            answer = self.call(**answer["next"]["arguments"])
        yield answer
        while "next" in answer:
            assert answer["next"]["tool"] == "export_records"
            answer = self.call(**answer["next"]["arguments"])
            yield answer


@pytest.fixture
def ann(desk: Desk) -> Caller:
    """Sees everything."""
    return Caller(desk, "ann")


@pytest.fixture
def bob(desk: Desk) -> Caller:
    """Sees no secrets."""
    return Caller(desk, "bob")


@pytest.mark.req("E4", "E7", "E8")
@pytest.mark.parametrize("format", ["ndjson", "turtle", "csv"])
def test_every_surface_gives_the_same_bytes(ann, folder, tmp_path, format):
    """Windows joined, ranges joined, and the file of the command line."""
    answers = list(ann.windows(format=format))
    assert len(answers) > 1
    ends = [0, *(each["window"]["end"] for each in answers)]
    assert [each["window"]["start"] for each in answers] == ends[:-1]
    text = "".join(each["window"]["text"] for each in answers)
    assert all(each["window"]["total"] == len(text) == ends[-1] for each in answers)
    assert all(each["window"]["text"].endswith("\n") for each in answers)
    assert not any(each["window"]["complete"] for each in answers)

    handle, digest = answers[0]["export"], answers[0]["sha256"]
    whole = ann.rest("GET", f"/{handle}/content")
    assert whole.body.decode() == text
    assert sha256(whole.body).hexdigest() == digest
    half = len(whole.body) // 2
    parts = [
        ann.rest("GET", f"/{handle}/content", range=f"bytes={start}")
        for start in (f"0-{half - 1}", f"{half}-")
    ]
    assert [each.status for each in parts] == [206, 206]
    assert b"".join(each.body for each in parts) == whole.body

    out = tmp_path / "out"
    told = Shell(folder).json("export", "--job", "--format", format, "-o", out)
    assert (told["sha256"], told["bytes"]) == (digest, len(whole.body))
    assert out.read_bytes() == whole.body
    piped = Shell(folder).out("export", "--resume", told["export"])
    assert sha256(piped.encode()).hexdigest() == digest


def test_an_export_can_be_limited_on_every_surface(ann, folder):
    """To types, conditions and fields, in the same words."""
    asked = {"types": ["Item"], "where": "group=7", "fields": ["text"]}
    wanted = [
        {"type": "Item", "data": {"name": f"i{at:04}", "text": TEXT.format(at)}}
        for at in range(7, COUNT, 100)
    ]
    answer = ann.call(**asked)
    assert [json.loads(each) for each in answer["window"]["text"].splitlines()] == wanted
    assert answer["window"]["complete"]
    assert (answer["records"], answer["total"], "next" in answer) == (15, 15, False)
    handle = ann.rest("POST", "", asked).json["export"]
    assert handle == answer["export"]
    assert ann.rest("GET", f"/{handle}?offset=0").json["window"] == answer["window"]
    assert "window" not in ann.rest("GET", f"/{handle}").json
    lines = Shell(folder).out("export", "--type", "Item", "--where", "group=7", "--field", "text")
    assert [json.loads(each) for each in lines.splitlines()] == wanted


def test_a_window_is_as_small_as_asked(ann):
    """Smaller than a record too: then it ends inside of one, and the next goes on there."""
    answers = list(ann.windows(types=["Item"], where="group=3", max_chars=2000))
    assert len(answers) > 1
    text = "".join(each["window"]["text"] for each in answers)
    handle = answers[0]["export"]
    assert ann.rest("GET", f"/{handle}/content").body.decode() == text


def test_hidden_things_are_in_no_byte(bob):
    """Not in windows, files, statuses or errors; a condition on them is one on nothing."""
    for format in ("ndjson", "turtle", "csv"):
        answers = list(bob.windows(format=format))
        content = bob.rest("GET", f"/{answers[0]['export']}/content")
        for shown in (json.dumps(answers), content.body.decode(), str(content.headers)):
            assert "hush" not in shown
            assert "secret" not in shown
            assert "Vault" not in shown
        assert answers[0]["records"] == answers[0]["total"] == COUNT
    assert "has no field 'secret'" in bob.error(types=["Item"], where="secret=hush-1")
    assert "there is no type 'Vault'" in bob.error(types=["Vault"])
    assert "has a field 'secret'" in bob.error(fields=["secret"])


def test_an_export_is_its_actors_alone(desk, ann, bob):
    """For others, and for who may not export, it is not there."""
    handle = ann.done()["export"]
    never = "export-" + "0" * 32
    for path in ("", "?offset=0", "/content"):
        mine, unknown = (bob.rest("GET", f"/{each}{path}") for each in (handle, never))
        assert (mine.status, unknown.status) == (404, 404)
        assert mine.body.decode().replace(handle, never) == unknown.body.decode()
    assert bob.rest("DELETE", f"/{handle}").status == 404
    assert bob.error(export=handle).replace(handle, never) == bob.error(export=never)
    joe = Caller(desk, "joe")
    assert joe.error() == "unknown tool: export_records"
    assert joe.rest("GET", f"/{handle}/content").status == 404
    assert ann.rest("GET", f"/{handle}/content").status == 200


@pytest.mark.parametrize(
    "handle",
    ["x", "..", "%2e%2e%2flog.db", "export-" + "z" * 32, "%00", "é".encode().hex() * 20, "%ff"],
)
def test_hostile_handles_are_not_found(ann, handle):
    """Whatever they look like."""
    for path in ("", "/content"):
        assert ann.rest("GET", f"/{handle}{path}").status == 404


def test_ranges(ann):
    """One range of bytes; several, or nonsense, mean the whole; none of it is 416."""
    handle = ann.done(types=["Item"])["export"]
    path = f"/{handle}/content"
    whole = ann.rest("GET", path)
    size, tag = len(whole.body), whole.headers["etag"]
    assert whole.headers["accept-ranges"] == "bytes"
    assert whole.headers["content-type"].startswith("application/x-ndjson")
    assert handle in whole.headers["content-disposition"]

    def ranged(text, **more):
        return ann.rest("GET", path, range=text, **more)

    for text, start, end in (
        ("bytes=0-0", 0, 1),
        ("bytes=5-9", 5, 10),
        (f"bytes={size - 1}-", size - 1, size),
        ("bytes=-7", size - 7, size),
        (f"bytes=-{size * 2}", 0, size),
        (f"bytes=3-{size * 2}", 3, size),
    ):
        got = ranged(text)
        assert (got.status, got.body) == (206, whole.body[start:end]), text
        assert got.headers["content-range"] == f"bytes {start}-{end - 1}/{size}"
    for text in ("bytes=0-1,5-6", "bytes=x-", "bytes=9-5", "lines=1-2", "bytes=-", "bytes=1"):
        assert ranged(text).status == 200, text
    for text in (f"bytes={size}-", "bytes=-0", f"bytes={10**17}-"):
        got = ranged(text)
        assert (got.status, got.headers["content-range"]) == (416, f"bytes */{size}"), text
    assert ranged("bytes=0-1", if_range=tag).status == 206
    assert ranged("bytes=0-1", if_range='"other"').status == 200
    assert ann.rest("GET", path, if_none_match=tag).status == 304
    assert ann.rest("GET", path, if_none_match='"other"').status == 200
    head = ann.rest("HEAD", path)
    assert (head.status, head.body, head.headers["content-length"]) == (200, b"", str(size))


def test_an_export_can_be_discarded(ann, folder):
    """By the tool, by REST, and by the command line."""
    handle = ann.done(format="nquads")["export"]
    assert ann.call(export=handle, discard=True)["state"] == "discarded"
    assert ann.rest("GET", f"/{handle}").status == 404
    handle = ann.done(format="nquads")["export"]
    assert ann.rest("DELETE", f"/{handle}").json["state"] == "discarded"
    shell = Shell(folder)
    handle = shell.json("export", "--job", "-o", "out")["export"]
    assert shell.out("export", "--discard", handle) == f"Discarded {handle}.\n"
    assert "there is no export" in shell.error("export", "--resume", handle)


def test_rights_that_were_lost_close_an_export(ann, folder):
    """Its bytes may hold what is hidden now; with the rights of before it opens again."""
    handle = ann.done()["export"]
    policy = folder / "policies" / "p.cedar"
    policy.write_text(
        POLICY + 'forbid(principal, action == Action::"Read", resource == Field::"Item.secret");\n'
    )
    try:
        wait_until(lambda: ann.rest("GET", f"/{handle}/content").status == 409)
        for got in (ann.rest("GET", f"/{handle}?offset=0"), ann.rest("GET", f"/{handle}")):
            assert got.status == 409
            assert "hush" not in got.body.decode()
        assert "start it again" in ann.error(export=handle)
        fresh = ann.done()["export"]
        assert fresh != handle
        assert "hush-1" not in ann.rest("GET", f"/{fresh}/content").body.decode()
    finally:
        policy.write_text(POLICY)
    wait_until(lambda: ann.rest("GET", f"/{handle}/content").status == 200)


def test_an_export_outlives_the_server_that_began_it(tmp_path):
    """Killed at once and started again, the server goes on where it was."""
    project = make_project(tmp_path / "acme", APP)
    with App.open(project) as app:
        item = app.registry().classes["Item"]
        app.context(actor="test").kg.save_all(
            item(name=f"i{at:06}", text="x" * 500) for at in range(20_000)
        )
    with Web(project) as first:
        desk = Desk(first)
        started = desk.ask("POST", "/graphs/main/export", None, {}).json
        first.kill()
    with Web(project) as second:
        desk = Desk(second)
        path = f"/graphs/main/export/{started['export']}"
        status = wait_until(
            lambda: (found := desk.ask("GET", path).json)["state"] == "done" and found
        )
        assert status["commit"] == started["commit"]
        content = desk.ask("GET", f"{path}/content").body
        assert sha256(content).hexdigest() == status["sha256"]
        names = [json.loads(line)["data"]["name"] for line in content.splitlines()]
        assert names == [f"i{at:06}" for at in range(20_000)]


def test_another_process_on_the_folder_serves_the_same(desk, ann, folder):
    """Ranges and statuses pass through it."""
    handle = ann.done(types=["Item"])["export"]
    whole = ann.rest("GET", f"/{handle}/content")
    with Web(folder) as second:
        assert not second.served["owner"]
        other = Caller(Desk(second), "ann")
        assert other.rest("GET", f"/{handle}").json["sha256"] == sha256(whole.body).hexdigest()
        part = other.rest("GET", f"/{handle}/content", range="bytes=100-199")
        assert (part.status, part.body) == (206, whole.body[100:200])
        assert other.call(export=handle)["export"] == handle
