"""``trails.toml``: the settings of a project, read strictly.

An unknown key is an error that names the nearest known one, so no setting is silently
ignored. All faults are reported at once, each with key, value and rule; they are derived from
the types of the settings, after msgspec has rejected the file.
"""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal, cast
from urllib.parse import urlsplit

import msgspec
from msgspec import inspect

from trails.app.webhooks.settings import WebhookSettings, check_webhooks
from trails.engine.graph.embeddings import SECONDS
from trails.errors import NotFoundError, SettingsError, TrailsError
from trails.identity.oauth.settings import OAuth, check_oauth
from trails.imports import later
from trails.model.changes.proposals import WriteMode
from trails.model.names import check_base_iri, check_project_name, suggest
from trails.model.results import DEFAULT_CHARS, LEAST_CHARS, MOST_CHARS
from trails.model.upkeep import Retention
from trails.model.writes import KEEP_DAYS, LoadLimits
from trails.sandbox.limits import Limits

if TYPE_CHECKING:
    from trails.app import log_urls
else:
    log_urls = later("trails.app.log_urls")

_LONGEST: Final = 60
"""Characters of a value that are shown."""


def list_faults(given: object, wanted: type) -> list[str]:
    """Return every fault of ``given``, which came from TOML, as a ``wanted``."""
    return list(_check(given, inspect.type_info(wanted), ()))


def _check(value: object, wanted: inspect.Type, path: tuple[str, ...]) -> Iterator[str]:
    if isinstance(wanted, inspect.UnionType):
        # an optional table: TOML has no null, so it is the table
        wanted = next(each for each in wanted.types if not isinstance(each, inspect.NoneType))
    if isinstance(wanted, inspect.StructType) and isinstance(value, dict):
        yield from _check_table(value, wanted, path)
    elif isinstance(wanted, inspect.DictType) and isinstance(value, dict):
        for key, each in value.items():
            yield from _check(each, wanted.value_type, (*path, key))
    elif isinstance(wanted, inspect.VarTupleType) and isinstance(value, list):
        for at, each in enumerate(value):
            yield from _check(each, wanted.item_type, (*path[:-1], f"{path[-1]}[{at}]"))
    elif not _fits(value, wanted):
        yield f"{_place(path)} must be {_rule(wanted)}, not {_shown(value)}"


def _check_table(
    table: dict[str, object], wanted: inspect.StructType, path: tuple[str, ...]
) -> Iterator[str]:
    fields = {field.name: field for field in wanted.fields}
    for key, value in table.items():
        if key in fields:
            yield from _check(value, fields[key].type, (*path, key))
        else:
            yield f"{_place((*path, key))} is not a known setting; {suggest(key, list(fields))}"
    for name, field in fields.items():
        if field.required and name not in table:
            yield f"{_place((*path, name))} is required"


def _fits(value: object, wanted: inspect.Type) -> bool:
    match wanted:
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.StrType():
            return isinstance(value, str)
        case inspect.LiteralType():
            return value in wanted.values
        case inspect.IntType():
            return type(value) is int and _within(value, wanted)
        case inspect.FloatType():
            return type(value) in {int, float} and _within(cast(float, value), wanted)
        case _:
            return False


def _within(value: float, wanted: inspect.IntType | inspect.FloatType) -> bool:
    """Whether a number is in its range; NaN never is."""
    return (
        value == value  # noqa: PLR0124 - NaN differs from itself
        and (wanted.ge is None or value >= wanted.ge)
        and (wanted.gt is None or value > wanted.gt)
        and (wanted.le is None or value <= wanted.le)
    )


def _rule(wanted: inspect.Type) -> str:
    match wanted:
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType():
            return "a string in quotes"
        case inspect.LiteralType():
            return "one of " + ", ".join(f'"{each}"' for each in wanted.values)
        case inspect.IntType() | inspect.FloatType():
            kind = "a whole number" if isinstance(wanted, inspect.IntType) else "a number"
            return " ".join((kind, *_bounds(wanted)))
        case inspect.VarTupleType():
            return "a list, in brackets"
        case _:
            return "a table"


def _bounds(wanted: inspect.IntType | inspect.FloatType) -> Iterator[str]:
    if wanted.ge is not None:
        yield f"of at least {wanted.ge}"
    if wanted.gt is not None:
        yield f"above {wanted.gt}"
    if wanted.le is not None:
        yield f"{'of' if wanted.ge is wanted.gt is None else 'and'} at most {wanted.le}"


def _place(path: tuple[str, ...]) -> str:
    """Return a setting as the docs write it: ``[server] port``."""
    *tables, key = path
    return f"[{'.'.join(tables)}] {key}" if tables else f"[{key}]"


def _shown(value: object) -> str:
    """Return a value as TOML; tables and lists are hidden, because they may contain a secret."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            text = value if len(value) <= _LONGEST else value[:_LONGEST] + "…"
            return f'"{text}"'
        case int() | float():
            return str(value)[:_LONGEST]
        case list():
            return "a list"
        case dict():
            return "a table"
        case _:
            return f"a {type(value).__name__}"


SETTINGS_FILE = "trails.toml"
LOG_URL_VARIABLE: Final = "TRAILS_LOG_URL"
DATA_FOLDER = ".trails"
Positive = Annotated[int, msgspec.Meta(ge=1)]


class Project(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[project]``: the project itself."""

    name: str
    """Lower-case letters, digits and ``-``; part of IRIs."""
    env: Literal["development", "production"] = "development"
    """``"production"`` applies no schema change automatically."""
    read_only: bool = False
    """Whether every process opens the data read-only."""
    plugins: tuple[str, ...] = ()
    """Names of installed plugins whose code runs in this project."""


class McpSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[graphs.<id>.mcp]``: how MCP clients see a graph."""

    stored_query_mode: Literal["auto", "per_query", "meta"] = "auto"
    """``"per_query"``: a tool for each stored query; ``"meta"``: two tools for all; ``"auto"``: by
    their number."""
    stored_query_threshold: Positive = 24
    """From how many exposed queries on ``"auto"`` means ``"meta"``."""
    max_chars: Annotated[int, msgspec.Meta(ge=LEAST_CHARS, le=MOST_CHARS)] = DEFAULT_CHARS
    """How many characters an answer to a model has at most, unless the call says how many."""
    writes: WriteMode = "direct"
    """``"propose"``: a write to main over MCP becomes a branch to be reviewed, unless the call may
    and does say otherwise."""
    writers: Mapping[str, WriteMode] = {}
    """The same for some callers: the name of an actor, or ``"group:<name>"``."""
    validation_errors: Literal["protocol", "tool"] = "protocol"
    """Whether violations are protocol errors (−32602) or results with ``isError``."""
    legacy_sessions: bool = False
    """Stateful sessions over HTTP, which ``resources/subscribe`` of earlier revisions needs."""
    legacy_sse: bool = False
    """Serves the deprecated HTTP+SSE transport."""


class ServerSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[server]``: where ``trails serve`` listens, and for whom."""

    host: str = "127.0.0.1"
    """The address that it listens on; any other than loopback needs credentials."""
    port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 8321
    """Its port; 0 takes any that is free."""
    policies: str = ""
    """A folder of Cedar policies about the server itself (who may list graphs); none if empty."""
    public_hosts: tuple[str, ...] = ()
    """Host names under which clients reach the server: ``"kg.example.org"`` for any port, or with a
    port."""
    browser_origins: tuple[str, ...] = ()
    """Origins of web pages that may use it, as ``"https://app.example.org"``."""
    tls_certificate: str = ""
    """A certificate chain in PEM, relative to the project folder; with it, HTTPS is served, from
    TLS 1.2 on."""
    tls_key: str = ""
    """Its private key in PEM, without a password."""
    body_mb: Positive = 32
    """The largest request body, in MiB, except for loads."""
    drain_seconds: Annotated[float, msgspec.Meta(ge=0, le=3600)] = 5.0
    """Seconds that running calls may continue after SIGTERM or Ctrl-C."""
    max_calls: Annotated[int, msgspec.Meta(ge=0)] = 512
    """Concurrent calls on one graph, of all actors together; more are refused at once as ``busy``
    (503 with ``Retry-After``). 0 means no limit."""
    public_metrics: bool = False
    """Lets everyone read ``/metrics``: callers who administer no graph get sums without names of
    graphs and tools."""


class Auth(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[auth]``: credentials of others."""

    oauth: OAuth | None = None
    """Accepts access tokens of an identity provider."""


class Budgets(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[graphs.<id>.budgets]``: limits of one actor with a credential; 0 means no limit."""

    in_flight: Annotated[int, msgspec.Meta(ge=0)] = 24
    """Concurrent calls."""
    calls_per_minute: Annotated[int, msgspec.Meta(ge=0)] = 60_000
    """Calls per minute."""
    query_seconds_per_minute: Annotated[float, msgspec.Meta(ge=0)] = 60
    """Seconds of SPARQL and of ``node_select`` per minute; for every actor but ``local``."""
    branches: Annotated[int, msgspec.Meta(ge=0)] = 200
    """Existing branches that it has created."""
    watches: Annotated[int, msgspec.Meta(ge=0)] = 100
    """Open watches."""
    spool_mb: Annotated[int, msgspec.Meta(ge=0)] = 8192
    """MiB of uploads in progress, and of blobs that no commit names yet."""
    blob_mb: Annotated[int, msgspec.Meta(ge=0)] = 100
    """MiB of one blob."""
    exports: Annotated[int, msgspec.Meta(ge=0)] = 20
    """Export jobs that it may have on disk."""
    export_mb: Annotated[int, msgspec.Meta(ge=0)] = 4096
    """MiB of them together."""
    write_seconds: Annotated[float, msgspec.Meta(ge=0)] = 20
    """Seconds that one write may make other writers wait."""
    write_seconds_per_minute: Annotated[float, msgspec.Meta(ge=0)] = 10
    """Seconds per minute that its long writes may make other writers wait."""


class Embeddings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[graphs.<id>.embeddings]``: the function that makes vectors of texts."""

    function: str
    """``module:name`` of a function from a list of texts to their vectors."""
    seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = SECONDS
    """How long one call of it may take."""


class GraphLogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[graphs.<id>.log]``: where the log of a graph is."""

    url: str = ""
    """``postgresql://…``: the log is on this server, which needs the extra ``trails[postgres]``; if
    empty, ``TRAILS_LOG_URL`` in the environment, or else the log is a file in the project."""
    wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=60)] = 5.0
    """How long a call waits that must not be older than a commit (``Trails-At-Least``), before it
    is answered with ``lagging``."""

    def __repr__(self) -> str:
        """Without the address, which may hold a password."""
        return f"{type(self).__name__}({'…' if self.url else ''})"


class GraphSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[graphs.<id>]``: one graph; a project without such a table has the graph ``main``."""

    app: str = "app.py"
    """The module that declares types and capabilities."""
    schema: Literal["python", "graph"] = "python"
    """Where types are declared: ``"python"`` in ``app``, ``"graph"`` in the graph itself, which is
    changed with ``trails schema apply``; ``app`` is optional then, and declares no types."""
    queries: str = "queries"
    """The folder of stored queries, inside the project."""
    policies: str = "policies"
    """A folder of Cedar policies for this graph."""
    migrations: str = "migrations"
    """The folder of migrations, inside the project."""
    base_iri: str = ""
    """An absolute IRI, ``trails://<project>/<id>`` if empty; used when the graph is created, never
    changed later."""
    idempotency_days: Positive = KEEP_DAYS
    """For how many days a retry with the same idempotency key gets the first outcome."""
    export_hours: Positive = 24
    """For how many hours the file of an export job is kept."""
    embeddings: Embeddings | None = None
    """Makes vectors of texts."""
    log: GraphLogSettings = GraphLogSettings()
    """Where the log is."""
    mcp: McpSettings = McpSettings()
    """How MCP clients see the graph."""
    budgets: Budgets = Budgets()
    """Limits of one actor."""
    webhooks: tuple[WebhookSettings, ...] = ()
    """Servers that are notified of changes."""


class Loads(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[loads]``: how much a file may expand while it is read."""

    expanded_mb: Positive = 16_384
    """The largest file that is loaded, decompressed, in MiB."""
    ratio: Positive = 200
    """The largest ratio of decompressed to compressed size, beyond the first 64 MiB."""
    blank_lines: Positive = 100_000
    """Blank lines that a file may have."""

    def limits(self) -> LoadLimits:
        return LoadLimits(self.expanded_mb << 20, self.ratio, self.blank_lines)


class Validation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[validation]``: exceptions from it."""

    allow_bypass: bool = False
    """Permits ``raw_sparql(skip_validation=True)``."""


class LogSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[log]``: how much of the log is kept at hand, and what servers write to standard error."""

    activity_days: Annotated[int, msgspec.Meta(ge=0, le=36_500)] = 90
    """Activities that ended longer ago are archived; 0 means no limit."""
    activity_rows: Annotated[int, msgspec.Meta(ge=0)] = 1_000_000
    """Activities that stay in the log; the oldest beyond that are archived; 0 means no limit."""
    format: Literal["text", "json"] = "text"
    """How a server writes to standard error: for people, or one JSON object a line."""
    calls: bool = False
    """Writes a line for every call that has ended."""
    slow_query_ms: Annotated[int, msgspec.Meta(ge=0)] = 0
    """Writes a line for every SPARQL query, search or list of nodes that takes as many
    milliseconds; 0 means none."""
    texts: bool = False
    """Lets lines quote what callers sent: the texts of slow queries and, as JSON, the messages of
    unexpected errors."""

    def retention(self) -> Retention:
        return Retention(self.activity_days or None, self.activity_rows or None)


class TelemetrySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[telemetry]``: OpenTelemetry, which needs the extra ``trails[otel]``."""

    otlp: str
    """The base URL of a collector that takes OTLP over HTTP, as ``"http://127.0.0.1:4318"``."""
    traces: bool = True
    """Sends a span for each call, and for each query in it."""
    metrics: bool = True
    """Sends metrics."""
    sample: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """The share of traces that are sent; of traces that a caller has begun, the caller decides."""
    metrics_seconds: Annotated[float, msgspec.Meta(ge=1, le=3600)] = 60.0
    """Seconds between two reports of metrics."""

    def check(self) -> None:
        """Refuse a URL that no collector can have; it is not shown, as it may have a password."""
        try:
            parts = urlsplit(self.otlp)
            valid = parts.scheme in {"http", "https"} and bool(parts.hostname)
            valid = valid and (parts.port is None or parts.port > 0)
        except ValueError:
            valid = False
        if not valid:
            raise SettingsError(
                f"{SETTINGS_FILE}: [telemetry] otlp must be the URL of a collector, in the form "
                '"http://127.0.0.1:4318"'
            )


class SandboxSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[sandbox]``: limits of untrusted SPARQL and RDF."""

    seconds: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 5.0
    """How long an untrusted query, update or step of a file may take."""
    memory_mb: Annotated[int, msgspec.Meta(ge=384)] = 1024
    """Address space of a worker process, in MiB."""
    rows: Positive = 10_000
    """Rows of a result; more are cut off, and the result says so."""
    result_mb: Positive = 8
    """Size of a result, in MiB; more is cut off, and the result says so."""
    text_kb: Positive = 64
    """Length of a query or update, in KiB."""
    depth: Positive = 32
    """Levels of nesting in a text, and of triples within triples in a result."""
    expansion: Positive = 200
    """Bytes of statements that an RDF file may make for each of its bytes, beyond the first 64
    MiB."""
    per_caller: Positive = 2
    """Queries that one caller may have running; more wait for their turn."""
    patience: Annotated[float, msgspec.Meta(ge=0, le=300)] = 10.0
    """Seconds that a query waits for its turn."""
    followers: Positive = 2
    """Queries that may run on one branch or snapshot at once; one more for callers with little
    recent use."""
    lines: Positive = 8
    """Branches and snapshots that have live workers."""
    allow_unconfined: bool = False
    """Runs untrusted text where the system offers no confinement."""

    def limits(self, per_minute: float = 0) -> Limits:
        """Return the sandbox's limits, with a caller's time per minute."""
        return Limits(
            seconds=self.seconds,
            memory=self.memory_mb << 20,
            rows=self.rows,
            result_bytes=self.result_mb << 20,
            text_bytes=self.text_kb << 10,
            depth=self.depth,
            expansion=self.expansion,
            per_caller=self.per_caller,
            patience=self.patience,
            per_minute=per_minute,
            followers=self.followers,
            lines=self.lines,
        )


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All of ``trails.toml``."""

    project: Project
    graphs: dict[str, GraphSettings] = {}
    server: ServerSettings = ServerSettings()
    auth: Auth = Auth()
    log: LogSettings = LogSettings()
    telemetry: TelemetrySettings | None = None
    loads: Loads = Loads()
    sandbox: SandboxSettings = SandboxSettings()
    validation: Validation = Validation()

    def base_iri(self, graph: str) -> str:
        """Return the base of a graph's IRIs, used when the graph is created."""
        given = self.graphs[graph].base_iri if graph in self.graphs else ""
        return given or f"trails://{self.project.name}/{graph}"

    def log_url(self, graph: str, environment: Mapping[str, str]) -> str:
        """Return the address of a graph's log; empty if the log is in the graph's folder."""
        where, url = log_setting(graph), self.graphs[graph].log.url if graph in self.graphs else ""
        if not url:
            where, url = LOG_URL_VARIABLE, environment.get(LOG_URL_VARIABLE, "")
            log_urls.check_log_url(where, url)
        if url:
            log_urls.check_connection(where, url)
        return url


def log_setting(graph: str) -> str:
    """The name of the setting that says where the log of a graph is."""
    return f"[graphs.{graph}.log] url"


def read_settings(folder: Path) -> Settings:
    """Read and check a project's settings."""
    path = folder / SETTINGS_FILE
    if not path.is_file():
        raise SettingsError(
            f"{folder} is not a Trails project: it has no {SETTINGS_FILE}; "
            "create one with 'trails new <name>', or name another folder"
        )
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{SETTINGS_FILE} can't be read: {error}") from None
    try:
        settings = msgspec.convert(raw, Settings)
    except msgspec.ValidationError as error:
        faults = list_faults(raw, Settings) or [str(error)]
        raise SettingsError(f"{SETTINGS_FILE}: {'; '.join(faults)}") from None
    try:
        check_project_name(settings.project.name)
        for graph, each in settings.graphs.items():
            check_project_name(graph)
            if each.base_iri:
                check_base_iri(each.base_iri)
            if each.log.url:
                log_urls.check_log_url(log_setting(graph), each.log.url)
            check_webhooks(graph, each.webhooks)
    except TrailsError as error:
        raise SettingsError(f"{SETTINGS_FILE}: {error.message}") from None
    if settings.auth.oauth is not None:
        check_oauth(settings.auth.oauth)
    if settings.telemetry is not None:
        settings.telemetry.check()
    if not settings.graphs:
        return msgspec.structs.replace(settings, graphs={"main": GraphSettings()})
    return settings


def choose_graph(known: Collection[str], graph: str | None) -> str:
    """Return the named graph, the only one, or ``main``."""
    names = ", ".join(known)
    if graph is not None and graph not in known:
        raise NotFoundError(f"there is no graph {graph!r}; this project has {names}")
    if graph is not None:
        return graph
    if len(known) == 1:
        return next(iter(known))
    if "main" in known:
        return "main"
    raise NotFoundError(f"this project has several graphs: {names}; choose one with --graph")
