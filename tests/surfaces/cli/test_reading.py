"""What ``trails read`` prints: matches in another style, and commands that can be pasted."""

import shlex
import sys
from pathlib import Path

import pytest

from trails.errors import QueryError
from trails.surfaces.cli.operations import ReadState
from trails.surfaces.cli.output.markup import parse_runs, render
from trails.surfaces.cli.reading import (
    highlight,
    read_name,
    read_near,
    show_window,
    spell_command,
)

NODES = "https://example.org/acme/"


def test_matches_are_highlighted_where_they_are():
    """Control characters are shown as codes, and do not move the style."""
    text = "a\x1b[31mred\x07 \u202ematch\u202c end"
    start = text.index("match")
    shown = highlight(text, [(start, start + 5), (start + 3, start + 7)])
    runs = list(parse_runs(shown))
    assert "\x1b" not in "".join(run.text for run in runs)
    assert [run.text for run in runs if run.style] == ["match", "\\u202c "]
    assert highlight("x", []) == "x"
    assert render(highlight("abc", [(-5, 2)]), colour=False) == "abc"


def test_commands_survive_a_shell():
    """Whatever a field, id or folder is called."""
    words = ["trails", "read", "Doc/a b'c$(x)", "body"]
    options = {"query": '"two words" *', "length": 5, "branch": None, "project": Path("/a b")}
    spelled = shlex.split(spell_command(words, options))
    assert spelled == [*words, "--query", '"two words" *', "--length", "5", "--project", "/a b"]


def test_an_odd_text_is_printed_as_it_is(capfdbinary):
    """Bytes go to a pipe unchanged; what is said of them goes to standard error."""
    text = "\x1b]0;x\x07né\r\n\0"
    found = {
        "text": text,
        "start": 3,
        "end": 11,
        "total": 20,
        "complete": False,
        "commit": "c" * 32,
    }
    found["next"] = {"arguments": {"cursor": "abc"}}
    found["next_match"] = {"arguments": {"record": "trails://at/f00/kg/Doc/a", "match": 2}}
    show_window(found, ["trails", "read", "Doc/a", "body"], {"branch": "b", "query": "q"})
    sys.stdout.flush()
    out, err = capfdbinary.readouterr()
    assert out == text.encode()
    lines = err.decode().splitlines()
    assert "Characters 3 to 11 of 20" in lines[-3]
    assert lines[-2] == "Next: trails read Doc/a body --branch b --query q --cursor abc"
    assert lines[-1] == "Next match: trails read Doc/a body --query q --snapshot f00 --match 2"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Doc/a", ("Doc", "Doc/a", ReadState())),
        ("Doc/a%20b", ("Doc", "Doc/a%20b", ReadState())),
        ("Doc/ä", ("Doc", "ä", ReadState())),
        ("Doc/a/b", ("Doc", "a/b", ReadState())),
        (f"{NODES}Doc/a%20b", ("Doc", "a b", ReadState())),
        ("trails://kg/Doc/a", ("Doc", "a", ReadState())),
        ("trails://branch/x%2Fy/kg/Doc/a", ("Doc", "a", ReadState("x/y"))),
        ("trails://at/0123abcd/kg/Doc/a", ("Doc", "a", ReadState("main", "0123abcd"))),
    ],
)
def test_a_record_is_named_in_every_form(text, wanted):
    """With the branch or commit that a URI names."""
    found = read_name(text, NODES, ReadState())
    assert (found.type, found.id, found.view) == wanted


@pytest.mark.parametrize("text", ["Doc", "/a", "Doc/", "trails://kg/Doc", "trails://schema"])
def test_anything_else_is_refused(text):
    """In words that say what to write."""
    with pytest.raises(QueryError, match="Type/id"):
        read_name(text, NODES, ReadState())


def test_a_branch_is_named_once():
    """A URI and an option that differ are refused."""
    with pytest.raises(QueryError, match="another branch"):
        read_name("trails://branch/x/kg/Doc/a", NODES, ReadState("y"))
    assert read_name("trails://branch/x/kg/Doc/a", NODES, ReadState("x")).view.branch == "x"


def test_near_is_a_text_numbers_or_a_file(tmp_path):
    """The field is before the first equals sign."""
    file = tmp_path / "vector.json"
    file.write_text("[1, 0.5]\n", encoding="utf-8")
    assert read_near("place=slow = trains") == {"field": "place", "text": "slow = trains"}
    assert read_near("place=[1, 0.5]") == {"field": "place", "vector": [1.0, 0.5]}
    assert read_near(f"place=@{file}") == {"field": "place", "vector": [1.0, 0.5]}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("place", "FIELD=TEXT"),
        ("=text", "FIELD=TEXT"),
        ("place=", "FIELD=TEXT"),
        ("place=[1, x]", "list of numbers"),
        ('place=["1"]', "list of numbers"),
        ("place=@/no/such/file", "can't be read"),
    ],
)
def test_what_near_can_t_be_is_refused(text, says):
    """With the forms that it may have."""
    with pytest.raises(QueryError, match=says):
        read_near(text)
