r"""The constraints of a value, and the check of a field that is compiled from them.

``RULES`` has one row per constraint, read by declarations, JSON Schema, validation, SHACL,
fast loads, repair and query parameters. To add a constraint, add a row here, an attribute
to ``PredicateDescriptor`` (``model/types.py``) and an argument to ``predicate()``
(``authoring/predicates.py``), and list it in ``docs/reference/declarations.md``.

A pattern is written in the ECMA-262 syntax that JSON Schema uses and runs in RE2, in linear
time. Where the two engines read the same characters differently (``.``, ``\s``, ``\uXXXX``)
the text is translated; where no translation is exact the pattern is refused, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import date
from difflib import get_close_matches
from functools import lru_cache
from itertools import chain, islice
from math import isfinite
from types import NoneType
from typing import Final, Literal, cast

import msgspec

from trails.errors import DeclarationError, FieldError
from trails.model.kinds import INT_MAX, INT_MIN, KINDS, DanglingError, Kind, KindError
from trails.model.names import fold
from trails.model.texts import count, with_article
from trails.model.types import ANY, LIST, MAP, OBJECT, REF, PredicateDescriptor, ValueType
from trails.model.values.lang_texts import LangText

# ECMA-262 WhiteSpace and LineTerminator; RE2's own \s is ASCII only.
_SPACE = r"\t\n\v\f\r \x{a0}\x{feff}\x{2028}\x{2029}\p{Zs}"
_NOT_LINE_END = r"[^\n\r\x{2028}\x{2029}]"
_SAME_ESCAPES = frozenset("dDwWbBnrtfv")
_SYNTAX = frozenset("^$\\.*+?()[]{}|/")  # all that ECMA-262 allows to escape (with the flag u)
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
        raise _Refused(
            f"\\{char} is not an escape in JSON Schema; write {char} without the backslash"
        )
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
    """Compile to a function that returns whether the pattern occurs in a text."""
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


Coerce = Callable[[object], object]
Check = Callable[[object, str, list[FieldError]], object]
"""(raw value or None, path, errors to extend) → the coerced value, or None."""


class Rule(msgspec.Struct, frozen=True):
    """One constraint on a single value."""

    code: str
    keyword: str
    phrase: str
    """How a message goes on after the field's name; ``{}`` is the limit."""
    test: Callable[[object, Coerce], Callable[..., bool]]
    """(declared limit, coerce) → a predicate on coerced values."""
    limit: Literal["count", "pattern", "value", "values", "tags"]
    """What is declared: a whole number, a pattern, one or several values of the field's kind, or
    language tags."""
    fits: Callable[[Kind], bool]
    """Whether the constraint makes sense for a kind."""
    json_types: frozenset[str] = frozenset()
    """JSON types that the keyword applies to; others it ignores. Empty: it applies to all."""
    tighter: Callable[..., object] | None = None
    """Which of two limits counts where the kind's own schema has the keyword too."""
    shacl: str | None = None
    """The SHACL property; None where SHACL has none, and the shape gets a comment."""
    nearest: Callable[[object, object], object] | None = None
    """(declared limit, refused JSON value) → a legal value to suggest, or None."""


def _longer(limit: object, _: Coerce) -> Callable[..., bool]:
    return lambda value: len(value) >= limit  # type: ignore[operator]


def _shorter(limit: object, _: Coerce) -> Callable[..., bool]:
    return lambda value: len(value) <= limit  # type: ignore[operator]


def _matching(limit: object, _: Coerce) -> Callable[..., bool]:
    return compile_pattern(str(limit))


def _among(limit: object, coerce: Coerce) -> Callable[..., bool]:
    return frozenset(coerce(value) for value in limit).__contains__  # type: ignore[attr-defined]


def _above(limit: object, coerce: Coerce) -> Callable[..., bool]:
    low = coerce(limit)
    return lambda value: value >= low


def _below(limit: object, coerce: Coerce) -> Callable[..., bool]:
    high = coerce(limit)
    return lambda value: value <= high


def _limit_itself(limit: object, given: object) -> object:
    del given
    return limit


_MAX_COMPARED: Final = 1000
"""Characters of the longest text that is compared with the allowed ones."""


def _nearest_member(limit: object, given: object) -> object:
    """The allowed value that is most like the given one, or None where none is like it."""
    members = limit if isinstance(limit, list | tuple) else ()
    if isinstance(given, str) and len(given) <= _MAX_COMPARED:
        texts = {fold(each.strip()): each for each in members if isinstance(each, str)}
        near = get_close_matches(fold(given.strip()), texts, n=1, cutoff=0.6)
        return texts[near[0]] if near else None
    numbers = [each for each in members if is_number(each)]
    if is_number(given):
        return min(numbers, key=lambda each: abs(each - given), default=None)
    return None


def is_number(value: object) -> bool:
    """Whether a JSON value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _having(limit: object, _: Coerce) -> Callable[..., bool]:
    wanted = frozenset(cast(tuple[str, ...], limit))
    return lambda value: wanted <= value.keys()


def _is_tagged(kind: Kind) -> bool:
    return kind.tagged


def _is_text(kind: Kind) -> bool:
    return kind.text


def _is_quantity(kind: Kind) -> bool:
    return kind.quantity


def _is_scalar(kind: Kind) -> bool:
    return kind.sort_key is not None


_STRINGS: Final = frozenset({"string"})
_NUMBERS: Final = frozenset({"integer", "number"})
_OBJECTS: Final = frozenset({"object"})

RULES: Final = (
    Rule(
        code="min_length",
        keyword="minLength",
        phrase="must have at least {} characters",
        test=_longer,
        limit="count",
        fits=_is_text,
        json_types=_STRINGS,
        shacl="sh:minLength",
    ),
    Rule(
        code="max_length",
        keyword="maxLength",
        phrase="must have at most {} characters",
        test=_shorter,
        limit="count",
        fits=_is_text,
        json_types=_STRINGS,
        shacl="sh:maxLength",
    ),
    Rule(
        code="pattern",
        keyword="pattern",
        phrase="must match {}",
        test=_matching,
        limit="pattern",
        fits=_is_text,
        json_types=_STRINGS,
        shacl="sh:pattern",
    ),
    Rule(
        code="one_of",
        keyword="enum",
        phrase="must be one of {}",
        test=_among,
        limit="values",
        fits=_is_scalar,
        shacl="sh:in",
        nearest=_nearest_member,
    ),
    Rule(
        code="min_value",
        keyword="minimum",
        phrase="must be at least {}",
        test=_above,
        limit="value",
        fits=_is_quantity,
        json_types=_NUMBERS,
        tighter=max,
        shacl="sh:minInclusive",
        nearest=_limit_itself,
    ),
    Rule(
        code="max_value",
        keyword="maximum",
        phrase="must be at most {}",
        test=_below,
        limit="value",
        fits=_is_quantity,
        json_types=_NUMBERS,
        tighter=min,
        shacl="sh:maxInclusive",
        nearest=_limit_itself,
    ),
    Rule(
        code="languages",
        keyword="required",
        phrase="must have texts in {}",
        test=_having,
        limit="tags",
        fits=_is_tagged,
        json_types=_OBJECTS,
    ),
)
RULE_BY_CODE: Final[Mapping[str, Rule]] = {rule.code: rule for rule in RULES}

FIELD_CODES: Final = frozenset(
    {
        *RULE_BY_CODE,
        "required",
        "datatype",
        "min_count",
        "max_count",
        "max_size",
        "unique",
        "reference",
        "unknown_field",
        "abstract",
        "immutable_key",
        "in_use",
    }
)
"""Every ``FieldError.code``."""


def rules_of(field: PredicateDescriptor) -> Iterator[tuple[Rule, object]]:
    """The constraints that a field declares, with their limits."""
    for rule in RULES:
        limit = getattr(field, rule.code)
        if limit is not None:
            yield rule, limit


_EXPECTED: Final = {
    REF: "a reference to {a_target} (its IRI, '{target}/id' or key)",
    OBJECT: "an object with the fields of {target}",
    ANY: "a JSON value",
    MAP: "an object",
}


class PartsError(KindError):
    """A structured value is wrong in its parts; paths and messages are relative to it."""

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__()
        self.errors = errors

    def below(self, path: str) -> list[FieldError]:
        """The same errors, with paths relative to the outer value."""
        return [
            msgspec.structs.replace(each, field=path + each.field, message=path + each.message)
            for each in self.errors
        ]


def coercer_of(value_type: ValueType, special: Mapping[str, Coerce]) -> tuple[Coerce, str]:
    """The coercer of a scalar type and what it expects, in words.

    ``special`` supplies the kinds that need more than a value: references, objects.
    """
    if value_type.kind in special:
        target = value_type.target or ""
        expected = _EXPECTED[value_type.kind].format(target=target, a_target=with_article(target))
        return special[value_type.kind], expected
    kind = KINDS[value_type.kind]
    dimension = value_type.dimension
    if dimension is None:
        return kind.coerce, kind.expected

    def sized(value: object) -> object:
        vector = kind.coerce(value)
        if len(vector) != dimension:  # type: ignore[arg-type]
            raise KindError
        return vector

    return sized, f"an array of {dimension} finite numbers"


def phrase_of(rule: Rule, limit: object) -> str:
    """The rule in words: what follows the field's name in a message."""
    phrase = rule.phrase.format(_spell(limit))
    return phrase.removesuffix("s") if limit == 1 and phrase.endswith(" characters") else phrase


def compile_field(
    field: PredicateDescriptor, special: Mapping[str, Coerce], *, stored: bool
) -> Check:
    """Make the check of one field. A stored list is a set, unless it is ordered."""
    coerce, expected = coercer_of(field.type.scalar, special)
    rules = [
        (rule.test(limit, coerce), rule.code, limit, phrase_of(rule, limit))
        for rule, limit in rules_of(field)
    ]
    single, required = not field.many, field.required
    legal = "".join(f", which {phrase}" for *_, phrase in rules[:1])
    legal += "".join(f" and {phrase}" for *_, phrase in rules[1:])

    def check_one(raw: object, path: str, errors: list[FieldError]) -> object:
        if raw is None and single:
            if required:
                message = f"{path} is required: {expected}{legal}"
                errors.append(FieldError(path, "required", message, None, True))
            return None
        try:
            value = coerce(raw)
        except PartsError as inner:
            errors.extend(inner.below(path))
            return None
        except DanglingError as reason:
            kind = str(field.type.scalar)
            errors.append(FieldError(path, reason.code, f"{path}: {reason}", showable(raw), kind))
            return None
        except KindError as reason:
            hint = f" ({reason})" if str(reason) else ""
            message = f"{path} must be {expected}, not {shorten(raw)}{hint}"
            kind = str(field.type.scalar)
            errors.append(FieldError(path, reason.code, message, showable(raw), kind))
            return None
        # An int is checked as given: rounded to a float it could cross a limit.
        judged = raw if type(raw) is int else value
        for holds, code, limit, phrase in rules:
            # Of text in several languages, each text is judged; the languages are judged together.
            parts = (
                [(f"{path}@{tag}", text) for tag, text in value.items()]
                if isinstance(value, LangText) and code != "languages"
                else [(path, judged)]
            )
            for at, part in parts:
                if not holds(part):
                    given = raw if at is path else part
                    message = f"{at} {phrase}, not {shorten(given)}"
                    errors.append(FieldError(at, code, message, showable(given), limit))
        return value

    if field.many:
        return _compile_many(field, check_one, as_set=stored and field.is_set)
    return check_one


def _compile_many(field: PredicateDescriptor, check_one: Check, *, as_set: bool) -> Check:
    low, high = field.min_count, field.max_count
    kind = field.type.scalar.row
    sort_key = kind.sort_key if kind is not None else None
    # A Python set has no order that could be kept.
    accepted = (list, tuple) if field.ordered else (list, tuple, set, frozenset)
    expected = "a list in order" if field.ordered else "a list"

    def check_many(raw: object, path: str, errors: list[FieldError]) -> object:
        missing = raw is None
        if raw is None:
            raw = ()
        if not isinstance(raw, accepted):
            message = f"{path} must be {expected}, not {shorten(raw)}"
            errors.append(FieldError(path, "datatype", message, showable(raw), LIST))
            return None
        before = len(errors)
        values = [check_one(item, f"{path}[{at}]", errors) for at, item in enumerate(raw)]
        if len(errors) > before:
            return None
        if as_set:
            values = sorted(set(values), key=sort_key)  # type: ignore[type-var, arg-type]
        if len(values) < low:
            code = "required" if missing else "min_count"
            message = f"{path} needs at least {count(low, 'value')}, not {len(values)}"
            errors.append(FieldError(path, code, message, showable(raw), low))
        if high is not None and len(values) > high:
            message = f"{path} may have at most {count(high, 'value')}, not {len(values)}"
            errors.append(FieldError(path, "max_count", message, showable(raw), high))
        return tuple(values)

    return check_many


Column = Callable[[Sequence[object]], Sequence[object] | None]
"""The raw values of one field of many nodes → their coerced values; None where one is missing.

None instead of all of them if one may be wrong, or is unusual: ``compile_field`` then decides."""


def compile_column(field: PredicateDescriptor, special: Mapping[str, Coerce]) -> Column:
    """The check of one stored field of many nodes: it accepts no more than ``compile_field``."""
    coerce, _ = coercer_of(field.type.scalar, special)
    kind = field.type.scalar.row
    coerce_all = _SAME.get(None if kind is None else kind.native)
    rules = [rule.test(limit, coerce) for rule, limit in rules_of(field)]
    if rules and field.tagged:
        return _undecided  # each text is judged by itself

    def check_given(given: Sequence[object]) -> Sequence[object] | None:
        types = set(map(type, given))
        values: Sequence[object] | None = None
        if coerce_all is not None and kind is not None and types == {kind.native}:
            values = coerce_all(given)
        elif int not in types or not rules:  # an int is judged as given
            try:
                values = [coerce(value) for value in given]
            except KindError:
                return None
        if values is None or not all(all(map(holds, values)) for holds in rules):
            return None
        return values

    return _many_column(field, check_given) if field.many else _one_column(field, check_given)


def _undecided(raw: Sequence[object]) -> Sequence[object] | None:
    return None if any(value is not None for value in raw) else raw


def _one_column(field: PredicateDescriptor, check_given: Column) -> Column:
    required = field.required

    def check(raw: Sequence[object]) -> Sequence[object] | None:
        given = [value for value in raw if value is not None]
        if required and len(given) < len(raw):
            return None
        values = check_given(given) if given else ()
        if values is None or len(given) == len(raw):
            return values
        found = iter(values)
        return [None if value is None else next(found) for value in raw]

    return check


def _many_column(field: PredicateDescriptor, check_given: Column) -> Column:
    low, high = field.min_count, field.max_count
    kind = field.type.scalar.row
    sort_key = kind.sort_key if kind is not None else None
    accepted = {NoneType, list, tuple} | (set() if field.ordered else {set, frozenset})

    def check(raw: Sequence[object]) -> Sequence[object] | None:
        if not accepted.issuperset(map(type, raw)):
            return None
        lists: list[Collection[object]] = [items or () for items in raw]  # type: ignore[misc]
        given = list(chain.from_iterable(lists))
        values = check_given(given) if given else ()
        if values is None:
            return None
        found, taken = list[object](), iter(values)
        for items in lists:
            several = list(islice(taken, len(items)))
            if field.is_set and len(several) > 1:
                several = sorted(set(several), key=sort_key)  # type: ignore[type-var, arg-type]
            if len(several) < low or (high is not None and len(several) > high):
                return None
            found.append(tuple(several) if several else None)
        return found

    return check


def _same_texts(given: Sequence[object]) -> Sequence[object] | None:
    text = "".join(cast(Sequence[str], given))
    try:
        return given if text.isascii() or text.encode() else None
    except UnicodeEncodeError:
        return None


def _same_integers(given: Sequence[object]) -> Sequence[object] | None:
    numbers = cast(Sequence[int], given)
    return given if min(numbers) >= INT_MIN and max(numbers) <= INT_MAX else None


def _same_floats(given: Sequence[object]) -> Sequence[object] | None:
    numbers = cast(Sequence[float], given)
    return [number or 0.0 for number in numbers] if all(map(isfinite, numbers)) else None


def _same(given: Sequence[object]) -> Sequence[object] | None:
    return given


_SAME: Final[Mapping[type | None, Column]] = {
    str: _same_texts,
    int: _same_integers,
    float: _same_floats,
    bool: _same,
    date: _same,
}
"""By native type: what ``coerce`` makes of values that have exactly this type."""


def shorten(value: object, limit: int = 60) -> str:
    """A value for a message: quoted, never long."""
    try:
        text = repr(value)
    except ValueError:  # Python refuses to write very long integers
        return "an integer of thousands of digits"
    except RecursionError:
        return "a value with thousands of levels"
    return text if len(text) <= limit else f"{text[: limit - 12]}… ({len(text)} characters)"


def showable(value: object, levels: int = 20) -> object:
    """A value as JSON can carry it, bounded, for an error's ``value``."""
    if isinstance(value, bool | float) or value is None:
        return value
    if isinstance(value, int) and abs(value) < 2**64:
        return value
    if isinstance(value, str):
        return value if len(value) <= 1000 else value[:1000] + "…"
    if isinstance(value, list | tuple) and len(value) <= 100 and levels:
        return [showable(item, levels - 1) for item in value]
    return shorten(value, 200)


def _spell(limit: object) -> str:
    if isinstance(limit, tuple):
        return ", ".join(repr(each) for each in limit)
    return str(limit)
