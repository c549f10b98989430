"""Completion: commands, options, and the names of a project, from descriptors."""

import os
import shutil
import subprocess

import pytest
from tests.worlds.processes import Shell, command


@pytest.fixture(scope="module")
def project(template, tmp_path_factory):
    """A project, and a cache of its own."""
    folder = tmp_path_factory.mktemp("completion")
    return shutil.copytree(template, folder / "acme"), folder / "cache"


def words_after(project, *words, form="bash", **environment):
    """What may follow some words."""
    folder, cache = project
    done = subprocess.run(
        command(*words),
        cwd=folder,
        env={**os.environ, "_TRAILS_COMPLETE": form, "XDG_CACHE_HOME": str(cache), **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_commands_and_options_need_no_project(project, tmp_path):
    """They come from the catalog and from the command itself."""
    elsewhere = (tmp_path, project[1])
    assert words_after(elsewhere, "get") == ["get"]
    assert "create" in words_after(elsewhere, "branch", "")
    assert "--fields" in words_after(elsewhere, "get", "Task", "--f")
    assert words_after(elsewhere, "get", "T") == []
    assert words_after(elsewhere, "no-such-command", "") == []


def test_names_come_from_the_project(project):
    """Types, tools, their options and branches, with descriptions where a shell shows them."""
    assert words_after(project, "get", "T") == ["Task/"]
    assert words_after(project, "call", "tasks.", form="fish") == [
        "tasks.finish\tMark a task as done."
    ]
    assert words_after(project, "call", "tasks.finish", "--t") == ["--task"]
    assert "--priority" in words_after(project, "call", "tasks", "--")
    assert words_after(project, "get", "Task", "-b", "") == ["main"]


def test_names_are_kept_until_the_project_changes(project):
    """The project is not opened for each key; a file that changed is noticed."""
    folder, cache = project
    assert words_after(project, "get", "P") == ["Person/"]
    aside = folder / ".trails-aside"
    (folder / ".trails").rename(aside)
    assert words_after(project, "get", "P") == ["Person/"]
    assert not (folder / ".trails").exists()
    aside.rename(folder / ".trails")
    assert all(file.stat().st_mode & 0o077 == 0 for file in cache.rglob("*") if file.is_dir())
    app = folder / "app.py"
    app.write_text(app.read_text().replace('"tasks.finish"', '"tasks.close"'))
    assert words_after(project, "call", "tasks.") == ["tasks.close"]


def test_bash_runs_the_script(project):
    """With words as a shell splits them."""
    script = Shell(project[0]).out("completion", "bash")
    trails = " ".join(command())
    typed = 'COMP_WORDS=(trails branch cr); COMP_CWORD=2; _trails; echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["/usr/bin/env", "bash", "-c", f'trails() {{ {trails} "$@"; }}\n{script}\n{typed}'],
        cwd=project[0],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "create\n"
    for shell in ("zsh", "fish"):
        assert "_TRAILS_COMPLETE" in Shell(project[0]).out("completion", shell)
