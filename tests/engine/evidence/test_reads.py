"""Reading tools: windows that join, pages of one commit, ids accepted as they are shown."""

import asyncio
import json
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.test_evidence import boundaries, texts
from tests.worlds.graphs import Calls

from trails import App, Json, Node, Ref, node_type, predicate
from trails.model.actors import LOCAL, Actor
from trails.model.results import Failure
from trails.request.admission import KernelOptions
from trails.request.pipeline import Kernel

OTHER = Actor("other", LOCAL.scopes, LOCAL.groups, LOCAL.credential)


@node_type
class Author(Node):
    """Somebody who writes."""

    name: str = predicate(key=True)


@node_type
class Doc(Node):
    """Something to read."""

    slug: str = predicate(key=True)
    title: str = predicate(label=True)
    body: str | None = predicate()
    tags: list[str] = predicate()
    pages: int | None = predicate()
    author: Ref[Author] | None = predicate()
    about: list[Ref[Author]] = predicate()
    data: Json | None = predicate()


@node_type
class Letter(Doc):
    """A document that was sent."""

    to: str | None = predicate()


@pytest.fixture(scope="module")
def calls() -> Iterator[Calls]:
    """A graph in memory with some records."""
    made = Calls(App(Author, Doc, Letter))
    ctx = made.app.context()
    ann = Author(name="Ann / ä b")
    ann.save(ctx)
    for at in range(30):
        Doc(slug=f"d{at:02}", title=f"T{at % 4}", pages=at % 5, author=ann).save(ctx)
    Letter(slug="l1", title="Dear", to="you", about=[ann]).save(ctx)
    yield made
    made.close()


def save(calls: Calls, branch: str = "main", **values: object) -> None:
    """Create or replace a document."""
    Doc(**values).save(calls.app.context(branch=branch), upsert=True)


def walk(calls: Calls, name: str, arguments: dict, key: str = "next") -> list[dict]:
    """The answers to a call and to those that continue it."""
    found = [calls.result(name, arguments)]
    while key in found[-1]:
        call = found[-1][key]
        found.append(calls.result(call["tool"], call["arguments"]))
    return found


@pytest.mark.req("E6")
@pytest.mark.req("E5")
@settings(max_examples=60)
@given(texts, st.integers(1, 40))
def test_windows_join_to_the_field(calls, text, length):
    """By following next, and backwards by following previous; each cut is between characters."""
    save(calls, slug="u", title="U", body=text)
    asked = {"record": "Doc/u", "field": "body", "length": length}
    pages = walk(calls, "read_record_field", asked)
    assert "".join(each["text"] for each in pages) == text
    last = calls.result("read_record_field", {**asked, "offset": len(text)})
    back = walk(calls, "read_record_field", {**asked, "offset": len(text)}, "previous")
    assert "".join(each["text"] for each in reversed(back)) == text
    assert last["text"] == ""
    for each in (*pages, *back):
        assert each["text"] == text[each["start"] : each["end"]]
        assert {each["start"], each["end"]} <= boundaries(text)
        assert each["total"] == len(text)
        assert each["complete"] == (each["text"] == text) != each["truncated"]
        assert ("next" in each) == (each["end"] < len(text))
        assert ("previous" in each) == (each["start"] > 0)


@pytest.mark.req("E6")
def test_lone_surrogates_are_refused(calls):
    """In every argument, as what they are."""
    for name, arguments in (
        ("fetch", {"id": "Doc/\ud800"}),
        ("read_record_field", {"record": "Doc/d00", "field": "\udfff"}),
        ("node_list", {"type": "Doc", "where": "title=\ud800"}),
        ("node_get", {"record": "\ud800", "type": "Doc"}),
        ("node_list", {"type": "Doc", "cursor": "\ud800"}),
    ):
        assert calls.failure(name, arguments).kind in {"validation", "semantic"}


@pytest.mark.req("E10")
def test_a_window_stays_on_its_commit(calls):
    """Whatever is written meanwhile: another text, or a deletion."""
    text = "".join(f"{at:05} " for at in range(500))
    save(calls, slug="pin", title="Pin", body=text)
    first = calls.result("read_record_field", {"record": "Doc/pin", "field": "body", "length": 700})
    save(calls, slug="pin", title="Pin", body=text.replace("0", "x"))
    second = calls.result(first["next"]["tool"], first["next"]["arguments"])
    calls.result("graph_mutate", {"operations": [{"op": "delete", "type": "Doc", "id": "pin"}]})
    rest = walk(calls, second["next"]["tool"], second["next"]["arguments"])
    pages = [first, second, *rest]
    assert "".join(each["text"] for each in pages) == text
    assert len({each["commit"] for each in pages}) == 1
    assert calls.failure("fetch", {"id": "Doc/pin"}).code == "not_found"


@pytest.mark.req("E10")
def test_a_window_of_a_deleted_branch_is_stale(calls):
    """And so is the rest of a list."""
    calls.result("branch_create", {"name": "draft"})
    save(calls, branch="draft", slug="b1", title="B", body="x" * 100)
    asked = {"record": "trails://branch/draft/kg/Doc/b1", "field": "body", "length": 10}
    field = calls.result("read_record_field", asked)["next"]
    rest = calls.result("node_list", {"type": "Doc", "branch": "draft", "limit": 2})["next"]
    assert calls.result(field["tool"], field["arguments"])["start"] == 10
    assert len(calls.result(rest["tool"], rest["arguments"])["records"]) == 2
    calls.result("branch_delete", {"name": "draft", "force": True})
    for call in (field, rest):
        assert calls.failure(call["tool"], call["arguments"]).code == "stale"


@pytest.mark.req("E10")
def test_cursors_are_for_one_reader_and_one_read(calls):
    """Another actor, field, record, item, branch or list is refused, never answered wrongly."""
    save(calls, slug="c1", title="C" * 50, body="C" * 50, tags=["C" * 50, "D"])
    save(calls, slug="c2", title="C" * 50, body="C" * 50)
    asked = {"record": "Doc/c1", "field": "body", "length": 10}
    arguments = calls.result("read_record_field", asked)["next"]["arguments"]
    assert calls.failure("read_record_field", arguments, OTHER).code == "cursor"
    calls.result("branch_create", {"name": "side"})
    for change in (
        {"field": "title"},
        {"record": "Doc/c2"},
        {"record": "trails://branch/side/kg/Doc/c1"},
        {"branch": "side"},
        {"field": "tags"},
        {"field": "tags", "item": 0},
        {"cursor": arguments["cursor"].swapcase()},
        {"cursor": ""},
    ):
        code = calls.failure("read_record_field", {**arguments, **change}).code
        assert code == "cursor", change
    assert calls.failure("read_record_field", {**arguments, "offset": 0}).code == "validation"
    for same in ({"record": "trails://kg/Doc/c1"}, {"record": "c1", "type": "Doc"}, {"length": 3}):
        found = calls.result("read_record_field", {**arguments, **same})
        assert (found["start"], found["id"]) == (10, "trails://kg/Doc/c1")
    listed = calls.result("node_list", {"type": "Doc", "limit": 2, "order": "pages"})["next"]
    for change in ({"order": "-pages"}, {"where": "pages=1"}, {"type": "Letter"}, {"order": None}):
        code = calls.failure("node_list", {**listed["arguments"], **change}).code
        assert code == "cursor", change
    assert calls.failure("node_list", listed["arguments"], OTHER).code == "cursor"
    wrong = {**listed["arguments"], "cursor": arguments["cursor"]}
    assert calls.failure("node_list", wrong).code == "cursor"
    calls.result("branch_delete", {"name": "side"})


@pytest.mark.req("E10")
@pytest.mark.parametrize("asked", [{}, {"order": "-pages"}, {"order": "title", "where": "pages=3"}])
def test_pages_of_a_list_are_of_one_commit(calls, asked):
    """Records that are added, changed or removed between two pages change nothing in them."""
    whole = calls.result("node_list", {"type": "Doc", "limit": 1000, **asked})["records"]
    page = calls.result("node_list", {"type": "Doc", "limit": 3, "fields": ["pages"], **asked})
    found, commits = list(page["records"]), {page["commit"]}
    for at in range(100):
        if "next" not in page:
            break
        save(calls, slug=f"later{at}", title="A", pages=3)
        save(calls, slug=f"later{at - 1}", title="Z", pages=at % 5)
        page = calls.result("node_list", page["next"]["arguments"])
        found += page["records"]
        commits.add(page["commit"])
    assert [each["id"] for each in found] == [each["id"] for each in whole]
    assert len(commits) == 1


@pytest.mark.req("E4")
def test_ids_are_accepted_as_they_are_shown(calls):
    """By every tool that reads and by resources/read: on main, on a branch, and at a commit."""
    calls.result("branch_create", {"name": "a/b"})
    head = calls.result("graph_snapshot")["head"]
    for place in ({}, {"branch": "a/b"}, {"snapshot": head}):
        for type_name in ("Doc", "Author", "Letter"):
            for shown in calls.result("node_list", {"type": type_name, "limit": 3, **place})[
                "records"
            ]:
                _check_id(calls, shown["id"])
        letter = calls.result("node_get", {"record": "l1", "type": "Doc", **place})
        assert letter["type"] == "Letter"
        _check_id(calls, letter["id"])
        (about,) = letter["values"]["about"]
        _check_id(calls, about)
    calls.result("branch_delete", {"name": "a/b"})


def _check_id(calls: Calls, identifier: str) -> None:
    got = calls.result("node_get", {"record": identifier})
    fetched = calls.result("fetch", {"id": identifier})
    assert got["id"] == fetched["id"] == identifier
    key = "name" if got["type"] == "Author" else "slug"
    field = calls.result("read_record_field", {"record": identifier, "field": key})
    assert (field["id"], field["text"]) == (identifier, got["values"][key])
    for uri in (identifier, got["iri"], fetched["url"]):
        content = asyncio.run(calls.kernel.read(LOCAL, uri))
        assert not isinstance(content, Failure), content
        assert json.loads(content[0].text)["@id"] == got["iri"]


@pytest.mark.req("E4")
@pytest.mark.parametrize(
    "reference",
    [
        "Doc/d01",
        "trails://kg/Doc/d01",
        "{iri}",
        "trails://kg/Doc/d%30%31",
        "trails://at/{head}/kg/Doc/d01",
    ],
)
def test_a_record_has_several_references(calls, reference):
    """All lead to the same one."""
    iri = calls.result("node_get", {"record": "Doc/d01"})["iri"]
    head = calls.result("graph_snapshot")["head"]
    asked = reference.format(iri=iri, head=head)
    assert calls.result("node_get", {"record": asked})["values"]["slug"] == "d01"
    assert calls.result("fetch", {"id": asked})["url"] == iri


@pytest.mark.parametrize(
    ("name", "arguments", "code", "hint"),
    [
        ("fetch", {"id": "Doc/d0"}, "not_found", "Doc/d09"),
        ("fetch", {"id": "Dok/d00"}, "not_found", "'Doc'"),
        ("fetch", {"id": "d00"}, "validation", "Type"),
        ("fetch", {"id": "trails://kg/Doc"}, "validation", "one record"),
        ("fetch", {"id": "trails://schema"}, "validation", "one record"),
        ("fetch", {"id": "https://example.org/Doc/d00"}, "not_found", "type"),
        ("fetch", {"id": "trails://branch/none/kg/Doc/d00"}, "not_found", "main"),
        ("fetch", {"id": "trails://at/00000000/kg/Doc/d00"}, "not_found", "commit"),
        ("fetch", {"id": "Author/d00"}, "not_found", "Author"),
        ("node_get", {"record": "Author/x", "type": "Doc"}, "not_found", "Doc"),
        ("node_get", {"record": "Doc/d00", "fields": ["titel"]}, "validation", "'title'"),
        ("node_get", {"record": "Doc/d00", "branch": "none"}, "not_found", "main"),
        (
            "node_get",
            {"record": "trails://at/0000000000/kg/Doc/d00", "branch": "x"},
            "validation",
            "leave those out",
        ),
        ("read_record_field", {"record": "Doc/d00", "field": "bod"}, "validation", "'body'"),
        (
            "read_record_field",
            {"record": "Doc/d00", "field": "title", "item": 0},
            "validation",
            "list",
        ),
        (
            "read_record_field",
            {"record": "Doc/d00", "field": "tags", "item": 0},
            "validation",
            "0 items",
        ),
        ("node_list", {"type": "Dox"}, "not_found", "'Doc'"),
        ("node_list", {"type": "Doc", "where": "pages>3"}, "validation", "="),
        ("node_list", {"type": "Doc", "where": "author=Nobody"}, "validation", "Author"),
        ("node_list", {"type": "Doc", "order": "tags"}, "validation", "order"),
        ("node_list", {"type": "Doc", "fields": ["x"]}, "validation", "field"),
    ],
)
def test_wrong_calls_say_what_would_be_right(calls, name, arguments, code, hint):
    """A typed error that names the nearest."""
    failure = calls.failure(name, arguments)
    assert failure.code == code, failure
    assert hint in failure.message


@pytest.mark.req("E6")
def test_values_that_are_not_text_are_read_as_json(calls):
    """Numbers, references, JSON, and lists, of which one item can be asked for."""
    ctx = calls.app.context()
    ann = "trails://kg/Author/Ann%20%2F%20%C3%A4%20b"
    tags = [f'tag "{at}"' for at in range(40)]
    save(calls, slug="v", title="V", tags=tags, pages=7, data=Json({"a": [1, "ä"]}))
    record = Doc.get(ctx, "v")
    record.author = Author.get(ctx, "Ann / ä b")
    record.save(ctx)
    for field, value in {"pages": 7, "author": ann, "data": {"a": [1, "ä"]}}.items():
        found = calls.result("read_record_field", {"record": "Doc/v", "field": field})
        assert (json.loads(found["text"]), found["media_type"]) == (value, "application/json")
    asked = {"record": "Doc/v", "field": "tags", "length": 50}
    pages = walk(calls, "read_record_field", asked)
    assert json.loads("".join(each["text"] for each in pages)) == sorted(tags)
    assert {each["items"] for each in pages} == {40}
    item = calls.result("read_record_field", {**asked, "item": 39})
    assert (item["text"], item["item"], item["media_type"]) == (sorted(tags)[39], 39, "text/plain")
    empty = calls.result("read_record_field", {"record": "Doc/v", "field": "body"})
    assert (empty["text"], empty["total"], empty["complete"]) == ("", 0, True)
    assert "no value" in empty["notice"]


@pytest.mark.req("E6")
def test_windows_around_matches(calls):
    """The n-th match, with text before it; each match is where the offsets say."""
    words = ["brücke", "Brucke", "BRÜCKEN", "bru\u0308cke", "bridge", "brückenbau"]
    text = "".join(f"{at:04} {words[at % 6]} {'x' * (at % 50)}\n" for at in range(60))
    text = text + " long " * 20_000
    save(calls, slug="m", title="M", body=text)
    asked = {"record": "Doc/m", "field": "body", "query": "brücke", "length": 300}
    wanted = [at for at in range(60) if at % 6 in {0, 1, 3}]
    found, number = calls.result("read_record_field", asked), 1
    while True:
        start = found["start"]
        assert found["text"] == text[start : found["end"]]
        for each in found["matches"]:
            shown = found["text"][max(each["start"] - start, 0) : each["end"] - start]
            assert shown == each["text"]
            whole = text[each["start"] : each["end"]]
            assert whole.casefold() in {"brücke", "brucke", "bru\u0308cke"}
        line = text.index(f"{wanted[number - 1]:04} ") + 5
        assert line in {each["start"] for each in found["matches"]}
        if "next_match" not in found:
            break
        number += 1
        if number == 3:
            save(calls, slug="m", title="M", body=text.replace("0", "1"))
        assert found["next_match"]["arguments"]["match"] == number
        found = calls.result("read_record_field", found["next_match"]["arguments"])
    assert number == len(wanted)
    save(calls, slug="m", title="M", body=text)
    page = calls.result("read_record_field", asked)["next"]
    assert page["arguments"]["query"] == "brücke"
    assert calls.result(page["tool"], page["arguments"])["matches"]
    missing = calls.failure("read_record_field", {**asked, "match": 1000})
    assert (missing.code, missing.data["matches"]) == ("not_found", len(wanted))
    none = calls.failure("read_record_field", {**asked, "query": "nowhere"})
    assert "0 matches" in none.message
    for odd in ("", "-", '"', "body:", "*", "~", "\0", "a" * 2000):
        assert calls.failure("read_record_field", {**asked, "query": odd}).code == "not_found"
    for wrong in ({"match": 1, "offset": 3}, {"query": None, "match": 2}, {"match": 0}):
        assert calls.failure("read_record_field", {**asked, **wrong}).code == "validation"


@pytest.mark.req("E6")
def test_parts_of_json_are_read_by_pointer(calls):
    """A text as it is, anything else as JSON; a cursor is for one part."""
    value = {"a/b": ["x" * 90, {"c": 1.5}], "": True, "long": "é" * 70_000}
    save(calls, slug="j", title="J", data=Json(value))
    asked = {"record": "Doc/j", "field": "data"}
    for path, part in (("/a~1b/1", {"c": 1.5}), ("/", True), ("", value)):
        pages = walk(calls, "read_record_field", {**asked, "path": path})
        assert json.loads("".join(each["text"] for each in pages)) == part
        assert pages[0]["media_type"] == "application/json"
    pages = walk(calls, "read_record_field", {**asked, "path": "/long", "length": 30_000})
    assert "".join(each["text"] for each in pages) == value["long"]
    assert {each["media_type"] for each in pages} == {"text/plain"}
    first = calls.result("read_record_field", {**asked, "path": "/a~1b/0", "length": 9})["next"]
    other = {**first["arguments"], "path": "/long"}
    assert calls.failure("read_record_field", other).code == "cursor"
    assert calls.result("read_record_field", first["arguments"])["start"] == 9
    for path, hint in (("/nope", "members"), ("a", "pointer"), ("/a~1b/7", "items")):
        failure = calls.failure("read_record_field", {**asked, "path": path})
        assert (failure.code, hint in failure.message) == ("validation", True)
    wrong = {"record": "Doc/j", "field": "title", "path": "/a"}
    assert "not Json" in calls.failure("read_record_field", wrong).message


@pytest.mark.req("E6")
@pytest.mark.parametrize("most", [1000, 1500, 5000, None])
@pytest.mark.parametrize("piece", ["x", "\0", '"\\', "漢", "👩‍👩‍👧‍👦", "a\u0301\n"])
def test_answers_are_bounded_and_continue(calls, most, piece):
    """Every one fits; what is left out is listed, and its calls give the rest."""
    body, tags = piece * 30_000, [f"{at:05}{piece * 3}" for at in range(3000)]
    save(calls, slug="big", title="Big", body=body, tags=tags)
    bound = {} if most is None else {"max_chars": most}
    for name, arguments in (
        ("fetch", {"id": "Doc/big"}),
        ("node_get", {"record": "Doc/big"}),
        ("node_list", {"type": "Doc", "limit": 1000, "fields": ["body", "tags"]}),
        ("read_record_field", {"record": "Doc/big", "field": "body", "length": 100_000}),
    ):
        outcome = calls.outcome(name, {**arguments, **bound})
        assert len(outcome.body.decode()) <= (most or 32_768), name
    got = calls.result("node_get", {"record": "Doc/big", **bound})
    assert not got["complete"]
    for note in got["left_out"]:
        first = got["values"].get(note["field"], "")
        rest = walk(calls, note["read"]["tool"], note["read"]["arguments"])
        joined = "".join(each["text"] for each in rest)
        if note["unit"] == "characters":
            assert len(first) == note["shown"]
            assert first + joined == body
        else:
            assert len(first) == note["shown"]
            start = (
                json.dumps(first, ensure_ascii=False, separators=(",", ":"))[:-1] if first else ""
            )
            assert json.loads(start + joined) == sorted(tags)
    calls.result("graph_mutate", {"operations": [{"op": "delete", "type": "Doc", "id": "big"}]})


def test_fetch_has_the_form_of_connectors(calls):
    """The members that clients of the search and fetch convention read, and ours."""
    found = calls.result("fetch", {"id": "Doc/d03"})
    assert {"id", "title", "text", "url", "metadata"} <= found.keys()
    assert found["title"] == "T3"
    assert "author: trails://kg/Author/Ann%20%2F%20%C3%A4%20b" in found["text"].splitlines()
    assert found["metadata"]["type"] == "Doc"
    assert found["complete"] is True


def test_the_settings_bound_answers(calls):
    """Where a call does not say how many characters it wants."""
    save(calls, slug="s", title="S", body="long " * 9000)
    kernel = Kernel(calls.app.service(), KernelOptions(max_chars=2000))
    try:
        for name, arguments in (
            ("fetch", {"id": "Doc/s"}),
            ("node_get", {"record": "Doc/s"}),
            ("node_list", {"type": "Doc", "limit": 1000, "fields": ["body"]}),
            ("read_record_field", {"record": "Doc/s", "field": "body"}),
        ):
            body = asyncio.run(kernel.execute(LOCAL, name, arguments)).body.decode()
            assert 1000 < len(body) <= 2000, name
            more = asyncio.run(kernel.execute(LOCAL, name, {**arguments, "max_chars": 5000}))
            assert 2000 < len(more.body.decode()) <= 5000, name
    finally:
        kernel.close()
