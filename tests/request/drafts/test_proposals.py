"""``propose`` makes a call on a branch of its own, in one step; a reviewer merges it."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.journeys.durability.campaign import assert_sound
from tests.request.drafts import shelf
from tests.request.drafts.shelf import log_of
from tests.worlds.graphs import Calls

from trails import App
from trails.app.kernels import kernel_of
from trails.app.local import LocalOperations
from trails.app.settings import GraphSettings, McpSettings, Project, Settings
from trails.engine.upkeep.verify import verify
from trails.model.actors import LOCAL, OPERATOR, Actor
from trails.model.results import Failure

BOOK = {"op": "create", "type": "Book", "data": {"isbn": "01", "title": "First"}}
WRITE = {"isbn": "01", "title": "First", "author": "ada"}


@pytest.fixture
def calls(tmp_path):
    """The shelf in a folder."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "shelf"\n')
    (tmp_path / "app.py").write_text("from tests.request.drafts.shelf import *\n")
    made = Calls(App.open(tmp_path, strict=True))
    yield made
    made.close()


def listed(calls, arguments=None, actor=OPERATOR):
    """The open proposals."""
    outcome = asyncio.run(calls.kernel.transfers.record(actor, "proposal_list", arguments or {}))
    assert not isinstance(outcome, Failure), outcome
    return json.loads(outcome.body)["proposals"]


def counts(calls):
    """How many books there are on main."""
    types = calls.result("graph_snapshot")["types"]
    return {each["type"]: each["count"] for each in types}


def test_a_proposal_is_a_branch_that_a_reviewer_merges(calls):
    """With all commits of the call, whose ids are those that the handler saw."""
    report = calls.result("books.write", {**WRITE, "propose": True})
    name = report["proposal"]
    assert name.startswith("proposals/local/books-write-")
    assert report["target"] == "main"
    assert report["result"]["branch"] == name
    assert (report["created"], report["updated"]) == (2, 0)
    assert counts(calls) == {"Author": 0, "Book": 0}
    (commit, *rest) = calls.result("commit_list", {"branch": name, "limit": 3})["commits"]
    assert commit["commit"] == report["commit"]
    assert commit["branch"] == name
    assert [each["branch"] for each in rest] == [name, name]
    (found,) = listed(calls)
    assert (found["proposal"], found["author"], found["commits"]) == (name, "local", 3)
    assert (found["created_nodes"], found["updated_nodes"], found["conflicts"]) == (2, 0, 0)
    assert calls.result("branch_list", {"prefix": "proposals/"})["proposals"] == [
        {**found, "age_seconds": found["age_seconds"]}
    ]
    merged = calls.result(report["merge"]["tool"], report["merge"]["arguments"])
    assert merged["outcome"] == "fast_forward"
    assert counts(calls) == {"Author": 1, "Book": 1}
    assert listed(calls) == []


def test_a_rejected_proposal_is_gone(calls):
    """The discard call deletes its branch."""
    report = calls.result("graph_mutate", {"operations": [BOOK], "propose": True})
    assert report["result"]["commit"] == report["commit"]
    calls.result(report["discard"]["tool"], report["discard"]["arguments"])
    assert listed(calls) == []
    assert calls.graph.log.head(report["proposal"]) is None


def test_what_fails_or_changes_nothing_leaves_no_branch(calls):
    """Nor anything else in the log."""
    before = log_of(calls.graph)
    wrong = {**BOOK, "data": {"isbn": "x", "title": "a"}}
    failure = calls.failure("graph_mutate", {"operations": [wrong], "propose": True})
    assert len(failure.data["fields"]) == 2
    load = calls.result("graph_load", {"data": "", "propose": True})
    assert (load["proposal"], load["commit"]) == (None, None)
    assert "merge" not in load
    assert log_of(calls.graph) == before


def test_a_load_and_a_stored_target(calls):
    """A proposal for another branch says so in its name."""
    calls.result("branch_create", {"name": "release"})
    data = '{"type": "Book", "data": {"isbn": "02", "title": "Second"}}\n'
    report = calls.result("graph_load", {"data": data, "branch": "release", "propose": True})
    assert report["proposal"].endswith("/into/release")
    assert report["merge"]["arguments"]["target"] == "release"
    assert listed(calls, {"target": "main"}) == []
    (found,) = listed(calls, {"target": "release"})
    assert found["commands"][0].endswith(" --into release")
    calls.result("branch_merge", report["merge"]["arguments"])
    assert counts(calls)["Book"] == 0
    assert listed(calls) == []


def test_main_moves_between_a_proposal_and_its_merge(calls):
    """Conflicts with main as it is now are counted, and a merge reports them."""
    calls.result("graph_mutate", {"operations": [BOOK]})
    change = {"op": "update", "type": "Book", "id": "01", "data": {"title": "Proposed"}}
    report = calls.result("graph_mutate", {"operations": [change], "propose": True})
    assert report.get("violations", []) == []
    change["data"]["title"] = "Direct"
    calls.result("graph_mutate", {"operations": [change]})
    (found,) = listed(calls)
    assert (found["conflicts"], found["updated_nodes"]) == (1, 1)
    assert calls.failure("branch_merge", report["merge"]["arguments"]).code == "conflict"
    settled = {**report["merge"]["arguments"], "resolve_all": "theirs"}
    assert calls.result("branch_merge", settled)["outcome"] == "merged"
    assert calls.result("node_get", {"record": "Book/01"})["values"]["title"] == "Proposed"


def test_a_retry_with_a_key_returns_the_first_outcome(calls):
    """Of a proposal and of a capability, and only for the same request."""
    for given in ({**WRITE, "propose": True}, WRITE):
        name = "proposed" if "propose" in given else "direct"
        first = calls.result("books.write", {**given, "idempotency_key": name})
        size = calls.graph.log.last_seq()
        assert calls.result("books.write", {**given, "idempotency_key": name}) == first
        assert calls.graph.log.last_seq() == size
        other = calls.failure("books.write", {**given, "title": "Other", "idempotency_key": name})
        assert other.code == "conflict"
    assert len(listed(calls)) == 1
    assert counts(calls)["Book"] == 1


def test_a_capability_takes_an_expected_head(calls):
    """It is refused if the branch is elsewhere, before anything is done."""
    head = calls.graph.log_head("main").commit
    calls.result("books.write", {**WRITE, "expected_head": head})
    failure = calls.failure("books.write", {**WRITE, "isbn": "02", "expected_head": head})
    assert failure.code == "conflict"
    assert counts(calls)["Book"] == 1


def test_a_call_with_a_key_is_made_again_when_others_write(calls, monkeypatch):
    """Its draft is outdated then; after a few times the caller has to try again."""
    others, found, ctx = iter(["11", "12"]), shelf.Book.save, calls.app.context()

    def save(self, into, **given):
        isbn = next(others, None) if self.isbn in {"01", "02"} else None
        if isbn is not None:
            shelf.Book(isbn=isbn, title="Between").save(ctx)
        return found(self, into, **given)

    monkeypatch.setattr(shelf.Book, "save", save)
    calls.result("books.write", {**WRITE, "idempotency_key": "k"})
    assert counts(calls)["Book"] == 3
    others = iter([str(at) for at in range(20, 40)])
    failure = calls.failure("books.write", {**WRITE, "isbn": "02", "idempotency_key": "l"})
    assert failure.code == "conflict"
    assert "others changed branch 'main' 4 times" in failure.message
    others = iter(())
    calls.result("books.write", {**WRITE, "isbn": "02", "idempotency_key": "l"})


@pytest.mark.parametrize(
    "step", ["before_append", "after_append", "after_apply", "before_acknowledge"]
)
def test_a_crash_leaves_an_open_proposal_or_nothing(calls, tmp_path, step):
    """The branch comes with all of its commits: there is no half of a proposal."""

    class CrashError(BaseException):
        """The process ends here."""

    def crash(at):
        if at == step:
            raise CrashError

    calls.graph.on_step = crash
    with pytest.raises(CrashError):
        asyncio.run(_propose(calls))
    calls.close()
    calls.__init__(App.open(tmp_path, strict=True))
    found = listed(calls)
    if step == "before_append":
        assert found == []
        assert list(calls.graph.log.branches()) == ["main"]
    else:
        assert [each["commits"] for each in found] == [3]
    assert not list((Path(calls.graph.folder) / "tmp").glob("draft-*"))


async def _propose(calls):
    return await calls.kernel.execute(LOCAL, "books.write", {**WRITE, "propose": True})


def test_proposals_count_against_the_budget_for_branches(calls):
    """Merged ones do not: they are deleted when the next one comes."""
    calls.graph.most_branches = 2
    ada = Actor("ada", credential="c1")
    made = []
    for at in range(2):
        operation = {**BOOK, "data": {"isbn": f"1{at}", "title": "Some"}}
        made.append(calls.result("graph_mutate", {"operations": [operation], "propose": True}, ada))
    failure = calls.failure("graph_mutate", {"operations": [BOOK], "propose": True}, ada)
    assert failure.kind == "budget"
    assert "2 branches" in failure.message
    assert "Delete a branch" in failure.message
    calls.result("branch_merge", made[0]["merge"]["arguments"])
    calls.result("graph_mutate", {"operations": [BOOK], "propose": True}, ada)
    assert calls.graph.log.head(made[0]["proposal"]) is None
    assert len(listed(calls)) == 2


# --- the setting ---------------------------------------------------------------------------


@pytest.fixture
def proposing():
    """A graph whose writers propose, but for one actor and one group."""
    mcp = McpSettings(writes="propose", writers={"eve": "direct", "group:editors": "direct"})
    settings = Settings(Project("shelf"), {"main": GraphSettings(mcp=mcp)})
    made = Calls(App(*shelf.DECLARED, settings=settings))
    yield made
    made.close()


def test_the_setting_makes_writes_to_main_proposals(proposing):
    """For those who are not named; a proposal can be changed, and REST writes directly."""
    calls = proposing
    report = calls.result("graph_mutate", {"operations": [BOOK]})
    assert report["proposal"] is not None
    more = {**BOOK, "data": {"isbn": "02", "title": "Second"}}
    on = {"operations": [more], "branch": report["proposal"]}
    assert calls.result("graph_mutate", on)["changed"] is True
    assert counts(calls)["Book"] == 0
    for actor in (Actor("eve"), Actor("bob", groups=frozenset({"editors"}))):
        isbn = f"1{len(actor.name)}" if actor.name == "eve" else "20"
        operation = {**BOOK, "data": {"isbn": isbn, "title": "Direct"}}
        assert calls.result("graph_mutate", {"operations": [operation]}, actor)["changed"] is True
    rest = {**BOOK, "data": {"isbn": "30", "title": "By REST"}}
    done = asyncio.run(calls.kernel.invoke(LOCAL, "graph_mutate", {"operations": [rest]}))
    assert json.loads(done.body)["changed"] is True
    assert counts(calls)["Book"] == 3


def test_a_caller_does_not_lift_the_setting_by_itself(proposing):
    """Where no policy permits direct writes, neither propose=false nor a merge is one."""
    calls = proposing
    refused = calls.failure("graph_mutate", {"operations": [BOOK], "propose": False})
    assert refused.code == "forbidden"
    report = calls.result("graph_mutate", {"operations": [BOOK]})
    merge = report["merge"]["arguments"]
    assert calls.failure("branch_merge", merge).code == "forbidden"
    assert calls.result("branch_merge", {**merge, "dry_run": True})["outcome"] == "fast_forward"
    assert calls.result("branch_merge", merge, Actor("eve"))["outcome"] == "fast_forward"


def test_the_setting_lists_the_arguments(proposing):
    """Otherwise a list of tools does not repeat them, and the instructions name them once."""
    calls = proposing
    listed_by = {}
    for actor in (LOCAL, Actor("eve")):
        tools = {each.name: each for each in calls.kernel.tools(actor).tools}
        listed_by[actor] = {name for name, each in tools.items() if each.lists_controls}
    assert listed_by[Actor("eve")] == set()
    assert listed_by[LOCAL] == {
        "books.announce",
        "books.retitle",
        "books.write",
        "graph_load",
        "graph_mutate",
    }
    assert "becomes a proposal" in calls.kernel.instructions(LOCAL)
    assert "becomes a proposal" not in calls.kernel.instructions(Actor("eve"))
    assert "dry_run" in calls.kernel.instructions(Actor("eve"))


def test_policies_permit_writes_on_proposals_alone(tmp_path):
    """Cedar is the guard: who may change proposals/* only can propose, and nothing else."""
    (tmp_path / "trails.toml").write_text(
        '[project]\nname = "shelf"\n[graphs.main]\npolicies = "policies"\n'
    )
    (tmp_path / "app.py").write_text("from tests.request.drafts.shelf import *\n")
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "all.cedar").write_text(
        'permit (principal == Actor::"ada", action == Action::"Read", resource);\n'
        'permit (principal == Actor::"ada", action in [Action::"Change", '
        'Action::"InvokeCapability"], resource) when { context.branch like "proposals/ada/*" };\n'
        'permit (principal == Actor::"ada", action == Action::"BranchCreate", resource) '
        'when { context.target like "proposals/ada/*" };\n'
        'permit (principal == Actor::"eve", action, resource);\n'
    )
    with App.open(tmp_path, strict=True) as app:
        kernel = kernel_of(app)
        ada, eve = Actor("ada", credential="1"), Actor("eve", credential="2")

        def call(actor, name, **given):
            outcome = asyncio.run(kernel.execute(actor, name, given))
            return outcome if isinstance(outcome, Failure) else json.loads(outcome.body)

        names = {each.name for each in kernel.tools(ada).tools}
        assert {"graph_mutate", "books.write"} <= names
        assert isinstance(call(ada, "graph_mutate", operations=[BOOK]), Failure)
        assert isinstance(call(ada, "books.write", **WRITE), Failure)
        assert isinstance(call(ada, "books.write", **WRITE, dry_run=True), Failure)
        report = call(ada, "books.write", **WRITE, propose=True)
        assert report["proposal"].startswith("proposals/ada/")
        assert isinstance(call(ada, "branch_merge", **report["merge"]["arguments"]), Failure)
        seen = call(ada, "branch_list", prefix="proposals/")["proposals"]
        assert [(each["proposal"], each["conflicts"]) for each in seen] == [
            (report["proposal"], None)
        ]
        assert call(eve, "branch_merge", **report["merge"]["arguments"])["outcome"] == (
            "fast_forward"
        )
        kernel.close()


# --- the log -------------------------------------------------------------------------------


def test_proposals_while_others_write(calls):
    """Each begins where main was, has its own change alone, and merges without a conflict."""

    async def work():
        async def propose(at):
            operation = {**BOOK, "data": {"isbn": f"{at:02}", "title": "Some"}}
            given = {"operations": [operation], "propose": True}
            return json.loads((await calls.kernel.execute(LOCAL, "graph_mutate", given)).body)

        async def write(at):
            given = {"isbn": f"{at:02}", "title": "Direct", "author": "ada"}
            return await calls.kernel.execute(LOCAL, "books.write", given)

        return await asyncio.gather(
            *(each(at) for at in range(8) for each in (propose, lambda at: write(at + 50)))
        )

    made = [each for each in asyncio.run(work()) if isinstance(each, dict)]
    assert [(each["created"], each["updated"]) for each in made] == [(1, 0)] * 8
    assert len({each["proposal"] for each in made}) == 8
    assert [each["conflicts"] for each in listed(calls)] == [0] * 8
    for each in made:
        calls.result("branch_merge", each["merge"]["arguments"])
    assert counts(calls)["Book"] == 16
    assert listed(calls) == []
    assert_sound(calls.app)


def test_a_large_load_is_tried_and_proposed(calls):
    """Its delta is a file, which a dry run removes and a proposal hands to the log."""
    data = "".join(
        json.dumps({"type": "Book", "data": {"isbn": f"{at:02}", "title": str(at) * 20_000}}) + "\n"
        for at in range(10, 60)
    )
    before = log_of(calls.graph)
    assert calls.result("graph_load", {"data": data, "dry_run": True})["created"] == 50
    assert log_of(calls.graph) == before
    report = calls.result("graph_load", {"data": data, "propose": True})
    assert len(list((calls.graph.folder / "segments").glob("*.zst"))) == 1
    assert not list((calls.graph.folder / "tmp").glob("draft-*"))
    calls.result("branch_merge", report["merge"]["arguments"])
    assert counts(calls)["Book"] == 50
    assert_sound(calls.app)


def test_a_proposal_comes_back_from_the_tail(calls, tmp_path):
    """The tail of the log has the branch and its commits, as it has all others."""
    calls.result("graph_mutate", {"operations": [BOOK]})
    given = {**WRITE, "isbn": "02", "propose": True, "idempotency_key": "k"}
    report = calls.result("books.write", given)
    commits = [each.id for each in calls.graph.log.commits()]
    folder = calls.graph.folder
    calls.close()
    for each in folder.glob("log.db*"):
        each.unlink()
    (done,) = LocalOperations().recover(
        tmp_path, None, lambda text: None, dry_run=False, accept_loss=False
    )
    assert done.status == "recovered"
    calls.__init__(App.open(tmp_path, strict=True))
    assert [each.id for each in calls.graph.log.commits()] == commits
    assert [each["proposal"] for each in listed(calls)] == [report["proposal"]]
    assert calls.result("books.write", given) == report
    assert all(each.severity == "ok" for each in verify(calls.graph, lambda text: None))


def test_a_branch_with_older_types(tmp_path):
    """A dry run gives the branch the types of main first, as the write then does."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "shelf"\n')
    first = (
        "from trails import Node, node_type, predicate\n@node_type\nclass Note(Node):\n"
        '    """A note."""\n    code: str = predicate(key=True)\n'
    )
    (tmp_path / "app.py").write_text(first)
    with App.open(tmp_path, strict=True) as app:
        app.versions().create_branch("old")
    (tmp_path / "app.py").write_text(first + "    text: str | None = predicate()\n")
    calls = Calls(App.open(tmp_path, strict=True))
    operation = {"op": "create", "type": "Note", "data": {"code": "a", "text": "new"}}
    given = {"operations": [operation], "branch": "old"}
    before = log_of(calls.graph)
    dry = calls.result("graph_mutate", {**given, "dry_run": True})
    assert (dry["created"], log_of(calls.graph)) == (1, before)
    assert dry["result"]["applied"] == calls.result("graph_mutate", given)["applied"]
    calls.close()


def test_what_is_too_large_to_be_listed_is_proposed_all_the_same(calls, monkeypatch):
    """Its changes are not compared node by node, which would take too much memory."""
    for module in ("trails.request.drafted", "trails.engine.history.proposals"):
        monkeypatch.setattr(f"{module}.TOO_LARGE", 3)
    report = calls.result("books.write", {**WRITE, "propose": True})
    assert (report["truncated"], report["changes"]) == (True, [])
    assert "too many" in report["notice"]
    (found,) = listed(calls)
    assert (found["created_nodes"], found["conflicts"]) == (None, None)
    calls.result("branch_merge", report["merge"]["arguments"])
    assert counts(calls)["Book"] == 1
