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
def page_request(app):
    @app.task(
        lane="{url}",
        unique="{url}",
        tags=("page:{url}",),
        slots={"host:{url}": Slot(limit=1)},
        rate=Rate("{url}", "60/min"),
    )
    def page_request(url: str) -> None: ...

    return page_request


pytestmark = pytest.mark.parametrize("backend", ["sqlite", "postgres"], indirect=True)


def test_a_long_name_is_shown_whole(app, page_request):
    job = page_request.enqueue(URL)
    row = job.refresh().__row__
    assert (row.lane, row.unique_key, row.tags) == (URL, URL, (f"page:{URL}",))
    (listed,) = app.jobs().jobs
    assert (listed.lane, listed.tags) == (URL, (f"page:{URL}",))
    assert {row.name for row in app.slots.list()} == {f"host:{URL}"}
    assert {row.key for row in app.rates.list()} == {URL}
    assert job.cancel().__row__.lane == URL


def test_names_that_differ_only_at_their_ends_are_two_names(app, page_request):
    first, second, again = (
        page_request.enqueue(URL + "1"),
        page_request.enqueue(URL + "2"),
        page_request.enqueue(URL + "1"),
    )
    assert first.id != second.id
    assert (again.id, again.created) == (first.id, False)


def test_a_job_is_found_and_steered_by_its_whole_name(app, page_request):
    job, other = page_request.enqueue(URL), page_request.enqueue("short")
    assert [one.id for one in app.jobs(lane=URL).jobs] == [job.id]
    assert [one.id for one in app.jobs(tag=f"page:{URL}").jobs] == [job.id]
    app.slots.set(f"host:{URL}", 0)
    assert f"host:{URL}" in str(job.explain())
    job.pause()
    assert app.lanes.resume(URL).id == job.id
    app.stop(lane=URL)
    assert (job.refresh().state, other.refresh().state) == ("cancelled", "queued")


def test_whoever_holds_a_long_key_is_named_with_it(app, page_request):
    holder = page_request.enqueue(URL)
    with pytest.raises(DuplicateJob) as caught:
        page_request.using(on_duplicate="raise").enqueue(URL)
    assert (caught.value.job_id, caught.value.unique_key) == (holder.id, URL)


def test_names_up_to_the_limit_are_kept_as_they_are(app, page_request, backend):
    name = "x" * (LONGEST_NAME - len("page:"))
    page_request.enqueue(name)
    assert backend.query("SELECT count(*) FROM leasehold.long_name") == [(0,)]
    assert storable_name("x" * LONGEST_NAME, "lane") == "x" * LONGEST_NAME
    assert len(storable_name("x" * (LONGEST_NAME + 1), "lane")) <= LONGEST_NAME
