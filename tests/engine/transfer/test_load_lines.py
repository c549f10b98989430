"""Loading NDJSON: what each mode means, how edges are given, and what a bad line can't do."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest
from tests.worlds.graphs import writing

from trails import App, Context, Edge, Node, Ref, edge_type, node_type, predicate
from trails.engine.graph.graph import Graph
from trails.engine.transfer.load import LoadOutcome, Mode, load_lines
from trails.engine.transfer.ndjson import MAX_LINE
from trails.errors import NotFoundError, ValidationError
from trails.log.storage import zstd

Rows = list[dict[str, object]]


@node_type
class Person(Node):
    """Someone who owns things."""

    email: str = predicate(key=True)
    name: str = predicate(min_length=2)
    age: int | None = predicate()
    badge: str | None = predicate(unique=True)


@node_type
class Manager(Person):
    """A person with a level."""

    level: int | None = predicate()


@node_type
class City(Node):
    """A type that nothing extends, with a key that is a number."""

    code: int = predicate(key=True)
    mayor: Ref[Person] | None = predicate()


@node_type
class Task(Node):
    """Something to do, without a key."""

    title: str = predicate()
    state: str | None = predicate(default="open")
    city: Ref[City] | None = predicate()
    owner: Ref[Person] | None = predicate()
    helpers: list[Ref[Person]] = predicate()
    tags: list[str] = predicate()


@node_type
class Parcel(Node):
    """It has an owner too, and needs a place to go."""

    number: str = predicate(key=True)
    owner: Ref[Person] | None = predicate()
    to: Ref[City] = predicate()
    cost: Decimal | None = predicate()


@edge_type(source=Person, target=City)
class Visit(Edge):
    """Who was where."""

    days: int | None = predicate(min_value=1)
    guide: Ref[Person] | None = predicate()


@pytest.fixture
def app() -> Iterator[App]:
    """A graph in memory."""
    with App(Person, Manager, City, Task, Parcel, Visit) as opened:
        yield opened


def lines(*rows: object) -> list[bytes]:
    """Rows as NDJSON; bytes stay as they are."""
    return [row if isinstance(row, bytes) else json.dumps(row).encode() + b"\n" for row in rows]


def load(app: App, *rows: object, mode: Mode = "merge") -> LoadOutcome:
    """Load rows in one write."""
    return load_from(app.graph(), lines(*rows), mode)


def load_from(graph: Graph, given: list[bytes] | Path, mode: Mode = "merge") -> LoadOutcome:
    """Load in one write."""
    with writing(graph) as write:
        return load_lines(write, graph.main.schema, graph.names, given, mode=mode)


def refused(app: App, *rows: object, mode: Mode = "merge") -> list[str]:
    """The messages of a load that must fail and leave the graph as it was."""
    head = app.graph().main.head
    with pytest.raises(ValidationError) as caught:
        load(app, *rows, mode=mode)
    assert app.graph().main.head == head
    return [error.message for error in caught.value.fields]


def person(email: str, **values: object) -> dict[str, object]:
    """A line with a person."""
    return {"type": "Person", "data": {"email": email, "name": f"N {email}", **values}}


def city(code: int, **values: object) -> dict[str, object]:
    """A line with a city."""
    return {"type": "City", "data": {"code": code, **values}}


def edge(name: str, start: object, to: object, **data: object) -> dict[str, object]:
    """A line with an edge."""
    return {"edge": name, "from": start, "to": to} | ({"data": data} if data else {})


def ctx(app: App) -> Context:
    """A context of the test's own."""
    return app.context(actor="test")


# --- modes ----------------------------------------------------------------------------------


def test_one_load_is_one_commit(app: App) -> None:
    """However many lines, in whatever order, the log gets one commit."""
    before = app.graph().main.head.seq
    loaded = load(app, city(1, mayor="Person/ann"), person("ann"), edge("Visit", "ann", 1, days=3))
    assert loaded == LoadOutcome(3)
    assert app.graph().main.head.seq == before + 1
    assert City.get(ctx(app), "1").mayor.name == "N ann"
    assert [visit.days for visit in Visit.objects(ctx(app))] == [3]


def test_merge_keeps_what_is_not_given(app: App) -> None:
    """A field that is not given stays, null clears one, a new node is created."""
    load(app, person("ann", age=30, badge="b1"))
    load(app, {"type": "Person", "data": {"email": "ann", "badge": None, "age": 31}}, person("bob"))
    ann = Person.get(ctx(app), "ann")
    assert (ann.name, ann.age, ann.badge) == ("N ann", 31, None)
    assert Person.objects(ctx(app)).count() == 2


def test_merge_of_the_same_again_makes_no_commit(app: App) -> None:
    """Loading what is there changes nothing."""
    load(app, person("ann", age=30))
    head = app.graph().main.head
    load(app, person("ann", age=30))
    assert app.graph().main.head == head


def test_append_refuses_what_exists(app: App) -> None:
    """Every node that is there is named with its line."""
    load(app, person("ann"))
    told = refused(app, person("bob"), person("ann"), mode="append")
    assert told == [
        "line 2: email: Person/ann already exists; load it with mode 'merge' to change it"
    ]
    load(app, person("bob"), mode="append")


def test_overwrite_replaces_the_types_of_the_file(app: App) -> None:
    """Nodes of the file's types become what it says or go; other types stay."""
    load(
        app,
        person("ann", age=30),
        person("bob"),
        city(1),
        {"type": "Manager", "data": {"email": "max", "name": "Max"}},
    )
    loaded = load(app, person("ann"), mode="overwrite")
    assert loaded == LoadOutcome(1, 1)
    assert [each.email for each in Person.objects(ctx(app)).order_by("email")] == ["ann", "max"]
    assert Person.get(ctx(app), "ann").age is None
    assert City.objects(ctx(app)).count() == 1


def test_overwrite_leaves_an_unchanged_node_alone(app: App) -> None:
    """A node that the file gives as it is counts as given, not as left out."""
    load(app, person("ann"), person("bob"), {"type": "Task", "id": "t", "data": {"title": "T"}})
    head = app.graph().main.head
    assert load(app, person("bob"), person("ann"), mode="overwrite") == LoadOutcome(2, 0)
    assert app.graph().main.head == head


def test_overwrite_keeps_nodes_that_get_new_ids(app: App) -> None:
    """A node without key and id is new, and replaces those of its type."""
    load(app, {"type": "Task", "data": {"title": "old"}})
    load(app, {"type": "Task", "data": {"title": "new"}}, mode="overwrite")
    assert [task.title for task in Task.objects(ctx(app))] == ["new"]


def test_overwrite_does_not_break_references(app: App) -> None:
    """A node that another type refers to can't be left out."""
    load(app, person("ann"), city(1, mayor="Person/ann"))
    told = refused(app, person("bob"), mode="overwrite")
    assert len(told) == 1
    assert "Person/ann can't be deleted while City/1.mayor" in told[0]


def test_defaults_fill_what_is_not_given(app: App) -> None:
    """A new node gets its defaults; null leaves the field empty."""
    load(
        app,
        {"type": "Task", "id": "a", "data": {"title": "A"}},
        {"type": "Task", "id": "b", "data": {"title": "B", "state": None}},
    )
    assert [task.state for task in Task.objects(ctx(app)).order_by("title")] == ["open", None]
    load(app, {"type": "Task", "id": "b", "data": {"title": "B2"}})
    assert Task.get(ctx(app), "b").state is None


# --- edges ----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", [1, -1])
def test_edge_lines_complete_nodes_of_the_file(app: App, order: int) -> None:
    """A required reference may come from an edge line before or after its node."""
    rows = [
        city(1),
        {"type": "Parcel", "data": {"number": "p"}},
        edge("to", "p", 1),
        person("ann"),
        edge("Parcel.owner", "p", "ann"),
    ]
    load(app, *rows[::order], mode="overwrite")
    parcel = Parcel.get(ctx(app), "p")
    assert (parcel.to.code, parcel.owner.email) == (1, "ann")


def test_edge_lines_change_nodes_of_the_graph(app: App) -> None:
    """A single reference is set, a set gets one more."""
    load(
        app,
        person("ann"),
        person("bob"),
        city(1),
        city(2),
        {"type": "Task", "id": "t", "data": {"title": "T", "helpers": ["Person/ann"]}},
    )
    load(app, edge("city", "t", 1), edge("helpers", "Task/t", "Person/bob"))
    load(app, edge("city", "t", 2))
    task = Task.get(ctx(app), "t")
    assert task.city.code == 2
    assert sorted(each.email for each in task.helpers) == ["ann", "bob"]


def test_append_adds_edges_and_changes_none(app: App) -> None:
    """What is empty may be set, what is set may not."""
    load(app, city(1), city(2), {"type": "Task", "id": "t", "data": {"title": "T"}})
    load(app, edge("city", "t", 1), mode="append")
    assert Task.get(ctx(app), "t").city.code == 1
    told = refused(app, edge("city", "t", 2), mode="append")
    assert told == ["line 1: city of Task/t is City/1 already, and append changes nothing"]


def test_overwrite_takes_edges_of_the_files_nodes_only(app: App) -> None:
    """The start of an edge must be in the file."""
    load(app, city(1), {"type": "Task", "id": "t", "data": {"title": "T"}})
    told = refused(app, city(1), edge("city", "t", 1), mode="overwrite")
    assert told == ['line 2: "from" is Task/t, of which there must be one in the file']


def test_a_key_finds_the_type_that_has_it(app: App) -> None:
    """Where types extend the one that is asked for, the node that there is decides."""
    boss = {"type": "Manager", "data": {"email": "max", "name": "Max"}}
    load(app, edge("Visit", "max", 1), edge("mayor", 1, "max"), city(1), boss)
    assert City.get(ctx(app), "1").mayor.handle == "Manager/max"
    assert [visit.source.handle for visit in Visit.objects(ctx(app))] == ["Manager/max"]
    load(app, edge("mayor", 1, "ann"), person("ann"))
    assert City.get(ctx(app), "1").mayor.handle == "Person/ann"


def test_an_open_key_that_names_nothing_is_told(app: App) -> None:
    """Neither file nor graph has it."""
    told = refused(app, city(1), edge("Visit", "zoe", 1))
    assert told == ["line 2: Person 'zoe' is in neither file nor graph; there is no Person yet"]


def test_the_ends_of_an_edge_can_be_iris(app: App) -> None:
    """An IRI, an MCP handle and a plain handle name the same node."""
    base = app.graph().names.nodes
    load(app, person("ann"), city(1), city(2), city(3))
    load(
        app,
        edge("Visit", f"{base}Person/ann", f"{base}City/1"),
        edge("Visit", "trails://kg/Person/ann", 2),
        edge("Visit", "Person/ann", "3"),
    )
    assert Visit.objects(ctx(app)).count() == 3


BAD_EDGES = {
    "unknown edge": (edge("vist", "ann", 1), "there is no edge 'vist'; did you mean 'Visit'?"),
    "node type": (edge("City", "a", 1), 'City is not an edge type; write {"type": "City"'),
    "not exact": (edge("owner", "p", "ann"), "write \"from\" as 'Type/id' or an IRI, or the edge"),
    "no ends": ({"edge": "Visit", "to": 1}, "an edge needs \"from\": an IRI, 'Type/id' or a key"),
    "no reference": (edge("Task.title", "t", "x"), "'title' is not a reference field of Task"),
    "data on a field": (edge("city", "Task/t", 1, x=1), "is a reference field, which holds no"),
    "ends in data": (edge("Visit", "Person/a", 1, source="x"), 'are "from" and "to", not "data"'),
    "id": ({**edge("Visit", "Person/a", 1), "id": "x"}, 'an edge has no "id" of its own'),
    "wrong key": (edge("Visit", "Person/a", "x"), "\"to\": 'x' can't be a key of City"),
    "a list": (edge("Visit", ["a"], 1), "\"from\": must be an IRI, 'Type/id' or a key of Person"),
    "type and edge": ({**edge("Visit", "Person/a", 1), "type": "City"}, "not both"),
    "start": (edge("city", "nowhere", 1), '"from" is Task/nowhere, of which there must be one'),
    "start type": (edge("Task.city", "City/1", 1), "'City/1' is not a Task"),
    "dotted": (edge("Tsk.city", "t", 1), "there is no type 'Tsk'; did you mean 'Task'?"),
    "own fields": (edge("Visit", "Person/a", 1, days=0), "days must be at least 1, not 0"),
}


@pytest.mark.parametrize("case", BAD_EDGES)
def test_a_bad_edge_is_told_with_its_line(app: App, case: str) -> None:
    """The message names the line, what is wrong and what to write."""
    row, expected = BAD_EDGES[case]
    (told,) = refused(app, person("a"), city(1), b"\n", row)
    assert told.startswith("line 4: ")
    assert expected in told


def test_two_values_for_one_reference_are_refused(app: App) -> None:
    """A node line and an edge line, or two edge lines, must not contradict each other."""
    rows = [city(1), city(2), {"type": "Task", "id": "t", "data": {"title": "T", "city": "City/1"}}]
    (told,) = refused(app, *rows, edge("city", "t", 2))
    assert told.startswith("line 4: city of Task/t is given as 'City/1' already (see line 3)")
    load(app, *rows, edge("city", "t", 1))
    (told,) = refused(app, edge("city", "t", 1), edge("city", "t", 2))
    assert told.startswith("line 2: city of Task/t is given as 'City/1' already")


# --- references by key ------------------------------------------------------------------------


def task(**values: object) -> dict[str, object]:
    """A line with the task t."""
    return {"type": "Task", "id": "t", "data": {"title": "T", **values}}


def test_a_reference_field_takes_keys(app: App) -> None:
    """A key stands for the node that has it, of whatever type that fits, wherever it is."""
    boss = {"type": "Manager", "data": {"email": "max", "name": "Max"}}
    load(
        app, task(city=1, owner="max", helpers=["ann", "Manager/max"]), boss, person("ann"), city(1)
    )
    found = Task.get(ctx(app), "t")
    assert found.city.handle == "City/1"
    assert found.owner.handle == "Manager/max"
    assert {each.handle for each in found.helpers} == {"Person/ann", "Manager/max"}


def test_an_edge_takes_keys_in_its_own_fields(app: App) -> None:
    """As an edge, and as a node whose ends are fields."""
    ends = {"source": "bob", "target": 1, "guide": "ann"}
    rows: Rows = [edge("Visit", "ann", 1, guide="bob"), {"type": "Visit", "data": ends}]
    load(app, *rows, person("ann"), person("bob"), city(1))
    found = {each.source.handle: each.guide.handle for each in Visit.objects(ctx(app))}
    assert found == {"Person/ann": "Person/bob", "Person/bob": "Person/ann"}


def test_a_key_and_an_edge_line_may_say_the_same(app: App) -> None:
    """A field by key and an edge line agree, or both are told as they were written."""
    load(app, person("ann"), person("bob"), task(owner="ann"), edge("Task.owner", "t", "ann"))
    assert Task.get(ctx(app), "t").owner.handle == "Person/ann"
    (told,) = refused(app, task(owner="ann"), edge("Task.owner", "t", "bob"))
    assert told.startswith("line 2: owner of Task/t is given as Person 'ann' already (see line 1)")


BAD_KEYS: dict[str, tuple[dict[str, object], str]] = {
    "an open key": ({"owner": "zoe"}, "line 1: Person 'zoe' is in neither file nor graph"),
    "a key of one type": ({"city": 7}, "line 1: city"),
    "no key": ({"city": "seven"}, "line 1: city must be"),
    "a boolean": ({"city": True}, "line 1: city must be"),
    "no text": ({"owner": {"key": "ann"}}, "line 1: owner must be"),
    "an inner mark": ({"owner": "ann", "city": "\0Nope/1"}, "line 1: "),
}


@pytest.mark.parametrize("case", BAD_KEYS)
def test_what_is_no_key_is_told(app: App, case: str) -> None:
    """A reference field's text that names nothing is one problem of its line."""
    given, expected = BAD_KEYS[case]
    (told,) = refused(app, task(**given))
    assert told.startswith(expected)


# --- bad lines --------------------------------------------------------------------------------

BAD_LINES: dict[str, tuple[bytes, str]] = {
    "no JSON": (b"{nope}", "it is not valid JSON"),
    "cut": (b'{"type": "City"', "it is not valid JSON"),
    "two objects": (b"{} {}", "it is not valid JSON"),
    "NaN": (b'{"type":"City","data":{"code":NaN}}', "it is not valid JSON"),
    "not UTF-8": (b'{"type":"Person","data":{"email":"\xff"}}', "it is not UTF-8 text"),
    "control character": (b'{"type":"Person","data":{"email":"\x00"}}', "it is not valid JSON"),
    "half a pair": (b'{"type":"Person","data":{"email":"\\ud800"}}', "it is not valid JSON"),
    "list": (b"[1]", "it is not a JSON object"),
    "text": (b'"City"', "it is not a JSON object"),
    "number": (b"12", "it is not a JSON object"),
    "null": (b"null", "it is not a JSON object"),
    "bomb": (b'{"type":"City","data":{"code":' + b"[" * 100_000, "it is nested too deeply"),
    "object bomb": (b'{"a":' * 100_000, "'a' is not a key of a line"),
    "huge float": (b'{"type":"City","data":{"code":1e999}}', "Number out of range"),
    "huge integer": (b'{"type":"City","data":{"code":%b}}' % (b"9" * 5000), "out of range"),
    "big integer": (b'{"type":"City","data":{"code":%b}}' % (b"9" * 50), "code must be an integer"),
    "data": (b'{"type":"City","data":[]}', "Expected 'object', got 'array' in 'data'"),
    "type": (b'{"type":1}', "Expected 'str', got 'int' in 'type'"),
    "nothing": (b"{}", 'it has no "type" (a node) and no "edge"'),
    "unknown key": (b'{"tpye":"City"}', "'tpye' is not a key of a line; did you mean 'type'?"),
    "unknown type": (b'{"type":"Ctiy"}', "there is no type 'Ctiy'; did you mean 'City'?"),
    "unknown field": (b'{"type":"City","data":{"code":1,"mayr":1}}', "did you mean 'mayor'?"),
    "from": (b'{"type":"City","from":1,"data":{}}', '"from" and "to" belong to an edge'),
    "key twice": (b'{"type":"City","data":{"code":1,"code":2}}', "the key 'code' appears twice"),
    "type twice": (b'{"type":"City","type":"City"}', "the key 'type' appears twice"),
    "spaced twice": (
        b'{"type":"Person","data":{"email":"\\":", "name" :"xx", "name" : "yy"}}',
        "the key 'name' appears twice",
    ),
    "id": (b'{"type":"Task","id":7,"data":{"title":"x"}}', '"id" must be a string, not 7'),
    "id is a step": (b'{"type":"Task","id":"..","data":{"title":"x"}}', "can't be an id"),
    "id and key": (b'{"type":"City","id":"5","data":{"code":1}}', "but its key gives '1'"),
    "no key": (b'{"type":"City","data":{}}', "code is required"),
    "empty key": (b'{"type":"Person","data":{"email":"","name":"xx"}}', "email can't be a key"),
    "own rule": (b'{"type":"Person","data":{"email":"a","name":"x"}}', "name must have at least"),
    "dangling": (b'{"type":"City","data":{"code":1,"mayor":"Person/x"}}', "which does not exist"),
    "too long": (b'{"type":"City","data":{"code":"%b"}}' % (b"x" * MAX_LINE), "it is longer than"),
}


@pytest.mark.parametrize("case", BAD_LINES)
def test_a_bad_line_is_told_with_its_number(app: App, case: str) -> None:
    """It is the only thing told, and nothing is written."""
    line, expected = BAD_LINES[case]
    (told,) = refused(app, person("ann"), b"\r\n", b"  \n", line + b"\n", person("bob"))
    assert told.startswith("line 4: ")
    assert expected in told
    assert len(told) < 400


def test_every_bad_line_is_told(app: App) -> None:
    """Syntax, own rules and rules between nodes together, in the order of the file."""
    told = refused(
        app,
        person("ann", badge="b"),
        {"type": "Person", "data": {"email": "bob", "name": "x"}},
        person("cid", badge="b"),
        city(1, mayor="Person/zoe"),
        edge("mayor", "City/1", "Person/ann"),
        {"type": "Task", "data": {}},
    )
    assert [each.partition(": ")[0] for each in told] == ["line 2", "line 3", "line 5", "line 6"]
    told = refused(
        app, city(1, mayor="Person/zoe"), person("ann", badge="b"), person("x", badge="b")
    )
    assert [each.partition(": ")[0] for each in told] == ["line 1", "line 3"]


def test_references_to_a_line_that_could_not_be_read_are_no_news(app: App) -> None:
    """Only the cause is told."""
    told = refused(app, b"{\n", city(1, mayor="Person/ann"))
    assert [each.partition(": ")[0] for each in told] == ["line 1"]


def test_the_same_node_twice_names_both_lines(app: App) -> None:
    """Near or far apart, new or there before."""
    far = [person(f"p{number}") for number in range(4000)]
    expected = "is given on line 1 already; give each node once"
    (told,) = refused(app, person("ann"), *far, person("ann"))
    assert told == f"line 4002: Person/ann {expected}"
    load(app, person("ann"))
    (told,) = refused(app, person("ann"), *far, person("ann", age=3))
    assert told == f"line 4002: Person/ann {expected}"
    (told,) = refused(app, person("ann"), person("ann"))
    assert told == f"line 2: Person/ann {expected}"


def test_a_long_list_of_errors_is_cut(app: App) -> None:
    """A thousand are told, and how many more were found."""
    with pytest.raises(ValidationError) as caught:
        load(app, *[b"{\n"] * 5000)
    assert len(caught.value.fields) == 1000
    bad = [{"type": "Person", "data": {"email": f"p{number}"}} for number in range(1500)]
    with pytest.raises(ValidationError) as caught:
        load(app, *bad)
    assert (len(caught.value.fields), caught.value.more) == (1000, 500)
    assert "(and 999 more like it" in caught.value.message
    assert caught.value.message.endswith("; and 500 more")


def test_a_byte_order_mark_is_told(app: App) -> None:
    """It is not part of UTF-8 text."""
    (told,) = refused(app, b"\xef\xbb\xbf" + lines(person("ann"))[0])
    assert told == "line 1: it begins with a byte order mark; save the file as plain UTF-8"


def test_line_ends_do_not_matter(app: App) -> None:
    """CRLF, blank lines and a missing last newline are fine; blocks may end anywhere."""
    text = b"\r\n".join(line.strip() for line in lines(person("ann"), person("bob"), city(1)))
    load_from(app.graph(), [text[at : at + 1] for at in range(len(text))])
    assert Person.objects(ctx(app)).count() == 2


def test_an_escaped_edge_is_an_edge(app: App) -> None:
    """A key may be spelled with escapes."""
    load(app, city(1), person("ann"), b'{"\\u0065dge":"mayor","from":1,"to":"Person/ann"}\n')
    assert City.get(ctx(app), "1").mayor.email == "ann"


def test_compressed_files_are_read(app: App, tmp_path: Path) -> None:
    """By their suffix; a broken one is told."""
    text = b"".join(lines(person("ann")))
    (tmp_path / "a.ndjson.gz").write_bytes(gzip.compress(text))
    (tmp_path / "b.ndjson.zst").write_bytes(zstd.compress(text))
    (tmp_path / "c.ndjson.gz").write_bytes(gzip.compress(text)[:-9])
    (tmp_path / "d.ndjson.zst").write_bytes(text)
    load_from(app.graph(), tmp_path / "a.ndjson.gz", "append")
    load_from(app.graph(), tmp_path / "b.ndjson.zst", "overwrite")
    for name in ("c.ndjson.gz", "d.ndjson.zst"):
        with pytest.raises(ValidationError, match="can't be read or decompressed"):
            load_from(app.graph(), tmp_path / name)
    with pytest.raises(NotFoundError, match=r"none.ndjson can't be read"):
        load_from(app.graph(), tmp_path / "none.ndjson")


def test_progress_is_told_to_the_end(app: App, tmp_path: Path) -> None:
    """The last thing told is that all bytes are done."""
    told: list[tuple[int, int | None]] = []
    path = tmp_path / "a.ndjson"
    path.write_bytes(b"".join(lines(*(person(f"p{number}") for number in range(5000)))))
    graph = app.graph()
    with writing(graph) as write:
        load_lines(
            write,
            graph.main.schema,
            graph.names,
            path,
            progress=lambda done, total: told.append((done, total)),
        )
    size = path.stat().st_size
    assert told[-1] == (size, size)
    assert len(told) < 200
