"""What comes from data is shown on a terminal, and never steers it."""

import json
import os
import pty
import re
import shutil
import subprocess

import pytest
from rich.padding import Padding
from tests.worlds.processes import Shell, command

from trails.surfaces.cli.plain import visible
from trails.surfaces.cli.reporting import Terminal, escape_json
from trails.surfaces.cli.values import plain_table

STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
HOSTILE = "[bold]d[/bold] :smile: urn:x:y \x1b]0;x\x07\x9b31m\x7f\r\x08a\u202eb\u2066c\u200f"
SHOWN = r"[bold]d[/bold] :smile: urn:x:y \x1b]0;x\x07\x9b31m\x7f\x0d\x08a\u202eb\u2066c\u200f"


@pytest.fixture(scope="module")
def hostile(template, tmp_path_factory):
    """The project with hostile texts in a key, a field, and a message; tests only read it."""
    shell = Shell(shutil.copytree(template, tmp_path_factory.mktemp("hostile") / "acme"))
    key = f"x\u202e[bold]\u2066:smile:@{HOSTILE}".replace(" ", "_")
    lines = [
        {"type": "Person", "data": {"email": key, "name": HOSTILE}},
        {"type": "Task", "id": "t9", "data": {"title": HOSTILE}},
    ]
    shell.write("bad.ndjson", "\n".join(json.dumps(each) for each in lines))
    shell.run("load", "bad.ndjson", "-m", HOSTILE)
    return shell


def test_every_steering_character_is_made_visible():
    """By its number; letters, lines and tabs stay."""
    for code in (*range(0x100), *range(0x2000, 0x2070), 0x61C):
        text = visible(f"a{chr(code)}b")
        assert not STEERING.search(text), hex(code)
        if not STEERING.match(chr(code)):
            assert text == f"a{chr(code)}b"
    assert visible(HOSTILE) == SHOWN


COMMANDS = [
    (["commit", "list"], 0),
    (["commit", "show", "main"], 0),
    (["branch", "list"], 0),
    (["get", "Person"], 0),
    (["get", "Task"], 0),
    (["get", "Task", "t9"], 0),
    (["query", "SELECT ?n { ?p a :Task ; :title ?n }"], 0),
    (["get", "Task", HOSTILE], 2),
    (["get", HOSTILE], 2),
    (["commit", "show", HOSTILE], 2),
    (["branch", "create", HOSTILE], 2),
    (["branch", "merge", HOSTILE], 2),
    (["load", f"{HOSTILE}.ndjson"], 2),
    (["verify", "-p", HOSTILE], 2),
]


@pytest.mark.parametrize(("arguments", "code"), COMMANDS, ids=range(len(COMMANDS)))
def test_no_command_lets_data_steer(hostile, arguments, code):
    """Lists, tables, records and errors; markup and emoji codes stay as they are."""
    done = hostile.run(*arguments, code=code)
    whole = done.stdout + done.stderr
    assert not STEERING.search(whole)
    assert "😄" not in whole
    assert "[bold]" in whole


def test_json_says_exactly_what_the_data_is(hostile):
    """In JSON escapes, so that a terminal is not steered by it either."""
    said = hostile.out("get", "Task", "t9", "--json")
    assert not STEERING.search(said)
    assert HOSTILE in texts_of(json.loads(said))
    error = hostile.run("get", "Task", HOSTILE, "--json", code=2).stdout
    assert not STEERING.search(error)
    assert json.loads(escape_json(json.dumps(HOSTILE, ensure_ascii=False).encode())) == HOSTILE


def texts_of(value):
    """All texts of a document."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [text for each in value for text in texts_of(each)]
    return [value] if isinstance(value, str) else []


def test_data_is_exact_in_a_pipe_and_visible_on_a_terminal(hostile):
    """An export and a table of values are files elsewhere; on a terminal they steer nothing."""
    asked = ["query", "--format", "csv", "SELECT ?n { ?p a :Task ; :title ?n }"]
    piped = hostile.out(*asked)
    assert "\x1b" in piped
    for arguments in (asked, ["export", "--format", "nquads"]):
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            command(*arguments), cwd=hostile.project, stdout=theirs, stderr=subprocess.DEVNULL
        )
        os.close(theirs)
        shown = b""
        while True:
            try:
                block = os.read(ours, 65536)
            except OSError:
                break
            if not block:
                break
            shown += block
        process.wait()
        os.close(ours)
        text = shown.decode().replace("\r\n", "\n")
        assert "[bold]d[/bold]" in text
        assert not STEERING.search(text)


def test_text_in_cells_and_paddings_is_shown_too(capsys):
    """All that is laid out goes through one place."""
    table = plain_table("\x1b[31mhead")
    table.add_row("\x9bcell")
    Terminal().print(table)
    Terminal().print(Padding("\u202epad", (0, 0, 0, 2)))
    out = capsys.readouterr().out
    assert not STEERING.search(out)
    assert all(each in out for each in (r"\x1b", r"\x9bcell", r"\u202epad"))
