"""Places: the branches that policies can tell apart.

Policies compare branch names with texts and ``like`` patterns, and most branches compare
alike. Cedar is asked about one branch of each kind, which answers for the others. A policy
that uses a branch in any other way is *opaque*: then every branch is asked about.

A policy about a branch that does not exist yet (a fork) permits some name or none. Names are
infinitely many, but patterns distinguish only finitely many kinds of them; one valid name of
each kind is found by running all patterns in parallel, letter by letter.

The first functions read the syntax trees of policies. Cedar's own partial evaluation is not used;
docs/architecture.md says why.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache, reduce
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Final

import msgspec
from cedarpy import pst

from trails.errors import DeclarationError
from trails.model.actors import Actor
from trails.model.capabilities import Action
from trails.model.names import LONGEST_BRANCH, check_branch_name
from trails.policies.vocabulary import PAIRS


def children(node: object) -> tuple[object, ...]:
    """Return the direct children of a node."""
    if isinstance(node, dict):
        return tuple(node.values())
    if isinstance(node, tuple):
        return node
    if is_dataclass(node) and not isinstance(node, type):
        return tuple(getattr(node, field.name) for field in fields(node))
    return ()


def walk(node: object) -> Iterator[object]:
    """Yield a node and everything under it."""
    todo = [node]
    while todo:
        each = todo.pop()
        yield each
        todo.extend(children(each))


def context_name(node: object) -> str | None:
    """Return ``branch`` for ``context.branch``; None for anything else."""
    match node:
        case pst.GetAttr(base=pst.Var(name="context"), attr=name):
            return name
    return None


def context_texts(template: pst.Template) -> Iterator[tuple[str, str]]:
    """Yield every text that a policy compares with an attribute of the context."""
    for node in walk(template.clauses):
        match node:
            case pst.BinaryOp(op="eq" | "not_eq", left=left, right=pst.StringLit(value=text)):
                name = context_name(left)
            case pst.BinaryOp(op="eq" | "not_eq", left=pst.StringLit(value=text), right=right):
                name = context_name(right)
            case pst.BinaryOp(op="contains", left=pst.Set(elements=elements), right=right):
                name = context_name(right)
                for each in elements:
                    if name is not None and isinstance(each, pst.StringLit):
                        yield name, each.value
                continue
            case _:
                continue
        if name is not None:
            yield name, text


def scope_texts(template: pst.Template) -> Iterator[str]:
    """Yield every text that a policy looks for in the principal's scopes."""
    for node in walk(template.clauses):
        match node:
            case pst.BinaryOp(
                op="contains" | "contains_all" | "contains_any",
                left=pst.GetAttr(base=pst.Var(name="principal"), attr="scopes"),
                right=right,
            ):
                texts = right.elements if isinstance(right, pst.Set) else (right,)
                yield from (each.value for each in texts if isinstance(each, pst.StringLit))


Uid = tuple[str, str]
"""The type and the id of an entity."""


class Constraint(msgspec.Struct, frozen=True):
    """The principals or resources that a policy applies to; by default all."""

    kind: str = ""
    uid: Uid | None = None
    within: bool = False
    """Whether descendants of ``uid`` match too."""

    def fits(self, uid: Uid, above: Collection[Uid]) -> bool:
        """Whether an entity matches; ``above`` are its ancestors."""
        if self.kind and self.kind != uid[0]:
            return False
        return self.uid is None or self.uid == uid or (self.within and self.uid in above)

    def __str__(self) -> str:
        named = "" if self.uid is None else spell_uid(self.uid)
        if self.within:
            return f"{f'each {self.kind}' if self.kind else 'all'} in {named}"
        return named or (f"each {self.kind}" if self.kind else "everything")


def spell_uid(uid: Uid) -> str:
    """``Type::"Person"``."""
    return f"{uid[0]}::{msgspec.json.encode(uid[1]).decode()}"


def read_constraint(given: pst.PrincipalOrResourceConstraint) -> Constraint:
    """Read a head; policies with slots were refused, so an entity has a name."""
    match given:
        case pst.ScopeEq(entity=pst.EntityUid() as entity):
            return Constraint(uid=_uid(entity))
        case pst.ScopeIn(entity=pst.EntityUid() as entity):
            return Constraint(uid=_uid(entity), within=True)
        case pst.ScopeIs(entity_type=kind):
            return Constraint(str(kind))
        case pst.ScopeIsIn(entity_type=kind, entity=pst.EntityUid() as entity):
            return Constraint(str(kind), _uid(entity), within=True)
    return Constraint()


def read_actions(given: pst.ActionConstraint) -> frozenset[str] | None:
    """Return the actions that a policy names; None if it applies to all."""
    match given:
        case pst.ActionEq(entity=entity):
            return frozenset({entity.id})
        case pst.ActionIn(entities=entities):
            return frozenset(each.id for each in entities)
    return None


def _uid(entity: pst.EntityUid) -> Uid:
    return str(entity.type), entity.id


Glob = tuple[str | None, ...]
"""The characters of a pattern; None is ``*``."""

_LETTERS: Final = ascii_lowercase + ascii_uppercase + digits
_REFUSED: Final[Glob] = (None, *".lock")
"""Endings that no branch name may have; the search tracks them like a pattern."""
_MOST: Final = 2000
"""The most states of a search; beyond it, the patterns count as indistinguishable."""


@lru_cache(maxsize=1024)
def compile_glob(glob: Glob) -> re.Pattern[str]:
    """Return the pattern as a regular expression, for ``fullmatch``."""
    return re.compile(
        "".join(".*" if each is None else re.escape(each) for each in glob), re.DOTALL
    )


@lru_cache(maxsize=256)
def names_of_each_kind(globs: frozenset[Glob]) -> tuple[str, ...] | None:
    """Find a branch name for every set of patterns that some name matches.

    Every other name matches the same patterns as one of these. None if there are too many.
    """
    walks = [_Walk(each) for each in (*sorted(globs, key=repr), _REFUSED)]
    begin = tuple(each.begin for each in walks)
    todo: deque[tuple[str, tuple[int, ...]]] = deque([("", begin)])
    seen = {(begin, _tail(""))}
    found: dict[tuple[bool, ...], str] = {}
    while todo:
        name, state = todo.popleft()
        ends = tuple(walk.ends(at) for walk, at in zip(walks, state, strict=True))
        if ends not in found and is_branch_name(name):
            found[ends] = name
        for letter in _next_letters(walks, state):
            longer = name + letter
            if not _may_follow(name, letter):
                continue
            after = tuple(walk.step(at, letter) for walk, at in zip(walks, state, strict=True))
            if (after, _tail(longer)) not in seen:
                seen.add((after, _tail(longer)))
                todo.append((longer, after))
        if len(seen) > _MOST:
            return None
    return tuple(found.values())


def is_branch_name(name: str) -> bool:
    try:
        check_branch_name(name)
    except DeclarationError:
        return False
    return True


class _Walk:
    """The states of one pattern during a search, one bit for each position."""

    def __init__(self, glob: Glob) -> None:
        self._stars = sum(1 << at for at, each in enumerate(glob) if each is None)
        self._places: dict[str, int] = {}
        for at, each in enumerate(glob):
            if each is not None:
                self._places[each] = self._places.get(each, 0) | 1 << at
        self._end = 1 << len(glob)
        self.begin = self._pass_stars(1)

    def _pass_stars(self, state: int) -> int:
        """Add the positions after stars: a star may match nothing."""
        while (further := state | (state & self._stars) << 1) != state:
            state = further
        return state

    def step(self, state: int, letter: str) -> int:
        """Return the positions after one more letter."""
        advanced = (state & self._places.get(letter, 0)) << 1
        return self._pass_stars(advanced | state & self._stars)

    def ends(self, state: int) -> bool:
        """Whether the pattern may end here."""
        return bool(state & self._end)

    def letters(self, state: int) -> Iterator[str]:
        """Return the letters that matter at these positions."""
        return (letter for letter, places in self._places.items() if state & places)


def _next_letters(walks: list[_Walk], state: tuple[int, ...]) -> list[str]:
    """Return the letters that matter here, and one that represents all others."""
    matter = {letter for walk, at in zip(walks, state, strict=True) for letter in walk.letters(at)}
    other = next((each for each in _LETTERS if each not in matter), "")
    return [*sorted(matter), other] if other else sorted(matter)


def _may_follow(name: str, letter: str) -> bool:
    """Whether a branch name may continue with this letter; its end is checked separately."""
    if len(name) >= LONGEST_BRANCH:
        return False
    if letter in _LETTERS:
        return True
    tail = _tail(name)
    return letter in "._-/" and tail != "/" and not (tail == letter == ".")


def _tail(name: str) -> str:
    """Return the part of a prefix that decides how it may continue."""
    if not name:
        return "/"
    return name[-1] if name[-1] in "/." else ""


Place = tuple[str, str]
"""A branch, and the other branch for actions on two."""
_FIRST: Final = "main"

"""The most pairs of branches to ask about."""


class BranchTest(msgspec.Struct, frozen=True):
    """What a name is compared with: texts, or a pattern."""

    texts: frozenset[str] = frozenset()
    pattern: Glob | None = None
    name: bool = False
    """Whether the actor's name is one of the texts."""
    scopes: bool = False
    """Whether the actor's scopes are among the texts."""

    def for_actor(self, actor: Actor) -> BranchTest:
        """Add the texts that depend on the actor."""
        if not self.name and not self.scopes:
            return self
        brought = {actor.name} if self.name else set()
        return BranchTest(self.texts | brought | (actor.scopes if self.scopes else frozenset()))

    def holds(self, name: str) -> bool:
        """Whether a name matches."""
        if self.pattern is not None:
            return compile_glob(self.pattern).fullmatch(name) is not None
        return name in self.texts

    def globs(self) -> Iterable[Glob]:
        """Return the comparison as patterns."""
        return (tuple(text) for text in self.texts) if self.pattern is None else (self.pattern,)


class Conditions(msgspec.Struct, frozen=True):
    """How policies use the two branches of a request."""

    branch: frozenset[BranchTest] = frozenset()
    target: frozenset[BranchTest] = frozenset()
    same: bool = False
    """Whether the two branches are compared with each other."""
    opaque: bool = False

    def __or__(self, other: Conditions) -> Conditions:
        return Conditions(
            self.branch | other.branch,
            self.target | other.target,
            self.same or other.same,
            self.opaque or other.opaque,
        )

    def for_actor(self, actor: Actor) -> Conditions:
        """Add the texts that depend on the actor."""
        return msgspec.structs.replace(
            self,
            branch=frozenset(each.for_actor(actor) for each in self.branch),
            target=frozenset(each.for_actor(actor) for each in self.target),
        )


NO_CONDITIONS: Final = Conditions()
OPAQUE: Final = Conditions(opaque=True)


def read_conditions(template: pst.Template) -> Conditions:
    """Analyse how one policy uses the branches."""
    return join_conditions(_read(clause.expr) for clause in template.clauses)


def join_conditions(given: Iterable[Conditions]) -> Conditions:
    return reduce(Conditions.__or__, given, NO_CONDITIONS)


def _read(node: object) -> Conditions:
    match node:
        case pst.HasAttr(base=pst.Var(name="context")):
            return NO_CONDITIONS  # always there
        case pst.BinaryOp(op="eq" | "not_eq", left=left, right=right):
            return _compared(left, right)
        case pst.BinaryOp(op="contains", left=left, right=right) if context_name(right):
            return _tested(context_name(right), _texts(left))
        case pst.Like(base=base, pattern=pattern) if context_name(base):
            glob = tuple(each.value if isinstance(each, pst.Char) else None for each in pattern)
            return _tested(context_name(base), BranchTest(pattern=glob))
        case pst.Var(name="context"):
            return OPAQUE
    return join_conditions(map(_read, children(node)))


def _compared(left: object, right: object) -> Conditions:
    one, other = context_name(left), context_name(right)
    if one and other:
        return NO_CONDITIONS if one == other else Conditions(same=True)
    if one:
        return _tested(one, _text(right))
    if other:
        return _tested(other, _text(left))
    return _read(left) | _read(right)


def _tested(name: str | None, test: BranchTest | None) -> Conditions:
    if test is None or name not in {"branch", "target"}:
        return OPAQUE
    tests = frozenset({test})
    return Conditions(branch=tests) if name == "branch" else Conditions(target=tests)


def _text(node: object) -> BranchTest | None:
    """Return a text that does not depend on the branches; None if it does."""
    match node:
        case pst.StringLit(value=text):
            return BranchTest(frozenset({text}))
        case pst.GetAttr(base=pst.Var(name="principal"), attr="name"):
            return BranchTest(name=True)
    return None


def _texts(node: object) -> BranchTest | None:
    """Return a set of such texts."""
    match node:
        case pst.GetAttr(base=pst.Var(name="principal"), attr="scopes"):
            return BranchTest(scopes=True)
        case pst.Set(elements=elements):
            known = [each for each in map(_text, elements) if each is not None]
            if len(known) == len(elements):
                texts = frozenset[str]().union(*(each.texts for each in known))
                return BranchTest(texts, name=any(each.name for each in known))
    return None


def places_for(
    action: Action, conditions: Conditions, branches: frozenset[str]
) -> Sequence[Place] | None:
    """Return the places to ask about so that every other place is answered; None if too many."""
    if action in PAIRS:
        pairs = (_merges if action == "BranchMerge" else _forks)(conditions, branches)
        return None if pairs is None or len(pairs) > _MOST else pairs
    names = _ordered(branches) if conditions.opaque else _kinds(conditions.branch, branches)
    return [(each, "") for each in names]


def kinds_of(conditions: Conditions, branches: frozenset[str]) -> Mapping[str, str]:
    """Map each branch to the first of its kind."""
    if conditions.opaque:
        return {each: each for each in branches}
    groups = _members(conditions.branch, branches).values()
    return {each: members[0] for members in groups for each in members}


def _merges(conditions: Conditions, branches: frozenset[str]) -> Sequence[Place] | None:
    """Pair each kind with each; if they are compared, also with itself and with another."""
    if conditions.opaque:
        return None
    if not conditions.same:
        targets = _kinds(conditions.target, branches)
        return [(one, other) for one in _kinds(conditions.branch, branches) for other in targets]
    kinds = _members(conditions.branch | conditions.target, branches).values()
    some = [each for members in kinds for each in members[:2]]
    return [(one, other) for one in some for other in some]


def _forks(conditions: Conditions, branches: frozenset[str]) -> Sequence[Place] | None:
    """Pair each kind of branch, or a bare commit, with each kind of new name."""
    globs = frozenset(glob for test in conditions.target for glob in test.globs())
    if conditions.opaque or conditions.same:
        return None
    targets = names_of_each_kind(globs)
    if targets is None:
        return None
    begins = _kinds(conditions.branch, branches | {""})
    return [(begin, target) for begin in begins for target in targets]


def _kinds(tests: frozenset[BranchTest], branches: frozenset[str]) -> list[str]:
    """Return one branch of each kind."""
    return [members[0] for members in _members(tests, branches).values()]


@lru_cache(maxsize=32)
def _members(
    tests: frozenset[BranchTest], branches: frozenset[str]
) -> Mapping[tuple[bool, ...], list[str]]:
    """Group branches by the comparisons that they pass."""
    found: dict[tuple[bool, ...], list[str]] = {}
    for branch in _ordered(branches):
        found.setdefault(tuple(test.holds(branch) for test in tests), []).append(branch)
    return found


@lru_cache(maxsize=4)
def _ordered(branches: frozenset[str]) -> tuple[str, ...]:
    """Sort by name, with the branch that always exists first."""
    return tuple(sorted(branches, key=lambda each: (each != _FIRST, each)))
