"""Project a schema into the list of what can be read by URI.

Pure: same types, same list, in name order. Instances are not enumerated; templates
say how to reach them.
"""

from __future__ import annotations

from trails.model.resources import Resource, ResourceList, ResourceTemplate
from trails.model.types import Schema, TypeDescriptor


def project_resources(schema: Schema) -> ResourceList:
    """Everything that is listed."""
    return ResourceList(
        schema.digest,
        tuple(_umbrella(each) for each in schema.types),
        tuple(template for each in schema.types for template in _templates(each)),
    )


def _umbrella(descriptor: TypeDescriptor) -> Resource:
    name = descriptor.name
    return Resource(
        uri=f"trails://kg/{name}",
        name=name,
        title=f"All {name} instances",
        description=f"List all {name} instances",
        mime_type="application/json",
    )


def _templates(descriptor: TypeDescriptor) -> tuple[ResourceTemplate, ResourceTemplate]:
    name = descriptor.name
    return (
        ResourceTemplate(
            uri_template=f"trails://kg/{name}{{?where,limit,offset,cursor}}",
            name=f"{name}_list",
            title=f"Some {name} instances",
            description=f"List {name} instances",
            mime_type="application/json",
        ),
        ResourceTemplate(
            uri_template=f"trails://kg/{name}/{{id}}",
            name=f"{name}_instance",
            title=f"One {name}",
            description=f"Read one {name}",
            mime_type="application/ld+json",
        ),
    )
