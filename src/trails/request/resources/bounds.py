"""What a read returns to a model: at most ``max_chars`` characters, and how to go on.

A list of instances has fewer items, and the URI of the next page. A record is JSON-LD, of which a
part is still true: fields that do not fit are left out whole, and each is listed with its size, its
beginning and the call that reads it. Any other document is shortened as tools shorten their
results (``request/fitting.py``). Programs get everything (``Kernel.read_whole``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

import msgspec

from trails.engine.evidence.fields import call_from
from trails.engine.evidence.records import Record
from trails.engine.evidence.values import cut_json
from trails.engine.graph.cursors import Cursors
from trails.engine.session.context import GraphContext
from trails.imports import later
from trails.model.iris import Names
from trails.model.nodes import NodeState
from trails.model.operations.pages import Call
from trails.model.types import PredicateDescriptor
from trails.model.uris import Content, DocumentAddress, ReadPoint
from trails.model.values.json_values import Json
from trails.projections.documents import JsonLd
from trails.projections.resources import JSON, LD_JSON
from trails.request.fitting import fit, fit_value
from trails.views.nodes.long_texts import StoredText

if TYPE_CHECKING:
    from trails.engine.evidence import texts
    from trails.request.builtins import graph
else:
    graph = later("trails.request.builtins.graph")
    texts = later("trails.engine.evidence.texts")

_BEGINNING: Final = 200
"""The most characters that are shown of a text that is left out."""
_NOTE: Final = 900
"""Characters about a field that is left out, with the call that reads it."""
_AROUND: Final = 300
_encode: Final = msgspec.json.Encoder().encode


def has_long_text(state: NodeState) -> bool:
    """Whether a node has a text of which only parts were read."""
    return any(isinstance(each, StoredText) for each in state.values.values())


def complete(state: NodeState, fields: Mapping[str, PredicateDescriptor]) -> NodeState:
    """A node with its long texts; only while it is being looked at."""
    values = {
        name: _whole(fields[name], value) if isinstance(value, StoredText) else value
        for name, value in state.values.items()
    }
    return NodeState(state.type, state.id, values)


def _whole(field: PredicateDescriptor, text: StoredText) -> object:
    return Json.trusted(text[:]) if field.type.scalar.kind == "Json" else text[:]


def fit_record(
    record: Record, uri: str, documents: JsonLd, names: Names, limit: int, cursors: Cursors
) -> list[Content]:
    """A record as JSON-LD and, if fields are left out, a note with the calls that read them."""
    state, fields = record.state, record.descriptor.by_name
    # Of such a text each character takes at least one.
    left = [
        name
        for name, value in state.values.items()
        if isinstance(value, StoredText) and len(value) > limit
    ]
    small = {name: value for name, value in state.values.items() if name not in left}
    shown = complete(NodeState(state.type, state.id, small), fields)
    body = documents.document(shown)
    terms = {name: names.term(field.iri) for name, field in fields.items()}
    for name in left:
        del body[terms[name]]
    sizes = {name: _size(body[terms[name]]) for name in small if terms[name] in body}
    size = _size(body)
    while sizes and size + (_AROUND + _NOTE * len(left) if left else 0) > limit:
        largest = max(sizes, key=sizes.__getitem__)
        size -= sizes.pop(largest) + len(terms[largest]) + 4
        del body[terms[largest]]
        left.append(largest)
    contents = [Content(uri, LD_JSON, _encode(body).decode())]
    if left:
        note = _left_out(record, sorted(left), limit - size, limit, cursors)
        contents.append(Content(uri, JSON, _encode(note).decode()))
    return contents


def _left_out(
    record: Record, names: Sequence[str], room: int, limit: int, cursors: Cursors
) -> Mapping[str, object]:
    """What is left out of a record, as far as there is room to list it."""
    listed: list[Mapping[str, object]] = []
    room -= _AROUND
    for name in names:
        note = _note(record, name, min(_BEGINNING, limit // 16), cursors)
        room -= _size(note) + 1
        if room < 0 and listed:
            break
        listed.append(note)
    notice = (
        f"{len(names)} of {len(record.state.values)} fields are left out: an answer has at most "
        f"{limit} characters (max_chars). read is the call for each."
    )
    found: dict[str, object] = {"notice": notice, "fields": listed}
    if len(listed) < len(names):
        found["more"] = len(names) - len(listed)
        found["next"] = Call("node_get", {"record": record.uri})
    return {"left_out": found}


def _note(record: Record, name: str, beginning: int, cursors: Cursors) -> Mapping[str, object]:
    at = texts.FieldPath(name)
    found = texts.text_of(record, at)
    return {
        "field": name,
        "characters": len(found.text),
        "media_type": found.media_type,
        "begins": cut_json(found.text[:beginning], beginning),
        "read": call_from(cursors, record, at, 0, found.digest),
    }


def fit_document(
    ctx: GraphContext, uri: str, address: DocumentAddress, value: object, limit: int
) -> list[Content]:
    """A document, or as much of it as there is room for."""
    whole = _encode(value)
    if len(whole.decode()) <= limit:
        return [Content(uri, JSON, whole.decode())]
    place = _arguments(address.place)
    if address.name == "schema":
        page = msgspec.structs.replace(graph.schema_page(ctx), call=Call("schema_get", place))
        return [Content(uri, JSON, fit(page, _encode(page.whole()), limit, "").decode())]
    if isinstance(value, list):
        tool, key = _LISTS[address.name]
        return _fit_items(uri, value, limit, Call(tool, place), key)
    return fit_other(uri, cast(dict[str, object], value), limit, _OTHERS[address.name])


def fit_other(
    uri: str, value: Mapping[str, object], limit: int, again: Call | str
) -> list[Content]:
    """An object, with its longest parts shortened if it does not fit."""
    whole = _encode(value)
    if len(whole.decode()) > limit:
        plain = msgspec.json.decode(whole, type=dict[str, object])
        whole = _encode(fit_value(plain, limit, again, len(whole.decode())))
    return [Content(uri, JSON, whole.decode())]


_LISTS: Final = {"kg/types": ("graph_snapshot", "type"), "branches": ("branch_list", "name")}
"""Documents that are lists: the tool that goes on after an item, and what names it."""
_OTHERS: Final[Mapping[str, Call | str]] = {
    "stats": Call("graph_snapshot", {}),
    "doctor": "Run 'trails doctor' for all of it.",
    "prov/latest": "The tool commit_list lists all commits.",
}
"""Documents that are objects: where all of it is."""


def _fit_items(
    uri: str, items: Sequence[Mapping[str, object]], limit: int, call: Call, key: str
) -> list[Content]:
    """The first items of a list, and the call that lists the others."""
    kept: list[Mapping[str, object]] = []
    room = limit - _AROUND - _NOTE
    for item in items:
        room -= _size(item) + 1
        if room < 0:
            break
        kept.append(item)
    after = {"after": kept[-1][key]} if kept else {}
    notice = (
        f"{len(kept)} of {len(items)} are shown: an answer has at most {limit} characters "
        "(max_chars). next is the call that continues."
    )
    following = msgspec.structs.replace(call, arguments={**call.arguments, **after})
    said = {"notice": notice, "shown": len(kept), "of": len(items), "next": following}
    return [
        Content(uri, JSON, _encode(kept).decode()),
        Content(uri, JSON, _encode({"left_out": said}).decode()),
    ]


def _arguments(place: ReadPoint) -> dict[str, object]:
    """A place as tools take it."""
    if place.commit is not None:
        return {"snapshot": place.commit}
    return {} if place.branch is None else {"branch": place.branch}


def _size(value: object) -> int:
    return len(_encode(value).decode())
