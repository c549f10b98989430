"""The command line, as a user runs it: real processes, exit codes, text and JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAILS = Path(sys.executable).with_name("trails")


def run(*arguments, cwd):
    """Run the installed command."""
    return subprocess.run(
        [TRAILS, *map(str, arguments)], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.fixture
def project(tmp_path):
    """A new project in which its own script ran once."""
    assert run("new", "acme", cwd=tmp_path).returncode == 0
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=tmp_path / "acme",
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "Read the tour open Ann\n", done.stderr
    return tmp_path / "acme"


def test_help_names_every_command(tmp_path):
    """Help works without a project, on the whole and on each command."""
    done = run("--help", cwd=tmp_path)
    assert done.returncode == 0
    for command in ("new", "doctor", "verify"):
        assert command in done.stdout
        assert "--json" in run(command, "--help", cwd=tmp_path).stdout
    assert run("--version", cwd=tmp_path).stdout.startswith("trails 0")


@pytest.mark.parametrize("activated", [True, False])
def test_what_new_says_to_do_next_works(tmp_path, activated):
    """The commands run as they are printed, with this environment on the PATH or without."""
    found = [str(TRAILS.parent)] if activated else []
    env = {**os.environ, "PATH": os.pathsep.join([*found, "/usr/bin", "/bin"])}
    shared = {"cwd": tmp_path, "capture_output": True, "text": True, "env": env}
    done = subprocess.run([TRAILS, "new", "my work", "--name", "work"], check=True, **shared)
    steps = [line for line in done.stdout.splitlines() if line.startswith("  ")]
    by_name = [step.split()[0] in {"python", "trails"} for step in steps[1:]]
    assert by_name == [activated] * 2
    done = subprocess.run(["/bin/sh", "-ec", "\n".join(steps)], check=True, **shared)
    assert done.stdout.startswith("Read the tour open Ann\n")


def test_new_refuses_to_overwrite(project):
    """A folder with content is left alone."""
    done = run("new", project, cwd=project.parent)
    assert done.returncode == 2
    assert "not empty" in done.stderr
    done = run("new", "Bad_Name!", "--json", cwd=project.parent)
    assert done.returncode == 2
    assert json.loads(done.stdout)["error"]["code"] == "declaration"


def test_a_healthy_project_passes_doctor_and_verify(project):
    """Both say so in words and in JSON."""
    for command in ("doctor", "verify"):
        done = run(command, cwd=project)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "✓" in done.stdout
        assert "✗" not in done.stdout
        found = json.loads(run(command, "--json", "-p", project, cwd="/").stdout)
        assert found["healthy"] is True


def test_doctor_reports_broken_declarations_without_a_trace(project):
    """A module that can't be imported is a finding, and the data is still examined."""
    (project / "app.py").write_text("import nonsense_that_is_not_there\n")
    done = run("doctor", cwd=project)
    assert done.returncode == 1
    assert "ModuleNotFoundError" in done.stdout
    assert "Person 1, Task 1" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_doctor_finds_nothing_wrong_with_a_new_project(tmp_path):
    """Types that no use has stored yet are no problem, and that is said."""
    assert run("new", "fresh", cwd=tmp_path).returncode == 0
    done = run("doctor", cwd=tmp_path / "fresh")
    assert done.returncode == 0, done.stdout
    assert "2 declared, none stored yet" in done.stdout
    done = run("get", "Task", cwd=tmp_path / "fresh")
    assert done.returncode == 2
    assert "the first write or 'trails serve' stores what the project declares" in done.stderr


def test_doctor_reports_types_that_differ(project):
    """Looking changes nothing: the difference is there the second time too."""
    source = (project / "app.py").read_text()
    (project / "app.py").write_text(source.replace("max_value=5", "max_value=9"))
    for _ in range(2):
        done = run("doctor", "--json", cwd=project)
        assert done.returncode == 1
        assert "Task: field priority changed" in done.stdout


def test_verify_finds_what_was_tampered_with_and_repairs_views(project):
    """A changed view is a problem until it is rebuilt from the log."""
    import sqlite3

    nodes = project / ".trails/graphs/main/nodes.db"
    db = sqlite3.connect(nodes)
    db.create_function("changed", 1, lambda doc: doc.replace(b"Ann", b"Eve"))
    db.execute("UPDATE nodes SET doc = changed(doc)")
    db.commit()
    db.close()
    done = run("verify", "--json", cwd=project)
    assert done.returncode == 1
    assert "differ from the log" in done.stdout
    assert run("verify", "--repair", cwd=project).returncode == 0
    assert run("verify", cwd=project).returncode == 0


def test_verify_finds_a_changed_log(project):
    """A commit that was edited breaks the chain and is named."""
    import sqlite3

    db = sqlite3.connect(project / ".trails/graphs/main/log.db")
    db.execute("DROP TRIGGER commits_UPDATE")
    db.execute("""UPDATE commits SET record = replace(record, '"actor":"me"', '"actor":"eve"')""")
    db.commit()
    db.close()
    done = run("verify", cwd=project)
    assert done.returncode == 1
    assert "does not follow from its content" in done.stdout


def test_commands_outside_a_project_say_what_to_do(tmp_path):
    """Exit code 2 and the next step, in the form that was asked for."""
    done = run("doctor", cwd=tmp_path)
    assert done.returncode == 2
    assert "trails new" in done.stderr
    done = run("verify", "--json", cwd=tmp_path)
    assert json.loads(done.stdout)["error"]["code"] == "settings"
