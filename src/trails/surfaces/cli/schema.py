"""``trails schema``: describe the types, plan changes of them, and apply these.

A change is one step on the command line, or a file of steps. ``trails schema TYPE`` describes a
type, as ``trails schema show TYPE`` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final, cast

import msgspec
import typer
from typer.core import TyperGroup

from trails.authoring.field_texts import parse_field
from trails.errors import QueryError
from trails.model.names import suggest
from trails.model.texts import read_json
from trails.surfaces.cli.calls import list_parameters
from trails.surfaces.cli.generating import ApplyOption, ReloadOption, report_diff
from trails.surfaces.cli.operations import Operations
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
    open_session,
)
from trails.surfaces.cli.output.markup import escape, indented
from trails.surfaces.cli.values import read_json_text, read_text

_MARKS: Final = {"safe": "green", "needs_data": "yellow", "destructive": "red"}
_EXAMPLES: Final = (
    "Examples: trails schema plan rename-field Task.state status · trails schema apply add-field "
    "Task.due:date? · trails schema apply -f steps.json --allow-data-loss"
)

StepArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="One step: add-type TYPE [FIELD...], rename-type TYPE NEW, drop-type TYPE, add-field "
        "TYPE.FIELD, rename-field TYPE.FIELD NEW, change-field TYPE.FIELD, drop-field TYPE.FIELD. "
        "A field may have a type and arguments: due:date?, 'code:str(key,max_length=9)'.",
        metavar="STEP...",
    ),
]
FileOption = Annotated[
    Path | None,
    typer.Option(
        "--file",
        "-f",
        help='Read steps from a JSON file: a list, or {"steps": [...]} or {"types": [...]}; - is '
        "standard input.",
        metavar="FILE.json",
    ),
]
HardOption = Annotated[
    bool, typer.Option("--hard", help="Of a drop: remove values, or nodes, that there are.")
]
BackfillOption = Annotated[
    str | None,
    typer.Option(
        help='Of a new or required field: the value of existing nodes; {"expression": "..."} '
        "computes it.",
        metavar="JSON",
    ),
]


class _ShowByDefault(TyperGroup):
    """``trails schema TYPE`` is ``trails schema show TYPE``."""

    def parse_args(  # type: ignore[override]  # its own Context is private
        self, ctx: typer.Context, args: list[str]
    ) -> list[str]:
        """Insert ``show`` if the first argument is not a command."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


def add_schema_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    schema = typer.Typer(cls=_ShowByDefault)
    cli.add_typer(
        schema,
        name="schema",
        help="Describe the types, plan and apply changes of them; 'trails schema TYPE' describes "
        "a type.",
        epilog="Examples: trails schema · trails schema Task --json",
    )

    @schema.command("show", epilog="Examples: trails schema · trails schema Task --json")
    def show(
        types: Annotated[
            list[str] | None, typer.Argument(help="Only these types.", metavar="TYPE...")
        ] = None,
        *,
        branch: BranchOption = "main",
        snapshot: SnapshotOption = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Describe the types: fields with kinds and constraints, keys, and what edges join."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            place = {"branch": branch} if snapshot is None else {"snapshot": snapshot}
            given = {**place, **({"types": types} if types else {})}
            report.value = found = session.call("schema_get", given)
            for each in cast(Sequence[Mapping[str, object]], found["types"]):
                report.text += _describe_type(each)
            if isinstance(found.get("next"), Mapping):
                report.text.append("[dim]There are more types; name those that you want.[/]")

    @schema.command("plan", epilog=_EXAMPLES)
    def plan(
        step: StepArgument = None,
        *,
        file: FileOption = None,
        hard: HardOption = False,
        backfill: BackfillOption = None,
        branch: BranchOption = "main",
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Say what a change of types would do, and what forbids it; nothing is written."""
        with open_session(operations, project, server, graph, as_json=as_json, declared=True) as (
            report,
            session,
        ):
            given = _change(step, file, hard=hard, backfill=backfill)
            asked = {**given, "branch": branch, "dry_run": True}
            report.value = found = session.call("schema_apply", asked)
            report.text = list(_describe_change(found))

    @schema.command("apply", epilog=_EXAMPLES)
    def apply(
        step: StepArgument = None,
        *,
        file: FileOption = None,
        hard: HardOption = False,
        backfill: BackfillOption = None,
        allow_data_loss: Annotated[
            bool, typer.Option("--allow-data-loss", help="Apply it even if values are removed.")
        ] = False,
        plan: Annotated[
            str | None,
            typer.Option(help="Apply only the plan with this digest.", metavar="DIGEST"),
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
        """Change types and data in one commit; on main, the files that declare them too."""
        options = {
            "plan": plan,
            "message": message or None,
            "expected_head": expected_head,
            "idempotency_key": idempotency_key,
        }
        with open_session(operations, project, server, graph, as_json=as_json, declared=True) as (
            report,
            session,
        ):
            given = _change(step, file, hard=hard, backfill=backfill)
            asked = {**given, "branch": branch, "allow_data_loss": allow_data_loss}
            asked |= {name: value for name, value in options.items() if value is not None}
            report.value = found = session.call("schema_apply", asked)
            report.text = list(_describe_change(found))

    @schema.command("impact", epilog="Example: trails schema impact drop-field Task.state")
    def impact(
        step: StepArgument = None,
        *,
        file: FileOption = None,
        branch: BranchOption = "main",
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Name queries, capabilities, policies and branches that a change of types breaks."""
        with open_session(operations, project, server, graph, as_json=as_json, declared=True) as (
            report,
            session,
        ):
            given = _change(step, file, hard=False, backfill=None)
            report.value = found = session.call("trails_meta_impact", {**given, "branch": branch})
            items = cast(Sequence[Mapping[str, object]], found["items"])
            report.text = list(_describe_impact(items)) or ["Nothing breaks."]

    @schema.command("diff", epilog="Example: trails schema diff main work")
    def diff(
        start: Annotated[str, typer.Argument(help="A branch, a commit, or files.", metavar="FROM")],
        end: Annotated[str, typer.Argument(help="A branch, a commit, or files.", metavar="TO")],
        *,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Compare types of branches, commits, or the project's files; --json prints the steps."""
        with open_session(operations, project, server, graph, as_json=as_json, declared=True) as (
            report,
            session,
        ):
            asked = {"from": start, "to": end}
            report.value = found = session.call("trails_meta_schema_diff", asked)
            lines = cast(Sequence[object], found["changes"])
            report.text = [escape(str(each)) for each in lines] or ["They are the same."]

    @schema.command("export", epilog="Example: trails schema export shacl > shapes.ttl")
    def export(
        format: Annotated[str, typer.Argument(help="shacl, jsonschema, turtle or python.")],
        *,
        branch: BranchOption = "main",
        snapshot: SnapshotOption = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Print the types as SHACL, JSON Schema, an RDF vocabulary in Turtle, or Python."""
        with open_session(operations, project, server, graph, as_json=as_json) as (report, session):
            place = {"branch": branch} if snapshot is None else {"snapshot": snapshot}
            asked = {"format": format, **place}
            report.value = found = session.call("trails_meta_schema_export", asked)
            report.text = [escape(str(found["text"]).rstrip("\n"))]

    _add_import(schema, operations)


def _add_import(schema: typer.Typer, operations: Operations) -> None:
    @schema.command(
        "import", epilog="Example: trails schema import schema.pg queries/people.gq --apply"
    )
    def import_schema(
        file: Annotated[Path, typer.Argument(help="SHACL, JSON Schema, LinkML or Omnigraph.")],
        queries: Annotated[
            list[Path] | None,
            typer.Argument(help="Omnigraph's queries.", metavar="[QUERIES.gq]..."),
        ] = None,
        *,
        language: Annotated[
            str | None,
            typer.Option(
                help="The language, if the name of the file does not say it.",
                metavar="shacl|json_schema|linkml|omnigraph",
            ),
        ] = None,
        apply: ApplyOption = False,
        reload: ReloadOption = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Turn a schema of another language into declarations: a diff, or with --apply the files.

        Names that change, and rules that have no counterpart, are listed.
        """
        with open_session(operations, project, server, graph, as_json=as_json, declared=True) as (
            report,
            session,
        ):
            given: dict[str, object] = {"text": read_text(file), "file": file.name}
            if language is not None:
                given["language"] = language
            if queries:
                given["queries"] = {each.name: read_text(each) for each in queries}
            made = session.record("trails_meta_schema_import", given)
            notes = [
                f"[yellow]{note['kind'].replace('_', ' ')}[/]  {escape(note['where'])}: "
                f"{escape(note['message'])}"
                for note in cast(Sequence[Mapping[str, str]], made.get("notes", ()))
            ]
            report_diff(report, session, made, notes, apply=apply, reload=reload)


# --- steps on the command line -----------------------------------------------------------------

_STEPS: Final = {
    "add-type": (1, None),
    "rename-type": (2, 2),
    "drop-type": (1, 1),
    "add-field": (1, 1),
    "rename-field": (2, 2),
    "change-field": (1, 1),
    "drop-field": (1, 1),
    "drop-shape": (1, 1),
}
"""Step → how many words follow it, at least and at most."""


def _change(
    words: Sequence[str] | None, file: Path | None, *, hard: bool, backfill: str | None
) -> dict[str, object]:
    """The arguments that say how types change."""
    if bool(words) == (file is not None):
        raise QueryError(
            "give one step, like 'rename-field Task.state status', or --file with steps; "
            f"steps are {', '.join(_STEPS)}"
        )
    if file is not None:
        found = read_json_text(file)
        if isinstance(found, list):
            return {"steps": found}
        if isinstance(found, Mapping) and found.keys() <= {"steps", "types"} and found:
            return dict(found)
        raise QueryError(
            f'{file} must contain a list of steps, {{"steps": […]}} or {{"types": […]}}'
        )
    return {"steps": [read_step(list(words or ()), hard=hard, backfill=backfill)]}


def read_step(words: list[str], *, hard: bool, backfill: str | None) -> dict[str, object]:
    """One step, as it is written on the command line."""
    kind, *given = words
    if kind not in _STEPS:
        raise QueryError(f"{kind!r} is not a step; {suggest(kind, list(_STEPS))}")
    least, most = _STEPS[kind]
    if len(given) < least or (most is not None and len(given) > most):
        raise QueryError(f"{kind} takes {least} more words, and has {len(given)}; see --help")
    step: dict[str, object] = {"step": kind.replace("-", "_")}
    if kind == "drop-shape":
        return {**step, "shape": given[0]}
    if kind == "add-type":
        return {**step, "type": {"name": given[0], "fields": [*map(_read_field, given[1:])]}}
    if kind.endswith("-type"):
        step["type"] = given[0]
    else:
        step["type"], mark, name = given[0].partition(".")
        if not mark or not name:
            raise QueryError(f"{given[0]!r} is not a field; write it as TYPE.FIELD")
        field = _read_field(name)
        whole = {"add-field": "field", "change-field": "to"}.get(kind)
        if whole is not None:
            step[whole] = field
        if kind != "add-field":
            step["field"] = field["name"]
    if kind.startswith("rename"):
        step["to"] = given[1]
    if kind.startswith("drop") and hard:
        step["hard"] = True
    if backfill is not None:
        step["backfill"] = read_json(backfill)
    return step


def _read_field(text: str) -> dict[str, object]:
    """A field in the short form, as ``trails generate`` takes it."""
    return cast(dict[str, object], msgspec.to_builtins(parse_field(text, text)))


# --- what is printed ---------------------------------------------------------------------------


def _describe_type(found: Mapping[str, object]) -> Iterator[str]:
    """A type as a block: its name, what it is for, and its fields."""
    joins = found.get("joins")
    ends = f"  [dim]{joins['source']} → {joins['target']}[/]" if isinstance(joins, Mapping) else ""
    mark = "  [dim]abstract[/]" if found.get("abstract") else ""
    yield f"[bold]{escape(str(found['type']))}[/]{ends}{mark}"
    if found.get("description"):
        yield indented(escape(str(found["description"])), 2)
    inner = found.get("schema")
    lines = list_parameters(inner) if isinstance(inner, Mapping) else []
    yield from (indented(line, 4) for line in lines)


def _describe_change(found: Mapping[str, object]) -> Iterator[str]:
    for each in cast(Sequence[Mapping[str, object]], found["steps"]):
        effect = str(each["effect"])
        yield f"[{_MARKS[effect]}]{effect}[/] {escape(str(each['summary']))}"
    counts = ", ".join(
        f"{found[name]} {name}" for name in ("created", "updated", "deleted") if found[name]
    )
    if counts:
        yield f"Nodes: {counts}."
    for each in cast(Sequence[Mapping[str, object]], found["offenses"]):
        yield f"[red]forbidden[/] {escape(str(each['message']))}"
    yield from _describe_impact(cast(Sequence[Mapping[str, object]], found["impact"]))
    for hint in cast(Sequence[object], found["hints"]):
        yield f"[yellow]hint[/] {escape(str(hint))}"
    diff = found["diff"]
    if isinstance(diff, Mapping):
        yield escape(str(diff["unified"]).rstrip("\n"))
    if found["commit"] is not None:
        yield f"Applied to {escape(str(found['branch']))} in commit {str(found['commit'])[:8]}."
    elif not found["applied"]:
        yield f"Nothing was written. Plan: {found['plan']}"


def _describe_impact(items: Sequence[Mapping[str, object]]) -> Iterator[str]:
    for each in items:
        colour = "red" if each["severity"] == "breaks" else "yellow"
        name, why = escape(str(each["name"])), escape(str(each["why"]))
        yield f"[{colour}]{each['severity']}[/] {each['kind']} {name}: {why}"
