"""What a command prints of an error that the system raised."""

from __future__ import annotations

import errno
import json
import os

import pytest
import typer

from trails.surfaces.cli.output.reporting import Reporting


def test_a_file_that_can_not_be_written(capsys):
    """It is named, with the reason and what to do."""
    with pytest.raises(typer.Exit), Reporting(as_json=False):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), "acme/trails.toml")
    said = capsys.readouterr().err
    assert "acme/trails.toml: Read-only file system; make it writable, or use another" in said


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_as_such(capsys, code):
    """Wherever it is noticed: with its code, what is safe, and what to do."""
    with pytest.raises(typer.Exit) as caught, Reporting(as_json=True):
        raise OSError(code, os.strerror(code))
    assert caught.value.exit_code == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "storage_full"
    assert error["message"].endswith("are safe: free some space and retry")
