"""The operations of the command line, on a project folder of this machine or on a server.

If another process serves the folder, it carries out the operation on request. Cedar, and what
edits the files of clients, are imported only when a command needs them.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar
from urllib.parse import quote

import msgspec

from trails.app.app import App
from trails.app.ownership import Ownership
from trails.app.plugins import load_plugins
from trails.app.policies import unguarded
from trails.app.serve.commands import LocalServer
from trails.app.serve.relay.links import own_or_find
from trails.app.serve.relay.owners import OwnerAddress, find_owner
from trails.app.sessions.graphs import (
    LocalGraphClient,
    RemoteGraphClient,
    ask_owner,
    explain_absence,
    list_graphs,
)
from trails.app.sessions.servers import ServerAddress, chosen_token, error_of, parse_address
from trails.app.sessions.session import CommandSession
from trails.app.settings import DATA_FOLDER, Settings, choose_graph, read_settings
from trails.authoring.plugins import PluginCommand
from trails.errors import (
    DeniedError,
    LockedError,
    NotFoundError,
    SettingsError,
    TrailsError,
    UnreachableError,
)
from trails.files import set_private_umask
from trails.imports import later
from trails.model.actors import OPERATOR, Actor, IssuedToken, TokenRecord, TokenRequest
from trails.model.capabilities import ToolList
from trails.model.decisions import (
    Explanation,
    PolicyActor,
    PolicyCheck,
    PolicyMatrix,
    PolicyQuestion,
    PolicyResult,
)
from trails.model.metrics import METRICS_PATH, ServerMetrics
from trails.model.results import Failure
from trails.model.types import Schema
from trails.model.upkeep import (
    Cleaned,
    ClientPlace,
    Installation,
    InstallRequest,
    Manifest,
    MovedLog,
    Optimized,
    Recovery,
    ReloadReport,
    Report,
    RestoreRequest,
    WebhookStatus,
)
from trails.surfaces.cli.operations import Progress, ProjectLocation, Session

if TYPE_CHECKING:
    from trails.app import access, modules, upkeep
    from trails.app.sessions import connection as sessions_connection
    from trails.app.upkeep import ReloadArguments, UpkeepOperation
    from trails.engine.upkeep import recover as upkeep_recover
    from trails.engine.upkeep import scaffold
    from trails.identity import tokens
    from trails.identity.tokens import TokenFile
else:
    modules = later("trails.app.modules")
    sessions_connection = later("trails.app.sessions.connection")
    upkeep = later("trails.app.upkeep")
    upkeep_recover = later("trails.engine.upkeep.recover")
    scaffold = later("trails.engine.upkeep.scaffold")
    tokens = later("trails.identity.tokens")
    access = later("trails.app.access")


class LocalPolicies:
    """The policies of project folders of this machine."""

    def check_policies(self, folder: Path) -> list[PolicyCheck]:
        """Check the policies of every graph and of the server."""
        from trails.app.policy_inspection import PolicyInspector  # noqa: PLC0415

        return PolicyInspector(folder).check()

    def test_policies(
        self, folder: Path, graph: str | None, file: Path | None
    ) -> list[PolicyResult]:
        """Run the cases of a file."""
        from trails.app.policy_inspection import PolicyInspector  # noqa: PLC0415

        return PolicyInspector(folder).test(graph, file)

    def explain_policy(
        self, folder: Path, graph: str | None, question: PolicyQuestion
    ) -> Explanation:
        """Explain why something is allowed or denied."""
        from trails.app.policy_inspection import PolicyInspector  # noqa: PLC0415

        return PolicyInspector(folder).explain(graph, question)

    def policy_matrix(
        self, folder: Path, graph: str | None, actors: Sequence[PolicyActor], branch: str
    ) -> PolicyMatrix:
        """Show which actor may use which tool."""
        from trails.app.policy_inspection import PolicyInspector  # noqa: PLC0415

        return PolicyInspector(folder).matrix(graph, actors, branch)


_A = TypeVar("_A", bound=msgspec.Struct)
_R = TypeVar("_R")


class LocalOperations(LocalServer, LocalPolicies):
    """Operations on a folder, in this process or through the one that serves it."""

    def new(
        self, folder: Path, name: str | None, schema: Literal["python", "graph"] = "python"
    ) -> tuple[Path, list[str]]:
        """Make a project folder."""
        return scaffold.scaffold_project(folder, name, schema)

    def doctor(
        self, place: ProjectLocation, documents: Sequence[Path], report: Progress
    ) -> list[Report]:
        """Examine a project, and what is served of it; or a server."""
        from trails.app.clients.check import examine_clients  # noqa: PLC0415
        from trails.app.served import (  # noqa: PLC0415
            ENVIRONMENT,
            examine_environment,
            examine_server,
            examine_stored,
        )

        folder = place.folder
        if place.server is not None:
            connection = sessions_connection.ServerConnection(parse_address(place.server))
            reports = examine_server(connection)
            graphs = [each.subject.removeprefix("Graph ") for each in reports]
        else:
            settings = read_settings(folder)
            graphs = list(settings.graphs)
            reports = _perform(folder, upkeep.DOCTOR, upkeep.DoctorArguments(), report)
            owner = find_owner(folder)
            if owner is not None:
                reports += self._examine_owner(owner, folder, settings)
            of_user = (
                *examine_clients(folder.resolve(), settings),
                *examine_environment(os.environ, ENVIRONMENT),
            )
            reports.append(Report("This user", of_user))
        if documents:
            listed = {name: self._listed(place, name, report) for name in graphs}
            findings = [each for file in documents for each in examine_stored(file, listed)]
            reports.append(Report("Documents", tuple(findings)))
        return reports

    def _examine_owner(
        self, owner: OwnerAddress, folder: Path, settings: Settings
    ) -> Iterator[Report]:
        """Examine what the process that serves a folder sends to clients."""
        from trails.app.doctor import examine_policies  # noqa: PLC0415
        from trails.app.served import examine_wires, safely, served_findings  # noqa: PLC0415

        connection = sessions_connection.ServerConnection(_address(owner), operator=True)
        for name in list_graphs(connection) or ():
            declared = None
            with suppress(TrailsError):  # reported with the declarations
                declared = modules.declared_registry(folder.resolve(), settings, name)
            found = safely(examine_wires(connection, name, declared), name)
            own = [each for each in served_findings(connection, name) if each.name == "projections"]
            policies = examine_policies(folder, name)
            yield Report(f"Graph {name}, as it is served", (*found, *own, *policies))

    def _listed(self, place: ProjectLocation, graph: str, report: Progress) -> ToolList:
        with self.open(place, graph, report, declared=True) as session:
            return session.listed()

    def metrics(self, place: ProjectLocation) -> ServerMetrics:
        """One moment of the server at a URL, or of the process that serves a folder."""
        if place.server is not None:
            address = parse_address(place.server)
        else:
            read_settings(place.folder)  # refuses a folder that is not a project
            owner = find_owner(place.folder)
            if owner is None:
                raise UnreachableError(
                    "no process serves this project; start one with 'trails serve', or name "
                    "another with --server"
                )
            address = _address(owner)
        wanted = {"Accept": "application/json"}
        body = b"".join(
            sessions_connection.ServerConnection(address).receive(METRICS_PATH, {}, wanted)
        )
        try:
            return msgspec.json.decode(body, type=ServerMetrics)
        except msgspec.DecodeError:
            raise UnreachableError(
                f"{address.name} sent no metrics that this version of trails can read; check the "
                "address, or use the version of the server"
            ) from None

    def plugin_commands(self, folder: Path) -> Sequence[PluginCommand]:
        """List the commands of a project's plugins; none if the folder is not a project."""
        try:
            names = read_settings(folder).project.plugins
        except SettingsError:
            return ()  # the command that is run reports it
        return tuple(load_plugins(names).commands.values())

    def reload(
        self, place: ProjectLocation, graph: str | None, report: Progress, *, apply_schema: bool
    ) -> list[ReloadReport] | None:
        """Have the server read the declarations again; None if no process serves the folder."""
        given = upkeep.ReloadArguments(graph, True if apply_schema else None)
        if place.server is not None:
            return self._reload_remotely(parse_address(place.server), given)
        choose = read_settings(place.folder).graphs  # refuses a folder that is not a project
        if graph is not None:
            choose_graph(choose, graph)
        owner = find_owner(place.folder)
        return None if owner is None else ask_owner(_address(owner), upkeep.RELOAD, given, report)

    def _reload_remotely(
        self, address: ServerAddress, given: ReloadArguments
    ) -> list[ReloadReport]:
        connection = sessions_connection.ServerConnection(address)
        names = list_graphs(connection) if given.graph is None else [given.graph]
        if names is None:
            raise NotFoundError(f"{address.name} does not list its graphs; name one with --graph")
        body = {} if given.apply_schema is None else {"apply_schema": given.apply_schema}
        done = [
            connection.post(f"/graphs/{quote(name, safe='')}/admin/reload", body) for name in names
        ]
        return [msgspec.json.decode(each, type=ReloadReport) for each in done]

    def verify(self, folder: Path, *, repair: bool, progress: Progress) -> list[Report]:
        """Verify every graph; with ``repair``, rebuild views that differ and verify again."""
        return _perform(folder, upkeep.VERIFY, upkeep.VerifyArguments(repair), progress)

    def recover(
        self, folder: Path, graph: str | None, report: Progress, *, dry_run: bool, accept_loss: bool
    ) -> list[Recovery]:
        """Recover every graph of a project, or one."""
        with _open_exclusively(folder, "recover", report) as app:
            names = app.settings.graphs
            if graph is not None:
                names = {(name := choose_graph(names, graph)): names[name]}
            data = folder.resolve() / DATA_FOLDER
            for name in names:
                upkeep.check_recoverable(app, name)
            return [
                upkeep_recover.recover(
                    upkeep_recover.Recovering(
                        data,
                        name,
                        app.settings.base_iri(name),
                        partial(_declared, app, name),
                        report,
                        dry_run,
                        accept_loss,
                    )
                )
                for name in names
            ]

    def copy_log(
        self, folder: Path, graph: str | None, to: str, report: Progress
    ) -> Iterator[MovedLog]:
        """Move the logs of every graph, or of one, to a server or to the folder."""
        with _open_exclusively(folder, "log copy", report) as app:
            names = app.settings.graphs
            for name in names if graph is None else [choose_graph(names, graph)]:
                yield upkeep.move_log(app, name, to, report)

    def graphs(self, place: ProjectLocation) -> dict[str, str]:
        """List the graphs of a project, or those that a server shows."""
        if place.server is None:
            settings = read_settings(place.folder)
            return {name: settings.base_iri(name) for name in sorted(settings.graphs)}
        address = parse_address(place.server)
        found = list_graphs(sessions_connection.ServerConnection(address))
        if found is None:
            raise DeniedError(f"{address.name} does not list its graphs to you")
        return dict(sorted(found.items()))

    @contextmanager
    def console(
        self, folder: Path, graph: str | None, branch: str, actor: str, report: Progress
    ) -> Iterator[Mapping[str, object]]:
        """Open a project with its code; its own names, the app and a context."""
        with _open_exclusively(folder, "console", report, declarations=True) as app:
            name = choose_graph(app.settings.graphs, graph)
            ctx = app.context(name, actor, branch)
            yield {**modules.project_names(folder, name), "app": app, "ctx": ctx}

    @contextmanager
    def open(
        self, place: ProjectLocation, graph: str | None, report: Progress, *, declared: bool
    ) -> Iterator[Session]:
        """Open one graph of a project, or of a server."""
        if place.server is not None:
            yield _remote(parse_address(place.server), graph)
            return
        settings = read_settings(place.folder)  # refuses a folder that is not a project
        graphs = settings.graphs
        set_private_umask()
        found = own_or_find(place.folder, report)
        if isinstance(found, OwnerAddress):
            try:
                session = _remote(_address(found), choose_graph(graphs, graph))
            except UnreachableError:
                found = Ownership(place.folder / DATA_FOLDER)  # it has ended since
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
            progress=report,
        )
        with (
            opened as app,
            LocalGraphClient(app, choose_graph(graphs, graph), caller.actor) as client,
        ):
            yield CommandSession(client)

    def webhooks(self, folder: Path, graph: str | None, report: Progress) -> list[WebhookStatus]:
        """List the webhooks of every graph, or of one."""
        return _perform(folder, upkeep.WEBHOOKS, upkeep.WebhookArguments(graph), report)

    def resume_webhook(
        self, folder: Path, graph: str | None, name: str, since: str | None, report: Progress
    ) -> WebhookStatus:
        """Enable a webhook again."""
        return _perform(
            folder, upkeep.WEBHOOKS, upkeep.WebhookArguments(graph, name, since), report
        )[0]

    def cleanup(
        self, folder: Path, graph: str | None, report: Progress, *, keep: int, dry_run: bool
    ) -> dict[str, Cleaned]:
        """Remove what is no longer needed, of every graph or of one."""
        return _perform(
            folder, upkeep.CLEANUP, upkeep.CleanupArguments(keep, dry_run, graph), report
        )

    def optimize(self, folder: Path, graph: str | None, report: Progress) -> dict[str, Optimized]:
        """Compact the files of every graph, or of one."""
        return _perform(folder, upkeep.OPTIMIZE, upkeep.OptimizeArguments(graph), report)

    def backup(self, folder: Path, target: Path, report: Progress) -> dict[str, Manifest | None]:
        """Add the changes of all graphs to the backups in a folder."""
        return _perform(
            folder, upkeep.BACKUP, upkeep.BackupArguments(str(target.resolve())), report
        )

    def list_backups(
        self, source: Path, report: Progress, *, check: bool
    ) -> dict[str, list[Manifest]]:
        """List the backups in a folder."""
        return upkeep.list_backups(source, report, check=check)

    def restore(
        self, folder: Path, source: Path, report: Progress, wanted: RestoreRequest
    ) -> dict[str, Path | None]:
        """Restore graphs from a backup."""
        with _open_exclusively(folder, "restore", report) as app:
            return upkeep.restore_project(app, source, report, wanted)

    def clients(self, folder: Path) -> list[ClientPlace]:
        """List programs that speak MCP, and their configuration files."""
        from trails.app.clients.configuration import list_clients  # noqa: PLC0415

        return list_clients(folder)

    def install_client(self, folder: Path, request: InstallRequest, *, dry: bool) -> Installation:
        """Write a graph into a client's configuration."""
        from trails.app.clients.configuration import install_client  # noqa: PLC0415

        return install_client(folder, request, dry=dry)

    def uninstall_client(self, folder: Path, request: InstallRequest) -> Installation:
        """Remove a graph from a client's configuration."""
        from trails.app.clients.configuration import uninstall_client  # noqa: PLC0415

        return uninstall_client(folder, request)

    def issue_token(self, folder: Path, request: TokenRequest) -> IssuedToken:
        """Make a token; others may serve the folder meanwhile."""
        return _token_file(folder).issue(request)

    def tokens(self, folder: Path) -> list[TokenRecord]:
        """All tokens of a project."""
        return _token_file(folder).list()

    def revoke_tokens(
        self, folder: Path, ids: Sequence[str], actor: str | None
    ) -> list[TokenRecord]:
        """Revoke tokens; a process that serves the folder notices by itself."""
        return _token_file(folder).revoke(ids, actor)


def _declared(app: App, graph: str) -> Schema | None:
    """Return the types that a project declares, if its code can be run."""
    with suppress(TrailsError):
        return app.declared(graph, queries=False).schema
    return None


def _token_file(folder: Path) -> TokenFile:
    read_settings(folder)  # a folder that is not a project has no tokens
    return tokens.TokenFile(folder / DATA_FOLDER)


def _perform(folder: Path, operation: UpkeepOperation[_A, _R], given: _A, report: Progress) -> _R:
    """Run an operation here, or in the process that serves the folder."""
    read_settings(folder)  # refuses a folder that is not a project
    set_private_umask()
    found = own_or_find(folder, report)
    if isinstance(found, OwnerAddress):
        try:
            return ask_owner(_address(found), operation, given, report)
        except UnreachableError:
            found = Ownership(folder / DATA_FOLDER)  # it has ended since
    with App.open(folder, declarations=False, ownership=found, progress=report) as app:
        return operation.run(app, given, report)


def _open_exclusively(
    folder: Path, command: str, report: Progress, *, declarations: bool = False
) -> App:
    """Open a project exclusively, with or without running its code."""
    set_private_umask()
    try:
        return App.open(folder, declarations=declarations, progress=report)
    except LockedError as error:
        raise LockedError(
            f"{command} needs exclusive access, but process {error.data['pid']} has this "
            f"project open; stop it (kill {error.data['pid']}, or close the client that "
            "started it), then retry",
            **error.data,
        ) from None


class _Caller(NamedTuple):
    """The actor of operations on a folder that is open here."""

    actor: Actor
    guarded: Callable[[], bool]
    """Whether callers need a credential; decides what this one may do without policies."""


def _find_caller(folder: Path, settings: Settings) -> _Caller:
    """Return the operator, or the actor of the token in the environment."""
    token = chosen_token()
    if token is None:
        return _Caller(OPERATOR, unguarded)
    gate = access.access_of(folder, settings, os.environ)
    found = asyncio.run(gate.authenticator.authenticate(token, OPERATOR.scopes))
    if isinstance(found, Failure):
        raise error_of(found)
    return _Caller(found, gate.configured)


def _address(owner: OwnerAddress) -> ServerAddress:
    name = f"the process that serves this folder (pid {owner.pid})"
    return ServerAddress(name, path=Path(owner.http), key=owner.key)


def _remote(address: ServerAddress, graph: str | None) -> CommandSession:
    connection = sessions_connection.ServerConnection(address)
    graphs = list_graphs(connection)
    if graphs is None:
        if graph is None:
            raise NotFoundError(f"{address.name} does not list its graphs; name one with --graph")
        return CommandSession(RemoteGraphClient(connection, graph, None))
    if graph is None and not graphs:
        raise NotFoundError(f"{address.name} serves no graphs; see its log or run 'trails doctor'")
    name = choose_graph(graphs, None) if graph is None else graph
    if name not in graphs:
        explain_absence(connection, name)
    return CommandSession(RemoteGraphClient(connection, name, graphs[name]))
