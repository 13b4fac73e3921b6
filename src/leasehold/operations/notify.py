"""Notifications after a verb: to workers, the holders of running jobs, watchers of groups, hooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leasehold.domain.job import Job

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore


def notify_workers(store: JobStore, answer: object) -> None:
    """Notify workers: a job or a lane may have become free."""
    store.notify_workers()
    _notify_watchers_of(store, answer)


def notify_stop(store: JobStore, job: Job) -> None:
    """Notify the worker that holds the job; if none does, notify all workers, because the job's lane may be free."""
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
    """Notify watchers of groups, if the job has a group."""
    if getattr(answer, "group", None) is not None:
        store.notify_watchers()
