"""Read plain options without pydantic.

Typer reads every option through a model of pydantic, whose import takes longer than most
commands run. Texts, paths and numbers are read here; everything else, and every error, is Typer's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import typer

_PLAIN: Final[dict[object, Callable[[Any], object]]] = {
    str: str,
    Path: Path,
    list[str]: list,
    list[Path]: lambda given: [Path(each) for each in given],
}


class _PlainValues:
    """Stands in for what Typer makes of a parameter's type, until a value needs that."""

    def coerce(self, value: Any, param: Any, ctx: object) -> object:  # noqa: ANN401 - Typer's own
        """Return the value of a parameter as its command takes it."""
        if value is None:
            return () if param.multiple or param.nargs == -1 else None
        described = param.type_descriptor
        wanted = described.annotation
        if isinstance(wanted, type) and type(value) is wanted:
            return value  # a default
        info = described.parameter_info
        if wanted is int and info.min is info.max is None and value.isdecimal():
            return int(value)
        read = _PLAIN.get(wanted)
        if read is not None and info.parser is None:
            return read(value)
        param._runtime_param = None  # noqa: SLF001 - Typer makes its own from now on
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def read_plainly(command: Any) -> None:  # noqa: ANN401 - Typer has no public type for it
    """Let a command, or the commands of a group, read plain values without pydantic."""
    for each in _commands(command):
        for param in (*each.params, each.get_help_option(typer.Context(each))):
            if param is not None and getattr(param, "_runtime_param", param) is None:
                param._runtime_param = _PlainValues()  # noqa: SLF001 - there is no other hook


def _commands(command: Any) -> Iterator[Any]:  # noqa: ANN401 - likewise
    yield command
    for each in getattr(command, "commands", {}).values():
        yield from _commands(each)
