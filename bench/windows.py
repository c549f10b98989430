"""Windows on texts: a part of a long text may cost three times the same part of a short one.

Both are not ASCII, and are read through the kernel, as every surface reads them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bench.measure import Goal, Result, interleave
from trails import App, Node, node_type, predicate
from trails.app.kernels import kernel_of
from trails.model.actors import LOCAL
from trails.model.results import Success
from trails.request.pipeline import Kernel

SENTENCE: Final = "Zażółć gęślą jaźń 漢字 👩‍🚀, "
SHORT: Final = 10_000
LONG: Final = 10_000_000
"""Bytes in UTF-8."""
LENGTH: Final = 2_000
TIMES: Final = 3.0


@node_type
class Report(Node):
    """Something long."""

    code: str = predicate(key=True)
    body: str = predicate()


def run(*, quick: bool) -> list[Result]:
    """Read windows at the start, in the middle and at the end."""
    short, long = _text(SHORT), _text(LONG // 10 if quick else LONG)
    with TemporaryDirectory() as folder, _served(Path(folder), short, long) as (kernel, runner):
        calls: dict[str, Callable[[], object]] = {}
        for name, text in (("short", short), ("long", long)):
            for where, part in (("start", 0.0), ("middle", 0.5), ("end", 0.99)):
                offset = min(int(len(text) * part), len(text) - LENGTH)
                calls[f"{name} {where}"] = partial(_read, kernel, runner, name, offset)
        times = interleave(calls, 50 if quick else 400, warmup=5)
    return [
        Result(
            f"window at the {where} of a long text",
            "µs",
            times[f"long {where}"].p50 * 1e6,
            times[f"short {where}"].p50 * 1e6,
            times["short start"].p50 * 1e6,
            Goal("<=", TIMES),
            f"the same of {SHORT:,} bytes; its start",
            {"p99": times[f"long {where}"].p99 * 1e6, "characters": len(long)},
        )
        for where in ("start", "middle", "end")
    ]


def _text(octets: int) -> str:
    return SENTENCE * (octets // len(SENTENCE.encode()))


@contextmanager
def _served(folder: Path, short: str, long: str) -> Iterator[tuple[Kernel, asyncio.Runner]]:
    (folder / "trails.toml").write_text('[project]\nname = "windows"\n')
    (folder / "app.py").write_text("from bench.windows import Report\n")
    with App.open(folder) as app, asyncio.Runner() as runner:
        ctx = app.context(actor="bench")
        Report(code="short", body=short).save(ctx)
        Report(code="long", body=long).save(ctx)
        kernel = kernel_of(app, "main")
        try:
            yield kernel, runner
        finally:
            kernel.close()


def _read(kernel: Kernel, runner: asyncio.Runner, code: str, offset: int) -> None:
    arguments = {
        "record": f"Report/{code}",
        "field": "body",
        "offset": offset,
        "length": LENGTH,
    }
    found = runner.run(kernel.execute(LOCAL, "read_record_field", arguments))
    assert isinstance(found, Success), found  # noqa: S101 - a benchmark checks what it measures
