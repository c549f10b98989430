"""Declarations as Python source: what it declares, and that it is what a person would write."""

from __future__ import annotations

import ast
import random
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds.schemas import declared, random_schema

from trails.authoring.specs import describe_type
from trails.errors import ValidationError
from trails.model.changes.steps import FieldSpec, TypeSpec
from trails.model.types import Schema
from trails.projections.python.declarations import Style, write_module


class TestModules:
    @settings(max_examples=150, deadline=None)
    @given(st.integers(0, 2**32))
    def test_a_module_declares_the_schema_that_it_was_made_of(self, seed: int):
        """Whatever the names, texts and values are."""
        schema = random_schema(random.Random(seed))
        text = write_module(schema)
        found = declared(text)
        assert found.types == schema.types
        assert found.shapes == schema.shapes

    @settings(max_examples=60, deadline=None)
    @given(st.text(), st.text(), st.text(max_size=200))
    def test_no_text_gets_out_of_its_literal(self, description: str, default: str, other: str):
        """A module has its imports and its class, and nothing else, whatever the texts are."""
        spec = TypeSpec(
            "Task",
            (FieldSpec("title", default=default, one_of=(default, default + "x")),
             FieldSpec("size", "Json", default={other: [other]}, description=other)),
            description=description,
            iri="https://example.org/Task",
        )  # fmt: skip
        try:
            made = describe_type(spec, Schema())
        except ValidationError:
            return  # half of a surrogate pair
        text = write_module(Schema.of([made]))
        body = ast.parse(text).body
        kinds = [type(each) for each in body]
        assert kinds == [ast.Expr, ast.ImportFrom, ast.ImportFrom, ast.ClassDef]
        assert isinstance(body[-1], ast.ClassDef)
        inside = [each for each in body[-1].body if not isinstance(each, ast.Expr)]
        assert [type(each) for each in inside] == [ast.AnnAssign, ast.AnnAssign]
        assert declared(text).types == (made,)

    def test_modules_are_formatted_and_pass_ruff(self, tmp_path: Path):
        """As ruff formats them, and without a complaint by its default rules."""
        for seed in range(40):
            schema = random_schema(random.Random(seed))
            (tmp_path / f"m{seed}.py").write_text(write_module(schema))
            wide = tmp_path / "wide"
            wide.mkdir(exist_ok=True)
            (wide / f"m{seed}.py").write_text(write_module(schema, style=Style(width=120)))
        (tmp_path / "ruff.toml").write_text('[lint]\nextend-select = ["I", "UP", "RUF012"]\n')
        (tmp_path / "wide" / "ruff.toml").write_text("line-length = 120\n")
        for command in (["format", "--diff"], ["check"]):
            done = subprocess.run(
                [sys.executable, "-m", "ruff", *command, "--no-cache", str(tmp_path)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr

    def test_modules_pass_mypy_strict(self, tmp_path: Path):
        """With each kind of field, and with fields that are named like classes."""
        for seed in range(12):
            schema = random_schema(random.Random(seed))
            (tmp_path / f"m{seed}.py").write_text(write_module(schema))
        odd = TypeSpec(
            "Odd",
            (FieldSpec("date", "date"), FieldSpec("until", "date | None"),
             FieldSpec("datetime", "datetime"), FieldSpec("list", "list[str]"),
             FieldSpec("str"), FieldSpec("again", "list[str]"), FieldSpec("v", "Vector[3]")),
        )  # fmt: skip
        text = write_module(Schema.of([describe_type(odd, Schema())]))
        (tmp_path / "odd.py").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "mypy", "--strict", str(tmp_path)],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stdout
        assert declared(text).types[0].name == "Odd"

    def test_a_name_that_python_can_not_have_is_refused(self):
        """A keyword as a field, or a type that hides what declarations use."""
        for spec in (TypeSpec("Task", (FieldSpec("class"),)), TypeSpec("Node"), TypeSpec("Json")):
            made = describe_type(spec, Schema())
            with pytest.raises(ValidationError, match=r"keyword|declarations use"):
                write_module(Schema.of([made]))
