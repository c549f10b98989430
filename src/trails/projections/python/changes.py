"""Change the declarations of a project from one schema to another, in the files that have them.

Pure: texts in, texts out. Each type is edited where its class statement is: in the graph's module,
or in a module of the project that it imports. What differs between the two schemas is edited,
the rest stays. A rename is a hint, since the schemas alone do not say it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from trails.authoring.specs import shape_spec, type_spec
from trails.errors import SourceError
from trails.model.changes.steps import ShapeSpec, TypeSpec
from trails.model.history import Renames
from trails.model.types import (
    EdgeEnds,
    PredicateDescriptor,
    Schema,
    ShapeDescriptor,
    TypeDescriptor,
    ValueType,
)
from trails.projections.python.declarations import (
    FRAMEWORK,
    Needs,
    Style,
    decorator_arguments,
    in_order,
    write_class,
    write_field,
)
from trails.projections.python.functions import (
    CapabilitySource,
    function_name,
    write_capability,
)
from trails.projections.python.layout import WIDTH, Code
from trails.projections.python.modules import SourceModule
from trails.projections.python.source import Reader

_DEEPEST: Final = 5
"""Modules that import from each other, until the search for a class ends."""


class ChangedSources(msgspec.Struct, frozen=True):
    """Texts of files, before and after."""

    texts: dict[str, tuple[str | None, str | None]]
    notes: tuple[str, ...]
    """What a person should look at, because it could not be changed with certainty."""


def change_declarations(
    read: Reader,
    app: str,
    before: Schema,
    after: Schema,
    *,
    renames: Renames = Renames(),  # noqa: B008 - frozen
    width: int = WIDTH,
) -> ChangedSources:
    """Edit the modules that declare ``before`` so that they declare ``after``."""
    return _Changes(read, app, width).run(before, after, renames)


def add_classes(
    read: Reader,
    app: str,
    found: Sequence[TypeDescriptor | ShapeDescriptor],
    schema: Schema,
    *,
    width: int = WIDTH,
) -> ChangedSources:
    """Add classes to the graph's module; ``schema`` has all types, the new ones too."""
    changes = _Changes(read, app, width)
    changes.add(found, schema)
    return changes.result()


def add_capability(
    read: Reader, app: str, source: CapabilitySource, *, width: int = WIDTH
) -> ChangedSources:
    """Add the function of a capability to the graph's module."""
    changes = _Changes(read, app, width)
    changes.add_function(source)
    return changes.result()


class _Changes:
    """The modules of a project while they are edited."""

    def __init__(self, read: Reader, app: str, width: int) -> None:
        self._read = read
        self._app = app
        self._width = width
        self._modules: dict[str, SourceModule] = {}
        self._given: dict[str, str] = {}
        self._homes: dict[str, str] = {}
        self._former: set[tuple[str, str]] = set()
        """(path, word): names that are gone, which the rest of a file may still have."""
        if self._load(app) is None:
            raise SourceError(f"{app} does not exist; create it, then retry", path=app, lines=[])

    def run(self, before: Schema, after: Schema, renames: Renames) -> ChangedSources:
        for each in _declared(before):  # loads the modules that have them
            with suppress(SourceError):  # one that does not change may be declared in any way
                self._find(each.name)
        for old, new in renames.types.items():
            self._rename_type(old, new)
        renamed = _renamed(before, renames.types)
        for found in in_order(after):
            old_type = renamed.by_name.get(found.name)
            if old_type is not None:
                self._change(type_spec(old_type, renamed), type_spec(found, after), found, renames)
        old_shapes = {each.name: each for each in renamed.shapes}
        for shape in after.shapes:
            if shape.name in old_shapes:
                self._change(shape_spec(old_shapes[shape.name]), shape_spec(shape), shape, renames)
        self.add([each for each in in_order(after) if each.name not in renamed.by_name], after)
        self.add([each for each in after.shapes if each.name not in old_shapes], after)
        kept = {each.name for each in _declared(after)}
        former: list[TypeDescriptor | ShapeDescriptor] = [*in_order(renamed), *renamed.shapes]
        gone = [each.name for each in former if each.name not in kept]
        for name in gone:
            self._keep(self._module(name).remove_class(name))
        for name in gone:  # when all are removed, since they may name each other
            self._module(name).refuse_uses(name)
        return self.result()

    def result(self) -> ChangedSources:
        texts = dict(self._texts())
        return ChangedSources(dict(texts), tuple(self._notes(texts)))

    def _texts(self) -> Iterator[tuple[str, tuple[str, str]]]:
        """The files that differ, without imports that only the former text used."""
        for path, module in self._modules.items():
            given = self._given[path]
            if module.text != given:
                names = SourceModule(path, given, self._width).used_imports()
                yield path, (given, module.drop_unused(names).text)

    # --- where things are ----------------------------------------------------

    def _load(self, path: str) -> SourceModule | None:
        if path not in self._modules:
            text = self._read(path)
            if text is None:
                return None
            self._given[path] = text
            self._modules[path] = SourceModule(path, text, self._width)
        return self._modules[path]

    def _find(self, name: str) -> str:
        """The path of the module with the class of a type."""
        if name not in self._homes:
            found = self._search(self._app, name, 0)
            if found is None:
                raise SourceError(
                    f"{self._app} and the modules of the project that it imports have no class "
                    f"{name}; change it where it is declared, by hand",
                    path=self._app,
                    lines=[],
                )
            self._homes[name] = found
        return self._homes[name]

    def _search(self, path: str, name: str, depth: int) -> str | None:
        module = self._load(path)
        if module is None or depth > _DEEPEST:
            return None
        if module.find_class(name) is not None:
            return path
        for node in module.tree.body:
            if isinstance(node, ast.ImportFrom) and any(
                alias.name in {name, "*"} for alias in node.names
            ):
                for candidate in _paths(path, node):
                    found = self._search(candidate, name, depth + 1)
                    if found is not None:
                        return found
        return None

    def _module(self, name: str) -> SourceModule:
        """The module with the class of a type."""
        return self._modules[self._find(name)]

    def _keep(self, module: SourceModule) -> None:
        self._modules[module.path] = module

    # --- changes -------------------------------------------------------------

    def _rename_type(self, old: str, new: str) -> None:
        home = self._find(old)
        del self._homes[old]
        self._homes[new] = home
        for path in list(self._modules):
            module = self._modules[path]
            if path == home or old in module.bindings:
                self._modules[path] = module.rename_class(old, new)
                self._former.add((path, old))

    def _notes(self, texts: Mapping[str, tuple[str, str]]) -> Iterator[str]:
        for path, word in sorted(self._former):
            if path in texts:
                lines = SourceModule(path, texts[path][1], self._width).mentions(word)
                if lines:
                    shown = ", ".join(map(str, lines[:20]))
                    yield (
                        f"{path} has the word {word!r} on line {shown} after this change; check "
                        "whether it means the former name"
                    )

    def _style(self, module: SourceModule) -> Style:
        return Style(self._width, module.has_future_annotations)

    def _change(
        self,
        before: TypeSpec | ShapeSpec,
        after: TypeSpec | ShapeSpec,
        found: TypeDescriptor | ShapeDescriptor,
        renames: Renames,
    ) -> None:
        if before == after:
            return
        name, path = after.name, self._find(after.name)
        if isinstance(before, TypeSpec) and isinstance(after, TypeSpec):
            self._change_parent(path, before, after)
        if before.description != after.description:
            self._keep(self._modules[path].set_docstring(name, after.description))
        self._change_decorator(path, before, after)
        self._change_fields(path, before, after, found, renames)

    def _change_parent(self, path: str, before: TypeSpec, after: TypeSpec) -> None:
        if before.extends == after.extends:
            return
        module = self._modules[path]
        parent = after.extends
        if parent is None:
            module, parent = module.ensure_imports({FRAMEWORK: ["Node"]}), "Node"
        elif not module.is_defined_before(parent, module.find_class(after.name)):
            module.refuse(
                module.bindings[after.name],
                f"{parent} is not declared before it",
                f"let {after.name} inherit {parent}",
            )
        self._keep(module.set_parent(after.name, before.extends or "Node", parent))

    def _change_decorator(
        self, path: str, before: TypeSpec | ShapeSpec, after: TypeSpec | ShapeSpec
    ) -> None:
        module = self._modules[path]
        node = module.find_class(after.name)

        def defined(name: str) -> bool:
            return module.is_defined_before(name, node)

        old: dict[str, Code] = dict(decorator_arguments(before, defined))
        new: dict[str, Code] = dict(decorator_arguments(after, defined))
        self._keep(module.set_decorator(after.name, old, new))

    def _change_fields(
        self,
        path: str,
        before: TypeSpec | ShapeSpec,
        after: TypeSpec | ShapeSpec,
        found: TypeDescriptor | ShapeDescriptor,
        renames: Renames,
    ) -> None:
        name = after.name
        old = {each.name: each for each in before.fields}
        new = {each.name: each for each in after.fields}
        for (owner, former), to in renames.fields.items():
            if owner == name and former in old and to in new:
                self._keep(self._modules[path].rename_field(name, former, to))
                self._former.add((path, former))
                old[to] = msgspec.structs.replace(old.pop(former), name=to)
        for gone in [each for each in old if each not in new]:
            self._keep(self._modules[path].remove_field(name, gone))
            self._former.add((path, gone))
        previous: str | None = None
        moved = _moved([each for each in old if each in new], list(new))
        for field, spec in new.items():
            if field in moved:
                self._keep(self._modules[path].move_field(name, field, previous))
            if old.get(field) != spec:
                lines = self._field_lines(path, found, field, new)
                module = self._modules[path]
                if field in old:
                    self._keep(module.replace_field(name, field, lines))
                else:
                    self._keep(module.add_field(name, lines, previous))
            previous = field

    def _field_lines(
        self,
        path: str,
        found: TypeDescriptor | ShapeDescriptor,
        field: str,
        names: Mapping[str, object],
    ) -> Sequence[str]:
        module, needs = self._modules[path], Needs(names={}, modules=set())
        target = found.by_name[field].type.scalar.target
        node = module.find_class(found.name)
        quoted = set()
        if target is not None:
            if target not in module.bindings:
                needs.names |= self._import_of(path, target)
            if not module.has_future_annotations and not module.is_defined_before(target, node):
                quoted = {target}
        lines = write_field(
            found.by_name[field],
            needs,
            style=self._style(module),
            taken=names,
            quoted=quoted,
            indent=module.indent(found.name),
        )
        self._keep(module.ensure_imports(needs.names).ensure_modules(needs.modules))
        return lines

    def _import_of(self, path: str, name: str) -> dict[str, set[str]]:
        """Where a module imports a class from that another module of the project has."""
        home = self._homes.get(name) or self._search(self._app, name, 0)
        if home is None or home in {path, self._app}:
            return {}  # added later to this module, or it would import in a circle
        return {home.removesuffix(".py").removesuffix("/__init__").replace("/", "."): {name}}

    def add(self, types: Sequence[TypeDescriptor | ShapeDescriptor], schema: Schema) -> None:
        for found in types:
            module, needs = self._modules[self._app], Needs(names={}, modules=set())
            if found.name in module.bindings:
                module.refuse(
                    module.bindings[found.name], f"{found.name} is used here already", "rename it"
                )
            lines = write_class(
                found,
                schema,
                needs,
                style=self._style(module),
                defined=module.bindings.__contains__,
            )
            parent = getattr(found, "extends", None)
            self._need_types(needs, [*_targets(found), *([parent] if parent else [])])
            added = module.add_class(lines)
            self._keep(added.ensure_imports(needs.names).ensure_modules(needs.modules))
            self._homes[found.name] = self._app

    def add_function(self, source: CapabilitySource) -> None:
        module, needs = self._modules[self._app], Needs(names={}, modules=set())
        name = function_name(source.id, module.bindings)
        if name in module.bindings:
            module.refuse(module.bindings[name], f"{name} is used here already", "rename it")
        lines = write_capability(source, name, needs, self._style(module))
        values = [each.type for each in source.parameters]
        values += [each for each in (source.returns,) if each is not None]
        targets = [each.scalar.target for each in values]
        if source.type is not None:
            targets += [source.type.name, *_targets(source.type)]
        text = "\n".join(lines)
        used = [each for each in targets if each and re.search(rf"\b{each}\b", text)]
        self._need_types(needs, used)
        added = module.add_function(lines)
        self._keep(added.ensure_imports(needs.names).ensure_modules(needs.modules))

    def _need_types(self, needs: Needs, names: Sequence[str]) -> None:
        """Import classes that other modules of the project have."""
        for name in names:
            if name not in self._modules[self._app].bindings:
                for home, found in self._import_of(self._app, name).items():
                    needs.names.setdefault(home, set()).update(found)


def _moved(before: Sequence[str], after: Sequence[str]) -> set[str]:
    """The fields that leave their place; as many as possible stay (by increasing positions)."""
    places = {name: at for at, name in enumerate(after)}
    longest: list[list[str]] = []
    for name in before:
        fitting = [each for each in longest if places[each[-1]] < places[name]]
        longest.append([*max(fitting, key=len, default=[]), name])
    return {*before} - {*max(longest, key=len, default=[])}


def _declared(schema: Schema) -> list[TypeDescriptor | ShapeDescriptor]:
    return [*schema.types, *schema.shapes]


def _targets(found: TypeDescriptor | ShapeDescriptor) -> Iterator[str]:
    """The types that a class names in its annotations and its decorator."""
    for field in found.fields:
        target = field.type.scalar.target
        if target is not None:
            yield target
    if isinstance(found, ShapeDescriptor) and found.target is not None:
        yield found.target


def _paths(path: str, node: ast.ImportFrom) -> Iterator[str]:
    """Where the module that is imported from may be, in the project."""
    parts = path.split("/")[: -node.level] if node.level else []
    inside = "/".join((*parts, *(node.module or "").split(".")))
    yield from (f"{inside.strip('/')}.py", f"{inside.strip('/')}/__init__.py")


def _renamed(schema: Schema, names: Mapping[str, str]) -> Schema:
    """The schema as it is declared once its classes have other names."""
    if not names:
        return schema

    def name(given: str) -> str:
        return names.get(given, given)

    def value_type(given: ValueType) -> ValueType:
        item = None if given.item is None else value_type(given.item)
        target = None if given.target is None else name(given.target)
        return msgspec.structs.replace(given, item=item, target=target)

    def fields(found: TypeDescriptor | ShapeDescriptor) -> tuple[PredicateDescriptor, ...]:
        return tuple(
            msgspec.structs.replace(
                each, type=value_type(each.type), declared_in=name(each.declared_in)
            )
            for each in found.fields
        )

    types = [
        msgspec.structs.replace(
            each,
            name=name(each.name),
            iri=name(each.name) if each.iri == each.name else each.iri,
            extends=None if each.extends is None else name(each.extends),
            edge=None if each.edge is None else _renamed_ends(each.edge, name),
            fields=fields(each),
        )
        for each in schema.types
    ]
    shapes = [
        msgspec.structs.replace(
            each,
            name=name(each.name),
            target=None if each.target is None else name(each.target),
            fields=fields(each),
        )
        for each in schema.shapes
    ]
    return Schema.of(types, shapes)


def _renamed_ends(edge: EdgeEnds, name: Callable[[str], str]) -> EdgeEnds:
    return msgspec.structs.replace(edge, source=name(edge.source), target=name(edge.target))
