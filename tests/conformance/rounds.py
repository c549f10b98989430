"""Tools that ask the client something before they answer (2026-07-28: in rounds)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError

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
