"""Text fields: which fields of a schema are searched, their texts, and which commits touch them.

Every field with ``search=True`` and every label that is a String has a text index, one for each
type that has nodes of its own: scores then depend on nothing but the texts of that field. Which
texts a commit may have changed is read from its statements without parsing their values; that may
name a node whose text is the same as before, and never misses one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import islice
from typing import IO, TYPE_CHECKING, Final, NamedTuple

import msgspec

from trails.imports import later
from trails.model.caches import BoundedCache
from trails.model.iris import Names, digest_of
from trails.model.nodes import NodeState
from trails.model.types import PredicateDescriptor, Schema, TypeDescriptor
from trails.model.values.json_values import Json
from trails.model.values.lang_texts import LangText

if TYPE_CHECKING:
    from trails.views.text import analysis
    from trails.views.text.analysis import Analyzer
else:
    analysis = later("trails.views.text.analysis")

Key = tuple[str, str]
"""A type and a field."""
Text = str | tuple[str, ...]
"""What a node has in a field: a text, or the texts of a list."""
_KINDS: Final = frozenset({"String", "Json", "LangText"})
"""Kinds of fields that may be searched."""


class TextField(msgspec.Struct, frozen=True):
    """A field of a type whose texts are searched."""

    type: str
    field: str
    predicate: bytes
    """As statements have it."""
    stamp: str
    """What an index depends on: where the texts are, and how they are analysed."""
    language: str | None = None
    stop_words: bool = False

    @property
    def key(self) -> Key:
        """Its type and its name."""
        return self.type, self.field

    @property
    def analyzer(self) -> Analyzer:
        """How its texts are analysed."""
        return _analyzer(self.language, self.stop_words)

    def text_of(self, state: NodeState | None) -> Text | None:
        """The text of a node, or all strings of a Json value or LangText; None without any."""
        value = None if state is None else state.values.get(self.field)
        if isinstance(value, Json | LangText):
            return tuple(text for _, text in value.texts()) or None
        if isinstance(value, tuple):
            return tuple(map(str, value)) or None
        return None if value is None else str(value)


def pointer_to(value: Json | LangText, item: int) -> str:
    """The JSON pointer to a string of a value, by its number in ``TextField.text_of``."""
    return next(islice(value.texts(), item, None))[0]


def is_searched(declared: TypeDescriptor, field: PredicateDescriptor) -> bool:
    """Whether the texts of a field of a type are searched."""
    return field.type.scalar.kind in _KINDS and (field.search or field is declared.label)


def searched_keys(schema: Schema) -> Iterator[Key]:
    """The type and name of each searched field."""
    for declared in schema.types:
        for field in declared.fields:
            if is_searched(declared, field):
                yield declared.name, field.name


@lru_cache(64)
def _analyzer(language: str | None, stop_words: bool) -> Analyzer:  # noqa: FBT001 - cached by place
    return analysis.Analyzer(language, stop_words=stop_words)


_known: Final[BoundedCache[tuple[str, str], Mapping[Key, TextField]]] = BoundedCache(64)


def text_fields(schema: Schema, names: Names) -> Mapping[Key, TextField]:
    """The searched fields of a schema, by type and name."""
    found = _known.get((schema.digest, names.base))
    if found is None:
        found = _known[schema.digest, names.base] = {
            (declared.name, field.name): text_field(declared, field, names)
            for declared in schema.types
            for field in declared.fields
            if is_searched(declared, field)
        }
    return found


def text_field(declared: TypeDescriptor, field: PredicateDescriptor, names: Names) -> TextField:
    """A field of a type, as it is searched."""
    iri = names.term(field.iri)
    stop_words = field.stop_words and field.language is not None
    analyzer = _analyzer(field.language, stop_words)
    place = [declared.name, names.term(declared.iri), field.name, iri, str(field.type)]
    return TextField(
        declared.name,
        field.name,
        f"<{iri}>".encode(),
        digest_of([*place, analyzer.version])[:32],
        field.language,
        stop_words,
    )


Predicates = Mapping[bytes, Mapping[str, Sequence[Key]]]
"""Predicate → type → the fields that have it."""


def by_predicate(fields: Iterable[TextField]) -> Predicates:
    """Where statements with a predicate belong."""
    found: dict[bytes, dict[str, list[Key]]] = {}
    for each in fields:
        found.setdefault(each.predicate, {}).setdefault(each.type, []).append(each.key)
    return found


class Touch(NamedTuple):
    """A text that a commit may have changed."""

    key: Key
    handle: str
    size: int
    """Bytes of the statement."""


class StatementScan:
    """Finds the texts that statements of one graph are about."""

    def __init__(self, names: Names) -> None:
        self._nodes = f"<{names.nodes}".encode()

    def touches(self, stream: IO[bytes], wanted: Predicates) -> Iterator[Touch]:
        """What a part of a commit touches of some fields."""
        nodes, start = self._nodes, len(self._nodes)
        for line in stream:
            subject, _, rest = line.partition(b" ")
            types = wanted.get(rest[: rest.find(b" ")])
            if types is None or not subject.startswith(nodes):
                continue
            handle = subject[start:-1].decode()
            for key in types.get(handle.partition("/")[0], ()):
                yield Touch(key, handle, len(line))
