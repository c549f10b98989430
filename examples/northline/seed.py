"""Load the Northline data into an empty graph.

The files in ``data/`` hold one JSON object a line: ``{"type", "data"}`` for a node,
``{"edge", "from", "to", "data"}`` for an edge. References are written as the key of their
target; keys are unique over all types here, so a key alone says which node is meant.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from graphlib import TopologicalSorter
from pathlib import Path

import app as northline

from trails import App, Context, Node
from trails.model.history import Commit

DATA = Path(__file__).parent / "data"

KEYS: Mapping[type[Node], str] = {
    northline.Team: "code",
    northline.Person: "slug",
    northline.Supplier: "slug",
    northline.Component: "tag",
    northline.Requirement: "req_id",
    northline.Hazard: "haz_id",
    northline.TestCase: "tc_id",
    northline.Incident: "inc_id",
    northline.Decision: "dec_id",
}
TYPES: Mapping[str, type[Node]] = {cls.__name__: cls for cls in (*KEYS, northline.Verification)}

REFERENCES = frozenset(
    {
        "affects",
        "allocated_to",
        "author",
        "component",
        "components",
        "consulted",
        "decided_by",
        "depends_on",
        "hazards",
        "manager",
        "mitigated_by",
        "owner",
        "part_of",
        "refines",
        "reporter",
        "source",
        "supersedes",
        "supplier",
        "target",
        "team",
    }
)

# JSON has no dates and no decimals; a field's name decides how its text is read.
READERS: Mapping[str, Callable[[str], object]] = {
    "commissioned": date.fromisoformat,
    "contract_ends": date.fromisoformat,
    "contract_value": Decimal,
    "cost": Decimal,
    "decided": date.fromisoformat,
    "due": date.fromisoformat,
    "formed": date.fromisoformat,
    "happened": datetime.fromisoformat,
    "identified": date.fromisoformat,
    "run_on": date.fromisoformat,
    "since": date.fromisoformat,
    "unit_cost": Decimal,
}

Record = tuple[type[Node], dict[str, object]]


def load(ctx: Context) -> Commit | None:
    """Save all nodes and edges of ``data/`` in one commit and return it.

    The graph must not hold any of them yet.
    """
    return ctx.kg.save_all(build_instances(read_records(DATA)), message="Load Northline")


def read_records(folder: Path) -> Iterator[Record]:
    """Type and field values of each line, as JSON gives them."""
    for path in sorted(folder.glob("*.ndjson")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield parse_record(json.loads(line))


def parse_record(line: dict[str, object]) -> Record:
    """One line as a type and its field values; the ends of an edge become fields."""
    values = line["data"]
    if not isinstance(values, dict):
        raise TypeError(f"data must be an object: {line}")
    if "edge" in line:
        return TYPES[str(line["edge"])], {
            "source": line["from"],
            "target": line["to"],
            **values,
        }
    return TYPES[str(line["type"])], values


def build_instances(records: Iterator[Record]) -> list[Node]:
    """Instances with their references resolved, each after those it refers to.

    The engine takes any order. Building needs this one, since a reference is set to the
    instance it means.
    """
    nodes: dict[str, Record] = {}
    edges: list[Record] = []
    for cls, values in records:
        if cls not in KEYS:
            edges.append((cls, values))
            continue
        key = str(values[KEYS[cls]])
        if key in nodes:
            raise ValueError(f"{key} is the key of two nodes in {DATA}")
        nodes[key] = cls, values
    order = TopologicalSorter({key: _mentioned(values) for key, (_, values) in nodes.items()})
    built: dict[str, Node] = {}
    for key in order.static_order():
        if key not in nodes:
            raise ValueError(f"{key} is referred to, but no line in {DATA} has this key")
        built[key] = _build(nodes[key], built)
    return [*built.values(), *(_build(edge, built) for edge in edges)]


def _mentioned(values: Mapping[str, object]) -> set[str]:
    """Keys of the nodes that a node refers to."""
    found: set[str] = set()
    for name in REFERENCES & values.keys():
        value = values[name]
        found.update(map(str, value) if isinstance(value, list) else [str(value)])
    return found


def _build(record: Record, built: Mapping[str, Node]) -> Node:
    cls, values = record
    return cls(**{name: _read(name, value, built) for name, value in values.items()})


def _read(name: str, value: object, built: Mapping[str, Node]) -> object:
    if name in REFERENCES:
        if isinstance(value, list):
            return [built[str(key)] for key in value]
        return built[str(value)]
    if name in READERS:
        return READERS[name](str(value))
    return value


def main() -> None:
    """Load the data into the project that this file is in."""
    with App.open(Path(__file__).parent) as project:
        commit = load(project.context(graph="main", actor="seed"))
    print(f"loaded as {commit.id}" if commit else "nothing to load")


if __name__ == "__main__":
    main()
