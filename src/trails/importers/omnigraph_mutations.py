"""Omnigraph's queries that change data, as SPARQL Update.

An insert of a type with a key replaces the values of a node that exists, as there. The ids of nodes
and edges are derived in SPARQL as Trails derives them, so that ends of edges are found by key.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from trails.importers.omnigraph_queries import QueryWriter, UntranslatedError, term
from trails.model.changes.steps import FieldSpec, TypeSpec

_ENDS: Final = {"from": "source", "to": "target"}


class _Update(msgspec.Struct):
    """The three parts of an update."""

    deleted: list[str] = msgspec.field(default_factory=list)
    inserted: list[str] = msgspec.field(default_factory=list)
    where: list[str] = msgspec.field(default_factory=list)

    def text(self) -> str:
        blocks = [("DELETE", self.deleted), ("INSERT", self.inserted)]
        parts = [f"{name} {{\n{_indented(lines)}\n}}" for name, lines in blocks if lines]
        return "\n".join([*parts, f"WHERE {{\n{_indented(self.where)}\n}}"])


def _indented(lines: list[str]) -> str:
    return "\n".join(f"  {each.strip()}" for each in lines)


def translate_mutation(writer: QueryWriter) -> str:
    """The statements of a mutation as one update."""
    tokens, update = writer.tokens, _Update()
    number = 0
    while tokens.has("insert", "update", "delete"):
        verb, number = tokens.take().text, number + 1
        declared = writer.types.node(tokens.kind("word", "a type"))
        if number > 1 and verb != "insert":
            raise UntranslatedError("several changes of one query have no translation")
        if verb == "insert":
            _insert(writer, declared, update, "" if number == 1 else str(number))
        elif verb == "update":
            _change(writer, declared, update)
        else:
            _delete(writer, declared, update)
    return update.text()


def _insert(writer: QueryWriter, declared: TypeSpec, update: _Update, mark: str) -> None:
    values = _assignments(writer)
    if declared.source is not None and declared.target is not None:
        _insert_edge(writer, declared, update, values, mark)
        return
    node, key = f"?node{mark}", _key(declared)
    given = {writer.types.field(declared, name).name: made for name, made in values.items()}
    if key is None:
        made = "STRUUID()"
    elif key.name not in given:
        raise UntranslatedError(f"an insert of {declared.name} needs its key, {key.name}")
    else:
        made = _encoded(key, given[key.name])
    update.where.append(f'BIND (IRI(CONCAT("{declared.name}/", {made})) AS {node})')
    statements = [f"a :{declared.name}"]
    for field in declared.fields:
        if field.name in given:
            statements.append(f"{term(field)} {given[field.name]}")
            if key is not None and field is not key:
                _replace(update, node, field, f"?old_{field.name}{mark}")
    update.inserted.append(f"{node} {' ; '.join(statements)} .")


def _replace(update: _Update, node: str, field: FieldSpec, old: str) -> None:
    """Remove the value that a field had."""
    update.deleted.append(f"{node} {term(field)} {old} .")
    update.where.append(f"OPTIONAL {{ {node} {term(field)} {old} . }}")


def _insert_edge(
    writer: QueryWriter, declared: TypeSpec, update: _Update, values: dict[str, str], mark: str
) -> None:
    handles, statements = [], [f"a :{declared.name}"]
    for name, side in _ENDS.items():
        end = writer.types.node(str(getattr(declared, side)))
        key = _key(end)
        if key is None or name not in values:
            raise UntranslatedError(f"{declared.name} needs a {name} whose type has a key")
        value = _text(key, values.pop(name))
        update.where.append(
            f'BIND (IRI(CONCAT("{end.name}/", ENCODE_FOR_URI({value}))) AS ?{side}{mark})'
        )
        statements.append(f":{side} ?{side}{mark}")
        handles.append(f'"{end.name}/", {value}')
    own = _key(declared)
    if own is not None:
        if own.name not in values:
            raise UntranslatedError(f"an insert of {declared.name} needs its key, {own.name}")
        handles.append(_text(own, values[own.name]))
    joined = ', "\\n", '.join(handles)
    digest = f"SUBSTR(SHA256(CONCAT({joined})), 1, 32)"
    edge = f"?edge{mark}"
    update.where.append(f'BIND (IRI(CONCAT("{declared.name}/", {digest})) AS {edge})')
    for name, value in values.items():
        field = writer.types.field(declared, name)
        statements.append(f"{term(field)} {value}")
        if not field.key:
            _replace(update, edge, field, f"?old_{field.name}{mark}")
    update.inserted.append(f"{edge} {' ; '.join(statements)} .")


def _change(writer: QueryWriter, declared: TypeSpec, update: _Update) -> None:
    writer.tokens.expect("set")
    values = _assignments(writer)
    _condition(writer, declared, update)
    for name, value in values.items():
        field = writer.types.field(declared, name)
        _replace(update, "?node", field, f"?old_{field.name}")
        update.inserted.append(f"?node {term(field)} {value} .")


def _delete(writer: QueryWriter, declared: TypeSpec, update: _Update) -> None:
    _condition(writer, declared, update)
    update.deleted.append("?node ?field ?value .")
    update.where.append("?node ?field ?value .")


def _assignments(writer: QueryWriter) -> dict[str, str]:
    tokens, found = writer.tokens, dict[str, str]()
    tokens.expect("{")
    while not tokens.skip("}"):
        name = tokens.kind("word", "a property")
        tokens.expect(":")
        found[name] = writer.expression()
        if not re.fullmatch(r"\$\w+|\"[^\n]*\"(\^\^xsd:\w+)?|-?[0-9.]+|true|false", found[name]):
            raise UntranslatedError(f"{name}: only a parameter or a plain value can be set")
        tokens.skip(",")
    return found


def _condition(writer: QueryWriter, declared: TypeSpec, update: _Update) -> None:
    """``where`` over the properties of the type itself."""
    writer.tokens.expect("where")
    writer.describe("node", declared)
    update.where.append(f"?node a :{declared.name} .")
    test = _end_condition(writer, declared) or f"FILTER ({writer.expression()})"
    update.where += [*writer.take_lines(), test]


def _end_condition(writer: QueryWriter, declared: TypeSpec) -> str | None:
    """``@src = $signal`` of an edge."""
    tokens = writer.tokens
    if not tokens.has("@") and not (tokens.has("from", "to") and declared.source is not None):
        return None
    tokens.skip("@")
    word = tokens.kind("word", "src or dst")
    side = {"src": "source", "dst": "target"}.get(word) or _ENDS.get(word)
    end = None if side is None else getattr(declared, side)
    key = None if end is None else _key(writer.types.node(end))
    if key is None:
        raise UntranslatedError(f"a condition on @{word} has no translation")
    tokens.expect("=")
    value = _text(key, writer.expression())
    made = f'IRI(CONCAT("{end}/", ENCODE_FOR_URI({value})))'
    return f"?node :{side} ?end . FILTER (?end = {made})"


def _key(declared: TypeSpec) -> FieldSpec | None:
    return next((each for each in declared.fields if each.key), None)


def _encoded(key: FieldSpec, value: str) -> str:
    return f"ENCODE_FOR_URI({_text(key, value)})"


def _text(key: FieldSpec, value: str) -> str:
    """A key's value as text, from which ids are derived."""
    return value if key.type == "str" else f"STR({value})"
