"""Bulk: applies a verb on one job to each job that a filter finds, with the same rules."""

from __future__ import annotations

from collections.abc import Callable

from leasehold.domain.bulk import BulkReport, BulkRequest, BulkTally
from leasehold.domain.errors import GroupOnHold, JobError, LeaseholdError
from leasehold.domain.job import Job
from leasehold.domain.records import Summary
from leasehold.operations.search import SearchOperations
from leasehold.operations.verb import VERBS, Verb

PAGE_SIZE = 500
"""Jobs of one page."""
MOST_LOOKED = 50_000
"""Jobs that one call examines for a text; then it stops, and returns where to continue."""

OnProgress = Callable[[str, Job | LeaseholdError], None]
"""Called once per job, with its id and the updated job or the error."""


def ignore(job_id: str, outcome: Job | LeaseholdError) -> None:
    """The default callback: does nothing."""


def bulk_verb(word: str) -> Verb[..., Job]:
    """Return the verb on one job that a bulk call repeats."""
    return bulk_verbs()[word]


def bulk_verbs() -> dict[str, Verb[..., Job]]:
    """Return the verbs on one job that a bulk call can repeat, by their words. An app may have added some."""
    return {verb.word: verb for verb in VERBS if verb.bulk}


class BulkOperations(SearchOperations):
    def bulk(self, request: BulkRequest, on_progress: OnProgress = ignore) -> BulkReport:
        """Apply the verb to each matching job, newest first, each in its own transaction, without jobs that are
        enqueued meanwhile. A job that refuses the verb does not stop the others. If the database becomes unreachable,
        the remaining jobs stay unchanged. A dry run changes nothing."""
        verb = bulk_verb(request.verb)
        tally = BulkTally(request)
        cursor, looked = request.cursor, 0
        while True:
            jobs, cursor, seen = self._find(request, min(PAGE_SIZE, request.limit - tally.matched), cursor)
            looked += seen
            for job in jobs:
                tally.find(job.id)
                if request.dry_run:
                    continue
                try:
                    changed = self.call(verb, job.id, **request.arguments)
                except (JobError, GroupOnHold) as error:
                    tally.refuse(job.id, error)
                    on_progress(job.id, error)
                else:
                    tally.changed += 1
                    on_progress(job.id, changed)
            if cursor is None or tally.matched >= request.limit or looked >= MOST_LOOKED:
                return tally.report(cursor)

    def _find(
        self, request: BulkRequest, limit: int, cursor: str | None
    ) -> tuple[list[Summary], str | None, int]:
        """Return matching jobs, the cursor to continue from, and how many jobs were examined for a text."""
        search = request.search
        if search is None:
            page = self.list_jobs(request.found_by, limit, cursor)
            return page.jobs, page.next, 0
        found = self.search_jobs(search, limit, cursor)
        return found.jobs, found.next, found.looked
