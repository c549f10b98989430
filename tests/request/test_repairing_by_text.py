"""What an error says suffices: a script that reads nothing else puts single faults right."""

import json
from typing import Final

import pytest
from tests.request.conftest import Calls
from tests.request.faults import Fault, all_faults
from tests.request.repairer import repair_call
from tests.request.seed_bank import stocked

from trails.model.outcomes import Failure

SHARE: Final = 0.98
ROUNDS: Final = 4
"""A node that does not exist is reported when all else is right, and fields with their type."""


@pytest.fixture(scope="module")
def bank():
    """A seed bank whose faults are each tried on a branch of their own."""
    made = Calls(stocked())
    yield made
    made.close()


def told(calls: Calls, tool: str, arguments: dict) -> str | None:
    """The error or the notice of a call; None when there is none."""
    outcome = calls.outcome(tool, arguments)
    if isinstance(outcome, Failure):
        return outcome.message
    return json.loads(outcome.body).get("notice")


def mend(calls: Calls, number: int, fault: Fault) -> tuple[bool, list[str]]:
    """Whether a fault is put right by what its errors say, and what they said."""
    arguments = dict(fault.arguments)
    fields = calls.tool(fault.tool).input_schema["properties"]
    if "branch" in fields and "branch" not in arguments:
        branch = f"f{number}"
        calls.result("branch_create", {"name": branch})
        arguments["branch"] = branch
    said: list[str] = []
    for _ in range(ROUNDS):
        text = told(calls, fault.tool, arguments)
        if text is None:
            return bool(said), said
        said.append(text)
        arguments = repair_call(text, arguments)
    return False, said


def test_single_faults_are_mended_from_the_text_of_their_errors(bank, record_property):
    """At least 98 of 100, over every kind, rule and built-in way to write."""
    faults = all_faults()
    assert len(faults) >= 200
    left = {}
    for number, fault in enumerate(faults):
        mended, said = mend(bank, number, fault)
        if not mended:
            left[f"{fault.tool}: {fault.name}"] = said
    share = 1 - len(left) / len(faults)
    record_property("mended", f"{share:.4f} of {len(faults)}")
    assert share >= SHARE, json.dumps(left, indent=1, ensure_ascii=False)
