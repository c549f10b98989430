"""Search: what it finds, what it proves, and what its pages are made of."""

from collections.abc import Iterator
from math import cos, sin, tau

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds.graphs import Calls

from trails import App, Json, Node, Vector, node_type, predicate
from trails.views.text.analysis import Analyzer

WORDS = ["flow", "Überschall", "wing", "naïve", "REQ-12", "東京", "heat", "flux", "λόγος", "x"]
FILLER = ["\r\n", " ", "👩‍👩‍👧 ", "e\u0301 ", "\u0000", "שלום ", "— "]


@node_type
class Paper(Node):
    """Something to find."""

    slug: str = predicate(key=True)
    title: str = predicate(label=True)
    body: str | None = predicate(search=True)
    tags: list[str] = predicate(search=True)
    secret: str | None = predicate()
    status: str | None = predicate()
    data: Json | None = predicate(search=True)


@node_type
class Report(Paper):
    """A paper that was asked for."""

    summary: str | None = predicate(search=True)


@node_type
class Plain(Node):
    """A type without texts."""

    number: int = predicate(key=True)


@pytest.fixture
def calls() -> Iterator[Calls]:
    """A graph in memory."""
    made = Calls(App(Paper, Report, Plain))
    yield made
    made.close()


def save(calls: Calls, cls: type[Node] = Paper, branch: str = "main", **values: object) -> None:
    """Create or replace a record."""
    slug = values["slug"]
    cls(**{"title": f"T {slug}", **values}).save(calls.app.context(branch=branch), upsert=True)


def found(calls: Calls, query: str, **more: object) -> list[str]:
    """The ids of what a search finds, best first, over all pages."""
    page = calls.result("search", {"query": query, **more})
    ids = [each["id"].removeprefix("trails://") for each in page["results"]]
    while "next" in page:
        page = calls.result(page["next"]["tool"], page["next"]["arguments"])
        ids += [each["id"].removeprefix("trails://") for each in page["results"]]
    return ids


@pytest.mark.req("E1")
def test_a_hit_shows_the_text_around_the_match(calls):
    """With its record, its place, and the call that reads on from there."""
    body = "Before it. " * 50 + "The boundary layer of a wing. " + "After it. " * 50
    save(calls, slug="a", body=body)
    (hit,) = calls.result("search", {"query": "boundary wing"})["results"]
    assert (hit["id"], hit["title"]) == ("trails://kg/Paper/a", "T a")
    shown = hit["evidence"]
    assert shown["field"] == "body"
    assert shown["text"] == body[shown["start"] : shown["end"]]
    assert "Before it. The boundary layer of a wing. After it." in shown["text"]
    assert [each["text"] for each in shown["matches"]] == ["boundary", "wing"]
    assert [body[each["start"] : each["end"]] for each in shown["matches"]] == ["boundary", "wing"]
    assert shown["truncated"]
    assert len(shown["text"]) <= 300
    read = calls.result(hit["read"]["tool"], hit["read"]["arguments"])
    assert read["start"] == shown["start"]
    assert read["text"].startswith(shown["text"])


@pytest.mark.req("E2")
@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from(WORDS + FILLER), max_size=200).map("".join),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from(WORDS),
)
def test_what_is_shown_is_there(texts, query):
    """Windows are verbatim, matches are where the offsets say, and nothing is missing."""
    calls = Calls(App(Paper))
    try:
        for at, text in enumerate(texts):
            save(calls, slug=f"p{at}", body=text)
        results = calls.result("search", {"query": query, "fields": ["body"]})["results"]
        analyzer = Analyzer()
        wanted = analyzer.words(query)
        holding = {f"trails://kg/Paper/p{at}" for at, t in enumerate(texts) if _has(t, wanted)}
        assert {each["id"] for each in results} == holding
        for hit in results:
            text = texts[int(hit["id"].rpartition("p")[2])]
            shown = hit["evidence"]
            assert shown["text"] == text[shown["start"] : shown["end"]]
            assert shown["complete"] == (shown["text"] == text) != shown["truncated"]
            assert shown["matches"]
            for match in shown["matches"]:
                assert _has(text[match["start"] : match["end"]], wanted)
                assert match["start"] < shown["end"]
                assert match["end"] > shown["start"]
    finally:
        calls.close()


def _has(text: str, wanted: list[str]) -> bool:
    words = Analyzer().words(text)
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words)))


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1, max_size=60))
def test_any_text_is_a_query(text):
    """Found or not, it is answered."""
    calls = _shared()
    outcome = calls.result("search", {"query": text})
    assert {"results", "commit"} <= outcome.keys()


_kept: list[Calls] = []


def _shared() -> Calls:
    if not _kept:
        _kept.append(Calls(App(Paper)))
        save(_kept[0], slug="a", body="boundary layer of a wing", tags=["one", "two"])
    return _kept[0]


@pytest.mark.req("E3")
def test_a_hit_without_proof_shows_no_window(calls):
    """It says so, and names the call that shows the record."""
    for at in range(150):
        save(calls, slug=f"n{at}", body=f"nothing of the kind number{at}")
    for at in range(8):
        body = "heat transfer in slender supersonic bodies with ablation cooling"
        save(calls, slug=f"q{at}", body=body)
    save(calls, slug="rel", body="ablation cooling ablation cooling")
    query = "heat transfer slender supersonic bodies"
    hits = calls.result("search", {"query": query, "limit": 20})["results"]
    (related,) = [each for each in hits if each["id"].endswith("/rel")]
    assert related["related"]
    assert related["evidence"] is None
    assert "Not proven" in related["notice"]
    fetched = calls.result(related["read"]["tool"], related["read"]["arguments"])
    assert "ablation" in fetched["text"]
    assert all(each["evidence"] for each in hits if each is not related)


@pytest.mark.req("E10")
def test_pages_are_of_one_commit(calls):
    """Whatever is written between them; a search without a cursor sees it at once."""
    for at in range(25):
        save(calls, slug=f"p{at:02}", body="the same words")
    first = calls.result("search", {"query": "same words", "limit": 10})
    save(calls, slug="p03", body="other text")
    save(calls, slug="new", body="the same words")
    calls.result("graph_mutate", {"operations": [{"op": "delete", "type": "Paper", "id": "p24"}]})
    second = calls.result("search", first["next"]["arguments"])
    third = calls.result("search", second["next"]["arguments"])
    ids = [each["id"] for page in (first, second, third) for each in page["results"]]
    assert sorted(ids) == [f"trails://kg/Paper/p{at:02}" for at in range(25)]
    assert {page["commit"] for page in (first, second, third)} == {first["commit"]}
    assert "next" not in third
    for hit in third["results"]:
        read = calls.result(hit["read"]["tool"], hit["read"]["arguments"])
        assert read["text"] == "the same words"
    now = found(calls, "same words", limit=50)
    assert "kg/Paper/new" in now
    assert not {"kg/Paper/p03", "kg/Paper/p24"} & set(now)


def test_branches_and_the_past_have_their_own_texts(calls):
    """A write is found where it was made, from the moment that it is answered."""
    save(calls, slug="a", body="alpha")
    before = calls.result("graph_snapshot")["head"]
    calls.result("branch_create", {"name": "draft"})
    save(calls, branch="draft", slug="a", body="beta")
    save(calls, branch="draft", slug="b", body="alpha beta")
    assert found(calls, "alpha") == ["kg/Paper/a"]
    assert found(calls, "beta") == []
    assert found(calls, "alpha", branch="draft") == ["branch/draft/kg/Paper/b"]
    assert set(found(calls, "beta", branch="draft")) == {
        "branch/draft/kg/Paper/a",
        "branch/draft/kg/Paper/b",
    }
    calls.result("branch_merge", {"source": "draft"})
    assert set(found(calls, "beta")) == {"kg/Paper/a", "kg/Paper/b"}
    assert found(calls, "alpha", snapshot=before) == [f"at/{before}/kg/Paper/a"]
    assert found(calls, "beta", snapshot=before) == []


def test_types_fields_and_where_filter(calls):
    """Before anything is ranked, so a page is full."""
    for at in range(30):
        status = "open" if at % 10 == 0 else "done"
        save(calls, slug=f"p{at:02}", body="wing", status=status)
    save(calls, Report, slug="r", body="wing", summary="flux", status="open")
    assert len(found(calls, "wing", types=["Paper"], where="status=open")) == 4
    assert found(calls, "wing", types=["Report"]) == ["kg/Report/r"]
    assert found(calls, "wing", fields=["summary"]) == []
    assert found(calls, "flux", fields=["summary"]) == ["kg/Report/r"]
    assert found(calls, "summary:flux") == ["kg/Report/r"]
    assert found(calls, "body:flux") == []
    assert found(calls, "Report", types=["Plain"]) == []


def test_labels_and_items_are_searched(calls):
    """A list has one text an item, and evidence says which."""
    save(calls, slug="a", title="Wings of steel", tags=["red barn", "blue sky"])
    assert found(calls, "steel") == ["kg/Paper/a"]
    (hit,) = calls.result("search", {"query": "sky"})["results"]
    assert hit["evidence"]["field"] == "tags"
    record = calls.result("node_get", {"record": "Paper/a"})
    assert record["values"]["tags"][hit["evidence"]["item"]] == "blue sky"
    read = calls.result(hit["read"]["tool"], hit["read"]["arguments"])
    assert read["text"] == "blue sky"


@pytest.mark.req("E7")
def test_strings_inside_json_are_searched(calls):
    """Each is a text of its own, whatever JSON makes of it; evidence has the pointer to it."""
    data = {"notes": ["one\nsteel", {"a/b": 'say "steel wing"'}], "steel": 1}
    save(calls, slug="a", data=Json(data))
    (hit,) = calls.result("search", {"query": "steel wing"})["results"]
    shown = hit["evidence"]
    assert (shown["field"], shown["path"]) == ("data", "/notes/1/a~1b")
    assert shown["text"] == 'say "steel wing"'
    assert [each["text"] for each in shown["matches"]] == ["steel", "wing"]
    read = calls.result(hit["read"]["tool"], hit["read"]["arguments"])
    assert read["text"] == shown["text"]
    (hit,) = calls.result("search", {"query": "one"})["results"]
    assert hit["evidence"]["text"] == "one\nsteel"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"query": "x", "types": ["Papr"]}, "Paper"),
        ({"query": "x", "fields": ["bod"]}, "body"),
        ({"query": "x", "fields": ["secret"]}, "can't be searched"),
        ({"query": "x", "where": "status=open"}, "where needs types"),
        ({"query": "x", "types": ["Paper"], "where": "stat=open"}, "status"),
        ({"query": ""}, "query"),
        ({"query": "x", "cursor": "AAAA"}, "cursor"),
        ({"query": "\ud800"}, "query"),
        ({"query": "x", "limit": 0}, "limit"),
    ],
)
def test_what_is_refused_says_why(calls, arguments, says):
    """And names the nearest that would do."""
    assert says in calls.failure("search", arguments).message


@node_type
class Point(Node):
    """A text with an embedding."""

    slug: str = predicate(key=True)
    text: str = predicate(search=True)
    kind: str | None = predicate()
    place: Vector(2) | None = predicate()


@pytest.fixture
def points() -> Iterator[Calls]:
    """Points on a circle, whose texts are alike."""
    made = Calls(App(Point))
    ctx = made.app.context()
    for at in range(12):
        angle = at / 12 * tau
        kind = "even" if at % 2 == 0 else "odd"
        text = "wing flow" if at % 3 == 0 else "boundary layer"
        place = [cos(angle), sin(angle)]
        Point(slug=f"p{at:02}", text=text, kind=kind, place=place).save(ctx)
    Point(slug="none", text="wing").save(ctx)
    yield made
    made.close()


def near(points: Calls, **more: object) -> list[str]:
    """The slugs of what is near to the first point."""
    wanted = {"field": "place", "vector": [1, 0]}
    page = points.result("search", {"near": wanted, "types": ["Point"], **more})
    return [each["id"].rpartition("/")[2] for each in page["results"]]


def test_records_near_to_a_vector(points):
    """Best first, without a proof on a text; with a query, both count."""
    assert near(points, limit=3) == ["p00", "p01", "p11"]
    assert near(points, limit=3, where="kind=even") == ["p00", "p02", "p10"]
    both = near(points, query="wing", limit=20)
    assert both[0] == "p00"
    assert set(both) == {f"p{at:02}" for at in range(12)} | {"none"}
    page = points.result(
        "search", {"near": {"field": "place", "vector": [0, 1]}, "types": ["Point"], "limit": 1}
    )
    assert page["results"][0]["evidence"] is None
    assert "vector is near" in page["results"][0]["notice"]
    rest = points.result("search", page["next"]["arguments"] | {"limit": 20})
    assert len(rest["results"]) == 11


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "query"),
        ({"near": {"field": "place", "vector": [1, 0]}}, "near needs types"),
        ({"near": {"field": "place"}, "types": ["Point"]}, "vector"),
        ({"near": {"field": "place", "vector": [1]}, "types": ["Point"]}, "2 numbers"),
        ({"near": {"field": "place", "vector": [0, 0]}, "types": ["Point"]}, "direction"),
        ({"near": {"field": "text", "vector": [1]}, "types": ["Point"]}, "place"),
        ({"near": {"field": "place", "vector": "x"}, "types": ["Point"]}, "near"),
    ],
)
def test_a_vector_that_fits_nothing_is_refused(points, arguments, says):
    """With what would fit."""
    assert says in points.failure("search", arguments).message


def test_a_cursor_is_for_its_search(calls):
    """Other words, types, fields or filters are another search."""
    for at in range(5):
        save(calls, slug=f"c{at}", body="boundary layer", status="open")
    first = calls.result("search", {"query": "boundary", "limit": 2})
    following = first["next"]["arguments"]
    assert len(calls.result("search", following)["results"]) == 2
    for other in ({"query": "layer"}, {"types": ["Paper"]}, {"fields": ["body"]}):
        refused = calls.failure("search", following | other)
        assert "belongs to other arguments" in refused.message


def test_paging_ends_at_the_deepest_record(calls, monkeypatch):
    """The rest is better found by another query."""
    monkeypatch.setattr("trails.engine.evidence.search.DEEPEST", 4)
    for at in range(9):
        save(calls, slug=f"d{at}", body="boundary layer")
    assert len(found(calls, "boundary", limit=3)) == 4
