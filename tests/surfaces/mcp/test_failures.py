"""The table of failures: one line a kind, a column an era."""

from __future__ import annotations

import pytest
from tests.worlds.surfaces import LEGACY, MODERN

from trails.model.results import Failure
from trails.surfaces.mcp.failures import ErrorResult, conceal, map_failure

RESULT = "isError"
TABLE = {
    # kind: a tool before 2026-07-28, a tool on it, reading before, reading on it
    "unknown": (-32602, -32602, -32002, -32602),
    "validation": (-32602, -32602, -32602, -32602),
    "unauthenticated": (-32001, -32001, -32001, -32001),
    "scope": (-32004, -32004, -32004, -32004),
    "denied": (-32002, RESULT, -32002, -32004),
    "budget": (-32003, -32003, -32003, -32003),
    "semantic": (RESULT, RESULT, -32602, -32602),
    "internal": (-32603, -32603, -32603, -32603),
}


@pytest.mark.parametrize("kind", TABLE)
def test_the_table(kind):
    """Every kind has its number or is a result, by era and by what was asked."""
    failure = Failure(kind, "some_code", "do this next", {"a": None})
    legacy, modern, reading, reading_modern = TABLE[kind]
    cases = [(MODERN, "tool", modern), (MODERN, "resource", reading_modern)]
    for revision in LEGACY:
        cases += [(revision, "tool", legacy), (revision, "resource", reading)]
    for revision, asked, expected in cases:
        mapped = map_failure(failure, revision, "protocol", asked)
        if isinstance(mapped, ErrorResult):
            assert expected == RESULT
            assert mapped.result["content"][0]["text"] == 'do this next\n{"a":null}'
        else:
            assert mapped.code == expected
            assert mapped.message == "do this next"
            assert mapped.data == {"a": None, "code": "some_code"}


def test_what_is_missing_is_not_found():
    """Reading something that is not there has the number of an unknown resource."""
    failure = Failure("semantic", "not_found", "no such node")
    codes = [
        map_failure(failure, revision, "protocol", "resource").code
        for revision in (*LEGACY, MODERN)
    ]
    assert codes == [*(-32002 for _ in LEGACY), -32602]


@pytest.mark.parametrize("revision", [*LEGACY, MODERN])
def test_only_validation_follows_the_setting(revision):
    """The setting makes wrong arguments a result, and changes nothing else."""
    for kind in TABLE:
        failure = Failure(kind, "c", "m")
        mapped, other = (map_failure(failure, revision, how) for how in ("tool", "protocol"))
        assert (type(mapped) is type(other)) == (kind != "validation")


def test_an_exception_is_concealed(caplog):
    """The caller gets a number, the log gets the rest."""
    failure = conceal(RuntimeError("a secret"))
    assert "secret" not in repr(failure)
    assert failure.data["trace_id"] in caplog.text
    assert "a secret" in caplog.text
