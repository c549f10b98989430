"""Processor time of commands, beside ``python -c "import typer"``: help, and one read.

The library that parses the options is the least that such a command could import.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

from rich.console import Console

from bench.measure import Goal, Result, interleave
from bench.serving.servers import ROOT
from bench.startup import ENVIRONMENT
from bench.warehouse import warehouse


def run(*, quick: bool) -> list[Result]:
    """Commands in processes of their own, on the warehouse."""
    console = Console()
    folder = warehouse(
        20_000 if quick else 1_000_000, lambda text: console.print(f"[dim]  {text}[/dim]")
    )
    trails = ["-m", "trails"]
    commands = {
        "help": [*trails, "--help"],
        "help of get": [*trails, "get", "--help"],
        "get": [*trails, "get", "Item", "--limit", "20"],
        "one": [*trails, "get", "Item/P-00000007"],
        "peer": ["-c", "import typer"],
        "floor": ["-c", "pass"],
    }
    used: dict[str, list[float]] = {name: [] for name in commands}

    def start(name: str) -> None:
        used[name].append(processor_time(commands[name], folder))

    interleave({name: partial(start, name) for name in commands}, 3 if quick else 20)
    times = {name: median(each) * 1e3 for name, each in used.items()}
    versus = 'python -c "import typer" · bare interpreter'
    return [
        Result(
            "trails --help",
            "ms",
            times["help"],
            times["peer"],
            times["floor"],
            Goal("<=", 2),
            versus,
            {"trails get --help": times["help of get"]},
        ),
        Result(
            "local trails get",
            "ms",
            times["get"],
            times["peer"],
            times["floor"],
            Goal("<=", 3),
            versus,
            {"one record": times["one"]},
        ),
    ]


def processor_time(arguments: Sequence[str], folder: Path) -> float:
    """What a process uses of the processors until it has ended."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        env={**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{arguments} failed")
    return usage.ru_utime + usage.ru_stime
