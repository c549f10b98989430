"""``trails load`` and ``trails export``: read data files into a graph, and write them."""

from __future__ import annotations

import sys
from contextlib import closing
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from trails.errors import NotFoundError, QueryError
from trails.model.operations.graph import LoadedData
from trails.model.texts import count
from trails.model.writes import LoadRequest
from trails.surfaces.cli.history import read_controls, show_draft
from trails.surfaces.cli.operations import Operations, ReadState
from trails.surfaces.cli.options import (
    BranchOption,
    DryRunOption,
    ExpectedHeadOption,
    FolderOption,
    GraphOption,
    IdempotencyKeyOption,
    JsonOption,
    MessageOption,
    ProposeOption,
    ServerOption,
    SnapshotOption,
    place_of,
)
from trails.surfaces.cli.output.downloads import Download, progress_bar
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.reporting import Reporting
from trails.surfaces.cli.values import as_commit, short


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
        dry_run: DryRunOption = False,
        propose: ProposeOption = False,
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
                progress_bar("reading", octets=True, shown=not as_json) as progress,
            ):
                if dry_run or propose:
                    controls = read_controls(dry_run=dry_run, propose=propose)
                    drafted = session.draft_load(request, controls, progress)
                    show_draft(report, drafted, session.nodes)
                    return
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
        where: Annotated[
            str | None,
            typer.Option(
                help="Only records with this value, of the types given.", metavar="FIELD=VALUE"
            ),
        ] = None,
        fields: Annotated[
            list[str] | None,
            typer.Option("--field", help="Only this field, and the key; repeatable."),
        ] = None,
        escape_formulas: Annotated[
            bool,
            typer.Option(
                "--escape-formulas", help="For csv: put ' before texts that a spreadsheet runs."
            ),
        ] = False,
        job: Annotated[
            bool, typer.Option("--job", help="Write it as a job, which can be resumed.")
        ] = False,
        resume: Annotated[
            str | None, typer.Option(help="Continue with an export.", metavar="HANDLE")
        ] = None,
        discard: Annotated[
            str | None, typer.Option(help="Delete an export.", metavar="HANDLE")
        ] = None,
        branch: BranchOption = "main",
        snapshot: SnapshotOption = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Export a branch or snapshot to a file.

        With --where, --field, --escape-formulas or --job the file is written by a job. A job
        that is interrupted loses nothing: --resume continues it.
        """
        with Reporting(as_json=as_json) as report:
            if as_json and output is None and discard is None:
                raise QueryError(
                    "--json requires --output, because the export goes to standard output"
                )
            wanted = format or _format_of(output)
            with operations.open(
                place_of(project, server), graph, report.progress, declared=False
            ) as session:
                download = Download(session, report, output)
                if discard is not None:
                    report.value = session.record(
                        "export_records", {"export": discard, "discard": True}
                    )
                    report.text = [f"Discarded {escape(discard)}."]
                elif resume is not None:
                    download.follow({"export": resume})
                elif job or where or fields or escape_formulas:
                    place = {"branch": branch} if snapshot is None else {"snapshot": snapshot}
                    download.follow(
                        {
                            "format": wanted,
                            "types": types or [],
                            **({} if where is None else {"where": where}),
                            "fields": fields or [],
                            "escape_formulas": escape_formulas,
                            **place,
                        }
                    )
                else:
                    view = ReadState(branch, snapshot)
                    with closing(session.export(view, wanted, types or [])) as blocks:
                        download.write(blocks, wanted)


_SUFFIXES = {".ttl": "turtle", ".nq": "nquads", ".jsonld": "jsonld", ".csv": "csv"}


def _format_of(output: Path | None) -> str:
    return "ndjson" if output is None else _SUFFIXES.get(output.suffix.lower(), "ndjson")


def _describe(done: LoadedData) -> str:
    forked = " (new)" if done.forked else ""
    on = f"on {escape(done.branch)}{forked}"
    if done.replayed:
        return f"Already done {on}{as_commit(done.commit)}; nothing was written now."
    deleted = f", {count(done.deleted, 'node')} deleted" if done.deleted else ""
    if done.commit is None:
        return f"Nothing changed {on}: {count(done.nodes, 'node')} read."
    return f"Committed {short(done.commit)} {on}: {count(done.nodes, 'node')} loaded{deleted}."
