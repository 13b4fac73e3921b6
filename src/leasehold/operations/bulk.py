"""Bulk: the verb of one job, on each that a filter finds. So every rule of single verbs holds, and none is added."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.domain.bulk import BulkReport, BulkRequest, BulkTally
from leasehold.domain.errors import GroupOnHold, JobError, LeaseholdError
from leasehold.domain.job import Job
from leasehold.domain.records import Summary
from leasehold.operations.search import SearchOperations
from leasehold.operations.verb import VERBS, Verb

LOOK = 500
"""Jobs of one look."""
MOST_LOOKED = 50_000
"""Jobs that one call looks into for a text: then it stops, and tells where to go on."""

Watch = Callable[[str, Job | LeaseholdError], None]
"""Is told of each job by its id what has become of it: the job, or why it refused."""


def ignore(job_id: str, outcome: Job | LeaseholdError) -> None:
    """Who watches."""


def bulk_verb(word: str) -> Verb[..., Job]:
    """The verb on one job that a bulk call repeats."""
    return next(verb for verb in VERBS if verb.bulk and verb.name == f"job.{word}")


class BulkOperations(SearchOperations):
    def bulk(self, request: BulkRequest, watch: Watch = ignore) -> BulkReport:
        """Newest first, each job by itself: what comes in meanwhile is not met, a job that refuses holds up none of the
        others, and when the database goes away the rest is left as it was. A dry run changes nothing."""
        verb = bulk_verb(request.verb)
        tally = BulkTally(request)
        cursor, looked = request.cursor, 0
        while True:
            jobs, cursor, seen = self._find(request, min(LOOK, request.limit - tally.matched), cursor)
            looked += seen
            for job in jobs:
                tally.find(job.id)
                if request.dry_run:
                    continue
                try:
                    changed = self.call(verb, job.id, **request.arguments)
                except (JobError, GroupOnHold) as error:
                    tally.refuse(job.id, error)
                    watch(job.id, error)
                else:
                    tally.changed += 1
                    watch(job.id, changed)
            if cursor is None or tally.matched >= request.limit or looked >= MOST_LOOKED:
                return tally.report(cursor)

    def _find(
        self, request: BulkRequest, limit: int, cursor: str | None
    ) -> tuple[list[Summary], str | None, int]:
        """Some that it is about, where to go on, and how many were looked into for that."""
        search = request.search
        if search is None:
            page = self.list_jobs(request.found_by, limit, cursor)
            return page.jobs, page.next, 0
        found = self.search_jobs(search, limit, cursor)
        return found.jobs, found.next, found.looked
