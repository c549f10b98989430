"""A project with something to use for every scope, and the tokens of its actors."""

import json

from trails.identity.tokens import TokenFile
from trails.model.actors import TokenRequest

APP = '''
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
ALL = "permit(principal, action, resource);\n"
PING, BUILD, DEBUG = "trails_meta_ping", "trails_meta_note_build", "trails_meta_note_debug"


def make_workshop(folder, *, env="development", policies=ALL, mcp="", settings=""):
    """A project folder; ``policies`` of None is a project without any."""
    folder.mkdir(parents=True)
    (folder / "trails.toml").write_text(
        f"[project]\nname = 'workshop'\nenv = '{env}'\n[graphs.main]\n"
        f"[graphs.main.mcp]\n{mcp}\n{settings}"
    )
    (folder / "app.py").write_text(APP)
    if policies is not None:
        (folder / "policies").mkdir()
        (folder / "policies" / "all.cedar").write_text(policies)
    return folder


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


def dumps(value):
    """As JSON, on one line."""
    return json.dumps(value).encode()
