"""Bulk: the verb of one job, on each that a filter finds. So every rule of single verbs holds, and none is added."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.domain.bulk import BulkReport, BulkRequest, BulkTally
from leasehold.domain.errors import GroupOnHold, JobError, LeaseholdError
from leasehold.domain.job import Job
from leasehold.operations.jobs import JobOperations

LOOK = 500
"""Jobs of one look."""

Watch = Callable[[str, Job | LeaseholdError], None]
"""Is told of each job by its id what has become of it: the job, or why it refused."""


def nobody(job_id: str, outcome: Job | LeaseholdError) -> None:
    """Who watches."""


class BulkOperations(JobOperations):
    def bulk(self, request: BulkRequest, watch: Watch = nobody) -> BulkReport:
        """Newest first, each job by itself: what comes in meanwhile is not met, a job that refuses holds up none of the
        others, and when the database goes away the rest is left as it was. A dry run changes nothing."""
        act: Callable[..., Job] = getattr(self, request.verb)
        tally = BulkTally(request)
        found_by, cursor = request.found_by, request.cursor
        while True:
            page = self.list_jobs(found_by, min(LOOK, request.limit - tally.matched), cursor)
            for job in page.jobs:
                tally.find(job.id)
                if request.dry_run:
                    continue
                try:
                    changed = act(job.id, **request.told)
                except (JobError, GroupOnHold) as error:
                    tally.refuse(job.id, error)
                    watch(job.id, error)
                else:
                    tally.changed += 1
                    watch(job.id, changed)
            cursor = page.next
            if cursor is None or tally.matched >= request.limit:
                return tally.report(cursor)
