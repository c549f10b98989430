"""Names and arguments of tools: what clients take, and what doctor says about the rest."""

import asyncio
import json
import re

import pytest

from trails import App, Context, capability
from trails.app.kernels import kernel_of
from trails.model.actors import LOCAL
from trails.model.results import Success
from trails.projections.examine import examine_tools

LONG = "research." + "_".join(["word"] * 12)


@capability("research.search")
def search(ctx: Context, text: str) -> str:
    """Search."""
    return text


@capability(LONG)
def wordy(ctx: Context, text: str) -> str:
    """A long name."""
    return text


@capability("mail")
def mail(ctx: Context, api_key: str, tokens_most: int) -> str:
    """Send."""
    return api_key * tokens_most


def advice(*capabilities):
    """What doctor says of some capabilities."""
    with App(capabilities=capabilities) as app:
        return [(each.name, each.severity, each.detail) for each in examine_tools(app.registry())]


@pytest.mark.req("G19")
def test_a_name_with_dots_is_called_with_underscores_too():
    """Both spellings reach the same capability; nothing else does."""
    with App(capabilities=[search]) as app:
        kernel = kernel_of(app)
        for name in ("research.search", "research_search"):
            done = asyncio.run(kernel.execute(LOCAL, name, {"text": "x"}))
            assert isinstance(done, Success)
            assert json.loads(done.body) == {"result": "x"}
        missing = asyncio.run(kernel.execute(LOCAL, "research-search2", {"text": "x"}))
        assert missing.message == "unknown tool: research-search2"
        kernel.close()


@pytest.mark.req("G19")
def test_every_tool_that_is_listed_has_a_name_that_mcp_allows():
    """1 to 128 characters of a small alphabet, built-ins included."""
    with App(capabilities=[search, wordy, mail]) as app:
        kernel = kernel_of(app)
        listed = [tool.name for tool in kernel.tools(LOCAL).tools]
        kernel.close()
    assert {"research.search", LONG, "graph_query"} <= set(listed)
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]{1,128}", name) for name in listed)


@pytest.mark.req("G19")
def test_doctor_warns_where_a_common_client_would_refuse_a_name():
    """Dots and lengths above 64 are told; names that all take are not."""
    assert advice(mail)[0][:2] == ("tool names", "ok")
    told = advice(search, wordy)
    assert [name for name, status, _ in told if status == "note"] == ["tool names"] * 2
    assert LONG in told[0][2]
    assert "research.search" in told[1][2]
    assert "'research_search'" in told[1][2]


@pytest.mark.req("G19")
def test_doctor_warns_of_arguments_that_ask_for_secrets():
    """A parameter named like a secret is told; one that only sounds like it is not."""
    told = [detail for name, _, detail in advice(mail) if name == "secrets"]
    assert len(told) == 1
    assert "api_key" in told[0]
    assert "tokens_most" not in told[0]


@pytest.mark.req("G19")
def test_no_tool_of_the_framework_asks_for_a_secret():
    """Credentials travel in the transport; no built-in has an argument for one."""
    with App() as app:
        kernel = kernel_of(app)
        for tool in kernel.tools(LOCAL).tools:
            for name in tool.input_schema["properties"]:
                assert not re.search("secret|token|password|credential|key$", name) or (
                    name == "idempotency_key"
                )
        kernel.close()


def test_doctor_tells_while_a_graph_is_served():
    """The doctor document of a kernel has what the command tells: tools, sandbox, data."""
    with App(capabilities=[search]) as app:
        kernel = kernel_of(app)
        (content,) = asyncio.run(kernel.read(LOCAL, "trails://doctor"))
        kernel.close()
    names = [each["name"] for each in json.loads(content.text)["findings"]]
    assert {"settings", "tool names", "sandbox", "log", "node index"} <= set(names)
