"""Northline: the safety and requirements programme of a light-rail line.

What the line must do (Requirement), what could go wrong (Hazard), what went wrong
(Incident), what it is made of (Component), how we know that it works (TestCase,
Verification), who is involved (Person, Team, Supplier), and why things are as they
are (Decision). Money is in euro, lengths and masses are metric.
"""

from datetime import date, datetime
from decimal import Decimal

from trails import (
    Blob,
    Context,
    Edge,
    Iri,
    Node,
    Ref,
    Shape,
    capability,
    edge_type,
    node_type,
    predicate,
    shape,
)
from trails.errors import CapabilityError

# Worst first: the order is used to rank hazards.
SEVERITIES = ("catastrophic", "critical", "marginal", "negligible")
LIKELIHOODS = ("frequent", "probable", "occasional", "remote", "improbable")
OUTCOMES = ("near_miss", "disruption", "damage", "injury")


@node_type
class Team(Node):
    """A group of people in the programme with one field of responsibility."""

    code: str = predicate(
        key=True, pattern=r"^[A-Z]{3,5}$", description="Short name in capitals, such as SAFE."
    )
    name: str = predicate(min_length=3, max_length=80, label=True)
    mission: str = predicate(
        min_length=20, max_length=600, description="What the team answers for."
    )
    formed: date = predicate(min_value=date(2021, 1, 1))


@node_type
class Party(Node):
    """Someone who takes part in the programme: a Person or a Supplier.

    Use it where either will do, for example for those consulted before a decision.
    """

    slug: str = predicate(
        key=True,
        pattern=r"^[a-z][a-z0-9]*([.-][a-z0-9]+)*$",
        max_length=60,
        description="Stable short name: first.last for a person, words-with-dashes for a firm.",
    )
    name: str = predicate(
        min_length=1,
        max_length=120,
        label=True,
        description="The name as its bearer writes it, in any script.",
    )
    email: str = predicate(unique=True, pattern=r"^[^@ ]+@[^@ ]+$")
    since: date = predicate(description="First day in the programme, or date of the contract.")


@node_type
class Person(Party):
    """An employee of the programme."""

    role: str = predicate(min_length=3, max_length=80)
    team: Ref[Team] = predicate()
    manager: Ref["Person"] | None = predicate(description="Empty for the programme director.")
    languages: list[str] = predicate(
        min_count=1,
        max_count=6,
        pattern=r"^[a-z]{2}$",
        description="ISO 639-1 codes of the languages the person can be called in.",
    )


@node_type
class Supplier(Party):
    """A firm that delivers something to the line under a contract."""

    country: str = predicate(pattern=r"^[A-Z]{2}$", description="ISO 3166-1 code.")
    homepage: Iri | None = predicate()
    scope: str = predicate(
        min_length=20, max_length=600, description="What the contract covers, in words."
    )
    contract_value: Decimal = predicate(min_value=Decimal(0), description="In euro.")
    contract_ends: date = predicate()
    rating: float | None = predicate(
        min_value=0.0, max_value=5.0, description="Mean of the last audits; 5 is best."
    )


@node_type(index=[("sil", "name")])
class Component(Node):
    """A part of the line that can be named, bought, maintained or blamed.

    Components form a tree by ``part_of`` that ends at LIN-001, the whole line, and a net
    by ``depends_on``: what must work so that this component can do its job. A component
    also depends on its own parts; that is not repeated in ``depends_on``.
    """

    tag: str = predicate(
        key=True,
        pattern=r"^(LIN|VEH|SIG|PWR|CIV|COM|STP|DEP)-[0-9]{3}$",
        description="Discipline and number: VEH vehicle, SIG signalling, PWR power, CIV civil "
        "works, COM communications, STP stops, DEP depot, LIN the line itself.",
    )
    name: str = predicate(min_length=3, max_length=80, label=True)
    description: str = predicate(min_length=20, max_length=600, search=True, language="english")
    part_of: Ref["Component"] | None = predicate(
        description="The next larger component; empty for the line itself."
    )
    depends_on: list[Ref["Component"]] = predicate(max_count=12)
    supplier: Ref[Supplier] | None = predicate()
    sil: int | None = predicate(
        min_value=1,
        max_value=4,
        description="Safety integrity level; 4 is the strictest, empty means none is claimed.",
    )
    mass_kg: float | None = predicate(min_value=0.0)
    unit_cost: Decimal | None = predicate(min_value=Decimal(0), description="In euro.")
    commissioned: date | None = predicate(description="Empty while it is not in service.")
    datasheet: Blob | None = predicate()


@node_type(index=[("status", "priority")])
class Requirement(Node):
    """Something that the line, a component or the organisation must do, and why.

    Only accepted requirements bind anybody. A requirement is shown to be met by
    Verification edges from test cases.
    """

    req_id: str = predicate(key=True, pattern=r"^REQ-[0-9]{3}$")
    title: str = predicate(
        min_length=10, max_length=160, label=True, description="The requirement in one sentence."
    )
    status: str = predicate(one_of=["proposed", "accepted", "rejected"], default="proposed")
    status_reason: str | None = predicate(
        max_length=400, description="Why the status was last changed."
    )
    priority: int | None = predicate(
        min_value=1, max_value=5, description="1 is the most urgent, 5 the least."
    )
    owner: Ref[Person] | None = predicate(description="Who answers for it being met.")
    tags: list[str] = predicate(max_count=8, pattern=r"^[a-z]+(-[a-z]+)*$")
    rationale: str = predicate(
        min_length=80,
        max_length=2000,
        search=True,
        language="english",
        description="Why the requirement exists and where its figures come from.",
    )
    refines: Ref["Requirement"] | None = predicate(
        description="The more general requirement that this one makes precise."
    )
    allocated_to: list[Ref[Component]] = predicate(
        description="Components that have to meet it; none for rules about people."
    )
    due: date | None = predicate(description="When it must be met.")
    clause: Iri | None = predicate(description="The standard's clause it was taken from.")


@node_type(index=[("status", "severity")])
class Hazard(Node):
    """A situation that can lead to harm, with the requirements that keep it in check.

    ``open`` means that the risk is not yet acceptable, ``controlled`` that it is while the
    mitigating requirements are met, ``closed`` that the situation can no longer arise.
    """

    haz_id: str = predicate(key=True, pattern=r"^HAZ-[0-9]{3}$")
    title: str = predicate(min_length=10, max_length=120, label=True)
    status: str = predicate(one_of=["open", "controlled", "closed"], default="open")
    severity: str = predicate(
        one_of=SEVERITIES, description="The worst credible harm if it happens."
    )
    likelihood: str = predicate(
        one_of=LIKELIHOODS, description="How often it is expected with the present measures."
    )
    description: str = predicate(
        min_length=80,
        max_length=1500,
        search=True,
        language="english",
        description="How it comes about and how it ends.",
    )
    component: Ref[Component] = predicate(description="Where the hazard arises.")
    owner: Ref[Person] = predicate(description="Who works on reducing it.")
    identified: date = predicate()
    mitigated_by: list[Ref[Requirement]] = predicate(min_count=1)


@node_type(unique=[("procedure", "revision")])
class TestCase(Node):
    """One revision of a procedure that gives evidence for requirements.

    Its results are on Verification edges, one for each requirement it was run for.
    """

    tc_id: str = predicate(key=True, pattern=r"^TC-[0-9]{3}$")
    title: str = predicate(min_length=5, max_length=120, label=True)
    procedure: str = predicate(
        pattern=r"^NL-TP-[0-9]{4}$", description="Number of the test procedure."
    )
    revision: str = predicate(pattern=r"^[A-Z]$")
    method: str = predicate(one_of=["analysis", "inspection", "demonstration", "test"])
    objective: str = predicate(
        min_length=40,
        max_length=1000,
        search=True,
        language="english",
        description="What is done and measured.",
    )
    author: Ref[Person] = predicate()
    components: list[Ref[Component]] = predicate(min_count=1, description="What is under test.")
    duration_hours: float = predicate(min_value=0.5, max_value=500.0)
    record: Blob | None = predicate(description="The signed test record.")


@edge_type(source=TestCase, target=Requirement)
class Verification(Edge):
    """The outcome of a test case with regard to one requirement."""

    result: str = predicate(one_of=["pass", "fail", "inconclusive"])
    run_on: date = predicate(description="Day of the latest run.")
    notes: str | None = predicate(
        max_length=600, description="Measured values and reservations, as the tester wrote them."
    )


@node_type(index=[("outcome", "happened")])
class Incident(Node):
    """Something that went wrong, or nearly, told by the person closest to it."""

    inc_id: str = predicate(key=True, pattern=r"^INC-[0-9]{4}-[0-9]{3}$")
    title: str = predicate(min_length=10, max_length=120, label=True)
    happened: datetime = predicate(description="With the offset that was valid on the line.")
    outcome: str = predicate(one_of=OUTCOMES, description="The worst consequence.")
    narrative: str = predicate(
        min_length=200,
        max_length=6000,
        search=True,
        language="english",
        description="What happened, in the reporter's own words, not edited.",
    )
    lessons: str | None = predicate(
        max_length=1500,
        search=True,
        language="english",
        description="What was or will be changed because of it.",
    )
    component: Ref[Component] = predicate(description="Where it started.")
    reporter: Ref[Person] = predicate()
    hazards: list[Ref[Hazard]] = predicate(description="Hazards of which it is an instance.")
    delay_minutes: int = predicate(min_value=0, default=0, description="Longest delay of a tram.")
    cost: Decimal | None = predicate(min_value=Decimal(0), description="Damage in euro, if known.")


@node_type
class Decision(Node):
    """The record of a choice: what was at stake, what was decided, who was heard."""

    dec_id: str = predicate(key=True, pattern=r"^DEC-[0-9]{3}$")
    title: str = predicate(min_length=10, max_length=120, label=True)
    status: str = predicate(one_of=["draft", "adopted", "superseded"], default="draft")
    decided: date = predicate(description="Day of the decision; of the draft while it is one.")
    decided_by: Ref[Person] = predicate()
    consulted: list[Ref[Party]] = predicate(description="People and suppliers who were heard.")
    affects: list[Ref[Requirement]] = predicate()
    supersedes: Ref["Decision"] | None = predicate()
    text: str = predicate(min_length=200, max_length=4000, search=True, language="english")


@shape
class ProgrammeSummary(Shape):
    """The state of the programme in figures, at the moment of the call."""

    accepted: int = predicate(min_value=0, description="Accepted requirements.")
    proposed: int = predicate(min_value=0, description="Requirements waiting for a decision.")
    verified: int = predicate(
        min_value=0, description="Accepted requirements that at least one test case passed."
    )
    verified_share: float = predicate(
        min_value=0.0, max_value=1.0, description="Verified divided by accepted; 0 if none is."
    )
    failing: list[str] = predicate(
        description="Accepted requirements that a test failed and none passed, as 'id title'."
    )
    open_hazards: int = predicate(min_value=0)
    worst_hazards: list[str] = predicate(
        description="Open hazards of the highest severity present, as 'id title'."
    )
    incidents: int = predicate(min_value=0)
    injuries: int = predicate(min_value=0, description="Incidents in which somebody was hurt.")
    delay_minutes: int = predicate(min_value=0, description="Sum over all incidents.")
    latest_incident: datetime | None = predicate()
    incident_cost: Decimal = predicate(min_value=Decimal(0), description="Known costs, in euro.")


@capability("requirements.propose", side_effects=["creates a Requirement"])
def propose_requirement(
    ctx: Context,
    *,
    title: str = predicate(min_length=10, max_length=160),
    rationale: str = predicate(min_length=80, max_length=2000),
    owner: Ref[Person] | None = None,
    priority: int | None = None,
    tags: list[str] | None = None,
    allocated_to: list[Ref[Component]] | None = None,
) -> Requirement:
    """Put a new requirement on the list, with the next free number and status 'proposed'.

    The rationale says why it is needed and where its figures come from. An owner can be
    named later, but before the requirement is accepted.
    """
    last = Requirement.objects(ctx).order_by("-req_id").first()
    number = 1 if last is None else int(last.req_id.removeprefix("REQ-")) + 1
    requirement = Requirement(
        req_id=f"REQ-{number:03}",
        title=title,
        rationale=rationale,
        owner=owner,
        priority=priority,
        tags=tags or [],
        allocated_to=allocated_to or [],
    )
    requirement.save(ctx, message=f"Propose {requirement.req_id}")
    return requirement


@capability(
    "requirements.accept",
    idempotent=True,
    preconditions=["the requirement has an owner", "it has not been rejected"],
    side_effects=["changes the status of a Requirement"],
)
def accept_requirement(
    ctx: Context, req: Ref[Requirement], reason: str | None = None
) -> Requirement:
    """Accept a proposed requirement, which makes it binding.

    Accepting an accepted one changes nothing. A rejected requirement can't be accepted:
    propose a new one that answers the reason for the rejection.
    """
    if req.status == "accepted":
        return req
    if req.status == "rejected":
        raise CapabilityError(
            f"{req.req_id} was rejected; propose a new requirement that meets the objection"
        )
    if req.owner is None:
        raise CapabilityError(f"{req.req_id} has no owner; set one before it is accepted")
    req.status = "accepted"
    req.status_reason = reason
    req.save(ctx, message=f"Accept {req.req_id}")
    return req


@capability("incidents.report", side_effects=["creates an Incident"])
def report_incident(  # noqa: PLR0913 - one parameter a field that the caller may set
    ctx: Context,
    *,
    title: str = predicate(min_length=10, max_length=120),
    happened: datetime,
    outcome: str = predicate(one_of=OUTCOMES),
    narrative: str = predicate(min_length=200, max_length=6000),
    component: Ref[Component],
    reporter: Ref[Person],
    delay_minutes: int = 0,
    hazards: list[Ref[Hazard]] | None = None,
    lessons: str | None = None,
) -> Incident:
    """File the report of an incident under the next number of the year it happened in.

    The narrative is the reporter's own account: what was seen, done and said, in order.
    Conclusions belong in the lessons. Hazards can be linked later.
    """
    prefix = f"INC-{happened.year}-"
    last = Incident.objects(ctx).where(inc_id__startswith=prefix).order_by("-inc_id").first()
    number = 1 if last is None else int(last.inc_id.removeprefix(prefix)) + 1
    incident = Incident(
        inc_id=f"{prefix}{number:03}",
        title=title,
        happened=happened,
        outcome=outcome,
        narrative=narrative,
        lessons=lessons,
        component=component,
        reporter=reporter,
        hazards=hazards or [],
        delay_minutes=delay_minutes,
    )
    incident.save(ctx, message=f"Report {incident.inc_id}")
    return incident


@capability("hazards.open", side_effects=["none"])
def open_hazards(
    ctx: Context,
    severity: str | None = predicate(one_of=SEVERITIES, description="Only this severity."),
    limit: int = predicate(default=50, min_value=1, max_value=500),
) -> list[Hazard]:
    """List the hazards whose risk is not yet acceptable, the worst first.

    Sorted by severity, then by likelihood. Each names the requirements that are meant to
    mitigate it.
    """
    found = Hazard.objects(ctx).where(status="open")
    if severity is not None:
        found = found.where(severity=severity)
    return sorted(found, key=_risk_rank)[:limit]


@capability("components.impact", side_effects=["none"])
def component_impact(ctx: Context, component: Ref[Component]) -> list[Component]:
    """List what is affected when a component fails, the nearest first.

    Affected are the components that depend on it, those it is a part of, and what depends
    on those in turn, up to the whole line. The component itself is not in the list.
    """
    reached = {component}
    affected: list[Component] = []
    frontier = [component]
    while frontier:
        wholes = [each.part_of for each in frontier if each.part_of is not None]
        dependents = Component.objects(ctx).where(depends_on__in=frontier).order_by("tag")
        frontier = []
        for each in (*dependents, *wholes):
            if each not in reached:
                reached.add(each)
                frontier.append(each)
        affected.extend(frontier)
    return affected


@capability("programme.summary", side_effects=["none"])
def summarise_programme(ctx: Context) -> ProgrammeSummary:
    """Count requirements, evidence, hazards and incidents, and name what is worst.

    The place to begin for somebody who asks how the programme stands.
    """
    accepted = Requirement.objects(ctx).where(status="accepted").count()
    passed, failed = _accepted_with(ctx, "pass"), _accepted_with(ctx, "fail")
    hazards = sorted(Hazard.objects(ctx).where(status="open"), key=_risk_rank)
    worst = [each for each in hazards if each.severity == hazards[0].severity]
    incidents = Incident.objects(ctx).order_by("-happened").fetch()
    return ProgrammeSummary(
        accepted=accepted,
        proposed=Requirement.objects(ctx).where(status="proposed").count(),
        verified=len(passed),
        verified_share=len(passed) / accepted if accepted else 0.0,
        failing=sorted(f"{each.req_id} {each.title}" for each in failed - passed),
        open_hazards=len(hazards),
        worst_hazards=[f"{each.haz_id} {each.title}" for each in worst],
        incidents=len(incidents),
        injuries=sum(each.outcome == "injury" for each in incidents),
        delay_minutes=sum(each.delay_minutes for each in incidents),
        latest_incident=incidents[0].happened if incidents else None,
        incident_cost=sum((each.cost or Decimal(0) for each in incidents), Decimal(0)),
    )


def _accepted_with(ctx: Context, result: str) -> set[Requirement]:
    """Accepted requirements with at least one verification of this result."""
    found = Verification.objects(ctx).where(result=result, target__status="accepted")
    return {each.target for each in found}


def _risk_rank(hazard: Hazard) -> tuple[int, int, str]:
    """A sort key: the worst and most likely come first."""
    return (
        SEVERITIES.index(hazard.severity),
        LIKELIHOODS.index(hazard.likelihood),
        hazard.haz_id,
    )
