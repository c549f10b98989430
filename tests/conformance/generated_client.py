"""A client that the usual generator makes of our OpenAPI document, at work on a real server.

The generator is installed once, in an environment of its own beside the suite of MCP.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.conformance.suite import FOLDER, HERE, UnavailableError
from tests.worlds.processes import Web

NORTHLINE: Final = HERE.parents[1] / "examples" / "northline"
GENERATOR: Final = "openapi-python-client==0.29.1"
ENVIRONMENT: Final = FOLDER / "client-environment"

WORK: Final = """
import json, sys
from northline_client import Client, models
from northline_client.api.capabilities import invoke_requirements_propose
from northline_client.api.changes import graph_mutate
from northline_client.api.history import branch_create, branch_list, branch_merge, commit_list
from northline_client.api.queries import invoke_open_hazards_by_severity
from northline_client.api.records import get_requirement, list_requirement, search

client = Client(base_url=sys.argv[1], raise_on_unexpected_status=True)
made = branch_create.sync("main", client=client, body=models.BranchCreateBody(name="made"))
found = list_requirement.sync(client=client, limit=2)
first = search.sync("main", client=client, query="brake").results[0]
refused = branch_list.sync("main", client=client, limit=0)
merged = branch_merge.sync(
    "main", client=client, body=models.BranchMergeBody(source="made", dry_run=True)
)
print(json.dumps({
    "branch": made.branch.name,
    "branches": [each.name for each in branch_list.sync("main", client=client).branches],
    "instances": len(found.instances),
    "evidence": first.evidence.text,
    "refused": refused.code,
    "outcome": merged.outcome.value,
    "commits": len(commit_list.sync("main", client=client, limit=1).commits),
}))
"""


def examine_client() -> tuple[str, list[str]]:
    """Make a client and use it: a line that sums it up, and what is wrong."""
    python = _install()
    with TemporaryDirectory() as name:
        folder = Path(name)
        project = folder / "northline"
        unwanted = shutil.ignore_patterns(".trails", "__pycache__")
        shutil.copytree(NORTHLINE, project, ignore=unwanted)
        subprocess.run([sys.executable, "seed.py"], cwd=project, check=True, capture_output=True)
        with Web(project) as web:
            findings = [*_generate(python, web.url, folder), *_use(python, web.url, folder)]
    return f"client OpenAPI 3.1 {GENERATOR}: {len(findings)} problems", findings


def _install() -> Path:
    python = ENVIRONMENT / "bin" / "python"
    if not (ENVIRONMENT / "bin" / "openapi-python-client").exists():
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
        done = subprocess.run([python, "-m", "pip", "install", "-qq", GENERATOR], check=False)
        if done.returncode:
            raise UnavailableError(f"{GENERATOR} can't be installed in {ENVIRONMENT}")
    return python


def _generate(python: Path, url: str, folder: Path) -> list[str]:
    """Make the client; every operation must be in it."""
    target = folder / "northline_client"
    done = subprocess.run(
        [
            python.parent / "openapi-python-client",
            "generate",
            "--url",
            f"{url.rstrip('/')}/openapi.json",
            "--meta=none",
            "--output-path",
            target,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return [done.stdout[-2000:] + done.stderr[-2000:]]
    lost = "Endpoint will not be generated"
    return [line for line in done.stdout.splitlines() if lost in line]


def _use(python: Path, url: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [python, "-c", WORK, url.rstrip("/")],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return [done.stderr[-2000:]]
    found = json.loads(done.stdout)
    wanted = {
        "branch": "made",
        "branches": ["main", "made"],
        "instances": 2,
        "refused": "validation",
        "outcome": "already_up_to_date",
        "commits": 1,
    }
    wrong = [f"{name}: {found.get(name)!r}" for name in wanted if found.get(name) != wanted[name]]
    return wrong if "brak" in found["evidence"].lower() else [*wrong, found["evidence"]]
