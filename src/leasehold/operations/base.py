"""What every verb stands on: the open store, those who are told, and the checks that verbs share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from leasehold.domain.audit import audit_entry
from leasehold.domain.checks.ids import checked_id
from leasehold.domain.checks.names import kept_name
from leasehold.domain.checks.texts import checked_criterion
from leasehold.domain.errors import InvalidInput, JobNotFound
from leasehold.domain.job import Job
from leasehold.domain.sensitive import hidden_job
from leasehold.domain.views import Filter
from leasehold.operations.long_names import shortened_in, with_whole

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

T = TypeVar("T")


class StoreDoor:
    def __init__(self, find_store: Callable[[], JobStore]) -> None:
        self._find_store = find_store

    @property
    def _store(self) -> JobStore:
        """Asked for at every call: an app that was closed and is used again has another one."""
        return self._find_store()

    @contextmanager
    def _recorded(self, verb: str, target: str | None, actor: object, /, **detail: Any) -> Iterator[JobStore]:
        """Around the one call of the store by which a verb changes something: the audit tells of it. What was given is
        checked before. The detail is for everybody's eyes: no arguments, no answers, no secrets."""
        store = self._store
        with store.audited(audit_entry(verb, target, actor, detail)):
            yield store

    def _woken(self, answer: T) -> T:
        """What was done may have freed a job, or a lane: tell the workers."""
        self._store.wake()
        return self._told(answer)

    def _steered(self, job: Job) -> Job:
        """Stopped, or told to stop: whoever runs it looks at once; if nobody does, its lane may be free."""
        if job.stop_requested is None:
            self._store.wake()
        else:
            self._store.tell_holders()
        return self._told(job)

    def _told(self, answer: T) -> T:
        """What was done to a job of a group is told to those who watch that group."""
        if getattr(answer, "group_name", None) is not None:
            self._store.tell_watchers()
        return self._whole(answer)

    def _whole(self, value: T) -> T:
        """As readers get it: long names whole, as people know them, and sensitive arguments hidden."""
        return self._all_whole([value])[0]

    def _all_whole(self, values: Sequence[T]) -> list[T]:
        values = [hidden_job(value) if isinstance(value, Job) else value for value in values]  # type: ignore[misc]
        found = {name for value in values for name in shortened_in(value)}
        if not found:
            return list(values)
        whole = self._store.whole_names(sorted(found))
        return [with_whole(value, whole) for value in values]


def known_id(job_id: object) -> str:
    """The id in its one spelling. A text that is no id is the id of no job: a person may have cut it off."""
    try:
        return checked_id(job_id)
    except InvalidInput:
        if not isinstance(job_id, str):
            raise
        raise JobNotFound(job_id, "a job's id is a UUID, as enqueue returned it") from None


def kept_filter(filter: Filter) -> Filter:
    """Checked, and with its names as they are kept."""
    for name in ("queue", "kind", "lane", "group", "tag"):
        checked_criterion(getattr(filter, name), name)
    lane = filter.lane and kept_name(filter.lane, "lane")
    tag = filter.tag and kept_name(filter.tag, "tag")
    return replace(filter, lane=lane, tag=tag)
