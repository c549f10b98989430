"""Inspect a project's policies without serving it.

Only files are read, so this works while another process serves the folder. The matrix of
actors and tools uses the same checks as lists and calls; the branch and its types come from
the declarations, since no data is open.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, Literal

import msgspec

from trails.app.access import access_of
from trails.app.modules import declared_registry
from trails.app.policies import ProjectPolicies
from trails.app.settings import DATA_FOLDER, choose_graph, read_settings
from trails.engine.graph.graph import MAIN
from trails.errors import PolicyError
from trails.identity.tokens import TokenFile
from trails.model.capabilities import Capability, Scope, StoredQuery
from trails.model.decisions import (
    Explanation,
    Judge,
    MatrixRow,
    PolicyActor,
    PolicyCase,
    PolicyCases,
    PolicyCheck,
    PolicyMatrix,
    PolicyProblem,
    PolicyQuestion,
    PolicyResult,
    Resource,
)
from trails.model.iris import Names
from trails.model.types import Schema
from trails.policies.explain import Question, advise, explain
from trails.policies.judge import CedarJudge
from trails.policies.vocabulary import SERVER, SERVER_ACTIONS, find_resource
from trails.registry.registry import Declared, Registry
from trails.request.authorize import ActorAccess, Branches
from trails.request.catalog import builtin_gate
from trails.request.entries import Gate, of_capability, of_query
from trails.request.operations import BUILTINS


class GatedTool(msgspec.Struct, frozen=True):
    """A tool, and what it requires."""

    name: str
    scope: Scope
    gate: Gate
    source: Capability | StoredQuery | None = None
    """The capability or query it calls; None for built-ins."""


class DeclaredBranch(Branches):
    """A branch with the declared types."""

    def __init__(self, branch: str, schema: Schema, names: Names) -> None:
        self.spelled = names
        self._seen = 0, frozenset({branch})
        self._schema = schema

    def look(self) -> tuple[int, frozenset[str]]:
        """Do nothing: nothing changes here."""
        return self._seen

    def schema_of(self, branch: str) -> Schema | None:
        del branch
        return self._schema


def gated_tools(
    registry: Registry, graph: str, env: Literal["development", "production"]
) -> list[GatedTool]:
    """Return everything that can be called, in name order."""
    return sorted(_tools(registry, graph, env), key=lambda each: each.name)


def _tools(registry: Registry, graph: str, env: str) -> Iterator[GatedTool]:
    for builtin in BUILTINS:
        if not builtin.is_hidden(env):
            scope: Scope = "runtime" if builtin.meta is None else builtin.meta.scope
            yield GatedTool(builtin.name, scope, builtin_gate(builtin, graph))
    for each in (*registry.capabilities.values(), *registry.metas.values()):
        scope = "runtime" if each.meta is None else each.meta.scope
        if scope != "dev" or env != "production":
            yield GatedTool(each.tool_name, scope, of_capability(each, graph, MAIN), each)
    for query in registry.queries.values():
        if query.expose:
            yield GatedTool(query.effective_tool_name, "runtime", of_query(query), query)


def cell_of(tool: GatedTool, rights: ActorAccess, registry: Registry) -> str:
    """Return ``yes``, ``no``, or ``scope`` if only the scope is missing."""
    if not rights.passes(tool.gate):
        return "no"
    declared = rights.declared(registry)
    source = tool.source
    if isinstance(declared, Declared) and source is not None and not declared.knows(source):
        return "no"  # a parameter or result type is hidden from the actor
    return "yes" if tool.scope in rights.actor.scopes else "scope"


CASES: Final = "tests.toml"
"""The file of cases, in the folder of a graph's policies."""
_OPEN: Final = Explanation(
    True,
    "open: there are no policies and no tokens, so every user of this machine can do everything",
    (),
    (),
)


class PolicyInspector:
    """A project's policies, loaded from its files."""

    def __init__(self, folder: Path, registry: Callable[[str], Registry] | None = None) -> None:
        """``registry`` gives the declarations of a graph; by default they are read from files."""
        self._folder = folder.resolve()
        self._settings = read_settings(self._folder)
        self._given = registry
        self._registries: dict[str, Registry] = {}
        gate = access_of(self._folder, self._settings, os.environ)
        self._policies = ProjectPolicies(
            self._folder, self._settings, self._registry, gate.configured
        )

    def _registry(self, graph: str) -> Registry:
        if self._given is not None:
            return self._given(graph)
        found = self._registries.get(graph)
        if found is None:
            found = declared_registry(self._folder, self._settings, graph)
            self._registries[graph] = found
        return found

    def check(self) -> list[PolicyCheck]:
        """Check the policies of every graph and of the server."""
        return [self.check_one(each) for each in (*self._settings.graphs, None)]

    def check_one(self, graph: str | None) -> PolicyCheck:
        """Check the policies of one graph, or those of the server."""
        subject = "server" if graph is None else f"graph {graph}"
        try:
            following = self._policies.server() if graph is None else self._policies.judge(graph)
        except PolicyError as error:
            found = error.data.get("problems")
            problems = (
                found if isinstance(found, list) else [PolicyProblem("", 0, "", error.message)]
            )
            return PolicyCheck(subject, "policies", problems=tuple(problems))
        judge = following.current
        if following.mode != "policies" or not isinstance(judge, CedarJudge):
            closed = graph is None and following.mode == "read only"
            return PolicyCheck(subject, "closed" if closed else following.mode)
        policies = judge.policies.policies
        return PolicyCheck(
            subject,
            following.mode,
            tuple(dict.fromkeys(each.statement.file for each in policies)),
            sum(each.permits for each in policies),
            sum(not each.permits for each in policies),
            notes=tuple(advise(judge.policies, judge.classes.world, self._groups())),
        )

    def check_new(self, graph: str, name: str, text: str) -> None:
        """Raise PolicyError unless a new file fits the policies of a graph and its types."""
        self._policies.check_new(graph, name, text)

    def _groups(self) -> frozenset[str] | None:
        """Return the groups with members; None if they are not known here."""
        tokens = TokenFile(self._folder / DATA_FOLDER).read()
        if self._settings.auth.oauth is not None or not tokens:
            return None
        return frozenset(group for each in tokens for group in each.groups)

    def test(self, graph: str | None, file: Path | None) -> list[PolicyResult]:
        """Run the cases of a file."""
        chosen = choose_graph(self._settings.graphs, graph)
        return self.try_cases(chosen, read_cases(file or self._cases_file(chosen)).case)

    def try_cases(self, graph: str, cases: Iterable[PolicyCase]) -> list[PolicyResult]:
        """Compare expected answers with those of the policies."""
        found = []
        for case in cases:
            answer = self.explain(graph, case)
            passed = answer.allowed == (case.expect == "allow")
            found.append(PolicyResult(case.title, passed, case.expect, answer.reason))
        return found

    def policies_folder(self, graph: str) -> Path:
        """The folder of a graph's policies."""
        return self._folder / self._settings.graphs[graph].policies

    def _cases_file(self, graph: str) -> Path:
        return self.policies_folder(graph) / CASES

    def explain(self, graph: str | None, question: PolicyQuestion) -> Explanation:
        """Explain why something is allowed or denied."""
        chosen = choose_graph(self._settings.graphs, graph)
        of_server = question.action in SERVER_ACTIONS
        judge = self._judge(None if of_server else chosen)
        if not isinstance(judge, CedarJudge):
            return _OPEN
        whole = Resource("Server", SERVER) if of_server else Resource("Graph", chosen)
        resource = find_resource(judge.classes.world, question, whole)
        return explain(
            judge,
            Question(
                question.resolved(), question.action, resource, question.branch, question.target
            ),
        )

    def matrix(self, graph: str | None, actors: Sequence[PolicyActor], branch: str) -> PolicyMatrix:
        """Show which actor may use which tool on a branch; by default all known actors."""
        chosen = choose_graph(self._settings.graphs, graph)
        given = [*actors] or self._known_actors(chosen)
        if not given:
            raise PolicyError(
                f"there are no tokens, and no cases in {self._cases_file(chosen)}: "
                "name an actor with --actor"
            )
        named = tuple(dict.fromkeys(given))
        judge, registry = self._judge(chosen), self._registry(chosen)
        names = Names(self._settings.base_iri(chosen))
        place = DeclaredBranch(branch, registry.schema, names)
        rights = [ActorAccess(judge, each.resolved(), chosen, place) for each in named]
        return PolicyMatrix(
            chosen,
            branch,
            named,
            tuple(
                MatrixRow(each.name, tuple(cell_of(each, actor, registry) for actor in rights))
                for each in gated_tools(registry, chosen, self._settings.project.env)
            ),
        )

    def _known_actors(self, graph: str) -> list[PolicyActor]:
        """Yield the actors of tokens, then those of the cases."""
        tokens = TokenFile(self._folder / DATA_FOLDER).read()
        known = [PolicyActor(each.actor, each.groups, each.scopes) for each in tokens]
        file = self._cases_file(graph)
        cases = read_cases(file).case if file.is_file() else ()
        return [*known, *(PolicyActor(each.actor, each.groups, each.scopes) for each in cases)]

    def _judge(self, graph: str | None) -> Judge:
        following = self._policies.server() if graph is None else self._policies.judge(graph)
        return following.current


def read_cases(file: Path) -> PolicyCases:
    """Read a file of cases strictly."""
    try:
        return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), PolicyCases)
    except FileNotFoundError:
        raise PolicyError(
            f"{file} does not exist; write cases to it, or name another file"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise PolicyError(f"{file} can't be used: {error}") from None
