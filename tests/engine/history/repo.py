"""A graph to write examples about versions with: few words a step."""

from __future__ import annotations

from pathlib import Path

from tests.engine.history.oracle import Fields, State
from tests.engine.history.world import CLASSES, MODEL, TYPES, Link, _new, read_all

from trails import App
from trails.engine.graph.graph import Graph
from trails.engine.history.branches import BranchInfo, create_branch, delete_branch
from trails.engine.history.merge import merge
from trails.engine.session.context import GraphContext
from trails.engine.upkeep.verify import verify
from trails.model.history import MergeRequest, MergeResult, Resolution, Side


class Repo:
    """One graph and the short way to do things to it."""

    def __init__(self, folder: Path | None = None, types: tuple[type, ...] = TYPES) -> None:
        self.folder = folder
        self.app = App(*types, name="repo", folder=folder)

    def reopen(self, types: tuple[type, ...] = TYPES) -> None:
        """Close and open again."""
        self.app.close()
        self.app = App(*types, name="repo", folder=self.folder)

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self.app.graph()

    def ctx(self, branch: str = "main") -> GraphContext:
        """A context on a branch."""
        return self.app.context(branch=branch)

    def head(self, branch: str = "main") -> str:
        """The commit at which a branch is."""
        return self.graph.log_head(branch).commit

    def put(self, branch: str, handle: str, **fields: object) -> str:
        """Create a node, or change some of its fields; the commit."""
        ctx = self.ctx(branch)
        type_name, _, identifier = handle.partition("/")
        found = ctx.kg.find(type_name, identifier)
        if found is None:
            given: Fields = {"code": identifier, **fields}
            if type_name in {"Item", "Part"}:
                given = {"name": "n", **given}
            _new(handle, {k: v for k, v in given.items() if v is not None}).save(ctx)
        else:
            node = ctx.hydrate(found)
            for name, value in fields.items():
                setattr(node, name, value)
            node.save(ctx)
        return self.head(branch)

    def link(self, branch: str, source: str, target: str, **fields: object) -> str:
        """Create an edge, or change its fields; its handle."""
        link = Link(source=source, target=target, **fields)
        link.save(self.ctx(branch), upsert=True)
        return str(link.handle)

    def drop(self, branch: str, handle: str, *, cascade: bool = False) -> str:
        """Delete a node; the commit."""
        ctx = self.ctx(branch)
        type_name, _, identifier = handle.partition("/")
        CLASSES[type_name].get(ctx, identifier).delete(ctx, cascade=cascade)
        return self.head(branch)

    def get(self, branch: str, handle: str) -> Fields | None:
        """A node's fields; None when it is not there."""
        return self.state(branch).get(handle)

    def state(self, branch: str = "main") -> State:
        """Everything on a branch."""
        return read_all(self.ctx(branch))

    def at(self, commit: str) -> State:
        """Everything as of a commit."""
        return read_all(self.app.context(snapshot=commit))

    def branch(self, name: str, source: str = "main") -> BranchInfo:
        """Make a branch."""
        return create_branch(self.graph, name, source=source, actor="a")

    def remove(self, name: str, *, force: bool = False) -> BranchInfo:
        """Delete a branch."""
        return delete_branch(self.graph, name, force=force, actor="a")

    def merge(
        self,
        source: str,
        target: str = "main",
        *,
        take: dict[str, Resolution | str] | None = None,
        dry_run: bool = False,
        expected_head: str | None = None,
        idempotency_key: str | None = None,
        resolve_all: Side | None = None,
    ) -> MergeResult:
        """Merge; ``take`` may say just 'ours' or 'theirs' for a conflict."""
        chosen = {
            name: Resolution(each) if isinstance(each, str) else each  # type: ignore[arg-type]
            for name, each in (take or {}).items()
        }
        asked = MergeRequest(
            source,
            target,
            resolutions=chosen,
            dry_run=dry_run,
            expected_head=expected_head,
            idempotency_key=idempotency_key,
            resolve_all=resolve_all,
        )
        return merge(self.graph, asked, actor="a")

    def sound(self) -> None:
        """The views equal a fresh fold of the log, and no branch breaks a rule."""
        findings = list(verify(self.graph, lambda _: None))
        assert all(each.severity == "ok" for each in findings), findings
        if {cls.__name__ for cls in TYPES} == {each.name for each in self.graph.main.schema.types}:
            for name in {"main", *self.graph.log.branches()}:
                assert not MODEL.judge(self.state(name))
