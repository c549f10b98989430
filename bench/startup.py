"""``import trails`` beside ``import starlette``; the floor is the bare interpreter."""

from __future__ import annotations

import os
import subprocess
import sys

from bench.measure import OUT, Goal, Result, interleave

# Bytecode is cached, as it is for any installed package, whatever this process was told.
ENVIRONMENT = {**os.environ, "PYTHONPYCACHEPREFIX": str(OUT / "bytecode")}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)


def run(*, quick: bool) -> list[Result]:
    """Start a fresh interpreter for every import."""

    def start(code: str) -> None:
        subprocess.run([sys.executable, "-c", code], check=True, env=ENVIRONMENT)

    times = interleave(
        {
            "ours": lambda: start("import trails"),
            "peer": lambda: start("import starlette"),
            "application": lambda: start("import starlette.applications"),
            "declare": lambda: start("from trails import Node, node_type, predicate"),
            "floor": lambda: start("pass"),
        },
        5 if quick else 40,
    )
    return [
        Result(
            "import trails",
            "ms",
            times["ours"].p50 * 1e3,
            times["peer"].p50 * 1e3,
            times["floor"].p50 * 1e3,
            Goal("<=", 2),
            "import starlette · bare interpreter",
            {
                "p99": times["ours"].p99 * 1e3,
                "import_time_us": {
                    "trails": import_time("trails"),
                    "starlette": import_time("starlette"),
                },
                "starlette.applications": times["application"].p50 * 1e3,
                "declaring names of trails": times["declare"].p50 * 1e3,
            },
        )
    ]


def import_time(module: str) -> int:
    """What ``python -X importtime`` says, in microseconds: the best of five."""
    found = []
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", f"import {module}"],
            check=True,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
        )
        found += [
            int(line.split("|")[1])
            for line in done.stderr.splitlines()
            if line.split("|")[-1].strip() == module
        ]
    return min(found)
