"""The operations of the command line: on a project folder of this machine, or on a server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from trails.app.access import access_of
from trails.app.app import App, silent
from trails.app.backups import backup_project, restore_project
from trails.app.clients.requests import install_client, list_clients, uninstall_client
from trails.app.health import examine_project
from trails.app.ownership import Ownership
from trails.app.policies import unguarded
from trails.app.policy_commands import LocalPolicies
from trails.app.serving.attaching import own_or_find
from trails.app.serving.commands import LocalServer
from trails.app.serving.owners import OwnerAddress
from trails.app.sessions.connection import Address, Connection, chosen_token, parse_address
from trails.app.sessions.failures import error_of
from trails.app.sessions.local import LocalDoor, LocalUpkeep
from trails.app.sessions.remote import RemoteDoor, explain_absence, list_graphs
from trails.app.sessions.session import GraphSession
from trails.app.settings import DATA_FOLDER, Settings, choose_graph, read_settings
from trails.engine.recover import Recovering, recover
from trails.engine.scaffold import scaffold_project
from trails.engine.verify import verify, verify_and_repair
from trails.errors import LockedError, NotFoundError, StorageError, TrailsError, UnreachableError
from trails.files import set_private_umask
from trails.identity.token_files import TokenFile
from trails.model.actors import OPERATOR, Actor
from trails.model.clients import ClientPlace, Installation, InstallRequest
from trails.model.outcomes import Failure
from trails.model.reports import Finding, Report
from trails.model.tokens import IssuedToken, TokenRecord, TokenRequest
from trails.model.types import Schema
from trails.model.upkeep import Manifest, Recovery
from trails.surfaces.cli.operations import Place, Session, Tell, Upkeep


class LocalOperations(LocalServer, LocalPolicies):
    """Operations on a folder, in this process or through the one that serves it."""

    def new(self, folder: Path, name: str | None) -> tuple[Path, list[str]]:
        """Make a project folder."""
        return scaffold_project(folder, name)

    def doctor(self, folder: Path) -> list[Report]:
        """Examine the machine, the declarations and every graph."""
        with _alone(folder, "doctor") as app:
            return examine_project(app)

    def verify(self, folder: Path, *, repair: bool, progress: Tell) -> list[Report]:
        """Prove every graph; with ``repair``, rebuild views that differ and prove again."""
        with _alone(folder, "verify", progress) as app:
            return [
                Report(f"Graph {name}", _verify(app, name, progress, repair=repair))
                for name in app.settings.graphs
            ]

    def recover(
        self, folder: Path, graph: str | None, tell: Tell, *, dry_run: bool, accept_loss: bool
    ) -> list[Recovery]:
        """Recover every graph of a project, or one."""
        with _alone(folder, "recover", tell) as app:
            names = app.settings.graphs
            if graph is not None:
                names = {(name := choose_graph(names, graph)): names[name]}
            place = folder.resolve() / DATA_FOLDER / "graphs"
            return [
                recover(
                    Recovering(
                        place / name,
                        name,
                        app.settings.base_iri(name),
                        partial(_declared, app, name),
                        tell,
                        dry_run,
                        accept_loss,
                    )
                )
                for name in names
            ]

    @contextmanager
    def open(
        self, place: Place, graph: str | None, tell: Tell, *, declared: bool
    ) -> Iterator[Session]:
        """Open one graph of a project, or of a server."""
        if place.server is not None:
            yield _remote(parse_address(place.server), graph)
            return
        settings = read_settings(place.folder)  # a folder that is no project has no owner
        graphs = settings.graphs
        set_private_umask()
        found = own_or_find(place.folder, tell)
        if isinstance(found, OwnerAddress):
            try:
                session = _remote(_address(found), choose_graph(graphs, graph))
            except UnreachableError:
                found = Ownership(place.folder / DATA_FOLDER)  # that one has ended
            else:
                yield session
                return
        try:
            caller = _find_caller(place.folder.resolve(), settings)
        except BaseException:
            found.release()
            raise
        opened = App.open(
            place.folder,
            declarations=declared or caller.actor != OPERATOR,
            ownership=found,
            guarded=caller.guarded,
            progress=tell,
        )
        with opened as app, LocalDoor(app, choose_graph(graphs, graph), caller.actor) as door:
            yield GraphSession(door)

    @contextmanager
    def open_all(self, folder: Path, graph: str | None, tell: Tell) -> Iterator[list[Upkeep]]:
        """Open every graph of a project, or one."""
        with _alone(folder, "this command", tell) as app:
            names = (
                app.settings.graphs if graph is None else [choose_graph(app.settings.graphs, graph)]
            )
            yield [LocalUpkeep(app, name) for name in names]

    def backup(self, folder: Path, target: Path, tell: Tell) -> dict[str, Manifest]:
        """Copy the logs of all graphs."""
        with _alone(folder, "backup", tell) as app:
            return backup_project(app, target.resolve(), tell)

    def restore(
        self, folder: Path, source: Path, tell: Tell, *, force: bool
    ) -> dict[str, Path | None]:
        """Put back every graph of a backup."""
        with _alone(folder, "restore", tell) as app:
            return restore_project(app, source, tell, force=force)

    def clients(self, folder: Path) -> list[ClientPlace]:
        """Programs that speak MCP, and where their configuration is."""
        return list_clients(folder)

    def install_client(self, folder: Path, request: InstallRequest, *, dry: bool) -> Installation:
        """Write a graph into a client's configuration."""
        return install_client(folder, request, dry=dry)

    def uninstall_client(self, folder: Path, request: InstallRequest) -> Installation:
        """Take a graph out of a client's configuration."""
        return uninstall_client(folder, request)

    def issue_token(self, folder: Path, request: TokenRequest) -> IssuedToken:
        """Make a token, while others may serve the folder."""
        return _token_file(folder).issue(request)

    def tokens(self, folder: Path) -> list[TokenRecord]:
        """All tokens of a project."""
        return _token_file(folder).list()

    def revoke_tokens(
        self, folder: Path, ids: Sequence[str], actor: str | None
    ) -> list[TokenRecord]:
        """End tokens; whoever serves the folder notices by itself."""
        return _token_file(folder).revoke(ids, actor)


def _verify(app: App, name: str, progress: Tell, *, repair: bool) -> tuple[Finding, ...]:
    """Prove one graph; that it can't even be opened is a finding, and the others are proven."""
    try:
        graph = app.graph(name)
    except StorageError as error:
        return (Finding("graph", "problem", error.message),)
    return verify_and_repair(graph, progress) if repair else tuple(verify(graph, progress))


def _declared(app: App, graph: str) -> Schema | None:
    """The types that a project declares, where its code can be run."""
    with suppress(TrailsError):
        return app.declared(graph, queries=False).schema
    return None


def _token_file(folder: Path) -> TokenFile:
    read_settings(folder)  # a folder that is no project has no tokens
    return TokenFile(folder / DATA_FOLDER)


def _alone(folder: Path, command: str, tell: Tell = silent) -> App:
    """A project for a command that needs its files for itself, and runs none of its code."""
    set_private_umask()
    try:
        return App.open(folder, declarations=False, progress=tell)
    except LockedError as error:
        if error.data["reason"] not in {"busy", "served"}:
            raise
        raise LockedError(
            f"{command} needs the files for itself, and process {error.data['pid']} has this "
            f"project open; end that one (kill {error.data['pid']}, or close the client that "
            "started it), then try again",
            **error.data,
        ) from None


class _Caller(NamedTuple):
    """Who acts on a folder that is open here."""

    actor: Actor
    guarded: Callable[[], bool]
    """Whether others need a credential; it decides what this one may do without policies."""


def _find_caller(folder: Path, settings: Settings) -> _Caller:
    """The operator, or whoever's token the environment has."""
    token = chosen_token()
    if token is None:
        return _Caller(OPERATOR, unguarded)
    gate = access_of(folder, settings, os.environ)
    found = asyncio.run(gate.authenticator.presented(token, OPERATOR.scopes))
    if isinstance(found, Failure):
        raise error_of(found)
    return _Caller(found, gate.configured)


def _address(owner: OwnerAddress) -> Address:
    name = f"the process that serves this folder (pid {owner.pid})"
    return Address(name, path=Path(owner.http), key=owner.key)


def _remote(address: Address, graph: str | None) -> GraphSession:
    connection = Connection(address)
    graphs = list_graphs(connection)
    if graphs is None:
        if graph is None:
            raise NotFoundError(f"{address.name} does not tell its graphs; name one with --graph")
        return GraphSession(RemoteDoor(connection, graph, None))
    if graph is None and not graphs:
        raise NotFoundError(
            f"{address.name} serves no graph; its log, or 'trails doctor', says why"
        )
    name = choose_graph(graphs, None) if graph is None else graph
    if name not in graphs:
        explain_absence(connection, name)
    return GraphSession(RemoteDoor(connection, name, graphs[name]))
