"""What an error says suffices: a script that reads nothing else puts single faults right."""

import json
import re
from typing import Final

import pytest
from tests.request.faults import LOT, Fault, all_faults, stocked
from tests.request.repairer import repair_call
from tests.worlds.graphs import Calls

from trails.model.results import Failure

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


def test_a_value_is_reported_as_it_was_given(bank):
    """A key where a list of references is expected is not shown as another text."""
    operation = {"op": "update", "type": "Lot", "id": "A0001", "data": {"parents": "A0002"}}
    failure = bank.failure("graph_mutate", {"operations": [operation]})
    assert failure.message.endswith("operations[0].parents must be a list, not 'A0002'")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ('{"type": "Specis", "data": {}}', "unknown_field"),
        ('{"edge": "Storge", "from": "A0001", "to": "hill"}', "unknown_field"),
        ('{"type": "Species", "code": "ABC-05"}', "unknown_field"),
        ('{"data": {}}', "required"),
        ('{"edge": "Storage", "from": "A0001"}', "required"),
        ('{"edge": "Storage", "from": 5.5, "to": []}', "reference"),
        ('{"type": "Species"', "syntax"),
        ("[]", "syntax"),
    ],
)
def test_lines_of_a_load_have_the_documented_codes(bank, data, code):
    """As the reference lists them."""
    failure = bank.failure("graph_load", {"data": data})
    assert [each["code"] for each in failure.data["fields"]] == [code]


@pytest.mark.parametrize(("given", "code"), [({"keywords": []}, "min_count"), ({}, "required")])
def test_a_list_that_is_given_and_empty_has_too_few_values(bank, given, code):
    """One that was left out is missing."""
    data = {name: value for name, value in LOT.items() if name != "keywords"} | given
    operation = {"op": "create", "type": "Lot", "data": data}
    failure = bank.failure("graph_mutate", {"operations": [operation]})
    assert [each["code"] for each in failure.data["fields"]] == [code]


PYTHON_OR_COMMANDS: Final = re.compile(r"=True|=False|\btrails [a-z]+\b|save\(|--\w+")


def test_errors_of_tools_name_neither_commands_nor_python(bank):
    """An agent has neither; over every fault that is tried here."""
    named = {
        fault.name: text
        for number, fault in enumerate(all_faults())
        if (text := told(bank, fault.tool, {**fault.arguments})) is not None
        and PYTHON_OR_COMMANDS.search(text)
    }
    assert named == {}
    for tool, arguments in (
        ("graph_snapshot", {"snapshot": "zz"}),
        ("commit_get", {"commit": "z"}),
    ):
        assert not PYTHON_OR_COMMANDS.search(bank.failure(tool, arguments).message)
