"""Every way to write a node, as a function of a world, a type and values in JSON form."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping
from typing import Final

import pyoxigraph as ox
from tests.journeys.access.worlds import World

from trails.model.iris import RDF_TYPE, encode_id
from trails.model.types import Schema

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
