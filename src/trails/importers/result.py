"""What an import gives, and how names of other languages become names of Trails."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

import msgspec

from trails.authoring.types import RESERVED
from trails.errors import DeclarationError, FieldError, ValidationError
from trails.model.changes.steps import FieldSpec, ShapeSpec, TypeSpec
from trails.model.constraints import check_pattern
from trails.model.names import CONTROL_ARGUMENTS
from trails.model.operations.authoring import ImportNote

LARGEST: Final = 4 << 20
"""Characters of a file that is imported."""


class ImportedQuery(msgspec.Struct, frozen=True):
    """A stored query: the text of ``<name>.rq``."""

    name: str
    text: str


class ImportedSchema(msgspec.Struct, frozen=True):
    """Types, shapes and queries, and what is different in them."""

    types: tuple[TypeSpec, ...] = ()
    shapes: tuple[ShapeSpec, ...] = ()
    queries: tuple[ImportedQuery, ...] = ()
    notes: tuple[ImportNote, ...] = ()


class Notes:
    """Collects the notes of one import, each once."""

    def __init__(self) -> None:
        self._found: dict[ImportNote, None] = {}

    def changed(self, where: str, message: str) -> None:
        """Add that something means or is called something else now."""
        self._found[ImportNote(where, "changed", message)] = None

    def left_out(self, where: str, message: str) -> None:
        """Add that something is not in the result."""
        self._found[ImportNote(where, "left_out", message)] = None

    def done(self) -> tuple[ImportNote, ...]:
        """All of them, in order."""
        return tuple(self._found)


def refuse(message: str, value: object = None) -> NoReturn:
    """Refuse a text that can't be read at all."""
    raise ValidationError([FieldError("text", "datatype", message, value)])


def check_size(text: str, most: int = LARGEST) -> None:
    """Refuse a text that is too long to be a schema."""
    if len(text) > most:
        refuse(f"text has {len(text):,} characters; at most {most:,} can be imported")


_WORDS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+|[0-9]+")


def type_name(text: str, notes: Notes, where: str) -> str:
    """The name of a type, like ``TestCase``: of ``test_case``, ``Test-Case`` or an IRI."""
    local = _local(text)
    if re.fullmatch(r"[A-Z][A-Za-z0-9]{0,63}", local):
        made = local
    else:
        made = "".join(word[:1].upper() + word[1:] for word in re.findall(r"[A-Za-z0-9]+", local))
        if not made[:1].isalpha():
            made = f"Type{made}"
        made = made[:64]
    if made != local:
        notes.changed(where, f"{local!r} is called {made} here")
    return made


def field_name(text: str, owner: str, notes: Notes) -> str:
    """The name of a field, like ``due_date``; a reserved word gets the owner's name in front."""
    local = _local(text)
    made = local
    if not re.fullmatch(r"[a-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*", local) or len(local) > 64:
        made = "_".join(word.lower() for word in _WORDS.findall(local))[:64].rstrip("_")
        if not made[:1].isalpha():
            made = f"field_{made}".rstrip("_")
    if made in RESERVED or keyword.iskeyword(made) or made in CONTROL_ARGUMENTS:
        made = "_".join(word.lower() for word in _WORDS.findall(owner)) + f"_{made}"
    if made != local:
        notes.changed(f"{owner}.{local}", f"the field is called {made} here")
    return made


def _local(text: str) -> str:
    """The last part of an IRI or prefixed name."""
    return re.split(r"[/#:]", text.rstrip("/#"))[-1] or "unnamed"


def usable_pattern(pattern: str, where: str, notes: Notes) -> str | None:
    """A pattern, if it works here; it is left out otherwise."""
    try:
        check_pattern(pattern)
    except DeclarationError as error:
        notes.left_out(where, error.message)
        return None
    return pattern


def make_field(said: Mapping[str, object], where: str, notes: Notes) -> FieldSpec:
    """A field of what a schema says; a value of the wrong kind is left out."""
    given = {name: value for name, value in said.items() if value is not None}
    while True:
        try:
            return msgspec.convert(given, FieldSpec)
        except msgspec.ValidationError as error:
            wrong = re.search(r"\$\.(\w+)", str(error))
            if wrong is None or given.pop(wrong[1], None) is None:
                refuse(f"{where}: {error}")
            notes.left_out(where, f"{wrong[1]} has a value of the wrong kind")


def unique_names(fields: Iterable[FieldSpec], owner: str, notes: Notes) -> tuple[FieldSpec, ...]:
    """Fields without those whose name an earlier one has."""
    found: dict[str, FieldSpec] = {}
    for field in fields:
        if found.setdefault(field.name, field) is not field:
            notes.left_out(f"{owner}.{field.name}", "a field of this name is there already")
    return tuple(found.values())
