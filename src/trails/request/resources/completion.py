"""Completion: values for a template's variables that begin with what was typed.

Each answer is bounded, and comes from an index where there may be many: an id takes the
same time among a million instances as among ten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Final

import msgspec

from trails.engine.graph.graph import MAIN, Graph
from trails.engine.session.context import GraphContext
from trails.engine.visibility.refs import RefResolver
from trails.errors import FieldError, NotFoundError, ValidationError
from trails.model.capabilities import StoredQuery
from trails.model.constraints import shorten
from trails.model.names import suggest
from trails.model.types import PredicateDescriptor, TypeDescriptor
from trails.model.uris import HERE, MAX_URI_BYTES, Completions, ReadPoint, ResourceList

MOST: Final = 100
"""Values that one answer may have, as MCP says."""

Open = Callable[[ReadPoint], GraphContext]
"""Give a context at a place."""


class Typed(msgspec.Struct, frozen=True):
    """A variable, what was typed of its value, and the variables that have one already."""

    variable: str
    value: str
    given: Mapping[str, str]


class CompletionSource(msgspec.Struct, frozen=True):
    """Everything that a value can be completed to, for one actor."""

    seen: RefResolver
    offered: ResourceList
    queries: Mapping[str, StoredQuery]
    open_at: Open


def complete_variable(
    graph: Graph, known: CompletionSource, template: str, typed: Typed
) -> Completions:
    """Values for one variable, the nearest first."""
    variable, value, given = typed.variable, typed.value, typed.given
    _check_template(known.offered, template, variable)
    if len(value) > MAX_URI_BYTES:
        return Completions(())
    if variable == "branch":
        return _starting(value, sorted(known.seen.branches(), key=_main_first))
    if variable == "commit":
        return _commits(graph, known.seen, value)
    if variable in {"limit", "offset", "cursor"}:
        return Completions(())
    if variable == "name":
        return _starting(value, known.queries)
    place = _place(given)
    if place is HERE and not known.seen.has(MAIN):
        return Completions(())
    ctx = known.open_at(place)
    if variable == "type":
        return _starting(value, ctx.kg.schema.by_name)
    descriptor = _descriptor(ctx, template, given)
    if descriptor is None:
        return Completions(())
    if variable == "where":
        return _conditions(descriptor, value)
    found = ctx.kg.ids_from(descriptor.name, value, MOST + 1)
    return _bounded(found)


def _check_template(offered: ResourceList, template: str, variable: str) -> None:
    known = [each.uri_template for each in offered.templates]
    if template not in known:
        asked = template[:200]
        hint = suggest(asked, known[:40])
        raise NotFoundError(
            f"there is no template {shorten(asked)}; {hint}", template=shorten(asked)
        )
    if variable not in variables_of(template):
        message = f"{template} has no variable {shorten(variable[:200])}; it has " + ", ".join(
            variables_of(template)
        )
        raise ValidationError([FieldError("argument", "one_of", message, shorten(variable[:200]))])


def variables_of(template: str) -> list[str]:
    """The variables of a template, in order."""
    found: list[str] = []
    for part in template.split("{")[1:]:
        found += part.partition("}")[0].removeprefix("?").split(",")
    return found


def _main_first(name: str) -> tuple[bool, str]:
    return name != MAIN, name


def _place(given: Mapping[str, str]) -> ReadPoint:
    if "branch" not in given and "commit" not in given:
        return HERE
    return ReadPoint(given.get("branch"), given.get("commit"))


def _descriptor(
    ctx: GraphContext, template: str, given: Mapping[str, str]
) -> TypeDescriptor | None:
    """The type that a template speaks of: its own, or the one that was chosen."""
    name = template.partition("kg/")[2].replace("{", "/").replace("?", "/").partition("/")[0]
    return ctx.kg.schema.by_name.get(name or given.get("type", ""))


def _conditions(descriptor: TypeDescriptor, value: str) -> Completions:
    """``field=`` first, then the values of fields that have a choice."""
    name, equals, start = value.partition("=")
    if not equals:
        comparable = [
            f"{field.name}="
            for field in descriptor.fields
            if (row := field.type.scalar.row) is None or row.sort_key is not None
        ]
        return _starting(name, comparable)
    field = descriptor.by_name.get(name)
    if field is None:
        return Completions(())
    return _starting(f"{name}={start}", [f"{name}={each}" for each in _choices(field)])


def _choices(field: PredicateDescriptor) -> list[str]:
    if field.one_of is not None:
        row = field.type.scalar.row
        return [
            str(each) if row is None else row.lexical(row.coerce(each)) for each in field.one_of
        ]
    return ["true", "false"] if field.type.scalar.kind == "Bool" else []


def _commits(graph: Graph, seen: RefResolver, value: str) -> Completions:
    """The newest commits or, once something is typed, those that begin so."""
    descent = seen.descent()
    if not value:
        newest = (each.id for each in graph.log.newest() if descent is None or descent.sees(each))
        return _bounded(list(islice(newest, MOST + 1)))
    if len(value) > 32 or not set(value) <= set("0123456789abcdef"):
        return Completions(())
    return _bounded(seen.starting_with(value, MOST + 1))


def _starting(value: str, known: Iterable[str]) -> Completions:
    start = value.casefold()
    found = [each for each in known if each.casefold().startswith(start)]
    return Completions(tuple(found[:MOST]), len(found), len(found) > MOST)


def _bounded(found: list[str]) -> Completions:
    """What may be one more than is shown; the number of all is known where it is not."""
    if len(found) > MOST:
        return Completions(tuple(found[:MOST]), None, True)
    return Completions(tuple(found), len(found))
