"""Project activities into PROV-O, as Turtle or JSON-LD.

An activity is a ``prov:Activity`` (one that changed the registry a ``trails:MetaActivity`` as well)
that was associated with an agent; the states and nodes that it used, and the commits that it made,
are entities. Pure: the same activities give the same text. Callers pass what may be seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final
from urllib.parse import quote

import msgspec

from trails.model.iris import RDF, TRAILS, XSD
from trails.model.operations.history import ActivityInfo

PROV: Final = "http://www.w3.org/ns/prov#"
RDFS: Final = "http://www.w3.org/2000/01/rdf-schema#"
_PREFIXES: Final = {"prov": PROV, "rdf": RDF, "rdfs": RDFS, "trails": TRAILS, "xsd": XSD}
_META: Final = "meta"
_TEXTS: Final = ("outcome", "kind", "surface", "trace", "detail")
_IRIS: Final = ("used", "generated", "wasAssociatedWith", "wasGeneratedBy", "wasAttributedTo")

Properties = dict[str, list[tuple[str, str]]]
"""Predicate → values, each with its datatype: ``@id`` for an IRI, empty for a text."""


def project_provenance(activities: Iterable[ActivityInfo], base: str) -> dict[str, Properties]:
    """Subject → its properties; ``base`` is what the IRIs of the graph begin with."""
    found: dict[str, Properties] = {}
    for each in activities:
        subject, agent = f"urn:uuid:{each.id}", f"{base}/agents/{quote(each.actor, safe='')}"
        _add(found, agent, "rdf:type", "prov:Agent")
        _add(found, agent, "rdfs:label", each.actor, "")
        for name in ("prov:Activity", *(("trails:MetaActivity",) if each.kind == _META else ())):
            _add(found, subject, "rdf:type", name)
        _add(found, subject, "rdfs:label", each.name, "")
        _add(found, subject, "prov:startedAtTime", each.started, "xsd:dateTime")
        _add(found, subject, "prov:endedAtTime", each.ended, "xsd:dateTime")
        _add(found, subject, "prov:wasAssociatedWith", agent, "@id")
        _add(found, subject, "trails:calls", str(each.calls), "xsd:integer")
        for name in _TEXTS:
            if getattr(each, name):
                _add(found, subject, f"trails:{name}", getattr(each, name), "")
        for entity in each.used:
            _add(found, subject, "prov:used", _entity(found, entity, base), "@id")
        for commit in each.generated:
            entity = _entity(found, commit, base)
            _add(found, subject, "prov:generated", entity, "@id")
            _add(found, entity, "prov:wasGeneratedBy", subject, "@id")
            _add(found, entity, "prov:wasAttributedTo", agent, "@id")
    return found


def _entity(found: dict[str, Properties], name: str, base: str) -> str:
    """A node by its handle, or the state of the graph at a commit."""
    iri = f"{base}/{name}" if "/" in name else f"{base}/commits/{name}"
    _add(found, iri, "rdf:type", "prov:Entity")
    return iri


def _add(
    found: dict[str, Properties], subject: str, predicate: str, value: str, kind: str = "@type"
) -> None:
    values = found.setdefault(subject, {}).setdefault(predicate, [])
    if (value, kind) not in values:
        values.append((value, kind))


def write_turtle(found: Mapping[str, Properties]) -> str:
    """As Turtle."""
    lines = [f"@prefix {name}: <{iri}> ." for name, iri in _PREFIXES.items()]
    for subject, properties in found.items():
        written = [
            f"    {predicate} {', '.join(_turtle(*each) for each in values)}"
            for predicate, values in properties.items()
        ]
        lines.append(f"\n<{subject}>\n" + " ;\n".join(written) + " .")
    return "\n".join(lines) + "\n"


def _turtle(value: str, kind: str) -> str:
    if kind == "@type":
        return value
    if kind == "@id":
        return f"<{value}>"
    text = "".join(_escapes(value))
    return f'"{text}"^^{kind}' if kind else f'"{text}"'


def _escapes(text: str) -> Iterator[str]:
    for each in text:
        if each in '"\\':
            yield "\\" + each
        elif each < " " or each == "\x7f":
            yield f"\\u{ord(each):04X}"
        else:
            yield each


def write_json_ld(found: Mapping[str, Properties]) -> bytes:
    """As JSON-LD, with a context of its own."""
    context: dict[str, object] = dict(_PREFIXES)
    context |= {f"prov:{name}": {"@type": "@id"} for name in _IRIS}
    graph = []
    for subject, properties in found.items():
        node: dict[str, object] = {"@id": subject}
        for predicate, values in properties.items():
            if predicate == "rdf:type":
                node["@type"] = [value for value, _ in values]
            else:
                shown = [_json(*each) for each in values]
                node[predicate] = shown[0] if len(shown) == 1 else shown
        graph.append(node)
    return msgspec.json.encode({"@context": context, "@graph": graph})


def _json(value: str, kind: str) -> object:
    if kind in {"", "@id"}:
        return value
    return int(value) if kind == "xsd:integer" else {"@value": value, "@type": kind}
