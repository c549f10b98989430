"""Random types, data and steps against a plain model: the same state, and refused alike."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.campaigns import sized
from tests.engine.schema.model import Field, Model, Refused, random_step, random_value
from tests.engine.schema.world import World, add_type, states_of, steps_of

from trails.engine.schema.diff import reverse
from trails.engine.visibility.refs import snapshot_checkout
from trails.errors import ValidationError

START = (
    add_type(
        "Base",
        {"name": "code", "key": True},
        "name",
        {"name": "num", "type": "int | None"},
        {"name": "tags", "type": "list[str]"},
        {"name": "ref", "type": "Ref[Base] | None"},
    ),
    add_type("Sub", "extra", extends="Base"),
    add_type("Link", source="Base", target="Base"),
)


def start_model() -> Model:
    """The types of ``START``."""
    return Model(
        {
            "Base": {
                "code": Field("str", required=True),
                "name": Field("str"),
                "num": Field("int"),
                "tags": Field("list[str]"),
                "ref": Field("ref", target="Base"),
            },
            "Sub": {"extra": Field("str")},
        },
        {"Base": None, "Sub": "Base"},
    )


def handle(key: tuple[str, str]) -> str:
    """The handle of a node of the model."""
    return "/".join(key)


def shown(states: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Nodes as they are compared: links by their ends, because ids follow from those."""
    return {
        f"Link {each['source']} {each['target']}" if "source" in each else name: each
        for name, each in states.items()
    }


def expected(model: Model) -> dict[str, dict[str, Any]]:
    """The nodes of the model in the same form."""
    found: dict[str, dict[str, Any]] = {}
    for key, values in model.nodes.items():
        found[handle(key)] = {
            name: handle(value) if name == "ref" else value for name, value in values.items()
        }
    for source, target in model.links:
        ends = {"source": handle(source), "target": handle(target)}
        found[f"Link {ends['source']} {ends['target']}"] = ends
    return found


def write_some(pick: random.Random, world: World, model: Model) -> None:
    """Create and change some nodes in both."""
    for _ in range(pick.randint(1, 4)):
        type_name = pick.choice(list(model.fields))
        code = pick.choice("abcdef")
        if any(key[1] == code and key[0] != type_name for key in model.nodes):
            continue  # a key is unique among a type and those that extend it
        values: dict[str, Any] = {"code": code}
        for name, each in model.whole(type_name).items():
            if name in {"code", "ref"}:
                continue
            if each.required or pick.random() < 0.6:
                values[name] = random_value(pick, each.kind)
        if model.nodes and pick.random() < 0.5:
            values["ref"] = pick.choice(list(model.nodes))
        given = {
            name: handle(value)
            if name == "ref"
            else list(value)
            if isinstance(value, tuple)
            else value
            for name, value in values.items()
        }
        world.put(type_name, **given)
        model.nodes[type_name, code] = values
    if len(model.nodes) > 1 and pick.random() < 0.6:
        source, target = pick.sample(list(model.nodes), 2)
        world.put("Link", source=handle(source), target=handle(target))
        model.links.add((source, target))


@pytest.mark.req("T21e")
@pytest.mark.parametrize("seed", range(8))
def test_steps_do_what_the_model_does(seed: int, tmp_path: Path) -> None:
    """State, refusals, the snapshot before, a branch from before, and the way back."""
    follow(random.Random(seed), tmp_path / "graph")


@pytest.mark.long(cases=sized(400, nightly=40))
def test_many_steps_do_what_the_model_does(tmp_path: Path) -> None:
    """The same for many graphs."""
    seed = os.environ["TRAILS_SEED"]
    for case in range(sized(400, nightly=40)):
        folder = tmp_path / str(case)
        follow(random.Random(f"{seed} {case}"), folder)
        shutil.rmtree(folder)


def follow(pick: random.Random, folder: Path) -> None:
    """Take random steps with a graph and the model."""
    world, model = World(folder, *START), start_model()
    world.branch("old")
    kept = shown(world.state("old"))
    for _ in range(12):
        write_some(pick, world, model)
        steps = []
        trial = model
        for _ in range(pick.randint(1, 3)):
            step = random_step(pick, trial)
            if step is None:
                continue
            steps.append(step)
            try:
                trial = trial.apply([step])
            except Refused:
                break
        if not steps:
            continue
        before, head, schema = shown(world.state()), world.head(), world.schema()
        try:
            after = model.apply(steps)
        except Refused:
            assert world.plan(*steps).offending > 0, steps
            with pytest.raises(ValidationError):
                world.apply(*steps, allow_data_loss=True)
            assert (world.head(), world.schema()) == (head, schema)
            continue
        done = world.apply(*steps, allow_data_loss=True)
        after.count = trial.count
        assert shown(world.state()) == expected(after), steps
        snapshot = snapshot_checkout(world.graph, world.graph.ancestry.commit(head))
        assert shown(states_of(snapshot)) == before
        if pick.random() < 0.3:
            world.apply(*reverse(steps_of(*steps), schema, done.commit), allow_data_loss=True)
            assert shown(world.state()) == before, steps
        else:
            model = after
    assert shown(world.state("old")) == kept
    world.check()
    world.close()
