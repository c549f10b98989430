"""The Registry: an immutable snapshot of all descriptors, with a version and a digest.

A request keeps the snapshot that it started with; registering makes a new one. Everything is
in id order, so the order of declarations has no effect. ``Declared`` holds the types and
shapes that one actor sees. ``RegistryCell`` holds the current snapshot: a swap is one assignment,
so each reader sees one. ``collect`` finds declarations.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from functools import cached_property
from types import MappingProxyType, ModuleType
from typing import TypeVar, cast

import msgspec

from trails.authoring.capabilities import MARK, RULE
from trails.errors import RegistryError
from trails.model.caches import LRUCache
from trails.model.capabilities import Capability, PolicyRule, StoredQuery
from trails.model.iris import digest_of
from trails.model.names import BUILTIN_TOOLS, check_tool_name, portable_name, suggest
from trails.model.types import (
    OBJECT,
    REF,
    PredicateDescriptor,
    Schema,
    ShapeDescriptor,
    TypeDescriptor,
    ValueType,
    can_constrain,
)
from trails.model.visibility import Visibility

T = TypeVar("T")


class Registry:
    """One consistent set of types, shapes, capabilities, meta-capabilities and queries."""

    def __init__(
        self,
        *,
        version: int = 0,
        types: Iterable[type] = (),
        shapes: Iterable[type] = (),
        capabilities: Iterable[Capability] = (),
        queries: Iterable[StoredQuery] = (),
        rules: Iterable[PolicyRule] = (),
    ) -> None:
        self.version = version
        self.classes: Mapping[str, type] = _sorted_by(lambda each: each.__name__, types)
        self.shape_classes: Mapping[str, type] = _sorted_by(lambda each: each.__name__, shapes)
        every = tuple(capabilities)
        self.capabilities: Mapping[str, Capability] = _sorted_by(
            lambda each: each.id, (each for each in every if each.meta is None)
        )
        self.metas: Mapping[str, Capability] = _sorted_by(
            lambda each: each.id, (each for each in every if each.meta is not None)
        )
        self.queries: Mapping[str, StoredQuery] = _sorted_by(lambda each: each.name, queries)
        self.rules: Mapping[str, PolicyRule] = _sorted_by(lambda each: each.name, rules)
        self.memo: dict[Hashable, object] = {}
        """What others have computed from it, which is gone when it is: see ``remember``."""

    @property
    def types(self) -> Mapping[str, TypeDescriptor]:
        """Type descriptors by name."""
        return self.schema.by_name

    @cached_property
    def shapes(self) -> Mapping[str, ShapeDescriptor]:
        """Shape descriptors by name."""
        return {
            name: cast(ShapeDescriptor, _descriptor(cls))
            for name, cls in self.shape_classes.items()
        }

    @cached_property
    def schema(self) -> Schema:
        """What the graph may hold."""
        return Schema.of(
            (cast(TypeDescriptor, _descriptor(cls)) for cls in self.classes.values()),
            self.shapes.values(),
        )

    @cached_property
    def digest(self) -> str:
        """The content address of all descriptors."""
        return digest_of(
            [
                self.schema.types,
                list(self.shapes.values()),
                [each.descriptor for each in self.capabilities.values()],
                [[each.descriptor, each.meta] for each in self.metas.values()],
                list(self.queries.values()),
            ]
        )

    @cached_property
    def tools(self) -> Mapping[str, Capability | StoredQuery]:
        """Everything callable, by tool name, in name order."""
        named: dict[str, Capability | StoredQuery] = {
            each.tool_name: each for each in (*self.capabilities.values(), *self.metas.values())
        }
        named.update({each.effective_tool_name: each for each in self.queries.values()})
        return MappingProxyType(dict(sorted(named.items())))

    def capability(self, identifier: str) -> Capability | None:
        """A runtime or meta-capability by id."""
        return self.capabilities.get(identifier) or self.metas.get(identifier)

    def rules_of(self, capability: Capability) -> tuple[PolicyRule, ...]:
        """The rules that check calls of a capability, in its order."""
        return tuple(self.rules[name] for name in capability.descriptor.policy_required)

    def restrict(self, permit: Callable[[Capability | StoredQuery], bool]) -> Registry:
        """The same registry with only the callables that ``permit`` accepts."""
        return Registry(
            version=self.version,
            types=self.classes.values(),
            shapes=self.shape_classes.values(),
            capabilities=(
                each for each in (*self.capabilities.values(), *self.metas.values()) if permit(each)
            ),
            queries=(each for each in self.queries.values() if permit(each)),
            rules=self.rules.values(),
        )


def with_queries(registry: Registry, queries: Iterable[StoredQuery]) -> Registry:
    """The same declarations with stored queries beside them, checked together."""
    joined = Registry(
        version=registry.version,
        types=registry.classes.values(),
        shapes=registry.shape_classes.values(),
        capabilities=(*registry.capabilities.values(), *registry.metas.values()),
        queries=(*registry.queries.values(), *queries),
        rules=registry.rules.values(),
    )
    check_registry(joined)
    return joined


def check_registry(registry: Registry) -> None:
    """Raise RegistryError with all conflicts, if there are any."""
    problems = [
        *_dangling_types(registry),
        *_abstract_inputs(registry),
        *_colliding_names(registry),
        *_dangling_rules(registry),
    ]
    if problems:
        raise RegistryError("; ".join(problems), problems=problems)


def _dangling_types(registry: Registry) -> Iterable[str]:
    known, shapes = registry.types, registry.shapes
    classes: dict[str, str] = {}
    for descriptor in known.values():
        if classes.setdefault(descriptor.iri, descriptor.name) != descriptor.name:
            yield (
                f"{descriptor.name} and {classes[descriptor.iri]} have the same class IRI "
                f"{descriptor.iri!r}; change one of them"
            )
        if descriptor.extends is not None and descriptor.extends not in known:
            yield f"{descriptor.name} extends {descriptor.extends}, which is not registered"
        for field in descriptor.fields:
            if field.target is not None and field.target not in known:
                yield (
                    f"{descriptor.name}.{field.name} refers to {field.target}, which is not a "
                    "registered node type; register it, or correct the name"
                )
    for shape in shapes.values():
        yield from _dangling_shape(shape, known, shapes)
    for capability in (*registry.capabilities.values(), *registry.metas.values()):
        given = capability.descriptor
        outputs = () if given.output_shape is None else (("its result", given.output_shape),)
        for name, value_type in (*((f.name, f.type) for f in given.input_shape), *outputs):
            yield from _dangling_value(f"{given.id}: {name}", value_type, known, shapes)
    for query in registry.queries.values():
        for param in query.params:
            yield from _dangling_value(f"{query.name}: {param.name}", param.type, known, shapes)


def _abstract_inputs(registry: Registry) -> Iterable[str]:
    """Parameters for which no call could give a value: new instances of an abstract type."""
    for capability in (*registry.capabilities.values(), *registry.metas.values()):
        given = capability.descriptor
        pending = [(field.name, field.type.scalar) for field in given.input_shape]
        seen: set[str] = set()
        while pending:
            name, scalar = pending.pop()
            target = scalar.target or ""
            if scalar.kind != OBJECT or target in seen:
                continue
            seen.add(target)
            found = registry.types.get(target)
            if found is not None and found.abstract:
                concrete = registry.schema.concrete(target)
                yield (
                    f"{given.id}: {name} is a new {target}, which is abstract; use Ref[{target}] "
                    f"for an existing one, or {' or '.join(concrete) or 'a type that extends it'}"
                )
            elif target in registry.shapes:
                shape = registry.shapes[target]
                pending += [(f"{name}.{each.name}", each.type.scalar) for each in shape.fields]


def _dangling_rules(registry: Registry) -> Iterable[str]:
    """Problems with the rules of a capability: unknown ones, or missing arguments."""
    rules = registry.rules
    for capability in (*registry.capabilities.values(), *registry.metas.values()):
        given = capability.descriptor
        names = [field.name for field in given.input_shape]
        for name in given.policy_required:
            rule = rules.get(name)
            if rule is None:
                hint = suggest(name, rules) if rules else "no rule is declared at all"
                yield (
                    f"{given.id} is judged by the rule {name!r}, which is not declared with "
                    f"@policy_rule; {hint}"
                )
                continue
            for each in rule.required:
                if each not in names:
                    hint = suggest(each, names) if names else "it takes none"
                    yield (
                        f"the rule {name!r} uses {each!r}, which is not a parameter of "
                        f"{given.id}; {hint}"
                    )


def _dangling_shape(
    shape: ShapeDescriptor,
    known: Mapping[str, TypeDescriptor],
    shapes: Mapping[str, ShapeDescriptor],
) -> Iterable[str]:
    if shape.target is None:
        for field in shape.fields:
            yield from _dangling_value(f"{shape.name}.{field.name}", field.type, known, shapes)
        return
    target = known.get(shape.target)
    if target is None:
        yield f"shape {shape.name} targets {shape.target}, which is not a registered node type"
        return
    for field in shape.fields:
        where = f"shape {shape.name}.{field.name} constrains {shape.target}"
        if not can_constrain(target, field):
            yield f"{where}, which has no field of that name and type ({field.type})"
        elif (end := target.by_name[field.name].target) != field.target:
            yield (
                f"{where}, whose {field.name} refers to {end}: a shape can't change that to "
                f"{field.target}; refer to {end} here, or declare another type there"
            )


def _dangling_value(
    where: str,
    value_type: ValueType,
    known: Mapping[str, TypeDescriptor],
    shapes: Mapping[str, ShapeDescriptor],
) -> Iterable[str]:
    scalar = value_type.scalar
    if scalar.kind == REF and scalar.target not in known:
        yield f"{where} refers to {scalar.target}, which is not a registered node type"
    if scalar.kind == OBJECT and scalar.target not in known and scalar.target not in shapes:
        yield f"{where} is a {scalar.target}, which is not a registered node type or shape"


def _colliding_names(registry: Registry) -> Iterable[str]:
    """Every tool name, and its spelling without dots, belongs to one thing only."""
    taken = {name: f"the built-in tool {name}" for name in BUILTIN_TOOLS}
    populations = (
        *((each.tool_name, f"meta-capability {each.id}") for each in registry.metas.values()),
        *((each.tool_name, f"capability {each.id}") for each in registry.capabilities.values()),
        *(
            (each.effective_tool_name, f"stored query {each.name}")
            for each in registry.queries.values()
        ),
    )
    for name, owner in populations:
        check_tool_name(name)
        portable = portable_name(name)
        other = taken.setdefault(portable, owner)
        if other is not owner:
            yield f"the tool name {name!r} of {owner} collides with {other}; rename one"
    for name in set(registry.types) & set(registry.shapes):
        yield f"{name} is both a node type and a shape; rename one"


def _descriptor(cls: type) -> object:
    return cls.__trails__  # type: ignore[attr-defined]


def _sorted_by(key: Callable[[T], str], items: Iterable[T]) -> Mapping[str, T]:
    """Index by key, in key order; the same key twice is refused."""
    found: dict[str, T] = {}
    for item in items:
        name = key(item)
        if found.setdefault(name, item) is not item:
            raise RegistryError(f"{name!r} is declared twice; rename or remove one")
    return MappingProxyType(dict(sorted(found.items())))


_SIGHTS = 64
"""Cached views of one registry, by visibility."""


class Declared(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """The visible declarations of a registry."""

    schema: Schema
    shapes: Mapping[str, ShapeDescriptor]
    memo: dict[Hashable, object] = msgspec.field(default_factory=dict)
    """What others have computed from it."""

    def knows(self, called: Capability | StoredQuery) -> bool:
        """Whether all types that a capability or query uses are visible."""
        if isinstance(called, StoredQuery):
            return all(self._has(field.type) for field in called.params)
        given = called.descriptor
        output = () if given.output_shape is None else (given.output_shape,)
        return all(map(self._has, (*(field.type for field in given.input_shape), *output)))

    def _has(self, value_type: ValueType) -> bool:
        return _exists(value_type, self.schema.by_name.keys() | self.shapes.keys())


def _exists(value_type: ValueType, known: AbstractSet[str]) -> bool:
    scalar = value_type.scalar
    return scalar.kind not in {REF, OBJECT} or scalar.target in known


def remember(owner: Registry | Declared, key: Hashable, make: Callable[[], T]) -> T:
    """What was computed from declarations, once; it may refer to them, and is gone with them.

    In a weak dictionary such a value would keep its key alive for ever.
    """
    found = owner.memo.get(key)
    if found is None:
        found = owner.memo.setdefault(key, make())
    return cast(T, found)


def _make_views() -> LRUCache[object, Declared]:
    return LRUCache(_SIGHTS)


def visible_declarations(registry: Registry, visibility: Visibility) -> Declared:
    """The declarations of a registry without what is hidden."""
    kept = remember(registry, _make_views, _make_views)
    return kept.get(visibility.key, lambda: _see(registry, visibility))


def _see(registry: Registry, visibility: Visibility) -> Declared:
    schema_filter = visibility.filter(registry.schema)
    shapes = {
        name: shape
        for name, shape in registry.shapes.items()
        if shape.target not in schema_filter.hidden
    }
    while True:
        known = schema_filter.schema.by_name.keys() | shapes.keys()
        left = {
            name: _restrict(
                shape, known, schema_filter.hidden_fields.get(shape.target or "", frozenset())
            )
            for name, shape in shapes.items()
        }
        # A shape without fields can't be given, so fields of its type go as well.
        found = {name: shape for name, shape in left.items() if shape.fields}
        if found.keys() == shapes.keys():
            return Declared(schema_filter.schema, found)
        shapes = found


def _restrict(
    shape: ShapeDescriptor, known: AbstractSet[str], hidden: frozenset[str]
) -> ShapeDescriptor:
    def is_left(field: PredicateDescriptor) -> bool:
        return field.name not in hidden and _exists(field.type, known)

    return msgspec.structs.replace(shape, fields=tuple(filter(is_left, shape.fields)))


Listener = Callable[[Registry], None]


class Declarations(msgspec.Struct, frozen=True):
    """Declarations that can be registered."""

    types: tuple[type, ...] = ()
    shapes: tuple[type, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    rules: tuple[PolicyRule, ...] = ()
    queries: tuple[StoredQuery, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any declaration."""
        return any(getattr(self, name) for name in self.__struct_fields__)

    def __add__(self, more: Declarations) -> Declarations:
        """Both; the same object twice counts once."""
        return Declarations(
            *(
                (*mine, *_unseen(theirs, mine))
                for mine, theirs in zip(
                    msgspec.structs.astuple(self), msgspec.structs.astuple(more), strict=True
                )
            )
        )

    def __sub__(self, less: Declarations) -> Declarations:
        """Without the objects of the other."""
        return Declarations(
            *(
                tuple(_unseen(mine, theirs))
                for mine, theirs in zip(
                    msgspec.structs.astuple(self), msgspec.structs.astuple(less), strict=True
                )
            )
        )


def accept_any(registry: Registry) -> None:
    """Accept every registry."""
    del registry


class RegistryCell:
    """Holds the current snapshot; registering checks, swaps and notifies listeners."""

    def __init__(self, own: Iterable[Capability] = ()) -> None:
        """``own``: built-in declarations, which can't be replaced."""
        # Re-entrant, so that a listener may register; held while listeners are called, so that
        # they get snapshots in order.
        self._lock = threading.RLock()
        self.current = Registry(capabilities=own)
        """The snapshot to pin for the length of a request."""
        self._own = frozenset((*self.current.capabilities, *self.current.metas))
        self._project = Declarations()
        self._listeners: list[Listener] = []
        self._seen: dict[tuple[str, str], str] = {}

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call ``listener`` with every new snapshot; the returned function stops that."""
        with self._lock:
            self._listeners.append(listener)

        def stop() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return stop

    def register(
        self,
        *,
        types: Iterable[type] = (),
        shapes: Iterable[type] = (),
        capabilities: Iterable[Capability] = (),
        queries: Iterable[StoredQuery] = (),
        rules: Iterable[PolicyRule] = (),
    ) -> Registry:
        """Add declarations; all of them or, with an error, none.

        A capability replaces an earlier version of itself. The same id and version with
        other content is refused, and so is an id in both registries.
        """
        added = Declarations(
            tuple(types), tuple(shapes), tuple(capabilities), tuple(rules), tuple(queries)
        )
        return self.add(added)

    def add(self, added: Declarations) -> Registry:
        """Register some declarations, likewise."""
        with self._lock:
            old = self.current
            replaced = self._check_versions(old, added.capabilities)
            self._check_functions(old, added.capabilities)
            kept = declarations_of(old)
            earlier = tuple(each for each in kept.capabilities if each.id in replaced)
            new = self._make(old, kept - Declarations(capabilities=earlier) + added)
            self._swap(new, added)
        return new

    def replace(
        self, project: Declarations, accept: Callable[[Registry], None] = accept_any
    ) -> Registry:
        """Exchange all that the project declares; built-ins, and what was registered, stay.

        ``accept`` gets the checked registry before it is used, and may raise; then nothing
        changes. It may take long: other requests and listeners don't wait for it.
        """
        while True:
            with self._lock:
                old = self.current
                kept = declarations_of(old) - self._project
                self._check_versions(Registry(capabilities=kept.capabilities), project.capabilities)
                new = self._make(old, kept + project)
            accept(new)
            with self._lock:
                if self.current is old:
                    self._project = project
                    self._swap(new, project)
                    return new

    def _make(self, old: Registry, wanted: Declarations) -> Registry:
        new = Registry(
            version=old.version + 1,
            types=wanted.types,
            shapes=wanted.shapes,
            capabilities=wanted.capabilities,
            queries=wanted.queries,
            rules=wanted.rules,
        )
        check_registry(new)
        return new

    def _swap(self, new: Registry, added: Declarations) -> None:
        for each in added.capabilities:
            # A derived version can have no other content, so it need not be remembered.
            if not each.descriptor.is_derived:
                self._seen[each.id, each.descriptor.version] = digest_of(each.descriptor)
        self.current = new
        for listener in tuple(self._listeners):
            listener(new)

    def _check_versions(self, old: Registry, added: tuple[Capability, ...]) -> set[str]:
        """Check ids and versions; the ids of capabilities that replace earlier versions."""
        replaced: set[str] = set()
        ids: dict[str, Capability] = {}
        for each in added:
            if each.id in self._own:
                raise RegistryError(f"{each.id!r} is a built-in id; choose another")
            twin = ids.setdefault(each.id, each)
            known = old.capability(each.id)
            for other in (twin, known):
                if other is not None and (other.meta is None) != (each.meta is None):
                    raise RegistryError(
                        f"{each.id!r} is declared as a capability and as a meta-capability; "
                        "use two ids"
                    )
            if twin is not each:
                raise RegistryError(f"{each.id!r} is declared twice; rename or remove one")
            version = each.descriptor.version
            seen = self._seen.get((each.id, version))
            if seen is not None and seen != digest_of(each.descriptor):
                raise RegistryError(
                    f"{each.id!r} version {version!r} is already registered with other content; "
                    "give the changed capability a new version"
                )
            if known is not None:
                replaced.add(each.id)
        return replaced

    def _check_functions(self, old: Registry, added: tuple[Capability, ...]) -> None:
        """Refuse another function of the same version: two parts of a program use one id."""
        for each in added:
            known, version = old.capability(each.id), each.descriptor.version
            if (
                known is not None
                and known.descriptor.version == version
                and known.handler is not each.handler
            ):
                raise RegistryError(
                    f"{each.id!r} version {version!r} is already registered with another "
                    "function; rename one, or give it a new version"
                )


def declarations_of(registry: Registry) -> Declarations:
    """Everything that a registry was made of."""
    return Declarations(
        tuple(registry.classes.values()),
        tuple(registry.shape_classes.values()),
        (*registry.capabilities.values(), *registry.metas.values()),
        tuple(registry.rules.values()),
        tuple(registry.queries.values()),
    )


def _unseen(items: Iterable[T], known: Iterable[T]) -> list[T]:
    """Registering the same object again has no effect."""
    have = {id(each) for each in known}
    return [each for each in items if id(each) not in have]


def collect(objects: Iterable[object]) -> Declarations:
    """Collect the declared classes and functions among objects, without duplicates."""
    types: dict[int, type] = {}
    shapes: dict[int, type] = {}
    capabilities: dict[int, Capability] = {}
    rules: dict[int, PolicyRule] = {}
    for each in objects:
        declared = vars(each).get("__trails__") if isinstance(each, type) else None
        if isinstance(each, type) and isinstance(declared, TypeDescriptor):
            types[id(each)] = each
        elif isinstance(each, type) and isinstance(declared, ShapeDescriptor):
            shapes[id(each)] = each
        elif isinstance(mark := getattr(each, MARK, None), Capability):
            capabilities[id(mark)] = mark
        elif isinstance(rule := getattr(each, RULE, None), PolicyRule):
            rules[id(rule)] = rule
    return Declarations(
        tuple(types.values()),
        tuple(shapes.values()),
        tuple(capabilities.values()),
        tuple(rules.values()),
    )


def discover(module: ModuleType) -> Declarations:
    """Everything declared in a module, imported names included."""
    return collect(vars(module).values())
