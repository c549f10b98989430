"""Code blocks of the documentation: what they contain exists and can be read.

The commands of the tutorial are executed (``test_tutorial.py``), and so is the Python of the README
(``test_pages.py``).
"""

import ast
import importlib
import json
import re
import shlex
import tomllib

import pytest
from tests.docs.test_pages import PAGES, ROOT
from typer.main import get_command

from trails.app.local import LocalOperations
from trails.app.policy_inspection import read_cases
from trails.app.settings import SETTINGS_FILE, Settings, list_faults, read_settings
from trails.surfaces.cli.commands import build_cli

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
CLI = get_command(build_cli(LocalOperations()))
SHELL = {"|", ">", ">>", "<", "&", "&&", ";"}


def blocks(*languages):
    """Every block in one of these languages, with its place as the name of a case."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in BLOCK.finditer(text):
            if block[1] in languages:
                line = text.count("\n", 0, block.start()) + 2
                found.append(pytest.param(block[2], id=f"{page.relative_to(ROOT)}:{line}"))
    return found


@pytest.mark.parametrize("text", blocks("python"))
def test_python_compiles(text):
    """And what it imports from Trails is there."""
    for each in ast.walk(ast.parse(text)):
        if isinstance(each, ast.ImportFrom) and (each.module or "").startswith("trails"):
            module = importlib.import_module(each.module)
            assert all(hasattr(module, name.name) for name in each.names)


@pytest.mark.parametrize("text", blocks("json"))
def test_json_can_be_read(text):
    """A block in JSON is JSON."""
    json.loads(text)


@pytest.mark.parametrize("text", blocks("toml"))
def test_toml_is_what_trails_reads(text, tmp_path):
    """A block has settings, which may be a part of those of a project, or cases of policies."""
    if "[[case]]" in text:
        (tmp_path / "tests.toml").write_text(text, encoding="utf-8")
        assert read_cases(tmp_path / "tests.toml")
        return
    found = tomllib.loads(text)
    faults = list_faults(found, Settings)
    assert [each for each in faults if not each.endswith(" is required")] == []
    if faults == ["[project] is required"]:
        whole = f'{text}\n[project]\nname = "acme"\n'
        (tmp_path / SETTINGS_FILE).write_text(whole, encoding="utf-8")
        read_settings(tmp_path)


def command_lines(text):
    """The ``trails`` commands of a block; a quoted text may span lines."""
    lines = iter(text.replace("\\\n", " ").splitlines())
    for line in lines:
        given = line.removeprefix("$ ")
        if not given.startswith("trails ") or "[OPTIONS]" in given:
            continue
        while True:
            try:
                words = shlex.split(given, comments=True)
                break
            except ValueError:  # an open quotation mark
                given += "\n" + next(lines)
        end = next((at for at, each in enumerate(words) if each in SHELL), len(words))
        yield words[1:end]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(words, id=f"{case.id}:{' '.join(words[:2])}")
        for case in blocks("", "sh")
        for words in command_lines(case.values[0])
    ],
)
def test_a_command_line_can_be_parsed(words):
    """The command exists, takes these arguments and options, and misses none."""
    command, path = CLI, ["trails"]
    while hasattr(command, "commands"):
        context = command.context_class(command, info_name=" ".join(path))
        words = command.parse_args(context, list(words))
        _, command, words = command.resolve_command(context, [*context._protected_args, *words])
        path.append(command.name)
    command.make_context(" ".join(path), list(words))
