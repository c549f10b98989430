"""The header of a stored query: YAML in the lines at its top that start with ``#+``.

Read strictly, as plain values: no tags, no anchors, no duplicate keys. Every key and value knows
its line, so each mistake is reported where it is. A parameter is a type (``req_id: String``) or
an object with a type and the constraints of ``predicate()`` that apply to an argument; it
becomes a descriptor as fields do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from trails.authoring.predicates import UNSET, Predicate, describe
from trails.errors import DeclarationError
from trails.imports import later
from trails.model.capabilities import StoredQuery
from trails.model.constraints import RULES
from trails.model.kinds import KINDS
from trails.model.names import check_parameter_name, check_tool_name, suggest
from trails.model.types import LIST, REF, PredicateDescriptor, ValueType

if TYPE_CHECKING:
    import yaml
else:  # most projects have no stored queries
    yaml = later("yaml")

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
    """Reading can't continue after these mistakes."""

    def __init__(self, *problems: Problem) -> None:
        super().__init__()
        self.problems = problems


class HeaderEntry(msgspec.Struct, frozen=True):
    """A value of the header and its line; a mapping holds entries by key."""

    line: int
    value: object

    @property
    def mapping(self) -> Mapping[str, HeaderEntry] | None:
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


class QueryFile(msgspec.Struct, frozen=True):
    """A file in two parts; ``body`` has an empty line for each line of the header."""

    header: str
    body: str
    lines: int


def split_source(text: str) -> QueryFile:
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
    return QueryFile("\n".join(header), "\n" * count + "\n".join(lines[count:]), count)


def read_header(header: str) -> Mapping[str, HeaderEntry]:
    """The header's keys and values."""
    if len(header.encode("utf-8", "surrogatepass")) > MAX_HEADER:
        raise ProblemsError(
            Problem(f"the header is longer than {MAX_HEADER // 1024} KiB; make it shorter")
        )
    try:
        _refuse_excess(header)
        loader = yaml.SafeLoader(header)
        node = loader.get_single_node()
        entry = _entry(loader, node, "") if node is not None else HeaderEntry(1, {})
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise ProblemsError(
            Problem(
                f"the header is not YAML: {(error.problem or 'it is unreadable')[:200]}; write "
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


def _entry(loader: yaml.SafeLoader, node: yaml.Node, path: str) -> HeaderEntry:
    line = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        return HeaderEntry(line, dict(_items(loader, node, path)))
    if isinstance(node, yaml.SequenceNode):
        return HeaderEntry(line, [_entry(loader, each, path) for each in node.value])
    try:
        return HeaderEntry(line, loader.construct_object(node, deep=True))
    except (ValueError, ArithmeticError):
        raise ProblemsError(
            Problem(f"{node.value[:60]!r} can't be read; put it in quotes", line, path)
        ) from None


def _items(
    loader: yaml.SafeLoader, node: yaml.MappingNode, path: str
) -> Iterator[tuple[str, HeaderEntry]]:
    seen: set[str] = set()
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        key = key_node.value
        if not isinstance(key_node, yaml.ScalarNode) or not isinstance(key, str) or not key:
            raise ProblemsError(Problem("a key must be a word", line, path))
        inner = f"{path}.{key}" if path else key
        if key in seen:
            raise ProblemsError(Problem("is declared twice; remove one", line, inner))
        seen.add(key)
        value = _entry(loader, value_node, inner)
        yield key, HeaderEntry(line, value.value)


def _refuse_excess(header: str) -> None:
    """Refuse deep nesting, tags, and anchors, with which a small text can become huge."""
    depth = 0
    for event in yaml.parse(header, Loader=yaml.SafeLoader):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > MAX_DEPTH:
            # Checked while parsing: the library takes seconds for some thousand levels.
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
    entries: Mapping[str, HeaderEntry], known: tuple[str, ...], path: str = ""
) -> Iterator[Problem]:
    """A problem for each unknown key, with the nearest known one."""
    for key, entry in entries.items():
        if key not in known:
            inner = f"{path}.{key}" if path else key
            hint = suggest(key, known).replace("it has", "known keys are")
            yield Problem(f"is not a key of {path or 'the header'}; {hint}", entry.line, inner)


MAX_PARAMS: Final = 64
_RULES: Final = (*(rule.code for rule in RULES), "min_count", "max_count")
PARAM_KEYS: Final = ("type", "of", "dimension", "nullable", "default", "description", *_RULES)


def read_params(
    declared: HeaderEntry, types: Iterable[str], problems: list[Problem]
) -> tuple[PredicateDescriptor, ...]:
    """The descriptors of all parameters; mistakes are added to ``problems``."""
    entries = declared.mapping
    if entries is None:
        if declared.value is not None:
            problems.append(
                Problem(
                    "must be names with types, like '{ since: DateTime }'", declared.line, "params"
                )
            )
        return ()
    if len(entries) > MAX_PARAMS:
        problems.append(
            Problem(f"at most {MAX_PARAMS} parameters are allowed", declared.line, "params")
        )
        return ()
    known = tuple(types)
    found = []
    for name, entry in entries.items():
        key = f"params.{name}"
        try:
            found.append(_read_param(name, key, entry, known))
        except ProblemsError as error:
            problems.extend(error.problems)
        except DeclarationError as error:
            message = error.message.removeprefix(f"params.{name}: ").removeprefix("params: ")
            problems.append(Problem(message, entry.line, key))
    return tuple(found)


def _read_param(
    name: str, key: str, entry: HeaderEntry, types: tuple[str, ...]
) -> PredicateDescriptor:
    check_parameter_name("params", name)
    entries = entry.mapping
    if entries is None:
        entries = {"type": entry}
    if wrong := tuple(unknown_keys(entries, PARAM_KEYS, key)):
        raise ProblemsError(*wrong)
    value_type = _read_type(key, entry.line, entries, types)
    nullable = _flag(key, entries, "nullable")
    default = entries["default"].plain if "default" in entries else None
    if default is not None and nullable:
        raise ProblemsError(
            Problem(
                "has a default, so it is never null; drop 'nullable' or the default",
                entries["default"].line,
                key,
            )
        )
    constraints = {rule: entries[rule].plain for rule in _RULES if rule in entries}
    required: bool | None = not nullable and default is None
    if value_type.kind == LIST and "min_count" in constraints:
        if nullable:
            raise ProblemsError(
                Problem("min_count and nullable contradict each other; drop one", entry.line, key)
            )
        required = None
    refers = value_type.scalar.kind == REF
    predicate = Predicate(
        default=UNSET if default is None or refers else default,
        required=required,
        description=_text(key, entries, "description"),
        **constraints,  # type: ignore[arg-type]
    )
    value_type = msgspec.structs.replace(
        value_type, nullable=not required and value_type.kind != LIST
    )
    try:
        described = describe("params", name, value_type, predicate, stored=False)
        if default is None or not refers:
            return described
        named = _read_references(key, entries["default"], described)
        return msgspec.structs.replace(described, default=named)
    except (TypeError, ValueError):  # a limit of a type that can't be compared or hashed
        raise ProblemsError(
            Problem("its limits are not values of its type; correct them", entry.line, key)
        ) from None


def _read_references(key: str, entry: HeaderEntry, param: PredicateDescriptor) -> object:
    """A default that names nodes, as texts; which nodes they mean depends on the call."""
    given, many = entry.plain, param.many
    if isinstance(given, list) is not many:
        what = "a list of references" if many else "one reference"
        raise ProblemsError(Problem(f"its default must be {what}", entry.line, key))
    several = given if isinstance(given, list) else [given]
    for each in several:
        if isinstance(each, bool) or not isinstance(each, str | int):
            message = "its default must be a reference: 'Type/id', an IRI or a key, in quotes"
            raise ProblemsError(Problem(message, entry.line, key))
    texts = tuple(map(str, several))
    low, high = param.min_count, param.max_count
    if many and not low <= len(texts) <= (len(texts) if high is None else high):
        message = f"its default has {len(texts)} values, which min_count and max_count refuse"
        raise ProblemsError(Problem(message, entry.line, key))
    return texts if many else texts[0]


def _read_type(
    key: str, line: int, entries: Mapping[str, HeaderEntry], types: tuple[str, ...]
) -> ValueType:
    entry = entries.get("type")
    if entry is None or entry.value is None:
        raise ProblemsError(Problem("has no type; write 'type: String'", line, key))
    item: object = None
    given = entry.plain
    if isinstance(given, list):
        if len(given) != 1:
            raise ProblemsError(
                Problem("a list has one type of items, like [String]", entry.line, key)
            )
        given, item = LIST, given[0]
    if given == LIST:
        item = entries["of"].plain if "of" in entries else item
        if item is None:
            raise ProblemsError(
                Problem("a list needs the type of its items; write [String]", entry.line, key)
            )
        inner = _scalar(key, entry.line, item, types)
        if inner.kind == "Vector":
            raise ProblemsError(Problem("a list can't hold vectors", entry.line, key))
        if "dimension" in entries:
            raise ProblemsError(Problem("dimension belongs to Vector; remove it", entry.line, key))
        return ValueType(LIST, item=inner)
    if "of" in entries:
        raise ProblemsError(
            Problem("'of' belongs to type List; remove it", entries["of"].line, key)
        )
    scalar = _scalar(key, entry.line, given, types)
    dimension = entries["dimension"].plain if "dimension" in entries else None
    if scalar.kind != "Vector":
        if "dimension" in entries:
            raise ProblemsError(Problem("dimension belongs to Vector; remove it", entry.line, key))
        return scalar
    if type(dimension) is not int:
        raise ProblemsError(
            Problem("a Vector needs its dimension, like 'dimension: 384'", entry.line, key)
        )
    return msgspec.structs.replace(scalar, dimension=dimension)


def _scalar(key: str, line: int, given: object, types: tuple[str, ...]) -> ValueType:
    if isinstance(given, str):
        if given in KINDS:
            return ValueType(given)
        if given in types:
            return ValueType(REF, target=given)
        if given != LIST:
            known = (*KINDS, LIST, *types)
            hint = suggest(given, known).replace("it has", "there are")
            raise ProblemsError(Problem(f"{given[:60]!r} is not a type; {hint}", line, key))
    raise ProblemsError(
        Problem("a type is the name of a kind or node type, or a list of one", line, key)
    )


def _flag(key: str, entries: Mapping[str, HeaderEntry], name: str) -> bool:
    entry = entries.get(name)
    if entry is None:
        return False
    if not isinstance(entry.value, bool):
        raise ProblemsError(Problem(f"{name} must be true or false", entry.line, key))
    return entry.value


def _text(key: str, entries: Mapping[str, HeaderEntry], name: str) -> str:
    entry = entries.get(name)
    if entry is None:
        return ""
    if not isinstance(entry.value, str):
        raise ProblemsError(Problem(f"{name} must be a string", entry.line, key))
    return entry.value


HEADER_KEYS: Final = ("name", "description", "params", "expose", "tool_name")


def read_keys(
    header: Mapping[str, HeaderEntry], stem: str, types: Iterable[str], problems: list[Problem]
) -> StoredQuery:
    """The query without its text; mistakes are added to ``problems``."""
    problems += unknown_keys(header, HEADER_KEYS)
    return StoredQuery(
        name=_read_name(header, stem, problems),
        description=_read_description(header, problems),
        text="",
        params=read_params(header.get("params", HeaderEntry(1, None)), types, problems),
        tool_name=_read_tool_name(header, problems),
        expose=_read_expose(header, problems),
    )


def _read_name(header: Mapping[str, HeaderEntry], stem: str, problems: list[Problem]) -> str:
    entry = header.get("name", HeaderEntry(1, stem))
    try:
        check_tool_name(stem)
    except DeclarationError as error:
        problems.append(Problem(f"{error.message}; rename the file", 1, "name"))
        return stem
    if entry.value != stem:
        problems.append(
            Problem(
                f"must be the file's name, {stem!r}; correct it, leave it out, or rename the file",
                entry.line,
                "name",
            )
        )
    return stem


def _read_description(header: Mapping[str, HeaderEntry], problems: list[Problem]) -> str:
    entry = header.get("description")
    if entry is None:
        message = "is missing; describe in a sentence what the query answers"
        problems.append(Problem(message, 1, "description"))
        return ""
    if not isinstance(entry.value, str) or not entry.value.strip():
        problems.append(
            Problem("must be a string that says what the query answers", entry.line, "description")
        )
        return ""
    return entry.value.strip()


def _read_tool_name(header: Mapping[str, HeaderEntry], problems: list[Problem]) -> str:
    entry = header.get("tool_name")
    if entry is None:
        return ""
    if not isinstance(entry.value, str):
        problems.append(Problem("must be a string", entry.line, "tool_name"))
        return ""
    try:
        check_tool_name(entry.value)
    except DeclarationError as error:
        problems.append(Problem(error.message, entry.line, "tool_name"))
    return entry.value


def _read_expose(header: Mapping[str, HeaderEntry], problems: list[Problem]) -> bool:
    entry = header.get("expose", HeaderEntry(1, True))
    if not isinstance(entry.value, bool):
        problems.append(Problem("must be true or false", entry.line, "expose"))
        return True
    return entry.value
