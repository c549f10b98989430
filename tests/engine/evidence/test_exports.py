"""Export jobs: pinned, continued after any kill, checked for damage, fair, bounded, private."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.worlds.projects import make_project

from trails import App
from trails.engine.evidence import export_files, exports
from trails.engine.evidence.export_files import ExportFiles, ExportRequest
from trails.engine.evidence.exports import Export, ExportLimits, Exports, exports_of
from trails.engine.visibility.access import OPEN
from trails.errors import BudgetError, BusyError, NotFoundError, QueryError, StorageFullError

APP = """
from trails import Node, Ref, node_type, predicate

@node_type
class Item(Node):
    "A thing."
    name: str = predicate(key=True)
    text: str | None = predicate()
    size: int | None = predicate()
    tags: list[str] = predicate()
    next: Ref["Item"] | None = predicate()

@node_type
class Extra(Item):
    "A special thing."
    more: str | None = predicate()

@node_type
class Loose(Node):
    "A thing without a key."
    note: str | None = predicate(default="none")
"""
COUNT = 700
LIMITS = ExportLimits()


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with some hundred records, the texts of which are not all ASCII."""
    folder = make_project(tmp_path_factory.mktemp("filled") / "acme", APP)
    with App.open(folder) as app:
        item, extra, loose = (app.registry().classes[name] for name in ("Item", "Extra", "Loose"))
        items = [
            (extra if at % 7 == 0 else item)(
                name=f"i{at * 37 % COUNT:04}", text=f"né {at} 👩‍🚀\n", size=at, tags=["b", "a,"]
            )
            for at in range(COUNT)
        ]
        app.context(actor="test").kg.save_all([*items, *(loose() for _ in range(40))])
    return folder


@pytest.fixture
def project(filled: Path, tmp_path: Path) -> Path:
    """A copy of it for one test."""
    return shutil.copytree(filled, tmp_path / "acme")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of few records, so that there are many."""
    monkeypatch.setattr(exports, "_RECORDS", 50)


def started(app: App, request: ExportRequest, actor: str = "ann", **more: object) -> Export:
    """An export of main."""
    limits = more.pop("limits", LIMITS)
    ctx = app.service().context(actor)
    return exports_of(app.graph()).start(ctx, request, limits, **{"limited": False, **more})


def content(app: App, export: Export) -> bytes:
    """All of a file, when it is there."""
    assert export.ended.wait(60)
    assert export.state == "done", export.describe()
    return b"".join(exports_of(app.graph()).read(export, 0, export.files.last.bytes))


def found(app: App, handle: str, actor: str = "ann") -> Export:
    """An export by its handle, which goes on."""
    return exports_of(app.graph()).find(actor, handle, OPEN, None)


# --- what is in the file ---------------------------------------------------------------------


@pytest.mark.parametrize("format", exports.FORMATS)
def test_a_job_writes_what_a_stream_writes(project: Path, format: str) -> None:
    """The same records, in another order."""
    with App.open(project) as app:
        ctx = app.context()
        streamed = b"".join(app.export(ctx, format))
        made = content(app, started(app, ExportRequest(format=format)))
    between = b"\n\n" if format == "turtle" else b"\r\n" if format == "csv" else b"\n"
    assert sorted(made.split(between)) == sorted(streamed.split(between))


def test_types_conditions_and_fields_limit_an_export(project: Path) -> None:
    """A subtype belongs to its type, and the key of a record is always there."""
    request = ExportRequest(types=("Item",), where={"size__gte": 690}, fields=("size",))
    with App.open(project) as app:
        export = started(app, request)
        lines = [json.loads(each) for each in content(app, export).splitlines()]
    assert {each["type"] for each in lines} == {"Item", "Extra"}
    assert sorted(each["data"]["size"] for each in lines) == list(range(690, COUNT))
    assert all(each["data"].keys() == {"name", "size"} for each in lines)
    assert export.describe().records == COUNT - 690


def test_an_export_of_some_fields_loads_into_the_same_graph(project: Path) -> None:
    """A merge keeps the fields that the file leaves out."""
    with App.open(project) as app:
        item = app.registry().classes["Item"]
        made = content(app, started(app, ExportRequest(types=("Item",), fields=("size",))))
        ctx = app.context(actor="test")
        one = item.get(ctx, "i0001")
        size, text, one.size = one.size, one.text, 99_999
        one.save(ctx)
        from trails import LoadRequest

        app.load(LoadRequest(files=([made],), format="ndjson"), actor="test")
        again = item.get(app.context(), "i0001")
        assert (again.size, again.text) == (size, text)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (ExportRequest(format="xml"), "there is no export format 'xml'"),
        (ExportRequest(types=("Nope",)), "there is no type 'Nope'"),
        (ExportRequest(where={"size": 1}), "needs types"),
        (ExportRequest(types=("Item",), where={"nope": 1}), "has no field 'nope'"),
        (ExportRequest(types=("Item",), where={"self": 1}), "has no field 'self'"),
        (ExportRequest(types=("Item",), where={"size": "x"}), "size"),
        (ExportRequest(types=("Item",), where={"next": "zz"}), "there is no Item 'zz'"),
        (ExportRequest(types=("Loose",), fields=("size",)), "no exported type has a field 'size'"),
    ],
)
def test_a_wrong_request_starts_nothing(
    project: Path, request_: ExportRequest, message: str
) -> None:
    """It is refused at once."""
    with App.open(project) as app:
        with pytest.raises((QueryError, NotFoundError), match=message):
            started(app, request_)
        assert not list((project / ".trails/graphs/main").glob("exports/*"))


def test_what_is_written_meanwhile_is_not_in_it(project: Path) -> None:
    """An export is of one commit, on a branch and as a snapshot."""
    with App.open(project) as app:
        before = content(app, started(app, ExportRequest()))
        item = app.registry().classes["Item"]
        manager = exports_of(app.graph())
        commit = app.context().kg.head.commit
        export = manager.start(app.service().context("bob"), ExportRequest(), LIMITS, limited=False)
        ctx = app.context(actor="test")
        ctx.kg.save_all(item(name=f"n{at}") for at in range(100))
        for each in item.objects(ctx).limit(100).fetch():
            each.delete(ctx)
        assert content(app, export) == before
        past = app.service().context("ann", snapshot=commit)
        snapshot = manager.start(past, ExportRequest(), LIMITS, limited=False)
        assert content(app, snapshot) == before
        assert content(app, started(app, ExportRequest())) != before


# --- kills, rebuilt indexes, damage ------------------------------------------------------------

KILLED = """
import os, signal, sys
from trails import App
from trails.engine.evidence import export_files, exports
from trails.engine.evidence.export_files import ExportRequest
folder, moment, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
exports._RECORDS = 50
count = 0
def count_down():
    global count
    count += 1
    if count > number:
        os.kill(os.getpid(), signal.SIGKILL)
def killing(function):
    def replaced(*given, **named):
        count_down()
        return function(*given, **named)
    return replaced
if moment == "checkpoint":  # the data is written, its checkpoint is not
    export_files._line = killing(export_files._line)
elif moment == "part":
    exports.Exports._check_size = killing(exports.Exports._check_size)
else:  # all is written and synced, the outcome is not
    export_files.ExportFiles._end = killing(export_files.ExportFiles._end)
with App.open(folder) as app:
    manager = exports.exports_of(app.graph())
    ctx = app.service().context("ann")
    request, limits = ExportRequest(format=sys.argv[4]), exports.ExportLimits()
    export = manager.start(ctx, request, limits, limited=False)
    print(export.spec.handle, flush=True)
    export.ended.wait()
"""


@pytest.mark.req("E7")
@pytest.mark.parametrize("format", ["ndjson", "turtle", "csv"])
@pytest.mark.parametrize(
    ("moment", "number"),
    [("checkpoint", 0), ("checkpoint", 6), ("part", 1), ("part", 9), ("end", 0)],
)
def test_a_killed_export_goes_on_to_the_same_bytes(
    project: Path, moment: str, number: int, format: str
) -> None:
    """Also if the index was rebuilt in between, which numbers nodes anew."""
    given = [str(project), moment, str(number), format]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *given], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    handle = killed.stdout.strip()
    if number % 2:
        for each in (project / ".trails/graphs/main").glob("nodes.db*"):
            each.unlink()
    with App.open(project) as app:
        export = found(app, handle)
        whole = content(app, started(app, ExportRequest(format=format), actor="bob"))
        assert content(app, export) == whole
        assert export.spec.handle == handle


@pytest.mark.parametrize("name", ["data", "checkpoints"])
@pytest.mark.parametrize("place", [0.01, 0.5, 0.99])
def test_damage_before_the_end_is_repaired(project: Path, name: str, place: float) -> None:
    """The damaged part, and what follows it, is written again."""
    given = [str(project), "part", "10", "ndjson"]
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, *given], capture_output=True, text=True, check=False
    )
    handle = killed.stdout.strip()
    flip(project / ".trails/graphs/main/exports" / handle / name, place)
    with App.open(project) as app:
        whole = content(app, started(app, ExportRequest(), actor="bob"))
        assert content(app, found(app, handle)) == whole


def flip(path: Path, place: float) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[int(len(data) * place)] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("place", [0.0, 0.5, 0.999])
def test_damage_to_a_finished_file_is_noticed_and_repaired(project: Path, place: float) -> None:
    """A reader gets an error, never the wrong bytes; later it gets the right ones."""
    with App.open(project) as app:
        export = started(app, ExportRequest())
        whole = content(app, export)
        flip(export.files.folder / "data", place)
        manager = exports_of(app.graph())
        with pytest.raises(BusyError, match="damaged on the disk"):
            list(manager.read(export, 0, len(whole)))
        assert content(app, export) == whole
        flip(export.files.folder / "data", place)
        with pytest.raises(BusyError, match="damaged on the disk"):
            "".join(manager.texts(export, 0))
        assert export.ended.wait(60)
        assert "".join(manager.texts(export, 0)) == whole.decode()


def test_an_export_whose_files_are_gone_is_written_again(project: Path) -> None:
    """All that an export needs is its request."""
    with App.open(project) as app:
        export = started(app, ExportRequest())
        whole = content(app, export)
        (export.files.folder / "data").unlink()
        with pytest.raises(BusyError):
            list(exports_of(app.graph()).read(export, 0, len(whole)))
        assert content(app, export) == whole


# --- reading -----------------------------------------------------------------------------


def test_any_range_is_a_part_of_the_whole(project: Path) -> None:
    """Of bytes, and of code points."""
    with App.open(project) as app:
        export = started(app, ExportRequest(where={"size__lt": 300}, types=("Item",)))
        whole = content(app, export)
        manager = exports_of(app.graph())
        size, text = len(whole), whole.decode()
        assert export.describe().chars == len(text) < size
        for start in (*range(0, size, 997), size - 1, size):
            for end in (start, start + 1, start + 5000, size):
                assert b"".join(manager.read(export, start, end)) == whole[start:end]
        for start in (*range(0, len(text), 1499), len(text) - 1, len(text)):
            assert "".join(manager.texts(export, start)) == text[start:]


# --- whose it is, how many, how long ---------------------------------------------------------


@pytest.mark.parametrize(
    "handle",
    ["", "x", "..", "../../log.db", "export-" + "0" * 32, "export-" + "A" * 32, "\0", "é" * 5000],
)
def test_an_unknown_handle_is_not_found(project: Path, handle: str) -> None:
    """Whatever it looks like, and in the same words as one of another actor."""
    with App.open(project) as app:
        mine = started(app, ExportRequest())
        errors = []
        for each, actor in ((handle, "ann"), (mine.spec.handle, "bob")):
            with pytest.raises(NotFoundError) as caught:
                found(app, each, actor)
            errors.append(caught.value.message.replace(repr(each[:100]), "H"))
        assert errors[0] == errors[1]


def test_actors_take_turns(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small export does not wait for the end of large ones of another actor."""
    order: list[str] = []
    finish = ExportFiles.finish

    def note(self: ExportFiles) -> None:
        order.append(f"{self.spec.actor} {self.spec.request.format}")
        finish(self)

    monkeypatch.setattr(ExportFiles, "finish", note)
    with App.open(project) as app:
        manager = exports_of(app.graph())
        with manager._lock:  # so that nothing begins before all are there
            large = [started(app, ExportRequest(format=each)) for each in ("ndjson", "turtle")]
            small = started(app, ExportRequest(types=("Loose",)), actor="bob")
        for each in (*large, small):
            assert each.ended.wait(60)
    assert order == ["bob ndjson", "ann ndjson", "ann turtle"]


def test_the_same_request_is_the_same_export(project: Path) -> None:
    """A call that is repeated, because its answer was lost, starts nothing new."""
    with App.open(project) as app:
        first = started(app, ExportRequest())
        assert started(app, ExportRequest()) is first
        assert started(app, ExportRequest(format="csv")) is not first
        assert started(app, ExportRequest(), actor="bob") is not first
        exports_of(app.graph()).discard(first)
        assert started(app, ExportRequest()) is not first


def test_many_callers_at_once_get_one_export(project: Path) -> None:
    """And no more of them than are allowed."""
    limits = ExportLimits(exports=3)
    with App.open(project) as app, ThreadPoolExecutor(16) as pool:
        same = list(pool.map(lambda _: started(app, ExportRequest()), range(32)))
        assert len({each.spec.handle for each in same}) == 1

        def other(at: int) -> object:
            request = ExportRequest(types=("Item",), where={"size": at})
            try:
                return started(app, request, "bob", limits=limits, limited=True)
            except BudgetError as error:
                return error

        found = list(pool.map(other, range(32)))
        assert sum(isinstance(each, Export) for each in found) == 3
        for each in (*same, *found):
            if isinstance(each, Export):
                content(app, each)


def test_an_export_expires(project: Path) -> None:
    """When it has said so; its files are gone then, also after a restart."""
    with App.open(project) as app:
        manager = exports_of(app.graph())
        now = [1e9]
        manager.now = lambda: now[0]
        kept = started(app, ExportRequest(), limits=ExportLimits(hours=48))
        gone = started(app, ExportRequest(format="csv"))
        content(app, gone)
        assert gone.describe().expires == "2001-09-10T01:46:40Z"
        now[0] += 24 * 3600 - 1
        assert found(app, gone.spec.handle) is gone
        now[0] += 1
        assert manager.sweep(dry_run=True) == [gone.spec.handle]
        with pytest.raises(NotFoundError):
            found(app, gone.spec.handle)
        assert [each.name for each in gone.files.folder.parent.iterdir()] == [kept.spec.handle]
    with App.open(project) as app, pytest.raises(NotFoundError):
        found(app, kept.spec.handle)


def test_the_thread_removes_what_expires(project: Path) -> None:
    """Nobody has to ask for it."""
    with App.open(project) as app:
        export = started(app, ExportRequest(), limits=ExportLimits(hours=0))
        assert export.ended.wait(60)
        thread = exports_of(app.graph())._thread
        if thread is not None:
            thread.join(60)
            assert not thread.is_alive()
        assert not export.files.folder.exists()


def test_the_number_of_exports_is_limited(project: Path) -> None:
    """For each actor with a credential; one that is discarded makes room."""
    limits = ExportLimits(exports=2)
    with App.open(project) as app:
        first, _ = (
            started(app, ExportRequest(format=each), limits=limits, limited=True)
            for each in ("ndjson", "csv")
        )
        with pytest.raises(BudgetError, match=r"2 exports .* discard one") as caught:
            started(app, ExportRequest(format="turtle"), limits=limits, limited=True)
        assert caught.value.data["limit"] == "exports"
        started(app, ExportRequest(format="turtle"), "bob", limits=limits, limited=True)
        content(app, first)
        exports_of(app.graph()).discard(first)
        assert not first.files.folder.exists()
        started(app, ExportRequest(format="turtle"), limits=limits, limited=True)


def test_the_size_of_exports_is_limited(project: Path) -> None:
    """An export that would be larger fails, and leaves nothing behind."""
    limits = ExportLimits(bytes=1 << 14)
    with App.open(project) as app:
        export = started(app, ExportRequest(), limits=limits, limited=True)
        assert export.ended.wait(60)
        assert export.state == "failed"
        assert export.describe().error.code == "budget"
        assert export.files.size() == 0
    with App.open(project) as app:
        assert found(app, export.spec.handle).state == "failed"


def test_a_full_disk_is_said(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is written, and when it begins."""
    opened = ExportFiles.open

    def full(self: ExportFiles) -> None:
        opened(self)
        self._data.close()
        self._data = Path("/dev/full").open("ab")  # noqa: SIM115 - closed by what is tested

    with App.open(project) as app:
        monkeypatch.setattr(ExportFiles, "open", full)
        export = started(app, ExportRequest())
        assert export.ended.wait(60)
        error = export.describe().error
        assert error.code == "storage_full"
        assert "no space left" in error.message
        monkeypatch.undo()
        assert started(app, ExportRequest()) is not export

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(export_files, "create_file", refuse)
        with pytest.raises(StorageFullError):
            started(app, ExportRequest(format="csv"))


def test_files_are_private(project: Path) -> None:
    """Whatever the umask is."""
    before = os.umask(0)
    try:
        with App.open(project) as app:
            export = started(app, ExportRequest())
            content(app, export)
    finally:
        os.umask(before)
    folder = export.files.folder
    for path in (folder.parent, folder, *folder.iterdir()):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_it_does_not_hold_the_writers_lock(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write in the middle of a part is not waited for."""
    written: list[object] = []
    with App.open(project) as app:
        item = app.registry().classes["Item"]
        step = exports._Writing.step

        def writing(self: object) -> bool:
            node = item(name=f"meanwhile {len(written)}")
            node.save(app.context(actor="test"))
            written.append(node)
            return step(self)

        before = content(app, started(app, ExportRequest(), actor="bob"))
        monkeypatch.setattr(exports._Writing, "step", writing)
        assert content(app, started(app, ExportRequest())) == before
    assert len(written) > 10


def test_a_graph_in_memory_exports_too() -> None:
    """Its files are gone with it."""
    with App() as app, pytest.raises(QueryError, match="no commits"):
        started(app, ExportRequest())


def test_a_read_only_graph_exports_too(project: Path) -> None:
    """It changes nothing in its folder."""
    with App.open(project, read_only=True) as app:
        export = started(app, ExportRequest())
        assert len(content(app, export).splitlines()) == COUNT + 40
        folder = export.files.folder
        assert project not in folder.parents
    assert not folder.exists()
    assert not (project / ".trails/graphs/main/exports").exists()


def test_an_unfinished_creation_is_removed(project: Path) -> None:
    """A folder without a request can't be continued."""
    folder = project / ".trails/graphs/main/exports"
    for name in ("export-" + "1" * 32, "other"):
        (folder / name).mkdir(parents=True)
        (folder / name / "data").write_text("x")
    with App.open(project) as app:
        Exports(app.graph())
        assert not list(folder.iterdir())
