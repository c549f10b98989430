"""Many threads on one graph: no update is lost, and no reader sees half a transaction."""

import threading
from time import monotonic, sleep

import pytest
from tests.campaigns import sized
from tests.journeys.durability.campaign import assert_sound

from trails import App, Node, node_type, predicate
from trails.errors import ConflictError


@node_type
class Counter(Node):
    """A number that grows."""

    name: str = predicate(key=True)
    value: int = predicate()


def count_up(folder, threads, times):
    """Let threads increment one counter by compare-and-swap; its value at the end."""
    failures = []

    def increment(app):
        try:
            ctx = app.context(actor=threading.current_thread().name)
            for _ in range(times):
                while not swap(ctx):
                    pass
        except Exception as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    def swap(ctx):
        head = ctx.kg.head.commit
        counter = Counter.get(ctx, "c")
        counter.value += 1
        try:
            counter.save(ctx, expected_head=head)
        except ConflictError:
            return False
        return True

    with App(types=[Counter], folder=folder) as app:
        ctx = app.context()
        Counter(name="c", value=0).save(ctx)
        run_all([threading.Thread(target=increment, args=(app,)) for _ in range(threads)])
        assert not failures
        assert app.graph().main.head.seq == 2 + threads * times
        if folder is not None:
            assert_sound(app)
        return Counter.get(ctx, "c").value


def run_all(threads):
    """Start threads and wait for them."""
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("on_disk", [True, False])
def test_threads_count_exactly(tmp_path, on_disk):
    """Eight threads, sixty increments each."""
    assert count_up(tmp_path if on_disk else None, 8, 60) == 480


@pytest.mark.long(cases=8 * sized(1_000, nightly=200))
def test_threads_count_to_thousands(tmp_path):
    """Eight threads, a thousand increments each."""
    each = sized(1_000, nightly=200)
    assert count_up(tmp_path, 8, each) == 8 * each


def watch_pairs(folder, rounds):
    """Write two nodes together, again and again, while threads read both; what readers saw."""
    done = threading.Event()
    seen, wrong = {"objects": 0, "sparql": 0}, []

    def listed(ctx):
        return [each.value for each in Counter.objects(ctx)]

    def queried(ctx):
        return [row["v"] for row in ctx.kg.sparql("SELECT ?v WHERE { ?c :value ?v }")]

    def watch(app, how, read):
        try:
            ctx, last = app.context(), -1
            while not done.is_set():
                acknowledged = current[0]
                values = read(ctx)
                if len(values) != 2 or len(set(values)) != 1 or values[0] < acknowledged:
                    wrong.append((how, values, acknowledged))
                if values[0] < last:
                    wrong.append((how, values, last))
                last = values[0]
                seen[how] += 1
        except Exception as error:  # noqa: BLE001 - handed to the test
            wrong.append((how, error))

    def write(app):
        ctx = app.context()
        for number in range(1, rounds):
            with ctx.kg.transaction():
                for name in ("a", "b"):
                    counter = Counter.get(ctx, name)
                    counter.value = number
                    counter.save(ctx)
            current[0] = number
        give_up = monotonic() + 60
        while not all(seen.values()) and monotonic() < give_up:
            sleep(0.01)
        done.set()

    current = [0]
    with App(types=[Counter], folder=folder) as app:
        app.context().kg.save_all(Counter(name=name, value=0) for name in ("a", "b"))
        run_all(
            [
                threading.Thread(target=write, args=(app,)),
                threading.Thread(target=watch, args=(app, "objects", listed)),
                threading.Thread(target=watch, args=(app, "objects", listed)),
                threading.Thread(target=watch, args=(app, "sparql", queried)),
            ]
        )
    return seen, wrong


@pytest.mark.parametrize("on_disk", [True, False])
def test_readers_never_see_half_a_transaction(tmp_path, on_disk):
    """Two nodes that are always written together are always equal, and never older than known."""
    seen, wrong = watch_pairs(tmp_path if on_disk else None, 200)
    assert not wrong
    assert all(seen.values())


@pytest.mark.long(cases=sized(5_000, nightly=500))
def test_readers_never_see_half_a_transaction_for_long(tmp_path):
    """The same for thousands of transactions."""
    seen, wrong = watch_pairs(tmp_path, sized(5_000, nightly=500))
    assert not wrong
    assert all(seen.values())
