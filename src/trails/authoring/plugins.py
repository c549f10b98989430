"""``Plugin``: what an installed package adds to the projects that enable it.

A package names a ``Plugin`` in the entry points ``trails.plugins``. The object says what there is.
Its modules with declarations are imported after its kinds are known, so that they can use them.
Nothing is registered here.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from trails.authoring.capabilities import Context
from trails.model.kinds import Kind


class PluginResource(msgspec.Struct, frozen=True, kw_only=True):
    """A document that agents and programs read: ``trails://plugins/<plugin>/<path>``."""

    path: str
    title: str
    description: str
    read: Callable[[Context], object]
    """Gets the context of the reader on ``main``; returns a text, or anything with a JSON form."""
    media_type: str = "application/json"
    """Of a text; everything else is JSON."""


class PluginCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command of ``trails`` that calls one of the plugin's capabilities."""

    name: str
    capability: str
    """Its id. The arguments of the capability are the options of the command."""
    summary: str
    """A sentence for ``trails --help``."""


class Plugin(msgspec.Struct, frozen=True, kw_only=True):
    """What a package adds to a project."""

    name: str
    """The name of its entry point, by which ``[project] plugins`` enables it."""
    version: str
    requires: str = ""
    """The versions of Trails that it works with, like ``>=0.1,<1``; any if empty."""
    modules: tuple[str, ...] = ()
    """Modules that declare types, shapes, capabilities, meta-capabilities and policy rules."""
    kinds: tuple[Kind, ...] = ()
    resources: tuple[PluginResource, ...] = ()
    commands: tuple[PluginCommand, ...] = ()
