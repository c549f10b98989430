"""The header of a stored query: the lines at its top that start with ``#+``, as YAML.

Read strictly and as plain values: no tags, no anchors, no key twice. Every key
and value knows its line, so that each mistake can be shown where it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import yaml

from trails.model.names import suggest

MAX_HEADER: Final = 16 * 1024
MAX_DEPTH: Final = 8
MARK: Final = "#+"


class Problem(msgspec.Struct, frozen=True):
    """One mistake in the file of a stored query: where, and what to do about it."""

    message: str
    line: int = 1
    key: str = ""
    file: str = ""

    def __str__(self) -> str:
        """``queries/late.rq:3: params.since: …``."""
        key = f"{self.key}: " if self.key else ""
        return f"{self.file}:{self.line}: {key}{self.message}"


class ProblemsError(Exception):
    """The mistakes found so far make it pointless to go on."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__()
        self.problems = problems


class Entry(msgspec.Struct, frozen=True):
    """A value of the header and its line; a mapping holds entries by key."""

    line: int
    value: object

    @property
    def mapping(self) -> Mapping[str, Entry] | None:
        """The entries of a mapping, or None for other values."""
        return self.value if isinstance(self.value, dict) else None

    @property
    def plain(self) -> object:
        """The value without lines."""
        if isinstance(self.value, dict):
            return {key: entry.plain for key, entry in self.value.items()}
        if isinstance(self.value, list):
            return [entry.plain for entry in self.value]
        return self.value


class Source(msgspec.Struct, frozen=True):
    """A file cut in two; ``body`` has an empty line for each of the header's."""

    header: str
    body: str
    lines: int


def split_source(text: str) -> Source:
    """Separate the header from the query, keeping every line's number."""
    lines = text.replace("\r\n", "\n").split("\n")
    count = 0
    while count < len(lines) and lines[count].startswith(MARK):
        count += 1
    if not count:
        raise ProblemsError(
            Problem("it has no header; begin the file with '#+ description: <what it answers>'")
        )
    header = [line.removeprefix(MARK).removeprefix(" ") for line in lines[:count]]
    return Source("\n".join(header), "\n" * count + "\n".join(lines[count:]), count)


def read_header(header: str) -> Mapping[str, Entry]:
    """The header's keys and values."""
    if len(header.encode("utf-8", "surrogatepass")) > MAX_HEADER:
        raise ProblemsError(
            Problem(f"the header is longer than {MAX_HEADER // 1024} KiB; make it shorter")
        )
    try:
        _refuse_excess(header)
        loader = yaml.SafeLoader(header)
        node = loader.get_single_node()
        entry = _entry(loader, node, "") if node is not None else Entry(1, {})
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise ProblemsError(
            Problem(
                f"the header is not YAML: {(error.problem or 'it can not be read')[:200]}; write "
                "'#+ key: value' and put quotes around texts with ': ' or '#' in them",
                line,
            )
        ) from None
    except yaml.YAMLError:
        raise ProblemsError(
            Problem("the header has characters that YAML does not allow; remove them")
        ) from None
    if entry.mapping is None:
        raise ProblemsError(
            Problem("the header must be keys with values, like '#+ description: …'", entry.line)
        )
    return entry.mapping


def _entry(loader: yaml.SafeLoader, node: yaml.Node, path: str) -> Entry:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return Entry(line, dict(_items(loader, node, path)))
    if isinstance(node, yaml.SequenceNode):
        return Entry(line, [_entry(loader, each, path) for each in node.value])
    try:
        return Entry(line, loader.construct_object(node, deep=True))
    except (ValueError, ArithmeticError):
        raise ProblemsError(
            Problem(f"{node.value[:60]!r} can't be read; put it in quotes", line, path)
        ) from None


def _items(
    loader: yaml.SafeLoader, node: yaml.MappingNode, path: str
) -> Iterator[tuple[str, Entry]]:
    seen: set[str] = set()
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = key_node.value
        if not isinstance(key_node, yaml.ScalarNode) or not isinstance(key, str) or not key:
            raise ProblemsError(Problem("a key must be a word", line, path))
        inner = f"{path}.{key}" if path else key
        if key in seen:
            raise ProblemsError(Problem("is there twice; remove one", line, inner))
        seen.add(key)
        value = _entry(loader, value_node, inner)
        yield key, Entry(line, value.value)


def _refuse_excess(header: str) -> None:
    """What nothing here needs: depth, tags, and anchors, which let a small text be a huge one."""
    depth = 0
    for event in yaml.parse(header, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            # Noticed on the way: the library takes seconds for some thousand levels.
            line = event.start_mark.line + 1
            raise ProblemsError(Problem("the header nests too deep; flatten it", line))
        for what in ("anchor", "tag"):
            given = getattr(event, what, None)
            if given is not None:
                raise ProblemsError(
                    Problem(
                        f"YAML's anchors, aliases and tags ({given[:40]!r}) are not available; "
                        "write plain values",
                        event.start_mark.line + 1,
                    )
                )


def unknown_keys(
    entries: Mapping[str, Entry], known: tuple[str, ...], path: str = ""
) -> Iterator[Problem]:
    """A problem for each key that means nothing, with the nearest that does."""
    for key, entry in entries.items():
        if key not in known:
            inner = f"{path}.{key}" if path else key
            hint = suggest(key, known).replace("it has", "known keys are")
            yield Problem(f"is not a key of {path or 'the header'}; {hint}", entry.line, inner)
