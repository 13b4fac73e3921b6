"""Operators: the protocol that users' handles call, and the operator on a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, cast

from leasehold.domain.audit import audit_entry
from leasehold.domain.bulk import BulkReport, BulkRequest
from leasehold.domain.checks.texts import SHORTENED
from leasehold.domain.groups import GroupStatus, StatusRequest
from leasehold.domain.job import Job
from leasehold.domain.sensitive import hidden_job
from leasehold.domain.stop import StopReport, StopRequest
from leasehold.domain.stream import Update
from leasehold.operations.verb import Backend, KnownTask, Verb
from leasehold.stores.database.read_timeout import reads_within

if TYPE_CHECKING:
    from leasehold.stores.store import JobStore

__all__ = ["reads_within"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class Operator(Protocol):
    """The methods that users' handles call, for jobs in a store or behind a server: `call` for every verb, and methods
    that wait or take long."""

    def call(self, verb: Verb[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...

    def bulk(self, request: BulkRequest) -> BulkReport: ...

    def stop(self, request: StopRequest) -> StopReport: ...

    async def astop(self, request: StopRequest) -> StopReport: ...

    def group_status(self, request: StatusRequest) -> GroupStatus: ...

    async def agroup_status(self, request: StatusRequest) -> GroupStatus: ...

    def updates(self, job_id: str, since: int, timeout: float | None) -> Iterator[Update]: ...

    def aupdates(self, job_id: str, since: int, timeout: float | None) -> AsyncIterator[Update]: ...

    def ended(self, job_id: str, timeout: float | None) -> tuple[Job, str | None]:
        """Wait until the job has succeeded, failed, timed out or been cancelled. Return the job and, if it succeeded,
        its result as encoded JSON."""
        ...

    async def aended(self, job_id: str, timeout: float | None) -> tuple[Job, str | None]: ...


class LocalOperator:
    """The operator on a store. A call checks the arguments, runs the verb and its audit entry in one transaction,
    notifies, and hides sensitive values."""

    def __init__(
        self,
        find_store: Callable[[], JobStore],
        find_task: Callable[[str], KnownTask | None] = lambda name: None,
    ) -> None:
        self._find_store = find_store
        self._find_task = find_task
        self._check_wait: Callable[[str], None] = lambda awaited: None
        """Called before a call waits in its thread for a job or a group."""

    @property
    def _store(self) -> JobStore:
        """The store, found anew at every call: an app that was closed and is used again has another one."""
        return self._find_store()

    def call(self, verb: Verb[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        given, store = verb.checked(*args, **kwargs), self._store
        backend = Backend(store, self._find_task)
        if not verb.write:
            return self._shown(verb.run(backend, given))
        if verb.rules is not None:
            verb.rules(backend, given)
        target = None if verb.target is None else given[verb.target.name]
        with store.audited(audit_entry(verb.name, target, given.get("actor"), verb.detail(given))):
            answer = verb.run(backend, given)
        if verb.after is not None:
            verb.after(store, answer)
        return self._shown(answer)

    @contextmanager
    def _recorded(self, verb: str, target: str | None, actor: object, /, **detail: Any) -> Iterator[JobStore]:
        """Audit a change that is no verb: a block around one call of the store, after all checks. Readers of
        the audit see the detail: put no arguments, answers or secrets into it."""
        store = self._store
        with store.audited(audit_entry(verb, target, actor, detail)):
            yield store

    def _shown(self, answer: T) -> T:
        """Return the value for readers, also in lists and pages: long names in full, sensitive arguments hidden."""
        if isinstance(answer, list):
            return cast(T, self._all_shown(answer))
        if hasattr(answer, "next") and is_dataclass(answer) and not isinstance(answer, type):
            lists = {one.name: getattr(answer, one.name) for one in fields(answer)}
            rows = {name: self._all_shown(value) for name, value in lists.items() if isinstance(value, list)}
            return replace(answer, **rows)
        return self._all_shown([answer])[0]

    def _all_shown(self, values: Sequence[T]) -> list[T]:
        values = [hidden_job(value) if isinstance(value, Job) else value for value in values]  # type: ignore[misc] # T is Job there
        found = {name for value in values for name in shortened_in(value)}
        if not found:
            return list(values)
        whole = self._store.full_names(sorted(found))
        return [with_full_names(value, whole) for value in values]


# -- long names --------------------------------------------------------------------------------------------------------

_FIELDS = ("lane", "unique_key", "tags", "name", "key", "detail", "remedy", "target")
"""Fields that may hold a name made from arguments."""


def shortened_in(value: object) -> Iterator[str]:
    for field in _FIELDS:
        for text in _texts(getattr(value, field, None)):
            if "…" in text:
                yield from SHORTENED.findall(text)


def with_full_names(value: T, full_names: Mapping[str, str]) -> T:
    changes: dict[str, Any] = {}
    for field in _FIELDS:
        found = getattr(value, field, None)
        if any("…" in text for text in _texts(found)):
            texts = [
                SHORTENED.sub(lambda match: full_names.get(match[0], match[0]), text)
                for text in _texts(found)
            ]
            changes[field] = texts[0] if isinstance(found, str) else tuple(texts)
    return replace(value, **changes) if changes else value  # type: ignore[type-var]  # a dataclass, as it has fields


def _texts(found: object) -> tuple[str, ...]:
    if isinstance(found, str):
        return (found,)
    return tuple(text for text in found if isinstance(text, str)) if isinstance(found, tuple) else ()
