"""``trails.meta.gen.*`` and ``files.apply``: one diff on every surface, and what is refused."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.worlds.graphs import Calls
from tests.worlds.processes import Shell
from tests.worlds.surfaces import MODERN, Wires

from trails import App
from trails.engine.upkeep.scaffold import scaffold_project
from trails.model.actors import LOCAL, OPERATOR, Actor
from trails.model.changes.file_diffs import FileChange, make_diff
from trails.model.names import BUILTIN_TOOLS, meta_id_of_tool
from trails.model.results import Failure
from trails.request.meta import META_OPERATIONS

DEV = Actor("dora", frozenset({"runtime", "builder", "dev"}), frozenset(), "token")
BUILDER = Actor("bob", frozenset({"runtime", "builder"}), frozenset(), "token")
HOSTILE = '"""\n    evil = __import__("os").system("x")\n    """ \' \\ {} $( )'
DROP = {"step": "drop_field", "type": "Task", "field": "priority"}

CASES = {
    "nodetype": (
        {
            "name": "Team",
            "description": "People who work together.",
            "fields": [
                {"name": "title", "type": "str", "label": True, "min_length": 3},
                {"name": "lead", "type": "Ref[Person] | None"},
                {"name": "kind", "type": "str", "one_of": ["a", "b"], "default": "a"},
                {"name": "founded", "type": "date"},
            ],
        },
        ["Team", "title:str(label,min_length=3)", "lead:Ref[Person]?", "kind:str(one_of=a|b)=a",
         "founded:date", "--description", "People who work together."],
    ),
    "edgetype": (
        {
            "name": "Helps",
            "source": "Person",
            "target": "Task",
            "fields": [{"name": "hours", "type": "int", "default": 1}],
            "per_source": [0, 3],
            "description": "Who helps.",
        },
        ["Helps", "Person", "Task", "hours:int=1", "--per-source", "0,3", "-d", "Who helps."],
    ),
    "shape": (
        {
            "name": "Short",
            "target": "Task",
            "fields": [{"name": "title", "type": "str", "max_length": 40}],
            "description": "Short titles.",
        },
        ["Short", "title:str(max_length=40)", "--target", "Task", "-d", "Short titles."],
    ),
    "capability": (
        {"id": "tasks.add", "description": "Add a task.", "does": "create", "type": "Task"},
        ["tasks.add", "-d", "Add a task.", "--does", "create", "--type", "Task"],
    ),
    "query": (
        {"name": "by_status", "description": "Tasks.", "type": "Task", "where": ["status"]},
        ["by_status", "Task", "-d", "Tasks.", "--where", "status"],
    ),
    "policy": (
        {"name": "agents", "group": "agents", "actions": ["Read"], "branch": "agents/*"},
        ["agents", "--group", "agents", "--action", "Read", "--branch", "agents/*"],
    ),
    "app": ({"graph": "archive", "description": "Old."}, ["archive", "-d", "Old."]),
    "plugin": (
        {"name": "bank-holidays", "description": 'Days off: "all".'},
        ["bank-holidays", "-d", 'Days off: "all".'],
    ),
    "migration": (
        {"name": "drop_priority", "steps": [DROP]},
        ["drop_priority", "--step", json.dumps(DROP)],
    ),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A new project."""
    return scaffold_project(tmp_path / "acme", None)[0]


@pytest.fixture
def calls(folder: Path):
    """Its kernel."""
    found = Calls(App.open(folder))
    yield found
    found.close()


def diff_in(result: dict) -> dict:
    """The diff of a result; a migration has no notes, so it is the diff."""
    return result.get("diff", result)


def generate(calls: Calls, operation: str, /, **arguments: object):
    """The diff of a generator."""
    return calls.result(f"trails_meta_gen_{operation}", arguments, DEV)


def text_of(folder: Path, found: dict, path: str = "app.py") -> str:
    """The new text of a file in a diff."""
    (change,) = [each for each in found["diff"]["files"] if each["path"] == path]
    before = (folder / path).read_text() if (folder / path).exists() else None
    return msgspec.convert(change, FileChange).applied_to(before)


def faults(calls: Calls, operation: str, /, **arguments: object) -> dict[str, str]:
    """The fields of a refused call, with their messages."""
    refused = calls.failure(f"trails_meta_gen_{operation}", arguments, DEV)
    assert refused.code == "validation", refused
    return {each["field"]: each["message"] for each in refused.data["fields"]}


class TestSurfaces:
    def test_every_generator_has_a_case(self):
        """So that none is left out below."""
        names = {each.name for each in META_OPERATIONS if each.name.startswith("trails_meta_gen_")}
        assert names == {f"trails_meta_gen_{name}" for name in CASES}

    @pytest.mark.req("T19")
    @pytest.mark.parametrize("operation", CASES)
    def test_one_input_gives_the_same_bytes_on_every_surface(self, tmp_path: Path, operation: str):
        """MCP by both doors and by lines, REST, and the command line; nothing is written."""
        arguments, words = CASES[operation]
        folder, _ = scaffold_project(tmp_path / "acme", None)
        before = {path: path.read_bytes() for path in folder.rglob("*.*") if path.is_file()}
        diffs = {}
        shell = Shell(folder)
        diffs["cli"] = diff_in(shell.json("generate", operation, *words))
        text = shell.out("generate", operation, *words)
        with App.open(folder) as app, Wires(app) as wires:
            params = {"name": f"trails_meta_gen_{operation}", "arguments": arguments}
            for at, reply in enumerate(wires.by_doors(MODERN, "tools/call", params, DEV)):
                diffs[f"door {at}"] = diff_in(reply.message["result"]["structuredContent"])
            (line,) = wires.by_lines(MODERN, "tools/call", params, DEV)
            diffs["lines"] = diff_in(line["result"]["structuredContent"])
            reply = wires.rest("POST", f"/admin/gen.{operation}", arguments, DEV)
            diffs["rest"] = diff_in(json.loads(reply.body))
        spelled = {json.dumps(each) for each in diffs.values()}
        assert len(spelled) == 1, diffs
        assert diffs["cli"]["unified"] in text
        assert before == {path: path.read_bytes() for path in before}

    def test_the_command_line_applies_and_reloads(self, folder: Path):
        """What was applied can be used by the next command, and by the same one."""
        shell = Shell(folder)
        said = shell.out("generate", "nodetype", "Team", "title", "--apply", "--reload")
        assert "Changed app.py." in said
        assert "In use now." in said
        shell.out("generate", "capability", "teams.add", "-d", "Add.", "--does", "create",
                  "--type", "Team", "--apply")  # fmt: skip
        assert shell.json("call", "teams.add", "--title", "One")["title"] == "One"
        assert "Team" in shell.out("schema")

    @pytest.mark.parametrize(
        ("words", "part"),
        [
            (["nodetype", "Team", "title:strn"], "did you mean 'str'"),
            (["nodetype", "Team", "title:str(min_lenth=3)"], "did you mean 'min_length'"),
            (["nodetype", "Team", "title:str(min_length=3"], "not closed"),
            (["nodetype", "Team", "9"], "begins with a name"),
            (["nodetype", "Team", "--reload"], "--reload needs --apply"),
            (["edgetype", "A", "Task", "Task", "--per-source", "x"], "LEAST,MOST"),
        ],
    )
    def test_the_command_line_explains_mistakes(self, folder: Path, words, part: str):
        """With the value, the rule, and what to write instead."""
        assert part in Shell(folder).error("generate", *words)


class TestCatalogue:
    @pytest.mark.req("T1", "T2", "T3", "T8")
    def test_meta_tools_are_listed_with_their_facts(self, calls: Calls):
        """Kind, scope, namespace and op; names map back; schemas are flat."""
        tools = {each.name: each for each in calls.kernel.tools(DEV).tools}
        assert list(tools) == sorted(tools)
        for each in META_OPERATIONS:
            tool = tools[each.name]
            assert tool.meta is not None
            assert tool.kind == "meta"
            words = [word for word in (tool.meta.namespace, tool.meta.op) if word]
            if each.name != "schema_apply":  # a built-in with a name of its own
                assert meta_id_of_tool(each.name) == ".".join(("trails.meta", *words))
            assert each.name in BUILTIN_TOOLS
            assert tool.meta.scope == each.meta.scope
            assert "$ref" not in json.dumps(tool.input_schema)

    @pytest.mark.req("T6", "T7")
    @pytest.mark.parametrize("operation", sorted({*CASES, "apply"} - {"migration"}))
    def test_the_scope_decides_at_the_call(self, calls: Calls, operation: str):
        """Who lacks it does not see the tool, and a call is refused without an effect."""
        name = "trails_meta_files_apply" if operation == "apply" else f"trails_meta_gen_{operation}"
        for actor in (BUILDER, LOCAL):
            assert name not in {each.name for each in calls.kernel.tools(actor).tools}
            refused = calls.failure(name, {}, actor)
            assert refused.kind == ("unauthenticated" if actor is LOCAL else "scope"), refused
            assert refused.data["required_scope"] == "dev"

    @pytest.mark.req("T23")
    def test_production_has_no_development_tools(self, folder: Path):
        """They are not listed, and a call is answered as for an unknown name."""
        settings = folder / "trails.toml"
        settings.write_text(settings.read_text().replace("development", "production"))
        found = Calls(App.open(folder, apply_schema=True))
        listed = {each.name for each in found.kernel.tools(OPERATOR).tools}
        for each in META_OPERATIONS:
            if each.meta.scope == "dev":
                assert each.name not in listed
                refused = found.failure(each.name, {}, OPERATOR)
                unknown = found.failure("trails_meta_gen_nothing", {}, OPERATOR)
                assert (refused.kind, refused.code) == (unknown.kind, unknown.code)
        found.close()


class TestCollisions:
    @pytest.mark.parametrize(
        ("operation", "arguments", "field"),
        [
            ("nodetype", {"name": "Task"}, "name"),
            ("nodetype", {"name": "Node"}, "name"),
            ("nodetype", {"name": "lower"}, "name"),
            ("nodetype", {"name": "New\nline"}, "name"),
            ("nodetype", {"name": "X", "extends": "Tsk"}, "extends"),
            ("nodetype", {"name": "X", "iri": "Task"}, "iri"),
            ("nodetype", {"name": "X", "fields": [{"name": "id"}]}, "fields[0]"),
            ("nodetype", {"name": "X", "fields": [{"name": "a", "type": "x"}]}, "fields[0].type"),
            ("nodetype", {"name": "X", "unique": [["a"]]}, "name"),
            ("edgetype", {"name": "X", "source": "Task", "target": "Tsk"}, "target"),
            ("shape", {"name": "Task"}, "name"),
            ("shape", {"name": "X", "target": "Task", "fields": [{"name": "no"}]}, "fields[0]"),
            ("capability", {"id": "tasks.finish", "description": "x"}, "id"),
            ("capability", {"id": "graph_query", "description": "x"}, "id"),
            ("capability", {"id": "trails.x", "description": "x"}, "id"),
            ("capability", {"id": "a.b", "description": "x", "does": "create"}, "does"),
            (
                "capability",
                {"id": "a.b", "description": "x", "parameters": [{"name": "branch"}]},
                "parameters[0].name",
            ),
            (
                "capability",
                {"id": "a.b", "description": "x", "parameters": [{"name": "class"}]},
                "parameters[0].name",
            ),
            ("capability", {"id": "a.b", "description": "x", "returns": "Tsk"}, "returns"),
            ("query", {"name": "../x", "description": "x", "type": "Task"}, "name"),
            ("query", {"name": "x", "description": "x", "type": "Tsk"}, "type"),
            (
                "query",
                {"name": "x", "description": "x", "type": "Task", "where": ["a"]},
                "where[0]",
            ),
            ("query", {"name": "search", "description": "x", "type": "Task"}, "name"),
            ("policy", {"name": "x", "actions": ["Read"]}, "group"),
            ("policy", {"name": "x", "actions": ["Reed"], "group": "g"}, "actions[0]"),
            (
                "policy",
                {"name": "x", "actions": ["Read"], "group": "g", "resource": "Type::Tsk"},
                "resource",
            ),
            (
                "policy",
                {"name": "x", "actions": ["Read"], "group": "g", "resource": "x"},
                "resource",
            ),
            ("app", {"graph": "main"}, "graph"),
            ("app", {"graph": "Not/a name"}, "graph"),
        ],
    )
    def test_what_can_not_be_generated_names_the_field(
        self, calls: Calls, operation: str, arguments, field: str
    ):
        """Before anything is returned."""
        assert field in faults(calls, operation, **arguments)

    def test_a_file_that_exists_is_not_replaced(self, calls: Calls, folder: Path):
        """Of a query, a policy and a graph."""
        for path in ("queries/x.rq", "policies/x.cedar", "other/app.py"):
            (folder / path).parent.mkdir(exist_ok=True)
            (folder / path).write_text("// mine\n")
        assert (
            "exists already"
            in faults(calls, "query", name="x", description="x", type="Task")["name"]
        )
        assert (
            "exists already"
            in faults(calls, "policy", name="x", actions=["Read"], group="g")["name"]
        )
        assert "exists already" in faults(calls, "app", graph="other")["graph"]


class TestCode:
    def test_generated_code_can_be_loaded_checked_and_used(self, folder: Path):
        """All generators after one another; ruff and strict mypy have no complaint."""
        (folder / "ruff.toml").write_text('[lint]\nextend-select = ["I", "D", "UP"]\n')
        calls = Calls(App.open(folder))
        capabilities = [
            {"id": f"teams.{verb}", "description": f"{verb.title()} it.", "does": verb,
             "type": "Team", "fields": ["kind"] if verb == "list" else []}
            for verb in ("create", "update", "delete", "list")
        ]  # fmt: skip
        capabilities.append(
            {"id": "teams.review", "description": "Review it.", "returns": "list[Team]",
             "parameters": [{"name": "team", "type": "Ref[Team]"}, {"name": "days", "type": "int",
                             "min_value": 1, "default": 3}]}
        )  # fmt: skip
        planned = [(name, CASES[name][0]) for name in ("nodetype", "edgetype", "shape")]
        planned += [("capability", each) for each in capabilities]
        planned += [
            ("query", {"name": "teams", "description": "Teams.", "type": "Team", "where": ["kind"]})
        ]
        for operation, arguments in planned:
            found = generate(calls, operation, **arguments)
            given = {"files": found["diff"]["files"], "reload": True}
            applied = calls.result("trails_meta_files_apply", given, DEV)
            assert applied["reload"]["status"] == "reloaded", applied
        made = calls.result("teams.create", {"title": "One", "founded": "2026-01-01"})
        changed = calls.result("teams.update", {"team": made["iri"], "kind": "b"})
        assert (changed["title"], changed["kind"]) == ("One", "b")
        assert len(calls.result("teams.list", {"kind": "b"})["result"]) == 1
        assert calls.result("teams.list", {"kind": "a"})["result"] == []
        assert calls.result("teams", {"params": {"kind": "b"}})["rows"]
        assert not calls.result("teams", {"params": {"kind": "a"}})["rows"]
        unwritten = calls.failure("teams.review", {"team": made["iri"]})
        assert "not written yet" in unwritten.message
        calls.result("teams.delete", {"team": made["iri"]})
        assert calls.result("teams.list", {})["result"] == []
        calls.close()
        for command in (["ruff", "format", "--diff"], ["ruff", "check"], ["mypy", "--strict"]):
            done = subprocess.run(
                [sys.executable, "-m", *command, "app.py"],
                capture_output=True,
                text=True,
                check=False,
                cwd=folder,
            )
            assert done.returncode == 0, done.stdout + done.stderr

    @settings(
        max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(text=st.one_of(st.text(min_size=1), st.just(HOSTILE)))
    def test_a_hostile_text_stays_a_text(self, calls: Calls, folder: Path, text: str):
        """In descriptions, defaults and patterns; the file has one more class or function."""
        arguments = {
            "name": "Team",
            "description": text,
            "fields": [{"name": "a", "default": text, "description": text}],
        }
        for operation, given_ in (
            ("nodetype", arguments),
            ("capability", {"id": "x.y", "description": text, "parameters": arguments["fields"]}),
        ):
            tool = f"trails_meta_gen_{operation}"
            outcome = calls.outcome(tool, given_, DEV)
            if isinstance(outcome, Failure):
                assert outcome.code == "validation"
                continue
            before = ast.parse((folder / "app.py").read_text()).body
            after = ast.parse(text_of(folder, json.loads(outcome.body))).body
            kept = {ast.dump(each) for each in before}
            added = [
                each
                for each in after
                if ast.dump(each) not in kept and not isinstance(each, ast.ImportFrom)
            ]
            assert len(added) == 1
            assert isinstance(added[0], ast.ClassDef | ast.FunctionDef)
            assert not any(
                isinstance(each, ast.Name) and each.id in {"evil", "__import__"}
                for each in ast.walk(added[0])
            )

    @pytest.mark.parametrize("text", [HOSTILE, "a: b # c", "- x", "a\u2028b", "it's"])
    def test_a_hostile_text_stays_one_in_other_languages(
        self, calls: Calls, folder: Path, text: str
    ):
        """YAML of queries, Cedar and TOML of policies."""
        query = generate(calls, "query", name="q", description=text, type="Task")
        line = text_of(folder, query, "queries/q.rq").split("\n")[0]
        assert yaml.safe_load(line.removeprefix("#+ ")) == {"description": text}
        policy = generate(
            calls, "policy", name="p", description=text, actions=["Read"], group=text[:100]
        )
        assert text_of(folder, policy, "policies/p.cedar").count("permit (") == 1
        cases = tomllib.loads(text_of(folder, policy, "policies/tests.toml"))
        assert cases["case"][0]["groups"] == [text[:100]]

    def test_a_line_is_as_wide_as_the_project_says(self, calls: Calls, folder: Path):
        """The setting of ruff counts."""
        arguments = {
            "name": "Team",
            "fields": [{"name": "a", "min_length": 3, "max_length": 200, "description": "x" * 60}],
        }
        narrow = text_of(folder, generate(calls, "nodetype", **arguments))
        (folder / "pyproject.toml").write_text("[tool.ruff]\nline-length = 120\n")
        wide = text_of(folder, generate(calls, "nodetype", **arguments))
        assert max(map(len, narrow.splitlines())) <= 88 < max(map(len, wide.splitlines())) <= 120


class TestApply:
    def test_a_broken_change_is_reported_and_the_old_declarations_stay(
        self, calls: Calls, folder: Path
    ):
        """The files are written; what runs is not touched."""
        before = (folder / "app.py").read_text()
        diff = make_diff({"app.py": (before, before + "\n1 / 0\n")})
        given = {"files": msgspec.to_builtins(diff.files), "reload": True}
        applied = calls.result("trails_meta_files_apply", given, DEV)
        assert applied["reload"]["status"] == "failed"
        assert "ZeroDivisionError" in applied["reload"]["error"]["message"]
        assert "Task" in calls.app.registry().types

    def test_nothing_runs_without_reload(self, calls: Calls, folder: Path):
        """What was written is a text until then."""
        mark = folder.parent / "ran"
        text = f"open({str(mark)!r}, 'w')\n"
        diff = make_diff({"extra.py": (None, text), "app.py": _appended(folder, "import extra\n")})
        given = {"files": msgspec.to_builtins(diff.files)}
        calls.result("trails_meta_files_apply", given, DEV)
        assert not mark.exists()

    @pytest.mark.parametrize(
        "path", ["../x.py", "/etc/x.py", ".trails/x.py", ".git/x.py", "a\\b.py", "x.sh"]
    )
    def test_a_path_elsewhere_is_refused(self, calls: Calls, folder: Path, path: str):
        """As a field of the call."""
        change = {"path": path, "change": "create", "digest": "0" * 64, "content": "x"}
        refused = calls.failure("trails_meta_files_apply", {"files": [change]}, DEV)
        assert refused.code == "validation"
        assert refused.data["fields"][0]["field"] == "files[0].path"


def _appended(folder: Path, text: str) -> tuple[str, str]:
    before = (folder / "app.py").read_text()
    return before, before + text
