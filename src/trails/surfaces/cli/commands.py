"""The ``trails`` command, assembled from the modules of this package.

A command imports its own module only. A built-in that declares a command which no module writes
by hand gets one made from its fields: required ones are arguments, the others options, and the
result is printed as by ``trails call``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import import_module
from inspect import Parameter, Signature
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.models import CommandInfo, TyperInfo

from trails.surfaces.cli.operations import Operations
from trails.surfaces.cli.options import (
    FolderOption,
    GraphOption,
    JsonOption,
    ServerOption,
    build_root,
    open_session,
)
from trails.surfaces.cli.output.plain import INTERRUPTED, USAGE, visible
from trails.surfaces.cli.output.reporting import print_json
from trails.surfaces.cli.shell.arguments import read_plainly
from trails.surfaces.cli.shell.catalog import LISTED, names_plugins

if TYPE_CHECKING:  # the table of built-ins imports the engine
    from trails.model.types import PredicateDescriptor
    from trails.request.builtins.declare import Builtin


def build_cli(operations: Operations) -> typer.Typer:
    """Build ``trails`` with all of its commands."""
    from trails.request.operations import OPERATIONS  # noqa: PLC0415

    cli = build_root()
    for adder in dict.fromkeys((each.module, each.adder) for each in LISTED.values()):
        _add(cli, operations, *adder)
    add_declared_commands(cli, operations, OPERATIONS)
    return cli


def run_command(operations: Operations, arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; only what it needs is imported."""
    if arguments[0] not in LISTED:
        arguments = _spell_plugin_command(operations, arguments)
    command = build_command(operations, arguments)
    read_plainly(command)
    try:
        # Without its standalone mode, Typer returns the exit code.
        return int(command.main(list(arguments), "trails", standalone_mode=False) or 0)
    except typer.TyperException as error:
        _refuse(error, as_json="--json" in arguments)
        return USAGE
    except typer.Abort:
        return INTERRUPTED


def _spell_plugin_command(operations: Operations, arguments: Sequence[str]) -> Sequence[str]:
    """A command of a plugin as the call that it stands for; others stay as they are."""
    name, *rest = arguments
    if names_plugins(folder := _project_of(rest)):
        for each in operations.plugin_commands(folder):
            if each.name == name:
                return ["call", each.capability, *rest]
    return arguments


def _project_of(arguments: Sequence[str]) -> Path:
    """The folder that the options name."""
    for at, each in enumerate(arguments):
        if each in {"-p", "--project"} and at + 1 < len(arguments):
            return Path(arguments[at + 1])
        if each.startswith("--project="):
            return Path(each.removeprefix("--project="))
    return Path()


def build_command(operations: Operations, arguments: Sequence[str]) -> Any:  # noqa: ANN401 - no public type
    """Build ``trails`` with the command that some arguments begin with."""
    return typer.main.get_command(_build(operations, arguments))


def _build(operations: Operations, arguments: Sequence[str]) -> typer.Typer:
    listed = LISTED.get(arguments[0])
    if listed is not None:
        cli = build_root()
        _add(cli, operations, listed.module, listed.adder)
        if _has(cli, arguments):
            return cli
    return build_cli(operations)


def _refuse(error: typer.TyperException, *, as_json: bool) -> None:
    """Report arguments that a command does not take."""
    if as_json:
        print_json({"error": {"code": "usage", "message": error.format_message()}})
        return
    text = StringIO()
    error.show(text)  # type: ignore[attr-defined]  # of its subclass that is not public
    sys.stderr.write(visible(text.getvalue()))


def _has(cli: typer.Typer, arguments: Sequence[str]) -> bool:
    """Whether a command is there already: built-ins may declare more commands of its group."""
    for each in cli.registered_groups:
        if each.name == arguments[0] and each.typer_instance is not None:
            known = map(_name, each.typer_instance.registered_commands)
            return len(arguments) > 1 and arguments[1] in known
    return True


def _add(cli: typer.Typer, operations: Operations, module: str, adder: str) -> None:
    found = import_module(f"trails.surfaces.cli.{module}")
    getattr(found, adder)(cli, operations)


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
            parent.command(name, help=f"{each.title}.\n\n{each.description}")(
                _make_command(each, operations)
            )


def _group(cli: typer.Typer, name: str) -> typer.Typer:
    for each in cli.registered_groups:
        if each.name == name and each.typer_instance is not None:
            return each.typer_instance
    made = typer.Typer(no_args_is_help=True)
    cli.add_typer(made, name=name)
    return made


def _name(command: CommandInfo | TyperInfo) -> str:
    return str(command.name or getattr(command.callback, "__name__", ""))


def _make_command(builtin: Builtin, operations: Operations) -> Callable[..., None]:
    # A parameter can't have the name of a keyword, and ``from`` is one.
    fields = {
        f"given_{each.name}": each
        for each in (*builtin.fields, *builtin.controls, *builtin.unlisted)
    }

    from trails.surfaces.cli.calls import read_arguments  # noqa: PLC0415
    from trails.surfaces.cli.values import show_result  # noqa: PLC0415

    def command(**given: Any) -> None:  # noqa: ANN401 - Typer passes what the signature says
        place = (given["project"], given["server"], given["graph"])
        with open_session(operations, *place, as_json=given["as_json"]) as (report, session):
            texts = [
                f"{field.name}={text}"
                for name, field in fields.items()
                for text in _texts(given[name])
            ]
            arguments = read_arguments(texts, builtin.full_schema())
            report.value = result = session.record(builtin.name, arguments)
            report.text = list(show_result(result, session.nodes))

    parameters = [*(_parameter(name, each) for name, each in fields.items()), *_COMMON]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return command


def _parameter(name: str, field: PredicateDescriptor) -> Parameter:
    text = field.description
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
