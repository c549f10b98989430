"""What a load is made of, whatever its format: nodes to put, and what is wrong with the file."""

from __future__ import annotations

import re

import msgspec

from trails.engine.rules import RuleError
from trails.engine.write.bulk import MAX_ERRORS
from trails.errors import FieldError
from trails.model.constraints import showable

_number = re.compile(r"(?:line|row) ([0-9]+)").match


class Item(msgspec.Struct):
    """A node that the file gives: raw values, and where they stand."""

    number: int
    """The line or row; where the format has none, a number below zero. No two share one."""
    label: str
    """What messages about it begin with, such as ``line 12: ``."""
    type: str
    values: dict[str, object]
    id: str | None = None
    handle: str | None = None
    added: dict[str, list[str]] = {}
    """What edge lines add to reference fields."""
    open: bool = False
    """Whether a reference names a key that several types could have."""
    partial: bool = False
    """Whether it only adds to a node of the graph, being an edge line's start."""
    checked: bool = False
    """Whether the values are as the validator would give them."""

    @property
    def whole(self) -> str:
        """What messages begin with that are about no field of it."""
        return self.label.removesuffix(".").removesuffix(", column ").removesuffix(": ") + ": "


class Problems:
    """Everything that is wrong with a file, by line."""

    def __init__(self) -> None:
        self.found: list[FieldError] = []
        self.unread = False
        """Whether some node could not even be read, so that references to it are no news."""

    @property
    def full(self) -> bool:
        """Whether there is no point in looking for more."""
        return len(self.found) >= MAX_ERRORS

    def add(self, label: str, message: str, code: str = "syntax", value: object = None) -> None:
        """A line that gives no node."""
        self.unread = True
        where = label.rstrip(" .:")
        self.found.append(FieldError(where, code, f"{label}{message}", showable(value)))

    def listed(self, lines: dict[str, str]) -> list[FieldError]:
        """All of them in the order of the file, with ``lines`` telling where nodes stand."""
        told: dict[str, FieldError] = {}
        for error in self.found:
            if self.unread and isinstance(error, RuleError) and error.code == "reference":
                continue
            placed = _placed(error, lines)
            told.setdefault(placed.message, placed)
        return sorted(told.values(), key=_place)


def _placed(error: FieldError, lines: dict[str, str]) -> FieldError:
    label = ""
    if isinstance(error, RuleError):
        label = next((lines[handle] for handle in reversed(error.nodes) if handle in lines), "")
    if not label:
        return error
    return FieldError(
        label + error.field, error.code, label + error.message, error.value, error.constraint
    )


def _place(error: FieldError) -> int:
    found = _number(error.field)
    return int(found[1]) if found is not None else 1 << 62
