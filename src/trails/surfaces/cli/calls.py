"""``trails call``, ``tools`` and ``graphs``: what there is, and what can be called.

Texts of the command line become JSON by the input schema of a tool; the call itself is checked
by the request pipeline, as for an agent.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Final

import typer

from trails.errors import NotFoundError, QueryError, TrailsError
from trails.model.capabilities import Tool
from trails.model.names import suggest
from trails.model.texts import read_json
from trails.surfaces.cli.operations import Operations, Session
from trails.surfaces.cli.options import (
    FolderOption,
    GraphOption,
    JsonOption,
    ServerOption,
    open_session,
    place_of,
)
from trails.surfaces.cli.output.markup import escape, indented
from trails.surfaces.cli.output.plain import USAGE
from trails.surfaces.cli.output.reporting import Reporting, complain, print_text
from trails.surfaces.cli.output.tables import TextTable
from trails.surfaces.cli.shell.tool_options import describe_tool, read_options
from trails.surfaces.cli.values import read_json_text as read_document
from trails.surfaces.cli.values import show_result

_PLAIN: Final = frozenset({"string"})


def add_call_commands(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""

    @cli.command(
        epilog="Examples: trails call tasks.finish --task Task/t1 · "
        "trails call tasks.finish --help",
        add_help_option=False,
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )
    def call(
        ctx: typer.Context,
        name: Annotated[
            str | None, typer.Argument(help="Name of a tool; 'trails tools' lists them.")
        ] = None,
        *,
        arg: Annotated[
            list[str] | None,
            typer.Option(
                "--arg",
                "-a",
                help="An argument, like --NAME VALUE; repeatable. Values other than text are JSON; "
                "repeat the option for each item of a list.",
                metavar="NAME=VALUE",
            ),
        ] = None,
        json_args: Annotated[
            Path | None,
            typer.Option(
                help="Read arguments from a JSON object; - is standard input.", metavar="FILE.json"
            ),
        ] = None,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
        show_help: Annotated[
            bool, typer.Option("--help", help="Show this message, or the options of a tool.")
        ] = False,
    ) -> None:
        """Call a capability, stored query or built-in, with the same checks as for an agent.

        The arguments of a tool are options: 'trails call NAME --help' lists them.
        """
        if name is None:
            print_text(escape(ctx.get_help()), stream=sys.stdout if show_help else sys.stderr)
            raise typer.Exit(0 if show_help else USAGE)
        with Reporting(as_json=as_json) as report:
            given = {} if json_args is None else _object(json_args)
            with operations.open(
                place_of(project, server), graph, report.progress, declared=True
            ) as session:
                tools = session.tools()
                if ctx.args or show_help:
                    tool = _known(tools, name)
                    schema = tool.full_schema
                    if show_help:
                        report.value = {"tools": [tool]}
                        report.text = list(describe_tool(tool.name, tool.description, schema))
                        return
                    options = read_options(ctx.args, tool.name, schema)
                    given |= read_arguments([*(arg or ()), *options.arguments], schema)
                    if options.params:
                        given["params"] = read_params(options.params, schema, given.get("params"))
                elif arg:
                    found = _found(tools, name)
                    given |= read_arguments(arg, {} if found is None else found.full_schema)
                _warn(_found(tools, name))
                result = _call(session, name, given)
                report.value = result
                report.text = list(show_result(result, session.nodes))

    @cli.command(epilog="Example: trails tools tasks.finish")
    def tools(
        name: Annotated[str | None, typer.Argument(help="Show this tool in full.")] = None,
        *,
        project: FolderOption = None,
        server: ServerOption = None,
        graph: GraphOption = None,
        as_json: JsonOption = False,
    ) -> None:
        """List the tools that can be called: capabilities, stored queries and built-ins."""
        with open_session(operations, project, server, graph, as_json=as_json, declared=True) as (
            report,
            session,
        ):
            found = session.tools()
            if name is not None:
                found = [_known(found, name)]
            report.value = {"tools": found}
            for each in found:
                change = "" if each.hints.read_only else " [yellow](changes data)[/]"
                if each.deprecated is not None:
                    change += f" [yellow](deprecated: use {escape(each.deprecated.by)})[/]"
                report.text.append(f"[bold]{escape(each.name)}[/]{change}")
                text = each.description if name else each.description.partition("\n")[0]
                report.text.append(indented(escape(text), 2))
                report.text += [
                    indented(f"--arg {line}", 4)
                    for line in list_parameters(each.full_schema if name else each.input_schema)
                ]


def add_graphs_command(cli: typer.Typer, operations: Operations) -> None:
    """Add them to the command line."""

    @cli.command(epilog="Example: trails graphs")
    def graphs(
        *, project: FolderOption = None, server: ServerOption = None, as_json: JsonOption = False
    ) -> None:
        """List the graphs of the project, or of a server."""
        with Reporting(as_json=as_json) as report:
            found = operations.graphs(place_of(project, server))
            report.value = {"graphs": [{"graph": name, "uri": uri} for name, uri in found.items()]}
            table = TextTable("graph", "uri")
            for name, uri in found.items():
                table.add_row(escape(name), escape(uri))
            report.text = [table] if found else ["No graphs."]


def read_arguments(
    given: Sequence[str], schema: Mapping[str, object], option: str = "--arg"
) -> dict[str, object]:
    """Arguments in JSON form: a tool's schema says what a text means.

    What can't be read stays text, so that the call's own check says what is expected.
    """
    declared = schema.get("properties")
    found: dict[str, object] = {}
    for text in given:
        name, mark, value = text.partition("=")
        if not mark or not name:
            raise QueryError(f"invalid {option} {text!r}; write it as name=value")
        wanted = declared.get(name) if isinstance(declared, Mapping) else None
        types = _types(wanted)
        if "array" in types:
            known = found.setdefault(name, [])
            assert isinstance(known, list)  # noqa: S101 - set by the line above
            known.extend(_items(wanted, value))
        elif name in found:
            raise QueryError(f"{option} {name} is given twice, but it is not a list")
        else:
            found[name] = value if types & _PLAIN else read_json(value)
    return found


def read_params(
    given: Sequence[str], schema: Mapping[str, object], others: object
) -> dict[str, object]:
    """The parameters of a stored query, beside those of its argument ``params``."""
    declared = schema.get("properties")
    inner = declared.get("params") if isinstance(declared, Mapping) else None
    found = read_arguments(given, inner if isinstance(inner, Mapping) else {}, "option")
    return {**(others if isinstance(others, Mapping) else {}), **found}


def _items(wanted: object, text: str) -> Sequence[object]:
    if text.startswith("["):
        items = read_json(text)
        if isinstance(items, list):
            return items
    inner = wanted.get("items") if isinstance(wanted, Mapping) else None
    return [text if _types(inner) & _PLAIN else read_json(text)]


def _types(schema: object) -> frozenset[str]:
    """The JSON types that a schema allows."""
    if not isinstance(schema, Mapping):
        return frozenset()
    given = schema.get("type")
    found = {given} if isinstance(given, str) else set(given) if isinstance(given, list) else set()
    if isinstance(schema.get("enum"), list) and not found:
        found = {"string"} if all(isinstance(each, str) for each in schema["enum"]) else set()
    for key in ("anyOf", "oneOf"):
        for each in schema.get(key) or ():
            found |= _types(each)
    return frozenset(found)


def _object(file: Path) -> dict[str, object]:
    content = read_document(file)
    if not isinstance(content, dict):
        raise QueryError(f"{file} must contain a JSON object of arguments: {{…}}")
    return content


def _warn(tool: Tool | None) -> None:
    """Name what replaces a deprecated tool, on standard error."""
    if tool is not None and tool.deprecated is not None:
        complain(f"{tool.name} is deprecated; use {tool.deprecated.by}")


def _call(session: Session, name: str, arguments: Mapping[str, object]) -> Mapping[str, object]:
    try:
        return session.call(name, arguments)
    except TrailsError as error:
        if error.code == "unknown":
            _known(session.tools(), name)  # raises an error that suggests a tool
        raise


def _found(tools: Sequence[Tool], name: str) -> Tool | None:
    """A tool by its name, or by its spelling without dots."""
    spelled = (each for each in tools if name in {each.name, each.name.replace(".", "_")})
    return next(spelled, None)


def _known(tools: Sequence[Tool], name: str) -> Tool:
    found = _found(tools, name)
    if found is None:
        hint = suggest(name, [each.name for each in tools])
        raise NotFoundError(f"there is no tool {name[:100]!r}; {hint}")
    return found


def _members(schema: object) -> str:
    """The members of an object: `` {"day": string, "limit": integer}``; empty for other values."""
    inner = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(inner, Mapping) or not inner:
        return ""
    shown = ", ".join(f'"{name}": {_kind(each)}' for name, each in inner.items())
    return f" {{{shown}}}"


def _kind(schema: object) -> str:
    return "|".join(sorted(_types(schema) - {"null"})) or "JSON"


def list_parameters(schema: Mapping[str, object]) -> list[str]:
    """The arguments that a schema declares, a line each, required ones first."""
    declared, needed = schema.get("properties"), schema.get("required")
    required = needed if isinstance(needed, list | tuple) else ()
    lines = []
    for name, each in declared.items() if isinstance(declared, Mapping) else ():
        kind = _kind(each)
        optional = "" if name in required else " [dim](optional)[/]"
        detail = each.get("description") if isinstance(each, Mapping) else None
        shown = f"  {escape(str(detail))}" if detail else ""
        shown += escape(_members(each))
        lines.append((name not in required, f"{escape(name)}=[italic]{kind}[/]{optional}{shown}"))
    return [line for _, line in sorted(lines, key=lambda each: each[0])]
