"""Tracing: the values that a tracer gets for each enqueue and attempt; the trace stored with the job links them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from leasehold.domain.frozen import frozen
from leasehold.domain.outcome import (
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
from leasehold.domain.questions import QuestionAsked
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
"""How one attempt ended. The database decides later what happens to its job: after `failed` the job may be retried."""


@dataclass(slots=True)
class TracedEnqueue:
    """One enqueue: a single job, or several that are stored together."""

    queue: str | None
    """None: the jobs go to different queues."""
    task: str | None
    """None: the jobs are of different tasks."""
    count: int
    job_id: str | None
    """The id of a single job. Once stored: the id of the job that already held its unique key, if there was one."""
    later: bool = False
    """A follow-up: requested now, and stored with the success of its attempt or not at all."""


@frozen
class TracedRun:
    """An attempt that starts."""

    job_id: str
    task: str
    queue: str
    attempt: int
    trace: str | None
    """The trace stored with the job."""


@frozen
class TracedEnding:
    """How an attempt ended."""

    outcome: AttemptOutcome
    error: str | None = None
    """The error as it is stored, without sensitive values. Also set for outcomes that are no failure, such as
    RetryIn."""
    exception: Exception | None = None
    """The handler's exception, if raised in this process; None if the job has sensitive arguments: it may show them."""

    @property
    def is_error(self) -> bool:
        """Whether the attempt went wrong."""
        return self.outcome in ("failed", "timed_out", "crashed", "lost")


class Tracing(Protocol):
    """The methods that `app.instrument(tracing)` needs. Both run in the context of the enqueue or attempt, in
    any thread, and must not raise: an exception would make the enqueue fail."""

    def enqueueing(self, enqueue: TracedEnqueue) -> AbstractContextManager[str | None]:
        """Wrap an enqueue. The value it yields is stored as the jobs' `trace`, unless they have one; None stores
        nothing."""

    def running(self, run: TracedRun) -> AbstractContextManager[Callable[[TracedEnding], None]]:
        """Wrap an attempt; its handler runs inside. The function it yields is called once, with the ending."""


_ENDINGS: dict[type[Outcome], AttemptOutcome] = {
    Success: "succeeded",
    Failure: "failed",
    Breached: "failed",
    AttemptTimedOut: "timed_out",
    DeadlinePassed: "timed_out",
    Expired: "timed_out",
    Crashed: "crashed",
    Lost: "lost",
    QuestionAsked: "waiting",
    Snoozed: "snoozed",
    HandedBack: "handed_back",
    Detached: "detached",
}


def attempt_outcome(outcome: Outcome | None, flag: Flag | None) -> AttemptOutcome:
    """Map an outcome to its label; None: the lease was lost. `flag`, the requested stop, labels a stopped attempt."""
    if outcome is None:
        return "lost"
    if isinstance(outcome, Stopped):
        return "paused" if outcome.pause or flag is Flag.PAUSE else "cancelled"
    return _ENDINGS[type(outcome)]
