"""Owner files: which folder they belong to, whom they may be from, and locks that fail."""

import errno
import fcntl
import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager

import msgspec
import pytest
from tests.worlds.processes import Web, run_command
from tests.worlds.projects import make_notebook

from trails.app.ownership import Ownership
from trails.app.serve.relay.owners import (
    Machine,
    SocketFolder,
    connect_socket,
    find_owner,
    read_owner,
)
from trails.errors import LockedError, StorageError
from trails.identity.tokens import TokenFile
from trails.model.actors import Secret, TokenRequest

STRANGER = 12345
"""A user id that nobody has."""
LISTENER = """
import os, socket, sys
server = socket.socket(fileno=int(sys.argv[1]))
os.setuid(int(sys.argv[2]))
server.listen()
print("listening", flush=True)
peer, _ = server.accept()
print(repr(peer.recv(1000)), flush=True)
"""


@pytest.fixture
def folder(tmp_path):
    """A project."""
    return make_notebook(tmp_path / "notebook")


def run(folder, *arguments):
    """Run a command on a folder; what it printed as JSON."""
    done = run_command([*arguments, "-p", folder, "--json"], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout[done.stdout.index("{") :])  # the capability prints, too


def notes(folder):
    """The notes that a folder holds."""
    return run(folder, "call", "notes.count")["result"]


def test_a_copy_of_a_served_folder_is_a_project_of_its_own(folder, tmp_path):
    """Commands on the copy change the copy; serving it leaves the original's sockets alone."""
    copy = tmp_path / "copy"
    with Web(folder) as original:
        run(folder, "call", "notes.add", "--arg", "text=first")
        subprocess.run(["cp", "-a", folder, copy], check=True)  # noqa: S607 - the system's
        assert (copy / ".trails" / "owner").read_bytes() == (
            folder / ".trails" / "owner"
        ).read_bytes()
        assert find_owner(copy) is None
        assert notes(copy) == 1
        run(copy, "call", "notes.add", "--arg", "text=second")
        assert [notes(folder), notes(copy)] == [1, 2]
        (copy / ".trails" / "owner").write_bytes((folder / ".trails" / "owner").read_bytes())
        with Web(copy) as other:
            assert other.served["owner"]
            assert find_owner(folder).pid == original.pid
            assert find_owner(copy).pid == other.pid
            assert [notes(folder), notes(copy)] == [1, 2]


def test_sockets_that_answer_are_never_removed(folder):
    """A record that looks like one of a dead owner does not cost a living one its sockets."""
    data = folder / ".trails"
    ownership = Ownership(data)
    sockets = SocketFolder()
    ownership.announce(sockets.http, sockets.mcp, Secret("key"))
    written = (data / "owner").read_bytes()
    ownership.release()
    (data / "owner").write_bytes(written)
    Ownership(data).release()
    assert sockets.path.exists()
    sockets.http_socket.close()
    (data / "owner").write_bytes(written)
    Ownership(data).release()
    assert not sockets.path.exists()
    sockets.remove()


@contextmanager
def announced(folder):
    """A folder that says it is served, by this process."""
    sockets = SocketFolder()
    ownership = Ownership(folder / ".trails")
    ownership.announce(sockets.http, sockets.mcp, Secret("key"))
    try:
        yield sockets
    finally:
        ownership.release()
        sockets.remove()


def give_to_stranger(path, monkeypatch):
    """Let a file belong to somebody else than this process."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, STRANGER)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)


@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.parametrize("how", ["another user's", "writable by others"])
def test_what_others_can_write_is_not_followed(folder, monkeypatch, what, how):
    """A command sends its token where the owner file points: it must be this user's alone."""
    with announced(folder) as sockets:
        assert find_owner(folder) is not None
        path = folder / ".trails" / "owner" if what == "file" else sockets.path
        if how == "another user's":
            give_to_stranger(path, monkeypatch)
            says = "belongs to another user .uid"
        else:
            path.chmod(0o722)
            says = "can be written by other users .mode 0722"
        with pytest.raises(StorageError, match=says):
            find_owner(folder)


def test_an_owner_file_that_is_a_link_is_refused(folder, tmp_path):
    """Neither read nor written through: what it leads to is not ours to change."""
    precious = tmp_path / "precious"
    precious.write_text("keep")
    (folder / ".trails").mkdir()
    (folder / ".trails" / "owner").symlink_to(precious)
    for use in (find_owner, lambda given: Ownership(given / ".trails")):
        with pytest.raises(StorageError, match=r"can't open .*owner"):
            use(folder)
    assert precious.read_text() == "keep"


def test_nothing_is_sent_to_the_socket_of_another_user(tmp_path, monkeypatch):
    """A client looks at who listens before it says anything, its token included."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        os.set_inheritable(server.fileno(), True)
        uid = STRANGER if os.geteuid() == 0 else os.geteuid()
        with subprocess.Popen(
            [sys.executable, "-c", LISTENER, str(server.fileno()), str(uid)],
            stdout=subprocess.PIPE,
            pass_fds=[server.fileno()],
            text=True,
        ) as process:
            assert process.stdout.readline() == "listening\n"
            if uid != STRANGER:
                monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
            with pytest.raises(StorageError, match=r"runs as another user .uid"):
                connect_socket(path, 10)
            assert process.stdout.readline() == "b''\n"


def test_a_command_does_not_give_its_token_to_another_user(folder):
    """A planted owner file is named, and the command ends."""
    if os.geteuid() != 0:
        pytest.skip("only root can make a file that belongs to another user")
    with announced(folder) as sockets:
        os.chown(folder / ".trails" / "owner", STRANGER, -1)
        done = run_command(["call", "notes.count", "-p", folder], folder)
        assert done.returncode == 2
        assert f"belongs to another user (uid {STRANGER})" in " ".join(done.stderr.split())
        with pytest.raises(BlockingIOError):
            sockets.http_socket.accept()


@contextmanager
def locked(folder, **changes):
    """A folder whose lock is held, with a record that was changed."""
    data = folder / ".trails"
    ownership = Ownership(data)
    record = msgspec.structs.replace(read_owner(data), **changes)
    (data / "owner").write_bytes(msgspec.json.encode(record))
    try:
        yield data
    finally:
        ownership.release()


@pytest.mark.parametrize(
    ("changes", "reason", "says"),
    [
        ({"machine": Machine("web-1", "b", 1)}, "elsewhere", "another container .*web-1.*--server"),
        ({"pid": 2**22}, "orphaned", "process 4194304, which took the lock, has ended"),
        ({"http": "/no/http", "mcp": "/no/mcp"}, "unreachable", "/no can't be seen from here"),
        ({}, "busy", "which does not serve it to others"),
    ],
)
def test_a_lock_says_who_holds_it_and_why_waiting_helps_or_not(folder, changes, reason, says):
    """By the machine, the process and the sockets that the owner file names."""
    with locked(folder, **changes) as data, pytest.raises(LockedError, match=says) as caught:
        Ownership(data, patience=0)
    assert caught.value.data["reason"] == reason


@pytest.mark.parametrize(
    "command", [["call", "notes.count"], ["serve", "--port", "0"], ["serve", "--stdio"], ["doctor"]]
)
def test_a_folder_that_another_container_has_open_is_not_waited_for(folder, command):
    """Every command ends with an error that names the other host."""
    with locked(folder, machine=Machine("web-1", "another boot", 1)):
        done = run_command([*command, "-p", folder], folder)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert "another container or on another machine (host 'web-1'" in said
    assert "waiting" not in said


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_locks_that_fail_are_an_error_of_the_file_system(folder, monkeypatch, number):
    """They are not taken for a lock that another process holds."""

    def fail(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", fail)
    uses = [
        lambda: Ownership(folder / ".trails"),
        lambda: TokenFile(folder / ".trails").issue(TokenRequest(actor="ann")),
    ]
    for use in uses:
        with pytest.raises(StorageError, match=f"can't lock .*{os.strerror(number)}.*local disk"):
            use()


@pytest.mark.parametrize("content", [b'{"pid":1,"socket":"\xd2x"}', b"\xff", b'{"pid"'])
def test_a_damaged_owner_file_names_nobody(tmp_path, content):
    """The next process takes the folder."""
    data = tmp_path / ".trails"
    data.mkdir(mode=0o700)
    path = data / "owner"
    path.write_bytes(content)
    path.chmod(0o600)
    assert read_owner(data) is None
    Ownership(data).release()
