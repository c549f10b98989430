"""Downloads of export jobs: an interruption loses nothing, and a wrong file gets no name."""

from __future__ import annotations

import stat
from collections.abc import Callable, Generator, Mapping
from hashlib import sha256
from pathlib import Path

import pytest
import typer

from trails.errors import ConflictError, StorageError, UnreachableError
from trails.surfaces.cli.output import downloads
from trails.surfaces.cli.output.downloads import Download
from trails.surfaces.cli.output.reporting import Reporting

WHOLE = bytes(range(256)) * 40
HANDLE = "export-" + "a" * 32
DONE = {
    "export": HANDLE,
    "state": "done",
    "format": "ndjson",
    "commit": "c",
    "records": 7,
    "total": 7,
    "bytes": len(WHOLE),
    "sha256": sha256(WHOLE).hexdigest(),
}


class Scripted:
    """A session whose job is done after some questions, and whose download may break off."""

    def __init__(self, *statuses: Mapping[str, object] | BaseException) -> None:
        self.statuses = list(statuses)
        self.asked: list[Mapping[str, object]] = []
        self.starts: list[int] = []
        self.breaks: BaseException | None = None
        self.data = WHOLE

    def record(self, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
        """The next status."""
        assert name == "export_records"
        self.asked.append(arguments)
        found = self.statuses.pop(0)
        if isinstance(found, BaseException):
            raise found
        return found

    def content(self, export: str, start: int) -> Generator[bytes, None, None]:
        """The file from a byte on, or the first half of that."""
        assert export == HANDLE
        self.starts.append(start)
        rest = self.data[start:]
        half = len(rest) // 2
        yield rest[:half]
        if self.breaks is not None:
            raise self.breaks
        yield rest[half:]


@pytest.fixture
def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Reporting]:
    """Follow a job into a file, as the command does."""
    monkeypatch.setattr(downloads, "_PAUSE", 0)

    def follow(session: Scripted, **arguments: object) -> Reporting:
        report = Reporting(as_json=True)
        Download(session, report, tmp_path / "out").follow(arguments)  # type: ignore[arg-type]
        return report

    return follow


RUNNING = {**DONE, "state": "running", "records": 3, "total": None}


def test_a_job_is_followed_to_its_end(follow, tmp_path):
    """Then its file is there, private, and nothing else."""
    session = Scripted({**RUNNING, "state": "waiting"}, RUNNING, RUNNING, DONE)
    report = follow(session, format="ndjson")
    assert session.asked == [{"format": "ndjson"}, *[{"export": HANDLE}] * 3]
    assert [each.name for each in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out").read_bytes() == WHOLE
    assert stat.S_IMODE((tmp_path / "out").stat().st_mode) == 0o600
    assert report.value == {
        **{name: DONE[name] for name in ("export", "format", "commit", "records", "sha256")},
        "file": str(tmp_path / "out"),
        "bytes": len(WHOLE),
    }


@pytest.mark.parametrize("moment", ["waiting", "downloading"])
def test_an_interruption_says_how_to_go_on(follow, tmp_path, capsys, moment):
    """And what was downloaded is not downloaded again."""
    session = Scripted(RUNNING, KeyboardInterrupt())
    if moment == "downloading":
        session = Scripted(DONE)
        session.breaks = KeyboardInterrupt()
    with pytest.raises(typer.Exit) as caught:
        follow(session)
    assert caught.value.exit_code == 130
    said = " ".join(capsys.readouterr().err.split())
    assert f"continue with: trails export --resume {HANDLE} --output" in said
    assert not (tmp_path / "out").exists()
    again = Scripted(DONE)
    follow(again, export=HANDLE)
    assert again.starts == [len(WHOLE) // 2 if moment == "downloading" else 0]
    assert (tmp_path / "out").read_bytes() == WHOLE
    assert [each.name for each in tmp_path.iterdir()] == ["out"]


def test_a_lost_connection_leaves_a_part(follow, tmp_path):
    """The old file stays as it was until the new one is whole."""
    (tmp_path / "out").write_text("old")
    session = Scripted(DONE)
    session.breaks = UnreachableError("gone")
    with pytest.raises(UnreachableError):
        follow(session)
    assert (tmp_path / "out").read_text() == "old"
    session = Scripted(DONE)
    follow(session)
    assert session.starts == [len(WHOLE) // 2]
    assert (tmp_path / "out").read_bytes() == WHOLE


def test_a_wrong_file_is_not_kept(follow, tmp_path):
    """A part that does not belong to the export is noticed by its digest."""
    (tmp_path / f".out.{HANDLE}").write_bytes(b"something else")
    with pytest.raises(StorageError, match=f"--resume {HANDLE}"):
        follow(Scripted(DONE))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / f".out.{HANDLE}").write_bytes(WHOLE + b"more")
    follow(Scripted(DONE))
    assert (tmp_path / "out").read_bytes() == WHOLE


def test_a_failed_job_says_why(follow):
    """With its own words."""
    failed = {**DONE, "state": "failed", "error": {"code": "storage_full", "message": "no space"}}
    with pytest.raises(ConflictError, match="the export failed: no space"):
        follow(Scripted(failed))
