"""SPARQL with typed parameters, its answers as Python values, and untrusted text in the sandbox.

Parameters are written ``$name``. ``bind`` replaces each one, as a token, by its value as the RDF
library writes it, so a value can never become syntax. In a SELECT clause it becomes
``(value AS ?name)``, and after ``LIMIT`` and ``OFFSET`` digits.

``bind_query`` does the same for stored queries, and in addition:

- a parameter that is null, or an empty list, leaves the variable ``?name``: in a pattern it
  matches everything, in a comparison nothing;
- ``BOUND($name)`` is whether the parameter has a value;
- a list is allowed after ``IN`` and between the braces of ``VALUES``.

``Untrusted`` runs queries, updates and files of others on the checkouts of a graph.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyoxigraph as ox

from trails.engine.graph.checkouts import Checkout
from trails.engine.graph.graph import Graph
from trails.engine.sparql.hints import add_number_notices, explain_refusal, find_mistakes
from trails.errors import QueryError
from trails.model.caches import BoundedCache
from trails.model.capabilities import StoredQuery
from trails.model.constraints import shorten
from trails.model.history import Position
from trails.model.iris import XSD
from trails.model.kinds import BY_DATATYPE, KINDS, Iri, KindError, kind_of
from trails.model.results import QueryAnswer
from trails.model.sparql.tokens import Token, query_form, tokenize
from trails.model.types import PredicateDescriptor
from trails.model.values.lang_texts import LangText
from trails.sandbox.results import Result
from trails.sandbox.workers import CommitDelta
from trails.views.quads.view import QuadsView

if TYPE_CHECKING:
    from trails.model.sparql.terms import Vocabulary
    from trails.sandbox.pool import Sandbox


def ask_checkout(graph: Graph, checkout: Checkout, text: str) -> QueryAnswer:
    """Run a query with bound parameters on a branch or snapshot."""
    names = graph.names
    try:
        with graph.slow_queries.watch("sparql", checkout.name, text):
            answer = graph.reading_quads(
                checkout, lambda quads: read_answer(quads.query(text, names))
            )
    except SyntaxError as error:
        raise QueryError(f"the query can't be parsed: {error}") from None
    except (ValueError, RuntimeError) as error:
        raise QueryError(f"the query can't be run: {error}") from None
    return add_number_notices(answer, text, checkout.compiled.vocabulary)


def bind(tokens: list[Token], params: Mapping[str, object]) -> str:
    """The text with every parameter replaced by its value."""
    terms = {name: write_term(name, value) for name, value in params.items()}
    unused = set(terms)
    out: list[str] = []
    in_projection = False
    depth, previous = 0, ""
    for token in tokens:
        upper = token.text.upper()
        depth += (token.kind == "open") - (token.kind == "close")
        if token.kind == "word":
            if upper == "SELECT":
                in_projection, projection_depth = True, depth
            elif upper in {"WHERE", "FROM"}:
                in_projection = False
        elif token.text == "{":
            in_projection = False
        name = token.text[1:] if token.kind == "variable" else ""
        if name in terms:
            unused.discard(name)
            if previous == "AS":
                raise QueryError(f"?{name} is a parameter, so nothing else can be bound to it")
            bare = in_projection and depth == projection_depth
            term = _count(name, params[name]) if previous in _COUNTS else terms[name]
            out.append(f"({term} AS ?{name})" if bare else term)
        elif token.text.startswith("$") and token.kind == "variable":
            raise QueryError(f"the query has ${name}, but no such parameter was given")
        else:
            out.append(token.text)
        if token.kind != "space":
            previous = upper
    if unused:
        name = min(unused)
        raise QueryError(f"parameter {name!r} is not in the query; write it there as ${name}")
    return "".join(out)


_COUNTS: Final = frozenset({"LIMIT", "OFFSET"})


def _count(name: str, value: object) -> str:
    """A number after ``LIMIT`` or ``OFFSET``, where only digits are allowed."""
    if type(value) is not int or value < 0:
        given = shorten(value)
        raise QueryError(f"${name} is used after LIMIT or OFFSET and must be a count, not {given}")
    return str(value)


def write_term(name: str, value: object) -> str:
    """A Python value as the RDF library writes it."""
    if isinstance(value, Iri):
        try:
            return str(ox.NamedNode(value))
        except ValueError:
            raise QueryError(f"parameter {name!r}: {shorten(value)} is not an IRI") from None
    if isinstance(value, LangText):
        if len(value) > 1:
            raise QueryError(
                f"parameter {name!r} has texts in {', '.join(value)}; give one of them, because a "
                "literal has one language"
            )
        ((tag, text),) = value.items()
        return str(ox.Literal(text, language=tag))
    kind = kind_of(value)
    if kind is None:
        raise QueryError(
            f"parameter {name!r}: a {type(value).__name__} can't be bound; give a text, number, "
            "date, truth value, Iri or node"
        )
    try:
        lexical = kind.lexical(kind.coerce(value))
    except KindError:
        raise QueryError(f"parameter {name!r}: {shorten(value)} is not {kind.expected}") from None
    return str(ox.Literal(lexical, datatype=ox.NamedNode(kind.datatype)))


def read_term(term: object) -> object:
    """An RDF term as a Python value; a literal of an unknown kind is its text."""
    if isinstance(term, ox.NamedNode):
        return Iri(term.value)
    if isinstance(term, ox.BlankNode):
        return Iri("_:" + term.value)
    if isinstance(term, ox.Literal):
        if term.datatype.value == XSD + "anyURI":
            return Iri(term.value)
        kind = BY_DATATYPE.get(term.datatype.value)
        if kind is None:
            return term.value
        try:
            return kind.parse(term.value)
        except (ValueError, ArithmeticError):
            return term.value
    return None if term is None else str(term)


def read_answer(
    found: ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples,
) -> QueryAnswer:
    """A result of the store as Python values."""
    if isinstance(found, ox.QueryBoolean):
        return QueryAnswer((), (), truth=bool(found))
    if isinstance(found, ox.QuerySolutions):
        names = tuple(variable.value for variable in found.variables)
        return QueryAnswer(
            names,
            tuple({name: read_term(row[name]) for name in names} for row in found),
        )
    names = ("subject", "predicate", "object")
    return QueryAnswer(
        names,
        tuple({name: read_term(getattr(triple, name)) for name in names} for triple in found),
    )


def bind_query(query: StoredQuery, values: Mapping[str, object]) -> str:
    """The text with its parameters replaced by coerced values."""
    params = {param.name: param for param in query.params}
    settled = _Settler(tokenize(query.text), params, values)
    return bind(settled.tokens, settled.scalars)


class _Settler:
    """Replaces nulls, lists and BOUND; single values are left to ``bind``."""

    def __init__(
        self,
        tokens: list[Token],
        params: Mapping[str, PredicateDescriptor],
        values: Mapping[str, object],
    ) -> None:
        self._params = params
        self._values = values
        self._solid = [token for token in tokens if token.kind != "space"]
        self._at = 0  # of the next solid token
        self._braces: list[str] = []
        self.scalars: dict[str, object] = {}
        self.tokens: list[Token] = []
        remaining = iter(tokens)
        for token in remaining:
            if token.kind == "space":
                self.tokens.append(token)
            elif self._asks_for_value(token):
                self.tokens.append(Token("other", self._has_value()))
                self._at += 4
                for _ in range(3):  # the parenthesis, the parameter, the parenthesis
                    while next(remaining).kind == "space":
                        continue
            else:
                self.tokens.append(self._settle(token))
                self._at += 1

    def _word(self, offset: int) -> str:
        at = self._at + offset
        return self._solid[at].text.upper() if 0 <= at < len(self._solid) else ""

    def _param(self, offset: int) -> str:
        """The parameter that a token names, or an empty string."""
        at = self._at + offset
        if not 0 <= at < len(self._solid) or self._solid[at].kind != "variable":
            return ""
        name = self._solid[at].text[1:]
        return name if name in self._params else ""

    def _asks_for_value(self, token: Token) -> bool:
        return (
            token.text.upper() == "BOUND"
            and self._word(1) == "("
            and self._word(3) == ")"
            and self._param(2) != ""
        )

    def _has_value(self) -> str:
        value = self._values.get(self._param(2))
        return "(false)" if value is None or value in ((), []) else "(true)"

    def _settle(self, token: Token) -> Token:
        if token.text == "{":
            self._braces.append(self._opened_by())
        elif token.text == "}" and self._braces:
            self._braces.pop()
        name = self._param(0)
        if not name:
            return token
        param, value = self._params[name], self._values.get(name)
        in_data = self._braces[-1:] == ["VALUES"]
        if param.many:
            return Token("other", self._write_list(name, value, in_data=in_data))
        if value is None:
            return Token("other", "UNDEF") if in_data else Token("variable", f"?{name}")
        if param.type.kind == "Vector":
            return Token("other", _write_vector(value))
        if param.type.kind == "Int" and self._word(-1) in _COUNTS:
            return Token("other", str(value))
        self.scalars[name] = value
        return token

    def _opened_by(self) -> str:
        """VALUES, if this brace opens its data."""
        at = self._at - 1
        if at >= 0 and self._solid[at].text == ")":
            while at >= 0 and self._solid[at].text != "(":
                at -= 1
        return "VALUES" if at > 0 and self._solid[at - 1].text.upper() == "VALUES" else ""

    def _write_list(self, name: str, value: object, *, in_data: bool) -> str:
        items = value if isinstance(value, list | tuple) else ()
        terms = [write_term(name, item) for item in items]
        if self._word(-1) == "IN":
            return f"({', '.join(terms)})"
        if self._word(-1) == "(" and self._word(-2) == "IN" and self._word(1) == ")":
            return ", ".join(terms)
        if in_data and self._word(-1) != "(":
            return " ".join(terms)
        raise QueryError(
            f"${name} is a list, so use it after IN, as in 'FILTER (?x IN ${name})', or in "
            f"'VALUES ?x {{ ${name} }}'"
        )


def _write_vector(value: object) -> str:
    kind = KINDS["Vector"]
    return str(ox.Literal(kind.lexical(value), datatype=ox.NamedNode(kind.datatype)))


_FAR: Final = 500
"""Beyond this many commits, a worker restarts from a checkpoint instead of following."""
_MUCH: Final = 20_000
"""The same limit in statements."""
_SPELLED: Final = {"ntriples": "n-triples", "nquads": "n-quads", "jsonld": "json-ld"}
"""Formats by their sandbox names."""


class CheckoutSource:
    """A checkout as a source for sandbox workers."""

    def __init__(self, graph: Graph, checkout: Checkout) -> None:
        self._graph = graph
        self._checkout = checkout

    @property
    def key(self) -> str:
        """Identifies the checkout: a branch that is recreated under its name is a different one."""
        return f"{self._checkout.name} {self._checkout.born}"

    def head(self) -> Position:
        """The head that readers see."""
        head = self._checkout.head
        return Position(head.seq, head.commit)

    def checkpoint(self, folder: Path) -> Position:
        """A copy of the checkout's store, by hard links if it has files."""

        def copy(quads: QuadsView) -> Position:
            # Read first: a commit in between is then applied twice, which is harmless.
            position = quads.position
            shutil.rmtree(folder, ignore_errors=True)  # left by a repeated read
            if quads.linkable:
                quads.checkpoint(folder)
            else:
                made = ox.Store(folder)
                made.bulk_extend(quads.store)
                made.flush()
            return position

        return self._graph.reading_quads(self._checkout, copy)

    def deltas(self, after: Position, until: Position) -> Sequence[CommitDelta] | None:
        """The commits between two positions, if they are few and linear."""
        path = self._graph.ancestry.path(after.commit, until.commit)
        size = sum(commit.added + commit.removed for commit in path.redo)
        if path.undo or len(path.redo) > _FAR or size > _MUCH:
            return None
        found: list[CommitDelta] = []
        for commit in path.redo:
            with self._graph.folding.statements(commit) as (removed, added):
                found.append(
                    CommitDelta(Position(commit.seq, commit.id), removed.read(), added.read())
                )
        return found


_REMEMBERED: Final = 256
"""How many checked texts are kept."""
_LONGEST: Final = 2_000
"""Characters of a text that is kept: its tokens take some hundred kilobytes at most."""


class CheckedText:
    """A query within the limits, as tokens, and what it names that is not in the graph."""

    def __init__(self, text: str) -> None:
        self.tokens = tokenize(text)
        query_form(self.tokens)
        self._mistakes: tuple[Vocabulary, str | None] | None = None

    def mistakes(self, vocabulary: Vocabulary) -> str | None:
        """The notice about its mistakes."""
        found = self._mistakes
        if found is None or found[0] is not vocabulary:
            found = self._mistakes = vocabulary, find_mistakes(self.tokens, vocabulary)
        return found[1]


class Untrusted:
    """Runs untrusted text on one graph."""

    def __init__(self, graph: Graph, sandbox: Sandbox) -> None:
        self._graph = graph
        self.sandbox = sandbox
        self._checked: BoundedCache[tuple[str, str], CheckedText] = BoundedCache(_REMEMBERED)
        """By caller and text: how long a check takes tells nobody what others have asked."""

    def ask(
        self, checkout: Checkout, text: str, params: Mapping[str, object], *, caller: str
    ) -> QueryAnswer:
        """Run a query; ``$name`` in the text takes the parameter of that name."""
        checked = self._check(text, caller)
        vocabulary = checkout.compiled.vocabulary
        bound = bind(checked.tokens, params)
        try:
            answer = self.run(checkout, bound, caller=caller)
        except QueryError as error:
            raise QueryError(explain_refusal(error.message, checked.tokens, vocabulary)) from None
        if params:
            return answer.with_notice(find_mistakes(tokenize(bound), vocabulary))
        return answer.with_notice(checked.mistakes(vocabulary))

    def ask_terms(self, checkout: Checkout, text: str, *, caller: str) -> Result:
        """Run a query without parameters, for RDF terms; ``$name`` is a variable."""
        checked = self._check(text, caller)
        try:
            return self._result(checkout, text, caller)
        except QueryError as error:
            vocabulary = checkout.compiled.vocabulary
            raise QueryError(explain_refusal(error.message, checked.tokens, vocabulary)) from None

    def _check(self, text: str, caller: str) -> CheckedText:
        """The tokens of a query; it is refused if it is not within the limits."""
        found = self._checked.get((caller, text))
        if found is None:
            found = CheckedText(text)
            if len(text) <= _LONGEST:
                self._checked[caller, text] = found
        return found

    def run(self, checkout: Checkout, text: str, *, caller: str) -> QueryAnswer:
        """Run a checked query with bound parameters."""
        answer = _answer(self._result(checkout, text, caller))
        return add_number_notices(answer, text, checkout.compiled.vocabulary)

    def _result(self, checkout: Checkout, text: str, caller: str) -> Result:
        with self._graph.slow_queries.watch("sparql", checkout.name, text):
            return self.sandbox.query(
                CheckoutSource(self._graph, checkout),
                text,
                caller=caller,
                prefixes=self._graph.names.prefixes,
                base_iri=self._graph.names.nodes,
            )

    def effect(self, checkout: Checkout, *, caller: str) -> Callable[[str], tuple[bytes, bytes]]:
        """A function that computes the effect of an update on a checkout."""

        def effect(text: str) -> tuple[bytes, bytes]:
            with self._graph.slow_queries.watch("update", checkout.name, text):
                found = self.sandbox.update(
                    CheckoutSource(self._graph, checkout),
                    text,
                    caller=caller,
                    prefixes=self._graph.names.prefixes,
                    base_iri=self._graph.names.nodes,
                )
            return found.removed, found.added

        return effect

    def parse(
        self,
        chunks: Iterable[bytes],
        format: str,
        base_iri: str | None = None,
        *,
        caller: str = "",
    ) -> Iterator[bytes]:
        """Parse an RDF file into chunks of N-Quads."""
        spelled = _SPELLED.get(format, format)
        return self.sandbox.parse(chunks, spelled, base_iri=base_iri, caller=caller)


def _answer(result: Result) -> QueryAnswer:
    if result.form == "ask":
        return QueryAnswer((), (), truth=result.truth)
    names = result.variables
    rows = tuple(
        {name: read_term(term) for name, term in zip(names, row, strict=True)}
        for row in result.rows
    )
    return QueryAnswer(names, rows, truncated=result.truncated, notice=result.notice)
