"""A project whose log is on PostgreSQL: everything works that the documentation says."""

import os
import shutil
import subprocess
import sys

import pytest
from tests.journeys.durability.campaign import graph_folder, make_project
from tests.worlds.processes import Web, run_command

from trails import App
from trails.app.settings import LOG_URL_VARIABLE, read_settings
from trails.errors import CorruptionError, SettingsError, StorageError


@pytest.fixture
def project(tmp_path, postgres):
    """A project that names a log on a server, with a password that nobody asks for."""
    folder = make_project(tmp_path / "p")
    url = postgres.schema().replace("postgres:@", "postgres:geheim@")
    with (folder / "trails.toml").open("a") as file:
        file.write(f'\n[graphs.main.log]\nurl = "{url}"\n')
    return folder


def run(folder, *arguments):
    """The output of a command that succeeds."""
    done = run_command(arguments, folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "geheim" not in done.stdout + done.stderr
    return done.stdout


def load(folder, *names, branch="main"):
    """Load items by name."""
    lines = "".join(
        f'{{"type": "Item", "data": {{"code": "{each}", "value": 1, "text": "t"}}}}\n'
        for each in names
    )
    (folder / "items.ndjson").write_text(lines)
    run(folder, "load", "items.ndjson", "--branch", branch)


def test_a_project_works_and_survives_the_loss_of_its_folder(project, tmp_path):
    """Loads, branches, merges, verify, doctor, backup; then all views are built anew."""
    load(project, "a", "b")
    run(project, "branch", "create", "side")
    load(project, "c", branch="side")
    run(project, "branch", "merge", "side")
    assert not (graph_folder(project) / "log.db").exists()
    before = run(project, "export", "--format", "nquads")
    commits = run(project, "commit", "list")
    run(project, "verify")
    run(project, "doctor")
    run(project, "cleanup")
    run(project, "optimize")
    run(project, "backup", str(tmp_path / "backup"))
    shutil.rmtree(project / ".trails")
    assert run(project, "export", "--format", "nquads") == before
    assert run(project, "commit", "list") == commits
    for command in (("restore", str(tmp_path / "backup"), "--force"), ("recover",)):
        done = run_command(command, project)
        assert done.returncode == 2
        assert "PostgreSQL" in done.stderr
    assert run(project, "export", "--format", "nquads") == before
    embedded = make_project(tmp_path / "embedded")
    run(embedded, "restore", str(tmp_path / "backup"))
    assert run(embedded, "export", "--format", "nquads") == before


def test_a_server_is_stopped_and_its_log_continues_elsewhere(project, tmp_path):
    """Kill -9 of a server; a project on another folder takes the log over."""
    other = make_project(tmp_path / "q")
    shutil.copy(project / "trails.toml", other / "trails.toml")
    with Web(project) as web:
        load(project, "a")
        web.process.kill()
        web.process.wait()
    load(other, "b")
    with App.open(project) as app:
        assert app.graph().log.last_seq() == 3


def test_two_logs_are_refused(project):
    """A log in the folder and another one in the settings: neither is used."""
    folder = graph_folder(project)
    folder.mkdir(parents=True)
    (folder / "log.db").write_bytes(b"x")
    with pytest.raises(StorageError, match="one log"), App.open(project) as app:
        app.graph()


def test_an_emptied_database_is_not_mistaken_for_a_new_one(project, postgres):
    """Views show that there was a log; another one is not begun."""
    load(project, "a")
    url = read_settings(project).graphs["main"].log.url
    empty = postgres.schema()
    text = (project / "trails.toml").read_text()
    (project / "trails.toml").write_text(text.replace(url, empty))
    with pytest.raises(CorruptionError, match="no log"), App.open(project) as app:
        app.graph()
    assert postgres.run("SELECT count(*) FROM trails_graphs", empty) == [(0,)]


def test_lost_commits_are_noticed(project, postgres):
    """The database went back to an earlier state: the graph is read-only and says why."""
    load(project, "a")
    load(project, "b")
    url = read_settings(project).graphs["main"].log.url
    postgres.run(
        "ALTER TABLE trails_commits DISABLE TRIGGER USER; "
        "DELETE FROM trails_commits WHERE seq = (SELECT max(seq) FROM trails_commits); "
        "UPDATE trails_heads SET (id, seq, schema) = (SELECT c.id, c.seq, "
        "trails_heads.schema FROM trails_commits c ORDER BY c.seq DESC LIMIT 1)",
        url,
    )
    with App.open(project) as app:
        assert app.graph().status == "behind"


def test_the_url_is_shown_nowhere(project, monkeypatch):
    """Not by the settings as a text, nor by an error about them."""
    assert "geheim" not in repr(read_settings(project))
    text = (project / "trails.toml").read_text().replace("postgresql:", "mysql:")
    (project / "trails.toml").write_text(text)
    with pytest.raises(SettingsError) as caught:
        read_settings(project)
    assert "geheim" not in str(caught.value)
    assert "[graphs.main.log] url" in str(caught.value)
    monkeypatch.setenv(LOG_URL_VARIABLE, "mysql://geheim")
    (project / "trails.toml").write_text('[project]\nname = "durable"\n')
    with pytest.raises(SettingsError, match=LOG_URL_VARIABLE) as caught:
        read_settings(project).log_url("main", os.environ)
    assert "geheim" not in str(caught.value)


def test_projects_without_the_setting_import_no_driver(tmp_path):
    """Nothing is paid for what is not used."""
    folder = make_project(tmp_path / "p")
    code = (
        "import sys; from trails import App\n"
        f"with App.open({str(folder)!r}) as app: app.graph()\n"
        "assert not [each for each in sys.modules if 'psycopg' in each or 'postgres' in each]"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
