"""A branch with some data, and a sandbox."""

import pytest
from tests.sandbox.branches import Branch, statements

from trails.sandbox.limits import Limits
from trails.sandbox.pool import Sandbox


@pytest.fixture
def branch(tmp_path):
    """Two hundred things."""
    branch = Branch(tmp_path / "store")
    branch.commit(added=statements(200))
    return branch


@pytest.fixture
def sandbox(tmp_path):
    """A minute, so that no busy machine is too slow, and less than half a gigabyte."""
    sandbox = Sandbox(tmp_path / "scratch", Limits(seconds=60, memory=400 << 20))
    yield sandbox
    sandbox.close()
