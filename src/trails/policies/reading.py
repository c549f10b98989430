"""Read policies from texts, and check them against what there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import cedarpy

from trails.errors import PolicyError
from trails.model.policies import PolicyProblem
from trails.policies.checks import Known, check_policies
from trails.policies.policies import Policies, Policy
from trails.policies.sources import Source, Statement, split_source

_INCOMPLETE: Final = "unexpected end of input"
"""What the parser says of a text that could go on."""


def read_policies(sources: Iterable[Source], known: Known) -> Policies:
    """Parse and check some files; every mistake of all of them is told at once."""
    found: list[Policy] = []
    problems: list[PolicyProblem] = []
    for source in sources:
        for parsed in _parse(source):
            if isinstance(parsed, Policy):
                found.append(parsed)
            else:
                problems.append(parsed)
    if not problems:
        policies = Policies(found)
        problems += check_policies(policies, known)
    if problems:
        told = "; ".join(map(str, problems[:20]))
        more = f"; and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise PolicyError(f"{told}{more}", problems=problems)
    return policies


def _parse(source: Source) -> Iterator[Policy | PolicyProblem]:
    for statement in split_source(source):
        place = f"policy {statement.number}"
        try:
            parsed = cedarpy.policies_to_pst(statement.text)
        except ValueError as error:
            message = f"{error}; the text of a policy ends with ';'"
            line = _line_of_mistake(statement, str(error))
            yield PolicyProblem(statement.file, line, place, message)
            continue
        for template in parsed.templates.values():
            yield PolicyProblem(
                statement.file,
                statement.line_of(r"\?(?:principal|resource)"),
                template.annotations.get("id") or place,
                "a policy with ?principal or ?resource decides nothing by itself; "
                "name the principal and the resource",
            )
        for template in parsed.static_policies.values():
            name = template.annotations.get("id") or f"{statement.file}:{statement.line}"
            yield Policy(statement, name, template)


def _line_of_mistake(statement: Statement, message: str) -> int:
    """Where the parser stops, which it does not say: the first line that it can't take.

    What ends before its end may still become a policy; what is wrong stays wrong.
    """
    lines = statement.text.splitlines()
    if message == _INCOMPLETE:
        return statement.line + len(lines) - 1
    low, high = 1, len(lines)
    while low < high:
        middle = (low + high) // 2
        if _is_beginning("\n".join(lines[:middle])):
            low = middle + 1
        else:
            high = middle
    if low == len(lines) and "not a valid operator" in message:
        return statement.line_of(
            r"(?<![=!<>])=(?!=)", texts=False
        )  # found only once all of it was read
    return statement.line + low - 1


def _is_beginning(text: str) -> bool:
    try:
        cedarpy.policies_to_pst(text)
    except ValueError as error:
        return str(error) == _INCOMPLETE
    return False
