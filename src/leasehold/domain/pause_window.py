"""Pause windows of queues, tasks and rates: how long, why, and who set them."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime
from typing import TypedDict

from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.instants import checked_instant
from leasehold.domain.checks.texts import checked_actor, checked_reason
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen


class PauseOptions(TypedDict, total=False):
    """The keywords of `app.queues.pause`, `app.tasks.pause` and `app.rates.close`."""

    for_: Duration | None
    until: datetime | None
    reason: str | None
    actor: str | None


class ClosingArguments(TypedDict):
    for_: float | None
    until: datetime | None
    reason: str | None
    actor: str | None


@frozen(kw_only=True)
class PauseWindow:
    """A pause with a length, with an end, or with neither: then it lasts until someone ends it."""

    for_: Duration | None = None
    until: datetime | None = None
    reason: str | None = None
    """Shown by `why` and in lists."""
    actor: str | None = None
    length: float | None = field(init=False)
    """`for_` in seconds."""

    def __post_init__(self) -> None:
        if self.for_ is not None and self.until is not None:
            raise InvalidInput("until", "cannot be given together with for_", "give one of them")
        if self.until is not None:
            checked_instant(self.until, "until")
        checked_reason(self.reason)
        checked_actor(self.actor)
        length = None if self.for_ is None else seconds(self.for_, "for_", positive=True)
        object.__setattr__(self, "length", length)

    @property
    def arguments(self) -> ClosingArguments:
        """As the verbs take it."""
        return {"for_": self.length, "until": self.until, "reason": self.reason, "actor": self.actor}
