"""Exports to a file or to standard output, with progress; a job can be continued later.

A job is followed until it is done. Its file is then downloaded beside the target, from the byte
at which an earlier download ended, compared with the digest of the export, and renamed.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import typer

from trails.errors import ConflictError, StorageError
from trails.files import digest_file, private_opener, replacing, sync_folder
from trails.surfaces.cli.operations import Session
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.plain import INTERRUPTED
from trails.surfaces.cli.output.reporting import Reporting, complain, data_output
from trails.surfaces.cli.values import size

_PAUSE: Final = 0.2
"""Seconds between two questions about a job."""


class Download:
    """An export on its way to a file, or to standard output."""

    def __init__(self, session: Session, report: Reporting, output: Path | None) -> None:
        self._session = session
        self._report = report
        self._output = output

    def write(self, blocks: Iterable[bytes], format: str) -> None:
        """Write a file completely or not at all; a new file is private to this user."""
        if self._output is None:
            self._print(blocks)
            return
        with replacing(self._output) as file:
            written = sum(file.write(block) for block in blocks)
        self._report_file(written, {"format": format})

    def _print(self, blocks: Iterable[bytes]) -> None:
        write = data_output()
        for block in blocks:
            write(block)
        sys.stdout.flush()
        self._report.silent = True

    def _report_file(self, written: int, more: Mapping[str, object]) -> None:
        file, format = str(self._output), str(more["format"])
        self._report.value = {"file": file, **more, "bytes": written}
        self._report.text = [f"Wrote {escape(file)}: {format}, {size(written)}."]

    # --- jobs ------------------------------------------------------------------------------

    def follow(self, arguments: Mapping[str, object]) -> None:
        """Start a job, or continue one, until its file is written."""
        status = self._session.record("export_records", arguments)
        handle = str(status["export"])
        try:
            done = self._wait(handle, status)
            if self._output is None:
                with closing(self._session.content(handle, 0)) as blocks:
                    self._print(blocks)
                return
            self._fetch(handle, done, self._output)
        except KeyboardInterrupt:
            to = f" --output {self._output}" if self._output is not None else ""
            complain(f"interrupted; continue with: trails export --resume {handle}{to}")
            raise typer.Exit(INTERRUPTED) from None
        shown = {name: done[name] for name in ("export", "format", "commit", "records", "sha256")}
        self._report_file(int(str(done["bytes"])), shown)

    def _wait(self, handle: str, status: Mapping[str, object]) -> Mapping[str, object]:
        with progress_bar("writing", shown=self._shown) as progress:
            while status["state"] in {"waiting", "running"}:
                total = status["total"]
                progress(int(str(status["records"])), total if isinstance(total, int) else None)
                time.sleep(_PAUSE)
                status = self._session.record("export_records", {"export": handle})
        error = status.get("error")
        if isinstance(error, Mapping):
            raise ConflictError(f"the export failed: {error['message']}", export=handle)
        return status

    @property
    def _shown(self) -> bool:
        return not self._report.as_json

    def _fetch(self, handle: str, done: Mapping[str, object], output: Path) -> None:
        """Download what is missing, check all of it, and put it in its place."""
        if output.exists() and not output.is_file():  # a device or a pipe
            with closing(self._session.content(handle, 0)) as blocks, replacing(output) as file:
                file.writelines(blocks)
            return
        total, output = int(str(done["bytes"])), output.resolve()
        part = output.with_name(f".{output.name}.{handle}")
        with open(part, "ab", opener=private_opener) as file:
            if file.tell() > total:
                file.seek(0)
                file.truncate()
            have = file.tell()
            with progress_bar("downloading", octets=True, shown=self._shown) as progress:
                if have < total:
                    with closing(self._session.content(handle, have)) as blocks:
                        for block in blocks:
                            have += file.write(block)
                            progress(have, total)
        if digest_file(part) != done["sha256"]:
            part.unlink(missing_ok=True)
            raise StorageError(
                "the downloaded file differs from the export; run: trails export --resume "
                f"{handle} --output {output}"
            )
        part.replace(output)
        sync_folder(output.parent)


@contextmanager
def progress_bar(
    text: str, *, octets: bool = False, shown: bool
) -> Iterator[Callable[[int, int | None], None]]:
    """Show progress on standard error, in bytes or in records, if that is a terminal."""
    if not shown or not sys.stderr.isatty():
        yield _silent
        return
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.progress import (  # noqa: PLC0415 - likewise
        BarColumn,
        DownloadColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
    )

    described = TextColumn("… {task.description}", style="dim", markup=False)
    columns = (described, BarColumn(), DownloadColumn() if octets else MofNCompleteColumn())
    console = Console(stderr=True, highlight=False, emoji=False)
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _silent(done: int, total: int | None) -> None:
    del done, total
