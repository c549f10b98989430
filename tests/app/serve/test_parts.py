"""The small parts of serving: lines, scopes, sockets, the owner file."""

import asyncio
import os
import socket
import stat

import msgspec
import pytest
from tests.worlds.projects import make_notebook

from trails import App
from trails.app.access import local_actor
from trails.app.ownership import Ownership
from trails.app.serve.http.sockets import bind_port, url_of
from trails.app.serve.relay.frames import LineReader, LineTooLongError
from trails.app.serve.relay.owners import (
    SocketFolder,
    find_owner,
    is_same_user,
    read_owner,
    remove_debris,
)
from trails.errors import LockedError, SettingsError
from trails.model.actors import Secret


def read_lines(blocks, **options):
    """All lines of a stream that arrives in blocks; "!" for one that was too long."""
    given = iter([*blocks, b""])

    async def read():
        return next(given)

    async def collect():
        lines = LineReader(read, **options)
        found = []
        while True:
            try:
                line = await lines.next()
            except LineTooLongError:
                found.append("!")
                continue
            if line is None:
                return found
            found.append(line.decode())

    return asyncio.run(collect())


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_the_same_however_they_arrive(size):
    """Blocks may be cut anywhere; empty lines are left out, carriage returns too."""
    text = "eins\r\n\n zwei \nürü\n".encode()
    blocks = [text[at : at + size] for at in range(0, len(text), size)]
    assert read_lines(blocks) == ["eins", "zwei", "ürü"]


def test_the_rest_of_a_stream_is_a_line_only_where_that_is_wanted():
    """A line that was cut off by the end of a process is nobody's message."""
    assert read_lines([b"a\nb"]) == ["a"]
    assert read_lines([b"a\nb"], keep_rest=True) == ["a", "b"]


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_a_line_that_is_too_long_is_left_out_alone(size):
    """The lines around it are read."""
    text = b"first\n" + b"x" * 50 + b"\nlast\n"
    blocks = [text[at : at + size] for at in range(0, len(text), size)]
    assert read_lines(blocks, longest=10) == ["first", "!", "last"]
    assert read_lines([b"x" * 50], longest=10) == ["!"]


def test_scopes_come_from_the_environment():
    """Runtime without a setting; an unknown one is an error that lists them."""
    assert local_actor({}).scopes == {"runtime"}
    assert local_actor({"TRAILS_MCP_SCOPES": " "}).scopes == {"runtime"}
    assert local_actor({"TRAILS_MCP_SCOPES": "dev, builder,"}).scopes == {"dev", "builder"}
    with pytest.raises(SettingsError, match=r"'root'.*runtime, builder, dev"):
        local_actor({"TRAILS_MCP_SCOPES": "runtime,root"})


def test_sockets_are_private_and_go_away():
    """Only this user can enter their folder; nothing is left of it."""
    sockets = SocketFolder()
    assert stat.S_IMODE(sockets.path.stat().st_mode) == 0o700
    assert len(os.fsencode(sockets.mcp)) <= 100
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(sockets.mcp)
        assert is_same_user(client)
    sockets.remove()
    assert not sockets.path.exists()


def test_sockets_find_a_place_with_a_short_path(tmp_path, monkeypatch):
    """A runtime folder that is too deep, or missing, is passed over."""
    deep = tmp_path / ("x" * 90)
    deep.mkdir()
    for place in (deep, tmp_path / "missing", "relative"):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(place))
        sockets = SocketFolder()
        assert len(os.fsencode(sockets.http)) <= 100
        sockets.remove()


def test_debris_is_removed_and_nothing_else(tmp_path):
    """What a dead owner named is taken away only if an owner can have made it."""
    sockets = SocketFolder()
    sockets.http_socket.close()
    remove_debris(sockets.http)
    assert not sockets.path.exists()
    sockets.remove()
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "http").write_text("keep")
    remove_debris(str(precious / "http"))
    assert (precious / "http").read_text() == "keep"
    remove_debris("/nowhere/at/all")
    remove_debris(None)


def test_the_owner_file_tells_who_and_where(tmp_path):
    """First who, then where; nothing when it is let go of."""
    data = tmp_path / ".trails"
    ownership = Ownership(data)
    assert read_owner(data).pid == os.getpid()
    assert find_owner(tmp_path) is None
    sockets = SocketFolder()
    ownership.announce(sockets.http, sockets.mcp, Secret("a key"))
    assert find_owner(tmp_path).http == sockets.http
    assert stat.S_IMODE((data / "owner").stat().st_mode) == 0o600
    ownership.release()
    assert read_owner(data) is None
    sockets.remove()


def test_a_stale_owner_file_is_nobody(tmp_path):
    """Of a dead process, or sockets that are gone: no owner is found, and its debris goes."""
    data = tmp_path / ".trails"
    ownership = Ownership(data)
    sockets = SocketFolder()
    ownership.announce(sockets.http, sockets.mcp, Secret("a key"))
    record = read_owner(data)
    living = msgspec.json.encode(record)
    ownership.release()
    (data / "owner").write_bytes(living)
    assert find_owner(tmp_path) is not None
    sockets.http_socket.close()
    (data / "owner").write_bytes(msgspec.json.encode(msgspec.structs.replace(record, pid=2**22)))
    assert find_owner(tmp_path) is None
    Ownership(data).release()
    assert not sockets.path.exists()
    sockets.remove()
    (data / "owner").write_bytes(living)
    assert find_owner(tmp_path) is None
    for garbage in ("12345", "{", '{"pid":"x"}', '{"pid":1}', ""):
        (data / "owner").write_text(garbage)
        assert find_owner(tmp_path) is None


def test_a_program_that_has_the_folder_for_itself_says_so(tmp_path):
    """An App in a program serves nobody; whoever else wants the folder is told."""
    folder = make_notebook(tmp_path / "notebook")
    with App.open(folder):
        assert find_owner(folder) is None
        with pytest.raises(LockedError, match=f"pid {os.getpid()}.*does not serve"):
            App.open(folder)


def test_a_port_that_is_taken_is_told_with_the_next_step():
    """Another port, or an end to whoever has it."""
    with bind_port("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        assert url_of(first) == f"http://127.0.0.1:{port}"
        with pytest.raises(SettingsError, match=f"port {port} .*--port"):
            bind_port("127.0.0.1", port)
