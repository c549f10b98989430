"""The official suite: installed once under build/, then run offline as often as one likes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
import yaml

HERE: Final = Path(__file__).parent
FOLDER: Final = HERE.parents[1] / "build" / "conformance"
PACKAGE: Final = FOLDER / "node_modules" / "@modelcontextprotocol" / "conformance"
READY: Final = FOLDER / "ready.json"
REVISIONS: Final = ("2026-07-28", "2025-11-25")


class UnavailableError(Exception):
    """The suite can't be installed or run here."""


class Report(msgspec.Struct, frozen=True):
    """What the suite said about one server: the failed checks of each scenario that ran."""

    revision: str
    failed: Mapping[str, tuple[str, ...]]


def install() -> Path:
    """Node, with the suite beside it; from the registry only when the pins have changed."""
    wanted = (HERE / "package.json").read_bytes()
    if not (READY.exists() and READY.read_bytes() == wanted):
        npm = shutil.which("npm")
        if npm is None:
            raise UnavailableError("npm is missing: it installs the suite and a Node of its own")
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        (FOLDER / "package.json").write_bytes(wanted)
        flags = ("--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error")
        done = subprocess.run([npm, "install", *flags], cwd=FOLDER, check=False)
        if done.returncode:
            raise UnavailableError(f"npm install ended with {done.returncode} in {FOLDER}")
        READY.write_bytes(wanted)
    found = next(FOLDER.glob("node_modules/node-*/bin/node"), None)
    if found is None:
        raise UnavailableError(f"no Node for this platform in {FOLDER}; see package.json")
    return found


def requirements(revision: str) -> tuple[frozenset[str], frozenset[str]]:
    """The server scenarios that a revision scores, and those that it does not score yet.

    Extensions are neither: nobody has to offer them.
    """
    text = (PACKAGE / "requirements" / f"{revision}.yaml").read_text(encoding="utf-8")
    read = yaml.safe_load(text)
    unscored = (
        each["scenario"]
        for each in read["not_scored"]
        if each["leg"] == "server" and each["reason"] != "extension"
    )
    return frozenset(read["server"]), frozenset(unscored)


def examine(node: Path, url: str, revision: str, out: Path) -> Report:
    """Run what a revision requires against a server; the files stay in a folder."""
    shutil.rmtree(out, ignore_errors=True)
    command = (node, PACKAGE / "dist" / "index.js", "server", "--url", url)
    done = subprocess.run(
        [*command, "--requirements", revision, "--output-dir", out],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ['PATH']}"},
    )
    checks = dict(_checks(out))
    if not checks:
        raise UnavailableError(
            f"the suite ran nothing:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
        )
    return Report(revision, {name: _failed(found) for name, found in checks.items()})


def _checks(out: Path) -> Iterator[tuple[str, list[dict[str, str]]]]:
    """The checks of each scenario; a folder is called ``server-<scenario>-<time>``."""
    for file in sorted(out.glob("server-*/checks.json")):
        scenario = file.parent.name.removeprefix("server-")[: -len("-2026-01-01T00-00-00-000Z")]
        yield scenario, json.loads(file.read_text(encoding="utf-8"))


def _failed(checks: list[dict[str, str]]) -> tuple[str, ...]:
    return tuple(
        f"{check['id']}: {check.get('errorMessage', '')}"
        for check in checks
        if check["status"] == "FAILURE"
    )


class Expected(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A scenario that fails, and why it may."""

    scenario: str
    revision: str
    servers: tuple[str, ...]
    reason: str


def read_expected(file: Path) -> tuple[Expected, ...]:
    """The list in expected.toml."""
    found = tomllib.loads(file.read_text(encoding="utf-8")).get("failure", [])
    return msgspec.convert(found, tuple[Expected, ...])


def judge(
    server: str, report: Report, required: frozenset[str], expected: Sequence[Expected]
) -> Iterator[str]:
    """What is wrong: failures nobody foresaw, foreseen ones that pass, scenarios that never ran."""
    foreseen = {
        each.scenario
        for each in expected
        if each.revision == report.revision and server in each.servers
    }
    for scenario in sorted(foreseen - required):
        yield f"{scenario} is expected to fail, but is not required by {report.revision}"
    for scenario in sorted(required):
        if scenario not in report.failed:
            yield f"{scenario} did not run"
        elif report.failed[scenario] and scenario not in foreseen:
            yield f"{scenario} failed: {'; '.join(report.failed[scenario])}"
        elif not report.failed[scenario] and scenario in foreseen:
            yield f"{scenario} passes: take it off expected.toml"
