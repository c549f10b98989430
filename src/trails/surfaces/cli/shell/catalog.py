"""The commands of ``trails`` by heading, and where each is written.

``trails --help`` is printed from this table, and only the module of the command that is called
is imported. So this module imports next to nothing.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple


class ListedCommand(NamedTuple):
    """A command, or a group of commands."""

    name: str
    module: str
    """The module of ``surfaces/cli`` that has it."""
    adder: str
    """The function of that module which adds it."""
    summary: str
    """The first paragraph of its help."""


HEADINGS: Final[dict[str, tuple[ListedCommand, ...]]] = {
    "Set up": (
        ListedCommand(
            "new",
            "project",
            "add_project_commands",
            "Create a project with example types, a capability and settings.",
        ),
        ListedCommand(
            "serve",
            "serving",
            "add_serve_command",
            "Serve the project to MCP clients; several processes can serve it at once.",
        ),
        ListedCommand(
            "mcp",
            "serving",
            "add_client_commands",
            "Add this project to MCP clients, or remove it.",
        ),
        ListedCommand(
            "console",
            "shell.console",
            "add_console_command",
            "Open a Python prompt with the project's types, a context, and await.",
        ),
        ListedCommand(
            "completion",
            "shell.completion",
            "add_completion_command",
            "Print a script that completes commands, options and names in a shell.",
        ),
        ListedCommand(
            "doctor",
            "project",
            "add_project_commands",
            "Check the project, what is served of it, and stored documents; suggest fixes.",
        ),
    ),
    "Read": (
        ListedCommand(
            "graphs",
            "calls",
            "add_graphs_command",
            "List the graphs of the project, or of a server.",
        ),
        ListedCommand(
            "schema",
            "schema",
            "add_schema_commands",
            "Describe the types, plan and apply changes of them; 'trails schema TYPE' describes a "
            "type.",
        ),
        ListedCommand(
            "search",
            "searching",
            "add_search_command",
            "Find records by their texts, with the text around each match.",
        ),
        ListedCommand(
            "get",
            "reading",
            "add_reading_commands",
            "List the instances of a type, or show one; --json prints it as JSON-LD.",
        ),
        ListedCommand(
            "read",
            "reading",
            "add_reading_commands",
            "Read a part of a field's text, as it is stored.",
        ),
        ListedCommand(
            "query",
            "queries",
            "add_query_commands",
            "Run a SPARQL query in the sandbox, or a stored query.",
        ),
        ListedCommand(
            "queries",
            "queries",
            "add_query_commands",
            "List the stored queries with their parameters.",
        ),
        ListedCommand(
            "export", "files", "add_file_commands", "Export a branch or snapshot to a file."
        ),
    ),
    "Author": (
        ListedCommand(
            "generate",
            "generating",
            "add_generate_commands",
            "Write types, capabilities, queries and policies: a diff, or with --apply the files.",
        ),
    ),
    "Change": (
        ListedCommand(
            "tools",
            "calls",
            "add_call_commands",
            "List the tools that can be called: capabilities, stored queries and built-ins.",
        ),
        ListedCommand(
            "call",
            "calls",
            "add_call_commands",
            "Call a capability, stored query or built-in, with the same checks as for an agent.",
        ),
        ListedCommand(
            "mutate",
            "queries",
            "add_mutate_command",
            "Change the graph in one commit. If the result is invalid, nothing is written.",
        ),
        ListedCommand(
            "load",
            "files",
            "add_file_commands",
            "Load files in one commit. If anything in them is invalid, nothing is written.",
        ),
        ListedCommand(
            "migrate",
            "migrations",
            "add_migrate_commands",
            "Plan, apply and roll back changes of types and data.",
        ),
        ListedCommand(
            "blob", "blobs", "add_blob_commands", "Keep files in a graph, and read them."
        ),
    ),
    "History": (
        ListedCommand(
            "diff",
            "history",
            "add_commit_commands",
            "Show the changes from A to B, per node and field.",
        ),
        ListedCommand(
            "blame",
            "provenance",
            "add_provenance_commands",
            "Show the commit, the actor and the call that wrote each value of a record.",
        ),
        ListedCommand(
            "changes",
            "feed.changes",
            "add_changes_command",
            "List changes, oldest first: each commit, and the nodes that it changed.",
        ),
        ListedCommand(
            "prov",
            "provenance",
            "add_provenance_commands",
            "List calls, newest first: who called what, how it ended, and what it made.",
        ),
        ListedCommand(
            "branch", "history", "add_branch_commands", "List, create, delete and merge branches."
        ),
        ListedCommand(
            "proposals",
            "history",
            "add_proposal_command",
            "List open proposals: branches with changes that wait for a merge.",
        ),
        ListedCommand("commit", "history", "add_commit_commands", "List and show commits."),
    ),
    "Maintain": (
        ListedCommand(
            "reload",
            "serving",
            "add_reload_command",
            "Have the running server read the changed module, queries and policies.",
        ),
        ListedCommand(
            "top",
            "top",
            "add_top_command",
            "Show what a running server does: calls, writers, workers, subscribers, memory.",
        ),
        ListedCommand(
            "verify",
            "project",
            "add_project_commands",
            "Verify the digests of the log, and that the views match the log.",
        ),
        ListedCommand(
            "backup",
            "project",
            "add_backup_commands",
            "Create and list backups; 'trails backup DEST' creates one.",
        ),
        ListedCommand(
            "restore",
            "project",
            "add_backup_commands",
            "Restore the graphs of a backup, after checking all digests.",
        ),
        ListedCommand(
            "log",
            "logs",
            "add_log_commands",
            "Move the log of a graph to PostgreSQL, or back to a file in the project.",
        ),
        ListedCommand(
            "recover",
            "project",
            "add_recover_command",
            "Recover lost commits from the log's tail and the views; damaged files are kept.",
        ),
        ListedCommand(
            "webhooks",
            "feed.webhooks",
            "add_webhook_commands",
            "List webhooks and what came of their deliveries, or resume one.",
        ),
        ListedCommand(
            "cleanup",
            "project",
            "add_upkeep_commands",
            "Free disk space: remove cached files and archive old activities.",
        ),
        ListedCommand(
            "optimize",
            "project",
            "add_upkeep_commands",
            "Compact the files of the log and views. This can take a while on a large graph.",
        ),
    ),
    "Access": (
        ListedCommand(
            "token", "access", "add_token_commands", "Create, list and revoke access tokens."
        ),
        ListedCommand(
            "policy", "access", "add_policy_commands", "Check, test and explain access policies."
        ),
    ),
}
LISTED: Final = {each.name: each for listed in HEADINGS.values() for each in listed}
SUMMARY: Final = "A knowledge graph that agents can operate and author, safely."
_WIDEST: Final = 100
_GAP: Final = 2


def names_plugins(folder: Path) -> bool:
    """Whether the settings of a folder may name plugins; cheap, as ``trails --help`` asks it."""
    try:
        return b"plugins" in (folder / "trails.toml").read_bytes()
    except OSError:
        return False


def print_help(plugins: Mapping[str, str]) -> None:
    """Print ``trails --help``; it fits the terminal, and has no colours in a pipe.

    ``plugins`` are the commands of plugins, each with its summary.
    """
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    bold = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    sys.stdout.write("".join(f"{line}\n" for line in _lines(width, plugins, bold=bold)))


def _lines(width: int, plugins: Mapping[str, str], *, bold: bool) -> Iterator[str]:
    from textwrap import wrap  # noqa: PLC0415 - other commands do without

    yield "Usage: trails COMMAND [OPTIONS] [ARGUMENTS]"
    yield ""
    yield SUMMARY
    column = max(map(len, (*LISTED, *plugins))) + _GAP
    headings = {
        name: {each.name: each.summary for each in listed} for name, listed in HEADINGS.items()
    }
    for heading, listed in (headings | ({"Plugins": plugins} if plugins else {})).items():
        yield ""
        yield f"\x1b[1m{heading}\x1b[0m" if bold else heading
        for name, summary in listed.items():
            room = max(width - column - _GAP, 20)
            first, *rest = wrap(summary, room, break_on_hyphens=False)
            yield f"  {name:{column}}{first}"
            yield from (f"  {'':{column}}{line}" for line in rest)
    yield ""
    yield "'trails COMMAND --help' shows the options of a command, with an example."
    yield "'trails --version' prints the version."
