"""What of a registry's tools would trouble an MCP client or its user."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from trails.model.capabilities import Capability
from trails.model.names import portable_name
from trails.model.reports import Finding
from trails.registry.registry import Registry

_COMMON: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What every common client takes as it is."""
_SECRET: Final = re.compile(
    r"(^|_)(password|passwd|passphrase|secret|token|api_?key|credentials?|private_?key)($|_)"
)
_SHOWN: Final = 5


def examine_tools(registry: Registry) -> Iterator[Finding]:
    """Names that some client refuses, and arguments that ask for secrets."""
    names = list(registry.tools)
    long = [name for name in names if len(name) > 64]
    dotted = [name for name in names if len(name) <= 64 and not _COMMON.fullmatch(name)]
    if long:
        yield Finding(
            "tool names",
            "note",
            f"{_several(long)} longer than 64 characters, which common clients refuse",
            "choose shorter names, or set tool_name in the header of a stored query",
        )
    if dotted:
        yield Finding(
            "tool names",
            "note",
            f"{_several(dotted)} written with dots, which some clients refuse; a call spelled "
            f"{portable_name(dotted[0])!r} works as well",
        )
    if not long and not dotted:
        yield Finding("tool names", "ok", f"{len(names)} that every common client takes")
    for capability in (*registry.capabilities.values(), *registry.metas.values()):
        yield from _examine_arguments(capability)


def _examine_arguments(capability: Capability) -> Iterator[Finding]:
    asked = [
        field.name
        for field in capability.descriptor.input_shape
        if _SECRET.search(field.name.lower())
    ]
    if asked:
        yield Finding(
            "secrets",
            "note",
            f"{capability.id} takes {', '.join(asked)}: what a model is given ends up in its "
            "context and in logs",
            "let the server read the secret from its environment, and take a name for it instead",
        )


def _several(names: Iterable[str]) -> str:
    """Some names, and how many more there are."""
    names = list(names)
    shown, more = ", ".join(names[:_SHOWN]), len(names) - _SHOWN
    listed = f"{shown} and {more} more" if more > 0 else shown
    return f"{listed} {'is' if len(names) == 1 else 'are'}"
