"""The ``trails`` command, assembled from the modules of this package.

A built-in that declares a command which no module writes by hand gets one made from its fields:
required ones are arguments, the others options, and the result is printed as by ``trails call``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from inspect import Parameter, Signature
from typing import Annotated, Any, Final

import typer
from rich.markup import escape
from typer.models import CommandInfo, TyperInfo

from trails.model.types import PredicateDescriptor
from trails.request.builtins import OPERATIONS
from trails.request.builtins.declare import Builtin
from trails.surfaces.cli.access import add_policy_commands, add_token_commands
from trails.surfaces.cli.blobs import add_blob_commands
from trails.surfaces.cli.calls import add_call_commands, read_arguments
from trails.surfaces.cli.changes import add_changes_command
from trails.surfaces.cli.files import add_file_commands
from trails.surfaces.cli.history import add_branch_commands, add_commit_commands
from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import (
    FolderOption,
    GraphOption,
    JsonOption,
    ServerOption,
    build_root,
    open_session,
)
from trails.surfaces.cli.project import (
    add_backup_commands,
    add_project_commands,
    add_recover_command,
    add_upkeep_commands,
)
from trails.surfaces.cli.provenance import add_provenance_commands
from trails.surfaces.cli.queries import add_mutate_command, add_query_commands
from trails.surfaces.cli.reading import add_reading_commands
from trails.surfaces.cli.searching import add_search_command
from trails.surfaces.cli.serving import add_client_commands, add_serve_command
from trails.surfaces.cli.values import show_result


def build_cli(operations: Operations, version: str) -> typer.Typer:
    """The ``trails`` command on top of some operations."""
    cli = build_root(version)
    add_project_commands(cli, operations)
    add_serve_command(cli, operations)
    add_query_commands(cli, operations)
    add_search_command(cli, operations)
    add_reading_commands(cli, operations)
    add_call_commands(cli, operations)
    add_mutate_command(cli, operations)
    add_file_commands(cli, operations)
    add_blob_commands(cli, operations)
    add_branch_commands(cli, operations)
    add_commit_commands(cli, operations)
    add_changes_command(cli, operations)
    add_provenance_commands(cli, operations)
    add_upkeep_commands(cli, operations)
    add_backup_commands(cli, operations)
    add_recover_command(cli, operations)
    add_client_commands(cli, operations)
    add_token_commands(cli, operations)
    add_policy_commands(cli, operations)
    add_declared_commands(cli, operations, OPERATIONS)
    _add_headings(cli)
    return cli


_HEADINGS: Final = {
    "Set up": ("new", "serve", "mcp", "doctor"),
    "Read": ("search", "get", "read", "query", "queries", "export"),
    "Change": ("tools", "call", "mutate", "load"),
    "History": ("diff", "changes", "blame", "prov", "branch", "commit"),
    "Maintain": ("verify", "backup", "restore", "recover", "cleanup", "optimize"),
    "Access": ("token", "policy"),
}


def _add_headings(cli: typer.Typer) -> None:
    """Group the commands in ``trails --help``."""
    order = {name: heading for heading, names in _HEADINGS.items() for name in names}
    names = list(order)
    every: list[CommandInfo | TyperInfo] = [*cli.registered_commands, *cli.registered_groups]
    for each in every:
        each.rich_help_panel = order.get(_name(each), "Other")
    cli.registered_commands.sort(
        key=lambda each: names.index(_name(each)) if _name(each) in order else len(names)
    )


def add_declared_commands(
    cli: typer.Typer, operations: Operations, declared: Iterable[Builtin]
) -> None:
    """Add the commands that built-ins declare, except those that are there already."""
    for each in declared:
        if each.command is None:
            continue
        *group, name = each.command.split()
        parent = _group(cli, group[0]) if group else cli
        if name not in map(_name, parent.registered_commands):
            text = escape(f"{each.title}.\n\n{each.description}")
            parent.command(name, help=text)(_make_command(each, operations))


def _group(cli: typer.Typer, name: str) -> typer.Typer:
    for each in cli.registered_groups:
        if each.name == name and each.typer_instance is not None:
            return each.typer_instance
    made = typer.Typer(no_args_is_help=True, rich_markup_mode="rich")
    cli.add_typer(made, name=name)
    return made


def _name(command: CommandInfo | TyperInfo) -> str:
    return str(command.name or getattr(command.callback, "__name__", ""))


def _make_command(builtin: Builtin, operations: Operations) -> Callable[..., None]:
    # A parameter can't have the name of a keyword, and ``from`` is one.
    fields = {f"given_{each.name}": each for each in (*builtin.fields, *builtin.controls)}

    def command(**given: Any) -> None:  # noqa: ANN401 - Typer passes what the signature says
        place = (given["project"], given["server"], given["graph"])
        with open_session(operations, *place, as_json=given["as_json"]) as (report, session):
            texts = [
                f"{field.name}={text}"
                for name, field in fields.items()
                for text in _texts(given[name])
            ]
            arguments = read_arguments(texts, builtin.input_schema())
            report.value = result = session.record(builtin.name, arguments)
            report.text = list(show_result(result, session.nodes))

    parameters = [*(_parameter(name, each) for name, each in fields.items()), *_COMMON]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return command


def _parameter(name: str, field: PredicateDescriptor) -> Parameter:
    text = escape(field.description)
    if field.required:
        argument = typer.Argument(help=text, metavar=field.name.upper())
        return _keyword(name, Annotated[str, argument], Parameter.empty)
    option = typer.Option(f"--{field.name.replace('_', '-')}", help=text)
    if field.type.kind == "Bool":
        return _keyword(name, Annotated[bool, option], default=False)
    return _keyword(name, Annotated[list[str] | None if field.many else str | None, option], None)


def _keyword(name: str, annotation: object, default: object) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


_COMMON: Final = (
    _keyword("project", FolderOption, None),
    _keyword("server", ServerOption, None),
    _keyword("graph", GraphOption, None),
    _keyword("as_json", JsonOption, default=False),
)


def _texts(value: object) -> Iterator[str]:
    """What was typed for an argument; nothing if it was left out."""
    if value is True:
        yield "true"
    elif isinstance(value, list):
        yield from value
    elif isinstance(value, str):
        yield value
