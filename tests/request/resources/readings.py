"""A reader of an app, asked from tests that are no coroutines."""

import asyncio
import json
from collections.abc import Sequence

from trails import App
from trails.model.actors import LOCAL
from trails.model.results import Failure
from trails.model.uris import Content
from trails.request.admission import KernelOptions
from trails.request.pipeline import Kernel


class Reading:
    """A reader of an app, asked from tests that are no coroutines."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.reader = Kernel(app.service(), KernelOptions())

    def contents(self, uri: str) -> Sequence[Content]:
        """What a read that succeeds gives."""
        found = asyncio.run(self.reader.read(LOCAL, uri))
        assert not isinstance(found, Failure), found
        return found

    def body(self, uri: str):
        """The document of a read that succeeds, decoded."""
        return json.loads(self.contents(uri)[0].text)

    def failure(self, uri: str) -> Failure:
        """What a read that fails gives."""
        found = asyncio.run(self.reader.read(LOCAL, uri))
        assert isinstance(found, Failure), found
        return found

    def complete(self, template: str, variable: str, value: str = "", **given: str):
        """Values for a variable of a template."""
        return asyncio.run(self.reader.complete(LOCAL, template, variable, value, given))
