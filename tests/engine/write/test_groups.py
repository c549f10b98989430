"""Group commit: writers who wait for each other become durable with one append.

Each stays a commit of its own, with its own outcome; nobody sees or hears of what is not durable.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from trails import App, Node, node_type, predicate
from trails.engine.graph import groups
from trails.engine.graph.graph import Graph
from trails.engine.upkeep.verify import verify
from trails.errors import (
    ConflictError,
    StorageError,
    StorageFullError,
    TransactionError,
    ValidationError,
)
from trails.log.protocol import LogEntry
from trails.model import fairness


@node_type
class Item(Node):
    """Something with a count."""

    name: str = predicate(key=True)
    code: str | None = predicate(unique=True)
    count: int = predicate(default=0)


class Appends:
    """What a log was given to append, each time; ``error`` refuses it."""

    def __init__(self, graph: Graph) -> None:
        self.groups: list[list[LogEntry]] = []
        self.error: BaseException | None = None
        self.late = False
        """Whether the error comes after the commits are in the log."""
        self._insert = graph.log.insert_all
        graph.log.insert_all = self.insert_all  # type: ignore[method-assign]

    def insert_all(self, entries: list[LogEntry], **options: object) -> None:
        """Append them, or refuse."""
        self.groups.append(list(entries))
        if self.error is not None and not self.late:
            raise self.error
        self._insert(entries, **options)  # type: ignore[arg-type]
        if self.error is not None:
            raise self.error

    @property
    def sizes(self) -> list[int]:
        """How many commits there were each time."""
        return [len(each) for each in self.groups]


@pytest.fixture(autouse=True)
def patience(monkeypatch) -> None:
    """However slow this machine is."""
    monkeypatch.setattr(groups, "_SECONDS", 60.0)


@pytest.fixture
def app(tmp_path) -> Iterator[App]:
    """A graph on disk."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "t"\n', encoding="utf-8")
    with App(Item, folder=tmp_path / "data") as opened:
        Item(name="first", code="one").save(opened.context())
        yield opened


@pytest.fixture
def appends(app: App) -> Appends:
    """What its log appends from now on."""
    return Appends(app.graph())


class Writer(threading.Thread):
    """One writer in a thread, and what came of it."""

    def __init__(self, work: Callable[[], object]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self.result: object = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Write."""
        try:
            self.result = self._work()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error


@contextmanager
def waiting(app: App, *works: Callable[[], object]) -> Iterator[list[Writer]]:
    """Let writers wait for the lock, in this order, until the block ends; then let all end."""
    graph = app.graph()
    writers = [Writer(each) for each in works]
    with graph.writing("nobody"):
        for number, each in enumerate(writers, 1):
            each.start()
            while graph.writers()[1] < number:
                threading.Event().wait(0.001)
        yield writers
    for each in writers:
        each.join(30)
        assert not each.is_alive()


def save(app: App, name: str, **values: object) -> Callable[[], object]:
    """A save that begins when it is called."""
    return lambda: Item(name=name, **values).save(app.context(actor=name))  # type: ignore[arg-type]


def names(app: App, branch: str = "main") -> set[str]:
    """The items that readers see, in the node index and by SPARQL."""
    ctx = app.context(branch=branch)
    found = {each.name for each in Item.objects(ctx)}
    text = "SELECT ?n WHERE { ?s a :Item ; :name ?n }"
    rows = app.graph().reading_quads(
        ctx.checkout, lambda quads: [row[0].value for row in quads.query(text, app.graph().names)]
    )
    assert sorted(rows) == sorted(found)
    return found


def assert_sound(app: App) -> None:
    """The views are as the log says."""
    assert not [each for each in verify(app.graph(), lambda _: None) if each.severity != "ok"]


def test_writers_who_wait_become_durable_together(app: App, appends: Appends) -> None:
    """One append for all, one commit for each, in their order, by its own actor."""
    with waiting(app, *(save(app, f"i{number}") for number in range(5))) as writers:
        pass
    assert appends.sizes == [5]
    assert [each.error for each in writers] == [None] * 5
    graph = app.graph()
    made = list(graph.log.commits(after=2))
    assert [each.actor for each in made] == [f"i{number}" for number in range(5)]
    assert [each.id for each in made] == [each.result.id for each in writers]  # type: ignore[attr-defined]
    assert [each.parents for each in made[1:]] == [(each.id,) for each in made[:-1]]
    assert names(app) == {"first", *(f"i{number}" for number in range(5))}
    assert_sound(app)


def test_a_writer_waits_for_no_company(app: App, appends: Appends) -> None:
    """One after the other, each is appended by itself."""
    for number in range(3):
        save(app, f"i{number}")()
    assert appends.sizes == [1, 1, 1]


@pytest.mark.parametrize(
    ("bound", "value", "sizes"),
    [("_MOST", 2, [2, 2, 1]), ("_BYTES", 1, [1] * 5), ("_SECONDS", 0.0, [1] * 5)],
)
def test_a_group_is_bounded(
    app: App, appends: Appends, monkeypatch, bound: str, value: float, sizes: list[int]
) -> None:
    """In number, bytes and time: the first writer does not wait for any number of others."""
    monkeypatch.setattr(groups, bound, value)
    with waiting(app, *(save(app, f"i{number}") for number in range(5))):
        pass
    assert appends.sizes == sizes
    assert_sound(app)


def test_a_refused_write_takes_nothing_with_it(app: App, appends: Appends) -> None:
    """It is refused for what is pending as for what is durable; the others are written."""
    with waiting(
        app,
        save(app, "a", code="x"),
        save(app, "b", code="x"),
        save(app, "c", count="many"),
        save(app, "d", code="y"),
    ) as writers:
        pass
    assert appends.sizes == [2]
    assert [type(each.error) for each in writers] == [
        type(None),
        ValidationError,
        ValidationError,
        type(None),
    ]
    assert names(app) == {"first", "a", "d"}
    assert_sound(app)


def test_what_a_group_can_not_append_fails_for_all_and_is_never_seen(
    app: App, appends: Appends
) -> None:
    """Also for one that was refused because of what was pending: that has never happened."""
    appends.error = StorageFullError("no space")
    with waiting(
        app, save(app, "a", code="x"), save(app, "b", code="x"), save(app, "c")
    ) as writers:
        pass
    assert [type(each.error) for each in writers] == [StorageFullError] * 3
    assert len({id(each.error) for each in writers}) == 3
    assert names(app) == {"first"}
    appends.error = None
    save(app, "b", code="x")()
    assert names(app) == {"first", "b"}
    assert_sound(app)


def test_readers_see_a_group_only_when_it_is_durable(app: App) -> None:
    """Neither its nodes nor its heads, while the log is being written."""
    seen: list[object] = []
    graph = app.graph()
    before = graph.main.head

    def look(step: str) -> None:
        if step == "before_append":
            reader = Writer(lambda: (names(app), graph.main.head, graph.main.nodes.position.commit))
            reader.start()
            reader.join(10)
            seen.append(reader.result)

    graph.on_step = look  # type: ignore[assignment]
    with waiting(app, save(app, "a"), save(app, "b")):
        pass
    assert seen == [({"first"}, before, before.commit)]
    assert names(app) == {"first", "a", "b"}


def test_nothing_gives_way_while_a_group_lands(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last writer holds the lock, and all the others wait."""
    pauses: list[float] = []
    monkeypatch.setattr(fairness, "sleep", pauses.append)
    paused: dict[str, int] = {}

    def try_to_pause(step: str) -> None:
        assert fairness._current_work.get() is not None
        before = len(pauses)
        fairness.give_way()
        paused[step] = len(pauses) - before

    def work(save: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            begun = fairness.WorkInProgress(is_long=True)
            try:
                save()
            finally:
                begun.end()

        return run

    app.graph().on_step = try_to_pause  # type: ignore[assignment]
    beside = fairness.WorkInProgress()
    with waiting(app, work(save(app, "a")), work(save(app, "b"))):
        pass
    beside.end()
    landing = ("before_append", "after_append", "mid_apply", "after_apply")
    assert [paused[step] for step in landing] == [0, 0, 0, 0]
    assert names(app) == {"first", "a", "b"}


def test_an_interrupt_says_what_is_in_the_log(app: App, appends: Appends) -> None:
    """Before the commit nothing is written, for anybody; after it everything is."""
    appends.error = KeyboardInterrupt()
    with waiting(app, save(app, "a"), save(app, "b")) as writers:
        pass
    assert isinstance(writers[0].error, TransactionError)
    assert isinstance(writers[1].error, KeyboardInterrupt)
    assert names(app) == {"first"}
    appends.late = True
    with waiting(app, save(app, "a"), save(app, "b")) as writers:
        pass
    assert writers[0].error is None
    assert isinstance(writers[1].error, KeyboardInterrupt)
    appends.error = None
    save(app, "c")()
    assert names(app) == {"first", "a", "b", "c"}
    assert_sound(app)


def test_a_writer_that_is_interrupted_as_it_gets_the_lock_leaves_nobody_waiting(
    app: App, appends: Appends, monkeypatch
) -> None:
    """The writes that were handed to it become durable all the same."""
    queue = app.graph()._writers
    acquire = queue.acquire

    def interrupted(actor: str, timeout: float) -> bool:
        got = acquire(actor, timeout)
        if actor == "b":
            queue.release(actor)  # as the queue does when an interrupt comes then
            raise KeyboardInterrupt
        return got

    monkeypatch.setattr(queue, "acquire", interrupted)
    with waiting(app, save(app, "a"), save(app, "b")) as (first, second):
        pass
    assert first.error is None
    assert isinstance(second.error, KeyboardInterrupt)
    assert (names(app), appends.sizes) == ({"first", "a"}, [1])
    Item(name="c").save(app.context())
    assert_sound(app)


def test_a_key_of_a_pending_write_is_answered_with_its_outcome(app: App, appends: Appends) -> None:
    """A retry that comes before the first attempt is durable waits for it."""

    def keyed() -> object:
        return Item(name="a").save(app.context(actor="ann"), idempotency_key="k")

    with waiting(app, keyed, keyed) as writers:
        pass
    assert writers[0].result == writers[1].result
    assert appends.sizes == [1]


def test_an_expected_head_is_compared_with_what_is_pending(app: App) -> None:
    """The second of two writers with the same expectation loses."""
    head = app.graph().main.head.commit

    def expecting(name: str) -> Callable[[], object]:
        return lambda: Item(name=name).save(app.context(), expected_head=head)

    with waiting(app, expecting("a"), expecting("b")) as writers:
        pass
    assert writers[0].error is None
    assert isinstance(writers[1].error, ConflictError)


def test_a_transaction_does_not_keep_others_waiting(app: App, appends: Appends) -> None:
    """Code of a project may take long: what is pending becomes durable before it begins."""

    def transact() -> None:
        ctx = app.context(actor="t")
        with ctx.kg.transaction():
            assert appends.sizes == [2]
            Item(name="c").save(ctx)

    with waiting(app, save(app, "a"), save(app, "b"), transact, save(app, "d")) as writers:
        pass
    assert [each.error for each in writers] == [None] * 4
    assert appends.sizes == [2, 2]
    assert names(app) == {"first", "a", "b", "c", "d"}


def test_branches_share_a_group(app: App, appends: Appends) -> None:
    """Each write follows the head of its own branch."""
    graph = app.graph()
    app.versions().create_branch("b")
    appends.groups.clear()

    def on_branch(name: str) -> Callable[[], object]:
        return lambda: Item(name=name).save(app.context(branch="b"))

    on_branch("warm")()
    with waiting(app, save(app, "a"), on_branch("x"), save(app, "c"), on_branch("y")):
        pass
    assert appends.sizes == [1, 4]
    assert names(app) == {"first", "a", "c"}
    assert names(app, "b") == {"first", "warm", "x", "y"}
    assert graph.log.head("b") != graph.log.head("main")
    assert_sound(app)


def test_a_view_that_lags_is_named_to_each_writer(app: App, monkeypatch) -> None:
    """Every commit is safe, and each error names its own."""

    def refuse(*args: object) -> None:
        raise StorageError("no")

    graph = app.graph()
    with waiting(app, save(app, "a"), save(app, "b")) as writers:
        monkeypatch.setattr(graph.stores, "land", refuse)
        monkeypatch.setattr(graph, "catch_up", refuse)
    made = [each.id for each in graph.log.commits(after=2)]
    assert [each.error.data["commit"] for each in writers] == made  # type: ignore[union-attr]
    monkeypatch.undo()
    assert names(app) == {"first", "a", "b"}


def test_an_index_that_rolls_back_by_itself_follows_the_log(app: App) -> None:
    """As SQLite does for lack of space: the commits are written all the same."""
    graph = app.graph()

    def roll_back(step: str) -> None:
        if step == "before_append":
            graph.file.db.execute("ROLLBACK")

    with waiting(app, save(app, "a"), save(app, "b")) as writers:
        graph.on_step = roll_back  # type: ignore[assignment]
    graph.on_step = lambda step: None
    assert [each.error for each in writers] == [None, None]
    assert names(app) == {"first", "a", "b"}
    save(app, "c")()
    assert names(app) == {"first", "a", "b", "c"}
    assert_sound(app)
