"""Project folders: settings, code, stored queries, policies and tokens.

``make_project`` writes any of them; the others are projects that several rooms use.
"""

import json
from pathlib import Path

from trails.identity.tokens import TokenFile
from trails.model.actors import TokenRequest

PERMIT_ALL = "permit(principal, action, resource);\n"


def make_project(folder, files, *, settings='[project]\nname = "acme"\n', queries=(), policies=()):
    """A project folder; ``files``, ``queries`` and ``policies`` are texts by file name."""
    written = {
        "trails.toml": settings,
        **({"app.py": files} if isinstance(files, str) else files),
        **{f"queries/{name}": text for name, text in dict(queries).items()},
        **{f"policies/{name}": text for name, text in dict(policies).items()},
    }
    for name, text in written.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


NOTEBOOK = '''
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


def make_notebook(folder, *, graphs=("main",), broken=()):
    """A project folder; some of its graphs can't be opened."""
    tables = ["[project]\nname = 'notebook'\n"]
    for graph in graphs:
        name = "broken.py" if graph in broken else "app.py"
        tables.append(f"[graphs.{graph}]\napp = '{name}'\n")
    files = {"app.py": NOTEBOOK, "broken.py": "import nothing_like_this\n"}
    return make_project(folder, files, settings="\n".join(tables))


ACME_SETTINGS = '[project]\nname = "acme"\n'
ACME = """
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
ACME_QUERIES = {
    "names.rq": "#+ description: All names.\nSELECT ?name { ?person :name ?name }\n",
    "raise_all.rq": (
        "#+ description: More for everybody.\n"
        "DELETE { ?p :salary ?s } INSERT { ?p :salary 1 } WHERE { ?p :salary ?s }\n"
    ),
}
READERS = 'permit(principal in Group::"readers", action == Action::"Read", resource);\n'


def make_acme(folder: Path, policies: dict[str, str] | None = None, settings: str = "") -> Path:
    """A project folder; ``policies`` are its files."""
    return make_project(
        folder,
        ACME,
        settings=settings or ACME_SETTINGS,
        queries=ACME_QUERIES,
        policies=policies or {},
    )


NOTES = '''
from __future__ import annotations

from trails import Context, Ref, capability, node_type, predicate
from trails.errors import CapabilityError


@node_type
class Note:
    """A note."""

    key: str = predicate(key=True)
    title: str = predicate(min_length=3, max_length=40, label=True)
    status: str = predicate(one_of=["open", "done"], default="open")
    stars: int | None = predicate(min_value=1, max_value=5)


@capability("notes.finish")
def finish(ctx: Context, note: Ref[Note], stars: int | None = None) -> Note:
    """Finish a note."""
    note.status, note.stars = "done", stars
    note.save(ctx)
    return note


@capability("notes.refuse")
def refuse(ctx: Context) -> str:
    """Say no."""
    raise CapabilityError("not today", until="tomorrow")
'''

NOTES_QUERIES = {
    "by_status.rq": """\
#+ description: Notes of a status.
#+ params:
#+   status: { type: String, one_of: [open, done] }
#+   stars: { type: Int, nullable: true }
SELECT ?title WHERE {
  ?n a :Note ; :title ?title ; :status $status
  FILTER (!BOUND($stars) || EXISTS { ?n :stars $stars })
} ORDER BY ?title
""",
    "finish_all.rq": """\
#+ description: Finish all notes that begin so.
#+ params:
#+   start: String
#+ expose: false
DELETE { ?n :status ?s } INSERT { ?n :status "done" }
WHERE { ?n a :Note ; :status ?s ; :title ?t FILTER STRSTARTS(?t, $start) }
""",
}


WORKSHOP = '''
"""Notes, and tools for those who build."""

from __future__ import annotations

from pathlib import Path

from trails import Context, Node, capability, meta_capability, node_type, predicate

DONE = Path(__file__).with_name("done")


@node_type
class Note(Node):
    """A note."""

    text: str = predicate(key=True, label=True)


@capability("notes.add")
async def add(ctx: Context, text: str) -> str:
    """Add a note."""
    Note(text=text).save(ctx)
    return text


@capability("notes.count", side_effects=["none"])
async def count(ctx: Context) -> int:
    """How many notes there are."""
    return Note.objects(ctx).count()


@capability("notes.crash", side_effects=["none"])
def crash(ctx: Context, text: str = "") -> int:
    """Fail in a way that nobody expected, with what was given in the error."""
    raise RuntimeError(f"crashed with {text}")


@meta_capability("trails.meta.note.build", scope="builder")
def build(ctx: Context) -> str:
    """Build."""
    DONE.write_text("build")
    return "built"


@meta_capability("trails.meta.note.debug", scope="dev")
def debug(ctx: Context) -> str:
    """Debug."""
    DONE.write_text("debug")
    return "debugged"
'''

PING, BUILD, DEBUG = "trails_meta_ping", "trails_meta_note_build", "trails_meta_note_debug"


def make_workshop(folder, *, env="development", policies=PERMIT_ALL, mcp="", settings=""):
    """A project folder; ``policies`` of None is a project without any."""
    return make_project(
        folder,
        WORKSHOP,
        settings=f"[project]\nname = 'workshop'\nenv = '{env}'\n[graphs.main]\n"
        f"[graphs.main.mcp]\n{mcp}\n{settings}",
        policies={} if policies is None else {"all.cedar": policies},
    )


def give_token(folder, actor="ann", scopes=("runtime",), groups=(), expires=None):
    """A new token of a project: its text."""
    request = TokenRequest(actor=actor, scopes=scopes, groups=groups, expires=expires)
    return tokens_of(folder).issue(request).token.reveal()


def tokens_of(folder):
    """The tokens of a project."""
    return TokenFile(folder / ".trails")


def id_of(token):
    """The id in a token."""
    return token.split("_")[1]


def headers_for(token):
    """What an HTTP client sends."""
    return [] if token is None else [(b"authorization", b"Bearer " + token.encode())]


def code_of(answer):
    """The number of the error that a message is, or 0."""
    return answer.get("error", {}).get("code", 0)


def names_in(answer):
    """The tools that a list names."""
    return {tool["name"] for tool in answer["result"]["tools"]}


def dump_line(value):
    """As JSON, on one line."""
    return json.dumps(value).encode()


DESK = '''
"""A desk: notes to read, and a drawer for those who may open it."""

from __future__ import annotations

from trails import Context, Node, capability, meta_capability, node_type, predicate


@node_type
class Note(Node):
    """A note."""

    text: str = predicate(key=True, label=True)


@capability("notes.add")
async def add(ctx: Context, text: str) -> str:
    """Add a note."""
    Note(text=text).save(ctx)
    return ctx.actor


@meta_capability("trails.meta.drawer.open", scope="builder", idempotent=True)
def open_drawer(ctx: Context) -> str:
    """Open the drawer."""
    return "open"


@meta_capability("trails.meta.drawer.burn", scope="dev")
def burn_drawer(ctx: Context) -> str:
    """Burn the drawer."""
    return "burnt"
'''


def make_desk(folder, **oauth):
    """A project folder whose policies permit everything; scopes are what is left."""
    lines = ["[project]", "name = 'desk'", "[graphs.main]", "[auth.oauth]"]
    tables = {name: value for name, value in oauth.items() if isinstance(value, dict)}
    lines += [f"{name} = {json.dumps(oauth[name])}" for name in oauth if name not in tables]
    for name, table in tables.items():
        lines += [f"[auth.oauth.{name}]"]
        lines += [f"{json.dumps(key)} = {json.dumps(value)}" for key, value in table.items()]
    settings = "\n".join(lines)
    return make_project(folder, DESK, settings=settings, policies={"all.cedar": PERMIT_ALL})
