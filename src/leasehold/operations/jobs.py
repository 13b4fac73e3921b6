"""The verbs on jobs: one, and many."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from leasehold.domain.batch import any_grouped
from leasehold.domain.budgets import (
    BudgetLine,
    BudgetPage,
    Spending,
    checked_amounts,
    checked_owner,
    checked_unit,
)
from leasehold.domain.by_id import ask_again_in
from leasehold.domain.checks.ids import LOWEST_ID, id_prefix, make_id
from leasehold.domain.checks.names import checked_name
from leasehold.domain.checks.payload import encode
from leasehold.domain.checks.texts import checked_criterion, checked_reason
from leasehold.domain.errors import DuplicateJob, InvalidInput, JobNotFound
from leasehold.domain.explanation import Hold
from leasehold.domain.job import Job, NewJob, Question
from leasehold.domain.retention import ENDED, Keep, PruneChoice, PruneCount, PruneReport, Retention, ages_of
from leasehold.domain.states import State
from leasehold.domain.stream import LogTail, Progress, Seen
from leasehold.domain.views import (
    AttemptRecord,
    Filter,
    HistoryEntry,
    OpenQuestion,
    Page,
    Relation,
    Relative,
    StepRecord,
)
from leasehold.operations.base import StoreDoor, kept_filter, known_id
from leasehold.operations.explain.job import explain
from leasehold.operations.job_watch import JobWatch
from leasehold.stores.answers import Enqueued, Once
from leasehold.threads import to_thread

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

PRUNE_BATCH = 1000
MOST_NAMED = 5
"""Ids that begin alike and are named."""


class JobOperations(StoreDoor):
    _job_watch: JobWatch | None = None

    # -- enqueue ---------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """All or none. Workers hear of it from the store; those who watch a group hear of it here."""
        with self._whole_keys():
            made = self._store.enqueue(jobs)
        if any_grouped(jobs) and any(one.created for one in made):
            self._store.tell_watchers()
        return made

    def enqueue_once(self, jobs: Sequence[NewJob], key: str, fingerprint: str) -> Once:
        """Once for a key, however often it is asked."""
        with self._whole_keys():
            once = self._store.enqueue_once(jobs, key, fingerprint)
        if not once.repeated:
            self._store.wake()
            if any_grouped(jobs):
                self._store.tell_watchers()
        return once

    def enqueue_within(self, tx: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """In the caller's own transaction. Everybody hears of it by its commit."""
        with self._whole_keys():
            return self._store.enqueue_within(tx, jobs)

    async def aenqueue_within(self, tx: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        store = await to_thread(lambda: self._store)  # it may have to be opened
        with self._whole_keys():
            return await store.aenqueue_within(tx, jobs)

    @contextmanager
    def _whole_keys(self) -> Iterator[None]:
        """A key that was too long to be kept as it is, is told whole."""
        try:
            yield
        except DuplicateJob as error:
            key = self._store.whole_names([error.unique_key]).get(error.unique_key)
            if key is None:
                raise
            raise DuplicateJob(error.job_id, error.kind, key) from None

    # -- ids -------------------------------------------------------------------------------------------------------
    def find_id(self, text: str) -> str:
        """The id that a person means, who may give its beginning. Raises JobNotFound; InvalidInput when several begin
        so."""
        prefix = id_prefix(text)
        if prefix is None:
            raise JobNotFound(text)
        if len(prefix) == len(LOWEST_ID):
            return prefix
        found = self._store.find_ids(prefix, MOST_NAMED + 1)
        if not found:
            raise JobNotFound(text)
        if len(found) > 1:
            named = ", ".join(found[:MOST_NAMED]) + (" …" if len(found) > MOST_NAMED else "")
            raise InvalidInput("id", f"{text!r} is the beginning of several: {named}", "give more of it")
        return found[0]

    def short_ids(self, ids: Sequence[str]) -> dict[str, str]:
        """As much of each id as `find_id` needs to know it again."""
        return self._store.short_ids(ids)

    # -- one job ---------------------------------------------------------------------------------------------------
    def get(self, job_id: str) -> Job:
        return self._whole(self._store.get(known_id(job_id)))

    def result_text(self, job: Job) -> str | None:
        """Encoded JSON, from the row or from its file. Raises ResultMissing."""
        return job.result if job.result_ref is None else self._store.read_result(job.id, job.result_ref)

    def ask_again_in(self, job: Job) -> float | None:
        """Seconds after which a claim of this job may have more luck; None: not before somebody acts."""
        return ask_again_in(job, self._store.now())

    def cancel(self, job_id: str, *, reason: str | None = None, actor: str | None = None) -> Job:
        job_id, reason = known_id(job_id), checked_reason(reason)
        with self._recorded("job.cancel", job_id, actor, reason=reason) as store:
            job = store.cancel(job_id, actor, reason)
        return self._steered(job)

    def pause(self, job_id: str, *, reason: str | None = None, actor: str | None = None) -> Job:
        job_id, reason = known_id(job_id), checked_reason(reason)
        with self._recorded("job.pause", job_id, actor, reason=reason) as store:
            job = store.pause(job_id, actor, reason)
        return self._steered(job)

    def interrupt(self, job_id: str, *, reason: str | None = None, actor: str | None = None) -> Job:
        job_id, reason = known_id(job_id), checked_reason(reason)
        with self._recorded("job.interrupt", job_id, actor, reason=reason) as store:
            job = store.interrupt(job_id, actor, reason)
        return self._steered(job)

    def resume(
        self, job_id: str, *, args: str | None = None, fresh: bool = False, actor: str | None = None
    ) -> Job:
        job_id = known_id(job_id)
        with self._recorded("job.resume", job_id, actor, fresh=fresh, new_args=args is not None) as store:
            job = store.resume(job_id, actor, args, fresh)
        return self._woken(job)

    def resolve(self, job_id: str, *, reason: str | None = None, actor: str | None = None) -> Job:
        job_id, reason = known_id(job_id), checked_reason(reason)
        with self._recorded("job.resolve", job_id, actor, reason=reason) as store:
            job = store.resolve(job_id, actor, reason)
        return self._woken(job)

    def abandon(self, job_id: str, *, reason: str | None = None, actor: str | None = None) -> Job:
        """Give up an execution that nobody watches and nobody will find again, its machine is gone. If it lives,
        the next attempt will run beside it."""
        job_id, reason = known_id(job_id), checked_reason(reason)
        with self._recorded("job.abandon", job_id, actor, reason=reason) as store:
            job = store.abandon(job_id, actor, reason)
        self._store.wake()
        return job

    def release(self, job_id: str, *, actor: str | None = None) -> Job:
        job_id = known_id(job_id)
        with self._recorded("job.release", job_id, actor) as store:
            job = store.release(job_id, actor)
        return self._woken(job)

    def retry(self, job_id: str, *, actor: str | None = None) -> Job:
        job_id, new_id = known_id(job_id), make_id(time.time_ns() // 1_000_000, os.urandom(10))
        with self._recorded("job.retry", job_id, actor, job=new_id) as store:
            job = store.retry(job_id, new_id, actor)
        return self._woken(job)

    def history(self, job_id: str) -> list[HistoryEntry]:
        self._store.get(known_id(job_id))
        return self._store.history(known_id(job_id))

    def attempts(self, job_id: str) -> list[AttemptRecord]:
        """Its runs, oldest first."""
        self._store.get(known_id(job_id))
        return self._store.attempts(known_id(job_id))

    def steps(self, job_id: str) -> list[StepRecord]:
        """What its runs have kept, in that order."""
        self._store.get(known_id(job_id))
        return self._store.steps(known_id(job_id))

    def read_stream(self, job_id: str, since: int, limit: int) -> Seen:
        return self._store.read_stream(known_id(job_id), since, limit)

    def job_mark(self, job_id: str) -> str:
        """For `await_job`. Raises JobNotFound."""
        job_id = known_id(job_id)
        mark = self._store.mark_jobs([job_id]).get(job_id)
        if mark is None:
            raise JobNotFound(job_id)
        return mark

    async def await_job(self, job_id: str, mark: str, seconds: float) -> bool:
        """Until the job has another mark, or so long; False: the time is over. Holds no thread."""
        watch = self._watch_of_jobs(await to_thread(lambda: self._store))
        future = watch.expect(known_id(job_id), mark)
        try:
            await asyncio.wait_for(asyncio.wrap_future(future), seconds)
        except TimeoutError:
            return False
        finally:
            watch.drop(future)
        return True

    def _watch_of_jobs(self, store: JobStore) -> JobWatch:
        """One for all waiters; another one for another store, and on the other side of a fork."""
        watch = self._job_watch
        if watch is None or watch.store is not store or watch.pid != os.getpid():
            watch = self._job_watch = JobWatch(store)
        return watch

    def progress(self, job_id: str) -> Progress | None:
        return self._store.progress(known_id(job_id))

    def logs(self, job_id: str) -> list[LogTail]:
        return self._store.logs(known_id(job_id))

    # -- questions and budgets -------------------------------------------------------------------------------------
    def questions(self, job_id: str) -> list[Question]:
        """Secret answers are left out."""
        return self._store.questions(known_id(job_id))

    def open_questions(
        self, *, group: str | None = None, queue: str | None = None, kind: str | None = None, limit: int = 100
    ) -> list[OpenQuestion]:
        """The inbox: open questions, the oldest first."""
        return self._store.open_questions(
            checked_criterion(group, "group"),
            checked_criterion(queue, "queue"),
            checked_criterion(kind, "kind"),
            limit,
        )

    def answer(self, job_id: str, key: str, value: Any, *, actor: str | None = None) -> Job:
        """The value is plain JSON; it must fit the question's schema."""
        job_id, key, text = known_id(job_id), checked_name(key, "key"), encode(value, "answer")
        with self._recorded("question.answer", job_id, actor, key=key) as store:
            job = store.answer(job_id, key, text, actor)
        return self._woken(job)

    def budget(self, job_id: str) -> list[BudgetLine]:
        """What the job and its group may spend, and have spent."""
        return self._store.budget(known_id(job_id))

    def spending(self, job_id: str) -> list[Spending]:
        """The job's ledger."""
        return self._store.spending(known_id(job_id))

    def top_up(
        self, job_id: str, amounts: Mapping[str, int], *, actor: str | None = None
    ) -> list[BudgetLine]:
        """Raise the job's limits by these amounts."""
        job_id, amounts = known_id(job_id), checked_amounts(amounts, "top_up")
        with self._recorded("budget.top_up", job_id, actor, amounts=amounts) as store:
            return store.top_up(job_id, amounts, actor)

    def set_group_budget(
        self, group: str, limits: Mapping[str, int | None], *, actor: str | None = None
    ) -> list[BudgetLine]:
        """Set limits of a group, by unit; None takes one away."""
        given = {unit: limit for unit, limit in limits.items() if limit is not None}
        checked: dict[str, int | None] = {
            **{checked_unit(unit): None for unit in limits},
            **(checked_amounts(given, "budget") if given or not limits else {}),
        }
        group = checked_name(group, "group")
        with self._recorded("budget.set", group, actor, limits=checked) as store:
            return store.set_group_budget(group, checked)

    def group_budget(self, group: str) -> list[BudgetLine]:
        return self._store.group_budget(checked_name(group, "group"))

    def list_budgets(
        self, scope: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> BudgetPage:
        """Groups first, then jobs that have spent something or were topped up."""
        return self._store.list_budgets(checked_owner(scope), limit, cursor)

    def relatives(self, job_id: str, limit: int = 500) -> list[Relative]:
        """What it waits for, who waits for it, whose follow-up it is, which follow-ups it has."""
        return self._store.relatives(known_id(job_id), limit)

    def count_relatives(self, job_id: str) -> dict[Relation, int]:
        """How many there are of each."""
        return self._store.count_relatives(known_id(job_id))

    def explain(self, job_id: str) -> list[Hold]:
        """Why the job is not running: every cause, in order, with what would change it."""
        return self._all_whole(explain(self._store, known_id(job_id)))

    # -- many jobs -------------------------------------------------------------------------------------------------
    def list_jobs(self, filter: Filter, limit: int = 50, before: str | None = None) -> Page:
        page = self._store.list_jobs(kept_filter(filter), limit, before)
        return replace(page, jobs=self._all_whole(page.jobs))

    def count(self) -> dict[State, int]:
        return self._store.count()

    def prune(
        self,
        older_than: Keep,
        choice: PruneChoice = PruneChoice(),  # noqa: B008 - frozen
        *,
        actor: str | None = None,
    ) -> PruneReport:
        """Delete what ended longer ago than this, batch by batch."""
        *_, report = self.prune_batches(older_than, choice, actor=actor)
        return report

    def prune_batches(
        self, older_than: Keep, choice: PruneChoice, *, actor: str | None = None
    ) -> Iterator[PruneReport]:
        """As `prune`, telling after each batch what has gone so far. The audit tells of it with the first."""
        ages = ages_of(older_than, "older_than", dict.fromkeys(ENDED))
        store, after = self._store, None
        asked = {"older_than": ages, **asdict(choice)}
        record: AbstractContextManager[JobStore] = nullcontext(store)
        if not choice.dry_run:
            record = self._recorded("prune", None, actor, **asked)
        retention = Retention(ages, {} if choice.override else store.retention())
        counts: Counter[tuple[str, State]] = Counter()
        groups = 0
        while True:
            with record:
                pruned = store.prune(
                    retention,
                    PRUNE_BATCH,
                    after,
                    unique_for_ever=choice.unique_for_ever,
                    dry_run=choice.dry_run,
                )
            record = nullcontext(store)
            counts.update(pruned.counts)
            groups += pruned.groups
            yield _report(counts, groups, choice)
            after = pruned.next
            if after is None:
                break
        while choice.budgets:
            pruned = store.prune_groups(PRUNE_BATCH, after, dry_run=choice.dry_run)
            groups += pruned.groups
            after = pruned.next
            if after is None:
                break
        if not choice.dry_run:
            store.sweep_results()
        yield _report(counts, groups, choice)


def _report(counts: Counter[tuple[str, State]], groups: int, choice: PruneChoice) -> PruneReport:
    listed = tuple(PruneCount(kind, state, jobs) for (kind, state), jobs in sorted(counts.items()))
    return PruneReport(counts.total(), groups, listed, choice.dry_run)
