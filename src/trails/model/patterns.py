r"""Patterns that mean the same to RE2 and to a JSON Schema validator.

A pattern is written in the ECMA-262 syntax that JSON Schema uses and runs in
RE2, in linear time. Where the two engines read the same characters
differently (``.``, ``\s``, ``\uXXXX``) the text is translated; where no
translation is exact the pattern is refused, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from trails.errors import DeclarationError

# ECMA-262 WhiteSpace and LineTerminator; RE2's own \s is ASCII only.
_SPACE = r"\t\n\v\f\r \x{a0}\x{feff}\x{2028}\x{2029}\p{Zs}"
_NOT_LINE_END = r"[^\n\r\x{2028}\x{2029}]"
_SAME_ESCAPES = frozenset("dDwWbBnrtfv")
_SYNTAX = frozenset("^$\\.*+?()[]{}|/")  # all that ECMA-262 lets one escape (with the flag u)
_SET_OPERATORS = ("--", "&&", "||", "~~")
_HEX = re.compile(r"[0-9A-Fa-f]+")
_QUANTIFIER = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}")


class _Refused(Exception):  # noqa: N818 - an internal signal, never seen by users
    """Why a pattern has no exact translation."""


def _translate_escape(pattern: str, at: int, *, in_class: bool) -> tuple[str, int]:
    """Translate the escape that starts at ``at``; return it and where the text goes on."""
    if at + 1 >= len(pattern):
        raise _Refused("it ends with a lone backslash")
    char = pattern[at + 1]
    if char in _SAME_ESCAPES:
        if in_class and char in "bB":
            raise _Refused(f"\\{char} inside [...] means different things to different engines")
        return "\\" + char, at + 2
    if char == "s":
        return (_SPACE if in_class else f"[{_SPACE}]"), at + 2
    if char == "S" and not in_class:
        return f"[^{_SPACE}]", at + 2
    for letter, width in (("x", 2), ("u", 4)):
        digits = pattern[at + 2 : at + 2 + width]
        if char == letter and len(digits) == width and _HEX.fullmatch(digits):
            if 0xD800 <= int(digits, 16) <= 0xDFFF:
                raise _Refused(f"\\u{digits} is half a character; write the character itself")
            return rf"\x{{{digits}}}", at + 2 + width
    if char in _SYNTAX or (char == "-" and in_class):
        return "\\" + char, at + 2
    if not char.isalnum():
        raise _Refused(f"\\{char} is no escape in JSON Schema; write {char} without the backslash")
    raise _Refused(f"\\{char} is not one of \\d \\w \\s \\b \\n \\r \\t \\f \\v \\xHH \\uHHHH")


def _translate(pattern: str) -> str:
    out: list[str] = []
    at, in_class = 0, False
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            piece, at = _translate_escape(pattern, at, in_class=in_class)
            out.append(piece)
            continue
        if in_class:
            if char == "[":
                raise _Refused("'[' inside [...] must be written as \\[")
            if pattern[at : at + 2] in _SET_OPERATORS:
                raise _Refused(
                    f"{char * 2} inside [...] is a set operator to some engines; "
                    "write the character once, and '-' as \\-"
                )
            in_class = char != "]"
        elif char == "[":
            in_class = True
            if pattern[at + 1 : at + 2] == "]" or pattern[at + 1 : at + 3] == "^]":
                raise _Refused("an empty class [] or [^] is read differently; write \\] for ']'")
        elif char == "(" and pattern[at + 1 : at + 2] == "?" and pattern[at + 2 : at + 3] != ":":
            raise _Refused("of the (?...) forms only (?:...) means the same everywhere")
        elif char == "{" and (quantifier := _QUANTIFIER.match(pattern, at)):
            out.append(quantifier[0])
            at = quantifier.end()
            continue
        elif char in "{}]":
            raise _Refused(f"a lone {char} is read differently; write \\{char}")
        elif char == ".":
            char = _NOT_LINE_END
        out.append(char)
        at += 1
    return "".join(out)


def check_pattern(pattern: str) -> None:
    """Raise DeclarationError unless the pattern runs in linear time and means one thing."""
    compile_pattern(pattern)


@lru_cache(maxsize=4096)
def compile_pattern(pattern: str) -> Callable[[str], bool]:
    """Compile to a function that tells whether the pattern occurs in a text."""
    import re2  # noqa: PLC0415 - native library, loaded when a pattern is first used

    try:
        translated = _translate(pattern)
        re.compile(pattern)
        options = re2.Options()
        options.log_errors = False
        re2.compile(translated, options)
        matcher = re2.Set.SearchSet(options)
        matcher.Add(translated)
        matcher.Compile()
    except (_Refused, re.error, re2.error) as error:
        reason = error.args[0]
        spelled = reason.decode() if isinstance(reason, bytes) else reason
        raise DeclarationError(
            f"pattern {pattern!r} can't be used: {spelled}. Patterns must run in linear time (RE2: "
            "no look-around, no back-references) and mean the same in JSON Schema; rewrite it",
            pattern=pattern,
        ) from None
    match = matcher.Match

    def occurs(text: str) -> bool:
        return match(text.encode()) is not None

    return occurs
