"""Tracing: what is told of every enqueue and every attempt, and the text on the job that ties the two together."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from leasehold.domain.frozen import frozen
from leasehold.domain.outcome import (
    Asked,
    AttemptTimedOut,
    Breached,
    Crashed,
    DeadlinePassed,
    Detached,
    Expired,
    Failure,
    HandedBack,
    Lost,
    Outcome,
    Snoozed,
    Stopped,
    Success,
)
from leasehold.domain.states import Flag

AttemptOutcome = Literal[
    "succeeded",
    "failed",
    "timed_out",
    "crashed",
    "lost",
    "cancelled",
    "paused",
    "waiting",
    "snoozed",
    "handed_back",
    "detached",
]
"""How one attempt ended. What becomes of its job is decided later, by the database: one that has `failed` may be tried
again."""


@dataclass(slots=True)
class TracedEnqueue:
    """One enqueue: a single job, or several that are stored together."""

    queue: str | None
    """None: they go to different ones."""
    kind: str | None
    """None: they are of different tasks."""
    count: int
    job_id: str | None
    """Of a single one. Once it is stored, of the job that held its unique key, if one did."""
    later: bool = False
    """A follow-up: it is asked for now, and stored with the success of its run or not at all."""


@frozen
class TracedRun:
    """An attempt that begins."""

    job_id: str
    kind: str
    queue: str
    attempt: int
    trace: str | None
    """What was stored with the job."""


@frozen
class TracedEnding:
    """How an attempt ended."""

    outcome: AttemptOutcome
    error: str | None = None
    """As it is stored, without sensitive values. Also of what is no failure, such as RetryIn."""
    exception: Exception | None = None
    """What the handler raised, in this process; never of a job with sensitive arguments, for it may show them."""

    @property
    def is_error(self) -> bool:
        """Whether the attempt went wrong."""
        return self.outcome in ("failed", "timed_out", "crashed", "lost")


class Tracing(Protocol):
    """What `app.instrument(tracing)` calls. Both are called in the context that they are about, from any thread, and
    must not raise: an enqueue would fail with it."""

    def enqueueing(self, enqueue: TracedEnqueue) -> AbstractContextManager[str | None]:
        """Around an enqueue. What it gives is stored as the jobs' `trace`, if they have none of their own; None:
        nothing is."""
        ...

    def running(self, run: TracedRun) -> AbstractContextManager[Callable[[TracedEnding], None]]:
        """Around an attempt; its handler runs inside. What it gives is called once, with how it ended."""
        ...


_ENDINGS: dict[type[Outcome], AttemptOutcome] = {
    Success: "succeeded",
    Failure: "failed",
    Breached: "failed",
    AttemptTimedOut: "timed_out",
    DeadlinePassed: "timed_out",
    Expired: "timed_out",
    Crashed: "crashed",
    Lost: "lost",
    Asked: "waiting",
    Snoozed: "snoozed",
    HandedBack: "handed_back",
    Detached: "detached",
}


def attempt_outcome(outcome: Outcome | None, flag: Flag | None) -> AttemptOutcome:
    """None: its lease is another's. `flag` is what it was asked to do, which says what a stop was for."""
    if outcome is None:
        return "lost"
    if isinstance(outcome, Stopped):
        return "paused" if outcome.pause or flag is Flag.PAUSE else "cancelled"
    return _ENDINGS[type(outcome)]
