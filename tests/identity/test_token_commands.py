"""``trails token``: made, listed and revoked by people, while others serve the folder."""

import json
import subprocess

import pytest
from tests.worlds.processes import Process, Stdio, command
from tests.worlds.projects import code_of, give_token, id_of, make_workshop, tokens_of
from tests.worlds.surfaces import META
from typer.testing import CliRunner

from trails.app.local import LocalOperations
from trails.surfaces.cli.commands import build_cli


@pytest.fixture
def folder(tmp_path):
    """A project."""
    return make_workshop(tmp_path / "p")


def run(folder, *arguments):
    """What a command answers: its exit code, its output, what it says beside."""
    cli = build_cli(LocalOperations())
    done = CliRunner().invoke(cli, ["token", *arguments, "-p", str(folder)], env={"COLUMNS": "200"})
    assert not isinstance(done.exception, Exception), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_a_new_token_is_printed_once(folder):
    """With how to use it; the first one says what it changes. No list shows it again."""
    code, told, _ = run(folder, "new", "--actor", "ann", "--groups", "a,b", "--group", "c")
    assert code == 0
    (token,) = [line for line in told.splitlines() if line.startswith("trails_")]
    for word in (
        "ann (groups a, b, c; scopes runtime; expires never)",
        "Authorization: Bearer",
        "the first",
    ):
        assert word in told
    assert "TRAILS_TOKEN" in told
    code, told, _ = run(folder, "new", "--actor", "bob", "--scopes", "dev,runtime", "--json")
    made = json.loads(told)
    assert made["token"].startswith(f"trails_{made['id']}_")
    assert (made["scopes"], made["state"]) == (["runtime", "dev"], "valid")
    assert "the first" not in run(folder, "new", "--actor", "bob", "--expires", "1d")[1]
    code, told, _ = run(folder, "list")
    assert (code, len(told.splitlines())) == (0, 4)
    listed = json.loads(run(folder, "list", "--json")[1])["tokens"]
    assert [each["actor"] for each in listed] == ["ann", "bob", "bob"]
    for text in (told, json.dumps(listed)):
        assert token.split("_", 2)[2] not in text
        assert "hash" not in text


def test_a_list_says_what_became_of_each(folder):
    """Valid, expired or revoked."""
    assert "No tokens." in run(folder, "list")[1]
    token = give_token(folder)
    give_token(folder, expires="1s")
    give_token(folder)
    assert run(folder, "revoke", id_of(token))[0] == 0
    path = folder / ".trails" / "tokens.json"
    value = json.loads(path.read_text())
    value["tokens"][1]["expires"] = "2020-01-01T00:00:00Z"
    del value["digest"]
    path.write_text(json.dumps(value))
    listed = json.loads(run(folder, "list", "--json")[1])["tokens"]
    assert [each["state"] for each in listed] == ["revoked", "expired", "valid"]


def test_tokens_are_revoked_by_id_or_actor(folder):
    """What was meant and is not there is an error, and then nothing is revoked."""
    one, two, three = (give_token(folder, actor) for actor in ("ann", "bob", "bob"))
    code, _, said = run(folder, "revoke", id_of(one), "0123456789ab")
    assert (code, "0123456789ab" in said) == (2, True)
    assert run(folder, "revoke")[0] == 2
    assert run(folder, "revoke", "--actor", "eve")[0] == 2
    assert all(each.revoked is None for each in tokens_of(folder).list())
    told = json.loads(run(folder, "revoke", "--actor", "bob", "--json")[1])["revoked"]
    assert [each["id"] for each in told] == [id_of(two), id_of(three)]
    assert [each.revoked is None for each in tokens_of(folder).list()] == [True, False, False]
    assert run(folder, "revoke", id_of(one), id_of(two))[0] == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("new", "--actor", ""),
        ("new", "--actor", "a\nb"),
        ("new", "--actor", "a", "--scope", "devv"),
        ("new", "--actor", "a", "--expires", "1999-01-01"),
        ("new", "--actor", "a", "--expires", "tomorrow"),
        ("new", "--actor", "a", "--group", "a\tb"),
    ],
    ids=str,
)
def test_a_wrong_request_is_explained(folder, arguments):
    """In words, and as JSON; no token is made."""
    code, told, said = run(folder, *arguments)
    assert (code, told) == (2, "")
    assert said.startswith("trails: ")
    code, told, _ = run(folder, *arguments, "--json")
    assert (code, set(json.loads(told))) == (2, {"error"})
    assert not (folder / ".trails" / "tokens.json").exists()


def test_a_folder_that_is_no_project_has_no_tokens(tmp_path):
    """Nothing is made in it."""
    for arguments in (("new", "--actor", "a"), ("list",), ("revoke", "--actor", "a")):
        code, _, said = run(tmp_path, *arguments)
        assert (code, "not a Trails project" in said) == (2, True)
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_is_told_and_left_alone(folder):
    """By every command; what can be done is said, too."""
    give_token(folder)
    path = folder / ".trails" / "tokens.json"
    path.write_text("{")
    for arguments in (("new", "--actor", "a"), ("list",), ("revoke", "--actor", "ann")):
        code, _, said = run(folder, *arguments)
        assert (code, "all tokens are refused" in said) == (2, True)
    assert path.read_text() == "{"
    done = subprocess.run(
        command("doctor", "-p", folder), capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "all tokens are refused" in done.stdout.replace("\n", " ")


def test_tokens_are_made_and_revoked_while_the_folder_is_served(folder):
    """No lock is asked for, and whoever serves takes notice."""
    token = give_token(folder)
    with Stdio(folder, env={"TRAILS_TOKEN": token}) as client:
        asked = {"name": "trails_meta_ping", "arguments": {}, "_meta": META}
        assert client.request("tools/call", asked)["structuredContent"]["actor"] == "ann"
        with Process("token", "new", "--actor", "bob", "-p", folder) as made:
            assert made.process.wait(60) == 0
        with Process("token", "revoke", "--actor", "ann", "-p", folder) as ended:
            assert ended.process.wait(60) == 0
        while code_of(client.answer(client.ask("tools/call", asked))) != -32001:
            pass
