"""Results of routes that are not built-ins: the graphs of a server, and lists of instances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from trails.model.capabilities import Tool


class ServedGraph(msgspec.Struct, frozen=True):
    """A graph of a server."""

    graph_id: str
    uri: Annotated[str, Meta(description="What the IRIs of its nodes begin with.")]


class GraphList(msgspec.Struct, frozen=True):
    """The graphs of a server."""

    graphs: tuple[ServedGraph, ...]


class CapabilityList(msgspec.Struct, frozen=True):
    """Everything that the caller can invoke in a graph."""

    registry: Annotated[str, Meta(description="The digest of the registry that it comes from.")]
    capabilities: tuple[Tool, ...]


class ListedInstance(msgspec.Struct, frozen=True, omit_defaults=True):
    """An instance in a list."""

    iri: str
    label: str
    values: Annotated[
        Mapping[str, object] | None, Meta(description="With fields: the values of those.")
    ] = None


class InstanceList(msgspec.Struct, frozen=True):
    """A page of the instances of a type and its subtypes."""

    instances: tuple[ListedInstance, ...]
    next: Annotated[str | None, Meta(description="The cursor of the next page; null at the end.")]


class Health(msgspec.Struct, frozen=True):
    """Whether a server answers, and can be written."""

    status: str


class BatchedResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """What came of one call of a batch: a result, or a problem."""

    status: Annotated[int, Meta(description="The HTTP status that the call would have alone.")]
    result: Mapping[str, object] | None = None
    problem: Mapping[str, object] | None = None


class BatchResult(msgspec.Struct, frozen=True):
    """What came of each call of a batch, in order."""

    results: tuple[BatchedResult, ...]
