"""``trails webhooks``: what came of the deliveries, and how a disabled webhook is resumed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from trails.model.upkeep import WebhookStatus
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import GraphOption, GraphsOption, JsonOption, ProjectOption
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.reporting import Part, Reporting
from trails.surfaces.cli.output.tables import TextTable
from trails.surfaces.cli.values import short, when

_SUMMARY: Final = "List webhooks and what came of their deliveries, or resume one."


def add_webhook_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    group = typer.Typer(no_args_is_help=True)
    cli.add_typer(group, name="webhooks", help=_SUMMARY)

    @group.command("list")
    def list_webhooks(
        *,
        project: ProjectOption = Path(),
        graph: GraphsOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List webhooks and what came of their deliveries."""
        with Reporting(as_json=as_json) as report:
            found = operations.webhooks(project, graph, report.progress)
            report.value = {"webhooks": found}
            report.text = list(_listed(found))

    @group.command(epilog="Example: trails webhooks resume tracker --since head")
    def resume(
        name: Annotated[str, typer.Argument(help="The webhook.", metavar="NAME")],
        *,
        since: Annotated[
            str | None,
            typer.Option(
                help="Continue after this commit, or head, which skips what was not delivered.",
                metavar="COMMIT",
                show_default="where it was",
            ),
        ] = None,
        project: ProjectOption = Path(),
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Enable a webhook again, and retry at once."""
        with Reporting(as_json=as_json) as report:
            found = operations.resume_webhook(project, graph, name, since, report.progress)
            report.value = found
            at = short(found.position or "")
            report.text = [f"Resumed {escape(found.name)}; it continues after commit {at}."]


def _listed(found: Sequence[WebhookStatus]) -> Iterator[Part]:
    if not found:
        yield "No webhooks."
        return
    table = TextTable("graph", "name", "state", "delivered", "position", "last", "next", "url")
    for each in found:
        table.add_row(
            escape(each.graph),
            escape(each.name),
            each.state,
            str(each.delivered),
            short(each.position or ""),
            when(each.last_attempt or ""),
            when(each.next_attempt or ""),
            escape(each.url),
        )
    yield table
    for each in found:
        if each.disabled or each.last_error:
            yield f"{escape(each.name)}: {escape(each.disabled or each.last_error)}"
