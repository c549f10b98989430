"""``@node_type``, ``@edge_type``, ``@shape``: declare classes.

Each decorator reads the annotations, checks what can be checked without the other types, and
stores a descriptor on the class. A ``Shape`` is a structured value that capabilities take and
return.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NoReturn, TypeVar, dataclass_transform, overload

import msgspec

from trails.authoring.annotations import Forward, Hold, evaluate, read_annotation
from trails.authoring.nodes import Edge, Node
from trails.authoring.predicates import UNSET, Predicate, describe
from trails.errors import DeclarationError, FieldError, ValidationError
from trails.model.names import check_term, check_type_name
from trails.model.types import (
    REF,
    EdgeEnds,
    PredicateDescriptor,
    ShapeDescriptor,
    TypeDescriptor,
    ValueType,
)


class Shape:
    """Base of shapes; constraints are checked when a capability takes or returns a value."""

    __trails__: ClassVar[ShapeDescriptor]
    __trails_held__: ClassVar[Mapping[str, Hold]] = {}

    def __init__(self, **values: object) -> None:
        """Set fields by name."""
        descriptor = self.__trails__
        known = descriptor.by_name
        if not values.keys() <= known.keys():
            unknown = [name for name in values if name not in known]
            raise ValidationError(
                FieldError(name, "unknown_field", f"{descriptor.name} has no field {name!r}")
                for name in unknown
            )
        own = self.__dict__
        for name, default, many in descriptor.defaults:
            given = values.get(name, default)
            if many:
                given = list(given) if given is not None else []  # type: ignore[call-overload]
            own[name] = given
        for name, hold in self.__trails_held__.items():
            own[name] = hold(own[name])

    def __eq__(self, other: object) -> bool:
        """Equal when all fields are."""
        return type(other) is type(self) and vars(self) == vars(other)

    def __hash__(self) -> int:
        """By identity, because shapes are mutable."""
        return id(self)

    def __repr__(self) -> str:
        """The fields."""
        inner = ", ".join(f"{name}={value!r}" for name, value in vars(self).items())
        return f"{type(self).__name__}({inner})"


C = TypeVar("C")
RESERVED = frozenset(
    name for base in (Node, Edge) for name in vars(base) if not name.startswith("__")
) | {"id", "iri", "type"}
"""Names that no field may have, because every node has them."""


@overload
@dataclass_transform(kw_only_default=True)
def node_type(cls: type[C], /) -> type[C]: ...
@overload
@dataclass_transform(kw_only_default=True)
def node_type(
    *,
    extends: type | None = None,
    unique: Iterable[Sequence[str]] = (),
    index: Iterable[Sequence[str]] = (),
    iri: str = "",
    abstract: bool = False,
) -> Callable[[type[C]], type[C]]: ...
@dataclass_transform(kw_only_default=True)
def node_type(
    cls: type[C] | None = None,
    /,
    *,
    extends: type | None = None,
    unique: Iterable[Sequence[str]] = (),
    index: Iterable[Sequence[str]] = (),
    iri: str = "",
    abstract: bool = False,
) -> Any:
    """Declare a node type.

    ``extends`` (or plain inheritance) takes over another type's fields; ``unique`` lists
    groups of fields that must differ together; ``index`` lists pairs that are filtered by
    the first and sorted by the second; ``iri`` names the RDF class. An ``abstract`` type has no
    instances of its own: the types that extend it have its fields, and references and queries by
    its name include all of them.
    """
    scope = _caller_scope()

    def declare(target: type[C]) -> type[C]:
        return _declare_type(
            target, Node, scope, extends, unique, index, iri, None, abstract=abstract
        )

    return declare if cls is None else declare(cls)


@dataclass_transform(kw_only_default=True)
def edge_type(
    *,
    source: type | str,
    target: type | str,
    per_source: tuple[int, int | None] = (0, None),
    per_target: tuple[int, int | None] = (0, None),
    unique: Iterable[Sequence[str]] = (),
    index: Iterable[Sequence[str]] = (),
    iri: str = "",
) -> Callable[[type[C]], type[C]]:
    """Declare a relation that carries fields: one edge for each pair of source and target.

    If a field has ``key=True``, there can be several between a pair, one for each value of it.
    ``per_source`` and ``per_target`` are (least, most) edges at each such node.
    """
    scope = _caller_scope()

    def declare(cls: type[C]) -> type[C]:
        ends = EdgeEnds(
            _end_name(cls, "source", source),
            _end_name(cls, "target", target),
            per_source,
            per_target,
        )
        return _declare_type(cls, Edge, scope, None, unique, index, iri, ends)

    return declare


@overload
@dataclass_transform(kw_only_default=True)
def shape(cls: type[C], /) -> type[C]: ...
@overload
@dataclass_transform(kw_only_default=True)
def shape(*, target: type | str | None = None) -> Callable[[type[C]], type[C]]: ...
@dataclass_transform(kw_only_default=True)
def shape(cls: type[C] | None = None, /, *, target: type | str | None = None) -> Any:
    """Declare a structured value for a capability's input or output.

    With ``target`` it adds constraints to that node type's fields of the same names.
    """
    scope = _caller_scope()

    def declare(made: type[C]) -> type[C]:
        own, held = _shape_fields(made, scope, stored=target is not None)
        end = None if target is None else _end_name(made, "target", target)
        descriptor = compose_shape(made.__name__, own, made.__doc__ or "", end)
        _strip(made, own, own)
        _adopt(made, Shape)
        made.__trails_held__ = held  # type: ignore[attr-defined]
        made.__trails__ = descriptor  # type: ignore[attr-defined]
        return made

    return declare if cls is None else declare(cls)


def compose_shape(
    name: str, own: Mapping[str, PredicateDescriptor], description: str, target: str | None
) -> ShapeDescriptor:
    """Check a shape as a whole and make its descriptor."""
    check_type_name(name)
    if target is not None:
        _check_constraints(name, own)
    return ShapeDescriptor(
        name=name,
        fields=tuple(own.values()),
        description=clean_description(description),
        target=target,
    )


def clean_description(text: str) -> str:
    """A docstring without its indentation and without spaces at the ends of lines."""
    lines = (line.rstrip() for line in inspect.cleandoc(text).split("\n"))
    return "\n".join(lines).strip("\n")


def _check_constraints(name: str, fields: Mapping[str, PredicateDescriptor]) -> None:
    """Refuse what a shape can't add to a node type, since it would have no effect."""
    for field in fields.values():
        for what, given in (("key", field.key), ("unique", field.unique)):
            if given:
                raise DeclarationError(
                    f"{name}.{field.name}: a shape can't make a field of its target {what}; "
                    f"declare {what}=True on the field of the node type"
                )


def _declare_type(  # noqa: PLR0913 - one argument a part of the declaration
    cls: type[C],
    base: type,
    scope: Mapping[str, object],
    extends: type | None,
    unique: Iterable[Sequence[str]],
    index: Iterable[Sequence[str]],
    iri: str,
    edge: EdgeEnds | None,
    *,
    abstract: bool = False,
) -> type[C]:
    check_type_name(cls.__name__)
    above = _parent_of(cls, extends)
    own, held = _own_fields(cls, scope, [] if extends is None else [extends], stored=True)
    descriptor = compose_type(
        cls.__name__,
        own,
        description=cls.__doc__ or "",
        parent=None if above is None else _type_of(above),
        unique=unique,
        index=index,
        iri=iri,
        edge=edge,
        abstract=abstract,
    )
    _strip(cls, own, descriptor.by_name)
    _adopt(cls, base)
    inherited = {} if above is None else above.__trails_held__  # type: ignore[attr-defined]
    cls.__trails_held__ = {**inherited, **held}  # type: ignore[attr-defined]
    cls.__trails__ = descriptor  # type: ignore[attr-defined]
    return cls


def compose_type(  # noqa: PLR0913 - one argument a part of the declaration
    name: str,
    own: Mapping[str, PredicateDescriptor],
    *,
    description: str = "",
    parent: TypeDescriptor | None = None,
    unique: Iterable[Sequence[str]] = (),
    index: Iterable[Sequence[str]] = (),
    iri: str = "",
    edge: EdgeEnds | None = None,
    abstract: bool = False,
) -> TypeDescriptor:
    """Check a type as a whole, with the fields that it inherits, and make its descriptor."""
    check_type_name(name)
    check_term(name, iri)
    if edge is not None:
        _check_multiplicities(name, edge)
    inherited = {} if parent is None else dict(parent.by_name)
    for field in own:
        if field in inherited:
            raise DeclarationError(
                f"{name}.{field}: {parent.name if parent else ''} already declares it; a subtype "
                "keeps its parent's fields as they are, so rename it or use "
                "@shape(target=...) to add constraints"
            )
    ends = {} if edge is None else _end_fields(name, edge)
    for field in own.keys() & ends.keys():
        raise DeclarationError(
            f"{name}.{field}: every edge has its {field}, which @edge_type({field}=...) types; "
            "rename it"
        )
    if edge is not None and parent is not None and parent.key is not None:
        raise DeclarationError(
            f"{name}: it inherits the key {parent.key.name} of {parent.name}, but the id of an "
            "edge depends on its ends too; declare a key of its own and do not inherit that one"
        )
    fields = {**ends, **inherited, **own}
    _check_fields(name, fields)
    return TypeDescriptor(
        name=name,
        fields=tuple(fields.values()),
        description=clean_description(description),
        iri=iri or name,
        extends=None if parent is None else parent.name,
        unique=_field_groups(name, "unique", fields, unique)
        + (parent.unique if parent is not None else ()),
        index=_field_groups(name, "index", fields, index)
        + (parent.index if parent is not None else ()),
        edge=edge,
        abstract=abstract,
    )


def _decorated_bases(cls: type) -> list[type]:
    """The nearest decorated classes that a class inherits, directly or through plain ones."""
    found = [base for base in cls.__mro__[1:] if "__trails__" in vars(base)]
    return [base for base in found if not any(base in other.__mro__[1:] for other in found)]


def _mixins(cls: type, parents: Iterable[type] = ()) -> list[type]:
    """The plain classes whose fields a class takes over, the farthest first.

    Those of its parents are left out: their fields come with the parents.
    """
    known = {*Node.__mro__, *Edge.__mro__, *Shape.__mro__}
    for base in (*_decorated_bases(cls), *parents):
        known.update(base.__mro__)
    return [base for base in reversed(cls.__mro__[1:]) if base not in known]


def _parent_of(cls: type, extends: type | None) -> type | None:
    bases = _decorated_bases(cls)
    if extends is not None and extends not in bases:
        bases.append(extends)
    if not bases:
        return None
    if len(bases) > 1:
        raise DeclarationError(f"{cls.__name__}: a type can extend only one other type")
    found = bases[0]
    descriptor = getattr(found, "__trails__", None)
    if not isinstance(descriptor, TypeDescriptor) or descriptor.edge is not None:
        raise DeclarationError(
            f"{cls.__name__}: {found.__name__} is not a node type; only node types can be "
            "extended, and they must be decorated first"
        )
    return found


def _type_of(cls: type) -> TypeDescriptor:
    descriptor: TypeDescriptor = cls.__trails__  # type: ignore[attr-defined]
    return descriptor


_Fields = dict[str, PredicateDescriptor]
_Holds = dict[str, Hold]


def _shape_fields(
    cls: type, scope: Mapping[str, object], *, stored: bool
) -> tuple[_Fields, _Holds]:
    """The fields of a shape, of the shapes and of the plain classes that it inherits."""
    sources: list[tuple[type, _Fields, _Holds]] = []
    for base in reversed(_decorated_bases(cls)):
        descriptor = vars(base)["__trails__"]
        if not isinstance(descriptor, ShapeDescriptor):
            raise DeclarationError(
                f"{cls.__name__}: {base.__name__} is not a shape; a shape can inherit other shapes "
                "and plain classes"
            )
        held: _Holds = base.__trails_held__  # type: ignore[attr-defined]
        sources.append((base, dict(descriptor.by_name), held))
    sources += [
        (source, *_declared_fields(source, cls.__name__, scope, stored=stored))
        for source in (*_mixins(cls), cls)
    ]
    return _joined(cls, sources)


def _own_fields(
    cls: type, scope: Mapping[str, object], parents: Iterable[type], *, stored: bool
) -> tuple[_Fields, _Holds]:
    """The fields of a class and of the plain classes that it inherits."""
    return _joined(
        cls,
        [
            (source, *_declared_fields(source, cls.__name__, scope, stored=stored))
            for source in (*_mixins(cls, parents), cls)
        ],
    )


def _joined(cls: type, sources: Sequence[tuple[type, _Fields, _Holds]]) -> tuple[_Fields, _Holds]:
    """The fields of several classes, the farthest first.

    A class replaces what it inherits. Two classes of which neither inherits the other have to
    agree, unless a class that inherits both declares the field anew: none of the two is dropped
    silently.
    """
    fields: _Fields = {}
    held: _Holds = {}
    for at, (source, found, holds) in enumerate(sources):
        for name, field in found.items():
            rivals = [
                other
                for other, declared, _ in sources[:at]
                if name in declared
                and not issubclass(source, other)
                and not _is_same(declared[name], field)
            ]
            settled = any(
                name in declared and all(issubclass(near, each) for each in (source, *rivals))
                for near, declared, _ in sources[at + 1 :]
            )
            if rivals and not settled:
                raise DeclarationError(
                    f"{cls.__name__}.{name}: {rivals[0].__name__} and {source.__name__} declare it "
                    f"differently; declare it in {cls.__name__}, or rename one"
                )
            fields[name] = field
            held.pop(name, None)
            if name in holds:
                held[name] = holds[name]
    return fields, held


def _is_same(one: PredicateDescriptor, other: PredicateDescriptor) -> bool:
    return msgspec.structs.replace(one, declared_in=other.declared_in) == other


def _declared_fields(
    source: type, owner: str, scope: Mapping[str, object], *, stored: bool
) -> tuple[_Fields, _Holds]:
    fields: _Fields = {}
    held: _Holds = {}
    annotations = inspect.get_annotations(source)
    for name, annotation in annotations.items():
        given = vars(source).get(name, UNSET)
        if name.startswith("_") or str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        where = f"{source.__name__}.{name}"
        check_free_name(source.__name__, name)
        reading = read_annotation(evaluate(annotation, source.__module__, scope, where), where)
        whole = (
            reading.declaration(where, given, UNSET)
            if isinstance(given, Predicate)
            else reading.declaration(where, None, given)
        )
        fields[name] = describe(owner, name, reading.type, whole, stored=stored)
        if reading.hold is not None:
            held[name] = reading.hold
    for name, value in vars(source).items():
        if isinstance(value, Predicate) and name not in annotations:
            raise DeclarationError(
                f"{source.__name__}.{name}: predicate() needs a type; write '{name}: str = ...'"
            )
    return fields, held


def check_free_name(owner: str, name: str) -> None:
    """Refuse a field that would hide what every node has."""
    if name in RESERVED:
        raise DeclarationError(f"{owner}.{name}: {name!r} is a name that every node has; rename it")


def _end_fields(owner: str, edge: EdgeEnds) -> dict[str, PredicateDescriptor]:
    return {
        name: PredicateDescriptor(
            name=name,
            type=ValueType(REF, target=target),
            iri=name,
            description=f"The {target} at which the edge {verb}.",
            min_count=1,
            declared_in=owner,
        )
        for name, target, verb in (
            ("source", edge.source, "starts"),
            ("target", edge.target, "ends"),
        )
    }


def _check_multiplicities(owner: str, edge: EdgeEnds) -> None:
    for name, (low, high) in (("per_source", edge.per_source), ("per_target", edge.per_target)):
        if low < 0 or (high is not None and high < max(low, 1)):
            raise DeclarationError(
                f"{owner}: {name}={(low, high)} leaves no legal number of edges; "
                "use (least, most) with 0 <= least <= most, or None for no upper limit"
            )


def _check_fields(owner: str, fields: Mapping[str, PredicateDescriptor]) -> None:
    for mark in ("key", "label"):
        marked = [name for name, field in fields.items() if getattr(field, mark)]
        if len(marked) > 1:
            raise DeclarationError(
                f"{owner}: {' and '.join(marked)} are both {mark}=True; a type has one {mark}"
            )
    used: dict[str, str] = {}
    for name, field in fields.items():
        if used.setdefault(field.iri, name) != name:
            raise DeclarationError(
                f"{owner}.{name}: its IRI {field.iri!r} is already used by {used[field.iri]}; "
                "choose another"
            )


def _field_groups(
    owner: str,
    what: str,
    fields: Mapping[str, PredicateDescriptor],
    groups: Iterable[Sequence[str]],
) -> tuple[tuple[str, ...], ...]:
    checked = []
    for group in groups:
        if isinstance(group, str) or len(group) < 2 or len(set(group)) != len(group):
            raise DeclarationError(
                f"{owner}: {what}={group!r} must be a group of two or more different fields, "
                f"like {what}=[('code', 'version')]"
            )
        for name in group:
            field = fields.get(name)
            if field is None:
                raise DeclarationError(
                    f"{owner}: {what} names {name!r}, which is not a field; "
                    f"fields are {', '.join(fields)}"
                )
            row = field.type.row
            if field.many or (row is not None and row.sort_key is None):
                raise DeclarationError(
                    f"{owner}.{name}: {field.type} can't be part of {what}; use scalar fields"
                )
        checked.append(tuple(group))
    return tuple(checked)


def _end_name(cls: type, side: str, end: object) -> str:
    if isinstance(end, str):
        return end
    if isinstance(end, Forward):
        return end.name
    if isinstance(end, type) and isinstance(getattr(end, "__trails__", None), TypeDescriptor):
        return end.__name__
    raise DeclarationError(
        f"{cls.__name__}: {side}={end!r} is not a node type; give the class or its name"
    )


class _NoDefault:
    """Hides an attribute of a plain base class that has a field's name.

    Without it a field that is not loaded yet would be read from that class.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> NoReturn:
        raise AttributeError(f"{owner.__name__} has no attribute {self._name!r}")


def _strip(cls: type, own: Iterable[str], fields: Iterable[str]) -> None:
    """Remove its own declarations, so that only instances have the attributes.

    Those of plain base classes stay, because other types may inherit them too.
    """
    for name in own:
        if name in vars(cls):
            delattr(cls, name)
    for name in fields:
        if name not in vars(cls) and any(name in vars(base) for base in cls.__mro__[1:]):
            setattr(cls, name, _NoDefault(name))


def _adopt(cls: type, base: type) -> None:
    """Give a class that does not inherit the base its methods, as if it did."""
    if issubclass(cls, base):
        return
    for ancestor in reversed(base.__mro__[:-1]):
        for name, member in vars(ancestor).items():
            if name in {"__dict__", "__weakref__", "__module__", "__doc__", "__annotations__"}:
                continue
            if name not in vars(cls) or vars(cls)[name] is vars(object).get(name):
                setattr(cls, name, member)


def _caller_scope() -> Mapping[str, object]:
    """Local names where the class is declared (types made inside a function)."""
    return sys._getframe(2).f_locals  # noqa: SLF001 - how annotations see their scope
