"""Damage to files of a project, and what may come of it.

A project is written by a process that is killed, so its log is in its WAL as after any crash.
Each damage is done to a copy. Whatever the damage, there are three good answers: everything that
was acknowledged is there; the project is refused with an error; or it is open read-only and says
what is missing. Fewer items without a word are the one bad answer.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.journeys.durability.campaign import Victim, fold, graph_folder, items_of, make_project

from trails import App
from trails.engine.upkeep.verify import verify
from trails.errors import BehindError, TrailsError


@dataclass
class Crashed:
    """A project as a killed process left it, and what it had acknowledged."""

    project: Path
    items: dict[str, list]
    commits: list[str]
    under_way: dict | None = None

    @property
    def states(self) -> list[dict[str, list]]:
        """What may be there: all that was acknowledged, and perhaps what was under way."""
        found = [self.items]
        if self.under_way is not None:
            found.append(fold(self.items, self.under_way))
        return found

    def copy(self, target: Path) -> Path:
        """A copy that may be damaged."""
        shutil.rmtree(target, ignore_errors=True)
        return shutil.copytree(self.project, target)


def crash(project: Path, *options: object, commits: int = 60, seed: int = 1) -> Crashed:
    """Let a process write until it has acknowledged so many commits, and kill it."""
    victim = Victim(make_project(project), "--seed", seed, *options)
    victim.listen_until(commits)
    victim.kill()
    crashed = Crashed(project, {}, [victim.opened], victim.under_way)
    for commit, operation in victim.acknowledged:
        crashed.items = fold(crashed.items, operation)
        if commit is not None:
            crashed.commits.append(commit)
    return crashed


@dataclass(frozen=True)
class Damage:
    """One thing that is done to one file."""

    name: str
    file: str
    do: Callable[[Path], None] = field(compare=False)

    def __str__(self) -> str:
        return f"{self.name} {self.file}"

    def apply(self, project: Path) -> None:
        """Do it to a project."""
        self.do(graph_folder(project) / self.file)


def flip(file: str, at: int) -> Damage:
    """One byte becomes another."""

    def do(path: Path) -> None:
        with path.open("r+b") as opened:
            opened.seek(at)
            (byte,) = opened.read(1)
            opened.seek(at)
            opened.write(bytes([byte ^ 0xFF]))

    return Damage(f"flip byte {at} of", file, do)


def cut(file: str, size: int) -> Damage:
    """The file ends early."""
    return Damage(f"cut at byte {size} of", file, lambda path: os.truncate(path, size))


def delete(file: str) -> Damage:
    """The file is gone."""
    return Damage("delete", file, Path.unlink)


FRAME = 24 + 4096
"""Bytes of a frame of a WAL: its header and a page."""


def wal_damages(path: Path, rng: random.Random, count: int) -> Iterator[Damage]:
    """Every part of a WAL: its header, headers of frames, pages, cuts anywhere, no file."""
    size = path.stat().st_size
    frames = (size - 32) // FRAME
    yield delete("log.db-wal")
    yield cut("log.db-wal", 0)
    yield cut("log.db-wal", 32)
    kinds = (
        lambda: flip("log.db-wal", rng.randrange(32)),
        lambda: flip("log.db-wal", 32 + rng.randrange(frames) * FRAME + rng.randrange(24)),
        lambda: flip("log.db-wal", 56 + rng.randrange(frames) * FRAME + rng.randrange(4096)),
        lambda: cut("log.db-wal", rng.randrange(size)),
        lambda: cut("log.db-wal", 32 + rng.randrange(frames) * FRAME),
    )
    for number in range(count - 3):
        yield kinds[number % len(kinds)]()


def log_damages(path: Path, rng: random.Random, count: int) -> Iterator[Damage]:
    """The log's own file: flipped bytes anywhere, cuts, no file."""
    size = path.stat().st_size
    yield delete("log.db")
    yield cut("log.db", 0)
    for number in range(count - 2):
        at = rng.randrange(size)
        yield cut("log.db", at) if number % 4 == 0 else flip("log.db", at)


def judge(project: Path, crashed: Crashed) -> str:
    """Open a damaged project: ``whole``, ``refused`` or ``behind``; anything else is a failure."""
    try:
        app = App.open(project, strict=True)
    except TrailsError:
        return "refused"
    with app:
        graph = app.graph()
        if graph.loss is None:
            assert items_of(app) in crashed.states, "acknowledged data is gone without a word"
            return "whole"
        assert graph.status == "behind"
        assert {each.commit for each in graph.loss.missing} & {*crashed.commits, *_ids(crashed)}
        assert "trails recover" in graph.read_only.reason
        assert not all(each.severity == "ok" for each in verify(graph, lambda text: None))
        with pytest.raises(BehindError, match="has lost data"):
            app.registry().classes["Item"](code="new", value=1).save(app.context())
    return "behind"


def _ids(crashed: Crashed) -> set[str]:
    """The commit that was under way is known to no one but the project itself."""
    if crashed.under_way is None:
        return set()
    with App.open(crashed.copy(crashed.project.with_name("look"))) as app:
        return {commit.id for commit in app.graph().log.commits()}


def files_of(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, with its content."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
