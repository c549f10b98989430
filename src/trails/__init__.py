"""Trails: a knowledge graph that agents can operate and author, safely.

Names are loaded when first used, so that ``import trails`` costs next to nothing.
"""

from __future__ import annotations

# Type checkers know this name; importing typing for it would be most of the import's time.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from trails.app.app import App as App
    from trails.app.remote.client import connect as connect
    from trails.authoring.annotations import Ref as Ref
    from trails.authoring.annotations import Vector as Vector
    from trails.authoring.capabilities import Context as Context
    from trails.authoring.capabilities import capability as capability
    from trails.authoring.capabilities import meta_capability as meta_capability
    from trails.authoring.capabilities import policy as policy
    from trails.authoring.capabilities import policy_rule as policy_rule
    from trails.authoring.migrations import Migration as Migration
    from trails.authoring.migrations import MigrationContext as MigrationContext
    from trails.authoring.migrations import RunPython as RunPython
    from trails.authoring.nodes import Edge as Edge
    from trails.authoring.nodes import Node as Node
    from trails.authoring.plugins import Plugin as Plugin
    from trails.authoring.plugins import PluginCommand as PluginCommand
    from trails.authoring.plugins import PluginResource as PluginResource
    from trails.authoring.predicates import predicate as predicate
    from trails.authoring.queries import Page as Page
    from trails.authoring.queries import Q as Q
    from trails.authoring.types import Shape as Shape
    from trails.authoring.types import edge_type as edge_type
    from trails.authoring.types import node_type as node_type
    from trails.authoring.types import shape as shape
    from trails.model.changes.steps import AddField as AddField
    from trails.model.changes.steps import AddShape as AddShape
    from trails.model.changes.steps import AddType as AddType
    from trails.model.changes.steps import ChangeField as ChangeField
    from trails.model.changes.steps import ChangeType as ChangeType
    from trails.model.changes.steps import DropField as DropField
    from trails.model.changes.steps import DropShape as DropShape
    from trails.model.changes.steps import DropType as DropType
    from trails.model.changes.steps import FieldSpec as FieldSpec
    from trails.model.changes.steps import RenameField as RenameField
    from trails.model.changes.steps import RenameType as RenameType
    from trails.model.changes.steps import ShapeSpec as ShapeSpec
    from trails.model.changes.steps import SplitField as SplitField
    from trails.model.changes.steps import TypeSpec as TypeSpec
    from trails.model.history import Commit as Commit
    from trails.model.history import MergeRequest as MergeRequest
    from trails.model.history import Resolution as Resolution
    from trails.model.kinds import BigInt as BigInt
    from trails.model.kinds import Blob as Blob
    from trails.model.kinds import Iri as Iri
    from trails.model.kinds import Kind as Kind
    from trails.model.kinds import KindError as KindError
    from trails.model.values.json_values import Json as Json
    from trails.model.values.lang_texts import LangText as LangText
    from trails.model.writes import LoadRequest as LoadRequest

__version__ = "0.1.0"

_HOMES = {
    "AddField": "trails.model.changes.steps",
    "AddShape": "trails.model.changes.steps",
    "AddType": "trails.model.changes.steps",
    "App": "trails.app.app",
    "BigInt": "trails.model.kinds",
    "Blob": "trails.model.kinds",
    "ChangeField": "trails.model.changes.steps",
    "ChangeType": "trails.model.changes.steps",
    "Commit": "trails.model.history",
    "Context": "trails.authoring.capabilities",
    "DropField": "trails.model.changes.steps",
    "DropShape": "trails.model.changes.steps",
    "DropType": "trails.model.changes.steps",
    "Edge": "trails.authoring.nodes",
    "FieldSpec": "trails.model.changes.steps",
    "Iri": "trails.model.kinds",
    "Json": "trails.model.values.json_values",
    "Kind": "trails.model.kinds",
    "KindError": "trails.model.kinds",
    "LangText": "trails.model.values.lang_texts",
    "LoadRequest": "trails.model.writes",
    "MergeRequest": "trails.model.history",
    "Migration": "trails.authoring.migrations",
    "MigrationContext": "trails.authoring.migrations",
    "Node": "trails.authoring.nodes",
    "Page": "trails.authoring.queries",
    "Plugin": "trails.authoring.plugins",
    "PluginCommand": "trails.authoring.plugins",
    "PluginResource": "trails.authoring.plugins",
    "Q": "trails.authoring.queries",
    "Ref": "trails.authoring.annotations",
    "RenameField": "trails.model.changes.steps",
    "RenameType": "trails.model.changes.steps",
    "Resolution": "trails.model.history",
    "RunPython": "trails.authoring.migrations",
    "Shape": "trails.authoring.types",
    "ShapeSpec": "trails.model.changes.steps",
    "SplitField": "trails.model.changes.steps",
    "TypeSpec": "trails.model.changes.steps",
    "Vector": "trails.authoring.annotations",
    "capability": "trails.authoring.capabilities",
    "connect": "trails.app.remote.client",
    "edge_type": "trails.authoring.types",
    "meta_capability": "trails.authoring.capabilities",
    "node_type": "trails.authoring.types",
    "policy": "trails.authoring.capabilities",
    "policy_rule": "trails.authoring.capabilities",
    "predicate": "trails.authoring.predicates",
    "shape": "trails.authoring.types",
}

__all__ = ["__version__", *_HOMES]  # noqa: PLE0604 - the keys are strings


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'trails' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415 - only when a name is first used

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
