"""``trails.meta.gen.*`` for other files: queries, policies, another graph, the package of a plugin.

A query is checked by the parser that runs it, a policy against the types and the other policies,
before the diff is returned. Nothing is written.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Final, get_args

import msgspec

from trails.engine.session.context import GraphContext
from trails.engine.sparql.stored_queries import SUFFIX
from trails.errors import (
    DeclarationError,
    FieldError,
    NotFoundError,
    PolicyError,
    SourceError,
    ValidationError,
)
from trails.model.capabilities import Action
from trails.model.changes.file_diffs import make_diff
from trails.model.names import check_project_name, suggest
from trails.model.operations.authoring import GeneratedFiles
from trails.model.types import PredicateDescriptor, TypeDescriptor
from trails.projections.python.layout import docstring
from trails.request.builtins.declare import ToolContext, field
from trails.request.meta.generators import generated, generator
from trails.request.meta.queries import checked_query, read_query
from trails.request.meta.spec_arguments import read_spec
from trails.request.workspace import Workspace, need_workspace

_FILE: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_PLAIN: Final = re.compile(r"[A-Za-z][A-Za-z0-9 ,.;()/'-]*")
"""Texts that YAML reads as they are."""
_SETTINGS: Final = "trails.toml"
_CASES: Final = "# What the policies beside this file must answer: trails policy test\n"


def _check_file(name: str) -> None:
    if not _FILE.fullmatch(name):
        message = f"name: {name[:80]!r} names a file: lower-case letters, digits, '_' and '-'"
        raise ValidationError([FieldError("name", "pattern", message, name[:80])])


def _check_new(workspace: Workspace, path: str, where: str) -> None:
    if workspace.read(path) is not None:
        message = f"{where}: {path} exists already; choose another name, or edit it"
        raise ValidationError([FieldError(where, "taken", message, path)])


# --- queries -----------------------------------------------------------------


def _query(
    tool: ToolContext,
    ctx: GraphContext,
    name: str,
    description: str,
    type: str,
    columns: Sequence[str],
    where: Sequence[str],
) -> GeneratedFiles:
    workspace = need_workspace(tool.options.workspace)
    _check_file(name)
    path = f"{workspace.layout.queries}/{name}{SUFFIX}"
    _check_new(workspace, path, "name")
    found = ctx.kg.schema.by_name.get(type)
    if found is None:
        hint = suggest(type, list(ctx.kg.schema.by_name))
        message = f"type: there is no type {type[:64]!r}; {hint}"
        raise ValidationError([FieldError("type", "type", message, type[:64])])
    errors = [*_unknown(found, columns, "columns"), *_unknown(found, where, "where")]
    errors += [*_uncomparable(found, where)]
    if errors:
        raise ValidationError(errors)
    chosen = columns or [
        each.name for each in found.fields if not each.many and each.type.kind not in _LARGE
    ]
    text = _query_text(found, description, list(chosen), list(where))
    checked = checked_query(ctx, name, read_query(tool, ctx, name, text))
    if checked.problems:
        shown = "; ".join(each.message for each in checked.problems)
        message = f"name: the query can't be stored: {shown}"
        raise ValidationError([FieldError("name", "query", message, name)])
    return generated(make_diff({path: (None, text)}))


_LARGE: Final = frozenset({"Json", "Vector"})
_VARIABLE: Final = "node"


def _unknown(found: TypeDescriptor, names: Sequence[str], where: str) -> Iterator[FieldError]:
    for at, name in enumerate(names):
        place = f"{where}[{at}]"
        if name not in found.by_name:
            hint = suggest(name, list(found.by_name))
            message = f"{place}: {found.name} has no field {name[:64]!r}; {hint}"
            yield FieldError(place, "field", message, name[:64])
        elif name in names[:at]:
            yield FieldError(place, "field", f"{place}: {name} is named twice", name)


def _uncomparable(found: TypeDescriptor, names: Sequence[str]) -> Iterator[FieldError]:
    for at, name in enumerate(names):
        each = found.by_name.get(name)
        if each is not None and each.type.scalar.kind in _LARGE:
            message = f"where[{at}]: values of {name} can't be compared; choose another field"
            yield FieldError(f"where[{at}]", "field", message, name)


def _query_text(
    found: TypeDescriptor, description: str, columns: list[str], where: list[str]
) -> str:
    """A SELECT over the nodes of a type; each parameter may be left out."""
    lines = [f"#+ description: {_yaml(description)}"]
    if where:
        lines.append("#+ params:")
    for name in where:
        kind = str(found.by_name[name].type.scalar)
        lines.append(f"#+   {name}: {{ type: {json.dumps(kind)}, nullable: true }}")
    variables = {name: _variable(name) for name in (*columns, *where)}
    shown = " ".join(f"?{variables[name]}" for name in columns)
    lines += [f"SELECT ?{_VARIABLE} {shown}".rstrip(), "WHERE {"]
    lines.append(f"  ?{_VARIABLE} a {_term(found.iri)} .")
    for name in dict.fromkeys((*columns, *where)):
        each = found.by_name[name]
        triple = f"?{_VARIABLE} {_term(each.iri)} ?{variables[name]} ."
        lines.append(f"  {triple}" if each.required else f"  OPTIONAL {{ {triple} }}")
    lines += [f"  FILTER (!BOUND(${name}) || ?{variables[name]} = ${name})" for name in where]
    ordered = _order(found, columns)
    lines += ["}", f"ORDER BY ?{variables[ordered]}" if ordered else f"ORDER BY ?{_VARIABLE}"]
    return "\n".join(lines) + "\n"


def _variable(name: str) -> str:
    return f"{name}_value" if name == _VARIABLE else name


def _order(found: TypeDescriptor, columns: Sequence[str]) -> str | None:
    """The column that names a node, if it is shown."""
    for each in (found.label, found.key):
        if isinstance(each, PredicateDescriptor) and each.name in columns:
            return each.name
    return None


def _term(iri: str) -> str:
    return f"<{iri}>" if ":" in iri else f":{iri}"


def _yaml(text: str) -> str:
    plain = _PLAIN.fullmatch(text) and not text.endswith(" ") and text.lower() not in _WORDS
    return text if plain else json.dumps(text, ensure_ascii=False)


_WORDS: Final = frozenset({"true", "false", "null", "yes", "no", "on", "off", "y", "n"})


# --- policies ----------------------------------------------------------------


class PolicyArguments(msgspec.Struct, frozen=True):
    """What a policy is generated from."""

    name: str
    actions: tuple[str, ...]
    effect: str = "permit"
    group: str | None = None
    actor: str | None = None
    resource: str | None = None
    branch: str | None = None
    description: str | None = None


def _policy(tool: ToolContext, ctx: GraphContext, **arguments: object) -> GeneratedFiles:
    del ctx
    workspace = need_workspace(tool.options.workspace)
    given = read_spec(PolicyArguments, arguments, "name")
    _check_file(given.name)
    if (given.group is None) == (given.actor is None):
        message = "group: give a group or an actor, and not both"
        raise ValidationError([FieldError("group", "required", message)])
    folder = workspace.layout.policies
    path, cases = f"{folder}/{given.name}.cedar", f"{folder}/tests.toml"
    _check_new(workspace, path, "name")
    resource = given.resource or f"Graph::{tool.service.graph.name}"
    text = _policy_text(given, resource)
    _check_policy(tool, f"{given.name}.cedar", text)
    before = workspace.read(cases)
    after = _with_case(before, _case(given, resource))
    is_first = not workspace.list(folder, ".cedar")
    diff = make_diff({path: (None, text), cases: (before, after)})
    return generated(diff, *_policy_notes(is_first=is_first))


def _policy_text(given: PolicyArguments, resource: str) -> str:
    kind, _, target = resource.partition("::")
    if kind not in _KINDS or not target:
        message = f"resource: {resource[:100]!r} is not one of {_RESOURCES}"
        raise ValidationError([FieldError("resource", "pattern", message, resource[:100])])
    if given.group is not None:
        who = f"in Group::{_cedar(given.group)}"
    else:
        who = f"== Actor::{_cedar(str(given.actor))}"
    actions = ", ".join(f'Action::"{each}"' for each in given.actions)
    lines = [
        f"@id({_cedar(given.description or given.name)})",
        f"{given.effect} (",
        f"  principal {who},",
        f"  action in [{actions}],",
        f"  resource in {kind}::{_cedar(target)}",
        ")",
    ]
    if given.branch is not None:
        compared = "like" if "*" in given.branch else "=="
        lines.append(f"when {{ context.branch {compared} {_cedar(given.branch)} }}")
    return "\n".join(lines) + ";\n"


def _case(given: PolicyArguments, resource: str) -> dict[str, object]:
    """A question that the policy answers."""
    return {
        "actor": given.actor or "someone",
        "groups": [given.group] if given.group else [],
        "action": given.actions[0],
        "resource": resource,
        "branch": (given.branch or "main").replace("*", "one"),
        "expect": "allow" if given.effect == "permit" else "deny",
    }


_KINDS: Final = ("Graph", "Type", "Field", "Query", "Capability")
_RESOURCES: Final = (
    "Graph::<id>, Type::<name>, Field::<Type.field>, Query::<name>, Capability::<id>"
)


def _policy_notes(*, is_first: bool) -> Iterator[str]:
    yield "run trails_meta_policy_test after it is applied: the case in tests.toml must pass"
    if is_first:
        yield (
            "this is the first policy of the graph: from then on only what a policy permits is "
            'allowed; the user of this machine is Actor::"local"'
        )


def _check_policy(tool: ToolContext, name: str, text: str) -> None:
    """Have Cedar check it, together with the other policies and the types."""
    if tool.options.policies is None:
        raise NotFoundError("this graph has no project folder, so it has no policies")
    try:
        tool.options.policies.check_new(name, text)
    except PolicyError as error:
        message = f"resource: the policy can't be used: {error.message}"
        raise ValidationError([FieldError("resource", "policy", message)]) from None


def _cedar(text: str) -> str:
    """A string of Cedar; ``*`` of a pattern stays."""
    escaped = "".join(
        f"\\{char}" if char in '"\\' else char if char.isprintable() else f"\\u{{{ord(char):x}}}"
        for char in text
    )
    return f'"{escaped}"'


def _with_case(before: str | None, case: dict[str, object]) -> str:
    """The file of cases with one more."""
    end = "\r\n" if before is not None and "\r\n" in before else "\n"
    lines = ["[[case]]", *(f"{key} = {_toml(each)}" for key, each in case.items() if each != [])]
    start = "" if not before else before if before.endswith("\n") else before + end
    return start + (end if start else "") + "".join(line + end for line in lines)


def _toml(value: object) -> str:
    """A string or a list of strings; DEL is the one character that TOML escapes and JSON not."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


# --- another graph -----------------------------------------------------------


def _app(
    tool: ToolContext, ctx: GraphContext, graph: str, description: str | None
) -> GeneratedFiles:
    del ctx
    workspace = need_workspace(tool.options.workspace)
    try:
        check_project_name(graph)
    except DeclarationError as error:
        message = f"graph: {error.message}"
        raise ValidationError([FieldError("graph", "pattern", message, graph[:100])]) from None
    settings = workspace.read(_SETTINGS) or ""
    try:
        known = tomllib.loads(settings).get("graphs", {})
    except tomllib.TOMLDecodeError as error:
        raise SourceError(
            f"{_SETTINGS} can't be read: {error}; correct it", path=_SETTINGS, lines=[]
        ) from None
    if graph in (known or {"main": {}}):
        message = f"graph: this project has a graph {graph!r} already; choose another name"
        raise ValidationError([FieldError("graph", "taken", message, graph)])
    path = f"{graph}/app.py"
    _check_new(workspace, path, "graph")
    text = description.strip() if description else f"Types and capabilities of the graph {graph}."
    module = "\n".join((*docstring(text, ""), "", "from __future__ import annotations", ""))
    end = "\r\n" if "\r\n" in settings else "\n"
    # A project without such tables has the graph main, which the first table would end.
    tables = [] if known else ["[graphs.main]", 'app = "app.py"', ""]
    tables += [
        f"[graphs.{graph}]",
        f'app = "{path}"',
        f'queries = "{graph}/queries"',
        f'policies = "{graph}/policies"',
    ]
    start = settings if settings.endswith("\n") or not settings else settings + end
    after = start + end + "".join(line + end for line in tables)
    # The folder of policies must exist if the settings name one.
    cases = f"{graph}/policies/tests.toml"
    diff = make_diff({_SETTINGS: (settings, after), path: (None, module), cases: (None, _CASES)})
    return generated(diff, "restart the server after it is applied: new graphs are opened then")


# --- plugins -------------------------------------------------------------------------------


def _plugin(
    tool: ToolContext, ctx: GraphContext, name: str, description: str | None
) -> GeneratedFiles:
    del ctx
    workspace = need_workspace(tool.options.workspace)
    if not _PLUGIN.fullmatch(name):
        message = "name: a plugin has lower-case words joined by '-', like 'geo' or 'bank-holidays'"
        raise ValidationError([FieldError("name", "pattern", message, name[:100])])
    module = f"trails_{name.replace('-', '_')}"
    root = f"plugins/{name}"
    said = " ".join((description or f"The plugin {name} for Trails.").split())
    texts = {
        f"{root}/pyproject.toml": _PLUGIN_PROJECT.format(
            name=name, module=module, said=json.dumps(said, ensure_ascii=False)
        ),
        f"{root}/README.md": _PLUGIN_README.format(name=name, root=root, said=said),
        f"{root}/src/{module}/__init__.py": "\n".join(
            (*docstring(said, ""), _PLUGIN_PACKAGE.format(name=name, module=module))
        ),
        f"{root}/src/{module}/capabilities.py": _PLUGIN_CAPABILITIES.format(
            name=name, dotted=name.replace("-", "_")
        ),
    }
    for path in texts:
        _check_new(workspace, path, "name")
    return generated(
        make_diff({path: (None, text) for path, text in texts.items()}),
        f"install it with 'pip install -e {root}', and enable it in trails.toml: "
        f'[project] plugins = ["{name}"]',
    )


_PLUGIN: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_PLUGIN_PROJECT: Final = """\
[build-system]
requires = ["hatchling>=1.27"]
build-backend = "hatchling.build"

[project]
name = "trails-{name}"
version = "0.1.0"
description = {said}
requires-python = ">=3.11"
dependencies = ["trails>=0.1"]

[project.entry-points."trails.plugins"]
{name} = "{module}:plugin"

[tool.hatch.build.targets.wheel]
packages = ["src/{module}"]
"""
_PLUGIN_README: Final = """\
# trails-{name}

{said}

Install it with `pip install -e {root}`, and enable it in `trails.toml`:

```toml
[project]
plugins = ["{name}"]
```
"""
_PLUGIN_PACKAGE: Final = """
from __future__ import annotations

from trails import Plugin

plugin = Plugin(
    name="{name}",
    version="0.1.0",
    requires=">=0.1,<1",
    modules=("{module}.capabilities",),
)
"""
_PLUGIN_CAPABILITIES: Final = '''\
"""The capabilities of the plugin {name}."""

from __future__ import annotations

from importlib.metadata import version

from trails import Context, capability


@capability("{dotted}.version", side_effects=["none"])
def plugin_version(ctx: Context) -> str:
    """Return the version of the plugin {name}."""
    return version("trails-{name}")
'''


QUERY: Final = generator(
    "query",
    title="Generate a stored query",
    description=(
        "Write a stored query (SPARQL with header) that lists the nodes of a type, with parameters "
        "that filter it; returns the diff, changes nothing. For another text use "
        "trails_meta_query_add."
    ),
    fields=(
        field("name", "The name of its file and tool.", required=True, max_length=64),
        field("description", "What it finds.", required=True, min_length=1, max_length=1000),
        field("type", "The type of the nodes.", required=True, max_length=64),
        field("columns", "Fields that it shows; by default all that have one value.", many=True),
        field("where", "Fields that become parameters.", many=True),
    ),
    run=_query,
)

POLICY: Final = generator(
    "policy",
    title="Generate a policy",
    description=(
        "Write a Cedar policy for a group or an actor, and a case that tests it; returns the diff, "
        "changes nothing."
    ),
    fields=(
        field("name", "The name of its file.", required=True, max_length=64),
        field("effect", "permit or forbid.", default="permit", one_of=["permit", "forbid"]),
        field(
            "actions",
            "What it is about.",
            many=True,
            required=True,
            one_of=list(get_args(Action)),
        ),
        field("group", "Whom it is about.", min_length=1, max_length=100),
        field("actor", "One actor instead.", min_length=1, max_length=100),
        field("resource", "Like Type::Task; by default the graph.", max_length=200),
        field("branch", "Only on branches like this: agents/*.", min_length=1, max_length=100),
        field("description", "Its @id.", min_length=1, max_length=200),
    ),
    run=_policy,
)

APP: Final = generator(
    "app",
    title="Generate another graph",
    description=(
        "Write the module and the settings of another graph of the project; returns the diff, "
        "changes nothing."
    ),
    fields=(
        field("graph", "Its id.", required=True, max_length=63),
        field("description", "What it is about.", max_length=1000),
    ),
    run=_app,
)

PLUGIN: Final = generator(
    "plugin",
    title="Generate a plugin",
    description=(
        "Write the package of a plugin, with an entry point and a capability, in plugins/; returns "
        "the diff, changes nothing."
    ),
    fields=(
        field("name", "Lower-case words joined by '-'.", required=True, max_length=40),
        field("description", "What it adds.", max_length=500),
    ),
    run=_plugin,
)

META: Final = (QUERY, POLICY, APP, PLUGIN)
