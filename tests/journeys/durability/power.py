"""Cut the power at any step of some work, and take away what was not synced.

The work runs in a process of its own, in which the calls that change names or sync files are
recorded before they are done, and which ends without warning before the call with a given number.
It is forked, or a ``trails`` command in a new process: this file, run as a program. Then:

- names (mkdir, rename, unlink) that no sync of their folder made durable are undone from some
  point on: file systems keep the order of such changes, and lose the last of them;
- new files whose folder was not synced since are gone, or empty;
- files that were written after their last sync are whole, short or empty.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

CUT = 9
"""The exit code of a process whose power was cut."""
_CHANGES = ("mkdir", "rename", "replace", "unlink", "rmdir")


def run_until(
    step: int | None, roots: list[Path], work: Callable[[], None], *, syncs: bool = True
) -> tuple[dict, bool]:
    """Do some work until before a step: what was recorded, and whether it was finished.

    Without ``syncs``, no sync counts: for proving that the simulation bites.
    """
    grave = _dig(roots)
    pid = os.fork()
    if not pid:
        _record(_Recorder(step, roots, grave, syncs=syncs), work)
    return _read(grave, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def run_command_until(
    step: int | None, roots: list[Path], command: tuple[str, ...], *, syncs: bool = True
) -> tuple[dict, bool]:
    """The same for a ``trails`` command, in a new process.

    RocksDB hangs in a process that was forked after a store was opened.
    """
    grave = _dig(roots)
    asked = {"step": step, "roots": [*map(str, roots)], "grave": str(grave), "syncs": syncs}
    done = subprocess.run(
        [sys.executable, __file__, json.dumps(asked), *command], capture_output=True, check=False
    )
    sys.stderr.write(done.stderr.decode())
    return _read(grave, done.returncode)


def _dig(roots):
    grave = roots[0].parent / "grave"
    shutil.rmtree(grave, ignore_errors=True)
    grave.mkdir()
    return grave


def _read(grave, code):
    assert code in {0, CUT}, code
    return json.loads((grave / "record").read_text()), code == 0


def _record(recorder, work):
    """Work until the power is cut; never returns."""
    code = 1
    try:
        recorder.install()
        work()
        recorder.save()
        code = 0
    except BaseException as error:  # noqa: BLE001 - shown, and told by the exit code
        sys.stderr.write(f"{type(error).__name__}: {error}\n")
    finally:
        sys.stderr.flush()
        os._exit(code)


class _Recorder:
    """Counts and records changes, and ends the process before one of them."""

    def __init__(self, step, roots, grave, *, syncs):
        self.step, self.grave, self.syncs = step, grave, syncs
        self.roots = [str(each) for each in roots]
        self.count = 0
        self.changes = []
        self.durable = 0
        """How many of the changes are."""
        self.listed = {}
        """Folder → the names in it when it was synced."""
        self.synced = {}
        """Inode → size and time of writing when it was synced."""
        facts = [each.stat() for root in roots for each in root.rglob("*")]
        self.before = {str(each.st_ino): each.st_mtime_ns for each in facts}
        """Inode → time of writing of what was there already, which counts as synced."""
        self.real = {name: getattr(os, name) for name in (*_CHANGES, "fsync", "link")}

    def install(self):
        """Record from now on."""
        for name in _CHANGES:
            setattr(os, name, self._changing(name))
        os.fsync = self._sync

    def _tick(self):
        if self.count == self.step:
            self.save()
            os._exit(CUT)
        self.count += 1

    def save(self):
        """Write down what is known."""
        names = ("count", "changes", "durable", "listed", "synced", "before")
        known = {name: getattr(self, name) for name in names}
        (self.grave / "record").write_text(json.dumps(known))

    def _changing(self, name):
        def change(*paths, **more):
            mine = [_absolute(each, more) for each in paths if isinstance(each, str | os.PathLike)]
            if not any(mine[0].startswith(root) for root in self.roots):
                return self.real[name](*paths, **more)
            self._tick()
            kept = None
            target = mine[-1] if name in {"rename", "replace"} else mine[0]
            if name in {"replace", "unlink"} and Path(target).is_file():
                kept = str(self.grave / str(self.count))
                self.real["link"](target, kept)
            done = self.real[name](*paths, **more)
            self.changes.append([name, *mine[: 2 if "re" in name else 1], kept])
            return done

        return change

    def _sync(self, descriptor):
        self._tick()
        self.real["fsync"](descriptor)
        if not self.syncs:
            return
        path = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        if Path(path).is_dir():
            self.listed[path] = [each.name for each in Path(path).iterdir()]
            for at, (_, *paths) in enumerate(self.changes):
                if any(str(Path(each).parent) == path for each in paths if each):
                    self.durable = max(self.durable, at + 1)
        else:
            facts = os.fstat(descriptor)
            self.synced[str(facts.st_ino)] = [facts.st_size, facts.st_mtime_ns]


def _absolute(path, more):
    if more.get("dir_fd") is not None:
        return str(Path(f"/proc/self/fd/{more['dir_fd']}").readlink() / path)
    return str(Path(path).absolute())


def lose(record: dict, roots: list[Path], rng: random.Random) -> None:
    """Take away what was not durable when the power was cut."""
    for root in roots:
        for file in [each for each in root.rglob("*") if each.is_file()]:
            _lose_content(record, file, rng)
    keep = rng.randint(record["durable"], len(record["changes"]))
    for change in reversed(record["changes"][keep:]):
        _undo(*change)


def _lose_content(record, file, rng):
    facts = file.stat()
    if record["before"].get(str(facts.st_ino)) == facts.st_mtime_ns:
        return
    if record["synced"].get(str(facts.st_ino)) != [facts.st_size, facts.st_mtime_ns]:
        os.truncate(file, rng.choice([0, facts.st_size // 2, facts.st_size]))
        known = record["listed"].get(str(file.parent))
        if (known is None or file.name not in known) and rng.random() < 0.5:
            file.unlink()


def _undo(name, *paths):
    *paths, kept = paths
    target = Path(paths[-1])
    if name == "mkdir":
        shutil.rmtree(target, ignore_errors=True)
    elif name in {"rename", "replace"} and target.exists():
        source = Path(paths[0])
        source.parent.mkdir(parents=True, exist_ok=True)
        target.rename(source)
    if kept is not None and not target.exists() and target.parent.is_dir():
        target.hardlink_to(kept)


def main() -> None:
    """Run a command until the power is cut."""
    from trails.app.main import main as run

    asked = json.loads(sys.argv[1])
    roots = [Path(each) for each in asked["roots"]]
    sys.argv = ["trails", *sys.argv[2:]]

    def work():
        try:
            run()
        except SystemExit as ended:
            assert not ended.code, ended.code  # noqa: PT017 - its exit code is the outcome

    _record(_Recorder(asked["step"], roots, Path(asked["grave"]), syncs=asked["syncs"]), work)


if __name__ == "__main__":
    main()
