"""A short tour of Trails on the Northline data: run it with ``make demo``.

It works on a copy of this project in a temporary folder, so it can be run again
and leaves nothing behind.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from access import walk
from agent import work
from app import Component, Hazard, Incident, Person, Requirement, Verification
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from seed import load

from trails import App, Context, MergeRequest, Resolution
from trails.errors import CapabilityError, TrailsError, ValidationError

HERE = Path(__file__).parent
console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    """Walk through it, step by step."""
    with tempfile.TemporaryDirectory(prefix="northline-") as folder:
        project = Path(folder) / "northline"
        shutil.copytree(HERE, project, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
        with App.open(project) as app:
            ctx = app.context(actor="tour")
            show_load(app, ctx)
            show_reading(ctx)
            show_capability(app, ctx)
            show_refusals(ctx)
            show_transaction(ctx)
            show_sparql(ctx)
            show_stored_queries(app, ctx)
            show_versions(app, ctx)
            show_sandbox(app, ctx)
        show_kill(project)
        show_proof(project)
        show_access(project, Path(folder) / "guarded")
        show_agent(project, stay=sys.stdin.isatty() and not os.environ.get("DEMO_ONCE"))


def heading(text: str) -> None:
    """Begin a step."""
    console.print(f"\n[bold cyan]{text}[/]")


def show_load(app: App, ctx: Context) -> None:
    """Declared types become a graph; 450 instances land in one validated commit."""
    registry = app.registry()
    heading("1. A declared graph")
    console.print(
        f"{len(registry.types)} types and {len(registry.capabilities)} capabilities "
        "are declared in app.py."
    )
    started = time.perf_counter()
    commit = load(ctx)
    took = time.perf_counter() - started
    if commit is not None:
        console.print(
            f"Loaded data/*.ndjson as one commit: {commit.added} statements, every node "
            f"validated, in {took * 1000:.0f} ms. Commit {commit.id[:12]}."
        )


def show_reading(ctx: Context) -> None:
    """The ORM filters, hops over references, sorts and pages."""
    heading("2. Reading")
    open_hazards = Hazard.objects(ctx).where(status="open").order_by("severity").limit(4)
    table = Table("hazard", "severity", "arises in", "owner", box=None, pad_edge=False)
    for hazard in open_hazards:
        table.add_row(hazard.title, hazard.severity, hazard.component.name, hazard.owner.name)
    console.print(table)
    people = Person.objects(ctx).where(team__name__icontains="signal").count()
    console.print(f"{people} people are in a team with 'signal' in its name.")
    page = Component.objects(ctx).order_by("name").page(20)
    console.print(
        f"Components from {page.items[0].name!r} to {page.items[-1].name!r} are the first page "
        "of 20; a cursor continues it at the same cost at any depth."
    )


def show_capability(app: App, ctx: Context) -> None:
    """Capabilities are called by name with JSON, and refuse on purpose with a reason."""
    heading("3. Capabilities")
    summary = app.call(ctx, "programme.summary")
    if isinstance(summary, dict):
        console.print(
            f"programme.summary: {summary['accepted']} requirements accepted, "
            f"{summary['verified']} of them verified, {summary['open_hazards']} hazards open."
        )
    for requirement in Requirement.objects(ctx).where(status="rejected").limit(1):
        try:
            app.call(ctx, "requirements.accept", {"req": requirement.iri(ctx)})
        except CapabilityError as error:
            console.print(f"requirements.accept: {error.message}.")


def show_refusals(ctx: Context) -> None:
    """Nothing invalid lands, and every violation is reported at once."""
    heading("4. Nothing invalid can land")
    before = ctx.kg.head
    try:
        Requirement(req_id="R-1", title="Short", status="maybe", priority=9, rationale="-").save(
            ctx
        )
    except ValidationError as error:
        for field in error.fields:
            console.print(f"  [red]{field.code:10}[/] {field.message}", markup=True)
    person = Person.objects(ctx).first()
    if person is not None:
        try:
            person.delete(ctx)
        except ValidationError as error:
            console.print(f"  [red]{error.fields[0].code:10}[/] {error.fields[0].message[:140]}…")
    console.print(f"The head is where it was: {ctx.kg.head == before}.")


def show_transaction(ctx: Context) -> None:
    """Several writes are one commit, or none."""
    heading("5. One commit, or none")
    before = Verification.objects(ctx).count()
    try:
        with ctx.kg.transaction(message="Re-run of all failed tests"):
            for edge in Verification.objects(ctx).where(result="fail"):
                edge.result = "pass"
                edge.save(ctx)
            raise KeyboardInterrupt  # noqa: TRY301 - the operator changes their mind
    except KeyboardInterrupt:
        failed = Verification.objects(ctx).where(result="fail").count()
        console.print(f"Interrupted: {failed} of {before} verifications are still failed.")


def show_sparql(ctx: Context) -> None:
    """SPARQL with typed parameters, never interpolated."""
    heading("6. SPARQL")
    answer = ctx.kg.sparql(
        """
        SELECT ?component (COUNT(?incident) AS ?incidents) WHERE {
            ?incident a :Incident ; :component ?c ; :outcome $outcome .
            ?c :name ?component
        } GROUP BY ?component ORDER BY DESC(?incidents) ?component LIMIT 3
        """,
        outcome="disruption",
    )
    for row in answer:
        console.print(f"  {row['incidents']} disruption(s) began at: {row['component']}")


def show_stored_queries(app: App, ctx: Context) -> None:
    """Queries with a name, typed parameters and a description, checked when the project opens."""
    heading("7. Stored queries")
    for name, params in (
        ("requirement_trace", {"req_id": "REQ-017"}),
        ("unverified_requirements", {"max_priority": 1}),
    ):
        answer = app.query(ctx, name, params)
        console.print(f"{name}({params}):")
        for row in answer.rows[:4]:
            console.print("  " + ", ".join(str(value) for value in row.values() if value))
    try:
        app.query(ctx, "requirement_trace", {"req_id": "17"})
    except ValidationError as error:
        console.print(f"  [red]{error.fields[0].code:10}[/] {error.fields[0].message}")


def show_versions(app: App, ctx: Context) -> None:
    """A branch is changed, compared and merged; a conflict is settled; the past can be read."""
    heading("8. Branch, compare, merge")
    versions = app.versions(actor="tour")
    before = ctx.kg.head.commit
    versions.create_branch("review")
    on_branch = app.context(actor="reviewer", branch="review")
    for context, priority in ((on_branch, 2), (ctx, 3)):
        requirement = Requirement.get(context, "REQ-017")
        requirement.priority = priority
        if context is on_branch:
            requirement.status = "proposed"
        requirement.save(context, message="Weigh REQ-017 again")
    console.print("$ trails diff main review")
    for node in versions.diff("main", "review").changes:
        for field in node.fields:
            console.print(f"  {node.handle}.{field.field}: {field.before} → {field.after}")
    result = versions.merge(MergeRequest("review"))
    console.print(f"Merging them: {result.outcome}, nothing is written.")
    for conflict in result.conflicts:
        console.print(f"  [red]{conflict.kind}[/] {escape(conflict.message)}")
    settled = {conflict.id: Resolution("theirs") for conflict in result.conflicts}
    result = versions.merge(MergeRequest("review", resolutions=settled))
    now = Requirement.get(ctx, "REQ-017")
    then = Requirement.get(app.context(snapshot=before), "REQ-017")
    console.print(
        f"Settled with theirs: {result.outcome} as {str(result.commit)[:12]}. Now REQ-017 is "
        f"{now.status}, priority {now.priority}; at commit {before[:12]} it was {then.status}, "
        f"priority {then.priority}."
    )


def show_sandbox(app: App, ctx: Context) -> None:
    """Anybody's query runs confined: one that would never end does no harm."""
    heading("9. A deadly query")
    deadly = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?n2 ?o }"
    started = time.perf_counter()
    try:
        app.ask(ctx, deadly)
    except TrailsError as error:
        took = time.perf_counter() - started
        console.print(f"  [red]{error.code}[/] after {took:.1f} s: {escape(error.message)}")
    answer = app.ask(ctx, "SELECT (COUNT(?h) AS ?n) WHERE { ?h a :Hazard }")
    console.print(f"The next one is answered at once: {answer.rows[0]['n']} hazards.")


def show_kill(project: Path) -> None:
    """A process that is killed while it writes loses nothing that was acknowledged."""
    heading("10. kill -9")
    writer = subprocess.Popen(  # noqa: S603 - this very file
        [sys.executable, str(Path(__file__)), "--write", str(project)],
        stdout=subprocess.PIPE,
        text=True,
    )
    acknowledged = []
    for line in writer.stdout or ():
        acknowledged.append(line.strip())
        if len(acknowledged) == 25:
            writer.send_signal(signal.SIGKILL)
            break
    acknowledged += [line.strip() for line in writer.stdout or ()]
    writer.wait()
    with App.open(project) as app:
        ctx = app.context(actor="tour")
        found = {each.inc_id for each in Incident.objects(ctx).where(title__startswith="Drill")}
    lost = [each for each in acknowledged if each not in found]
    console.print(
        f"A writer was killed after {len(acknowledged)} acknowledged saves; "
        f"after reopening, {len(lost)} of them are missing."
    )


def show_proof(project: Path) -> None:
    """The log proves itself, and the views against it."""
    heading("11. Proof")
    console.print("$ trails verify")
    trails = Path(sys.executable).with_name("trails")
    done = subprocess.run(  # noqa: S603 - the command that this project installs
        [trails, "verify", "--project", project], capture_output=True, text=True, check=False
    )
    console.print(done.stdout.rstrip() or done.stderr.rstrip(), markup=False)
    if done.returncode:
        sys.exit(done.returncode)


def show_access(project: Path, guarded: Path) -> None:
    """Tokens and policies decide what each actor sees; on a copy, which needs tokens from then."""
    heading("12. Narrow credentials")
    shutil.copytree(project, guarded)
    with serving(guarded) as served:
        asyncio.run(walk(served["graphs"][0]["url"], guarded))


def show_agent(project: Path, *, stay: bool) -> None:
    """An agent works with the graph over MCP; then others may, until somebody says stop."""
    heading("13. An agent")
    with serving(project) as served:
        endpoint = served["graphs"][0]
        asyncio.run(work(endpoint["url"]))
        console.print("\n[bold]That was the tour.[/] Read on in docs/how-to/agents.md, or start")
        console.print("your own project: [bold].venv/bin/trails new acme[/]")
        if stay:
            # Held back until it is waited for: an early one would be lost.
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            console.print(f"\nThe demo is served at [bold]{served['url']}[/]; let your agent in:\n")
            console.print(f"  {endpoint['add']}\n", markup=False)
            console.print("Another client: .venv/bin/trails mcp install --help. Ctrl-C ends it.")
            signal.sigwait({signal.SIGINT})


@contextmanager
def serving(project: Path) -> Iterator[dict[str, Any]]:
    """A server of the project for a while; what it said when it was ready."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    server = subprocess.Popen(  # noqa: S603 - the command that this project installs
        [sys.executable, "-m", "trails", "serve", "--port=0", "--json", "--project", project],
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is for this process, which then ends the server in order
    )
    try:
        ready = server.stdout.readline() if server.stdout else b""
        if not ready:
            sys.exit(f"the server did not start (exit code {server.wait()})")
        yield json.loads(ready)
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(timeout=20)


def write_until_killed(project: Path) -> None:
    """Save one incident after the other, saying so after each."""
    with App.open(project) as app:
        ctx = app.context(actor="writer")
        narrative = "The crew walked through the evacuation of a stopped tram, door by door. " * 4
        template = Incident.objects(ctx).first()
        if template is None:
            return
        for number in range(900):
            incident = Incident(
                inc_id=f"INC-2031-{number:03}",
                title=f"Drill number {number}",
                happened=template.happened,
                outcome="near_miss",
                narrative=narrative,
                component=template.component,
                reporter=template.reporter,
            )
            incident.save(ctx)
            print(incident.inc_id, flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        write_until_killed(Path(sys.argv[2]))
    else:
        main()
