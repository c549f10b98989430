"""A project with every kind of file that Trails writes, and what it answers.

    python everything.py PROJECT

makes the project, prints a line when everything is there, and waits to be killed or, for a
project that was closed properly, for the end of its input.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import msgspec
from tests.journeys.durability.campaign import (
    SEGMENT,
    bulk,
    graph_folder,
    index_eagerly,
    items_of,
    make_project,
    perform,
    texts_of,
)

from trails import App, Blob
from trails.app.upkeep import backup_project, list_backups
from trails.errors import TrailsError
from trails.identity.tokens import TokenFile
from trails.log.tail import OLD_TAIL, TAIL_FILE
from trails.model.actors import TokenRequest
from trails.model.history import Activity

SETTINGS = "\n[log]\nactivity_rows = 20\n"
BACKUPS = "backups"
CONTENT = bytes(range(256)) * 1000


def silent(text: str) -> None:
    """Tell nobody."""


def build(project: Path) -> App:
    """Make the project; it is still open, with its newest commits in WAL and tail."""
    make_project(project)
    with (project / "trails.toml").open("a") as file:
        file.write(SETTINGS)
    tokens = TokenFile(project / ".trails")
    tokens.issue(TokenRequest(actor="agent:reader", groups=("readers",)))
    kept = tokens.issue(TokenRequest(actor="user:writer", expires="30d"))
    tokens.revoke([kept.record.id])
    with App.open(project) as app:
        _write_first_half(app)
        backup_project(app, project / BACKUPS, silent)
    tail = graph_folder(project) / TAIL_FILE  # as after eight megabytes
    tail.rename(tail.with_name(OLD_TAIL))
    app = App.open(project)
    _write_second_half(app)
    backup_project(app, project / BACKUPS, silent)
    app.registry().classes["Item"](code="last", value=9, tags=["after", "backups"]).save(
        app.context()
    )
    return app


def _write_first_half(app: App) -> None:
    ctx, item_type = app.context(actor="user:first"), app.registry().classes["Item"]
    for number in range(12):
        item_type(code=f"item-{number}", value=number, text=f"text of {number}").save(ctx)
    item_type(code="long", value=0, text="é long " * 20_000).save(ctx)
    content = Blob.put(ctx, CONTENT, media_type="text/plain", name="content.txt")
    item_type(code="blob", value=0, file=content).save(ctx)
    content.read(ctx)  # which makes checksums
    perform(ctx, item_type, bulk(SEGMENT, 1))
    when = "2020-01-01T00:00:00.000000Z"
    app.graph().log.insert_activities(
        Activity(f"a-{number}", "user:first", "graph_query", when, when, "ok", detail=f"{number}")
        for number in range(60)
    )
    app.graph().activities.archive()


def _write_second_half(app: App) -> None:
    ctx, item_type = app.context(actor="user:second"), app.registry().classes["Item"]
    versions = app.versions()
    versions.create_branch("side")
    side = app.context(branch="side")
    for number in range(6):
        item_type(code=f"side-{number}", value=number, tags=["one", "two"]).save(side)
        item_type(code=f"late-{number}", value=100 + number, text="é" * number).save(ctx)
    item_type.get(side, "item-3").delete(side)
    item_type.get(ctx, "item-4").delete(ctx)
    perform(ctx, item_type, bulk(SEGMENT, 2))
    answers(app)  # stores of the branch and of a snapshot
    versions.create_branch("gone")
    versions.delete_branch("gone")


QUERY = "SELECT ?code ?value WHERE { ?i :code ?code ; :value ?value }"


def answers(app: App) -> dict[str, object]:
    """What a project says in many ways; an error that says what is wrong is an answer, too."""
    return {name: Refused.instead(ask, app) for name, ask in ASKED.items()}


class Refused:
    """An answer that is an error."""

    def __init__(self, error: TrailsError) -> None:
        self.error = error

    @classmethod
    def instead(cls, ask, about):
        """An answer, or the error in its place."""
        try:
            return ask(about)
        except TrailsError as error:
            return cls(error)

    def __repr__(self) -> str:
        return f"{type(self.error).__name__}: {self.error.message[:160]}"


def _items(app, **where):
    item_type = app.registry().classes["Item"]
    return {
        item.code: [item.value, item.text, sorted(item.tags)]
        for item in item_type.objects(app.context(**where))
    }


def _values(app, **where):
    return sorted((row["code"], row["value"]) for row in app.context(**where).kg.sparql(QUERY))


def _at(app, seq=9):
    return app.graph().log.at(seq).id


def _get(app):
    ctx, item_type = app.context(), app.registry().classes["Item"]
    return [
        (item.value, item.text)
        for item in (item_type.get(ctx, code) for code in ("item-0", "late-5", "bulk-7"))
    ]


def _blob(app):
    ctx = app.context()
    return app.registry().classes["Item"].get(ctx, "blob").file.read(ctx)


def _filtered(app):
    item_type = app.registry().classes["Item"]
    found = item_type.objects(app.context()).where(value__gte=1, value__lt=104).order_by("value")
    return sorted((item.value, item.code) for item in found)


def _history(app):
    return [
        (each.seq, each.id, each.actor, each.message, each.branch, each.time)
        for each in app.graph().log.commits()
    ]


def _difference(app):
    found = app.versions().diff(_at(app, 3), "main", limit=2000)
    return json.dumps(_plain(found), default=str, sort_keys=True)


def _plain(value):
    return msgspec.to_builtins(value)


def _activities(app):
    """Those that are archived; rows of the log's table have no digest."""
    log = app.graph().log
    last = max((each.last for each in log.archives()), default=0)
    return [
        (seq, each.actor, each.name, each.detail) for seq, each in log.activities() if seq <= last
    ]


def _heads(app):
    return {name: head.commit for name, head in app.graph().log.branches().items()}


def _tokens(app):
    return [_plain(each) for each in TokenFile(app.folder / ".trails").list()]


ASKED = {
    "items of main": items_of,
    "items of side": lambda app: _items(app, branch="side"),
    "items of a commit": lambda app: _items(app, snapshot=_at(app)),
    "statements of main": _values,
    "statements of side": lambda app: _values(app, branch="side"),
    "statements of a commit": lambda app: _values(app, snapshot=_at(app)),
    "texts of main": texts_of,
    "texts of side": lambda app: texts_of(app, branch="side"),
    "texts of a commit": lambda app: texts_of(app, snapshot=_at(app)),
    "items by key": _get,
    "a selection": _filtered,
    "a blob": _blob,
    "history": _history,
    "a difference": _difference,
    "activities": _activities,
    "heads": _heads,
    "tokens": _tokens,
}


def backup_answers(folder: Path):
    """What a set of backups says of itself."""
    return [
        (each.number, each.commit, each.heads, each.made)
        for each in list_backups(folder, silent, check=True)["main"]
    ]


def main() -> None:
    """Make a project, and wait."""
    index_eagerly()
    app = build(Path(sys.argv[1]))
    sys.stdout.write("built\n")
    sys.stdout.flush()
    sys.stdin.read()
    app.close()


if __name__ == "__main__":
    main()
