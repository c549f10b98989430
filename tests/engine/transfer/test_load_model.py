"""Loads against a model: any file, in any mode, does what a dictionary would."""

from __future__ import annotations

import json
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trails import App, Edge, Node, Ref, edge_type, node_type, predicate
from trails.engine.graph.graph import Graph
from trails.engine.transfer.load import load_lines
from trails.engine.write.write import Write
from trails.errors import ValidationError
from trails.model.iris import edge_id

Mode = Literal["merge", "append", "overwrite"]
Model = dict[str, dict[str, object]]


@node_type
class Place(Node):
    """Something to refer to."""

    code: str = predicate(key=True)
    size: int | None = predicate(max_value=5)


@node_type
class Item(Node):
    """Something that refers."""

    code: str = predicate(key=True)
    note: str | None = predicate(default="new")
    place: Ref[Place] | None = predicate()
    places: list[Ref[Place]] = predicate()


@edge_type(source=Item, target=Place)
class Route(Edge):
    """An edge with a value."""

    cost: int | None = predicate()


codes = st.sampled_from(["a", "b", "c"])
refs = codes.map("Place/{}".format)
place_lines = st.fixed_dictionaries(
    {"code": codes}, optional={"size": st.none() | st.integers(1, 6)}
).map(lambda data: {"type": "Place", "data": data})
item_lines = st.fixed_dictionaries(
    {"code": codes},
    optional={
        "note": st.none() | st.sampled_from(["x", "y"]),
        "place": st.none() | refs,
        "places": st.none() | st.lists(refs, max_size=2),
    },
).map(lambda data: {"type": "Item", "data": data})
field_lines = st.tuples(st.sampled_from(["place", "places"]), codes, codes).map(
    lambda three: {"edge": three[0], "from": three[1], "to": three[2]}
)
route_lines = st.tuples(codes, codes, st.none() | st.integers(0, 3)).map(
    lambda three: {
        "edge": "Route",
        "from": f"Item/{three[0]}",
        "to": three[1],
        "data": {"cost": three[2]},
    }
)
files = st.lists(place_lines | item_lines | field_lines | route_lines, max_size=7)
DEFAULTS: dict[str, dict[str, object]] = {"Item": {"note": "new"}}


def handle_of(line: dict) -> str:
    """The node that a line gives."""
    if "type" in line:
        return f"{line['type']}/{line['data']['code']}"
    return f"Route/{edge_id(line['from'], 'Place/' + line['to'])}"


def expected(before: Model, lines: list[dict], mode: Mode) -> Model | None:
    """What a graph holds after a load; None when it must be refused."""
    after = {handle: dict(values) for handle, values in before.items()}
    given = put_nodes(before, after, [line for line in lines if not on_field(line)], mode)
    if given is None:
        return None
    if not put_edges(before, after, given, list(filter(on_field, lines)), mode):
        return None
    if mode == "overwrite":
        touched = {handle.partition("/")[0] for handle in given}
        for handle in list(after):
            if handle not in given and handle.partition("/")[0] in touched:
                del after[handle]
    return tidy(after) if consistent(after) else None


def on_field(line: dict) -> bool:
    """Whether a line is an edge that is a reference field."""
    return line.get("edge") in {"place", "places"}


def put_nodes(before: Model, after: Model, lines: list[dict], mode: Mode) -> Model | None:
    """Change the nodes that the file gives, and tell them; None when that is refused."""
    given: Model = {}
    for line in lines:
        handle = handle_of(line)
        if handle in given or (mode == "append" and handle in before):
            return None
        data = dict(line["data"])
        if "edge" in line:
            data |= {"source": line["from"], "target": f"Place/{line['to']}"}
        given[handle] = data
        kept = after.get(handle) if mode == "merge" else None
        fresh = DEFAULTS.get(handle.partition("/")[0], {})
        after[handle] = {**(fresh if kept is None else kept), **data}
    return given


def put_edges(before: Model, after: Model, given: Model, lines: list[dict], mode: Mode) -> bool:
    """Change reference fields; False when that is refused."""
    said: dict[str, object] = {}
    for line in lines:
        start, target = f"Item/{line['from']}", f"Place/{line['to']}"
        if start not in given and (mode == "overwrite" or start not in before):
            return False
        node = after[start]
        if line["edge"] == "places":
            node["places"] = [*(node.get("places") or []), target]
            continue
        known = [said.get(start, given.get(start, {}).get("place"))]
        if mode == "append" and start not in given:
            known.append(node.get("place"))
        if any(each not in {None, target} for each in known):
            return False
        said[start] = node["place"] = target
    return True


def consistent(model: Model) -> bool:
    """Whether every rule holds."""
    for values in model.values():
        pointed = [values.get("place"), values.get("source"), values.get("target")]
        pointed += values.get("places") or []
        if any(target is not None and target not in model for target in pointed):
            return False
        if (values.get("size") or 0) > 5:
            return False
    return True


def tidy(model: Model) -> Model:
    """As the graph tells it: no empty fields, sets in order."""
    out = {}
    for handle, values in model.items():
        plain = {name: value for name, value in values.items() if value is not None}
        if "places" in plain:
            plain["places"] = tuple(sorted(set(plain["places"])))
        out[handle] = {name: value for name, value in plain.items() if value != ()}
    return out


def contents(graph: Graph) -> Model:
    """What a graph holds."""
    with graph.file.reader() as db:
        return {
            state.handle: dict(state.values)
            for state in graph.main.nodes.states(db, graph.main.schema.by_name)
        }


def load(graph: Graph, lines: list[dict], mode: Mode) -> bool:
    """Load in one write; whether it was accepted."""
    write = Write(graph, graph.main, actor="test")
    write.begin()
    text = "\n".join(map(json.dumps, lines)).encode()
    try:
        load_lines(write, graph.main.schema, graph.names, [text], mode=mode)
    except ValidationError as error:
        write.abandon()
        placed = [
            each.message.startswith("line ") or each.code == "in_use" for each in error.fields
        ]
        return not all(placed)
    write.finish()
    return True


@pytest.mark.parametrize("mode", ["merge", "append", "overwrite"])
@settings(max_examples=60, deadline=None)
@given(first=files, second=files)
def test_a_load_does_what_the_model_does(mode: Mode, first: list[dict], second: list[dict]) -> None:
    """It is accepted when the model accepts it, and leaves what the model leaves."""
    with App(Place, Item, Route) as app:
        graph = app.graph()
        base: list[dict] = [{"type": "Place", "data": {"code": code}} for code in "ab"]
        load(graph, base, "append")
        load(graph, first, "merge")
        before = contents(graph)
        wanted = expected(before, second, mode)
        assert load(graph, second, mode) == (wanted is not None)
        assert contents(graph) == (before if wanted is None else wanted)
