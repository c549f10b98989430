"""``trails mutate``: change the graph in one commit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from trails.errors import QueryError
from trails.model.wording import count
from trails.surfaces.cli.operations import Operations, WriteOptions
from trails.surfaces.cli.options import (
    BranchOption,
    ExpectedHeadOption,
    FolderOption,
    GraphOption,
    IdempotencyKeyOption,
    JsonOption,
    MessageOption,
    ServerOption,
    place_of,
)
from trails.surfaces.cli.reporting import Reporting
from trails.surfaces.cli.texts import as_commit, read_json, read_text, short


def add_mutate_command(cli: typer.Typer, operations: Operations) -> None:
    """Add it to the command line."""

    @cli.command(
        epilog='Example: trails mutate \'DELETE { ?t :status ?s } INSERT { ?t :status "done" } '
        "WHERE { ?t a :Task ; :status ?s }' -m 'All done'"
    )
    def mutate(
        text: Annotated[str | None, typer.Argument(help="A SPARQL Update.")] = None,
        *,
        file: Annotated[
            Path | None,
            typer.Option("--file", "-f", help="The update is in a file; - is standard input."),
        ] = None,
        operations_file: Annotated[
            Path | None,
            typer.Option(
                "--operations",
                help='Typed operations: \\[{"op": "create", "type": …, "data": {…}}, …]; '
                "- is standard input.",
                metavar="FILE.json",
            ),
        ] = None,
        branch: BranchOption = "main",
        message: MessageOption = "",
        expected_head: ExpectedHeadOption = None,
        idempotency_key: IdempotencyKeyOption = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Change the graph in one commit, validated as a whole, or not at all."""
        with Reporting(as_json=as_json) as report:
            if sum(each is not None for each in (text, file, operations_file)) != 1:
                raise QueryError("give one of these: the text of an update, --file or --operations")
            change: str | list[object]
            if operations_file is not None:
                content = read_json(operations_file)
                if not isinstance(content, list):
                    raise QueryError(
                        f"{operations_file} must hold a list of operations: [{{…}}, …]"
                    )
                change = content
            else:
                change = text if text is not None else read_text(file or Path("-"))
            options = WriteOptions(message, expected_head, idempotency_key)
            with operations.open(
                place_of(project, server), graph, report.tell, declared=True
            ) as session:
                done = session.mutate(branch, change, options)
            report.value = done
            if done.replayed:
                report.text = [f"Done before{as_commit(done.commit)}; nothing was done now."]
            elif done.commit is None:
                report.text = ["Nothing changed."]
            else:
                report.text = [f"Committed {short(done.commit)} on {escape(branch)}."]
            report.text += [
                f"  {each.op} [bold]{escape(each.handle)}[/]" for each in done.applied[:20]
            ]
            if len(done.applied) > 20:
                report.text.append(f"  and {count(len(done.applied) - 20, 'more node')}")
