"""The kinds of values: one row per kind, read by every part of Trails.

A row says which annotation names the kind, its JSON Schema, which JSON and Python
values it accepts, its RDF literals, its sort key, and how wrong values are repaired.
To add a kind, add a row here and list it in ``docs/reference/declarations.md``; export its class
from ``trails/__init__.py`` if it brings one. Declarations, JSON Schema, validation,
SHACL, SPARQL parameters, loading, repair and the command line read the row.

Beware of Python here: ``True`` is an ``int``; ``int()`` takes ``"1_000"``,
spaces and Arabic digits; ``1.0`` is an integer to JSON Schema.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from operator import methodcaller
from typing import Final

import msgspec

from trails.model.iris import IRI_PATTERN, RDF, TRAILS, URI_PATTERN, XSD
from trails.model.values.blobs import Blob as Blob  # noqa: PLC0414 - beside the other kinds
from trails.model.values.json_values import MAX_JSON_DEPTH, Json, JsonError
from trails.model.values.lang_texts import TAG_PATTERN, LangText, LangTextError

INT_MIN: Final = -(2**63)
INT_MAX: Final = 2**63 - 1
FLOAT_MAX: Final = 1.7976931348623157e308
DECIMAL_PATTERN: Final = r"^-?[0-9]{1,20}(?:\.[0-9]{1,18})?$"
BIGINT_PATTERN: Final = r"^-?[0-9]{1,1000}$"
_DAY = (  # the year 0000 is a date to some JSON Schema validators, and never to Python
    r"^(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
    r"-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])"
)
DATE_PATTERN: Final = _DAY + "$"
DATETIME_PATTERN: Final = _DAY + (
    r"T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
    r"(?:Z|[+-](?:(?:0[0-9]|1[0-3]):[0-5][0-9]|14:00))$"
)

Document = Mapping[str, object]


class Iri(str):
    """An absolute IRI."""

    __slots__ = ()


class BigInt(int):
    """An integer of any size; a string in JSON, where numbers lose precision."""


class KindError(ValueError):
    """A value is not of a kind; the text says what is expected."""

    code = "datatype"


class DanglingError(KindError):
    """A reference is well formed, but leads nowhere or to a node of another type."""

    code = "reference"


def _no_repair(value: object) -> object:
    del value
    return None


class Kind(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    schema: Document
    expected: str
    """Completes "must be …" in messages."""
    example: object
    """A legal value, with which stored queries are checked."""
    coerce: Callable[[object], object]
    """A JSON or Python value → the stored value, or KindError."""
    datatype: str
    python: type | None = None
    """The type that annotations name and values have; None for Vector, which has a parameter."""
    lexical: Callable[..., str] = str
    """The canonical text of an RDF literal, as Oxigraph writes it."""
    parse: Callable[[str], object] = str
    """A value from its canonical text."""
    read: Callable[[str], object] = str
    """Any text that the datatype allows (RDF, CSV) → a JSON value for ``coerce``, or KindError."""
    repair: Callable[[object], object] = _no_repair
    """A JSON value of another type → the one that the caller probably meant, or None."""
    plain: Callable[..., object] | None = None
    """The JSON form of a value; None where the value is its own JSON form."""
    restore: Callable[..., object] | None = None
    """A value from its JSON form, which is known to be good; None where they are the same."""
    trusted: Callable[[str], object] | None = None
    """A value from its own lexical text, without a check: the node index then holds that text
    and not the JSON form, which would have to be checked again."""
    native: type | None = None
    """The type that msgspec restores from the JSON form by itself; None where it has none.

    Fast loads trust str, bool, int, float and date: what msgspec reads as one of them, ``coerce``
    accepts, except for numbers beyond the schema's minimum and maximum.
    """
    sort_key: Callable[..., bytes] | None = None
    """A byte string that sorts like the values; None where they have no order."""
    quantity: bool = False
    """Whether min_value and max_value make sense."""
    text: bool = False
    """Whether min_length, max_length and pattern make sense."""
    escaped: bool = False
    """Whether the lexical text may have characters that RDF escapes."""
    respelled: bool = False
    """Whether one value has several JSON forms (``1.5``, ``1.50``), which ``enum`` can't list."""
    tagged: bool = False
    """Whether a value has a text for each language: a statement each, with a language tag."""
    narrow: bool = False
    """Whether the schema's pattern or range allows less than the datatype; SHACL then adds it."""


def _whole_match(pattern: str) -> Callable[[str], re.Match[str] | None]:
    """Match our own anchored patterns; none can backtrack, so the fast engine is safe here.

    Each is compiled on first use: starting a program needs few of them.
    """
    compiled: Callable[[str], re.Match[str] | None] | None = None

    def match(text: str) -> re.Match[str] | None:
        nonlocal compiled
        if compiled is None:
            compiled = re.compile(pattern[1:-1]).fullmatch
        return compiled(text)

    return match


# --- String, Bool ------------------------------------------------------------


def _value_of(value: object) -> object:
    """The value of a member of an Enum; ``str()`` may spell one as ``Status.OPEN``."""
    return value.value if isinstance(value, Enum) else value


def _coerce_string(value: object) -> str:
    if type(value) is not str:
        value = _value_of(value)
    if not isinstance(value, str):
        raise KindError
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise KindError("half of a surrogate pair is not a character") from None
    return value if type(value) is str else str(value)


def _coerce_bool(value: object) -> bool:
    if value is True or value is False:
        return value
    raise KindError


def _lexical_bool(value: bool) -> str:  # noqa: FBT001 - a value, not a flag
    return "true" if value else "false"


# --- numbers -----------------------------------------------------------------


def _whole(value: object) -> int:
    if type(value) is int:
        return value
    value = _value_of(value)
    if isinstance(value, bool):
        raise KindError
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    raise KindError


def _coerce_int(value: object) -> int:
    number = _whole(value)
    if INT_MIN <= number <= INT_MAX:
        return number
    raise KindError


_is_bigint = _whole_match(BIGINT_PATTERN)
_is_decimal = _whole_match(DECIMAL_PATTERN)


def _coerce_bigint(value: object) -> int:
    if isinstance(value, str):
        if _is_bigint(value):
            return BigInt(value)
    elif isinstance(value, BigInt) and abs(value) < 10**1000:
        return value
    raise KindError


def _coerce_float(value: object) -> float:
    if type(value) is float:
        number = value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        # Compared before it is rounded: an int just above the range would round into it.
        if not -FLOAT_MAX <= value <= FLOAT_MAX:
            raise KindError
        number = float(value)
    else:
        raise KindError
    if math.isfinite(number):
        return number or 0.0  # -0.0 is the same number, and would be another literal
    raise KindError


def _lexical_float(value: float) -> str:
    """The shortest digits that round-trip, without an exponent, as Oxigraph writes them."""
    text = repr(value)
    if len(text) > _TELLING:
        text = _rounded_up(value, text)
    if "e" in text:
        text = format(Decimal(text), "f")
    return text.removesuffix(".0")


_TELLING: Final = 16
"""A number whose shortest digits are a tie has at least so many, and a point."""


def _rounded_up(value: float, text: str) -> str:
    """Of two shortest texts that are equally near, Python takes the even one, Oxigraph the larger.

    Larger by magnitude: 2**49 + 0.25 is ``…312.2`` to one and ``…312.3`` to the other.
    """
    number, power = abs(value).as_integer_ratio()
    if "e" not in text and power != 1 << (len(text) - text.index(".")):
        return text  # halfway between two texts would be one digit more than they have
    sign, digits, exponent = Decimal(text).as_tuple()
    shortest, places = int("".join(map(str, digits))), int(exponent)
    halfway = (2 * shortest + 1) * power * 10 ** max(places, 0)
    if 2 * number * 10 ** max(-places, 0) != halfway:
        return text
    return f"{'-' * sign}{shortest + 1}e{places}"


def _coerce_decimal(value: object) -> Decimal:
    if isinstance(value, Decimal) and value.is_finite():
        text = format(value, "f")
    elif isinstance(value, str):
        text = value
    else:
        raise KindError
    if not _is_decimal(text):
        raise KindError
    return _parse_decimal(text)


def _parse_decimal(text: str) -> Decimal:
    number = Decimal(text)
    return number or Decimal(0)


def _lexical_decimal(value: Decimal) -> str:
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


# --- time --------------------------------------------------------------------

_is_date = _whole_match(DATE_PATTERN)
_is_datetime = _whole_match(DATETIME_PATTERN)
_MAX_OFFSET = timedelta(hours=14)


def _coerce_date(value: object) -> date:
    if isinstance(value, str) and _is_date(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            raise KindError from None
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    raise KindError


def _coerce_datetime(value: object) -> datetime:
    if isinstance(value, str) and _is_datetime(value):
        try:
            return _in_utc(datetime.fromisoformat(value))
        except ValueError:
            raise KindError from None
    if isinstance(value, datetime):
        offset = value.utcoffset()
        if offset is not None and abs(offset) <= _MAX_OFFSET and not offset.seconds % 60:
            return _in_utc(value)
    raise KindError


def _in_utc(value: datetime) -> datetime:
    """One spelling of an instant: two would be equal here and different as literals."""
    if value.tzinfo is UTC:
        return value
    try:
        return value.astimezone(UTC)
    except OverflowError:  # within hours of the first or last day that Python can hold
        return value


def _lexical_datetime(value: datetime) -> str:
    text = value.replace(tzinfo=None).isoformat()
    if "." in text:
        text = text.rstrip("0")
    minutes = round((value.utcoffset() or timedelta()).total_seconds() / 60)
    if not minutes:
        return text + "Z"
    return f"{text}{'-' if minutes < 0 else '+'}{abs(minutes) // 60:02}:{abs(minutes) % 60:02}"


_EPOCH = datetime(1, 1, 1, tzinfo=UTC).replace(tzinfo=None)
_MICROSECOND = timedelta(microseconds=1)


def _sort_datetime(value: datetime) -> bytes:
    """The UTC instant; computed without leaving the years that Python can hold."""
    local = (value.replace(tzinfo=None) - _EPOCH) // _MICROSECOND
    offset = (value.utcoffset() or timedelta()) // _MICROSECOND
    return struct.pack(">Q", local - offset + 2**62)


# --- references to the outside -----------------------------------------------

_is_iri = _whole_match(IRI_PATTERN)
_is_uri = _whole_match(URI_PATTERN)


def _coerce_iri(value: object) -> Iri:
    if isinstance(value, str) and _is_iri(value):
        return Iri(value)
    raise KindError


def _coerce_blob(value: object) -> Blob:
    if isinstance(value, str) and _is_uri(value):
        return Blob(value)
    raise KindError


# --- vectors -----------------------------------------------------------------


def _coerce_vector(value: object) -> tuple[float, ...]:
    if isinstance(value, list | tuple):
        return tuple(_coerce_float(item) for item in value)
    raise KindError


def _lexical_vector(value: tuple[float, ...]) -> str:
    return "[" + ",".join(map(repr, value)) + "]"


def _parse_vector(text: str) -> tuple[float, ...]:
    return tuple(msgspec.json.decode(text, type=list[float]))


# --- JSON --------------------------------------------------------------------


def _coerce_json(value: object) -> Json:
    if isinstance(value, Json):
        return value
    try:
        return Json(value)
    except JsonError as error:
        raise KindError(str(error)) from None


def _lexical_json(value: Json) -> str:
    return value.text


def _plain_json(value: Json) -> object:
    return value.value


def _read_json(text: str) -> object:
    try:
        return Json.from_text(text).value
    except JsonError as error:  # a text is a JSON value too, so ``coerce`` would take it
        raise KindError(f"as JSON: {error}") from None


# --- text in several languages -------------------------------------------------


def _coerce_lang_text(value: object) -> LangText:
    if isinstance(value, LangText):
        return value
    if not isinstance(value, Mapping):
        raise KindError
    try:
        made = LangText(value)
    except LangTextError as error:
        raise KindError(str(error)) from None
    for tag in value:
        if tag != tag.lower():
            raise KindError(f"write {tag!r} in lower case: {tag.lower()!r}")
    return made


def _lower_case_tags(value: object) -> object:
    try:
        return dict(LangText(value)) if isinstance(value, Mapping) else None
    except LangTextError:
        return None


def _lexical_lang_text(value: LangText) -> str:
    return value.text


def _read_lang_text(text: str) -> object:
    try:
        return dict(LangText.from_text(text))
    except LangTextError as error:
        raise KindError(str(error)) from None


# --- texts of RDF and CSV ------------------------------------------------------

# A text that can't be read is returned unchanged where ``coerce`` refuses it with a message.
_is_integer_text = _whole_match(r"^[+-]?[0-9]{1,1000}$")
_is_decimal_text = _whole_match(r"^([+-]?)([0-9]*)(?:\.([0-9]*))?$")
_is_double_text = _whole_match(r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?$")
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


def _read_int(text: str) -> object:
    return int(text) if _is_integer_text(text) else text


def _read_bigint(text: str) -> object:
    return text.removeprefix("+") if _is_integer_text(text) else text


def _read_decimal(text: str) -> object:
    found = _is_decimal_text(text)
    if found is None or not (found[2] or found[3]):
        return text
    sign = "-" if found[1] == "-" else ""
    return f"{sign}{found[2].lstrip('0') or '0'}.{(found[3] or '').rstrip('0') or '0'}"


def _read_float(text: str) -> object:
    return float(text) if _is_double_text(text) else text


def _read_bool(text: str) -> object:
    return _TRUTH.get(text, text)


def _read_vector(text: str) -> object:
    try:
        return msgspec.json.decode(text, type=list[float])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return text


# --- repair ----------------------------------------------------------------------

_NUMBER_TEXT: Final = re.compile(r"-?\d{1,30}(\.\d{1,30})?")
_DAY_TEXT: Final = re.compile(r"(\d{4})[-/.](\d{1,2})[-/.](\d{1,2})")


def _json_of_text(value: object) -> object:
    try:
        return msgspec.json.decode(value.strip().encode()) if isinstance(value, str) else None
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return None


def _number_of_text(value: object) -> object:
    if isinstance(value, str) and _NUMBER_TEXT.fullmatch(value.strip()):
        return _json_of_text(value)
    return None


def _text_of_number(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return msgspec.json.encode(value).decode()
    return None


def _text_of_int(value: object) -> object:
    return _text_of_number(value) if isinstance(value, int) else None


def _bool_of_text(value: object) -> object:
    return (
        {"true": True, "false": False}.get(value.strip().lower())
        if isinstance(value, str)
        else None
    )


def _date_of_text(value: object) -> object:
    parts = _DAY_TEXT.fullmatch(value.strip()) if isinstance(value, str) else None
    return None if parts is None else f"{parts[1]}-{int(parts[2]):02}-{int(parts[3]):02}"


# --- sort keys ---------------------------------------------------------------


_sort_text: Final[Callable[[str], bytes]] = methodcaller("encode", "utf-8", "surrogatepass")
_pack = struct.Struct(">Q").pack


def _sort_bool(value: bool) -> bytes:  # noqa: FBT001 - a value, not a flag
    return b"\x01" if value else b"\x00"


def _sort_int(value: int) -> bytes:
    return _pack(value + 2**63)


def _sort_bigint(value: int) -> bytes:
    """Sign, length, magnitude; a negative number is the complement of its mirror."""
    magnitude = abs(value)
    size = (magnitude.bit_length() + 7) // 8
    body = struct.pack(">H", size) + magnitude.to_bytes(size, "big")
    if value >= 0:
        return b"\x01" + body
    return b"\x00" + bytes(255 - byte for byte in body)


def _sort_float(value: float) -> bytes:
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
    return struct.pack(">Q", bits ^ 0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else bits | 1 << 63)


def _sort_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    whole = int("".join(map(str, digits))) * 10 ** (18 + int(exponent))
    shifted: int = (-whole if sign else whole) + 2**127
    return shifted.to_bytes(16, "big")


def _sort_date(value: date) -> bytes:
    return struct.pack(">I", value.toordinal())


# --- the table ---------------------------------------------------------------

_NUMBER: Document = {"type": "number", "minimum": -FLOAT_MAX, "maximum": FLOAT_MAX}

KINDS: Final[dict[str, Kind]] = {
    kind.name: kind
    for kind in (
        Kind(
            name="String",
            schema={"type": "string"},
            expected="a string",
            example="sample",
            coerce=_coerce_string,
            datatype=XSD + "string",
            python=str,
            native=str,
            repair=_text_of_number,
            sort_key=_sort_text,
            text=True,
            escaped=True,
        ),
        Kind(
            name="Bool",
            schema={"type": "boolean"},
            expected="true or false",
            example=True,
            coerce=_coerce_bool,
            datatype=XSD + "boolean",
            python=bool,
            native=bool,
            lexical=_lexical_bool,
            parse=lambda text: text in {"true", "1"},
            read=_read_bool,
            repair=_bool_of_text,
            sort_key=_sort_bool,
        ),
        Kind(
            name="Int",
            schema={"type": "integer", "minimum": INT_MIN, "maximum": INT_MAX},
            expected="an integer of at most 64 bits",
            example=1,
            coerce=_coerce_int,
            datatype=XSD + "integer",
            python=int,
            native=int,
            parse=int,
            read=_read_int,
            repair=_number_of_text,
            sort_key=_sort_int,
            quantity=True,
            narrow=True,
        ),
        Kind(
            name="BigInt",
            schema={"type": "string", "pattern": BIGINT_PATTERN},
            expected="an integer of at most 1,000 digits, written as a string",
            example=BigInt(1),
            coerce=_coerce_bigint,
            datatype=XSD + "integer",
            python=BigInt,
            parse=BigInt,
            read=_read_bigint,
            repair=_text_of_int,
            plain=str,
            restore=BigInt,
            sort_key=_sort_bigint,
            quantity=True,
            respelled=True,
            narrow=True,
        ),
        Kind(
            name="Float",
            schema=_NUMBER,
            expected="a finite number",
            example=1.5,
            coerce=_coerce_float,
            datatype=XSD + "double",
            python=float,
            native=float,
            lexical=_lexical_float,
            parse=float,
            read=_read_float,
            repair=_number_of_text,
            sort_key=_sort_float,
            quantity=True,
        ),
        Kind(
            name="Decimal",
            schema={"type": "string", "pattern": DECIMAL_PATTERN},
            expected="a decimal number written as a string, like '12.50', of at most 20 digits and "
            "18 decimals",
            example=Decimal("1.5"),
            coerce=_coerce_decimal,
            datatype=XSD + "decimal",
            python=Decimal,
            lexical=_lexical_decimal,
            parse=_parse_decimal,
            read=_read_decimal,
            repair=_text_of_number,
            plain=_lexical_decimal,
            restore=_parse_decimal,
            sort_key=_sort_decimal,
            quantity=True,
            respelled=True,
            narrow=True,
        ),
        Kind(
            name="Date",
            schema={"type": "string", "format": "date", "pattern": DATE_PATTERN},
            expected="a date like '2026-03-01'",
            example=date(2026, 1, 1),
            coerce=_coerce_date,
            datatype=XSD + "date",
            python=date,
            native=date,
            lexical=date.isoformat,
            parse=date.fromisoformat,
            repair=_date_of_text,
            plain=date.isoformat,
            restore=date.fromisoformat,
            sort_key=_sort_date,
            quantity=True,
        ),
        Kind(
            name="DateTime",
            schema={"type": "string", "format": "date-time", "pattern": DATETIME_PATTERN},
            expected="a date and time with time zone, like '2026-03-01T09:30:00Z'",
            example=datetime(2026, 1, 1, tzinfo=UTC),
            coerce=_coerce_datetime,
            datatype=XSD + "dateTime",
            python=datetime,
            native=datetime,
            lexical=_lexical_datetime,
            parse=datetime.fromisoformat,
            plain=_lexical_datetime,
            restore=datetime.fromisoformat,
            sort_key=_sort_datetime,
            quantity=True,
            respelled=True,
        ),
        Kind(
            name="Iri",
            schema={"type": "string", "format": "iri", "pattern": IRI_PATTERN},
            expected="an absolute IRI",
            example=Iri("https://example.org/sample"),
            coerce=_coerce_iri,
            datatype=XSD + "anyURI",
            python=Iri,
            parse=Iri,
            plain=str,
            restore=Iri,
            sort_key=_sort_text,
            text=True,
            escaped=True,
            narrow=True,
        ),
        Kind(
            name="Blob",
            schema={"type": "string", "format": "uri", "pattern": URI_PATTERN},
            expected="the URI of a blob",
            example=Blob("https://example.org/sample"),
            coerce=_coerce_blob,
            datatype=XSD + "anyURI",
            python=Blob,
            parse=Blob,
            plain=str,
            restore=Blob,
            sort_key=_sort_text,
            text=True,
            escaped=True,
            narrow=True,
        ),
        Kind(
            name="Vector",
            schema={"type": "array", "items": _NUMBER},
            expected="an array of finite numbers",
            example=(0.0,),
            coerce=_coerce_vector,
            datatype=TRAILS + "vector",
            lexical=_lexical_vector,
            parse=_parse_vector,
            read=_read_vector,
            repair=_json_of_text,
            plain=list,
            restore=tuple,
        ),
        Kind(
            name="Json",
            schema={"description": f"Any JSON value but null, of at most {MAX_JSON_DEPTH} levels."},
            expected="a JSON value",
            example=Json({}),
            coerce=_coerce_json,
            datatype=RDF + "JSON",
            python=Json,
            lexical=_lexical_json,
            parse=Json.from_text,
            read=_read_json,
            plain=_plain_json,
            restore=Json,
            trusted=Json.trusted,
            escaped=True,
        ),
        Kind(
            name="LangText",
            schema={
                "type": "object",
                "propertyNames": {"pattern": TAG_PATTERN},
                "additionalProperties": {"type": "string"},
                "minProperties": 1,
                "description": 'Texts by language tag (BCP 47): {"en": "…", "de-ch": "…"}.',
            },
            expected='texts by language tag, like {"en": "Bread", "de": "Brot"}',
            example=LangText({"en": "sample"}),
            coerce=_coerce_lang_text,
            datatype=RDF + "langString",
            python=LangText,
            lexical=_lexical_lang_text,
            parse=LangText.from_text,
            read=_read_lang_text,
            repair=_lower_case_tags,
            plain=dict,
            restore=LangText.of,
            text=True,
            escaped=True,
            respelled=True,
            tagged=True,
        ),
    )
}

BY_PYTHON: Final = {kind.python: kind for kind in KINDS.values() if kind.python is not None}
"""The kind of each class that annotations name."""
BY_DATATYPE: Final = {
    kind.datatype: kind for kind in reversed([*KINDS.values()]) if not kind.tagged
}
"""The first kind of each datatype, such as Int for xsd:integer; a tagged literal is its text."""
_NAME: Final = re.compile(r"[A-Z][A-Za-z0-9]{0,63}")


class KindFault(ValueError):  # noqa: N818 - of a declaration, as KindError is of a value
    """Why a row can't be added to the table."""


def add_kind(kind: Kind) -> None:
    """Add a row of a plugin, before declarations use it; KindFault says what is wrong with it."""
    known = KINDS.get(kind.name)
    if known is kind:
        return
    cls = kind.python
    if not _NAME.fullmatch(kind.name):
        raise KindFault(f"{kind.name!r} can't name a kind; write it like 'Money'")
    if known is not None:
        raise KindFault(f"there is a kind {kind.name!r} already; rename one")
    if cls is None or cls in BY_PYTHON or cls is object:
        raise KindFault(f"the kind {kind.name!r} needs a class of its own")
    if kind.datatype in BY_DATATYPE or not re.match(IRI_PATTERN, kind.datatype):
        raise KindFault(
            f"the kind {kind.name!r} needs a datatype of its own, an absolute IRI, not "
            f"{kind.datatype!r}"
        )
    _check_round_trips(kind)
    KINDS[kind.name] = BY_PYTHON[cls] = BY_DATATYPE[kind.datatype] = kind


def remove_kind(kind: Kind) -> None:
    """Remove a row of a plugin that could not be loaded."""
    if KINDS.get(kind.name) is kind and kind.python is not None:
        del KINDS[kind.name], BY_PYTHON[kind.python], BY_DATATYPE[kind.datatype]


def _check_round_trips(kind: Kind) -> None:
    """Its example must survive each way in which values are written and read."""
    value = kind.example
    plain = value if kind.plain is None else kind.plain(value)
    ways: dict[str, Callable[[], object]] = {
        "coerce(example)": lambda: kind.coerce(value),
        "coerce(plain(example))": lambda: kind.coerce(plain),
        "restore(plain(example))": lambda: plain if kind.restore is None else kind.restore(plain),
        "parse(lexical(example))": lambda: kind.parse(kind.lexical(value)),
        "coerce(read(lexical(example)))": lambda: kind.coerce(kind.read(kind.lexical(value))),
    }
    for name, way in ways.items():
        found = way()
        if found != value or type(found) is not type(value):
            raise KindFault(f"the kind {kind.name!r}: {name} gives {found!r}, not the example")


def kind_of(value: object) -> Kind | None:
    """The kind of a Python value, or None; the nearest class decides (``True`` is a Bool)."""
    for each in type(_value_of(value)).__mro__:
        kind = BY_PYTHON.get(each)
        if kind is not None:
            return kind
    return None
