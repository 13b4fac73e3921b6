"""`api.bulk`: a verb on every job that matches, job by job."""

from __future__ import annotations

from typing_extensions import Unpack

from leasehold.remote.bulk_requests import BulkOptions, steering
from leasehold.remote.transport import Line
from leasehold.types import BulkReport


class Bulk:
    """`api.bulk.cancel(task="report", state="queued")`. All that is given must match; without a `state`, those that the
    verb is meant for. `dry_run=True` only counts; an empty filter needs `everything=True`. It stops after `limit` jobs
    (10,000), and the report's `next` is the `cursor` to go on with. Jobs that refuse are reported, and hold up none of
    the others. If the connection is lost, some were steered and the others were not: call it again, but look first
    with `retry`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def cancel(self, *, reason: str | None = None, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Cancel them; running ones are asked to stop."""
        return self._line.run(steering("cancel", reason=reason, **requested))

    async def acancel(self, *, reason: str | None = None, **requested: Unpack[BulkOptions]) -> BulkReport:
        return await self._line.arun(steering("cancel", reason=reason, **requested))

    def pause(self, *, reason: str | None = None, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Pause them; running ones are asked to stop, and all can be resumed."""
        return self._line.run(steering("pause", reason=reason, **requested))

    async def apause(self, *, reason: str | None = None, **requested: Unpack[BulkOptions]) -> BulkReport:
        return await self._line.arun(steering("pause", reason=reason, **requested))

    def interrupt(self, *, reason: str | None = None, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Pause running ones; cancel the others."""
        return self._line.run(steering("interrupt", reason=reason, **requested))

    async def ainterrupt(self, *, reason: str | None = None, **requested: Unpack[BulkOptions]) -> BulkReport:
        return await self._line.arun(steering("interrupt", reason=reason, **requested))

    def resume(self, *, fresh: bool = False, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Resume paused, failed and timed-out ones; with `fresh` from the beginning."""
        return self._line.run(steering("resume", fresh=fresh, **requested))

    async def aresume(self, *, fresh: bool = False, **requested: Unpack[BulkOptions]) -> BulkReport:
        return await self._line.arun(steering("resume", fresh=fresh, **requested))

    def retry(self, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Enqueue a new job like each of them; they stay as they are. Called again, it makes them again."""
        return self._line.run(steering("retry", **requested))

    async def aretry(self, **requested: Unpack[BulkOptions]) -> BulkReport:
        return await self._line.arun(steering("retry", **requested))

    def skip(self, *, reason: str | None = None, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Leave failed ones as they are, and let their lanes go on."""
        return self._line.run(steering("skip", reason=reason, **requested))

    async def askip(self, *, reason: str | None = None, **requested: Unpack[BulkOptions]) -> BulkReport:
        return await self._line.arun(steering("skip", reason=reason, **requested))

    def release(self, **requested: Unpack[BulkOptions]) -> BulkReport:
        """Lift the hold that they were enqueued with."""
        return self._line.run(steering("release", **requested))

    async def arelease(self, **requested: Unpack[BulkOptions]) -> BulkReport:
        return await self._line.arun(steering("release", **requested))
