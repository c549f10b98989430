"""Projects whose log moves to PostgreSQL and back, and backups that are restored there."""

import json
import shutil

import pytest
from tests.journeys.durability.campaign import graph_folder, make_project
from tests.journeys.durability.test_postgres_log import load, run
from tests.worlds.processes import Web, run_command

from trails import App
from trails.app.local import LocalOperations
from trails.app.upkeep import put_back
from trails.engine.upkeep import log_moves
from trails.engine.upkeep.verify import verify
from trails.errors import StorageError
from trails.log.postgres.rows import PostgresRows
from trails.model.upkeep import RestoreRequest
from trails.surfaces.cli import commands
from trails.surfaces.cli.output.plain import INTERRUPTED


@pytest.fixture
def url(postgres):
    """An empty schema, with a password that nobody asks for."""
    return postgres.schema().replace("postgres:@", "postgres:geheim@")


@pytest.fixture
def project(tmp_path):
    """A project with some history in its folder."""
    folder = make_project(tmp_path / "p")
    load(folder, "a", "b")
    run(folder, "branch", "create", "side")
    load(folder, "c", branch="side")
    return folder


def name_server(folder, url=""):
    """Let the settings say where the log is."""
    text = (folder / "trails.toml").read_text().split("\n[graphs.main.log]")[0]
    log = f'\n[graphs.main.log]\nurl = "{url}"\n' if url else ""
    (folder / "trails.toml").write_text(text + log)


def refused(folder, *arguments):
    """The error of a command that fails."""
    done = run_command(arguments, folder)
    assert done.returncode == 2
    assert "geheim" not in done.stdout + done.stderr
    return done.stderr


def opened(folder):
    """What opening a graph reports, its history, and what is wrong with it."""
    told = []
    with App.open(folder, progress=told.append) as app:
        graph = app.graph()
        app.open_views()
        wrong = [each for each in verify(graph, lambda _: None) if each.severity == "problem"]
        return told, list(graph.log.commits()), wrong


def test_a_log_moves_and_nothing_is_folded_again(project, url):
    """To the server and back by command: the same data, views as they were, verify is clean."""
    before, (told, commits, _) = run(project, "export"), opened(project)
    said = run(project, "log", "copy", "--to", url)
    assert "PostgreSQL" in said
    assert "[graphs.main.log]" in said
    assert "unused-log" in said
    for command in ("export", "recover", "verify"):
        assert "TRAILS_LOG_URL" in (done := run_command((command,), project)).stdout + done.stderr
        assert done.returncode
    assert not (graph_folder(project) / "log.db").exists()
    name_server(project, url)
    assert opened(project) == (told, commits, [])
    assert run(project, "export") == before
    assert "already" in run(project, "log", "copy", "--to", "postgresql")
    load(project, "d")
    before, (told, commits, _) = run(project, "export"), opened(project)
    done = json.loads(run(project, "log", "copy", "--to", "file", "--graph", "main", "--json"))
    assert done["graphs"]["main"]["commits"] == len(commits)
    assert done["graphs"]["main"]["copied"] == 1
    assert "one log" in refused(project, "export")
    name_server(project)
    assert opened(project) == (told, commits, [])
    assert run(project, "export") == before
    load(project, "e")
    other = make_project(project.with_name("q"))
    name_server(other, url)
    assert "is not in use" in refused(other, "export")


def test_a_project_that_is_served_keeps_its_log(project, url):
    """The command says what to stop."""
    with Web(project):
        assert "needs exclusive access" in refused(project, "log", "copy", "--to", url)
    assert (graph_folder(project) / "log.db").exists()


def test_mistakes_name_what_to_change(project, url):
    """No URL, another kind of database, another base IRI, no graph of that name."""
    assert "TRAILS_LOG_URL" in refused(project, "log", "copy", "--to", "postgresql")
    assert "--to" in refused(project, "log", "copy", "--to", "mysql://root:geheim@h/d")
    assert "there is no graph" in refused(project, "log", "copy", "--to", url, "--graph", "x")
    text = (project / "trails.toml").read_text()
    (project / "trails.toml").write_text(f'{text}\n[graphs.main]\nbase_iri = "http://x.org/"\n')
    assert "set base_iri" in refused(project, "log", "copy", "--to", url)


def test_ctrl_c_says_how_to_go_on(project, url, monkeypatch, capsys):
    """With the exit code of an interrupted command."""

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(PostgresRows, "add_commits", interrupted)
    arguments = ["log", "copy", "--to", url, "--project", str(project)]
    assert commands.run_command(LocalOperations(), arguments) == INTERRUPTED
    assert "run the command again" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["file", "postgresql"])
def test_a_backup_of_either_log_is_restored_as_either(project, url, postgres, source):
    """Also as of an earlier commit; never over a log that is there."""
    place = project.with_name("backup")
    if source == "postgresql":
        run(project, "log", "copy", "--to", url)
        name_server(project, url)
    before, (_, commits, _) = run(project, "export"), opened(project)
    run(project, "backup", str(place))
    for at in [(), ("--at", "1")] if source == "file" else [()]:
        other = make_project(project.with_name(f"other{len(at)}"))
        name_server(other, postgres.schema())
        run(other, "restore", str(place), *at)
        folder = graph_folder(other)
        assert not {"log.db", "segments", "activities"} & {each.name for each in folder.iterdir()}
        _, restored, wrong = opened(other)
        assert (restored, wrong) == (commits[:1] if at else commits, [])
        assert at or run(other, "export") == before
        load(other, "z")
        assert "in use" in refused(other, "restore", str(place), "--force")
    embedded = make_project(project.with_name("embedded"))
    run(embedded, "restore", str(place))
    assert run(embedded, "export") == before


def test_a_restore_to_a_server_that_fails_is_done_again(project, url, monkeypatch):
    """The database fails at the end: nothing can be opened until the restore is repeated."""
    place = project.with_name("backup")
    run(project, "backup", str(place))
    other = make_project(project.with_name("other"))
    name_server(other, url)
    replace = log_moves.compare

    def failing(*arguments):
        replace(*arguments)
        raise StorageError("it failed")

    with monkeypatch.context() as patch, App.open(other, declarations=False) as app:
        patch.setattr(log_moves, "compare", failing)
        with pytest.raises(StorageError, match="it failed"):
            put_back(app, place, lambda _: None, RestoreRequest())
    assert "is not complete" in refused(other, "export")
    run(other, "restore", str(place))
    assert opened(other)[1:] == opened(project)[1:]


def test_a_backup_is_not_restored_beside_a_log_that_moved(project, url):
    """Without the setting, the folder would get a second log."""
    place = project.with_name("backup")
    run(project, "backup", str(place))
    run(project, "log", "copy", "--to", url)
    shutil.rmtree(graph_folder(project) / "unused-log")
    assert "TRAILS_LOG_URL" in refused(project, "restore", str(place), "--force")
