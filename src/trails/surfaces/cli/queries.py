"""``trails query``, ``queries`` and ``mutate``: run SPARQL queries and updates.

Query texts run in the sandbox; an update becomes one validated commit.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from io import StringIO
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from trails.errors import NotFoundError, QueryError
from trails.model.names import suggest
from trails.model.operations.graph import (
    ChangeResult,
    QueryResult,
    StoredQueryInfo,
    StoredQueryList,
)
from trails.model.texts import count
from trails.surfaces.cli.calls import list_parameters, read_arguments
from trails.surfaces.cli.history import read_controls, show_draft
from trails.surfaces.cli.operations import Operations, ReadState, Session, WriteOptions
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
    open_session,
    place_of,
)
from trails.surfaces.cli.output.markup import escape, indented
from trails.surfaces.cli.output.reporting import Reporting, complain, data_output
from trails.surfaces.cli.output.tables import TextTable
from trails.surfaces.cli.values import (
    as_commit,
    guessed_params,
    read_json_text,
    read_text,
    short,
)

_ROWS: Final = 1000
"""Rows that a table shows at most."""


class Format(StrEnum):
    """How an answer is printed."""

    table = "table"
    json = "json"
    csv = "csv"
    tsv = "tsv"


def add_query_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""

    @cli.command(
        epilog="Examples: trails query 'SELECT ?t WHERE { ?t a :Task ; :status $s }' "
        "--param s=open · trails query --stored due_tasks --param day=2026-03-01"
    )
    def query(
        text: Annotated[str | None, typer.Argument(help="The SPARQL query.")] = None,
        *,
        file: Annotated[
            Path | None,
            typer.Option("--file", "-f", help="Read the query from a file; - is standard input."),
        ] = None,
        stored: Annotated[
            str | None, typer.Option(help="Run this stored query.", metavar="NAME")
        ] = None,
        param: Annotated[
            list[str] | None,
            typer.Option(
                help="The value of $name in the query; repeatable. In a query text, name:Date=… "
                "sets the type of the value.",
                metavar="NAME=VALUE",
            ),
        ] = None,
        branch: BranchOption = "main",
        snapshot: SnapshotOption = None,
        format: Annotated[Format, typer.Option(help="Output format.")] = Format.table,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Run a SPARQL query in the sandbox, or a stored query."""
        with Reporting(as_json=as_json or format is Format.json) as report:
            if sum(each is not None for each in (text, file, stored)) != 1:
                raise QueryError("give exactly one of: a query text, --file or --stored")
            view = ReadState(branch, snapshot)
            with operations.open(
                place_of(project, server), graph, report.progress, declared=stored is not None
            ) as session:
                if stored is not None:
                    known = _find(session, stored)
                    given = read_arguments(param or [], known.params or {}, "--param")
                    answer = session.run(view, known.name, given)
                else:
                    asked = text if text is not None else read_text(file or Path("-"))
                    answer = session.ask(view, asked, guessed_params(param or []))
                nodes = session.nodes
            _show(report, answer, format, nodes)

    @cli.command(epilog="Example: trails queries")
    def queries(
        *,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List the stored queries with their parameters."""
        with open_session(operations, project, server, graph, as_json=as_json, declared=True) as (
            report,
            session,
        ):
            found = session.queries()
            report.value = StoredQueryList(tuple(found))
            for each in found:
                change = " [yellow](changes data)[/]" if each.changes_data else ""
                report.text.append(f"[bold]{escape(each.name)}[/]{change}")
                report.text.append(indented(escape(each.description or ""), 2))
                report.text += [
                    indented(f"--param {line}", 4) for line in list_parameters(each.params or {})
                ]
            if not found:
                report.text.append("No stored queries. Add .rq files to the queries folder.")


def _find(session: Session, name: str) -> StoredQueryInfo:
    known = {query.name: query for query in session.queries()}
    if name not in known:
        hint = suggest(name, known) if known else "this graph has none"
        raise NotFoundError(f"there is no stored query {name[:100]!r}; {hint}")
    return known[name]


def _show(
    report: Reporting, answer: QueryResult | ChangeResult, format: Format, nodes: str
) -> None:
    report.value = answer
    if isinstance(answer, ChangeResult):
        commit = answer.commit
        report.text = [f"Committed {short(commit)}." if commit else "Nothing changed."]
        return
    if answer.truth is not None:
        report.text = ["yes" if answer.truth else "no"]
    elif format is Format.table:
        _tabulate(report, answer, nodes)
    elif not report.as_json:
        _separate(answer, "," if format is Format.csv else "\t")
    if answer.notice and not report.as_json:
        complain(answer.notice, mark="note:")


def _tabulate(report: Reporting, answer: QueryResult, nodes: str) -> None:
    rows = [[_cell(row[name], nodes) for name in answer.columns] for row in answer.rows[:_ROWS]]
    report.text = [_table(answer, rows), "", f"[dim]{_row_count(answer)}[/]"]


def _row_count(answer: QueryResult) -> str:
    """The number of rows, and how many of them are shown."""
    found, cut = len(answer.rows), answer.truncated
    total = f"more than {found:,} rows" if cut else count(found, "row")
    if found > _ROWS:
        kept = f"the first {found:,}" if cut else "all"
        return f"{total}; the first {_ROWS:,} are shown, --format csv writes {kept}"
    return f"{total}; the first {found:,} are shown" if cut else total


def _table(answer: QueryResult, rows: Sequence[Sequence[str]]) -> TextTable:
    columns = [[row[name] for row in answer.rows] for name in answer.columns]
    table = TextTable(
        *answer.columns, numbers=[at for at, each in enumerate(columns) if _numbers(each)]
    )
    for row in rows:
        table.add_row(*row)
    return table


def _numbers(values: Sequence[object]) -> bool:
    """Whether a column has numbers only."""
    given = [each for each in values if each is not None]
    return bool(given) and all(isinstance(each, int | float) for each in given)


def _cell(value: object, nodes: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return escape(str(value).removeprefix(nodes))


def _separate(answer: QueryResult, separator: str) -> None:
    text = StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    names = answer.columns
    writer.writerow(names)
    writer.writerows([_plain(row, name) for name in names] for row in answer.rows)
    data_output()(text.getvalue().encode())
    sys.stdout.flush()


def _plain(row: Mapping[str, object], name: str) -> object:
    value = row[name]
    return ("true" if value else "false") if isinstance(value, bool) else value


def add_mutate_command(cli: typer.Typer, operations: Operations) -> None:
    """Add it to the command line."""

    @cli.command(
        epilog='Example: trails mutate \'DELETE { ?t :status ?s } INSERT { ?t :status "done" } '
        "WHERE { ?t a :Task ; :status ?s }' -m 'All done'"
    )
    def mutate(
        text: Annotated[str | None, typer.Argument(help="The SPARQL update.")] = None,
        *,
        file: Annotated[
            Path | None,
            typer.Option("--file", "-f", help="Read the update from a file; - is standard input."),
        ] = None,
        operations_file: Annotated[
            Path | None,
            typer.Option(
                "--operations",
                help='Typed operations: [{"op": "create", "type": …, "data": {…}}, …]; '
                "- is standard input.",
                metavar="FILE.json",
            ),
        ] = None,
        branch: BranchOption = "main",
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
        """Change the graph in one commit. If the result is invalid, nothing is written."""
        with Reporting(as_json=as_json) as report:
            if sum(each is not None for each in (text, file, operations_file)) != 1:
                raise QueryError("give exactly one of: an update text, --file or --operations")
            change: str | list[object]
            if operations_file is not None:
                content = read_json_text(operations_file)
                if not isinstance(content, list):
                    raise QueryError(
                        f"{operations_file} must contain a list of operations: [{{…}}, …]"
                    )
                change = content
            else:
                change = text if text is not None else read_text(file or Path("-"))
            options = WriteOptions(message, expected_head, idempotency_key)
            with operations.open(
                place_of(project, server), graph, report.progress, declared=True
            ) as session:
                if dry_run or propose:
                    what = {"update" if isinstance(change, str) else "operations": change}
                    given = {**what, "branch": branch, **msgspec.structs.asdict(options)}
                    controls = read_controls(dry_run=dry_run, propose=propose)
                    found = session.draft("graph_mutate", {**given, **controls})
                    show_draft(report, found, session.nodes)
                    return
                done = session.mutate(branch, change, options)
            report.value = done
            if done.replayed:
                report.text = [f"Already done{as_commit(done.commit)}; nothing was written now."]
            elif done.commit is None:
                report.text = ["Nothing changed."]
            else:
                report.text = [f"Committed {short(done.commit)} on {escape(branch)}."]
            report.text += [
                f"  {each.op} [bold]{escape(f'{each.type}/{each.id}')}[/]"
                for each in done.applied[:20]
            ]
            if len(done.applied) > 20:
                report.text.append(f"  and {count(len(done.applied) - 20, 'more node')}")
