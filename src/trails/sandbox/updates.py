"""The effect of a SPARQL Update text, without the update: what it would remove and add.

The WHERE part is asked once, as a SELECT of the variables that the templates use; then
the engine itself instantiates the templates with these solutions, in an empty store. So
functions that never answer twice alike, such as UUID(), are called once, and what a
template means is decided by the engine alone.

Only the default graph is read and written. Named graphs, the quads view's own among
them, are neither seen nor changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Final, TypeVar
from uuid import uuid4

import pyoxigraph as ox

from trails.errors import QueryError
from trails.model.sparql import Token, UpdateOperation, text_of, tokenize, update_form

GENID: Final = "/.well-known/genid/"
"""RDF 1.1, section 3.5: where IRIs that replace blank nodes live."""
DEFAULT_BASE: Final = "https://trails.dev"
_ROWS: Final = 2000
T = TypeVar("T")
Row = tuple["ox.NamedNode | ox.Literal | None", ...]


def effect_of(
    store: ox.Store, text: str, prefixes: Mapping[str, str], *, base: str = DEFAULT_BASE
) -> tuple[bytes, bytes]:
    """(removed, added) as sorted canonical N-Quads: what an update changes in the default graph.

    ``base`` is what relative IRIs begin with, and where blank nodes get their IRIs.
    The store is as it was when this returns or raises; between the operations of one
    update it is not, so it must be the caller's own.
    """
    operations = update_form(tokenize(text))
    effect = _Effect(store, base)
    try:
        for at, operation in enumerate(operations):
            effect.add(*_Step(operation, prefixes, base, effect.skolem).run(store))
            if at + 1 < len(operations):
                effect.show()
    finally:
        effect.undo()
    return _canonical(effect.removed), _canonical(effect.added)


class _Effect:
    """What the operations so far have changed, and how much of it the store shows."""

    def __init__(self, store: ox.Store, base: str) -> None:
        self._store = store
        self._genid = base.rstrip("/") + GENID
        self._named: dict[ox.BlankNode, ox.NamedNode] = {}
        self._undo: list[tuple[set[ox.Quad], set[ox.Quad]]] = []
        self._last: tuple[set[ox.Quad], set[ox.Quad]] = (set(), set())
        self.removed: set[ox.Quad] = set()
        self.added: set[ox.Quad] = set()

    def skolem(self, node: ox.BlankNode) -> ox.NamedNode:
        """The IRI that stands for a blank node from now on; no one can guess it."""
        found = self._named.get(node)
        if found is None:
            found = self._named[node] = ox.NamedNode(f"{self._genid}{uuid4()}")
        return found

    def add(self, deleted: set[ox.Quad], inserted: set[ox.Quad]) -> None:
        """Take in what one operation asks for: deletions first, as the standard says."""
        gone = {quad for quad in deleted - inserted if quad in self._store}
        come = {quad for quad in inserted if quad not in self._store}
        self._last = (gone, come)
        self.removed, self.added = (
            (self.removed - come) | (gone - self.added),
            (self.added - gone) | (come - self.removed),
        )

    def show(self) -> None:
        """Let the next operation see what the last one did."""
        gone, come = self._last
        self._undo.append((come, gone))
        _change(self._store, gone, come)

    def undo(self) -> None:
        """Take everything back, the last first."""
        while self._undo:
            _change(self._store, *self._undo.pop())


class _Step:
    """One operation, run on a store without changing it."""

    def __init__(
        self,
        operation: UpdateOperation,
        prefixes: Mapping[str, str],
        base: str,
        skolem: Callable[[ox.BlankNode], ox.NamedNode],
    ) -> None:
        self._operation = operation
        self._prefixes = dict(prefixes)
        self._base = base
        self._skolem = skolem

    def run(self, store: ox.Store) -> tuple[set[ox.Quad], set[ox.Quad]]:
        """The statements that it deletes and inserts, whether they are there or not."""
        self._check_syntax()
        delete, insert = self._operation.delete or (), self._operation.insert or ()
        if self._operation.where is None:
            return self._data(delete), self._data(insert)
        names = sorted({token.text[1:] for token in (*delete, *insert) if token.kind == "variable"})
        deleted: set[ox.Quad] = set()
        inserted: set[ox.Quad] = set()
        # Solutions that are alike make the same statements, unless each makes a blank node.
        distinct = not any(token.kind == "blank" or token.text in "[(" for token in insert)
        for rows in _chunks(self._solutions(store, names, distinct=distinct), _ROWS):
            deleted |= self._instantiate(delete, names, rows)
            inserted |= self._instantiate(insert, names, rows)
        return deleted, inserted

    def _check_syntax(self) -> None:
        """Let the engine judge the templates in their own places: rules differ by place."""
        operation = self._operation
        where = operation.where
        if operation.form == "MODIFY":
            parts = [("DELETE", operation.delete), ("INSERT", operation.insert), ("WHERE", ())]
        elif operation.form == "DELETE WHERE":
            parts = [("DELETE WHERE", where)]
        else:
            parts = [(operation.form, operation.delete or operation.insert or ())]
        text = " ".join(
            f"{name} {{ {text_of(block)} }}" for name, block in parts if block is not None
        )
        self._update(ox.Store(), text)

    def _data(self, block: tuple[Token, ...]) -> set[ox.Quad]:
        scratch = ox.Store()
        if block:
            self._update(scratch, f"INSERT DATA {{ {text_of(block)} }}")
        return self._named_quads(scratch)

    def _solutions(self, store: ox.Store, names: list[str], *, distinct: bool) -> Iterator[Row]:
        """What the variables of the templates stand for; without any, one value a solution."""
        wanted = " ".join(f"?{name}" for name in names) or "(1 AS ?one)"
        where = text_of(self._operation.where or ())
        form = "SELECT DISTINCT" if distinct else "SELECT"
        with _errors():
            found = store.query(
                f"{self._operation.prologue} {form} {wanted} WHERE {{ {where} }}",
                base_iri=self._base,
                prefixes=self._prefixes,
                named_graphs=[],
            )
            assert isinstance(found, ox.QuerySolutions)  # noqa: S101 - we wrote SELECT
            for solution in found:
                yield tuple(self._term(solution[name]) for name in names)

    def _term(self, term: object) -> ox.NamedNode | ox.Literal | None:
        if term is None or isinstance(term, ox.NamedNode | ox.Literal):
            return term
        if isinstance(term, ox.BlankNode):
            return self._skolem(term)
        raise QueryError("a triple term can't be written here; write statements about nodes")

    def _instantiate(
        self, template: tuple[Token, ...], names: list[str], rows: list[Row]
    ) -> set[ox.Quad]:
        if not template:
            return set()
        scratch = ox.Store()
        lines = (" ".join("UNDEF" if term is None else str(term) for term in row) for row in rows)
        table = " ".join(f"({line})" for line in lines)
        heads = " ".join(f"?{name}" for name in names)
        where = f"VALUES ({heads}) {{ {table} }}"
        self._update(scratch, f"INSERT {{ {text_of(template)} }} WHERE {{ {where} }}")
        return self._named_quads(scratch)

    def _update(self, scratch: ox.Store, text: str) -> None:
        with _errors():
            scratch.update(
                f"{self._operation.prologue} {text}",
                base_iri=self._base,
                prefixes=self._prefixes,
            )

    def _named_quads(self, scratch: ox.Store) -> set[ox.Quad]:
        """The statements of a store, with IRIs for its blank nodes."""
        if next(iter(scratch.named_graphs()), None) is not None:
            raise QueryError("the update names a graph, and graphs here have no named graphs")
        text = scratch.dump(format=ox.RdfFormat.N_QUADS) or b""
        if b"_:" not in text and b"<<" not in text:
            return set(scratch)
        return {self._named_quad(quad) for quad in scratch}

    def _named_quad(self, quad: ox.Quad) -> ox.Quad:
        subject, value = self._term(quad.subject), self._term(quad.object)
        return ox.Quad(subject, quad.predicate, value)  # type: ignore[arg-type]


@contextmanager
def _errors() -> Iterator[None]:
    """Turn what the engine says of a text into a QueryError."""
    try:
        yield
    except SyntaxError as error:
        raise QueryError(f"the update can't be parsed: {error}") from None
    except (ValueError, RuntimeError) as error:
        raise QueryError(f"the update can't be run: {error}") from None


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    stream = iter(items)
    while chunk := list(islice(stream, size)):
        yield chunk


def _change(store: ox.Store, removed: set[ox.Quad], added: set[ox.Quad]) -> None:
    """Remove and add statements of the default graph, all or none."""
    gone, come = (_canonical(quads).decode() for quads in (removed, added))
    store.update(f"DELETE DATA {{ {gone} }} ; INSERT DATA {{ {come} }}")


def _canonical(quads: Iterable[ox.Quad]) -> bytes:
    text = ox.serialize(quads, format=ox.RdfFormat.N_QUADS) or b""
    return b"".join(sorted(line + b"\n" for line in text.split(b"\n") if line))
