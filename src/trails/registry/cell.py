"""``RegistryCell``: holds the current Registry and swaps it; ``collect`` finds declarations.

A reader takes ``current`` once and keeps it. A swap is one assignment, so each reader sees one
snapshot. Writers take turns.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable
from types import ModuleType
from typing import TypeVar

import msgspec

from trails.authoring.capabilities import MARK, RULE
from trails.errors import RegistryError
from trails.model.capabilities import Capability, PolicyRule, StoredQuery
from trails.model.iris import digest_of
from trails.model.types import ShapeDescriptor, TypeDescriptor
from trails.registry.registry import Registry, check_registry

T = TypeVar("T", bound=Hashable)
Listener = Callable[[Registry], None]


class RegistryCell:
    """Holds the current snapshot; registering checks, swaps and notifies listeners."""

    def __init__(self, own: Iterable[Capability] = ()) -> None:
        """``own``: built-in declarations, which can't be replaced."""
        # Re-entrant, so that a listener may register; held while listeners are called, so that
        # they get snapshots in order.
        self._lock = threading.RLock()
        self._current = Registry(capabilities=own)
        self._own = frozenset((*self._current.capabilities, *self._current.metas))
        self._listeners: list[Listener] = []
        self._seen: dict[tuple[str, str], str] = {}

    @property
    def current(self) -> Registry:
        """The snapshot to pin for the length of a request."""
        return self._current

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
        with self._lock:
            old = self._current
            added = tuple(capabilities)
            replaced = self._check_versions(old, added)
            kept = (*old.capabilities.values(), *old.metas.values())
            new = Registry(
                version=old.version + 1,
                types=(*old.classes.values(), *_unseen(types, old.classes.values())),
                shapes=(
                    *old.shape_classes.values(),
                    *_unseen(shapes, old.shape_classes.values()),
                ),
                capabilities=(*(each for each in kept if each.id not in replaced), *added),
                queries=(*old.queries.values(), *queries),
                rules=(*old.rules.values(), *_unseen(rules, old.rules.values())),
            )
            check_registry(new)
            for each in added:
                self._seen[each.id, each.descriptor.version] = digest_of(each.descriptor)
            self._current = new
            for listener in tuple(self._listeners):
                listener(new)
        return new

    def _check_versions(self, old: Registry, added: tuple[Capability, ...]) -> set[str]:
        replaced: set[str] = set()
        ids: dict[str, Capability] = {}
        for each in added:
            if each.id in self._own:
                raise RegistryError(f"{each.id!r} belongs to the framework; choose another id")
            twin = ids.setdefault(each.id, each)
            known = old.capability(each.id)
            for other in (twin, known):
                if other is not None and (other.meta is None) != (each.meta is None):
                    raise RegistryError(
                        f"{each.id!r} is declared as a capability and as a meta-capability; "
                        "one id belongs to one registry"
                    )
            if twin is not each:
                raise RegistryError(f"{each.id!r} is declared twice; rename or remove one")
            version = each.descriptor.version
            seen = self._seen.get((each.id, version))
            if seen is not None and seen != digest_of(each.descriptor):
                raise RegistryError(
                    f"{each.id!r} version {version!r} is known with other content; "
                    "give the changed capability a new version"
                )
            if known is not None:
                if known.descriptor.version == version and known.handler is not each.handler:
                    raise RegistryError(
                        f"{each.id!r} version {version!r} is registered already with another "
                        "function; rename one, or give it a new version"
                    )
                replaced.add(each.id)
        return replaced


def _unseen(items: Iterable[T], known: Iterable[T]) -> list[T]:
    """Registering the same object again has no effect."""
    have = set(known)
    return [each for each in items if each not in have]


class Declarations(msgspec.Struct, frozen=True):
    """Declarations that can be registered."""

    types: tuple[type, ...]
    shapes: tuple[type, ...]
    capabilities: tuple[Capability, ...]
    rules: tuple[PolicyRule, ...] = ()

    def __bool__(self) -> bool:
        """Whether there is any declaration."""
        return bool(self.types or self.shapes or self.capabilities or self.rules)


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
