"""The requirements and the tests cover each other, and neither says more than is so.

Markers are read from the source text, so the verdict does not depend on which tests were
selected. For that, a marker has one form: `@pytest.mark.req("T12")` on a test.
"""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any, TypeGuard

import pytest

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Mark:
    """One use of the `req` marker: where, and the ids it names (none if it can't be read)."""

    where: str
    ids: tuple[str, ...]


def parse_marks(source: str, path: str) -> Iterator[Mark]:
    """Find every use of the marker; one that is not in the readable form names no ids."""
    tree = ast.parse(source)
    readable = {
        decorator.func: decorator
        for node in ast.walk(tree)
        if is_test(node)
        for decorator in node.decorator_list
        if isinstance(decorator, ast.Call)
    }
    for node in ast.walk(tree):
        if is_marker(node):
            yield Mark(f"{path}:{node.lineno}", literal_ids(readable.get(node)))


def is_marker(node: ast.AST) -> TypeGuard[ast.Attribute]:
    """Tell whether this is the expression `mark.req`, however `mark` was reached."""
    match node:
        case ast.Attribute(attr="req", value=ast.Name("mark") | ast.Attribute(attr="mark")):
            return True
    return False


def is_test(node: ast.AST) -> TypeGuard[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    """Tell whether pytest would collect this definition, going by its name."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return name.startswith("test_")
        case ast.ClassDef(name=name):
            return name.startswith("Test")
    return False


def literal_ids(call: ast.Call | None) -> tuple[str, ...]:
    """Read the ids of a marker, or nothing if any of them is not spelled out."""
    if call is None or call.keywords:
        return ()
    ids = [arg.value for arg in call.args if isinstance(arg, ast.Constant)]
    spelled_out = [req_id for req_id in ids if isinstance(req_id, str)]
    return tuple(spelled_out) if len(spelled_out) == len(call.args) else ()


def find_lies(open_by_id: Mapping[str, bool], marks: Iterable[Mark]) -> list[str]:
    """Compare what is listed with what is marked; an honest pair gives an empty list."""
    marks = list(marks)
    lies = [
        f'{mark.where}: write @pytest.mark.req("<id>") on a test' for mark in marks if not mark.ids
    ]
    claims = [(req_id, mark.where) for mark in marks for req_id in mark.ids]
    for req_id, where in claims:
        if req_id not in open_by_id:
            lies.append(f"{where}: {req_id} is not a requirement")
        elif open_by_id[req_id]:
            lies.append(f"{where}: {req_id} is listed as open; close it or drop the marker")
    claimed = {req_id for req_id, _ in claims}
    lies += [
        f"{req_id} is listed as closed and no test is marked with it"
        for req_id, is_open in open_by_id.items()
        if not is_open and req_id not in claimed
    ]
    return lies


def read_requirements() -> list[dict[str, Any]]:
    """Load the list of requirements."""
    text = (HERE / "requirements.toml").read_text(encoding="utf-8")
    entries: list[dict[str, Any]] = tomllib.loads(text)["requirement"]
    return entries


def test_requirements_and_tests_agree():
    """Every marker names a closed requirement, and every closed requirement has a marker."""
    open_by_id = {entry["id"]: entry["open"] for entry in read_requirements()}
    marks = [
        mark
        for path in sorted(HERE.rglob("*.py"))
        for mark in parse_marks(path.read_text(encoding="utf-8"), str(path.relative_to(HERE)))
    ]
    assert find_lies(open_by_id, marks) == []


def test_list_is_well_formed():
    """Ids are unique, come from the document of their letter, and have a one-line title."""
    entries = read_requirements()
    source_by_letter = {"T": "003", "W": "001", "E": "002", "G": "004"}
    assert len({entry["id"] for entry in entries}) == len(entries)
    for entry in entries:
        assert entry.keys() == {"id", "title", "source", "open"}
        assert re.fullmatch(r"[TWEG][1-9][0-9]?[a-e]?", entry["id"])
        assert entry["source"] == source_by_letter[entry["id"][0]]
        assert entry["title"].strip()
        assert "\n" not in entry["title"]
        assert isinstance(entry["open"], bool)


def test_honest_list_has_no_lies():
    """A closed id with a test and an open id without one are as they should be."""
    assert find_lies({"T1": False, "T2": True}, [Mark("a.py:1", ("T1",))]) == []


@pytest.mark.parametrize(
    ("open_by_id", "marks", "lie"),
    [
        ({}, [Mark("a.py:1", ("T9",))], "a.py:1: T9 is not a requirement"),
        (
            {"T1": True},
            [Mark("a.py:1", ("T1",))],
            "a.py:1: T1 is listed as open; close it or drop the marker",
        ),
        ({"T1": False}, [], "T1 is listed as closed and no test is marked with it"),
        ({}, [Mark("a.py:1", ())], 'a.py:1: write @pytest.mark.req("<id>") on a test'),
    ],
    ids=["unknown-id", "open-but-marked", "closed-but-unmarked", "unreadable-marker"],
)
def test_each_kind_of_lie_is_found(open_by_id, marks, lie):
    """An unknown id, an open id with a test, a closed id without one and a bad marker are told."""
    assert find_lies(open_by_id, marks) == [lie]


def test_markers_are_read_from_functions_and_classes():
    """The marker counts on test functions, async ones, methods and classes, with all its ids."""
    source = dedent("""
        @pytest.mark.req("T1", "T2")
        def test_one(): ...

        @pytest.mark.req("T3")
        async def test_two(): ...

        @mark.req("T4")
        class TestThree:
            @pytest.mark.req("T5")
            def test_four(self): ...
    """)
    ids = [mark.ids for mark in parse_marks(source, "a.py")]
    assert sorted(ids) == [("T1", "T2"), ("T3",), ("T4",), ("T5",)]


@pytest.mark.parametrize(
    "source",
    [
        '@pytest.mark.req("T1")\ndef helper(): ...',
        "@pytest.mark.req(SOME_ID)\ndef test_one(): ...",
        '@pytest.mark.req(id="T1")\ndef test_one(): ...',
        "@pytest.mark.req\ndef test_one(): ...",
        "@pytest.mark.req()\ndef test_one(): ...",
        'req = pytest.mark.req\n@req("T1")\ndef test_one(): ...',
        'pytestmark = pytest.mark.req("T1")',
    ],
    ids=["not-a-test", "computed", "keyword", "bare", "empty", "alias", "whole-module"],
)
def test_marker_in_any_other_form_names_nothing(source):
    """A marker that a reader could not check at a glance proves nothing."""
    assert [mark.ids for mark in parse_marks(source, "a.py")] == [()]


def test_marker_inside_text_is_no_marker():
    """Only code counts: a docstring or a string may show the marker."""
    assert list(parse_marks("'''@pytest.mark.req(\"T1\")'''", "a.py")) == []


SMALL_SUITE = dedent("""
    import pytest

    @pytest.mark.req("PASSED")
    def test_passes(): ...

    @pytest.mark.req("FAILED", "PASSED_AND_FAILED")
    def test_fails(): assert False

    @pytest.mark.req("PASSED_AND_FAILED", "PASSED_AND_SKIPPED")
    def test_passes_too(): ...

    @pytest.mark.req("SKIPPED", "PASSED_AND_SKIPPED")
    def test_skips(): pytest.skip("on purpose")

    @pytest.fixture
    def broken_teardown():
        yield
        raise RuntimeError

    @pytest.mark.req("TEARDOWN")
    def test_leaves_a_mess(broken_teardown): ...
""")

SMALL_SUITE_OUTCOMES = {
    "PASSED": "passed",
    "FAILED": "failed",
    "SKIPPED": "skipped",
    "PASSED_AND_FAILED": "failed",
    "PASSED_AND_SKIPPED": "skipped",
    "TEARDOWN": "failed",
    "UNTESTED": "none",
}


def run_suite(folder: Path, suite: str, closed: Iterable[str], *args: str) -> tuple[int, Any]:
    """Run a made-up suite with our conftest; return its exit code and what it recorded."""
    shutil.copy(HERE / "conftest.py", folder)
    entries = [f'[[requirement]]\nid = "{req_id}"\nopen = false\n' for req_id in closed]
    (folder / "requirements.toml").write_text("".join(entries), encoding="utf-8")
    settings = f"[pytest]\nmarkers = req(*ids)\npythonpath = {HERE.parent}\n"
    (folder / "pytest.ini").write_text(settings, encoding="utf-8")
    (folder / "test_suite.py").write_text(suite, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", *args]
    code = subprocess.run(command, cwd=folder, capture_output=True, check=False).returncode
    return code, json.loads((folder / "out" / "requirements.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("workers", ["0", "2"])
def test_outcomes_are_recorded(tmp_path, workers):
    """Each id gets the weakest outcome of its tests, with and without xdist's workers."""
    _, recorded = run_suite(tmp_path, SMALL_SUITE, SMALL_SUITE_OUTCOMES, "-n", workers)
    assert {req_id: proof["outcome"] for req_id, proof in recorded.items()} == SMALL_SUITE_OUTCOMES
    assert recorded["PASSED_AND_FAILED"]["tests"] == [
        "test_suite.py::test_fails",
        "test_suite.py::test_passes_too",
    ]
    assert recorded["UNTESTED"]["tests"] == []


def test_crashed_worker_proves_nothing(tmp_path):
    """A test that takes its worker down is not recorded as passed."""
    suite = 'import os, pytest\n@pytest.mark.req("CRASH")\ndef test_dies(): os._exit(1)\n'
    _, recorded = run_suite(tmp_path, suite, ["CRASH"], "-n", "1")
    assert recorded["CRASH"]["outcome"] == "failed"


@pytest.mark.parametrize(("args", "code"), [([], 0), (["--prove"], 1)])
def test_skipping_a_closed_requirement_fails_a_run_that_must_prove(tmp_path, args, code):
    """A skip is harmless in a partial run and fatal where everything closed must be proven."""
    suite = 'import pytest\n@pytest.mark.req("SKIPPED")\ndef test_skips(): pytest.skip("why")\n'
    assert run_suite(tmp_path, suite, ["SKIPPED"], *args)[0] == code
