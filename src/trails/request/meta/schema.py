"""``trails.meta.schema.*`` and ``schema_apply``: the types of a graph, shown and changed.

Reading and planning change nothing. ``apply`` changes types and data of a branch in one commit;
for ``main`` of a project with Python declarations, the files that declare the types change with
it. Planning looks at all nodes of a branch, so whoever plans must see all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, get_args

import msgspec

from trails.authoring.specs import shape_spec, type_spec
from trails.engine.graph.changes import describe_changes
from trails.engine.graph.declarations import FilePreview
from trails.engine.graph.graph import MAIN
from trails.engine.schema.diff import diff_schemas, likely_renames
from trails.engine.schema.plan import ChangeRequest, apply_change, plan_change
from trails.engine.schema.resolve import resolve
from trails.engine.session.context import GraphContext
from trails.engine.visibility.refs import RefResolver, reader
from trails.engine.write.write import IdempotencyKey
from trails.errors import FieldError, NotFoundError, SourceError, ValidationError
from trails.model.changes.file_diffs import FileDiff
from trails.model.changes.steps import (
    AddType,
    ChangePlan,
    RenameField,
    RenameType,
    Step,
    TypeSpec,
)
from trails.model.history import Rename
from trails.model.names import suggest
from trails.model.operations.graph import SchemaResult
from trails.model.operations.pages import Call
from trails.model.operations.schema import (
    MEDIA_TYPES,
    DeclaredTypes,
    ExportedSchema,
    ExportFormat,
    ImpactItem,
    SchemaChange,
    SchemaDifference,
    SchemaImpact,
    SchemaSource,
)
from trails.model.results import QueryAnswer
from trails.model.types import Schema
from trails.projections.documents import project_schema_definitions
from trails.projections.python.declarations import write_module
from trails.projections.shacl import project_shacl
from trails.projections.tools import BRANCH, EXPECTED_HEAD, IDEMPOTENCY_KEY, MAX_CHARS, SNAPSHOT
from trails.projections.vocabulary import project_vocabulary
from trails.request.builtins.declare import (
    MESSAGE,
    READER,
    WRITER,
    Builtin,
    Route,
    ToolContext,
    field,
    meta_operation,
)
from trails.request.builtins.graph import named_types, outline_page
from trails.request.fitting import Page
from trails.request.meta.impact import find_impact

_PAGE: Final = 100
"""Violations that one answer lists."""
_KINDS: Final = {each.__struct_config__.tag: each for each in get_args(Step)}
_EXAMPLE: Final = '{"step": "rename_field", "type": "Task", "field": "state", "to": "status"}'

_TYPE_EXAMPLE: Final = '{"name": "Task", "fields": [{"name": "title", "type": "str"}]}'


# --- arguments -----------------------------------------------------------------------------


def read_steps(given: Sequence[object]) -> tuple[Step, ...]:
    """Steps as a call gives them; ValidationError with every mistake."""
    steps: list[Step] = []
    errors: list[FieldError] = []
    for at, each in enumerate(given):
        where = f"steps[{at}]"
        kind = each.get("step") if isinstance(each, Mapping) else None
        if kind not in _KINDS:
            known = [str(name) for name in _KINDS]
            hint = suggest(kind, known) if isinstance(kind, str) else f"one of {', '.join(known)}"
            message = f"{where}.step: {str(kind)[:100]!r} is not a step; {hint}"
            errors.append(FieldError(f"{where}.step", "one_of", message, kind))
            continue
        try:
            steps.append(msgspec.convert(each, _KINDS[kind]))
        except msgspec.ValidationError as error:
            message = f"{where}: {error}; write a step like {_EXAMPLE}"
            errors.append(FieldError(where, "datatype", message))
    if errors:
        raise ValidationError(errors)
    return tuple(steps)


def _read_types(given: Sequence[object], before: Schema) -> tuple[Step, ...]:
    """The steps to the types that a call wants, all of them; shapes stay."""
    try:
        specs = [msgspec.convert(each, TypeSpec) for each in given]
    except msgspec.ValidationError as error:
        message = (
            f'types: {error}; write a type like {{"name": "Task", "fields": [{{"name": "title"}}]}}'
        )
        raise ValidationError([FieldError("types", "datatype", message)]) from None
    ordered: list[TypeSpec] = []
    waiting = list(specs)
    while waiting:
        names = {each.name for each in waiting}
        ready = [each for each in waiting if each.extends not in names] or waiting
        ordered += ready
        waiting = [each for each in waiting if each not in ready]
    try:
        wanted = resolve(Schema(), [AddType(each) for each in ordered])[-1] if ordered else Schema()
    except ValidationError as error:
        raise ValidationError(_in_types(error, [each.name for each in ordered])) from None
    shapes = [each for each in before.shapes if each.target in wanted.by_name]
    return diff_schemas(before, Schema.of(wanted.types, shapes))


def _in_types(error: ValidationError, names: Sequence[str]) -> list[FieldError]:
    """Mistakes of types that were read as steps, by the names of the types."""
    found = []
    for each in error.fields:
        start, mark, rest = each.field.partition("].")
        number = start.removeprefix("steps[").removesuffix("]")
        name = names[int(number)] if number.isdigit() else ""
        place = f"types.{name}" + (f".{rest.removeprefix('type.')}" if mark else "")
        message = each.message.replace(each.field, place, 1)
        found.append(msgspec.structs.replace(each, field=place, message=message))
    return found


def _steps_of(
    ctx: GraphContext, steps: Sequence[object], types: Sequence[object]
) -> tuple[Step, ...]:
    if bool(steps) == bool(types):
        message = "steps: give steps, or all types as they should be, and not both"
        raise ValidationError([FieldError("steps", "required", message)])
    return _read_types(types, ctx.checkout.schema) if types else read_steps(steps)


def _renames(steps: Sequence[Step]) -> tuple[Rename, ...]:
    found = []
    for each in steps:
        if isinstance(each, RenameType):
            found.append(Rename(each.type, each.to))
        elif isinstance(each, RenameField):
            found.append(Rename(each.type, each.to, each.field))
    return tuple(found)


# --- reading -------------------------------------------------------------------------------


def _source(tool: ToolContext) -> SchemaSource:
    workspace = tool.options.workspace
    return "python" if workspace is None else workspace.layout.schema


def _show(tool: ToolContext, ctx: GraphContext, types: Sequence[str], after: str | None) -> Page:
    schema = ctx.kg.schema
    names = named_types(schema, types) if types else [each.name for each in schema.types]
    chosen = [name for name in names if after is None or types or name > after]
    result = DeclaredTypes(
        _source(tool),
        schema.digest,
        tuple(type_spec(schema.by_name[name], schema) for name in chosen),
        tuple(shape_spec(each) for each in schema.shapes if not types or each.target in chosen),
    )

    def changes(at: int) -> Mapping[str, object] | None:
        if at >= len(chosen):
            return None
        return {"types": chosen[at:]} if types else {"after": chosen[at - 1] if at else after}

    return Page(result, "types", changes, len(names))


def _outline(tool: ToolContext, ctx: GraphContext, after: str | None) -> Page:
    del tool
    return outline_page(ctx, after)


def _export(tool: ToolContext, ctx: GraphContext, format: ExportFormat) -> ExportedSchema:
    schema = ctx.kg.schema
    if format == "shacl":
        text = project_shacl(schema, ctx.names)
    elif format == "turtle":
        text = project_vocabulary(schema, ctx.names)
    elif format == "jsonschema":
        document = project_schema_definitions(schema, ctx.names)
        text = msgspec.json.format(msgspec.json.encode(document)).decode() + "\n"
    else:
        text = write_module(schema, f"The types of {tool.options.project}.")
    return ExportedSchema(format, MEDIA_TYPES[format], schema.digest, text)


def _diff(tool: ToolContext, ctx: GraphContext, **given: str) -> SchemaDifference:
    before, after = (_schema_at(tool, ctx, given[side]) for side in ("from", "to"))
    steps = diff_schemas(before, after)
    return SchemaDifference(
        before.digest,
        after.digest,
        steps,
        likely_renames(before, after),
        tuple(describe_changes(before, after)),
    )


def _schema_at(tool: ToolContext, ctx: GraphContext, place: str) -> Schema:
    """The types of a branch or commit, or those that the files declare."""
    if place == FILES:
        workspace = tool.options.workspace
        if workspace is None:
            raise NotFoundError("this graph has no project folder, so no files declare its types")
        return workspace.declared().schema
    graph = tool.service.graph
    head = RefResolver(graph, reader(ctx.access)).resolve(place)
    return graph.compiled(head.schema).schema


FILES: Final = "files"
"""What ``schema.diff`` calls the declarations on disk."""


# --- planning and applying -----------------------------------------------------------------


def _ask(tool: ToolContext, ctx: GraphContext, text: str) -> QueryAnswer:
    return tool.service.untrusted.run(ctx.checkout, text, caller=ctx.actor)


def _plan(
    tool: ToolContext,
    ctx: GraphContext,
    steps: Sequence[object],
    types: Sequence[object],
    offset: int,
) -> Page:
    wanted = _steps_of(ctx, steps, types)
    before = ctx.checkout.schema
    plan = plan_change(
        tool.service.graph,
        ctx.checkout,
        wanted,
        ask=lambda text: _ask(tool, ctx, text),
        access=ctx.access,
        call=ctx.call,
        offset=offset,
        limit=_PAGE,
    )
    after = resolve(before, wanted)[-1] if wanted else before
    try:
        preview = _preview(tool, ctx, after, wanted)
    except SourceError as error:
        preview = FilePreview(notes=(f"it can't be applied to main: {error.message}",))
    hints = (*plan.hints, *_rename_hints(before, after, types), *preview.notes)
    impact = find_impact(tool, ctx, before, after, _renames(wanted))
    result = _result(plan, None, impact, diff=preview.diff, hints=hints)

    def changes(at: int) -> Mapping[str, object] | None:
        return {"offset": offset + at} if offset + at < plan.offending else None

    return Page(result, "offenses", changes, plan.offending or None)


def _rename_hints(before: Schema, after: Schema, types: Sequence[object]) -> tuple[str, ...]:
    """Wanted types do not say what was renamed, so what looks like that is named."""
    if not types:
        return ()
    return tuple(
        f"{msgspec.json.encode(each).decode()} could be meant: as a step before the others it "
        "keeps the values"
        for each in likely_renames(before, after)
    )


def _preview(
    tool: ToolContext, ctx: GraphContext, after: Schema, steps: Sequence[Step]
) -> FilePreview:
    """How files change when these types are applied to ``main``."""
    keeper = tool.service.graph.declarations
    if keeper is None or ctx.branch != MAIN:
        return FilePreview()
    return keeper.preview(tool.service.graph.log_head(MAIN), after, _renames(steps))


def _result(
    plan: ChangePlan,
    commit: str | None,
    impact: Sequence[ImpactItem],
    *,
    applied: bool = False,
    replayed: bool = False,
    diff: FileDiff | None = None,
    hints: tuple[str, ...] = (),
) -> SchemaChange:
    return SchemaChange(
        plan.branch,
        applied,
        commit,
        replayed,
        plan.digest,
        plan.head,
        plan.schema,
        plan.result,
        plan.steps,
        plan.created,
        plan.updated,
        plan.deleted,
        plan.offending,
        tuple(impact),
        diff,
        hints,
        plan.offenses,
    )


class _Applying(msgspec.Struct, frozen=True):
    """How steps are to be applied."""

    dry_run: bool = False
    allow_data_loss: bool = False
    plan: str | None = None
    message: str | None = None
    expected_head: str | None = None
    idempotency_key: str | None = None


def _apply(
    tool: ToolContext,
    ctx: GraphContext,
    steps: Sequence[object],
    types: Sequence[object],
    **given: object,
) -> Page | SchemaChange:
    how = msgspec.convert(given, _Applying)
    if how.dry_run:
        return _plan(tool, ctx, steps, types, 0)
    graph, checkout = tool.service.graph, ctx.checkout
    key = None
    if how.idempotency_key is not None:
        key = IdempotencyKey(graph, checkout.name, ctx.actor, how.idempotency_key)
        key.request.add(
            ["schema_apply", list(steps), list(types), how.allow_data_loss, how.message]
        )
        first = key.find()
        if first is not None:
            key.check(first)
            kept = msgspec.convert(first.result["plan"], ChangePlan)
            return _result(kept, first.commit, (), applied=True, replayed=True)
    wanted = _steps_of(ctx, steps, types)
    before = checkout.schema
    after = resolve(before, wanted)[-1] if wanted else before
    impact = find_impact(tool, ctx, before, after, _renames(wanted))
    preview = _preview(tool, ctx, after, wanted)
    request = ChangeRequest(
        steps=wanted,
        actor=ctx.actor,
        message=how.message or "",
        plan=how.plan,
        expected_head=how.expected_head,
        allow_data_loss=how.allow_data_loss,
        ask=lambda text: _ask(tool, ctx, text),
        access=ctx.access,
        call=ctx.call,
        key=key,
    )
    try:
        done = apply_change(graph, checkout, request)
    except ValidationError as error:
        # A refusal is shortened to fit; the plan has all violations, a page at a time.
        given_steps = {"steps": steps} if steps else {"types": types}
        plan = Call(PLAN.name, {**given_steps, "branch": checkout.name})
        error.data = {**error.data, "next": msgspec.to_builtins(plan)}
        raise
    applied, diff = done.commit is not None, preview.diff
    return _result(done.plan, done.commit, impact, applied=applied, diff=diff, hints=preview.notes)


def _impact(
    tool: ToolContext,
    ctx: GraphContext,
    steps: Sequence[object],
    types: Sequence[object],
    offset: int,
) -> Page:
    wanted = _steps_of(ctx, steps, types)
    before = ctx.checkout.schema
    after = resolve(before, wanted)[-1] if wanted else before
    found = find_impact(tool, ctx, before, after, _renames(wanted))
    left = found[offset:]

    def changes(at: int) -> Mapping[str, object] | None:
        return {"offset": offset + at} if at < len(left) else None

    return Page(SchemaImpact(tuple(left)), "items", changes, len(found))


# --- rows ----------------------------------------------------------------------------------

_STEPS: Final = field("steps", f"Like {_EXAMPLE}.", "Map", many=True, max_count=1000)
_TYPES: Final = field(
    "types",
    "Instead of steps: all types as they should be, written as schema.show has them.",
    "Map",
    many=True,
    max_count=1000,
)
_OFFSET: Final = field("offset", "Skip as many.", "Int", default=0, min_value=0)
_CHANGE: Final = (_STEPS, _TYPES)

SHOW: Final = meta_operation(
    "trails.meta.schema.show",
    "builder",
    title="Show declared types",
    description=(
        "Show types as they are declared, in the form that steps and types of a change are "
        "written in, and whether Python files or the graph itself declare them."
    ),
    fields=(
        field("types", "Their names.", many=True, max_count=1000),
        field("after", "Only those after this one.", max_length=100),
    ),
    controls=(BRANCH, SNAPSHOT, MAX_CHARS),
    result=DeclaredTypes,
    hints=READER,
    action="Read",
    run=_show,
)
OUTLINE: Final = meta_operation(
    "trails.meta.schema.outline",
    "builder",
    title="Outline of the types",
    description="List the types with the names and kinds of their fields.",
    fields=(field("after", "Only those after this one.", max_length=100),),
    controls=(BRANCH, SNAPSHOT, MAX_CHARS),
    result=SchemaResult,
    hints=READER,
    action="Read",
    run=_outline,
)
EXPORT: Final = meta_operation(
    "trails.meta.schema.export",
    "builder",
    title="Export the types",
    description="Export the types as SHACL, JSON Schema, an RDF vocabulary in Turtle, or Python.",
    fields=(field("format", "The format.", required=True, one_of=list(get_args(ExportFormat))),),
    controls=(BRANCH, SNAPSHOT, MAX_CHARS),
    result=ExportedSchema,
    hints=READER,
    action="Read",
    run=_export,
    command="schema export",
)
DIFF: Final = meta_operation(
    "trails.meta.schema.diff",
    "builder",
    title="Compare types",
    description=(
        "Compare the types of two branches or commits, or with 'files' those that the project's "
        "files declare: the steps from one to the other, and in words."
    ),
    fields=(
        field("from", "A branch, a commit, or 'files'.", default="main", max_length=100),
        field("to", "A branch, a commit, or 'files'.", required=True, max_length=100),
    ),
    controls=(MAX_CHARS,),
    result=SchemaDifference,
    hints=READER,
    action="Read",
    whole=True,
    run=_diff,
    command="schema diff",
)
PLAN: Final = meta_operation(
    "trails.meta.schema.plan",
    "builder",
    title="Plan a change of types",
    description=(
        "Say what steps would do: each is safe, needs_data or destructive; the nodes that forbid "
        "it; what it breaks; and how files change. Nothing is written. Then apply them with the "
        "plan's digest, best on a branch."
    ),
    fields=(*_CHANGE, _OFFSET),
    controls=(BRANCH, MAX_CHARS),
    result=SchemaChange,
    hints=READER,
    action="SchemaApply",
    also=("Read",),
    whole=True,
    run=_plan,
)
_APPLIED: Final = {
    "title": "Change the types",
    "description": (
        "Change types, and the data with them, in one commit, or nothing. Steps: add_type, "
        "rename_type, change_type, drop_type, add_field, rename_field, change_field, split_field, "
        "drop_field, add_shape, drop_shape. Use dry_run first: it returns the plan, the nodes that "
        "forbid the change, what it breaks, and the digest to pass as plan. Try it on a branch, "
        "then merge that; on main, files that declare the types change too."
    ),
    "fields": (
        *_CHANGE,
        field("dry_run", "Plan only.", "Bool", default=False),
        field("allow_data_loss", "Needed if values or nodes are removed.", "Bool", default=False),
        field("plan", "The digest of the plan that was reviewed.", max_length=100),
        MESSAGE,
        EXPECTED_HEAD,
        IDEMPOTENCY_KEY,
    ),
    "controls": (BRANCH, MAX_CHARS),
    "result": SchemaChange,
    "hints": WRITER,
    "action": "SchemaApply",
    "also": ("Read", "Change"),
    "whole": True,
    "run": _apply,
}
APPLY: Final = meta_operation("trails.meta.schema.apply", "builder", **_APPLIED)
SCHEMA_APPLY: Final = Builtin(
    name="schema_apply",
    meta=APPLY.meta,
    kind="meta",
    routes=(
        Route("POST", "schema/apply"),
        Route("POST", "schema/plan", defaults={"dry_run": True}, name="schema_plan"),
    ),
    **_APPLIED,  # type: ignore[arg-type]
)
IMPACT: Final = meta_operation(
    "trails.meta.impact",
    "builder",
    title="Impact of a change of types",
    description=(
        "Name what steps would break, or what to check: stored queries, capabilities, policies, "
        "webhooks, subscriptions and branches, each with the reason."
    ),
    fields=(*_CHANGE, _OFFSET),
    controls=(BRANCH, MAX_CHARS),
    result=SchemaImpact,
    hints=READER,
    action="SchemaApply",
    also=("Read",),
    whole=True,
    run=_impact,
)

META: Final = (SHOW, OUTLINE, EXPORT, DIFF, PLAN, APPLY, SCHEMA_APPLY, IMPACT)
