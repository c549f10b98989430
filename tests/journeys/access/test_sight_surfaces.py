"""Everything that a kernel tells a restricted actor is what it tells anybody in the twin.

Tools, resources, completions and files are asked in the form in which every surface hands
them on; ids of commits, times and cursors are left out of the comparison.
"""

import asyncio
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

import msgspec
import pytest
from tests.journeys.access.hidden_parts import (
    TYPES,
    Hidden,
    World,
    all_fields,
    gone_types,
    twin_rows,
    twin_types,
)
from tests.journeys.access.test_sight_reads import CASES, fixed_rows

from trails import Context, Ref, Shape, capability, predicate, shape
from trails.model.actors import LOCAL, Actor
from trails.model.capabilities import Action
from trails.model.decisions import Resource
from trails.model.results import Failure
from trails.request.admission import KernelOptions
from trails.request.pipeline import Kernel

READER = Actor("reader", frozenset({"runtime"}), frozenset(), "token")
NAMES = [*TYPES, "Nope"]
DEEDS = {
    "people.all": ("Person",),
    "people.echo": ("Person",),
    "people.named": ("Person",),
    "staff.first": ("Employee",),
    "notes.about": ("Note", "Person"),
    "offices.echo": ("Office",),
    "cards.make": (),
    "anything.list": (),
}


class Hiding:
    """A judge that allows everything but to read what is hidden."""

    def __init__(self, hidden: Hidden) -> None:
        sight = hidden.sight(TYPES)
        self._hidden = {("Type", each) for each in sight.hidden}
        self._hidden |= {
            ("Field", f"{name}.{each}")
            for name, fields in sight.hidden_fields.items()
            for each in fields
        }
        self.version = str(sorted(self._hidden))

    @property
    def current(self) -> "Hiding":
        """Itself: it never changes."""
        return self

    def allows(
        self, actor: Actor, action: Action, resource: Resource, branch: str = "", target: str = ""
    ) -> bool:
        """Whether it is not hidden."""
        del actor, branch, target
        return action != "Read" or (resource.kind, resource.id) not in self._hidden

    def allows_somewhere(
        self, actor: Actor, action: Action, resource: Resource, branches: Collection[str]
    ) -> bool:
        """The same everywhere."""
        del branches
        return self.allows(actor, action, resource)

    def alike(self, actor: Actor, branches: Collection[str]) -> Mapping[str, str]:
        """All are."""
        del actor
        return dict.fromkeys(branches, next(iter(branches), ""))


def deeds(classes: Mapping[str, type]) -> list[object]:
    """Capabilities that take and give instances, as far as their types are declared."""
    made: list[object] = []

    def offer(name: str, function, **annotations: object) -> None:
        if all(each in classes for each in DEEDS[name]):
            function.__name__ = name.replace(".", "_")
            function.__doc__ = f"Do {name}."
            function.__annotations__ = annotations
            made.append(capability(name, side_effects=["none"])(function))

    kinds = {name: classes.get(name) for name in TYPES}
    person, employee, office = kinds["Person"], kinds["Employee"], kinds["Office"]
    note = kinds["Note"]
    body: dict[str, object] = {"title": str}
    if person is not None:
        body["owner"] = Ref["Person"] | None
    if office is not None:
        body["place"] = office | None
    card = shape(
        type("Card", (Shape,), {"__annotations__": body, "__module__": __name__, **_plain(body)})
    )
    made.append(card)
    offer("people.all", lambda ctx: person.objects(ctx).fetch(), **{"return": list[person or int]})
    offer("people.echo", lambda ctx, person: person, person=person, **{"return": person})
    named = {"person": Ref["Person"], "return": list[person or int]}
    offer("people.named", lambda ctx, person: [person, *_boss(person)], **named)
    first = {"return": (employee or int) | None}
    offer("staff.first", lambda ctx: employee.objects(ctx).first(), **first)
    about = {"person": Ref["Person"], "return": list[note or int]}
    offer("notes.about", lambda ctx, person: note.where(about=person).fetch(ctx), **about)
    offer("offices.echo", lambda ctx, office: office, office=office, **{"return": office})
    offer("cards.make", lambda ctx, card: card, card=card, **{"return": card})
    listed = {"return": dict[str, object]}
    offer(
        "anything.list", lambda ctx: {"notes": note.objects(ctx).fetch() if note else []}, **listed
    )
    return made


def _plain(body: Mapping[str, object]) -> dict[str, object]:
    return {name: predicate(required=name == "title") for name in body}


def _boss(person: object) -> list[object]:
    boss = getattr(person, "boss", None)
    return [] if boss is None else [boss]


class Asked:
    """A kernel, and what one actor is told by it."""

    def __init__(self, world: World, hidden: Hidden) -> None:
        self.kernel = Kernel(world.app.service(), KernelOptions(judge=Hiding(hidden)))

    def read(self, uri: str) -> object:
        """A resource."""
        return _told(asyncio.run(self.kernel.read(READER, uri)))

    def call(self, name: str, **arguments: object) -> object:
        """A tool."""
        found = asyncio.run(self.kernel.execute(READER, name, arguments))
        return _told(found) if isinstance(found, Failure) else _plainly(found.body)

    def record(self, name: str, **arguments: object) -> object:
        """A built-in for programs."""
        found = asyncio.run(self.kernel.transfers.record(READER, name, arguments))
        return _told(found) if isinstance(found, Failure) else _plainly(found.body)

    def complete(self, template: str, variable: str, value: str, **given: str) -> object:
        """Values for a variable."""
        found = self.kernel.complete(READER, template, variable, value, given)
        return _told(asyncio.run(found))

    def export(self, **arguments: object) -> object:
        """A file."""

        async def run() -> object:
            found = await self.kernel.transfers.export(READER, arguments)
            if isinstance(found, Failure):
                return _told(found)
            return b"".join([each async for each in found])

        return asyncio.run(run())


def _told(found: object) -> object:
    return _plainly(msgspec.json.encode(found))


def _plainly(text: bytes) -> object:
    """Without what is never the same twice."""
    plain = text.decode()
    plain = re.sub(r"cursor=[\w%-]+|(?<=\"cursor\":\")[\w-]+", "cursor", plain)
    plain = re.sub(r"\b[0-9a-f]{32}\b", "commit", plain)
    plain = re.sub(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21}\b", "new", plain)
    plain = re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+Z", "time", plain)
    return json.loads(plain)


@contextmanager
def worlds(hidden: Hidden) -> Iterator[tuple[Asked, Asked]]:
    """What a restricted actor asks, and what anybody asks in the twin."""
    rows = fixed_rows()
    world = World(TYPES, rows, deeds)
    twin = World(twin_types(TYPES, hidden), twin_rows(TYPES, hidden, rows), deeds)
    try:
        yield Asked(world, hidden), Asked(twin, Hidden())
    finally:
        world.app.close()
        twin.app.close()


@pytest.fixture(scope="module", params=CASES)
def pair(request) -> Iterator[tuple[Asked, Asked]]:
    """Both worlds, with one thing or another hidden."""
    with worlds(CASES[request.param]) as found:
        yield found


WHOLE = {"graph_query"}
"""What is only for those from whom nothing is hidden."""


@pytest.mark.req("E11a")
def test_tools_and_their_schemas(pair):
    """The list of tools names no hidden type or field, and no tool that could not be called."""
    restricted, twin = (each.kernel.tools(READER).tools for each in pair)
    left = [each for each in twin if each.name not in WHOLE]
    assert [each.name for each in restricted] == [each.name for each in left]
    for seen, wanted in zip(restricted, left, strict=True):
        assert msgspec.json.encode(seen) == msgspec.json.encode(wanted), seen.name


@pytest.mark.req("E11a")
def test_resources_and_their_templates(pair):
    """The list of resources names no hidden type."""
    restricted, twin = (each.kernel.resources(READER) for each in pair)
    assert restricted.resources == twin.resources
    assert restricted.templates == twin.templates


@pytest.mark.req("E11a")
def test_instructions(pair):
    """Nor do the words with which a server is introduced."""
    told = [each.kernel.instructions(READER) for each in pair]
    lines = [[each for each in text.splitlines() if "Where to begin" not in each] for text in told]
    assert lines[0] == lines[1]


@pytest.mark.req("E11a")
def test_documents(pair):
    """Schema, types and what can be counted are those of the twin."""
    restricted, twin = pair
    for name in ("schema", "kg/types", "branches"):
        assert restricted.read(f"trails://{name}") == twin.read(f"trails://{name}"), name
    stats = [json.loads(each.read("trails://stats")[0]["text"]) for each in pair]
    assert (stats[0].pop("commits"), stats[0].pop("bytes")) == (None, None)
    assert stats[0] == {name: value for name, value in stats[1].items() if name in stats[0]}


def uris() -> Iterator[str]:
    """Lists, filtered and in pages, and instances, of every type that any world has."""
    for name in NAMES:
        yield f"trails://kg/{name}"
        yield f"trails://kg/{name}?limit=3&offset=2"
        yield f"trails://kg/{name}?cursor=x"
        for at in (0, 1, 2, 3, 99):
            yield f"trails://kg/{name}/p{at}"
            yield f"trails://kg/{name}/{at}"
        known = all_fields(TYPES, name) if name in TYPES else ("name",)
        for field in (*known, "source", "nope"):
            for value in ("x", "2", "Chief/p1", "Person/p0", "Employee/p2"):
                yield f"trails://kg/{name}?where={field}={value.replace('/', '%2F')}"


@pytest.mark.req("E11a")
def test_lists_and_instances(pair):
    """Whatever is read by URI: the same documents, pages, notes and errors."""
    restricted, twin = pair
    for uri in uris():
        assert restricted.read(uri) == twin.read(uri), uri


@pytest.mark.req("E11a")
def test_completions(pair):
    """Types, ids, fields and values that could be typed are those of the twin."""
    restricted, twin = pair
    templates = [each.uri_template for each in twin.kernel.resources(READER).templates]
    templates += [f"trails://kg/{name}/{{id}}" for name in TYPES]
    for template in templates:
        for variable in ("id", "where", "type"):
            for value in ("", "p", "a", "badge=", "E"):
                asked = template, variable, value
                assert restricted.complete(*asked) == twin.complete(*asked), asked
                given = {"type": "Person"}
                assert restricted.complete(*asked, **given) == twin.complete(*asked, **given)


def calls(hidden_fields: Collection[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """Built-ins and capabilities, called well and badly."""
    yield "graph_snapshot", {}
    yield "schema_get", {}
    for name in NAMES:
        yield "schema_get", {"types": [name]}
        yield from _reads(name)
    for deed in DEEDS:
        yield deed, {}
        for handle in ("Person/p0", "Chief/p1", "Employee/p2", "p3", "Note/1", "Offices/o1"):
            yield deed, {"person": handle}
        for name in ("person", "office", "card"):
            good = {"code": "new", "name": "x", "room": "x", "title": "x"}
            yield deed, {name: good}
            for field in hidden_fields:
                yield deed, {name: {**good, field: "x"}}
                yield deed, {name: {**good, field[:-1]: "x"}}
                yield deed, {name: {"title": "x", "place": {"room": "x", field: 1}}}
                yield deed, {name: {"code": "new", "name": "x", field: 1}}


def _reads(name: str) -> Iterator[tuple[str, dict[str, object]]]:
    """Records, fields and lists of a type, that are there and that are not."""
    known = (*all_fields(TYPES, name), "nope") if name in TYPES else ("name",)
    yield "search", {"query": "x", "types": [name]}
    yield "search", {"query": "Zed née long", "types": [name], "limit": 2}
    yield "node_list", {"type": name}
    yield "node_list", {"type": name, "limit": 2, "order": "-age", "fields": ["name", "boss"]}
    for field in known:
        yield "node_list", {"type": name, "order": field, "fields": [field], "limit": 3}
        yield "node_list", {"type": name, "where": f"{field}=2"}
    for key in ("p0", "p1", "p2", "p99", "1"):
        yield "fetch", {"id": f"{name}/{key}"}
        yield "node_get", {"record": f"trails://kg/{name}/{key}"}
        for field in known:
            yield "node_get", {"record": key, "type": name, "fields": [field]}
            yield "read_record_field", {"record": f"{name}/{key}", "field": field}
            yield "read_record_field", {"record": f"{name}/{key}", "field": field, "length": 1}
            yield "read_record_field", {"record": f"{name}/{key}", "field": field, "item": 1}


@pytest.mark.req("E11a")
def test_calls(pair):
    """Results, refused arguments and what is suggested instead are those of the twin."""
    for name, arguments in calls(("alias", "age", "boss", "badge", "room", "code")):
        found, wanted = (each.call(name, **arguments) for each in pair)
        if name in DEEDS and isinstance(wanted, Mapping) and wanted.get("code") == "query":
            # The twin's author names a field that its types do not have: that is told here in
            # the words for what the caller may not see.
            assert found["code"] == "forbidden", (name, arguments)
        else:
            assert found == wanted, (name, arguments)


def selections(name: str) -> Iterator[dict[str, object]]:
    """Conditions, orders, counts and keys of a type, that are there and that are not."""
    known = (*all_fields(TYPES, name), "nope") if name in TYPES else ("name",)
    yield {"type": name}
    for field in known:
        condition = {"field": field, "value": 2}
        yield {"type": name, "where": condition}
        yield {"type": name, "where": {"not": condition}, "count": True}
        yield {"type": name, "order": [f"-{field}"], "limit": 2}
        yield {"type": name, "where": {"field": f"boss__{field}", "value": 2}}
    for key in ("p0", "p1", "p2", "p99", "1"):
        yield {"type": name, "record": key}


@pytest.mark.req("E11a")
def test_selections(pair):
    """What a program selects, and what it is refused, is that of the twin."""
    restricted, twin = pair
    found = 0
    for name in NAMES:
        for asked in selections(name):
            wanted = twin.record("node_select", **asked)
            assert restricted.record("node_select", **asked) == wanted, asked
            found += isinstance(wanted, Mapping) and bool(wanted.get("records"))
    assert found


@pytest.mark.req("E11a")
def test_files(pair):
    """A file has nothing that is hidden, in any format."""
    restricted, twin = pair
    for format in ("ndjson", "turtle", "nquads", "jsonld", "nope"):
        for types in ([], ["Person"], ["Employee"], ["Nope"], ["Knows", "Note"]):
            asked = {"format": format, "type": types}
            assert restricted.export(**asked) == twin.export(**asked), asked


@pytest.mark.req("E11a")
def test_texts_are_for_those_who_see_everything(pair):
    """A query of one's own is unknown; the words are those for any unknown tool."""
    restricted, _ = pair
    wanted = restricted.call("no_such_tool")
    found = restricted.call("graph_query", query="ASK { ?s ?p ?o }")
    assert json.dumps(found) == json.dumps(wanted).replace("no_such_tool", "graph_query")


SECRETIVE = Hidden(frozenset({"Chief"}), frozenset({("Person", "age")}))
NOSY = {
    "a type": lambda classes, ctx: len(classes["Chief"].objects(ctx).fetch()),
    "how many": lambda classes, ctx: classes["Chief"].objects(ctx).count(),
    "one": lambda classes, ctx: classes["Chief"].get(ctx, "p1").id,
    "a filter": lambda classes, ctx: classes["Person"].where(age=3).count(ctx),
    "a filter behind": lambda classes, ctx: classes["Person"].where(boss__age=3).count(ctx),
    "an order": lambda classes, ctx: len(classes["Person"].objects(ctx).order_by("-age").fetch()),
    "values": lambda classes, ctx: len(classes["Person"].objects(ctx).values("age")),
    "all values": lambda classes, ctx: len(classes["Chief"].objects(ctx).values()),
    "what is nowhere": lambda classes, ctx: classes["Person"].where(agx=3).count(ctx),
}


def prying(case: str) -> Callable[[Mapping[str, type]], list[object]]:
    """A capability that says nothing of what it reads."""

    def declared(classes: Mapping[str, type]) -> list[object]:
        def pry(ctx: Context) -> int:
            """Find something out."""
            NOSY[case](classes, ctx)
            return 1

        return [capability("pry", side_effects=["none"])(pry)]

    return declared


@pytest.mark.req("E11a")
@pytest.mark.parametrize("case", NOSY)
def test_a_capability_that_reads_what_is_hidden_is_forbidden(case):
    """It fails in the same words, which name nothing, as where it reads what does not exist."""
    world = World(TYPES, fixed_rows(), prying(case))
    found = Asked(world, SECRETIVE).call("pry")
    assert (found["kind"], found["code"]) == ("semantic", "forbidden")
    assert found["message"] == (
        "pry reads data that you cannot see or that does not exist; request access to it, or use "
        "another tool"
    )
    if case != "what is nowhere":
        assert Asked(world, Hidden()).call("pry") == {"result": 1}
    world.app.close()


def test_a_local_actor_sees_everything():
    """Where nothing is configured nothing is hidden."""
    world = World(TYPES, fixed_rows(), deeds)
    kernel = Kernel(world.app.service(), KernelOptions())
    names = {each.name for each in kernel.tools(LOCAL).tools}
    assert {"graph_query", *DEEDS} <= names
    assert gone_types(TYPES, Hidden()) == frozenset()
    kernel.close()
    world.app.close()
