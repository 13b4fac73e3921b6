"""Outcomes of attempts, one frozen class per case, and the transition: one decided change of a job with all its
writes.

Only `settle` decides what an outcome means for the job.
"""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job, NewJob
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import FINAL, HALTED, State


@frozen
class Success:
    result: str | None = None
    """The result as encoded JSON."""
    result_ref: str | None = None
    follow_ups: tuple[NewJob, ...] = ()
    """Jobs made in the transaction that settles the success, or not at all."""


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
    """The job was granted after its time was over and did not run: past its deadline, or past its `start_by`."""


@frozen
class Stopped:
    """The handler was stopped before its end. With `pause` the job becomes paused, as a drain may require."""

    reason: str | None = None
    pause: bool = False


@frozen
class HandedBack:
    """The job goes back without a failure: its worker drained before its end, or has no handler for its task."""

    reason: str | None = None
    delay: float = 0.0


@frozen
class Detached:
    """The worker of an external execution drains: the execution goes on as an orphan until it is adopted."""

    reason: str | None = None


@frozen
class Lost:
    """The lease ran out, as the reaper sees it. `alone`: no other job shared the dead process. `progressed`: a step or
    a checkpoint was stored since the last crash."""

    alone: bool = True
    error: str = "the lease was lost: its worker died, froze or was cut off"
    progressed: bool = False


@frozen
class Crashed:
    """The child process that ran the job died by a signal; its worker lives and reports it."""

    error: str
    alone: bool = True
    progressed: bool = False


@frozen
class Snoozed:
    """The handler requests to run again later, at no cost."""

    delay: float
    error: str | None = None


@frozen
class Breached:
    """The job is over its budget: never retried."""

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
    | QuestionAsked
    | Breached
)

# -- transitions -------------------------------------------------------------------------------------------------------

ERROR_LIMIT = 16 * 1024


@frozen
class Move:
    """`job` is the whole row after the transition; `event` names it in the history (None: the row itself shows it)."""

    before: Job
    job: Job
    event: str | None
    actor: str | None = None
    detail: str | None = None
    asks: QuestionAsked | None = None

    @property
    def closes_questions(self) -> bool:
        return self.job.state in FINAL and self.before.state not in FINAL


def finish_time(state: State, now: datetime) -> datetime | None:
    """Return the end time of the state. Paused is an interruption, not an end."""
    return now if state in FINAL or (state in HALTED and state is not State.PAUSED) else None


def clean_error(text: str) -> str:
    """Return an error text that every store accepts: no NUL, no lone surrogate, at most 16 KiB of UTF-8."""
    encoded = text.replace("\x00", "\ufffd").encode("utf-8", "replace")
    if len(encoded) <= ERROR_LIMIT:
        return encoded.decode("utf-8")
    return encoded[: ERROR_LIMIT - 16].decode("utf-8", "ignore") + " … (cut)"
