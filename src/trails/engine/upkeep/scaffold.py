"""Write a new project: small, complete, and ready to run."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Literal

from trails.errors import SettingsError
from trails.files import create_file
from trails.model.names import check_project_name

_SETTINGS = """\
[project]
name = "{name}"
env = "development"

[graphs.main]
app = "app.py"
"""

_OWNED_SETTINGS = """\
[project]
name = "{name}"
env = "development"

[graphs.main]
schema = "graph"  # types are declared in the graph: trails schema apply
"""

_APP = '''\
"""The types and capabilities of {name}."""

from __future__ import annotations

from trails import App, Context, Node, Ref, capability, node_type, predicate


@node_type
class Person(Node):
    """Someone who does things."""

    email: str = predicate(key=True, pattern=r"^[^@ ]+@[^@ ]+$")
    name: str = predicate(min_length=1, max_length=120, label=True)


@node_type
class Task(Node):
    """Something to be done."""

    title: str = predicate(min_length=3, max_length=200, label=True)
    status: str = predicate(one_of=["open", "done"], default="open")
    priority: int | None = predicate(min_value=1, max_value=5)
    owner: Ref[Person] | None = predicate()


@capability("tasks.finish", idempotent=True)
def finish(ctx: Context, task: Ref[Task]) -> Task:
    """Mark a task as done."""
    task.status = "done"
    task.save(ctx)
    return task


def main() -> None:
    """Save something and read it again."""
    with App.open(".") as app:
        ctx = app.context(actor="me")
        ann = Person(email="ann@example.org", name="Ann")
        ann.save(ctx, upsert=True)
        Task(title="Read the tour", priority=1, owner=ann).save(ctx)
        for task in Task.objects(ctx).where(owner__name="Ann").order_by("priority"):
            print(task.title, task.status, task.owner.name if task.owner else "nobody")


if __name__ == "__main__":
    main()
'''

_IGNORE = """\
.trails/
__pycache__/
"""


def scaffold_project(
    folder: Path, name: str | None, schema: Literal["python", "graph"] = "python"
) -> tuple[Path, list[str]]:
    """Create a project in a new or empty folder; return its path and files.

    With ``schema="graph"`` it has no Python code: its types are declared in the graph.
    """
    folder = folder.resolve()
    project = name or folder.name.lower().replace("_", "-").replace(" ", "-")
    check_project_name(project)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise SettingsError(f"{folder} exists and is not empty; name a new folder")
    files = {
        "trails.toml": (_SETTINGS if schema == "python" else _OWNED_SETTINGS).format(name=project),
        "app.py": _APP.format(name=project),
        ".gitignore": _IGNORE,
    }
    if schema == "graph":
        del files["app.py"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(folder.stat().st_mode) & 0o644  # source code: open as its folder is
        for file, text in reversed(files.items()):  # the settings, which make it a project, last
            create_file(folder / file, text.encode(), mode)
    except OSError as error:
        raise SettingsError(f"can't write {folder}: {error.strerror or error}") from None
    return folder, list(files)
