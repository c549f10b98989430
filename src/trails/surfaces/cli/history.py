"""``trails branch``, ``commit`` and ``diff``: branches, merges and the history of a graph.

A merge with conflicts prints each conflict with the option that resolves it, and exits with 1.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from trails.errors import QueryError
from trails.model.history import CommitQuery, FieldChange, MergeRequest, Resolution, Side
from trails.model.operations.drafts import DryRunResult, ProposalResult
from trails.model.operations.history import (
    BranchCreated,
    BranchDeleted,
    BranchList,
    Changes,
    CommitInfo,
    CommitResult,
    MergeOutcome,
    ProposalList,
)
from trails.model.texts import count
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import (
    DryRunOption,
    ExpectedHeadOption,
    FolderOption,
    GraphOption,
    IdempotencyKeyOption,
    JsonOption,
    MessageOption,
    ServerOption,
    open_session,
    place_of,
)
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.reporting import Reporting
from trails.surfaces.cli.output.tables import TextTable
from trails.surfaces.cli.values import read_json_text, short, spell, when

_SIDES: Final[dict[str, Side]] = {"ours": "ours", "theirs": "theirs"}
_split = re.compile(r"(.+?)=(ours|theirs|value:.*)", re.DOTALL).fullmatch
_FORM: Final = "write ID=ours, ID=theirs or ID=value:JSON"


def read_resolutions(given: Sequence[str], file: Path | None) -> dict[str, Resolution]:
    """Resolutions of conflicts; those of the command line override those of the file."""
    found: dict[str, Resolution] = {}
    if file is not None:
        content = read_json_text(file)
        if not isinstance(content, dict):
            raise QueryError(f'{file} must contain a JSON object: {{"ID": "ours", …}}')
        for identifier, wanted in content.items():
            found[str(identifier)] = _from_json(str(identifier), wanted, file)
    for text in given:
        parts = _split(text)
        if parts is None:
            raise QueryError(f"invalid --resolve {text!r}; {_FORM}")
        found[parts[1]] = _from_text(parts[1], parts[2])
    return found


def read_side(*, ours: bool, theirs: bool) -> Side | None:
    """The side that resolves all other conflicts."""
    if ours and theirs:
        raise QueryError("--ours and --theirs are mutually exclusive; use one of them")
    return "ours" if ours else "theirs" if theirs else None


def _from_text(identifier: str, wanted: str) -> Resolution:
    if wanted in _SIDES:
        return Resolution(_SIDES[wanted])
    try:
        return Resolution("value", msgspec.json.decode(wanted.removeprefix("value:")))
    except msgspec.DecodeError as error:
        raise QueryError(
            f"--resolve {identifier}: the part after 'value:' is not valid JSON ({error}); quote "
            f"a text, as in {identifier}='value:\"new\"'"
        ) from None


def _from_json(identifier: str, wanted: object, file: Path) -> Resolution:
    if isinstance(wanted, str) and wanted in _SIDES:
        return Resolution(_SIDES[wanted])
    if isinstance(wanted, dict) and set(wanted) == {"value"}:
        return Resolution("value", wanted["value"])
    raise QueryError(
        f'{file}: {identifier!r} must be "ours", "theirs" or {{"value": …}}, not '
        f"{msgspec.json.encode(wanted).decode()[:100]}"
    )


def show_merge(
    report: Reporting,
    result: MergeOutcome,
    request: MergeRequest,
    nodes: str,
    given: Mapping[str, object],
) -> None:
    """Report the result of a merge; conflicts make the exit code 1.

    ``given`` has the options that locate the graph, for the command that resolves conflicts.
    """
    report.value = result
    if result.outcome == "conflicts":
        report.code = 1
        report.text = list(_conflicts(result, request, nodes, given))
        return
    source, target = escape(result.source), escape(result.target)
    counts = f": {result.created} created, {result.updated} updated, {result.deleted} deleted"
    if result.created is None:
        counts = ""
    would = "Would have " if result.dry_run else ""
    at = f" at {short(result.commit)}" if result.commit else ""
    if result.outcome == "already_up_to_date":
        report.text = [f"Already up to date: {target} contains all of {source}."]
    elif result.outcome == "fast_forward":
        moved = "moved" if would else "Moved"
        report.text = [f"{would}{moved} {target} forward to {source}{at}{counts}."]
    else:
        merged = "merged" if would else "Merged"
        report.text = [f"{would}{merged} {source} into {target}{at}{counts}."]
    if result.replayed:
        report.text = [
            *report.text,
            "This merge was already done with this idempotency key; nothing was written now.",
        ]
    if result.unused:
        unused = ", ".join(escape(each) for each in result.unused)
        report.text = [
            *report.text,
            f"Unused resolutions, because there is no such conflict: {unused}.",
        ]


def _conflicts(
    result: MergeOutcome, request: MergeRequest, nodes: str, given: Mapping[str, object]
) -> Iterator[str]:
    number = len(result.conflicts)
    source, target = result.source, result.target
    yield f"[red]{count(number, 'conflict')}[/]: nothing was written."
    for each in result.conflicts:
        yield ""
        place = f"{each.handle}.{each.field}" if each.field else each.handle
        yield f"[bold]{escape(place)}[/]  [dim]{each.kind}[/]"
        yield f"  {escape(each.message.removeprefix(f'{place}: '))}"
        yield f"  base    {spell(each.base, nodes)}"
        yield f"  ours    {spell(each.ours, nodes)}{_causes(target, each.ours_commits)}"
        yield f"  theirs  {spell(each.theirs, nodes)}{_causes(source, each.theirs_commits)}"
        for choice in each.resolutions:
            wanted = f"{each.id}={'value:JSON' if choice.take == 'value' else choice.take}"
            yield f"  resolve --resolve {escape(shlex.quote(wanted))}"
    yield ""
    yield "Resolve each conflict, or all with --ours or --theirs, and merge again."
    if result.suggested:
        yield "This command resolves all conflicts:"
        yield ""
        command = f"  trails branch merge {shlex.quote(source)}"
        yield escape(command + _rest(request, result, given))


def _causes(branch: str, commits: Sequence[str]) -> str:
    if not commits:
        return ""
    shown = ", ".join(short(commit) for commit in commits[-3:])
    more = "…, " if len(commits) > 3 else ""
    return f"  [dim]({escape(branch)}: {more}{shown})[/]"


def _rest(request: MergeRequest, result: MergeOutcome, given: Mapping[str, object]) -> str:
    options = {
        "--into": request.target if request.target != "main" else None,
        "--message": request.message or None,
        "--expected-head": request.expected_head,
        "--idempotency-key": request.idempotency_key,
        **given,
    }
    parts = [
        f" {name} {shlex.quote(str(value))}" for name, value in options.items() if value is not None
    ]
    if request.resolve_all is not None:
        parts.append(f" --{request.resolve_all}")
    wanted: dict[str, str] = {
        identifier: f"value:{msgspec.json.encode(each.value).decode()}"
        if each.take == "value"
        else each.take
        for identifier, each in request.resolutions.items()
    }
    wanted |= {each.conflict: each.take for each in result.suggested}
    parts += [
        f" \\\n    --resolve {shlex.quote(f'{identifier}={take}')}"
        for identifier, take in wanted.items()
    ]
    return "".join(parts)


NameArgument = Annotated[str, typer.Argument(help="Name of the branch.")]


def add_branch_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    branch = typer.Typer(no_args_is_help=True)
    cli.add_typer(branch, name="branch", help="List, create, delete and merge branches.")

    @branch.command("list", epilog="Example: trails branch list")
    def list_branches(
        *,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List the branches with their newest commits."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            found = session.branches()
            report.value = BranchList(tuple(found))
            table = TextTable("branch", "commit", "time", "actor", "message")
            for each in found:
                table.add_row(
                    escape(each.name),
                    short(each.head) or "-",
                    when(each.time),
                    escape(each.actor),
                    escape(each.message),
                )
            report.text = [table]

    @branch.command(epilog="Example: trails branch create review --from main")
    def create(
        name: NameArgument,
        *,
        source: Annotated[
            str, typer.Option("--from", help="Where the branch starts.", metavar="BRANCH|COMMIT")
        ] = "main",
        dry_run: DryRunOption = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Create a branch from another branch or from a commit."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            if dry_run:
                given = {"name": name, "from": source, "dry_run": True}
                report.value = session.draft("branch_create", given)
                report.text = [f"Would have created branch [bold]{escape(name)}[/]."]
                return
            made = session.create_branch(name, source)
            report.value = BranchCreated(made, source)
            where = f"commit {short(made.head)}" if made.head else "the empty graph"
            report.text = [f"Created branch [bold]{escape(name)}[/] at {where}."]

    @branch.command(epilog="Example: trails branch delete review")
    def delete(
        name: NameArgument,
        *,
        force: Annotated[
            bool, typer.Option("--force", help="Delete it even if it has unmerged commits.")
        ] = False,
        dry_run: DryRunOption = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Delete a branch. Its commits stay in the log and can be read by id."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            if dry_run:
                given = {"name": name, "force": force, "dry_run": True}
                report.value = session.draft("branch_delete", given)
                report.text = [f"Would have deleted branch [bold]{escape(name)}[/]."]
                return
            gone = session.delete_branch(name, force=force)
            report.value = BranchDeleted(gone)
            where = f"; it was at commit {short(gone.head)}" if gone.head else ""
            report.text = [f"Deleted branch [bold]{escape(name)}[/]{where}."]

    @branch.command(
        epilog="Example: trails branch merge plan --resolve divergent_field:Task/t1.priority=ours"
    )
    def merge(
        source: Annotated[str, typer.Argument(help="The branch or commit to merge.")],
        *,
        into: Annotated[str, typer.Option(help="The branch that gets the changes.")] = "main",
        message: MessageOption = "",
        dry_run: DryRunOption = False,
        resolve: Annotated[
            list[str] | None,
            typer.Option(
                help="Resolve a conflict; repeatable.",
                metavar="ID=ours|theirs|value:JSON",
            ),
        ] = None,
        resolutions: Annotated[
            Path | None,
            typer.Option(
                help='Resolutions in a JSON file: {"ID": "ours", …}.', metavar="FILE.json"
            ),
        ] = None,
        ours: Annotated[
            bool,
            typer.Option("--ours", help="Resolve all other conflicts with the target's value."),
        ] = False,
        theirs: Annotated[
            bool,
            typer.Option("--theirs", help="Resolve all other conflicts with the source's value."),
        ] = False,
        expected_head: ExpectedHeadOption = None,
        idempotency_key: IdempotencyKeyOption = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Merge a branch field by field. On conflicts nothing is written (exit code 1)."""
        with Reporting(as_json=as_json) as report:
            request = MergeRequest(
                source,
                into,
                message,
                read_resolutions(resolve or [], resolutions),
                dry_run,
                expected_head,
                idempotency_key,
                read_side(ours=ours, theirs=theirs),
            )
            with operations.open(
                place_of(project, server), graph, report.progress, declared=False
            ) as session:
                given = {"--project": project, "--server": server, "--graph": graph}
                show_merge(report, session.merge(request), request, session.nodes, given)


def add_proposal_command(cli: typer.Typer, operations: Operations) -> None:
    """Add it to the command line."""

    @cli.command(epilog="Example: trails proposals --author ada")
    def proposals(
        *,
        author: Annotated[str | None, typer.Option(help="Only those of this actor.")] = None,
        target: Annotated[str | None, typer.Option(help="Only those for this branch.")] = None,
        after: Annotated[
            str | None, typer.Option(help="Continue after this one.", metavar="BRANCH")
        ] = None,
        limit: Annotated[int, typer.Option("--limit", "-n", help="Maximum number.")] = 50,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List open proposals: branches with changes that wait for a merge."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            given = {"author": author, "target": target, "after": after, "limit": limit}
            found = msgspec.convert(session.record("proposal_list", given), ProposalList)
            report.value = found
            report.text = list(_list_proposals(found))


def _list_proposals(found: ProposalList) -> Iterator[str | TextTable]:
    table = TextTable("proposal", "author", "age", "nodes", "conflicts", "message")
    for each in found.proposals:
        table.add_row(
            escape(each.proposal),
            escape(each.author),
            _age(each.age_seconds),
            "many"
            if each.created_nodes is None
            else f"+{each.created_nodes} ~{each.updated_nodes} −{each.deleted_nodes}",
            "?" if each.conflicts is None else str(each.conflicts),
            escape(each.message),
        )
    if not found.proposals:
        yield "No open proposals."
        return
    yield table
    yield ""
    yield "[dim]Approve or reject one with:[/]"
    for each in found.proposals[:1]:
        yield from (f"  {escape(command)}" for command in each.commands)
    if found.next is not None:
        yield f"[dim]For the next page, add[/] --after {escape(found.proposals[-1].proposal)}"


def _age(seconds: int) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"


def read_controls(*, dry_run: bool, propose: bool) -> dict[str, bool]:
    """How a command writes that does not write directly."""
    return {name: True for name, given in (("dry_run", dry_run), ("propose", propose)) if given}


def show_draft(report: Reporting, found: DryRunResult | ProposalResult, nodes: str) -> None:
    """Report a dry run or a proposal, with the commands that approve or reject it."""
    report.value = found
    counts, changes = _counts(found), list(_changes(found, nodes))
    if isinstance(found, DryRunResult):
        report.text = [f"Would change {escape(found.branch)}: {counts}.", *changes]
        return
    if found.proposal is None:
        report.text = ["Nothing would change, so nothing was proposed."]
        return
    name, into = escape(found.proposal), f" --into {escape(found.target)}"
    report.text = [
        f"Proposed [bold]{name}[/]: {counts}.",
        *changes,
        *(f"[yellow]{escape(each)}[/]" for each in found.violations),
        "",
        f"  trails branch merge {name}{'' if found.target == 'main' else into}",
        f"  trails branch delete {name} --force",
    ]


_MARKS: Final = {"created": "[green]+[/]", "updated": "[yellow]~[/]", "deleted": "[red]−[/]"}
_NONE: Final = "[dim]none[/]"

ChangesOption = Annotated[
    int, typer.Option("--limit", "-n", help="Maximum number of nodes to show.")
]


def add_commit_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    commit = typer.Typer(no_args_is_help=True)
    cli.add_typer(commit, name="commit", help="List and show commits.")

    @commit.command("list", epilog="Example: trails commit list --node Task/42 --limit 5")
    def list_commits(
        *,
        branch: Annotated[
            str | None,
            typer.Option(
                "--branch", "-b", help="History of this branch or commit.", show_default="main"
            ),
        ] = None,
        everything: Annotated[
            bool, typer.Option("--all", help="Commits of all branches, also deleted ones.")
        ] = False,
        actor: Annotated[str | None, typer.Option(help="Only commits by this actor.")] = None,
        node: Annotated[
            str | None, typer.Option(help="Only commits that changed this node.", metavar="TYPE/ID")
        ] = None,
        limit: Annotated[
            int, typer.Option("--limit", "-n", help="Maximum number of commits.")
        ] = 20,
        after: Annotated[
            str | None, typer.Option(help="Continue after the previous page.", metavar="CURSOR")
        ] = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List commits, newest first."""
        with Reporting(as_json=as_json) as report:
            if everything and branch is not None:
                raise QueryError("--all and --branch are mutually exclusive; give one of them")
            wanted = CommitQuery(None if everything else branch or "main", actor, node)
            with operations.open(
                place_of(project, server), graph, report.progress, declared=False
            ) as session:
                page = session.commits(wanted, after=after, limit=limit)
            report.value = page
            table = TextTable("commit", "time", "actor", "message")
            for each in page.commits:
                where = f"[dim]{escape(each.branch)}:[/] " if everything else ""
                table.add_row(
                    short(each.commit), when(each.time), escape(each.actor), where + _message(each)
                )
            report.text = [table] if page.commits else ["No commits."]
            if page.next is not None:
                cursor = page.next.arguments["after"]
                report.text += ["", f"[dim]For the next page, add[/] --after {cursor}"]

    @commit.command(epilog="Example: trails commit show 4f6c2a91b7d0")
    def show(
        reference: Annotated[
            str,
            typer.Argument(help="A commit id or its prefix, or a branch.", metavar="COMMIT"),
        ],
        *,
        limit: ChangesOption = 50,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show a commit and its changes, per node and field."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            detail = session.commit(reference, limit=limit)
            report.value = detail
            report.text = [*_facts(detail), "", *_changes(detail, session.nodes)]

    @cli.command(epilog="Example: trails diff main review")
    def diff(
        start: Annotated[str, typer.Argument(help="A branch or commit.", metavar="A")],
        end: Annotated[str, typer.Argument(help="Another branch or commit.", metavar="B")],
        *,
        limit: ChangesOption = 50,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Show the changes from A to B, per node and field."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            difference = session.diff(start, end, limit=limit)
            report.value = difference
            report.text = [_counts(difference), *_changes(difference, session.nodes)]


def _message(commit: CommitInfo) -> str:
    return escape(commit.message) or f"[dim]+{commit.added} −{commit.removed} statements[/]"


def _facts(commit: CommitResult) -> Iterator[str]:
    yield f"commit   [bold]{commit.commit}[/]"
    if commit.parents:
        yield f"parents  {', '.join(map(short, commit.parents))}"
    yield f"branch   {escape(commit.branch)}"
    yield f"actor    {escape(commit.actor)}"
    yield f"time     {when(commit.time)}"
    if commit.message:
        yield f"message  {escape(commit.message)}"
    yield f"changed  {_counts(commit)} (+{commit.added} −{commit.removed} statements)"


def _counts(difference: Changes) -> str:
    return (
        f"{difference.created} created, {difference.updated} updated, {difference.deleted} deleted"
    )


def _changes(difference: Changes, nodes: str) -> Iterator[str]:
    for node in difference.changes:
        yield f"{_MARKS[node.change]} [bold]{escape(node.handle)}[/]"
        for field in node.fields:
            yield f"    {escape(field.field)}  {_field(field, node.change, nodes)}"
    if difference.truncated:
        left = difference.created + difference.updated + difference.deleted
        yield f"[dim]… {left - len(difference.changes):,} more nodes; --limit shows more[/]"


def _field(field: FieldChange, change: str, nodes: str) -> str:
    if field.removed or field.added:
        parts = [f"[red]−[/] {spell(each, nodes)}" for each in field.removed]
        parts += [f"[green]+[/] {spell(each, nodes)}" for each in field.added]
        return "  ".join(parts)
    before, after = (
        _NONE if value is None else spell(value, nodes) for value in (field.before, field.after)
    )
    if change == "updated":
        return f"{before} → {after}"
    return after if change == "created" else before
