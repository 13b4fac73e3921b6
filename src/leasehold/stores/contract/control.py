"""What an operator does to jobs, lanes, queues, limits and groups."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from leasehold.domain.groups import GroupPage, GroupRow, GroupState, GroupStatus
from leasehold.domain.job import Job
from leasehold.domain.limits import DefaultLimit
from leasehold.domain.stop import StopMode, StoppedJob, StopScope
from leasehold.domain.views import (
    GateLimits,
    PauseRecord,
    RateRow,
    Scope,
    SlotRow,
)
from leasehold.stores.answers import (
    Acquired,
    Stoppable,
)
from leasehold.stores.contract.wakeups import Wakeups


class Operate(Protocol):
    """One job, lane, queue or kind."""

    def cancel(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """Any state that is not final. At once, or a flag for the running. Refused else, and nothing changes."""
        ...

    def pause(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job: ...

    def interrupt(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """Pause it if it runs; cancel it if it is pending, queued, waiting or paused. Decided on the job as it stands,
        so that nobody has to look first."""
        ...

    def finish(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """Let a running job end without another try."""
        ...

    def resume(
        self, job_id: str, actor: str | None = None, args: str | None = None, fresh: bool = False
    ) -> Job:
        """A halted job goes on as the same job; a pause that was only asked for is withdrawn. With `fresh` its steps
        and its checkpoint are forgotten. Refused while it is over its budget, unless `on_breach` allows that; with
        DuplicateJob when another job holds its unique key by now."""
        ...

    def resolve(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """The failure stays, the lane goes on."""
        ...

    def abandon(self, job_id: str, actor: str | None = None, reason: str | None = None) -> Job:
        """Give up the execution of an orphan: its site is gone for good. It counts as a failure."""
        ...

    def release(self, job_id: str, actor: str | None = None) -> Job: ...

    def retry(self, job_id: str, new_id: str, actor: str | None = None) -> Job:
        """A new job like this one, linked by `retry_of`. The old one must be at rest, and stays as it is."""
        ...

    def pause_scope(
        self,
        scope: Scope,
        name: str,
        actor: str | None = None,
        reason: str | None = None,
        for_: float | None = None,
        until: datetime | None = None,
    ) -> PauseRecord:
        """No claims from this queue, or of this kind, until then or until resumed. Running jobs go on."""
        ...

    def resume_scope(self, scope: Scope, name: str) -> bool:
        """False: it was not paused."""
        ...

    def list_pauses(self) -> list[PauseRecord]: ...

    def resume_lane(self, lane: str, actor: str | None = None) -> Job | None:
        """Resume the job that halts the lane. None: nothing halts it."""
        ...


class Limits(Protocol):
    """Slots and rates, which jobs pass before they start."""

    def set_slot(self, name: str, limit: int) -> None:
        """At most `limit` units in use at once, across all workers; 0 closes it. What is in use stays so."""
        ...

    def list_slots(self) -> list[SlotRow]: ...

    def set_rate(self, key: str, limit: str, spacing: float, burst: int) -> None:
        """One job every `spacing` seconds, up to `burst` of them at once after a silence."""
        ...

    def close_rate(
        self,
        key: str,
        actor: str | None = None,
        reason: str | None = None,
        for_: float | None = None,
        until: datetime | None = None,
    ) -> None:
        """No job of this key starts, on any worker, until then or until it is opened."""
        ...

    def open_rate(self, key: str) -> bool:
        """False: it was not closed."""
        ...

    def list_rates(self) -> list[RateRow]: ...

    def limits_of(self, gate: int) -> GateLimits:
        """What jobs behind this gate need, how much of it is in use, and by whom."""
        ...

    def acquire(
        self, job_id: str, token: int, name: str, units: int = 1, default: DefaultLimit | None = None
    ) -> Acquired:
        """Units of a slot for the holder of this lease, until its run ends; or tokens of a rate, which is made as
        `default` says if there is none. At once or not at all. Raises InvalidInput for a name that is neither, and
        LeaseLost."""
        ...

    def release_slot(self, job_id: str, attempt: int, name: str) -> int:
        """Give back what this run has acquired of the slot; how many units that was."""
        ...


class Stop(Protocol):
    """Many jobs at once."""

    def find_stoppable(self, scope: StopScope, before: str | None = None, running: bool = False) -> Stoppable:
        """Jobs in the scope that a stop would move, newest first; with `running` those that run, by the leases that
        are held. A read: what becomes of them is decided by `stop_jobs`."""
        ...

    def stop_jobs(
        self,
        ids: Sequence[str],
        scope: StopScope,
        mode: StopMode,
        actor: str | None = None,
        reason: str | None = None,
    ) -> list[StoppedJob]:
        """Stop these jobs, in one short transaction: cancelled at once, or a flag for the running, whose follow-ups in
        the scope will be created cancelled. Those that have ended are left out of the answer. Groups that are not named
        by the scope, and of which jobs were stopped, remember it as their last stop."""
        ...

    def still_running(self, ids: Sequence[str]) -> list[str]: ...


class Groups(Protocol):
    """Jobs under one name, and those who wait for them."""

    def group(self, name: str) -> GroupRow | None: ...

    def list_groups(
        self, state: GroupState | None = None, limit: int = 50, cursor: str | None = None
    ) -> GroupPage:
        """By name; `cursor` is the last page's `next`."""
        ...

    def group_status(
        self, name: str, kinds: Sequence[str] | None = None, partial: bool = False
    ) -> GroupStatus:
        """Of all its jobs, or of these kinds; with `partial` also what those that run have told so far. What it tells
        is at least as new as its version, and as `noted`."""
        ...

    def group_versions(self, names: Sequence[str]) -> dict[str, int]:
        """One read. Groups that do not exist are left out."""
        ...

    def group_notes(self, names: Sequence[str]) -> dict[str, int]:
        """For each of these groups of which something runs a number that moves when a run tells something. One read."""
        ...

    def stop_group(
        self,
        name: str,
        hold: bool,
        actor: str | None = None,
        reason: str | None = None,
        scope: StopScope | None = None,
        mode: StopMode = "graceful",
    ) -> None:
        """Record that the group was stopped, or a part of it, by `scope`: then its state stays as it is. With `hold`
        nothing comes into it, and nothing in it is resumed, released, answered or retried, until it is released:
        GroupOnHold."""
        ...

    def release_group(self, name: str, actor: str | None = None) -> bool:
        """False: it was not on hold."""
        ...

    def tell_watchers(self) -> None:
        """Tell those who wait for groups, in any process, that one may have changed. Workers are not woken."""
        ...

    def group_wakeups(self, listen_url: str | None = None) -> Wakeups:
        """The waiting side of `tell_watchers`."""
        ...
