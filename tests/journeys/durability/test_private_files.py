"""What a project keeps is for its owner alone, and nothing of it is left elsewhere."""

import contextlib
import os
import socket
import sqlite3
import stat
from urllib.parse import urlsplit

import pytest
from tests.journeys.durability.campaign import make_project
from tests.worlds.processes import Web, run_command, wait_until

from trails import App
from trails.app.ownership import examine_permissions
from trails.errors import StorageError


def open_paths(folder):
    """Everything below a folder, itself included, with permissions for others."""
    everything = [folder, *folder.rglob("*")]
    found = {each: each.lstat().st_mode for each in everything if each.exists()}
    return {
        str(each.relative_to(folder.parent)): oct(stat.S_IMODE(mode))
        for each, mode in found.items()
        if mode & 0o077
    }


@pytest.fixture
def wide_open():
    """A umask that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.usefixtures("wide_open")
def test_a_served_project_its_backups_and_its_exports_are_private(tmp_path):
    """Log, views, sockets, segments and owner file, while it is served; files of commands too."""
    folder = make_project(tmp_path / "p")
    lines = "".join(
        f'{{"type": "Item", "data": {{"code": "c{at}", "value": {at}, "text": "{"x" * 200}"}}}}\n'
        for at in range(3000)
    )
    (folder / "items.ndjson").write_text(lines)
    with Web(folder):
        for arguments in (
            ("load", "items.ndjson"),
            ("branch", "create", "side"),
            ("query", "SELECT * { ?s ?p ?o } LIMIT 1", "--branch", "side"),
            ("export", "--output", "out.ndjson"),
            ("token", "new", "--actor", "ann"),
        ):
            done = run_command(arguments, folder)
            assert done.returncode == 0, done.stderr
        found = open_paths(folder / ".trails")
        # Workers of root run as another user, and read links to the store's files.
        assert not {name: mode for name, mode in found.items() if not name.endswith(".sst")}
    assert stat.S_IMODE((folder / "out.ndjson").stat().st_mode) == 0o600
    done = run_command(("backup", "../saved"), folder)
    assert done.returncode == 0, done.stderr
    assert not open_paths(tmp_path / "saved")


@pytest.mark.usefixtures("wide_open")
def test_a_project_that_was_open_is_closed_by_its_owner(tmp_path):
    """One that an earlier version made; doctor tells of what can't be closed."""
    folder = make_project(tmp_path / "p")
    with App.open(folder):
        pass
    data = folder / ".trails"
    # Inside a program with a umask of its own, what RocksDB makes is protected by the folders.
    assert not [name for name in open_paths(data) if "/quads/" not in name]
    for each in (data, *data.rglob("*")):
        each.chmod(0o755 if each.is_dir() else 0o644)
    told = examine_permissions(data)
    assert told.severity == "problem"
    assert str(data) in told.detail
    with App.open(folder):
        assert examine_permissions(data).severity == "ok"
    assert not [name for name in open_paths(data) if "/quads/" not in name]


def test_a_lock_of_another_process_is_waited_for_briefly(tmp_path, monkeypatch):
    """Then the error names the cause, and what to do about it."""
    monkeypatch.setattr("trails.log.storage.BUSY_SECONDS", 0.2)
    folder = make_project(tmp_path / "p")
    with App.open(folder) as app:
        item = app.registry().classes["Item"]
        path = folder / ".trails/graphs/main/log.db"
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StorageError, match="another process has locked the database"):
                item(code="a", value=1, text="").save(app.context())
        item(code="a", value=1, text="").save(app.context())


def test_an_upload_of_a_killed_server_is_removed_by_the_next(tmp_path):
    """It is inside the project; the system's temporary folder has no file of it."""
    folder = make_project(tmp_path / "p")
    system = tmp_path / "system"
    system.mkdir()
    uploads = folder / ".trails/graphs/main/tmp"
    environment = {"TMPDIR": str(system), "XDG_RUNTIME_DIR": ""}
    with Web(folder, env=environment) as server:
        at = urlsplit(server.url)
        with socket.create_connection((at.hostname, at.port)) as sock:
            sock.sendall(
                b"POST /graphs/main/load HTTP/1.1\r\nHost: localhost\r\n"
                b"Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"
                b"2\r\n{}\r\n"
            )
            wait_until(lambda: uploads.is_dir() and list(uploads.iterdir()), "an upload")
            server.kill()
    assert list(uploads.iterdir())
    assert not [each for each in system.rglob("*") if each.is_file()]
    with Web(folder, env=environment):
        assert not uploads.exists()
    assert not list(system.iterdir())
