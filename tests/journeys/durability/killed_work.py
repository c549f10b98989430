"""One piece of work on a project, in a process that kills itself at a given moment.

    python killed_work.py WORK PROJECT [--step STEP | --change NUMBER]

``--step`` is a named moment of a write. ``--change`` counts what changes the project: each end of
a database transaction, and each file that is opened for writing, renamed, linked or removed; the
process ends just before the change with that number. It prints ``begun`` before the work, and
``done`` and the number of changes after it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sqlite3
import sys
from itertools import count
from pathlib import Path

from tests.journeys.durability.campaign import APP

from trails import App
from trails.app.upkeep import backup_project
from trails.engine.graph import graph as graphs
from trails.engine.migrations.runner import MigrationRun, Migrator
from trails.engine.migrations.segments import Sponsor, forward_segments, reverse_segments
from trails.engine.upkeep.maintenance import cleanup, optimize
from trails.model.history import MergeRequest
from trails.model.writes import LoadRequest

LOADED = "loaded.ndjson"
BACKUPS = "backups"
STRICTER = APP.replace("value: int = predicate()", "value: int = predicate(min_value=-1)").replace(
    "tags: list[str] = predicate()",
    "tags: list[str] = predicate()\n    rank: int = predicate(default=1)",
)
"""The types with one more rule, and one more field that every node gets."""
_FILES = ("os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir", "os.truncate")
_READING = ("SELECT", "BEGIN", "EXPLAIN", "WITH", "ROLLBACK", "SAVEPOINT")


def load(project: Path) -> None:
    """Load a file that is large enough for a segment and for a bulk load of the quads view."""
    with App.open(project) as app:
        app.load(LoadRequest(files=(project / LOADED,)))


def merge(project: Path) -> None:
    """Merge a branch, with changes on both sides."""
    with App.open(project) as app:
        app.versions().merge(MergeRequest("side"))


def forward(project: Path) -> None:
    """Move main forward; what that leaves to do is done in the background and by closing."""
    with App.open(project) as app:
        app.versions().merge(MergeRequest("ahead"))
        app.graph().nodes.settling.run()


def change_types(project: Path) -> None:
    """Open the project with types that have a new rule and a new field."""
    (project / "app.py").write_text(STRICTER)
    with App.open(project) as app:
        app.graph()  # raises if the types were refused


def clean_up(project: Path) -> None:
    """Drop snapshots and files of deleted branches, archive activities, give back space."""
    with App.open(project) as app:
        cleanup(app.graph(), keep=0)


def compact(project: Path) -> None:
    """Compact all files."""
    with App.open(project) as app:
        optimize(app.graph(), lambda text: None)


def rebuild(project: Path) -> None:
    """Make all views anew, as a repair does."""
    with App.open(project) as app:
        app.graph().rebuild()


def back_up(project: Path) -> None:
    """Add to the backups that lie in the project's folder."""
    with App.open(project) as app:
        backup_project(app, project / BACKUPS, lambda text: None)


def migrate(project: Path) -> None:
    """Apply the migrations of the project: one of one commit, one of several."""
    with App.open(project, declarations=False) as app:
        migrator = _migrator(app)
        with migrator.exclusively():
            for each in migrator.find_pending(None):
                migrator.perform(MigrationRun(each, "forward", forward_segments(each)))


def roll_back(project: Path) -> None:
    """Roll back the migrations that are there."""
    with App.open(project, declarations=False) as app:
        migrator = _migrator(app)
        with migrator.exclusively():
            while migrator.applied():
                for file, applied in migrator.find_applied(None):
                    segments = reverse_segments(app.stored_graph("main"), file, applied)
                    migrator.perform(MigrationRun(file, "reverse", segments))


def _migrator(app: App) -> Migrator:
    sponsor = Sponsor("ann", allow_data_loss=True)
    return Migrator(app.stored_graph("main"), "main", app.migrations(), sponsor)


MIGRATIONS = {"migrate": migrate, "roll_back": roll_back}
"""These make several commits, so what is left of them is checked in a test of their own."""
_ALL = (load, merge, forward, change_types, clean_up, compact, rebuild, back_up)
WORKS = {each.__name__: each for each in _ALL}


def main() -> None:
    """Do the work, or some of it."""
    parser = argparse.ArgumentParser()
    works = WORKS | MIGRATIONS
    parser.add_argument("work", choices=works)
    parser.add_argument("project", type=Path)
    parser.add_argument("--step")
    parser.add_argument("--change", type=int)
    given = parser.parse_args()
    graphs.ignore = die_at(given.step)
    changes = count(1)

    def change() -> None:
        if next(changes) == given.change:
            die()

    watch_changes(given.project.resolve(), change)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    works[given.work](given.project)
    sys.stdout.write(f"done {next(changes) - 1}\n")


def die() -> None:
    """End this process at once."""
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(step):
    """What is called at each named moment, and ends the process at one of them."""

    def on_step(reached: str) -> None:
        if reached == step:
            die()

    return on_step


def watch_changes(project, change) -> None:
    """Hear of each change before it is made."""

    def on_event(event, arguments) -> None:
        if event in _FILES or (event == "open" and _for_writing(*arguments[1:])):
            change()

    def _for_writing(mode, flags) -> bool:
        return bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))

    class Watched(sqlite3.Connection):
        def execute(self, text, *more):
            ends = text.upper().startswith(("COMMIT", "END", "RELEASE"))
            if ends or not (self.in_transaction or text.lstrip().upper().startswith(_READING)):
                change()
            return super().execute(text, *more)

    real = sqlite3.connect

    def connect(database, *arguments, **options):
        if str(project) in str(database):
            options["factory"] = Watched
        return real(database, *arguments, **options)

    sqlite3.connect = connect
    sys.addaudithook(on_event)


if __name__ == "__main__":
    main()
