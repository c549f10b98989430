"""Project a schema into the list of resources.

Pure: fixed documents first, then one list per type, in name order. Instances are not
enumerated; URI templates say how to reach them. Descriptions assume a reader who does not know
Trails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from trails.model.texts import with_article
from trails.model.types import Schema, TypeDescriptor
from trails.model.uris import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Document,
    ListedResource,
    ResourceList,
    ResourceTemplate,
)

JSON: Final = "application/json"
LD_JSON: Final = "application/ld+json"
TEXT: Final = "text/plain"
PAGE: Final = "{?where,limit,offset,cursor}"

_DOCUMENTS: Final[tuple[tuple[Document, str, str], ...]] = (
    (
        "kg/types",
        "Types of instances",
        (
            "Start here: every type of thing that this knowledge graph holds, what it means, how "
            "many instances there are, and the URI that lists them."
        ),
    ),
    (
        "schema",
        "Schema",
        (
            "All types with their fields, constraints and RDF names. Read it before you write: "
            "what breaks a constraint is refused."
        ),
    ),
    (
        "stats",
        "Statistics",
        "Counts and sizes of this graph: instances by type, commits, branches, bytes on disk.",
    ),
    (
        "branches",
        "Branches",
        (
            "The branches of this graph, 'main' first, each with its newest commit. A branch is a "
            "version that can be changed without touching the others."
        ),
    ),
    (
        "prov/latest",
        "Latest activity",
        (
            "Recent activity, newest first: calls with their actor, outcome and times, and commits "
            "with the call that made them."
        ),
    ),
    (
        "doctor",
        "Health",
        "The health of this graph: what was checked, what was found, and how to fix it.",
    ),
)

_PAGING: Final = (
    f"limit is {DEFAULT_LIMIT} unless given, {MAX_LIMIT} at most. Where more follow, a second text "
    "says how many were shown and gives the URI of the next page, which has a cursor; offset skips "
    "that many."
)
_FILTER: Final = (
    "where is one comparison, field=value{example}: one field of the type, '=' only, no AND or OR."
)
_PLACES: Final = (
    (
        "branch/{branch}",
        "branch",
        "on a branch",
        "A slash in the branch's name is written %2F.",
    ),
    (
        "at/{commit}",
        "past",
        "as of a commit",
        "The commit is given by its id, or at least the first 8 digits of it.",
    ),
)


def project_resources(schema: Schema, more: Sequence[ListedResource] = ()) -> ResourceList:
    """Everything that is listed; ``more`` are documents of plugins, which stay the same."""
    return ResourceList(
        schema.digest,
        (*_documents(), *more, *(_umbrella(each) for each in schema.types)),
        (*(template for each in schema.types for template in _of_type(each)), *_others()),
    )


def _documents() -> Iterator[ListedResource]:
    for path, title, description in _DOCUMENTS:
        yield ListedResource(
            uri=f"trails://{path}",
            name=path.removeprefix("kg/").replace("/", "_"),
            title=title,
            description=description,
            mime_type=JSON,
        )


def _umbrella(descriptor: TypeDescriptor) -> ListedResource:
    name = descriptor.name
    return ListedResource(
        uri=f"trails://kg/{name}",
        name=name,
        title=f"All {name} instances",
        description=(
            f"List all {name} instances as {{iri, label}}, {DEFAULT_LIMIT} at a time."
            f"{_meaning(descriptor)} Cost of watching it: one notification for every change of any "
            f"instance; for a type with more than 1000 instances, watch single ones "
            f"(trails://kg/{name}/{{id}}) instead."
        ),
        mime_type=JSON,
    )


def _of_type(descriptor: TypeDescriptor) -> tuple[ResourceTemplate, ResourceTemplate]:
    name = descriptor.name
    named_by = descriptor.id_field
    key = "" if named_by is None else f" The id is the value of {named_by.name}."
    fields = ", ".join(descriptor.by_name)
    return (
        ResourceTemplate(
            uri_template=f"trails://kg/{name}{PAGE}",
            name=f"{name}_list",
            title=f"Find {name} instances",
            description=(
                f"List {name} instances as {{iri, label}}.{_meaning(descriptor)} "
                f"{_FILTER.format(example=_example(descriptor))} Fields: {fields}. {_PAGING}"
            ),
            mime_type=JSON,
        ),
        ResourceTemplate(
            uri_template=f"trails://kg/{name}/{{id}}",
            name=f"{name}_instance",
            title=f"One {name}",
            description=(
                f"All that is known of one {name}, as JSON-LD.{_meaning(descriptor)}{key} An iri "
                "from a list can be read as it is."
            ),
            mime_type=LD_JSON,
        ),
    )


def _example(descriptor: TypeDescriptor) -> str:
    """An example filter for a type, if a field has a choice of values."""
    for field in descriptor.fields:
        if field.one_of and field.type.scalar.kind == "String":
            return f" (for example where={field.name}={field.one_of[0]})"
    return ""


def _meaning(descriptor: TypeDescriptor) -> str:
    """The first paragraph of a type's description."""
    text = " ".join(descriptor.description.partition("\n\n")[0].split())
    if text and not text.endswith((".", "!", "?")):
        text += "."
    if edge := descriptor.edge:
        source, target = with_article(edge.source), with_article(edge.target)
        text = f"{text} Joins {source} (source) to {target} (target).".strip()
    if descriptor.abstract:
        text = f"{text} Abstract: its instances are those of the types that extend it.".strip()
    return f" {text}" if text else ""


def _others() -> Iterator[ResourceTemplate]:
    yield ResourceTemplate(
        uri_template="trails://queries/{name}",
        name="query",
        title="A stored query's parameters",
        description=(
            "What a stored query does, and the JSON Schema of the parameters it takes. Stored "
            "queries are called as tools."
        ),
        mime_type=JSON,
    )
    for path, prefix, where, note in _PLACES:
        yield ResourceTemplate(
            uri_template=f"trails://{path}/kg/{{type}}{PAGE}",
            name=f"{prefix}_list",
            title=f"Instances of a type {where}",
            description=(
                f"List the instances of a type {where} as {{iri, label}}. {note} "
                f"{_FILTER.format(example='')} {_PAGING}"
            ),
            mime_type=JSON,
        )
        yield ResourceTemplate(
            uri_template=f"trails://{path}/kg/{{type}}/{{id}}",
            name=f"{prefix}_instance",
            title=f"One instance {where}",
            description=f"All that is known of one instance {where}, as JSON-LD. {note}",
            mime_type=LD_JSON,
        )
        for document, title in (
            ("kg/types", "Types with counts"),
            ("schema", "Schema"),
            ("stats", "Statistics"),
        ):
            yield ResourceTemplate(
                uri_template=f"trails://{path}/{document}",
                name=f"{prefix}_{document.removeprefix('kg/')}",
                title=f"{title} {where}",
                description=f"The same as trails://{document}, {where}. {note}",
                mime_type=JSON,
            )
