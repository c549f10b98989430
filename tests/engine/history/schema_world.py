"""A real graph and the oracle's, whose types change on every branch, driven side by side."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from hashlib import sha256
from io import BytesIO
from pathlib import Path
from typing import ClassVar

from tests.engine.history.oracle import (
    Clash,
    Field,
    Fields,
    History,
    Model,
    Shape,
    State,
    Type,
    Value,
)
from tests.engine.history.world import clash_id, each_handle

from trails import App
from trails.engine.graph.graph import Graph
from trails.engine.history.branches import create_branch
from trails.engine.history.merge import merge
from trails.engine.schema.evolution import apply_schema
from trails.engine.schema.rule_check import broken_rules
from trails.engine.upkeep.verify import content_digest, verify
from trails.engine.write.edits import apply_states
from trails.engine.write.write import Write
from trails.errors import FieldError, SchemaMismatchError, ValidationError
from trails.model.history import Conflict, MergeRequest, MergeResult, Resolution
from trails.model.nodes import NodeState
from trails.model.types import (
    EdgeEnds,
    PredicateDescriptor,
    Schema,
    ShapeDescriptor,
    TypeDescriptor,
    ValueType,
)
from trails.model.writes import LoadRequest

NODES = {"A": ["A/a0", "A/a1", "A/a2"], "B": ["B/b0", "B/b1"], "C": ["C/c0", "C/c1"]}
TEXTS: list[Value] = ["a", "b", "xy", "zzz"]
NUMBERS: list[Value] = [0, 1, 2, 3]
KINDS = {"String": str, "Int": int}


@dataclass(frozen=True)
class Own:
    """A type as it is declared: its own fields alone."""

    fields: Mapping[str, Field]
    extends: str | None = None
    groups: frozenset[tuple[str, ...]] = frozenset()
    ends: Mapping[str, tuple[str, int, int | None]] | None = None


Declared = dict[str, Own]
CODE = Field(required=True, kind=str)
END = Field(required=True, target="A")
START: Declared = {
    "A": Own(
        {
            "code": CODE,
            "name": Field(kind=str),
            "num": Field(kind=int),
            "left": Field(kind=int),
            "right": Field(kind=int),
            "tags": Field(kind=str, many=True),
            "ref": Field(target="A"),
            "peers": Field(target="A", many=True),
        }
    ),
    "B": Own({"volts": Field(kind=int)}, extends="A"),
    "C": Own({"code": CODE, "title": Field(kind=str)}),
    "L": Own(
        {"source": END, "target": END, "weight": Field(kind=int)},
        ends={"source": ("A", 0, None), "target": ("A", 0, None)},
    ),
}


def model_of(declared: Declared, shapes: Mapping[str, Shape] | None = None) -> Model:
    """Types with inherited fields and groups, and what of the shapes they can have."""
    types: dict[str, Type] = {}
    for name in sorted(declared, key=lambda each: (declared[each].extends is not None, each)):
        own = declared[name]
        up = types[own.extends] if own.extends is not None else Type({})
        fields = {each: replace(spec, owner=name) for each, spec in own.fields.items()}
        types[name] = Type({**up.fields, **fields}, own.extends, up.groups | own.groups, own.ends)
    return Model(types, fitting(shapes or {}, types))


def fitting(shapes: Mapping[str, Shape], types: Mapping[str, Type]) -> dict[str, Shape]:
    """Shapes without rules for fields that there are not, or that hold something else."""
    found = {}
    for name, shape in shapes.items():
        declared = types[shape.target].fields if shape.target in types else {}
        fields = {
            each: spec
            for each, spec in shape.fields.items()
            if each in declared and _sort(declared[each]) == _sort(spec)
        }
        if fields:
            found[name] = replace(shape, fields=fields)
    return found


def _sort(spec: Field) -> object:
    return spec.kind, spec.many, spec.target is None


# --- the oracle's types as the engine writes them, and back ------------------------------


def schema_of(model: Model) -> Schema:
    """The engine's types."""
    shapes = (
        ShapeDescriptor(
            name,
            tuple(_field_of(each, spec) for each, spec in shape.fields.items()),
            target=shape.target,
        )
        for name, shape in model.shapes.items()
    )
    return Schema.of(_types_of(model), shapes)


def _types_of(model: Model) -> Iterator[TypeDescriptor]:
    return (
        TypeDescriptor(
            name,
            tuple(_field_of(each, spec) for each, spec in spec_of.fields.items()),
            iri=name,
            extends=spec_of.extends,
            unique=tuple(sorted(spec_of.groups)),
            edge=None
            if spec_of.ends is None
            else EdgeEnds(
                spec_of.ends["source"][0],
                spec_of.ends["target"][0],
                spec_of.ends["source"][1:],
                spec_of.ends["target"][1:],
            ),
        )
        for name, spec_of in model.types.items()
    )


def _field_of(name: str, spec: Field) -> PredicateDescriptor:
    if spec.target is not None:
        kind = ValueType("Ref", spec.target)
    else:
        kind = ValueType("String" if spec.kind is str else "Int")
    return PredicateDescriptor(
        name,
        ValueType("List", item=kind) if spec.many else kind,
        name,
        min_count=max(spec.low, int(spec.required)),
        max_count=spec.high if spec.many else 1,
        min_length=spec.shortest,
        max_length=spec.longest,
        pattern=spec.pattern,
        one_of=spec.one_of,
        default=spec.default,
        min_value=spec.least,
        max_value=spec.most,
        key=name == "code",
        unique=spec.unique,
        declared_in=spec.owner,
    )


def read_model(schema: Schema) -> Model:
    """The oracle's types."""
    return Model(
        {
            each.name: Type(
                {field.name: _spec_of(field) for field in each.fields},
                each.extends,
                frozenset(each.unique),
                None
                if each.edge is None
                else {
                    "source": (each.edge.source, *each.edge.per_source),
                    "target": (each.edge.target, *each.edge.per_target),
                },
            )
            for each in schema.types
        },
        {
            each.name: Shape(each.target, {field.name: _spec_of(field) for field in each.fields})
            for each in schema.shapes
            if each.target is not None
        },
    )


def _spec_of(field: PredicateDescriptor) -> Field:
    return Field(
        required=field.min_count > 0,
        many=field.many,
        unique=field.unique,
        target=field.target,
        low=field.min_count if field.min_count > 1 else 0,
        high=field.max_count if field.many else None,
        kind=object if field.target is not None else KINDS[field.type.scalar.kind],
        least=field.min_value,  # type: ignore[arg-type]
        most=field.max_value,  # type: ignore[arg-type]
        shortest=field.min_length,
        longest=field.max_length,
        pattern=field.pattern,
        one_of=field.one_of,
        default=field.default,
        owner=field.declared_in,
    )


# --- changes of types ---------------------------------------------------------------------


def own_of(model: Model) -> Declared:
    """A model without what is inherited."""
    found: Declared = {}
    for name, each in model.types.items():
        up = model.types[each.extends] if each.extends is not None else Type({})
        found[name] = Own(
            {key: spec for key, spec in each.fields.items() if spec.owner == name},
            each.extends,
            each.groups - up.groups,
            each.ends,
        )
    return found


def change_types(rng: random.Random, model: Model) -> tuple[str, Model]:
    """What changed, and the types with one change of some rule."""
    declared, shapes = own_of(model), model.shapes
    name, what = rng.choice(sorted(declared)), rng.choice(CHANGES)
    if what == "shape":
        shapes = _change_shapes(rng, model)
    elif what in _TYPE_CHANGES:
        _TYPE_CHANGES[what](rng, declared, name)
    else:
        fields = dict(declared[name].fields)
        free = sorted(each for each in fields if each not in {"code", "source", "target"})
        if free:
            field = rng.choice(free)
            changed = [
                each if each is None or each.fits(each.default) else replace(each, default=None)
                for each in _FIELD_CHANGES[what](rng, fields.pop(field), sorted(declared))
            ]
            names = (field, f"{field}_")
            fields |= {key: each for key, each in zip(names, changed, strict=False) if each}
            groups = {each for each in declared[name].groups if fields.keys() >= {*each}}
            declared[name] = replace(declared[name], fields=fields, groups=frozenset(groups))
    return (what, model_of(declared, shapes)) if _is_whole(declared) else ("nothing", model)


def _change_shapes(rng: random.Random, model: Model) -> dict[str, Shape]:
    """The shapes with one more rule, or without one of them."""
    shapes = dict(model.shapes)
    if shapes and rng.random() < 0.3:
        del shapes[rng.choice(sorted(shapes))]
        return shapes
    target = rng.choice(sorted(set(model.types) - {"L"}))
    declared, name = model.types[target].fields, f"S{target}"
    field = rng.choice(sorted(set(declared) - {"code"}) or ["code"])
    was = declared[field]
    plain = Field(kind=was.kind, many=was.many, target=was.target)
    rule = rng.choice([_range, _pattern, _one_of, _length, _count, _required])
    (spec,) = rule(rng, plain, sorted(model.types))
    if spec is not None and spec != plain:
        spec = replace(spec, default=None)
        before = shapes[name].fields if name in shapes else {}
        shapes[name] = Shape(target, {**before, field: spec})
    return shapes


def _required(rng: random.Random, spec: Field, _: list[str]) -> list[Field | None]:
    default: Value = None
    if not spec.many and spec.target is None:
        default = rng.choice([None, *(NUMBERS if spec.kind is int else TEXTS)])
    return [replace(spec, required=not spec.required, low=0, default=default)]


def _length(rng: random.Random, spec: Field, _: list[str]) -> list[Field | None]:
    if spec.kind is not str:
        return [spec]
    return [replace(spec, shortest=rng.choice([None, 1, 2]), longest=rng.choice([None, 2]))]


def _range(rng: random.Random, spec: Field, _: list[str]) -> list[Field | None]:
    if spec.kind is not int:
        return [spec]
    return [
        replace(spec, most=rng.choice([None, 2, 1]), least=rng.choice([None, 0, 1]), one_of=None)
    ]


def _pattern(rng: random.Random, spec: Field, _: list[str]) -> list[Field | None]:
    if spec.kind is not str:
        return [spec]
    return [replace(spec, pattern=rng.choice([None, "[a-m]", "[a-c]+"]))]


def _one_of(rng: random.Random, spec: Field, _: list[str]) -> list[Field | None]:
    if spec.target is not None or spec.many:
        return [spec]
    pool = NUMBERS if spec.kind is int else TEXTS
    chosen = rng.choice([None, tuple(pool[:2]), tuple(pool[1:])])
    return [replace(spec, one_of=chosen, least=None, most=None)]


def _kind(rng: random.Random, spec: Field, _: list[str]) -> list[Field | None]:
    del rng
    if spec.target is not None or spec.many:
        return [spec]
    return [Field(kind=str if spec.kind is int else int)]


def _unique(rng: random.Random, spec: Field, _: list[str]) -> list[Field | None]:
    del rng
    return [spec if spec.many else replace(spec, unique=not spec.unique)]


def _target(rng: random.Random, spec: Field, types: list[str]) -> list[Field | None]:
    if spec.target is None:
        return [spec]
    return [replace(spec, target=rng.choice([each for each in types if each != "L"]))]


def _count(rng: random.Random, spec: Field, _: list[str]) -> list[Field | None]:
    if not spec.many:
        return [spec]
    low = rng.choice([0, 0, 2])
    high = rng.choice([None, 2] if low else [None, 1, 2])
    return [replace(spec, low=low, high=high, required=spec.required or low > 0)]


_FIELD_CHANGES: dict[str, Callable[[random.Random, Field, list[str]], list[Field | None]]] = {
    "required": _required,
    "drop": lambda *_: [None],
    "rename": lambda _, spec, __: [None, spec],
    "kind": _kind,
    "range": _range,
    "length": _length,
    "pattern": _pattern,
    "one_of": _one_of,
    "unique": _unique,
    "target": _target,
    "count": _count,
}
"""Change → the field as it is then, and what comes to be called otherwise."""


def _group(rng: random.Random, declared: Declared, name: str) -> None:
    del rng, name
    own, group = declared["A"], frozenset({("left", "right")})
    if {"left", "right"} <= own.fields.keys():
        declared["A"] = replace(own, groups=frozenset() if own.groups else group)


def _ends(rng: random.Random, declared: Declared, name: str) -> None:
    del name
    own = declared.get("L")
    if own is not None and own.ends is not None:
        side = rng.choice(["source", "target"])
        limits = rng.choice([(0, None), (0, 1), (1, None), (0, 2)])
        declared["L"] = replace(own, ends={**own.ends, side: (own.ends[side][0], *limits)})


def _end_type(rng: random.Random, declared: Declared, name: str) -> None:
    del name
    own = declared.get("L")
    if own is not None and own.ends is not None:
        side, end = rng.choice(["source", "target"]), rng.choice(sorted(declared.keys() - {"L"}))
        declared["L"] = replace(
            own,
            fields={**own.fields, side: replace(own.fields[side], target=end)},
            ends={**own.ends, side: (end, *own.ends[side][1:])},
        )


def _extend(rng: random.Random, declared: Declared, name: str) -> None:
    del rng, name
    own = declared["B"]
    if own.extends is None:
        fields = {key: each for key, each in own.fields.items() if key != "code"}
        declared["B"] = replace(own, fields=fields, extends="A")
    else:
        declared["B"] = replace(own, fields={"code": CODE, **own.fields}, extends=None)


def _add(rng: random.Random, declared: Declared, name: str) -> None:
    own = declared[name]
    added = {rng.choice(["new", "newer"]): Field(kind=rng.choice([int, str]))}
    declared[name] = replace(own, fields={**own.fields, **added})


def _drop_type(rng: random.Random, declared: Declared, name: str) -> None:
    del name
    declared.pop(rng.choice(["C", "L"]), None)


def _add_type(rng: random.Random, declared: Declared, name: str) -> None:
    del rng, name
    for each in sorted(START.keys() - declared.keys())[:1]:
        declared[each] = START[each]


_TYPE_CHANGES: dict[str, Callable[[random.Random, Declared, str], None]] = {
    "group": _group,
    "ends": _ends,
    "end type": _end_type,
    "extend": _extend,
    "add": _add,
    "drop type": _drop_type,
    "add type": _add_type,
}
RULES = ("unique", "group", "target", "ends", "count", "length", "shape", "end type")
CHANGES = (*_FIELD_CHANGES, *_TYPE_CHANGES, *RULES, *RULES)
"""What may change; rules that are about several nodes, or about few fields, more often."""


def _is_whole(declared: Declared) -> bool:
    """Whether all types that are named are there, and no field hides a parent's."""
    for own in declared.values():
        if any(each.target not in {None, *declared} for each in own.fields.values()):
            return False
        if own.extends is not None and own.fields.keys() & declared[own.extends].fields.keys():
            return False
    return True


# --- merging types ------------------------------------------------------------------------


def merge_models(base: Model, ours: Model, theirs: Model) -> tuple[Model, set[str]]:
    """The merged types with ours where both changed, and the names of those."""
    if _form(theirs) in (_form(ours), _form(base)):
        return ours, set()
    if _form(ours) == _form(base):
        return theirs, set()
    shapes, torn = _merge_shapes(base, ours, theirs)
    chosen: dict[str, Type] = {}
    for name in sorted({*ours.types, *theirs.types}):
        was, mine, other = (each.types.get(name) for each in (base, ours, theirs))
        forms = [None if each is None else _type_form(each) for each in (was, mine, other)]
        if forms[1] != forms[2] and forms[0] not in forms[1:]:
            torn.add(name)
        found = other if forms[1] == forms[0] else mine
        if found is not None:
            chosen[name] = found
    while missing := {
        target
        for each in chosen.values()
        for target in _named(each)
        if target is not None and target not in chosen
    }:
        for name in missing:
            chosen[name] = ours.types.get(name) or theirs.types[name]
    for name, each in chosen.items():
        if each.extends is not None:
            up = chosen[each.extends]
            own = {key: spec for key, spec in each.fields.items() if spec.owner == name}
            fields = {**up.fields, **own}
            groups = frozenset(group for group in up.groups if fields.keys() >= {*group})
            chosen[name] = replace(each, fields=fields, groups=groups)
    return Model(chosen, fitting(shapes, chosen)), torn


def _merge_shapes(base: Model, ours: Model, theirs: Model) -> tuple[dict[str, Shape], set[str]]:
    chosen: dict[str, Shape] = {}
    torn: set[str] = set()
    for name in sorted({*ours.shapes, *theirs.shapes}):
        forms = [_shape_form(each.shapes.get(name)) for each in (base, ours, theirs)]
        if forms[1] != forms[2] and forms[0] not in forms[1:]:
            torn.add(name)
        found = (theirs if forms[1] == forms[0] else ours).shapes.get(name)
        if found is not None:
            chosen[name] = found
    return chosen, torn


def _shape_form(each: Shape | None) -> object:
    return None if each is None else (each.target, list(each.fields.items()))


def _type_form(each: Type) -> object:
    """A type for comparing: the order of its fields counts."""
    return list(each.fields.items()), each.extends, each.groups, each.ends


def _form(model: Model) -> object:
    types = {name: _type_form(each) for name, each in model.types.items()}
    return types, {name: _shape_form(each) for name, each in model.shapes.items()}


def _named(each: Type) -> set[str | None]:
    ends = {end for end, _, _ in (each.ends or {}).values()}
    return {each.extends, *ends, *(spec.target for spec in each.fields.values())}


def reads_differently(one: Model, other: Model, type_name: str, field: str) -> bool:
    """Whether values of a field (or nodes of a type) would not be read as they were written."""
    after = other.types.get(type_name)
    if type_name not in one.types:
        return False
    if after is None or (not field and after.extends != one.types[type_name].extends):
        return True
    before = one.types[type_name].fields.get(field)
    if not field or before is None:
        return False
    now = after.fields.get(field)
    sort = (before.kind, before.many, before.target is None)
    return now is None or sort != (now.kind, now.many, now.target is None)


def edge_handle(source: str, target: str) -> str:
    """The handle of the edge between two nodes."""
    return "L/" + sha256(f"{source}\n{target}".encode()).hexdigest()[:32]


class SchemaWorld:
    """The graph, the oracle, and what links their commits."""

    cases = 0
    seen: ClassVar[Counter[str]] = Counter()

    def __init__(self, seed: int, folder: Path | None = None) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.app = App(name="types", folder=folder)
        start = model_of(START)
        for _ in range(self.rng.randrange(6)):
            _, start = change_types(self.rng, start)
        self.history = History(Model({}))
        self.ids: dict[int, str] = {0: ""}
        apply_schema(self.graph, self.graph.main, schema_of(start))
        self._note("main", {}, model=start)

    def close(self) -> None:
        """Let go of everything."""
        self.app.close()
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def graph(self) -> Graph:
        """The real graph."""
        return self.app.graph()

    def branch(self) -> str:
        """Any branch."""
        return self.rng.choice(sorted(self.history.branches))

    def model(self, branch: str) -> Model:
        """The types of a branch."""
        return self.history.versions[self.history.branches[branch]].model

    def state(self, branch: str) -> State:
        """The nodes of a branch."""
        return self.history.state(self.history.branches[branch])

    def _note(self, branch: str, state: State, *others: int, model: Model | None = None) -> None:
        number = self.history.commit(branch, state, *others, model=model)
        self.ids[number] = self.graph.log_head(branch).commit

    # --- steps -------------------------------------------------------------------------

    def step(self) -> None:
        """Something random."""
        roll = self.rng.random()
        if roll < 0.45:
            self.write(self.branch())
        elif roll < 0.65:
            self.change_types(self.branch())
        elif roll < 0.72 and len(self.history.branches) < 4:
            self.fork()
        else:
            one, two = self.branch(), self.branch()
            self.merge(one, two)
            if self.rng.random() < 0.3:
                self.merge(two, one)

    def fork(self) -> None:
        """Make a branch."""
        source, name = self.branch(), f"b{len(self.history.branches)}"
        create_branch(self.graph, name, source=source, actor="a")
        self.history.branches[name] = self.history.branches[source]

    def write(self, branch: str) -> None:
        """One commit of a few random nodes."""
        model, state = self.model(branch), self.history.copy(branch)
        changes: dict[str, Fields | None] = {}
        for _ in range(self.rng.randrange(1, 4)):
            handle, fields = self._random_node(model, state)
            if fields is None:
                state.pop(handle, None)
            else:
                state[handle] = fields
            changes[handle] = fields
        refused = bool(model.judge(state))
        write = Write(self.graph, self.graph.checkout(branch), actor="a")
        write.begin()
        errors: list[FieldError] = []
        try:
            states = {each: to_state(each, fields) for each, fields in changes.items()}
            apply_states(write.nodes, states, errors, validate=True, alone=False)
            commit = write.finish()
        except ValidationError:
            write.abandon()
            assert refused, changes
            return
        except BaseException:
            write.abandon()
            raise
        assert not refused, (changes, model.judge(state))
        if commit is not None:
            self._note(branch, state)

    def _random_node(self, model: Model, state: State) -> tuple[str, Fields | None]:
        rng = self.rng
        if state and rng.random() < 0.15:
            return rng.choice(sorted(state)), None
        name = rng.choice(sorted(model.types))
        declared = model.types[name].fields
        if name == "L":
            ends = [
                rng.choice(self._pool(str(declared[side].target), state))
                for side in ("source", "target")
            ]
            handle = edge_handle(*map(str, ends))
            fields: Fields = {"source": ends[0], "target": ends[1]}
        else:
            handle = rng.choice(NODES[name])
            fields = {"code": handle.partition("/")[2]}
        if rng.random() < 0.5:
            fields = {**state.get(handle, {}), **fields}
        for field, spec in declared.items():
            if field in {"code", "source", "target"}:
                continue
            specs = [
                spec,
                *(
                    each.fields[field]
                    for each in model.shapes.values()
                    if model.is_a(handle, each.target) and field in each.fields
                ),
            ]
            if any(each.required for each in specs) or rng.random() < 0.35:
                fields[field] = self._random_value(specs, state)
                if (spec.unique or field in {"left", "right"}) and rng.random() < 0.4:
                    fields[field] = self._value_elsewhere(field)
        return handle, {key: value for key, value in fields.items() if value is not None}

    def _value_elsewhere(self, field: str) -> Value:
        """A value that some node has on some branch, so that both sides may give it."""
        values = [
            fields[field]
            for branch in sorted(self.history.branches)
            for _, fields in sorted(self.state(branch).items(), key=lambda each: each[0])
            if field in fields
        ]
        return self.rng.choice(values) if values else None

    def _pool(self, target: str, state: State) -> list[Value]:
        """Nodes to refer to: mostly such as there are."""
        named = [*NODES.get(target, []), *(NODES["B"] if target == "A" else [])]
        there = [each for each in named if each in state]
        return [*(there if there and self.rng.random() < 0.8 else named)]

    def _random_value(self, specs: list[Field], state: State) -> Value:
        """A value for a field, mostly one that keeps its rules."""
        spec = specs[0]
        pool: list[Value] = NUMBERS if spec.kind is int else TEXTS
        if spec.target is not None:
            pool = self._pool(spec.target, state)
        value: Value = None
        for _ in range(self.rng.choice([1, 8, 8, 8])):
            if spec.many:
                value = frozenset(self.rng.sample(pool, min(len(pool), self.rng.randrange(3))))
            else:
                value = None if self.rng.random() < 0.1 else self.rng.choice(pool)
            value = value or (None if spec.many else value)
            if all(each.holds(value) for each in specs):
                break
        return value

    def change_types(self, branch: str) -> None:
        """Change one rule of a branch: taken if its data keeps it."""
        what, model = change_types(self.rng, self.model(branch))
        old = self.model(branch)
        if model == old:
            return
        state = self.state(branch)
        lost = any(
            reads_differently(old, model, handle.partition("/")[0], field)
            for handle, fields in state.items()
            for field in ("", *fields)
        )
        if not lost:
            state = model.fill(state)
        refused = lost or bool(model.judge(state))
        self.seen[f"{what}{': refused' if refused else ''}"] += 1
        SchemaWorld.cases += 1
        try:
            apply_schema(self.graph, self.graph.checkout(branch), schema_of(model))
        except SchemaMismatchError:
            assert refused, what
            return
        assert not refused, (what, model.judge(state))
        self._note(branch, state, model=model)

    # --- merging -------------------------------------------------------------------------

    def merge(self, source: str, target: str) -> None:
        """Merge, and compare; then settle what is in conflict in one of many ways."""
        ours, theirs = self.history.branches[target], self.history.branches[source]
        SchemaWorld.cases += 1
        if theirs in self.history.ancestors(ours):
            assert self._ask(source, target).outcome == "already_up_to_date"
            return
        if ours in self.history.ancestors(theirs):
            result = self._ask(source, target)
            assert result.outcome == "fast_forward"
            self._compare_counts(result, self.history.state(ours), self.history.state(theirs))
            self.history.branches[target] = theirs
            self.check(target)
            return
        result = self._ask(source, target, dry_run=True)
        expected, merged, model = self._expect(ours, theirs, result)
        found = {_named_alike(each) for each in result.conflicts}
        assert found == expected, found ^ expected
        self.seen.update(each.kind for each in result.conflicts)
        if not result.conflicts:
            result = self._ask(source, target)
            self._compare_counts(result, self.history.state(ours), merged)
            found_model = read_model(self.graph.checkout(target).schema)
            assert found_model == model
            self._note(target, merged, theirs, model=found_model)
            self.check(target)
            return
        self._try_each(source, target, result)
        self._settle(source, target, result, merged, theirs)

    def _ask(self, source: str, target: str, **more: object) -> MergeResult:
        return merge(self.graph, MergeRequest(source, target, **more), actor="a")  # type: ignore[arg-type]

    def _expect(self, ours: int, theirs: int, result: MergeResult) -> tuple[set[str], State, Model]:
        """The conflicts, the merged state with ours where it clashes, and the merged types."""
        first = next(number for number, each in self.ids.items() if each == result.bases[0])
        versions = self.history.versions
        mine, other = versions[ours].model, versions[theirs].model
        model, torn = merge_models(versions[first].model, mine, other)
        merged = self.history.merge(ours, theirs)
        state: State = merged.state  # type: ignore[assignment]
        if torn:
            return {f"schema:{name}" for name in torn}, state, model
        expected = {
            clash_id(each) for each in merged.clashes if not self._moot(each, model, (mine, other))
        }
        lost = self._lost(state, self.history.state(ours), model, mine, other)
        if lost:
            return expected | lost, state, model
        state = model.fill(state)
        judged = model.judge(state)
        expected |= {
            f"unique:{'+'.join(sorted(group))}.{name}" for group, name in judged.duplicates
        }
        expected |= {f"dangling:{'+'.join(each[::2])}.{each[1]}" for each in judged.dangling}
        expected |= {f"constraint:{handle}.{name}" for handle, name in judged.broken}
        expected |= {f"constraint:{handle}.{name}" for handle, name in judged.crowded}
        return expected, state, model

    @staticmethod
    def _moot(clash: Clash, model: Model, sides: tuple[Model, Model]) -> bool:
        """Whether a clash is in a field that the types themselves do not agree upon."""
        name = clash.handle.partition("/")[0]
        return bool(clash.field) and any(
            reads_differently(each, model, name, clash.field) and model.types.get(name) is not None
            for each in sides
        )

    @staticmethod
    def _lost(state: State, ours: State, model: Model, mine: Model, other: Model) -> set[str]:
        found = set()
        for handle, fields in state.items():
            name = handle.partition("/")[0]
            held = ours.get(handle)
            if reads_differently(other if held is None else mine, model, name, ""):
                found.add(f"schema:{name}")
                continue
            for field, value in fields.items():
                side = mine if held is not None and held.get(field) == value else other
                if reads_differently(side, model, name, field):
                    declared = side.types[name].fields[field].owner
                    found.add(f"schema:{declared}.{field}")
        return found

    def _try_each(self, source: str, target: str, result: MergeResult) -> None:
        """Every resolution that is offered settles its conflict."""
        for conflict in result.conflicts:
            assert conflict.takes, conflict
        offered = [
            (each, take) for each in result.conflicts for take in each.takes if take != "value"
        ]
        for conflict, take in self.rng.sample(offered, min(3, len(offered))):
            SchemaWorld.cases += 1
            chosen = {conflict.id: Resolution(take)}
            again = self._ask(source, target, resolutions=chosen, dry_run=True)
            assert conflict.id not in {each.id for each in again.conflicts}, (conflict, take)

    def _settle(
        self, source: str, target: str, result: MergeResult, merged: State, theirs: int
    ) -> None:
        if not result.suggested:  # a value is needed, which nobody can suggest
            assert any(each.takes == ("value",) for each in result.conflicts)
            return
        how = self.rng.choice(["suggested", "ours", "theirs", "mixed"])
        SchemaWorld.cases += 1
        chosen = {name: Resolution(side) for name, side in result.suggested.items()}
        if how == "mixed":
            chosen |= {
                each.id: Resolution(self.rng.choice([t for t in each.takes if t != "value"]))
                for each in result.conflicts
                if {*each.takes} != {"value"}
            }
        if how in {"ours", "theirs"}:
            done = self._ask(source, target, resolve_all=how)
        else:
            done = self._ask(source, target, resolutions=chosen)
        self.seen[f"{how}: {done.outcome}"] += 1
        if how == "suggested":
            assert result.suggested, [each.id for each in result.conflicts]
            assert done.outcome == "merged", (result.suggested, done.conflicts)
        for _ in range(5):
            if done.outcome == "merged":
                break
            if not done.suggested:  # no side settles this mixture, but a value would
                assert all("value" in each.takes for each in done.conflicts if not each.takes[1:])
                chosen = {name: Resolution(side) for name, side in result.suggested.items()}
            chosen |= {name: Resolution(side) for name, side in done.suggested.items()}
            done = self._ask(source, target, resolutions=chosen)
        assert done.outcome == "merged", [(each.id, each.takes) for each in done.conflicts]
        line = self.graph.checkout(target)
        state, model = self.read(target), read_model(line.schema)
        assert not model.judge(state), (how, model.judge(state), chosen)
        free = {handle for each in (*chosen, *result.suggested) for handle in each_handle(each)}
        if how in {"suggested", "mixed"} and not any(each.startswith("schema:") for each in chosen):
            edges = {each for each in {*state, *merged} if each.startswith("L/")}
            for handle in {*state, *merged} - free - edges:
                assert state.get(handle) == merged.get(handle), handle
        self._note(target, state, theirs, model=model)
        self.check(target)

    @staticmethod
    def _compare_counts(result: MergeResult, before: State, after: State) -> None:
        assert result.created == sum(each not in before for each in after)
        assert result.deleted == sum(each not in after for each in before)
        assert result.updated == sum(
            each in before and before[each] != value for each, value in after.items()
        )

    # --- reading -------------------------------------------------------------------------

    def read(self, branch: str) -> State:
        """The state of a branch."""
        line = self.graph.checkout(branch)
        with self.graph.file.reader() as db:
            return {
                each.handle: {
                    key: frozenset(value) if isinstance(value, tuple) else value
                    for key, value in each.values.items()
                }
                for each in line.nodes.states(db, list(line.schema.by_name))
            }

    def check(self, branch: str) -> None:
        """A branch reads as the oracle says, and breaks no rule."""
        assert self.read(branch) == self.state(branch)
        line = self.graph.checkout(branch)
        assert read_model(line.schema) == self.model(branch)
        with self.graph.file.reader() as db:
            assert list(broken_rules(line.nodes, db, line.compiled)) == []
        if self.rng.random() < 0.1:
            self.check_export(branch)

    def check_export(self, branch: str) -> None:
        """An export loads into an empty graph, with the same content."""
        line = self.graph.checkout(branch)
        text = b"".join(self.app.export(self.app.context(branch=branch)))
        copy = App(name="types")
        try:
            graph = copy.graph()
            apply_schema(graph, graph.main, line.schema)
            if text:
                copy.load(LoadRequest(files=(BytesIO(text),), format="ndjson"))
            assert digest_of(graph, "main") == digest_of(self.graph, branch)
        finally:
            copy.close()

    def check_verified(self) -> None:
        """The views equal a fresh fold of the log."""
        findings = list(verify(self.graph, lambda _: None))
        assert all(each.severity == "ok" for each in findings), findings


def digest_of(graph: Graph, branch: str) -> str:
    """One number for all statements of a branch."""
    line = graph.checkout(branch)
    with graph.file.reader() as db:
        return content_digest(line.terms, line.nodes.states(db, list(line.schema.by_name)))


def to_state(handle: str, fields: Fields | None) -> NodeState | None:
    """A node as the engine has it."""
    if fields is None:
        return None
    type_name, _, identifier = handle.partition("/")
    values = {
        key: tuple(sorted(value)) if isinstance(value, frozenset) else value  # type: ignore[type-var]
        for key, value in fields.items()
    }
    return NodeState(type_name, identifier, values)


def _named_alike(conflict: Conflict) -> str:
    """A conflict as the oracle names it."""
    if conflict.kind == "constraint":
        return f"constraint:{conflict.handle}.{conflict.field}"
    if conflict.kind == "uniqueness":
        return f"unique:{'+'.join(sorted(each_handle(conflict.id)))}.{conflict.field}"
    if conflict.kind == "dangling_reference":
        return f"dangling:{'+'.join(each_handle(conflict.id))}.{conflict.field}"
    return conflict.id
