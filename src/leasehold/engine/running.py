"""A job in flight, as its worker sees it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

from leasehold.domain.job import Grant
from leasehold.domain.outcome import AttemptTimedOut, DeadlinePassed, HandedBack, Outcome, Stopped
from leasehold.domain.states import Flag
from leasehold.engine.context import RunFacts
from leasehold.engine.registry import TaskDefinition

StopCause = Literal["flag", "drain", "timeout", "deadline", "lost", "unrenewed"]


@dataclass(slots=True, eq=False)
class Running:
    grant: Grant
    definition: TaskDefinition
    context: RunFacts | None
    """None: the handler does not ask for it."""
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

    def renewed(self, sent_at: float) -> None:
        usable, self.heartbeat = self.definition.lease_times(self.grant.lease_seconds)
        self.lease_until = sent_at + usable
        self.renew_at = sent_at + self.heartbeat

    def stop(self, cause: StopCause) -> None:
        """Ask the handler to end. Safe from any thread for a plain handler; an async one is cancelled by the loop."""
        if self.cause is None:
            self.cause = cause
            self.stopped_at = time.monotonic()
        if self.context is not None:
            self.context._stopped.set()

    @property
    def completed(self) -> bool:
        """The handler has settled its job itself."""
        return self.context is not None and self.context._completed

    def outcome_when_stopped(self) -> Outcome | None:
        """What a run that was stopped ends as; None: nothing may be written, the lease is another's."""
        match self.cause:
            case "lost":
                return None
            case "timeout":
                return AttemptTimedOut(f"the attempt took longer than {self._allowed():g} s")
            case "deadline":
                return DeadlinePassed("the job's deadline has passed")
            case "drain":
                if self.definition.settings.on_drain == "pause":
                    return Stopped("Job was interrupted by user", pause=True)
                return HandedBack("its worker was stopped")
            case "unrenewed":
                return HandedBack("its lease could not be renewed")
            case _:
                return Stopped()

    def _allowed(self) -> float:
        return self.limit_at - self.started_at if self.limit_at is not None else 0.0
