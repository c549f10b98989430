"""Validation of instances by our compiled checks beside pySHACL on the SHACL that we export.

Same instances, same ten constraints, both without reading or writing any store.
pySHACL gets a slice, because its rate does not depend on the count; the floor is
msgspec, which is written in C and stops at the first error.
"""

from __future__ import annotations

import warnings
from datetime import date
from typing import Annotated, Literal

import msgspec
import rdflib

from bench.measure import Goal, Result, interleave
from bench.parts import SCORES, Part, values
from trails.engine.validation.validate import Validator
from trails.errors import FieldError
from trails.model.iris import Names
from trails.model.nodes import NodeState
from trails.model.types import Schema
from trails.projections.shacl import project_shacl
from trails.views.terms import Terms

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import pyshacl

Number = Annotated[int, msgspec.Meta(ge=0, le=SCORES)]


class Struct(msgspec.Struct):
    """The same constraints in the words of msgspec."""

    code: Annotated[str, msgspec.Meta(pattern=r"^P-[0-9]{8}$")]
    title: Annotated[str, msgspec.Meta(min_length=1, max_length=120)]
    lot: Annotated[str, msgspec.Meta(pattern=r"^L-[0-9]{4}$")]
    site: Annotated[str, msgspec.Meta(max_length=8)]
    state: Literal["open", "done"]
    score: Number
    weight: Annotated[float, msgspec.Meta(ge=0, le=1000)]
    made: date


def run(*, quick: bool) -> list[Result]:
    """Check all instances, in turns."""
    count, slice_size, rounds = (1_000, 50, 3) if quick else (10_000, 500, 5)
    schema, names = Schema.of([Part.__trails__]), Names("trails://bench/main")
    given = [values(number) for number in range(count)]
    validator = Validator(schema, names)
    shapes = rdflib.Graph().parse(data=project_shacl(schema, names), format="turtle")
    data = rdflib.Graph().parse(data=_statements(schema, names, given[:slice_size]), format="nt")

    def ours() -> None:
        errors: list[FieldError] = []
        for each in given:
            validator.check("Part", each, "", errors)
        if errors:
            raise AssertionError(errors[0].message)

    def peer() -> None:
        conforms, _, report = pyshacl.validate(data, shacl_graph=shapes)
        if not conforms:
            raise AssertionError(report)

    def floor() -> None:
        for each in given:
            msgspec.convert(each, Struct)

    times = interleave({"ours": ours, "peer": peer, "floor": floor}, rounds, warmup=1)
    return [
        Result(
            f"validate {count:,} instances × 10 constraints",
            "/s",
            count / times["ours"].p50,
            slice_size / times["peer"].p50,
            count / times["floor"].p50,
            Goal(">=", 100),
            f"pySHACL on {slice_size} of them · msgspec, first error only",
            {"peer_slice": slice_size, "rounds": rounds},
        )
    ]


def _statements(schema: Schema, names: Names, given: list[dict[str, object]]) -> str:
    terms = Terms(schema, names)
    states = (NodeState("Part", str(each["code"]), each) for each in given)
    return "".join(line for state in states for line in terms.statements(state))
