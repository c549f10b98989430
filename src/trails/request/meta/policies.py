"""``trails.meta.policy.*``: check, test and explain the policies of a graph.

Answers come from the files as they are now, so a change can be tried before it is in use. They say
who may do what, so the action is Admin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, TypeVar, get_args

import msgspec

from trails.engine.session.context import GraphContext
from trails.errors import FieldError, NotFoundError, ValidationError
from trails.model.capabilities import Action, Scope
from trails.model.decisions import Explanation, PolicyCase, PolicyCheck, PolicyQuestion
from trails.model.operations.authoring import PolicyTests
from trails.model.operations.pages import Call
from trails.projections.tools import MAX_CHARS
from trails.request.builtins.declare import READER, ToolContext, field, meta_operation
from trails.request.fitting import Page
from trails.request.workspace import PolicyAnswers

T = TypeVar("T")
_CASE: Final = (
    '{"actor": "ann", "groups": ["staff"], "action": "Change", "resource": "Type::Task", '
    '"branch": "main", "expect": "allow"}'
)


def read_argument(value: object, wanted: type[T], where: str, example: str) -> T:
    """An argument as a value of its own type; ``example`` is how to write one."""
    try:
        return msgspec.convert(value, wanted)
    except msgspec.ValidationError as error:
        message = f"{where}: {error}; write it like {example}"
        raise ValidationError([FieldError(where, "datatype", message)]) from None


def _files(tool: ToolContext) -> PolicyAnswers:
    found = tool.options.policies
    if found is None:
        raise NotFoundError("this graph has no project folder, so it has no policies")
    return found


def _check(tool: ToolContext, ctx: GraphContext) -> PolicyCheck:
    del ctx
    return _files(tool).check()


def _test(tool: ToolContext, ctx: GraphContext, cases: Sequence[Mapping[str, object]]) -> Page:
    del ctx
    given = [
        read_argument(each, PolicyCase, f"cases[{at}]", _CASE) for at, each in enumerate(cases)
    ]
    results = _files(tool).test(given)
    passed = sum(each.passed for each in results)
    found = PolicyTests(passed, len(results) - passed, tuple(results))

    def changes(at: int) -> Call | Mapping[str, object] | None:
        return None if at >= len(results) or not cases else {"cases": cases[at:]}

    return Page(found, "results", changes)


def _explain(tool: ToolContext, ctx: GraphContext, **given: object) -> Explanation:
    del ctx
    asked = {name: each for name, each in given.items() if each not in (None, ())}
    question = read_argument(asked, PolicyQuestion, "question", _CASE)
    return _files(tool).explain(question)


CHECK: Final = meta_operation(
    "trails.meta.policy.check",
    "builder",
    title="Check the policies",
    description=(
        "Check the Cedar policies of this graph as their files are now: mistakes with file and "
        "line, how many permit and forbid, and permissions that may be unintended."
    ),
    result=PolicyCheck,
    hints=READER,
    action="Admin",
    run=_check,
)

TEST: Final = meta_operation(
    "trails.meta.policy.test",
    "builder",
    title="Test the policies",
    description=(
        "Compare expected decisions with those of the policies: the cases given, like "
        f"{_CASE}, or without any those of the file tests.toml beside the policies."
    ),
    fields=(
        field("cases", "Questions with the answer expected.", "Map", many=True, max_count=1000),
    ),
    controls=(MAX_CHARS,),
    result=PolicyTests,
    hints=READER,
    action="Admin",
    run=_test,
)

EXPLAIN: Final = meta_operation(
    "trails.meta.policy.explain",
    "builder",
    title="Explain a decision",
    description=(
        "Say whether an actor may do something and which policies decide that; for a denial, which "
        "conditions are missing."
    ),
    fields=(
        field("actor", "Who.", required=True, max_length=200),
        field("action", "What.", required=True, one_of=list(get_args(Action))),
        field("resource", "On what: Type::Task; the graph itself if left out.", max_length=300),
        field("branch", "Where.", default="main", max_length=100),
        field("target", "The other branch of a merge.", max_length=100),
        field("groups", "The actor's groups.", many=True, max_count=100),
        field(
            "scopes", "The actor's scopes.", many=True, max_count=3, one_of=list(get_args(Scope))
        ),
    ),
    result=Explanation,
    hints=READER,
    action="Admin",
    run=_explain,
)

META: Final = (CHECK, TEST, EXPLAIN)
