"""The operator's verbs: the only door of the surfaces. Ids and values are checked here, once for all of them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from leasehold.domain.batch import any_grouped
from leasehold.domain.budgets import BudgetLine, Spending, checked_amounts, checked_unit
from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.ids import checked_id, make_id
from leasehold.domain.checks.names import Names, checked_name, checked_names
from leasehold.domain.checks.payload import check_text, encode
from leasehold.domain.errors import InvalidInput
from leasehold.domain.groups import GroupStatus
from leasehold.domain.job import Job, NewJob, Question
from leasehold.domain.limits import checked_limit_name, checked_number, parse_rate
from leasehold.domain.states import State
from leasehold.domain.stop import StopMode, StopReport, StopScope
from leasehold.domain.stream import LogTail, Progress, Seen
from leasehold.domain.views import (
    COUNT_CAP,
    Filter,
    Finding,
    HistoryEntry,
    Hold,
    LaneHolder,
    OpenQuestion,
    Page,
    PauseRecord,
    QueueRow,
    RateRow,
    Relative,
    Scope,
    SlotRow,
    WorkerCard,
)
from leasehold.operations.doctor import examine
from leasehold.operations.explain.job import explain
from leasehold.operations.group_watch import GroupWatch
from leasehold.operations.groups import GroupPoll
from leasehold.operations.queues import list_queues
from leasehold.operations.stop import Watch, nobody, stop
from leasehold.stores.answers import Enqueued
from leasehold.stores.contract import Store

__all__ = ["COUNT_CAP", "Finding", "Hold", "Operations", "QueueRow"]

PRUNE_BATCH = 1000
T = TypeVar("T")


class Operations:
    def __init__(
        self,
        find_store: Callable[[], Store],
        find_kinds: Callable[[], Mapping[str, str]] = dict,
        listen_url: str | None = None,
    ) -> None:
        self._find_store = find_store
        self._find_kinds = find_kinds
        """The registered kinds, each with its own queue."""
        self._listen_url = listen_url
        self._group_watch: GroupWatch | None = None

    @property
    def _store(self) -> Store:
        """Asked for at every call: an app that was closed and is used again has another one."""
        return self._find_store()

    def _woken(self, answer: T) -> T:
        """What was done may have freed a job, or a lane: tell the workers."""
        self._store.wake()
        return self._told(answer)

    def _told(self, answer: T) -> T:
        """What was done to a job of a group is told to those who watch that group."""
        if getattr(answer, "group_name", None) is not None:
            self._store.tell_watchers()
        return answer

    # -- enqueue ---------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """All or none. Workers hear of it from the store; those who watch a group hear of it here."""
        made = self._store.enqueue(jobs)
        if any_grouped(jobs) and any(one.created for one in made):
            self._store.tell_watchers()
        return made

    # -- one job ---------------------------------------------------------------------------------------------------
    def get(self, job_id: str) -> Job:
        return self._store.get(checked_id(job_id))

    def cancel(self, job_id: str, *, reason: str | None = None, actor: str | None = None) -> Job:
        return self._woken(self._store.cancel(checked_id(job_id), actor, _reason(reason)))

    def pause(self, job_id: str, *, reason: str | None = None, actor: str | None = None) -> Job:
        return self._told(self._store.pause(checked_id(job_id), actor, _reason(reason)))

    def resume(
        self, job_id: str, *, args: str | None = None, fresh: bool = False, actor: str | None = None
    ) -> Job:
        return self._woken(self._store.resume(checked_id(job_id), actor, args, fresh))

    def resolve(self, job_id: str, *, reason: str | None = None, actor: str | None = None) -> Job:
        return self._woken(self._store.resolve(checked_id(job_id), actor, _reason(reason)))

    def release(self, job_id: str, *, actor: str | None = None) -> Job:
        return self._woken(self._store.release(checked_id(job_id), actor))

    def retry(self, job_id: str, *, actor: str | None = None) -> Job:
        return self._woken(
            self._store.retry(checked_id(job_id), make_id(time.time_ns() // 1_000_000, os.urandom(10)), actor)
        )

    def history(self, job_id: str) -> list[HistoryEntry]:
        self._store.get(checked_id(job_id))
        return self._store.history(checked_id(job_id))

    def read_stream(self, job_id: str, since: int, limit: int) -> Seen:
        return self._store.read_stream(checked_id(job_id), since, limit)

    def progress(self, job_id: str) -> Progress | None:
        return self._store.progress(checked_id(job_id))

    def logs(self, job_id: str) -> list[LogTail]:
        return self._store.logs(checked_id(job_id))

    # -- questions and budgets -------------------------------------------------------------------------------------
    def questions(self, job_id: str) -> list[Question]:
        """Secret answers are left out."""
        return self._store.questions(checked_id(job_id))

    def open_questions(
        self, *, group: str | None = None, queue: str | None = None, kind: str | None = None, limit: int = 100
    ) -> list[OpenQuestion]:
        """The inbox: open questions, the oldest first."""
        return self._store.open_questions(group, queue, kind, limit)

    def answer(self, job_id: str, key: str, value: Any, *, actor: str | None = None) -> Job:
        """The value is plain JSON; it must fit the question's schema."""
        text = encode(value, "answer")
        return self._woken(self._store.answer(checked_id(job_id), checked_name(key, "key"), text, actor))

    def budget(self, job_id: str) -> list[BudgetLine]:
        """What the job and its group may spend, and have spent."""
        return self._store.budget(checked_id(job_id))

    def spending(self, job_id: str) -> list[Spending]:
        """The job's ledger."""
        return self._store.spending(checked_id(job_id))

    def top_up(
        self, job_id: str, amounts: Mapping[str, int], *, actor: str | None = None
    ) -> list[BudgetLine]:
        """Raise the job's limits by these amounts."""
        return self._store.top_up(checked_id(job_id), checked_amounts(amounts, "top_up"), actor)

    def set_group_budget(self, group: str, limits: Mapping[str, int | None]) -> list[BudgetLine]:
        """Set limits of a group, by unit; None takes one away."""
        given = {unit: limit for unit, limit in limits.items() if limit is not None}
        checked: dict[str, int | None] = {
            **{checked_unit(unit): None for unit in limits},
            **(checked_amounts(given, "budget") if given or not limits else {}),
        }
        return self._store.set_group_budget(checked_name(group, "group"), checked)

    def group_budget(self, group: str) -> list[BudgetLine]:
        return self._store.group_budget(checked_name(group, "group"))

    def relatives(self, job_id: str, limit: int = 500) -> list[Relative]:
        """What it waits for, who waits for it, whose follow-up it is, which follow-ups it has."""
        return self._store.relatives(checked_id(job_id), limit)

    def explain(self, job_id: str) -> list[Hold]:
        """Why the job is not running: every cause, in order, with what would change it."""
        return explain(self._store, checked_id(job_id))

    # -- many jobs -------------------------------------------------------------------------------------------------
    def list_jobs(self, filter: Filter, limit: int = 50, before: str | None = None) -> Page:
        return self._store.list_jobs(filter, limit, before)

    def count(self) -> dict[State, int]:
        return self._store.count()

    def prune(self, older_than: Duration) -> int:
        """Delete what came to rest longer ago than this, batch by batch; how many jobs went."""
        return sum(self.prune_batches(older_than))

    def prune_batches(self, older_than: Duration) -> Iterator[int]:
        """As `prune`, telling after each batch how many went with it."""
        age, after = seconds(older_than, "older_than"), None
        while True:
            pruned = self._store.prune(age, PRUNE_BATCH, after)
            yield pruned.deleted
            after = pruned.next
            if after is None:
                return

    # -- groups, stop ----------------------------------------------------------------------------------------------
    def group_status(
        self, name: str, *, wait: Duration = 0, since: int | None = None, kinds: Names = None
    ) -> GroupStatus:
        return self._poll(name, wait, since, kinds).run()

    async def agroup_status(
        self, name: str, *, wait: Duration = 0, since: int | None = None, kinds: Names = None
    ) -> GroupStatus:
        return await self._poll(name, wait, since, kinds).run_async()

    def release_group(self, name: str, *, actor: str | None = None) -> bool:
        released = self._store.release_group(checked_name(name, "group"), actor)
        self._store.tell_watchers()
        return released

    def stop(
        self,
        *,
        group: str | None = None,
        queue: str | None = None,
        kinds: Names = None,
        lane: str | None = None,
        tags: Names = None,
        everything: bool = False,
        mode: StopMode = "graceful",
        reason: str | None = None,
        wait: Duration = 30,
        dry_run: bool = False,
        hold: bool = False,
        actor: str | None = None,
        watch: Watch = nobody,
    ) -> StopReport:
        """Stop all jobs that match; `watch` is called now and then with the report so far."""
        scope = StopScope(
            group=None if group is None else checked_name(group, "group"),
            queue=None if queue is None else checked_name(queue, "queue"),
            kinds=checked_names(kinds, "kinds"),
            lane=None if lane is None else checked_name(lane, "lane"),
            tags=checked_names(tags, "tags") or (),
            everything=everything,
        )
        return stop(
            self._store,
            scope,
            self._find_kinds() or {kind: queue for queue, kind in self._store.list_gates()},
            mode=mode,
            reason=reason,
            wait=wait,
            dry_run=dry_run,
            hold=hold,
            actor=actor,
            watch=watch,
        )

    def _poll(self, name: str, wait: Duration, since: int | None, kinds: Names) -> GroupPoll:
        return GroupPoll(
            self._watch_of(self._store),
            checked_name(name, "group"),
            wait,
            since,
            checked_names(kinds, "kinds"),
        )

    def _watch_of(self, store: Store) -> GroupWatch:
        """One for all waiters; another one for another store, and on the other side of a fork."""
        watch = self._group_watch
        if watch is None or watch.store is not store or watch.pid != os.getpid():
            watch = self._group_watch = GroupWatch(store, self._listen_url)
        return watch

    # -- queues, kinds, lanes --------------------------------------------------------------------------------------
    def pause_scope(
        self,
        scope: Scope,
        name: str,
        *,
        reason: str | None = None,
        for_: Duration | None = None,
        until: datetime | None = None,
        actor: str | None = None,
    ) -> PauseRecord:
        length = _length(for_, until)
        return self._store.pause_scope(
            scope, checked_name(name, scope), actor, _reason(reason), length, until
        )

    def resume_scope(self, scope: Scope, name: str) -> bool:
        return self._woken(self._store.resume_scope(scope, checked_name(name, scope)))

    def list_pauses(self) -> list[PauseRecord]:
        return self._store.list_pauses()

    def resume_lane(self, lane: str, *, actor: str | None = None) -> Job | None:
        return self._woken(self._store.resume_lane(checked_name(lane, "lane"), actor))

    def list_lanes(self) -> list[LaneHolder]:
        """Lanes that are held or stand still, and by which job."""
        return self._store.list_lanes()

    def list_queues(self) -> list[QueueRow]:
        """Every queue and task that is known, with its live workers, its pause and what is in it."""
        return list_queues(self._store)

    # -- limits ----------------------------------------------------------------------------------------------------
    def set_slot(self, name: str, limit: int) -> None:
        checked = checked_number(limit, "limit", 0)
        self._store.set_slot(checked_limit_name(name, "name"), checked)
        self._store.wake()

    def list_slots(self) -> list[SlotRow]:
        return self._store.list_slots()

    def set_rate(self, key: str, limit: str, *, burst: int = 1) -> None:
        text, spacing = parse_rate(limit)
        checked = checked_number(burst, "burst", 1)
        self._store.set_rate(checked_limit_name(key, "key"), text, spacing, checked)
        self._store.wake()

    def close_rate(
        self,
        key: str,
        *,
        for_: Duration | None = None,
        until: datetime | None = None,
        reason: str | None = None,
        actor: str | None = None,
    ) -> None:
        """No job of this key starts until then, or until it is opened."""
        length = _length(for_, until)
        self._store.close_rate(checked_limit_name(key, "key"), actor, _reason(reason), length, until)

    def open_rate(self, key: str) -> bool:
        return self._woken(self._store.open_rate(checked_limit_name(key, "key")))

    def list_rates(self) -> list[RateRow]:
        return self._store.list_rates()

    # -- workers and the database ------------------------------------------------------------------------------------
    def list_workers(self) -> list[WorkerCard]:
        return self._store.list_workers()

    def examine(self) -> list[Finding]:
        """Everything the doctor looks at."""
        return examine(self._store)

    def verify(self) -> list[str]:
        """What the schema lacks, by name."""
        return self._store.missing_objects()

    def upgrade(self) -> list[int]:
        return self._store.upgrade()

    def upgrade_sql(self, after: int = 0) -> str:
        return self._store.upgrade_sql(after)


def _length(for_: Duration | None, until: datetime | None) -> float | None:
    """Of a pause or a closure that is given by one of the two, or by none."""
    if for_ is not None and until is not None:
        raise InvalidInput("until", "stands beside for_", "give one of them")
    if until is not None and until.tzinfo is None:
        raise InvalidInput("until", f"{until!r} has no time zone", "give an aware datetime")
    return None if for_ is None else seconds(for_, "for_", positive=True)


def _reason(text: str | None) -> str | None:
    return None if text is None else check_text(text, "reason")
