"""Sockets of processes that are killed here go away with the tests."""

import os
import tempfile

import pytest


@pytest.fixture(scope="session", autouse=True)
def _runtime_folder():
    """A runtime folder of our own."""
    with (
        tempfile.TemporaryDirectory(prefix="trails-", dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setitem(os.environ, "XDG_RUNTIME_DIR", folder)
        yield
