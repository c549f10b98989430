"""``trails token``: credentials for those who use a project."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.markup import escape
from rich.table import Table

from trails.errors import TrailsError
from trails.model.tokens import IssuedToken, TokenRecord, TokenRequest
from trails.surfaces.cli.operations import Tokens
from trails.surfaces.cli.options import JsonOption, ProjectOption
from trails.surfaces.cli.reporting import Reporting

GroupsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group", "--groups", help="A group that the actor is in; repeat it, or put commas."
    ),
]
ScopesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        "--scopes",
        help="What it may use: runtime, builder, dev; repeat it, or put commas.",
        show_default="runtime",
    ),
]
ExpiresOption = Annotated[
    str | None,
    typer.Option(help="When it ends: 30d, 12h, or a date.", metavar="WHEN", show_default="never"),
]


def add_token_commands(cli: typer.Typer, tokens: Tokens) -> None:
    """Add them to the command line."""
    token = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
    cli.add_typer(token, name="token", help="Credentials for those who use a project.")

    @token.command(epilog="Example: trails token new --actor planner --group agents --expires 30d")
    def new(
        *,
        actor: Annotated[str, typer.Option(help="Who acts with it.")],
        groups: GroupsOption = None,
        scopes: ScopesOption = None,
        expires: ExpiresOption = None,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Make a token and print it, once: only its hash is kept.

        The first one changes the project for good: from then on every request needs one.
        """
        with Reporting(as_json=as_json) as report:
            request = TokenRequest(
                actor=actor,
                groups=_split(groups),
                scopes=_split(scopes) or ("runtime",),
                expires=expires,
            )
            first = not tokens.tokens(project)
            issued = tokens.issue_token(project, request)
            report.value = {"token": issued.token.reveal(), **_shown(issued.record)}
            report.text += _told(issued, first=first)

    @token.command("list", epilog="Example: trails token list")
    def list_(*, project: ProjectOption = Path(), as_json: JsonOption = False) -> None:
        """List the tokens: whose, what for, how long. Never the tokens themselves."""
        with Reporting(as_json=as_json) as report:
            found = tokens.tokens(project)
            report.value = {"tokens": [_shown(each) for each in found]}
            report.text.append(
                _table(found) if found else "There is no token: see trails token new."
            )

    @token.command(epilog="Example: trails token revoke 1f0c9a7be2d4, or --actor planner")
    def revoke(
        ids: Annotated[
            list[str] | None,
            typer.Argument(help="Which tokens; 'trails token list' has them.", metavar="ID..."),
        ] = None,
        *,
        actor: Annotated[str | None, typer.Option(help="All tokens of this actor.")] = None,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """End tokens, for good. Servers notice within seconds, and end what is open by them."""
        with Reporting(as_json=as_json) as report:
            if not ids and actor is None:
                raise TrailsError("say which: ids from 'trails token list', or --actor")
            ended = tokens.revoke_tokens(project, ids or (), actor)
            report.value = {"revoked": [_shown(each) for each in ended]}
            for each in ended:
                report.text.append(f"[bold]{each.id}[/] of {escape(each.actor)} is revoked")


def _split(given: list[str] | None) -> tuple[str, ...]:
    """What an option lists, whether it was repeated or has commas."""
    parts = [part.strip() for each in given or () for part in each.split(",")]
    return tuple(part for part in parts if part)


def _shown(record: TokenRecord) -> dict[str, object]:
    """A record as JSON has it."""
    fields: dict[str, object] = msgspec.to_builtins(record)
    return {**fields, "state": record.state(datetime.now(UTC))}


def _told(issued: IssuedToken, *, first: bool) -> list[str]:
    record = issued.record
    groups = f" in {escape(', '.join(record.groups))}" if record.groups else ""
    permits = f"with {', '.join(record.scopes)}, {_end(record.expires)}"
    lines = [
        f"Token [bold]{record.id}[/] for {escape(record.actor)}{groups}, {permits}:",
        escape(issued.token.reveal()),
        "[dim]It is shown only now. How to use it:[/]",
        "  HTTP      Authorization: Bearer <token>",
        "  stdio     TRAILS_TOKEN=<token> in the environment of 'trails serve --stdio'",
        "  commands  TRAILS_TOKEN=<token> in their environment",
    ]
    if first:
        lines.append(
            "[yellow]This is the first token: from now on every request to this project needs "
            "one, and without policies all that they permit is reading.[/]"
        )
    return lines


def _table(records: Sequence[TokenRecord]) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("id", "actor", "groups", "scopes", "created (UTC)", "ends", "state"):
        table.add_column(name, overflow="fold")
    now = datetime.now(UTC)
    for each in records:
        table.add_row(
            each.id,
            escape(each.actor),
            escape(", ".join(each.groups)),
            ", ".join(each.scopes),
            _spell(each.created),
            "never" if each.expires is None else _spell(each.expires),
            each.state(now),
        )
    return table


def _end(time: datetime | None) -> str:
    return "without end" if time is None else f"until {_spell(time)} UTC"


def _spell(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"
