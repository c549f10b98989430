"""Text in several languages: at most one text for each language tag (BCP 47).

Tags are kept in lower case, as the RDF store writes them, and in order, so that equal values are
equal everywhere. A value never changes: ``title | {"de": "Brot"}`` makes another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

TAG_PATTERN: Final = (
    r"^[a-z]{2,3}(?:-[a-z]{4})?(?:-(?:[a-z]{2}|[0-9]{3}))?"
    r"(?:-(?:[a-z0-9]{5,8}|[0-9][a-z0-9]{3})){0,4}$"
)
"""Language, script, region and variants, in lower case: the tags that are in use."""
_is_tag = re.compile(TAG_PATTERN[1:-1]).fullmatch
_DEFAULT: Final = "en"
_decode = msgspec.json.Decoder(dict[str, str]).decode


class LangTextError(ValueError):
    """A value is not text by language; the text says why."""


def normal_tag(tag: object) -> str:
    """A language tag as it is stored; LangTextError for anything else."""
    if not isinstance(tag, str) or not tag.isascii() or not _is_tag(tag.lower()):
        raise LangTextError(f"{str(tag)[:50]!r} is not a language tag like 'en' or 'de-ch'")
    return tag.lower()


class LangText(Mapping[str, str]):
    """Texts by language: ``LangText(en="Bread", de="Brot")``, ``LangText({"de-CH": "Brot"})``."""

    __slots__ = ("_texts",)

    def __init__(self, texts: Mapping[str, str] | None = None, /, **more: str) -> None:
        """Check the tags and texts; LangTextError if one is wrong."""
        found: dict[str, str] = {}
        for given, text in {**(texts or {}), **more}.items():
            tag = normal_tag(given)
            if tag in found:
                raise LangTextError(f"it has two texts for {tag!r}")
            found[tag] = _checked(tag, text)
        if not found:
            raise LangTextError("it has no text; leave the field out")
        self._texts = dict(sorted(found.items()))

    @classmethod
    def from_text(cls, text: str) -> LangText:
        """The value of a JSON text."""
        try:
            return cls(_decode(text))
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            raise LangTextError('it is not a JSON object like {"en": "…"}') from None

    @classmethod
    def of(cls, texts: Mapping[str, str]) -> LangText | None:
        """A value of known tags and texts; None if there are none."""
        if not texts:
            return None
        made = cls.__new__(cls)
        made._texts = dict(sorted(texts.items()))  # noqa: SLF001 - an instance of this class
        return made

    @property
    def text(self) -> str:
        """The value as JSON: the same text for equal values."""
        return msgspec.json.encode(self._texts).decode()

    def __getitem__(self, tag: str) -> str:
        return self._texts[tag.lower()]

    def __getattr__(self, tag: str) -> str:
        """``title.en``; a missing language is an AttributeError."""
        if tag.startswith("_") or tag not in self._texts:
            raise AttributeError(f"there is no text for {tag!r}")
        return self._texts[tag]

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    def __len__(self) -> int:
        return len(self._texts)

    def __or__(self, other: Mapping[str, str]) -> LangText:
        """Another value, with these texts in place of those of their languages."""
        return LangText({**self._texts, **{normal_tag(tag): text for tag, text in other.items()}})

    def without(self, *tags: str) -> LangText | None:
        """Another value without some languages; None if no text is left."""
        gone = {tag.lower() for tag in tags}
        return self.of({tag: text for tag, text in self._texts.items() if tag not in gone})

    def best(self, *wanted: str) -> str:
        """The text in the first of these languages that there is, else in English, else any.

        ``de-CH`` is also found as ``de``, and ``de`` as any kind of German. The choice depends on
        the languages alone.
        """
        for tag in (*(each.lower() for each in wanted), _DEFAULT):
            parts = tag.split("-")
            for length in range(len(parts), 0, -1):
                start = "-".join(parts[:length])
                if start in self._texts:
                    return self._texts[start]
            found = next((each for each in self._texts if each.startswith(f"{parts[0]}-")), None)
            if found is not None:
                return self._texts[found]
        return next(iter(self._texts.values()))

    def texts(self) -> Iterator[tuple[str, str]]:
        """Every text with the JSON pointer to it."""
        return ((f"/{tag}", text) for tag, text in self._texts.items())

    def __eq__(self, other: object) -> bool:
        """Equal texts in equal languages."""
        return self._texts == other._texts if isinstance(other, LangText) else NotImplemented

    def __hash__(self) -> int:
        """Consistent with equality."""
        return hash(tuple(self._texts.items()))

    def __str__(self) -> str:
        """The text in English if there is one, else in the first language."""
        return self.best()

    def __repr__(self) -> str:
        """As it would be written in a program."""
        return f"LangText({self._texts!r})"

    def __reduce__(self) -> tuple[object, ...]:
        """Copied and pickled by its texts."""
        return LangText, (self._texts,)


def _checked(tag: str, text: object) -> str:
    if not isinstance(text, str):
        raise LangTextError(f"the text for {tag!r} is not a string")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise LangTextError(
            f"the text for {tag!r} has half of a surrogate pair, which is not a character"
        ) from None
    return str(text)


def split_part(name: str) -> tuple[str, str]:
    """(field, tag) of ``title@en``, which names one language of a field; the tag may be empty."""
    field, _, tag = name.partition("@")
    return field, tag


def with_part(values: dict[str, object], name: str, value: object) -> None:
    """Set a field, or one language of it; None removes it."""
    field, tag = split_part(name)
    if tag:
        held = values.get(field)
        texts = dict(held) if isinstance(held, LangText) else {}
        texts.pop(tag, None)
        value = LangText.of({**texts, tag: str(value)} if value is not None else texts)
    if value is None:
        values.pop(field, None)
    else:
        values[field] = value


def part_of(values: Mapping[str, object], name: str) -> object:
    """The value of a field, or its text in one language; None without one."""
    field, tag = split_part(name)
    value = values.get(field)
    return value.get(tag) if tag and isinstance(value, LangText) else value
