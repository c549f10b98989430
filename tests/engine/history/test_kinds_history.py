"""History of every kind of field, over every surface.

The kinds come from the table, so a kind that is added without values here fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import anyio
import pytest
from tests.worlds.clients import RestClient, ThreadedServer
from tests.worlds.mcp_clients import connect
from tests.worlds.processes import Shell
from tests.worlds.surfaces import MODERN

from trails import App
from trails.app.kernels import kernel_of
from trails.model.kinds import KINDS
from trails.surfaces.rest.routes import build_app

Values = tuple[Any, Any, Any, Any]
KINDS_OF_FIELDS: dict[str, tuple[str, Values]] = {
    "String": ("str", ("a", "b", "c", "d")),
    "Bool": ("bool", (None, True, False, True)),
    "Int": ("int", (1, 2, 3, 4)),
    "BigInt": ("BigInt", ("1", "2", "3", "12345678901234567890123")),
    "Float": ("float", (1.5, 2.5, 3.5, 4.5)),
    "Decimal": ("Decimal", ("1.5", "2.5", "3.5", "4.5")),
    "Date": ("date", ("2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04")),
    "DateTime": ("datetime", tuple(f"2026-01-0{day}T09:30:00Z" for day in (1, 2, 3, 4))),
    "Iri": ("Iri", tuple(f"https://example.org/{name}" for name in "abcd")),
    "Blob": ("Blob", tuple(f"s3://bucket/{name}" for name in "abcd")),
    "Vector": ("Vector(2)", ([1.0, 2.0], [1.0, 3.0], [1.0, 4.0], [1.0, 5.0])),
    "Json": ("Json", ({"a": [1]}, {"a": [True]}, {"a": [1.0]}, [{"é": None}])),
    "LangText": ("LangText", tuple({"en": each, "de-ch": "é"} for each in "abcd")),
    "Ref": ("Ref[Other]", tuple(f"Other/{name}" for name in "abcd")),
}
"""Kind → its annotation, and the values: before, ours, theirs, and one to settle with."""

UNLISTED = {"Vector", "Json", "LangText"}
"""Kinds of which a field holds one value at most."""
_FIELDS = "\n".join(
    f"    one_{kind.lower()}: {text} | None = predicate()\n"
    + (
        f"    many_{kind.lower()}: list[{text}] = predicate()\n"
        f"    one_ordered_{kind.lower()}: list[{text}] = predicate(ordered=True)"
        if kind not in UNLISTED
        else ""
    )
    for kind, (text, _) in KINDS_OF_FIELDS.items()
)
APP = f'''
from datetime import date, datetime
from decimal import Decimal

from trails import BigInt, Blob, Iri, Json, LangText, Node, Ref, Vector, node_type, predicate


@node_type
class Other(Node):
    """What references name."""

    code: str = predicate(key=True)


@node_type
class Sample(Node):
    """A field of one value, a set, and an ordered list, which changes as one, for every kind."""

    code: str = predicate(key=True)
{_FIELDS}
'''


def data(at: int) -> dict[str, Any]:
    """The fields of a sample: before, ours, theirs, or settled."""
    fields: dict[str, Any] = {}
    for kind, (_, values) in KINDS_OF_FIELDS.items():
        fields[f"one_{kind.lower()}"] = values[at]
        if kind not in UNLISTED:
            fields[f"many_{kind.lower()}"] = [] if values[at] is None else [values[at]]
            ordered = [values[3], values[at], values[at], values[0]]
            fields[f"one_ordered_{kind.lower()}"] = [each for each in ordered if each is not None]
    return fields


def spread(fields: dict[str, Any]) -> dict[str, Any]:
    """Fields as history has them: each language of a text alone, without what never changes."""
    found = {name: value for name, value in fields.items() if name != "one_langtext"}
    return {**found, "one_langtext@en": fields["one_langtext"]["en"]}


def operation(what: str, at: int) -> dict[str, Any]:
    """Create or update the sample."""
    fields = {name: value for name, value in data(at).items() if value is not None}
    if what == "create":
        return {"op": "create", "type": "Sample", "data": {"code": "s", **fields}}
    return {"op": "update", "type": "Sample", "id": "s", "data": fields}


class Surface(Protocol):
    """What every surface can do with history."""

    def mutate(self, branch: str, operations: list[dict[str, Any]]) -> str:
        """The commit of some operations."""

    def fork(self, branch: str) -> None:
        """Make a branch."""

    def shown(self, commit: str) -> list[dict[str, Any]]:
        """The changes of a commit."""

    def diff(self, start: str, end: str) -> list[dict[str, Any]]:
        """The changes between two states."""

    def merge(
        self, source: str, target: str, settled: list[dict[str, Any]]
    ) -> tuple[str, list[dict[str, Any]]]:
        """The outcome of a merge, and its conflicts."""

    def sample(self, branch: str) -> dict[str, Any]:
        """The sample as it is read back."""


class Cli:
    """``trails`` commands; everything is asked for as text too."""

    def __init__(self, folder: Path) -> None:
        self._shell = Shell(folder)

    def mutate(self, branch: str, operations: list[dict[str, Any]]) -> str:
        """The commit of some operations."""
        name = self._shell.write("change.json", operations)
        return self._shell.json("mutate", "--operations", name, "--branch", branch)["commit"]

    def fork(self, branch: str) -> None:
        """Make a branch."""
        self._shell.run("branch", "create", branch)

    def shown(self, commit: str) -> list[dict[str, Any]]:
        """The changes of a commit."""
        return self._shell.json("commit", "show", commit)["changes"]

    def diff(self, start: str, end: str) -> list[dict[str, Any]]:
        """The changes between two states."""
        assert "one_vector" in self._shell.out("diff", start, end)
        return self._shell.json("diff", start, end)["changes"]

    def merge(
        self, source: str, target: str, settled: list[dict[str, Any]]
    ) -> tuple[str, list[dict[str, Any]]]:
        """The outcome of a merge, and its conflicts."""
        chosen = {
            each["conflict"]: each["take"] if "value" not in each else {"value": each["value"]}
            for each in settled
        }
        name = self._shell.write("settled.json", chosen)
        asked = ("branch", "merge", source, "--into", target, "--resolutions", name)
        if not settled:
            assert "one_vector" in self._shell.out(*asked, code=1)
        found = self._shell.json(*asked, code=0 if settled else 1)
        return found["outcome"], found["conflicts"]

    def sample(self, branch: str) -> dict[str, Any]:
        """The sample as it is read back."""
        return exported(self._shell.out("export", "--branch", branch))


class Rest:
    """The REST API."""

    def __init__(self, client: RestClient) -> None:
        self._client = client

    def mutate(self, branch: str, operations: list[dict[str, Any]]) -> str:
        """The commit of some operations."""
        return self._client.post("mutate", {"operations": operations, "branch": branch})["commit"]

    def fork(self, branch: str) -> None:
        """Make a branch."""
        self._client.post("branches", {"name": branch})

    def shown(self, commit: str) -> list[dict[str, Any]]:
        """The changes of a commit."""
        return self._client.get(f"commits/{commit}")["changes"]

    def diff(self, start: str, end: str) -> list[dict[str, Any]]:
        """The changes between two states."""
        return self._client.get("diff", **{"from": start, "to": end})["changes"]

    def merge(
        self, source: str, target: str, settled: list[dict[str, Any]]
    ) -> tuple[str, list[dict[str, Any]]]:
        """The outcome of a merge, and its conflicts."""
        asked = {"source": source, "target": target, "resolutions": settled}
        if settled:
            return self._client.post("branches/merge", asked)["outcome"], []
        refused = self._client.post("branches/merge", asked, 409)
        return "conflicts", refused["data"]["conflicts"]

    def sample(self, branch: str) -> dict[str, Any]:
        """The sample as it is read back."""
        got = self._client.send("GET", f"/graphs/main/export?branch={branch}")
        assert got.status == 200
        return exported(got.body.decode())


class Mcp:
    """MCP, with the official client."""

    def __init__(self, backend: object) -> None:
        self._backend = backend

    def _call(self, tool: str, **arguments: Any) -> Any:
        async def ask() -> Any:
            async with connect("stream", MODERN, self._backend, "") as client:
                return await client.call_tool(tool, arguments)

        return anyio.run(ask)

    def _result(self, tool: str, **arguments: Any) -> Any:
        result = self._call(tool, **arguments)
        assert not result.is_error, result
        return result.structured_content

    def mutate(self, branch: str, operations: list[dict[str, Any]]) -> str:
        """The commit of some operations."""
        return self._result("graph_mutate", operations=operations, branch=branch)["commit"]

    def fork(self, branch: str) -> None:
        """Make a branch."""
        self._result("branch_create", name=branch)

    def shown(self, commit: str) -> list[dict[str, Any]]:
        """The changes of a commit."""
        return self._result("commit_get", commit=commit)["changes"]

    def diff(self, start: str, end: str) -> list[dict[str, Any]]:
        """The changes between two states; agents compare a commit with the one before it."""
        del start
        return self.shown(end)

    def merge(
        self, source: str, target: str, settled: list[dict[str, Any]]
    ) -> tuple[str, list[dict[str, Any]]]:
        """The outcome of a merge, and its conflicts."""
        if settled:
            asked = {"source": source, "target": target, "resolutions": settled}
            return self._result("branch_merge", **asked)["outcome"], []
        assert self._call("branch_merge", source=source, target=target).is_error
        found = self._result("branch_merge", source=source, target=target, dry_run=True)
        return found["outcome"], found["conflicts"]

    def sample(self, branch: str) -> dict[str, Any]:
        """The sample as it is read back: agents have no export, and read resources."""
        uri = (
            f"trails://branch/{branch}/kg/Sample/s" if branch != "main" else "trails://kg/Sample/s"
        )

        async def ask() -> Any:
            async with connect("stream", MODERN, self._backend, "") as client:
                return await client.read_resource(uri)

        document, *_ = anyio.run(ask).contents  # on a branch, a note on references follows
        return from_json_ld(json.loads(document.text))


def exported(text: str) -> dict[str, Any]:
    """The sample among the lines of an export."""
    lines = [json.loads(line) for line in text.splitlines()]
    return next(line for line in lines if line.get("type") == "Sample")["data"]


def from_json_ld(document: dict[str, Any]) -> dict[str, Any]:
    """The sample's fields of one value in the JSON form of their kinds."""
    found = {}
    for kind in KINDS_OF_FIELDS:
        value = document.get(f"trails://kinds/main/schema#one_{kind.lower()}", {})
        found[f"one_{kind.lower()}"] = _from_json_ld(kind, value)
        listed = document.get(f"trails://kinds/main/schema#one_ordered_{kind.lower()}")
        if listed is not None:
            items = [_from_json_ld(kind, each) for each in listed["@list"]]
            found[f"one_ordered_{kind.lower()}"] = items
    return found


def _from_json_ld(kind: str, value: dict[str, Any]) -> Any:
    row = KINDS.get(kind)
    if row is None:
        return value["@id"]
    if row.tagged:
        return {each["@language"]: each["@value"] for each in value}
    read = row.parse(value["@value"])
    return read if row.plain is None else row.plain(read)


@contextmanager
def opened(name: str, folder: Path) -> Iterator[Surface]:
    """A surface on a new project."""
    (folder / "trails.toml").write_text('[project]\nname = "kinds"\n', encoding="utf-8")
    (folder / "app.py").write_text(APP, encoding="utf-8")
    if name == "cli":
        yield Cli(folder)
        return
    with App.open(folder, strict=True) as app:
        kernel = kernel_of(app)
        try:
            if name == "mcp":
                yield Mcp(kernel)
            else:
                serving = ThreadedServer(build_app({"main": kernel}))
                yield Rest(RestClient(serving.port))
                serving.close()
        finally:
            kernel.close()


def plain(value: Any) -> Any:
    """A reference without what comes before Type/id."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, str) and "/Other/" in value:
        return value[value.index("Other/") :]
    return value


TAKEN = {"ours": 1, "theirs": 2, "value": 3}


def test_every_kind_has_values() -> None:
    """A new kind is not forgotten here."""
    assert KINDS_OF_FIELDS.keys() == {*KINDS, "Ref"}


@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("cli", ["value"]),  # each command is a process, and this is the one that spells values
        ("rest", ["ours", "theirs", "value"]),
        ("mcp", ["ours", "theirs", "value"]),
    ],
    ids=["cli", "rest", "mcp"],
)
def test_the_history_of_every_kind(name: str, takes: list[str], tmp_path: Path) -> None:
    """Create, update, show, compare, conflict, settle, read back."""
    with opened(name, tmp_path) as surface:
        others = [{"op": "create", "type": "Other", "data": {"code": each}} for each in "abcd"]
        first = surface.mutate("main", [*others, operation("create", 0)])
        surface.fork("work")
        ours = surface.mutate("main", [operation("update", 1)])
        theirs = surface.mutate("work", [operation("update", 2)])
        check_changes(surface.shown(theirs), 0, 2)
        check_changes(surface.diff(first, ours), 0, 1)
        for take in takes:
            surface.fork(take)
            outcome, conflicts = surface.merge("work", take, [])
            assert outcome == "conflicts"
            check_conflicts(conflicts)
            settled = [
                {"conflict": each["id"], "take": take}
                | ({"value": spread(data(3))[each["field"]]} if take == "value" else {})
                for each in conflicts
            ]
            assert surface.merge("work", take, settled)[0] == "merged"
            read = surface.sample(take)
            for field, value in data(TAKEN[take]).items():
                if field.startswith("one_"):
                    assert plain(read[field]) == value, field


def check_changes(changes: list[dict[str, Any]], before: int, after: int) -> None:
    """Each field of the sample is shown as JSON, with its value before and after."""
    (change,) = changes
    found = {each["field"]: each for each in change["fields"]}
    assert found.keys() == spread(data(after)).keys()
    for name, value in spread(data(after)).items():
        each, was = found[name], spread(data(before))[name]
        if name.startswith("one_"):
            assert (plain(each.get("before")), plain(each.get("after"))) == (was, value)
        else:
            assert [
                [plain(one) for one in each.get(side, ())] for side in ("removed", "added")
            ] == [
                was,
                value,
            ]


def check_conflicts(conflicts: list[dict[str, Any]]) -> None:
    """Every field of one value is in conflict, with all three sides."""
    found = {each["field"]: each for each in conflicts}
    assert found.keys() == {name for name in spread(data(0)) if name.startswith("one_")}
    for name, each in found.items():
        sides = [plain(each[side]) for side in ("base", "ours", "theirs")]
        assert sides == [spread(data(at))[name] for at in range(3)], name
