"""A plain model of types and nodes: what steps do to them, and when they are refused."""

from __future__ import annotations

import random
import re
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

Step = dict[str, Any]
KINDS = {"str": "text", "int": "number", "list[str]": "texts"}


class Refused(Exception):  # noqa: N818 - a verdict, not a failure
    """The data does not allow a step."""


@dataclass
class Field:
    """A field: its kind, whether it is required, and what it refers to."""

    kind: str
    required: bool = False
    target: str = ""


@dataclass
class Model:
    """Types with their own fields, and nodes by (type, id)."""

    fields: dict[str, dict[str, Field]] = field(default_factory=dict)
    extends: dict[str, str | None] = field(default_factory=dict)
    nodes: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    links: set[tuple[tuple[str, str], tuple[str, str]]] = field(default_factory=set)
    count: int = 0

    def lineage(self, name: str) -> list[str]:
        """A type and its ancestors."""
        parent = self.extends[name]
        return [name, *(self.lineage(parent) if parent else [])]

    def family(self, name: str) -> list[str]:
        """A type and its descendants."""
        return [each for each in self.fields if name in self.lineage(each)]

    def whole(self, name: str) -> dict[str, Field]:
        """All fields of a type."""
        found: dict[str, Field] = {}
        for each in reversed(self.lineage(name)):
            found |= self.fields[each]
        return found

    def of(self, name: str) -> list[tuple[tuple[str, str], dict[str, Any]]]:
        """The nodes of a type and of its descendants."""
        family = self.family(name)
        return [(key, values) for key, values in self.nodes.items() if key[0] in family]

    # --- steps -------------------------------------------------------------------------------

    def apply(self, steps: list[Step]) -> Model:
        """The model after steps; Refused where the data does not allow them."""
        after = deepcopy(self)
        for step in steps:
            getattr(after, f"_{step['step']}")(step)
        after.check()
        return after

    def _add_field(self, step: Step) -> None:
        spec = step["field"]
        kind, _, none = spec["type"].partition(" | ")
        added = Field(kind, required=not none and not kind.startswith("list"))
        self.fields[step["type"]][spec["name"]] = added
        given = step.get("backfill", spec.get("default") if added.required else None)
        if given is not None:
            for _, values in self.of(step["type"]):
                values.setdefault(spec["name"], given)

    def _rename_field(self, step: Step) -> None:
        fields = self.fields[step["type"]]
        self.fields[step["type"]] = {
            step["to"] if name == step["field"] else name: each for name, each in fields.items()
        }
        for _, values in self.of(step["type"]):
            if step["field"] in values:
                values[step["to"]] = values.pop(step["field"])

    def _change_field(self, step: Step) -> None:
        name, spec = step["field"], step["to"]
        kind, _, none = spec["type"].partition(" | ")
        old = self.fields[step["type"]][name]
        new = Field(kind, not none and not kind.startswith("list"))
        for _, values in self.of(step["type"]):
            if name in values:
                values[name] = _convert(values[name], old.kind, kind)
            elif new.required and spec.get("default") is not None:
                values[name] = spec["default"]
        self.fields[step["type"]][name] = new

    def _drop_field(self, step: Step) -> None:
        for _, values in self.of(step["type"]):
            if step["field"] in values:
                if not step.get("hard"):
                    raise Refused
                del values[step["field"]]
        del self.fields[step["type"]][step["field"]]

    def _rename_type(self, step: Step) -> None:
        old, new = step["type"], step["to"]

        def key(found: tuple[str, str]) -> tuple[str, str]:
            return (new, found[1]) if found[0] == old else found

        self.fields = {new if name == old else name: each for name, each in self.fields.items()}
        self.extends = {
            new if name == old else name: new if parent == old else parent
            for name, parent in self.extends.items()
        }
        for fields in self.fields.values():
            for each in fields.values():
                each.target = new if each.target == old else each.target
        self.nodes = {key(each): values for each, values in self.nodes.items()}
        for values in self.nodes.values():
            if "ref" in values:
                values["ref"] = key(values["ref"])
        self.links = {(key(source), key(target)) for source, target in self.links}

    def _drop_type(self, step: Step) -> None:
        gone = [each for each in self.nodes if each[0] == step["type"]]
        if gone and not step.get("hard"):
            raise Refused
        for each in gone:
            del self.nodes[each]
        del self.fields[step["type"]], self.extends[step["type"]]

    def _add_type(self, step: Step) -> None:
        spec = step["type"]
        self.extends[spec["name"]] = spec.get("extends")
        self.fields[spec["name"]] = {
            each["name"]: Field(each["type"].partition(" | ")[0], "None" not in each["type"])
            for each in spec["fields"]
        }

    def check(self) -> None:
        """Refuse nodes without a required value, and references to what is gone."""
        for (type_name, _), values in self.nodes.items():
            for name, each in self.whole(type_name).items():
                if each.required and name not in values:
                    raise Refused
            if "ref" in values and values["ref"] not in self.nodes:
                raise Refused
        for ends in self.links:
            if any(end not in self.nodes for end in ends):
                raise Refused


def _convert(value: Any, old: str, new: str) -> Any:
    if old == new:
        return value
    items = list(value) if old == "list[str]" else [value]
    if new == "list[str]":
        return tuple(sorted({str(each) for each in items}))
    if len(items) > 1:
        raise Refused
    item = items[0]
    if new == "int":
        if not re.fullmatch("-?[0-9]+", str(item)):
            raise Refused
        return int(item)
    return str(item)


# --- random steps and data ------------------------------------------------------------------


def random_value(pick: random.Random, kind: str) -> Any:
    """Any value of a kind."""
    if kind == "int":
        return pick.randint(0, 9)
    if kind == "list[str]":
        return tuple(sorted(pick.sample(["1", "2", "x", "y"], pick.randint(1, 2))))
    return pick.choice(["1", "2", "x", "long text"])


def random_step(pick: random.Random, model: Model) -> Step | None:
    """A step that names only what there is; None where the dice chose nothing."""
    model.count += 1
    owner = pick.choice(list(model.fields))
    free = [name for name in model.fields[owner] if name not in {"code", "ref"}]
    name = pick.choice(free) if free else None
    kind = pick.choice(list(KINDS))
    many = kind.startswith("list")
    optional = not many and pick.random() < 0.6
    spelled = f"{kind} | None" if optional else kind
    spec: dict[str, Any] = {"name": f"f{model.count}", "type": spelled}
    if not many and not optional and pick.random() < 0.7:
        spec["default"] = random_value(pick, kind)
    match pick.choice(
        ["add", "add", "field", "field", "change", "change", "drop", "type", "gone", "new"]
    ):
        case "add":
            step = {"step": "add_field", "type": owner, "field": spec}
            if pick.random() < 0.3:
                step["backfill"] = random_value(pick, kind)
            return step
        case "field" if name is not None:
            return {"step": "rename_field", "type": owner, "field": name, "to": spec["name"]}
        case "change" if name is not None:
            return {
                "step": "change_field",
                "type": owner,
                "field": name,
                "to": spec | {"name": name},
            }
        case "drop" if name is not None:
            hard = pick.random() < 0.6
            return {"step": "drop_field", "type": owner, "field": name, "hard": hard}
        case "type":
            return {"step": "rename_type", "type": owner, "to": f"T{model.count}"}
        case "gone" if len(model.family(owner)) == 1 and model.extends[owner] is not None:
            return {"step": "drop_type", "type": owner, "hard": pick.random() < 0.6}
        case "new" if len(model.fields) < 5:
            given = {"name": f"T{model.count}", "fields": [spec], "extends": owner}
            return {"step": "add_type", "type": given}
    return None
