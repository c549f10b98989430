"""Our side: project folders with capabilities as trivial as the peers' tools."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

APP: Final = '''
from trails import Context, Shape, capability, predicate, shape
from bench.serving.peers import LARGE


@shape
class Said(Shape):
    """What was said."""

    text: str = predicate(max_length=1000)


@shape
class Row(Shape):
    """One of many."""

    code: str = predicate()
    title: str = predicate()
    lot: int = predicate()
    score: float = predicate()
    open: bool = predicate()


@capability("echo", idempotent=True)
async def echo(ctx: Context, text: str = predicate(max_length=1000)) -> Said:
    """Say it again."""
    return Said(text=text)


@capability("echo_thread", idempotent=True)
def echo_thread(ctx: Context, text: str = predicate(max_length=1000)) -> Said:
    """Say it again, from a thread."""
    return Said(text=text)


ROWS = [Row(**row) for row in LARGE["result"]]


@capability("large", idempotent=True)
async def large(ctx: Context, text: str = predicate(max_length=1000)) -> dict[str, object]:
    """Return a thousand rows as they are, like the peer."""
    return LARGE


@capability("shapes", idempotent=True)
async def shapes(ctx: Context, text: str = predicate(max_length=1000)) -> list[Row]:
    """Return a thousand rows as declared shapes."""
    return ROWS
'''
MORE: Final = '''

@capability("more.echo_{number:03}", idempotent=True)
async def echo_{number:03}(ctx: Context, text: str = predicate(max_length=1000)) -> Said:
    """Say it again."""
    return Said(text=text)
'''


POLICIES: Final = """
permit(principal in Group::"readers", action == Action::"Read", resource in Graph::"main");
permit(principal in Group::"writers", action in [Action::"Read", Action::"Change"],
       resource in Graph::"main") when { context.branch like "work/*" };
permit(principal in Group::"agents", action == Action::"InvokeCapability",
       resource in Graph::"main");
permit(principal in Group::"agents", action == Action::"Read", resource in Graph::"main")
  when { context.branch == "main" };
forbid(principal in Group::"agents", action == Action::"Change", resource)
  when { context.branch == "main" };
"""


def guard(folder: Path) -> str:
    """Put a project under policies; returns the token of an agent that they let call."""
    with (folder / "trails.toml").open("a", encoding="utf-8") as settings:
        settings.write("\n[graphs.main.budgets]\ncalls_per_minute = 100000000\n")
    (folder / "policies").mkdir()
    (folder / "policies" / "access.cedar").write_text(POLICIES, encoding="utf-8")
    command = [sys.executable, "-m", "trails", "token", "new", "--actor", "bench"]
    given = ["--group", "agents", "--scope", "runtime", "--json", "-p", str(folder)]
    made = subprocess.run([*command, *given], check=True, capture_output=True)
    return str(json.loads(made.stdout)["token"])


def make_project(folder: Path, tools: int) -> Path:
    """A project with an echo among some capabilities."""
    folder.mkdir(parents=True)
    # Peers send a large result whole, so ours is not cut either.
    (folder / "trails.toml").write_text(
        '[project]\nname = "bench"\n\n[graphs.main]\napp = "app.py"\n\n'
        "[graphs.main.mcp]\nmax_chars = 1000000\n",
        encoding="utf-8",
    )
    more = "".join(MORE.format(number=number) for number in range(tools - 4))
    (folder / "app.py").write_text(APP + more, encoding="utf-8")
    return folder
