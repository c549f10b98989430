"""Project a schema into its RDF vocabulary, as Turtle: classes and properties, without rules.

Pure. A property has the domains and ranges of all fields that use it; ``shacl`` has the rules.
"""

from __future__ import annotations

from collections.abc import Iterator

from trails.model.iris import XSD, Names
from trails.model.types import PredicateDescriptor, Schema
from trails.projections.shacl import turtle_iri, turtle_text

_PREFIXES = {
    "owl": "http://www.w3.org/2002/07/owl#",
    "rdfs": "http://www.w3.org/2000/01/rdf-schema#",
    "xsd": XSD,
}


def project_vocabulary(schema: Schema, names: Names) -> str:
    """The classes and properties of a schema."""
    prefixes = {"": names.vocabulary, **_PREFIXES}
    lines = [f"@prefix {name}: {turtle_iri(iri)} .\n" for name, iri in sorted(prefixes.items())]
    return "".join([*lines, "\n", *_classes(schema), *_properties(schema)])


def _classes(schema: Schema) -> Iterator[str]:
    for each in schema.types:
        facts = ["a owl:Class", f"rdfs:label {turtle_text(each.name)}"]
        if each.extends is not None:
            facts.append(f"rdfs:subClassOf {_term(schema.by_name[each.extends].iri)}")
        if each.description:
            facts.append(f"rdfs:comment {turtle_text(each.description)}")
        yield _block(each.iri, facts)


def _properties(schema: Schema) -> Iterator[str]:
    used: dict[str, list[tuple[str, PredicateDescriptor]]] = {}
    for each in schema.types:
        for field in each.fields:
            if field.declared_in == each.name:
                used.setdefault(field.iri, []).append((each.iri, field))
    for iri, uses in sorted(used.items()):
        fields = [field for _, field in uses]
        refers = all(field.target is not None for field in fields)
        kind = "owl:ObjectProperty" if refers else "owl:DatatypeProperty"
        facts = [f"a {kind}", f"rdfs:label {turtle_text(fields[0].name)}"]
        comments = dict.fromkeys(field.description for field in fields if field.description)
        facts += [f"rdfs:comment {turtle_text(each)}" for each in comments]
        # Several domains or ranges would mean all of them at once, so only a single one is said.
        domains = list(dict.fromkeys(owner for owner, _ in uses))
        ranges = list(dict.fromkeys(_range(schema, field) for field in fields))
        facts += [f"rdfs:domain {_term(each)}" for each in domains if len(domains) == 1]
        facts += [f"rdfs:range {each}" for each in ranges if each and len(ranges) == 1]
        yield _block(iri, facts)


def _range(schema: Schema, field: PredicateDescriptor) -> str:
    if field.target is not None:
        return _term(schema.by_name[field.target].iri)
    row = field.type.scalar.row
    datatype = "" if row is None else row.datatype
    if datatype.startswith(XSD):
        return f"xsd:{datatype.removeprefix(XSD)}"
    return turtle_iri(datatype) if datatype else ""


def _block(iri: str, facts: list[str]) -> str:
    said = " ;\n    ".join(facts)
    return f"{_term(iri)} {said} .\n\n"


def _term(name: str) -> str:
    return turtle_iri(name) if ":" in name else f":{name}"
