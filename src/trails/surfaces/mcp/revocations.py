"""Subscriptions end with the credentials that began them.

What is due to somebody who is not current any more is not told. A stream that can say so says
that it is over; a connection that goes on all the same is cut by whoever serves it.
"""

from __future__ import annotations

import asyncio
from typing import Final

from trails.model.revocations import IsCurrent, Lasting, end_stale

PAUSE: Final = 1.0
"""Seconds between two looks."""


async def sweep(is_current: IsCurrent, *kinds: Lasting) -> None:
    """Stop what goes on for actors that are not current any more, until cancelled."""
    while True:
        await asyncio.sleep(PAUSE)
        for each in kinds:
            end_stale(each, is_current)
