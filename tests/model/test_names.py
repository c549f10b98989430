"""Names: what may be declared, and how one name is spelled on each surface."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trails import Context, capability, meta_capability
from trails.authoring.capabilities import MARK
from trails.errors import DeclarationError, TrailsError
from trails.model.capabilities import MetaFacts
from trails.model.names import (
    BUILTIN_TOOLS,
    CONTROL_ARGUMENTS,
    RESERVED_PROJECTS,
    check_capability_id,
    check_field_name,
    check_meta_id,
    check_project_name,
    check_tool_name,
    check_type_name,
    meta_id_of_tool,
    meta_tool_name,
    portable_name,
)
from trails.request.operations import OPERATIONS

WORD = st.from_regex(r"\A[a-z][a-z0-9]*\Z")
META_ID = st.lists(WORD, min_size=1, max_size=2).map(
    lambda words: ".".join(["trails.meta", *words])
)

# ---------------------------------------------------------------------------- meta names


@pytest.mark.req("T2")
@given(META_ID)
def test_a_meta_tool_name_maps_back_to_its_id(identifier):
    """From id to tool name and back is the identity, and the name is one that clients accept."""
    tool = meta_tool_name(identifier)
    assert re.fullmatch(r"trails_meta_[a-z0-9_]+", tool)
    assert meta_id_of_tool(tool) == identifier
    check_tool_name(tool)


@pytest.mark.req("T2")
@given(META_ID, META_ID)
def test_two_meta_ids_never_share_a_tool_name(first, second):
    """The mapping is one to one."""
    assert (meta_tool_name(first) == meta_tool_name(second)) == (first == second)


@pytest.mark.req("T2")
def test_meta_tools_are_named_after_namespace_and_op():
    """With a namespace and without one."""
    assert meta_tool_name("trails.meta.ping") == "trails_meta_ping"
    assert meta_tool_name("trails.meta.gen.shape") == "trails_meta_gen_shape"
    assert MetaFacts.of("trails.meta.gen.shape", "builder") == MetaFacts("builder", "gen", "shape")
    assert MetaFacts.of("trails.meta.ping", "runtime") == MetaFacts("runtime", "", "ping")


@pytest.mark.req("T2")
@pytest.mark.parametrize(
    "identifier", ["trails.meta.gen_shape", "trails.meta.gen.node_type", "trails.meta.a_b.c"]
)
def test_an_underscore_in_a_meta_name_is_refused_when_decorated(identifier):
    """`gen_shape` and `gen.shape` would be one tool, so the decorator raises."""
    with pytest.raises(TrailsError, match="'_' is not allowed") as refused:

        @meta_capability(identifier)
        def op(ctx: Context) -> None:
            """An operation."""

    assert identifier in refused.value.message
    assert "single word" in refused.value.message


@pytest.mark.req("T2")
def test_a_decorated_meta_capability_has_the_mapped_tool_name():
    """What the decorator leaves on the function carries the name that agents call."""

    @meta_capability("trails.meta.gen.shape", scope="dev", idempotent=True)
    def op(ctx: Context) -> None:
        """An operation."""

    declared = getattr(op, MARK)
    assert declared.tool_name == "trails_meta_gen_shape"
    assert declared.meta == MetaFacts("dev", "gen", "shape")
    assert declared.descriptor.idempotent


BAD_META_IDS = ["ping", "trails.ping", "trails.meta", "trails.meta.", "trails.meta..ping"]
BAD_META_IDS += ["trails.meta.a.b.c", "trails.meta.Ping", "trails.meta.1a", "trails.meta.a-b"]
BAD_META_IDS += ["trails.meta.ping\n", " trails.meta.ping", "trailsxmeta.ping", "trails.meta.é", ""]


@pytest.mark.parametrize("identifier", BAD_META_IDS)
def test_a_meta_id_of_another_form_is_refused(identifier):
    """The error shows the form to use."""
    with pytest.raises(DeclarationError, match=r"trails\.meta\.<namespace>\.<op>"):
        check_meta_id(identifier)


@pytest.mark.parametrize(
    "tool", ["trails_meta", "trails_meta_a_b_c", "graph_query", "trails_meta_A"]
)
def test_a_tool_name_that_no_meta_id_has_does_not_map_back(tool):
    """The inverse is defined on meta tool names alone."""
    with pytest.raises(DeclarationError):
        meta_id_of_tool(tool)


# ---------------------------------------------------------------------------- control arguments


def test_the_control_arguments_are_the_documented_ones():
    """Seven names steer calls."""
    documented = {"branch", "snapshot", "dry_run", "propose", "expected_head", "idempotency_key"}
    assert documented | {"max_chars"} == CONTROL_ARGUMENTS


@pytest.mark.parametrize("name", sorted(CONTROL_ARGUMENTS))
@pytest.mark.parametrize("decorate", [capability, meta_capability])
def test_a_control_argument_is_refused_as_a_parameter(name, decorate):
    """A capability's own parameter could not be told from it."""
    identifier = "trails.meta.op" if decorate is meta_capability else "things.op"
    scope: dict[str, object] = {}
    source = f"def op(ctx, {name}: str) -> None:\n    'An operation.'"
    exec(source, scope)  # noqa: S102 - a parameter's name can't be parametrised otherwise
    with pytest.raises(DeclarationError) as refused:
        decorate(identifier)(scope["op"])
    for part in (identifier, repr(name), "control argument", "rename it"):
        assert part in refused.value.message


# ---------------------------------------------------------------------------- grammar

GRAMMARS = {
    "type": (
        check_type_name,
        ["A", "TestCase", "A1", "X" * 64],
        ["", "a", "testCase", "Test_Case", "Test-Case", "1A", "É", "A ", "A\n", "X" * 65, "A.B"],
    ),
    "field": (
        lambda name: check_field_name("Owner", name),
        ["a", "req_id", "a1", "camelCase", "a_1", "x" * 64],
        [
            "",
            "A",
            "_a",
            "a_",
            "a__b",
            "1a",
            "é",
            "a-b",
            "a.b",
            "a ",
            "a\n",
            "x" * 65,
            "\u017f",
            "a\u212a",
        ],
    ),
    "capability": (
        check_capability_id,
        ["a", "requirements.accept", "a.b_c.d1", "x" * 128],
        ["", "A.b", "a..b", ".a", "a.", "a__b", "_a", "a-b", "a b", "1a", "a.é", "a\n", "x" * 129],
    ),
    "project": (
        check_project_name,
        ["a", "my-project", "a1", "x" * 63],
        [
            "",
            "A",
            "1a",
            "-a",
            "a_b",
            "a.b",
            "a b",
            "é",
            "a\n",
            "x" * 64,
            *sorted(RESERVED_PROJECTS),
        ],
    ),
    "tool": (
        check_tool_name,
        ["a", "A.b-c_d", "9", "x" * 128],
        ["", "a b", "a/b", "é", "a\n", "x" * 129],
    ),
}


@pytest.mark.parametrize(
    ("grammar", "name"), [(each, name) for each, (_, good, _) in GRAMMARS.items() for name in good]
)
def test_a_name_of_the_grammar_is_accepted(grammar, name):
    """The longest and the oddest that is legal."""
    GRAMMARS[grammar][0](name)


@pytest.mark.parametrize(
    ("grammar", "name"), [(each, name) for each, (_, _, bad) in GRAMMARS.items() for name in bad]
)
def test_a_name_outside_the_grammar_is_refused(grammar, name):
    """The error shows the name and says how to write one."""
    with pytest.raises(DeclarationError) as refused:
        GRAMMARS[grammar][0](name)
    message = refused.value.message
    assert name in message or repr(name) in message
    assert re.search(r"use|start|rename|choose|characters", message)


def test_the_reserved_project_names_are_those_of_built_in_resources():
    """Each addresses something in the trails: scheme."""
    documented = {"kg", "schema", "stats", "doctor", "prov", "branches", "queries", "branch", "at"}
    assert documented == RESERVED_PROJECTS


def test_a_capability_may_not_use_the_frameworks_prefix():
    """Operations on the application have their own decorator, which the error names."""
    with pytest.raises(DeclarationError, match="@meta_capability"):
        check_capability_id("trails.meta.ping")


def test_a_portable_name_has_neither_dots_nor_dashes():
    """Some clients refuse both."""
    assert portable_name("a.b-c_d") == "a_b_c_d"
    assert {portable_name(name) for name in BUILTIN_TOOLS} == BUILTIN_TOOLS
    offered = {each.name for each in OPERATIONS if each.offered != "never"}
    assert offered <= BUILTIN_TOOLS
