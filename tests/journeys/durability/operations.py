"""What a worker does to a graph, described so that a test can replay it on a dictionary.

An operation is plain JSON: items to put, ids to delete, perhaps a bulk of items that
follow from two numbers, and how to go about it. One operation is one commit.
"""

from __future__ import annotations

from pathlib import Path

APP = '''
from trails import Node, node_type, predicate


@node_type
class Item(Node):
    """Something to be kept."""

    code: str = predicate(key=True)
    value: int = predicate()
    text: str | None = predicate()
    tags: list[str] = predicate()
'''
SEGMENT = 300
"""Items whose statements go to a segment file, but are applied in one update."""
BULK = 1_500
"""Items with more statements than the bulk load's threshold, new or updated."""


def make_project(folder: Path) -> Path:
    """A project folder with one node type."""
    folder.mkdir(parents=True)
    (folder / "trails.toml").write_text('[project]\nname = "durable"\n')
    (folder / "app.py").write_text(APP)
    return folder


def graph_folder(project: Path) -> Path:
    """Where a project's only graph has its files."""
    return project / ".trails" / "graphs" / "main"


def bulk_items(count, stamp):
    """The items of a bulk: the same ids every time, other values for another stamp."""
    for number in range(count):
        text = f"text {stamp} of {number}, long enough to be worth compressing"
        yield f"bulk-{number}", [stamp, text, [f"tag {stamp} {each}" for each in range(10)]]


def next_operation(rng, known, number):
    """A random operation on a graph that has these ids."""
    plain = [each for each in known if not each.startswith("bulk-")]
    how = rng.choices(
        ["save", "update", "delete", "transaction", "segment", "bulk"], [40, 25, 10, 20, 2, 0.5]
    )[0]
    if how == "segment":
        return bulk(SEGMENT, number)
    if how == "bulk":
        return bulk(BULK, number)
    if not plain or how == "save":
        return {"how": "save", "puts": {f"item-{number}": _state(rng)}, "deletes": []}
    if how == "update":
        return {"how": "update", "puts": {rng.choice(plain): _state(rng)}, "deletes": []}
    if how == "delete":
        return {"how": "delete", "puts": {}, "deletes": [rng.choice(plain)]}
    chosen = rng.sample(plain, min(len(plain), rng.randint(1, 6)))
    cut = rng.randint(0, len(chosen))
    puts = {each: _state(rng) for each in chosen[cut:]}
    puts |= {f"item-{number}-{each}": _state(rng) for each in range(rng.randint(1, 5))}
    return {"how": "transaction", "puts": puts, "deletes": chosen[:cut]}


def bulk(count, stamp):
    """The operation that saves a bulk."""
    return {"how": "bulk", "puts": {}, "deletes": [], "bulk": [count, stamp]}


def _state(rng):
    text = rng.choice([None, "é" * rng.randint(0, 40), 'a "quoted" \\ line\nand another'])
    tags = sorted(set(rng.choices(["red", "green", "blue"], k=rng.randint(0, 3))))
    return [rng.randint(-(2**40), 2**40), text, tags]


def fold(model, operation):
    """The items after an operation."""
    after = {each: state for each, state in model.items() if each not in operation["deletes"]}
    after |= operation["puts"]
    if "bulk" in operation:
        after |= dict(bulk_items(*operation["bulk"]))
    return after


def perform(ctx, item_type, operation):
    """Do an operation on a graph: one commit, which is returned."""

    def make(code, state):
        value, text, tags = state
        return item_type(code=code, value=value, text=text, tags=tags)

    how = operation["how"]
    if how == "bulk":
        items = (make(code, state) for code, state in bulk_items(*operation["bulk"]))
        return ctx.kg.save_all(items, upsert=True)
    if how == "save":
        ((code, state),) = operation["puts"].items()
        return ctx.kg.save(make(code, state))
    if how == "update":
        ((code, state),) = operation["puts"].items()
        found = item_type.get(ctx, code)
        found.value, found.text, found.tags = state
        return ctx.kg.save(found)
    if how == "delete":
        (code,) = operation["deletes"]
        return ctx.kg.delete(item_type.get(ctx, code))
    with ctx.kg.transaction(message="several at once") as outcome:
        for code in operation["deletes"]:
            item_type.get(ctx, code).delete(ctx)
        for code, state in operation["puts"].items():
            make(code, state).save(ctx, upsert=True)
    return outcome.commit
