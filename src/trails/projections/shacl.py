"""Project a schema into SHACL, as Turtle.

Pure. Constraints on a node's own values are SHACL Core; uniqueness is SHACL-SPARQL, the only
part of SHACL that compares nodes. Constraints and patterns without a SHACL form become
comments. Each shape holds what its own type declares: instances carry the classes of all their
ancestors, so the ancestors' shapes apply as well.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from trails.model.constraints import RULES, Rule, phrase_of
from trails.model.iris import RDF, XSD, Names
from trails.model.kinds import KINDS
from trails.model.types import (
    PredicateDescriptor,
    Schema,
    ShapeDescriptor,
    TypeDescriptor,
    ValueType,
)

_PREFIXES: Final = {
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "sh": "http://www.w3.org/ns/shacl#",
    "xsd": XSD,
}


class _Block(msgspec.Struct, frozen=True):
    """A resource without a name: its predicates and objects."""

    pairs: tuple[tuple[str, _Term], ...]


class _Items(msgspec.Struct, frozen=True):
    """An RDF list."""

    items: tuple[_Term, ...]


_Term = str | _Block | _Items
Pairs = Iterator[tuple[str, _Term]]


def project_shacl(schema: Schema, names: Names) -> str:
    """The shapes of a schema: one for each type, and one for each attached shape."""
    writer = _Writer(schema, names)
    blocks = [writer.prologue()]
    for descriptor in schema.types:
        blocks.append(_subject(writer.term(descriptor.iri), writer.class_of(descriptor)))
        blocks.append(_subject(writer.shape_name(descriptor.name), writer.shape_of(descriptor)))
    blocks += [
        _subject(writer.shape_name(each.name), writer.attached(each)) for each in schema.shapes
    ]
    return "\n".join(blocks)


class _Writer:
    """Translates the descriptors of one graph into SHACL."""

    def __init__(self, schema: Schema, names: Names) -> None:
        self._schema = schema
        self._names = names

    def prologue(self) -> str:
        prefixes = {"": self._names.vocabulary, **_PREFIXES}
        if any(field.ordered for each in self._schema.types for field in each.fields):
            prefixes["rdf"] = RDF
        lines = [f"@prefix {name}: {turtle_iri(iri)} .\n" for name, iri in sorted(prefixes.items())]
        return "".join(lines)

    # --- names -----------------------------------------------------------------

    def term(self, name: str) -> str:
        """A class or field."""
        return turtle_iri(name) if ":" in name else f":{name}"

    def shape_name(self, name: str) -> str:
        """A shape's own name; type names have no hyphen, so it is unique."""
        return f":{name}-shape"

    def _full(self, name: str) -> str:
        """A class or field inside SPARQL text, where Turtle's prefixes do not reach."""
        return turtle_iri(self._names.term(name))

    def _class(self, type_name: str) -> str:
        return self.term(self._schema.by_name[type_name].iri)

    # --- classes and shapes ------------------------------------------------------

    def class_of(self, descriptor: TypeDescriptor) -> Pairs:
        yield "a", "rdfs:Class"
        yield "rdfs:label", turtle_text(descriptor.name)
        if descriptor.extends is not None:
            yield "rdfs:subClassOf", self._class(descriptor.extends)
        if descriptor.description:
            yield "rdfs:comment", turtle_text(descriptor.description)

    def shape_of(self, descriptor: TypeDescriptor) -> Pairs:
        yield "a", "sh:NodeShape"
        yield "sh:targetClass", self.term(descriptor.iri)
        if descriptor.abstract:
            yield self._abstract(descriptor)
        own = [field for field in descriptor.fields if field.declared_in == descriptor.name]
        for field in own:
            yield from self._properties(field, field)
        yield from self._edges_at(descriptor)
        for field in own:
            if field.unique:
                yield self._unique(descriptor, (field.name,))
        for group in self._own_groups(descriptor):
            yield self._unique(descriptor, group)

    def _abstract(self, descriptor: TypeDescriptor) -> tuple[str, _Term]:
        """An instance has the class of a type that extends it; there is none if nothing does."""
        classes = [
            _Block((("sh:class", self._class(each)),))
            for each in self._schema.concrete(descriptor.name)
        ]
        if not classes:
            return "sh:not", _Block((("sh:class", self.term(descriptor.iri)),))
        return "sh:or", _Items(tuple(classes))

    def attached(self, shape: ShapeDescriptor) -> Pairs:
        """A shape that adds rules; its fields are the target type's of the same names."""
        target = self._schema.by_name[shape.target or ""]
        yield "a", "sh:NodeShape"
        yield "sh:targetClass", self.term(target.iri)
        if shape.description:
            yield "rdfs:comment", turtle_text(shape.description)
        for field in shape.fields:
            yield from self._properties(field, target.by_name[field.name])

    def _own_groups(self, descriptor: TypeDescriptor) -> Iterator[tuple[str, ...]]:
        """Groups of fields that differ together; an edge's ends and key are one."""
        parent = self._schema.by_name.get(descriptor.extends or "")
        inherited = () if parent is None else parent.unique
        if descriptor.edge is not None:
            yield ("source", "target", *(() if descriptor.key is None else (descriptor.key.name,)))
        yield from (group for group in descriptor.unique if group not in inherited)

    # --- fields --------------------------------------------------------------------

    def _properties(self, rules: PredicateDescriptor, stored: PredicateDescriptor) -> Pairs:
        """The rules of a field; a second pattern needs a property shape of its own."""
        if stored.ordered:
            yield from self._list_properties(rules, self.term(stored.iri))
            return
        path = ("sh:path", self.term(stored.iri))
        patterns = list(_patterns(rules))
        pairs = [path, *self._rules(rules)]
        yield "sh:property", _Block((*pairs, *patterns[:1]))
        for extra in patterns[1:]:
            yield "sh:property", _Block((path, extra))

    def _list_properties(self, rules: PredicateDescriptor, field: str) -> Pairs:
        """The rules of an ordered list: at most one, its cells counted, its items judged."""
        yield "sh:property", _Block((("sh:path", field), ("sh:maxCount", "1")))
        rest = _Block((("sh:zeroOrMorePath", "rdf:rest"),))
        # Cells and not items are counted: an item that comes twice is one node of a path.
        cells = _Items((field, rest))
        counts: list[tuple[str, _Term]] = []
        if rules.min_count:
            counts.append(("sh:qualifiedMinCount", str(rules.min_count)))
        if rules.max_count is not None:
            counts.append(("sh:qualifiedMaxCount", str(rules.max_count)))
        if counts:
            item = _Block((("sh:path", "rdf:first"), ("sh:minCount", "1")))
            cell = ("sh:qualifiedValueShape", _Block((("sh:property", item),)))
            yield "sh:property", _Block((("sh:path", cells), cell, *counts))
        path = ("sh:path", _Items((field, rest, "rdf:first")))
        uncounted = msgspec.structs.replace(rules, min_count=0, max_count=None)
        patterns = list(_patterns(rules))
        yield "sh:property", _Block((path, *self._rules(uncounted), *patterns[:1]))
        for extra in patterns[1:]:
            yield "sh:property", _Block((path, extra))

    def _rules(self, field: PredicateDescriptor) -> Pairs:
        yield "sh:name", turtle_text(field.name)
        if field.description:
            yield "sh:description", turtle_text(field.description)
        if field.min_count:
            yield "sh:minCount", str(field.min_count)
        if field.tagged:
            yield "sh:uniqueLang", "true"
        elif field.max_count is not None:
            yield "sh:maxCount", str(field.max_count)
        if field.target is not None:
            yield "sh:nodeKind", "sh:IRI"
            yield "sh:class", self._class(field.target)
            return
        scalar = field.type.scalar
        yield "sh:datatype", _datatype(scalar)
        for rule in RULES:
            limit = _limit(rule, field)
            if limit is None or rule.limit == "pattern":  # patterns: see _properties
                continue
            if rule.shacl is None:
                phrase = phrase_of(rule, limit)
                yield "rdfs:comment", turtle_text(f"{phrase[0].upper()}{phrase[1:]}")
            elif isinstance(limit, tuple):
                yield rule.shacl, _Items(tuple(_literal(scalar, value) for value in limit))
            else:
                yield rule.shacl, str(limit) if rule.limit == "count" else _literal(scalar, limit)

    # --- rules about other nodes -----------------------------------------------------

    def _edges_at(self, descriptor: TypeDescriptor) -> Pairs:
        """How many edges a node may and must have; all edge types share their ends' names."""
        for edge in self._schema.types:
            if edge.edge is None:
                continue
            for side, end, (low, high) in (
                ("source", edge.edge.source, edge.edge.per_source),
                ("target", edge.edge.target, edge.edge.per_target),
            ):
                if end == descriptor.name and (low, high) != (0, None):
                    yield "sh:property", _Block(tuple(self._edge_rules(edge, side, low, high)))

    def _edge_rules(self, edge: TypeDescriptor, side: str, low: int, high: int | None) -> Pairs:
        path = self.term(edge.by_name[side].iri)
        yield "sh:path", _Block((("sh:inversePath", path),))
        yield "sh:qualifiedValueShape", _Block((("sh:class", self.term(edge.iri)),))
        if low:
            yield "sh:qualifiedMinCount", str(low)
        if high is not None:
            yield "sh:qualifiedMaxCount", str(high)

    def _unique(self, descriptor: TypeDescriptor, group: tuple[str, ...]) -> tuple[str, _Term]:
        lines = [f"?other a {self._full(descriptor.iri)} ."]
        for at, name in enumerate(group):
            lines += self._same_value(descriptor.by_name[name], at)
        lines.append("FILTER (?other != $this)")
        query = "SELECT $this WHERE { " + " ".join(lines) + " }"
        message = f"{' and '.join(group)} must be unique"
        return "sh:sparql", _Block(
            (("sh:message", turtle_text(message)), ("sh:select", turtle_text(query)))
        )

    def _same_value(self, field: PredicateDescriptor, at: int) -> Iterator[str]:
        """Triple patterns that hold where another node has the same value."""
        path, row = self._full(field.iri), field.type.scalar.row
        yield f"$this {path} ?value{at} ."
        if row is not None and row.quantity:
            # One instant or number can be written in several ways; '=' compares the values.
            yield f"?other {path} ?same{at} . FILTER (?value{at} = ?same{at})"
        else:
            yield f"?other {path} ?value{at} ."


# --- values ----------------------------------------------------------------------


def _datatype(scalar: ValueType) -> str:
    iri = KINDS[scalar.kind].datatype
    return f"xsd:{iri.removeprefix(XSD)}" if iri.startswith(XSD) else turtle_iri(iri)


def _literal(scalar: ValueType, plain: object) -> str:
    """A declared value as the graph stores it."""
    row = KINDS[scalar.kind]
    text = turtle_text(row.lexical(row.coerce(plain)))
    return text if scalar.kind == "String" else f"{text}^^{_datatype(scalar)}"


def _limit(rule: Rule, field: PredicateDescriptor) -> object:
    """The declared limit, else the kind's own where it is narrower than the datatype's."""
    limit: object = getattr(field, rule.code)
    row = field.type.scalar.row
    if limit is None and row is not None and row.narrow and field.one_of is None:
        return row.schema.get(rule.keyword)
    return limit


# --- patterns ----------------------------------------------------------------------


def _patterns(field: PredicateDescriptor) -> Iterator[tuple[str, str]]:
    """What the text of a value must match: the declared pattern, and the kind's grammar."""
    scalar = field.type.scalar
    if field.pattern is not None:
        yield _pattern(field.pattern)
    row = scalar.row
    if row is not None and row.narrow and "pattern" in row.schema:
        yield _pattern(str(row.schema["pattern"]))
    if scalar.dimension is not None:
        yield _pattern(rf"^\[[^,]+(,[^,]+){{{scalar.dimension - 1}}}\]$")


def _pattern(pattern: str) -> tuple[str, str]:
    translated = _translate(pattern)
    if translated is None:
        return "rdfs:comment", turtle_text(f"Must match the ECMA-262 pattern {pattern}")
    return "sh:pattern", turtle_text(translated)


# XPath's \d, \w and \s match other characters than those of ECMA-262.
_CLASSES: Final = {
    "d": "0-9",
    "w": "A-Za-z0-9_",
    "s": "\t\n\x0b\x0c\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff",
}
_NOT_LINE_END: Final = "[^\\n\\r\u2028\u2029]"
_CONTROLS: Final = {"f": "\x0c", "v": "\x0b", "n": r"\n", "r": r"\r", "t": r"\t"}
_PIECE: Final = re.compile(
    r"\\x(?P<x>[0-9A-Fa-f]{2})|\\u(?P<u>[0-9A-Fa-f]{4})|\\(?P<escape>.)|(?P<plain>.)", re.DOTALL
)
_SPECIAL: Final = frozenset("\\^$.|?*+()[]{}-")


def _translate(pattern: str) -> str | None:
    """The pattern in the syntax of XPath's fn:matches; None where it has no such form."""
    out: list[str] = []
    in_class = False
    for piece in _PIECE.finditer(pattern):
        code, escape, plain = piece["x"] or piece["u"], piece["escape"], piece["plain"]
        if plain is not None:
            in_class = plain == "[" or (in_class and plain != "]")
            out.append(_NOT_LINE_END if plain == "." and not in_class else plain)
        elif code is not None:
            char = chr(int(code, 16))
            out.append("\\" + char if char in _SPECIAL else char)
        elif escape in _CLASSES:
            inner = _CLASSES[escape]
            out.append(inner if in_class else f"[{inner}]")
        elif escape in _CONTROLS:
            out.append(_CONTROLS[escape])
        elif escape.lower() in _CLASSES and not in_class:
            out.append(f"[^{_CLASSES[escape.lower()]}]")
        elif escape.isalnum():
            return None  # \b and \B; a negated class inside a class
        else:
            out.append("\\" + escape if escape in _SPECIAL else escape)
    return "".join(out)


# --- Turtle ------------------------------------------------------------------------


def _subject(name: str, pairs: Iterable[tuple[str, _Term]]) -> str:
    return f"{name} {_pairs(pairs, '    ')} .\n"


def _pairs(pairs: Iterable[tuple[str, _Term]], indent: str) -> str:
    return f" ;\n{indent}".join(f"{name} {_render(term, indent)}" for name, term in pairs)


def _render(term: _Term, indent: str) -> str:
    if isinstance(term, str):
        return term
    if isinstance(term, _Items):
        return f"( {' '.join(_render(each, indent) for each in term.items)} )"
    inner = indent + "    "
    return f"[\n{inner}{_pairs(term.pairs, inner)}\n{indent}]"


_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def turtle_text(value: str) -> str:
    """A literal in Turtle."""
    return '"' + "".join(_ESCAPES.get(char) or _visible(char) for char in value) + '"'


def _visible(char: str) -> str:
    """Escape characters that readers or other tools might not show or keep."""
    return char if char.isprintable() else f"\\U{ord(char):08X}"


def turtle_iri(value: str) -> str:
    """An IRI in Turtle."""
    refused = set('<>"{}|^`\\')
    safe = (
        f"\\U{ord(char):08X}" if char in refused or ord(char) <= 0x20 else char for char in value
    )
    return f"<{''.join(safe)}>"
