"""``trails token`` and ``trails policy``: manage credentials, check and explain policies.

Both work on a project folder, also while a server runs. A token is printed once, by ``token new``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, TypeVar, get_args

import msgspec
import typer

from trails.errors import PolicyError, TrailsError
from trails.model.actors import IssuedToken, TokenRecord, TokenRequest
from trails.model.capabilities import SCOPES, Action
from trails.model.decisions import (
    Explanation,
    PolicyActor,
    PolicyCheck,
    PolicyMatrix,
    PolicyQuestion,
    PolicyVerdict,
)
from trails.model.names import suggest
from trails.model.texts import count
from trails.surfaces.cli.operations import PolicyCommands, Tokens
from trails.surfaces.cli.options import BranchOption, GraphOption, JsonOption, ProjectOption
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.reporting import Reporting
from trails.surfaces.cli.output.tables import TextTable

ActorGroupsOption = Annotated[
    list[str] | None,
    typer.Option("--group", help="A group of the actor; repeatable, or separated by commas."),
]
ActorScopesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        help="Scopes of the actor's credential: runtime, builder, dev.",
        show_default="runtime",
    ),
]
_CELLS: Final = {"yes": "[green]yes[/]", "no": "[dim]·[/]", "scope": "[yellow]scope[/]"}
_SHOWN: Final = 5
T = TypeVar("T")


def add_policy_commands(cli: typer.Typer, policies: PolicyCommands) -> None:
    """Add them to the command line."""
    policy = typer.Typer(no_args_is_help=True)
    cli.add_typer(policy, name="policy", help="Check, test and explain access policies.")

    @policy.command(epilog="Example: trails policy check")
    def check(*, project: ProjectOption = Path(), as_json: JsonOption = False) -> None:
        """Check the policies of all graphs and of the server for errors."""
        with Reporting(as_json=as_json) as report:
            found = policies.check_policies(project)
            valid = not any(each.problems for each in found)
            report.code = 0 if valid else 1
            report.value = {"valid": valid, "checks": found}
            for each in found:
                report.text += _describe_check(each)

    @policy.command(epilog="Example: trails policy test policies/tests.toml")
    def test(
        file: Annotated[
            Path | None,
            typer.Argument(
                help="TOML file with test cases.", show_default="tests.toml next to the policies"
            ),
        ] = None,
        *,
        graph: GraphOption = None,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Run the test cases of a file and compare each decision with the expected one.

        Each case is a table [[case]] with actor, groups, scopes, action, resource, branch,
        target, and expect = "allow" or "deny".
        """
        with Reporting(as_json=as_json) as report:
            found = policies.test_policies(project, graph, file)
            failed = [each for each in found if not each.passed]
            report.code = 1 if failed else 0
            report.value = {"passed": len(found) - len(failed), "failed": failed, "cases": found}
            for each in failed:
                report.text.append(
                    f"[red]✗[/] {escape(each.case)}: expected {each.expected}, but "
                    f"{escape(each.reason)}"
                )
            report.text.append(f"{count(len(found), 'case')}, {len(failed)} failed.")

    @policy.command(
        epilog="Example: trails policy explain --actor planner --group agents --action Read "
        "--resource Field::Person.salary"
    )
    def explain(
        *,
        actor: Annotated[str, typer.Option(help="The actor.")],
        action: Annotated[str, typer.Option(help=f"The action: {', '.join(get_args(Action))}.")],
        groups: ActorGroupsOption = None,
        scopes: ActorScopesOption = None,
        resource: Annotated[
            str,
            typer.Option(
                help="The resource: Type::Person, Query::names, or just the name.",
                show_default="the graph",
            ),
        ] = "",
        branch: BranchOption = "main",
        target: Annotated[
            str, typer.Option(help="The target of a merge, or the branch to create.")
        ] = "",
        graph: GraphOption = None,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Explain whether an action is allowed, and why each policy applies or not."""
        with Reporting(as_json=as_json) as report:
            given = {
                **_actor(actor, groups, scopes),
                "action": action,
                "resource": resource,
                "branch": branch,
                "target": target,
            }
            found = policies.explain_policy(project, graph, _read(given, PolicyQuestion))
            report.value = found
            report.text += _describe_explanation(found)

    @policy.command(epilog="Example: trails policy matrix --actor planner:agents,readers")
    def matrix(
        *,
        actors: Annotated[
            list[str] | None,
            typer.Option(
                "--actor",
                help="An actor with groups, as name:group,group; repeatable.",
                show_default="actors with a token or in tests.toml",
            ),
        ] = None,
        scopes: ActorScopesOption = None,
        branch: BranchOption = "main",
        graph: GraphOption = None,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Show which actor may use which tool on a branch."""
        with Reporting(as_json=as_json) as report:
            asked = [_named_actor(each, scopes) for each in actors or ()]
            found = policies.policy_matrix(project, graph, asked, branch)
            report.value = found
            heading = f"{escape(found.graph)}, branch {escape(found.branch)}"
            report.text += [heading, "", _decision_table(found)]


def _actor(
    name: str, groups: list[str] | None, scopes: list[str] | None
) -> dict[str, str | list[str]]:
    return {
        "actor": name,
        "groups": _split_list(groups),
        "scopes": _split_list(scopes) or ["runtime"],
    }


def _named_actor(given: str, scopes: list[str] | None) -> PolicyActor:
    """``planner:agents,readers``."""
    name, _, groups = given.partition(":")
    return _read(_actor(name, [groups], scopes), PolicyActor)


def _split_list(given: list[str] | None) -> list[str]:
    parts = [part.strip() for each in given or () for part in each.split(",")]
    return [part for part in parts if part]


def _check_word(what: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise PolicyError(f"there is no {what} {given[:100]!r}; {suggest(given, known)}")


def _read(given: Mapping[str, str | list[str]], kind: type[T]) -> T:
    _check_word("action", str(given.get("action", "Read")), get_args(Action))
    for scope in given["scopes"]:
        _check_word("scope", scope, SCOPES)
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise PolicyError(str(error)) from None


def _describe_check(check: PolicyCheck) -> Iterator[str]:
    line = f"[bold]{escape(check.subject)}[/]: {check.mode}"
    if check.files:
        line += (
            f", {count(check.permits, 'permit')} and {count(check.forbids, 'forbid')} in "
            f"{count(len(check.files), 'file')}"
        )
    yield line
    for problem in check.problems:
        yield f"  [red]✗[/] {escape(str(problem))}"
    for note in check.notes:
        yield f"  [yellow]•[/] {escape(note)}"


def _describe_explanation(found: Explanation) -> Iterator[str]:
    mark = "[green]allowed[/]" if found.allowed else "[red]denied[/]"
    yield f"{mark}: {escape(found.reason)}"
    for each in found.policies[:_SHOWN]:
        yield from _describe_verdict(each)
    if len(found.policies) > _SHOWN:
        yield f"[dim]and {len(found.policies) - _SHOWN} more policies; --json lists all[/]"


def _describe_verdict(verdict: PolicyVerdict) -> Iterator[str]:
    name = escape(verdict.policy)
    place = f"{verdict.file}:{verdict.line}"
    where = "" if verdict.policy == place else f"  [dim]{escape(place)}[/]"
    does = f"{verdict.effect}s" if verdict.applies else f"does not {verdict.effect}"
    yield f"  [bold]{name}[/] {does} it{where}"
    values = (f"{name} is {value!r}" for name, value in verdict.attributes.items())
    lines: Sequence[str] = verdict.missing or tuple(values)
    for line in lines:
        yield f"      {escape(line)}"


def _decision_table(found: PolicyMatrix) -> TextTable:
    names = [
        f"{each.actor} ({', '.join(each.groups)})" if each.groups else each.actor
        for each in found.actors
    ]
    table = TextTable("tool", *names)
    for row in found.rows:
        table.add_row(escape(row.tool), *(_CELLS[each] for each in row.cells))
    return table


GroupsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--group", "--groups", help="A group of the actor; repeatable, or separated by commas."
    ),
]
ScopesOption = Annotated[
    list[str] | None,
    typer.Option(
        "--scope",
        "--scopes",
        help="Scopes: runtime, builder, dev; repeatable, or separated by commas.",
        show_default="runtime",
    ),
]
ExpiresOption = Annotated[
    str | None,
    typer.Option(
        help="When the token expires: 30d, 12h, or a date.", metavar="WHEN", show_default="never"
    ),
]


def add_token_commands(cli: typer.Typer, tokens: Tokens) -> None:
    """Add them to the command line."""
    token = typer.Typer(no_args_is_help=True)
    cli.add_typer(token, name="token", help="Create, list and revoke access tokens.")

    @token.command(epilog="Example: trails token new --actor planner --group agents --expires 30d")
    def new(
        *,
        actor: Annotated[str, typer.Option(help="The actor that the token identifies.")],
        groups: GroupsOption = None,
        scopes: ScopesOption = None,
        expires: ExpiresOption = None,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Create a token and print it once; only its hash is stored.

        The first token changes the project permanently: every request then needs a token.
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
            report.text += _describe_token(issued, first=first)

    @token.command("list", epilog="Example: trails token list")
    def list_(*, project: ProjectOption = Path(), as_json: JsonOption = False) -> None:
        """List tokens with actor, scopes and expiry; the secrets are not stored."""
        with Reporting(as_json=as_json) as report:
            found = tokens.tokens(project)
            report.value = {"tokens": [_shown(each) for each in found]}
            report.text.append(
                _table(found) if found else "No tokens. Create one with 'trails token new'."
            )

    @token.command(epilog="Example: trails token revoke 1f0c9a7be2d4, or --actor planner")
    def revoke(
        ids: Annotated[
            list[str] | None,
            typer.Argument(help="Token ids, as shown by 'trails token list'.", metavar="ID..."),
        ] = None,
        *,
        actor: Annotated[str | None, typer.Option(help="Revoke all tokens of this actor.")] = None,
        project: ProjectOption = Path(),
        as_json: JsonOption = False,
    ) -> None:
        """Revoke tokens permanently. Servers close their connections within seconds."""
        with Reporting(as_json=as_json) as report:
            if not ids and actor is None:
                raise TrailsError("give token ids from 'trails token list', or --actor")
            ended = tokens.revoke_tokens(project, ids or (), actor)
            report.value = {"revoked": [_shown(each) for each in ended]}
            for each in ended:
                report.text.append(f"Revoked token [bold]{each.id}[/] of {escape(each.actor)}.")


def _split(given: list[str] | None) -> tuple[str, ...]:
    """The values of an option that is repeated or has commas."""
    parts = [part.strip() for each in given or () for part in each.split(",")]
    return tuple(part for part in parts if part)


def _shown(record: TokenRecord) -> dict[str, object]:
    """The JSON form of a token record, with its state."""
    fields: dict[str, object] = msgspec.to_builtins(record)
    return {**fields, "state": record.state(datetime.now(UTC))}


def _describe_token(issued: IssuedToken, *, first: bool) -> list[str]:
    record = issued.record
    groups = f"groups {escape(', '.join(record.groups))}; " if record.groups else ""
    permits = f"{groups}scopes {', '.join(record.scopes)}; expires {_end(record.expires)}"
    lines = [
        f"Created token [bold]{record.id}[/] for {escape(record.actor)} ({permits}):",
        escape(issued.token.reveal()),
        "[dim]Copy it now: it is not shown again. To use it:[/]",
        "  HTTP      Authorization: Bearer <token>",
        "  stdio     TRAILS_TOKEN=<token> in the environment of 'trails serve --stdio'",
        "  commands  TRAILS_TOKEN=<token> in the environment of 'trails'",
    ]
    if first:
        lines.append(
            "[yellow]This is the first token: from now on every request to this project needs "
            "one. Without policies, tokens allow reading only.[/]"
        )
    return lines


def _table(records: Sequence[TokenRecord]) -> TextTable:
    table = TextTable("id", "actor", "groups", "scopes", "created (UTC)", "expires", "state")
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
    return "never" if time is None else f"{_spell(time)} UTC"


def _spell(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M}"
