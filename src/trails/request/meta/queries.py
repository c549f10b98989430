"""``trails.meta.query.*``: check, add and explain stored queries.

A text is checked as the file of a stored query would be: header, parameters, the classes and fields
that it names, and its syntax, which the confined parser decides. Nothing is run and no file is
written: ``add`` returns a diff.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from trails.engine.session.context import GraphContext
from trails.engine.sparql.reach import reach_of
from trails.engine.sparql.stored_queries import SUFFIX, LoadedQueries, check_text
from trails.errors import DeclarationError, FieldError, NotFoundError, QueryError, ValidationError
from trails.model.capabilities import StoredQuery
from trails.model.changes.file_diffs import make_diff
from trails.model.iris import Names
from trails.model.names import BUILTIN_TOOLS, portable_name, suggest
from trails.model.operations.authoring import (
    CheckedQuery,
    ExplainedQuery,
    QueryFileDiff,
    QueryMistake,
    QueryReach,
    TouchedType,
)
from trails.model.types import Schema
from trails.projections.tools import BRANCH, MAX_CHARS, project_query_input
from trails.registry.query_headers import MARK
from trails.request.builtins.declare import READER, ToolContext, field, meta_operation
from trails.request.meta.impact import may_call
from trails.request.workspace import need_workspace

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_MANY: Final = 100_000
"""Nodes from which on a query without a type is called slow."""


def read_query(
    tool: ToolContext, ctx: GraphContext, name: str, text: str, schema: Schema | None = None
) -> LoadedQueries:
    """A text as the file of a stored query, with all mistakes; by default with today's types."""
    if not _NAME.fullmatch(name):
        message = "name: it is the name of a file: letters, digits, '_' and '-', at most 64"
        raise ValidationError([FieldError("name", "pattern", message, name[:100])])

    def check(text: str, names: Names, *, update: bool) -> str | None:
        try:
            tool.service.untrusted.sandbox.check(text, update=update, prefixes=names.prefixes)
        except QueryError as error:
            return error.message
        return None

    return check_text(text, name, f"{name}{SUFFIX}", schema or ctx.kg.schema, ctx.names, check)


def checked_query(ctx: GraphContext, name: str, found: LoadedQueries) -> CheckedQuery:
    """What a text would be as a stored query, or what is wrong with it."""
    problems = [QueryMistake(each.line, each.message, each.key) for each in found.problems]
    if not found.queries:
        return CheckedQuery(name, valid=False, problems=tuple(problems))
    query = found.queries[0]
    problems += _taken(ctx, query)
    reach = reach_of(query, ctx.kg.schema, ctx.names)
    return CheckedQuery(
        query.name,
        not problems,
        tuple(problems),
        query.effective_tool_name,
        query.mutation,
        project_query_input(query, ctx.registry),
        query.columns,
        QueryReach(
            reach.anything,
            tuple(sorted({*reach.types, *(name for name, _ in reach.fields)})),
            tuple(sorted(f"{name}.{field}" for name, field in reach.fields)),
        ),
    )


def _taken(ctx: GraphContext, query: StoredQuery) -> list[QueryMistake]:
    """Whether something else has the name of its tool already."""
    wanted = query.effective_tool_name
    builtins = {portable_name(name) for name in BUILTIN_TOOLS}
    others = {
        portable_name(name)
        for name, each in ctx.registry.tools.items()
        if may_call(ctx, each) and not (isinstance(each, StoredQuery) and each.name == query.name)
    }
    if portable_name(wanted) not in builtins | others:
        return []
    message = f"the tool name {wanted!r} is taken; rename the query, or give it a tool_name"
    return [QueryMistake(1, message, "tool_name")]


def _check(tool: ToolContext, ctx: GraphContext, name: str, text: str) -> CheckedQuery:
    return checked_query(ctx, name, read_query(tool, ctx, name, text))


def _add(tool: ToolContext, ctx: GraphContext, name: str, text: str) -> QueryFileDiff:
    workspace = need_workspace(tool.options.workspace)
    checked = checked_query(ctx, name, read_query(tool, ctx, name, text))
    if checked.problems:
        shown = "; ".join(
            f"{name}{SUFFIX}:{each.line}: {each.message}" for each in checked.problems
        )
        raise DeclarationError(shown, problems=[each.message for each in checked.problems])
    path = f"{workspace.layout.queries}/{name}{SUFFIX}"
    whole = text if text.endswith("\n") else text + "\n"
    return QueryFileDiff(checked, make_diff({path: (workspace.read(path), whole)}))


def _explain(
    tool: ToolContext, ctx: GraphContext, name: str | None, text: str | None
) -> ExplainedQuery:
    if (name is None) == (text is None):
        message = "name: give the name of a stored query, or a text, and not both"
        raise ValidationError([FieldError("name", "required", message)])
    if text is None:
        found = LoadedQueries((_stored(ctx, str(name)),), ())
    else:
        # What is explained need not be stored, so it needs no header.
        whole = text if text.startswith(MARK) else f"{MARK} description: A query.\n{text}"
        found = read_query(tool, ctx, "query", whole)
    checked = checked_query(ctx, name or "query", found)
    if checked.reach is None:
        raise QueryError("; ".join(each.message for each in checked.problems))
    return _touched(ctx, checked, checked.reach)


def _stored(ctx: GraphContext, name: str) -> StoredQuery:
    known = {key: each for key, each in ctx.registry.queries.items() if may_call(ctx, each)}
    if name not in known:
        hint = suggest(name, list(known)) if known else "this graph has none"
        raise NotFoundError(f"there is no stored query {name[:100]!r}; {hint}", query=name[:100])
    return known[name]


def _touched(ctx: GraphContext, checked: CheckedQuery, reach: QueryReach) -> ExplainedQuery:
    schema, counts = ctx.kg.schema, ctx.kg.counts()
    names = [each.name for each in schema.types] if reach.anything else list(reach.types)
    types = []
    for name in names:
        fields = tuple(
            each.partition(".")[2] for each in reach.fields if each.startswith(f"{name}.")
        )
        types.append(TouchedType(name, counts.get(name, 0), fields))
    roots = [name for name in names if not _has_ancestor(schema.lineage(name)[1:], names)]
    nodes = sum(counts.get(name, 0) for name in roots)
    notes = []
    if reach.anything:
        notes.append(
            "a variable of it can match nodes of every type, so only callers who see everything "
            "may run it; give the variable a class"
        )
    if nodes > _MANY:
        notes.append(f"it can match {nodes:,} nodes; a parameter that names a node makes it faster")
    return ExplainedQuery(checked, nodes, tuple(types), tuple(notes))


def _has_ancestor(ancestors: tuple[str, ...], names: list[str]) -> bool:
    return any(each in names for each in ancestors)


_TEXT: Final = field(
    "text",
    "A SPARQL query or update; lines that begin with #+ at its top are its header in YAML: "
    "description, params ($name in the text → type), tool_name, expose.",
    required=True,
    min_length=1,
)
_QUERY_NAME: Final = field("name", "The name of its file.", required=True, max_length=64)
_FIELDS: Final[Mapping[str, object]] = {"fields": (_QUERY_NAME, _TEXT), "controls": (BRANCH,)}

CHECK: Final = meta_operation(
    "trails.meta.query.check",
    "builder",
    title="Check a stored query",
    description=(
        "Check a SPARQL text as a stored query against the types: header, parameters, unknown "
        "classes and fields, syntax; and say what it can read. Nothing is run or written."
    ),
    result=CheckedQuery,
    hints=READER,
    action="Read",
    run=_check,
    **_FIELDS,
)

ADD: Final = meta_operation(
    "trails.meta.query.add",
    "builder",
    title="Add a stored query",
    description=(
        "Check a stored query and return the diff of its file, which is not applied: apply it with "
        "the operation for diffs, or by hand. An existing query of that name is replaced."
    ),
    result=QueryFileDiff,
    hints=READER,
    action="Read",
    run=_add,
    **_FIELDS,
)

EXPLAIN: Final = meta_operation(
    "trails.meta.query.explain",
    "builder",
    title="Explain a query",
    description=(
        "Say which types and fields a stored query or a text touches, with the numbers of nodes on "
        "the branch, and what makes it slow."
    ),
    fields=(
        field("name", "A stored query.", max_length=100),
        field("text", "A SPARQL text instead.", min_length=1),
    ),
    controls=(BRANCH, MAX_CHARS),
    result=ExplainedQuery,
    hints=READER,
    action="Read",
    run=_explain,
)

META: Final = (CHECK, ADD, EXPLAIN)
