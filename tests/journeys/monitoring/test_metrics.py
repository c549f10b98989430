"""Monitors: health, readiness and metrics of a real server, and who may see which."""

import json
import os
import re
import resource
import signal
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.worlds.forks import Fork
from tests.worlds.processes import PATIENCE, Process, Web, run_command, wait_until
from tests.worlds.projects import NOTEBOOK, give_token, make_project

from trails import __version__

SETTINGS = """
[project]
name = "warehouse"
[server]
{server}
[graphs.stock]
policies = "policies/stock"
[graphs.vault]
policies = "policies/vault"
"""
ADMIN = 'permit(principal == Actor::"{}", action, resource);\n'
READ = 'permit(principal, action == Action::"Read", resource);\n'
FAMILY = re.compile(r"# (HELP|TYPE) ([a-z_]+) (.+)")
SAMPLE = re.compile(r'([a-z_]+)(?:\{((?:[a-z]+="(?:[^"\\]|\\.)*",?)+)\})? ([0-9.e+-]+|\+Inf)')


def ask(url, path, token=None, body=None, **headers):
    """A request: status, media type, and text."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    if token is not None:
        given["Authorization"] = f"Bearer {token}"
    if body is not None:
        given["Content-Type"] = "application/json"
    with closing(HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE)) as connection:
        connection.request("GET" if body is None else "POST", path, body, given)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()


def samples(text):
    """The numbers of a document by name and labels; every line must have the form of one."""
    found, kinds = {}, {}
    for line in text.splitlines():
        comment, sample = FAMILY.fullmatch(line), SAMPLE.fullmatch(line)
        assert comment or sample, line
        if comment and comment[1] == "TYPE":
            assert comment[2] not in kinds, "a family is described once"
            kinds[comment[2]] = comment[3]
        elif sample:
            family = re.sub("_(bucket|sum|count)$", "", sample[1])
            assert family in kinds or sample[1] in kinds, line
            assert (sample[1], sample[2]) not in found, "a sample is given once"
            found[sample[1], sample[2] or ""] = float(sample[3])
    return found


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory):
    """A server with two graphs, each with an administrator of its own, after some calls."""
    folder = make_project(
        tmp_path_factory.mktemp("monitored") / "warehouse",
        NOTEBOOK,
        settings=SETTINGS.format(server="public_metrics = true"),
        policies={
            "stock/all.cedar": ADMIN.format("ann") + READ,
            "vault/all.cedar": ADMIN.format("vic"),
        },
    )
    tokens = {each: give_token(folder, each) for each in ("ann", "vic", "bob")}
    with Web(folder) as server:
        url = server.url
        for graph, actor in (("stock", "ann"), ("stock", "ann"), ("vault", "vic")):
            given = json.dumps({"text": f"secret-{graph}"})
            path = f"/graphs/{graph}/invoke/notes.add"
            assert ask(url, path, tokens[actor], given)[0] in {200, 422}
        assert ask(url, "/graphs/stock/invoke/invented", tokens["ann"], "{}")[0] == 404
        assert ask(url, "/graphs/vault/snapshot", tokens["bob"])[0] == 404
        yield url, tokens, server


def test_an_administrator_sees_the_own_graph_alone(warehouse):
    """Calls by tool, surface and outcome; a histogram; nothing of the other graph or of callers."""
    url, tokens, _ = warehouse
    status, media, text = ask(url, "/metrics", tokens["ann"])
    assert (status, media) == (200, "text/plain; version=0.0.4; charset=utf-8")
    found = samples(text)
    ok = 'graph="stock",tool="notes.add",surface="rest",outcome="ok"'
    assert found["trails_calls_total", ok] == 1
    invalid = ok.replace('"ok"', '"validation"')
    assert found["trails_calls_total", invalid] == 1
    unknown = 'graph="stock",tool="",surface="rest",outcome="unknown"'
    assert found["trails_calls_total", unknown] == 1
    one = 'graph="stock",tool="notes.add"'
    buckets = [
        value
        for (name, labels), value in found.items()
        if name == "trails_call_duration_seconds_bucket" and labels.startswith(one)
    ]
    assert buckets == sorted(buckets)
    assert buckets[-1] == found["trails_call_duration_seconds_count", one] == 2
    assert found["trails_commits_total", 'graph="stock"'] == 2
    assert found["trails_http_responses_total", 'status="404"'] >= 2
    assert found["process_resident_memory_bytes", ""] > 10**7
    for hidden in ("vault", "secret", "invented", "ann", "vic", "bob"):
        assert hidden not in text


def test_others_get_sums_without_names_where_metrics_are_public(warehouse):
    """With a credential or without; a wrong credential is refused."""
    url, tokens, _ = warehouse
    for token in (tokens["bob"], None):
        status, _, text = ask(url, "/metrics", token)
        assert status == 200
        found = samples(text)
        assert found["trails_calls_total", 'surface="rest",outcome="ok"'] == 2
        assert found["trails_calls_total", 'surface="rest",outcome="failed"'] == 3
        assert found["trails_commits_total", ""] == 4
        for hidden in ("stock", "vault", "notes", "warehouse", "graph=", "tool=", "masked"):
            assert hidden not in text
        document = ask(url, "/metrics", token, Accept="application/json")[2]
        for hidden in ("stock", "vault", "notes", "warehouse"):
            assert hidden not in document
    assert ask(url, "/metrics", "trails_0123456789ab_wrong")[0] == 401


def test_json_has_the_same_numbers(warehouse):
    """One moment of the server, for programs."""
    url, tokens, server = warehouse
    status, media, text = ask(url, "/metrics", tokens["vic"], Accept="application/json")
    assert (status, media) == (200, "application/json")
    found = json.loads(text)
    assert [each["graph"] for each in found["graphs"]] == ["vault"]
    (added,) = [each for each in found["graphs"][0]["calls"] if each["tool"] == "notes.add"]
    assert (added["outcome"], sum(added["classes"])) == ("ok", 1)
    assert found["process"]["pid"] == server.pid
    assert ask(url, "/metrics", tokens["vic"], Accept="text/html")[0] == 406


def test_a_full_disk_is_not_healthy(warehouse):
    """While it is full, and no longer; the server goes on reading."""
    url, _, server = warehouse
    assert json.loads(ask(url, "/readyz")[2]) == {"status": "ready"}
    hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (1, hard))
    try:
        wait_until(lambda: ask(url, "/readyz")[0] == 503, "a full disk that is noticed")
        problem = json.loads(ask(url, "/readyz")[2])
        assert (problem["code"], problem["data"]) == ("not_ready", {"checks": ["disk"]})
        assert json.loads(ask(url, "/healthz")[2]) == {"status": "read_only"}
    finally:
        resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))
    wait_until(lambda: ask(url, "/readyz")[0] == 200, "a disk with room again")
    assert json.loads(ask(url, "/healthz")[2]) == {"status": "ok"}


def test_a_graph_that_is_not_served_is_not_ready(tmp_path):
    """The others are served, so the server is healthy; metrics are for administrators."""
    folder = make_project(
        tmp_path / "warehouse",
        {"app.py": NOTEBOOK, "broken.py": "import nothing_like_this\n"},
        settings=SETTINGS.format(server="").replace(
            "[graphs.vault]", '[graphs.vault]\napp = "broken.py"'
        ),
        policies={"stock/all.cedar": READ},
    )
    token = give_token(folder, "bob")
    with Web(folder) as server:
        status, media, text = ask(server.url, "/readyz")
        assert (status, media) == (503, "application/problem+json")
        assert json.loads(text)["data"] == {"checks": ["graphs"]}
        assert "vault" not in text
        assert json.loads(ask(server.url, "/healthz")[2]) == {"status": "ok"}
        assert ask(server.url, "/metrics")[0] == 401
        status, _, text = ask(server.url, "/metrics", token)
        assert (status, json.loads(text)["code"]) == (403, "forbidden")


def test_top_shows_the_same_as_metrics(warehouse):
    """The operator through the folder sees every graph, a token what it administers."""
    url, tokens, server = warehouse
    folder = Path(server.served["data"]).parent
    shown = run_command(("top",), folder)
    assert shown.returncode == 0, shown.stderr
    first, *lines = shown.stdout.splitlines()
    assert first.startswith(f"warehouse · Trails {__version__} · pid {server.pid} · up 0:0")
    rows = {tuple(line.split()[:2]) for line in lines if "notes.add" in line}
    assert rows == {("notes.add", "stock"), ("notes.add", "vault")}
    found = json.loads(run_command(("top", "--json"), folder).stdout)
    assert [each["graph"] for each in found["graphs"]] == ["stock", "vault"]
    with Process("top", "--json", "--server", url, env={"TRAILS_TOKEN": tokens["vic"]}) as process:
        found = json.loads(b"".join(iter(process.line, None)))
    assert [each["graph"] for each in found["graphs"]] == ["vault"]


def test_top_goes_on_in_a_terminal(warehouse):
    """One picture after the other, until Ctrl-C."""
    folder = Path(warehouse[2].served["data"]).parent
    ours, theirs = os.openpty()
    top = Fork(["top", "--interval", "0.2"], [theirs] * 3, {"TERM": "xterm"}, folder)
    os.close(theirs)
    seen = b""
    while b"in the last 0." not in seen:
        seen += os.read(ours, 65536)
    top.send_signal(signal.SIGINT)
    with suppress(OSError):  # the other side is closed
        while os.read(ours, 65536):
            pass
    os.close(ours)
    assert top.wait(PATIENCE) == 0


def test_top_needs_a_server(tmp_path):
    """A folder that nobody serves has nothing to show."""
    folder = make_project(tmp_path / "warehouse", NOTEBOOK)
    done = run_command(("top",), folder)
    assert done.returncode == 2
    assert "no process serves this project; start one with 'trails serve'" in done.stderr
