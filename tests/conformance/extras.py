"""What the suite asks for and Trails does not offer: handlers of this fixture alone.

Pictures, sounds, progress, log messages, prompts, and requests to the client.
They stand beside the surface's own handlers, which get whatever is not theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError
from tests.conformance.fixture import NOTHING, describe

from trails.model.capabilities import ToolList
from trails.surfaces.mcp.results import list_tools as list_tools_of

Answer = types.CallToolResult | types.InputRequiredResult
Context = ServerRequestContext[Any, Any]
Params = types.CallToolRequestParams
Questions = Mapping[str, types.InputRequest]


def text(value: str) -> types.CallToolResult:
    """A result of one text."""
    return types.CallToolResult(content=[types.TextContent(type="text", text=value)])


def ask_form(message: str, **fields: str) -> types.ElicitRequest:
    """Ask the user for some fields, each of a JSON type."""
    return types.ElicitRequest(
        params=types.ElicitRequestFormParams(
            message=message,
            requested_schema={
                "type": "object",
                "properties": {name: {"type": kind} for name, kind in fields.items()},
                "required": list(fields),
            },
        )
    )


def ask_model(question: str, max_tokens: int = 100) -> types.CreateMessageRequest:
    """Ask the client's model."""
    content = types.TextContent(type="text", text=question)
    message = types.SamplingMessage(role="user", content=content)
    return types.CreateMessageRequest(
        params=types.CreateMessageRequestParams(messages=[message], max_tokens=max_tokens)
    )


SINGLE: Final[Mapping[str, Questions]] = {
    "test_input_required_result_elicitation": {
        "user_name": ask_form("What is your name?", name="string")
    },
    "test_input_required_result_sampling": {
        "capital_question": ask_model("What is the capital of France?")
    },
    "test_input_required_result_list_roots": {"client_roots": types.ListRootsRequest()},
    "test_streaming_elicitation": {"user_name": ask_form("What is your name?", name="string")},
}
STATEFUL: Final[Mapping[str, Questions]] = {
    "test_input_required_result_request_state": {"confirm": ask_form("Confirm", ok="boolean")},
    "test_input_required_result_tampered_state": {"confirm": ask_form("Confirm", ok="boolean")},
    "test_input_required_result_multiple_inputs": {
        "user_name": ask_form("What is your name?", name="string"),
        "greeting": ask_model("Generate a greeting", 50),
        "client_roots": types.ListRootsRequest(),
    },
}
STEPS: Final = (
    ("step1", ask_form("Step 1: What is your name?", name="string")),
    ("step2", ask_form("Step 2: What is your favorite color?", color="string")),
)


def missing(questions: Questions, responses: types.InputResponses | None) -> bool:
    """Whether something that was asked is not answered yet."""
    return not questions.keys() <= (responses or {}).keys()


def told(responses: types.InputResponses | None) -> str:
    """The answers, as text."""
    found = (f"{key}={value.model_dump(mode='json')}" for key, value in (responses or {}).items())
    return ", ".join(found)


async def ask_once(ctx: Context, params: Params) -> Answer:
    """Ask; with the answers, tell them."""
    questions = SINGLE[params.name]
    if missing(questions, params.input_responses):
        return types.InputRequiredResult(input_requests=dict(questions))
    return text(f"Hello, {told(params.input_responses)}!")


async def ask_with_state(ctx: Context, params: Params) -> Answer:
    """Ask; with the answers and the state that was given, say that it is intact."""
    questions = STATEFUL[params.name]
    if missing(questions, params.input_responses) or params.request_state != params.name:
        return types.InputRequiredResult(input_requests=dict(questions), request_state=params.name)
    return text(f"state-ok: {told(params.input_responses)}")


async def ask_in_steps(ctx: Context, params: Params) -> Answer:
    """Ask one thing after the other; the state says how far we are."""
    done = int(params.request_state or 0)
    if params.request_state is not None and STEPS[done][0] in (params.input_responses or {}):
        done += 1
    if done == len(STEPS):
        return text("All steps are done.")
    key, question = STEPS[done]
    return types.InputRequiredResult(input_requests={key: question}, request_state=str(done))


async def ask_if_able(ctx: Context, params: Params) -> Answer:
    """Ask only what the client said that it can answer."""
    questions: dict[str, types.InputRequest] = {}
    if ctx.session.check_client_capability(
        types.ClientCapabilities(sampling=types.SamplingCapability())
    ):
        questions["model"] = ask_model("Are you there?")
    if ctx.session.check_client_capability(
        types.ClientCapabilities(elicitation=types.ElicitationCapability())
    ):
        questions["user"] = ask_form("Are you there?", there="boolean")
    if not questions or not missing(questions, params.input_responses):
        return text("Nothing to ask.")
    return types.InputRequiredResult(input_requests=questions)


async def need_sampling(ctx: Context, params: Params) -> Answer:
    """Refuse a client that did not say that it samples."""
    required = types.ClientCapabilities(sampling=types.SamplingCapability())
    if ctx.session.check_client_capability(required):
        return text("The client samples.")
    data = types.MissingRequiredClientCapabilityErrorData(required_capabilities=required)
    raise MCPError(
        code=types.MISSING_REQUIRED_CLIENT_CAPABILITY,
        message="the client did not declare sampling",
        data=data.model_dump(by_alias=True, mode="json", exclude_none=True),
    )


ROUNDS: Final = {
    **dict.fromkeys(SINGLE, ask_once),
    **dict.fromkeys(STATEFUL, ask_with_state),
    "test_input_required_result_multi_round": ask_in_steps,
    "test_input_required_result_capabilities": ask_if_able,
    "test_missing_capability": need_sampling,
}


PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5E"
    "rkJggg=="
)
SILENCE: Final = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA="
PAUSE: Final = 0.05
BINARY: Final = "test://static-binary"
CONTEXT: Final = {"user_context": ask_form("What context should the prompt use?", context="string")}

DEFAULTS: Final[Mapping[str, object]] = {
    "name": {"type": "string", "default": "John Doe"},
    "age": {"type": "integer", "default": 30},
    "score": {"type": "number", "default": 95.5},
    "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
    "verified": {"type": "boolean", "default": True},
}
CHOICES: Final = ["option1", "option2", "option3"]
TITLED: Final = [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2, 3)]
ENUMS: Final[Mapping[str, object]] = {
    "untitledSingle": {"type": "string", "enum": CHOICES},
    "titledSingle": {"type": "string", "oneOf": TITLED},
    "legacyEnum": {
        "type": "string",
        "enum": ["opt1", "opt2", "opt3"],
        "enumNames": ["Option One", "Option Two", "Option Three"],
    },
    "untitledMulti": {"type": "array", "items": {"type": "string", "enum": CHOICES}},
    "titledMulti": {"type": "array", "items": {"anyOf": TITLED}},
}


def picture() -> types.ImageContent:
    """One pixel."""
    return types.ImageContent(type="image", data=PIXEL, mime_type="image/png")


def embedded(uri: str, mime_type: str, value: str) -> types.EmbeddedResource:
    """A document inside a result."""
    return types.EmbeddedResource(
        type="resource",
        resource=types.TextResourceContents(uri=uri, mime_type=mime_type, text=value),
    )


CONTENTS: Final[Mapping[str, list[types.ContentBlock]]] = {
    "test_image_content": [picture()],
    "test_audio_content": [
        types.AudioContent(type="audio", data=SILENCE, mime_type="audio/wav"),
    ],
    "test_embedded_resource": [
        embedded("test://embedded-resource", "text/plain", "This is an embedded resource content.")
    ],
    "test_multiple_content_types": [
        types.TextContent(type="text", text="Multiple content types test:"),
        picture(),
        embedded(
            "test://mixed-content-resource", "application/json", '{"test":"data","value":123}'
        ),
    ],
}


async def show(ctx: Context, params: Params) -> Answer:
    """Return fixed content."""
    return types.CallToolResult(content=CONTENTS[params.name])


async def log_along(ctx: Context, params: Params) -> Answer:
    """Log three messages while working."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.session.send_log_message(
            level="info", data=message, related_request_id=ctx.request_id
        )
        await asyncio.sleep(PAUSE)
    return text("Logged.")


async def progress_along(ctx: Context, params: Params) -> Answer:
    """Report progress while working."""
    for done in (0, 50, 100):
        await ctx.session.report_progress(done, 100)
        await asyncio.sleep(PAUSE)
    return text("Done.")


async def sample(ctx: Context, params: Params) -> Answer:
    """Ask the client's model while the call waits (revisions with sessions)."""
    content = types.TextContent(type="text", text=str((params.arguments or {}).get("prompt", "")))
    answer = await ctx.session.create_message(
        messages=[types.SamplingMessage(role="user", content=content)],
        max_tokens=100,
        related_request_id=ctx.request_id,
    )
    found = answer.content
    return text(f"LLM response: {found.text if found.type == 'text' else found.type}")


def eliciting(
    message: str | None, properties: Mapping[str, object], required: list[str]
) -> Callable[[Context, Params], Awaitable[Answer]]:
    """A tool that asks the user while the call waits (revisions with sessions)."""

    async def elicit(ctx: Context, params: Params) -> Answer:
        schema = {"type": "object", "properties": dict(properties), "required": required}
        asked = message or str((params.arguments or {}).get("message", ""))
        answer = await ctx.session.elicit_form(asked, schema, ctx.request_id)
        return text(f"Elicitation completed: action={answer.action}, content={answer.content}")

    return elicit


WORKING: Final[Mapping[str, Callable[[Context, Params], Awaitable[Answer]]]] = {
    **dict.fromkeys(CONTENTS, show),
    **ROUNDS,
    "test_logging_tool": log_along,
    "test_tool_with_logging": log_along,
    "test_tool_with_progress": progress_along,
    "test_sampling": sample,
    "test_elicitation": eliciting(
        None, {"username": {"type": "string"}, "email": {"type": "string"}}, ["username", "email"]
    ),
    "test_elicitation_sep1034_defaults": eliciting("Review the defaults", DEFAULTS, []),
    "test_elicitation_sep1330_enums": eliciting("Choose", ENUMS, []),
}
APART: Final = frozenset({*WORKING, BINARY})
"""Names and URIs that are none of the surface's business."""
PROMPTS: Final = (
    types.Prompt(name="test_simple_prompt", description="A simple prompt."),
    types.Prompt(
        name="test_prompt_with_arguments",
        description="A prompt with two arguments.",
        arguments=[
            types.PromptArgument(name="arg1", description="First", required=True),
            types.PromptArgument(name="arg2", description="Second", required=True),
        ],
    ),
    types.Prompt(
        name="test_prompt_with_embedded_resource",
        description="A prompt that embeds a resource.",
        arguments=[types.PromptArgument(name="resourceUri", description="Which", required=True)],
    ),
    types.Prompt(name="test_prompt_with_image", description="A prompt with a picture."),
    types.Prompt(name="test_input_required_result_prompt", description="A prompt that asks."),
)


async def list_prompts(
    ctx: Context, params: types.PaginatedRequestParams
) -> types.ListPromptsResult:
    """The prompts, with how long they may be kept."""
    return types.ListPromptsResult(prompts=list(PROMPTS), ttl_ms=0, cache_scope="private")


async def get_prompt(
    ctx: Context, params: types.GetPromptRequestParams
) -> types.GetPromptResult | types.InputRequiredResult:
    """One prompt, filled in."""
    given = params.arguments or {}
    if params.name == "test_input_required_result_prompt":
        if missing(CONTEXT, params.input_responses):
            return types.InputRequiredResult(input_requests=dict(CONTEXT))
        return prompt("With the context that was given.")
    if params.name == "test_prompt_with_arguments":
        arguments = f"arg1='{given.get('arg1')}', arg2='{given.get('arg2')}'"
        return prompt(f"Prompt with arguments: {arguments}")
    if params.name == "test_prompt_with_embedded_resource":
        document = embedded(
            given["resourceUri"], "text/plain", "Embedded resource content for testing."
        )
        return prompt("Please process the embedded resource above.", document)
    if params.name == "test_prompt_with_image":
        return prompt("Please analyze the image above.", picture())
    return prompt("This is a simple prompt for testing.")


def prompt(value: str, *before: types.ContentBlock) -> types.GetPromptResult:
    """A prompt of some blocks and a text."""
    blocks = [*before, types.TextContent(type="text", text=value)]
    return types.GetPromptResult(
        messages=[types.PromptMessage(role="user", content=block) for block in blocks]
    )


async def set_level(ctx: Context, params: types.SetLevelRequestParams) -> types.EmptyResult:
    """Accept a level; the fixture logs at one level only."""
    return types.EmptyResult()


async def promise_less(ctx: Context, call_next: CallNext) -> HandlerResult:
    """The prompts never change, so nobody is promised to be told."""
    result = await call_next(ctx)
    if ctx.method == "server/discover" and isinstance(result, dict):
        result["capabilities"]["prompts"].pop("listChanged", None)
    return result


def install(server: Server[Any]) -> None:
    """Put the handlers on a server, before its own."""
    server.middleware.append(promise_less)
    server.middleware.append(
        RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="conformance")
    )
    server.add_request_handler("prompts/list", types.PaginatedRequestParams, list_prompts)
    server.add_request_handler("prompts/get", types.GetPromptRequestParams, get_prompt)
    server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, set_level)
    _extend_tools(server)
    _extend_resources(server)
    _extend_completions(server)


def _own(server: Server[Any], method: str) -> Callable[[Context, Any], Awaitable[Any]]:
    """The handler that the surface has for a method."""
    entry = server.get_request_handler(method)
    assert entry is not None, f"the surface has no {method}"
    return entry.handler


def _extend_tools(server: Server[Any]) -> None:
    call, listed = _own(server, "tools/call"), _own(server, "tools/list")
    described = tuple(describe(name, f"{name}.", NOTHING) for name in sorted(WORKING))
    extra = list_tools_of(ToolList("extras", described))

    async def call_tool(ctx: Context, params: Params) -> object:
        extra = WORKING.get(params.name)
        return await (call(ctx, params) if extra is None else extra(ctx, params))

    async def list_tools(ctx: Context, params: types.PaginatedRequestParams) -> object:
        found = await listed(ctx, params)
        return {**found, "tools": [*found["tools"], *extra["tools"]]}

    server.add_request_handler("tools/call", Params, call_tool)
    server.add_request_handler("tools/list", types.PaginatedRequestParams, list_tools)


def _extend_resources(server: Server[Any]) -> None:
    read = _own(server, "resources/read")

    async def read_resource(ctx: Context, params: types.ReadResourceRequestParams) -> object:
        if str(params.uri) != BINARY:
            return await read(ctx, params)
        contents = types.BlobResourceContents(uri=BINARY, mime_type="image/png", blob=PIXEL)
        return types.ReadResourceResult(contents=[contents], ttl_ms=0, cache_scope="private")

    server.add_request_handler("resources/read", types.ReadResourceRequestParams, read_resource)


def _extend_completions(server: Server[Any]) -> None:
    complete = _own(server, "completion/complete")

    async def complete_any(ctx: Context, params: types.CompleteRequestParams) -> object:
        if params.ref.type == "ref/resource":
            return await complete(ctx, params)
        values = [params.argument.value + letter for letter in "abc"]
        return types.CompleteResult(completion=types.Completion(values=values, total=3))

    server.add_request_handler("completion/complete", types.CompleteRequestParams, complete_any)
