"""Read the files in a graph's ``migrations`` folder.

They are the project's own code. It runs in the process that owns the project, and only when
migrations are asked for. Nothing is cached: what is checked and applied is the text on the disk.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from trails.authoring.migrations import MIGRATION_NAME, Migration
from trails.errors import DeclarationError, SettingsError
from trails.imports import later
from trails.registry.migrations import MigrationFile, check_name, make_migration, order_migrations

if TYPE_CHECKING:
    from trails.app import modules
else:
    modules = later("trails.app.modules")


def migrations_folder(folder: Path, given: str, graph: str) -> Path:
    """Return the folder of a graph's migrations, which must be inside the project."""
    path = folder / given
    if not path.resolve().is_relative_to(folder.resolve()):
        raise SettingsError(
            f"graph {graph!r}: migrations = {given!r} is outside the project; use a folder inside "
            "it"
        )
    return path


def migration_names(folder: Path, given: str, graph: str) -> tuple[str, ...]:
    """Return the names of a graph's migrations, in their order, without running their code."""
    path = migrations_folder(folder, given, graph)
    found = sorted(each.stem for each in path.glob("*.py")) if path.is_dir() else []
    return tuple(name for name in found if MIGRATION_NAME.fullmatch(name))


def load_migrations(folder: Path, given: str, graph: str) -> tuple[MigrationFile, ...]:
    """Return the migrations of a graph in their order; runs their code."""
    path = migrations_folder(folder, given, graph)
    if not path.is_dir():
        return ()
    files = sorted(each for each in path.glob("*.py") if not each.name.startswith("_"))
    for each in files:
        check_name(each.stem)
    return order_migrations(_load(folder, each) for each in files)


def _load(folder: Path, path: Path) -> MigrationFile:
    """One migration; the text that is read is the one that is run."""
    file = path.relative_to(folder).as_posix()
    module = ModuleType(f"trails_migration_{path.stem}")
    module.__file__ = str(path)
    sys.path.insert(0, str(folder))
    try:
        text = path.read_text(encoding="utf-8")
        exec(compile(text, str(path), "exec"), vars(module))  # noqa: S102 - the project's own code
    except BaseException as error:
        if not isinstance(error, Exception | SystemExit):
            raise
        if isinstance(error, DeclarationError):
            raise DeclarationError(f"{file}: {error.message}") from error
        raise modules.explain_import(error, file, folder) from error
    finally:
        sys.path.remove(str(folder))
    found = vars(module).get("migration")
    if not isinstance(found, Migration):
        raise DeclarationError(
            f"{file} has no migration; it must set 'migration = Migration(forward=[…])'"
        )
    return make_migration(path.stem, found, text, (module.__doc__ or "").strip())
