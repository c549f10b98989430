"""Resource URIs: one grammar, parsed into addresses and written back.

::

    trails://schema · trails://stats · trails://doctor · trails://branches · trails://prov/latest
    trails://queries/{name}
    trails://kg/types
    trails://kg/{Type}{?where,limit,offset,cursor}
    trails://kg/{Type}/{id}
    trails://branch/{branch}/… and trails://at/{commit}/…    schema, stats and all of kg
    <base>/{Type}/{id}                                       an instance by its own IRI

Pure: a text becomes a frozen value, or an error that says what would be right. Whether the
resource exists is checked elsewhere. A text outside the grammar is a ValidationError; a URI
whose root Trails does not have is a NotFoundError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from string import hexdigits
from typing import Final, Literal, NoReturn
from urllib.parse import quote, unquote_to_bytes

import msgspec

from trails.errors import FieldError, NotFoundError, ValidationError
from trails.model.constraints import shorten
from trails.model.iris import encode_id, normal_id

SCHEME: Final = "trails://"
MAX_URI_BYTES: Final = 8192
DEFAULT_LIMIT: Final = 100
MAX_LIMIT: Final = 1000
MAX_OFFSET: Final = 2**48
"""More instances than a type can have."""

Document = Literal["schema", "stats", "doctor", "branches", "prov/latest", "kg/types"]

_DOCUMENTS: Final[dict[tuple[str, ...], Document]] = {
    ("schema",): "schema",
    ("stats",): "stats",
    ("doctor",): "doctor",
    ("branches",): "branches",
    ("prov", "latest"): "prov/latest",
    ("kg", "types"): "kg/types",
}
_ANYWHERE: Final = frozenset({"schema", "stats", "kg"})
"""Roots that branches and commits have as well."""
ROOTS: Final = (
    *("schema", "stats", "doctor", "branches", "prov/latest"),
    *("queries/…", "plugins/…", "kg/…", "branch/…", "at/…"),
)
"""The first segments of URIs."""
_NO_URI: Final = frozenset(' <>{}|^`"\\')
"""Printable ASCII that must be percent-encoded in a URI."""
_QUERY_SAFE: Final = "=:/@!$'()*,;?"
_REFUSED: Final = {
    '"': "a quotation mark",
    "\\": "a backslash",
    "\n": "a newline",
    "\r": "a newline",
}
_JOINS: Final = frozenset({"and", "or", "&&", "||"})


class ReadPoint(msgspec.Struct, frozen=True):
    """Where to read: ``main``, another branch, or the state at a commit."""

    branch: str | None = None
    commit: str | None = None


HERE: Final = ReadPoint()
"""``main``, as it is now."""


class Clause(msgspec.Struct, frozen=True):
    """One field and the text of the value that it must have."""

    field: str
    value: str


class DocumentAddress(msgspec.Struct, frozen=True):
    """A built-in document."""

    name: Document
    place: ReadPoint = HERE


class QueryAddress(msgspec.Struct, frozen=True):
    """A stored query's parameters."""

    name: str


class PluginAddress(msgspec.Struct, frozen=True):
    """A document of a plugin."""

    plugin: str
    path: str


class ListAddress(msgspec.Struct, frozen=True):
    """A page of the instances of a type."""

    type: str
    place: ReadPoint = HERE
    where: Clause | None = None
    limit: int | None = None
    offset: int | None = None
    cursor: str | None = None

    @property
    def plain(self) -> bool:
        """Whether it names all instances, without a filter or page."""
        return (self.where, self.limit, self.offset, self.cursor) == (None,) * 4


class InstanceAddress(msgspec.Struct, frozen=True):
    """One instance."""

    type: str
    id: str
    place: ReadPoint = HERE


Address = DocumentAddress | QueryAddress | PluginAddress | ListAddress | InstanceAddress


Roots = Callable[[], Sequence[str]]
"""The ``ROOTS`` that an actor may know of; called only for an error message."""


def every_root() -> Sequence[str]:
    """All of ``ROOTS``."""
    return ROOTS


# --- reading ---------------------------------------------------------------------------


def parse_address(uri: str, nodes: str, roots: Roots = every_root) -> Address:
    """What a URI names; ``nodes`` is how the IRIs of this graph's instances begin."""
    if not uri:
        _refuse(f"the URI is empty; {_start_with(roots)}")
    _check_text(uri)
    if uri.startswith(nodes):
        return _parse_own(uri, uri[len(nodes) :])
    if not uri.startswith(SCHEME):
        raise NotFoundError(
            f"{shorten(uri, 200)} is not a resource of this graph; {_start_with(roots)}, "
            f"and an instance's own IRI is {nodes}{{Type}}/{{id}}",
            uri=uri[:200],
        )
    path, question, query = uri[len(SCHEME) :].partition("?")
    address = _parse_path(uri, path.split("/"), roots)
    if question:
        address = _parse_query(address, query)
    _check_characters(uri)
    return address


def _parse_own(uri: str, rest: str) -> Address:
    segments = rest.split("/")
    if len(segments) != 2 or "" in segments or "?" in rest:
        _refuse(
            f"{shorten(uri, 200)} is not the IRI of an instance; that ends in {{Type}}/{{id}}, "
            "with the id percent-encoded as one segment, and has no '?'"
        )
    address = InstanceAddress(_part(segments[0]), normal_id(_part(segments[1])))
    _check_characters(uri)
    return address


def _parse_path(uri: str, segments: list[str], roots: Roots) -> Address:
    root = segments[0]
    if "@" in root or ":" in root:
        _refuse(
            f"{shorten(uri, 200)} has a user or a port, and {SCHEME} names no server; "
            f"{_start_with(roots)}"
        )
    if "" in segments:
        _refuse(
            f"{shorten(uri, 200)} has an empty part; write one '/' between two parts, none at the "
            "end, and slashes inside a part as %2F"
        )
    if root in {"branch", "at"}:
        return _parse_placed(uri, segments, roots)
    return _parse_local(uri, segments, HERE, roots)


def _parse_placed(uri: str, segments: list[str], roots: Roots) -> Address:
    root, inner = segments[0], segments[2:]
    if not inner or inner[0] not in _ANYWHERE:
        name = "branch" if root == "branch" else "commit"
        hint = ""
        later = next((at for at, each in enumerate(inner) if each in _ANYWHERE), None)
        if later is not None and root == "branch":
            whole = "%2F".join(segments[1 : 2 + later])
            hint = f"; a branch is one part, so write {SCHEME}branch/{whole}/…"
        _refuse(
            f"{shorten(uri, 200)} does not say what to read there: after {SCHEME}{root}/"
            f"{{{name}}}/ comes schema, stats or kg/…{hint}"
        )
    given = _part(segments[1])
    place = ReadPoint(branch=given) if root == "branch" else ReadPoint(commit=given)
    return _parse_local(uri, inner, place, roots)


def _parse_local(uri: str, segments: list[str], place: ReadPoint, roots: Roots) -> Address:
    document = _DOCUMENTS.get(tuple(segments))
    if document is not None:
        return DocumentAddress(document, place)
    match segments:
        case ["kg", type_name]:
            return ListAddress(_part(type_name), place)
        case ["kg", type_name, identifier]:
            return InstanceAddress(_part(type_name), normal_id(_part(identifier)), place)
        case ["queries", name]:
            return QueryAddress(_part(name))
        case ["plugins", plugin, path] if place is HERE:
            return PluginAddress(_part(plugin), _part(path))
        case ["kg", _, _, *_]:
            _refuse(
                f"{shorten(uri, 200)} has more parts than {SCHEME}kg/{{Type}}/{{id}}; write "
                "slashes inside an id as %2F"
            )
    raise unknown_address(uri, roots)


def unknown_address(uri: str, roots: Roots = every_root) -> NotFoundError:
    """The error for an unknown URI; it mentions only ``roots``."""
    return NotFoundError(
        f"{shorten(uri, 200)} is not a known resource; {_start_with(roots)}", uri=uri[:200]
    )


def _start_with(roots: Roots) -> str:
    found = roots()
    if not found:
        return "there is nothing that you may read here"
    return f"after {SCHEME} comes one of {', '.join(found)}"


def _parse_query(address: Address, query: str) -> Address:
    if not isinstance(address, ListAddress):
        _refuse(
            "only lists of instances take parameters; leave out the '?' and what follows, or write "
            "a question mark inside a part as %3F"
        )
    given: dict[str, str] = {}
    for part in query.split("&"):
        name, equals, value = part.partition("=")
        if name not in _PARAMETERS:
            known = ", ".join(_PARAMETERS)
            _refuse(
                f"a list has no parameter {shorten(name)}; it has {known}. One filter is allowed, "
                "written where=field=value, and '&' inside a value is written %26",
                name[:100] or "uri",
                "unknown_field",
            )
        if name in given:
            _refuse(f"{name} is given twice; give it once", name)
        if not equals or not value:
            _refuse(f"{name} has no value; write {name}={_PARAMETERS[name]}, or leave it out", name)
        given[name] = _decode(value, name)
    where, limit, offset = (given.get(name) for name in ("where", "limit", "offset"))
    return ListAddress(
        address.type,
        address.place,
        None if where is None else parse_clause(where),
        None if limit is None else _parse_number("limit", limit, 1, MAX_LIMIT),
        None if offset is None else _parse_number("offset", offset, 0, MAX_OFFSET),
        given.get("cursor"),
    )


_PARAMETERS: Final = {
    "where": "field=value",
    "limit": str(DEFAULT_LIMIT),
    "offset": "0",
    "cursor": "…, as an earlier page gave it",
}


def _parse_number(name: str, text: str, low: int, high: int) -> int:
    if not (text.isascii() and text.isdigit()) or len(text) > 20:
        _refuse(f"{name} must be a whole number in digits, not {shorten(text)}", name, "datatype")
    number = int(text)
    if number < low:
        _refuse(f"{name} must be at least {low}, not {number}", name, "min_value")
    if number > high:
        hint = "; read the next page for more" if name == "limit" else ""
        _refuse(f"{name} must be at most {high}, not {number}{hint}", name, "max_value")
    return number


def parse_clause(text: str) -> Clause:
    """``field=value``, after percent-decoding; everything after the first '=' is the value."""
    for character, word in _REFUSED.items():
        if character in text:
            _refuse(f"where can't hold {word}, percent-encoded or not", "where")
    field, equals, value = text.partition("=")
    operator = next((each for each in "<>!~^*" if each in field), None)
    if operator is not None or value.startswith("="):
        _refuse(
            f"where compares with one '=' and nothing else, not as in {shorten(text)}; write "
            "where=field=value, and use a query for other comparisons",
            "where",
        )
    if not equals:
        _refuse(f"where must be field=value, not {shorten(text)}", "where")
    if "." in field or "__" in field:
        _refuse(
            f"where looks at fields of the type itself; {shorten(field)} is a path or a lookup, "
            "for which a query is needed",
            "where",
        )
    if not field or not (field.isascii() and field.replace("_", "").isalnum()):
        _refuse(f"{shorten(field)} can't be a field; write where=field=value", "where")
    if _is_joined(value):
        _refuse(
            f"where takes exactly one condition, and {shorten(text)} reads like several; filter by "
            "one, or use a query",
            "where",
        )
    return Clause(field, value)


def _is_joined(value: str) -> bool:
    """Whether a value goes on like a second condition: ``… AND field=…``."""
    words = value.split()
    return any(
        word.lower() in _JOINS and any(each in after for each in "=<>")
        for word, after in _pairs(words)
    )


def _pairs(words: list[str]) -> Iterator[tuple[str, str]]:
    """Each word with the two after it, where a condition could be."""
    for at, word in enumerate(words):
        yield word, " ".join(words[at + 1 : at + 3])


# --- parts -----------------------------------------------------------------------------


def _check_text(uri: str) -> None:
    if len(uri) > MAX_URI_BYTES or (
        not uri.isascii() and len(uri.encode("utf-8", "surrogatepass")) > MAX_URI_BYTES
    ):
        _refuse(f"the URI is longer than {MAX_URI_BYTES} bytes; shorten it")
    if not uri.isprintable():
        _refuse(
            f"{shorten(uri, 200)} contains a control character or a lone surrogate; "
            "percent-encode it"
        )
    if "#" in uri:
        _refuse(f"{shorten(uri, 200)} has a fragment; leave out '#…', or write '#' as %23")


def _check_characters(uri: str) -> None:
    """Checked after the parts, so that a mistake in one of them is reported first."""
    if not _NO_URI.isdisjoint(uri):
        found = next(each for each in uri if each in _NO_URI)
        _refuse(
            f"{found!r} is not allowed in a URI; percent-encode it as {quote(found, safe='')}: "
            f"{shorten(quote(uri, safe='%:/?&=+,;@!$()*~' + chr(39)), 300)}"
        )


def _part(segment: str) -> str:
    """A segment of a path as text; '.' and '..' would be steps, however they are written."""
    text = _decode(segment)
    if text in {".", ".."}:
        _refuse(f"{shorten(segment)} is a path step, not a name; remove it")
    return text


def _decode(part: str, field: str = "uri") -> str:
    """A part of a URI, decoded."""
    if "%" not in part:
        return part
    for piece in part.split("%")[1:]:
        if len(piece) < 2 or piece[0] not in hexdigits or piece[1] not in hexdigits:
            _refuse(
                f"{shorten(part)} has a '%' without two hexadecimal digits; write a percent sign "
                "as %25",
                field,
            )
    try:
        return unquote_to_bytes(part).decode()
    except UnicodeDecodeError:
        _refuse(f"{shorten(part)} is not UTF-8 once percent-decoded; encode text as UTF-8", field)


def _refuse(message: str, field: str = "uri", code: str = "pattern") -> NoReturn:
    raise ValidationError([FieldError(field, code, message)])


# --- writing ---------------------------------------------------------------------------


def format_address(address: Address) -> str:
    """The canonical URI of an address; parsing it gives the address back."""
    match address:
        case QueryAddress(name):
            return f"{SCHEME}queries/{encode_id(name)}"
        case PluginAddress(plugin, path):
            return f"{SCHEME}plugins/{encode_id(plugin)}/{encode_id(path)}"
        case DocumentAddress(name, place):
            return f"{SCHEME}{_format_place(place)}{name}"
        case InstanceAddress(type_name, identifier, place):
            return (
                f"{SCHEME}{_format_place(place)}kg/{encode_id(type_name)}/{encode_id(identifier)}"
            )
        case ListAddress(type_name, place):
            start = f"{SCHEME}{_format_place(place)}kg/{encode_id(type_name)}"
            query = "&".join(f"{name}={value}" for name, value in _parameters(address))
            return f"{start}?{query}" if query else start


def _format_place(place: ReadPoint) -> str:
    if place.branch is not None:
        return f"branch/{encode_id(place.branch)}/"
    return "" if place.commit is None else f"at/{encode_id(place.commit)}/"


def _parameters(address: ListAddress) -> Iterator[tuple[str, str]]:
    where = address.where
    if where is not None:
        yield "where", quote(f"{where.field}={where.value}", safe=_QUERY_SAFE)
    for name, value in (("limit", address.limit), ("offset", address.offset)):
        if value is not None:
            yield name, str(value)
    if address.cursor is not None:
        yield "cursor", quote(address.cursor, safe=_QUERY_SAFE)


class ListedResource(msgspec.Struct, frozen=True, kw_only=True):
    """A URI that is listed."""

    uri: str
    name: str
    title: str
    description: str
    mime_type: str


class ResourceTemplate(msgspec.Struct, frozen=True, kw_only=True):
    """A family of URIs (RFC 6570)."""

    uri_template: str
    name: str
    title: str
    description: str
    mime_type: str


class ResourceList(msgspec.Struct, frozen=True):
    """What an actor may read."""

    version: str
    """Changes whenever the lists do; encoded lists are cached by it."""
    resources: tuple[ListedResource, ...]
    templates: tuple[ResourceTemplate, ...]


class Content(msgspec.Struct, frozen=True):
    """A document, as text."""

    uri: str
    mime_type: str
    text: str
    commit: str | None = None
    """The commit that it shows, if it is about one."""


class Completions(msgspec.Struct, frozen=True):
    """Completions for a template's variable, nearest first."""

    values: tuple[str, ...]
    """At most 100."""
    total: int | None = None
    more: bool = False
