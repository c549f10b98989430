"""Operations on the application itself: rows of the operations table that need a scope."""

from __future__ import annotations

from typing import Final

from trails.request.builtins.declare import Builtin
from trails.request.meta import (
    files,
    generators,
    imports,
    migrations,
    policies,
    project,
    queries,
    scaffolds,
    schema,
)

META_OPERATIONS: Final[tuple[Builtin, ...]] = (
    *files.META,
    *generators.META,
    *imports.META,
    *migrations.META,
    *policies.META,
    *project.META,
    *queries.META,
    *scaffolds.META,
    *schema.META,
)
"""All of them; the order does not matter."""
