"""Jobs: the list. Its address is the whole state of the page."""

from __future__ import annotations

from typing import Any

from leasehold.domain.bulk import MEANT_FOR
from leasehold.domain.search import Found, Search
from leasehold.domain.states import State
from leasehold.surfaces.dashboard.page import Page
from leasehold.surfaces.dashboard.pages.asked import Asked, asked_in
from leasehold.surfaces.dashboard.visit import Visit

ROWS = 50


def find(visit: Visit, asked: Asked, limit: int = ROWS, cursor: str | None = None) -> tuple[Search, Found]:
    """What looks like an id is looked for as one first."""
    operations, now = visit.operations, visit.operations.now()
    if asked.may_be_id:
        search = asked.search(now, by_id=True)
        found = operations.search_jobs(search, limit, cursor)
        if found.jobs or cursor is not None:
            return search, found
    search = asked.search(now)
    return search, operations.search_jobs(search, limit, cursor)


def read(visit: Visit) -> dict[str, Any]:
    asked = asked_in(visit.given())
    cursor = visit.request.query_params.get("cursor") or None
    search, found = find(visit, asked, cursor=cursor)
    cards = visit.who.seen(visit.operations.list_queues(jobs=()))  # their names alone
    return {
        "asked": asked,
        "found": found,
        "jobs": visit.who.seen(found.jobs),
        "by_text": search.text is not None,
        "cursor": cursor,
        "states": [state.value for state in State],
        "queues": sorted({card.queue for card in cards}),
        "kinds": sorted({card.kind for card in cards}),
        "bulk_verbs": list(MEANT_FOR),
    }


PAGE = Page("jobs", "jobs", "jobs.html", read)
