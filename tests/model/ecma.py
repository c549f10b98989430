r"""Read a regular expression as ECMA-262 does, with Python's engine.

JSON Schema's `pattern` is ECMA-262 with the flag `u`; Python reads four things
differently: `$` also matches before a final line feed, `\d` and `\w` (so `\b`) take all of
Unicode, `\s` takes other spaces, and `.` stops at the line feed alone. Written apart from
`trails.model.patterns`, so that the two can judge each other.
"""

from __future__ import annotations

import re
from functools import lru_cache

# ECMA-262, WhiteSpace and LineTerminator: TAB LF VT FF CR, ZWNBSP, every "space separator".
SPACES = "\t\n\v\f\r \xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"

_TOKEN = re.compile(r"\\.|.", re.DOTALL)
_OUTSIDE = {
    "$": r"\Z",
    ".": "[^\n\r\u2028\u2029]",
    r"\s": f"[{SPACES}]",
    r"\S": f"[^{SPACES}]",
}
_INSIDE = {r"\s": SPACES}


@lru_cache(maxsize=1024)
def compile_ecma(pattern: str) -> re.Pattern[str]:
    """Compile to a Python pattern with the same meaning; search with it, don't match."""
    out = []
    in_class = False
    for token in _TOKEN.findall(pattern):
        out.append((_INSIDE if in_class else _OUTSIDE).get(token, token))
        in_class = token != "]" if in_class else token == "["
    return re.compile("".join(out), re.ASCII)
