"""Questions of a job: as its handler asks them, as the job shows them, and as the inbox lists the open ones."""

from __future__ import annotations

from datetime import datetime

from leasehold.domain.frozen import EncodedJson, frozen, shown
from leasehold.domain.states import State


@frozen
class QuestionAsked:
    """The job is parked until one or several answers come."""

    key: str
    text: str
    schema: str | None = None
    secret: bool = False
    timeout: float | None = None
    """Seconds until the question expires, counted from when it was first asked."""
    beside: tuple[QuestionAsked, ...] = ()
    """Questions asked together with this one: the job waits until none of them is open."""

    @property
    def questions(self) -> tuple[QuestionAsked, ...]:
        return self, *self.beside


@frozen
class Question:
    """A question of a job. A secret answer is shown only to the job itself."""

    key: str
    text: str
    schema: EncodedJson
    """JSON Schema of the answer; None: any value."""
    answer: EncodedJson
    asked_at: datetime
    closed_at: datetime | None
    secret: bool = False
    expires_at: datetime | None = None
    expired: bool = False
    """The time-out passed without an answer."""
    answered: bool = False

    @shown
    def status(self) -> str:
        """`open`, `answered`, `expired`, or `closed` by the end of its job."""
        if self.answered:
            return "answered"
        if self.expired:
            return "expired"
        return "open" if self.closed_at is None else "closed"


@frozen
class OpenQuestion:
    """A question as the inbox shows it."""

    job_id: str
    task: str
    queue: str
    group: str | None
    state: State
    key: str
    text: str
    schema: EncodedJson
    secret: bool
    asked_at: datetime
    expires_at: datetime | None
