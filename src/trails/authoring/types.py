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

from trails.authoring.nodes import Edge, Node
from trails.authoring.predicates import Forward, Predicate, describe, evaluate, read_value_type
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
_PLAIN = Predicate()
_RESERVED = frozenset(
    name for base in (Node, Edge) for name in vars(base) if not name.startswith("__")
) | {"id", "iri", "type"}


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
) -> Any:
    """Declare a node type.

    ``extends`` (or plain inheritance) takes over another type's fields; ``unique`` lists
    groups of fields that must differ together; ``index`` lists pairs that are filtered by
    the first and sorted by the second; ``iri`` names the RDF class.
    """
    scope = _caller_scope()

    def declare(target: type[C]) -> type[C]:
        return _declare_type(target, Node, scope, extends, unique, index, iri, None)

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

    ``per_source`` and ``per_target`` are (least, most) edges at each such node.
    """
    scope = _caller_scope()

    def declare(cls: type[C]) -> type[C]:
        for name, (low, high) in (("per_source", per_source), ("per_target", per_target)):
            if low < 0 or (high is not None and high < max(low, 1)):
                raise DeclarationError(
                    f"{cls.__name__}: {name}={(low, high)} leaves no legal number of edges; "
                    "use (least, most) with 0 <= least <= most, or None for no upper limit"
                )
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
        name = made.__name__
        check_type_name(name)
        own = _inherited_shape_fields(made) | _own_fields(made, scope, stored=target is not None)
        if target is not None:
            _check_constraints(name, own)
        _strip(made, own)
        _adopt(made, Shape)
        made.__trails__ = ShapeDescriptor(  # type: ignore[attr-defined]
            name=name,
            fields=tuple(own.values()),
            description=inspect.cleandoc(made.__doc__ or ""),
            target=None if target is None else _end_name(made, "target", target),
        )
        return made

    return declare if cls is None else declare(cls)


def _check_constraints(name: str, fields: Mapping[str, PredicateDescriptor]) -> None:
    """Refuse what a shape can't add to a node type, since it would have no effect."""
    for field in fields.values():
        for what, given in (("key", field.key), ("unique", field.unique)):
            if given:
                raise DeclarationError(
                    f"{name}.{field.name}: a shape can't make a field of its target {what}; "
                    f"declare {what}=True on the field of the node type"
                )


def _declare_type(
    cls: type[C],
    base: type,
    scope: Mapping[str, object],
    extends: type | None,
    unique: Iterable[Sequence[str]],
    index: Iterable[Sequence[str]],
    iri: str,
    edge: EdgeEnds | None,
) -> type[C]:
    name = cls.__name__
    check_type_name(name)
    check_term(name, iri)
    parent = _parent_of(cls, extends)
    own = _own_fields(cls, scope, stored=True)
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
    fields = {**ends, **inherited, **own}
    _check_fields(name, fields, edge)
    _strip(cls, own)
    _adopt(cls, base)
    cls.__trails__ = TypeDescriptor(  # type: ignore[attr-defined]
        name=name,
        fields=tuple(fields.values()),
        description=inspect.cleandoc(cls.__doc__ or ""),
        iri=iri or name,
        extends=None if parent is None else parent.name,
        unique=_field_groups(name, "unique", fields, unique)
        + (parent.unique if parent is not None else ()),
        index=_field_groups(name, "index", fields, index)
        + (parent.index if parent is not None else ()),
        edge=edge,
    )
    return cls


def _decorated_bases(cls: type) -> list[type]:
    """The nearest decorated classes that a class inherits, directly or through plain ones."""
    found = [base for base in cls.__mro__[1:] if "__trails__" in vars(base)]
    return [base for base in found if not any(base in other.__mro__[1:] for other in found)]


def _mixins(cls: type) -> list[type]:
    """The plain classes whose fields a class takes over, the farthest first."""
    known = {*Node.__mro__, *Edge.__mro__, *Shape.__mro__}
    for base in _decorated_bases(cls):
        known.update(base.__mro__)
    return [base for base in reversed(cls.__mro__[1:]) if base not in known]


def _parent_of(cls: type, extends: type | None) -> TypeDescriptor | None:
    bases = _decorated_bases(cls)
    if extends is not None and extends not in bases:
        bases.append(extends)
    if not bases:
        return None
    if len(bases) > 1:
        raise DeclarationError(f"{cls.__name__}: a type can extend only one other type")
    descriptor = getattr(bases[0], "__trails__", None)
    if not isinstance(descriptor, TypeDescriptor) or descriptor.edge is not None:
        raise DeclarationError(
            f"{cls.__name__}: {bases[0].__name__} is not a node type; only node types can be "
            "extended, and they must be decorated first"
        )
    return descriptor


def _inherited_shape_fields(cls: type) -> dict[str, PredicateDescriptor]:
    fields: dict[str, PredicateDescriptor] = {}
    for base in reversed(_decorated_bases(cls)):
        descriptor = vars(base)["__trails__"]
        if not isinstance(descriptor, ShapeDescriptor):
            raise DeclarationError(
                f"{cls.__name__}: {base.__name__} is not a shape; a shape can inherit other shapes "
                "and plain classes"
            )
        fields |= descriptor.by_name
    return fields


def _own_fields(
    cls: type, scope: Mapping[str, object], *, stored: bool
) -> dict[str, PredicateDescriptor]:
    """The fields of a class and of the plain classes that it inherits; the nearest one counts."""
    fields: dict[str, PredicateDescriptor] = {}
    for source in (*_mixins(cls), cls):
        fields |= _declared_fields(source, cls.__name__, scope, stored=stored)
    return fields


def _declared_fields(
    source: type, owner: str, scope: Mapping[str, object], *, stored: bool
) -> dict[str, PredicateDescriptor]:
    fields: dict[str, PredicateDescriptor] = {}
    annotations = inspect.get_annotations(source)
    for name, annotation in annotations.items():
        given = vars(source).get(name, _PLAIN)
        if name.startswith("_") or str(annotation).startswith(("ClassVar", "typing.ClassVar")):
            continue
        where = f"{source.__name__}.{name}"
        if not isinstance(given, Predicate):
            given = Predicate(default=given)
        if name in _RESERVED:
            raise DeclarationError(f"{where}: {name!r} is a name that every node has; rename it")
        evaluated = evaluate(annotation, source.__module__, scope, where)
        fields[name] = describe(
            owner, name, read_value_type(evaluated, where), given, stored=stored
        )
    for name, value in vars(source).items():
        if isinstance(value, Predicate) and name not in annotations:
            raise DeclarationError(
                f"{source.__name__}.{name}: predicate() needs a type; write '{name}: str = ...'"
            )
    return fields


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


def _check_fields(
    owner: str, fields: Mapping[str, PredicateDescriptor], edge: EdgeEnds | None
) -> None:
    for mark in ("key", "label"):
        marked = [name for name, field in fields.items() if getattr(field, mark)]
        if len(marked) > 1:
            raise DeclarationError(
                f"{owner}: {' and '.join(marked)} are both {mark}=True; a type has one {mark}"
            )
        if marked and mark == "key" and edge is not None:
            raise DeclarationError(
                f"{owner}.{marked[0]}: an edge is identified by its ends; remove key=True"
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


def _strip(cls: type, fields: Iterable[str]) -> None:
    """Remove the declarations, so that only instances have the attributes.

    Those of plain base classes stay, because other types may inherit them too.
    """
    for name in fields:
        if name in vars(cls):
            delattr(cls, name)
        if any(name in vars(base) for base in cls.__mro__[1:]):
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
