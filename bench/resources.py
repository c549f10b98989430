"""``resources/read`` at a million instances: one of them, and a page of a hundred.

A read over MCP may cost what the same read costs through the ORM, and one and a half
bare routes. All three are seconds of a processor, so that a busy machine spoils nothing:
the ORM's are this process's own, the servers' those of their core.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from random import Random
from statistics import median
from time import process_time
from typing import Final

from rich.console import Console

from bench.measure import Goal, Result
from bench.parts import SITES, Item
from bench.serving.load import Case, take_turns
from bench.serving.requests import call, modern
from bench.serving.servers import Server, generator_pinned, ours, peer
from bench.warehouse import warehouse
from trails import App
from trails.engine.session.context import GraphContext

PAGE: Final = 100
MANY: Final = 500
ROUTES: Final = 1.5


def run(*, quick: bool) -> list[Result]:
    """Read through the ORM first, then serve the same folder."""
    console = Console()
    count = 20_000 if quick else 1_000_000
    folder = warehouse(count, lambda text: console.print(f"[dim]  {text}[/dim]"))
    codes = [f"P-{Random(each).randrange(count):08}" for each in range(MANY)]
    sites = [f"S-{each:02}" for each in range(SITES)]
    direct = _through_orm(folder, codes, sites)
    with generator_pinned(), ours(folder) as server, peer("route", 1) as route:
        hello = route.case(b"hello", call(route.path, "echo", {"text": "hello"}))
        cases = {"route": hello, **_cases(server, codes, sites)}
        slices = take_turns(cases, *((0.2, 3) if quick else (1.0, 9)))
    used = {name: median(each.cpu for each in found) for name, found in slices.items()}
    return list(_judge(direct, used))


def _through_orm(folder: Path, codes: list[str], sites: list[str]) -> dict[str, float]:
    """Seconds of the processor for one read."""
    with App.open(folder) as app:
        ctx = app.context(actor="bench")
        return {
            "instance": _time(partial(_get, ctx), codes),
            "page": _time(partial(_page, ctx), sites),
        }


def _get(ctx: GraphContext, code: str) -> object:
    return Item.get(ctx, code)


def _page(ctx: GraphContext, site: str) -> object:
    return Item.objects(ctx).where(site=site).page(PAGE)


def _time(read: Callable[[str], object], given: list[str]) -> float:
    """The median over blocks, each long enough for the clock."""
    turns = cycle(given)
    for _ in range(100):
        read(next(turns))
    found = []
    for _ in range(9):
        start = process_time()
        for _ in range(MANY):
            read(next(turns))
        found.append((process_time() - start) / MANY)
    return median(found)


def _cases(server: Server, codes: list[str], sites: list[str]) -> dict[str, Case]:
    def reads(uris: Iterator[str]) -> list[bytes]:
        return [modern(server.path, "resources/read", {"uri": uri}, uri) for uri in uris]

    instances = reads(f"trails://kg/Item/{code}" for code in codes)
    pages = reads(f"trails://kg/Item?where=site={site}&limit={PAGE}" for site in sites)
    return {
        "instance": server.case(b"P-0", *instances),
        "page": server.case(b"P-0", *pages),
    }


def _judge(direct: dict[str, float], used: dict[str, float]) -> Iterator[Result]:
    for name, title in (("instance", "one instance"), ("page", f"a page of {PAGE}")):
        yield Result(
            f"resources/read of {title}",
            "µs",
            used[name] * 1e6,
            (direct[name] + ROUTES * used["route"]) * 1e6,
            used["route"] * 1e6,
            Goal("<=", 1),
            "the ORM + 1.5 bare routes · bare Starlette route",
            {"orm": direct[name] * 1e6},
        )
