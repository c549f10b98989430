"""What ``trails serve`` says when it is ready: the lines that a client needs."""

from __future__ import annotations

import pytest

from trails.app.serve.web import ServerStatus, describe
from trails.app.settings import Auth, GraphSettings, Project, Settings
from trails.identity.oauth.settings import OAuth

STANDING = ServerStatus(pid=1, here=True, quarantined={}, access=())
PLAIN = "claude mcp add --transport http acme http://h/graphs/main/mcp"
HEADER = ' --header "Authorization: Bearer $TRAILS_TOKEN"'


@pytest.mark.parametrize(
    ("guarded", "advertise", "line"),
    [
        (False, None, PLAIN),
        (True, None, PLAIN + HEADER),
        (True, False, PLAIN + HEADER),
        (True, True, PLAIN),  # clients sign in, and would not with a header
    ],
)
def test_the_line_to_paste_has_a_token_where_one_is_asked_for(tmp_path, guarded, advertise, line):
    """Pasted as it is it connects, or asks for the variable that is missing."""
    oauth = None if advertise is None else OAuth("https://i", "https://h", advertise=advertise)
    settings = Settings(Project("acme"), {"main": GraphSettings()}, auth=Auth(oauth))
    served = describe(settings, tmp_path, "http://h", STANDING, guarded=guarded)
    assert [each.add for each in served.graphs] == [line]
