"""The rest of the tour: what Python code can do with the graph, a kill, a proof, and access.

``TOUR=all make demo`` runs it after the short tour, on a copy of the demo's project: a folder
belongs to one process at a time, and the demo's belongs to its server.
"""

import asyncio
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from access import walk
from app import Component, Hazard, Incident, Person, Requirement, Verification
from rich.console import Console
from rich.table import Table
from seed import load
from server import serving

from trails import App, Context
from trails.errors import CapabilityError, ValidationError

console = Console(highlight=False, soft_wrap=True)


def show_more(project: Path) -> None:
    """Run every section on a copy of a project whose data is loaded."""
    with tempfile.TemporaryDirectory(prefix="northline-") as folder:
        copy = Path(folder) / "northline"
        shutil.copytree(project, copy, ignore=shutil.ignore_patterns(".trails", "__pycache__"))
        with App.open(copy) as app:
            ctx = app.context(actor="tour")
            load(ctx)
            show_reading(ctx)
            show_capability(app, ctx)
            show_refusals(ctx)
            show_transaction(ctx)
            show_sparql(ctx)
            show_stored_queries(app, ctx)
            show_snapshot(app, ctx)
        show_kill(copy)
        show_proof(copy)
        show_access(copy)


def heading(text: str) -> None:
    """Begin a section."""
    console.print(f"\n[bold cyan]{text}[/]")


def show_reading(ctx: Context) -> None:
    """The ORM filters, hops over references, sorts and pages."""
    heading("6. Reading from Python")
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
    heading("7. Capabilities")
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
    heading("8. All violations at once")
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
    heading("9. One commit, or none")
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
    heading("10. SPARQL with parameters")
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
        console.print(f"  {row['component']}: disruptions that began there: {row['incidents']}")


def show_stored_queries(app: App, ctx: Context) -> None:
    """Queries with a name, typed parameters and a description, checked when the project opens."""
    heading("11. Stored queries")
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


def show_snapshot(app: App, ctx: Context) -> None:
    """Any commit can be read as it was."""
    heading("12. The past")
    before = ctx.kg.head.commit
    requirement = Requirement.get(ctx, "REQ-017")
    requirement.priority = 3
    requirement.save(ctx, message="Weigh REQ-017 again")
    then = Requirement.get(app.context(snapshot=before), "REQ-017")
    console.print(
        f"REQ-017 has priority {requirement.priority} now; at commit {before[:12]} it had "
        f"{then.priority}."
    )


def show_kill(project: Path) -> None:
    """A process that is killed while it writes loses nothing that was acknowledged."""
    heading("13. kill -9")
    writer = subprocess.Popen(  # noqa: S603 - this very file
        [sys.executable, str(Path(__file__)), str(project)],
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
    heading("14. Proof")
    console.print("$ trails verify")
    trails = Path(sys.executable).with_name("trails")
    done = subprocess.run(  # noqa: S603 - the command that this project installs
        [trails, "verify", "--project", project], capture_output=True, text=True, check=False
    )
    console.print(done.stdout.rstrip() or done.stderr.rstrip(), markup=False)
    if done.returncode:
        sys.exit(done.returncode)


def show_access(project: Path) -> None:
    """Tokens and policies decide what each actor sees."""
    heading("15. Narrow credentials")
    with serving(project) as served:
        asyncio.run(walk(served["graphs"][0]["url"], project))


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
    write_until_killed(Path(sys.argv[1]))
