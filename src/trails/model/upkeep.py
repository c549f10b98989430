"""Results of maintenance: cleanup, compaction, backups, MCP client configuration, and checks.

A finding of a check that is not ``ok`` has a code of ``FINDINGS``, which says once how severe it is
and what it means. ``doctor`` and ``verify`` make findings, every surface prints them.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec


class ExportLimits(msgspec.Struct, frozen=True):
    """How long exports are kept, and how much of the disk one actor may use; 0 is no limit."""

    hours: int = 24
    exports: int = 20
    bytes: int = 4 << 30


class Retention(msgspec.Struct, frozen=True):
    """How many activities stay in the log before the oldest are archived; None is no limit."""

    days: int | None = None
    rows: int | None = None


KEEP_ALL: Final = Retention()


class Cleaned(msgspec.Struct, frozen=True):
    """What a cleanup removed."""

    snapshots: tuple[str, ...]
    folders: tuple[str, ...]
    rows: int
    bytes: int
    activities: int = 0
    """Activities that were moved into archives."""
    archives: tuple[str, ...] = ()
    runs: tuple[str, ...] = ()
    """Scratch folders of sandboxes that crashed."""
    exports: tuple[str, ...] = ()
    """Exports that had expired."""
    dry_run: bool = False


class Optimized(msgspec.Struct, frozen=True):
    """Bytes on disk before and after."""

    before: int
    after: int


class Recovery(msgspec.Struct, frozen=True):
    """The result of recovering a graph whose log had lost data."""

    graph: str
    status: Literal["sound", "recovered", "lost"]
    """Nothing was missing; everything is back; or something can't be put back."""
    restored: tuple[str, ...] = ()
    """Commits that were restored exactly."""
    rebuilt: dict[str, str] = {}
    """Branch → the new commit with data that only a view still had."""
    lost: tuple[str, ...] = ()
    """Commits that are lost."""
    without_history: tuple[int, int] | None = None
    """The first and last commit of which only the resulting data was restored."""
    log_problem: str | None = None
    """What is wrong with ``log.db``; its keys, and activities that can't be read, are not back."""
    unusable: tuple[str, ...] = ()
    """Views that could not be used, and why."""
    copy: str | None = None
    """Where the damaged files are now; None where nothing was changed."""
    dry_run: bool = False


class BackupFile(msgspec.Struct, frozen=True):
    """A file of a backup."""

    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """The content of one backup of a graph: everything since the previous one."""

    format: int
    graph: str
    base_iri: str
    created: str
    """The time of the backed-up state."""
    made: str
    number: int
    """Its number in the set, from 1."""
    previous: str
    """The digest of the previous manifest; empty for the first."""
    seq: int
    commit: str
    """The newest commit and its position in the log."""
    heads: dict[str, str]
    ends: dict[str, int]
    """Stream of the log → its last position."""
    files: dict[str, BackupFile]
    digest: str = ""
    """SHA-256 of this manifest without its digest."""

    @property
    def bytes(self) -> int:
        """The size of its files."""
        return sum(each.bytes for each in self.files.values())


class RestoreRequest(msgspec.Struct, frozen=True):
    """What to restore from a backup, and how."""

    force: bool = False
    """Move existing data aside."""
    graph: str | None = None
    """None: all graphs in the backup."""
    at: str | None = None
    """A commit, a log position or a time; None: the last backup."""


class WebhookStatus(msgspec.Struct, frozen=True):
    """A webhook, and what came of its last attempt."""

    graph: str
    name: str
    url: str
    branch: str
    state: Literal["new", "active", "retrying", "disabled"]
    position: str | None = None
    """The commit up to which everything was delivered."""
    delivered: int = 0
    failures: int = 0
    last_attempt: str | None = None
    last_status: int | None = None
    last_error: str = ""
    next_attempt: str | None = None
    disabled: str = ""
    """Why it is disabled."""


class ReloadError(msgspec.Struct, frozen=True, omit_defaults=True):
    """Why changed declarations are not used."""

    code: str
    message: str
    where: str = ""
    """The file and line, as far as they are known."""

    def __str__(self) -> str:
        """The place and the message, in one line."""
        named = not self.where or self.where in self.message
        return self.message if named else f"{self.where}: {self.message}"


class ReloadReport(msgspec.Struct, frozen=True):
    """What came of reading a graph's declarations again."""

    graph: str
    status: Literal["reloaded", "failed"]
    """If it failed, the declarations from before stay in use."""
    version: int
    """The version of the registry that is in use now."""
    digest: str
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    """Types, shapes, capabilities and stored queries, like ``capability notes.add``."""
    schema: tuple[str, ...] = ()
    """The changes of the stored types that it has committed."""
    error: ReloadError | None = None

    def summary(self) -> str:
        """What changed, in one line."""
        parts = [
            f"{verb} {', '.join(names)}"
            for verb, names in (
                ("added", self.added),
                ("changed", self.changed),
                ("removed", self.removed),
            )
            if names
        ]
        return "; ".join(parts) or "no declaration differs"


Scope = Literal["user", "project"]
Outcome = Literal["installed", "replaced", "present", "removed", "absent", "shown"]


class ClientPlace(msgspec.Struct, frozen=True):
    """A configuration file of a client."""

    client: str
    title: str
    scope: Scope
    file: str
    exists: bool


class InstallRequest(msgspec.Struct, frozen=True):
    """Which graph to add to which client's configuration, and how it is reached."""

    client: str
    graph: str | None = None
    name: str | None = None
    scope: Scope = "user"
    http: bool = False
    force: bool = False
    server: str | None = None
    """A server elsewhere; the graph is one of its graphs."""


class Installation(msgspec.Struct, frozen=True):
    """The outcome of an installation, and the entry."""

    client: str
    title: str
    outcome: Outcome
    name: str
    scope: Scope
    file: str
    snippet: str
    """The text to paste into the file by hand."""
    backup: str | None = None
    """The backup copy of the file."""
    difference: str = ""
    """How an existing entry differed, line by line."""
    after: str = ""
    """How to make the client reload its configuration."""
    lacks: str = ""
    """What to add to the entry by hand, because other users can read the file."""


# --- checks -----------------------------------------------------------------------------------

Severity = Literal["ok", "note", "problem"]
"""``problem``: something does not work, and a check fails. ``note``: worth knowing."""


class Finding(msgspec.Struct, frozen=True, omit_defaults=True):
    """One checked item: its state and, if something is wrong, what to do."""

    name: str
    """What was checked."""
    severity: Severity
    detail: str
    fix: str = ""
    code: str = ""
    """Stable; empty where nothing is wrong."""
    where: str = ""
    """The file, capability, query, view or type that it is about."""


class Report(msgspec.Struct, frozen=True):
    """All findings of one check."""

    subject: str
    findings: tuple[Finding, ...]

    @property
    def healthy(self) -> bool:
        """Whether there is no problem."""
        return all(finding.severity != "problem" for finding in self.findings)


class FindingCode(msgspec.Struct, frozen=True):
    """What a code stands for."""

    name: str
    """What is checked."""
    severity: Severity
    meaning: str


def _note(name: str, meaning: str) -> FindingCode:
    return FindingCode(name, "note", meaning)


def _problem(name: str, meaning: str) -> FindingCode:
    return FindingCode(name, "problem", meaning)


FINDINGS: Final[dict[str, FindingCode]] = {
    # --- machine and project
    "sandbox_failed": _problem("sandbox", "The sandbox for untrusted text does not start."),
    "sandbox_missing": _note("sandbox", "This machine can't confine untrusted text."),
    "sandbox_open": _note("sandbox", "Untrusted text runs unconfined, as a setting permits."),
    "permissions_open": _problem("permissions", "Other users can reach files of the project."),
    "tokens_unreadable": _problem("tokens", "The file of tokens is damaged."),
    "tokens_expired": _note("tokens", "No token is valid."),
    "environment_unknown": _note("environment", "A variable TRAILS_… that nothing reads is set."),
    "client_entry_edited": _note(
        "clients", "An MCP client's entry for this project is not what 'mcp install' writes."
    ),
    "client_unreadable": _note("clients", "The configuration of an MCP client can't be read."),
    "plugin_failed": _problem("plugins", "A plugin of the project can't be loaded."),
    "plugin_disabled": _note("plugins", "A plugin is installed, and the project does not use it."),
    "webhook_disabled": _problem("webhooks", "A webhook is disabled: nothing is delivered."),
    "webhook_failing": _note("webhooks", "The last deliveries of a webhook failed."),
    "webhook_unreadable": _problem("webhooks", "The position of a webhook can't be read."),
    "graph_unreadable": _problem("graph", "A graph can't be opened."),
    # --- declarations
    "declarations_broken": _problem("declarations", "The project's module can't be loaded."),
    "declarations_unfinished": _problem(
        "declarations", "A change of files was interrupted, and not finished or undone yet."
    ),
    "declarations_changed": _note(
        "declarations", "The server runs other declarations than the files have now."
    ),
    "reload_failed": _problem(
        "declarations", "Changed files can't be used, so the server runs the declarations before."
    ),
    "query_broken": _problem("queries", "A stored query can't be parsed or checked."),
    "policy_broken": _problem("policies", "A policy can't be parsed or checked."),
    "policy_advice": _note("policies", "A policy matches nothing, or has no effect."),
    "tool_name_long": _note("tool names", "Common clients refuse the name of a tool."),
    "tool_name_dotted": _note("tool names", "Some clients refuse the name of a tool."),
    "argument_secret": _note("secrets", "A capability asks a model for a secret."),
    "cost_off": _note("costs", "An estimated cost is not what calls take."),
    "shape_unused": _note("declarations", "No capability or other shape uses a shape."),
    "rule_unused": _note("declarations", "No capability is judged by a policy rule."),
    "declaration_shadowed": _note(
        "declarations", "A later definition of the same name replaces a declaration."
    ),
    "deprecates_unknown": _note("declarations", "A capability deprecates what does not exist."),
    "deprecated_tool": _note("declarations", "A capability is deprecated by another."),
    "migration_broken": _problem("migrations", "The migrations of a graph can't be loaded."),
    "migration_changed": _problem("migrations", "A migration was edited after it was applied."),
    "migration_unknown": _problem("migrations", "An applied migration has no file."),
    "migration_pending": _note("migrations", "A migration is not applied to main yet."),
    "migration_interrupted": _note("migrations", "A migration was begun and not finished."),
    # --- projections
    "projection_diverges": _problem(
        "projections", "A surface says something else of a callable than its declaration."
    ),
    "projection_edited": _problem("projections", "A stored document was edited by hand."),
    "projection_outdated": _note("projections", "A stored document is of other declarations."),
    "projection_unknown": _problem("projections", "A stored document is of no known kind."),
    "registry_mixed": _problem("projections", "Surfaces are of different registries."),
    # --- data
    "types_pending": _problem("types", "Declared and stored types differ."),
    "branch_types": _note("types", "A branch has other types than main."),
    "types_new": _note("types", "Declared types are not stored yet."),
    "types_stored_only": _note("types", "No types are declared here; stored ones are used."),
    "type_undeclared": _problem("types", "There are instances of a type that is not declared."),
    "view_behind": _problem("views", "A view has not reached the head of the log."),
    "log_behind": _problem("log", "The log has lost commits."),
    "log_unwritable": _problem("log", "The log can't be written."),
    "log_read_only": _note("log", "The project is opened to be read only."),
    "digest_wrong": _problem("commit chain", "The digest of a commit is wrong."),
    "disk_low": _problem("disk", "Little disk space is left."),
    "archives_missing": _problem("activities", "An archive of activities is missing."),
    "refusals": _note("refusals", "An actor was refused many calls."),
    # --- verify
    "log_damaged": _problem("log file", "The file of the log is damaged."),
    "commits_lost": _problem("lost commits", "The log has lost commits."),
    "view_differs": _problem("views", "A view differs from a fresh fold of the log."),
    "rules_broken": _problem("rules", "Stored data breaks a rule of its types."),
    "archives_damaged": _problem("activities", "An archive of activities is damaged."),
    "blobs_damaged": _problem("blobs", "A blob is missing or changed."),
    "repair_failed": _problem("repair", "Views can't be rebuilt."),
}
"""Every code, by what is checked."""


def passed(name: str, detail: str) -> Finding:
    """A check that found nothing wrong."""
    return Finding(name, "ok", detail)


def flag(code: str, detail: str, fix: str = "", *, where: str = "", name: str = "") -> Finding:
    """What a check found; ``name`` replaces that of the code where there are several of a kind."""
    known = FINDINGS[code]
    return Finding(name or known.name, known.severity, detail, fix, code, where)


class MovedLog(msgspec.Struct, frozen=True):
    """What became of moving the log of a graph."""

    graph: str
    to: Literal["postgresql", "file"]
    place: str
    """Where the log is now, without anything secret."""
    changed: bool
    """False: it was there already."""
    commits: int = 0
    """All of them."""
    copied: int = 0
    """Commits that this command has copied; an interrupted one may have copied the others."""
    activities: int = 0
    """The last position in the stream of activities."""
    unused: str = ""
    """Where the log was before: a folder that can be deleted, or the server."""
    seconds: float = 0.0
