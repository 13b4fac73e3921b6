"""The verbs on jobs: one, and many."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from leasehold.domain.batch import any_grouped
from leasehold.domain.budgets import BudgetLine, Spending, checked_amounts, checked_unit
from leasehold.domain.by_id import ask_again_in
from leasehold.domain.checks.durations import Duration, seconds
from leasehold.domain.checks.ids import LOWEST_ID, id_prefix, make_id
from leasehold.domain.checks.names import checked_name, kept_name
from leasehold.domain.checks.payload import encode
from leasehold.domain.checks.texts import checked_actor, checked_criterion, checked_reason
from leasehold.domain.errors import DuplicateJob, InvalidInput, JobNotFound
from leasehold.domain.job import Job, NewJob, Question
from leasehold.domain.states import State
from leasehold.domain.stream import LogTail, Progress, Seen
from leasehold.domain.views import (
    AttemptRecord,
    Filter,
    HistoryEntry,
    Hold,
    OpenQuestion,
    Page,
    Relation,
    Relative,
    StepRecord,
)
from leasehold.operations.base import StoreDoor, known_id
from leasehold.operations.explain.job import explain
from leasehold.stores.answers import Enqueued

PRUNE_BATCH = 1000
MOST_NAMED = 5
"""Ids that begin alike and are named."""


class JobOperations(StoreDoor):
    # -- enqueue ---------------------------------------------------------------------------------------------------
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """All or none. Workers hear of it from the store; those who watch a group hear of it here."""
        try:
            made = self._store.enqueue(jobs)
        except DuplicateJob as error:
            key = self._store.whole_names([error.unique_key]).get(error.unique_key)
            if key is None:
                raise
            raise DuplicateJob(error.job_id, error.kind, key) from None
        if any_grouped(jobs) and any(one.created for one in made):
            self._store.tell_watchers()
        return made

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

    def ask_again_in(self, job: Job) -> float | None:
        """Seconds after which a claim of this job may have more luck; None: not before somebody acts."""
        return ask_again_in(job, self._store.now())

    def cancel(self, job_id: str, *, reason: str | None = None, actor: str | None = None) -> Job:
        return self._steered(
            self._store.cancel(known_id(job_id), checked_actor(actor), checked_reason(reason))
        )

    def pause(self, job_id: str, *, reason: str | None = None, actor: str | None = None) -> Job:
        return self._steered(
            self._store.pause(known_id(job_id), checked_actor(actor), checked_reason(reason))
        )

    def interrupt(self, job_id: str, *, reason: str | None = None, actor: str | None = None) -> Job:
        return self._steered(
            self._store.interrupt(known_id(job_id), checked_actor(actor), checked_reason(reason))
        )

    def resume(
        self, job_id: str, *, args: str | None = None, fresh: bool = False, actor: str | None = None
    ) -> Job:
        return self._woken(self._store.resume(known_id(job_id), checked_actor(actor), args, fresh))

    def resolve(self, job_id: str, *, reason: str | None = None, actor: str | None = None) -> Job:
        return self._woken(
            self._store.resolve(known_id(job_id), checked_actor(actor), checked_reason(reason))
        )

    def release(self, job_id: str, *, actor: str | None = None) -> Job:
        return self._woken(self._store.release(known_id(job_id), checked_actor(actor)))

    def retry(self, job_id: str, *, actor: str | None = None) -> Job:
        return self._woken(
            self._store.retry(
                known_id(job_id), make_id(time.time_ns() // 1_000_000, os.urandom(10)), checked_actor(actor)
            )
        )

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
        text = encode(value, "answer")
        return self._woken(
            self._store.answer(known_id(job_id), checked_name(key, "key"), text, checked_actor(actor))
        )

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
        return self._store.top_up(known_id(job_id), checked_amounts(amounts, "top_up"), checked_actor(actor))

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
        return self._store.relatives(known_id(job_id), limit)

    def count_relatives(self, job_id: str) -> dict[Relation, int]:
        """How many there are of each."""
        return self._store.count_relatives(known_id(job_id))

    def explain(self, job_id: str) -> list[Hold]:
        """Why the job is not running: every cause, in order, with what would change it."""
        return self._all_whole(explain(self._store, known_id(job_id)))

    # -- many jobs -------------------------------------------------------------------------------------------------
    def list_jobs(self, filter: Filter, limit: int = 50, before: str | None = None) -> Page:
        for name in ("queue", "kind", "lane", "group", "tag"):
            checked_criterion(getattr(filter, name), name)
        lane = filter.lane and kept_name(filter.lane, "lane")
        tag = filter.tag and kept_name(filter.tag, "tag")
        page = self._store.list_jobs(replace(filter, lane=lane, tag=tag), limit, before)
        return replace(page, jobs=self._all_whole(page.jobs))

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
