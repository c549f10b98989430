"""What a wrong setting is answered with: where it is, what it must be, what was given."""

from __future__ import annotations

import pytest

from trails.app.settings import read_settings
from trails.errors import SettingsError

PROJECT = '[project]\nname = "acme"\n'


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('env = "prod"', '[project] env must be one of "development", "production", not "prod"'),
        (
            "[graphs.staff.budgets]\nin_flight = -1",
            "[graphs.staff.budgets] in_flight must be a whole number of at least 0, not -1",
        ),
        (
            '[graphs.main.mcp]\nlegacy_sse = "yes"',
            '[graphs.main.mcp] legacy_sse must be true or false, not "yes"',
        ),
        (
            "[server]\nport = 70000",
            "[server] port must be a whole number of at least 0 and at most 65535, not 70000",
        ),
        ("[server]\nport = true", "[server] port must be a whole number of at least 0 and at most"),
        ('[server]\npublic_hosts = "a"', "[server] public_hosts must be a list, in brackets, not"),
        (
            "[server]\npublic_hosts = [7]",
            "[server] public_hosts[0] must be a string in quotes",
        ),
        ("[server]\nhots = 1", "[server] hots is not a known setting; did you mean 'host'?"),
        ("[validation]\nx = 1", "[validation] x is not a known setting; it has allow_bypass"),
        (
            "[sandbox]\nseconds = nan",
            "[sandbox] seconds must be a number above 0 and at most 864",
        ),
        (
            "[sandbox]\nseconds = inf",
            "[sandbox] seconds must be a number above 0 and at most 864",
        ),
        ("[graphs.main]\nmcp = 7", "[graphs.main] mcp must be a table, not 7"),
        ("[auth.oauth]\nissuer = 1", "[auth.oauth] audience is required"),
        ("[serve]\nport = 1", "[serve] is not a known setting; did you mean 'server'?"),
    ],
)
def test_a_fault_names_key_rule_and_value(tmp_path, written, told):
    """Graph and key are named as the file has them, and what would be legal is said."""
    (tmp_path / "trails.toml").write_text(PROJECT + written, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        read_settings(tmp_path)
    assert told in caught.value.message


def test_all_faults_are_told_at_once(tmp_path):
    """Who corrects one line needs no second try to learn of the next."""
    text = PROJECT + "[server]\nport = -1\nbody_mb = 0\n[sandbox]\nrows = 'x'\n"
    (tmp_path / "trails.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"port .*body_mb .*rows "):
        read_settings(tmp_path)


def test_what_tables_and_lists_hold_is_not_shown(tmp_path):
    """A key set in the wrong place may have a private key."""
    text = PROJECT + '[auth.oauth]\nissuer = "i"\naudience = "a"\njwks = {d = "private"}\n'
    (tmp_path / "trails.toml").write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError) as caught:
        read_settings(tmp_path)
    assert "jwks must be a string in quotes, not a table" in caught.value.message
    assert "private" not in caught.value.message
