"""Views that were damaged, deleted, aged or swapped are detected and folded from the log again.

SQLite keeps no checksums of its pages, so what is promised for the node index is that damage
to its structure, and documents that are not what was stored, are found when they are read;
``verify`` compares everything with the log.
"""

import os
import random
import re
import shutil
import sqlite3
import threading
from functools import partial

import pytest
from tests.campaigns import sized
from tests.journeys.durability.campaign import (
    BULK,
    SEGMENT,
    assert_sound,
    bulk,
    fold,
    fresh_seed,
    graph_folder,
    items_of,
    make_project,
    next_operation,
    perform,
    values_of,
)
from tests.worlds.processes import PATIENCE

from trails import App
from trails.engine.upkeep.verify import verify
from trails.errors import CorruptionError
from trails.model.history import Position
from trails.views.quads.view import QuadsView

PAGE = 4096


def fill(project, seed, operations=35):
    """A project with some history, closed; the items that it holds."""
    items = {}
    rng = random.Random(seed)
    with App.open(make_project(project)) as app:
        item_type = app.registry().classes["Item"]
        for number in range(operations):
            operation = next_operation(rng, sorted(items), number)
            if number in {5, 20} or "bulk" in operation:
                operation = bulk(SEGMENT, number)
            perform(app.context(), item_type, operation)
            items = fold(items, operation)
    return items


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A filled project and its items, made once."""
    project = tmp_path_factory.mktemp("original") / "project"
    return project, fill(project, 11)


@pytest.fixture
def project(original, tmp_path):
    """A copy that a test may damage."""
    return shutil.copytree(original[0], tmp_path / "project")


@pytest.fixture
def branch(project):
    """Where the views are."""
    return graph_folder(project) / "branches" / "main"


def nodes_of(branch):
    """The node index, which all branches share."""
    return branch.parents[1] / "nodes.db"


def delete_nodes(branch, rng):
    """No node index."""
    nodes_of(branch).unlink()


def delete_quads(branch, rng):
    """No quads view."""
    shutil.rmtree(branch / "quads")


def delete_both(branch, rng):
    """No views."""
    shutil.rmtree(branch)
    nodes_of(branch).unlink()


def empty_nodes(branch, rng):
    """A node index of no bytes."""
    os.truncate(nodes_of(branch), 0)


def truncate_nodes(branch, rng):
    """A node index cut off at any byte."""
    os.truncate(nodes_of(branch), rng.randrange(1, nodes_of(branch).stat().st_size))


def no_database(branch, rng):
    """Noise in the place of the node index."""
    nodes_of(branch).write_bytes(rng.randbytes(50_000))


def other_database(branch, rng):
    """Some other program's SQLite file."""
    nodes_of(branch).unlink()
    db = sqlite3.connect(nodes_of(branch))
    db.execute("CREATE TABLE meta (a, b, c)")
    db.close()


def no_position(branch, rng):
    """A node index that does not say how far it is."""
    db = sqlite3.connect(nodes_of(branch))
    db.execute("DELETE FROM layers")
    db.commit()
    db.close()


def spoil_first_pages(branch, rng):
    """Noise over the tables that are read when the index is opened."""
    with nodes_of(branch).open("r+b") as file:
        file.seek(PAGE)
        file.write(rng.randbytes(4 * PAGE))


def flip_sorted_files(branch, rng):
    """Flipped bytes all over RocksDB's sorted files."""
    for path in (branch / "quads").glob("*.sst"):
        data = bytearray(path.read_bytes())
        for _ in range(max(3, len(data) // 2000)):
            data[rng.randrange(len(data))] ^= 0xFF
        path.write_bytes(data)


def delete_sorted_file(branch, rng):
    """One of RocksDB's sorted files gone."""
    max((branch / "quads").glob("*.sst"), key=lambda path: path.stat().st_size).unlink()


def truncate_manifest(branch, rng):
    """RocksDB's list of files, cut off anywhere."""
    (manifest,) = (branch / "quads").glob("MANIFEST-*")
    os.truncate(manifest, rng.randrange(manifest.stat().st_size))


def flip_manifest(branch, rng):
    """A flipped byte in RocksDB's list of files."""
    (manifest,) = (branch / "quads").glob("MANIFEST-*")
    data = bytearray(manifest.read_bytes())
    data[len(data) // 2] ^= 0xFF
    manifest.write_bytes(data)


def spoil_current(branch, rng):
    """Noise where RocksDB names its list of files."""
    (branch / "quads" / "CURRENT").write_text("nonsense")


def file_for_folder(branch, rng):
    """A file where the quads view's folder should be."""
    shutil.rmtree(branch / "quads")
    (branch / "quads").write_text("a file")


DAMAGES = [
    delete_nodes,
    delete_quads,
    delete_both,
    empty_nodes,
    truncate_nodes,
    no_database,
    other_database,
    no_position,
    spoil_first_pages,
    flip_sorted_files,
    delete_sorted_file,
    truncate_manifest,
    flip_manifest,
    spoil_current,
    file_for_folder,
]


def assert_right(project, items):
    """Opening and reading gives what the log says."""
    with App.open(project) as app:
        assert items_of(app) == items
        assert values_of(app) == {code: state[0] for code, state in items.items()}
        assert_sound(app)


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_damaged_view_is_rebuilt(project, branch, original, damage):
    """Whatever happened to the files of a view while it was closed, reads are right."""
    damage(branch, random.Random(fresh_seed()))
    assert_right(project, original[1])


def test_a_shortened_manifest_is_found_wherever_it_ends(tmp_path):
    """RocksDB takes it for an older state, and replays newer updates on top; we do not."""
    project, items = make_project(tmp_path / "project"), {}
    with App.open(project) as app:
        for operation in (bulk(BULK, 1), *(single(number) for number in range(3))):
            perform(app.context(), app.registry().classes["Item"], operation)
            items = fold(items, operation)
    for tenths in range(1, 10):
        copy = shutil.copytree(project, tmp_path / f"copy-{tenths}")
        quads = graph_folder(copy) / "branches" / "main" / "quads"
        (manifest,) = quads.glob("MANIFEST-*")
        os.truncate(manifest, manifest.stat().st_size * tenths // 10)
        with App.open(copy) as app:
            assert values_of(app) == {code: state[0] for code, state in items.items()}


def single(number):
    """The operation that saves one more item."""
    return {"how": "save", "puts": {f"late-{number}": [number, None, []]}, "deletes": []}


@pytest.mark.parametrize("pages", [1, 5, 40])
def test_noise_over_pages_of_the_node_index_is_found(project, branch, original, pages):
    """Reads that meet an unreadable page rebuild the index, and answer right."""
    spoil_pages(nodes_of(branch), pages, random.Random(fresh_seed()))
    with App.open(project) as app:
        assert items_of(app) == original[1]


@pytest.mark.long(cases=sized(100, nightly=10))
def test_noise_over_pages_of_the_node_index_is_found_many_times(original, tmp_path):
    """The same for many choices of pages."""
    rng = random.Random(fresh_seed())
    for number in range(sized(100, nightly=10)):
        project = shutil.copytree(original[0], tmp_path / f"project-{number}")
        path = graph_folder(project) / "nodes.db"
        spoil_pages(path, rng.randint(1, 60), rng)
        with App.open(project) as app:
            assert items_of(app) == original[1]
        shutil.rmtree(project)


def spoil_pages(path, count, rng):
    """Write noise over random pages, the first excepted."""
    with path.open("r+b") as file:
        for page in rng.sample(range(1, path.stat().st_size // PAGE), count):
            file.seek(page * PAGE)
            file.write(rng.randbytes(PAGE))


def test_a_flipped_bit_in_a_value_of_the_node_index_is_found(project, branch, original):
    """A document has a checksum: the index is made anew, and the right value is answered."""
    rng, content = random.Random(fresh_seed()), nodes_of(branch).read_bytes()
    places = [found.end() - 1 for found in re.finditer(rb'"value":\d', content)]
    for at in (rng.choice(places), rng.choice(places) - len('"value":'), places[-1] - 3):
        spoilt = bytearray(content)
        spoilt[at] ^= 1
        for path in branch.parents[1].glob("nodes.db*"):
            path.unlink()
        nodes_of(branch).write_bytes(spoilt)
        with App.open(project) as app:
            assert items_of(app) == original[1]
        assert nodes_of(branch).read_bytes() != bytes(spoilt)


def test_a_handle_that_names_another_node_is_found(project, branch, original):
    """The checksum of a document is also one of the handle that it is for."""
    db = sqlite3.connect(nodes_of(branch))
    db.execute("UPDATE nodes SET handle = handle || 'x' WHERE nid = (SELECT max(nid) FROM nodes)")
    db.commit()
    db.close()
    with App.open(project) as app:
        assert items_of(app) == original[1]


def test_a_write_that_meets_damage_is_refused_and_the_next_one_lands(project, branch, original):
    """No write is based on an unreadable index, and the index is rebuilt for the next."""
    spoil_pages(nodes_of(branch), nodes_of(branch).stat().st_size // PAGE // 2, random)
    with App.open(project) as app:
        ctx, item_type = app.context(), app.registry().classes["Item"]
        head = ctx.kg.head
        failed = 0
        for number in range(20):
            try:
                item_type(code=f"new-{number}", value=number).save(ctx)
            except CorruptionError:
                failed += 1
                assert ctx.kg.head == head
            head = ctx.kg.head
        assert failed <= 1
        new = {f"new-{n}": [n, None, []] for n in range(failed, 20)}
        assert items_of(app) == original[1] | new
        assert_sound(app)


def test_views_that_are_older_than_the_log_catch_up(project, branch, original, tmp_path):
    """A copy of the views from before some commits follows the log from where it was."""
    old = shutil.copytree(branch, tmp_path / "old")
    items = dict(original[1])
    with App.open(project) as app:
        for number in range(5):
            perform(app.context(), app.registry().classes["Item"], single(number))
            items = fold(items, single(number))
    shutil.rmtree(branch)
    shutil.copytree(old, branch)
    assert_right(project, items)


def test_views_that_are_newer_than_the_log_prove_a_loss(project, branch, original, tmp_path):
    """Beside an older copy of the log they are kept and read, and nothing is written."""
    log = graph_folder(project) / "log.db"
    kept = shutil.copy(log, tmp_path / "log.db")
    with App.open(project) as app:
        item_type = app.registry().classes["Item"]
        item_type(code="lost", value=1).save(app.context())
    shutil.copy(kept, log)
    with App.open(project) as app:
        assert app.graph().status == "behind"
        assert items_of(app) == original[1] | {"lost": [1, None, []]}


def test_the_views_of_another_graph_are_rebuilt(project, branch, original, tmp_path):
    """A foreign history is recognised by its commits."""
    fill(tmp_path / "other", 99, operations=12)
    shutil.rmtree(branch)
    shutil.copytree(graph_folder(tmp_path / "other") / "branches" / "main", branch)
    assert_right(project, original[1])


def test_statements_without_a_position_are_not_believed(project, branch, original):
    """A store that someone else filled is emptied before the log is applied."""
    import pyoxigraph as ox

    shutil.rmtree(branch / "quads")
    (branch / "quads.closed").unlink()
    store = ox.Store(branch / "quads")
    store.add(ox.Quad(ox.NamedNode("x:s"), ox.NamedNode("x:p"), ox.Literal("foreign")))
    store.flush()
    del store
    assert_right(project, original[1])


def spoil_blob(project):
    """Flip one bit in the statements of a commit."""
    log = graph_folder(project) / "log.db"
    db = sqlite3.connect(log)
    seq, blob = db.execute(
        "SELECT seq, added FROM commits WHERE length(added) > 60 ORDER BY seq LIMIT 1"
    ).fetchone()
    db.close()
    data = log.read_bytes()
    assert data.count(blob) == 1
    at = data.index(blob) + len(blob) // 2
    log.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
    return seq


def test_a_flipped_bit_in_the_log_is_found_by_verifying(project):
    """Verification names the commit; the views, which are right, go on answering."""
    seq = spoil_blob(project)
    with App.open(project) as app:
        graph = app.graph()
        (damaged,) = [commit for commit in graph.log.commits() if commit.seq == seq]
        problems = [each for each in verify(graph, lambda text: None) if each.severity != "ok"]
        assert [each.name for each in problems] == ["commit chain"]
        assert damaged.id in problems[0].detail
        assert items_of(app)


@pytest.mark.parametrize("damage", [delete_nodes, delete_quads], ids=lambda each: each.__name__)
def test_a_damaged_log_is_never_folded_into_a_view(project, branch, damage):
    """When a view would have to be made of damaged statements, opening says so instead."""
    spoil_blob(project)
    damage(branch, random)
    with pytest.raises(CorruptionError, match="trails verify"):
        App.open(project)


@pytest.mark.parametrize("how", ["flip", "cut", "delete"])
def test_a_damaged_segment_is_never_folded_into_a_view(project, branch, how):
    """The same for the files that hold large deltas."""
    segment = max((graph_folder(project) / "segments").iterdir(), key=lambda p: p.stat().st_size)
    data = bytearray(segment.read_bytes())
    if how == "flip":
        data[len(data) // 2] ^= 1
        segment.write_bytes(data)
    elif how == "cut":
        segment.write_bytes(data[: len(data) // 2])
    else:
        segment.unlink()
    shutil.rmtree(branch)
    with pytest.raises(CorruptionError, match="trails verify"):
        App.open(project)


def test_reads_during_a_rebuild_are_right(project, original):
    """Threads that read while both views are folded again see the whole graph or wait."""
    import threading

    items = original[1]
    values = {code: state[0] for code, state in items.items()}
    wrong, rounds = [], []

    def read(app, done):
        while not done.is_set():
            try:
                if items_of(app) != items or values_of(app) != values:
                    wrong.append("another state")
            except Exception as error:  # noqa: BLE001 - handed to the test
                wrong.append(error)
            rounds.append(1)

    with App.open(project) as app:
        done = threading.Event()
        threads = [threading.Thread(target=read, args=(app, done)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for _ in range(2):
            app.graph().rebuild()
        done.set()
        for thread in threads:
            thread.join()
        assert_sound(app)
    assert not wrong
    assert rounds


def test_flushes_and_checkpoints_of_a_store_take_turns(tmp_path):
    """RocksDB would wait for ever where two of them meet."""
    view = QuadsView(tmp_path / "quads")
    for number in range(6):
        lines = (
            f'<http://a/{number}-{each}> <http://b> "a text, {each}" .' for each in range(3000)
        )
        view.apply(Position(number + 1, f"c{number}"), b"", "\n".join(lines).encode())
        work = [view.flush, partial(view.checkpoint, tmp_path / f"copy-{number}"), view.flush]
        threads = [threading.Thread(target=each, daemon=True) for each in work]
        for thread in threads:
            thread.start()
        view.apply(Position(number + 1, f"d{number}"), b"", b'<http://a> <http://b> "c" .')
        for thread in threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()
    view.close()


def test_messages_of_the_store_do_not_pile_up(tmp_path):
    """Every opening leaves a file of them, and the next one removes it."""
    for _ in range(4):
        QuadsView(tmp_path / "quads").close()
    assert len([*(tmp_path / "quads").glob("LOG*")]) <= 2
