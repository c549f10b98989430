"""``trails serve --stdio``: a session outlives the process that serves it."""

from tests.serving.processes import Stdio
from tests.serving.projects import make_project

from trails.app.serving.owners import find_owner


def test_a_session_is_served_and_ends_with_its_input(tmp_path):
    """Answers come in order, prints of the project go elsewhere, and the folder is free after."""
    folder = make_project(tmp_path / "notebook")
    with Stdio(folder) as client:
        assert client.initialize()["serverInfo"]["name"] == "notebook/main"
        assert client.call("notes_add", text="one") == {"result": "one"}
        assert client.call("notes_count") == {"result": 1}
        assert find_owner(folder).pid == client.pid
        assert client.close() == 0
        assert client.line() is None
        assert "this must not disturb" in client.errors
    assert find_owner(folder) is None


def test_sessions_go_through_the_first_process_and_survive_it(tmp_path):
    """A session goes on when its owner is killed: it takes over, with what stood and what ran."""
    folder = make_project(tmp_path / "notebook")
    with Stdio(folder) as first, Stdio(folder) as second:
        first.initialize()
        second.initialize()
        assert find_owner(folder).pid == first.pid
        first.call("notes_add", text="one")
        assert second.call("notes_count") == {"result": 1}
        first.kill()
        assert second.call("notes_add", text="two") == {"result": "two"}
        assert second.call("notes_count") == {"result": 2}
        assert find_owner(folder).pid == second.pid
