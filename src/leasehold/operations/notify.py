"""Who is notified after a verb: workers, the holder of a running job, those who watch a group, hooks."""

from __future__ import annotations

from leasehold.domain.job import Job
from leasehold.stores.contract import Store


def notify_workers(store: Store, answer: object) -> None:
    """The verb may have freed a job, or a lane."""
    store.wake()
    _notify_watchers_of(store, answer)


def notify_stop(store: Store, job: Job) -> None:
    """The worker that runs the job looks at once. If none runs it, its lane may be free."""
    if job.stop_requested is None:
        store.wake()
    else:
        store.tell_holders()
    _notify_watchers_of(store, job)


def notify_watchers(store: Store, answer: object) -> None:
    store.tell_watchers()


def notify_hooks(store: Store, answer: object) -> None:
    store.tell_hooks()


def _notify_watchers_of(store: Store, answer: object) -> None:
    """Of the group of this job, if it has one."""
    if getattr(answer, "group_name", None) is not None:
        store.tell_watchers()
