"""A new kind is one row, a new constraint three edits, and a new built-in one declaration.

Every part of Trails reads them. The edits below are made in a copy of the source, so they are also
the recipe for a maintainer.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from tests.docs.reference_tables import leaves
from tests.worlds.surfaces import MODERN, headers_of, message_of
from typer.main import get_command

import trails
from trails.app.local import LocalOperations
from trails.request.operations import OPERATIONS
from trails.surfaces.cli.commands import build_cli

SOURCE = Path(trails.__file__).parent

NEW_KIND = {
    "model/kinds.py": [
        (
            "# --- the table ---",
            r"""
DURATION_PATTERN = r"^PT(?:0|[1-9][0-9]{0,8})S$"


def _coerce_duration(value: object) -> timedelta:
    if isinstance(value, timedelta) and not value.microseconds and value >= timedelta():
        return value
    if isinstance(value, str) and re.fullmatch(DURATION_PATTERN[1:-1], value):
        return _parse_duration(value)
    raise KindError


def _parse_duration(text: str) -> timedelta:
    return timedelta(seconds=int(text[2:-1]))


def _lexical_duration(value: timedelta) -> str:
    return f"PT{int(value.total_seconds())}S"


def _repair_duration(value: object) -> object:
    return f"PT{value}S" if type(value) is int else None


# --- the table ---""",
        ),
        (
            '        Kind(\n            name="Iri",',
            """        Kind(
            name="Duration",
            schema={"type": "string", "format": "duration", "pattern": DURATION_PATTERN},
            expected="a duration in seconds, like 'PT90S'",
            example=timedelta(seconds=1),
            coerce=_coerce_duration,
            datatype=TRAILS + "duration",
            python=timedelta,
            lexical=_lexical_duration,
            parse=_parse_duration,
            repair=_repair_duration,
            plain=_lexical_duration,
            restore=_parse_duration,
            sort_key=lambda value: struct.pack(">Q", int(value.total_seconds())),
            quantity=True,
            narrow=True,
        ),
        Kind(
            name="Iri",""",
        ),
    ]
}

NEW_CONSTRAINT = {
    "model/types.py": [
        (
            "    max_value: object = None\n",
            "    max_value: object = None\n    multiple_of: object = None\n",
        )
    ],
    "model/constraints.py": [
        (
            "RULES: Final = (\n",
            """RULES: Final = (
    Rule(
        code="multiple_of",
        keyword="multipleOf",
        phrase="must be a multiple of {}",
        test=lambda limit, coerce: lambda value: value % limit == 0,
        limit="value",
        fits=lambda kind: kind.native is int,
        json_types=_NUMBERS,
        nearest=lambda limit, given: round(given / limit) * limit,
    ),
""",
        )
    ],
    "authoring/predicates.py": [
        (
            "    max_value: object = None\n",
            "    max_value: object = None\n    multiple_of: object = None\n",
        ),
        (
            "    max_value: object = None,\n",
            "    max_value: object = None,\n    multiple_of: object = None,\n",
        ),
        (
            "        max_value=max_value,\n",
            "        max_value=max_value,\n        multiple_of=multiple_of,\n",
        ),
    ],
}

SCRIPT = r'''
import json
from datetime import timedelta
from pathlib import Path

from tests.worlds.graphs import Calls
from trails import App, Context, Node, capability, node_type, predicate
from trails.engine.transfer.ndjson import FastLines
from trails.model.constraints import FIELD_CODES
from trails.model.kinds import KINDS
from trails.projections.shacl import project_shacl
from trails.surfaces.cli.values import guessed_params


@node_type
class Job(Node):
    """Work on slots."""

    name: str = predicate(key=True)
    slots: int = predicate(multiple_of=4)
    lasts: timedelta | None = predicate(max_value=timedelta(minutes=1))


@capability("jobs.plan")
def plan(
    ctx: Context, slots: int = predicate(multiple_of=4), lasts: timedelta = timedelta(seconds=5)
) -> timedelta:
    """Plan a job."""
    assert isinstance(lasts, timedelta)
    Job(name="planned", slots=slots, lasts=lasts).save(ctx)
    return lasts


QUERY = """#+ description: Jobs of a duration.
#+ params:
#+   slots: { type: Int, multiple_of: 4, min_value: 0 }
#+   lasts: Duration
SELECT ?job WHERE { ?job :slots $slots ; :lasts $lasts }
"""
Path("trails.toml").write_text('[project]\nname = "jobs"\n')
Path("queries").mkdir()
Path("queries/by_duration.rq").write_text(QUERY)
Path("app.py").write_text("from __main__ import Job, plan\n")

app = App.open(".")
calls = Calls(app)
graph = app.graph()
ctx = app.context()

# JSON Schema
properties = calls.tool("jobs.plan").input_schema["properties"]
assert properties["slots"]["multipleOf"] == 4, properties
assert properties["lasts"]["format"] == "duration", properties
stored = calls.tool("by_duration").input_schema["properties"]["params"]["properties"]
assert stored["slots"]["multipleOf"] == 4, stored
assert stored["lasts"]["pattern"].startswith("^PT"), stored

# calls, results, and repair of wrong arguments
assert calls.result("jobs.plan", {"slots": 8, "lasts": "PT30S"}) == {"result": "PT30S"}
failure = calls.failure("jobs.plan", {"slots": 7, "lasts": 30})
violations = {each["field"]: each for each in failure.data["fields"]}
assert violations["slots"]["code"] == "multiple_of" and "multiple_of" in FIELD_CODES
assert violations["slots"]["message"] == "slots must be a multiple of 4, not 7"
assert violations["slots"]["suggestion"] == 8, violations
assert "a duration in seconds" in violations["lasts"]["message"]
assert violations["lasts"]["suggestion"] == "PT30S", violations

# storage, conditions and sort order
assert Job.objects(ctx).where(lasts__gte=timedelta(seconds=30)).count() == 1
assert Job.objects(ctx).where(lasts__lt="PT30S").count() == 0
assert Job.objects(ctx).order_by("lasts").first().lasts == timedelta(seconds=30)

# queries: bound parameters, stored parameters, literals, answers
found = calls.result("by_duration", {"params": {"slots": 8, "lasts": "PT30S"}})
assert len(found["rows"]) == 1, found
text = "SELECT ?d WHERE { ?job :lasts ?d . FILTER (?d = $lasts) }"
term = {"@value": "PT30S", "@type": KINDS["Duration"].datatype}
found = calls.result("graph_query", {"query": text, "params": {"lasts": term}})
assert found["rows"] == [{"d": "PT30S"}], found
assert guessed_params(["lasts:Duration=PT30S"]) == {"lasts": timedelta(seconds=30)}

# SHACL
shapes = project_shacl(graph.main.schema, graph.names)
assert "Must be a multiple of 4" in shapes and "^PT" in shapes, shapes
assert "sh:maxInclusive" in shapes

# fast loads check the constraint as the validator does
fast = FastLines(graph.main.schema, graph.names)
line = {"type": "Job", "data": {"name": "a", "slots": 4, "lasts": "PT1S"}}
assert fast.read(1, json.dumps(line).encode()).values["lasts"] == timedelta(seconds=1)
line["data"]["slots"] = 5
assert fast.read(1, json.dumps(line).encode()) is None
line["data"].update(slots=4, lasts="PT61S")
assert fast.read(1, json.dumps(line).encode()) is None

calls.close()
print("all read the new rows")
'''


def edited_copy(folder: Path, *edits: dict[str, list[tuple[str, str]]]) -> dict[str, str]:
    """Make edits in a copy of the source; the environment in which that is imported."""
    package = folder / "source" / "trails"
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for each in edits:
        for name, changes in each.items():
            text = (package / name).read_text(encoding="utf-8")
            for old, new in changes:
                assert text.count(old) == 1, (name, old)
                text = text.replace(old, new)
            (package / name).write_text(text, encoding="utf-8")
    roots = (package.parent, Path(__file__).parents[2])
    return {"PYTHONPATH": ":".join(map(str, roots)), "HOME": str(folder)}


def test_a_new_kind_and_a_new_constraint_reach_every_part(tmp_path: Path) -> None:
    """One file for a kind, three for a constraint; nothing else has to know them."""
    folder = tmp_path / "jobs"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=folder,
        env=edited_copy(tmp_path, NEW_KIND, NEW_CONSTRAINT),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.stdout == "all read the new rows\n", done.stderr


NEW_BUILTIN = {
    "request/builtins/graph.py": [
        (
            "BUILTINS: Final = (SCHEMA_GET,",
            """
class CountResult(msgspec.Struct, frozen=True):
    type: str
    count: int


def _count(
    tool: ToolContext, ctx: GraphContext, type: str, times: int, *, double: bool
) -> CountResult:
    del tool
    return CountResult(type, ctx.kg.counts()[type] * times * (2 if double else 1))


TYPE_COUNT: Final = Builtin(
    name="type_count",
    title="Count instances",
    description="Count the instances of a type.",
    fields=(
        field("type", "The name of a type.", required=True),
        field("times", "A factor.", "Int", default=1, min_value=1),
        field("double", "Count each twice.", "Bool", default=False),
    ),
    controls=(BRANCH, SNAPSHOT),
    result=CountResult,
    hints=READER,
    action="Read",
    run=_count,
    routes=(Route("GET", "types/{type}/count"),),
    command="type count",
)

BUILTINS: Final = (TYPE_COUNT, SCHEMA_GET,""",
        )
    ]
}


def test_a_new_builtin_is_one_declaration(tmp_path: Path) -> None:
    """It is an MCP tool, a REST route, a request of the remote client, and a command."""
    env = edited_copy(tmp_path, NEW_BUILTIN)
    folder = tmp_path / "jobs"
    folder.mkdir()
    (folder / "trails.toml").write_text('[project]\nname = "jobs"\n')
    (folder / "app.py").write_text(
        "from trails import Node, node_type\n\n\n@node_type\nclass Job(Node):\n"
        '    """Work."""\n\n    name: str\n'
    )
    (folder / "jobs.ndjson").write_text('{"type": "Job", "data": {"name": "one"}}\n')

    def trails(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "trails", *arguments],
            cwd=folder,
            env=env,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    command = ("type", "count", "Job", "--times", "3", "--double", "--json")
    wanted = {"type": "Job", "count": 6}
    trails("load", "jobs.ndjson")
    assert json.loads(trails(*command)) == wanted
    usage = trails("type", "count", "--help")
    assert "The name of a type." in usage
    assert "--snapshot" in usage
    server = subprocess.Popen(
        [sys.executable, "-m", "trails", "serve", "--port", "0", "--json"],
        cwd=folder,
        env=env,
        stdout=subprocess.PIPE,
    )
    try:
        assert server.stdout is not None
        url = json.loads(server.stdout.readline())["url"]
        assert json.loads(trails(*command)) == wanted  # through the process that serves
        assert json.loads(trails(*command, "--server", url)) == wanted
        route = f"{url}/graphs/main/types/Job/count?times=3&double=true"
        with urlopen(route) as response:  # noqa: S310 - our own server
            assert json.load(response) == wanted
        asked = {"name": "type_count", "arguments": {"type": "Job", "times": 3, "double": True}}
        assert call_tool(f"{url}/graphs/main/mcp", asked) == wanted
    finally:
        server.terminate()
        server.wait(60)
        server.stdout.close()


def call_tool(url: str, params: dict[str, object]) -> object:
    """The structured result of ``tools/call``."""
    headers = [*headers_of(MODERN, "tools/call", params), (b"content-type", b"application/json")]
    body = json.dumps(message_of(MODERN, "tools/call", params)).encode()
    given = {name.decode(): value.decode() for name, value in headers if name != b"host"}
    with urlopen(Request(url, body, given)) as response:  # noqa: S310 - our own server
        answer = json.load(response)
    return answer["result"]["structuredContent"]


def test_commands_that_are_written_by_hand_are_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under the names that the table says, so that none is made a second time."""
    monkeypatch.setattr("trails.request.operations.OPERATIONS", ())
    cli = build_cli(LocalOperations())
    by_hand = {path.removeprefix("trails ") for path, _ in leaves("trails", get_command(cli))}
    assert {each.command for each in OPERATIONS if each.command is not None} <= by_hand
