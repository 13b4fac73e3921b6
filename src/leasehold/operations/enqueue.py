"""Enqueue: from new jobs to stored ones. Not a verb of operators: nothing of it is in the table, or in the audit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from leasehold.domain.batch import any_grouped
from leasehold.domain.errors import DuplicateJob
from leasehold.domain.job import NewJob
from leasehold.operations.local import LocalOperator
from leasehold.stores.results import Enqueued, Once
from leasehold.threads import to_thread


class EnqueueOperations(LocalOperator):
    def enqueue(self, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """All or none. Workers hear of it from the store; those who watch a group hear of it here."""
        with self._with_full_keys():
            made = self._store.enqueue(jobs)
        if any_grouped(jobs) and any(one.created for one in made):
            self._store.notify_watchers()
        return made

    def enqueue_once(self, jobs: Sequence[NewJob], key: str, fingerprint: str) -> Once:
        """Once for a key, however often it is asked."""
        with self._with_full_keys():
            once = self._store.enqueue_once(jobs, key, fingerprint)
        if not once.repeated:
            self._store.notify_workers()
            if any_grouped(jobs):
                self._store.notify_watchers()
        return once

    def enqueue_within(self, tx: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """In the caller's own transaction. Everybody hears of it by its commit."""
        with self._with_full_keys():
            return self._store.enqueue_within(tx, jobs)

    async def aenqueue_within(self, tx: Any, jobs: Sequence[NewJob]) -> list[Enqueued]:
        store = await to_thread(lambda: self._store)  # it may have to be opened
        with self._with_full_keys():
            return await store.aenqueue_within(tx, jobs)

    @contextmanager
    def _with_full_keys(self) -> Iterator[None]:
        """A key that was too long to be kept as it is, is told whole."""
        try:
            yield
        except DuplicateJob as error:
            key = self._store.full_names([error.unique_key]).get(error.unique_key)
            if key is None:
                raise
            raise DuplicateJob(error.job_id, error.task, key) from None
