"""Omnigraph's queries that read: patterns, conditions, columns and order as SPARQL.

An edge is a node of its own here, with ``:source`` and ``:target``. What SPARQL can't say the same
way (full-text and vector ranking, bounded hops, lists in conditions) raises ``UntranslatedError``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from trails.importers.lexer import TokenReader, quoted
from trails.model.changes.steps import FieldSpec, TypeSpec

_AGGREGATES: Final = frozenset({"count", "sum", "avg", "min", "max"})
_RANKING: Final = frozenset({"search", "fuzzy", "match_text", "bm25", "nearest", "rrf"})


class UntranslatedError(Exception):
    """A part of a query that has no translation; the message says which and why."""


class QueryParameter(msgspec.Struct, frozen=True):
    """A parameter, as the header of a stored query has it."""

    name: str
    kind: str
    nullable: bool


class ImportedTypes:
    """The types that queries refer to, by the names of their file."""

    def __init__(self, types: Iterable[TypeSpec]) -> None:
        self.by_name: Mapping[str, TypeSpec] = {each.name: each for each in types}
        self._edges = {
            _traversal(each.name): each for each in self.by_name.values() if each.source is not None
        }

    def node(self, name: str) -> TypeSpec:
        """A type."""
        found = self.by_name.get(name)
        if found is None:
            raise UntranslatedError(f"there is no type {name}")
        return found

    def edge(self, name: str) -> TypeSpec:
        """An edge type by its name in a traversal: ``worksAt`` is ``WorksAt``."""
        found = self._edges.get(_traversal(name))
        if found is None:
            raise UntranslatedError(f"there is no edge {name}")
        return found

    def field(self, declared: TypeSpec, name: str) -> FieldSpec:
        """A field by its name in the file."""
        for each in declared.fields:
            if name in {each.iri or each.name, each.name}:
                return each
        raise UntranslatedError(f"{declared.name} has no property {name}")


def _traversal(name: str) -> str:
    return name[:1].lower() + name[1:]


def term(field: FieldSpec) -> str:
    """A field in SPARQL."""
    return f":{field.iri or field.name}"


class _Group:
    """The patterns of one block, in order, and the properties that it has bound."""

    def __init__(self, above: _Group | None = None) -> None:
        self.lines: list[str] = []
        self.bound: dict[tuple[str, str], str] = {} if above is None else dict(above.bound)


class QueryWriter:
    """Translates the body of one query."""

    def __init__(
        self, tokens: TokenReader, types: ImportedTypes, parameters: Mapping[str, QueryParameter]
    ) -> None:
        self.tokens = tokens
        self.types = types
        self.parameters = parameters
        self.subject: str | None = None
        """The variable whose properties are written without one, in changes of data."""
        self._typed: dict[str, TypeSpec] = {}
        self._taken = {each.name for each in parameters.values()}
        self._group = _Group()

    # --- a query that reads --------------------------------------------------------------

    def read(self) -> str:
        """``match``, ``return``, ``order`` and ``limit`` as SPARQL."""
        tokens = self.tokens
        tokens.expect("match")
        self._block()
        tokens.expect("return")
        columns, grouped, aliases = self._projections()
        order = self._order(aliases) if tokens.skip("order") else []
        lines = [f"SELECT {' '.join(columns)} WHERE {{", *self._group.lines, "}"]
        if len(grouped) < len(columns) and grouped:
            lines.append(f"GROUP BY {' '.join(grouped)}")
        if order:
            lines.append(f"ORDER BY {' '.join(order)}")
        if tokens.skip("limit"):
            lines.append(f"LIMIT {tokens.kind('number', 'a number')}")
        return "\n".join(lines)

    def _projections(self) -> tuple[list[str], list[str], set[str]]:
        """The columns, those of them that are not aggregates, and the names of all."""
        tokens = self.tokens
        columns, grouped, names = list[str](), list[str](), set[str]()
        tokens.expect("{")
        while not tokens.skip("}"):
            aggregate = tokens.has(*_AGGREGATES) and tokens.after().text == "("
            made = self.expression()
            if tokens.skip("as"):
                name = self._free(tokens.kind("word", "a name"))
                columns.append(f"({made} AS ?{name})")
            elif re.fullmatch(r"\?\w+", made):
                name = made[1:]
                columns.append(made)
            else:
                name = self._free("value")
                columns.append(f"({made} AS ?{name})")
            if not aggregate:
                grouped.append(made)
            names.add(name)
            tokens.skip(",")
        return columns, grouped, names

    def _order(self, aliases: set[str]) -> list[str]:
        tokens, found = self.tokens, list[str]()
        tokens.expect("{")
        while not tokens.skip("}"):
            if tokens.now.kind == "word" and tokens.now.text in aliases:
                made = f"?{tokens.take().text}"
            else:
                made = self.expression()
            down = tokens.skip("desc")
            if not down:
                tokens.skip("asc")
            plain = re.fullmatch(r"\?\w+", made)
            found.append(f"DESC({made})" if down else made if plain else f"({made})")
            tokens.skip(",")
        return found

    # --- patterns -------------------------------------------------------------------------

    def _block(self) -> None:
        self.tokens.expect("{")
        self.tokens.descend()
        while not self.tokens.skip("}"):
            self._clause()
        self.tokens.ascend()

    def _clause(self) -> None:
        tokens = self.tokens
        if tokens.has("not", "exists") and tokens.after().text == "{":
            self._nested("NOT EXISTS" if tokens.take().text == "not" else "EXISTS")
        elif tokens.has(*_AGGREGATES) and tokens.after().text in {"{", "("}:
            raise UntranslatedError("conditions on counts of a block have no translation")
        elif tokens.now.kind == "variable" and self._is_pattern():
            self._pattern()
        else:
            self._add(f"FILTER ({self.expression()})")

    def _is_pattern(self) -> bool:
        """Whether a variable begins a binding or a traversal, and not a condition."""
        sign = self.tokens.after()
        if sign.text == ":" or sign.kind in {"variable", "string"} or sign.text in {"(", "*"}:
            return True
        if sign.text == "<":
            return self.tokens.after(3).text == ">"
        words = {"and", "or", "is", "in", "contains", "starts_with"}
        return sign.kind == "word" and sign.text not in words

    def _nested(self, test: str) -> None:
        outer, typed = self._group, dict(self._typed)
        self._group = _Group(outer)
        self._block()
        inner, self._group = self._group, outer
        self._typed = typed
        outer.lines.append(f"  FILTER {test} {{")
        outer.lines += [f"  {line}" for line in inner.lines]
        outer.lines.append("  }")

    def _pattern(self) -> None:
        tokens = self.tokens
        first = tokens.take().text[1:]
        if tokens.skip(":"):
            self._binding(first)
        else:
            self._traversal(first)

    def _binding(self, variable: str) -> None:
        tokens = self.tokens
        declared = self.types.node(tokens.kind("word", "a type"))
        self._typed[variable] = declared
        parts = [f"a :{declared.name}"]
        if tokens.skip("{"):
            while not tokens.skip("}"):
                field = self.types.field(declared, tokens.kind("word", "a property"))
                tokens.expect(":")
                self._refuse_list(declared, field)
                parts.append(f"{term(field)} {self._operand()}")
                tokens.skip(",")
        self._add(f"?{self._variable(variable)} {' ; '.join(parts)} .")

    def _traversal(self, start: str) -> None:
        tokens = self.tokens
        edge_variable = ""
        if tokens.now.kind == "variable":
            edge_variable = tokens.take().text[1:]
            tokens.expect(":")
        both = tokens.skip("<")
        names = self._edge_names()
        if both:
            tokens.expect(">")
        if tokens.has("{"):
            raise UntranslatedError("bounded hops have no translation")
        end = tokens.kind("variable", "a variable")[1:]
        edges = [self.types.edge(each) for each in names]
        if edge_variable:
            self._typed[edge_variable] = edges[0]
        for variable, side in ((start, "source"), (end, "target")):
            found = getattr(edges[0], side)
            if variable not in self._typed and found in self.types.by_name:
                self._typed[variable] = self.types.by_name[found]
        edge = self._variable(edge_variable) if edge_variable else self._free("edge")
        ends = self._end(start), self._end(end)
        ways = [
            f"?{edge} a :{each.name} ; :source {one} ; :target {other} ."
            for each in edges
            for one, other in ([ends, ends[::-1]] if both else [ends])
        ]
        self._add(ways[0] if len(ways) == 1 else " UNION ".join(f"{{ {each} }}" for each in ways))

    def _edge_names(self) -> list[str]:
        tokens = self.tokens
        if tokens.has("*"):
            raise UntranslatedError("a traversal of every edge has no translation")
        in_brackets, found = tokens.skip("("), list[str]()
        while True:
            is_text = tokens.now.kind == "string"
            found.append(tokens.string() if is_text else tokens.kind("word", "an edge"))
            if not tokens.skip("|"):
                break
        if in_brackets:
            tokens.expect(")")
        return found

    def _end(self, variable: str) -> str:
        return f"?{self._free('any')}" if variable == "_" else f"?{self._variable(variable)}"

    # --- expressions ------------------------------------------------------------------------

    def expression(self) -> str:
        """A condition or a value, with ``or`` binding least."""
        self.tokens.descend()
        made = self._joined("or", "||", lambda: self._joined("and", "&&", self._negated))
        self.tokens.ascend()
        return made

    def _joined(self, word: str, sign: str, read: Callable[[], str]) -> str:
        parts = [read()]
        while self.tokens.skip(word):
            parts.append(read())
        return parts[0] if len(parts) == 1 else "(" + f" {sign} ".join(parts) + ")"

    def _negated(self) -> str:
        count = 0
        while self.tokens.skip("not"):
            count += 1
        made = self._comparison()
        return f"!({made})" if count % 2 else made

    def _comparison(self) -> str:
        tokens = self.tokens
        left = self._operand()
        if tokens.now.text in {"=", "!=", "<", ">", "<=", ">="}:
            sign = tokens.take().text
            return f"{left} {sign} {self._operand()}"
        if tokens.skip("contains"):
            return f"CONTAINS({left}, {self._operand()})"
        if tokens.skip("starts_with"):
            return f"STRSTARTS({left}, {self._operand()})"
        if tokens.skip("in"):
            return f"{left} IN {self._operand()}"
        if tokens.skip("is"):
            bound = "BOUND" if tokens.skip("not") else "!BOUND"
            tokens.expect("null")
            return f"{bound}({left})"
        return left

    def _operand(self) -> str:
        tokens = self.tokens
        now = tokens.now
        if now.kind == "variable":
            return self._reference(tokens.take().text[1:])
        if now.kind == "string":
            return quoted(tokens.string())
        if now.kind == "number":
            return tokens.take().text
        if tokens.skip("("):
            made = self.expression()
            tokens.expect(")")
            return f"({made})"
        if tokens.skip("["):
            return self._list()
        word = tokens.kind("word", "a value")
        if word in {"true", "false"}:
            return word
        if word in {"date", "datetime"}:
            tokens.expect("(")
            text = tokens.string()
            tokens.expect(")")
            return f"{quoted(text)}^^xsd:{'date' if word == 'date' else 'dateTime'}"
        if word == "now":
            tokens.expect("(")
            tokens.expect(")")
            return "NOW()"
        if word in _RANKING:
            raise UntranslatedError(
                f"{word}(…) ranks texts or vectors, which SPARQL can't; use the tool search"
            )
        if word in _AGGREGATES and tokens.skip("("):
            inner = self.expression()
            tokens.expect(")")
            return f"{word.upper()}({inner})"
        if self.subject is None:
            raise UntranslatedError(f"{word!r} has no translation")
        return self.property_of(self.subject, word)

    def _list(self) -> str:
        found = []
        self.tokens.descend()
        while not self.tokens.skip("]"):
            found.append(self._operand())
            self.tokens.skip(",")
        self.tokens.ascend()
        return f"({', '.join(found)})"

    def _reference(self, name: str) -> str:
        """A parameter, a node, or a property of a node."""
        tokens = self.tokens
        if not tokens.skip("."):
            found = self.parameters.get(name)
            return f"${found.name}" if found is not None else f"?{self._variable(name)}"
        if tokens.skip("@"):
            return self._system_field(name, tokens.kind("word", "a system field"))
        return self.property_of(name, tokens.kind("word", "a property"))

    def _system_field(self, variable: str, name: str) -> str:
        if name == "id":
            return f"?{self._variable(variable)}"
        ends = {"src": ":source", "dst": ":target"}
        if name not in ends:
            raise UntranslatedError(f"@{name} has no translation")
        made = self._free(f"{variable}_{name}")
        self._add(f"?{self._variable(variable)} {ends[name]} ?{made} .")
        return f"?{made}"

    def property_of(self, variable: str, name: str) -> str:
        """The variable that has a property's value, which its block binds once."""
        declared = self._typed.get(variable)
        if declared is None:
            raise UntranslatedError(f"the type of ${variable} is not known")
        field = self.types.field(declared, name)
        self._refuse_list(declared, field)
        known = self._group.bound.get((variable, name))
        if known is not None:
            return f"?{known}"
        made = self._free(name, f"{variable}_{name}")
        self._group.bound[variable, name] = made
        pattern = f"?{self._variable(variable)} {term(field)} ?{made} ."
        self._add(f"OPTIONAL {{ {pattern} }}" if field.type.endswith("None") else pattern)
        return f"?{made}"

    def _refuse_list(self, declared: TypeSpec, field: FieldSpec) -> None:
        if field.type.startswith("list"):
            raise UntranslatedError(
                f"{declared.name}.{field.name} is a list, which a row can't have as one value"
            )

    # --- names ----------------------------------------------------------------------------

    def describe(self, variable: str, declared: TypeSpec) -> None:
        """Use a variable whose properties can be written without it."""
        self._typed[variable] = declared
        self.subject = variable

    def take_lines(self) -> list[str]:
        """The patterns so far; the next ones begin anew."""
        lines, self._group = self._group.lines, _Group()
        return lines

    def _add(self, line: str) -> None:
        self._group.lines.append(f"  {line}")

    def _variable(self, name: str) -> str:
        """A variable; a parameter of the same name would be the same variable in SPARQL."""
        if name in self.parameters:
            raise UntranslatedError(f"${name} is a parameter and a variable")
        self._taken.add(name)
        return name

    def _free(self, *wanted: str) -> str:
        """The first of some names that nothing else has, or the last with a number."""
        for name in wanted:
            if name not in self._taken and name not in self.parameters:
                self._taken.add(name)
                return name
        number = 2
        while f"{wanted[-1]}{number}" in self._taken:
            number += 1
        return self._free(f"{wanted[-1]}{number}")
