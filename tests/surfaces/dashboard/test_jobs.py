"""The list of jobs: its address is its whole state."""

from __future__ import annotations

import html
import re

import pytest

from leasehold import Leasehold
from leasehold.domain.outcome import Failure
from leasehold.stores.results import Ending
from tests.surfaces.dashboard.conftest import Viewer


def shown(page: str) -> list[str]:
    return re.findall(r'<tr id="row-([0-9a-f-]+)"', page)


def test_jobs_are_found_by_every_criterion_and_by_several_at_once(app: Leasehold, viewer: Viewer):
    plain = app.enqueue("add", {"a": 1})
    tagged = app.enqueue("add", {"a": 2}, tags=("night",), group="g1")
    lane = app.enqueue("greet", {"name": "joe"})
    gone = app.enqueue("add", {"a": 3})
    gone.cancel()
    assert shown(viewer.page("/jobs")) == [gone.id, lane.id, tagged.id, plain.id]
    assert shown(viewer.page("/jobs", state="cancelled")) == [gone.id]
    assert shown(viewer.page("/jobs", state=["cancelled", "queued"], task="add")) == [
        gone.id,
        tagged.id,
        plain.id,
    ]
    assert shown(viewer.page("/jobs", tag="night")) == [tagged.id]
    assert shown(viewer.page("/jobs", group="g1", queue="default")) == [tagged.id]
    assert shown(viewer.page("/jobs", lane="joe")) == [lane.id]
    assert shown(viewer.page("/jobs", q='"a":2')) == [tagged.id]
    assert shown(viewer.page("/jobs", q=lane.id)) == [lane.id]
    assert lane.id in shown(viewer.page("/jobs", q=lane.id[:9]))
    assert shown(viewer.page("/jobs", since="1h", until="2h")) == []
    assert len(shown(viewer.page("/jobs", since="1h"))) == 4


def test_errors_are_found_and_hidden_arguments_are_not(app: Leasehold, viewer: Viewer):
    job = app.enqueue("greet", {"name": "zoe", "key": "swordfish"})
    store = app.__internals__.store
    (grant,) = store.claim("w", ["agents"], 1)
    store.settle([Ending(grant.id, grant.token, Failure("KeyError: no such door", final=True))])
    assert shown(viewer.page("/jobs", q="NO SUCH door")) == [job.id]
    assert shown(viewer.page("/jobs", q="swordfish")) == []
    assert "swordfish" not in viewer.page(f"/jobs/{job.id}")


def test_pages_go_on_where_the_one_before_ended_and_keep_the_filter(app: Leasehold, viewer: Viewer):
    jobs = [app.enqueue("add", {"a": n}).id for n in range(60)]
    first = viewer.page("/jobs", task="add", state="queued")
    assert shown(first) == jobs[:9:-1]
    (older,) = re.findall(r'href="([^"]+)" rel="next"', first)
    second = viewer.page(html.unescape(older))
    assert shown(second) == jobs[9::-1]
    assert 'value="queued" checked' in second
    assert 'value="add"' in second
    assert 'rel="next"' not in second


@pytest.mark.parametrize(
    ("query", "reported"),
    [
        ({"state": "sleeping"}, "sleeping"),
        ({"since": "yesterdayish"}, "neither a time nor a span"),
        ({"cursor": "nonsense"}, "cursor"),
        ({"q": "x" * 2000}, "text"),
    ],
)
def test_a_wrong_criterion_is_told_by_its_name(viewer: Viewer, query: dict[str, str], reported: str):
    answer = viewer.get("/jobs", **query)
    assert answer.status_code == 422
    assert reported in html.unescape(answer.text)


def test_what_a_state_alone_does_not_tell_is_shown(app: Leasehold, viewer: Viewer):
    app.enqueue("add", {"a": 1}, delay="1h")
    app.enqueue("add", {"a": 2}, hold=True)
    app.enqueue("fail", {}, priority=100)
    store = app.__internals__.store
    (grant,) = store.claim("w", ["default"], 1)
    store.settle([Ending(grant.id, grant.token, Failure("ValueError: broken"))])
    app.enqueue("fail", {}, priority=100)
    (running,) = store.claim("w", ["default"], 1)
    app.get(running.id).cancel()
    page = viewer.page("/jobs")
    for look in ("scheduled", "pending", "retrying", "stopping"):
        assert f'class="state {look}"' in page, look


def test_failures_are_grouped_by_what_they_say_on_the_first_page(app: Leasehold, viewer: Viewer):
    store = app.__internals__.store
    for n in range(3):
        app.enqueue("fail", {})
        (grant,) = store.claim("w", ["default"], 1)
        error = f"TimeoutError: no answer after {n}1 s from 'https://example.org/{n}'"
        store.settle([Ending(grant.id, grant.token, Failure(error, final=True))])
    page = html.unescape(viewer.page("/"))
    (row,) = re.findall(r'<td class="num">3</td>.*?</tr>', page, re.DOTALL)
    assert "TimeoutError: no answer after" in row
    assert "example.org" not in row


def test_queues_places_and_pauses_are_on_the_first_page(app: Leasehold, viewer: Viewer):
    app.enqueue("add", {"a": 1})
    app.queues.pause("default", reason="deploy")
    page = viewer.page("/")
    assert "queue paused" in page
    assert 'title="deploy"' in page
    assert ">none</span>" in page, "no worker serves it"
