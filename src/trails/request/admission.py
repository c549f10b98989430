"""Admission: limit the calls of each actor, at the same time and within a minute.

It comes after authorization, so tools that an actor can't see cost and reveal nothing.
A large body is the exception: parsing it is expensive, so its sender is admitted before that
(``Reservation``), and the call in the body is not counted again. There is one Admission for each
graph, one account for each actor's name, and a limit for all accounts together.

Thread-safe without a lock: running calls are items of a list, and appending is atomic.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar, Token
from sys import maxsize
from time import monotonic
from typing import Final, Literal, Protocol, Self, TypeVar

import msgspec

from trails.authoring.plugins import PluginResource
from trails.engine.graph.activities import CallRecord
from trails.errors import BudgetError
from trails.model.actors import OPERATOR, Actor
from trails.model.changes.proposals import WriteModes
from trails.model.decisions import ALLOW_ALL, Judge
from trails.model.fairness import Clock, Excess, Meter
from trails.model.results import DEFAULT_CHARS, Failure
from trails.model.upkeep import ExportLimits, Report
from trails.request.answers import failure_of
from trails.request.workspace import PolicyAnswers, WebhookSubject, Workspace

T = TypeVar("T")
_SOON: Final = 1
"""Seconds after which a running call may have ended."""
_FEW: Final = 1024
"""Number of accounts above which unused ones are dropped."""


class Budget(msgspec.Struct, frozen=True):
    """The limits of one actor on a graph; 0 means no limit."""

    in_flight: int = 0
    """Only for actors with a credential: without one, all callers share a name."""
    calls_per_minute: int = 0
    in_flight_of_all: int = 0
    """Calls of all actors at the same time, with or without a credential."""
    watches: int = 0
    spool: int = 0
    """Bytes of loads that are being received."""


class Account:
    """The running calls of one actor."""

    __slots__ = ("_all", "_running")

    def __init__(self, running: list[None]) -> None:
        self._running: list[None] = []
        self._all = running

    def __len__(self) -> int:
        return len(self._running)

    def begin(self) -> None:
        """Count a call."""
        self._running.append(None)
        self._all.append(None)

    def end(self) -> None:
        """Stop counting a call."""
        self._running.pop()
        self._all.pop()


class AdmissionSlot:
    """Counts a call that continues after its answer: a download, or an abandoned thread.

    It ends once: on ``release`` or, at the latest, when it is garbage collected.
    """

    __slots__ = ("_account",)

    def __init__(self, account: Account) -> None:
        account.begin()
        self._account: Account | None = account

    def release(self) -> None:
        account, self._account = self._account, None
        if account is not None:
            account.end()

    def __del__(self) -> None:
        """Release it if its holder is gone, for example a stream that was never read."""
        self.release()


class Reservation:
    """An admission that is granted before the call is known.

    Within the ``with`` block, and in tasks that are started there, the first call of the same
    actor on the same graph uses it. It counts even if no call uses it.
    """

    __slots__ = ("_account", "_admission", "_is_used", "_name", "_token")

    def __init__(self, admission: Admission, name: str, account: Account) -> None:
        self._admission = admission
        self._name = name
        self._account: Account | None = account
        self._is_used = False
        self._token: Token[Reservation | None] | None = None

    def __enter__(self) -> Self:
        """Let calls of this request use it."""
        self._token = _reservation.set(self)
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop counting, unless a call has taken over."""
        if self._token is not None:
            _reservation.reset(self._token)
        self._release()

    def use(self, admission: Admission, name: str) -> bool:
        """Let a call take over; returns whether it may."""
        if self._is_used or admission is not self._admission or name != self._name:
            return False
        self._is_used = True
        self._release()
        return True

    def _release(self) -> None:
        account, self._account = self._account, None
        if account is not None:
            account.end()


_reservation: ContextVar[Reservation | None] = ContextVar("trails_reservation", default=None)


class Admission:
    """The accounts of all actors of one graph."""

    def __init__(self, budget: Budget, clock: Clock = monotonic) -> None:
        self._most = budget.in_flight
        self._most_of_all = budget.in_flight_of_all or maxsize
        self._all: list[None] = []
        self._calls = Meter(budget.calls_per_minute, clock)
        self._accounts: dict[str, Account] = {}
        self._crowd = _FEW

    def refuse_overload(self, actor: Actor) -> Failure | None:
        """The refusal while the graph is overloaded, or None; the operator is never refused."""
        if len(self._all) < self._most_of_all or actor.credential == OPERATOR.credential:
            return None
        return Failure(
            "semantic",
            "busy",
            f"the server is overloaded: {self._most_of_all} calls are under way on this graph, "
            f"which is the limit. Nothing was done; try again in {_SOON} s",
            {"limit": "calls", "allowed": self._most_of_all, "retry_after": _SOON},
        )

    def enter(self, actor: Actor) -> Account | Failure:
        """Begin a call, or refuse it; the caller must call ``end`` on the account."""
        reserved = _reservation.get()
        is_paid = reserved is not None and reserved.use(self, actor.name)
        if len(self._all) >= self._most_of_all:
            overload = self.refuse_overload(actor)
            if overload is not None:
                return overload
        account = self._accounts.get(actor.name)
        if account is None:
            account = self._open(actor.name)
        credential, most = actor.credential, self._most
        if credential and credential != OPERATOR.credential and 0 < most <= len(account):
            return _too_many_at_once(actor.name, len(account), most)
        if not is_paid and self._calls.limit and credential and credential != OPERATOR.credential:
            over = self._calls.take(actor.name)
            if over is not None:
                return _too_many_lately(actor.name, over, int(self._calls.limit))
        account.begin()
        return account

    def reserve(self, actor: Actor) -> Reservation | Failure:
        """Admit an actor before its call is known, or refuse it."""
        account = self.enter(actor)
        if isinstance(account, Failure):
            return account
        return Reservation(self, actor.name, account)

    def hold(self, name: str) -> AdmissionSlot:
        """Count an admitted call that continues after its answer."""
        return AdmissionSlot(self._accounts.get(name) or self._open(name))

    def __len__(self) -> int:
        """The number of running calls, of all actors."""
        return len(self._all)

    def running(self, name: str) -> int:
        """The number of running calls of an actor."""
        return len(self._accounts.get(name, ()))

    def _open(self, name: str) -> Account:
        if len(self._accounts) >= self._crowd:
            self._sweep()
        return self._accounts.setdefault(name, Account(self._all))

    def _sweep(self) -> None:
        """Drop unused accounts; runs seldom, because the threshold doubles.

        A call that has just been given one of them is counted there only, until it ends.
        """
        self._accounts = {name: each for name, each in tuple(self._accounts.items()) if each}
        self._crowd = max(_FEW, 2 * len(self._accounts))


UNLIMITED: Final = Admission(Budget())
"""Refuses nothing."""


def _too_many_at_once(name: str, used: int, allowed: int) -> Failure:
    return _failure(
        f"{name} has {used} calls under way, and {allowed} are allowed at the same time "
        "(in_flight in [graphs.<id>.budgets]); wait for one to end, then try again",
        limit="in_flight",
        allowed=allowed,
        used=used,
        retry_after=_SOON,
    )


def _too_many_lately(name: str, over: Excess, allowed: int) -> Failure:
    used = int(over.used)
    return _failure(
        f"{name} has made {used} calls within a minute, and {allowed} are allowed "
        f"(calls_per_minute in [graphs.<id>.budgets]); try again in {over.retry_after} s",
        limit="calls_per_minute",
        allowed=allowed,
        used=used,
        retry_after=over.retry_after,
    )


def _failure(message: str, **data: object) -> Failure:
    return failure_of(BudgetError(message, **data), "")


class CallTracer(Protocol):
    """Does the work of a call on a graph inside of a span."""

    def __call__(self, graph: str, call: CallRecord, work: Awaitable[T], /) -> Awaitable[T]: ...


class KernelOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one graph, and names of its project."""

    project: str = "app"
    version: str = "0"
    env: Literal["development", "production"] = "development"
    writes: WriteModes = WriteModes()
    """Which callers over MCP propose what they write."""
    stored_query_mode: Literal["auto", "per_query", "meta"] = "auto"
    stored_query_threshold: int = 24
    max_chars: int = DEFAULT_CHARS
    """The most characters of an answer to a model that does not say how many."""
    judge: Judge = ALLOW_ALL
    """Decides what actors may do on the graph."""
    budget: Budget = Budget()
    exports: ExportLimits = ExportLimits()
    doctor: Callable[[], Report] | None = None
    """Examines the graph and its folder; None: only the graph is examined."""
    resources: Mapping[str, PluginResource] = {}
    """Documents of plugins, as ``<plugin>/<path>``."""
    workspace: Workspace | None = None
    """The files of the graph's project; None for a graph in memory."""
    policies: PolicyAnswers | None = None
    """The files of its policies; None for a graph in memory."""
    webhooks: tuple[WebhookSubject, ...] = ()
    wait_seconds: float = 5.0
    """How long a call waits for the commit that its answer must include."""
    trace: CallTracer | None = None
    """Does the work of calls inside of spans, if the settings name a collector."""
