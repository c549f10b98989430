"""``trails blob``: keep files in a graph, and write them back."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing
from mimetypes import guess_type
from pathlib import Path
from typing import Annotated, Final

import typer

from trails.errors import NotFoundError, QueryError
from trails.files import replacing
from trails.model.values.blobs import ANY_TYPE
from trails.surfaces.cli.operations import Operations, ReadState
from trails.surfaces.cli.options import (
    BranchOption,
    FolderOption,
    GraphOption,
    JsonOption,
    ServerOption,
    SnapshotOption,
    place_of,
)
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.reporting import Reporting, data_output
from trails.surfaces.cli.values import size

_BLOCK: Final = 1 << 18


def add_blob_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    blob = typer.Typer(no_args_is_help=True, help="Keep files in a graph, and read them.")
    cli.add_typer(blob, name="blob")

    @blob.command(epilog="Example: trails blob put sheet.pdf")
    def put(
        file: Annotated[
            Path, typer.Argument(help="The file; - is standard input.", metavar="FILE")
        ],
        *,
        media_type: Annotated[
            str | None,
            typer.Option("--type", help="Its media type.", show_default="from the file name"),
        ] = None,
        name: Annotated[
            str | None, typer.Option(help="Its name.", show_default="the file's own")
        ] = None,
        branch: BranchOption = "main",
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Keep a file, and print the URI for a Blob field."""
        with Reporting(as_json=as_json) as report:
            if str(file) != "-" and not file.is_file():
                raise NotFoundError(f"{file}: no such file")
            called = name if name is not None else ("" if str(file) == "-" else file.name)
            given = {
                "media_type": media_type or guess_type(called)[0] or ANY_TYPE,
                "name": called,
                **({} if branch == "main" else {"branch": branch}),
            }
            with operations.open(
                place_of(project, server), graph, report.progress, declared=True
            ) as session:
                report.value = session.put_blob(_read(file), given)
            report.text = [escape(str(report.value["blob"]))]

    @blob.command(epilog="Example: trails blob get Part/p1 datasheet -o sheet.pdf")
    def get(
        record: Annotated[str, typer.Argument(help="The record.", metavar="TYPE/ID")],
        field: Annotated[str, typer.Argument(help="Its field with the blob.", metavar="FIELD")],
        *,
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
        """Write the file that a field of a record names."""
        with Reporting(as_json=as_json) as report:
            type_name, slash, identifier = record.removeprefix("trails://kg/").partition("/")
            if not slash or not identifier:
                raise QueryError(f"{record[:100]!r} is not a record; write Type/id")
            if as_json and output is None:
                raise QueryError(
                    "--json requires --output, because the file goes to standard output"
                )
            view = ReadState(branch, snapshot)
            with (
                operations.open(
                    place_of(project, server), graph, report.progress, declared=False
                ) as session,
                closing(session.blob(view, type_name, identifier, field)) as blocks,
            ):
                if output is None:
                    write = data_output()
                    for block in blocks:
                        write(block)
                    sys.stdout.flush()
                    return
                with replacing(output) as file:
                    written = sum(file.write(block) for block in blocks)
            report.value = {"file": str(output), "bytes": written}
            report.text = [f"Wrote {escape(str(output))}: {size(written)}."]


def _read(file: Path) -> Iterator[bytes]:
    if str(file) == "-":
        while block := sys.stdin.buffer.read(_BLOCK):
            yield block
        return
    try:
        with file.open("rb") as opened:
            while block := opened.read(_BLOCK):
                yield block
    except OSError as error:
        raise NotFoundError(f"{file} can't be read: {error.strerror}") from None
