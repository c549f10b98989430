"""Bare Cedar on all entities of a graph, which a judge is compared with; random valid policies."""

import json

import cedarpy
from hypothesis import strategies as st

from trails import App, Node, node_type, predicate
from trails.authoring.capabilities import Context, capability
from trails.model.actors import Actor
from trails.model.capabilities import StoredQuery
from trails.model.decisions import Resource
from trails.policies.judge import CedarJudge, know_graph, make_judge
from trails.policies.policies import KnownNames
from trails.policies.sources import PolicyFile
from trails.policies.vocabulary import GRAPH_ACTIONS, World, actor_records
from trails.registry.registry import Registry, with_queries


@node_type
class Person(Node):
    """Somebody."""

    name: str = predicate(key=True)
    salary: int | None = predicate()


@node_type
class Employee(Person):
    """Somebody who works here."""

    desk: str | None = predicate()


@node_type
class Room(Node):
    """Where people meet."""

    number: str = predicate(key=True)


@capability("people.count", side_effects=["none"])
def count(ctx: Context) -> int:
    """How many there are."""
    return Person.objects(ctx).count()


@capability("people.hire", side_effects=["sends mail", "spends money"])
def hire(ctx: Context, name: str) -> str:
    """Hire somebody."""
    return name


def make_registry() -> Registry:
    """Three types, two capabilities and two queries."""
    app = App(Person, Employee, Room, count, hire)
    queries = (
        StoredQuery("names", "All names.", "SELECT ?n { ?p :name ?n }"),
        StoredQuery("raise_all", "More.", "DELETE WHERE { ?p :salary ?s }", mutation=True),
    )
    return with_queries(app.registry(), queries)


REGISTRY = make_registry()
KNOWN: KnownNames = know_graph(REGISTRY, "main", ("main", "other"))


def judge_by(*texts: str) -> CedarJudge:
    """A judge by some policies on that registry."""
    sources = [PolicyFile(f"{at}.cedar", text) for at, text in enumerate(texts)]
    return make_judge(sources, KNOWN, "1")


class Bare:
    """Cedar without anything around it."""

    def __init__(self, text: str, world: World = KNOWN.world) -> None:
        self._policies = cedarpy.PolicySet.from_str(text)
        self._records = [each.record() for each in world.entities.values()]

    def allows(
        self, actor: Actor, action: str, resource: Resource, branch: str = "", target: str = ""
    ) -> bool:
        """Allowed, and without any error."""
        answer = cedarpy.is_authorized(
            {
                "principal": {"type": "Actor", "id": actor.name},
                "action": {"type": "Action", "id": action},
                "resource": {"type": resource.kind, "id": resource.id},
                "context": {"branch": branch, "target": target},
            },
            self._policies,
            json.dumps([*self._records, *actor_records(actor)]),
        )
        return answer.allowed and not answer.diagnostics.errors


BRANCHES = ("main", "dev", "a", "a/b", "ada", "agents/ada", "agents/bo/x", "release-1", "bo")
NAMES = ("ada", "bo", 'x"; permit(principal, action, resource); //', "line\nbreak", "ä")
GROUPS = ("readers", "agents", 'g"\\', "ops")
PATTERNS = ("*", "a*", "*b", "agents/*", "agents/*/x", "release-*", "*a*", "a*b", "m?in", "")


def quoted(text: str) -> str:
    """As Cedar writes a text."""
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n"}
    return '"' + "".join(escapes.get(each, each) for each in text) + '"'


actors = st.builds(
    Actor,
    name=st.sampled_from(NAMES),
    scopes=st.frozensets(st.sampled_from(("runtime", "builder", "dev"))),
    groups=st.frozensets(st.sampled_from(GROUPS)),
)
principals = st.one_of(
    st.just("principal"),
    st.sampled_from(GROUPS).map(lambda each: f"principal in Group::{quoted(each)}"),
    st.sampled_from(NAMES).map(lambda each: f"principal == Actor::{quoted(each)}"),
    st.just("principal is Actor"),
    st.sampled_from(GROUPS).map(lambda each: f"principal is Actor in Group::{quoted(each)}"),
)
resources = st.sampled_from(sorted(KNOWN.world.entities, key=str))


def resource_heads(kinds: frozenset[str]) -> st.SearchStrategy[str]:
    """Constraints that something of these kinds can meet."""
    containers = {
        "Graph": {"Graph", "Server"},
        "Type": {"Type", "Graph", "Server"},
        "Field": {"Field", "Type", "Graph", "Server"},
        "Query": {"Query", "Graph", "Server"},
        "Capability": {"Capability", "Graph", "Server"},
    }
    things = sorted(KNOWN.world.entities, key=str)
    same = [f"resource == {each.kind}::{quoted(each.id)}" for each in things if each.kind in kinds]
    within = [
        f"resource in {each.kind}::{quoted(each.id)}"
        for each in things
        if any(each.kind in containers[kind] for kind in kinds)
    ]
    kind = [f"resource is {each}" for each in sorted(kinds)]
    return st.sampled_from(["resource", *same, *within, *kind])


def atoms() -> st.SearchStrategy[str]:
    """One comparison each."""
    place = st.sampled_from(("context.branch", "context.target"))
    texts = st.sampled_from([quoted(each) for each in (*BRANCHES, "", "zzz")])
    return st.one_of(
        st.builds("{} == {}".format, place, texts),
        st.builds("{1} != {0}".format, place, texts),
        st.builds("{} like {}".format, place, st.sampled_from(PATTERNS).map(quoted)),
        st.builds("[{}, {}].contains({})".format, texts, texts, place),
        st.builds("{} == principal.name".format, place),
        st.builds("principal.scopes.contains({})".format, place),
        st.builds("[principal.name, {}].contains({})".format, texts, place),
        st.just("context.branch == context.target"),
        st.just("context has branch"),
        st.just('principal.name like "a*"'),
        st.just('principal.scopes.contains("dev")'),
        st.just("9223372036854775807 + 1 > 0"),
        # What no analysis foresees.
        st.just('(if context.branch like "a*" then "a" else "dev") == context.branch'),
        st.just("[context.branch].contains(principal.name)"),
        st.just('context == {branch: "dev", target: ""}'),
    )


conditions = st.recursive(
    atoms(),
    lambda inner: st.one_of(
        st.builds("({} && {})".format, inner, inner),
        st.builds("({} || {})".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("(if {} then {} else {})".format, inner, inner, inner),
    ),
    max_leaves=5,
)


@st.composite
def policies(draw: st.DrawFn) -> str:
    """One policy."""
    effect = draw(st.sampled_from(("permit", "permit", "forbid")))
    some = draw(st.lists(st.sampled_from(sorted(GRAPH_ACTIONS)), min_size=1, max_size=3))
    everything = draw(st.booleans())
    kinds = frozenset(
        kind for each in (GRAPH_ACTIONS if everything else some) for kind in GRAPH_ACTIONS[each]
    )
    named = ", ".join(f'Action::"{each}"' for each in dict.fromkeys(some))
    action = "action" if everything else f"action in [{named}]"
    resource = draw(resource_heads(kinds))
    clauses = draw(st.lists(st.tuples(st.sampled_from(("when", "unless")), conditions), max_size=2))
    spelled = " ".join(f"{word} {{ {each} }}" for word, each in clauses)
    return f"{effect}({draw(principals)}, {action}, {resource}) {spelled};"


policy_texts = st.lists(policies(), min_size=1, max_size=5).map("\n".join)
