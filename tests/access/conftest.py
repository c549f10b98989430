"""Sockets of processes that tests here start go away with the tests."""

import os
import tempfile

import pytest


@pytest.fixture(scope="session", autouse=True)
def _runtime_folder():
    """A runtime folder of our own, and no credentials of whoever runs the tests."""
    with (
        tempfile.TemporaryDirectory(prefix="trails-", dir="/tmp") as folder,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setitem(os.environ, "XDG_RUNTIME_DIR", folder)
        for name in ("TRAILS_TOKEN", "TRAILS_MCP_TOKEN", "TRAILS_MCP_SCOPES"):
            patch.delenv(name, raising=False)
        yield
