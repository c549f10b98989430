"""``trails policy``: on a project that somebody else has open."""

import json

import pytest
from tests.worlds.processes import run_command
from tests.worlds.projects import READERS, make_acme

from trails import App
from trails.app.policy_inspection import PolicyInspector
from trails.identity.tokens import TokenFile
from trails.model.actors import TokenRequest
from trails.model.decisions import PolicyActor

SALARIES = (
    '@id("salaries") forbid(principal in Group::"agents", action == Action::"Read", '
    'resource == Field::"Person.salary");\n'
)
AGENTS = (
    '@id("agents") permit(principal in Group::"agents", '
    'action in [Action::"Change", Action::"BranchCreate", Action::"InvokeCapability"], resource) '
    'when { context.branch like "agents/*" };\n'
)
CASES = """
[[case]]
actor = "bo"
groups = ["readers"]
action = "Read"
expect = "allow"

[[case]]
name = "agents change main"
actor = "ada"
groups = ["agents"]
action = "Change"
expect = "allow"

[[case]]
actor = "cy"
action = "GraphList"
expect = "deny"
"""


@pytest.fixture
def folder(tmp_path):
    """A project with policies and cases, open in this process."""
    policies = {"a.cedar": READERS + SALARIES, "b.cedar": AGENTS, "tests.toml": CASES}
    folder = make_acme(tmp_path / "acme", policies)
    with App.open(folder):
        yield folder


@pytest.fixture
def trails(folder):
    """Runs ``trails policy …`` there, expecting an exit code; what it printed."""

    def run(*arguments, code=0):
        done = run_command(["policy", *arguments], folder)
        assert done.returncode == code, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done.stdout if code != 2 else done.stderr + done.stdout

    return run


def test_check_counts(trails):
    """All graphs and the server, with what may not be meant."""
    told = trails("check")
    assert "graph main: policies, 2 permits and 1 forbid in 2 files" in told
    assert "forbids Person.salary but not Employee.salary" in told
    assert "server: closed" in told
    found = json.loads(trails("check", "--json"))
    assert found["valid"] is True
    assert found["checks"][0]["files"] == ["policies/a.cedar", "policies/b.cedar"]


def test_check_finds_problems(trails, folder):
    """Every one, with its place; the exit code says so."""
    (folder / "policies" / "c.cedar").write_text(
        '\npermit(principal in Grup::"x", action, resource);'
    )
    told = trails("check", code=1)
    assert "policies/c.cedar:2: policy 1: unknown entity type 'Grup'" in told
    problem = json.loads(trails("check", "--json", code=1))["checks"][0]["problems"][0]
    assert problem["file"] == "policies/c.cedar"
    assert problem["line"] == 2


def test_check_knows_who_may_read_types_and_not_their_graph(trails, folder):
    """A permit for a type alone shows nothing, unless somebody opens the graph to the same."""
    alone = 'permit(principal in Group::"desk", action == Action::"Read", resource in {});\n'
    written = folder / "policies" / "c.cedar"
    written.write_text(alone.format('Type::"Person"'))
    told = trails("check")
    assert "c.cedar:1: policy 1: it permits reading Person, but no policy lets the same" in told
    written.write_text(alone.format('Type::"Person"') + alone.format('Graph::"main"'))
    assert "no policy lets the same" not in trails("check")
    written.write_text(
        alone.format('Type::"Person"')
        + 'permit(principal, action in [Action::"Read", Action::"Change"], resource);'
    )
    assert "no policy lets the same" not in trails("check")


def test_check_knows_who_is_in_no_group(trails, folder):
    """Where all tokens are known, a group without members may be misspelled."""
    TokenFile(folder / ".trails").issue(TokenRequest(actor="bo", groups=("reader", "agents")))
    told = trails("check")
    assert "no token belongs to the group 'readers'; did you mean 'reader'?" in told
    assert "'agents'" not in told


def test_test_asks_the_cases(trails):
    """What is not as expected is told with the reason."""
    told = trails("test", code=1)
    assert "agents change main: expected allow, but no policy permits it" in told
    assert "3 cases, 1 failed." in told
    found = json.loads(trails("test", "--json", code=1))
    assert found["passed"] == 2
    assert [each["case"] for each in found["failed"]] == ["agents change main"]


def test_test_takes_another_file(trails, folder):
    """The file of cases can be anywhere."""
    (folder / "good.toml").write_text(
        CASES.replace('"allow"\n\n[[case]]\nactor', '"deny"\n[[case]]\nactor')
    )
    assert "3 cases, 0 failed." in trails("test", "good.toml")


@pytest.mark.parametrize(
    ("cases", "told"),
    [
        ("[[case]]\nactor = 1", "actor"),
        ('[[case]]\nactor = "a"\naction = "Raed"\nexpect = "allow"', "Raed"),
        ('[[case]]\nactor = "a"\naction = "Read"\nexpect = "maybe"', "maybe"),
        ('[[case]]\nactor = "a"\naction = "Read"\nexpect = "deny"\ngroup = "x"', "group"),
        ('[[case]]\nactor = "a"\naction = "Read"\nexpect = "deny"\nresource = "Persn"', "Person"),
        ("[[case", "can't be used"),
    ],
)
def test_wrong_cases_are_refused(trails, folder, cases, told):
    """A case that can't be meant is no case that passes."""
    (folder / "policies" / "tests.toml").write_text(cases)
    assert told in trails("test", code=2)


def test_explain_tells_why(trails):
    """Which policies, and what the nearest lacks."""
    asked = ("explain", "--actor", "ada", "--group", "readers,agents", "--action")
    told = trails(*asked, "Read", "--resource", "Person.salary")
    assert "denied: forbidden by salaries" in told
    assert "salaries forbids it  policies/a.cedar:2" in told
    told = trails(*asked, "Change")
    assert 'context.branch like "agents/*" is false (context.branch is "main")' in told
    found = json.loads(trails(*asked, "Change", "--branch", "agents/x", "--json"))
    assert found["allowed"] is True
    assert found["decided_by"] == ["agents"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--action", "Raed"), "there is no action 'Raed'; did you mean 'Read'?"),
        (("--action", "Read", "--scope", "buildr"), "did you mean 'builder'?"),
        (("--action", "Read", "--resource", "Persn"), "did you mean 'Person'?"),
        (("--action", "Read", "--resource", "Tipe::Person"), "did you mean 'Type'?"),
        (("--action", "InvokeQuery"), "InvokeQuery applies to a Query; name one: Query::<name>"),
        (("--action", "Read", "--graph", "x"), "there is no graph 'x'"),
    ],
)
def test_explain_says_what_it_does_not_understand(trails, arguments, told):
    """With what to write instead."""
    assert told in trails("explain", "--actor", "ada", *arguments, code=2)


def test_matrix_shows_who_may_use_what(trails, folder):
    """By tool and actor; who is known where none is named."""
    found = json.loads(
        trails("matrix", "--actor", "bo:readers", "--actor", "ada:agents", "--actor", "x", "--json")
    )
    rows = {each["tool"]: each["cells"] for each in found["rows"]}
    assert rows["schema_get"] == ["yes", "no", "no"]
    assert rows["graph_mutate"] == ["no", "no", "no"]
    assert rows["graph_health"] == ["yes", "yes", "yes"]
    assert rows["graph_query"] == ["yes", "no", "no"]
    hidden = json.loads(trails("matrix", "--actor", "ada:agents,readers", "--json"))
    assert {each["tool"]: each["cells"] for each in hidden["rows"]}["graph_query"] == ["no"]
    branch = json.loads(trails("matrix", "--actor", "ada:agents", "--branch", "agents/x", "--json"))
    rows = {each["tool"]: each["cells"] for each in branch["rows"]}
    assert rows["people.hire"] == ["yes"]
    assert rows["graph_mutate"] == ["yes"]
    TokenFile(folder / ".trails").issue(TokenRequest(actor="dee", groups=("readers",)))
    known = json.loads(trails("matrix", "--json"))
    assert [each["actor"] for each in known["actors"]] == ["dee", "bo", "ada", "cy"]
    assert "graph_health" in trails("matrix")


def test_matrix_knows_what_is_masked(tmp_path):
    """A capability that takes a hidden type does not exist for the actor, however permitted."""
    folder = make_acme(
        tmp_path,
        {
            "a.cedar": "permit(principal, action, resource);\n"
            'forbid(principal, action == Action::"Read", resource in Type::"Room");\n'
        },
    )
    with (folder / "app.py").open("a") as app:
        app.write(
            "from trails import Ref\n"
            '@capability("rooms.book")\n'
            "def book(ctx: Context, room: Ref[Room]) -> str:\n"
            '    "Book a room."\n'
            "    return room.number\n"
        )
    rows = PolicyInspector(folder).matrix(None, [PolicyActor("ada")], "main").rows
    cells = {each.tool: each.cells for each in rows}
    assert cells["rooms.book"] == ("no",)
    assert cells["people.hire"] == ("yes",)


def test_without_policies_all_is_told_to_be_open(tmp_path):
    """An open project says so."""
    folder = make_acme(tmp_path)
    asked = ["policy", "explain", "--actor", "a", "--action", "Admin"]
    assert "allowed: open: there are no policies and no tokens" in run_command(asked, folder).stdout
    assert "graph main: open" in run_command(["policy", "check"], folder).stdout


def test_doctor_tells_what_is_wrong_with_policies(tmp_path):
    """Before anybody serves the project."""
    folder = make_acme(tmp_path, {"a.cedar": READERS.replace("Read", "Raed", 1)})
    done = run_command(["doctor"], folder)
    assert done.returncode == 1
    assert "✗ policies: policies/a.cedar:1: policy 1: unknown action 'Raed'" in done.stdout


@pytest.mark.parametrize("way", [["--stdio"], ["--port", "0"]], ids=["stdio", "http"])
def test_nothing_is_served_with_wrong_policies_of_the_server(tmp_path, way):
    """The reason is told, and the process ends."""
    settings = '[project]\nname = "acme"\n[server]\npolicies = "server"\n'
    folder = make_acme(tmp_path, settings=settings)
    (folder / "server").mkdir()
    (folder / "server" / "a.cedar").write_text(
        'permit(principal, action == Action::"X", resource);'
    )
    done = run_command(["serve", *way], folder)
    assert done.returncode == 2
    assert "server/a.cedar:1: policy 1: unknown action 'X'; known are GraphList" in done.stderr
