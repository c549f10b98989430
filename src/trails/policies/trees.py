"""Walk the syntax trees of policies."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from cedarpy import pst


def children(node: object) -> tuple[object, ...]:
    """What is directly under a node."""
    if isinstance(node, dict):
        return tuple(node.values())
    if isinstance(node, tuple):
        return node
    if is_dataclass(node) and not isinstance(node, type):
        return tuple(getattr(node, field.name) for field in fields(node))
    return ()


def walk(node: object) -> Iterator[object]:
    """A node and everything under it."""
    todo = [node]
    while todo:
        each = todo.pop()
        yield each
        todo.extend(children(each))


def context_name(node: object) -> str | None:
    """``branch`` of ``context.branch``; None for anything else."""
    match node:
        case pst.GetAttr(base=pst.Var(name="context"), attr=name):
            return name
    return None


def context_texts(template: pst.Template) -> Iterator[tuple[str, str]]:
    """Every text that a policy compares with something of the context."""
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
    """Every text that a policy looks for among the scopes of the principal."""
    for node in walk(template.clauses):
        match node:
            case pst.BinaryOp(
                op="contains" | "contains_all" | "contains_any",
                left=pst.GetAttr(base=pst.Var(name="principal"), attr="scopes"),
                right=right,
            ):
                texts = right.elements if isinstance(right, pst.Set) else (right,)
                yield from (each.value for each in texts if isinstance(each, pst.StringLit))
