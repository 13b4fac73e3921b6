"""Bulk verbs in progress: each runs in a thread of this server, so that the user may close the page and come back.

They are kept in memory. A server that stops leaves the remaining jobs unchanged; the audit shows what was changed.
"""

from __future__ import annotations

import secrets
import threading
import time
from dataclasses import dataclass, field, replace

from leasehold.domain.bulk import BulkRefusal, BulkRequest
from leasehold.domain.errors import InvalidInput, LeaseholdError
from leasehold.domain.job import Job
from leasehold.operations.operations import Operations
from leasehold.surfaces.dashboard.problems import describe

PART = 500
"""Jobs that are changed between two checks for a stop."""
AT_ONCE = 4
KEPT = 50
MOST_REFUSALS = 20


@dataclass
class BulkRun:
    """One bulk verb and its progress. Only its own thread writes here."""

    id: str
    request: BulkRequest
    tenant: str | None
    expected: int
    """The number of jobs that the dry run found."""
    about: str
    """The filter, in words."""
    back: str
    """The address of the page that started it."""
    began: float = field(default_factory=time.time)
    ended: float | None = None
    matched: int = 0
    changed: int = 0
    moved_on: int = 0
    refused: dict[tuple[str, str | None], BulkRefusal] = field(default_factory=dict)
    problem: str = ""
    """The reason why it ended early."""
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def queue(self) -> str | None:
        """The queue of its jobs. None: any queue."""
        return self.request.filter.queue

    @property
    def done(self) -> int:
        """Jobs whose outcome is known."""
        return self.changed + self.moved_on + sum(one.jobs for one in self.refused.values())

    def watch(self, job_id: str, outcome: Job | LeaseholdError) -> None:
        if isinstance(outcome, Job):
            self.changed += 1

    def go(self, operations: Operations) -> None:
        try:
            self._go(operations)
        except Exception as error:
            _, self.problem = describe(error)
        finally:
            self.ended = time.time()

    def _go(self, operations: Operations) -> None:
        request, left = self.request, self.request.limit
        while not self.stop.is_set():
            before = self.changed
            report = operations.bulk(replace(request, limit=min(PART, left)), self.watch)
            self.changed = before + report.changed
            self.matched += report.matched
            self.moved_on += report.moved_on
            for one in report.refused:
                self._refuse(one)
            left -= report.matched
            if report.next is None or left <= 0:
                return
            request = replace(request, cursor=report.next)
        self.problem = "Stopped by hand. The remaining jobs were not changed."

    def _refuse(self, one: BulkRefusal) -> None:
        key = (one.error, one.state)
        before = self.refused.get(key)
        if before is not None:
            self.refused[key] = replace(before, jobs=before.jobs + one.jobs)
        elif len(self.refused) < MOST_REFUSALS:
            self.refused[key] = one


class BulkRuns:
    """The bulk verbs of one server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, BulkRun] = {}

    def start(
        self,
        operations: Operations,
        request: BulkRequest,
        *,
        tenant: str | None,
        expected: int,
        about: str,
        back: str,
    ) -> BulkRun:
        """Start a bulk verb in a thread. Raises InvalidInput if too many are in progress."""
        run = BulkRun(secrets.token_urlsafe(12), request, tenant, expected, about, back)
        with self._lock:
            under_way = [one for one in self._runs.values() if one.ended is None]
            if len(under_way) >= AT_ONCE:
                raise InvalidInput(
                    "bulk", f"{AT_ONCE} are in progress already", "wait for one of them, or stop it"
                )
            ended = [one.id for one in self._runs.values() if one.ended is not None]
            for old in ended[: max(0, len(ended) - KEPT)]:
                del self._runs[old]
            self._runs[run.id] = run
        threading.Thread(target=run.go, args=(operations,), name="leasehold bulk", daemon=True).start()
        return run

    def get(self, run_id: str, tenant: str | None) -> BulkRun | None:
        with self._lock:
            run = self._runs.get(run_id)
        return run if run is not None and run.tenant == tenant else None

    def newest(self, tenant: str | None) -> list[BulkRun]:
        with self._lock:
            return [run for run in reversed(self._runs.values()) if run.tenant == tenant]
