"""Read the syntax trees of policies: their heads, and the texts in their conditions."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields, is_dataclass

import msgspec
from cedarpy import pst


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
