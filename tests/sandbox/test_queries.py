"""What a query through the sandbox answers, and that it sees every commit."""

import random
import threading
from concurrent.futures import ThreadPoolExecutor

import pyoxigraph as ox
import pytest
from tests.sandbox.branches import EX, Branch, bare, statements
from tests.worlds.processes import PATIENCE, kill_workers_of, wait_until

from trails.errors import BudgetError, LimitError, QueryError, TrailsError
from trails.model.history import Position
from trails.sandbox.limits import Limits
from trails.sandbox.pool import Sandbox


def test_a_select_gives_the_rows_of_the_store(branch, sandbox):
    """The same terms, in the same columns."""
    text = f"SELECT ?s ?n {{ ?s <{EX}number> ?n FILTER(?n < 5) }} ORDER BY ?n"
    result = sandbox.query(branch, text, caller="ann")
    assert result.form == "select"
    assert result.variables == ("s", "n")
    assert list(result.rows) == bare(branch, text)
    assert result.truncated is None
    assert result.notice is None
    assert 0 < result.seconds < 30


@pytest.mark.parametrize(
    "values",
    [
        "",
        "1 1.5 1e0 true",
        '"" "a\\tb\\nc\\"d\\\\" "x"@en "y"@en--ltr "é\\u0000"',
        f'<{EX}a> "z"^^<{EX}d> "x"^^<http://www.w3.org/2001/XMLSchema#integer>',
        "UNDEF 1 UNDEF",
        f"<<( <{EX}a> <{EX}b> <<( <{EX}a> <{EX}b> 1 )>> )>>",
    ],
)
def test_every_kind_of_term_comes_back_as_it_was(branch, sandbox, values):
    """TSV written by the engine and read by the library loses nothing."""
    text = f"SELECT ?x {{ VALUES ?x {{ {values} }} }}"
    assert list(sandbox.query(branch, text, caller="ann").rows) == bare(branch, text)


@pytest.mark.parametrize("text", ["SELECT * {}", "SELECT * { FILTER(false) }"])
def test_a_select_without_variables_has_rows(branch, sandbox, text):
    """No columns, but a row or none."""
    result = sandbox.query(branch, text, caller="ann")
    assert result.variables == ()
    assert list(result.rows) == bare(branch, text)


def test_ask_has_a_truth(branch, sandbox):
    """And neither rows nor columns."""
    yes = sandbox.query(branch, f"ASK {{ <{EX}thing/7> ?p ?o }}", caller="ann")
    no = sandbox.query(branch, f"ASK {{ <{EX}nothing> ?p ?o }}", caller="ann")
    assert (yes.form, yes.truth, yes.rows, yes.variables) == ("ask", True, (), ())
    assert no.truth is False


def test_construct_gives_triples(branch, sandbox):
    """Rows of subject, predicate and object."""
    text = f"CONSTRUCT {{ ?s <{EX}is> ?n }} WHERE {{ ?s <{EX}number> ?n FILTER(?n = 7) }}"
    result = sandbox.query(branch, text, caller="ann")
    assert result.form == "graph"
    assert result.truth is None
    assert result.variables == ("subject", "predicate", "object")
    (row,) = result.rows
    assert row == (ox.NamedNode(EX + "thing/7"), ox.NamedNode(EX + "is"), ox.Literal(7))


def test_prefixes_are_known(branch, sandbox):
    """A query may use names that the graph declares."""
    prefixes = {"t": EX + "thing/", "e": EX}
    result = sandbox.query(branch, "SELECT ?n { t:3 e:number ?n }", caller="ann", prefixes=prefixes)
    assert result.rows == ((ox.Literal(3),),)


def test_a_result_is_cut_at_its_rows_and_says_so(branch, sandbox):
    """The first rows are whole, and the notice says what to do."""
    few = Limits(seconds=60, memory=400 << 20, rows=7)
    result = sandbox.query(branch, "SELECT * { ?s ?p ?o }", caller="ann", limits=few)
    assert len(result) == 7
    assert result.truncated == "rows"
    assert "first 7 rows" in result.notice
    assert "LIMIT" in result.notice
    exact = sandbox.query(branch, "SELECT * { ?s ?p ?o } LIMIT 7", caller="ann", limits=few)
    assert len(exact) == 7
    assert exact.truncated is None


def test_a_result_is_cut_at_its_bytes_and_says_so(branch, sandbox):
    """Never within a row."""
    small = Limits(seconds=60, memory=400 << 20, result_bytes=1000)
    for text in ("SELECT * { ?s ?p ?o }", "CONSTRUCT WHERE { ?s ?p ?o }"):
        result = sandbox.query(branch, text, caller="ann", limits=small)
        assert result.truncated == "bytes"
        assert len(result.body) <= 1000
        assert 3 < len(result.rows) < 20
        assert "result_mb" in result.notice
    wide = sandbox.query(
        branch, f"SELECT ?{'x' * 2000} {{ ?{'x' * 2000} ?p ?o }}", caller="ann", limits=small
    )
    assert (wide.rows, wide.truncated) == ((), "bytes")


def test_a_syntax_error_is_a_query_error(branch, sandbox):
    """With the parser's message."""
    with pytest.raises(QueryError, match=r"query can't be run: error at 1:\d+"):
        sandbox.query(branch, "SELECT ?x WHERE { ?x ", caller="ann")


@pytest.mark.parametrize("text", ["\ud800", "SELECT \udfff"])
def test_text_that_is_not_unicode_is_refused(branch, sandbox, text):
    """It could not be sent."""
    with pytest.raises(QueryError, match="not Unicode"):
        sandbox.query(branch, text, caller="ann")


def test_text_beyond_the_limit_is_refused(branch, sandbox):
    """With the limit's name and value."""
    with pytest.raises(LimitError, match="make it shorter") as caught:
        sandbox.query(branch, "#" * 70_000, caller="ann")
    assert caught.value.data == {"limit": "text_bytes", "value": 65536}


def test_prefixes_that_are_no_iris_are_refused(branch, sandbox):
    """As an error of the query."""
    with pytest.raises(QueryError, match="prefix"):
        sandbox.query(branch, "ASK {}", caller="ann", prefixes={"x": "not an IRI"})


def test_check_parses_only(sandbox):
    """A text is right or has a message; no data is needed."""
    sandbox.check("SELECT * { ?s ?p ?o }")
    sandbox.check("INSERT { ?s ?p 1 } WHERE { ?s ?p ?o }", update=True)
    sandbox.check("ASK { e:a ?p ?o }", prefixes={"e": EX})
    for text, update in (("SELECT * {", False), ("INSERT DATA {", True), ("ASK {}", True)):
        with pytest.raises(QueryError, match="error at"):
            sandbox.check(text, update=update)


def test_a_read_sees_every_commit_before_it(branch, sandbox):
    """Each of a thousand, in its turn, without a new checkpoint for it."""
    for n in range(1000):
        branch.commit(added=f"<{EX}new> <{EX}count> <{EX}{n}> .\n")
        text = f"ASK {{ <{EX}new> <{EX}count> <{EX}{n}> }}"
        assert sandbox.query(branch, text, caller="ann").truth
    assert branch.checkpoints == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_follower_is_the_store(tmp_path, sandbox, seed):
    """After random commits, a query sees exactly what the store's default graph holds."""
    chance = random.Random(seed)
    branch = Branch(tmp_path / "random")
    terms = [f"<{EX}{n}>" for n in range(4)]
    objects = [*terms, '"a b"', '"x"@en', '"7"^^<http://www.w3.org/2001/XMLSchema#integer>']
    graphs = ["", f" <{EX}g>", f" <{EX}h>"]
    present = set()
    text = "SELECT * { { ?s ?p ?o } UNION { GRAPH ?g { ?s ?p ?o } } }"
    for _ in range(60):
        made = {
            f"{chance.choice(terms)} {chance.choice(terms)} {chance.choice(objects)}"
            f"{chance.choice(graphs)} .\n"
            for _ in range(chance.randrange(1, 6))
        }
        gone = set(chance.sample(sorted(present), chance.randrange(len(present) // 2 + 1)))
        present = present - gone | made
        branch.commit("".join(sorted(gone)), "".join(sorted(made - gone)))
        present -= gone & made
        if chance.random() < 0.5:
            found = sandbox.query(branch, text, caller="ann").rows
            assert sorted(map(str, found)) == sorted(map(str, bare(branch, text)))
            data = list(branch.store.quads_for_pattern(None, None, None, ox.DefaultGraph()))
            assert len(found) == len(data)


def test_a_large_commit_is_followed(branch, sandbox):
    """As a bulk load inside the worker."""
    count = f"SELECT (COUNT(*) AS ?n) {{ ?s <{EX}name> ?o }}"
    sandbox.query(branch, count, caller="ann")
    branch.commit(added=statements(12_000, start=1_000))
    result = sandbox.query(branch, count, caller="ann")
    assert result.rows == ((ox.Literal(12_200),),)
    assert branch.checkpoints == 1


def test_a_line_that_can_not_be_followed_gets_a_new_base(branch, sandbox):
    """The source says that the way is too long."""
    sandbox.query(branch, "ASK {}", caller="ann")
    branch.reach = 5
    for n in range(10):
        branch.commit(added=f"<{EX}new> <{EX}count> <{EX}{n}> .\n")
    result = sandbox.query(branch, f"SELECT * {{ <{EX}new> ?p ?o }}", caller="ann")
    assert len(result) == 10
    assert branch.checkpoints == 2


def test_lines_do_not_mix(tmp_path):
    """Each branch has its own workers; beyond the limit the least recently used ones end."""
    branches = [Branch(tmp_path / f"b{n}", key=f"b{n}") for n in range(4)]
    sandbox = Sandbox(tmp_path / "scratch", Limits(lines=2))
    for n, branch in enumerate(branches):
        branch.commit(added=f"<{EX}me> <{EX}is> <{EX}{n}> .\n")
    for n in (0, 1, 2, 1, 3, 1, 0):
        result = sandbox.query(branches[n], "SELECT ?o { ?s ?p ?o }", caller="ann")
        assert result.rows == ((ox.NamedNode(f"{EX}{n}"),),)
    assert list(sandbox._groups) == ["b1", "b0"]
    assert [branch.checkpoints for branch in branches] == [2, 1, 1, 1]
    sandbox.close()


def test_a_caller_has_some_queries_at_a_time(branch, tmp_path):
    """The next one waits for its turn, then hears that it should come back; others go on."""
    sandbox = Sandbox(
        tmp_path / "scratch", Limits(seconds=60, memory=400 << 20, per_caller=1, patience=0.1)
    )
    slow = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
    ended = []

    def run():
        try:
            sandbox.query(branch, slow, caller="eve")
        except TrailsError as error:
            ended.append(error)

    sandbox.query(branch, "ASK {}", caller="ann")
    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: sandbox._groups["main"]._running)
    for _ in range(3):
        with pytest.raises(BudgetError, match=r"'\[sandbox\] per_caller'") as caught:
            sandbox.query(branch, "ASK {}", caller="eve")
        assert caught.value.data["retry_after"] == 1
        assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="ann").truth
    assert not ended
    while thread.is_alive():
        kill_workers_of(sandbox)
        thread.join(0.05)
    assert ended
    assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="eve").truth
    sandbox.close()


def test_parallel_queries_of_one_caller_wait_for_their_turn(branch, sandbox):
    """Four at once are all answered, two at a time."""
    text = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f }"
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(sandbox.query, branch, text, caller="ann") for _ in range(4)]
        assert len({each.result(PATIENCE).rows for each in asked}) == 1


def test_who_used_much_leaves_a_worker_to_the_others(branch, sandbox):
    """Those whose queries loop have the usual workers, so that others are answered."""
    slow = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
    failed = []

    def loop(caller):
        try:
            sandbox.query(branch, slow, caller=caller)
        except TrailsError as error:
            failed.append(error)

    sandbox.query(branch, "ASK {}", caller="ann")
    callers = ("eve", "mal", "sly")
    for caller in callers:
        sandbox._recent.add(caller, 10.0)
    loops = [threading.Thread(target=loop, args=(caller,)) for caller in callers]
    for each in loops:
        each.start()
    line = sandbox._groups["main"]
    wait_until(lambda: line._running == 2 and line._places._waiting)
    for _ in range(3):
        assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="ann").truth
    assert not failed
    while any(each.is_alive() for each in loops):
        kill_workers_of(sandbox)
        for each in loops:
            each.join(0.05)
    assert len(failed) == 3


def test_many_callers_at_once(branch, sandbox):
    """Threads share the workers, and each gets its own answer."""
    wrong = []

    def run(caller):
        for n in range(caller, 200, 8):
            text = f"SELECT ?n {{ <{EX}thing/{n}> <{EX}number> ?n }}"
            result = sandbox.query(branch, text, caller=str(caller))
            if result.rows != ((ox.Literal(n),),):
                wrong.append((n, result.rows))

    threads = [threading.Thread(target=run, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_checkpoint_may_be_ahead_of_the_head(branch, sandbox):
    """A commit is in the store a moment before it is the head; the reader waits for it."""
    looks = 0
    real = branch.head

    def head():
        nonlocal looks
        looks += 1
        return real() if looks > 10 else Position(0, "")

    def checkpoint(folder):
        branch.store.backup(folder)
        return real()

    branch.head, branch.checkpoint = head, checkpoint
    assert sandbox.query(branch, "ASK { ?s ?p ?o }", caller="ann").truth
    assert looks > 10


def test_workers_are_used_again(branch, sandbox):
    """By the same caller, query after query; by files, one after the other."""
    for _ in range(20):
        sandbox.query(branch, "ASK {}", caller="ann")
        list(sandbox.parse([b"<a:a> <a:b> 1 ."], "turtle"))
    lines = sandbox._groups.values()
    assert all(line._idle for line in lines)
    assert all(worker.alive for line in lines for worker in line._idle)
    followers = {worker.pid for worker in sandbox._groups["main"]._idle if worker.caller == "ann"}
    for _ in range(20):
        sandbox.query(branch, "ASK {}", caller="ann")
    used = {worker.pid for worker in sandbox._groups["main"]._idle if worker.caller == "ann"}
    assert used == followers
    assert len(used) == 1


def test_a_worker_that_has_followed_many_commits_is_replaced(branch, sandbox, monkeypatch):
    """Small commits are held in its memory: what they may take there is bounded."""
    monkeypatch.setattr("trails.sandbox.workers._MAX_HELD", 40 * 512)
    used = set()
    for number in range(100):
        branch.commit(added=f'<x:s{number}> <x:p> "v" .\n')
        sandbox.query(branch, "ASK {}", caller="ann")
        line = sandbox._groups["main"]
        used |= {worker.pid for worker in line._idle}
        assert all(worker.fed < 60 * 512 for worker in line._idle)
    assert len(used) > 2
    found = sandbox.query(branch, 'SELECT ?s { ?s <x:p> "v" }', caller="ann")
    assert len(found.rows) == 100
