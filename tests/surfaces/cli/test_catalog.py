"""The list of commands: what ``trails --help`` says is what there is, and costs little."""

import subprocess
import sys

import pytest
import typer
from tests.worlds.processes import run_command

from trails.app.local import LocalOperations
from trails.surfaces.cli import commands
from trails.surfaces.cli.shell.catalog import HEADINGS, LISTED

HEAVY = ("asyncio", "msgspec", "pydantic", "rich", "typer", "trails.engine", "trails.model")
"""Modules that help can be printed without."""


def test_the_list_is_what_there_is():
    """Each command once, with the first paragraph of its own help."""
    built = typer.main.get_command(commands.build_cli(LocalOperations())).commands
    found = {name: " ".join(each.help.split("\n\n")[0].split()) for name, each in built.items()}
    assert found == {each.name: each.summary for each in LISTED.values()}
    assert sum(map(len, HEADINGS.values())) == len(LISTED)


@pytest.mark.parametrize("name", LISTED)
def test_a_command_is_built_alone(name):
    """From its own module, with the same options as among all others."""
    every = typer.main.get_command(commands.build_cli(LocalOperations())).commands[name]
    first = next(iter(getattr(every, "commands", {})), "")
    alone = typer.main.get_command(commands._build(LocalOperations(), [name, first])).commands
    assert len(alone) < 6
    assert [each.name for each in alone[name].params] == [each.name for each in every.params]


def test_help_imports_next_to_nothing():
    """Neither the engine nor the libraries that parse options and draw tables."""
    told = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "trails", "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    imported = {line.rpartition("|")[2].strip() for line in told.stderr.splitlines()}
    assert "trails.surfaces.cli.shell.catalog" in imported
    assert not imported & set(HEAVY)
    for each in LISTED.values():
        assert f"  {each.name} " in told.stdout
    assert "\x1b" not in told.stdout


def test_plain_options_need_no_pydantic():
    """Texts and paths are read without it; a number is still checked."""
    code = (
        "import sys; sys.argv = ['trails', 'commit', 'list', '-p', '/nowhere'];"
        "from trails.app.main import main\n"
        "try: main()\n"
        "except SystemExit as ended: print(ended.code, 'pydantic' in sys.modules)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.split() == ["2", "False"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gett"], "Did you mean 'get'?"),
        (["branch", "lst"], "Did you mean 'list'?"),
        (["get", "Task", "--limt", "3"], "--limit"),
        (["get", "Task", "--limit", "three"], "integer"),
        (["get"], "TYPE[/ID]"),
        (["--bogus"], "--bogus"),
        (["get", "--\x1b]0;x\x07"], r"\x1b"),
    ],
)
def test_what_is_not_understood_is_explained(tmp_path, arguments, said):
    """With exit code 2, a suggestion, and nothing that steers a terminal; as JSON on request."""
    done = run_command(arguments, tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "\x1b" not in done.stderr
    done = run_command([*arguments, "--json"], tmp_path)
    assert done.returncode == 2
    assert '"code": "usage"' in done.stdout


def test_without_a_command_the_help_is_an_error(tmp_path):
    """So a script that lost its arguments notices; asked for, help is a success."""
    assert run_command([], tmp_path).returncode == 2
    assert run_command(["--help"], tmp_path).returncode == 0
    assert run_command(["--version"], tmp_path).stdout.startswith("trails ")
