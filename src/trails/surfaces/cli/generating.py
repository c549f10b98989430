"""``trails generate``: write declarations, queries and policies as diffs, and apply them.

Fields are written in a short form, which ``authoring/field_texts.py`` reads. The work is done
by the operations ``trails.meta.gen.*``, as for an agent; without ``--apply`` no file is changed.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from trails.authoring.field_texts import parse_field
from trails.errors import QueryError
from trails.model.texts import read_json
from trails.model.upkeep import ReloadReport
from trails.surfaces.cli.operations import Operations, Session
from trails.surfaces.cli.options import (
    FolderOption,
    GraphOption,
    JsonOption,
    ServerOption,
    open_session,
)
from trails.surfaces.cli.output.markup import escape
from trails.surfaces.cli.output.reporting import Reporting

_FIELDS: Final = "'title:str(min_length=3)' status:str=open 'owner:Ref[Person]?'"
FieldsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        help="Fields as NAME:TYPE(ARGUMENTS)?=DEFAULT; '?' is '| None'.", metavar="[FIELD]..."
    ),
]
DescriptionOption = Annotated[
    str | None, typer.Option("--description", "-d", help="What it is, for readers and models.")
]
ApplyOption = Annotated[bool, typer.Option("--apply", help="Write the files.")]
ReloadOption = Annotated[
    bool, typer.Option("--reload", help="With --apply: use the new declarations at once.")
]
_Given = Mapping[str, object]


class _Place(msgspec.Struct, frozen=True):
    """The options that all generators share."""

    project: Path | None
    server: str | None
    graph: str | None
    as_json: bool
    apply: bool
    reload: bool


def add_generate_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""
    generate = typer.Typer(no_args_is_help=True)
    cli.add_typer(
        generate,
        name="generate",
        help="Write types, capabilities, queries and policies: a diff, or with --apply the files.",
        epilog=f"Example: trails generate nodetype Task {_FIELDS} --apply",
    )
    _add_types(generate, operations)
    _add_capability(generate, operations)
    _add_others(generate, operations)


def _add_types(generate: typer.Typer, operations: Operations) -> None:
    @generate.command(epilog=f"Example: trails generate nodetype Task {_FIELDS}")
    def nodetype(
        name: Annotated[str, typer.Argument(help="Its name, like TestCase.")],
        fields: FieldsArgument = None,
        *,
        description: DescriptionOption = None,
        extends: Annotated[
            str | None, typer.Option(help="A type whose fields it takes over.")
        ] = None,
        abstract: Annotated[
            bool, typer.Option("--abstract", help="Only its subtypes have nodes.")
        ] = False,
        iri: Annotated[str | None, typer.Option(help="Its RDF class.")] = None,
        apply: ApplyOption = False,
        reload: ReloadOption = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Write a node type as a class of the graph's module."""

        def given() -> _Given:
            return {
                "name": name,
                "fields": _fields(fields),
                "description": description,
                "extends": extends,
                "abstract": abstract or None,
                "iri": iri,
            }

        place = _Place(project, server, graph, as_json, apply, reload)
        _generate(operations, place, "nodetype", given)

    @generate.command(
        epilog="Example: trails generate edgetype Assigned Person Task since:date --per-target 0,1"
    )
    def edgetype(
        name: Annotated[str, typer.Argument(help="Its name, like TestCase.")],
        source: Annotated[str, typer.Argument(help="The type at which edges start.")],
        target: Annotated[str, typer.Argument(help="The type at which they end.")],
        fields: FieldsArgument = None,
        *,
        description: DescriptionOption = None,
        per_source: Annotated[
            str | None,
            typer.Option(help="Edges of a source: LEAST,MOST or LEAST,.", metavar="LEAST,MOST"),
        ] = None,
        per_target: Annotated[
            str | None,
            typer.Option(help="Edges of a target, likewise.", metavar="LEAST,MOST"),
        ] = None,
        iri: Annotated[str | None, typer.Option(help="Its RDF class.")] = None,
        apply: ApplyOption = False,
        reload: ReloadOption = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Write an edge type, a relation with fields, as a class of the graph's module."""

        def given() -> _Given:
            return {
                "name": name,
                "source": source,
                "target": target,
                "fields": _fields(fields),
                "description": description,
                "per_source": _bounds("--per-source", per_source),
                "per_target": _bounds("--per-target", per_target),
                "iri": iri,
            }

        place = _Place(project, server, graph, as_json, apply, reload)
        _generate(operations, place, "edgetype", given)

    @generate.command(
        epilog="Example: trails generate shape Short 'title:str(max_length=40)' --target Task"
    )
    def shape(
        name: Annotated[str, typer.Argument(help="Its name, like TestCase.")],
        fields: FieldsArgument = None,
        *,
        description: DescriptionOption = None,
        target: Annotated[
            str | None, typer.Option(help="A type whose fields it has rules for.")
        ] = None,
        apply: ApplyOption = False,
        reload: ReloadOption = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Write a shape: a structured value, or with --target more rules for a type."""

        def given() -> _Given:
            return {
                "name": name,
                "fields": _fields(fields),
                "description": description,
                "target": target,
            }

        place = _Place(project, server, graph, as_json, apply, reload)
        _generate(operations, place, "shape", given)


def _add_capability(generate: typer.Typer, operations: Operations) -> None:
    @generate.command(
        epilog="Examples: trails generate capability tasks.add -d 'Add a task.' --does create "
        "--type Task · trails generate capability tasks.review 'task:Ref[Task]' -d 'Review it.'"
    )
    def capability(
        identifier: Annotated[
            str, typer.Argument(help="Dotted words, like tasks.finish.", metavar="ID")
        ],
        parameters: FieldsArgument = None,
        *,
        description: Annotated[
            str, typer.Option("--description", "-d", help="What it does; agents choose by it.")
        ],
        does: Annotated[
            str | None,
            typer.Option(help="What is written for it.", metavar="create|update|delete|list"),
        ] = None,
        of_type: Annotated[
            str | None, typer.Option("--type", help="With --does: the type of the nodes.")
        ] = None,
        field: Annotated[
            list[str] | None,
            typer.Option(
                "--field", help="With --does: a field that becomes a parameter; repeatable."
            ),
        ] = None,
        returns: Annotated[
            str | None, typer.Option(help="The type of its result.", show_default="None")
        ] = None,
        reads: Annotated[bool, typer.Option("--reads", help="It only reads.")] = False,
        apply: ApplyOption = False,
        reload: ReloadOption = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Write a capability as a function; complete with --does, else its body is left to you."""

        def given() -> _Given:
            return {
                "id": identifier,
                "description": description,
                "does": does,
                "type": of_type,
                "fields": field or None,
                "parameters": _fields(parameters),
                "returns": returns,
                "reads": reads or None,
            }

        place = _Place(project, server, graph, as_json, apply, reload)
        _generate(operations, place, "capability", given)


def _add_others(generate: typer.Typer, operations: Operations) -> None:
    @generate.command(
        epilog="Example: trails generate query tasks_by_status Task -d 'Tasks.' --where status"
    )
    def query(
        name: Annotated[str, typer.Argument(help="The name of its file and tool.")],
        of_type: Annotated[str, typer.Argument(help="The type of the nodes.", metavar="TYPE")],
        *,
        description: Annotated[str, typer.Option("--description", "-d", help="What it finds.")],
        column: Annotated[
            list[str] | None,
            typer.Option(
                help="A field that it shows; repeatable.", show_default="all with one value"
            ),
        ] = None,
        where: Annotated[
            list[str] | None,
            typer.Option(help="A field that becomes a parameter; repeatable."),
        ] = None,
        apply: ApplyOption = False,
        reload: ReloadOption = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Write a stored query that lists the nodes of a type."""

        def given() -> _Given:
            return {
                "name": name,
                "type": of_type,
                "description": description,
                "columns": column or None,
                "where": where or None,
            }

        place = _Place(project, server, graph, as_json, apply, reload)
        _generate(operations, place, "query", given)

    @generate.command(
        epilog="Example: trails generate policy agents_read --group agents --action Read"
    )
    def policy(
        name: Annotated[str, typer.Argument(help="The name of its file.")],
        *,
        action: Annotated[list[str], typer.Option(help="What it is about; repeatable.")],
        group: Annotated[str | None, typer.Option(help="Whom it is about.")] = None,
        actor: Annotated[str | None, typer.Option(help="One actor instead.")] = None,
        effect: Annotated[str, typer.Option(metavar="permit|forbid")] = "permit",
        resource: Annotated[
            str | None, typer.Option(help="Like Type::Task.", show_default="the graph")
        ] = None,
        branch: Annotated[
            str | None, typer.Option(help="Only on branches like this: agents/*.")
        ] = None,
        description: DescriptionOption = None,
        apply: ApplyOption = False,
        reload: ReloadOption = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Write a Cedar policy, and a case that tests it."""

        def given() -> _Given:
            return {
                "name": name,
                "effect": effect,
                "actions": action,
                "group": group,
                "actor": actor,
                "resource": resource,
                "branch": branch,
                "description": description,
            }

        place = _Place(project, server, graph, as_json, apply, reload)
        _generate(operations, place, "policy", given)

    @generate.command(
        epilog="Example: trails generate migration drop_rank --step "
        '\'{"step": "drop_field", "type": "Task", "field": "rank"}\''
    )
    def migration(
        name: Annotated[str, typer.Argument(help="What it does, in words: rename_state.")],
        *,
        step: Annotated[
            list[str], typer.Option(help="A step as JSON; repeatable.", metavar="JSON")
        ],
        description: DescriptionOption = None,
        apply: ApplyOption = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Write a migration, numbered after the last one; 'trails migrate apply' applies it."""

        def given() -> _Given:
            steps = [read_json(each) for each in step]
            return {"name": name, "steps": steps, "description": description}

        place = _Place(project, server, graph, as_json, apply, reload=False)
        _generate(operations, place, "migration", given)

    @generate.command(epilog="Example: trails generate app archive -d 'What is closed.'")
    def app(
        new: Annotated[str, typer.Argument(help="The id of the new graph.", metavar="GRAPH")],
        *,
        description: DescriptionOption = None,
        apply: ApplyOption = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Write the module and the settings of another graph."""
        place = _Place(project, server, graph, as_json, apply, reload=False)
        _generate(operations, place, "app", lambda: {"graph": new, "description": description})

    @generate.command(epilog="Example: trails generate plugin geo -d 'Places and distances.'")
    def plugin(
        name: Annotated[str, typer.Argument(help="Lower-case words joined by '-'.")],
        *,
        description: DescriptionOption = None,
        apply: ApplyOption = False,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """Write the package of a plugin in plugins/."""
        place = _Place(project, server, graph, as_json, apply, reload=False)
        _generate(operations, place, "plugin", lambda: {"name": name, "description": description})


def _fields(texts: Sequence[str] | None) -> list[object] | None:
    found = [parse_field(text, f"fields[{at}]") for at, text in enumerate(texts or ())]
    return [msgspec.to_builtins(each) for each in found] or None


def _bounds(option: str, text: str | None) -> list[int | None] | None:
    if text is None:
        return None
    low, comma, high = text.partition(",")
    if not comma or not low.isdecimal() or (high and not high.isdecimal()):
        raise QueryError(f"{option} {text[:50]!r}: write LEAST,MOST like 0,1, or LEAST, like 1,")
    return [int(low), int(high) if high else None]


def _generate(
    operations: Operations, place: _Place, name: str, given: Callable[[], _Given]
) -> None:
    with open_session(
        operations, place.project, place.server, place.graph, as_json=place.as_json, declared=True
    ) as (report, session):
        if place.reload and not place.apply:
            raise QueryError("--reload needs --apply: nothing is written without it")
        arguments = {key: each for key, each in given().items() if each is not None}
        made = session.record(f"trails_meta_gen_{name}", arguments)
        notes = [f"[yellow]•[/] {escape(str(note))}" for note in _items(made.get("notes"))]
        report_diff(report, session, made, notes, apply=place.apply, reload=place.reload)


def report_diff(
    report: Reporting,
    session: Session,
    made: Mapping[str, object],
    notes: Sequence[str],
    *,
    apply: bool,
    reload: bool,
) -> None:
    """Print the diff of a result, or apply it; the notes come after it."""
    report.value = made
    diff = msgspec.convert(made.get("diff", made), dict[str, object])
    if apply:
        _apply(report, session, diff, reload=reload)
        report.text += notes
    else:
        report.text = [*_coloured(str(diff["unified"])), *notes, *_next()]


def _apply(
    report: Reporting, session: Session, diff: Mapping[str, object], *, reload: bool
) -> None:
    given = {"files": diff["files"], "reload": reload}
    applied = session.record("trails_meta_files_apply", given)
    report.value = {"diff": diff, **applied}
    report.text = [f"Changed {escape(path)}." for path in map(str, _items(applied["files"]))]
    found = applied.get("reload")
    if found is not None:
        error = msgspec.convert(found, ReloadReport).error
        report.code = 0 if error is None else 1
        said = "[green]✓[/] In use now." if error is None else f"[red]✗[/] {escape(str(error))}"
        report.text.append(said)


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else ()


def _coloured(unified: str) -> Iterator[str]:
    """The lines of a diff, with the usual colours."""
    for line in unified.removesuffix("\n").split("\n"):
        if line.startswith(("--- ", "+++ ")):
            yield f"[bold]{escape(line)}[/]"
        elif line.startswith("@@"):
            yield f"[dim]{escape(line)}[/]"
        elif line.startswith(("+", "-")):
            yield f"[{'green' if line[0] == '+' else 'red'}]{escape(line)}[/]"
        else:
            yield escape(line)


def _next() -> Iterator[str]:
    """The command that applies what was printed."""
    command = ["trails", *sys.argv[1:], "--apply"]
    yield ""
    yield f"[dim]Nothing was written. To apply it:[/] {escape(shlex.join(command))}"
