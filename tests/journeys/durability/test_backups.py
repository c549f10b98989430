"""Sets of backups: what is new since the last, restorable to any commit, while others write."""

import fcntl
import json
import os
import random
import shutil
import socket
import threading
from urllib.request import Request, urlopen

import pytest
from tests.journeys.durability.campaign import (
    bulk,
    fold_statements,
    fresh_seed,
    graph_folder,
    make_project,
    next_operation,
    perform,
)
from tests.worlds.processes import Web, run_command, wait_until

from trails import App
from trails.app.serve.relay.links import Preamble
from trails.app.serve.relay.owners import find_owner
from trails.app.upkeep import backup_project, list_backups, put_back, restore_project
from trails.engine.upkeep.backups import back_up
from trails.engine.upkeep.verify import verify
from trails.errors import CorruptionError, NotFoundError, StorageError
from trails.files import digest_file
from trails.log.extracts import assemble
from trails.log.sqlite import SqliteLog
from trails.model.history import MergeRequest
from trails.model.upkeep import RestoreRequest


def silent(text):
    """Tell nobody."""


def state_of(log):
    """Heads of all branches, the ids of all commits, and the statements that the log folds to."""
    heads = {name: head.commit for name, head in log.branches().items()}
    return heads, [commit.id for commit in log.commits()], fold_statements(log)


def write_some(app, rng, count):
    """Commits on main and on a branch that comes, is merged and goes; states by commit."""
    item_type = app.registry().classes["Item"]
    states = {}
    for number in range(count):
        known = sorted(item.code for item in item_type.objects(app.context()))
        operation = next_operation(rng, known, rng.randrange(2**40))
        if "bulk" in operation or not number:
            operation = bulk(300, rng.randrange(2**40))
        perform(app.context(), item_type, operation)
        states[app.graph().log.last_seq()] = state_of(app.graph().log)
    return states


def branch_out(app, name, *, merge):
    """A branch with a commit of its own; merged forward and deleted, or left."""
    app.versions().create_branch(name)
    app.registry().classes["Item"](code=name, value=1).save(app.context(branch=name))
    states = {app.graph().log.last_seq(): state_of(app.graph().log)}
    if merge:
        app.versions().merge(MergeRequest(name, "main"))
        app.versions().delete_branch(name)
    return states


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A set of four backups of a project, and what its log was after some of its commits."""
    folder = tmp_path_factory.mktemp("backups")
    rng = random.Random(fresh_seed())
    project = make_project(folder / "project")
    states, made = {}, []
    with App.open(project) as app:
        for at in range(4):
            states |= write_some(app, rng, 3)
            states |= branch_out(app, f"b{at}", merge=at % 2 == 0)
            made.append(backup_project(app, folder / "set", silent)["main"])
            assert backup_project(app, folder / "set", silent) == {"main": None}
        last = state_of(app.graph().log)
    return folder, states, made, last


@pytest.fixture
def copied(world, tmp_path):
    """A copy of the set that can be damaged."""
    return shutil.copytree(world[0] / "set", tmp_path / "set")


def restored(tmp_path, source, at=None):
    """What a new project holds after a restore."""
    project = make_project(tmp_path / f"restored-{at}".replace(":", ""))
    with App.open(project, declarations=False) as app:
        put_back(app, source, silent, RestoreRequest(at=at))
    log = SqliteLog(graph_folder(project), "main", "", "")
    try:
        return state_of(log)
    finally:
        log.close()


def assert_sound(tmp_path, at):
    """A restored project opens, and all its digests and views are right."""
    with App.open(tmp_path / f"restored-{at}") as app:
        assert not [each for each in verify(app.graph(), silent) if each.severity != "ok"]


def test_a_set_has_what_is_new(world):
    """Each backup after the first has the new commits alone; manifests are chained."""
    folder, _, made, last = world
    assert [each.number for each in made] == [1, 2, 3, 4]
    assert [each.previous for each in made] == ["", *(each.digest for each in made[:-1])]
    assert made[-1].heads == last[0]
    assert made[-1].seq == len(last[1])
    listed = list_backups(folder / "set", silent, check=True)["main"]
    assert listed == made


def test_any_commit_can_be_restored(world, tmp_path):
    """By its place, by its id, by a time, or the newest: heads, commits and statements as then."""
    folder, states, made, last = world
    source = folder / "set"
    assert restored(tmp_path, source) == last
    assert_sound(tmp_path, None)
    for seq in random.Random(fresh_seed()).sample(sorted(states), 3):
        heads, commits, statements = restored(tmp_path, source, str(seq))
        assert (heads, commits, statements) == states[seq]
    assert_sound(tmp_path, seq)
    seq = max(states)
    assert restored(tmp_path, source, states[seq][1][-1][:14])[1] == states[seq][1]
    assert restored(tmp_path, source, made[1].made)[1] == last[1][: made[1].seq]
    for wrong in ("0", "99999", "abcdef012345", "1999-01-01", "no commit"):
        with pytest.raises(NotFoundError, match="the backup has no commit"):
            assemble([source / "main/000001/rows.db"], tmp_path / f"x{wrong}.db", wrong)


def test_every_changed_byte_of_a_manifest_is_noticed(copied):
    """Wherever it is; the file is named."""
    path = copied / "main/000002/manifest.json"
    whole = path.read_bytes()
    rng = random.Random(fresh_seed())
    for at in range(len(whole)):
        path.write_bytes(
            whole[:at] + bytes([whole[at] ^ (1 << rng.randrange(8))]) + whole[at + 1 :]
        )
        with pytest.raises(StorageError) as told:
            list_backups(copied, silent, check=False)
        assert "000002" in told.value.message


def test_every_missing_short_or_changed_file_is_noticed(world, copied, tmp_path):
    """Before anything is touched, with its name."""
    files = [each for each in sorted(copied.rglob("*")) if each.is_file()]
    assert any(each.parent.name == "segments" for each in files)
    project = make_project(tmp_path / "p")
    for file in files:
        whole = file.read_bytes()
        middle = len(whole) // 2
        flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
        for damaged in (None, b"", whole[:-1], whole + b"x", flipped):
            file.unlink()
            if damaged is not None:
                file.write_bytes(damaged)
            with (
                App.open(project, declarations=False) as app,
                pytest.raises(CorruptionError) as told,
            ):
                restore_project(app, copied, silent, RestoreRequest())
            assert str(file) in told.value.message
            file.write_bytes(whole)
        assert not graph_folder(project).exists()


def test_an_incomplete_or_mixed_set_is_noticed(world, copied, tmp_path):
    """A backup in the middle is missing, or is one of another set."""
    folder, _, _, _ = world
    shutil.rmtree(copied / "main/000002")
    with pytest.raises(CorruptionError, match=r"000002 is missing, and 000003 is there"):
        list_backups(copied, silent, check=False)
    project = make_project(tmp_path / "other")
    with App.open(project) as app:
        backup_project(app, tmp_path / "foreign", silent)
        with pytest.raises(StorageError, match="holds backups of another history"):
            backup_project(app, folder / "set", silent)
    shutil.copytree(tmp_path / "foreign/main/000001", copied / "main/000002")
    with pytest.raises(CorruptionError, match="does not follow the backup before it"):
        list_backups(copied, silent, check=False)


def test_a_set_does_not_go_on_after_a_restore_to_an_earlier_commit(world, copied, tmp_path):
    """The histories differ; a new folder holds the new one."""
    project = make_project(tmp_path / "p")
    with App.open(project, declarations=False) as app:
        restore_project(app, copied, silent, RestoreRequest(at="3"))
        with pytest.raises(StorageError, match="a folder that does not exist yet"):
            backup_project(app, copied, silent)
        assert backup_project(app, tmp_path / "new", silent)["main"].seq == 3


def test_a_first_backup_that_did_not_finish_is_in_nobody_s_way(world, copied, tmp_path):
    """What a killed process left of it is not taken for a backup, and replaced by the next."""
    folder, _, _, _ = world
    for name in ("main", "other"):
        (copied / name / ".000005.partial").mkdir(parents=True)
    assert list(list_backups(copied, silent, check=True)) == ["main"]
    with App.open(folder / "project", declarations=False) as app:
        assert backup_project(app, copied, silent) == {"main": None}
    assert not list((copied / "main").glob(".*"))
    with pytest.raises(StorageError, match="is not a backup"):
        list_backups(tmp_path, silent, check=False)


def test_a_log_that_is_open_read_only_is_backed_up(world, tmp_path):
    """As on a full disk; no file beside it is changed."""
    folder, _, _, last = world
    graph = shutil.copytree(graph_folder(folder / "project"), tmp_path / "graph")
    before = {each: each.stat().st_mtime_ns for each in graph.rglob("*")}
    log = SqliteLog(graph, "main", "", "", read_only=True)
    try:
        back_up(log, tmp_path / "set/main", silent)
    finally:
        log.close()
    assert {each: each.stat().st_mtime_ns for each in graph.rglob("*")} == before
    assert restored(tmp_path, tmp_path / "set") == last


def test_one_process_at_a_time_adds_to_a_set(world, copied):
    """A second one is refused, and says why."""
    folder, _, _, _ = world
    held = os.open(copied / "main", os.O_RDONLY)
    try:
        fcntl.flock(held, fcntl.LOCK_EX)
        with (
            App.open(folder / "project", declarations=False) as app,
            pytest.raises(StorageError, match="another backup is being written"),
        ):
            backup_project(app, copied, silent)
    finally:
        os.close(held)


def test_a_backup_of_format_1_is_restored(world, tmp_path):
    """As earlier versions wrote it: one folder with the whole log."""
    folder, _, made, last = world
    source = graph_folder(folder / "project")
    old = tmp_path / "old/main"
    (old / "segments").mkdir(parents=True)
    for file in (source / "log.db", *(source / "segments").iterdir()):
        shutil.copy(file, old / file.relative_to(source))
    files = {
        str(file.relative_to(old)): digest_file(file) for file in old.rglob("*") if file.is_file()
    }
    manifest = {
        "format": 1,
        "graph": "main",
        "base_iri": made[0].base_iri,
        "made": made[0].made,
        "heads": last[0],
        "files": files,
    }
    (old / "manifest.json").write_text(json.dumps(manifest))
    assert restored(tmp_path, tmp_path / "old") == last


def call(url, body):
    """Mutate through REST; the commit."""
    request = Request(f"{url}/graphs/main/mutate", json.dumps(body).encode(), method="POST")  # noqa: S310
    request.add_header("Content-Type", "application/json")
    with urlopen(request) as answer:  # noqa: S310 - our own server
        return json.load(answer)["commit"]


def test_a_served_project_is_backed_up_while_it_is_written(tmp_path):
    """Through its owner; each backup is the graph at its commit, by digest."""
    project = make_project(tmp_path / "p")
    ending = threading.Event()
    written = []

    def write(url, mine):
        while not ending.is_set():
            data = {"code": f"{mine}-{len(written)}", "value": 1, "text": "x" * 50}
            made = {"op": "create", "type": "Item", "data": data}
            written.append(call(url, {"operations": [made]}))

    with Web(project) as server:
        writers = [threading.Thread(target=write, args=(server.url, each)) for each in "ab"]
        for each in writers:
            each.start()
        try:
            for round_ in range(3):
                wait_until(lambda least=5 * (round_ + 1): len(written) >= least, "some commits")
                done = run_command(("backup", "--to", "../set", "--json"), project)
                assert done.returncode == 0, done.stdout + done.stderr
            for command in ("verify", "doctor", "cleanup", "optimize"):
                done = run_command((command, "--json"), project)
                assert done.returncode == 0, done.stdout + done.stderr
        finally:
            ending.set()
            for each in writers:
                each.join()
        made = json.loads(run_command(("backup", "list", "../set", "--json"), project).stdout)
    manifests = made["graphs"]["main"]
    assert len(manifests) == 3
    with App.open(project) as app:
        originals = {commit.seq: commit for commit in app.graph().log.commits()}
        for each in manifests:
            found = restored(tmp_path, tmp_path / "set", str(each["seq"]))
            assert found[1] == [originals[at].id for at in range(1, each["seq"] + 1)]
            assert found[0] == {"main": originals[each["seq"]].id}
        exports = [b"".join(app.export(app.context(snapshot=manifests[-1]["commit"])))]
    copy = tmp_path / f"restored-{manifests[-1]['seq']}"
    with App.open(copy) as app:
        exports.append(b"".join(app.export(app.context())))
    assert exports[0] == exports[1]


def test_upkeep_is_for_the_operator_alone(tmp_path):
    """Not through the port, nor through the owner's socket without its key."""
    project = make_project(tmp_path / "p")
    body = json.dumps({"target": str(tmp_path / "stolen")}).encode()
    head = (
        b"POST /operator/backup HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    )
    with Web(project) as server:
        host, port = server.url.removeprefix("http://").split(":")
        owner = find_owner(project)
        for family, address, first in (
            (socket.AF_INET, (host, int(port)), b""),
            (socket.AF_UNIX, owner.http, Preamble().line()),
            (socket.AF_UNIX, owner.http, Preamble(operator="wrong").line()),
        ):
            with socket.socket(family) as sock:
                sock.connect(address)
                sock.sendall(first + head + body)
                answer = b""
                while block := sock.recv(1 << 16):
                    answer += block
            assert not answer.startswith(b"HTTP/1.1 200")
    assert not (tmp_path / "stolen").exists()
