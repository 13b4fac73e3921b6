"""Transitions: one decided change of a job, with everything that the same transaction writes."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.outcome import QuestionAsked
from leasehold.domain.states import FINAL, HALTED, State

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
