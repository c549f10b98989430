"""Whoever is refused can't make the log longer by asking again; what happened is told."""

import asyncio
import json
import logging
import threading
import time

import pytest
from tests.worlds.projects import BUILD, give_token, headers_for, make_workshop
from tests.worlds.surfaces import MODERN, ask_app, headers_of, message_of

from trails import App
from trails.app.access import access_of
from trails.app.doctor import examine_served
from trails.app.kernels import kernel_of
from trails.app.serve.http.front import HttpInterface
from trails.app.serve.http.hosts import HostPolicy
from trails.engine.graph import activities as refusals
from trails.engine.graph.activities import (
    NAMES,
    OTHERS,
    Activities,
    CallRecord,
    RefusalKind,
    Refusals,
)
from trails.errors import StorageError
from trails.log.storage import files_below
from trails.model.actors import Actor
from trails.model.history import Activity
from trails.request.answers import MASKED

POLICIES = """
permit(principal == Actor::"boss", action, resource);
permit(principal == Actor::"ann", action == Action::"Read", resource);
permit(principal == Actor::"ann", action == Action::"SchemaApply", resource);
"""
MINUTE = refusals.WINDOW
SMALL = 256 << 10
"""Bytes that ten thousand refusals may leave; they were some three million."""


def call_mcp(app, token, name):
    """A call over MCP."""
    params = {"name": name, "arguments": {}}
    headers = [*headers_of(MODERN, "tools/call", params), *headers_for(token)]
    body = json.dumps(message_of(MODERN, "tools/call", params)).encode()
    return ask_app(app, headers, [body], path="/graphs/main/mcp")


def call_rest(app, token, name):
    """The same over REST."""
    headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
    path = f"/graphs/main/invoke/{name}"
    return ask_app(app, [*headers, *headers_for(token)], [b"{}"], path=path)


def read_mcp(app, token, uri):
    """A resource, as JSON."""
    params = {"uri": uri}
    headers = [*headers_of(MODERN, "resources/read", params), *headers_for(token)]
    body = json.dumps(message_of(MODERN, "resources/read", params)).encode()
    return ask_app(app, headers, [body], path="/graphs/main/mcp")


@pytest.fixture
def workshop(tmp_path):
    """A project where one actor may do little, and what serves it."""
    folder = make_workshop(tmp_path / "p", policies=POLICIES)
    tokens = {name: give_token(folder, name) for name in ("ann", "boss")}
    with App.open(folder) as app:
        kernel = kernel_of(app)
        access = access_of(folder, app.settings, {}).authenticator
        interface = HttpInterface(
            {"main": kernel},
            app.settings.graphs,
            access,
            HostPolicy.for_bind("127.0.0.1", credentials=True),
        )
        yield app, interface, tokens
        kernel.close()


def size_of(app):
    """Bytes of all files of a project's data."""
    return sum(facts.st_size for _, facts in files_below(app.folder / ".trails"))


def stored(app):
    """What the log itself has."""
    return [each for _, each in app.graph().log.activities()]


def test_ten_thousand_refusals_leave_a_few_records(workshop):
    """Over both surfaces: unknown, invented, denied, out of scope; each of them is counted."""
    app, interface, tokens = workshop
    ann, boss, before = tokens["ann"], tokens["boss"], size_of(app)
    asked = [
        lambda at: "nope",
        lambda at: f"invented.{at}",
        lambda at: "notes_add",
        lambda at: BUILD,
        lambda at: "x" * 150 + str(at),
    ]

    async def visit():
        async with interface.run():
            for at in range(1000):
                for name in asked:
                    for call in (call_mcp, call_rest):
                        await call(interface, ann, name(at))
            found = await read_mcp(interface, boss, "trails://prov/latest")
            return json.loads(found.message["result"]["contents"][0]["text"])["activities"]

    latest = asyncio.run(visit())
    report = examine_served(app, "main")
    found = [each for _, each in app.graph().activities.read() if each.actor == "ann"]
    assert sum(each.calls for each in found) == 10_000
    assert len(found) < 10 * NAMES
    assert size_of(app) - before < SMALL
    calls = {}
    for each in found:
        assert each.started <= each.ended
        calls[each.name, each.outcome] = calls.get((each.name, each.outcome), 0) + each.calls
    assert calls["nope", "unknown"] == 2000
    assert calls["notes_add", MASKED] == 2000
    assert calls[BUILD, "scope"] == 2000
    assert calls[OTHERS, "unknown"] > 4000 - 2 * NAMES
    told = {(each["activity"], each["outcome"], each["calls"]) for each in latest}
    assert {("notes_add", MASKED, 1999), (OTHERS, "unknown", calls[OTHERS, "unknown"])} <= told
    (noted,) = [each for each in report.findings if each.name == "refusals"]
    assert "ann was refused 9,9" in noted.detail
    assert "token revoke" in noted.fix


def test_whoever_shows_no_credential_leaves_nothing(workshop, caplog):
    """Neither a record nor a line in a log nor a byte on the disk."""
    app, interface, tokens = workshop
    before, known = size_of(app), len(stored(app))
    wrong = tokens["ann"][:-4] + "AAAA"

    async def visit():
        async with interface.run():
            for at in range(500):
                for token in (None, wrong, f"{wrong[:-8]}{at:08}", f"other{at}"):
                    for call in (call_mcp, call_rest):
                        assert (await call(interface, token, f"n{at}")).status == 401

    with caplog.at_level(logging.DEBUG, "trails"):
        asyncio.run(visit())
    assert app.graph().activities.newest(10) == []
    assert (len(stored(app)), size_of(app)) == (known, before)
    assert not [each for each in caplog.records if each.name.startswith("trails")]
    assert interface.listener.callers._recent == {}


def test_whoever_looks_does_not_make_the_log_longer(workshop):
    """What is being summed up is told as it is, and written when its time is over."""
    app, interface, tokens = workshop

    async def visit():
        async with interface.run():
            counts = []
            for _ in range(5):
                for _ in range(10):
                    await call_mcp(interface, tokens["ann"], "nope")
                found = await read_mcp(interface, tokens["ann"], "trails://prov/latest")
                latest = json.loads(found.message["result"]["contents"][0]["text"])["activities"]
                counts.append(sum(each["calls"] for each in latest if each["activity"] == "nope"))
            return counts

    assert asyncio.run(visit()) == [10, 20, 30, 40, 50]
    app.graph().activities.flush()
    assert [each.calls for each in stored(app) if each.name == "nope"] == [1]


def test_sums_do_not_tell_denied_from_unknown(workshop):
    """What an actor is told of its own calls is the same for both, among many as among few."""
    app, interface, tokens = workshop

    def shown(names):
        async def visit():
            for _ in range(3):
                for name in names:
                    await call_mcp(interface, tokens["ann"], name)
            found = await read_mcp(interface, tokens["ann"], "trails://prov/latest")
            return json.loads(found.message["result"]["contents"][0]["text"])["activities"]

        app.graph().activities._refusals = Refusals()
        known = {each.id for each in app.graph().activities.newest(10_000)}
        return sorted(
            [each[key] for key in ("calls", "detail", "activity", "kind", "outcome")]
            for each in asyncio.run(visit())
            if each["id"] not in known and each["activity"] != "resources/read"
        )

    for others in (0, NAMES - 1, NAMES, NAMES + 3):
        crowd = [f"none{at}" for at in range(others)]
        denied, unknown = shown([*crowd, "notes_add"]), shown([*crowd, "notes_adx"])
        text = json.dumps(unknown).replace("notes_adx", "notes_add")
        assert json.loads(text) == denied
        assert any("notes_add" in str(each) for each in denied) == (others < NAMES)


def test_reads_of_what_is_not_there_are_summed_up_too(workshop):
    """With the first few addresses one by one."""
    app, interface, tokens = workshop

    async def visit():
        async with interface.run():
            for at in range(200):
                await read_mcp(interface, tokens["ann"], f"trails://nothing/{at % 100}")

    asyncio.run(visit())
    found = [each for _, each in app.graph().activities.read() if each.actor == "ann"]
    assert sum(each.calls for each in found) == 200
    assert len(found) <= 2 * NAMES + 1
    assert {each.detail for each in found} > {f"trails://nothing/{at}" for at in range(NAMES)}
    rest = next(each for each in found if each.name == OTHERS)
    assert (rest.kind, rest.calls) == ("read", 200 - 2 * NAMES)


def test_what_is_summed_up_is_written_by_itself(workshop, monkeypatch):
    """When its time is over; then the next refusal has a record of its own again."""
    app, _, _ = workshop
    monkeypatch.setattr(refusals, "WINDOW", 1_500_000_000)
    activities = app.graph().activities

    def refuse():
        activities.refuse(CallRecord("ann", "nope", "runtime"), "unknown", "x", answered="unknown")

    for _ in range(5):
        refuse()
    deadline = time.monotonic() + 60
    while len(stored(app)) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    assert [each.calls for each in stored(app)] == [1, 4]
    refuse()
    activities.flush()
    assert [each.calls for each in stored(app)] == [1, 4, 1]


def test_nothing_is_forgotten_when_a_graph_is_closed(tmp_path):
    """What is being summed up is written."""
    folder = make_workshop(tmp_path / "p", policies=None)
    with App.open(folder) as app:
        kernel = kernel_of(app)
        for _ in range(10):
            asyncio.run(kernel.execute(Actor("ann"), "nope", {}))
        kernel.close()
    with App.open(folder) as app:
        assert [each.calls for each in stored(app)] == [1, 9]


def test_a_full_disk_loses_no_count(tmp_path, monkeypatch):
    """What could not be written is written later, once."""
    folder = make_workshop(tmp_path / "p", policies=None)
    with App.open(folder) as app:
        log, activities = app.graph().log, Activities(app.graph().log)
        for _ in range(10):
            activities.refuse(
                CallRecord("ann", "nope", "runtime"), "unknown", "x", answered="unknown"
            )
        with monkeypatch.context() as patch:
            patch.setattr(log, "insert_activities", _refuse_to_write)
            with pytest.raises(StorageError):
                activities.read()
        for _ in range(10):
            activities.refuse(
                CallRecord("ann", "nope", "runtime"), "unknown", "x", answered="unknown"
            )
        found = [each for _, each in activities.read()]
        activities.close()
    assert sorted(each.calls for each in found) == [1, 9, 10]
    assert len({each.id for each in found}) == 3


def _refuse_to_write(activities):
    del activities
    raise StorageError("the disk is full")


def test_threads_lose_no_count():
    """Refusals from many threads at once are all counted, in few records."""
    made = Refusals()
    written = [0] * 8

    def work(number):
        for at in range(1000):
            kind = RefusalKind("ann", "unknown", f"n{at % 40}")
            written[number] += made.take(kind, "runtime", "unknown", "x", at, at)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = made.settle()
    assert sum(written) == NAMES
    assert sum(each.calls for each in found) + NAMES == 8000
    assert len(found) == NAMES + 1
    assert made.settle() == []
    assert made.pause(0) is not None
    made.settle(MINUTE + 1000)
    assert made.pause(0) is None
    assert not made._names


def test_a_record_of_before_is_one_call():
    """Logs that were written when nothing was summed up can be read."""
    assert Activity("a", "ann", "x", "t0", "t1", "ok").calls == 1
