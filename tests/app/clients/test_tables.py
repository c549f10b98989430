"""TOML: a table is put in and taken out, and all else stays."""

import tomllib

import pytest

from trails.app.clients.configuration import drop_table, put_table, read_table

PATH = ("mcp_servers",)
ENTRY = {"command": "/opt/tr\x7fails", "args": ["serve", "a\\b", '"', "ü"]}
TEXT = """\
# mine
model = "o9"   # the best

[mcp_servers.github]
command = "gh-mcp"
args = [
  "[mcp_servers.not]",
]

[mcp_servers.github.env]
TOKEN = "t"

# about tools
[tools]
web = true
"""


@pytest.mark.req("G20")
@pytest.mark.parametrize("text", ["", TEXT, TEXT.replace("\n", "\r\n"), "# only\n", "a = 1\n"])
def test_a_table_is_added_and_taken_out(text):
    """It stands at the end, says what it should, and leaves no trace."""
    new = put_table(text, PATH, "acme", ENTRY)
    assert new.startswith(text)
    assert read_table(new, PATH, "acme") == ENTRY
    without = tomllib.loads(new)
    del without["mcp_servers"]["acme"]
    assert without == {"mcp_servers": {}, **tomllib.loads(text)}
    assert drop_table(new, PATH, "acme") == text


@pytest.mark.req("G20")
def test_a_table_is_replaced_where_it_stands():
    """Its own tables go with it; the comment before the next one stays."""
    new = put_table(TEXT, PATH, "github", {"url": "http://x"})
    assert new == TEXT[: TEXT.index("[mcp_servers.github]")] + (
        '[mcp_servers.github]\nurl = "http://x"\n\n# about tools\n[tools]\nweb = true\n'
    )


def test_a_last_line_without_an_end_gets_one():
    """The table never runs into the line before it."""
    assert put_table("a = 1", PATH, "x", {"url": "u"}) == 'a = 1\n\n[mcp_servers.x]\nurl = "u"\n'


@pytest.mark.req("G20")
@pytest.mark.parametrize(
    ("text", "changed", "dropped"),
    [
        (
            'a = """\n[mcp_servers.x]\n"""\n[mcp_servers.x]\ncommand = "c"\n',
            'a = """\n[mcp_servers.x]\n"""\n[mcp_servers.x]\nurl = "u"\n',
            'a = """\n[mcp_servers.x]\n"""\n',
        ),
        ('mcp_servers.x.command = "c"\n', 'mcp_servers.x.url = "u"\n', ""),
        (
            "[mcp_servers.x.env]\nA = 1\n\n# b\n[y]\n",
            '[mcp_servers.x]\nurl = "u"\n\n# b\n[y]\n',
            "\n# b\n[y]\n",
        ),
        (
            '[mcp_servers."x"] # hi\nA = 1\n\n[mcp_servers.y]\n',
            '[mcp_servers."x"] # hi\nurl = "u"\n\n[mcp_servers.y]\n',
            "\n[mcp_servers.y]\n",
        ),
    ],
)
def test_a_table_is_found_however_it_is_written(text, changed, dropped):
    """A heading inside a string is none; dotted and quoted keys name the same table."""
    assert put_table(text, PATH, "x", {"url": "u"}) == changed
    assert drop_table(text, PATH, "x") == dropped
