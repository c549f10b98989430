"""``trails load`` and ``trails export``: read data files into a graph, and write them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from trails.errors import NotFoundError, QueryError
from trails.files import replacing
from trails.model.texts import count
from trails.model.writes import LoadRequest, LoadResult
from trails.surfaces.cli.operations import Operations, ReadState
from trails.surfaces.cli.options import (
    BranchOption,
    ExpectedHeadOption,
    FolderOption,
    GraphOption,
    IdempotencyKeyOption,
    JsonOption,
    MessageOption,
    ServerOption,
    SnapshotOption,
    place_of,
)
from trails.surfaces.cli.reporting import Reporting, Terminal, data_output
from trails.surfaces.cli.values import as_commit, short, size


class LoadMode(StrEnum):
    """What a load does to nodes that exist."""

    merge = "merge"
    append = "append"
    overwrite = "overwrite"


def add_file_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""

    @cli.command(epilog="Example: trails load data/*.ndjson --branch import --from main")
    def load(
        files: Annotated[
            list[Path],
            typer.Argument(help="Files to load; - is standard input.", metavar="FILE..."),
        ],
        *,
        mode: Annotated[
            LoadMode,
            typer.Option(
                help="merge keeps fields that a file omits; append rejects existing nodes; "
                "overwrite also deletes nodes that the files omit, of the types that they contain."
            ),
        ] = LoadMode.merge,
        format: Annotated[
            str | None,
            typer.Option(
                help="ndjson, turtle, ntriples, nquads, jsonld or csv.",
                show_default="from the file names",
            ),
        ] = None,
        type_name: Annotated[
            str | None, typer.Option("--type", help="Type of the rows of a CSV file.")
        ] = None,
        branch: BranchOption = "main",
        source: Annotated[
            str | None,
            typer.Option(
                "--from",
                help="Create the branch from here if it does not exist.",
                metavar="BRANCH|COMMIT",
            ),
        ] = None,
        message: MessageOption = "",
        expected_head: ExpectedHeadOption = None,
        idempotency_key: IdempotencyKeyOption = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Load files in one commit. If anything in them is invalid, nothing is written."""
        with Reporting(as_json=as_json) as report:
            for each in files:
                if str(each) != "-" and not each.is_file():
                    raise NotFoundError(f"{each}: no such file")
            request = LoadRequest(
                files=tuple(sys.stdin.buffer if str(each) == "-" else each for each in files),
                format=format,
                mode=mode.value,
                type_name=type_name,
                branch=branch,
                source=source,
                message=message,
                expected_head=expected_head,
                idempotency_key=idempotency_key,
            )
            with (
                operations.open(
                    place_of(project, server), graph, report.progress, declared=True
                ) as session,
                _bar("reading", shown=not as_json) as progress,
            ):
                done = session.load(request, progress)
            report.value = done
            report.text = [_describe(done)]

    @cli.command(epilog="Example: trails export --format turtle --type Task -o tasks.ttl")
    def export(
        *,
        format: Annotated[
            str | None,
            typer.Option(
                help="ndjson, turtle, nquads, jsonld or csv.",
                show_default="from the output's file name, or ndjson",
            ),
        ] = None,
        types: Annotated[
            list[str] | None,
            typer.Option("--type", help="Only this type and its subtypes; repeatable."),
        ] = None,
        output: Annotated[
            Path | None,
            typer.Option(
                "--output", "-o", help="The file to write.", show_default="standard output"
            ),
        ] = None,
        branch: BranchOption = "main",
        snapshot: SnapshotOption = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Export a branch or snapshot to a file that 'trails load' can read."""
        with Reporting(as_json=as_json) as report:
            if as_json and output is None:
                raise QueryError(
                    "--json requires --output, because the export goes to standard output"
                )
            wanted = format or _format_of(output)
            with (
                operations.open(
                    place_of(project, server), graph, report.progress, declared=False
                ) as session,
                closing(session.export(ReadState(branch, snapshot), wanted, types or [])) as blocks,
            ):
                if output is None:
                    write = data_output()
                    for block in blocks:
                        write(block)
                    sys.stdout.flush()
                    return
                written = _write(output, blocks)
            report.value = {"file": str(output), "format": wanted, "bytes": written}
            report.text = [f"Wrote {escape(str(output))}: {wanted}, {size(written)}."]


_SUFFIXES = {".ttl": "turtle", ".nq": "nquads", ".jsonld": "jsonld", ".csv": "csv"}


def _format_of(output: Path | None) -> str:
    return "ndjson" if output is None else _SUFFIXES.get(output.suffix.lower(), "ndjson")


def _write(output: Path, blocks: Iterable[bytes]) -> int:
    """Write a file completely or not at all; a new file is private to this user."""
    with replacing(output) as file:
        return sum(file.write(block) for block in blocks)


def _describe(done: LoadResult) -> str:
    forked = " (new)" if done.forked else ""
    on = f"on {escape(done.branch)}{forked}"
    if done.replayed:
        return f"Already done {on}{as_commit(done.commit)}; nothing was written now."
    deleted = f", {count(done.deleted, 'node')} deleted" if done.deleted else ""
    if done.commit is None:
        return f"Nothing changed {on}: {count(done.nodes, 'node')} read."
    return f"Committed {short(done.commit)} {on}: {count(done.nodes, 'node')} loaded{deleted}."


@contextmanager
def _bar(text: str, *, shown: bool) -> Iterator[Callable[[int, int | None], None]]:
    """A progress bar on standard error, if that is a terminal."""
    console = Terminal(stderr=True)
    if not shown or not console.is_terminal:
        yield _silent
        return
    described = TextColumn("… {task.description}", style="dim", markup=False)
    columns = (described, BarColumn(), DownloadColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(text, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _silent(done: int, total: int | None) -> None:
    del done, total
