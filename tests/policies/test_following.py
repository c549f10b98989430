"""Policies, tokens and declarations that change while a graph is served."""

import logging
import os
import threading
import time

import pytest
from tests.worlds.projects import READERS, make_acme

from trails import App, Node, node_type, predicate
from trails.app import policies as policy_files
from trails.errors import PolicyError
from trails.model.actors import Actor
from trails.model.decisions import ALLOW_ALL, Resource

GRAPH = Resource("Graph", "main")
READER = Actor("bo", groups=frozenset({"readers"}))
WRITER = Actor("cy", groups=frozenset({"writers"}))
WRITERS = READERS.replace("readers", "writers")
ADMIN = 'permit(principal, action == Action::"Admin", resource);\n'


def look_again(judge):
    """As if a second had passed."""
    judge._next_look = 0.0


def write(folder, name, text, *, age=5.0):
    """Write a policy file, some seconds ago; the time differs from file to file."""
    path = folder / "policies" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text, encoding="utf-8")
    then = time.time() - age
    os.utime(path, (then, then))
    os.utime(path.parent, (then, then))


@pytest.fixture
def folder(tmp_path):
    """A project with one policy."""
    made = make_acme(tmp_path / "acme")
    write(made, "a.cedar", READERS, age=60)
    return made


def test_an_edited_policy_holds_within_seconds(folder):
    """Nothing is restarted; what was decided before does not stay."""
    with App.open(folder) as app:
        judge = app.policies.judge("main")
        before = judge.version
        assert judge.allows(READER, "Read", GRAPH, "main")
        assert judge.allows_somewhere(READER, "Read", GRAPH, ["main", "dev"])
        (folder / "policies" / "a.cedar").write_text(WRITERS, encoding="utf-8")
        deadline = time.monotonic() + 60
        while judge.allows(READER, "Read", GRAPH, "main") and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not judge.allows(READER, "Read", GRAPH, "main")
        assert not judge.allows_somewhere(READER, "Read", GRAPH, ["main", "dev"])
        assert judge.allows(WRITER, "Read", GRAPH, "main")
        assert judge.version != before


def test_files_are_looked_at_once_a_second(folder, monkeypatch):
    """Thousands of decisions cost one look."""
    with App.open(folder) as app:
        judge = app.policies.judge("main")
        looks = []
        look = type(judge._files).look
        monkeypatch.setattr(
            type(judge._files), "look", lambda files: looks.append(files) or look(files)
        )
        begin = time.monotonic()
        look_again(judge)
        for _ in range(2000):
            judge.allows(READER, "Read", GRAPH, "main")
        assert 1 <= len(looks) <= 2 + (time.monotonic() - begin)


def test_new_and_deleted_files_count(folder):
    """A file that is added adds, one that is deleted takes away."""
    with App.open(folder) as app:
        judge = app.policies.judge("main")
        write(folder, "b.cedar", WRITERS)
        look_again(judge)
        assert judge.allows(WRITER, "Read", GRAPH, "main")
        (folder / "policies" / "b.cedar").unlink()
        os.utime(folder / "policies", (1, 1))
        look_again(judge)
        assert not judge.allows(WRITER, "Read", GRAPH, "main")
        assert judge.allows(READER, "Read", GRAPH, "main")


@pytest.mark.parametrize(
    "broken",
    ["permit(", 'permit(principal, action == Action::"Raed", resource);', b"\xff\xfe", None],
    ids=["syntax", "a name", "no text", "a folder"],
)
def test_a_broken_edit_leaves_the_last_good_policies(folder, broken, caplog):
    """It is logged, once, and not taken; a good one after it is."""
    with App.open(folder) as app, caplog.at_level(logging.WARNING, "trails"):
        judge = app.policies.judge("main")
        version = judge.version
        path = folder / "policies" / "b.cedar"
        if broken is None:
            path.mkdir()
        else:
            path.write_bytes(broken if isinstance(broken, bytes) else broken.encode())
        os.utime(path, (1, 1))
        os.utime(path.parent, (1, 1))
        for _ in range(3):
            look_again(judge)
            assert judge.allows(READER, "Read", GRAPH, "main")
            assert not judge.allows(WRITER, "Read", GRAPH, "main")
        assert judge.version == version
        told = [each.getMessage() for each in caplog.records if "last good" in each.getMessage()]
        assert len(told) == 1
        assert "b.cedar" in told[0]
        path.rmdir() if broken is None else path.unlink()
        write(folder, "b.cedar", WRITERS)
        look_again(judge)
        assert judge.allows(WRITER, "Read", GRAPH, "main")


def test_a_file_that_is_being_written_is_not_taken(folder, monkeypatch):
    """Between emptying a file and filling it nobody is let in, and nobody shut out."""
    monkeypatch.setattr(policy_files, "_SETTLED", 60_000_000_000)
    write(folder, "b.cedar", 'forbid(principal, action == Action::"Read", resource);')
    with App.open(folder) as app:
        judge = app.policies.judge("main")
        assert not judge.allows(READER, "Read", GRAPH, "main")
        write(folder, "b.cedar", "", age=0)
        look_again(judge)
        assert not judge.allows(READER, "Read", GRAPH, "main")
        write(folder, "b.cedar", "", age=100)
        look_again(judge)
        assert judge.allows(READER, "Read", GRAPH, "main")


def test_policies_that_are_gone_do_not_open_a_graph(folder, caplog):
    """Whoever deletes all policies while a graph is served changes nothing."""
    with App.open(folder) as app:
        judge = app.policies.judge("main")
        (folder / "policies" / "a.cedar").unlink()
        os.utime(folder / "policies", (1, 1))
        for _ in range(2):
            look_again(judge)
            assert judge.mode == "policies"
            assert not judge.allows(WRITER, "Change", GRAPH, "main")
        assert "all policies were removed" in caplog.text
        write(folder, "c.cedar", WRITERS)
        look_again(judge)
        assert judge.allows(WRITER, "Read", GRAPH, "main")


def test_the_first_policy_closes_an_open_graph(tmp_path):
    """From open to what the policy says."""
    folder = make_acme(tmp_path)
    with App.open(folder) as app:
        judge = app.policies.judge("main")
        assert judge.version == ALLOW_ALL.version
        assert app.policies.server().allows(WRITER, "GraphList", Resource("Server", "trails"))
        write(folder, "a.cedar", READERS)
        look_again(judge)
        look_again(app.policies.server())
        assert not judge.allows(WRITER, "Read", GRAPH, "main")
        assert judge.allows(READER, "Read", GRAPH, "main")
        assert not app.policies.server().allows(WRITER, "GraphList", Resource("Server", "trails"))


def test_the_first_token_makes_a_graph_read_only(tmp_path):
    """Where there are no policies."""
    tokens = []
    with App.open(make_acme(tmp_path), guarded=lambda: bool(tokens)) as app:
        judge = app.policies.judge("main")
        assert judge.allows(WRITER, "Change", GRAPH, "main")
        tokens.append("one")
        look_again(judge)
        assert not judge.allows(WRITER, "Change", GRAPH, "main")
        assert judge.allows(WRITER, "Read", GRAPH, "main")


def test_new_declarations_are_known_at_once(folder):
    """A type that was denied because there was none is decided by policy when there is one."""
    write(folder, "b.cedar", 'forbid(principal, action, resource in Type::"Room");')
    with App.open(folder) as app:
        judge = app.policies.judge("main")
        version = judge.version
        car = Resource("Type", "Car")
        assert not judge.allows(READER, "Read", car, "main")

        @node_type
        class Car(Node):
            """Takes people home."""

            plate: str = predicate(key=True)

        app.register(Car)
        assert judge.allows(READER, "Read", car, "main")
        assert judge.version != version


def test_many_threads_see_one_answer_after_another(folder):
    """While policies change, every answer is that of the old or of the new ones."""
    with App.open(folder) as app:
        judge = app.policies.judge("main")
        problems = []
        stop = threading.Event()

        def ask():
            while not stop.is_set():
                look_again(judge)
                if judge.allows(WRITER, "Admin", GRAPH, "main"):
                    problems.append("allowed what no policy ever permitted")

        threads = [threading.Thread(target=ask) for _ in range(4)]
        for each in threads:
            each.start()
        for number in range(12):
            write(folder, "a.cedar", WRITERS if number % 2 else READERS, age=100 - number)
            time.sleep(0.02)
        stop.set()
        for each in threads:
            each.join()
        look_again(judge)
        assert judge.allows(WRITER, "Read", GRAPH, "main")
        assert not problems


def test_a_folder_that_can_not_be_read_changes_nothing(folder, monkeypatch, caplog):
    """It is logged once, and the last good policies stay."""
    with App.open(folder) as app:
        judge = app.policies.judge("main")

        def refuse(path):
            raise PermissionError(13, "Permission denied", str(path))

        monkeypatch.setattr(type(folder), "iterdir", refuse)
        for _ in range(3):
            look_again(judge)
            assert judge.allows(READER, "Read", GRAPH, "main")
            assert not judge.allows(WRITER, "Read", GRAPH, "main")
        assert caplog.text.count("can't be read: Permission denied") == 1


SERVER = '[project]\nname = "acme"\n[server]\npolicies = "server"\n[graphs.main]\n'


def test_the_server_has_policies_of_its_own(tmp_path):
    """They decide who may list the graphs."""
    folder = make_acme(tmp_path, settings=SERVER)
    (folder / "server").mkdir()
    (folder / "server" / "a.cedar").write_text(
        'permit(principal in Group::"readers", action == Action::"GraphList", resource);'
    )
    with App.open(folder) as app:
        server = app.policies.server()
        assert server.allows(READER, "GraphList", Resource("Server", "trails"))
        assert not server.allows(WRITER, "GraphList", Resource("Server", "trails"))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (SERVER, "'server' does not exist"),
        (SERVER.replace('"server"', '"app.py"'), "'app.py' is not a folder"),
    ],
)
def test_a_folder_that_is_named_exists(tmp_path, settings, told):
    """A misspelled folder does not mean that there are no policies."""
    with (
        App.open(make_acme(tmp_path, settings=settings)) as app,
        pytest.raises(PolicyError, match=told),
    ):
        app.policies.server()


def test_a_misspelled_folder_quarantines_the_graph(tmp_path):
    """Likewise for a graph."""
    settings = '[project]\nname = "acme"\n[graphs.main]\npolicies = "polices"\n'
    with App.open(make_acme(tmp_path, settings=settings)) as app:
        assert "'polices' does not exist" in app.quarantined["main"].message


def test_files_of_editors_are_not_policies(folder):
    """What begins with a dot or ends otherwise is left alone."""
    for name in (".a.cedar", "a.cedar~", "a.cedar.bak", "tests.toml"):
        (folder / "policies" / name).write_text("nonsense")
    (folder / "policies" / ".#a.cedar").symlink_to("nowhere")
    with App.open(folder) as app:
        assert not app.quarantined


def test_a_project_that_was_opened_without_its_code_denies(folder):
    """What is declared is not known then, so no policy can be asked about it."""
    with App.open(folder, declarations=False) as app:
        assert not app.policies.judge("main").allows(READER, "Read", GRAPH, "main")
