"""One attempt: a job in flight, as its worker sees it; run, and judged by how it ended.

What a handler stores meanwhile goes through its context.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from dataclasses import dataclass
from typing import Any, Literal

from leasehold.domain.errors import InvalidArguments, InvalidInput, OverBudget, Unstorable
from leasehold.domain.job import Grant, NewJob
from leasehold.domain.outcome import (
    AttemptTimedOut,
    Breached,
    DeadlinePassed,
    Failure,
    HandedBack,
    Outcome,
    Snoozed,
    Stopped,
    Success,
)
from leasehold.domain.policy import Policy
from leasehold.domain.signals import Fail, Pause, RetryIn, Snooze, StopRequested
from leasehold.domain.states import Flag
from leasehold.run.asking import park_in
from leasehold.run.follow_ups import FollowUps
from leasehold.run.journal import Journal
from leasehold.run.spending import has_limits
from leasehold.run.state import RunState
from leasehold.run.steps import Steps
from leasehold.tasks.definition import TaskDefinition

StopCause = Literal["flag", "drain", "timeout", "deadline", "lost", "unrenewed", "stalled"]


@dataclass(slots=True, eq=False)
class Attempt:
    state: RunState
    definition: TaskDefinition
    journal: Journal | None
    """None outside of a worker."""
    started_at: float
    resources: Any = None
    """What the app's lifespan has yielded."""
    steps: Steps | None = None
    """Made when the handler first asks for it."""
    follow_ups: FollowUps | None = None
    """Made with the first: most runs have none."""
    heartbeat: float = 0.0
    """Seconds between two renewals. A single call may have asked for a shorter lease than its task."""
    lease_until: float = 0.0
    """On the monotonic clock: until then the lease is surely ours. Counted from when the request was *sent*."""
    renew_at: float = 0.0
    """On the monotonic clock: when the keeper shall renew it."""
    limit_at: float | None = None
    """When the attempt has used up its time, or the job's deadline passes."""
    limit_cause: StopCause = "timeout"
    task: asyncio.Task[None] | None = None
    flag: Flag | None = None
    cause: StopCause | None = None
    stopped_at: float = 0.0
    settled: bool = False
    """Its ending is decided: it is in the settle queue, or dropped."""
    abandoned: bool = False
    stall_told: float = 0.0
    """On the monotonic clock: the last sign of life before the silence that was told."""

    @property
    def grant(self) -> Grant:
        return self.state.grant

    # -- what its context asks for ---------------------------------------------------------------------------------
    def needed_journal(self) -> Journal:
        if self.journal is None:
            raise InvalidInput(
                "ctx", "belongs to no worker", "run the job, in tests with leasehold.testing.sandbox"
            )
        return self.journal

    def open_steps(self) -> Steps:
        if self.steps is None:
            self.steps = Steps(self.state, self.needed_journal())
        return self.steps

    def open_follow_ups(self) -> FollowUps:
        if self.follow_ups is None:
            self.follow_ups = FollowUps()
        return self.follow_ups

    def unstored(self) -> tuple[NewJob, ...]:
        """The follow-ups that go with the success."""
        return () if self.follow_ups is None else self.follow_ups.unstored()

    # -- its lease and its end -------------------------------------------------------------------------------------
    def renewed(self, sent_at: float) -> None:
        usable, self.heartbeat = self.definition.lease_times(self.grant.lease_seconds)
        self.lease_until = sent_at + usable
        self.renew_at = sent_at + self.heartbeat

    def stop(self, cause: StopCause) -> None:
        """Ask the handler to end. Safe from any thread for a plain handler; an async one is cancelled by the loop."""
        if self.cause is None:
            self.cause = cause
            self.stopped_at = time.monotonic()
        self.state.request_stop()

    def outcome_when_stopped(self) -> Outcome | None:
        """What a run that was stopped ends as; None: nothing may be written, the lease is another's."""
        match self.cause:
            case "lost":
                return None
            case "timeout":
                return AttemptTimedOut(f"the attempt took longer than {self._allowed():g} s")
            case "deadline":
                return DeadlinePassed("the job's deadline has passed")
            case "stalled":
                if self.definition.settings.on_stall == "pause":
                    return Stopped(f"stalled: {self.stall_text}", pause=True)
                return AttemptTimedOut(f"stalled: {self.stall_text}")
            case "drain":
                if self.definition.settings.on_drain == "pause":
                    return self._breached() or Stopped("Job was interrupted by user", pause=True)
                return HandedBack("its worker was stopped")
            case "unrenewed":
                return HandedBack("its lease could not be renewed")
            case _:
                return (self._breached() if self.flag is Flag.PAUSE else None) or Stopped()

    def _breached(self) -> Breached | None:
        """Interrupted by a pause while it is over its budget: a task that fails for that fails."""
        over = None if self.steps is None else self.steps.over_budget()
        if over is None or Policy.load(self.grant.policy).on_breach != "fail":
            return None
        return Breached(f"interrupted while {over}")

    @property
    def stall_text(self) -> str:
        return f"no progress, event or log for {self.definition.stall_after or 0.0:g} s"

    def _allowed(self) -> float:
        return self.limit_at - self.started_at if self.limit_at is not None else 0.0


async def run_async(attempt: Attempt, context: object) -> Outcome | None:
    """Run on the loop. None: the lease is lost, nothing may be written. The context is not kept with the attempt, which
    it refers to: the garbage collector of a busy worker rarely looks for circles."""
    try:
        arguments = attempt.definition.call_arguments(attempt.grant.args, context)
        if attempt.definition.context_parameter:
            await _load(attempt)
        return _success(attempt, await attempt.definition.function(**arguments))
    except asyncio.CancelledError:
        if attempt.cause is None:
            return Failure("CancelledError: the handler cancelled itself")
        return attempt.outcome_when_stopped()
    except BaseException as error:
        return _raised(attempt, error)


async def _load(attempt: Attempt) -> None:
    """What is an attribute of the context: an async handler must not wait for the database in it."""
    journal = attempt.journal
    if journal is None:
        return
    if has_limits(attempt.grant):
        # `ctx.left`
        await journal.call(attempt.open_steps().spending.load)
    if attempt.grant.attempt > 1:
        # `ctx.saved`
        await journal.call(attempt.open_steps().load_saved)


def run_sync(attempt: Attempt, context: object) -> Outcome | None:
    """Run in this thread."""
    try:
        arguments = attempt.definition.call_arguments(attempt.grant.args, context)
        return _success(attempt, attempt.definition.function(**arguments))
    except BaseException as error:
        return _raised(attempt, error)


_NOTHING = Success()


def _success(attempt: Attempt, value: object) -> Success:
    follow_ups = attempt.unstored()
    if value is None and not follow_ups:
        return _NOTHING
    return Success(attempt.definition.encode_result(value), None, follow_ups)


def _raised(attempt: Attempt, error: BaseException) -> Outcome | None:
    if isinstance(error, StopRequested) and attempt.cause is not None:
        return attempt.outcome_when_stopped()
    if attempt.cause == "lost":
        return None
    if (park := park_in(error)) is not None:
        return park.asked
    return outcome_of(error, attempt.definition)


def outcome_of(error: BaseException, definition: TaskDefinition) -> Outcome:
    """What an exception of a handler means."""
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case RetryIn():
            return Snoozed(error.delay, error.reason)
        case Pause():
            return Stopped(error.reason, pause=True)
        case Fail():
            return Failure(error.reason, final=True)
        case OverBudget():
            return Breached(str(error))
        case InvalidArguments():
            return Failure(f"its arguments no longer fit: {error}", final=True)
        case Unstorable():
            return Failure(f"unstorable result: {error}", final=True)
        case InvalidInput():
            # The same call would be refused again.
            return Failure(describe(error), final=True)
        case _:
            return Failure(describe(error), final=not definition.settings.retry.covers(error))


def describe(error: BaseException) -> str:
    """The message first, then where it came from; our own frames on top are left out."""
    head = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)[1:]
    if not frames:
        return head
    return head + "\n\n" + "".join(traceback.format_list(frames)).rstrip()
