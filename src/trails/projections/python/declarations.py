"""Write types and shapes as Python declarations: fields, classes, whole modules.

Pure: same descriptors, same text. The text declares exactly the descriptors that it was made of,
and is formatted as a person's would be. ``modules`` puts declarations into files that exist.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from trails.authoring.specs import field_spec, shape_spec, spell_value_type, type_spec
from trails.errors import FieldError, ValidationError
from trails.model.changes.steps import FieldSpec, ShapeSpec, TypeSpec
from trails.model.kinds import BY_PYTHON
from trails.model.types import (
    LIST,
    OBJECT,
    REF,
    PredicateDescriptor,
    Schema,
    ShapeDescriptor,
    TypeDescriptor,
    ValueType,
)
from trails.projections.python.layout import (
    INDENT,
    WIDTH,
    Code,
    CodeGroup,
    call,
    docstring,
    groups,
    import_lines,
    lay_out,
    literal,
    quote,
    quote_pattern,
)

FRAMEWORK: Final = "trails"
_FIRST: Final = ("key", "unique", "label", "search", "language", "stop_words")
_LAST: Final = ("iri", "default", "description")
ORDER: Final = (
    *_FIRST,
    *(
        name
        for name in FieldSpec.__struct_fields__
        if name not in {"name", "type", "required", *_FIRST, *_LAST}
    ),
    *_LAST,
)
"""The arguments of ``predicate()`` in the order in which they are written."""
BARE: Final = frozenset({"String", "Bool", "Int", "Float"})
"""Kinds whose defaults may be written without ``predicate()``: their literals have their type."""
RESERVED: Final = frozenset(
    {
        *("App", "Context", "Edge", "Node", "Ref", "Shape", "Vector"),
        *(each.__name__ for each in BY_PYTHON),
        *keyword.kwlist,
    }
)
"""Names that a class of a module can't have, because declarations use them."""


def _home(name: str, other: str) -> str:
    """The module that a class in annotations is imported from; ``other`` if it is of no kind."""
    for each in BY_PYTHON:
        if each.__name__ == name:
            module = each.__module__
            return FRAMEWORK if module.startswith(f"{FRAMEWORK}.") else module
    return other


class Needs(msgspec.Struct):
    """What declarations import: module → names; ``dt`` stands for ``import datetime as dt``."""

    names: dict[str, set[str]] = {}
    modules: set[str] = set()

    def add(self, module: str, name: str) -> None:
        if module != "builtins":
            self.names.setdefault(module, set()).add(name)


class Style(msgspec.Struct, frozen=True):
    """How the code of a module is written."""

    width: int = WIDTH
    future: bool = True
    """Whether annotations may name classes that are declared later."""


PLAIN: Final = Style()


def always(name: str) -> bool:
    """Whether a class is declared before another, where all are."""
    del name
    return True


def spell_annotation(
    value_type: ValueType, needs: Needs, *, taken: Iterable[str] = (), quoted: Iterable[str] = ()
) -> str:
    """The annotation of a type.

    ``taken``: names of fields of the class, which hide the classes of the same names in it.
    ``quoted``: classes that are not declared yet where the annotation is evaluated.
    """
    optional = " | None" if value_type.nullable else ""
    if value_type.item is not None:
        inner = spell_annotation(value_type.item, needs, taken=taken, quoted=quoted)
        return f"{_hidden('list', needs, taken)}[{inner}]{optional}"
    if value_type.kind in {REF, OBJECT}:
        target = value_type.target or ""
        target = quote(target) if target in quoted else target
        if value_type.kind == OBJECT:
            return target + optional
        needs.add(FRAMEWORK, "Ref")
        return f"Ref[{target}]{optional}"
    if value_type.kind == "Vector":
        needs.add(FRAMEWORK, "Vector")
        return f"Vector{optional}"
    name = spell_value_type(ValueType(value_type.kind))
    home = _home(name, "typing")
    if name in taken:
        return _hidden(name, needs, taken) + optional
    needs.add(home, name)
    return name + optional


def _hidden(name: str, needs: Needs, taken: Iterable[str]) -> str:
    """A class by its module, where a field has its name."""
    if name not in taken:
        return name
    home = _home(name, "builtins")
    alias = "dt" if home == "datetime" else home
    needs.modules.add(f"import {home}" + (f" as {alias}" if alias != home else ""))
    return f"{alias}.{name}"


def field_arguments(spec: FieldSpec, value_type: ValueType) -> Iterator[tuple[str, Code]]:
    """The arguments of ``predicate()`` for a field, in order."""
    plain = FieldSpec(name=spec.name)
    for name in ORDER:
        if name == "metric" and value_type.dimension is not None:
            yield "dimension", str(value_type.dimension)
        value = getattr(spec, name)
        if value is msgspec.UNSET or value == getattr(plain, name):
            continue
        is_pattern = name == "pattern"
        yield name, quote_pattern(value) if is_pattern else literal(value)


def write_field(
    field: PredicateDescriptor,
    needs: Needs,
    *,
    style: Style = PLAIN,
    taken: Iterable[str] = (),
    quoted: Iterable[str] = (),
    indent: str = INDENT,
) -> list[str]:
    """The lines that declare a field."""
    if keyword.iskeyword(field.name):
        message = f"{field.name!r} is a keyword of Python, so no class can have it; rename it"
        raise ValidationError([FieldError(field.name, "name", message, field.name)])
    annotation = spell_annotation(field.type, needs, taken=taken, quoted=quoted)
    start = f"{field.name}: {annotation}"
    arguments = list(field_arguments(field_spec(field), field.type))
    if not arguments and field.type.kind != LIST:
        return [f"{indent}{start}" + (" = None" if field.type.nullable else "")]
    if [name for name, _ in arguments] == ["default"] and field.type.kind in BARE:
        lines = lay_out(f"{start} = ", arguments[0][1], "", indent, style.width)
        if len(lines) == 1 and len(lines[0]) <= style.width:
            return lines
    needs.add(FRAMEWORK, "predicate")
    name, given = call("predicate", arguments)
    return lay_out(f"{start} = {name}", given, "", indent, style.width)


def decorator_arguments(
    spec: TypeSpec | ShapeSpec, defined: Callable[[str], bool]
) -> Iterator[tuple[str, Code]]:
    """The arguments of a class's decorator; types that are not ``defined`` yet are quoted."""

    def end(name: str) -> str:
        return name if defined(name) else quote(name)

    if isinstance(spec, ShapeSpec):
        if spec.target is not None:
            yield "target", end(spec.target)
        return
    for name in ("source", "target"):
        given = getattr(spec, name)
        if given is not None:
            yield name, end(given)
    for name in ("per_source", "per_target"):
        low, high = getattr(spec, name)
        if (low, high) != (0, None):
            yield name, CodeGroup((("", repr(low)), ("", repr(high))))
    for name in ("unique", "index"):
        if getattr(spec, name):
            yield name, groups(getattr(spec, name))
    if spec.iri:
        yield "iri", quote(spec.iri)
    if spec.abstract:
        yield "abstract", "True"


def write_decorator(name: str, arguments: Sequence[tuple[str, Code]], style: Style) -> list[str]:
    """``@node_type`` or a call of it."""
    if not arguments:
        return [f"@{name}"]
    before, given = call(f"@{name}", arguments)
    return lay_out(before, given, "", "", style.width)


def write_class(
    found: TypeDescriptor | ShapeDescriptor,
    schema: Schema,
    needs: Needs,
    *,
    style: Style = PLAIN,
    defined: Callable[[str], bool] = always,
) -> list[str]:
    """The lines that declare a type or shape; ``defined``: classes declared before it."""
    check_class_name(found.name)
    if isinstance(found, ShapeDescriptor):
        spec: TypeSpec | ShapeSpec = shape_spec(found)
        kind, base = "shape", "Shape"
    else:
        spec = type_spec(found, schema)
        kind, base = ("node_type", "Node") if found.edge is None else ("edge_type", "Edge")
    parent = getattr(spec, "extends", None)
    needs.add(FRAMEWORK, kind)
    if parent is None:
        needs.add(FRAMEWORK, base)
    names = {each.name for each in spec.fields}
    own = [each for each in found.fields if each.name in names]
    quoted: set[str] = set()
    if not style.future:
        targets = {each.type.scalar.target for each in own} - {None}
        quoted = {each for each in targets if each and (each == found.name or not defined(each))}
    lines = write_decorator(kind, list(decorator_arguments(spec, defined)), style)
    lines.append(f"class {found.name}({parent or base}):")
    body = docstring(found.description, INDENT) if found.description else []
    if body and own:
        body.append("")
    for field in own:
        body += write_field(field, needs, style=style, taken=names, quoted=quoted)
    return [*lines, *(body or [f"{INDENT}pass"])]


def check_class_name(name: str) -> None:
    """Refuse a name that hides what declarations use."""
    if name in RESERVED:
        message = f"{name!r} is a class that declarations use; choose another name"
        raise ValidationError([FieldError("name", "name", message, name)])


def write_imports(needs: Needs, *, style: Style = PLAIN) -> list[str]:
    """The imports, in the sections and the order that isort and ruff use."""
    sections: list[list[str]] = [sorted(needs.modules), []]
    for module in sorted(needs.names):
        section = sections[1] if module == FRAMEWORK else sections[0]
        section += import_lines(module, needs.names[module], style.width)
    lines: list[str] = []
    for section in sections:
        if section:
            lines += [*([""] if lines else []), *section]
    return lines


def write_module(
    schema: Schema,
    description: str = "",
    *,
    shapes: Iterable[ShapeDescriptor] = (),
    style: Style = PLAIN,
) -> str:
    """A whole module that declares a schema, and shapes that no type is the target of."""
    needs = Needs(names={}, modules=set())
    every: list[TypeDescriptor | ShapeDescriptor] = [*in_order(schema), *schema.shapes, *shapes]
    emitted: set[str] = set()
    classes = []
    for found in every:
        classes.append(write_class(found, schema, needs, style=style, defined=emitted.__contains__))
        emitted.add(found.name)
    lines = [*docstring(description or "Types of the graph.", ""), ""]
    lines += ["from __future__ import annotations"]
    imports = write_imports(needs, style=style)
    lines += ["", *imports] if imports else []
    for each in classes:
        lines += ["", "", *each]
    return "\n".join(lines) + "\n"


def in_order(schema: Schema) -> list[TypeDescriptor]:
    """The types such that each comes after what its class statement names."""
    done: dict[str, TypeDescriptor] = {}

    def add(name: str, path: tuple[str, ...]) -> None:
        found = schema.by_name.get(name)
        if found is None or name in done or name in path:
            return
        for other in _named_by(found):
            add(other, (*path, name))
        done[name] = found

    for is_edge in (False, True):
        for each in schema.types:
            if (each.edge is not None) == is_edge:
                add(each.name, ())
    return list(done.values())


def _named_by(found: TypeDescriptor) -> Iterator[str]:
    if found.extends is not None:
        yield found.extends
    if found.edge is not None:
        yield from (found.edge.source, found.edge.target)
