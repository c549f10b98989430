"""Projects made of what was imported, by the operation that agents call."""

import json

import msgspec
from tests.worlds.graphs import Calls
from tests.worlds.projects import make_project

from trails import App
from trails.app.workspace import ProjectWorkspace
from trails.model.actors import OPERATOR
from trails.model.operations.authoring import ImportedFiles

EMPTY = '"""An application without types."""\n'


def import_files(folder, **arguments):
    """Import into a project folder, and write what comes of it; the result of the operation."""
    with App.open(folder, strict=True) as app:
        calls = Calls(app)
        try:
            result = calls.result("trails_meta_schema_import", arguments, OPERATOR)
        finally:
            calls.kernel.close()
        found = msgspec.json.decode(json.dumps(result), type=ImportedFiles)
        ProjectWorkspace(app, "main").apply(found.diff)
    return found


def new_project(folder):
    """A project without types."""
    return make_project(folder, EMPTY)
