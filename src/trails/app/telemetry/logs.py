"""The lines that a server writes to standard error: for people, or as JSON for a log collector.

A JSON line has ``time``, ``level``, ``event`` and ``message``, and what is known of the call that
it was written for: ``graph``, ``tool``, ``actor``, ``surface`` and ``trace``. It never has a token,
and nothing that a caller sent unless ``[log] texts`` permits it: an unexpected error is its type
and where it happened. Lines are written by a thread, so a slow reader holds up no call; what it
does not read in time is dropped, and counted.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Final

import msgspec

from trails.app.settings import LogSettings
from trails.errors import TrailsError
from trails.model.actors import redact_tokens
from trails.model.metrics import UNKNOWN_OUTCOME
from trails.model.origins import CURRENT_CALL

if TYPE_CHECKING:  # a relay over standard streams starts without the engine
    from trails.engine.graph.activities import CallRecord

Progress = Callable[[str], None]
_MOST: Final = 10_000
"""Lines that may wait to be written."""
_PAUSE: Final = 0.05
"""Seconds that a line may wait for others."""
_LONGEST: Final = 4_000
"""Characters of a text."""
_FRAMES: Final = 30
_FAILED: Final = 2
"""The exit code of a command that failed."""
_LEAVING: Final = 2.0
"""Seconds that lines have to be written when the process ends."""
_FACTS: Final = (
    *("event", "tool", "kind", "branch", "outcome", "milliseconds", "text", "code", "commits"),
    *("url", "pid", "graphs", "dropped"),
)
"""What a record may say beside its message."""
_logger: Final = logging.getLogger("trails")


@contextmanager
def writing_logs(settings: LogSettings, report: Progress) -> Iterator[Progress]:
    """Write the log of this process; yield what reports its status in the same form.

    Why a server can't be started, or has ended, is a line of its log too.
    """
    _logger.setLevel(logging.INFO)
    if settings.format == "text":
        _logger.addHandler(_ReportingHandler(report))
        _logger.propagate = False
        yield report
        return
    # All other loggers too: a library, or the project's own code, writes no other lines.
    handler = JsonHandler(sys.stderr.buffer.write, texts=settings.texts)
    logging.getLogger().addHandler(handler)
    logging.captureWarnings(capture=True)
    threading.excepthook = _log_thread
    try:
        yield log_status
    except TrailsError as error:
        _logger.critical("%s", error.message, extra={"event": "server.failed", "code": error.code})
        raise SystemExit(_FAILED) from None
    finally:
        handler.close()


def log_status(text: str) -> None:
    """Report what the server does, as a line of its log."""
    _logger.info("%s", text, extra={"event": "server.status"})


def log_ready(settings: LogSettings, url: str, pid: int, graphs: Sequence[str]) -> None:
    """Report that requests are answered; people read that on standard output."""
    if settings.format == "json":
        facts = {"event": "server.ready", "url": url, "pid": pid, "graphs": graphs}
        _logger.info("serving at %s", url, extra=facts)


def log_call(graph: str, call: CallRecord, outcome: str, nanoseconds: int) -> None:
    """Write the line of a call that has ended."""
    invented = outcome == UNKNOWN_OUTCOME
    _logger.info(
        "%s of %s on %s: %s in %.1f ms",
        "an unknown tool" if invented else call.name,
        call.actor,
        graph,
        outcome,
        nanoseconds / 1e6,
        extra={
            "event": "call.ended",
            "call": (graph, call),
            "tool": "" if invented else call.name,
            "kind": call.kind,
            "outcome": outcome,
            "milliseconds": round(nanoseconds / 1e6, 3),
            "commits": tuple(call.generated),
        },
    )


class _ReportingHandler(logging.Handler):
    """Shows log records to the operator."""

    def __init__(self, report: Progress) -> None:
        super().__init__(logging.INFO)
        self._report = report

    def emit(self, record: logging.LogRecord) -> None:
        """Show one record, with its traceback if it has one."""
        self._report(self.format(record))


class JsonHandler(logging.Handler):
    """Writes log records as lines of JSON."""

    def __init__(self, write: Callable[[bytes], object], *, texts: bool = False) -> None:
        super().__init__(logging.INFO)
        self._write = write
        self._texts = texts
        self._lines: list[bytes] = []
        self._dropped = 0
        self._woken = threading.Event()
        self._ending = threading.Event()
        self._writer = threading.Thread(target=self._run, name="trails-log", daemon=True)
        self._writer.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Let one record be written; the event loop may be waiting for this."""
        if len(self._lines) >= _MOST:
            self._dropped += 1
            return
        try:
            self._lines.append(encode_record(record, texts=self._texts))
        except Exception:  # noqa: BLE001 - as logging does: a record that can't be written is reported
            self.handleError(record)
        if not self._woken.is_set():
            self._woken.set()

    def _run(self) -> None:
        while not self._ending.is_set():
            self._woken.wait()
            self._ending.wait(_PAUSE)  # to write many at once: each time takes turns with the loop
            self._woken.clear()
            self._write_waiting()
        self._write_waiting()  # what came while the last ones were written

    def _write_waiting(self) -> None:
        self.acquire()  # a record is put among the lines while its logger holds this
        try:
            lines, self._lines = self._lines, []
            dropped, self._dropped = self._dropped, 0
        finally:
            self.release()
        if dropped:
            lines.append(_describe_dropped(dropped))
        try:
            self._write(b"".join(lines))
            sys.stderr.flush()
        except (OSError, ValueError):
            return  # nobody reads any more

    def close(self) -> None:
        """Write what waits; called when the process ends."""
        self._ending.set()
        self._woken.set()
        if self._writer is not threading.current_thread():
            self._writer.join(_LEAVING)
        super().close()


def encode_record(record: logging.LogRecord, *, texts: bool) -> bytes:
    """A record as a line of JSON."""
    said: dict[str, object] = {
        "time": _spell_time(record.created),
        "level": record.levelname.lower(),
        "event": "log",
    }
    given = record.__dict__
    quotes = given.get("quotes", False) and not texts
    said["message"] = str(record.msg) if quotes else record.getMessage()
    found = given.get("call") or CURRENT_CALL.get()
    if found is not None:
        graph, call = found
        said |= {"graph": graph, "tool": call.name, "actor": call.actor}
        said |= {"surface": call.origin.surface, "trace": call.trace_id}
    said |= {name: given[name] for name in _FACTS if name in given}
    if "event" not in given:
        said["logger"] = record.name
    if record.exc_info and record.exc_info[0] is not None:
        said["error"] = _describe_error(*record.exc_info[:2], record.exc_info[2], texts=texts)
    return redact_tokens(msgspec.json.encode(_spell(said), enc_hook=str)) + b"\n"


def _spell_time(seconds: float) -> str:
    found = datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    return f"{found.isoformat(timespec='milliseconds')}Z"


def _describe_error(
    kind: type[BaseException],
    error: BaseException | None,
    trace: TracebackType | None,
    *,
    texts: bool,
) -> dict[str, object]:
    """Where an error happened, and its message if that may be shown."""
    frames = traceback.extract_tb(trace)[-_FRAMES:]
    described: dict[str, object] = {
        "type": f"{kind.__module__}.{kind.__qualname__}",
        "stack": [f"{each.filename}:{each.lineno} {each.name}" for each in frames],
    }
    if texts:
        described["message"] = str(error)
    cause = None if error is None else error.__cause__ or error.__context__
    if cause is not None:
        described["cause"] = f"{type(cause).__module__}.{type(cause).__qualname__}"
    return described


def _spell(value: object) -> object:
    """A value whose texts can be written: not too long, and without halves of surrogate pairs."""
    if isinstance(value, str):
        text = value[:_LONGEST]
        return text if text.isascii() else text.encode("utf-8", "replace").decode()
    if isinstance(value, Mapping):
        return {str(key): _spell(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_spell(each) for each in value]
    return value


def _describe_dropped(count: int) -> bytes:
    record = logging.LogRecord(
        "trails", logging.WARNING, "", 0, "%d lines were dropped: nobody read them", (count,), None
    )
    record.__dict__.update(event="log.dropped", dropped=count)
    return encode_record(record, texts=False)


def _log_thread(failed: threading.ExceptHookArgs) -> None:
    """Log the end of a thread by an error, which Python would print."""
    if failed.exc_value is not None:
        _logger.error(
            "a thread has failed", exc_info=failed.exc_value, extra={"event": "thread.failed"}
        )
