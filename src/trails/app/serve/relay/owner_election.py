"""Find the owner of a folder, or become it, whichever is possible first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import monotonic
from typing import Final, TypeVar

from trails.app.ownership import Ownership
from trails.app.serve.relay.owners import OwnerAddress, find_owner
from trails.app.settings import DATA_FOLDER
from trails.errors import LockedError

_SHORTEST: Final = 0.01
_LONGEST: Final = 0.25
"""Seconds between two attempts."""
_SOON: Final = 1.0
"""Seconds of waiting that are not reported."""
_PATIENCE: Final = 10.0
"""Seconds that a command waits for a folder."""
_HOPELESS: Final = {"elsewhere": 0.0, "orphaned": _PATIENCE, "unreachable": _PATIENCE}
"""Seconds after which waiting is useless, by the reason of the lock."""

_T = TypeVar("_T")


async def attach(
    folder: Path,
    connect: Callable[[OwnerAddress], Awaitable[_T]],
    report: Callable[[str], None],
    wait: Callable[[float, LockedError], Awaitable[None]] | None = None,
) -> Ownership | _T:
    """Own a folder, or connect to its owner.

    While neither is possible, because another process starts, ends or uses the folder alone,
    ``wait`` is called after each attempt with the seconds waited and the reason; ``report`` reports
    it once. Raises LockedError if this process can never reach the one that holds the lock.
    """
    began = monotonic()
    pause = _SHORTEST
    reported = False
    while True:
        try:
            return Ownership(folder / DATA_FOLDER, patience=0)
        except LockedError as error:
            locked = error
        address = find_owner(folder)
        if address is not None:
            try:
                return await connect(address)
            except OSError:
                pass  # it is ending, or has ended since its file was read
        waited = monotonic() - began
        _check_waiting(locked, waited)
        if waited > _SOON and not reported:
            reported = True
            report(f"waiting: {locked.message}")
        if wait is not None:
            await wait(waited, locked)
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)


def own_or_find(folder: Path, report: Callable[[str], None]) -> Ownership | OwnerAddress:
    """Own a folder for a while, or find the process that serves it.

    A new owner needs a moment until it serves; LockedError reports one that does not.
    """
    began = monotonic()
    while True:
        address = find_owner(folder)
        if address is not None:
            return address
        try:
            return Ownership(folder / DATA_FOLDER)
        except LockedError as locked:
            _check_waiting(locked, waited := monotonic() - began)
            if waited > _PATIENCE:
                raise
            report(f"waiting for process {locked.data['pid']}, which has this project open")


def _check_waiting(locked: LockedError, waited: float) -> None:
    """Stop waiting for a lock that will not be released."""
    if waited >= _HOPELESS.get(str(locked.data["reason"]), float("inf")):
        raise locked
