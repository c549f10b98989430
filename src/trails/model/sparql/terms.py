"""Which classes and fields a SPARQL text names, and which of them do not exist.

A light parse of the token stream: it finds the verb of each triple and the object of ``a``
through property paths, blank nodes, subqueries and templates. It accepts any text; the
engine's parser decides whether the text is SPARQL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Final, Literal

import msgspec

from trails.model.iris import RDF_FIRST, RDF_REST, RDF_TYPE, Names
from trails.model.sparql.tokens import Token
from trails.model.types import PredicateDescriptor, Schema

Role = Literal["class", "predicate", "term"]
_WORDS: Final = frozenset({"name", "word"})
_WORDS_OF_ROLE: Final = {"class": "class", "predicate": "field", "term": "class or field"}


class Piece(msgspec.Struct, frozen=True):
    """A significant token and its line."""

    kind: str
    text: str
    line: int

    @property
    def word(self) -> str:
        """A keyword, in capitals; empty for anything else."""
        return self.text.upper() if self.kind in _WORDS and ":" not in self.text else ""


class Named(msgspec.Struct, frozen=True):
    """A class, field or other term in a text."""

    role: Role
    iri: str
    written: str
    line: int


class Bound(msgspec.Struct, frozen=True):
    """A place in a triple after a plain predicate: the predicate's IRI, and which piece it is."""

    verb: str
    at: int


class Reached(msgspec.Struct, frozen=True):
    """A place at an end of any predicate or path, whose values a field may give."""

    verbs: frozenset[str]
    """The IRIs in the path."""
    any_verb: bool
    """Whether the path may be any field: it has a variable or a negation."""
    at: int


def pieces_of(tokens: list[Token]) -> list[Piece]:
    """Tokens without space and comments, with the full stop apart from the name before it."""
    found: list[Piece] = []
    line = 1
    for token in tokens:
        if token.kind == "name" and token.text.endswith("."):
            bare = token.text.rstrip(".")
            found += [Piece("name", bare, line)] if bare else []
            found += [Piece("other", ".", line)] * (len(token.text) - len(bare))
        elif token.kind != "space":
            found.append(Piece(token.kind, token.text, line))
        line += token.text.count("\n")
    return found


_ENDS_TRIPLES: Final = frozenset(
    {
        "FILTER", "BIND", "OPTIONAL", "UNION", "MINUS", "GRAPH", "SERVICE", "VALUES", "EXISTS",
        "NOT", "SELECT", "WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "BY", "ASC",
        "DESC", "LATERAL",
    }
)  # fmt: skip


class TermScan:
    """What one walk over the pieces finds."""

    def __init__(self, pieces: list[Piece], names: Names) -> None:
        self._pieces = pieces
        self._base = names.nodes
        self.prefixes = dict(names.prefixes)
        """With those that the text declares."""
        self._at = 0
        self.named: list[Named] = []
        """Every term, with the role in which it is named."""
        self.bound: list[Bound] = []
        """Every object of a plain predicate."""
        self.reached: list[Reached] = []
        """Every object, and every subject of an inverse path."""
        self._verb = ""
        self._path_verbs: set[str] = set()
        self._any_verb = False
        self._subject = 0
        self._read()

    def _read(self) -> None:
        while (piece := self._next()) is not None:
            if piece.word == "PREFIX":
                self._prefix()
            elif piece.word == "BASE":
                self._base = ""  # relative IRIs are then not looked at
                self._next()
            elif piece.word == "CONSTRUCT":
                self._template()
            elif piece.text == "{":
                self._group()
            elif piece.text == "(":
                self._flat(")")
            elif piece.word == "VALUES":
                self._values()
            else:
                self._note("term", piece)

    # --- moving along -------------------------------------------------------------------

    def _next(self) -> Piece | None:
        if self._at == len(self._pieces):
            return None
        self._at += 1
        return self._pieces[self._at - 1]

    def _peek(self, text: str) -> bool:
        return self._at < len(self._pieces) and self._pieces[self._at].text == text

    def _note(self, role: Role, piece: Piece) -> None:
        iri = self._iri(piece)
        if iri:
            self.named.append(Named(role, iri, piece.text, piece.line))

    def _iri(self, piece: Piece) -> str:
        if piece.kind == "iri":
            if ":" in piece.text:
                return piece.text[1:-1]
            return self._base and self._base + piece.text[1:-1]
        if piece.kind != "name" or ":" not in piece.text:
            return ""
        prefix, _, local = piece.text.partition(":")
        base = self.prefixes.get(prefix)
        return "" if base is None else base + local.replace("\\", "")

    # --- outside of patterns ------------------------------------------------------------

    def _prefix(self) -> None:
        name, iri = self._next(), self._next()
        if name is not None and iri is not None and iri.kind == "iri":
            self.prefixes[name.text.removesuffix(":")] = iri.text[1:-1]

    def _template(self) -> None:
        """Skip a CONSTRUCT template: its terms need not be in the graph."""
        if self._peek("{"):
            self._at += 1
            before = len(self.named)
            self._group()
            del self.named[before:]

    def _flat(self, end: str) -> None:
        """An expression, or a list of values: terms in any order, maybe with a pattern inside."""
        while (piece := self._next()) is not None and piece.text != end:
            if piece.text == "{":
                self._group()
            elif piece.text == "(":
                self._flat(")")
            else:
                self._note("term", piece)

    def _values(self) -> None:
        while (piece := self._next()) is not None and piece.text != "{":
            continue
        self._flat("}")

    # --- patterns -----------------------------------------------------------------------

    def _group(self) -> None:
        """The inside of braces: triples and everything allowed between them."""
        place = "subject"
        while (piece := self._next()) is not None and piece.text != "}":
            if piece.text == "{":
                self._group()
                place = "subject"
            elif piece.word in _ENDS_TRIPLES:
                self._clause(piece.word)
                place = "subject"
            else:
                place = self._triple(place, piece)

    def _clause(self, word: str) -> None:
        if word == "VALUES":
            self._values()
        elif word == "SELECT":
            while not self._peek("{") and (piece := self._next()) is not None:
                if piece.text == "(":
                    self._flat(")")
        elif word in {"FILTER", "BIND", "HAVING"}:
            # A function may precede the parenthesis; a pattern is read by the group.
            while (piece := self._next()) is not None:
                if piece.text == "(":
                    self._flat(")")
                    return
                if piece.text in {"{", "}"}:
                    self._at -= 1
                    return
                self._note("term", piece)
        elif word == "GRAPH":
            self._next()

    def _triple(self, place: str, piece: Piece) -> str:
        """Read one piece of a triple; what may come next."""
        if piece.text == ".":
            return "subject"
        if piece.text == ";":
            return "verb"
        if piece.text == ",":
            return place
        if place == "verb":
            self._at -= 1
            return self._path()
        if place == "subject":
            self._subject = self._at - 1
        if place == "object":
            verbs = frozenset(self._path_verbs)
            self.reached.append(Reached(verbs, self._any_verb, self._at - 1))
        if place == "object" and self._verb and self._pieces[self._at - 2].text != "^^":
            self.bound.append(Bound(self._verb, self._at - 1))
        if piece.text == "[":
            self._properties()
        elif piece.text == "(":
            self._flat(")")
        else:
            self._note("class" if place == "class" else "term", piece)
        return "verb" if place == "subject" else place

    def _properties(self) -> None:
        """A blank node in brackets."""
        place, outer = "verb", self._verb
        while (piece := self._next()) is not None and piece.text != "]":
            if piece.text in {"{", "}"}:
                self._at -= 1
                break
            place = self._triple(place, piece)
        self._verb = outer

    def _path(self) -> str:
        """A verb or property path; whether its objects are classes."""
        depth, wanted, last = 0, True, ""
        begin, inverse = self._at, False
        self._path_verbs, self._any_verb = set(), False
        while (piece := self._next()) is not None:
            if wanted and piece.text in {"^", "!", "("}:
                depth += piece.text == "("
                inverse |= piece.text == "^"
                self._any_verb |= piece.text == "!"
            elif wanted and piece.kind in {*_WORDS, "iri", "variable"}:
                last = RDF_TYPE if piece.text == "a" else self._iri(piece)
                self._path_verbs.add(last)
                self._any_verb |= piece.kind == "variable"
                self._note("predicate", piece)
                wanted = False
            elif not wanted and piece.text in {"/", "|"}:
                wanted = True
            elif not wanted and piece.text in {"*", "+", "?"}:
                continue
            elif not wanted and depth and piece.text == ")":
                depth -= 1
            else:
                self._at -= 1
                break
        self._verb = last if self._at == begin + 1 else ""
        if inverse:
            verbs = frozenset(self._path_verbs)
            self.reached.append(Reached(verbs, self._any_verb, self._subject))
        if wanted and not self._at_end():
            self._at += self._pieces[self._at].text not in {"{", "}", "]"}
        return "class" if last == RDF_TYPE else "object"

    def _at_end(self) -> bool:
        return self._at >= len(self._pieces)


class Vocabulary:
    """The classes and fields of one graph, by IRI."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self.own = names.vocabulary
        self.names = names
        self.classes = {names.term(each.iri): each.name for each in schema.types}
        self.fields: dict[str, str] = {}
        self.descriptors: dict[str, list[PredicateDescriptor]] = {}
        for each in schema.types:
            for field in each.fields:
                self.fields[names.term(field.iri)] = field.name
                self.descriptors.setdefault(names.term(field.iri), []).append(field)
        self.big_integers = {
            iri: fields[0].name
            for iri, fields in self.descriptors.items()
            if any(field.type.scalar.kind == "BigInt" for field in fields)
        }
        """Fields with integers that the engine can't compute with, by IRI."""
        has_lists = any(field.ordered for each in schema.types for field in each.fields)
        self._standard = {RDF_TYPE, RDF_FIRST, RDF_REST} if has_lists else {RDF_TYPE}

    def unknown(self, named: list[Named]) -> Iterator[tuple[Named, str]]:
        """Each term of this graph's vocabulary that does not exist, and what to write instead."""
        reported: set[tuple[Role, str]] = set()
        for each in named:
            known = self._known(each.role)
            ours = self.own if each.role == "term" else self.names.nodes
            if not each.iri.startswith(ours) or each.iri in known:
                continue
            if (each.role, each.iri) not in reported:
                reported.add((each.role, each.iri))
                yield each, self._explain(each, known)

    def foreign(self, named: list[Named]) -> Iterator[str]:
        """Notices for classes and predicates of other vocabularies that this graph does not use."""
        for each in dict.fromkeys(named):
            known = self._known(each.role)
            ours = each.iri.startswith(self.names.nodes)
            if each.role != "term" and not ours and each.iri not in {*known, *self._standard}:
                yield self._explain(each, known)

    def unread_lists(self, named: list[Named]) -> Iterator[str]:
        """Notices for ordered lists of which a text reads the first cell, and no item."""
        read = {each.iri for each in named if each.role == "predicate"}
        if RDF_FIRST in read:
            return
        for iri in sorted(read & self.descriptors.keys()):
            field = self.descriptors[iri][0]
            if field.ordered:
                yield (
                    f":{field.name} is an ordered list (rdf:List); its items are at "
                    f":{field.name}/rdf:rest*/rdf:first"
                )

    def _known(self, role: Role) -> Mapping[str, str]:
        if role == "term":
            return self.fields | self.classes
        return self.classes if role == "class" else self.fields

    def _explain(self, each: Named, known: Mapping[str, str]) -> str:
        what = _WORDS_OF_ROLE[each.role]
        local = re.split(r"[/#:]", each.iri)[-1]
        spelled = {name: self._spell(iri) for iri, name in known.items()}
        spelled |= {iri.removeprefix(self.own): self._spell(iri) for iri in known}
        near = get_close_matches(local, spelled, n=1)
        other = self.fields if each.role == "class" else self.classes
        note = ""
        if each.role != "term" and each.iri in other:
            note = " (it is a field)" if each.role == "class" else " (it is a class)"
        if near:
            hint = f"did you mean {spelled[near[0]]}?"
        elif spelled:
            few = sorted(set(spelled.values()))[:12]
            hint = f"there are {', '.join(few)}{', …' if len(set(spelled.values())) > 12 else ''}"
        else:
            hint = f"this graph has no {what} yet"
        return f"there is no {what} {each.written}{note}; {hint}"

    def _spell(self, iri: str) -> str:
        local = iri.removeprefix(self.own)
        return f"<{iri}>" if local == iri else f":{local}"
