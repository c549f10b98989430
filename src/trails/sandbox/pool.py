"""The pool: run untrusted SPARQL and RDF parsers in confined processes.

It says no before it starts (``UnavailableError``, ``BudgetError``, ``BusyError``), and what a
text did to its worker after (``LimitError``, ``QueryError``). Whatever happens to a worker,
the next call gets another.
"""

from __future__ import annotations

import contextlib
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
from trails.sandbox.confine import Confinement
from trails.sandbox.limits import DEFAULTS, MIB, Limits
from trails.sandbox.parsing import convert
from trails.sandbox.processes import DeathError, LateError, Nursery
from trails.sandbox.results import Effect, Result, check_nesting
from trails.sandbox.scratch import Scratch
from trails.sandbox.wire import Job, Task, WorkerReply
from trails.sandbox.workers import CommitSource, Keeper, Step, WorkerGroup

_MANY: Final = 1 << 30
_SOON: Final = 1
"""Seconds after which a query may have ended."""
_HEAVY: Final = 3.0
"""Seconds of queries within a minute from which a caller has used much."""
_PARSERS: Final = ""
"""The key of the workers that have no store."""


class Sandbox:
    """Confined workers, started when first needed.

    ``folder`` is scratch space, best on the file system of the stores; None: a temporary
    folder. ``allow_unconfined`` runs text even where the system can't confine a process.
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
        self._nursery = Nursery(limits.memory)
        self._scratch = Scratch(folder)
        self._keeper = Keeper()
        self._lock = threading.Lock()
        self._lines: OrderedDict[str, WorkerGroup] = OrderedDict()
        self._turns = FairQueue(_MANY, limits.per_caller)
        self._spent = Meter(limits.per_minute)
        self._recent = Meter(_HEAVY)
        self._closed = False

    @property
    def confinement(self) -> Confinement:
        """What holds the workers, and what is missing."""
        return self._nursery.confinement

    # --- what it does --------------------------------------------------------------

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
        """Run a query on a line, which is seen up to its head at the time of this call."""
        given = limits or self.limits
        started = monotonic()
        reply = self._on_line("query", source, text, caller, prefixes, base_iri, given)[0]
        if reply.outcome not in {"select", "ask", "graph"}:
            raise QueryError("the query can't be run: its worker gave no result")
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
        """What an update would change on a line; nothing is changed."""
        given = limits or self.limits
        reply, step = self._on_line("update", source, text, caller, prefixes, base_iri, given)
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
        """Parse a query, or an update, without data; QueryError has the parser's message."""
        task: Task = "check update" if update else "check query"
        job = self._job(task, text, prefixes, None, self.limits)
        what = "update" if update else "query"
        with self._line(_PARSERS, None) as line, _failures(what, self.limits):
            reply, _ = self._ask(line, None, job, None, self.limits)
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
        """Parse a file, chunk by chunk, into N-Quads, chunk by chunk.

        The clock of the limits runs only while the parser makes no progress.
        """
        given = limits or self.limits
        with (
            self._line(_PARSERS, None) as line,
            _failures("file", given),
            line.borrow(None, given.patience, caller) as step,
        ):
            yield from convert(step.worker, chunks, format, base_iri, given)

    # --- how -----------------------------------------------------------------------

    def _on_line(
        self,
        task: Task,
        source: CommitSource,
        text: str,
        caller: str,
        prefixes: Mapping[str, str],
        base_iri: str | None,
        limits: Limits,
    ) -> tuple[WorkerReply, Step]:
        job = self._job(task, text, prefixes, base_iri, limits)
        self._check_time(caller)
        with (
            self._turn(caller, limits),
            self._line(source.key, source) as line,
            _failures(task, limits),
        ):
            reply, step = self._ask(line, source, job, caller, limits)
        _accept(reply, task)
        return reply, step

    def _ask(
        self,
        line: WorkerGroup,
        source: CommitSource | None,
        job: Job,
        caller: str | None,
        limits: Limits,
    ) -> tuple[WorkerReply, Step]:
        """Have a job done; by a new worker, if an idle one ended before it had read the job."""
        try:
            return self._try(line, source, job, caller, limits, new=False)
        except DeathError as death:
            if not death.unread:
                raise
        return self._try(line, source, job, caller, limits, new=True)

    def _try(
        self,
        line: WorkerGroup,
        source: CommitSource | None,
        job: Job,
        caller: str | None,
        limits: Limits,
        *,
        new: bool,
    ) -> tuple[WorkerReply, Step]:
        spending = contextlib.nullcontext() if caller is None else self.spending(caller)
        with line.borrow(source, limits.patience, caller or "", new=new) as step, spending:
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
        """Let a caller have time, if it has some left, and count how much it takes."""
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

    @contextlib.contextmanager
    def _turn(self, caller: str, limits: Limits) -> Iterator[None]:
        """Let a caller have so many queries running; more wait for their turn."""
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
        try:
            yield
        finally:
            self._turns.release(caller)

    @contextlib.contextmanager
    def _line(self, key: str, source: CommitSource | None) -> Iterator[WorkerGroup]:
        """The workers of a line, which are not stopped meanwhile."""
        with self._lock:
            if self._closed:
                raise UnavailableError("the sandbox is closed")
        self._check_confinement()
        with self._lock:
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = WorkerGroup(
                    self._nursery,
                    self._scratch,
                    self._keeper,
                    self.limits,
                    source,
                    self._is_heavy,
                )
            self._lines.move_to_end(key)
            line.users += 1
            stopped = self._surplus()
        for each in stopped:
            each.close()
        try:
            yield line
        finally:
            with self._lock:
                line.users -= 1

    def _surplus(self) -> list[WorkerGroup]:
        """Forget the lines that were not used for the longest time."""
        surplus = len(self._lines) - (_PARSERS in self._lines) - self.limits.lines
        keys = [key for key, line in self._lines.items() if key != _PARSERS and not line.users]
        return [self._lines.pop(key) for key in keys[: max(0, surplus)]]

    def _check_confinement(self) -> None:
        held = self._nursery.confinement
        if held.complete:
            return
        if held.uid in {0, -1}:
            raise UnavailableError(f"untrusted text is not run as root: {held.missing}")
        if not self._allow_unconfined:
            raise UnavailableError(
                f"untrusted text is not run here, because its process can't be confined: "
                f"{held.missing}. '[sandbox] allow_unconfined = true' in trails.toml runs it "
                "with a clock and a memory limit only"
            )

    def close(self) -> None:
        """End every worker and remove the scratch space."""
        with self._lock:
            self._closed = True
            lines = list(self._lines.values())
            self._lines.clear()
        for line in lines:
            line.close()
        self._nursery.close()
        self._keeper.close()
        self._scratch.close()


def _do(step: Step, job: Job, limits: Limits) -> WorkerReply:
    """Have a job done, deltas first."""
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


@contextlib.contextmanager
def _failures(what: str, limits: Limits) -> Iterator[None]:
    """What became of a worker, said to the one whose text it ran."""
    try:
        yield
    except LateError:
        raise LimitError(
            f"the {what} was stopped after {limits.seconds:g} s; narrow it, add LIMIT, or raise "
            "'[sandbox] seconds' in trails.toml",
            limit="seconds",
            value=limits.seconds,
        ) from None
    except DeathError as death:
        raise _explain(what, death, limits) from None


def _explain(what: str, death: DeathError, limits: Limits) -> TrailsError:
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
    return QueryError(
        f"the {what} made its worker fail, which was replaced: it asks for something that is "
        "not possible here, such as reaching the network; change it",
        signal=death.signal,
    )
