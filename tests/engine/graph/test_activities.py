"""Activities that the disk refuses: they wait, calls go on, and the log says so once in a while."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from time import monotonic, sleep

import pytest

from trails.engine.graph import activities as module
from trails.engine.graph.activities import Activities, CallRecord
from trails.errors import StorageError, StorageFullError
from trails.log.overlay import OverlayLog
from trails.log.sqlite import SqliteLog
from trails.model.history import Activity


class Disk:
    """A log whose activities are refused while ``error`` is set."""

    def __init__(self) -> None:
        self.log = SqliteLog(None, "main", "x:", "2026-01-01T00:00:00.000Z")
        self.error: StorageError | None = None
        self._insert = self.log.insert_activities
        self.log.insert_activities = self.insert  # type: ignore[method-assign]

    def insert(self, activities: list[Activity]) -> None:
        """Write them, or refuse."""
        if self.error is not None:
            raise self.error
        self._insert(activities)

    def names(self) -> list[str]:
        """What is written."""
        return [each.name for _, each in self.log.activities()]


@pytest.fixture
def disk() -> Iterator[Disk]:
    """A log in memory."""
    found = Disk()
    yield found
    found.log.close()


def call(name: str, *, committed: bool = False, recorded: bool = False) -> CallRecord:
    """A call that has begun."""
    found = CallRecord("ann", name, "tool", reads=not committed)
    found.committed, found.recorded = committed, recorded
    return found


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the server's log says."""
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


@pytest.mark.parametrize("error", [StorageError("input/output error"), StorageFullError("full")])
def test_a_refused_record_is_reported_once_and_written_later(
    disk: Disk,
    error: StorageError,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No read fails for it; the call that made a commit hears that only its record is missing."""
    monkeypatch.setattr(module, "_MOST", 2)
    stream = Activities(disk.log)
    disk.error = error
    with pytest.raises(type(error), match="written and safe, but the record of this call"):
        stream.end(call("write", committed=True), "ok")
    for number in range(5):
        stream.end(call(f"read {number}"), "ok")
    stream.end(call("failed", committed=True), "storage")
    reasons = [each for each in warnings(caplog) if "wait to be written" in each]
    assert reasons == [f"activities wait to be written: {error}"]
    disk.error = None
    deadline = monotonic() + 10
    while "write" not in disk.names() and monotonic() < deadline:
        sleep(0.01)
    stream.close()
    assert {"write", "failed"} <= set(disk.names())


def test_a_call_that_is_recorded_with_its_commit_waits_for_no_disk(disk: Disk) -> None:
    """Only its end is missing, and found before it is written; a failure is written at once."""
    stream = Activities(disk.log)
    disk.error = StorageError("input/output error")
    made = call("write", committed=True, recorded=True)
    stream.end(made, "ok")
    assert stream.waiting == 1
    assert stream.find({made.id: ""})[made.id].name == "write"
    disk.error = None
    stream.end(call("failed", committed=True, recorded=True), "internal")
    assert disk.names() == ["write", "failed"]
    stream.close()


def test_activities_that_wait_are_written_with_the_next_commit(disk: Disk) -> None:
    """Once, and not by a draft; if the commit can't be written, they wait on."""
    stream = Activities(disk.log)
    disk.error = StorageError("input/output error")
    stream.end(call("read"), "ok")
    with pytest.raises(StorageFullError), stream.taken_along(disk.log) as found:
        raise StorageFullError("full")
    assert stream.waiting == 1
    with stream.taken_along(OverlayLog(disk.log, {}, None)) as found:
        assert not found
    with stream.taken_along(disk.log) as found:
        disk.error = None
        disk.log.insert_activities(found)
    assert stream.waiting == 0
    disk.log.insert_activities(found)  # as after an interrupt that came too late
    stream.close()
    assert disk.names() == ["read"]


def test_a_change_after_a_commit_is_not_recorded_yet() -> None:
    """A branch that the call moved after its commit: its activity is written at its end."""
    made = call("write", committed=True, recorded=True)
    made.change()
    assert (made.committed, made.recorded) == (True, False)


def test_the_warning_is_repeated_after_a_while(
    disk: Disk, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator who looks later finds it, too."""
    monkeypatch.setattr(module, "_BETWEEN_WARNINGS", 0.0)
    stream = Activities(disk.log)
    disk.error = StorageFullError("full")
    stream.end(call("read"), "ok")
    for _ in range(2):
        assert [each.name for each in stream.newest(1)] == ["read"]  # what waits is listed
    assert len([each for each in warnings(caplog) if "wait to be written" in each]) >= 2
    disk.error = None
    stream.close()


def test_what_is_lost_at_the_end_is_counted(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    """Closing goes on, and the log names the reason."""
    stream = Activities(disk.log)
    disk.error = StorageError("input/output error")
    stream.end(call("one"), "ok")
    stream.end(call("two"), "ok")
    stream.close()
    assert "2 activities could not be written and are lost: input/output error" in warnings(caplog)


def test_what_commits_take_along_is_not_written_apart(disk: Disk) -> None:
    """The writer looks at what has waited for long enough, and finds nothing."""
    stream = Activities(disk.log)
    written: list[int] = []
    insert = disk.log.insert_activities

    def count(activities: list[Activity]) -> None:
        written.append(len(activities))
        insert(activities)

    disk.log.insert_activities = count  # type: ignore[method-assign, assignment]
    end = monotonic() + 3 * module._PAUSE
    while monotonic() < end:
        stream.end(call("write", committed=True, recorded=True), "ok")
        sleep(module._PAUSE / 20)
        with stream.taken_along(disk.log):
            pass
    assert written == []
    stream.end(call("last"), "ok")
    while not written and monotonic() < end + 10:
        sleep(0.01)
    stream.close()
    assert written == [1]
