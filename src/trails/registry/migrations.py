"""The migrations of a graph: files with numbers, each after the one before it.

``order_migrations`` refuses files that are not one chain, and says how to make them one. A
checksum shows that a migration was edited after it was applied. It covers the steps, so that
comments and layout may change; the functions of a migration can use anything in their file, so with
functions it covers the whole text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import msgspec

from trails.authoring.migrations import MIGRATION_NAME, Migration, Operation, RunPython
from trails.errors import DeclarationError
from trails.model.iris import digest_of


class MigrationFile(msgspec.Struct, frozen=True, eq=False):
    """One migration, as its file declares it."""

    name: str
    """The name of the file without ``.py``: ``0003_split_names``."""
    migration: Migration
    checksum: str
    description: str = ""

    @property
    def number(self) -> int:
        """Its place in the chain."""
        return int(self.name[:4])


def make_migration(name: str, migration: Migration, text: str, description: str) -> MigrationFile:
    """A migration with its checksum; ``text`` is its file."""
    return MigrationFile(name, migration, checksum_of(migration, text), description)


def checksum_of(migration: Migration, text: str) -> str:
    """The digest of what a migration does."""
    content = [migration.after, _plain(migration.forward)]
    if migration.reverse is not None:
        content.append(_plain(migration.reverse))
    if migration.runs_python:
        lines = [line.rstrip() for line in text.splitlines()]
        content.append([line for line in lines if line])
    return digest_of(content)


def _plain(operations: Iterable[Operation]) -> list[object]:
    return [
        {"step": "run_python"} if isinstance(each, RunPython) else msgspec.to_builtins(each)
        for each in operations
    ]


def check_name(name: str) -> None:
    """Refuse a file name that has no place in the chain."""
    if MIGRATION_NAME.fullmatch(name) is None:
        raise DeclarationError(
            f"migrations/{name}.py can't name a migration: write four digits, then lower-case "
            "words joined by '_', like '0003_split_names.py'"
        )


def order_migrations(found: Iterable[MigrationFile]) -> tuple[MigrationFile, ...]:
    """The migrations as one chain, from the first; DeclarationError lists every gap and fork."""
    files = sorted(found, key=lambda each: each.name)
    problems = list(_problems(files))
    if problems:
        raise DeclarationError("; ".join(problems), problems=problems)
    return tuple(files)


def _problems(files: Sequence[MigrationFile]) -> Iterator[str]:
    if files and files[0].number != 1:
        yield f"the first migration is {files[0].name}; number it 0001"
    if files and files[0].migration.after is not None:
        yield (
            f"{files[0].name} is the first migration, but has after={files[0].migration.after!r}; "
            "remove it, or add the missing file"
        )
    for before, each in pairwise(files):
        if each.number == before.number:
            free = f"{files[-1].number + 1:04}_{each.name[5:]}"
            last = before if each is files[-1] else files[-1]
            yield (
                f"{before.name} and {each.name} have the same number, because two changes were "
                f"made side by side; rename the one that is not applied anywhere, for example "
                f"{each.name}.py to {free}.py, and set its after to {last.name!r}"
            )
        elif each.number != before.number + 1:
            missing = before.number + 1
            yield (
                f"there is no migration {missing:04} between {before.name} and {each.name}; add "
                f"the missing file, or rename {each.name}.py to {missing:04}_{each.name[5:]}.py"
            )
        elif each.migration.after != before.name:
            said = "no after" if each.migration.after is None else f"after={each.migration.after!r}"
            yield (
                f"{each.name} has {said}, but the migration before it is {before.name}; set "
                f"after={before.name!r} if its steps fit the types that {before.name} leaves"
            )


def next_name(files: Sequence[MigrationFile], words: str) -> str:
    """The name of a migration that follows all others."""
    name = f"{len(files) + 1:04}_{words}"
    check_name(name)
    return name
