"""Merges across changes of types equal those of an oracle with full copies of all states."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.campaigns import sized
from tests.engine.history.schema_world import SchemaWorld


def run(seed: int, steps: int, folder: Path | None = None) -> None:
    """One random history."""
    world = SchemaWorld(seed, folder)
    try:
        for _ in range(steps):
            world.step()
        world.check_verified()
    finally:
        world.close()


@pytest.mark.parametrize("seed", range(4))
def test_merges_of_types_equal_the_oracle(seed: int, tmp_path: Path) -> None:
    """Whatever changes, a merge is what the oracle says, or lists the conflicts that it lists."""
    run(seed, 60, tmp_path / "graph" if seed == 0 else None)


@pytest.mark.long(cases=500)
@pytest.mark.parametrize("block", range(sized(40, nightly=2)), ids="block-{}".format)
def test_merges_of_types_equal_the_oracle_for_long(block: int, tmp_path: Path) -> None:
    """The same for more than 20 000 cases in all; every tenth history is on the disk."""
    before = SchemaWorld.cases
    for seed in range(1000 * block, 1000 * block + 20):
        run(seed, 80, tmp_path / str(seed) if seed % 10 == 0 else None)
    print(f"block {block}: {SchemaWorld.cases - before} cases")  # noqa: T201
