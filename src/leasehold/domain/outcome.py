"""How a run ended: one frozen value per case. `settle` is the only reader."""

from __future__ import annotations

from leasehold.domain.frozen import frozen
from leasehold.domain.job import NewJob


@frozen
class Success:
    result: str | None = None
    """Encoded JSON."""
    result_ref: str | None = None
    follow_ups: tuple[NewJob, ...] = ()
    """Made in the transaction that settles the success, or not at all."""


@frozen
class Failure:
    """An exception, or an execution that vanished. `final` when no retry may follow."""

    error: str
    final: bool = False


@frozen
class AttemptTimedOut:
    error: str


@frozen
class DeadlinePassed:
    error: str


@frozen
class Expired:
    """Granted when its time was over, and run by nobody: its deadline has passed, or it was to start sooner."""


@frozen
class Stopped:
    """The handler was stopped before its end. With `pause` it comes to rest paused, as a drain may ask."""

    reason: str | None = None
    pause: bool = False


@frozen
class HandedBack:
    """Given back unharmed: drained before its end, or no handler for its kind here."""

    reason: str | None = None
    delay: float = 0.0


@frozen
class Detached:
    """An external run whose worker drains: it lives on as an orphan until it is adopted."""

    reason: str | None = None


@frozen
class Lost:
    """The lease was missed, as the reaper sees it. `alone`: no other job shared the dead process. `progressed`: a step
    or a checkpoint was kept since the last crash."""

    alone: bool = True
    error: str = "the lease was lost: its worker died, froze or was cut off"
    progressed: bool = False


@frozen
class Crashed:
    """The child that ran the job died by a signal; its worker lives and says so."""

    error: str
    alone: bool = True
    progressed: bool = False


@frozen
class Snoozed:
    """Asked to be run again later, at no cost."""

    delay: float
    error: str | None = None


@frozen
class Asked:
    """Parked for an answer, or for several."""

    key: str
    text: str
    schema: str | None = None
    secret: bool = False
    timeout: float | None = None
    """Seconds until the question expires, from its first asking on."""
    beside: tuple[Asked, ...] = ()
    """Others that were asked with it: the job waits until none of them is open any more."""

    @property
    def questions(self) -> tuple[Asked, ...]:
        return self, *self.beside


@frozen
class Breached:
    """Over budget: never retried."""

    error: str


Outcome = (
    Success
    | Failure
    | AttemptTimedOut
    | DeadlinePassed
    | Expired
    | Stopped
    | HandedBack
    | Detached
    | Lost
    | Crashed
    | Snoozed
    | Asked
    | Breached
)
