"""The terminal: whatever a command prints is shown and never obeyed.

Names, values, messages and errors come from people and agents whom an operator need not trust.
A character that would steer the terminal, or turn the direction of text around, is shown as
its number; emoji codes mean nothing. Markup is ours alone: data goes through ``escape``.
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
    """A console of which every text is made visible before it is laid out."""

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=soft_wrap, highlight=False, emoji=False)

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - rich's own
        """A text or a cell, on its way to the screen."""
        return super().render_str(visible(text), **options)


def escape_json(document: bytes) -> bytes:
    """JSON that says the same in characters that steer nothing."""
    text = document.decode()
    return _STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


def data_output() -> Callable[[bytes], object]:
    """Writes data to standard output: as it is into a file or pipe, visible on a terminal."""
    if not sys.stdout.isatty():
        return sys.stdout.buffer.write
    decoder = getincrementaldecoder("utf-8")("replace")
    return lambda block: sys.stdout.write(visible(decoder.decode(block)))
