"""Enqueue: stores new jobs. Enqueue is not an operator's verb, so the table and the audit do not have it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from leasehold.domain.errors import DuplicateJob
from leasehold.domain.job import Enqueued, NewJob, any_grouped
from leasehold.operations.local import LocalOperator
from leasehold.stores.results import Once
from leasehold.threads import to_thread


class EnqueueOperations(LocalOperator):
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store all jobs or none. The store notifies workers; this notifies watchers of groups."""
        with self._with_full_keys():
            made = self._store.enqueue(jobs)
        if any_grouped(jobs) and any(one.created for one in made):
            self._store.notify_watchers()
        return made

    def enqueue_once(self, jobs: Sequence[NewJob], key: str, fingerprint: str) -> Once:
        """Store the jobs once per key, even if the call is repeated."""
        with self._with_full_keys():
            once = self._store.enqueue_once(jobs, key, fingerprint)
        if not once.repeated:
            self._store.notify_workers()
            if any_grouped(jobs):
                self._store.notify_watchers()
        return once

    def enqueue_within(self, tx: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Store the jobs in the caller's transaction. Its commit sends the notifications."""
        with self._with_full_keys():
            return self._store.enqueue_within(tx, jobs)

    async def aenqueue_within(self, tx: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        store = await to_thread(lambda: self._store)  # it may have to be opened
        with self._with_full_keys():
            return await store.aenqueue_within(tx, jobs)

    @contextmanager
    def _with_full_keys(self) -> Iterator[None]:
        """Put the full unique key into DuplicateJob, if it was stored shortened."""
        try:
            yield
        except DuplicateJob as error:
            key = self._store.full_names([error.unique_key]).get(error.unique_key)
            if key is None:
                raise
            raise DuplicateJob(error.job_id, error.task, key) from None
