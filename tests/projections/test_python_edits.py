"""Edits of modules that people wrote: what they declare then, and that the rest stays."""

from __future__ import annotations

import random
import subprocess
import sys
from difflib import ndiff
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds.schemas import RandomChange, declared, random_schema, schema_of

from trails.authoring.specs import shape_spec, type_spec
from trails.errors import SourceError
from trails.model.changes.steps import FieldSpec, TypeSpec
from trails.model.types import Schema
from trails.projections.python.changes import Renames, change_declarations
from trails.projections.python.declarations import write_module


def random_change(seed: int) -> tuple[Schema, RandomChange]:
    """A schema, and some changes of it."""
    rng = random.Random(seed)
    schema = random_schema(rng)
    change = RandomChange(rng, schema)
    for _ in range(rng.randint(1, 6)):
        change.change()
    return schema, change


def edited(text: str, before: Schema, change: RandomChange) -> str:
    """The text of the module after the changes."""
    found = change_declarations(
        {"app.py": text}.get,
        "app.py",
        before,
        change.schema,
        renames=Renames(change.types, change.fields),
    )
    return found.texts["app.py"][1] if found.texts else text


class TestRandomChanges:
    @settings(max_examples=200, deadline=None)
    @given(st.integers(0, 2**32))
    def test_an_edited_module_declares_what_the_changes_give(self, seed: int):
        """Exactly the schema, whatever the changes are."""
        before, change = random_change(seed)
        text = edited(write_module(before), before, change)
        found = declared(text)
        assert found.types == change.schema.types
        assert found.shapes == change.schema.shapes

    def test_edited_modules_are_formatted_and_pass_ruff(self, tmp_path: Path):
        """An edit leaves no unused import, no blank line too many, and no long line."""
        for seed in range(60):
            before, change = random_change(seed)
            (tmp_path / f"m{seed}.py").write_text(edited(write_module(before), before, change))
        (tmp_path / "ruff.toml").write_text('[lint]\nextend-select = ["I", "UP"]\n')
        for command in (["format", "--diff"], ["check"]):
            done = subprocess.run(
                [sys.executable, "-m", "ruff", *command, "--no-cache", str(tmp_path)],
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, done.stdout + done.stderr


HAND = '''\
"""A module with habits of its own."""
# A comment before the imports.

from __future__ import annotations

import os  # for nothing
from datetime import date

from trails import (
    Edge,
    Node,
    Ref,
    capability,
    Context,
    edge_type,
    node_type,
    predicate as field,
    predicate,
)

KINDS = ("a",   "b")  # kept as it is


@node_type
class Person(Node):
    """Jemand mit Umlauten: ä ö ü 🙂."""

    name : str = predicate( max_length = 10 )   # wide  spaces
    # a comment of its own
    born: date | None = None


    tags: list[str] = predicate()

    def greet(self) -> str:
        """Say hello."""
        return f"Hello {self.name}"


@node_type(
    unique=[("title", "owner")],  # no two with one owner
)
class Task(Node):
    title: str
    owner: Ref["Person"] | None = field(
        # nobody owns it at first
        description="Who does it.",
    )
    size: int = predicate(**{"min_value": 1}); rank: int = 0


@edge_type(source="Person", target=Task)
class Does(Edge):
    since: date


@capability("people.greet")
def greet(ctx: Context, person: Ref[Person]) -> str:
    """Greet a Person."""
    return person.greet()


if __name__ == "__main__":
    print(Person, "Person")
'''


def change(text: str, edit, *, renames: Renames = Renames(), files=None):  # noqa: B008 - frozen
    """Change the specs of what a module declares; the texts and the notes."""
    before = declared(text) if files is None else files.pop("schema")
    specs = {each.name: type_spec(each, before) for each in before.types}
    edit(specs)
    after = schema_of(list(specs.values()), [shape_spec(each) for each in before.shapes])
    given = {"app.py": text, **(files or {})}
    return change_declarations(given.get, "app.py", before, after, renames=renames), after


def put(specs: dict[str, TypeSpec], name: str, /, **given: object) -> None:
    """Replace parts of a spec."""
    specs[name] = msgspec.structs.replace(specs[name], **given)


def lines_of(before: str, after: str) -> tuple[list[str], list[str]]:
    """The lines that were removed, and those that were added."""
    found = list(ndiff(before.splitlines(), after.splitlines()))
    return (
        [each[2:] for each in found if each.startswith("- ")],
        [each[2:] for each in found if each.startswith("+ ")],
    )


class TestHandWritten:
    def test_a_field_is_added_and_nothing_else_changes(self):
        """Comments, spaces and blank lines stay."""

        def edit(specs):
            added = FieldSpec("until", "datetime | None", description="x")
            put(specs, "Person", fields=(*specs["Person"].fields, added))

        found, after = change(HAND, edit)
        text = found.texts["app.py"][1]
        removed, added = lines_of(HAND, text)
        assert removed == ["from datetime import date"]
        assert added == [
            "from datetime import date, datetime",
            '    until: datetime | None = predicate(description="x")',
        ]
        assert declared(text) == after

    def test_a_field_is_changed_removed_and_renamed(self):
        """Each on its own lines; a comment after a field stays."""

        def edit(specs):
            name, born, _ = specs["Person"].fields
            put(
                specs,
                "Person",
                fields=(
                    msgspec.structs.replace(name, max_length=20),
                    msgspec.structs.replace(born, name="birthday", iri="born"),
                ),
            )

        found, after = change(HAND, edit, renames=Renames(fields={("Person", "born"): "birthday"}))
        text = found.texts["app.py"][1]
        removed, added = lines_of(HAND, text)
        assert removed == [
            "    name : str = predicate( max_length = 10 )   # wide  spaces",
            "    born: date | None = None",
            "",
            "",
            "    tags: list[str] = predicate()",
        ]
        assert added == [
            "    name: str = predicate(max_length=20)   # wide  spaces",
            '    birthday: date | None = predicate(iri="born")',
        ]
        assert "    # a comment of its own\n    birthday" in text
        assert declared(text) == after

    def test_a_type_is_renamed_with_its_uses(self):
        """In annotations, quoted ones too, decorators and code; texts and comments are notes."""

        def edit(specs):
            put(specs, "Person", name="Human", iri="Person")
            specs["Human"] = specs.pop("Person")
            owner = msgspec.structs.replace(specs["Task"].fields[1], type="Ref[Human] | None")
            title, _, size, rank = specs["Task"].fields
            put(specs, "Task", fields=(title, owner, size, rank))
            put(specs, "Does", source="Human")

        found, after = change(HAND, edit, renames=Renames({"Person": "Human"}))
        text = found.texts["app.py"][1]
        _, added = lines_of(HAND, text)
        assert added == [
            '@node_type(iri="Person")',
            "class Human(Node):",
            '    owner: Ref["Human"] | None = field(',
            '@edge_type(source="Human", target=Task)',
            "def greet(ctx: Context, person: Ref[Human]) -> str:",
            '    print(Human, "Person")',
        ]
        assert declared(text) == after
        assert len(found.notes) == 1
        assert "'Person'" in found.notes[0]

    @pytest.mark.parametrize(
        ("field", "reason"),
        [("owner", "comments inside"), ("size", "shares a line"), ("rank", "shares a line")],
    )
    def test_what_can_not_be_edited_names_its_lines(self, field: str, reason: str):
        """The error says why, and what to write there."""

        def edit(specs):
            fields = [
                msgspec.structs.replace(each, description="new") if each.name == field else each
                for each in specs["Task"].fields
            ]
            put(specs, "Task", fields=tuple(fields))

        with pytest.raises(SourceError, match=reason) as caught:
            change(HAND, edit)
        lines = HAND.splitlines()
        assert caught.value.data["path"] == "app.py"
        assert any(field in lines[number - 1] for number in caught.value.data["lines"])

    def test_a_decorator_with_a_comment_is_left_alone(self):
        """A comment in it may explain what would change."""
        with pytest.raises(SourceError, match="it has comments"):
            change(HAND, lambda specs: put(specs, "Task", iri="https://example.org/T"))

    def test_a_class_that_code_uses_is_not_removed(self):
        """The error names the lines."""

        def edit(specs):
            del specs["Does"]
            del specs["Person"]
            fields = [each for each in specs["Task"].fields if each.name != "owner"]
            put(specs, "Task", fields=tuple(fields), unique=())

        text = HAND.replace("  # no two with one owner", "")
        with pytest.raises(SourceError, match="uses Person on lines") as caught:
            change(text, edit)
        used = [text.splitlines()[line - 1] for line in caught.value.data["lines"]]
        assert [each.strip()[:5] for each in used] == ["def g", "print"]

    def test_a_removed_class_takes_its_imports_along(self):
        """Those that nothing else uses."""
        found, after = change(HAND, lambda specs: specs.pop("Does"))
        text = found.texts["app.py"][1]
        assert "edge_type" not in text
        assert "Edge" not in text
        assert "from datetime import date\n" in text
        assert declared(text) == after

    @pytest.mark.parametrize("end", ["\r\n", "\r", "\n"])
    @pytest.mark.parametrize("start", ["", "\ufeff"])
    @pytest.mark.parametrize("last", [True, False])
    def test_line_ends_and_marks_are_kept(self, end: str, start: str, last: bool):
        """Windows and old ones; a byte order mark; no line end at the end of the file."""
        text = (
            "from trails import Node, node_type\n\n\n@node_type\nclass A(Node):\n"
            '    """Ünï 🙂."""\n\n    a: str = "ü🙂"  # ü🙂\n'
        )
        text = text if last else text.rstrip("\n")
        given = start + text.replace("\n", end)

        def edit(specs):
            fields = (FieldSpec("a", "str", default="é"), FieldSpec("b", "int"))
            put(specs, "A", fields=fields)
            specs["B"] = TypeSpec("B", (FieldSpec("a", "Ref[A]"),))

        before = declared(text)
        found, after = change(given, edit, files={"schema": before})
        new = found.texts["app.py"][1]
        assert new.startswith(start)
        body = new.removeprefix(start)
        assert declared(body.replace(end, "\n")) == after
        assert body.replace(end, "") == body.replace("\r", "").replace("\n", "")
        assert '"é"  # ü🙂' in new

    def test_a_type_is_edited_where_it_is_declared(self):
        """Also in another module of the project; what it needs is imported there."""
        models = "from trails import Node, node_type\n\n\n@node_type\nclass A(Node):\n    a: str\n"
        app = (
            "from lib.models import A\nfrom trails import Node, Ref, node_type\n\n\n"
            "@node_type\nclass B(Node):\n    a: Ref[A]\n"
        )
        schema = declared(models + app.replace("from lib.models import A\n", ""))

        def edit(specs):
            put(specs, "A", fields=(*specs["A"].fields, FieldSpec("c", "Decimal", max_value="9")))
            specs["C"] = TypeSpec("C", (), extends="A")

        files = {"lib/models.py": models, "schema": schema}
        found, _ = change(app, edit, files=files)
        assert found.texts["lib/models.py"][1] == (
            "from decimal import Decimal\n\nfrom trails import Node, node_type, predicate\n\n\n"
            '@node_type\nclass A(Node):\n    a: str\n    c: Decimal = predicate(max_value="9")\n'
        )
        assert found.texts["app.py"][1] == app + "\n\n@node_type\nclass C(A):\n    pass\n"

    @pytest.mark.parametrize(
        ("text", "reason"),
        [
            ("A = make('A')\n", "not a class statement"),
            ("class A: pass\n", "not declared with a decorator"),
            ("x = 1\n", "have no class A"),
            ("from elsewhere import A\n", "have no class A"),
            ("def f(:\n", "can't be read as Python"),
            ("from trails import node_type\n@node_type\nclass A: a: str\n", "on the line"),
        ],
    )
    def test_a_declaration_of_another_form_is_refused(self, text: str, reason: str):
        """With the file, and the lines where there are some."""
        before = schema_of([TypeSpec("A", (FieldSpec("a"),))], [])
        after = schema_of([TypeSpec("A", (FieldSpec("a"), FieldSpec("b")))], [])
        with pytest.raises(SourceError, match=reason) as caught:
            change_declarations({"app.py": text}.get, "app.py", before, after)
        assert caught.value.data["path"] == "app.py"
