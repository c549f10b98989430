"""Two worlds: one with hidden parts, and its twin in which they were never declared.

The twin is worked out here from plain tables, not by the code under test: types and fields
are left out of its declarations, nodes and values out of its data.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from hypothesis import strategies as st

from trails import App, Edge, LangText, Node, Ref, edge_type, node_type, predicate
from trails.engine.session.context import GraphContext
from trails.model.types import Schema
from trails.model.visibility import Visibility

FORK = "draft"

Row = tuple[str, str, dict[str, object]]
"""(type, id, values); references are (type, id)."""


@dataclass(frozen=True)
class Field:
    """A field: its annotation, the type that it refers to, and what predicate() is told."""

    annotation: object
    target: str | None = None
    many: bool = False
    said: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class Type:
    """A node type, or an edge type with two ends."""

    fields: Mapping[str, Field]
    parent: str | None = None
    ends: tuple[str, str] | None = None
    unique: tuple[tuple[str, str], ...] = ()
    index: tuple[tuple[str, str], ...] = ()


TYPES: Mapping[str, Type] = {
    "Office": Type(
        {
            "room": Field(str, said={"label": True, "description": "Where it is."}),
            "floor": Field(int | None),
            "rent": Field(float | None),
        }
    ),
    "Person": Type(
        {
            "code": Field(str, said={"key": True}),
            "name": Field(str),
            "alias": Field(str | None, said={"label": True}),
            "age": Field(int | None),
            "tags": Field(list[str], many=True),
            "boss": Field(Ref["Person"] | None, target="Person"),
        },
        unique=(("alias", "age"),),
        index=(("name", "age"),),
    ),
    "Employee": Type(
        {
            "badge": Field(str | None, said={"unique": True}),
            "office": Field(Ref["Office"] | None, target="Office"),
        },
        parent="Person",
        index=(("badge", "age"),),
    ),
    "Chief": Type({"bonus": Field(int | None)}, parent="Employee"),
    "Note": Type(
        {
            "number": Field(int, said={"key": True}),
            "about": Field(Ref["Person"] | None, target="Person"),
            "readers": Field(list[Ref["Person"]], target="Person", many=True),  # noqa: F821 - by name
            "queue": Field(
                list[Ref["Person"]],  # noqa: F821 - by name
                target="Person",
                many=True,
                said={"ordered": True},
            ),
            "lines": Field(list[str], many=True, said={"ordered": True}),
            "words": Field(LangText | None),
            "chief": Field(Ref["Chief"] | None, target="Chief"),
            "text": Field(str | None),
        }
    ),
    "Knows": Type({"since": Field(int | None)}, ends=("Person", "Person")),
    "Sits": Type({"desk": Field(str | None)}, ends=("Employee", "Office")),
}


@dataclass(frozen=True)
class Hidden:
    """What is out of sight, as a policy would say it: subtypes have their parents' fields."""

    types: frozenset[str] = frozenset()
    fields: frozenset[tuple[str, str]] = frozenset()
    """(type that declares it, field)."""

    def sight(self, types: Mapping[str, Type]) -> Visibility:
        """As the engine is handed it."""
        hidden = {
            name: frozenset(
                each
                for owner in lineage(types, name)
                for kind, each in self.fields
                if kind == owner
            )
            for name in types
            if name not in self.types
        }
        return Visibility(self.types, {name: each for name, each in hidden.items() if each})


def lineage(types: Mapping[str, Type], name: str) -> list[str]:
    """A type and what it extends."""
    found = [name]
    while (parent := types[found[-1]].parent) is not None:
        found.append(parent)
    return found


def all_fields(types: Mapping[str, Type], name: str) -> dict[str, Field]:
    """The fields of a type, inherited ones first."""
    found: dict[str, Field] = {}
    for each in reversed(lineage(types, name)):
        found |= types[each].fields
    return found


def gone_types(types: Mapping[str, Type], hidden: Hidden) -> frozenset[str]:
    """The types that are not in the twin: hidden ones, and those that can't be identified."""
    gone = set(hidden.types)
    for name, each in types.items():
        owners = lineage(types, name)
        keys = {key for key, said in all_fields(types, name).items() if said.said.get("key")}
        if any(owner in owners and key in keys for owner, key in hidden.fields):
            gone.add(name)
        if each.ends is not None and gone & set(each.ends):
            gone.add(name)
    return frozenset(gone)


def twin_types(types: Mapping[str, Type], hidden: Hidden) -> dict[str, Type]:
    """The declarations of the twin."""
    gone = gone_types(types, hidden)
    made: dict[str, Type] = {}
    for name, each in types.items():
        if name in gone:
            continue
        above = lineage(types, name)
        parent = next((one for one in above[1:] if one not in gone), None)
        own = above[: above.index(parent)] if parent else above
        fields = {
            key: said
            for owner in reversed(own)
            for key, said in types[owner].fields.items()
            if (owner, key) not in hidden.fields and said.target not in gone
        }
        left = {*fields, *(all_fields(made, parent) if parent else ())}
        made[name] = replace(
            each,
            fields=fields,
            parent=parent,
            unique=tuple(g for one in own for g in types[one].unique if set(g) <= left),
            index=tuple(g for one in own for g in types[one].index if set(g) <= left),
        )
    return made


def twin_rows(types: Mapping[str, Type], hidden: Hidden, rows: Iterable[Row]) -> list[Row]:
    """The data of the twin."""
    left = twin_types(types, hidden)
    found: list[Row] = []
    for name, key, values in rows:
        if name not in left:
            continue
        ends = types[name].ends
        if ends is not None and not all(values[end][0] in left for end in ("source", "target")):
            continue
        known = {*all_fields(left, name), *(("source", "target") if ends else ())}
        found.append((name, key, {k: _left(v, left) for k, v in values.items() if k in known}))
    return found


def _left(value: object, left: Mapping[str, Type]) -> object:
    if isinstance(value, list):
        return [each for each in value if not isinstance(each, tuple) or each[0] in left]
    if isinstance(value, tuple):
        return value if value[0] in left else None
    return value


def declare(types: Mapping[str, Type]) -> dict[str, type]:
    """Classes, made as a user's module would make them."""
    made: dict[str, type] = {}
    for name, each in types.items():
        base = made[each.parent] if each.parent else (Edge if each.ends else Node)
        body = {
            "__doc__": f"A {name}.",
            "__module__": __name__,
            "__annotations__": {key: said.annotation for key, said in each.fields.items()},
            **{key: predicate(**said.said) for key, said in each.fields.items()},
        }
        groups = {"unique": list(each.unique), "index": list(each.index)}
        cls = type(name, (base,), body)
        if each.ends is not None:
            cls = edge_type(source=each.ends[0], target=each.ends[1], **groups)(cls)
        else:
            cls = node_type(**groups)(cls)
        made[name] = cls
    return made


class World:
    """An app with data."""

    def __init__(
        self,
        types: Mapping[str, Type],
        rows: Iterable[Row],
        more: Callable[..., list] | None = None,
        *,
        fork: bool = False,
    ) -> None:
        """With ``fork``, the second half of the rows is on a branch."""
        self.branch = FORK if fork else "main"
        self.classes = declare(types)
        self.types = types
        extra = more(self.classes) if more is not None else []
        self.app = App(*self.classes.values(), *extra)
        self.rows = list(rows)
        ctx = self.app.context(actor="author")
        made: dict[tuple[str, str], Node] = {}
        for at, (name, key, values) in enumerate(self.rows):
            if fork and at == len(self.rows) // 2:
                self.app.versions(actor="author").create_branch(FORK)
                ctx = self.app.context(branch=FORK, actor="author")
            given = {each: _resolve(value, made) for each, value in values.items()}
            node = self.classes[name](**given)
            node.__dict__["_trails_state"].id = key if types[name].ends is None else None
            made[name, key] = node
            ctx.kg.save(node)
        if fork and not self.rows:
            self.app.versions(actor="author").create_branch(FORK)

    def restricted(self, sight: Visibility) -> GraphContext:
        """A context for somebody who sees less."""
        return self.app.service().context("reader", self.branch, access=Restricted(sight))

    @property
    def full(self) -> GraphContext:
        """A context for somebody who sees everything."""
        return self.app.service().context("reader", self.branch)

    def move(self) -> None:
        """Make everybody a year older."""
        ctx = self.app.context(branch=self.branch, actor="author")
        for name in ("Person", "Employee", "Chief"):
            if name in self.classes and "age" in all_fields(self.types, name):
                for each in self.classes[name].objects(ctx).fetch():
                    if type(each).__name__ == name:
                        each.age = (each.age or 0) + 1
                        each.save(ctx)


def _resolve(value: object, made: Mapping[tuple[str, str], Node]) -> object:
    if isinstance(value, list):
        return [_resolve(each, made) for each in value]
    return made[value] if isinstance(value, tuple) else value


@dataclass(frozen=True)
class Restricted:
    """An access that may do everything with what it sees."""

    unrestricted = False
    seen: Visibility

    def may(self, action: str, branch: str, target: str = "") -> bool:
        """Yes."""
        del action, branch, target
        return True

    def visibility(self, schema: Schema, branches: Iterable[str]) -> Visibility:
        """The same everywhere."""
        del schema, branches
        return self.seen


@contextmanager
def twins(
    rows: list[Row], hidden: Hidden, *, fork: bool = False
) -> Iterator[tuple[GraphContext, GraphContext]]:
    """A restricted context, and one of the twin in which nothing is hidden."""
    world = World(TYPES, rows, fork=fork)
    twin = World(twin_types(TYPES, hidden), twin_rows(TYPES, hidden, rows), fork=fork)
    if fork:
        world.move()
        twin.move()
    try:
        yield world.restricted(hidden.sight(TYPES)), twin.full
    finally:
        world.app.close()
        twin.app.close()


FIELDS = sorted((name, each) for name, said in TYPES.items() for each in said.fields)


def some_of(items: list) -> st.SearchStrategy[list]:
    """A good number of items out of very many."""
    return st.lists(st.sampled_from(items), min_size=30, max_size=60)


_SMALL = st.integers(0, 4)
_WORDS = st.sampled_from(["x", "y", "Zed", "née", "long " * 20])


@st.composite
def hidden_sets(draw: st.DrawFn) -> Hidden:
    """Some types and some fields."""
    return Hidden(
        draw(st.frozensets(st.sampled_from(sorted(TYPES)), max_size=2)),
        draw(st.frozensets(st.sampled_from(FIELDS), max_size=5)),
    )


@st.composite
def row_lists(draw: st.DrawFn) -> list[Row]:
    """Offices, people of all kinds with bosses, notes about them, edges between them."""
    made: list[Row] = []
    offices = [("Office", f"o{each}") for each in range(draw(st.integers(1, 3)))]
    for name, key in offices:
        floor, rent = draw(st.none() | _SMALL), draw(st.none() | st.just(1.5))
        made.append((name, key, {"room": draw(_WORDS), "floor": floor, "rent": rent}))
    people: list[tuple[str, str]] = []
    for number in range(draw(st.integers(2, 9))):
        kind = draw(st.sampled_from(["Person", "Employee", "Chief"]))
        values: dict[str, object] = {
            "code": f"p{number}",
            "name": draw(_WORDS),
            "alias": draw(st.none() | st.just(f"a{number}")),
            "age": draw(st.none() | _SMALL),
            "tags": draw(st.lists(st.sampled_from(["r", "s", "t"]), max_size=2, unique=True)),
            "boss": draw(st.none() | st.sampled_from(people)) if people else None,
        }
        if kind != "Person":
            values["badge"] = draw(st.none() | st.just(f"b{number}"))
            values["office"] = draw(st.none() | st.sampled_from(offices))
        if kind == "Chief":
            values["bonus"] = draw(st.none() | _SMALL)
        people.append((kind, f"p{number}"))
        made.append((*people[-1], values))
    made += _notes(draw, people)
    made += _edges(draw, people, offices)
    return made


def _notes(draw: st.DrawFn, people: list[tuple[str, str]]) -> list[Row]:
    chiefs = [each for each in people if each[0] == "Chief"]
    some = st.lists(st.sampled_from(people), max_size=3, unique=True)
    return [
        (
            "Note",
            str(number),
            {
                "number": number,
                "about": draw(st.none() | st.sampled_from(people)),
                "readers": draw(some),
                "queue": draw(st.lists(st.sampled_from(people), max_size=4)),
                "lines": draw(st.lists(_WORDS, max_size=3)),
                "words": draw(
                    st.dictionaries(st.sampled_from(["en", "de"]), _WORDS).map(
                        lambda texts: texts or None
                    )
                ),
                "chief": draw(st.none() | st.sampled_from(chiefs)) if chiefs else None,
                "text": draw(st.none() | _WORDS),
            },
        )
        for number in range(draw(st.integers(0, 4)))
    ]


def _edges(
    draw: st.DrawFn, people: list[tuple[str, str]], offices: list[tuple[str, str]]
) -> list[Row]:
    pairs = draw(
        st.lists(
            st.tuples(st.sampled_from(people), st.sampled_from(people)), max_size=6, unique=True
        )
    )
    made: list[Row] = [
        ("Knows", f"k{at}", {"source": one, "target": two, "since": draw(st.none() | _SMALL)})
        for at, (one, two) in enumerate(pairs)
    ]
    staff = [each for each in people if each[0] != "Person"]
    for at, each in enumerate(staff[:3]):
        office = draw(st.sampled_from(offices))
        made.append(("Sits", f"s{at}", {"source": each, "target": office, "desk": "d"}))
    return made
