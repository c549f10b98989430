"""Compute the effect of a SPARQL update without running it on the graph.

The WHERE part runs once, as a SELECT of the variables that the templates use; the engine then
instantiates the templates with these solutions in an empty store. So functions such as UUID()
are called once, and the engine alone decides what a template means.

Only the default graph is read and written. Named graphs, including those of the quads view
itself, are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Final, TypeVar
from uuid import uuid4

import pyoxigraph as ox

from trails.errors import QueryError
from trails.model.sparql.tokens import Token, UpdateOperation, text_of, tokenize, update_form

GENID: Final = "/.well-known/genid/"
"""RDF 1.1, section 3.5: the path of IRIs that replace blank nodes."""
DEFAULT_BASE: Final = "https://trails.dev"
_ROWS: Final = 2000
T = TypeVar("T")
Row = tuple["ox.NamedNode | ox.Literal | None", ...]


def effect_of(
    store: ox.Store, text: str, prefixes: Mapping[str, str], *, base: str = DEFAULT_BASE
) -> tuple[bytes, bytes]:
    """Return (removed, added) as sorted canonical N-Quads of the default graph.

    Relative IRIs and the IRIs of blank nodes start with ``base``. The store is unchanged when
    this returns or raises, but not in between, so it must belong to the caller.
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
    """The changes so far, and how many of them are applied to the store."""

    def __init__(self, store: ox.Store, base: str) -> None:
        self._store = store
        self._genid = base.rstrip("/") + GENID
        self._named: dict[ox.BlankNode, ox.NamedNode] = {}
        self._undo: list[tuple[set[ox.Quad], set[ox.Quad]]] = []
        self._last: tuple[set[ox.Quad], set[ox.Quad]] = (set(), set())
        self.removed: set[ox.Quad] = set()
        self.added: set[ox.Quad] = set()

    def skolem(self, node: ox.BlankNode) -> ox.NamedNode:
        """Return the IRI that replaces a blank node; it can't be guessed."""
        found = self._named.get(node)
        if found is None:
            found = self._named[node] = ox.NamedNode(f"{self._genid}{uuid4()}")
        return found

    def add(self, deleted: set[ox.Quad], inserted: set[ox.Quad]) -> None:
        """Add the changes of one operation: deletions first, as the standard says."""
        gone = {quad for quad in deleted - inserted if quad in self._store}
        come = {quad for quad in inserted if quad not in self._store}
        self._last = (gone, come)
        self.removed, self.added = (
            (self.removed - come) | (gone - self.added),
            (self.added - gone) | (come - self.removed),
        )

    def show(self) -> None:
        """Apply changes to the store, so that the next operation sees them."""
        gone, come = self._last
        self._undo.append((come, gone))
        _change(self._store, gone, come)

    def undo(self) -> None:
        """Revert everything, last change first."""
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
        """Return the statements to delete and to insert, whether or not they exist."""
        self._check_syntax()
        delete, insert = self._operation.delete or (), self._operation.insert or ()
        if self._operation.where is None:
            return self._data(delete), self._data(insert)
        names = sorted({token.text[1:] for token in (*delete, *insert) if token.kind == "variable"})
        deleted: set[ox.Quad] = set()
        inserted: set[ox.Quad] = set()
        # Equal solutions produce equal statements, unless each creates a blank node.
        distinct = not any(token.kind == "blank" or token.text in "[(" for token in insert)
        for rows in _chunks(self._solutions(store, names, distinct=distinct), _ROWS):
            deleted |= self._instantiate(delete, names, rows)
            inserted |= self._instantiate(insert, names, rows)
        return deleted, inserted

    def _check_syntax(self) -> None:
        """Let the engine check each template in its own place, because the rules differ."""
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
        """Return the solutions for the templates' variables; without variables, one value each."""
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
        raise QueryError("triple terms are not supported here; write statements about nodes")

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
        """Yield the statements of a store, with IRIs for its blank nodes."""
        if next(iter(scratch.named_graphs()), None) is not None:
            raise QueryError("the update names a graph, but named graphs are not supported")
        text = scratch.dump(format=ox.RdfFormat.N_QUADS) or b""
        if b"_:" not in text and b"<<" not in text:
            return set(scratch)
        return {self._named_quad(quad) for quad in scratch}

    def _named_quad(self, quad: ox.Quad) -> ox.Quad:
        subject, value = self._term(quad.subject), self._term(quad.object)
        return ox.Quad(subject, quad.predicate, value)  # type: ignore[arg-type]


@contextmanager
def _errors() -> Iterator[None]:
    """Turn errors of the engine into a QueryError."""
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
