"""`app.search`: the names of `app.jobs`, and what stands in the jobs."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from leasehold import Leasehold
from leasehold.errors import InvalidInput
from leasehold.types import SearchPage


def test_jobs_are_found_by_text_time_and_criteria_in_both_colours(app: Leasehold):
    @app.task
    def work(target: str) -> None: ...

    first = work.using(queue="q", group="g").enqueue("ACME 1")
    second = work.enqueue("acme 2")
    work.enqueue("other")
    long_ago = app.jobs().jobs[-1].created_at - timedelta(hours=1)

    def both(**requested) -> SearchPage:
        found = app.search(**requested)
        assert asyncio.run(app.asearch(**requested)) == found
        return found

    found = both(text="acme", since=long_ago)
    assert ([job.id for job in found.jobs], found.looked, found.next) == ([second.id, first.id], 3, None)
    assert [job.id for job in both(text="acme", group="g", queue="q", state="queued").jobs] == [first.id]
    assert both(text="acme", until=long_ago) == SearchPage([], None, 0)
    page = both(text="acme", limit=1)
    assert [job.id for job in both(text="acme", cursor=page.next).jobs] == [first.id]
    assert both().jobs == app.jobs().jobs
    for wrong in ({"state": "asleep"}, {"limit": 0}, {"since": "2h"}, {"text": 5}):
        with pytest.raises(InvalidInput):
            app.search(**wrong)
