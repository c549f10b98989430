"""Results of queries, and effects of updates.

A worker wrote their bytes, so they are untrusted: nested triples are counted before a
recursive parser reads them.
"""

from __future__ import annotations

import re
from functools import cached_property
from typing import Final, Literal

import msgspec
import pyoxigraph as ox

from trails.errors import LimitError, QueryError
from trails.model.history import Position
from trails.sandbox.limits import MIB, Limits

Form = Literal["select", "ask", "graph"]
Row = tuple[object, ...]

_OPEN: Final = b"<<("
_STRING: Final = re.compile(rb'"(?:[^"\\\n]|\\.)*"')
_NESTING: Final = re.compile(rb"<<\(|\)>>")


class Effect(msgspec.Struct, frozen=True):
    """The N-Quads that an update would remove and add at a position; nothing was changed."""

    position: Position
    removed: bytes
    added: bytes


class Result:
    """The answer to a query. Rows are decoded on first use.

    A SELECT has rows of RDF terms in the order of ``variables`` (None: unbound); CONSTRUCT and
    DESCRIBE have rows of subject, predicate, object; ASK has only ``truth``.
    """

    def __init__(self, form: Form, body: bytes, cut: str, seconds: float, limits: Limits) -> None:
        self.form: Form = form
        self.seconds = seconds
        self.truth = bool(body) if form == "ask" else None
        self.truncated = cut or None
        """The limit that cut it: "rows" or "bytes"."""
        self.notice = _notice(cut, limits)
        """A note for the reader of a truncated result: which limit applied, and what to do."""
        self.body = body
        """The rows as the worker wrote them: TSV for SELECT, N-Triples for a graph."""
        self._depth = limits.depth

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The names of the columns."""
        if self.form == "graph":
            return ("subject", "predicate", "object")
        names = self.body[: self.body.find(b"\n")] if self.form == "select" else b""
        return tuple(name[1:] for name in names.decode().split("\t")) if names else ()

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The rows, as RDF terms."""
        if self.form == "ask":
            return ()
        check_nesting(self.body, self._depth)
        try:
            if self.form == "select":
                found = ox.parse_query_results(self.body, ox.QueryResultsFormat.TSV)
                assert isinstance(found, ox.QuerySolutions)  # noqa: S101 - TSV has no other
                return tuple(map(tuple, found))
            return tuple(
                (quad.subject, quad.predicate, quad.object)
                for quad in ox.parse(self.body, ox.RdfFormat.N_TRIPLES, lenient=True)
            )
        except (SyntaxError, ValueError):
            raise QueryError("the result contains a term that can't be parsed") from None

    def __len__(self) -> int:
        """The number of rows."""
        return len(self.rows)


def check_nesting(text: bytes, depth: int) -> None:
    """Refuse triples nested deeper than a parser can handle."""
    if text.count(_OPEN) <= depth:
        return
    for line in text.split(b"\n"):
        if line.count(_OPEN) <= depth:
            continue
        level = 0
        for bracket in _NESTING.findall(_STRING.sub(b"", line)):
            level += 1 if bracket == _OPEN else -1
            if level > depth:
                raise LimitError(
                    f"triples are nested within triples more than {depth} levels deep; "
                    "nest them less",
                    limit="depth",
                    value=depth,
                )


def _notice(cut: str, limits: Limits) -> str | None:
    if cut == "rows":
        return (
            f"only the first {limits.rows:,} rows are shown; narrow the query, page through it "
            "with ORDER BY, LIMIT and OFFSET, or raise '[sandbox] rows' in trails.toml"
        )
    if cut == "bytes":
        return (
            f"only the first {limits.result_bytes / MIB:g} MiB are shown; select fewer variables "
            "or rows, or raise '[sandbox] result_mb' in trails.toml"
        )
    return None
