"""Write capabilities as Python functions.

Pure. What a capability does is written only where that is known: create, update or delete a
node, or list nodes. Any other one raises CapabilityError until a person has written it.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Container
from typing import Final, Literal

import msgspec

from trails.authoring.specs import field_spec
from trails.model.types import LIST, OBJECT, REF, PredicateDescriptor, TypeDescriptor, ValueType
from trails.projections.python.declarations import (
    BARE,
    FRAMEWORK,
    Needs,
    Style,
    field_arguments,
    spell_annotation,
)
from trails.projections.python.layout import (
    INDENT,
    Code,
    CodeGroup,
    call,
    docstring,
    flat,
    lay_out,
    quote,
)

Does = Literal["create", "update", "delete", "list"]
"""What a capability can be written to do."""
_LIMIT: Final = PredicateDescriptor("limit", ValueType("Int"), default=20)


class CapabilitySource(msgspec.Struct, frozen=True):
    """A capability that is to be written."""

    id: str
    description: str
    parameters: tuple[PredicateDescriptor, ...] = ()
    returns: ValueType | None = None
    does: Does | None = None
    type: TypeDescriptor | None = None
    """The type of the nodes that it works on."""
    reads: bool = False
    """Whether it only reads."""


class _Written(msgspec.Struct, frozen=True):
    parameters: tuple[PredicateDescriptor, ...]
    body: tuple[str, ...]
    returns: ValueType | None


def function_name(identifier: str, taken: Container[str]) -> str:
    """A name for the function: the last word of the id, or all of it where that is taken."""
    last = identifier.rsplit(".", 1)[-1]
    if last in taken or keyword.iskeyword(last) or hasattr(builtins, last):
        return identifier.replace(".", "_")
    return last


def write_capability(source: CapabilitySource, name: str, needs: Needs, style: Style) -> list[str]:
    """The lines of its function."""
    for each in ("Context", "capability"):
        needs.add(FRAMEWORK, each)
    given: list[tuple[str, Code]] = [("", quote(source.id))]
    if source.does == "update":
        given.append(("idempotent", "True"))
    if source.reads or source.does == "list":
        given.append(("side_effects", '["none"]'))
    before, group = call("@capability", given)
    lines = lay_out(before, group, "", "", style.width)
    written = _write(source, needs, style.width)
    taken = {each.name for each in written.parameters}
    items = [("", "ctx: Context")]
    texts = [_parameter(each, needs, taken) for each in written.parameters]
    items += [("", start + value) for start, value in sorted(texts, key=lambda each: each[1] != "")]
    returns = written.returns
    result = "None" if returns is None else spell_annotation(returns, needs)
    signature = CodeGroup(tuple(items), is_call=True)
    lines += lay_out(f"def {name}", signature, f" -> {result}:", "", style.width)
    lines += docstring(source.description, INDENT)
    return [*lines, *(f"{INDENT}{line}" for line in written.body)]


def _parameter(field: PredicateDescriptor, needs: Needs, taken: Container[str]) -> tuple[str, str]:
    """Name and annotation, and the default; those without one come first in a signature."""
    names = [field.name] if field.name in taken else []
    start = f"{field.name}: {spell_annotation(field.type, needs, taken=names)}"
    arguments = list(field_arguments(field_spec(field), field.type))
    if not arguments:
        return start, "" if field.required or field.many else " = None"
    if [name for name, _ in arguments] == ["default"] and field.type.kind in BARE:
        return start, f" = {flat(arguments[0][1])}"
    needs.add(FRAMEWORK, "predicate")
    name, group = call("predicate", arguments)
    return start, f" = {name}{flat(group)}"


def _write(source: CapabilitySource, needs: Needs, width: int) -> _Written:
    found = source.type
    if source.does is None or found is None:
        needs.add(f"{FRAMEWORK}.errors", "CapabilityError")
        text = CodeGroup((("", quote(f"{source.id} is not written yet")),), is_call=True)
        body = lay_out("raise CapabilityError", text, "", "", width - len(INDENT))
        return _Written(source.parameters, tuple(body), source.returns)
    own = tuple(_plain(each) for each in (source.parameters or found.fields))
    name = _variable(found.name, {each.name for each in own})
    one = ValueType(OBJECT, target=found.name)
    if source.does == "create":
        group = CodeGroup(tuple((f"{each.name}=", each.name) for each in own), is_call=True)
        made = lay_out(f"{name} = {found.name}", group, "", "", width - len(INDENT))
        return _Written(own, (*made, f"{name}.save(ctx)", f"return {name}"), one)
    node = PredicateDescriptor(name, ValueType(REF, target=found.name), min_count=1)
    if source.does == "delete":
        return _Written((node,), (f"{name}.delete(ctx)",), None)
    if source.does == "update":
        kept = [each for each in own if not found.by_name[each.name].key]
        body = [
            line
            for each in kept
            for line in (
                f"if {each.name} is not None:",
                f"{INDENT}{name}.{each.name} = {each.name}",
            )
        ]
        body += [f"{name}.save(ctx)", f"return {name}"]
        return _Written((node, *map(_optional, kept)), tuple(body), one)
    return _list(found, own if source.parameters else ())


def _list(found: TypeDescriptor, filters: tuple[PredicateDescriptor, ...]) -> _Written:
    many = ValueType(LIST, item=ValueType(OBJECT, target=found.name))
    if not filters:
        line = f"return {found.name}.objects(ctx).limit(limit).fetch()"
        return _Written((_LIMIT,), (line,), many)
    body = [f"found = {found.name}.objects(ctx)"]
    for each in filters:
        body += [
            f"if {each.name} is not None:",
            f"{INDENT}found = found.where({each.name}={each.name})",
        ]
    body.append("return found.limit(limit).fetch()")
    return _Written((*map(_optional, filters), _LIMIT), tuple(body), many)


def _plain(field: PredicateDescriptor) -> PredicateDescriptor:
    """The field as a parameter; its constraints are checked when the node is saved."""
    return PredicateDescriptor(
        field.name,
        field.type,
        iri=field.name,
        min_count=0 if field.many else field.min_count,
        max_count=None if field.many else 1,
        default=field.default,
    )


def _optional(field: PredicateDescriptor) -> PredicateDescriptor:
    kind = msgspec.structs.replace(field.type, nullable=True)
    return PredicateDescriptor(field.name, kind, iri=field.name, min_count=0)


def _variable(type_name: str, taken: Container[str]) -> str:
    """``TestCase`` → ``test_case``; ``node`` where that can't be used."""
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type_name).lower()
    is_free = name not in taken and not keyword.iskeyword(name) and not hasattr(builtins, name)
    return name if is_free and name not in {"ctx", "limit", "found"} else "node"
