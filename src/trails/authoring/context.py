"""``Context``: what a capability receives.

Protocols only. The engine implements them, so user classes do not depend on the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from trails.model.history import Commit, Head
from trails.model.nodes import Selection
from trails.model.types import Schema


class Row(Protocol):
    """A stored node: values are native, references are handles (``Type/id``)."""

    @property
    def type(self) -> str: ...
    @property
    def id(self) -> str: ...
    @property
    def values(self) -> Mapping[str, object]: ...


class Rows(Protocol):
    """One page of a selection."""

    @property
    def rows(self) -> Sequence[Row]: ...
    @property
    def next(self) -> str | None: ...


class SparqlResult(Protocol):
    """The result of a SPARQL query: variables, and rows of Python values."""

    @property
    def variables(self) -> tuple[str, ...]: ...
    @property
    def rows(self) -> Sequence[Mapping[str, object]]: ...
    def __bool__(self) -> bool: ...


class KnowledgeGraph(Protocol):
    """The graph behind a context: reads, the one write path, transactions."""

    @property
    def schema(self) -> Schema: ...
    @property
    def head(self) -> Head: ...

    def iri(self, handle: str) -> str: ...
    def find(self, type_name: str, reference: object) -> Row | None: ...
    def describe_missing(self, type_name: str, reference: object) -> str: ...
    def select(self, selection: Selection) -> Rows: ...
    def count(self, selection: Selection) -> int: ...
    def check_fields(self, type_name: str, fields: Iterable[str]) -> None: ...
    def save(
        self,
        node: object,
        *,
        upsert: bool = False,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None: ...
    def save_all(
        self,
        nodes: Iterable[object],
        *,
        upsert: bool = False,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None: ...
    def delete(
        self,
        node: object,
        *,
        cascade: bool = False,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
    ) -> Commit | None: ...
    def transaction(
        self,
        *,
        message: str = "",
        expected_head: str | None = None,
        idempotency_key: str | None = None,
        request: object = None,
    ) -> AbstractContextManager[object]: ...
    def sparql(self, text: str, /, **params: object) -> SparqlResult: ...
    def raw_sparql(
        self, text: str, /, *, skip_validation: bool = False, message: str = ""
    ) -> Commit | None: ...


class Context(Protocol):
    """Who is acting, on which graph and branch, and the graph itself."""

    @property
    def actor(self) -> str: ...
    @property
    def graph(self) -> str: ...
    @property
    def branch(self) -> str: ...
    @property
    def snapshot(self) -> str | None: ...
    @property
    def kg(self) -> KnowledgeGraph: ...
    def spend(self, **amounts: float) -> None: ...
    def hydrate(self, row: Row) -> object: ...
    def reference(self, handle: str) -> object: ...
