"""Read policies from texts, and check them against what there is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import cedarpy

from trails.errors import PolicyError
from trails.model.policies import PolicyProblem
from trails.policies.checks import Known, check_policies
from trails.policies.policies import Policies, Policy
from trails.policies.sources import Source, split_source


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
            yield PolicyProblem(statement.file, statement.line, place, message)
            continue
        for template in parsed.templates.values():
            yield PolicyProblem(
                statement.file,
                statement.line,
                template.annotations.get("id") or place,
                "a policy with ?principal or ?resource decides nothing by itself; "
                "name the principal and the resource",
            )
        for template in parsed.static_policies.values():
            name = template.annotations.get("id") or f"{statement.file}:{statement.line}"
            yield Policy(statement, name, template)
