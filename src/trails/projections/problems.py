"""Project failures into problem details for HTTP (RFC 9457), and read them back.

One form for every HTTP error of REST and of the server in front of it: ``type``, ``title``,
``status`` and ``detail`` as the standard defines them, then ``code``, ``fields`` and ``data``.
``type`` is the path of a page that explains the code; a code that is not listed here (an
application may raise its own) is ``about:blank``, and its title is that of the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from http import HTTPStatus
from typing import Final

import msgspec

from trails.model.results import Failure
from trails.projections.pages import project_page

PROBLEM: Final = "application/problem+json"
ERRORS_PATH: Final = "/errors"
"""The path of the pages, below the root of the server."""
_BLANK: Final = "about:blank"


class ProblemType(msgspec.Struct, frozen=True):
    """What a code means, in general."""

    title: str
    meaning: str
    """What happened, and what to do."""


PROBLEMS: Final[Mapping[str, ProblemType]] = {
    "bad_request": ProblemType(
        "Malformed request",
        "The request does not follow the HTTP standard, or a header that the server needs is "
        "missing or repeated. Correct the request.",
    ),
    "behind": ProblemType(
        "Log has lost commits",
        "Other files refer to commits that the log does not have, so the graph is read-only. An "
        "administrator runs 'trails recover'.",
    ),
    "budget": ProblemType(
        "Budget used up",
        "You have used up a budget; data.limit names it. Wait for the seconds in Retry-After.",
    ),
    "busy": ProblemType(
        "Server busy",
        "Too many requests are in progress. Wait for the seconds in Retry-After and try again.",
    ),
    "cancelled": ProblemType(
        "Write cancelled",
        "The client disconnected before a long write was done. Nothing was written.",
    ),
    "capability": ProblemType(
        "Refused by the capability",
        "The application refuses this call on purpose; detail says why.",
    ),
    "conflict": ProblemType(
        "Conflict",
        "The graph is not in the state that the request expects: the head has moved, a merge has "
        "conflicts, a name exists, or an idempotency key was used for another request. Read "
        "again and retry.",
    ),
    "corruption": ProblemType(
        "Corrupted log",
        "A digest in the log does not match. An administrator runs 'trails verify'.",
    ),
    "cursor": ProblemType(
        "Invalid cursor",
        "The cursor was altered, or belongs to another caller, call, branch or graph. Begin again "
        "without a cursor.",
    ),
    "declaration": ProblemType(
        "Invalid name or declaration",
        "The name of a branch, or a declaration of the application, does not follow the rules.",
    ),
    "denied": ProblemType(
        "Denied by a rule", "A rule denies these arguments of the call; data.rule names it."
    ),
    "disconnected": ProblemType(
        "Incomplete body", "The connection ended before the whole body was sent. Send it again."
    ),
    "embedding": ProblemType(
        "No embedding",
        "The project's function for embeddings failed or was too slow. Search by words, or try "
        "again.",
    ),
    "forbidden": ProblemType(
        "Forbidden",
        "The request needs data that you cannot read or change, or its Host or Origin is not "
        "allowed.",
    ),
    "header": ProblemType(
        "Invalid header",
        "A header can't be read, or asks for something that the route can't do.",
    ),
    "internal": ProblemType(
        "Internal error",
        "The server failed. data.trace_id finds the details in the server's log.",
    ),
    "interrupted": ProblemType(
        "Server stopped during the request",
        "The process that served the request ended. Repeat a request that only reads; check the "
        "newest commits before you repeat one that writes.",
    ),
    "json": ProblemType("Invalid JSON", "The body is not a JSON object. Detail names the place."),
    "lagging": ProblemType(
        "Server lags behind",
        "This server does not have the commit yet that the answer must include. Try again, or ask "
        "another server.",
    ),
    "limit": ProblemType(
        "Limit exceeded",
        "A query, update or file needs more time, memory or rows than it may use; data has the "
        "limit. Ask for less.",
    ),
    "locked": ProblemType(
        "Project not served", "No process serves the project right now. Try again in a while."
    ),
    "log_unavailable": ProblemType(
        "Log not available",
        "The database server that has the log of the graph does not answer. Nothing was written; "
        "try again in a while.",
    ),
    "media_type": ProblemType(
        "Unsupported media type",
        "The body has a Content-Type or Content-Encoding that this route does not accept.",
    ),
    "misplaced_token": ProblemType(
        "Token outside the Authorization header",
        "Others may store addresses, other headers and bodies. Send the token in the "
        "Authorization header only, and revoke it if others may have seen it.",
    ),
    "not_acceptable": ProblemType(
        "Not acceptable",
        "The result has no form that the Accept header allows; data.available lists those that "
        "there are.",
    ),
    "not_allowed": ProblemType(
        "Method not allowed", "The path exists; the Allow header lists its methods."
    ),
    "not_executed": ProblemType(
        "Not executed",
        "A call of a batch was not made, because of one before it; detail says why. Nothing of it "
        "was done: send it again.",
    ),
    "not_found": ProblemType(
        "Not found",
        "There is no such path, graph, type, node, branch or commit, or you cannot see it.",
    ),
    "not_ready": ProblemType(
        "Not ready",
        "The server can't do all of its work: a graph is not served, a view lags, or the disk "
        "can't be written. data.checks names which. Send requests to another server meanwhile.",
    ),
    "outcome_unknown": ProblemType(
        "Outcome unknown",
        "The connection to the log was lost while a commit was being written. Look whether "
        "data.commit is there, or repeat the request with the same idempotency key.",
    ),
    "policy": ProblemType("Invalid policies", "The access policies can't be read."),
    "precondition_failed": ProblemType(
        "Precondition failed",
        "The branch is not at the commit that If-Match names: someone wrote in between. Read "
        "again, redo the change, and retry.",
    ),
    "quarantined": ProblemType(
        "Graph not served",
        "The app, types, stored queries or policies of the graph are broken; the server's log "
        "has the reasons.",
    ),
    "query": ProblemType("Invalid query", "The selection or SPARQL text can't be run as written."),
    "query_string": ProblemType(
        "Invalid query string",
        "A parameter is given twice or empty, or two parameters exclude each other.",
    ),
    "migration": ProblemType(
        "Migration refused",
        "The migration can't be applied or rolled back; detail says why. Nothing was changed.",
    ),
    "range": ProblemType(
        "Range not satisfiable", "None of the bytes of the file are in the requested range."
    ),
    "read_only": ProblemType("Read-only", "The graph is read-only; detail says why."),
    "registry": ProblemType("Conflicting declarations", "Two declarations conflict."),
    "revoked": ProblemType(
        "Credential ended",
        "The credential was revoked or expired during the call. Nothing was written.",
    ),
    "schema_mismatch": ProblemType(
        "Data does not fit the types", "Stored data does not satisfy the declared types."
    ),
    "scope": ProblemType(
        "Insufficient scope",
        "The credential lacks the scope in data.required_scope. Ask for one that has it.",
    ),
    "source": ProblemType(
        "Source file can't be changed",
        "A source file of the project is written in a way that can't be changed automatically. "
        "detail says which lines to change by hand.",
    ),
    "stale": ProblemType(
        "Cursor expired",
        "The cursor has expired, or the state that it reads is gone. Begin again without it.",
    ),
    "storage": ProblemType("Disk error", "The disk of the server reported an error."),
    "storage_full": ProblemType(
        "Disk full", "The disk of the server is full. Nothing that was acknowledged is lost."
    ),
    "text": ProblemType("Invalid text", "The body is not UTF-8."),
    "timeout": ProblemType(
        "Request timed out", "The request did not arrive in time. Send it again."
    ),
    "too_large": ProblemType(
        "Request too large", "The body, a header or the address exceeds a limit; detail names it."
    ),
    "transaction": ProblemType(
        "Invalid transaction", "A transaction is used in an unsupported way."
    ),
    "unauthenticated": ProblemType(
        "Authentication required",
        "The credential is missing, invalid or expired. Send 'Authorization: Bearer <token>'.",
    ),
    "unavailable": ProblemType(
        "Unavailable",
        "The server can't do this now: it can't confine untrusted text, or can't reach the "
        "identity provider.",
    ),
    "unknown": ProblemType(
        "Unknown capability", "There is no capability of this name, or you cannot see it."
    ),
    "unwritable": ProblemType(
        "Disk not writable", "The disk of the server can't be written, so the graph is read-only."
    ),
    "validation": ProblemType(
        "Validation failed",
        "Arguments or data break rules, and nothing was written. fields lists every violation "
        "with field, code, message, value, constraint and, where there is one, a suggestion.",
    ),
}
"""Every code that Trails itself sends over HTTP."""


def project_problem(
    status: int, code: str, message: str, data: Mapping[str, object] | None = None
) -> bytes:
    """The JSON text of an error."""
    known = PROBLEMS.get(code)
    problem: dict[str, object] = {
        "type": _BLANK if known is None else f"{ERRORS_PATH}/{code}",
        "title": HTTPStatus(status).phrase if known is None else known.title,
        "status": status,
        "detail": message,
        "code": code,
    }
    rest = dict(data or {})
    if "fields" in rest:
        problem["fields"] = rest.pop("fields")
    if rest:
        problem["data"] = rest
    return msgspec.json.encode(problem, enc_hook=str)


class _Problem(msgspec.Struct):
    code: str
    detail: str
    data: dict[str, object] = {}
    fields: list[object] | None = None


_READER: Final = msgspec.json.Decoder(_Problem)


def parse_problem(body: bytes) -> Failure:
    """The failure that a problem describes; ValueError if it is not one of Trails."""
    try:
        found = _READER.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(str(error)) from None
    data = found.data if found.fields is None else {**found.data, "fields": found.fields}
    return Failure("semantic", found.code, found.detail, data)


def project_problem_page(code: str) -> str | None:
    """The HTML page that explains a code; None if there is no such code."""
    known = PROBLEMS.get(code)
    if known is None:
        return None
    return project_page(
        known.title,
        f"<h1>{escape(known.title)}</h1><p>{escape(known.meaning)}</p>"
        f"<p>Code: <code>{code}</code>. <a href='{ERRORS_PATH}'>All codes</a></p>",
    )


def project_problem_index() -> str:
    """The HTML page that lists all codes."""
    rows = "".join(
        f"<li><a href='{ERRORS_PATH}/{code}'><code>{code}</code></a>: {escape(known.title)}</li>"
        for code, known in PROBLEMS.items()
    )
    return project_page("Errors", f"<h1>Errors</h1><ul>{rows}</ul>")
