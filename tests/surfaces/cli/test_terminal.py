"""What comes from data is shown on a terminal, and never steers it."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.worlds.processes import Shell, command

from trails.surfaces.cli.output import markup
from trails.surfaces.cli.output.markup import cell_width, escape, indented, render
from trails.surfaces.cli.output.plain import visible
from trails.surfaces.cli.output.reporting import escape_json, print_text
from trails.surfaces.cli.output.tables import TextTable

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
        text = on_terminal(hostile.project, arguments)
        assert "[bold]d[/bold]" in text
        assert not STEERING.search(text)


def test_text_in_cells_and_lines_is_shown_too(capsys):
    """All that is laid out goes through one place."""
    table = TextTable("\x1b[31mhead")
    table.add_row("\x9bcell")
    print_text(table, indented("\u202epad", 2))
    out = capsys.readouterr().out
    assert not STEERING.search(out)
    assert all(each in out for each in (r"\x1b", r"\x9bcell", r"  \u202epad"))


@pytest.mark.parametrize(
    "text", [HOSTILE, "\\", "a\\", "\\[bold]", "[/]", "[[bold]]", "a\\\\[dim]", ""]
)
def test_what_is_escaped_is_shown_as_it_is(text):
    """Wherever it is in a text of ours, with and without colours; no tag of ours is lost."""
    assert render(f"[bold]{escape(text)}[/].", colour=False) == f"{visible(text)}."
    shown = render(f"[red]x[/]{escape(text)}[bold]y[/]", colour=True)
    assert shown == f"\x1b[31mx\x1b[0m{visible(text)}\x1b[1my\x1b[0m"


LONG = "one two three four five six seven eight nine ten"
ROWS = [("a1", LONG, "7"), ("b2", "x" * 40, "11"), ("c3", "日本語" * 9, "5")]


def rows_at(width):
    """Lines of a table on a terminal of some width, or in a pipe."""
    table = TextTable("id", "text", "number", numbers=[2])
    for id_, text, number in ROWS:
        table.add_row(id_, f"[dim]{text}[/]", number)
    return list(table.lines(width, colour=False))


def test_a_table_is_never_wrapped_or_cut_in_a_pipe():
    """One line for each row, whatever is in it."""
    lines = rows_at(None)
    assert len(lines) == 1 + len(ROWS)
    assert all(text in line for line, (_, text, _) in zip(lines[1:], ROWS, strict=True))
    table = TextTable("id", "text")
    table.add_row("a", "two\nlines\tand a tab")
    assert list(table.lines(None, colour=False))[1] == r"a   two\nlines\tand a tab"


@pytest.mark.parametrize("width", [200, 80, 60, 40, 34])
def test_a_table_fits_a_terminal(width):
    """Long cells are wrapped, between words where they can be; nothing is lost."""
    lines = rows_at(width)
    assert max(map(cell_width, lines)) <= width
    middle = "".join(line[4:] for line in lines)
    for _, text, _ in ROWS:
        letters = "".join(text.split())
        assert letters in "".join(middle.split()).replace("711", "").replace("7", "") or width < 80


def test_a_table_that_would_not_be_readable_is_a_list():
    """Of names and values, each whole."""
    lines = rows_at(20)
    assert lines[:3] == ["id      a1", f"text    {LONG}", "number  7"]
    assert lines.count("") == len(ROWS) - 1


def test_only_a_terminal_gets_colours_and_columns(template):
    """With NO_COLOR not even that; a pipe gets every row on one line."""
    shown = on_terminal(template, ["branch", "list"])
    assert "\x1b[1mbranch\x1b[0m" in shown
    assert "\x1b" not in on_terminal(template, ["branch", "list"], NO_COLOR="1")
    narrow = on_terminal(template, ["commit", "list"], COLUMNS="30", NO_COLOR="1")
    assert max(map(len, narrow.splitlines())) <= 30 + len("message  First load")
    piped = Shell(template).out("commit", "list")
    assert "\x1b" not in piped
    assert all(len(line.split("  ")) >= 3 for line in piped.splitlines() if line)


def on_terminal(folder, arguments, **environment):
    """What a command prints on a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        command(*arguments),
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "TERM": "xterm", **environment},
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
    return shown.decode().replace("\r\n", "\n")


def test_every_tag_that_a_command_writes_is_a_style():
    """One that is not would be printed as it is."""
    folder = Path(markup.__file__).parent.parent
    used = {
        tag
        for file in folder.rglob("*.py")
        for tag in re.findall(r"(?<![\\\[\w])\[([a-z ]+)\][^\n]*?\[/\]", file.read_text())
    }
    assert used >= {"bold", "dim"}
    assert used <= set(markup._STYLES)


@pytest.mark.parametrize("arguments", [["--help"], ["get", "Task"], ["get", "Task", "--json"]])
def test_output_that_nobody_takes_is_no_crash(template, arguments):
    """A reader that ended is none of our business; a full disk is named."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe, open("/dev/full", "wb") as full:  # noqa: PTH123 - a device
        for stream, code, said in ((pipe, 1, b""), (full, 2, b"No space left on device")):
            done = subprocess.run(
                command(*arguments),
                cwd=template,
                stdout=stream,
                stderr=subprocess.PIPE,
                check=False,
            )
            assert done.returncode == code
            assert said in done.stderr
            assert b"Traceback" not in done.stderr
            assert b"Exception" not in done.stderr


def test_long_results_go_through_the_pager(template):
    """On a terminal, for reading and writing, if they are longer than it."""
    script = f"import pty; pty.spawn({command('get', 'Task')!r})"
    given = {"TERM": "xterm", "NO_COLOR": "1", "PAGER": "sed s/^/paged:/", "COLUMNS": "80"}
    shown = {}
    for lines in ("3", "30"):
        done = subprocess.run(
            [sys.executable, "-c", script],
            cwd=template,
            env={**os.environ, **given, "LINES": lines},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        )
        shown[lines] = done.stdout.decode()
    assert "paged:t1  Read the tour" in shown["3"]
    assert "paged:" not in shown["30"]
    assert "t1  Read the tour" in shown["30"]
