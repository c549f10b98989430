"""The nearest records over MCP, REST and the command line, by a vector or by a text."""

from __future__ import annotations

import json
import time
from urllib.parse import quote

import pytest
from tests.worlds.graphs import Calls
from tests.worlds.processes import Shell
from tests.worlds.projects import make_project
from tests.worlds.surfaces import Wires

from trails import App, Node, Vector, node_type, predicate
from trails.app.settings import Embeddings, GraphSettings, Project, Settings
from trails.engine.session import nearest
from trails.errors import EmbeddingError, QueryError, SettingsError, TransactionError

WORDS = {"north": [0.0, 1.0], "east": [1.0, 0.0], "south": [0.0, -1.0], "zero": [0.0, 0.0]}


def embed(texts: list[str]) -> list[list[float]]:
    """Vectors of a few words; others fail in ways of their own."""
    odd: dict[str, object] = {"slow": None, "short": [[1.0]], "few": [], "nan": [[float("nan"), 0]]}
    for text in texts:
        if text == "slow":
            time.sleep(0.6)
        if text == "exit":
            raise SystemExit(3)
        if text in odd and odd[text] is not None:
            return odd[text]  # type: ignore[return-value]
    return [WORDS[each] for each in texts if each != "slow"]


@node_type
class Point(Node):
    """A text with a vector."""

    slug: str = predicate(key=True, label=True)
    kind: str | None = predicate(default=None)
    text: str = predicate(search=True, default="wing")
    place: Vector(2) | None = predicate(default=None)
    pull: Vector(2) | None = predicate(default=None, metric="dot")
    other: Vector(3) | None = predicate(default=None)


def settings_with(**given: object) -> Settings:
    """The settings of a graph with a function for embeddings."""
    named = Embeddings(**{"function": f"{__name__}:embed", "seconds": 0.3, **given})
    return Settings(Project("app"), {"main": GraphSettings(embeddings=named)})


@pytest.fixture
def calls():
    """Points around the origin, and one without a vector."""
    made = Calls(App(Point, settings=settings_with()))
    ctx = made.app.context()
    for at in range(30):
        slug, kind = f"p{at:02}", "even" if at % 2 == 0 else "odd"
        Point(slug=slug, kind=kind, place=[30.0 - at, at], pull=[at, 1.0]).save(ctx)
    Point(slug="none").save(ctx)
    Point(slug="zero", place=[0.0, 0.0], pull=[0.0, 0.0]).save(ctx)
    yield made
    made.close()


def slugs(page, member="records"):
    """The slugs of what a page lists."""
    return [each["id"].rpartition("/")[2] for each in page[member]]


EAST = {"field": "place", "vector": [1, 0]}


def test_a_list_of_the_nearest(calls):
    """With scores, a filter and fields; records without a vector or a direction are left out."""
    page = calls.result(
        "node_list", {"type": "Point", "near": EAST, "limit": 2, "fields": ["kind"]}
    )
    assert slugs(page) == ["p00", "p01"]
    assert page["records"][0]["score"] == 1.0
    assert page["records"][0]["values"] == {"kind": "even"}
    odd = calls.result(
        "node_list", {"type": "Point", "near": EAST, "limit": 3, "where": "kind=odd"}
    )
    assert slugs(odd) == ["p01", "p03", "p05"]
    every = calls.result("node_list", {"type": "Point", "near": EAST})
    assert slugs(every) == [f"p{at:02}" for at in range(30)]
    assert "next" not in every
    pulled = {"field": "pull", "vector": [-1, 0]}
    found = calls.result("node_list", {"type": "Point", "near": pulled, "limit": 3})
    assert slugs(found) == ["p00", "zero", "p01"]


def test_pages_of_the_nearest_are_of_one_commit(calls):
    """Joined, they are the whole list; what is written meanwhile is in none of them."""
    found: list[str] = []
    call = {"type": "Point", "near": EAST, "limit": 7}
    while True:
        page = calls.result("node_list", call)
        found += slugs(page)
        if "next" not in page:
            break
        call = page["next"]["arguments"]
        Point(slug=f"new{len(found)}", place=[1.0, 0.0]).save(calls.app.context())
    assert found == [f"p{at:02}" for at in range(30)]
    other = {**call, "near": {"field": "place", "vector": [0, 1]}}
    assert "cursor" in calls.failure("node_list", other).message


def test_few_characters_give_few_records(calls):
    """And the call that continues with the next one."""
    call = {"type": "Point", "near": EAST, "fields": ["text", "place", "kind"], "max_chars": 1200}
    found: list[str] = []
    while call is not None:
        page = calls.result("node_list", call)
        assert len(json.dumps(page, ensure_ascii=False)) <= 1500
        found += slugs(page)
        call = page.get("next", {}).get("arguments")
    assert found == [f"p{at:02}" for at in range(30)]


@node_type
class Wide(Node):
    """A vector as long as those of large models."""

    slug: str = predicate(key=True)
    place: Vector(3072) = predicate()


def test_the_next_call_names_a_long_vector_instead_of_repeating_it():
    """An answer stays within its size, and the call is complete with that argument."""
    calls = Calls(App(Wide))
    ctx = calls.app.context()
    ctx.kg.save_all(Wide(slug=f"w{at:02}", place=[1 / 3, at / 7] * 1536) for at in range(40))
    near = {"field": "place", "vector": [1 / 3] * 3072}
    page = calls.result("node_list", {"type": "Wide", "near": near, "limit": 30})
    assert len(json.dumps(page)) < 33_000
    assert len(page["records"]) == 30
    assert page["next"]["repeat"] == ["near"]
    rest = calls.result("node_list", {**page["next"]["arguments"], "near": near})
    assert len(rest["records"]) == 10
    calls.close()


def test_branches_and_snapshots_have_their_own(calls):
    """As every read."""
    before = calls.app.context().kg.head.commit
    calls.app.versions().create_branch("side")
    Point(slug="there", place=[5.0, 0.0]).save(calls.app.context(branch="side"))

    def first(**place):
        return slugs(
            calls.result("node_list", {"type": "Point", "near": EAST, "limit": 2, **place})
        )

    assert first(branch="side") == ["p00", "there"]
    assert first() == ["p00", "p01"]
    Point(slug="here", place=[5.0, 0.0]).save(calls.app.context())
    assert first() == ["here", "p00"]
    assert first(snapshot=before) == ["p00", "p01"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"near": {}}, "field"),
        ({"near": {"field": "place"}}, "a vector or a text"),
        ({"near": {**EAST, "text": "east"}}, "not both"),
        ({"near": {"field": "place", "vector": [1]}}, "2 numbers"),
        ({"near": {"field": "place", "vector": [0, 0]}}, "no direction"),
        ({"near": {"field": "place", "vector": ["1", 0]}}, "near"),
        ({"near": {"field": "kind", "vector": [1]}}, "place, pull, other"),
        ({"near": {**EAST, "metric": "dot"}}, "metric"),
        ({"near": {"field": "place", "text": ""}}, "1 to 4096 characters"),
        ({"near": {"field": "place", "text": "x" * 5000}}, "not 5000"),
        ({"near": {"field": "other", "text": "east"}}, "3 numbers, not 2"),
        ({"near": EAST, "order": "slug"}, "leave out order"),
        ({"near": EAST, "type": "Pint"}, "Point"),
        ({"near": "place=[1, 0]"}, "near"),
    ],
)
def test_what_can_t_be_asked_for(calls, arguments, says):
    """An error says what would do."""
    assert says in calls.failure("node_list", {"type": "Point", **arguments}).message


def test_a_text_instead_of_a_vector(calls):
    """In lists, searches and Python; and vectors to be stored are made by the same function."""
    near = {"field": "place", "text": "north"}
    listed = calls.result("node_list", {"type": "Point", "near": near, "limit": 2})
    assert slugs(listed) == ["p29", "p28"]
    again = calls.result("node_list", listed["next"]["arguments"])
    assert slugs(again) == ["p27", "p26"]
    searched = calls.result("search", {"types": ["Point"], "near": near, "limit": 2})
    assert slugs(searched, "results") == ["p29", "p28"]
    both = calls.result("search", {"query": "wing", "types": ["Point"], "near": near, "limit": 1})
    assert len(both["results"]) == 1
    ctx = calls.app.context()
    found = Point.objects(ctx).nearest("place", text="north", k=1)
    assert found[0][0].slug == "p29"
    assert [list(each) for each in ctx.kg.embed(["north", "east"])] == [[0.0, 1.0], [1.0, 0.0]]
    assert ctx.kg.embed([]) == []
    (vector,) = ctx.kg.embed(["south"])
    Point(slug="down", place=vector).save(ctx)
    assert Point.objects(ctx).nearest("place", text="south", k=1)[0][0].slug == "down"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("unknown", "failed (KeyError)"),
        ("exit", "failed (SystemExit)"),
        ("slow", "did not return within 0.3 seconds"),
        ("few", "gave 0 vectors for 1 text"),
        ("nan", "NaN or infinity"),
        ("short", "2 numbers, not 1"),
        ("zero", "no direction"),
    ],
)
def test_a_function_that_fails_is_a_typed_error(calls, text, says):
    """Which names the function, and shows nothing of its exceptions."""
    failure = calls.failure(
        "node_list", {"type": "Point", "near": {"field": "place", "text": text}}
    )
    assert (failure.kind, failure.code) == ("semantic", "embedding")
    assert says in failure.message
    with pytest.raises(EmbeddingError):
        Point.objects(calls.app.context()).nearest("place", text=text)
    assert slugs(calls.result("node_list", {"type": "Point", "near": EAST, "limit": 1})) == ["p00"]


def test_without_a_function_a_text_is_refused():
    """And the error says what to write where."""
    with App(Point) as app:
        with pytest.raises(QueryError, match=r"\[graphs.main.embeddings\] function"):
            Point.objects(app.context()).nearest("place", text="north")
        with pytest.raises(QueryError, match="no function for embeddings"):
            app.context().kg.embed(["north"])


def test_writers_do_not_wait_for_a_model(calls):
    """Inside a transaction, vectors are refused that would have to be made."""
    ctx = calls.app.context()
    with ctx.kg.transaction():
        with pytest.raises(TransactionError, match="before the transaction"):
            ctx.kg.embed(["north"])
        assert Point.objects(ctx).nearest("place", [1.0, 0.0], 1)[0][0].slug == "p00"


PROJECT = """
from trails import Node, Vector, node_type, predicate


@node_type
class Point(Node):
    \"\"\"A point.\"\"\"

    slug: str = predicate(key=True)
    place: Vector(2) = predicate()


def embed(texts):
    return [[len(each), 1.0] for each in texts]


async def later(texts):
    return []


def nothing():
    return []


number = 7
"""
NAMED = '[project]\nname = "acme"\n[graphs.main.embeddings]\nfunction = "{}"\n'


@pytest.mark.parametrize(
    ("function", "says"),
    [
        ("app", 'write "module:name"'),
        ("app:", 'write "module:name"'),
        ("app.py:embed", "app.py"),
        ("app:missing", "missing does not exist in app"),
        ("app:number", "number is not a function"),
        ("app:later", "plain function, not async"),
        ("app:nothing", "one argument"),
        ("no_such_module:embed", "No module named 'no_such_module'"),
        ("broken_embeddings:embed", "ZeroDivisionError"),
    ],
)
def test_a_function_that_can_t_be_used_is_an_error_at_start(tmp_path, function, says):
    """It names the setting."""
    files = {"app.py": PROJECT, "broken_embeddings.py": "1 / 0\n"}
    make_project(tmp_path, files, settings=NAMED.format(function))
    with pytest.raises(SettingsError, match=r"graphs\.main\.embeddings") as raised:
        App.open(tmp_path, strict=True)
    assert says in raised.value.message
    assert function in raised.value.message


def test_a_function_of_the_app_or_of_another_module(tmp_path):
    """Both are found in the project's folder."""
    other = "def embed(texts):\n    return [(1.0, len(each)) for each in texts]\n"
    files = {"app.py": PROJECT, "acme_embeddings.py": other}
    for function, wanted in (("app:embed", [3.0, 1.0]), ("acme_embeddings:embed", [1.0, 3.0])):
        make_project(tmp_path, files, settings=NAMED.format(function))
        with App.open(tmp_path, strict=True) as app:
            assert [list(each) for each in app.context().kg.embed(["abc"])] == [wanted]


def test_the_command_line_lists_and_searches(tmp_path):
    """The nearest first, each with its score, and the command that goes on."""
    shell = Shell(make_project(tmp_path, PROJECT, settings=NAMED.format("app:embed")))
    rows = [{"type": "Point", "data": {"slug": f"p{n}", "place": [n, 1.0]}} for n in range(6)]
    shell.write("data.ndjson", "".join(json.dumps(each) + "\n" for each in rows))
    shell.run("load", "data.ndjson")
    listed = shell.run("get", "Point", "--near", "place=abcde", "-n", "2").stdout
    assert [line.split()[:2] for line in listed.splitlines()[1:3]] == [
        ["1", "p5"],
        ["0.998868", "p4"],
    ]
    cursor = listed.rpartition("--cursor ")[2].strip()
    following = shell.run("get", "Point", "--near", "place=abcde", "-n", "2", "--cursor", cursor)
    assert "p3" in following.stdout
    searched = shell.run("search", "--near", "place=[0, 1]", "-t", "Point", "-n", "1").stdout
    assert "trails://kg/Point/p0" in searched
    assert "--near 'place=[0, 1]'" in searched


def test_rest_takes_near_in_a_body_and_in_a_query_string(calls):
    """As JSON, in both."""
    query = f"types=Point&near={quote(json.dumps(EAST))}".encode()
    with Wires(calls.app) as wires:
        for reply in (
            wires.rest("POST", "/search", {"types": ["Point"], "near": EAST}),
            wires.rest("GET", "/search", query=query),
        ):
            assert slugs(json.loads(reply.body), "results")[:2] == ["p00", "p01"]
        wrong = wires.rest("GET", "/search", query=b"types=Point&near=[1")
        assert wrong.status == 422
        failed = {"types": ["Point"], "near": {"field": "place", "text": "unknown"}}
        reply = wires.rest("POST", "/search", failed)
        assert reply.status == 503
        assert json.loads(reply.body)["code"] == "embedding"


@pytest.mark.parametrize("tried", [4_000, 0])
def test_pages_of_a_filtered_list_join_to_the_whole(calls, monkeypatch, tried):
    """Whether the ranking is tested, or all that match are collected first."""
    monkeypatch.setattr(nearest, "_MOST_TRIED", tried)
    call = {"type": "Point", "near": EAST, "where": "kind=odd", "limit": 4}
    found: list[str] = []
    while call is not None:
        page = calls.result("node_list", call)
        found += slugs(page)
        call = page.get("next", {}).get("arguments")
    assert found == [f"p{at:02}" for at in range(1, 30, 2)]
