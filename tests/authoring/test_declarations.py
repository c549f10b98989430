"""Declarations: every legal form works, and every error is raised where it is made.

No `from __future__ import annotations` here: annotations are objects in this module, and
texts in declared_with_future_annotations.py, which declares the same things.
"""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, ClassVar, Optional

import pytest
from tests.authoring import declared_with_future_annotations as later

from trails import (
    App,
    BigInt,
    Blob,
    Context,
    Edge,
    Iri,
    Json,
    Node,
    Ref,
    Shape,
    Vector,
    capability,
    edge_type,
    meta_capability,
    node_type,
    policy,
    predicate,
    shape,
)
from trails.authoring.capabilities import MARK
from trails.errors import DeclarationError, RegistryError, ValidationError
from trails.model.capabilities import CapabilityDescriptor
from trails.model.types import PredicateDescriptor, ValueType


def fields_of(cls: type) -> dict[str, PredicateDescriptor]:
    """The declared fields, by name."""
    return dict(cls.__trails__.by_name)


def types_of(cls: type) -> dict[str, str]:
    """The declared fields and their types, `?` for those that may be missing."""
    return {
        name: f"{field.type}{'' if field.required else '?'}"
        for name, field in fields_of(cls).items()
    }


def descriptor_of(function: Callable[..., object]) -> CapabilityDescriptor:
    """What a decorator made of a function."""
    return getattr(function, MARK).descriptor


# ---------------------------------------------------------------------------- legal forms


def test_every_kind_has_an_annotation():
    """Each Python type is one kind; `| None` makes it optional, a list makes it many."""

    @node_type
    class Everything(Node):
        text: str
        flag: bool
        whole: int
        big: BigInt
        real: float
        exact: Decimal
        day: date
        moment: datetime
        link: Iri
        scan: Blob
        data: Json
        sized: Vector(3)
        told: Vector = predicate(dimension=4)
        other: Ref["Everything"]
        maybe: str | None
        old_maybe: Optional[str]  # noqa: UP045 - people write it
        many: list[int]
        as_set: set[int]
        as_tuple: tuple[int, ...]
        as_sequence: Sequence[int]
        others: list[Ref["Everything"]]

    assert types_of(Everything) == {
        "text": "String",
        "flag": "Bool",
        "whole": "Int",
        "big": "BigInt",
        "real": "Float",
        "exact": "Decimal",
        "day": "Date",
        "moment": "DateTime",
        "link": "Iri",
        "scan": "Blob",
        "data": "Json",
        "sized": "Vector[3]",
        "told": "Vector[4]",
        "other": "Ref[Everything]",
        "maybe": "String?",
        "old_maybe": "String?",
        "many": "List[Int]?",
        "as_set": "List[Int]?",
        "as_tuple": "List[Int]?",
        "as_sequence": "List[Int]?",
        "others": "List[Ref[Everything]]?",
    }


def test_a_class_without_the_base_becomes_a_full_node_type():
    """The base is for editors; at run time the decorator suffices."""

    @node_type
    class Bare:
        """A description."""

        name: str = predicate(key=True)
        size: int = 3

        def shout(self) -> str:
            return self.name.upper()

    with App(Bare) as app:
        ctx = app.context()
        Bare(name="a").save(ctx)
        assert [each.shout() for each in Bare.objects(ctx).where(size=3)] == ["A"]
        assert Bare.get(ctx, "a") == Bare(name="a")
    assert Bare.__trails__.description == "A description."


def test_a_module_with_textual_annotations_declares_the_same():
    """Forward names, quoted or not, in every position, are references by name."""
    assert types_of(later.Team) == {
        "name": "String",
        "lead": "Ref[Member]",
        "deputy": "Ref[Member]?",
        "second": "Ref[Member]?",
        "third": "Ref[Member]?",
        "bare": "Ref[Member]",
        "bare_optional": "Ref[Member]?",
        "old_style": "Ref[Member]?",
        "members": "List[Ref[Member]]?",
        "quoted": "List[Ref[Member]]?",
        "parent": "Ref[Team]?",
        "founded": "Date",
        "rate": "Decimal?",
        "place": "Vector[2]?",
    }
    assert later.Team.LIMIT == 9
    declared = descriptor_of(later.describe)
    assert [str(field.type) for field in declared.input_shape] == [
        "Ref[Team]",
        "List[Object[Summary]]",
        "Object[Member]",
    ]
    assert declared.output_shape == ValueType("Object", target="Summary")
    with App() as app:
        registry = app.discover(later)
        assert set(registry.types) == {"Team", "Member", "Joined"}


def test_classes_inside_a_function_see_each_other():
    """A type is declared wherever a class may be."""

    @node_type
    class Inner(Node):
        name: str = predicate(key=True)

    @node_type
    class Outer(Node):
        inner: Ref[Inner]
        text: "Inner | None"

    @capability("inner.get")
    def get(ctx: Context, inner: "Ref[Inner]") -> "Inner":
        """Give it back."""
        return inner

    assert types_of(Outer) == {"inner": "Ref[Inner]", "text": "Ref[Inner]?"}
    with App(Inner, Outer, get) as app:
        ctx = app.context()
        inner = Inner(name="a")
        inner.save(ctx)
        Outer(inner=inner).save(ctx)
        assert app.call(ctx, "inner.get", {"inner": "trails://kg/Inner/a"})["name"] == "a"


def test_a_subtype_has_its_parents_fields_by_either_spelling():
    """Inheritance and `extends` say the same, groups included."""

    @node_type(unique=[("code", "version")], index=[("code", "version")])
    class Base(Node):
        code: str
        version: int

    @node_type
    class Child(Base):
        extra: str | None

    @node_type(extends=Base)
    class Adopted(Node):
        extra: str | None

    @node_type(extends=Base)
    class Both(Base):
        extra: str | None

    for cls in (Child, Adopted, Both):
        assert cls.__trails__.extends == "Base"
        assert types_of(cls) == {"code": "String", "version": "Int", "extra": "String?"}
        assert fields_of(cls)["code"].declared_in == "Base"
        assert cls.__trails__.unique == cls.__trails__.index == (("code", "version"),)
    with App(Base, Child, Adopted) as app:
        ctx = app.context()
        Child(code="a", version=1, extra="x").save(ctx)
        Adopted(code="b", version=1).save(ctx)
        assert [each.code for each in Base.objects(ctx).order_by("code")] == ["a", "b"]
        with pytest.raises(ValidationError, match="code"):
            Adopted(code="a", version=1).save(ctx)


class Dated:
    """A plain class that several types inherit."""

    made_on: date | None = predicate(description="When it was made.")
    state: str = "new"


def test_fields_of_plain_base_classes_belong_to_the_type():
    """Node types, edge types and shapes take them over, each for itself."""

    class Versioned(Dated):
        version: int = predicate(min_value=1)

    @node_type
    class Page(Versioned, Node):
        title: str = predicate(key=True)

    @node_type
    class Draft(Page):
        note: str | None

    @edge_type(source=Page, target=Page)
    class Link(Dated, Edge):
        state: str = predicate(one_of=["live", "dead"])

    @shape
    class Form(Versioned):
        title: str

    @shape
    class LongForm(Form):
        text: str

    assert types_of(Page) == {
        "made_on": "Date?", "state": "String", "version": "Int", "title": "String",
    }  # fmt: skip
    assert types_of(Draft) == {**types_of(Page), "note": "String?"}
    assert list(types_of(Link)) == ["source", "target", "made_on", "state"]
    assert fields_of(Link)["state"].one_of == ("live", "dead")
    assert list(types_of(Form)) == ["made_on", "state", "version", "title"]
    assert list(types_of(LongForm)) == ["made_on", "state", "version", "title", "text"]
    assert Form(version=1, title="a").state == LongForm(version=1, title="a", text="b").state
    with App(Page, Draft, Link) as app:
        ctx = app.context()
        first = Page(title="a", version=1, made_on=date(2026, 1, 2))
        first.save(ctx)
        Draft(title="b", version=2, state="old").save(ctx)
        Link(source=first, target=Draft.get(ctx, "b"), state="live").save(ctx)
        read = next(iter(Link.objects(ctx)))
        assert (read.source.state, read.source.made_on) == ("new", date(2026, 1, 2))
        assert read.target.state == "old"
        with pytest.raises(ValidationError, match="version must be at least 1"):
            Page(title="c", version=0).save(ctx)


def test_a_plain_class_between_two_types_keeps_both():
    """A type extends the nearest decorated class, wherever that is above it."""

    @node_type
    class Party(Node):
        name: str = predicate(key=True)

    class Rated(Party):
        rating: int | None = predicate(max_value=5)

    @node_type
    class Vendor(Rated):
        city: str | None

    assert Vendor.__trails__.extends == "Party"
    assert types_of(Vendor) == {"name": "String", "rating": "Int?", "city": "String?"}


def test_a_shape_inherits_no_node_type():
    """Its fields would be stored in one and not in the other."""

    @node_type
    class Party(Node):
        name: str

    with pytest.raises(DeclarationError, match="Party is not a shape"):

        @shape
        class Form(Party):
            text: str


def test_an_edge_type_has_ends_and_fields_of_its_own():
    """Ends are given as classes or names; the edge is identified by them."""

    @node_type
    class Case(Node):
        name: str = predicate(key=True)

    @edge_type(source=Case, target="Case", per_source=(0, 1), per_target=(0, None))
    class Follows(Edge):
        note: str | None

    assert types_of(Follows) == {"source": "Ref[Case]", "target": "Ref[Case]", "note": "String?"}
    assert Follows.__trails__.edge.per_source == (0, 1)
    with App(Case, Follows) as app:
        ctx = app.context()
        first, second = Case(name="1"), Case(name="2")
        ctx.kg.save_all([first, second, Follows(source=first, target=second, note="n")])
        (edge,) = Follows.objects(ctx).where(source=first)
        assert (edge.source, edge.target, edge.note) == (first, second, "n")


def test_a_shape_with_a_target_adds_rules_to_a_node_type():
    """The node type stays as declared, and its instances must meet both."""

    @node_type
    class Article(Node):
        title: str

    @shape(target=Article)
    class Titled(Shape):
        title: str = predicate(min_length=3)

    @shape(target="Article")
    class Short(Shape):
        title: str = predicate(max_length=5)

    with App(Article, Titled, Short) as app:
        ctx = app.context()
        Article(title="four").save(ctx)
        for wrong, code in (("ab", "min_length"), ("abcdef", "max_length")):
            with pytest.raises(ValidationError) as refused:
                Article(title=wrong).save(ctx)
            assert [error.code for error in refused.value.fields] == [code]


@pytest.mark.parametrize("rule", ["unique", "key"])
def test_a_shape_can_not_add_what_it_would_not_enforce(rule):
    """Uniqueness and keys belong to the node type."""
    with pytest.raises(DeclarationError, match=f"More.title: a shape can't .* {rule}"):

        @shape(target="Article")
        class More(Shape):
            title: str = predicate(**{rule: True})


def test_a_default_makes_a_field_optional_and_is_kept_as_plain_data():
    """Defaults are given plainly or in `predicate`, in the field's own type."""

    @node_type
    class Defaulted(Node):
        plain: int = 3
        said: str = predicate(default="x", min_length=1)
        day: date = date(2024, 1, 2)
        moment: datetime = datetime(2024, 1, 2, tzinfo=UTC)
        exact: Decimal = Decimal("1.50")
        tags: list[str] = predicate(default=["a"], max_count=2)

    defaults = {name: field.default for name, field in fields_of(Defaulted).items()}
    assert defaults == {
        "plain": 3,
        "said": "x",
        "day": "2024-01-02",
        "moment": "2024-01-02T00:00:00Z",
        "exact": "1.5",
        "tags": ("a",),
    }
    with App(Defaulted) as app:
        ctx = app.context()
        made = Defaulted()
        made.save(ctx)
        found = Defaulted.objects(ctx).get()
        assert (found.plain, found.day, found.exact) == (3, date(2024, 1, 2), Decimal("1.5"))
        assert found.tags == ["a"]
        assert Defaulted().tags is not Defaulted().tags


def test_what_is_private_or_of_the_class_is_no_field():
    """Methods, properties, class variables and private names stay what they are."""

    @node_type
    class Rich(Node):
        LIMIT: ClassVar[int] = 3
        _cache: int = 1
        name: str

        @property
        def loud(self) -> str:
            return self.name.upper()

    assert types_of(Rich) == {"name": "String"}
    assert (Rich(name="a").loud, Rich.LIMIT) == ("A", 3)


def test_a_signature_becomes_the_input_shape():
    """Parameters keep their order, constraints and defaults; the docstring describes."""

    @capability("things.find", idempotent=True, cost={"usd": 0.1}, side_effects=["mail"])
    @policy("four-eyes")
    def find(
        ctx,
        text: str,
        limit: int = 10,
        tags: list[str] | None = None,
        near: Vector(2) | None = None,
        data: dict[str, Any] | None = None,
    ) -> list[str]:
        """Find things.

        At length.
        """
        return [text]

    declared = descriptor_of(find)
    assert declared.description == "Find things.\n\nAt length."
    assert declared.policy_required == ("four-eyes",)
    assert declared.idempotent
    assert declared.output_shape == ValueType("List", item=ValueType("String"))
    spelled = [(f.name, str(f.type), f.required, f.default) for f in declared.input_shape]
    assert spelled == [
        ("text", "String", True, None),
        ("limit", "Int", False, 10),
        ("tags", "List[String]", False, None),
        ("near", "Vector[2]", False, None),
        ("data", "Any", False, None),
    ]


# ---------------------------------------------------------------------------- wrong fields


class Plain:
    """Not declared."""


WRONG_FIELDS: dict[str, tuple[object, object, str]] = {
    "two types": (str | int, predicate(), "use one type"),
    "none": (None, predicate(), "use str"),
    "bytes": (bytes, predicate(), "use str"),
    "bare list": (list, predicate(), "use str"),
    "plain class": (Plain, predicate(), "use str"),
    "reference to no type": (Ref[int], predicate(), "write Ref[Type]"),
    "fixed tuple": (tuple[str, int], predicate(), "use list"),
    "optional items": (list[str | None], predicate(), "drop '| None'"),
    "optional list": (list[str] | None, predicate(), "drop '| None'"),
    "list of lists": (list[list[str]], predicate(), "make the inner list a field"),
    "stored mapping": (dict[str, str], predicate(), "make it a node type"),
    "unreadable": ("str |", predicate(), "correct it"),
    "unknown module": ("nowhere.Thing", predicate(), "check its names"),
    "misspelled generic": ("lsit[str]", predicate(), "check its names"),
    "quoted half": ("'Later' | None", predicate(), "whole type in quotes"),
    "vector without dimension": (Vector, predicate(), "dimension=384"),
    "list of vectors": (list[Vector(3)], predicate(), "dimension=384"),
    "vector too long": (Vector(70_000), predicate(), "between 1 and 65536"),
    "dimension of text": (str, predicate(dimension=3), "remove it"),
    "counts of a scalar": (str, predicate(max_count=2), "write list[...]"),
    "counts crossed": (list[str], predicate(min_count=3, max_count=2), "min_count <= max_count"),
    "no count": (list[str], predicate(max_count=0), "max_count >= 1"),
    "optional key": (str | None, predicate(key=True), "drop '| None'"),
    "key with default": (str, predicate(key=True, default="a"), "drop"),
    "required optional": (str | None, predicate(required=True), "choose one"),
    "length of a number": (int, predicate(min_length=1), "remove it or change the type"),
    "pattern of a date": (date, predicate(pattern="a"), "remove it or change the type"),
    "range of text": (str, predicate(min_value=1), "remove it or change the type"),
    "range of a truth": (bool, predicate(max_value=1), "remove it or change the type"),
    "choice of vectors": (Vector(1), predicate(one_of=[[1.0]]), "remove it or change the type"),
    "choice of references": (Ref["A"], predicate(one_of=["a"]), "remove it or change the type"),
    "key of many": (list[str], predicate(key=True), "remove it"),
    "key of a vector": (Vector(2), predicate(key=True), "remove it"),
    "key of a reference": (Ref["A"], predicate(key=True), "remove it"),
    "unique vector": (Vector(2), predicate(unique=True), "remove it"),
    "unique list": (list[str], predicate(unique=True), "remove it"),
    "label of many": (list[str], predicate(label=True), "remove it"),
    "search of a number": (int, predicate(search=True), "remove it"),
    "unknown language": (str, predicate(search=True, language="englisch"), "'english'"),
    "language of no search": (str, predicate(language="english"), "needs search=True"),
    "stop words of no language": (str, predicate(search=True, stop_words=False), "a language"),
    "metric of a text": (str, predicate(metric="cosine"), "belongs to Vector fields"),
    "unknown metric": (Vector(2), predicate(metric="near"), "use one of cosine, dot, euclidean"),
    "lengths crossed": (str, predicate(min_length=3, max_length=2), "no legal length"),
    "negative length": (str, predicate(min_length=-1), "no legal length"),
    "length no number": (str, predicate(min_length="3"), "whole number"),
    "count no number": (list[str], predicate(max_count=2.5), "whole number"),
    "look-around": (str, predicate(pattern="(?=a)"), "rewrite it"),
    "pattern no text": (str, predicate(pattern=3), "must be a string"),
    "no choice": (str, predicate(one_of=[]), "list at least one"),
    "choice is one text": (str, predicate(one_of="abc"), "list of values"),
    "choice of another type": (int, predicate(one_of=["a"]), "value of the field's type"),
    "choice twice": (Decimal, predicate(one_of=["1.5", "1.50"]), "remove one"),
    "range crossed": (int, predicate(min_value=3, max_value=2), "is above"),
    "range of another type": (date, predicate(min_value=3), "value of the field's type"),
    "default of another type": (int, predicate(default="3"), "value of the field's type"),
    "default true for a number": (int, True, "value of the field's type"),
    "default no list": (list[str], predicate(default="a"), "must be a list"),
    "default too short": (str, predicate(default="a", min_length=2), "valid default"),
    "default no choice": (str, predicate(default="a", one_of=["b"]), "valid default"),
    "default too many": (
        list[str],
        predicate(default=["a", "b"], max_count=1),
        "valid default",
    ),
    "default of another size": (Vector(2), predicate(default=[1.0]), "valid default"),
    "default reference": (Ref["A"], predicate(default="a"), "remove it"),
    "no iri": (str, predicate(iri="not an iri"), "absolute one"),
    "the type's iri": (
        str,
        predicate(iri="http://www.w3.org/1999/02/22-rdf-syntax-ns#type"),
        "choose another",
    ),
}


def declare(fields: dict[str, tuple[object, object]], name: str = "Wrong", **said: object) -> type:
    """Declare a node type from (annotation, value) of each field."""
    body: dict[str, object] = {field: value for field, (_, value) in fields.items()}
    annotations = {field: annotation for field, (annotation, _) in fields.items()}
    made = type(name, (Node,), {**body, "__annotations__": annotations, "__module__": __name__})
    return node_type(**said)(made)


@pytest.mark.parametrize("wrong", WRONG_FIELDS)
def test_a_wrong_field_is_refused_with_class_field_and_fix(wrong):
    """The message starts with where, and says what to do."""
    annotation, value, fix = WRONG_FIELDS[wrong]
    with pytest.raises(DeclarationError) as refused:
        declare({"field": (annotation, value)})
    assert refused.value.message.startswith("Wrong.field: ")
    assert fix in refused.value.message


RESERVED = ["id", "iri", "type", "save", "delete", "objects", "where", "get", "handle", "refresh"]


@pytest.mark.parametrize("name", RESERVED)
def test_a_name_that_every_node_has_is_refused_as_a_field(name):
    """A field would hide it."""
    with pytest.raises(DeclarationError, match=rf"Wrong\.{name}: .*rename it"):
        declare({name: (str, predicate())})


@pytest.mark.parametrize("name", ["Name", "a__b", "a_", "n" * 65])
def test_a_field_name_outside_the_grammar_is_refused(name):
    """Lookups and surfaces rely on the grammar."""
    with pytest.raises(DeclarationError, match=rf"Wrong\.{name}: .*rename it"):
        declare({name: (str, predicate())})


# ---------------------------------------------------------------------------- wrong classes


def _lower_case_type() -> None:
    @node_type
    class wrong(Node):  # noqa: N801 - the point
        pass


def _untyped_predicate() -> None:
    @node_type
    class Wrong(Node):
        field = predicate()


def _two_keys() -> None:
    declare({"a": (str, predicate(key=True)), "b": (str, predicate(key=True))})


def _two_labels() -> None:
    declare({"a": (str, predicate(label=True)), "b": (str, predicate(label=True))})


def _one_iri_twice() -> None:
    declare({"a": (str, predicate(iri="urn:x:y")), "b": (str, predicate(iri="urn:x:y"))})


def _type_iri() -> None:
    declare({}, iri="no iri")


TWO = {"a": (str, predicate()), "b": (str, predicate())}


def _unknown_in_group() -> None:
    declare(TWO, unique=[("a", "c")])


def _lone_in_group() -> None:
    declare(TWO, unique=[("a",)])


def _text_as_group() -> None:
    declare(TWO, unique=["ab"])


def _twice_in_group() -> None:
    declare(TWO, index=[("a", "a")])


def _list_in_group() -> None:
    declare({**TWO, "c": (list[str], predicate())}, index=[("a", "c")])


def _field_of_parent() -> None:
    @node_type
    class Base(Node):
        a: str

    @node_type
    class Wrong(Base):
        a: str | None


def _two_parents() -> None:
    @node_type
    class One(Node):
        a: str

    @node_type
    class Other(Node):
        b: str

    @node_type(extends=Other)
    class Wrong(One):
        pass


def _plain_parent() -> None:
    declare({}, extends=Plain)


def _edge_parent() -> None:
    @edge_type(source="A", target="A")
    class Link(Edge):
        pass

    declare({}, extends=Link)


def _shape_parent() -> None:
    @shape
    class Form(Shape):
        pass

    declare({}, extends=Form)


def _edge_count() -> None:
    @edge_type(source="A", target="A", per_source=(2, 1))
    class Wrong(Edge):
        pass


def _edge_of_plain() -> None:
    @edge_type(source=Plain, target="A")
    class Wrong(Edge):
        pass


def _edge_with_inherited_key() -> None:
    @node_type
    class Base(Node):
        a: str = predicate(key=True)

    @edge_type(source="A", target="A")
    class Wrong(Base):
        pass


def _edge_with_source() -> None:
    @edge_type(source="A", target="A")
    class Wrong(Edge):
        source: str


def _shape_of_plain() -> None:
    @shape(target=Plain)
    class Wrong(Shape):
        pass


def _lower_case_shape() -> None:
    @shape
    class wrong(Shape):  # noqa: N801 - the point
        pass


def _wrong_shape_field() -> None:
    @shape
    class Wrong(Shape):
        a: str = predicate(min_value=3)


WRONG_CLASSES = [
    (_lower_case_type, "'wrong' can't name a type", "start with a capital letter"),
    (_untyped_predicate, "Wrong.field", "write 'field: str = ...'"),
    (_two_keys, "Wrong: a and b", "one key"),
    (_two_labels, "Wrong: a and b", "one label"),
    (_one_iri_twice, "Wrong.b", "choose another"),
    (_type_iri, "Wrong: iri='no iri'", "absolute one"),
    (_unknown_in_group, "Wrong: unique names 'c'", "fields are a, b"),
    (_lone_in_group, "Wrong: unique=('a',)", "like unique=[('code', 'version')]"),
    (_text_as_group, "Wrong: unique='ab'", "like unique=[('code', 'version')]"),
    (_twice_in_group, "Wrong: index=('a', 'a')", "like index=[('code', 'version')]"),
    (_list_in_group, "Wrong.c", "use scalar fields"),
    (_field_of_parent, "Wrong.a: Base already declares it", "rename it"),
    (_two_parents, "Wrong", "can extend only one other type"),
    (_plain_parent, "Wrong: Plain is not a node type", "must be decorated first"),
    (_edge_parent, "Wrong: Link is not a node type", "only node types"),
    (_shape_parent, "Wrong: Form is not a node type", "only node types"),
    (_edge_count, "Wrong: per_source=(2, 1)", "use (least, most)"),
    (_edge_of_plain, "Wrong: source=", "give the class or its name"),
    (_edge_with_inherited_key, "Wrong: it inherits the key a of Base", "a key of its own"),
    (_edge_with_source, "Wrong.source", "rename it"),
    (_shape_of_plain, "Wrong: target=", "give the class or its name"),
    (_lower_case_shape, "'wrong' can't name a type", "start with a capital letter"),
    (_wrong_shape_field, "Wrong.a", "remove it or change the type"),
]


@pytest.mark.parametrize(
    ("wrong", "where", "fix"),
    WRONG_CLASSES,
    ids=[each.__name__.strip("_") for each, _, _ in WRONG_CLASSES],
)
def test_a_wrong_class_is_refused_with_class_and_fix(wrong, where, fix):
    """The message starts with where, and says what to do."""
    with pytest.raises(DeclarationError) as refused:
        wrong()
    assert refused.value.message.startswith(where)
    assert fix in refused.value.message


# ---------------------------------------------------------------------------- wrong functions


def _no_docstring(ctx: Context) -> None:
    pass


def no_parameter() -> None:
    """Described."""


def keyword_context(*, ctx: Context) -> None:
    """Described."""


def wrong_context(name: str) -> None:
    """Described."""


def untyped(ctx: Context, name) -> None:
    """Described."""


def spread(ctx: Context, *names: str) -> None:
    """Described."""


def keywords(ctx: Context, **names: str) -> None:
    """Described."""


def by_position(ctx: Context, name: str, /) -> None:
    """Described."""


def no_return(ctx: Context):
    """Described."""


def control(ctx: Context, branch: str) -> None:
    """Described."""


def upper_case(ctx: Context, Name: str) -> None:  # noqa: N803 - the point
    """Described."""


def unusable(ctx: Context, name: bytes) -> None:
    """Described."""


def unusable_return(ctx: Context) -> bytes:
    """Described."""


def unreadable(ctx: Context, name: "str |") -> None:  # noqa: F722 - the point
    """Described."""


def unreadable_return(ctx: Context) -> "lsit[str]":  # noqa: F821 - the point
    """Described."""


def wrong_default(ctx: Context, count: int = "3") -> None:
    """Described."""


def nested(ctx: Context, rows: list[list[int]]) -> None:
    """Described."""


WRONG_FUNCTIONS = [
    (_no_docstring, "add a docstring"),
    (no_parameter, "def no_parameter(ctx: Context, ...)"),
    (keyword_context, "def keyword_context(ctx: Context, ...)"),
    (wrong_context, "must be a Context"),
    (untyped, "needs a type, like 'name: str'"),
    (spread, "remove * and /"),
    (keywords, "remove * and /"),
    (by_position, "remove * and /"),
    (no_return, "-> None"),
    (control, "rename it"),
    (upper_case, "rename it"),
    (unusable, "use str"),
    (unusable_return, "use str"),
    (unreadable, "correct it"),
    (unreadable_return, "check its names"),
    (wrong_default, "value of the field's type"),
    (nested, "make the inner list a field"),
]


@pytest.mark.parametrize(
    ("wrong", "fix"), WRONG_FUNCTIONS, ids=[each.__name__.strip("_") for each, _ in WRONG_FUNCTIONS]
)
@pytest.mark.parametrize(
    ("decorate", "identifier"), [(capability, "a.op"), (meta_capability, "trails.meta.op")]
)
def test_a_wrong_function_is_refused_with_its_id_and_fix(decorate, identifier, wrong, fix):
    """The message starts with the id, and says what to do."""
    with pytest.raises(DeclarationError) as refused:
        decorate(identifier)(wrong)
    assert refused.value.message.startswith(identifier)
    assert fix in refused.value.message
    assert not hasattr(wrong, MARK)


def test_a_function_is_one_capability():
    """A second decorator is refused, whichever it is."""

    @capability("a.op")
    def op(ctx: Context) -> None:
        """Described."""

    for again in (capability("b.op"), meta_capability("trails.meta.op")):
        with pytest.raises(DeclarationError, match="op is declared twice"):
            again(op)


def test_a_policy_above_its_capability_is_refused():
    """The descriptor would not know of it."""
    with pytest.raises(DeclarationError, match=r"put @policy\('four-eyes'\) below @capability"):

        @policy("four-eyes")
        @capability("a.op")
        def op(ctx: Context) -> None:
            """Described."""


def test_an_unknown_scope_is_refused():
    """The message lists the scopes there are."""
    with pytest.raises(DeclarationError, match=r"trails\.meta\.op: .*runtime, builder, dev"):
        meta_capability("trails.meta.op", scope="root")


@pytest.mark.parametrize("name", ["side_effects", "preconditions", "deprecates"])
def test_one_text_is_not_a_list_of_texts(name):
    """A lone text would silently become a list of its letters."""
    with pytest.raises(DeclarationError, match=rf"a\.op: {name} .*write \['mail'\]"):
        capability("a.op", **{name: "mail"})


@pytest.mark.parametrize("identifier", ["A.op", "a..op", "a op", "trails.op", ""])
def test_a_wrong_capability_id_is_refused_before_the_function_is_seen(identifier):
    """The decorator's own line is where the error is."""
    with pytest.raises(DeclarationError, match=re.escape(repr(identifier))):
        capability(identifier)


def test_a_misspelled_forward_reference_is_found_when_registered():
    """What needs the other types is checked when they are known, all of it at once."""

    @node_type
    class Wrong(Node):
        one: Ref["Nowhere"]  # noqa: F821 - the point
        many: list[Ref["Elsewhere"]]  # noqa: F821 - the point

    with pytest.raises(RegistryError) as refused, App(Wrong):
        pass
    for part in ("Wrong.one refers to Nowhere", "Wrong.many refers to Elsewhere"):
        assert part in refused.value.message
