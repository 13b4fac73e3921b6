"""`app.bulk`: a verb on every job that matches, job by job."""

from __future__ import annotations

import functools
from typing import Unpack

from leasehold.domain.bulk import BulkOptions, BulkReport, BulkRequest, BulkVerb
from leasehold.domain.checks.states import checked_states
from leasehold.domain.views import Filter
from leasehold.operations.operations import Operations
from leasehold.threads import to_thread


class Bulk:
    """`app.bulk.cancel(kind="report", state="queued")`. All that is given must match; without a `state`, those that the
    verb is meant for. `dry_run=True` only counts; an empty filter needs `everything=True`. It stops after `limit` jobs
    (10,000), and the report's `next` is the `cursor` to go on with. Jobs that refuse are reported, and hold up none of
    the others."""

    def __init__(self, operations: Operations) -> None:
        self._operations = operations

    def cancel(self, *, reason: str | None = None, **asked: Unpack[BulkOptions]) -> BulkReport:
        """Cancel them; running ones are asked to stop."""
        return self._act("cancel", asked, reason=reason)

    async def acancel(self, *, reason: str | None = None, **asked: Unpack[BulkOptions]) -> BulkReport:
        return await to_thread(functools.partial(self.cancel, reason=reason, **asked))

    def pause(self, *, reason: str | None = None, **asked: Unpack[BulkOptions]) -> BulkReport:
        """Pause them; running ones are asked to stop, and all can be resumed."""
        return self._act("pause", asked, reason=reason)

    async def apause(self, *, reason: str | None = None, **asked: Unpack[BulkOptions]) -> BulkReport:
        return await to_thread(functools.partial(self.pause, reason=reason, **asked))

    def interrupt(self, *, reason: str | None = None, **asked: Unpack[BulkOptions]) -> BulkReport:
        """Pause running ones; cancel the others."""
        return self._act("interrupt", asked, reason=reason)

    async def ainterrupt(self, *, reason: str | None = None, **asked: Unpack[BulkOptions]) -> BulkReport:
        return await to_thread(functools.partial(self.interrupt, reason=reason, **asked))

    def resume(self, *, fresh: bool = False, **asked: Unpack[BulkOptions]) -> BulkReport:
        """Resume paused, failed and timed-out ones; with `fresh` from the beginning."""
        return self._act("resume", asked, fresh=fresh)

    async def aresume(self, *, fresh: bool = False, **asked: Unpack[BulkOptions]) -> BulkReport:
        return await to_thread(functools.partial(self.resume, fresh=fresh, **asked))

    def retry(self, **asked: Unpack[BulkOptions]) -> BulkReport:
        """Enqueue a new job like each of them; they stay as they are. Called again, it makes them again."""
        return self._act("retry", asked)

    async def aretry(self, **asked: Unpack[BulkOptions]) -> BulkReport:
        return await to_thread(functools.partial(self.retry, **asked))

    def resolve(self, *, reason: str | None = None, **asked: Unpack[BulkOptions]) -> BulkReport:
        """Leave failed ones as they are, and let their lanes go on."""
        return self._act("resolve", asked, reason=reason)

    async def aresolve(self, *, reason: str | None = None, **asked: Unpack[BulkOptions]) -> BulkReport:
        return await to_thread(functools.partial(self.resolve, reason=reason, **asked))

    def release(self, **asked: Unpack[BulkOptions]) -> BulkReport:
        """Lift the hold that they were enqueued with."""
        return self._act("release", asked)

    async def arelease(self, **asked: Unpack[BulkOptions]) -> BulkReport:
        return await to_thread(functools.partial(self.release, **asked))

    def _act(
        self, verb: BulkVerb, asked: BulkOptions, *, reason: str | None = None, fresh: bool = False
    ) -> BulkReport:
        filter = Filter(
            checked_states(asked.pop("state", ())),
            asked.pop("queue", None),
            asked.pop("kind", None),
            asked.pop("lane", None),
            asked.pop("group", None),
            asked.pop("tag", None),
        )
        request = BulkRequest(verb=verb, filter=filter, reason=reason, fresh=fresh, **asked)  # type: ignore[misc] # what is left are its own fields
        return self._operations.bulk(request)
