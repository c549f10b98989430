"""What is wrong with settings as they were written: key, value, rule, for every fault at once.

Pure. The types of the settings say what is legal; asked only when they were refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, cast

from msgspec import inspect

from trails.model.names import suggest

_LONGEST: Final = 60
"""Characters of a value that are shown."""


def list_faults(given: object, wanted: type) -> list[str]:
    """Every fault of ``given``, which came from TOML, as a ``wanted``."""
    return list(_check(given, inspect.type_info(wanted), ()))


def _check(value: object, wanted: inspect.Type, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(wanted, inspect.UnionType):
        # an optional table: TOML has no null, so what is there is the table
        wanted = next(each for each in wanted.types if not isinstance(each, inspect.NoneType))
    if isinstance(wanted, inspect.StructType) and isinstance(value, dict):
        yield from _check_table(value, wanted, path)
    elif isinstance(wanted, inspect.DictType) and isinstance(value, dict):
        for key, each in value.items():
            yield from _check(each, wanted.value_type, (*path, key))
    elif isinstance(wanted, inspect.VarTupleType) and isinstance(value, list):
        for at, each in enumerate(value):
            yield from _check(each, wanted.item_type, (*path[:-1], f"{path[-1]}[{at}]"))
    elif not _fits(value, wanted):
        yield f"{_place(path)} must be {_rule(wanted)}, not {_shown(value)}"


def _check_table(
    table: dict[str, object], wanted: inspect.StructType, path: tuple[str, ...]
) -> Iterator[str]:
    fields = {field.name: field for field in wanted.fields}
    for key, value in table.items():
        if key in fields:
            yield from _check(value, fields[key].type, (*path, key))
        else:
            yield f"{_place((*path, key))} is not a setting; {suggest(key, list(fields))}"
    for name, field in fields.items():
        if field.required and name not in table:
            yield f"{_place((*path, name))} is required"


def _fits(value: object, wanted: inspect.Type) -> bool:
    match wanted:
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.LiteralType():
            return value in wanted.values
        case inspect.IntType():
            return type(value) is int and _within(value, wanted)
        case inspect.FloatType():
            return type(value) in {int, float} and _within(cast(float, value), wanted)
        case _:
            return False


def _within(value: float, wanted: inspect.IntType | inspect.FloatType) -> bool:
    """Whether a number is in its range; NaN is in none."""
    return (
        value == value  # noqa: PLR0124 - NaN differs from itself
        and (wanted.ge is None or value >= wanted.ge)
        and (wanted.gt is None or value > wanted.gt)
        and (wanted.le is None or value <= wanted.le)
    )


def _rule(wanted: inspect.Type) -> str:
    match wanted:
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType():
            return "a text in quotes"
        case inspect.LiteralType():
            return "one of " + ", ".join(f'"{each}"' for each in wanted.values)
        case inspect.IntType() | inspect.FloatType():
            kind = "a whole number" if isinstance(wanted, inspect.IntType) else "a number"
            return " ".join((kind, *_bounds(wanted)))
        case inspect.VarTupleType():
            return "a list, in brackets"
        case _:
            return "a table"


def _bounds(wanted: inspect.IntType | inspect.FloatType) -> Iterator[str]:
    if wanted.ge is not None:
        yield f"of at least {wanted.ge}"
    if wanted.gt is not None:
        yield f"above {wanted.gt}"
    if wanted.le is not None:
        yield f"{'of' if wanted.ge is wanted.gt is None else 'and'} at most {wanted.le}"


def _place(path: tuple[str, ...]) -> str:
    """A setting as the documents write it: ``[server] port``."""
    *tables, key = path
    return f"[{'.'.join(tables)}] {key}" if tables else f"[{key}]"


def _shown(value: object) -> str:
    """A value as TOML writes it, but nothing of tables and lists: they may hold a secret."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            text = value if len(value) <= _LONGEST else value[:_LONGEST] + "…"
            return f'"{text}"'
        case int() | float():
            return str(value)[:_LONGEST]
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return f"a {type(value).__name__}"
