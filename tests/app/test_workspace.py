"""Changes of a project's files: what may be changed, and that all of them happen or none."""

from __future__ import annotations

import os
import re
import signal
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trails import App
from trails.app.staging import JOURNAL, FileChanges
from trails.app.workspace import ProjectWorkspace
from trails.engine.upkeep.scaffold import scaffold_project
from trails.errors import ConflictError, ReadOnlyError, StorageError, ValidationError
from trails.model.changes.file_diffs import FileChange, FileDiff, LineEdit, make_diff


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A new project."""
    return scaffold_project(tmp_path / "acme", None)[0]


@pytest.fixture
def workspace(folder: Path):
    """The files of its graph."""
    with App.open(folder) as app:
        yield ProjectWorkspace(app, "main")


def _new_file(path: str, text: str = "x = 1\n") -> FileDiff:
    return make_diff({path: (None, text)})


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        [
            "../evil.py",
            "a/../../evil.py",
            "/etc/evil.py",
            "a//b.py",
            "./a.py",
            "a/./b.py",
            "",
            "a\0b.py",
            "a\nb.py",
            "..\\evil.py",
            "a\\b.py",
            ".trails/x.py",
            ".git/hooks/pre-commit.py",
            ".venv/lib/x.py",
            "lib/.hidden.py",
            "__pycache__/x.py",
            "lib/site-packages/x.py",
            "x" * 300 + ".py",
            "evil.sh",
            "Makefile",
            "pyproject.toml",
            "trails.toml",
            "other/x.rq",
            "queries/x.txt",
            "data.json",
            "\u202eevil.py",
        ],
    )
    def test_a_path_outside_of_the_rule_is_refused(self, workspace, folder: Path, path: str):
        """The error names the field; nothing is written."""
        before = sorted(folder.parent.rglob("*"))
        with pytest.raises(ValidationError) as caught:
            workspace.apply(_new_file(path))
        assert caught.value.fields[0].field == "files[0].path"
        assert sorted(folder.parent.rglob("*")) == before

    @pytest.mark.parametrize(
        "path",
        [
            "types.py",
            "lib/deep/types.py",
            "queries/open.rq",
            "policies/team.cedar",
            "policies/tests.toml",
            "migrations/0001_start.py",
            "tests/test_app.py",
            "plugins/hello/pyproject.toml",
        ],
    )
    def test_a_path_of_the_project_is_written(self, workspace, folder: Path, path: str):
        """Missing folders are made."""
        workspace.apply(_new_file(path, "text\n"))
        assert (folder / path).read_bytes() == b"text\n"

    def test_a_symbolic_link_is_never_followed(self, workspace, folder: Path, tmp_path: Path):
        """Neither as a folder on the way nor as the file."""
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "old.py").write_text("old\n")
        (folder / "lib").symlink_to(outside)
        (folder / "link.py").symlink_to(outside / "old.py")
        for diff in (
            _new_file("lib/new.py"),
            _new_file("link.py"),
            make_diff({"link.py": ("old\n", "new\n")}),
            make_diff({"lib/old.py": ("old\n", None)}),
        ):
            with pytest.raises(StorageError, match="symbolic link"):
                workspace.apply(diff)
        with pytest.raises(StorageError, match="symbolic link"):
            workspace.read("link.py")
        assert workspace.list("queries", ".rq") == []
        assert [each.name for each in outside.iterdir()] == ["old.py"]
        assert (outside / "old.py").read_text() == "old\n"

    def test_a_virtual_environment_is_never_changed(self, workspace, folder: Path):
        """Whatever its name is."""
        (folder / "env").mkdir()
        (folder / "env" / "pyvenv.cfg").write_text("")
        with pytest.raises(ValidationError, match="virtual environment"):
            workspace.apply(_new_file("env/lib/x.py"))

    def test_two_changes_of_one_file_are_refused(self, workspace):
        """Also where a file system ignores case, or one is a folder of the other."""
        for pair in (("a.py", "a.py"), ("a.py", "A.py"), ("a.py", "a.py/b.py")):
            files = tuple(FileChange(path, "create", None, "0", "") for path in pair)
            with pytest.raises(ValidationError, match="can't both be changed"):
                workspace.apply(FileDiff(files, ""))

    @pytest.mark.parametrize(
        "change",
        [
            FileChange("a.py", "create", "0" * 64, "0", "x"),
            FileChange("a.py", "create", None, None, "x"),
            FileChange("a.py", "create", None, "0", None),
            FileChange("a.py", "create", None, "0", "x", (LineEdit(1, 0, "x"),)),
            FileChange("a.py", "modify", None, "0", None, (LineEdit(1, 0, "x"),)),
            FileChange("a.py", "modify", "0" * 64, "0", "x"),
            FileChange("a.py", "delete", "0" * 64, "0"),
            FileChange("a.py", "create", None, "0", "\ud800"),
            FileChange("a.py", "create", None, "0", "a\0b"),
            FileChange("a.py", "create", None, "0", "not of this digest"),
        ],
    )
    def test_a_contradictory_change_is_refused(self, workspace, change: FileChange):
        """Its parts must fit each other."""
        with pytest.raises(ValidationError):
            workspace.apply(FileDiff((change,), ""))

    def test_a_read_only_project_is_not_changed(self, folder: Path):
        """As its data is not."""
        with App.open(folder, read_only=True) as app, pytest.raises(ReadOnlyError):
            ProjectWorkspace(app, "main").apply(_new_file("a.py"))


class TestBases:
    def test_a_stale_base_is_refused_for_all_files(self, workspace, folder: Path):
        """No file is changed, and the error names those that differ."""
        (folder / "a.py").write_text("a = 1\n")
        diff = make_diff({"a.py": ("a = 0\n", "a = 2\n"), "b.py": (None, "b = 1\n")})
        with pytest.raises(ConflictError, match=r"a\.py has changed since") as caught:
            workspace.apply(diff)
        assert caught.value.data["files"] == ["a.py"]
        assert not (folder / "b.py").exists()
        with pytest.raises(ConflictError, match=r"a\.py exists already"):
            workspace.apply(_new_file("a.py"))
        with pytest.raises(ConflictError, match=r"c\.py does not exist"):
            workspace.apply(make_diff({"c.py": ("c\n", None)}))
        assert not (folder / ".trails" / JOURNAL).exists()

    @pytest.mark.parametrize(
        "edits",
        [
            (LineEdit(1, 1, "a = 2"),),
            (LineEdit(9, 1, "a = 2\n"),),
            (LineEdit(0, 1, "a = 2\n"),),
            (LineEdit(1, -1, "a = 2\n"),),
            (LineEdit(2, 0, ""), LineEdit(1, 1, "a = 2\n")),
        ],
    )
    def test_an_altered_change_is_refused(self, workspace, folder: Path, edits):
        """Whoever sends back a part of it, or changes it, changes nothing."""
        (folder / "a.py").write_text("a = 1\n")
        (made,) = make_diff({"a.py": ("a = 1\n", "a = 2\n")}).files
        altered = msgspec.structs.replace(made, edits=edits)
        with pytest.raises(ValidationError, match="send the change as it was returned"):
            workspace.apply(FileDiff((altered,), ""))
        assert (folder / "a.py").read_text() == "a = 1\n"

    @given(st.text("ab\r\né", max_size=30), st.text("ab\r\né", max_size=30))
    def test_edits_give_the_text(self, before: str, after: str):
        """Also after the change was sent as JSON."""
        for change in make_diff({"a.py": (before, after)}).files:
            sent = msgspec.json.decode(msgspec.json.encode(change), type=FileChange)
            assert sent.applied_to(before) == after == change.text

    def test_bytes_and_modes_are_kept(self, workspace, folder: Path):
        """Line ends, byte order mark, a missing last line end, and the mode of the file."""
        path = folder / "odd.py"
        path.write_bytes("\ufeffa = 1\r\nb = 2".encode())
        path.chmod(0o750)
        text = workspace.read("odd.py")
        assert text == "\ufeffa = 1\r\nb = 2"
        workspace.apply(make_diff({"odd.py": (text, text.replace("1", "é"))}))
        assert path.read_bytes() == "\ufeffa = é\r\nb = 2".encode()
        assert stat.S_IMODE(path.stat().st_mode) == 0o750

    def test_a_new_file_is_open_as_its_folder_is(self, workspace, folder: Path):
        """Source code is not private, whatever the umask of a server is."""
        folder.chmod(0o755)
        old = os.umask(0o077)
        try:
            workspace.apply(_new_file("lib/a.py"))
        finally:
            os.umask(old)
        assert stat.S_IMODE((folder / "lib").stat().st_mode) == 0o755
        assert stat.S_IMODE((folder / "lib" / "a.py").stat().st_mode) == 0o644

    def test_a_text_that_is_not_utf_8_is_not_read(self, workspace, folder: Path):
        """It could not be written back as it was."""
        (folder / "latin.py").write_bytes("# é".encode("latin-1"))
        with pytest.raises(StorageError, match="UTF-8"):
            workspace.read("latin.py")


CHANGES = {
    "a.py": ("a = 1\n", "a = 2\n"),
    "b.py": ("b = 1\n", None),
    "lib/c.py": (None, "c = 1\n"),
    "queries/d.rq": ("d\n", "e\n"),
}
CALLS = ("rename", "fsync", "open", "unlink", "mkdir", "fchmod", "close")


def _state(folder: Path) -> dict[str, str | None]:
    return {
        path: (folder / path).read_text() if (folder / path).exists() else None for path in CHANGES
    }


def killed_at(step: int, work: Callable[[], None]) -> bool:
    """Do the work in a process that is killed before its n-th call of the system."""
    child = os.fork()
    if child == 0:
        left = step

        def dying(call):
            def wrapper(*args, **kwargs):
                nonlocal left
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
                return call(*args, **kwargs)

            return wrapper

        for name in CALLS:
            setattr(os, name, dying(getattr(os, name)))
        try:
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


OLD = {path: before for path, (before, _) in CHANGES.items()}
NEW = {path: after for path, (_, after) in CHANGES.items()}


def _is_clean(folder: Path) -> bool:
    """Whether no file of a change under way is left."""
    left = [each.name for each in folder.rglob("*") if each.is_file()]
    return not [each for each in left if each.startswith(".") or each == JOURNAL]


class TestKills:
    @pytest.fixture
    def project(self, tmp_path: Path) -> Path:
        """The files before the change."""
        for path, (before, _) in CHANGES.items():
            (tmp_path / path).parent.mkdir(exist_ok=True)
            if before is not None:
                (tmp_path / path).write_text(before)
        (tmp_path / "lib").rmdir()
        (tmp_path / ".trails").mkdir()
        return tmp_path

    def test_a_change_is_whole_after_a_kill_at_any_step(self, project: Path):
        """After recovery all files are old or all are new, and nothing else is left."""
        diff, seen = make_diff(CHANGES), set()
        for step in range(200):
            changes = FileChanges(project, project / ".trails")
            alive = not killed_at(step, lambda changes=changes: changes.apply(diff.files))
            # Recovery itself is killed as well, then runs to its end.
            killed_at(step % 7, lambda changes=changes: changes.recover(lambda mark: False))
            changes.recover(lambda mark: False)
            found = _state(project)
            assert found in (OLD, NEW), step
            assert _is_clean(project), step
            seen.add(found == NEW)
            if alive:
                assert found == NEW
                break
            if found == NEW:
                changes.apply(make_diff({p: (new, old) for p, (old, new) in CHANGES.items()}).files)
                (project / "lib").rmdir()
        else:
            pytest.fail("it never ended")
        assert seen == {True, False}

    @pytest.mark.parametrize("happened", [True, False])
    def test_a_prepared_change_follows_what_it_was_prepared_for(
        self, project: Path, happened: bool
    ):
        """A killed process leaves it; the next one asks by its mark."""
        changes = FileChanges(project, project / ".trails")
        changes.prepare(make_diff(CHANGES).files, "commit-1")
        assert _state(project) == OLD
        with pytest.raises(ConflictError, match="under way"):
            changes.apply(make_diff({"z.py": (None, "z\n")}).files)
        asked = []
        FileChanges(project, project / ".trails").recover(
            lambda mark: asked.append(mark) or happened
        )
        assert asked == ["commit-1"]
        assert _state(project) == (NEW if happened else OLD)
        assert _is_clean(project)

    def test_a_prepared_change_is_finished_or_undone(self, project: Path):
        """By who prepared it."""
        changes = FileChanges(project, project / ".trails")
        changes.prepare(make_diff(CHANGES).files, "x").undo()
        assert _state(project) == OLD
        changes.prepare(make_diff(CHANGES).files, "x").finish()
        assert _state(project) == NEW
        assert _is_clean(project)

    def test_an_edit_after_a_kill_is_kept(self, project: Path):
        """What a person has written since is never overwritten."""
        changes = FileChanges(project, project / ".trails")
        changes.prepare(make_diff(CHANGES).files, "x")
        (project / "a.py").write_text("mine\n")
        changes.recover(lambda mark: True)
        assert _state(project) == {**NEW, "a.py": "mine\n"}
        assert _is_clean(project)

    def test_a_failure_half_way_restores_the_files(self, project: Path, monkeypatch):
        """A rename that the system refuses leaves every file as it was."""
        rename, calls = os.rename, []

        def refuse(*args, **kwargs):
            calls.append(args)
            if len(calls) == 3:
                raise PermissionError(1, "Operation not permitted")
            return rename(*args, **kwargs)

        changes = FileChanges(project, project / ".trails")
        monkeypatch.setattr(os, "rename", refuse)
        with pytest.raises(StorageError, match="not permitted"):
            changes.apply(make_diff(CHANGES).files)
        monkeypatch.undo()
        assert len(calls) > 3
        assert _state(project) == OLD
        assert _is_clean(project)

    def test_opening_a_project_finishes_a_change(self, folder: Path):
        """Before its module is imported."""
        text = (folder / "app.py").read_text()
        changes = FileChanges(folder, folder / ".trails")
        (folder / ".trails").mkdir(exist_ok=True)
        diff = make_diff({"app.py": (text, re.sub(r"\bTask\b", "Job", text))})
        journal = changes.prepare(diff.files, "")._journal
        changes._decide(journal)
        with App.open(folder) as app:
            assert "Job" in app.registry().types
