"""The keys of a stored query's header, one by one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from trails.errors import DeclarationError
from trails.model.capabilities import StoredQuery
from trails.model.names import check_tool_name
from trails.registry.query_headers import Entry, Problem, unknown_keys
from trails.registry.query_params import read_params

HEADER_KEYS: Final = ("name", "description", "params", "expose", "tool_name")


def read_keys(
    header: Mapping[str, Entry], stem: str, types: Iterable[str], problems: list[Problem]
) -> StoredQuery:
    """The query as far as its header tells; what is wrong is added to ``problems``."""
    problems += unknown_keys(header, HEADER_KEYS)
    return StoredQuery(
        name=_read_name(header, stem, problems),
        description=_read_description(header, problems),
        text="",
        params=read_params(header.get("params", Entry(1, None)), types, problems),
        tool_name=_read_tool_name(header, problems),
        expose=_read_expose(header, problems),
    )


def _read_name(header: Mapping[str, Entry], stem: str, problems: list[Problem]) -> str:
    entry = header.get("name", Entry(1, stem))
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


def _read_description(header: Mapping[str, Entry], problems: list[Problem]) -> str:
    entry = header.get("description")
    if entry is None:
        told = "is missing; say in a sentence what the query answers, for those who choose by it"
        problems.append(Problem(told, 1, "description"))
        return ""
    if not isinstance(entry.value, str) or not entry.value.strip():
        problems.append(
            Problem("must be a text that says what the query answers", entry.line, "description")
        )
        return ""
    return entry.value.strip()


def _read_tool_name(header: Mapping[str, Entry], problems: list[Problem]) -> str:
    entry = header.get("tool_name")
    if entry is None:
        return ""
    if not isinstance(entry.value, str):
        problems.append(Problem("must be a text", entry.line, "tool_name"))
        return ""
    try:
        check_tool_name(entry.value)
    except DeclarationError as error:
        problems.append(Problem(error.message, entry.line, "tool_name"))
    return entry.value


def _read_expose(header: Mapping[str, Entry], problems: list[Problem]) -> bool:
    entry = header.get("expose", Entry(1, True))
    if not isinstance(entry.value, bool):
        problems.append(Problem("must be true or false", entry.line, "expose"))
        return True
    return entry.value
