"""The pool: run untrusted SPARQL and RDF parsers in confined processes.

A call can be refused before it starts (``UnavailableError``, ``BudgetError``, ``BusyError``)
and stopped while it runs (``LimitError``, ``QueryError``). A worker that failed is replaced,
so it never affects the next call. ``workers`` keeps the processes of one branch,
``processes`` talks to them.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from time import monotonic
from typing import Final

import msgspec

from trails.errors import BudgetError, LimitError, QueryError, TrailsError, UnavailableError
from trails.log.storage import full, says_full
from trails.model.actors import LOCAL
from trails.model.fairness import FairQueue, Meter
from trails.model.metrics import SandboxCount, add_workers
from trails.sandbox.confine import Confinement
from trails.sandbox.limits import DEFAULTS, MIB, Limits
from trails.sandbox.processes import DeathError, LateError, WorkerSpawner
from trails.sandbox.results import Effect, Result, check_nesting, convert
from trails.sandbox.scratch import Scratch
from trails.sandbox.wire import Job, Task, WorkerReply
from trails.sandbox.workers import BackgroundTasks, BorrowedWorker, CommitSource, WorkerGroup

_logger: Final = logging.getLogger("trails")
_MANY: Final = 1 << 30
_SOON: Final = 1
"""Seconds after which a retry may succeed."""
_HEAVY: Final = 3.0
"""Seconds of queries per minute above which a caller counts as a heavy user."""
_PARSERS: Final = ""
"""The key of the workers without a store."""


class Sandbox:
    """Confined workers, started on first use.

    ``folder`` is scratch space, preferably on the file system of the stores; None uses a
    temporary folder. ``allow_unconfined`` runs text even where the system can't confine a
    process.
    """

    def __init__(
        self,
        folder: Path | None,
        limits: Limits = DEFAULTS,
        *,
        allow_unconfined: bool = False,
    ) -> None:
        self.limits = limits
        self._allow_unconfined = allow_unconfined
        self._spawner = WorkerSpawner(limits.memory)
        self._scratch = Scratch(folder)
        self._background = BackgroundTasks()
        self._lock = threading.Lock()
        self._groups: OrderedDict[str, WorkerGroup] = OrderedDict()
        self._turns = FairQueue(_MANY, limits.per_caller)
        self._spent = Meter(limits.per_minute)
        self._recent = Meter(_HEAVY)
        self._closed = False

    @property
    def confinement(self) -> Confinement:
        """How the workers are confined, and what is missing."""
        return self._spawner.confinement

    def count(self) -> SandboxCount:
        """How many processes do what, of all branches."""
        with self._lock:
            groups = list(self._groups.values())
        turns = SandboxCount(waiting=self._turns.waiting)
        return add_workers([turns, *(each.count() for each in groups)])

    # --- calls ---------------------------------------------------------------------

    def query(
        self,
        source: CommitSource,
        text: str,
        *,
        caller: str,
        prefixes: Mapping[str, str] = {},
        base_iri: str | None = None,
        limits: Limits | None = None,
    ) -> Result:
        """Run a query on a branch or snapshot, up to its head at the time of this call."""
        given = limits or self.limits
        started = monotonic()
        reply = self._run_on("query", source, text, caller, prefixes, base_iri, given)[0]
        if reply.outcome not in {"select", "ask", "graph"}:
            raise QueryError("the query failed: its worker returned no result")
        return Result(reply.outcome, reply.body, reply.note, monotonic() - started, given)

    def update(
        self,
        source: CommitSource,
        text: str,
        *,
        caller: str,
        prefixes: Mapping[str, str] = {},
        base_iri: str | None = None,
        limits: Limits | None = None,
    ) -> Effect:
        """Compute what an update would change; nothing is changed."""
        given = limits or self.limits
        reply, step = self._run_on("update", source, text, caller, prefixes, base_iri, given)
        if reply.note:
            raise LimitError(
                f"the update changes more than {given.effect_bytes // MIB} MiB of statements; "
                "split it, or load a file instead",
                limit="effect_bytes",
                value=given.effect_bytes,
            )
        check_nesting(reply.body, given.depth)
        check_nesting(reply.added, given.depth)
        return Effect(step.head, reply.body, reply.added)

    def check(self, text: str, *, update: bool = False, prefixes: Mapping[str, str] = {}) -> None:
        """Parse a query or an update without data; QueryError carries the parser's message."""
        task: Task = "check update" if update else "check query"
        job = self._job(task, text, prefixes, None, self.limits)
        what = "update" if update else "query"
        reply, _ = self._ask(_PARSERS, None, job, None, self.limits, what)
        _accept(reply, what)

    def parse(
        self,
        chunks: Iterable[bytes],
        format: str,
        *,
        base_iri: str | None = None,
        caller: str = "",
        limits: Limits | None = None,
    ) -> Iterator[bytes]:
        """Parse a file into N-Quads, chunk by chunk.

        The time limit counts only while the parser makes no progress.
        """
        given = limits or self.limits
        group = self._enter(_PARSERS, None)
        try:
            with group.borrow(None, given.patience, caller) as step:
                yield from convert(step.worker, chunks, format, base_iri, given)
        except (LateError, DeathError) as error:
            raise _explain("file", error, given) from None
        finally:
            self._exit(group)

    # --- internals -----------------------------------------------------------------

    def _run_on(
        self,
        task: Task,
        source: CommitSource,
        text: str,
        caller: str,
        prefixes: Mapping[str, str],
        base_iri: str | None,
        limits: Limits,
    ) -> tuple[WorkerReply, BorrowedWorker]:
        job = self._job(task, text, prefixes, base_iri, limits)
        self._check_time(caller)
        self._take_turn(caller, limits)
        try:
            reply, step = self._ask(source.key, source, job, caller, limits, task)
        finally:
            self._turns.release(caller)
        _accept(reply, task)
        return reply, step

    def _ask(
        self,
        key: str,
        source: CommitSource | None,
        job: Job,
        caller: str | None,
        limits: Limits,
        what: str,
    ) -> tuple[WorkerReply, BorrowedWorker]:
        """Run a job; use a new worker if an idle one ended before it read the job."""
        group = self._enter(key, source)
        try:
            try:
                return self._try(group, source, job, caller, limits, new=False)
            except DeathError as death:
                if not death.unread:
                    raise
            return self._try(group, source, job, caller, limits, new=True)
        except (LateError, DeathError) as error:
            raise _explain(what, error, limits) from None
        finally:
            self._exit(group)

    def _try(
        self,
        group: WorkerGroup,
        source: CommitSource | None,
        job: Job,
        caller: str | None,
        limits: Limits,
        *,
        new: bool,
    ) -> tuple[WorkerReply, BorrowedWorker]:
        with group.borrow(source, limits.patience, caller or "", new=new) as step:
            if caller is None:
                return _do(step, job, limits), step
            with self.spending(caller):
                return _do(step, job, limits), step

    def _job(
        self,
        task: Task,
        text: str,
        prefixes: Mapping[str, str],
        base_iri: str | None,
        limits: Limits,
    ) -> Job:
        try:
            length = len(text.encode())
        except UnicodeEncodeError as error:
            raise QueryError(f"the text is not Unicode: {error.reason}") from None
        if length > limits.text_bytes:
            raise LimitError(
                f"the text is {length:,} bytes long, and {limits.text_bytes:,} are allowed; "
                "make it shorter",
                limit="text_bytes",
                value=limits.text_bytes,
            )
        size = limits.effect_bytes if task == "update" else limits.result_bytes
        return Job(task, text, dict(prefixes), (), limits.rows, size, limits.memory, base_iri)

    @contextlib.contextmanager
    def spending(self, caller: str) -> Iterator[None]:
        """Check a caller's time budget and charge the time that the call takes."""
        self._check_time(caller)
        started = monotonic()
        try:
            yield
        finally:
            spent = monotonic() - started
            self._spent.add(caller, spent)
            self._recent.add(caller, spent)

    def _check_time(self, caller: str) -> None:
        over = None if caller == LOCAL.name else self._spent.excess(caller)
        if over is not None:
            raise BudgetError(
                f"the queries of {caller or 'this caller'} have run for {over.used:.1f} s within a "
                f"minute, and {self._spent.limit:g} s are allowed (query_seconds_per_minute in "
                f"[graphs.<id>.budgets]); try again in {over.retry_after} s, and ask for less at a "
                "time",
                limit="query_seconds_per_minute",
                allowed=self._spent.limit,
                used=round(over.used, 3),
                retry_after=over.retry_after,
            )

    def _is_heavy(self, caller: str) -> bool:
        return self._recent.excess(caller) is not None

    def _take_turn(self, caller: str, limits: Limits) -> None:
        """Limit a caller's concurrent queries; further ones wait."""
        if not self._turns.acquire(caller, limits.patience):
            allowed = self.limits.per_caller
            raise BudgetError(
                f"{caller or 'this caller'} has {allowed} queries running, and {allowed} are "
                f"allowed at the same time; this one has waited {limits.patience:g} s for its "
                "turn. Try again later, or raise '[sandbox] per_caller' in trails.toml",
                limit="per_caller",
                allowed=allowed,
                used=allowed,
                retry_after=_SOON,
            )

    def _enter(self, key: str, source: CommitSource | None) -> WorkerGroup:
        """Return the workers of a branch or snapshot; they are not stopped before ``_exit``."""
        if self._closed:
            raise UnavailableError("the sandbox is closed")
        self._check_confinement()
        stopped: list[WorkerGroup] = []
        with self._lock:
            group = self._groups.get(key)
            if group is None:
                group = self._groups[key] = WorkerGroup(
                    self._spawner,
                    self._scratch,
                    self._background,
                    self.limits,
                    source,
                    self._is_heavy,
                )
            self._groups.move_to_end(key)
            group.users += 1
            if len(self._groups) > self.limits.lines:
                stopped = self._surplus()
        for each in stopped:
            each.close()
        return group

    def _exit(self, group: WorkerGroup) -> None:
        with self._lock:
            group.users -= 1

    def _surplus(self) -> list[WorkerGroup]:
        """Stop the least recently used groups of workers."""
        surplus = len(self._groups) - (_PARSERS in self._groups) - self.limits.lines
        keys = [key for key, group in self._groups.items() if key != _PARSERS and not group.users]
        return [self._groups.pop(key) for key in keys[: max(0, surplus)]]

    def _check_confinement(self) -> None:
        held = self._spawner.confinement
        if held.complete:
            return
        if held.uid in {0, -1}:
            raise UnavailableError(f"Refused to run untrusted text as root: {held.missing}")
        if not self._allow_unconfined:
            raise UnavailableError(
                f"Refused to run untrusted text, because its process can't be confined: "
                f"{held.missing}. Set '[sandbox] allow_unconfined = true' in trails.toml to run it "
                "with a clock and a memory limit only"
            )

    def close(self) -> None:
        """End every worker and remove the scratch space."""
        with self._lock:
            self._closed = True
            groups = list(self._groups.values())
            self._groups.clear()
        for group in groups:
            group.close()
        self._spawner.close()
        self._background.close()
        self._scratch.close()


def _do(step: BorrowedWorker, job: Job, limits: Limits) -> WorkerReply:
    """Run a job; deltas are applied first."""
    if step.deltas:
        job = msgspec.structs.replace(job, deltas=step.deltas)
    reply = step.worker.ask(job, monotonic() + limits.seconds)
    if reply.outcome == "broken":
        raise DeathError(0, reply.note)
    step.done()
    return reply


def _accept(reply: WorkerReply, what: str) -> None:
    if reply.outcome == "refused":
        if says_full(reply.note):
            raise full(f"run the {what}")
        raise QueryError(f"the {what} can't be run: {' '.join(reply.note[:1000].split())}")


def _explain(what: str, error: LateError | DeathError, limits: Limits) -> TrailsError:
    """Turn the end of a worker into an error for the caller whose text it ran."""
    if isinstance(error, LateError):
        return LimitError(
            f"the {what} was stopped after {limits.seconds:g} s; narrow it, add LIMIT, or raise "
            "'[sandbox] seconds' in trails.toml",
            limit="seconds",
            value=limits.seconds,
        )
    return _explain_death(what, error, limits)


def _explain_death(what: str, death: DeathError, limits: Limits) -> TrailsError:
    if says_full(death.words):
        return full(f"run the {what}")
    out_of_memory = any(
        words in death.words for words in ("memory allocation", "bad_alloc", "MemoryError")
    )
    if out_of_memory or (death.signal == signal.SIGKILL):
        return LimitError(
            f"the {what} was stopped because it needs more than {limits.memory // MIB} MiB of "
            "memory; narrow it, sort or group less, or raise '[sandbox] memory_mb' in trails.toml",
            limit="memory",
            value=limits.memory,
        )
    if death.signal in {signal.SIGSEGV, signal.SIGBUS}:
        return LimitError(
            f"the {what} was stopped because it nests too deeply for the engine; flatten it",
            limit="depth",
            value=limits.depth,
        )
    words = death.words[:1000]
    _logger.warning(
        "A sandbox worker crashed (%s, signal %d): %r",
        what,
        death.signal,
        words,
        extra={"event": "sandbox.crashed", "quotes": True},
    )
    return QueryError(
        f"the {what} crashed its worker, which was replaced. It may need something that is "
        "not available here, such as the network; change it",
        signal=death.signal,
    )
