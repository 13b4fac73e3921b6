"""`app.bulk`: one verb on every job that matches, job by job."""

from __future__ import annotations

from datetime import datetime
from typing import Unpack

from leasehold.domain.bulk import BulkOptions, BulkReport, BulkRequest
from leasehold.domain.records import Filter
from leasehold.domain.states import checked_states
from leasehold.operations.local import Operator
from leasehold.threads import aio


class Bulk:
    """`app.bulk.cancel(task="report", state="queued")`. A job must match every filter given; without a `state`, the
    verb takes jobs in the states that it is meant for. `dry_run=True` only counts; an empty filter needs
    `everything=True`. A call stops after `limit` jobs (10,000); continue with the report's `next` as `cursor`. The
    report counts jobs that refuse the verb; they do not stop the others."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def cancel(self, *, reason: str | None = None, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Cancel the matching jobs; running ones stop as soon as their workers get the request."""
        return self._act("cancel", requested, reason=reason)

    acancel = aio(cancel)

    def pause(self, *, reason: str | None = None, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Pause the matching jobs, which can be resumed; running ones stop as soon as their workers get the request."""
        return self._act("pause", requested, reason=reason)

    apause = aio(pause)

    def interrupt(self, *, reason: str | None = None, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Pause running jobs; cancel the others."""
        return self._act("interrupt", requested, reason=reason)

    ainterrupt = aio(interrupt)

    def resume(self, *, fresh: bool = False, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Resume paused, failed and timed-out jobs; with `fresh` from the beginning."""
        return self._act("resume", requested, fresh=fresh or None)

    aresume = aio(resume)

    def retry(self, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Enqueue a new job like each matching job, which stays unchanged. A second call enqueues new jobs again."""
        return self._act("retry", requested)

    aretry = aio(retry)

    def skip(self, *, reason: str | None = None, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Leave failed jobs as they are, and let their lanes go on."""
        return self._act("skip", requested, reason=reason)

    askip = aio(skip)

    def snooze(
        self, *, until: datetime | None = None, reason: str | None = None, **requested: Unpack[BulkOptions]
    ) -> BulkReport:
        """Set when pending, queued and paused jobs are due; a dry run needs no `until`."""
        return self._act("snooze", requested, until=until, reason=reason)

    asnooze = aio(snooze)

    def release(self, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Release jobs that were enqueued on hold."""
        return self._act("release", requested)

    arelease = aio(release)

    def _act(self, verb: str, requested: BulkOptions, **own: object) -> BulkReport:
        filter = Filter(
            checked_states(requested.pop("state", ())),
            requested.pop("queue", None),
            requested.pop("task", None),
            requested.pop("lane", None),
            requested.pop("group", None),
            requested.pop("tag", None),
        )
        request = BulkRequest(verb=verb, filter=filter, own=own, **requested)  # type: ignore[misc] # the remaining options are its own fields
        return self._operator.bulk(request)
