"""Failures: the newest failed jobs, grouped by task and error."""

from __future__ import annotations

from dataclasses import replace

from leasehold.domain.checks.numbers import check_page
from leasehold.domain.failures import (
    FAILED_STATES,
    MOST_FAILURES,
    MOST_GROUPS,
    FailedJob,
    Failures,
    grouped,
)
from leasehold.domain.records import ALL, Filter
from leasehold.operations.jobs import storable_filter
from leasehold.operations.local import LocalOperator

MOST_READS = 10
"""Reads at most: a filter without an index finds few jobs per read."""


class FailureOperations(LocalOperator):
    def list_failures(self, limit: int = 1000, filter: Filter = ALL) -> Failures:
        """List the failed and timed-out jobs that were enqueued last, grouped by task and by what their errors have in
        common. The filter's other states are ignored."""
        check_page(limit, MOST_FAILURES)
        states = tuple(state for state in FAILED_STATES if not filter.states or state in filter.states)
        if not states:
            return Failures([], 0, False)
        kept = replace(storable_filter(filter), states=states)
        jobs: list[FailedJob] = []
        before: str | None = None
        for _ in range(MOST_READS):
            found, before = self._store.find_failures(kept, limit - len(jobs), before)
            jobs += found
            if before is None or len(jobs) == limit:
                break
        groups = grouped(jobs)
        left_out = max(0, len(groups) - MOST_GROUPS)
        return Failures(groups[:MOST_GROUPS], len(jobs), before is not None, left_out)
