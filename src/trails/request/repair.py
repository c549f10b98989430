"""Suggest the nearest valid value for a wrong argument, and a call that would pass.

It never loses information: no text is cut, no value dropped, no reference changed to another
record. Corrected arguments are given only if they pass the check that refused the first ones.
``repair`` is pure; ``repair_request`` adds a look into the graph of a request.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import partial
from typing import Final

import msgspec

from trails.engine.session.arguments import check_rules
from trails.engine.session.context import GraphContext
from trails.errors import FieldError, TrailsError, ValidationError
from trails.model.capabilities import StoredQuery
from trails.model.constraints import RULE_BY_CODE, Coerce, compile_field, is_number, rules_of
from trails.model.kinds import KindError
from trails.model.names import fold
from trails.model.types import ANY, LIST, MAP, OBJECT, REF, PredicateDescriptor, ValueType
from trails.projections.json_schema import TypeLookup
from trails.request.entries import Entry, Request

Exists = Callable[[str, object], bool]
"""(node type, reference) → whether the node exists."""
Accepts = Callable[[Mapping[str, object]], bool]
Suggestions = dict[int, object]
"""Suggestions by the index of the error."""

_LARGEST: Final = 64 << 10
"""Larger arguments (in bytes) are not repaired."""
_MOST: Final = 50
"""More violations are not repaired."""
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+)\]")


class Parameters(msgspec.Struct, frozen=True):
    """The expected fields, and the declarations of objects in them."""

    fields: tuple[PredicateDescriptor, ...]
    declared: TypeLookup


class Repaired(msgspec.Struct, frozen=True):
    """Suggestions for wrong arguments."""

    suggestions: Suggestions
    arguments: Mapping[str, object] | None = None
    """All arguments, corrected so that they pass their checks; None if that is not possible."""
    certain: bool = False
    """Whether nothing else is checked: no new node, no text that must be run."""


def repair(
    errors: Sequence[FieldError],
    arguments: Mapping[str, object],
    wanted: Parameters,
    exists: Exists,
    accepts: Accepts | None,
) -> Repaired:
    """Suggest a value for each violation, and the corrected call."""
    corrected = _copy(arguments)
    suggestions: Suggestions = {}
    if corrected is None or len(errors) > _MOST:
        return Repaired(suggestions)
    for at, error in enumerate(errors):
        place = _find(corrected, wanted, error.field)
        if place is None:
            continue
        if error.code == "unknown_field":
            name = place.enclose(wanted.declared) or place.rename()
            if name is not None:
                suggestions[at] = name
        elif error.code == "required" and place.is_filled():
            continue  # a parameter that was misspelled has its value now
        elif error.code not in {"max_length", "max_size"} and place.field is not None:
            for value in place.candidates(exists):
                suggestions[at] = value
                place.put(value)
                break
    if accepts is not None and accepts(corrected):
        return Repaired(suggestions, corrected)
    return Repaired(suggestions)


def suggest_each(errors: Sequence[FieldError]) -> Suggestions:
    """Suggestions that need only the violations themselves, for those found in the graph."""
    found = ((at, _suggest(error)) for at, error in enumerate(errors))
    return {at: value for at, value in found if value is not None}


def _suggest(error: FieldError) -> object:
    rule = RULE_BY_CODE.get(error.code)
    if rule is None or rule.nearest is None:
        return None
    return rule.nearest(error.constraint, error.value)


def _copy(arguments: Mapping[str, object]) -> dict[str, object] | None:
    """A copy of the arguments; None if they are large or not JSON."""
    try:
        text = msgspec.json.encode(arguments)
        return msgspec.json.decode(text, type=dict) if len(text) <= _LARGEST else None
    except (TypeError, ValueError, RecursionError):
        return None


# --- places ----------------------------------------------------------------------------


class _Place:
    """The place of a violation: a member of an object, or an item of a list."""

    def __init__(
        self,
        holder: dict[str, object] | list[object],
        key: str | int,
        siblings: Sequence[PredicateDescriptor],
        field: PredicateDescriptor | None,
    ) -> None:
        self._holder = holder
        self._key = key
        self._siblings = siblings
        self.field = field

    @property
    def value(self) -> object:
        """The given value, or None."""
        if isinstance(self._holder, dict):
            return self._holder.get(str(self._key))
        return self._holder[int(self._key)]

    def put(self, value: object) -> None:
        """Replace the value."""
        self._holder[self._key] = value  # type: ignore[index]

    def is_filled(self) -> bool:
        """Whether there is a value that keeps the field's own rules."""
        field, value = self.field, self.value
        return field is not None and value is not None and not _broken_rules(field, value)

    def enclose(self, declared: TypeLookup) -> str | None:
        """Move the value into a neighbouring object that declares a member of this name."""
        holder, name = self._holder, str(self._key)
        if not isinstance(holder, dict) or name not in holder:
            return None
        for each in self._siblings:
            inner = holder.get(each.name)
            known = () if each.many else _members(each, declared)
            if all(member.name != name for member in known):
                continue
            if inner is None or (isinstance(inner, dict) and name not in inner):
                holder[each.name] = {**(inner or {}), name: holder.pop(name)}
                return f"{each.name}.{name}"
        return None

    def rename(self) -> str | None:
        """Move the value to the unset parameter with the nearest name."""
        holder, name = self._holder, str(self._key)
        if not isinstance(holder, dict) or name not in holder:
            return None
        free = [each.name for each in self._siblings if holder.get(each.name) is None]
        folded = {fold(each): each for each in free}
        near = get_close_matches(fold(name[:100]), folded, n=1, cutoff=0.6)
        if not near:
            return None
        found = folded[near[0]]
        holder[found] = holder.pop(name)
        return found

    def candidates(self, exists: Exists) -> Iterator[object]:
        """Values near the given one that the field's own rules accept."""
        field, given = self.field, self.value
        if field is None or given is None:
            return
        scalar = field.type.scalar
        for value in _near(given, field):
            if value is None or value == given or _broken_rules(field, value):
                continue
            items = value if isinstance(value, list) else [value]
            if scalar.kind == REF and not all(exists(scalar.target or "", each) for each in items):
                continue
            yield value


def _find(arguments: dict[str, object], wanted: Parameters, path: str) -> _Place | None:
    """Follow a path like ``person.tags[2]`` through arguments and declarations."""
    holder: object = arguments
    siblings: Sequence[PredicateDescriptor] = wanted.fields
    field: PredicateDescriptor | None = None
    steps = list(_STEP.finditer(path))
    if "".join(step[0] for step in steps) != path or not steps:
        return None
    for number, step in enumerate(steps):
        last = number == len(steps) - 1
        if step[1] is not None:
            if not isinstance(holder, dict):
                return None
            field = next((each for each in siblings if each.name == step[1]), None)
            if last:
                return _Place(holder, step[1], siblings, field)
            holder = holder.get(step[1])
        else:
            at = int(step[2])
            if not isinstance(holder, list) or at >= len(holder) or field is None:
                return None
            field = _item_of(field)
            if last:
                return _Place(holder, at, (), field)
            holder = holder[at]
        siblings = _members(field, wanted.declared)
    return None


def _item_of(field: PredicateDescriptor) -> PredicateDescriptor:
    return msgspec.structs.replace(field, type=field.type.scalar, min_count=1, max_count=1)


def _members(
    field: PredicateDescriptor | None, declared: TypeLookup
) -> Sequence[PredicateDescriptor]:
    scalar = None if field is None else field.type.scalar
    if scalar is None or scalar.kind != OBJECT:
        return ()
    name = scalar.target or ""
    found = declared.shapes.get(name) or declared.schema.by_name.get(name)
    return () if found is None else found.fields


# --- values ----------------------------------------------------------------------------


def _broken_rules(field: PredicateDescriptor, value: object) -> set[str]:
    """The rules of the field that a value breaks; objects are checked as a whole later."""
    special: dict[str, Coerce] = {
        REF: str,
        OBJECT: _as_object,
        MAP: _as_object,
        ANY: lambda each: each,
    }
    errors: list[FieldError] = []
    compile_field(field, special, stored=False)(value, "value", errors)
    return {error.code for error in errors}


def _as_object(value: object) -> object:
    if not isinstance(value, dict):
        raise KindError
    return value


def _near(given: object, field: PredicateDescriptor) -> Iterator[object]:
    """Values that the caller may have meant, most likely first."""
    if field.many:
        if not isinstance(given, list):
            yield [given]
            item = _item_of(field)
            yield from ([value] for value in _near(given, item))
            parsed = _parsed(given)
            if isinstance(parsed, list):
                yield parsed
        return
    if field.type.kind == REF:
        yield from _respelled(given, field.type.target or "")
        return
    for value in (given, *_converted(given, field.type)):
        yield value
        if isinstance(value, str):
            trimmed = value.strip()
            yield from (trimmed, trimmed.lower(), trimmed.upper())
        broken = _broken_rules(field, value)
        for rule, limit in rules_of(field):
            if rule.nearest is not None and (rule.code in broken or rule.limit == "values"):
                yield rule.nearest(limit, value)


def _respelled(given: object, target: str) -> Iterator[object]:
    """The same reference in a valid form."""
    if isinstance(given, list) and len(given) == 1:
        given = given[0]
        yield given
    if is_number(given):
        yield str(given)
    if isinstance(given, str):
        yield given.strip()
        name, slash, identifier = given.strip().rpartition("/")
        if slash and name.casefold() == target.casefold():
            yield f"{target}/{identifier}"


def _converted(given: object, wanted: ValueType) -> Iterable[object]:
    """The same value in the JSON form of a kind."""
    row = wanted.row
    is_array = wanted.kind in {LIST, ANY} or (
        row is not None and row.schema.get("type", "array") == "array"
    )
    if isinstance(given, list) and len(given) == 1 and not is_array:
        yield given[0]
    elif row is not None:
        yield row.repair(given)
    elif isinstance(given, str) and wanted.kind in {OBJECT, MAP}:
        yield _parsed(given.strip())


def _parsed(text: object) -> object:
    if not isinstance(text, str):
        return None
    try:
        return msgspec.json.decode(text.encode())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def repair_request(request: Request, error: ValidationError) -> Repaired:
    """Suggest corrections for refused arguments; nothing is executed."""
    entry, ctx = request.entry, request.ctx
    wanted = Parameters((*entry.arguments.fields, *entry.controls.fields), entry.declared)
    if ctx is None:
        return repair(error.fields, request.arguments, wanted, _unknown, None)
    exists, accepts = partial(_exists, ctx), partial(_accepts, request, ctx)
    repaired = repair(error.fields, request.arguments, wanted, exists, accepts)
    return msgspec.structs.replace(repaired, certain=_is_certain(request.entry))


def _is_certain(entry: Entry) -> bool:
    """Whether nothing but the checks of its arguments can refuse a call.

    Built-ins that read texts or operations, queries that change data, and new nodes are also
    checked when they run.
    """
    if entry.source is None or (isinstance(entry.source, StoredQuery) and entry.source.mutation):
        return False
    scalars = [field.type.scalar for field in entry.arguments.fields]
    types = entry.declared.schema.by_name
    return not any(each.kind == OBJECT and each.target in types for each in scalars)


def _accepts(request: Request, ctx: GraphContext, arguments: Mapping[str, object]) -> bool:
    controls = request.entry.controls.names
    if any(arguments.get(name) != request.arguments.get(name) for name in controls):
        return False  # it may be on another branch
    own = {name: value for name, value in arguments.items() if name not in controls}
    try:
        prepared = request.entry.arguments.prepare(ctx, own)
        if request.entry.judged is not None:
            check_rules(ctx, request.entry.judged, prepared)
    except TrailsError:
        return False
    return True


def _unknown(target: str, value: object) -> bool:
    """Without a context, no reference can be resolved."""
    del target, value
    return False


def _exists(ctx: GraphContext, target: str, value: object) -> bool:
    if not isinstance(value, str) or target not in ctx.kg.schema.by_name:
        return False
    try:
        return ctx.kg.find(target, value) is not None
    except TrailsError:
        return False
