"""A tour in five short sections: the command line and an agent, against a running server.

``make demo`` runs it. Every line that follows a ``$`` is a command that you can run
yourself; everything else that is printed came from the server.
"""

import asyncio
import shlex
import subprocess
import sys
from pathlib import Path

from agent import work
from rich.console import Console

console = Console(highlight=False, soft_wrap=True)

PRIORITY = (
    "DELETE {{ ?r :priority ?p }} INSERT {{ ?r :priority {0} }} "
    'WHERE {{ ?r :req_id "REQ-017" ; :priority ?p }}'
)
INVALID = (
    'DELETE { ?r :priority ?p ; :status ?s } INSERT { ?r :priority 9 ; :status "maybe" } '
    'WHERE { ?r :req_id "REQ-017" ; :priority ?p ; :status ?s }'
)
ENDLESS = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n2 ?o }"


def show(project: Path, url: str) -> None:
    """Walk through the project that is served at the MCP endpoint ``url``."""
    heading("1. Load, then search", "450 instances, each one validated, in one commit.")
    data = sorted(str(path.relative_to(project)) for path in project.glob("data/*.ndjson"))
    run(project, "load", *data, shown="load data/*.ndjson")
    run(project, "search", "passengers hurt by closing doors", "--limit", "2")

    heading("2. An agent", "It knows only what the server tells it.")
    asyncio.run(work(url))

    heading("3. Nothing invalid can land", "Every violation is reported at once.")
    run(project, "mutate", INVALID, fails=True)

    heading("4. Branch, compare, merge", "Field by field; a conflict is listed, never guessed.")
    run(project, "branch", "create", "review")
    run(project, "mutate", "--branch", "review", PRIORITY.format(2), "-m", "Raise REQ-017")
    run(project, "mutate", PRIORITY.format(3), "-m", "Lower REQ-017")
    run(project, "diff", "main", "review")
    run(project, "branch", "merge", "review", fails=True)
    conflict = "divergent_field:Requirement/REQ-017.priority"
    run(project, "branch", "merge", "review", "--resolve", f"{conflict}=theirs")

    heading("5. A query that never ends", "It is stopped, and nobody else notices.")
    run(project, "query", ENDLESS, fails=True)
    run(project, "query", "SELECT (COUNT(?h) AS ?hazards) WHERE { ?h a :Hazard }")


def heading(title: str, text: str) -> None:
    """Begin a section."""
    console.print(f"\n[bold cyan]{title}[/]  {text}")


def run(project: Path, *arguments: str, shown: str = "", fails: bool = False) -> None:
    """Run a ``trails`` command in the project and print it with its output."""
    console.print(f"\n$ trails {shown or shlex.join(arguments)}", style="bold", markup=False)
    done = subprocess.run(  # noqa: S603 - the command that this project installs
        [sys.executable, "-m", "trails", *arguments],
        cwd=project,
        capture_output=True,
        text=True,
        check=False,
    )
    said = (done.stdout + done.stderr).strip()
    console.print("\n".join(f"  {line}".rstrip() for line in said.splitlines()), markup=False)
    if bool(done.returncode) != fails:
        sys.exit(f"trails {arguments[0]} ended with exit code {done.returncode}")
