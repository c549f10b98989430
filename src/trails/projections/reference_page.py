"""Project an OpenAPI document into a page to read.

Every text of the document is escaped; its descriptions come from the authors of applications.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import cast

import msgspec

from trails.projections.json_schema import Document
from trails.projections.pages import project_page


def project_reference_page(document: Document) -> str:
    """The page of an OpenAPI document."""
    info = cast(Mapping[str, str], document["info"])
    operations = list(_operations(document))
    groups = dict.fromkeys(str(each["tags"][0]) for _, _, each in operations)  # type: ignore[index]
    body = [f"<h1>{escape(info['title'])}</h1><p>{escape(info['description'])}</p>"]
    body.append("<p>As JSON: <a href='/openapi.json'>/openapi.json</a></p><ul>")
    body += [f"<li><a href='#{escape(each)}'>{escape(each)}</a></li>" for each in groups]
    body.append("</ul>")
    for group in groups:
        body.append(f"<h2 id='{escape(group)}'>{escape(group)}</h2>")
        for method, path, each in operations:
            if each["tags"] == [group]:
                body += _operation(method, path, each)
    body.append("<h2 id='schemas'>Schemas</h2>")
    components = cast(Mapping[str, Mapping[str, Document]], document["components"])
    for name, schema in components["schemas"].items():
        body.append(
            f"<section id='{escape(name)}'><h3>{escape(name)}</h3>{_json(schema)}</section>"
        )
    return project_page(f"{info['title']}: reference", "".join(body))


def _operations(document: Document) -> Iterator[tuple[str, str, Document]]:
    paths = cast(Mapping[str, Mapping[str, Document]], document["paths"])
    for path, methods in paths.items():
        for method, each in methods.items():
            yield method.upper(), path, each


def _operation(method: str, path: str, operation: Document) -> Iterator[str]:
    name = escape(str(operation["operationId"]))
    yield f"<section id='{name}'><h3>{escape(str(operation['summary']))}</h3>"
    yield f"<p><b>{method}</b> <code>{escape(path)}</code></p>"
    if "description" in operation:
        yield f"<p>{escape(str(operation['description']))}</p>"
    said = {"x-trails-tool": "MCP tool", "x-trails-command": "Command"}
    for key, title in said.items():
        if key in operation:
            yield f"<p>{title}: <code>{escape(str(operation[key]))}</code></p>"
    yield from _parameters(cast(Sequence[Document], operation.get("parameters", ())))
    if "requestBody" in operation:
        yield f"<details><summary>Body</summary>{_json(operation['requestBody'])}</details>"
    yield f"<details><summary>Responses</summary>{_json(operation['responses'])}</details>"
    yield "</section>"


def _parameters(parameters: Sequence[Document]) -> Iterator[str]:
    if not parameters:
        return
    yield "<table><tr><th>Parameter</th><th>In</th><th>Type</th><th></th></tr>"
    for each in parameters:
        schema = each.get("schema")
        kind = schema.get("type", "") if isinstance(schema, Mapping) else "JSON"
        needed = " (required)" if each["required"] else ""
        yield (
            f"<tr><td><code>{escape(str(each['name']))}</code></td><td>{each['in']}{needed}</td>"
            f"<td>{escape(str(kind))}</td><td>{escape(str(each.get('description', '')))}</td></tr>"
        )
    yield "</table>"


def _json(value: object) -> str:
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return f"<pre>{escape(text)}</pre>"
