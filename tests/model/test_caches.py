"""What takes long to make is made once, shared, and let go when it is not used."""

from concurrent.futures import ThreadPoolExecutor

from trails import App, Node, node_type, predicate
from trails.engine.transfer.ndjson import fast_lines
from trails.model.caches import BoundedCache, LRUCache
from trails.views.nodes.rows import docs_of


def test_it_is_made_once_and_the_oldest_goes():
    """Asking again makes nothing; what was used longest ago makes room."""
    made = []
    kept = LRUCache(2)

    def make(key):
        return kept.get(key, lambda: made.append(key) or f"made of {key}")

    assert [make(key) for key in "aabab"] == [f"made of {key}" for key in "aabab"]
    assert made == ["a", "b"]
    make("c")  # a was used before b
    assert (make("b"), made) == ("made of b", ["a", "b", "c"])
    make("a")
    assert made == ["a", "b", "c", "a"]


def test_what_is_nothing_is_kept_too():
    """A value that is empty or false is a value."""
    made = []
    kept = LRUCache(2)
    for _ in range(3):
        assert kept.get("x", lambda: made.append(1)) is None
    assert made == [1]


def test_threads_get_the_same():
    """Whoever asks at the same time gets the one that is made."""
    kept = LRUCache(4)
    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(lambda _: kept.get("x", object), range(200)))
    assert len(set(map(id, found))) == 1


def test_a_full_one_starts_again():
    """A new key drops the others; a key that is there already does not."""
    kept = BoundedCache(2)
    kept["a"], kept["b"], kept["a"] = 1, 2, 3
    assert kept == {"a": 3, "b": 2}
    kept["c"] = 4
    assert kept == {"c": 4}


@node_type
class Note(Node):
    """Something written down."""

    text: str = predicate()


def test_branches_share_what_comes_of_their_schema():
    """The same types, the same reader, on every branch and in every load."""
    with App(Note) as app:
        app.versions().create_branch("b")
        lines = [app.graph().checkout(name) for name in ("main", "b")]
        assert lines[0].nodes.docs is lines[1].nodes.docs is docs_of(lines[0].schema)
        names = app.graph().names
        assert fast_lines(lines[0].schema, names) is fast_lines(lines[1].schema, names)
