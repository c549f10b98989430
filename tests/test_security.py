"""The threat model is no promise: every defence names a test, and the tests are there."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", PAGE)


def test_every_threat_names_a_test():
    """A row of a table of threats has a test in its last column."""
    tables = re.findall(r"\| threat \| defence \| shown by \|\n\|[-|]+\n((?:\|.*\n)+)", PAGE)
    rows = [row for table in tables for row in table.splitlines()]
    assert len(rows) > 25
    assert [row for row in rows if "`tests/" not in row.rstrip(" |").rpartition("|")[2]] == []


def test_every_test_that_is_named_exists():
    """Under that name, in that file."""
    for file, name in NAMED:
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not name or f"def {name}(" in text, f"{file}::{name}"
