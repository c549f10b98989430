"""Files that replace others: whole or not at all, private, with modes that are kept."""

import os
import stat
from pathlib import Path

import pytest

from trails.files import (
    create_file,
    make_private,
    open_to_others,
    private_folder,
    replace_file,
    replacing,
)


def mode(path):
    """The permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture(params=[0o000, 0o022, 0o077])
def umask(request):
    """Tests run with it."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.mark.usefixtures("umask")
def test_what_is_new_is_private(tmp_path):
    """Files and folders, and missing parents, whatever the umask."""
    file = tmp_path / "one/two/file"
    private_folder(file.parent)
    replace_file(file, b"x")
    create_file(file.with_name("other"), b"y")
    assert {mode(each) for each in (file, file.with_name("other"))} == {0o600}
    assert {mode(each) for each in (file.parent, file.parent.parent)} == {0o700}


@pytest.mark.usefixtures("umask")
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path):
    """Unless another is asked for; a link stays a link."""
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_bytes(b"old")
    file.chmod(0o644)
    link.symlink_to(file)
    replace_file(link, b"new")
    assert (link.is_symlink(), file.read_bytes(), mode(file)) == (True, b"new", 0o644)
    replace_file(file, b"newer", 0o600)
    assert mode(file) == 0o600


def test_a_failure_leaves_the_old_file_and_nothing_beside_it(tmp_path):
    """Whatever goes wrong while the new one is written."""
    file = tmp_path / "file"
    file.write_bytes(b"old")

    def write_half():
        with replacing(file) as new:
            new.write(b"half of the n")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_device_is_written_and_not_replaced():
    """``--output /dev/null`` leaves the device."""
    device = Path(os.devnull)
    with replacing(device) as file:
        file.write(b"x")
    assert device.is_char_device()


def test_a_folder_is_closed_to_others(tmp_path):
    """With all that is in it; what is closed at its top counts as closed."""
    folder = tmp_path / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/file").write_bytes(b"")
    folder.chmod(0o755)
    (folder / "sub").chmod(0o750)
    (folder / "sub/file").chmod(0o644)
    assert set(open_to_others(folder)) == {folder, folder / "sub", folder / "sub/file"}
    make_private(folder)
    assert not list(open_to_others(folder))
    assert [mode(each) for each in (folder, folder / "sub", folder / "sub/file")] == [
        0o700,
        0o700,
        0o600,
    ]
