"""Jobs: the list. The address holds the whole state of the page."""

from __future__ import annotations

from typing import Any

from leasehold.domain.bulk import MEANT_FOR
from leasehold.domain.search import Search, SearchPage
from leasehold.domain.states import State
from leasehold.surfaces.dashboard.page import Page
from leasehold.surfaces.dashboard.page_request import PageRequest
from leasehold.surfaces.dashboard.pages.filters import JobFilter, filter_in

ROWS = 50


def find(
    page_request: PageRequest, requested: JobFilter, limit: int = ROWS, cursor: str | None = None
) -> tuple[Search, SearchPage]:
    """The search and its page. A text that looks like an id is searched as an id first."""
    operations, now = page_request.operations, page_request.operations.now()
    if requested.may_be_id:
        search = requested.search(now, by_id=True)
        found = operations.search_jobs(search, limit, cursor)
        if found.jobs or cursor is not None:
            return search, found
    search = requested.search(now)
    return search, operations.search_jobs(search, limit, cursor)


def read(page_request: PageRequest) -> dict[str, Any]:
    requested = filter_in(page_request.given())
    cursor = page_request.request.query_params.get("cursor") or None
    search, found = find(page_request, requested, cursor=cursor)
    cards = page_request.caller.visible_rows(page_request.operations.list_queues(jobs=()))  # only their names
    return {
        "requested": requested,
        "found": found,
        "jobs": page_request.caller.visible_rows(found.jobs),
        "by_text": search.text is not None,
        "cursor": cursor,
        "states": [state.value for state in State],
        "queues": sorted({card.queue for card in cards}),
        "tasks": sorted({card.task for card in cards}),
        "bulk_verbs": list(MEANT_FOR),
    }


PAGE = Page("jobs", "jobs", "jobs.html", read)
