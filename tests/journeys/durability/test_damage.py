"""Damage to any file that Trails writes: no wrong answer without a word, no harm by repair.

A project that has every kind of file is made twice: one is killed, one is closed. One file of a
copy is damaged. Then everything that is asked of it is answered as before, or refused with an
error, or the project says that something is wrong: by its status, or when it is verified.
Repairing it, and recovering its log where that is what is left to do, takes nothing away.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.campaigns import sized
from tests.journeys.durability import everything
from tests.journeys.durability.campaign import environment, fresh_seed
from tests.journeys.durability.everything import BACKUPS, Refused, answers, backup_answers, silent

from trails import App
from trails.app.local import LocalOperations
from trails.errors import TrailsError
from trails.model.values.blobs import is_digest

HISTORY = {
    *("history", "a difference", "items of a commit", "statements of a commit", "heads"),
    "texts of a commit",
}
"""What a recovery may not bring back, if it says so."""
OUTSIDE = {"tokens", "backups", "a blob"}
"""What is no view of a log, and so is not repaired."""
NOT_OURS = {"app.py", "trails.toml"}
PLACES = ("backups", "activities", "segments", "text", "snapshots", "branches", "blobs")
STORE_FILES = ("MANIFEST", "OPTIONS", "CURRENT", "IDENTITY", "LOCK", "LOG")
KINDS = {
    *("log.db", "nodes.db", "tail", "tail.old", "owner", "tokens.json", "tokens.lock"),
    *("segments/*.zst", "activities/*.zst", "backups/*.zst", "backups/manifest.json"),
    *("backups/rows.db", "branches/*.sst", "branches/*.log", "branches/CURRENT"),
    *("branches/MANIFEST", "snapshots/*.sst", "branches/quads.closed", "log.db-wal"),
    *("blobs/*", "blobs/*.sums", "backups/*"),
    *("text/position", "text/*.term", "text/*.store", "text/meta.json", "text/stamp.json"),
}
"""What both projects together must have, lest a kind of file is forgotten."""


@dataclass
class World:
    """A project with all kinds of files, and what it says."""

    project: Path
    said: dict[str, object]
    files: dict[str, list[Path]]
    """Kind → files, as paths in the project."""


def make_world(project: Path, *, killed: bool) -> World:
    """Let another process make a project, and end it."""
    process = subprocess.Popen(
        [sys.executable, everything.__file__, str(project)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    with process:
        assert process.stdout.readline() == "built\n"
        if killed:
            process.kill()
    sound = shutil.copytree(project, project.with_name("sound"))
    said, status = look(sound)
    assert status == "ok"
    assert not any(isinstance(each, Refused) for each in said.values())
    assert is_healthy(sound)
    shutil.rmtree(sound)
    files: dict[str, list[Path]] = {}
    for path in sorted(project.rglob("*")):
        place = path.relative_to(project)
        if path.is_file() and "__pycache__" not in place.parts and place.name not in NOT_OURS:
            files.setdefault(kind_of(place), []).append(place)
    return World(project, said, files)


def kind_of(place: Path) -> str:
    """A name for files of one kind."""
    folder = next((each for each in PLACES if each in place.parts), None)
    if folder is None:
        return place.name
    store_file = next((each for each in STORE_FILES if place.name.startswith(each)), None)
    if is_digest(place.name):
        return f"{folder}/*"
    if store_file or place.suffix in {".json", ".db", ".closed", ""}:
        return f"{folder}/{store_file or place.name}"
    return f"{folder}/*{place.suffix}"


def look(project: Path) -> tuple[dict[str, object], str]:
    """What a project says, and its status."""
    said: dict[str, object] = {"backups": Refused.instead(backup_answers, project / BACKUPS)}
    try:
        app = App.open(project, strict=True)
    except TrailsError as error:
        return said | {name: Refused(error) for name in everything.ASKED}, "refused"
    with app:
        return said | answers(app), app.graph().status


def is_healthy(project: Path, *, repair: bool = False) -> bool:
    """Whether verifying finds nothing wrong."""
    try:
        found = LocalOperations().verify(project, repair=repair, progress=silent)
    except TrailsError:
        return False
    return all(report.healthy for report in found)


def damage(path: Path, rng: random.Random) -> str:
    """Flip a bit or a byte, write zeros, cut the file or delete it; what was done."""
    size = path.stat().st_size
    how = rng.choices(["bit", "byte", "zeros", "cut", "delete"], [4, 2, 1, 2, 1])[0]
    if how == "delete" or not size:
        path.unlink()
        return "delete"
    at = rng.randrange(size)
    if how == "cut":
        os.truncate(path, at)
    else:
        data = bytearray(path.read_bytes())
        if how == "zeros":
            data[at : at + 512] = bytes(len(data[at : at + 512]))
        else:
            data[at] ^= 0xFF if how == "byte" else 1 << rng.randrange(8)
        path.write_bytes(data)
    return f"{how} at {at} of {size}"


def assert_no_harm(world: World, copy: Path) -> str:
    """Judge a damaged copy; what came of it."""
    said, status = look(copy)
    right = {name for name, each in said.items() if each == world.said[name]}
    wrong = {name for name in said if name not in right and not isinstance(said[name], Refused)}
    healthy = is_healthy(copy)
    assert not wrong or status == "behind" or not healthy, f"wrong without a word: {wrong}"
    if healthy and len(right) == len(said):
        return "right"
    lost: set[str] = set()
    repaired = is_healthy(copy, repair=True)
    after, status = look(copy)
    if not repaired or status != "ok":
        lost = recover(copy)
        after, status = look(copy)
    same = {name for name, each in after.items() if each == world.said[name]}
    assert not right - same - lost, f"worse after repair: {right - same - lost}"
    if repaired and status == "ok":
        assert {*world.said} - OUTSIDE <= same, "called sound, and is not"
    return "repaired" if {*world.said} <= same else "told"


def recover(project: Path) -> set[str]:
    """Put back what the log has lost; what that says it can't bring back."""
    (found,) = LocalOperations().recover(project, None, silent, dry_run=False, accept_loss=False)
    if found.copy is None:
        return set()
    lost = HISTORY if found.without_history is not None else set()
    return lost | {"activities"} if found.log_problem else lost


def damage_and_judge(worlds: list[World], kind: str, rng: random.Random, copy: Path) -> str:
    """One case."""
    world = rng.choice([each for each in worlds if kind in each.files])
    place = rng.choice(world.files[kind])
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(world.project, copy)
    did = damage(copy / place, rng)
    try:
        return assert_no_harm(world, copy)
    except Exception as error:
        raise AssertionError(f"{world.project.name}: {did} of {place}: {error}") from error


@pytest.fixture(scope="module")
def worlds(tmp_path_factory):
    """A project that was killed, and one that was closed."""
    folder = tmp_path_factory.mktemp("worlds")
    return [
        make_world(folder / "killed", killed=True),
        make_world(folder / "closed", killed=False),
    ]


def test_damage_does_no_harm(worlds, tmp_path):
    """To some kinds of files; the long run damages all of them many times."""
    kinds = {kind for world in worlds for kind in world.files}
    assert kinds >= KINDS
    rng = random.Random(fresh_seed())
    for kind in rng.sample(sorted(KINDS), 3):
        damage_and_judge(worlds, kind, rng, tmp_path / "copy")


@pytest.mark.long(cases=sized(138, nightly=8))
@pytest.mark.parametrize("part", range(8))
def test_any_damage_to_any_file_does_no_harm(worlds, tmp_path, part):
    """The campaign, in parts: every kind of file in turn, any file of that kind, any damage."""
    rng = random.Random(f"{fresh_seed()} {part}")
    kinds = sorted({kind for world in worlds for kind in world.files})
    for number in range(part, 8 * sized(138, nightly=8), 8):
        damage_and_judge(worlds, kinds[number % len(kinds)], rng, tmp_path / "copy")
