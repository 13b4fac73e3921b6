"""What is due by itself."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from leasehold.domain.job import NewJob
from leasehold.domain.schedules import Schedule
from leasehold.domain.views import ScheduleRow
from leasehold.stores.answers import Fired, Registered


class Schedules(Protocol):
    """Tasks that are due by themselves."""

    def register_schedules(
        self, owner: str, schedules: Sequence[Schedule], starting: bool = True
    ) -> list[Registered]:
        """A worker declares these in its code. New ones are made; one that was declared otherwise is changed, and if it
        is due at other times, its next tick is counted from now. With `starting`, one with `at_start` is due now, if no
        other live worker declares it: once for a fleet, however many of its workers start together."""
        ...

    def leave_schedules(self, owner: str) -> None:
        """The worker ends."""
        ...

    def list_schedules(self) -> list[ScheduleRow]: ...

    def set_schedule(self, schedule: Schedule) -> ScheduleRow:
        """Make one at run time, or change it. InvalidInput for one that stands in the code of a live worker."""
        ...

    def delete_schedule(self, name: str) -> None:
        """Raises ScheduleNotFound, and InvalidInput for one that stands in the code of a live worker."""
        ...

    def pause_schedule(self, name: str, actor: str | None = None, reason: str | None = None) -> None:
        """No ticks until it is resumed. Raises ScheduleNotFound."""
        ...

    def resume_schedule(self, name: str) -> bool:
        """Ticks of the pause are not made up for: if there were any, the next is counted from now. False: it was not
        paused."""
        ...

    def fire(
        self,
        name: str,
        seen: datetime,
        jobs: Sequence[NewJob],
        next_at: datetime,
        passed: int,
        *,
        tenant: str | None = None,
    ) -> Fired | None:
        """Deal with the ticks from `seen` up to before `next_at`: these jobs are made in the same transaction, unless
        the job of the tick before still lives and the schedule says otherwise. None: somebody else has dealt with
        `seen`, or the schedule was paused, changed or deleted. `tenant`: as the row says, for a store of many."""
        ...

    def note_run(self, name: str, job_id: str) -> None:
        """A job of the schedule was made by hand: what `overlap` looks at next."""
        ...
