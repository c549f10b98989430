"""The ``.trails`` folder of a project: what its owner does before anything in it is opened."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from trails.engine.graph import TEMPORARY
from trails.engine.replacements import GRAPHS, finish_replacement
from trails.files import make_private, open_to_others
from trails.model.reports import Finding

_SHOWN: Final = 3


def prepare_data(data: Path, tell: Callable[[str], None]) -> None:
    """Close the folder to other users, and finish or remove what a killed process left."""
    make_private(data)
    finish_replacement(data, tell)
    for each in data.glob(f"{GRAPHS}/*/{TEMPORARY}"):
        shutil.rmtree(each, ignore_errors=True)


def examine_permissions(data: Path) -> Finding:
    """Whether other users can reach anything in the folder."""
    found = list(open_to_others(data))
    if not found:
        return Finding("permissions", "ok", f"only this user can enter {data}")
    shown = ", ".join(str(each) for each in found[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return Finding(
        "permissions",
        "problem",
        f"other users of this machine can reach {shown}{more}",
        f"run 'chmod -R go= {data}' as the user that owns the files",
    )
