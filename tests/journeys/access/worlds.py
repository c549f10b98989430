"""Two projects side by side, one seen through a filter, one without what it hides; all writers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec
import pyoxigraph as ox
from tests.journeys.access import plain_types, whole_types

from trails import App, Node
from trails.engine.history.branches import Versions
from trails.engine.session.context import GraphContext
from trails.engine.visibility.access import OPEN, Access
from trails.errors import TrailsError
from trails.model.capabilities import Action
from trails.model.iris import RDF_TYPE, encode_id
from trails.model.types import Schema
from trails.model.visibility import FULL, Visibility
from trails.model.writes import LoadRequest

SIGHT: Final = Visibility(
    hidden=frozenset({"Vault", "Laptop"}),
    hidden_fields={
        "Person": frozenset({"salary", "grade", "secrets"}),
        "Account": frozenset({"pin"}),
        "Seat": frozenset({"number"}),
    },
)
HIDDEN_WORDS: Final = re.compile(
    r"salary|grade|secret|\bpin\b|number|Vault|Laptop|disk|hush", re.IGNORECASE
)
"""What a restricted actor must never read; hidden texts are made of the last one."""


class Narrow:
    """An actor's access, said outright."""

    unrestricted = False

    def __init__(
        self,
        sight: Visibility = SIGHT,
        *,
        denied: Iterable[tuple[Action, str]] = (),
    ) -> None:
        self._sight = sight
        self._denied = frozenset(denied)

    def may(self, action: Action, branch: str, target: str = "") -> bool:
        """Everything that is not denied on the branch."""
        del target
        return (action, branch) not in self._denied

    def visibility(self, schema: Schema, branches: Iterable[str]) -> Visibility:
        """The same everywhere; nothing where no branch may be read."""
        if all(("Read", each) in self._denied for each in branches):
            return msgspec.structs.replace(self._sight, hidden=frozenset(schema.by_name))
        return self._sight


class World:
    """One project in memory, and one actor's way to it."""

    def __init__(self, app: App, types: object, access: Access) -> None:
        self.app = app
        self.types = types
        self.access = access
        self.branch = "main"

    def fork(self) -> World:
        """Go on with a new branch of the branch that it began with."""
        service = self.app.service()
        self.branch = f"b{len(service.graph.log.branches())}"
        service.versions("owner").create_branch(self.branch)
        return self

    def ctx(self, branch: str | None = None) -> GraphContext:
        """The actor at work."""
        return self.app.service().context("agent", branch or self.branch, access=self.access)

    def owner(self, branch: str | None = None) -> GraphContext:
        """Somebody who sees everything."""
        return self.app.service().context("owner", branch or self.branch)

    @property
    def versions(self) -> Versions:
        """History, as the actor sees it."""
        return self.app.service().versions("agent", access=self.access)

    def new(self, name: str, /, **values: object) -> Node:
        """An instance of a type."""
        made: Node = getattr(self.types, name)(**values)
        return made

    def load(self, text: bytes, **how: object) -> object:
        """Load a file as the actor."""
        request = LoadRequest(files=([text],), branch=self.branch, **how)  # type: ignore[arg-type]
        return self.app.service().load("agent", request, access=self.access)

    def seen(self, branch: str | None = None) -> list[str]:
        """All that the actor can read of a branch."""
        ctx = self.ctx(branch)
        out = b"".join(self.app.service().export(ctx, "ndjson")).decode()
        return sorted(out.splitlines())

    def all(self, branch: str | None = None) -> list[str]:
        """All that there is."""
        out = b"".join(self.app.service().export(self.owner(branch), "ndjson")).decode()
        return sorted(out.splitlines())


@contextmanager
def whole(access: Access | None = None) -> Iterator[World]:
    """The project with hidden parts."""
    with App(*whole_types.TYPES, *whole_types.CAPABILITIES) as app:
        yield World(app, whole_types, Narrow() if access is None else access)


@contextmanager
def plain() -> Iterator[World]:
    """The project that never had them."""
    with App(*plain_types.TYPES, *plain_types.CAPABILITIES) as app:
        yield World(app, plain_types, OPEN)


Answer = tuple[str, object]
_IDS: Final = re.compile(r"[0-9a-f]{32}")


def answer(run: Callable[[], object]) -> Answer:
    """What somebody gets who does something, ids of commits left out."""
    try:
        found = run()
    except TrailsError as error:
        told = {
            "code": error.code,
            "message": error.message,
            "data": msgspec.to_builtins(dict(error.data)),
        }
        fields = getattr(error, "fields", ())
        told["fields"] = [msgspec.to_builtins(each) for each in fields]
        return "error", anonymous(told)
    return "ok", anonymous(msgspec.to_builtins(found))


_OWN: Final = frozenset(
    {"time", "seq", "position", "payload", "digest", "schema", "activity", "after"}
)
"""Members that follow from a history's own times, ids and length."""


def anonymous(value: object) -> object:
    """A value without ids of commits, times and whatever follows from them."""
    if isinstance(value, str):
        return _IDS.sub("<id>", value)
    if isinstance(value, Mapping):
        return {key: anonymous(each) for key, each in value.items() if key not in _OWN}
    if isinstance(value, list | tuple):
        return [anonymous(each) for each in value]
    return value


FULL_ACCESS: Final = Narrow(FULL)


# --- what both projects hold ----------------------------------------------------------------

_HIDDEN: Final[Mapping[str, frozenset[str]]] = SIGHT.hidden_fields


def settle(world: World, secret: int = 0) -> World:
    """Fill a project; ``secret`` varies what is hidden in it, and nothing else."""
    hushed = world.types is whole_types
    salaries = ((5, 7), (8, None), (None, 5))[secret % 3]

    def new(name: str, /, **values: object) -> Node:
        gone = () if hushed else _HIDDEN.get(name, ())
        return world.new(name, **{k: v for k, v in values.items() if k not in gone})

    team = new("Team", code="t", title="Team")
    ann = new(
        "Person",
        email="ann@x",
        name="Ann",
        badge="1",
        tags=["a", "b"],
        team=team,
        salary=salaries[0],
        grade=2 + secret % 3,
        secrets=[f"hush {secret}"],
    )
    bob = new("Person", email="bob@x", name="Bob", salary=salaries[1], grade=5)
    task = new("Task", code="T1", title="Task", owner=ann)
    asset = new("Asset", tag="A1", serial="S1")
    room = new("Room", code="r")
    nodes = [
        room,
        new("Holds", source=room, target=asset, since=1),
        team,
        ann,
        bob,
        task,
        asset,
        new("Task", code="T2", title="Task two", state="done"),
        new("Note", code="n", about=ann),
        new("Note", code="m", about=bob),
        new("Member", source=ann, target=team, since=3),
        new("Account", code="acc", label="Account", pin=f"hush {secret}"),
        new("Seat", code="s1", room="A", number=1),
        new("Seat", code="s2", room="B", number=1 + secret % 2),
        new("Seat", code="s3", room="C", number=None if secret else 1),
    ]
    desk: dict[str, object] = {"main": None, "more": [asset]}
    if hushed:
        laptop = new("Laptop", tag=f"L{secret % 2}", serial=f"S{8 + secret}", disk="hush")
        nodes += [laptop, new("Holds", source=room, target=laptop, since=secret)]
        nodes += [new("Vault", code="v", task=None if secret % 2 else task)]
        desk = {"main": laptop if secret != 1 else None, "more": [asset, laptop]}
    nodes.append(new("Desk", code="d", label="Desk", **desk))
    world.owner().kg.save_all(nodes, message="begin")
    return world


def hidden_part(world: World, branch: str | None = None) -> dict[str, object]:
    """All that is hidden in a project: values by node and field, and nodes."""
    found: dict[str, object] = {}
    for line in world.all(branch):
        node = msgspec.json.decode(line)
        name, data = node.get("type"), node.get("data", {})
        if "Laptop" in node.get("to", ""):
            found[f"{node['from']} {node['edge']} {node['to']}"] = data
        handle = f"{name}/{data.get('email') or data.get('tag') or data.get('code')}"
        if name in SIGHT.hidden:
            found[handle] = data
        for field in _HIDDEN.get(name, frozenset()) & data.keys():
            found[f"{handle}.{field}"] = data[field]
        for field in ("main", "more"):
            laptops = [each for each in _listed(data.get(field)) if "Laptop" in each]
            if laptops:
                found[f"{handle}.{field}"] = laptops
    return found


def _listed(value: object) -> list[str]:
    return list(map(str, value)) if isinstance(value, list) else [str(value)]


Values = Mapping[str, object]
Writer = Callable[[World, str, Values], object]
KEYS: Final = {"Person": "email", "Asset": "tag", "Laptop": "tag"}


def key_of(type_name: str, values: Values) -> str:
    """The key of a node: its id."""
    return str(values.get(KEYS.get(type_name, "code")))


def handle_of(type_name: str, values: Values) -> str:
    """The handle of a node with a key."""
    return f"{type_name}/{encode_id(key_of(type_name, values))}"


def save(world: World, type_name: str, values: Values) -> object:
    """``Node.save``."""
    return world.new(type_name, **values).save(world.ctx())


def upsert(world: World, type_name: str, values: Values) -> object:
    """``Node.save(upsert=True)``."""
    return world.new(type_name, **values).save(world.ctx(), upsert=True)


def save_all(world: World, type_name: str, values: Values) -> object:
    """``save_all``, beside a node that is always good."""
    task = world.new("Task", code="ok", title="Another")
    return world.ctx().kg.save_all([task, world.new(type_name, **values)], upsert=True)


def transaction(world: World, type_name: str, values: Values) -> object:
    """A transaction that writes something else first."""
    ctx = world.ctx()
    with ctx.kg.transaction(message="all or nothing") as outcome:
        world.new("Task", code="ok", title="Another").save(ctx, upsert=True)
        world.new(type_name, **values).save(ctx, upsert=True)
    return outcome.commit


def typed_create(world: World, type_name: str, values: Values) -> object:
    """A typed operation that makes a node."""
    return world.app.mutate(world.ctx(), [{"op": "create", "type": type_name, "data": values}])


def typed_upsert(world: World, type_name: str, values: Values) -> object:
    """A typed operation that replaces a node."""
    return world.app.mutate(
        world.ctx(),
        [{"op": "upsert", "type": type_name, "id": key_of(type_name, values), "data": values}],
    )


def typed_update(world: World, type_name: str, values: Values) -> object:
    """A typed operation that changes a node."""
    return world.app.mutate(
        world.ctx(),
        [{"op": "update", "type": type_name, "id": key_of(type_name, values), "data": values}],
    )


def _lines(mode: str) -> Writer:
    def write(world: World, type_name: str, values: Values) -> object:
        line = json.dumps({"type": type_name, "data": values}).encode()
        return world.load(line + b"\n", format="ndjson", mode=mode)

    return write


def _table(mode: str) -> Writer:
    def write(world: World, type_name: str, values: Values) -> object:
        out = io.StringIO()
        rows = csv.writer(out)
        rows.writerow(values)
        rows.writerow(
            "|".join(each) if isinstance(each, list) else each for each in values.values()
        )
        return world.load(out.getvalue().encode(), format="csv", mode=mode, type_name=type_name)

    return write


def _rdf(format: str, mode: str) -> Writer:
    def write(world: World, type_name: str, values: Values) -> object:
        quads = list(statements(world, type_name, values))
        text = ox.serialize(quads, format=_FORMATS[format])
        assert text is not None
        return world.load(text, format=format, mode=mode)

    return write


_FORMATS: Final = {
    "turtle": ox.RdfFormat.TURTLE,
    "ntriples": ox.RdfFormat.N_TRIPLES,
    "nquads": ox.RdfFormat.N_QUADS,
    "jsonld": ox.RdfFormat.JSON_LD,
}


def statements(world: World, type_name: str, values: Values) -> list[ox.Quad]:
    """A node as RDF; a field that is not declared is stated as a text."""
    graph = world.app.graph()
    names = graph.names
    subject = ox.NamedNode(names.nodes + handle_of(type_name, values))
    schema: Schema = world.ctx().kg.schema
    lineage = schema.lineage(type_name) if type_name in schema.by_name else (type_name,)
    out = [
        ox.Quad(subject, ox.NamedNode(RDF_TYPE), ox.NamedNode(names.term(each))) for each in lineage
    ]
    for name, value in values.items():
        for each in value if isinstance(value, list) else [value]:
            reference = isinstance(each, str) and each.count("/") == 1
            term = ox.NamedNode(names.nodes + str(each)) if reference else ox.Literal(each)
            out.append(ox.Quad(subject, ox.NamedNode(names.term(name)), term))
    return out


ORM: Final[Mapping[str, Writer]] = {
    "save": save,
    "upsert": upsert,
    "save_all": save_all,
    "transaction": transaction,
}
OUTSIDE: Final[Mapping[str, Writer]] = {
    "typed create": typed_create,
    "typed upsert": typed_upsert,
    "typed update": typed_update,
    **{f"ndjson {mode}": _lines(mode) for mode in ("merge", "append", "overwrite")},
    **{f"csv {mode}": _table(mode) for mode in ("merge", "append", "overwrite")},
    **{f"{name} merge": _rdf(name, "merge") for name in _FORMATS},
    "ntriples append": _rdf("ntriples", "append"),
    "ntriples overwrite": _rdf("ntriples", "overwrite"),
}
WRITERS: Final[Mapping[str, Writer]] = {**ORM, **OUTSIDE}
