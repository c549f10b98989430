"""Wait for a fact that another thread or process brings about."""

import time

PATIENCE = 120
"""Seconds until something that should happen did not."""


def wait_until(condition, what="it"):
    """Wait for something to become true; what it was."""
    deadline = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.02)
    return found
