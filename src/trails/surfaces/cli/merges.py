"""Show the result of a merge, and read resolutions of its conflicts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.markup import escape

from trails.errors import QueryError
from trails.model.merges import MergeRequest, MergeResult, Resolution, Side
from trails.model.wording import count
from trails.surfaces.cli.reporting import Reporting
from trails.surfaces.cli.texts import read_json, short, spell

_SIDES: Final[dict[str, Side]] = {"ours": "ours", "theirs": "theirs"}
_split = re.compile(r"(.+?)=(ours|theirs|value:.*)", re.DOTALL).fullmatch
_FORM: Final = "write ID=ours, ID=theirs or ID=value:JSON"


def read_resolutions(given: Sequence[str], file: Path | None) -> dict[str, Resolution]:
    """How conflicts are settled; what the command line says comes before what the file says."""
    found: dict[str, Resolution] = {}
    if file is not None:
        content = read_json(file)
        if not isinstance(content, dict):
            raise QueryError(f'{file} must hold an object: {{"ID": "ours", …}}')
        for identifier, wanted in content.items():
            found[str(identifier)] = _from_json(str(identifier), wanted, file)
    for text in given:
        parts = _split(text)
        if parts is None:
            raise QueryError(f"--resolve {text!r} can't be read; {_FORM}")
        found[parts[1]] = _from_text(parts[1], parts[2])
    return found


def read_side(*, ours: bool, theirs: bool) -> Side | None:
    """The side that settles every other conflict."""
    if ours and theirs:
        raise QueryError("--ours and --theirs exclude each other; use one of them")
    return "ours" if ours else "theirs" if theirs else None


def _from_text(identifier: str, wanted: str) -> Resolution:
    if wanted in _SIDES:
        return Resolution(_SIDES[wanted])
    try:
        return Resolution("value", msgspec.json.decode(wanted.removeprefix("value:")))
    except msgspec.DecodeError as error:
        raise QueryError(
            f"--resolve {identifier}: what follows value: is not JSON ({error}); a text needs its "
            f"quotes, as in {identifier}='value:\"new\"'"
        ) from None


def _from_json(identifier: str, wanted: object, file: Path) -> Resolution:
    if isinstance(wanted, str) and wanted in _SIDES:
        return Resolution(_SIDES[wanted])
    if isinstance(wanted, dict) and set(wanted) == {"value"}:
        return Resolution("value", wanted["value"])
    raise QueryError(
        f'{file}: {identifier!r} must be "ours", "theirs" or {{"value": …}}, not '
        f"{msgspec.json.encode(wanted).decode()[:100]}"
    )


def show_merge(
    report: Reporting,
    result: MergeResult,
    request: MergeRequest,
    nodes: str,
    given: Mapping[str, object],
) -> None:
    """Tell how a merge went; conflicts make the exit code 1.

    ``given`` has the options that say where it was done, for the command that settles conflicts.
    """
    report.value = result
    if result.outcome == "conflicts":
        report.code = 1
        report.text = list(_conflicts(result, request, nodes, given))
        return
    source, target = escape(result.source), escape(result.target)
    counts = f"{result.created} created, {result.updated} updated, {result.deleted} deleted"
    would = "Would have " if result.dry_run else ""
    at = f" at {short(result.commit)}" if result.commit else ""
    if result.outcome == "already_up_to_date":
        report.text = [f"Nothing to do: {target} has all of {source} already."]
    elif result.outcome == "fast_forward":
        moved = "moved" if would else "Moved"
        report.text = [f"{would}{moved} {target} forward to {source}{at}: {counts}."]
    else:
        merged = "merged" if would else "Merged"
        report.text = [f"{would}{merged} {source} into {target}{at}: {counts}."]
    if result.replayed:
        report.text = [*report.text, "That was done before, with this key; nothing was done now."]
    if result.unused:
        unused = ", ".join(escape(each) for each in result.unused)
        report.text = [*report.text, f"Not needed, since there was no such conflict: {unused}."]


def _conflicts(
    result: MergeResult, request: MergeRequest, nodes: str, given: Mapping[str, object]
) -> Iterator[str]:
    number = len(result.conflicts)
    source, target = result.source, result.target
    yield f"[red]{count(number, 'conflict')}[/]: nothing was written."
    for each in result.conflicts:
        yield ""
        place = f"{each.handle}.{each.field}" if each.field else each.handle
        yield f"[bold]{escape(place)}[/]  [dim]{each.kind}[/]"
        yield f"  {escape(each.message.removeprefix(f'{place}: '))}"
        yield f"  base    {spell(each.base, nodes)}"
        yield f"  ours    {spell(each.ours, nodes)}{_causes(target, each.ours_commits)}"
        yield f"  theirs  {spell(each.theirs, nodes)}{_causes(source, each.theirs_commits)}"
        for take in each.takes:
            wanted = f"{each.id}={'value:JSON' if take == 'value' else take}"
            yield f"  settle  --resolve {escape(shlex.quote(wanted))}"
    yield ""
    yield "Settle each of them, or all with --ours or --theirs, and merge again."
    if result.suggested:
        yield "This settles everything:"
        yield ""
        command = f"  trails branch merge {shlex.quote(source)}"
        yield escape(command + _rest(request, result, given))


def _causes(branch: str, commits: Sequence[str]) -> str:
    if not commits:
        return ""
    shown = ", ".join(short(commit) for commit in commits[-3:])
    more = "…, " if len(commits) > 3 else ""
    return f"  [dim]({escape(branch)}: {more}{shown})[/]"


def _rest(request: MergeRequest, result: MergeResult, given: Mapping[str, object]) -> str:
    options = {
        "--into": request.target if request.target != "main" else None,
        "--message": request.message or None,
        "--expected-head": request.expected_head,
        "--idempotency-key": request.idempotency_key,
        **given,
    }
    parts = [
        f" {name} {shlex.quote(str(value))}" for name, value in options.items() if value is not None
    ]
    if request.resolve_all is not None:
        parts.append(f" --{request.resolve_all}")
    wanted: dict[str, str] = {
        identifier: f"value:{msgspec.json.encode(each.value).decode()}"
        if each.take == "value"
        else each.take
        for identifier, each in request.resolutions.items()
    }
    wanted |= result.suggested
    parts += [
        f" \\\n    --resolve {shlex.quote(f'{identifier}={take}')}"
        for identifier, take in wanted.items()
    ]
    return "".join(parts)
