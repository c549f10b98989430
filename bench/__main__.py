"""``python -m bench``: run the benchmarks, print the table, write bench/out/results.json."""

from __future__ import annotations

import argparse
import os
import platform
import sys
from collections.abc import Iterable
from time import perf_counter

import msgspec
from rich.console import Console
from rich.table import Table

from bench import (
    access,
    blame,
    branches,
    bulk,
    coldstart,
    commands,
    commits,
    hostile,
    load,
    mcp,
    reads,
    resources,
    rest,
    sandbox,
    save,
    search,
    startup,
    subscribers,
    texts,
    validation,
    vectors,
    versions,
    windows,
)
from bench.measure import OUT, Result

BENCHMARKS = {
    "import": startup.run,
    "coldstart": coldstart.run,
    "commands": commands.run,
    "save": save.run,
    "commits": commits.run,
    "validation": validation.run,
    "bulk": bulk.run,
    "load": load.run,
    "reads": reads.run,
    "branches": branches.run,
    "versions": versions.run,
    "search": search.run,
    "texts": texts.run,
    "vectors": vectors.run,
    "sandbox": sandbox.run,
    "subscribers": subscribers.run,
    "mcp": mcp.run,
    "rest": rest.run,
    "resources": resources.run,
    "windows": windows.run,
    "access": access.run,
    "blame": blame.run,
    "hostile": hostile.run,
}
WIDE = 160
"""Columns of a table that is not shown on a terminal."""
GROUPS = {"calls": ("mcp", "rest")}
"""Benchmarks that are run together by one name."""


def main() -> int:
    """Run what was asked for; the exit code says whether every goal was met."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "--only", choices=[*GROUPS, *BENCHMARKS], action="append", help="run only this part"
    )
    parser.add_argument("--quick", action="store_true", help="small sizes: a smoke test")
    given = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    console = Console() if sys.stdout.isatty() else Console(width=WIDE)
    results: list[Result] = []
    for name in expand(given.only or BENCHMARKS):
        console.print(f"[dim]measuring {name} …[/dim]")
        begun = perf_counter()
        results += BENCHMARKS[name](quick=given.quick)
        console.print(f"[dim]  {name} took {perf_counter() - begun:.0f} s[/dim]")
        # After each part, so that one that fails costs no other's figures.
        records = msgspec.json.encode([result.record() for result in results])
        (OUT / "results.json").write_bytes(msgspec.json.format(records) + b"\n")
    console.print(tabulate(results, quick=given.quick))
    return 0 if given.quick or all(result.ok for result in results) else 1


def expand(names: Iterable[str]) -> list[str]:
    """The benchmarks that are meant, each once."""
    return [*dict.fromkeys(each for name in names for each in GROUPS.get(name, (name,)))]


def tabulate(results: list[Result], *, quick: bool) -> Table:
    """The results as a table for a terminal."""
    load = os.getloadavg()[0]
    table = Table(
        title=f"{'Quick run: sizes too small to judge' if quick else 'Medians, side by side'}",
        caption=f"Python {platform.python_version()}, {os.cpu_count()} CPUs, load {load:.1f}",
    )
    table.add_column("what")
    for column in ("ours", "peer", "floor", "ratio", "goal"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("peer · floor", style="dim")
    for result in results:
        colour = "green" if result.ok else "red"
        table.add_row(
            result.name,
            *(f"{show(value)} {result.unit}" for value in (result.ours, result.peer, result.floor)),
            f"[{colour}]{result.ratio:.2f}[/{colour}]",
            str(result.goal),
            result.versus,
        )
    return table


def show(value: float) -> str:
    """Three digits that matter."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


if __name__ == "__main__":
    sys.exit(main())
