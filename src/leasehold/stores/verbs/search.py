"""Search: jobs by the text in them, and jobs that failed. A page reads a bounded number of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from leasehold.domain.checks.ids import checked_id, range_of
from leasehold.domain.checks.numbers import check_page
from leasehold.domain.failures import MOST_FAILURES, FailedJob
from leasehold.domain.policy import Policy
from leasehold.domain.records import Filter, Summary
from leasehold.domain.search import MOST_LOOKED, SLACK, Needles, Search, SearchPage, is_found, needles_of
from leasehold.stores.database.database import Row, Session
from leasehold.stores.database.rows import record_of
from leasehold.stores.results import Failed
from leasehold.stores.verbs.inspect import WINDOW, summary_of, walk_of
from leasehold.stores.verbs.list_plans import TOP, Walk, Way
from leasehold.stores.verbs.writing import Verbs

ROUND = 2000
"""Jobs that one statement looks into: mostly the page is full by then."""
ROUNDS = MOST_LOOKED // ROUND
ROUND_WINDOW = 10_000
"""Rows that a round looks at to find them, where no index serves the filter."""


class SearchVerbs(Verbs):
    """Search jobs and their errors."""

    def search_jobs(self, search: Search, limit: int = 50, before: str | None = None) -> SearchPage:
        """Jobs that match, newest first; `before` is the last page's `next`. The text is searched in at most 10,000 of
        the jobs that the other criteria find, and never in sensitive arguments."""
        check_page(limit)
        after = None if before is None else checked_id(before, "cursor")
        return self._database.read(lambda session: _search(session, search, limit, after))

    def find_failures(self, filter: Filter, limit: int = 1000, before: str | None = None) -> Failed:
        """Failed and timed-out jobs, newest first, with the beginning of their errors. The filter names the states."""
        check_page(limit, MOST_FAILURES)

        def work(session: Session) -> Failed:
            walk, ways = walk_of(session, filter, WINDOW)
            rows, more = walk.go("list_failures", ways, "list_failures.page", limit + 1, before)
            jobs = [record_of(FailedJob, row) for row in rows[:limit]]
            return Failed(jobs, jobs[-1].id if len(rows) > limit else more)

        return self._database.read(work)


def _search(session: Session, search: Search, limit: int, before: str | None) -> SearchPage:
    if search.text is not None:
        return _search_text(session, search, needles_of(search.text), limit, before)
    walk, ways = _walk(session, search, WINDOW)
    rows, more = walk.go("list_jobs", ways, "list_jobs.page", limit + 1, before)
    jobs = [summary_of(row) for row in rows[:limit]]
    return SearchPage(jobs, jobs[-1].id if len(rows) > limit else more, len(jobs))


def _search_text(
    session: Session, search: Search, needles: Needles, limit: int, before: str | None
) -> SearchPage:
    """Read round by round, until the page is full or ROUNDS are over."""
    walk, ways = _walk(session, search, ROUND_WINDOW)
    numbers: list[int] = []
    looked = 0
    for _ in range(ROUNDS):
        rows, more = walk.go("search_text", ways, "search_text.page", ROUND, before, **needles._asdict())
        before = rows[-1]["id"] if len(rows) == ROUND else more
        found = _beyond_doubt(session, rows, needles)[: limit - len(numbers)]
        numbers += found
        if len(numbers) == limit:
            last = next(at for at, row in enumerate(rows, 1) if row["number"] == found[-1])
            looked += last
            before = rows[last - 1]["id"] if last < len(rows) else before
            break
        looked += len(rows)
        if before is None:
            break
    return SearchPage(_summaries(session, numbers, search.filter), before, looked)


def _beyond_doubt(session: Session, rows: Sequence[Row], needles: Needles) -> list[int]:
    """The numbers of the jobs that have the text where readers may see it."""
    found = [row for row in rows if row["found"]]
    doubtful = [row["number"] for row in found if row["doubtful"]]
    if not doubtful:
        return [row["number"] for row in found]
    shown = {
        row["number"]
        for row in session.rows("read_texts", numbers=doubtful)
        if is_found(needles, row["args"], Policy.load(row["policy"]).sensitive, row["error"])
    }
    return [row["number"] for row in found if not row["doubtful"] or row["number"] in shown]


def _summaries(session: Session, numbers: list[int], filter: Filter) -> list[Summary]:
    """Jobs that have changed their state since they were found are left out."""
    if not numbers:
        return []
    parts = ("list_jobs", "search.numbers", "list_jobs.page")
    jobs = [summary_of(row) for row in session.listing(parts, numbers=numbers, limit=len(numbers))]
    return [job for job in jobs if not filter.states or job.state in filter.states]


def _walk(session: Session, search: Search, size: int) -> tuple[Walk, list[Way]]:
    """Through the numbers of that time, and a little around it: see SLACK."""
    since, until = search.since, search.until
    return walk_of(
        session,
        search.filter,
        size,
        0 if since is None else _number_after(session, since - SLACK),
        TOP if until is None else _number_after(session, until + SLACK),
        ids=None if search.id_prefix is None else range_of(search.id_prefix),
        created_since=since,
        created_until=until,
    )


def _number_after(session: Session, at: datetime) -> int:
    """Above those of all jobs that were created by then."""
    return min(TOP, int(session.rows("find_number_at", at=at)[0]["number"]) + 1)
