"""A process that changes types and dies at a moment of the write; see ``test_kills``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tests.engine.schema.test_branches import RENAME_FIELD, RENAME_PERSON, RENAME_TYPE
from tests.engine.schema.world import World

STEPS = (
    RENAME_FIELD,
    RENAME_TYPE,
    RENAME_PERSON,
    {
        "step": "add_field",
        "type": "Issue",
        "field": {"name": "size", "type": "int", "default": 1},
    },
    {"step": "drop_field", "type": "Issue", "field": "tags", "hard": True},
)


def main(folder: str, moment: str) -> None:
    """Apply the steps; die at the moment."""
    world = World(Path(folder))

    def on_step(reached: str) -> None:
        if reached == moment:
            os._exit(9)

    world.graph.on_step = on_step  # type: ignore[assignment]
    world.apply(*STEPS, allow_data_loss=True)
    world.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
