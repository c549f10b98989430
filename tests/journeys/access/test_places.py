"""Branches and commits by name: what a caller may not use is not there, whatever exists."""

import pytest

from trails import App, Node, node_type, predicate
from trails.errors import ConflictError, ForbiddenError, NotFoundError
from trails.model.history import MergeRequest
from trails.model.visibility import FULL
from trails.model.writes import LoadRequest


@node_type
class Note(Node):
    """Something written down."""

    text: str = predicate(key=True)


class Rules:
    """Allows what a test says: (action, branch, target), where ``*`` is anything."""

    unrestricted = False

    def __init__(self, *allowed):
        self._allowed = allowed

    def may(self, action, branch, target=""):
        """Whether some rule fits."""
        asked = (action, branch, target)
        return any(
            all(rule in ("*", given) for rule, given in zip(each, asked, strict=True))
            for each in self._allowed
        )

    def visibility(self, schema, branches):
        """All of it."""
        del schema, branches
        return FULL


READ = ("Read", "*", "*")


@pytest.fixture
def app():
    """A graph with main, dev and hidden, each with a commit of its own."""
    with App(Note) as app:
        load(app, "main", "a")
        for name in ("dev", "hidden"):
            app.versions().create_branch(name)
            load(app, name, name)
        yield app


def load(app, branch, text):
    """Write a note; the commit."""
    line = b'{"type": "Note", "data": {"text": "%s"}}' % text.encode()
    return app.load(LoadRequest(files=([line],), format="ndjson", branch=branch)).commit


def versions(app, *rules):
    """The history, as far as some rules allow."""
    return app.service().versions("ann", access=Rules(*rules))


def told(work, *arguments, **named):
    """What is said of something that is refused."""
    with pytest.raises(NotFoundError) as refused:
        work(*arguments, **named)
    return refused.value.message, refused.value.data


class TestForks:
    def test_a_fork_needs_reading_where_it_begins(self, app):
        """Without it the branch does not exist, though forks from it are allowed."""
        reads = [("Read", each, "*") for each in ("main", "new")]
        there = versions(app, *reads, ("BranchCreate", "*", "*"))
        message, data = told(there.create_branch, "new", "hidden")
        assert message == "there is no branch or commit 'hidden'; there are main"
        assert data == {"reference": "hidden"}
        assert there.create_branch("new", "main").name == "new"

    def test_a_fork_is_decided_by_both_ends(self, app):
        """A source that would not do for this name is unknown where another one would."""
        there = versions(app, READ, ("BranchCreate", "main", "*"))
        assert told(there.create_branch, "new", "dev")[0].startswith("there is no branch")
        assert there.create_branch("new", "main").name == "new"

    def test_a_name_that_may_not_be_given_is_refused_whatever_exists(self, app):
        """The same words for what exists, what does not, and any source."""
        there = versions(app, READ, ("BranchCreate", "*", "mine"))
        said = set()
        for name, source in (("new", "main"), ("new", "nowhere"), ("dev", "main")):
            with pytest.raises(ForbiddenError) as refused:
                there.create_branch(name, source)
            said.add(refused.value.message.replace(repr(name), "NAME"))
        assert said == {"you may not create branch NAME; choose another name"}
        unread = versions(app, ("Read", "main", "*"), ("BranchCreate", "*", "*"))
        for name in ("hidden", "nothing"):  # a name that is taken would tell of it
            with pytest.raises(ForbiddenError, match=f"you may not create branch '{name}'"):
                unread.create_branch(name, "main")
        with pytest.raises(ConflictError):
            app.versions().create_branch("dev")

    def test_a_commit_is_no_way_around_a_branch(self, app):
        """A fork at a commit is asked for as such; its digits do not stand for its branch."""
        head = app.graph().log_head("dev").commit
        narrow = versions(app, READ, ("BranchCreate", "main", "*"))
        assert told(narrow.create_branch, "new", head)[0].startswith("there is no branch or commit")
        wide = versions(app, READ, ("BranchCreate", "", "*"))
        assert wide.create_branch("new", head).head == head
        reads = [("Read", each, "*") for each in ("main", "other")]
        unread = versions(app, *reads, ("BranchCreate", "", "*"))
        assert told(unread.create_branch, "other", head)[0].startswith("there is no branch")

    def test_a_load_forks_as_a_fork_does(self, app):
        """It needs to change the new branch, to make it, and to read where it begins."""
        line = b'{"type": "Note", "data": {"text": "x"}}'
        request = LoadRequest(files=([line],), format="ndjson", branch="new", source="dev")
        service = app.service()
        some = [READ, ("Change", "new", "*"), ("BranchCreate", "dev", "new")]
        for left_out in range(3):
            rules = Rules(*(each for at, each in enumerate(some) if at != left_out))
            with pytest.raises((NotFoundError, ForbiddenError)):
                service.load("ann", request, access=rules)
            assert "new" not in app.graph().log.branches()
        assert service.load("ann", request, access=Rules(*some)).forked


class TestMerges:
    @pytest.mark.parametrize(
        ("rules", "missing"),
        [
            ([("Change", "main", "*"), ("BranchMerge", "dev", "main")], "'dev'"),
            ([READ, ("BranchMerge", "dev", "main")], "'main'"),
            ([READ, ("Change", "main", "*")], "'main'"),
            ([READ, ("Change", "main", "*"), ("BranchMerge", "main", "dev")], "'main'"),
        ],
    )
    def test_a_merge_needs_both_ends(self, app, rules, missing):
        """Reading the source, changing the target, and the merge of these two."""
        head = app.graph().log_head("main")
        message, _ = told(versions(app, *rules).merge, MergeRequest("dev", "main"))
        assert message.startswith("there is no branch")
        assert message.partition(";")[0].endswith(missing)
        assert app.graph().log_head("main") == head

    def test_a_merge_of_a_commit_is_asked_for_as_such(self, app):
        """Its digits do not stand for its branch."""
        head = app.graph().log_head("dev").commit
        some = [READ, ("Change", "main", "*")]
        with pytest.raises(NotFoundError, match="there is no branch 'main'"):
            versions(app, *some, ("BranchMerge", "dev", "main")).merge(MergeRequest(head, "main"))
        done = versions(app, *some, ("BranchMerge", "", "main")).merge(MergeRequest(head, "main"))
        assert done.outcome == "fast_forward"


class TestNames:
    def test_main_can_not_be_deleted_and_that_is_told_to_some(self, app):
        """For others there is no such branch to delete."""
        assert told(versions(app, READ).delete_branch, "main")[0].startswith("there is no branch")

    @pytest.mark.parametrize(
        "spelled",
        ["Hidden", "hidden ", " hidden", "hidden/", "./hidden", "hidden%00", "\uff48idden"],
    )
    def test_no_other_spelling_reaches_a_branch(self, app, spelled):
        """Names are compared as they are; what is judged is what is used."""
        open_ones = app.service()
        rules = Rules(("Read", "main", "*"))
        for branch in ("hidden", spelled):
            with pytest.raises(NotFoundError):
                open_ones.context(
                    "ann", branch, access=rules, permits=lambda each: rules.may("Read", each)
                )
        with pytest.raises(NotFoundError):
            open_ones.context("ann", spelled)

    def test_digits_of_several_commits_are_of_those_that_are_seen(self, app):
        """An ambiguity tells of commits; hidden ones make none and are in no list."""
        log = app.graph().log
        hidden, seen = log.head("hidden").commit, log.head("dev").commit
        there = versions(app, ("Read", "main", "*"), ("Read", "dev", "*"))
        assert there.commit(seen[:8]).commit.id == seen
        assert told(there.commit, hidden[:8])[0].startswith("there is no branch or commit")

    def test_a_branch_that_was_made_anew_does_not_contain_what_it_had(self, app):
        """What is remembered of a branch is not believed of its namesake."""
        first = load(app, "dev", "b")
        load(app, "dev", "c")
        there = versions(app, ("Read", "dev", "*"))
        assert there.commit(first).commit.id == first
        app.versions().create_branch("keeps", "dev")
        app.versions().delete_branch("dev", force=True)
        load(app, "main", "d")
        app.versions().create_branch("dev", "main")
        assert told(there.commit, first)[0].startswith("there is no branch or commit")
