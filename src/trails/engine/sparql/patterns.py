"""The patterns of a SPARQL text: which statements it can read.

A reader of the grammar that gives up early: anything uncertain, such as a variable as predicate,
makes the text one that can read everything. Positions and order are kept, because they decide
what a pattern is joined with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Final

import msgspec

from trails.errors import QueryError
from trails.model.iris import RDF_REST, RDF_TYPE
from trails.model.sparql.tokens import Token, significant, tokenize


class Triple(msgspec.Struct, frozen=True):
    """A pattern of one statement. Terms are ``?name``, ``<iri>`` or ``""`` for a literal."""

    subject: str
    predicate: str
    object: str
    loose: bool = False
    """Whether solutions may lack it: an alternative, or a path of any length."""


class GroupPart(msgspec.Struct, frozen=True):
    """Groups inside a group: one, or the branches of a UNION."""

    groups: tuple[GroupPattern, ...]


class GroupPattern(msgspec.Struct, frozen=True):
    """The inside of braces, in order."""

    items: tuple[Triple | GroupPart, ...] = ()


class QueryStep(msgspec.Struct, frozen=True):
    """A query, or one step of an update."""

    where: GroupPattern
    template: tuple[Triple, ...] = ()
    """What an update removes and adds."""
    more: tuple[GroupPart, ...] = ()
    """Patterns outside of WHERE."""


class UnclearError(Exception):
    """The text may be able to read everything."""


def read_patterns(text: str, prefixes: Mapping[str, str]) -> tuple[QueryStep, ...]:
    """The operations of a text; UnclearError if it may be able to read everything."""
    try:
        tokens = significant(tokenize(text))
    except QueryError:
        raise UnclearError from None
    return _Reader(tokens, prefixes).read()


REST_PATH: Final = f"{RDF_REST}*"
"""The predicate of a pattern whose ends are the same, or a cell and one behind it."""
_MODIFIERS: Final = frozenset({"GROUP", "HAVING", "ORDER", "LIMIT", "OFFSET"})
_SPELLED: Final = frozenset({"TRUE", "FALSE"})


class _Path(msgspec.Struct, frozen=True):
    """A property path: ``op`` is empty for a predicate, else ``/``, ``|``, ``^``, ``+``, ``*``."""

    op: str
    parts: tuple[_Path, ...] = ()
    iri: str = ""

    def predicates(self) -> list[str]:
        """All predicates in it."""
        inner = [each for part in self.parts for each in part.predicates()]
        return inner if self.op else [self.iri]


class _Reader:
    """Reads the tokens once."""

    def __init__(self, tokens: Sequence[Token], prefixes: Mapping[str, str]) -> None:
        self._tokens = tokens
        self._prefixes = dict(prefixes)
        self._at = 0
        self._fresh = count()
        self._behind = False
        self._found: list[list[Triple | GroupPart]] = []

    # --- moving along --------------------------------------------------------------------

    def _peek(self, ahead: int = 0) -> Token:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else Token("end", "")

    def _next(self) -> Token:
        token = self._peek()
        if token.kind == "end":
            raise UnclearError
        self._at += 1
        return token

    def _word(self, ahead: int = 0) -> str:
        token = self._peek(ahead)
        return token.text.upper() if token.kind == "word" else ""

    def _take(self, *words: str) -> bool:
        """Skip these words if they are next."""
        if all(self._word(at) == word for at, word in enumerate(words)):
            self._at += len(words)
            return True
        return False

    def _expect(self, text: str) -> None:
        if self._next().text != text:
            raise UnclearError

    # --- whole texts ---------------------------------------------------------------------

    def read(self) -> tuple[QueryStep, ...]:
        """All operations."""
        found: list[QueryStep] = []
        while True:
            self._prologue()
            if self._peek().kind == "end":
                if not found:
                    raise UnclearError
                return tuple(found)
            found.append(self._operation())
            if self._peek().text == ";":
                self._at += 1
            elif self._peek().kind != "end":
                raise UnclearError

    def _prologue(self) -> None:
        while self._take("PREFIX"):
            name, iri = self._next(), self._next()
            if name.kind != "name" or not name.text.endswith(":") or not _is_absolute(iri):
                raise UnclearError
            self._prefixes[name.text[:-1]] = iri.text[1:-1]

    def _operation(self) -> QueryStep:
        if self._word() == "SELECT":
            return self._select()
        if self._take("ASK"):
            self._take("WHERE")
            return self._ended(self._braced())
        if self._take("CONSTRUCT"):
            if self._peek().text == "{":  # the template reads nothing
                self._braced()
            if not self._take("WHERE") and self._peek().text != "{":
                raise UnclearError
            return self._ended(self._braced())
        return self._update()

    def _select(self) -> QueryStep:
        self._at += 1
        more: list[GroupPart] = []
        while self._peek().text != "{" and self._word() != "WHERE":
            token = self._next()
            if token.text == "(":
                more += self._expression()
            elif token.kind != "variable" and token.text.upper() not in {
                *("DISTINCT", "REDUCED", "*"),
            }:
                raise UnclearError
        self._take("WHERE")
        ended = self._ended(self._braced())
        return QueryStep(ended.where, more=(*more, *ended.more))

    def _ended(self, where: GroupPattern) -> QueryStep:
        """A query's end: how solutions are grouped, sorted, cut and joined with values."""
        more: list[GroupPart] = []
        known = _MODIFIERS | {"BY", "ASC", "DESC"}
        while (token := self._peek()).text not in {"}", ";"} and token.kind != "end":
            self._at += 1
            if token.text == "(":
                more += self._expression()
            elif token.kind == "word" and token.text.upper() == "VALUES":
                self._values()
            elif token.kind == "word" and self._peek().text == "(":
                continue  # a function
            elif token.kind not in {"variable", "number", "name", "iri"} and (
                token.kind != "word" or token.text.upper() not in known
            ):
                raise UnclearError
        return QueryStep(where, more=tuple(more))

    def _update(self) -> QueryStep:
        template: list[Triple] = []
        if self._take("INSERT", "DATA") or self._take("DELETE", "DATA"):
            return QueryStep(GroupPattern(), self._template())
        if self._take("DELETE", "WHERE"):
            where = self._braced()
            return QueryStep(where, _triples(where))
        if self._take("DELETE"):
            template += self._template()
        if self._take("INSERT"):
            template += self._template()
        if not template or not self._take("WHERE"):
            raise UnclearError
        return QueryStep(self._braced(), tuple(template))

    def _template(self) -> tuple[Triple, ...]:
        return _triples(self._braced())

    # --- groups --------------------------------------------------------------------------

    def _braced(self) -> GroupPattern:
        """A group with its braces."""
        self._expect("{")
        if self._word() == "SELECT":
            inner = self._select()
            self._expect("}")
            return GroupPattern((GroupPart((inner.where,)), *inner.more))
        self._found.append([])
        while self._peek().text != "}":
            self._item()
        self._at += 1
        return GroupPattern(tuple(self._found.pop()))

    def _add(self, item: Triple | GroupPart) -> None:
        self._found[-1].append(item)

    def _item(self) -> None:
        token, word = self._peek(), self._word()
        if token.text == ".":
            self._at += 1
        elif token.text == "{":
            groups = [self._braced()]
            while self._take("UNION"):
                groups.append(self._braced())
            self._add(GroupPart(tuple(groups)))
        elif word in {"OPTIONAL", "MINUS"}:
            self._at += 1
            self._add(GroupPart((self._braced(),)))
        elif word == "FILTER":
            self._at += 1
            self._filter()
        elif word == "BIND":
            self._at += 1
            self._expect("(")
            for part in self._expression():
                self._add(part)
        elif word == "VALUES":
            self._at += 1
            self._values()
        else:
            self._statements()

    def _filter(self) -> None:
        self._take("NOT")
        if self._take("EXISTS"):
            self._add(GroupPart((self._braced(),)))
            return
        if self._peek().kind in {"word", "name", "iri"}:  # a function, whose arguments follow
            self._at += 1
        self._expect("(")
        for part in self._expression():
            self._add(part)

    def _expression(self) -> list[GroupPart]:
        """Patterns inside parentheses, of which the opening one is already read."""
        depth = 1
        found: list[GroupPart] = []
        while depth:
            token = self._next()
            depth += (token.text == "(") - (token.text == ")")
            if token.text in {"{", "}", "["}:
                raise UnclearError
            if token.kind == "word" and token.text.upper() == "EXISTS":
                found.append(GroupPart((self._braced(),)))
        return found

    def _values(self) -> None:
        """Skip inline data."""
        while self._next().text != "{":
            continue
        while (token := self._next()).text != "}":
            if token.text == "{":
                raise UnclearError

    # --- statements ----------------------------------------------------------------------

    def _statements(self) -> None:
        """One subject with its predicates and objects."""
        bracket = self._peek().text == "["
        subject = self._term()
        if bracket and self._peek().text in {".", "}"}:
            return
        self._predicates(subject)

    def _predicates(self, subject: str) -> None:
        while True:
            path = self._path()
            while True:
                self._emit(subject, path, self._term())
                if self._peek().text != ",":
                    break
                self._at += 1
            if self._peek().text != ";":
                return
            while self._peek().text == ";":
                self._at += 1
            if self._peek().text in {".", "}", "]"}:
                return

    def _term(self) -> str:
        token = self._next()
        if token.kind == "variable":
            return f"?{token.text[1:]}"
        if token.kind == "blank":
            return f"?{token.text}"
        if token.kind in {"iri", "name"}:
            return f"<{self._iri(token)}>"
        if token.text == "[":
            made = self._new()
            if self._peek().text != "]":
                self._predicates(made)
            self._expect("]")
            return made
        self._literal(token)
        return ""

    def _literal(self, token: Token) -> None:
        if token.kind == "string":
            if self._peek().kind == "tag":
                self._at += 1
            elif self._peek().text == "^^":
                self._at += 1
                self._iri(self._next())
            return
        if token.text in {"+", "-"}:
            token = self._next()
            if token.kind != "number":
                raise UnclearError
        if token.kind != "number" and not (token.kind == "word" and token.text.upper() in _SPELLED):
            raise UnclearError

    def _new(self) -> str:
        return f"? {next(self._fresh)}"

    def _iri(self, token: Token) -> str:
        if token.kind == "iri" and _is_absolute(token):
            return token.text[1:-1]
        if token.kind != "name":
            raise UnclearError
        prefix, _, local = token.text.partition(":")
        if prefix not in self._prefixes:
            raise UnclearError
        return self._prefixes[prefix] + local.replace("\\", "")

    # --- paths ---------------------------------------------------------------------------

    def _path(self) -> _Path:
        return self._joined("|", lambda: self._joined("/", self._step))

    def _joined(self, op: str, read: Callable[[], _Path]) -> _Path:
        parts = [read()]
        while self._peek().text == op:
            self._at += 1
            # Behind a step, rdf:rest* begins at what that step found: a cell of a list.
            self._behind = op == "/" and not parts[-1].op
            parts.append(read())
            self._behind = False
        return parts[0] if len(parts) == 1 else _Path(op, tuple(parts))

    def _step(self) -> _Path:
        behind, self._behind = self._behind, False
        token = self._next()
        if token.text == "^":
            return _Path("^", (self._step(),))
        if token.text == "(":
            path = self._path()
            self._expect(")")
        elif token.kind == "word" and token.text == "a":
            path = _Path("", iri=RDF_TYPE)
        elif token.kind in {"iri", "name"}:
            path = _Path("", iri=self._iri(token))
        else:
            raise UnclearError
        if behind and path.iri == RDF_REST and self._peek().text == "*":
            self._at += 1
            return _Path("*", (path,))
        if self._peek().text in {"*", "?"}:  # matches paths of length zero too, which is every node
            raise UnclearError
        if self._peek().text == "+":
            self._at += 1
            path = _Path("+", (path,))
        return path

    def _emit(self, subject: str, path: _Path, found: str) -> None:
        """The patterns of a path between two terms."""
        if not path.op:
            self._state(Triple(subject, path.iri, found))
        elif path.op == "^":
            self._emit(found, path.parts[0], subject)
        elif path.op == "*":
            self._state(Triple(subject, REST_PATH, found, loose=True))
        elif path.op == "/":
            terms = [subject, *(self._new() for _ in path.parts[1:]), found]
            for part, start, end in zip(path.parts, terms, terms[1:], strict=False):
                self._emit(start, part, end)
        elif path.op == "|" and not any(each.op for each in path.parts):
            for each in path.parts:
                self._state(Triple(subject, each.iri, found, loose=True))
        else:
            for iri in path.predicates():
                self._state(Triple(self._new(), iri, self._new(), loose=True))

    def _state(self, triple: Triple) -> None:
        if triple.predicate == RDF_TYPE and not triple.object.startswith("<"):
            raise UnclearError
        self._add(triple)


def _triples(group: GroupPattern) -> tuple[Triple, ...]:
    """The statements of a template."""
    if any(isinstance(item, GroupPart) for item in group.items):
        raise UnclearError
    return tuple(item for item in group.items if isinstance(item, Triple))


def _is_absolute(token: Token) -> bool:
    text = token.text
    return token.kind == "iri" and ":" in text and "\\" not in text
