"""Modules that are imported when they are first used, and what a command does without."""

import subprocess
import sys

import pytest

from trails import imports
from trails.imports import import_all, later

UNUSED = (
    "cedarpy",
    "ctypes",
    "html",
    "httpx2",
    "importlib.metadata",
    "mcp",
    "numpy",
    "psycopg",
    "pyoxigraph",
    "regex",
    "rich",
    "starlette",
    "tantivy",
    "yaml",
    "trails.app.telemetry.logs",
    "trails.engine.history.merge",
    "trails.engine.schema.plan",
    "trails.engine.transfer.files",
    "trails.log.postgres",
    "trails.projections.python",
    "trails.request.meta",
    "trails.request.operations",
    "trails.request.transfers",
    "trails.sandbox.pool",
)
"""What a page of records is read and printed without."""
COMMAND = """
import sys
sys.argv = ["trails", *sys.argv[1:]]
from trails.app.main import main
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that nobody has imported yet, and its name."""
    monkeypatch.syspath_prepend(tmp_path)
    name = f"later_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text("VALUE = 1\n", encoding="utf-8")
    yield name
    sys.modules.pop(name, None)
    imports._names.discard(name)


def test_a_module_is_imported_when_it_is_first_used(module):
    """Not before; and what replaces one of its values is seen."""
    found = later(module)
    assert module not in sys.modules
    assert found.VALUE == 1
    sys.modules[module].VALUE = 2
    assert found.VALUE == 2
    with pytest.raises(AttributeError, match="NOTHING"):
        _ = found.NOTHING


def test_a_server_imports_all_of_them(module):
    """Those that it knows of, and those that they bring."""
    later(module)
    later("trails.app.app")
    import_all()
    assert module in sys.modules
    assert "trails.engine.transfer.files" in sys.modules


def test_a_page_needs_few_modules(tmp_path):
    """A project that was closed in order is read without its quads view and text index."""
    project = tmp_path / "project"
    run = [sys.executable, "-c", COMMAND]

    def told(*arguments):
        done = subprocess.run(
            [*run, *arguments], capture_output=True, text=True, check=True, cwd=tmp_path
        )
        return done.stdout, set(done.stderr.split())

    told("new", "project")
    app = project / "app.py"
    app.write_text(
        "from trails import Node, node_type, predicate\n\n\n"
        '@node_type\nclass Note(Node):\n    """A note."""\n\n'
        "    code: str = predicate(key=True)\n    text: str = predicate(search=True)\n",
        encoding="utf-8",
    )
    (tmp_path / "notes.ndjson").write_text(
        '{"type": "Note", "data": {"code": "a", "text": "alpha"}}\n', encoding="utf-8"
    )
    told("load", "notes.ndjson", "-p", str(project))
    told("search", "alpha", "-p", str(project))
    shown, imported = told("get", "Note", "-p", str(project))
    assert "1 instance" in shown
    assert imported & set(UNUSED) == set()
