"""Completion for bash, zsh and fish: ``trails completion SHELL`` prints a script.

The script runs ``trails`` with the words of the line in ``_TRAILS_COMPLETE``. Commands come from
the catalog, options from the command that is typed, and the names of tools and types from a file
in the user's cache, which is made anew when the project's files change.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import typer

from trails.errors import QueryError, TrailsError
from trails.model.names import suggest
from trails.surfaces.cli.operations import Operations, ProjectLocation
from trails.surfaces.cli.output.plain import visible
from trails.surfaces.cli.output.reporting import Reporting
from trails.surfaces.cli.shell.catalog import LISTED
from trails.surfaces.cli.shell.tool_options import tool_options

_ASKED: Final = "_TRAILS_COMPLETE"
_TYPED: Final = frozenset({"get", "read", "blame"})
"""Commands whose first argument is a type or a record."""
_BRANCHES: Final = frozenset({"--branch", "-b", "--into", "--from"})
_SCRIPTS: Final = {
    "bash": """\
_trails() {
    local IFS=$'\\n'
    COMPREPLY=($(_TRAILS_COMPLETE=bash trails "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    [[ ${COMPREPLY[0]} == */ ]] && compopt -o nospace
}
complete -o default -F _trails trails
""",
    "zsh": """\
#compdef trails
_trails() {
    local -a found
    found=("${(@f)$(_TRAILS_COMPLETE=zsh trails "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    [[ -n $found ]] && _describe trails found || _files
}
compdef _trails trails
""",
    "fish": """\
function __trails_complete
    set -l words (commandline -opc) (commandline -ct)
    _TRAILS_COMPLETE=fish trails $words[2..-1] 2>/dev/null
end
complete -c trails -f -a '(__trails_complete)'
""",
}


def add_completion_command(cli: typer.Typer, operations: Operations) -> None:
    """Add it to the command line."""
    del operations

    @cli.command(epilog="Example: trails completion bash >> ~/.bashrc")
    def completion(
        shell: Annotated[str, typer.Argument(help="The shell: bash, zsh or fish.")],
    ) -> None:
        """Print a script that completes commands, options and names in a shell."""
        with Reporting(as_json=False) as report:
            if shell not in _SCRIPTS:
                raise QueryError(f"no completion for {shell[:100]!r}; {suggest(shell, _SCRIPTS)}")
            sys.stdout.write(_SCRIPTS[shell])
            report.silent = True


class ToolNames(msgspec.Struct, frozen=True):
    """A tool and its options."""

    name: str
    summary: str
    options: list[str]


class ProjectNames(msgspec.Struct, frozen=True):
    """What completion knows of a project."""

    files: list[tuple[str, int, int]]
    """The files that declare it, when they changed, and their sizes."""
    digest: str
    """Of the types, as they were."""
    tools: list[ToolNames]
    types: list[str]


def complete(operations: Operations, words: Sequence[str]) -> None:
    """Print what may follow, in the form that the asking shell takes."""
    form = os.environ[_ASKED]
    *before, current = words or [""]
    for word, help_text in _candidates(operations, before, current):
        if word.startswith(current):
            shown = visible(help_text.replace("\n", " "))
            mark = {"zsh": ":", "fish": "\t"}.get(form)
            name = word.replace(":", "\\:") if form == "zsh" else word
            sys.stdout.write(f"{name}{mark}{shown}\n" if mark and shown else f"{name}\n")


def _candidates(
    operations: Operations, before: Sequence[str], current: str
) -> Iterator[tuple[str, str]]:
    if not before:
        yield from ((each.name, each.summary) for each in LISTED.values())
        return
    if before[0] not in LISTED:
        return
    place = ProjectLocation(Path(_value_of(before, "--project", "-p") or "."))
    name, last = before[0], before[-1]
    with suppress(TrailsError, OSError):
        if last in _BRANCHES:
            yield from ((each, "") for each in _branches(operations, place))
            return
        if name in _TYPED and len(before) == 1 and not current.startswith("-"):
            yield from ((f"{each}/", "") for each in _names(operations, place).types)
            return
        if name == "call":
            yield from _tool_words(_names(operations, place), before, current)
    if current.startswith("-") or name not in _TYPED:
        yield from _own_words(operations, before, current)


def _tool_words(
    known: ProjectNames, before: Sequence[str], current: str
) -> Iterator[tuple[str, str]]:
    if len(before) == 1:
        if not current.startswith("-"):
            yield from ((each.name, each.summary) for each in known.tools)
        return
    for each in known.tools:
        if each.name == before[1]:
            yield from ((option, "") for option in each.options)


def _own_words(
    operations: Operations, before: Sequence[str], current: str
) -> Iterator[tuple[str, str]]:
    """The commands of a group, or the options of a command."""
    from trails.surfaces.cli.commands import build_command  # noqa: PLC0415 - which imports this

    command: Any = build_command(operations, before)
    for word in before:
        known = getattr(command, "commands", {})
        if word in known:
            command = known[word]
    if not current.startswith("-"):
        for name, each in getattr(command, "commands", {}).items():
            yield name, each.get_short_help_str(200)
        return
    for param in command.params:
        for option in getattr(param, "opts", ()):
            if option.startswith("--"):
                yield option, getattr(param, "help", "") or ""
    yield "--help", ""


def _value_of(words: Sequence[str], *names: str) -> str | None:
    """The value of an option that was typed."""
    for at, word in enumerate(words[:-1]):
        if word in names:
            return words[at + 1]
    return None


def _branches(operations: Operations, place: ProjectLocation) -> list[str]:
    with operations.open(place, None, _quiet, declared=False) as session:
        return [each.name for each in session.branches()]


def _quiet(text: str) -> None:
    del text


def _names(operations: Operations, place: ProjectLocation) -> ProjectNames:
    """The names of a project: from the cache, unless its files changed."""
    file, files = _cache_file(place.folder), _fingerprint(place.folder)
    with suppress(OSError, msgspec.MsgspecError):
        known = msgspec.json.decode(file.read_bytes(), type=ProjectNames)
        if known.files == files:
            return known
    with operations.open(place, None, _quiet, declared=True) as session:
        schema: Mapping[str, Any] = session.call("schema_get", {})
        found = ProjectNames(
            files,
            str(schema["digest"]),
            [
                ToolNames(
                    each.name,
                    each.description.partition("\n")[0],
                    [option.spelled for option in tool_options(each.full_schema)],
                )
                for each in session.tools()
            ],
            [str(each["type"]) for each in schema["types"]],
        )
    with suppress(OSError):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        made = file.with_suffix(f".{os.getpid()}")
        made.write_bytes(msgspec.json.encode(found))
        made.replace(file)
    return found


def _cache_file(folder: Path) -> Path:
    """Where names are kept: one file for each project and credential."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    key = f"{folder.resolve()}\n{os.environ.get('TRAILS_TOKEN', '')}"
    return root / "trails" / "completion" / f"{sha256(key.encode()).hexdigest()[:32]}.json"


def _fingerprint(folder: Path) -> list[tuple[str, int, int]]:
    """The files that declare a project, as far as they are seen without running it."""
    files = [folder / "trails.toml", *folder.glob("*.py"), *folder.glob("queries/*.rq")]
    found = [(path.name, path.stat()) for path in sorted(files)]
    return [(name, each.st_mtime_ns, each.st_size) for name, each in found]
