"""The package stands alone, and keeps the SDK to itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import trails
from trails.surfaces.mcp.backend import McpBackend

SOURCES = Path(trails.__file__).parent
MCP = SOURCES / "surfaces" / "mcp"


def imported(path: Path) -> set[str]:
    """The top-level packages that a file imports, wherever in it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add((node.module or "").split(".")[0])
    return names


@pytest.mark.req("G2")
def test_one_package_imports_the_sdk():
    """Only the MCP surface imports the protocol's SDK."""
    users = {path for path in SOURCES.rglob("*.py") if imported(path) & {"mcp", "mcp_types"}}
    assert users
    assert all(path.is_relative_to(MCP) for path in users)


def test_the_surface_needs_nothing_but_values():
    """It imports model, projections and errors of Trails, and no engine, log or kernel."""
    code = (
        "import sys, trails.surfaces.mcp.http, trails.surfaces.mcp.streams;"
        "print(*sorted(n for n in sys.modules if n.startswith('trails.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    used = {name.split(".")[1] for name in done.stdout.split()}
    assert used <= {"model", "errors", "surfaces", "authoring", "registry", "projections"}


def test_a_few_lines_are_a_backend():
    """Another backend needs what the protocol names, and nothing more."""
    from tests.worlds.surfaces import TrivialBackend

    members = {name for name in vars(McpBackend) if not name.startswith("_")}
    assert members <= set(dir(TrivialBackend))
