"""A job in flight, as its worker sees it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

from leasehold.domain.job import Grant
from leasehold.domain.outcome import AttemptTimedOut, Breached, DeadlinePassed, HandedBack, Outcome, Stopped
from leasehold.domain.policy import Policy
from leasehold.domain.states import Flag
from leasehold.run.context import RunFacts
from leasehold.tasks.definition import TaskDefinition

StopCause = Literal["flag", "drain", "timeout", "deadline", "lost", "unrenewed", "stalled"]


@dataclass(slots=True, eq=False)
class Running:
    grant: Grant
    definition: TaskDefinition
    context: RunFacts
    started_at: float
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

    def renewed(self, sent_at: float) -> None:
        usable, self.heartbeat = self.definition.lease_times(self.grant.lease_seconds)
        self.lease_until = sent_at + usable
        self.renew_at = sent_at + self.heartbeat

    def stop(self, cause: StopCause) -> None:
        """Ask the handler to end. Safe from any thread for a plain handler; an async one is cancelled by the loop."""
        if self.cause is None:
            self.cause = cause
            self.stopped_at = time.monotonic()
        self.context._stopped.set()

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
        over = None if self.context._steps is None else self.context._steps.over_budget()
        if over is None or Policy.load(self.grant.policy).on_breach != "fail":
            return None
        return Breached(f"interrupted while {over}")

    @property
    def stall_text(self) -> str:
        return f"no progress, event or log for {self.definition.stall_after or 0.0:g} s"

    def _allowed(self) -> float:
        return self.limit_at - self.started_at if self.limit_at is not None else 0.0
