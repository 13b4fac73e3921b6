"""Names made from arguments may be of any length: kept short, and shown whole."""

from __future__ import annotations

import pytest

from leasehold import Rate, Slot
from leasehold.domain.checks.texts import LONGEST_NAME, storable_name
from leasehold.errors import DuplicateJob

URL = "https://example.org/" + "a" * 3000


@pytest.fixture
def app_settings():
    return {}


@pytest.fixture
def visit_page(app):
    @app.task(
        lane="{url}",
        unique="{url}",
        tags=("page:{url}",),
        slots={"host:{url}": Slot(limit=1)},
        rate=Rate("{url}", "60/min"),
    )
    def visit_page(url: str) -> None: ...

    return visit_page


pytestmark = pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)


def test_a_long_name_is_shown_whole(app, visit_page):
    job = visit_page.enqueue(URL)
    row = job.refresh().__row__
    assert (row.lane, row.unique_key, row.tags) == (URL, URL, (f"page:{URL}",))
    (listed,) = app.jobs().jobs
    assert (listed.lane, listed.tags) == (URL, (f"page:{URL}",))
    assert {row.name for row in app.slots.list()} == {f"host:{URL}"}
    assert {row.key for row in app.rates.list()} == {URL}
    assert job.cancel().__row__.lane == URL


def test_names_that_differ_only_at_their_ends_are_two_names(app, visit_page):
    first, second, again = (
        visit_page.enqueue(URL + "1"),
        visit_page.enqueue(URL + "2"),
        visit_page.enqueue(URL + "1"),
    )
    assert first.id != second.id
    assert (again.id, again.created) == (first.id, False)


def test_a_job_is_found_and_steered_by_its_whole_name(app, visit_page):
    job, other = visit_page.enqueue(URL), visit_page.enqueue("short")
    assert [one.id for one in app.jobs(lane=URL).jobs] == [job.id]
    assert [one.id for one in app.jobs(tag=f"page:{URL}").jobs] == [job.id]
    app.slots.set(f"host:{URL}", 0)
    assert f"host:{URL}" in str(job.explain())
    job.pause()
    assert app.lanes.resume(URL).id == job.id
    app.stop(lane=URL)
    assert (job.refresh().state, other.refresh().state) == ("cancelled", "queued")


def test_whoever_holds_a_long_key_is_named_with_it(app, visit_page):
    holder = visit_page.enqueue(URL)
    with pytest.raises(DuplicateJob) as caught:
        visit_page.using(on_duplicate="raise").enqueue(URL)
    assert (caught.value.job_id, caught.value.unique_key) == (holder.id, URL)


def test_names_up_to_the_limit_are_kept_as_they_are(app, visit_page, backend):
    name = "x" * (LONGEST_NAME - len("page:"))
    visit_page.enqueue(name)
    assert backend.query("SELECT count(*) FROM leasehold.long_name") == [(0,)]
    assert storable_name("x" * LONGEST_NAME, "lane") == "x" * LONGEST_NAME
    assert len(storable_name("x" * (LONGEST_NAME + 1), "lane")) <= LONGEST_NAME
