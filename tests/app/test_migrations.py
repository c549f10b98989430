"""Migration files: read in order, refused with what to do, and known by their content."""

from __future__ import annotations

from pathlib import Path

import pytest

from trails import App
from trails.app.migrations import load_migrations
from trails.errors import DeclarationError, SettingsError

RENAME = '''"""Tasks have a status."""

from trails import Migration, RenameField

migration = Migration({after}forward=[RenameField("Task", "state", "status")])
'''
FILL = '''"""Fill in titles."""

from trails import Migration, MigrationContext, RunPython

WORD = "untitled"


def fill(ctx: MigrationContext) -> None:
    for task in ctx.node_type("Task").objects(ctx).fetch():
        task.title = WORD
        task.save(ctx)


migration = Migration(forward=[RunPython(fill)])
'''


def write(folder: Path, **texts: str) -> Path:
    """Files of migrations, by name."""
    (folder / "migrations").mkdir(exist_ok=True)
    for name, text in texts.items():
        (folder / "migrations" / f"{name.removeprefix('m')}.py").write_text(text)
    return folder


def rename(after: str | None = None) -> str:
    """A migration that comes after another."""
    return RENAME.format(after="" if after is None else f"after={after!r}, ")


def load(folder: Path) -> list[str]:
    """The names, in order."""
    return [each.name for each in load_migrations(folder, "migrations", "main")]


def refused(folder: Path) -> str:
    """Why the files are refused."""
    with pytest.raises(DeclarationError) as caught:
        load(folder)
    return caught.value.message


def test_a_chain_is_read_in_order(tmp_path: Path) -> None:
    """Each after the one before it; what begins with '_' is not a migration."""
    assert load(tmp_path) == []
    write(tmp_path, m0002_b=rename("0001_a"), m0001_a=rename(), m_helpers="1 / 0")
    assert load(tmp_path) == ["0001_a", "0002_b"]
    first = load_migrations(tmp_path, "migrations", "main")[0]
    assert first.description == "Tasks have a status."


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"m0002_b": rename()}, "the first migration is 0002_b; number it 0001"),
        ({"m0001_a": rename("0000_x")}, "0001_a is the first migration, but has after='0000_x'"),
        (
            {"m0001_a": rename(), "m0003_c": rename("0001_a")},
            (
                "there is no migration 0002 between 0001_a and 0003_c; add the missing file, or "
                "rename 0003_c.py to 0002_c.py"
            ),
        ),
        (
            {"m0001_a": rename(), "m0002_b": rename("0001_a"), "m0002_c": rename("0001_a")},
            (
                "0002_b and 0002_c have the same number, because two changes were made side by "
                "side; rename the one that is not applied anywhere, for example 0002_c.py to "
                "0003_c.py, and set its after to '0002_b'"
            ),
        ),
        (
            {"m0001_a": rename(), "m0002_b": rename()},
            "0002_b has no after, but the migration before it is 0001_a; set after='0001_a'",
        ),
        ({"mfirst": rename()}, "migrations/first.py can't name a migration: write four digits"),
        ({"m0001_a": "x = 1"}, "migrations/0001_a.py has no migration; it must set 'migration ="),
        (
            {"m0001_a": "from trails import Migration\nmigration = Migration(forward=['x'])"},
            "migrations/0001_a.py: forward has 'x', which is not a step; use AddType",
        ),
        (
            {"m0001_a": "from trails import Migration\nmigration = Migration(forward=None)"},
            "migrations/0001_a.py: forward=None is not a list of steps",
        ),
        (
            {"m0001_a": rename("first")},
            "migrations/0001_a.py: after='first' is not the name of a migration",
        ),
        (
            {"m0001_a": "from trails import RunPython\nRunPython('fill')"},
            "migrations/0001_a.py: 'fill' is not a function; write RunPython(fill)",
        ),
        ({"m0001_a": "\n\n1 / 0"}, "migrations/0001_a.py:3 can't be imported: ZeroDivisionError"),
        ({"m0001_a": "import nothing_here"}, "ModuleNotFoundError: No module named 'nothing_here'"),
        ({"m0001_a": "def"}, "migrations/0001_a.py:1 can't be imported: SyntaxError"),
    ],
)
def test_a_refusal_says_what_to_do(tmp_path: Path, files: dict[str, str], message: str) -> None:
    """Gaps, forks, and files that are no migrations."""
    assert message in refused(write(tmp_path, **files))


def test_a_secret_in_a_message_is_not_shown(tmp_path: Path) -> None:
    """As with the module of a graph: an exception's text may quote a value."""
    write(tmp_path, m0001_a="raise ValueError('hunter2')")
    assert "hunter2" not in refused(tmp_path)


def test_a_folder_outside_the_project_is_refused(tmp_path: Path) -> None:
    """As for stored queries."""
    with pytest.raises(SettingsError, match="outside the project"):
        load_migrations(tmp_path, "../elsewhere", "main")


def checksum(folder: Path, text: str) -> str:
    """The checksum of a migration with this text."""
    write(folder, m0001_a=text)
    return load_migrations(folder, "migrations", "main")[0].checksum


def test_a_checksum_follows_what_a_migration_does(tmp_path: Path) -> None:
    """Layout and comments may change; steps may not, and with functions nothing may."""
    plain = checksum(tmp_path, rename())
    assert checksum(tmp_path, "# why\n" + rename().replace("[", "[\n    ")) == plain
    assert checksum(tmp_path, rename().replace("status", "stage")) != plain
    filled = checksum(tmp_path, FILL)
    assert checksum(tmp_path, FILL.replace("\n", "  \n")) == filled
    assert checksum(tmp_path, FILL.replace("untitled", "no title")) != filled


def test_code_of_migrations_runs_only_when_they_are_asked_for(tmp_path: Path) -> None:
    """Opening a project is not asking."""
    (tmp_path / "trails.toml").write_text('[project]\nname = "x"\n')
    (tmp_path / "app.py").write_text("")
    write(tmp_path, m0001_a="raise SystemExit(3)")
    with App.open(tmp_path) as app, pytest.raises(DeclarationError, match="SystemExit"):
        app.migrations()
