"""A project to serve: notes that are added, slowly or at once, counted, and watched."""

APP = '''
"""Notes."""

from __future__ import annotations

import time
from pathlib import Path

from trails import Context, Node, capability, node_type, predicate


@node_type
class Note(Node):
    """A note."""

    text: str = predicate(key=True, label=True)


@capability("notes.add")
async def add(ctx: Context, text: str) -> str:
    """Add a note."""
    print("this must not disturb the protocol")
    Note(text=text).save(ctx)
    return text


def wait_for(file: Path) -> None:
    """Wait until there is a file."""
    while not file.exists():
        time.sleep(0.02)


@capability("notes.slow")
def slow(ctx: Context, text: str, begun: str) -> str:
    """Add a note, say so in a file, and return when told to."""
    Note(text=text).save(ctx)
    Path(begun).write_text(text)
    wait_for(Path(f"{begun}-go"))
    return text


@capability("notes.look", idempotent=True)
def look(ctx: Context, begun: str) -> int:
    """Count the notes, say so in a file, and return when told to."""
    with Path(begun).open("a") as file:
        file.write("x")
    wait_for(Path(f"{begun}-go"))
    return Note.objects(ctx).count()


@capability("notes.measure", idempotent=True)
async def measure(ctx: Context, text: str) -> int:
    """How long a text is."""
    return len(text)


@capability("notes.count", idempotent=True)
async def count(ctx: Context) -> int:
    """How many notes there are."""
    return Note.objects(ctx).count()
'''


def make_project(folder, *, graphs=("main",), broken=()):
    """A project folder; some of its graphs can't be opened."""
    folder.mkdir(parents=True)
    tables = ["[project]\nname = 'notebook'\n"]
    for graph in graphs:
        name = "broken.py" if graph in broken else "app.py"
        tables.append(f"[graphs.{graph}]\napp = '{name}'\n")
    (folder / "trails.toml").write_text("\n".join(tables))
    (folder / "app.py").write_text(APP)
    (folder / "broken.py").write_text("import nothing_like_this\n")
    return folder
