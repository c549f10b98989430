"""Load the Northline data into an empty graph.

The files in ``data/`` hold one JSON object a line: ``{"type", "data"}`` for a node,
``{"edge", "from", "to", "data"}`` for an edge. References are written as the key of their
target; keys are unique over all types here, so a key alone says which node is meant.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import app as northline

from trails import App, Commit, Context, Node

DATA = Path(__file__).parent / "data"
TYPES: Mapping[str, type[Node]] = {
    name: cls
    for name, cls in vars(northline).items()
    if isinstance(cls, type) and issubclass(cls, Node) and "__trails__" in vars(cls)
}

Record = tuple[type[Node], dict[str, object]]


def load(ctx: Context) -> Commit | None:
    """Save all nodes and edges of ``data/`` in one commit and return it.

    The graph must not hold any of them yet.
    """
    records = list(read_records(DATA))
    handles = {
        str(values[cls.__trails__.key.name]): f"{cls.__name__}/{values[cls.__trails__.key.name]}"
        for cls, values in records
        if cls.__trails__.key is not None
    }
    instances = (build(cls, values, handles) for cls, values in records)
    return ctx.kg.save_all(instances, message="Load Northline")


def read_records(folder: Path) -> Iterator[Record]:
    """Type and field values of each line; the ends of an edge become fields."""
    for path in sorted(folder.glob("*.ndjson")):
        for text in path.read_text(encoding="utf-8").splitlines():
            line = json.loads(text)
            if "edge" in line:
                ends = {"source": line["from"], "target": line["to"]}
                yield TYPES[line["edge"]], {**ends, **line["data"]}
            else:
                yield TYPES[line["type"]], line["data"]


def build(cls: type[Node], values: Mapping[str, object], handles: Mapping[str, str]) -> Node:
    """An instance whose references are handles; the engine checks what they point to."""
    fields = cls.__trails__.by_name
    return cls(
        **{
            name: _resolve(value, handles) if fields[name].target else value
            for name, value in values.items()
        }
    )


def _resolve(value: object, handles: Mapping[str, str]) -> object:
    if isinstance(value, list):
        return [handles[key] for key in value]
    return handles[str(value)]


def main() -> None:
    """Load the data into the project that this file is in."""
    with App.open(Path(__file__).parent) as project:
        commit = load(project.context(actor="seed"))
    print(f"loaded as {commit.id}" if commit else "nothing to load")


if __name__ == "__main__":
    main()
