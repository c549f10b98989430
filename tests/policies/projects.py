"""A small project with policies, for tests about them."""

from pathlib import Path

SETTINGS = '[project]\nname = "acme"\n'
APP = """
from trails import Context, Node, capability, node_type, predicate

@node_type
class Person(Node):
    "Somebody."
    name: str = predicate(key=True)
    salary: int | None = predicate()

@node_type
class Employee(Person):
    "Somebody who works here."
    desk: str | None = predicate()

@node_type
class Room(Node):
    "Where people meet."
    number: str = predicate(key=True)

@capability("people.count", side_effects=["none"])
def count(ctx: Context) -> int:
    "How many there are."
    return Person.objects(ctx).count()

@capability("people.hire", side_effects=["sends mail"])
def hire(ctx: Context, name: str) -> str:
    "Hire somebody."
    return name
"""
QUERIES = {
    "names.rq": "#+ description: All names.\nSELECT ?name { ?person :name ?name }\n",
    "raise_all.rq": (
        "#+ description: More for everybody.\n"
        "DELETE { ?p :salary ?s } INSERT { ?p :salary 1 } WHERE { ?p :salary ?s }\n"
    ),
}
READERS = 'permit(principal in Group::"readers", action == Action::"Read", resource);\n'


def make_project(folder: Path, policies: dict[str, str] | None = None, settings: str = "") -> Path:
    """A project folder; ``policies`` are its files."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trails.toml").write_text(settings or SETTINGS, encoding="utf-8")
    (folder / "app.py").write_text(APP, encoding="utf-8")
    (folder / "queries").mkdir(exist_ok=True)
    for name, text in QUERIES.items():
        (folder / "queries" / name).write_text(text, encoding="utf-8")
    for name, text in (policies or {}).items():
        path = folder / "policies" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder
