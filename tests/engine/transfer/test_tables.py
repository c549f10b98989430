"""CSV out: read back by a strict reader, every cell is what the record holds."""

from __future__ import annotations

import csv
import io
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.transfer.test_export import TYPES, Link, Loose, Thing, graphs

from trails import App, Node
from trails.engine.transfer.files import export
from trails.engine.transfer.tables import TableWriter
from trails.model.kinds import KINDS
from trails.model.nodes import NodeState


def rows_of(text: bytes) -> list[dict[str, str]]:
    """The rows by column, as a strict reader sees them."""
    assert text.endswith(b"\r\n")
    reader = csv.DictReader(io.StringIO(text.decode(), newline=""), strict=True)
    return list(reader)


@settings(max_examples=25, deadline=None)
@given(nodes=graphs())
def test_every_cell_is_what_the_record_holds(nodes: list[Node]) -> None:
    """Scalars as their canonical text, lists as JSON, nothing for a missing value."""
    with App(*TYPES) as app:
        app.context(actor="test").kg.save_all(nodes)
        main = app.graph().main
        with app.graph().file.reader() as db:
            states = list(main.nodes.states(db, tuple(main.schema.by_name)))
        rows = rows_of(b"".join(export(main.terms, states, "csv")))
        assert len(rows) == len(states)
        for row, state in zip(rows, states, strict=True):
            descriptor = main.schema.by_name[state.type]
            assert (row.pop("type"), row.pop("id")) == (state.type, state.id)
            for name, cell in row.items():
                field, value = descriptor.by_name.get(name), state.values.get(name)
                if field is None or value is None:
                    assert cell == ""
                elif field.many:
                    assert len(json.loads(cell)) == len(value)
                else:
                    kind = KINDS.get(field.type.kind)
                    assert cell == (value if kind is None else kind.lexical(value))


def test_columns_are_those_of_the_types() -> None:
    """One type with a key needs neither its name nor an id; an edge has its two ends."""
    with App(*TYPES) as app:
        schema = app.registry().schema
        heads = {
            names: TableWriter(schema, names).head.decode().strip().split(",")
            for names in (("Thing",), ("Loose",), ("Link",), ("Thing", "Loose"))
        }
    assert heads["Thing",][:2] == ["key", "flag"]
    assert heads["Loose",] == ["id", "text", "about"]
    assert heads["Link",] == ["source", "target", "weight", "labels"]
    assert heads["Thing", "Loose"][:4] == ["type", "id", "key", "flag"]
    assert heads["Thing", "Loose"][-2:] == ["text", "about"]
    assert {Thing, Loose, Link} <= set(TYPES)


FORMULAS = ("=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1")


@given(st.text())
@pytest.mark.parametrize("start", FORMULAS)
def test_formulas_are_escaped_where_asked_for(start: str, rest: str) -> None:
    """A text gets an apostrophe; a number, which can't be a formula, keeps its sign."""
    with App(*TYPES) as app:
        schema = app.registry().schema
    state = NodeState("Thing", "k", {"key": start + rest, "count": -5, "words": ("=1",)})
    plain, escaped = (
        rows_of(writer.head + b"".join(writer.records([state])))[0]
        for writer in (
            TableWriter(schema, ("Thing",), escape_formulas=each) for each in (False, True)
        )
    )
    assert plain["key"] == start + rest
    assert escaped["key"] == "'" + start + rest
    assert plain["count"] == escaped["count"] == "-5"
    assert plain["words"] == escaped["words"] == '["=1"]'
