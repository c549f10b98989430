"""Terminal output that data cannot control.

Names, values, messages and errors come from people and agents that the operator need not trust.
Control characters, also those for text direction, are printed as codes; emoji codes are not
expanded. Only our own texts contain markup: data goes through ``escape``.
"""

from __future__ import annotations

import re
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from trails.surfaces.cli.plain import STEERING, visible

_STEERING: Final = re.compile(STEERING)


class Terminal(Console):
    """A console that replaces control characters in every text."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=soft_wrap, highlight=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - rich's own
        """Render a text or table cell."""
        return super().render_str(visible(text), **options)


def escape_json(document: bytes) -> bytes:
    """The same JSON with control characters as JSON escapes."""
    text = document.decode()
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def data_output() -> Callable[[bytes], object]:
    """A writer to standard output: raw for a file or pipe, without control characters otherwise."""
    if not sys.stdout.isatty():
        return sys.stdout.buffer.write
    decoder = getincrementaldecoder("utf-8")("replace")
    return lambda block: sys.stdout.write(visible(decoder.decode(block)))
