"""Lists of instances: bounded, stable, continued, filtered by one typed equality."""

import asyncio
import sqlite3
from datetime import UTC, date, datetime
from decimal import Decimal
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.worlds.graphs import Reading

from trails import App, BigInt, Blob, Iri, Node, Ref, Vector, node_type, predicate
from trails.engine.graph import cursors
from trails.errors import StaleError
from trails.model.actors import Actor
from trails.model.results import Failure
from trails.model.uris import ListAddress, format_address, parse_address


@node_type
class Person(Node):
    """Someone."""

    slug: str = predicate(key=True)


@node_type
class Requirement(Node):
    """Something the product must do."""

    title: str = predicate()
    status: str = predicate(one_of=["proposed", "accepted", "rejected"])
    priority: int | None = predicate()
    big: BigInt | None = predicate()
    weight: float | None = predicate()
    cost: Decimal | None = predicate()
    due: date | None = predicate()
    seen: datetime | None = predicate()
    done: bool | None = predicate()
    home: Iri | None = predicate()
    file: Blob | None = predicate()
    place: Vector | None = predicate(dimension=2)
    owner: Ref[Person] | None = predicate()
    tags: list[str] = predicate()
    rank: int | None = predicate(min_value=1, max_value=9)
    codes: list[str] = predicate(pattern="^C-[0-9]+$")


@node_type
class SafetyRequirement(Requirement):
    """One that keeps people safe."""

    level: int | None = predicate()


OWNERS = ("ada", "b/c d", "é")
VALUES = {
    "status": ["proposed", "accepted", "rejected"],
    "priority": [-3, 0, 5, 2**62],
    "big": [BigInt(-(10**30)), BigInt(7)],
    "weight": [0.5, -1e300, 3.0],
    "cost": [Decimal("1.5"), Decimal(-20)],
    "due": [date(2026, 3, 1), date(1, 1, 1)],
    "seen": [datetime(2026, 3, 1, 9, 30, tzinfo=UTC)],
    "done": [True, False],
    "home": [Iri("https://example.org/?a=b&c=d")],
    "file": [Blob("urn:b:1")],
    "tags": ["a", "b=c", "é & +"],
    "title": ["one", "with = sign", "a&b?c#d/e%20f+g", "", " spaces ", "日本"],
}


def fill(app: App, count: int) -> None:
    """Instances with all sorts of values, some of them of the narrower type."""
    ctx = app.context()
    people = [Person(slug=slug) for slug in OWNERS]
    ctx.kg.save_all(people)
    nodes = []
    for number in range(count):
        values = {
            name: some[number % len(some)]
            for at, (name, some) in enumerate(VALUES.items())
            if name in {"title", "status"} or (number + at) % 5
        }
        values["tags"] = VALUES["tags"][: number % 4]
        if number % 5:
            values["owner"] = people[number % 3]
        kind = SafetyRequirement if number % 4 == 0 else Requirement
        nodes.append(kind(**values))
    ctx.kg.save_all(nodes)


@pytest.fixture(scope="module")
def in_folder(tmp_path_factory):
    """Two hundred and fifty requirements, in a folder."""
    folder = tmp_path_factory.mktemp("list")
    (folder / "trails.toml").write_text('[project]\nname = "app"\n')
    (folder / "app.py").write_text("")
    with App.open(folder) as app:
        app.register(Person, Requirement, SafetyRequirement)
        fill(app, 250)
        yield Reading(app)


@pytest.fixture(scope="module")
def in_memory():
    """The same, in memory."""
    with App(Person, Requirement, SafetyRequirement) as app:
        fill(app, 250)
        yield Reading(app)


@pytest.fixture(params=["in_folder", "in_memory"])
def reading(request):
    """Each of the two."""
    return request.getfixturevalue(request.param)


def orm(reading: Reading, **conditions) -> list[dict]:
    """What the ORM finds, as a list shows it."""
    ctx = reading.app.context()
    return [
        {"iri": ctx.kg.iri(each.handle), "label": each.title}
        for each in Requirement.objects(ctx).where(**conditions)
    ]


def pages(reading: Reading, uri: str) -> list[list[dict]]:
    """All pages, each continued by the URI that it gives."""
    found = []
    following = uri
    while following:
        contents = reading.contents(following)
        assert contents[0].uri == following
        assert contents[0].mime_type == "application/json"
        found.append(reading.body(following))
        following = contents[1].uri if len(contents) > 1 else None
    return found


@pytest.mark.req("T10")
def test_a_page_has_a_hundred_and_says_how_to_go_on(reading):
    """By default 100 are shown, with a note that counts and gives the next page's URI."""
    body, note = reading.contents("trails://kg/Requirement")
    assert reading.body("trails://kg/Requirement") == orm(reading)[:100]
    assert (body.uri, body.mime_type) == ("trails://kg/Requirement", "application/json")
    assert note.mime_type == "text/plain"
    assert "100 of 250 Requirement instances" in note.text
    assert note.uri in note.text
    assert note.uri.startswith("trails://kg/Requirement?cursor=")


@pytest.mark.req("T10")
@pytest.mark.parametrize("limit", [None, 7, 249, 250, 251, 1000])
def test_pages_together_are_the_whole_list(reading, limit):
    """Every instance comes once, in the ORM's order, whatever the size of a page."""
    uri = "trails://kg/Requirement" + ("" if limit is None else f"?limit={limit}")
    found = pages(reading, uri)
    assert all(len(page) == (limit or 100) for page in found[:-1])
    assert [item for page in found for item in page] == orm(reading)


@pytest.mark.req("T10")
@pytest.mark.parametrize("offset", [0, 1, 99, 200, 249, 250, 251, 2**40])
def test_an_offset_skips_that_many(reading, offset):
    """An offset counts from the start; its next page goes on by cursor."""
    found = pages(reading, f"trails://kg/Requirement?limit=30&offset={offset}")
    assert [item for page in found for item in page] == orm(reading)[offset:]


@pytest.mark.parametrize(
    "conditions",
    [
        {},
        {"status": "proposed"},
        {"title__startswith": "w"},
        {"priority__gte": 0},
        {"owner__slug": "ada"},
    ],
    ids=str,
)
def test_an_offset_skips_in_every_way_to_a_page(reading, conditions):
    """However nodes are found, so many are left out as the offset says."""
    found = Requirement.objects(reading.app.context()).where(**conditions)
    for query in (found, found.order_by("title")):
        ids = [each.id for each in query]
        assert [each.id for each in query.offset(5).limit(7)] == ids[5:12]


@pytest.mark.req("T10")
@pytest.mark.parametrize("limit", ["1001", "0", "-1", "ten", "99999999999999999999999"])
def test_a_limit_that_is_not_allowed_is_refused_and_not_cut(reading, limit):
    """More than 1000 is a validation failure, never a shorter page."""
    failure = reading.failure(f"trails://kg/Requirement?limit={limit}")
    assert (failure.kind, failure.code) == ("validation", "validation")
    assert failure.data["fields"][0]["field"] == "limit"


@pytest.mark.req("T10")
def test_a_page_at_any_depth_takes_the_same_steps(in_folder):
    """The database takes as many steps for a late page as for an early one."""
    reading, cursors = in_folder, [None]
    while True:
        address = ListAddress("Requirement", limit=20, cursor=cursors[-1])
        contents = reading.contents(format_address(address))
        if len(contents) == 1:
            break
        cursors.append(parse_address(contents[1].uri, "x:").cursor)
    early, late = (_steps(reading, cursor) for cursor in (cursors[1], cursors[-2]))
    assert late <= early * 1.2


def _steps(reading: Reading, cursor: str) -> int:
    """Steps of SQLite's machine for one page."""
    file = reading.app.graph().file
    counted = 0

    def count() -> int:
        nonlocal counted
        counted += 1
        return 0

    connections: list[sqlite3.Connection] = list(file._idle)
    for connection in connections:
        connection.set_progress_handler(count, 1)
    try:
        reading.contents(format_address(ListAddress("Requirement", limit=20, cursor=cursor)))
    finally:
        for connection in connections:
            connection.set_progress_handler(None, 0)
    assert counted
    return counted


@pytest.mark.req("T10")
def test_what_was_read_is_neither_repeated_nor_lost_while_others_write():
    """Between two pages, instances come and go; all pages are of the commit of the first."""
    with App(Person) as app:
        ctx = app.context()
        ctx.kg.save_all([Person(slug=f"p{number:03}") for number in range(40)])
        reading = Reading(app)
        first, note = reading.contents("trails://kg/Person?limit=10")
        assert first
        for slug in ("p005", "p009", "p010"):
            Person.get(ctx, slug).delete(ctx)
        Person(slug="p000a").save(ctx)
        rest = [item["label"] for page in pages(reading, note.uri) for item in page]
        assert rest == [f"p{number:03}" for number in range(10, 40)]


def test_a_cursor_of_another_list_is_refused(reading):
    """A cursor belongs to its type and its filter."""
    _, note = reading.contents("trails://kg/Requirement?limit=5")
    cursor = note.uri.partition("cursor=")[2]
    for uri in (
        f"trails://kg/Requirement?where=status=proposed&cursor={cursor}",
        f"trails://kg/Person?cursor={cursor}",
        "trails://kg/Requirement?cursor=rubbish",
        "trails://kg/Requirement?cursor=%C3%A9",
    ):
        failure = reading.failure(uri)
        assert (failure.kind, failure.code) == ("semantic", "cursor")


@pytest.mark.req("E4")
def test_a_cursor_is_signed_for_one_reader(monkeypatch):
    """Of another actor, on another branch, altered, or too old, it is refused."""
    with App(Person) as app:
        app.context().kg.save_all([Person(slug=f"p{number:03}") for number in range(40)])
        app.versions().create_branch("b")
        reading = Reading(app)
        _, note = reading.contents("trails://kg/Person?limit=10")
        cursor = note.uri.partition("cursor=")[2]
        bob = Actor("bob", frozenset({"runtime"}))
        refused = asyncio.run(reading.reader.read(bob, note.uri))
        assert isinstance(refused, Failure)
        assert refused.code == "cursor"
        for uri in (
            f"trails://branch/b/kg/Person?cursor={cursor}",
            f"trails://at/{app.context().kg.head.commit}/kg/Person?cursor={cursor}",
            f"trails://kg/Person?cursor={cursor.swapcase()}",
        ):
            assert reading.failure(uri).code == "cursor"
        assert reading.contents(note.uri.replace("limit=10&", ""))
        later = cursors.time() + cursors.LIFETIME + cursors.STEP + 2
        monkeypatch.setattr(cursors, "time", lambda: later)
        assert reading.failure(note.uri).code == "stale"


def test_a_cursor_does_not_outlive_the_numbers_of_nodes():
    """An index that is built anew numbers nodes anew, so that a page would not fit the last one."""
    with App(Person) as app:
        app.context().kg.save_all([Person(slug=f"p{number:03}") for number in range(40)])
        reading = Reading(app)
        _, note = reading.contents("trails://kg/Person?limit=10")
        query = Person.objects(app.context())
        after = query.page(10).next
        app.graph().rebuild()
        assert reading.failure(note.uri).code == "stale"
        with pytest.raises(StaleError, match="built anew"):
            query.page(10, after=after)


def spelled(value: object) -> str:
    """A value as a filter writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, date):  # a datetime is one too
        return value.isoformat()
    return str(value)


CASES = [(name, value) for name, some in VALUES.items() for value in some]


@pytest.mark.req("T12", "T20")
@pytest.mark.parametrize(("field", "value"), CASES, ids=range(len(CASES)))
def test_a_filter_equals_the_orm(reading, field, value):
    """A filtered list is what the ORM finds with the same equality, for every kind of value."""
    wanted = orm(reading, **{field: value})
    assert wanted
    clause = f"{field}={spelled(value)}"
    for where in (quote(clause, safe="="), quote(clause, safe="")):
        found = pages(reading, f"trails://kg/Requirement?where={where}&limit=40")
        assert [item for page in found for item in page] == wanted


@pytest.mark.req("T20")
def test_a_page_of_a_filter_says_that_more_follow(reading):
    """Its note does not count matches, which would cost more than the page, nor instances."""
    wanted = orm(reading, status="proposed")
    body, note = reading.contents("trails://kg/Requirement?where=status=proposed&limit=10")
    assert "10 Requirement instances where status is as asked are shown; more follow" in note.text
    assert note.text.endswith(note.uri)
    assert reading.body(body.uri) == wanted[:10]
    assert reading.body(note.uri) == wanted[10:20]


@pytest.mark.req("T12", "T20")
@pytest.mark.parametrize("slug", OWNERS)
def test_a_reference_is_filtered_by_iri_or_handle(reading, slug):
    """A reference is compared with the IRI of an instance, its address or its handle."""
    person = Person.get(reading.app.context(), slug)
    wanted = orm(reading, owner=person)
    iri = reading.app.context().kg.iri(person.handle)
    for value in (iri, f"trails://kg/{person.handle}", person.handle):
        where = quote(f"owner={value}", safe="=")
        assert reading.body(f"trails://kg/Requirement?where={where}") == wanted


@pytest.mark.req("T12", "T20")
@given(
    st.text(st.characters(codec="utf-8", exclude_characters='"\\\r\n'), max_size=30).filter(
        lambda text: not text.startswith("=")
    )
)
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_text_means_more_than_itself(reading, text):
    """Whatever text is asked for is found as a value or not at all; none changes the question."""
    where = quote(f"title={text}", safe="")
    assert reading.body(f"trails://kg/Requirement?where={where}") == orm(reading, title=text)[:100]


INJECTIONS = [
    "x' OR '1'='1",
    "x%' --",
    "} UNION { ?s ?p ?o",
    "x'); DROP TABLE nodes; --",
    "<http://example.org/> . ?s ?p ?o",
    "${7*7}",
    "%s%n",
    "\x00",
]


@pytest.mark.req("T12")
@pytest.mark.parametrize("text", INJECTIONS)
def test_a_value_is_bound_and_never_read_as_a_query(reading, text):
    """What would be a query elsewhere is a value here, found when it is stored."""
    if text != INJECTIONS[0]:
        assert reading.body(f"trails://kg/Requirement?where={quote(f'title={text}')}") == []
    else:
        failure = reading.failure(f"trails://kg/Requirement?where={quote(f'title={text}')}")
        assert "exactly one condition" in failure.message
    assert len(reading.body("trails://kg/Requirement?limit=1000")) == 250


MISMATCHES = [
    ("priority", "high", "xsd:integer"),
    ("priority", "1_000", "xsd:integer"),
    ("priority", "1.0", "xsd:integer"),
    ("priority", " 1", "xsd:integer"),
    ("priority", "\u0661", "xsd:integer"),
    ("priority", "9" * 19, "xsd:integer"),
    ("priority", "9" * 5000, "xsd:integer"),
    ("priority", "", "xsd:integer"),
    ("big", "1e3", "xsd:integer"),
    ("weight", "nan", "xsd:double"),
    ("weight", "1_0", "xsd:double"),
    ("weight", " 1", "xsd:double"),
    ("weight", "\u0661", "xsd:double"),
    ("weight", "inf", "xsd:double"),
    ("weight", "1e999", "xsd:double"),
    ("weight", "0x10", "xsd:double"),
    ("cost", "1e3", "xsd:decimal"),
    ("cost", "a lot", "xsd:decimal"),
    ("due", "tomorrow", "xsd:date"),
    ("due", "2026-02-30", "xsd:date"),
    ("seen", "2026-03-01T09:30:00", "xsd:dateTime"),
    ("done", "yes", "xsd:boolean"),
    ("done", "True", "xsd:boolean"),
    ("home", "not an iri", "xsd:anyURI"),
]


@pytest.mark.req("T12")
@pytest.mark.parametrize(("field", "value", "datatype"), MISMATCHES, ids=range(len(MISMATCHES)))
def test_a_value_of_another_type_is_told(reading, field, value, datatype):
    """The failure says which field, that the type is wrong, and which datatype is expected."""
    failure = reading.failure(f"trails://kg/Requirement?where={field}={quote(value)}")
    assert failure.kind == "validation"
    data = dict(failure.data)
    fields = data.pop("fields")
    assert data == {"field": field, "reason": "type_mismatch", "expected_datatype": datatype}
    assert (fields[0]["field"], fields[0]["code"]) == (field, "datatype")
    assert len(failure.message) < 300


IMPOSSIBLE = [
    ("status", "propsed", "one_of", "'accepted', 'rejected', not 'propsed'; did you mean"),
    ("status", "high", "one_of", "status must be one of 'proposed', 'accepted', 'rejected'"),
    ("rank", "10", "max_value", "rank must be at most 9, not 10"),
    ("codes", "17", "pattern", "codes must match ^C-[0-9]+$, not '17'"),
]


@pytest.mark.parametrize(("field", "value", "code", "words"), IMPOSSIBLE)
def test_a_value_that_no_instance_can_have_is_told(reading, field, value, code, words):
    """What the declaration forbids is no empty list: the failure says what is possible."""
    failure = reading.failure(f"trails://kg/Requirement?where={field}={value}")
    assert failure.kind == "validation"
    (told,) = failure.data["fields"]
    assert (told["field"], told["code"]) == (field, code)
    assert words in told["message"]


def test_what_could_be_once_is_asked_of_the_past(tmp_path):
    """A value is judged by the declaration of the moment that is read, not by today's."""

    def declare(*states: str) -> type:
        @node_type
        class Item(Node):
            """Something with a state."""

            name: str = predicate(key=True)
            state: str = predicate(one_of=list(states))

        return Item

    (tmp_path / "trails.toml").write_text('[project]\nname = "app"\n')
    (tmp_path / "app.py").write_text("")
    with App.open(tmp_path) as app:
        before = declare("old", "new")
        app.register(before)
        ctx = app.context()
        ctx.kg.save(before(name="a", state="old"))
        then = ctx.kg.head.commit
        before.get(ctx, "a").delete(ctx)
    with App.open(tmp_path) as app:
        after = declare("new")
        app.register(after)
        app.context().kg.save(after(name="b", state="new"))
        reading = Reading(app)
        assert len(reading.body(f"trails://at/{then}/kg/Item?where=state=old")) == 1
        assert "must be one of 'new'" in reading.failure("trails://kg/Item?where=state=old").message


@pytest.mark.req("T12")
@pytest.mark.parametrize(
    ("clause", "words"),
    [
        ("statsu=proposed", "did you mean 'status'?"),
        ("zzz=1", "title, status, priority"),
        ("id=1", "no field 'id'"),
        ("level=1", "no field 'level'"),
        ("place=[1,2]", "can't be compared"),
    ],
)
def test_a_field_that_can_not_be_filtered_is_told(reading, clause, words):
    """An unknown field is named with those that exist; one without equality says so."""
    failure = reading.failure(f"trails://kg/Requirement?where={quote(clause, safe='=')}")
    assert failure.kind == "validation"
    assert words in failure.message


def test_a_type_lists_those_that_extend_it(reading):
    """The list of a type holds its subtypes; theirs hold fewer, and can be filtered by more."""
    assert len(reading.body("trails://kg/SafetyRequirement?limit=1000")) == 63
    assert reading.body("trails://kg/SafetyRequirement?where=level=1") == []


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("trails://kg/Requirment", "did you mean 'Requirement'?"),
        ("trails://kg/requirement", "did you mean 'Requirement'?"),
        ("trails://kg/Nothing/x", "trails://kg/types"),
        ("trails://kg/Person/adam", "did you mean Person/ada?"),
        ("trails://kg/Person/zz", "there are Person/%C3%A9, Person/ada, Person/b%2Fc%20d"),
        ("trails://kg/Person/" + "x" * 2000, "lists all"),
        ("trails://branch/nope/kg/Person", "there is no branch 'nope'"),
        ("trails://at/ffffffffffff/kg/Person", "there is no commit"),
        ("trails://at/zz/kg/Person", "there is no commit"),
        ("trails://queries/nope", "this graph has none"),
        ("urn:x", "kg/…"),
    ],
)
def test_what_does_not_exist_is_unknown_and_says_what_does(reading, uri, words):
    """An unknown type, instance, branch, commit or query is told with what there is instead."""
    failure = reading.failure(uri)
    assert failure.kind == "unknown"
    assert words in failure.message
    assert len(failure.message) < 500


@node_type
class Plain(Node):
    """Nothing that names it."""

    count: int = predicate()


@node_type
class Titled(Node):
    """A title, a name and a key."""

    code: str = predicate(key=True)
    name: str = predicate()
    title: str | None = predicate()


@node_type
class Marked(Node):
    """A label that is no text."""

    code: str = predicate(key=True)
    title: str = predicate()
    number: int = predicate(label=True)


@node_type
class Keyed(Node):
    """A key alone."""

    note: str = predicate()
    code: str = predicate(key=True)


@node_type
class Worded(Node):
    """A text that every instance has."""

    maybe: str | None = predicate()
    words: str = predicate()


def test_an_instance_is_called_by_its_most_telling_field():
    """A marked field, else label, title or name, else the key, a required text or the id."""
    with App(Plain, Titled, Marked, Keyed, Worded) as app:
        ctx = app.context()
        plain = Plain(count=1)
        plain.save(ctx)
        Titled(code="1", name="n", title="t").save(ctx)
        Titled(code="2", name="n").save(ctx)
        Marked(code="c", title="t", number=7).save(ctx)
        Keyed(note="n", code="c").save(ctx)
        Worded(words="w").save(ctx)
        Worded(words="w" * 501).save(ctx)
        reading = Reading(app)
        labels = {
            name: [item["label"] for item in reading.body(f"trails://kg/{name}")]
            for name in ("Plain", "Titled", "Marked", "Keyed", "Worded")
        }
        assert labels == {
            "Plain": [plain.id],
            "Titled": ["t", "2"],
            "Marked": ["7"],
            "Keyed": ["c"],
            "Worded": ["w", "w" * 500 + "…"],
        }
