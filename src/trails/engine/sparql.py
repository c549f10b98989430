"""SPARQL text: read it as tokens, bind typed parameters, refuse what reaches outside.

Parameters are written ``$name``. Each is replaced, as a token, by its value as
the RDF library writes it, so a value can never become syntax; in a SELECT
clause it becomes ``(value AS ?name)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Final

import msgspec
import pyoxigraph as ox

from trails.errors import QueryError
from trails.model.constraints import shorten
from trails.model.iris import XSD
from trails.model.kinds import KINDS, BigInt, Blob, Iri, KindError

MAX_TEXT: Final = 64 * 1024
MAX_DEPTH: Final = 32

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|\#[^\n\r]*)
  | (?P<string>\"\"\"(?:[^"\\]|\\.|\"(?!\"\"))*\"\"\"|'''(?:[^'\\]|\\.|'(?!''))*'''
      |"(?:[^"\\\n\r]|\\.)*"|'(?:[^'\\\n\r]|\\.)*')
  | (?P<iri><[^<>"{}|^`\\\x00-\x20]*>)
  | (?P<variable>[?$][^\W][\w]*)
  | (?P<name>[^\W\d][\w.-]*(?::[\w.%:\\-]*)?|:[\w.%:\\-]*)
  | (?P<open>[{(\[])
  | (?P<close>[})\]])
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)


class Token(msgspec.Struct, frozen=True):
    """A piece of SPARQL text; all pieces together are the text."""

    kind: str
    text: str


def tokenize(text: str) -> list[Token]:
    """Cut text into tokens, in one pass."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_TEXT:
        raise QueryError(f"the query is longer than {MAX_TEXT // 1024} KiB; make it shorter")
    tokens = [Token(str(m.lastgroup), m.group()) for m in _TOKEN.finditer(text)]
    depth = 0
    for token in tokens:
        depth += (token.kind == "open") - (token.kind == "close")
        if depth > MAX_DEPTH:
            raise QueryError(f"the query nests deeper than {MAX_DEPTH} levels; flatten it")
    return tokens


def words(tokens: Iterable[Token]) -> Iterator[str]:
    """The bare names of a text, in capitals: keywords are among them."""
    return (token.text.upper() for token in tokens if token.kind == "name")


_UPDATES: Final = frozenset(
    {"INSERT", "DELETE", "LOAD", "CLEAR", "DROP", "CREATE", "ADD", "MOVE", "COPY"}
)
_QUERIES: Final = frozenset({"SELECT", "ASK", "CONSTRUCT", "DESCRIBE"})


def query_form(tokens: list[Token]) -> str:
    """SELECT, ASK, CONSTRUCT or DESCRIBE; anything else is refused."""
    for word in words(tokens):
        if word == "SERVICE":
            raise QueryError("SERVICE reaches other servers and is not available")
    for word in words(tokens):
        if word in _QUERIES:
            return word
        if word in _UPDATES:
            raise QueryError(
                f"{word} changes data, and sparql() reads; write through save() and delete()"
            )
    raise QueryError("this is not a SPARQL query: it has no SELECT, ASK, CONSTRUCT or DESCRIBE")


def bind(tokens: list[Token], params: Mapping[str, object]) -> str:
    """The text with every parameter in place of its token."""
    terms = {name: write_term(name, value) for name, value in params.items()}
    unused = set(terms)
    out: list[str] = []
    in_projection = False
    depth, previous = 0, ""
    for token in tokens:
        upper = token.text.upper()
        depth += (token.kind == "open") - (token.kind == "close")
        if token.kind == "name":
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
            out.append(f"({terms[name]} AS ?{name})" if bare else terms[name])
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


_PYTHON_KINDS: Final[tuple[tuple[type, str], ...]] = (
    (bool, "Bool"),
    (BigInt, "BigInt"),
    (int, "Int"),
    (float, "Float"),
    (Decimal, "Decimal"),
    (datetime, "DateTime"),
    (date, "Date"),
    (Blob, "Blob"),
    (str, "String"),
)


def write_term(name: str, value: object) -> str:
    """A Python value as the RDF library writes it."""
    if isinstance(value, Iri):
        try:
            return str(ox.NamedNode(value))
        except ValueError:
            raise QueryError(f"parameter {name!r}: {shorten(value)} is not an IRI") from None
    for python_type, kind_name in _PYTHON_KINDS:
        if isinstance(value, python_type):
            kind = KINDS[kind_name]
            try:
                lexical = kind.lexical(kind.coerce(value))
            except KindError:
                raise QueryError(
                    f"parameter {name!r}: {shorten(value)} is not {kind.expected}"
                ) from None
            return str(ox.Literal(lexical, datatype=ox.NamedNode(kind.datatype)))
    raise QueryError(
        f"parameter {name!r}: a {type(value).__name__} can't be bound; give a text, number, date, "
        "truth value, Iri or node"
    )


_DATATYPES: Final = {
    kind.datatype: kind for kind in KINDS.values() if kind.name not in {"BigInt", "Blob", "Iri"}
}


def read_term(term: object) -> object:
    """An RDF term as a Python value; a literal of an unknown kind is its text."""
    if isinstance(term, ox.NamedNode):
        return Iri(term.value)
    if isinstance(term, ox.BlankNode):
        return Iri("_:" + term.value)
    if isinstance(term, ox.Literal):
        if term.datatype.value == XSD + "anyURI":
            return Iri(term.value)
        kind = _DATATYPES.get(term.datatype.value)
        if kind is None:
            return term.value
        try:
            return kind.parse(term.value)
        except (ValueError, ArithmeticError):
            return term.value
    return None if term is None else str(term)


class Answer(msgspec.Struct, frozen=True):
    """The result of a query: of SELECT, rows by variable; of ASK, a truth value.

    CONSTRUCT and DESCRIBE give rows of subject, predicate, object.
    """

    variables: tuple[str, ...]
    rows: tuple[Mapping[str, object], ...]
    truth: bool | None = None

    def __bool__(self) -> bool:
        """The truth of ASK; for the others whether there are rows."""
        return bool(self.rows) if self.truth is None else self.truth

    def __iter__(self) -> Iterator[Mapping[str, object]]:
        """The rows."""
        return iter(self.rows)

    def __len__(self) -> int:
        """How many rows."""
        return len(self.rows)


def read_answer(
    found: ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples,
) -> Answer:
    """A result of the store as Python values."""
    if isinstance(found, ox.QueryBoolean):
        return Answer((), (), truth=bool(found))
    if isinstance(found, ox.QuerySolutions):
        names = tuple(variable.value for variable in found.variables)
        return Answer(
            names,
            tuple({name: read_term(row[name]) for name in names} for row in found),
        )
    names = ("subject", "predicate", "object")
    return Answer(
        names,
        tuple({name: read_term(getattr(triple, name)) for name in names} for triple in found),
    )


_RAW_FORMS: Final = "only INSERT DATA and DELETE DATA can be written raw"


def data_statements(text: str, prefixes: Mapping[str, str]) -> tuple[bytes, bytes]:
    """The statements of INSERT DATA and DELETE DATA: (removed, added) as N-Quads.

    The library parses them: each operation runs alone in an empty store.
    """
    tokens = tokenize(text)
    removed, added = ox.Store(), ox.Store()
    prologue: list[str] = []
    found = False
    for operation in _operations(tokens):
        kinds = [word for word in words(operation) if word not in {"PREFIX", "BASE"}]
        start = next(
            (
                at
                for at, token in enumerate(operation)
                if token.kind == "name" and token.text.upper() in _UPDATES
            ),
            None,
        )
        if start is None:
            if not all(kind.endswith(":") for kind in kinds):
                raise QueryError(f"{kinds[0]}: {_RAW_FORMS}")
            prologue.append("".join(token.text for token in operation))
            continue
        following = [t for t in operation[start:] if t.kind == "name"][:2]
        form = " ".join(token.text.upper() for token in following)
        if form not in {"INSERT DATA", "DELETE DATA"}:
            raise QueryError(f"{form}: {_RAW_FORMS}")
        prologue.append("".join(token.text for token in operation[:start]))
        body = "".join(token.text for token in operation[start + 1 :])
        target = added if form.startswith("INSERT") else removed
        try:
            target.update(f"{''.join(prologue)} INSERT {body}", prefixes=dict(prefixes))
        except (SyntaxError, ValueError) as error:
            raise QueryError(f"the update can't be parsed: {error}") from None
        found = True
    if not found:
        raise QueryError(f"there is nothing to write here: {_RAW_FORMS}")
    return _dump(removed), _dump(added)


def _operations(tokens: list[Token]) -> Iterator[list[Token]]:
    """Split an update at its top-level semicolons."""
    current: list[Token] = []
    depth = 0
    for token in tokens:
        depth += (token.kind == "open") - (token.kind == "close")
        if token.text == ";" and not depth:
            yield current
            current = []
        else:
            current.append(token)
    if any(token.kind != "space" for token in current):
        yield current


def _dump(store: ox.Store) -> bytes:
    text = store.dump(format=ox.RdfFormat.N_QUADS) or b""
    if b"_:" in text and any(
        isinstance(part, ox.BlankNode)
        for quad in store
        for part in (quad.subject, quad.object, quad.graph_name)
    ):
        raise QueryError("blank nodes have no name to find them by again; use IRIs")
    return text
