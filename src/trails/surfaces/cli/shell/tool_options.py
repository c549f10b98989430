"""The arguments of a tool as options of ``trails call``, made from its input schema.

``--title "New"`` is the argument ``title``, ``--max-chars 500`` is ``max_chars``, and a flag is
``--urgent`` or ``--no-urgent``. The parameters of a stored query are options too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from trails.errors import QueryError
from trails.model.names import suggest
from trails.surfaces.cli.output.markup import escape, indented

_PARAMS: Final = "params"
"""The argument of a stored query that holds its parameters."""
_KINDS: Final = ("string", "integer", "number", "boolean", "array", "object")


class ToolOption(NamedTuple):
    """One argument, or one parameter of a stored query."""

    name: str
    schema: Mapping[str, object]
    required: bool
    inside: bool
    """Whether it is a parameter of a stored query."""

    @property
    def spelled(self) -> str:
        return f"--{self.name.replace('_', '-')}"

    @property
    def kinds(self) -> list[str]:
        """The JSON types of its value."""
        given = self.schema.get("type")
        found = [given] if isinstance(given, str) else given
        return [each for each in _KINDS if isinstance(found, list) and each in found]


def tool_options(schema: Mapping[str, object]) -> list[ToolOption]:
    """The options of a tool, required ones first."""
    found = list(_options(schema, inside=False))
    return sorted(found, key=lambda each: not each.required)


def _options(schema: Mapping[str, object], *, inside: bool) -> Iterator[ToolOption]:
    declared, required = schema.get("properties"), schema.get("required")
    needed = required if isinstance(required, list | tuple) else ()
    for name, each in declared.items() if isinstance(declared, Mapping) else ():
        if not isinstance(each, Mapping):
            continue
        if name == _PARAMS and not inside and isinstance(each.get("properties"), Mapping):
            yield from _options(each, inside=True)
        else:
            yield ToolOption(name, each, name in needed, inside)


class GivenOptions(NamedTuple):
    """What was typed, as ``name=value``: of arguments, and of the parameters of a stored query."""

    arguments: list[str]
    params: list[str]


def read_options(words: Sequence[str], tool: str, schema: Mapping[str, object]) -> GivenOptions:
    """Read ``--name value``, ``--name=value`` and flags."""
    known = {each.spelled: each for each in tool_options(schema)}
    given, rest = GivenOptions([], []), iter(words)
    for word in rest:
        spelled, equals, value = word.partition("=")
        option = known.get(spelled)
        if option is None and spelled.startswith("--no-") and not equals:
            option, equals, value = known.get(f"--{spelled[5:]}"), "=", "false"
            option = option if option is not None and "boolean" in option.kinds else None
        if option is None:
            hint = suggest(spelled, known) if known else "it has none"
            raise QueryError(f"{tool} has no option {word[:100]!r}; {hint}")
        if not equals:
            value = "true" if "boolean" in option.kinds else next(rest, "")
            if not value and word is words[-1]:
                raise QueryError(f"{spelled} needs a value")
        (given.params if option.inside else given.arguments).append(f"{option.name}={value}")
    return given


def describe_tool(name: str, description: str, schema: Mapping[str, object]) -> Iterator[str]:
    """The help of a tool, as that of a command."""
    options = tool_options(schema)
    yield f"Usage: trails call {escape(name)}{' [OPTIONS]' if options else ''}"
    yield ""
    yield indented(escape(description), 2)
    if options:
        yield ""
        yield "Options:"
    shown = {each.spelled: " ".join((each.spelled, *_value(each))) for each in options}
    width = max(map(len, shown.values()), default=0)
    for each in options:
        detail = str(each.schema.get("description") or "")
        choices = each.schema.get("enum")
        if isinstance(choices, list):
            detail += f" One of {', '.join(map(str, choices))}."
        notes = "  [dim](required)[/]" if each.required else ""
        if each.schema.get("default") not in (None, {}, []):
            notes = f"  [dim](default: {escape(str(each.schema['default']))})[/]"
        name = f"[bold]{escape(shown[each.spelled].ljust(width))}[/]"
        yield f"  {name}  {escape(detail.strip())}{notes}"
    yield ""
    yield "'trails call --help' shows the options of every call, such as --json and --server."


def _value(option: ToolOption) -> list[str]:
    if "boolean" in option.kinds:
        return []
    kind = option.kinds[0] if option.kinds else "JSON"
    return [{"array": "ITEM..."}.get(kind, kind.upper())]
