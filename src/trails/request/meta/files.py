"""``trails.meta.files.apply``: write the files of a diff, all or none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from trails.engine.session.context import GraphContext
from trails.model.capabilities import Hints
from trails.model.changes.file_diffs import FileChange, FileDiff
from trails.model.operations.authoring import AppliedFiles
from trails.model.types import OBJECT, ShapeDescriptor
from trails.request.builtins.declare import ToolContext, field, meta_operation
from trails.request.meta.spec_arguments import read_spec
from trails.request.workspace import need_workspace

_EDIT: Final = ShapeDescriptor(
    "LineEdit",
    (
        field("line", "The first line that is replaced, from 1.", "Int", required=True),
        field("remove", "How many lines are removed.", "Int", required=True),
        field("insert", "What takes their place.", required=True),
    ),
)
_CHANGE: Final = ShapeDescriptor(
    "FileChange",
    (
        field("path", "Relative to the project.", required=True, max_length=240),
        field(
            "change", "What happens to it.", required=True, one_of=["create", "modify", "delete"]
        ),
        field("base", "SHA-256 of the text before.", max_length=64),
        field("digest", "SHA-256 of the text afterwards.", max_length=64),
        field("content", "The text of a new file."),
        field("edits", "For modify.", OBJECT, target=_EDIT.name, many=True),
    ),
)


def _apply(
    tool: ToolContext,
    ctx: GraphContext,
    files: Sequence[Mapping[str, object]],
    reload: bool,  # noqa: FBT001 - an argument of a call
) -> AppliedFiles:
    del ctx
    workspace = need_workspace(tool.options.workspace)
    changes = tuple(read_spec(FileChange, each, f"files[{at}]") for at, each in enumerate(files))
    workspace.apply(FileDiff(changes, ""))
    paths = tuple(each.path for each in changes)
    return AppliedFiles(paths, workspace.reload() if reload else None)


APPLY: Final = meta_operation(
    "trails.meta.files.apply",
    "dev",
    title="Apply a diff",
    description=(
        "Write the files of a diff that a generator returned: all of them or none. Refused if a "
        "file has changed since, or is not the project's own. The code runs when declarations are "
        "reloaded, or at the next start."
    ),
    fields=(
        field(
            "files",
            "diff.files of a generator, unchanged.",
            OBJECT,
            target=_CHANGE.name,
            many=True,
            required=True,
            max_count=200,
        ),
        field("reload", "Use the new declarations at once.", "Bool", default=False),
    ),
    shapes=(_EDIT, _CHANGE),
    result=AppliedFiles,
    hints=Hints(read_only=False, destructive=True, idempotent=False),
    action="Admin",
    run=_apply,
)

META: Final = (APPLY,)
