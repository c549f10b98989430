"""The parts of the reference that are made from the code.

A page of ``docs/reference`` has such a part between ``<!-- made: NAME -->`` and ``<!-- end -->``.
"""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import msgspec
from msgspec import inspect as types
from typer.main import get_command

from trails import App, Node, errors, node_type, predicate
from trails.app.local import LocalOperations
from trails.app.settings import Settings
from trails.model.names import portable_name
from trails.model.results import Failure, FailureKind
from trails.model.upkeep import FINDINGS
from trails.projections.problems import PROBLEMS
from trails.projections.resources import project_resources
from trails.request.operations import BUILTINS, BY_NAME, OPERATIONS
from trails.request.transfers import TRANSFERS
from trails.surfaces.cli.commands import build_cli
from trails.surfaces.cli.shell.catalog import HEADINGS
from trails.surfaces.mcp.failures import ErrorResult, map_failure
from trails.surfaces.mcp.wire import MODERN
from trails.surfaces.rest.replies import BY_CODE, BY_KIND, status_of

PAGES = Path(__file__).parents[2] / "docs" / "reference"
ERRORS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type)
    and issubclass(each, errors.TrailsError)
    and each is not errors.TrailsError
]
OLDER, NEWEST = "2025-11-25", max(MODERN)


@node_type
class Thing(Node):
    """Something."""

    name: str = predicate(key=True)


def cell(text):
    """A text in a table, on one line."""
    return " ".join(text.split()).replace("|", "\\|")


def sentence(text):
    """The first sentence of a description."""
    return cell(re.split(r"(?<=\.)\s", text.strip())[0])


def tools():
    """Every tool that any graph may have."""
    yield from ("| tool | takes | does |", "|---|---|---|")
    for tool in sorted((*BUILTINS, *BY_NAME), key=lambda each: each.name):
        takes = ", ".join(f"`{each.name}`" for each in (*tool.fields, *tool.controls))
        yield f"| `{tool.name}` | {takes} | {sentence(tool.description)} |"
    for meta in App(Thing).registry().metas.values():
        yield f"| `{portable_name(meta.id)}` | | {sentence(meta.descriptor.description)} |"


def operations():
    """Every operation: the tool, its own routes, and what policies must allow."""
    yield from ("| operation | MCP tool | REST | action |", "|---|---|---|---|")
    tools = {each.name for each in (*BUILTINS, *BY_NAME)}
    found = {}
    for each in (*OPERATIONS, *TRANSFERS):
        found.setdefault(each.name, []).append(each)
    for name, declared in sorted(found.items()):
        tool = f"`{name}`" if name in tools else ""
        paths = {f"`{route.method} /{route.path}`": 0 for each in declared for route in each.routes}
        actions = {
            f"`{need}`": 0 for each in declared for need in (each.action, *each.also) if need
        }
        title = cell(declared[0].title)
        yield f"| {title} | {tool} | {', '.join(paths)} | {', '.join(actions)} |"


def resources():
    """Every resource and template; ``Type`` stands for each type of the graph."""
    yield from ("| URI | is |", "|---|---|")
    listed = project_resources(App(Thing).registry().schema)
    uris = [(each.uri, each) for each in listed.resources]
    uris += [(each.uri_template, each) for each in listed.templates]
    for uri, each in uris:
        yield f"| `{uri}` | {sentence(each.description)} |".replace("Thing", "Type")


def failures():
    """Every kind of failure, on each surface."""
    yield from (f"| failure | MCP until {OLDER} | MCP {NEWEST} | REST |", "|---|---|---|---|")
    for kind in get_args(FailureKind):
        failure = Failure(kind, kind, "message")
        shown = [shown_by_mcp(failure, revision) for revision in (OLDER, NEWEST)]
        status = BY_KIND.get(kind) or f"by its code, else {status_of(failure)}"
        yield f"| {kind} | {shown[0]} | {shown[1]} | {status} |"
    yield ""
    yield "By its code:"
    yield ""
    by_status = {}
    for code, status in BY_CODE.items():
        by_status.setdefault(status, []).append(f"`{code}`")
    rows = (f"{status} {', '.join(by_status[status])}" for status in sorted(by_status))
    yield "; ".join(rows) + "."


def shown_by_mcp(failure, revision):
    """How a tool's failure is shown to a client."""
    mapped = map_failure(failure, revision, "protocol")
    return "a result with `isError`" if isinstance(mapped, ErrorResult) else f"error {mapped.code}"


def problems():
    """Every code that Trails itself sends over HTTP."""
    yield from ("| code | title | meaning |", "|---|---|---|")
    for code, known in PROBLEMS.items():
        yield f"| `{code}` | {cell(known.title)} | {cell(known.meaning)} |"


def settings():
    """Every table of ``trails.toml``, and every key with its type, default and meaning."""
    for title, struct in setting_tables(Settings, ""):
        yield from (f"## `{title}`", "", *described(struct), "")
        yield from ("| key | type | default | meaning |", "|---|---|---|---|")
        meanings = field_docstrings(struct)
        for field in msgspec.structs.fields(struct):
            if nested(field.type) is None:
                meaning = meanings.get(field.encode_name)
                assert meaning, f"{struct.__name__}.{field.name} has no docstring"
                default = "required" if field.required else f"`{toml(field.default)}`"
                shown = type_name(types.type_info(field.type))
                yield f"| `{field.encode_name}` | {shown} | {default} | {cell(meaning)} |"
        yield ""


def setting_tables(struct, title) -> Iterator[tuple[str, type]]:
    """Every table of the settings file that has keys of its own, with its heading."""
    for field in msgspec.structs.fields(struct):
        found = nested(field.type)
        if found is not None:
            inner, many = found
            by_name = "<id>" if many == "by name" else ""
            name = ".".join(filter(None, (title.strip("[]"), field.name, by_name)))
            if any(nested(each.type) is None for each in msgspec.structs.fields(inner)):
                yield f"[[{name}]]" if many == "in a list" else f"[{name}]", inner
            yield from setting_tables(inner, f"[{name}]")


def nested(annotation):
    """The struct that a setting is a table of, and how there can be many of them, if at all."""
    info = types.type_info(annotation)
    options = info.types if isinstance(info, types.UnionType) else (info,)
    for each in options:
        if isinstance(each, types.StructType):
            return each.cls, ""
        if isinstance(each, types.DictType) and isinstance(each.value_type, types.StructType):
            return each.value_type.cls, "by name"
        if isinstance(each, types.VarTupleType) and isinstance(each.item_type, types.StructType):
            return each.item_type.cls, "in a list"
    return None


def described(struct):
    """The docstring of a struct, which begins with the name of its table."""
    text = cell(struct.__doc__ or "").partition(": ")[2]
    assert text, f"{struct.__name__} has no docstring like '``[table]``: what it is for.'"
    yield (text[0].upper() + text[1:]).replace("``", "`")


def field_docstrings(struct):
    """The docstring below each field; Python keeps them in the source only."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            found[field.target.id] = ast.literal_eval(text.value).replace("``", "`")
    return found


def type_name(info):
    """A type as people say it."""
    match info:
        case types.BoolType():
            return "boolean"
        case types.StrType():
            return "string"
        case types.LiteralType():
            return "one of " + ", ".join(f"`{toml(each)}`" for each in info.values)
        case types.IntType() | types.FloatType():
            kind = "integer" if isinstance(info, types.IntType) else "number"
            return ", ".join((kind, *bounds(info)))
        case types.VarTupleType():
            kind, *rest = type_name(info.item_type).split(", ")
            return ", ".join((f"list of {kind}s", *rest))
        case types.DictType():
            return f"table of {type_name(info.value_type)}s"
    raise AssertionError(info)


def bounds(info):
    """The range of a number."""
    for sign, bound in (("≥", info.ge), (">", info.gt), ("≤", info.le)):
        if bound is not None:
            yield f"{sign} {bound}"


def toml(value):
    """A default as it is written in TOML."""
    match value:
        case bool():
            return str(value).lower()
        case str():
            return f'"{value}"'
        case tuple():
            return f"[{', '.join(map(toml, value))}]"
        case dict():
            return "{}"
    return str(value)


EVERYWHERE = ("--project", "--server", "--graph", "--json")
"""Options that mean the same wherever they are."""


def commands():
    """Every command with its arguments and options, under the headings of ``trails --help``."""
    built = get_command(build_cli(LocalOperations())).commands
    for heading, listed in HEADINGS.items():
        yield from (f"## {heading}", "")
        for each in listed:
            for path, leaf in leaves(f"trails {each.name}", built[each.name]):
                yield from describe_command(path, leaf)


def leaves(path, command):
    """A command, or those of a group."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, each in command.commands.items():
        yield from leaves(f"{path} {name}", each)


def describe_command(path, command):
    """One command: what it does, how it is called, its options."""
    shown = [each for each in command.params if not each.hidden]
    given = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option"]
    own = [each for each in options if not {*each.opts} & {*EVERYWHERE}]
    usage = " ".join((path, *map(argument_usage, given), *(["[OPTIONS]"] if own else [])))
    yield from (f"### `{path}`", "", command.help.strip(), "", "```", usage)
    if command.epilog:
        examples = command.epilog.removeprefix("Example:").removeprefix("Examples:")
        yield from ("", "# for example", *(each.strip() for each in examples.split(" · ")))
    yield from ("```", "")
    rows = [(argument_usage(each), each) for each in given if each.help]
    rows += [(option_usage(each), each) for each in own]
    if rows:
        yield from ("| argument or option | meaning |", "|---|---|")
        for text, each in rows:
            yield f"| `{cell(text)}` | {cell(each.help or '')}{default_of(each)} |"
        yield ""
    common = [name for name in EVERYWHERE if any(name in each.opts for each in options)]
    yield from (f"Also {', '.join(f'`{name}`' for name in common)}.", "")


def argument_usage(argument):
    """An argument as it is typed."""
    name = (argument.metavar or argument.name).upper()
    name = f"{name}..." if argument.nargs != 1 else name
    return name if argument.required else f"[{name}]"


def option_usage(option):
    """An option as it is typed."""
    names = ", ".join((*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    choices = option.type_descriptor.choices or ()
    kind = "|".join(str(getattr(each, "value", each)) for each in choices)
    value = option.metavar or kind or VALUES[option.bare_type()]
    return f"{names} {value}{'...' if option.multiple else ''}"


VALUES = {
    "str": "TEXT",
    "list[str]": "TEXT",
    "int": "N",
    "float": "N",
    "Path": "PATH",
    "list[Path]": "PATH",
}


def default_of(parameter):
    """The default, where it says something."""
    if isinstance(parameter.show_default, str):
        return f" Default: {parameter.show_default}."
    if parameter.required:
        return " Required." if parameter.param_type_name == "option" else ""
    default = parameter.default
    if not isinstance(default, str | int) or default in {False, ""}:
        return ""
    return f" Default: `{default}`."


def findings():
    """Every code of a finding, by what is checked."""
    yield from ("| code | check | severity | meaning |", "|---|---|---|---|")
    for code, known in FINDINGS.items():
        yield f"| `{code}` | {known.name} | {known.severity} | {cell(known.meaning)} |"


PARTS = {
    each.__name__: each
    for each in (operations, tools, resources, failures, problems, settings, commands, findings)
}
