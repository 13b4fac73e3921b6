"""Who is notified after a verb: workers, the holder of a running job, those who watch a group, hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.domain.job import Job

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore


def notify_workers(store: JobStore, answer: object) -> None:
    """The verb may have freed a job, or a lane."""
    store.notify_workers()
    _notify_watchers_of(store, answer)


def notify_stop(store: JobStore, job: Job) -> None:
    """The worker that runs the job looks at once. If none runs it, its lane may be free."""
    if job.stop_requested is None:
        store.notify_workers()
    else:
        store.notify_holders()
    _notify_watchers_of(store, job)


def notify_watchers(store: JobStore, answer: object) -> None:
    store.notify_watchers()


def notify_hooks(store: JobStore, answer: object) -> None:
    store.notify_hooks()


def _notify_watchers_of(store: JobStore, answer: object) -> None:
    """Of the group of this job, if it has one."""
    if getattr(answer, "group", None) is not None:
        store.notify_watchers()
