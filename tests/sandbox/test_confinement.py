"""What a worker can't do: the same function confines a child here, which then tries."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.worlds.processes import files_opened_by

from trails.errors import UnavailableError
from trails.sandbox.confine import Confinement
from trails.sandbox.pool import Sandbox
from trails.sandbox.seccomp import ALLOWED, CONDITIONAL, DEADLY, build

ATTEMPTS = r"""
import ctypes, json, os, signal, socket, subprocess, sys, threading
from pathlib import Path
from trails.sandbox.confine import confine, drop_root

folder, link, secret, owner = sys.argv[1:]
held = os.open(folder, os.O_RDONLY)
drop_root()
os.fchdir(held)
confinement = confine(held, 1 << 30)
outcomes = {}
libc = ctypes.CDLL(None, use_errno=True)


def attempt(name, action):
    try:
        action()
        outcomes[name] = "done"
    except BaseException as error:
        outcomes[name] = type(error).__name__


def write(path):
    with open(path, "ab") as file:
        file.write(b"x")


def check(result):
    if result < 0:
        raise OSError(ctypes.get_errno())


attempt("thread", lambda: threading.Thread(target=int).start())
attempt("write own file", lambda: write("own"))
attempt("rename own file", lambda: os.rename("own", "renamed"))
attempt("remove own file", lambda: os.unlink("renamed"))
attempt("read linked file", lambda: open(link, "rb").read())
attempt("write linked file", lambda: write(link))
attempt("truncate linked file", lambda: os.truncate(link, 0))
attempt("chmod linked file", lambda: os.chmod(link, 0o666))
attempt("read a file outside", lambda: open(secret).read())
attempt("read the users", lambda: open("/etc/passwd").read())
attempt("list the root", lambda: os.listdir("/"))
attempt("list the folder above", lambda: os.listdir(".."))
attempt("read the environment of the owner", lambda: open(f"/proc/{owner}/environ").read())
attempt("write outside", lambda: write("/tmp/trails-was-here"))
attempt("link from outside", lambda: os.link("/etc/passwd", "passwd"))
attempt("symbolic link", lambda: os.symlink("/etc/passwd", "passwd"))
attempt("named pipe", lambda: os.mkfifo("pipe"))
attempt("tcp socket", lambda: socket.socket().close())
attempt("udp socket", lambda: socket.socket(type=socket.SOCK_DGRAM).close())
attempt("tcp over ipv6", lambda: socket.socket(socket.AF_INET6).close())
attempt("unix socket", lambda: socket.socket(socket.AF_UNIX).close())
attempt("socket pair", lambda: socket.socketpair())
attempt("raw socket", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close())
attempt("fork", lambda: os.fork())
attempt("subprocess", lambda: subprocess.run(["/bin/true"]))
attempt("kill the parent", lambda: os.kill(os.getppid(), 0))
attempt("kill itself", lambda: os.kill(os.getpid(), 0))
attempt("become root", lambda: os.setuid(0))
attempt("limits of others", lambda: check(libc.prlimit(int(owner), 7, None, None)))
attempt("more memory", lambda: __import__("resource").setrlimit(9, (1 << 40, 1 << 40)))
attempt("code in memory", lambda: __import__("mmap").mmap(-1, 4096, prot=7))
attempt("change folder", lambda: os.chdir("/"))
attempt("change root", lambda: os.chroot("."))
outcomes["uid"] = os.getuid()
outcomes["missing"] = confinement.missing
print(json.dumps(outcomes), flush=True)
if "exec" in os.environ.get("LAST", ""):
    os.execv("/bin/true", ["true"])
if "ptrace" in os.environ.get("LAST", ""):
    libc.ptrace(0, 0, 0, 0)
"""
DONE = {"thread", "write own file", "rename own file", "remove own file", "read linked file"}


@pytest.fixture
def attempts(tmp_path):
    """Run the attempts in a confined child; gives the outcomes and how it ended."""

    def run(last=""):
        folder = tmp_path / "own"
        folder.mkdir()
        original = tmp_path / "original"
        original.write_bytes(b"shared")
        original.chmod(0o444)
        (folder / "linked").hardlink_to(original)
        secret = tmp_path / "secret"
        secret.write_text("secret")
        secret.chmod(0o666)
        if os.getuid() == 0:
            os.chown(folder, 65534, 65534)
        child = subprocess.run(
            [sys.executable, "-c", ATTEMPTS, folder, "linked", secret, str(os.getpid())],
            capture_output=True,
            check=False,
            env={"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "LAST": last},
        )
        assert original.read_bytes() == b"shared"
        return json.loads(child.stdout), child

    return run


def test_a_confined_process_has_its_folder_and_nothing_else(attempts):
    """Threads and its own files work; everything else fails."""
    outcomes, child = attempts()
    assert child.returncode == 0
    assert outcomes.pop("uid") != 0
    assert outcomes.pop("missing") == ""
    # A change of folder needs no right, and gives none.
    outcomes.pop("change folder")
    assert {name for name, outcome in outcomes.items() if outcome == "done"} == DONE
    assert len(outcomes) > 25


@pytest.mark.parametrize("last", ["exec", "ptrace"])
def test_a_break_out_is_deadly(attempts, last):
    """Calls that no query leads to end the process."""
    assert attempts(last)[1].returncode == -31  # SIGSYS


def test_real_workers_are_confined(branch, sandbox):
    """Their user, their filter and their privileges, as the system tells."""
    sandbox.query(branch, "ASK {}", caller="ann")
    list(sandbox.parse([b""], "turtle"))
    (line, parsers) = sandbox._groups.values()
    workers = line._idle + parsers._idle
    assert len(workers) >= 2
    for worker in workers:
        status = Path(f"/proc/{worker.pid}/status").read_text()
        fields = dict(entry.split(":\t", 1) for entry in status.splitlines() if ":\t" in entry)
        assert "0" not in fields["Uid"].split()
        assert "0" not in fields["Gid"].split()
        assert fields["Seccomp"] == "2"
        assert fields["NoNewPrivs"] == "1"
        assert int(fields["CapEff"], 16) == 0
        limits = Path(f"/proc/{worker.pid}/limits").read_text()
        assert f"{400 << 20}" in limits.split("Max address space")[1].split("\n")[0]
        if os.getuid() == 0:  # others may not look
            inside = str(worker.folder)
            opened = files_opened_by(worker.pid)
            known = (inside, "socket:", "pipe:", "/dev/null", "/proc/")
            assert [path for path in opened if not path.startswith(known)] == []
            assert sum(path.startswith("socket:") for path in opened) == 1


def test_the_sandbox_says_what_holds(sandbox):
    """Before any text is run."""
    held = sandbox.confinement
    assert held.complete
    assert held.landlock >= 1
    assert held.seccomp
    assert held.uid > 0
    assert held.memory == 400 << 20


@pytest.mark.parametrize(
    ("held", "words"),
    [
        (Confinement(missing="no Landlock", uid=1000), "allow_unconfined = true"),
        (Confinement(missing="can't give up root", uid=0), "untrusted text as root"),
    ],
)
def test_without_confinement_text_is_refused(branch, sandbox, held, words):
    """The error says why, and how to run it anyway."""
    assert sandbox.confinement.complete
    sandbox._spawner._confinement = held
    for call in (
        lambda: sandbox.query(branch, "ASK {}", caller="ann"),
        lambda: sandbox.check("ASK {}"),
        lambda: list(sandbox.parse([b""], "turtle")),
    ):
        with pytest.raises(UnavailableError, match=words):
            call()


@pytest.mark.parametrize("uid", [1000, 0])
def test_text_runs_unconfined_if_told_so_but_never_as_root(branch, tmp_path, uid):
    """The setting lifts the refusal, not the rule."""
    sandbox = Sandbox(tmp_path / "scratch", allow_unconfined=True)
    try:
        assert sandbox.confinement.complete
        sandbox._spawner._confinement = Confinement(missing="no Landlock", uid=uid)
        if uid:
            assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="ann").truth
        else:
            with pytest.raises(UnavailableError):
                sandbox.query(branch, "ASK { ?s ?p ?o }", caller="ann")
    finally:
        sandbox.close()


def test_the_filter_knows_both_machines():
    """Each call has one number a machine, and is judged once."""
    for column in (0, 1):
        numbers = [
            pair[column]
            for table in (ALLOWED, CONDITIONAL, DEADLY)
            for pair in table.values()
            if pair[column] is not None
        ]
        assert len(numbers) == len(set(numbers))
    for machine in ("x86_64", "aarch64"):
        assert len(build(machine, 1)) < 4096
