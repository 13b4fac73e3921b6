"""Bulk on the filter as it stands: first what it would do, then a confirmation, then progress and a report."""

from __future__ import annotations

import html
import re
import time
from datetime import UTC, datetime

from leasehold import Leasehold
from tests.surfaces.dashboard.conftest import Dashboard, Viewer


def finished(viewer: Viewer, path: str) -> str:
    """The page of a run that has ended."""
    deadline = time.monotonic() + 60
    while True:
        page = viewer.page(path)
        if "in progress" not in page:
            return page
        assert time.monotonic() < deadline, page
        time.sleep(0.02)


def counts(app: Leasehold) -> dict[str, int]:
    return {state.value: count for state, count in app.count().items() if count}


def test_a_dry_run_counts_names_some_and_changes_nothing(app: Leasehold, operator: Viewer):
    jobs = [app.enqueue("add", {"a": n}) for n in range(30)]
    app.enqueue("fail", {})
    page = operator.page("/bulk", verb="cancel", task="add", state="queued")
    assert "Cancel 30 jobs" in page
    assert "Type <strong>30</strong> to confirm" in page
    assert jobs[-1].id in page
    assert counts(app) == {"queued": 31}


def test_what_destroys_is_typed_first(app: Leasehold, operator: Viewer):
    jobs = [app.enqueue("add", {"a": n}) for n in range(3)]
    other = app.enqueue("fail", {})
    fields = {"verb": "cancel", "criteria": "task=add&state=queued", "matched": "3"}
    for typed in ("", "2", "yes"):
        assert "type 3" in html.unescape(operator.reported(operator.do("bulk.start", **fields, typed=typed)))
    assert counts(app) == {"queued": 4}
    answer = operator.do("bulk.start", **fields, typed="3", reason="clean up")
    page = finished(operator, answer.headers["location"])
    assert "Changed 3 of 3 jobs" in page
    assert ">done</span>" in page
    assert {job.refresh().state for job in jobs} == {"cancelled"}
    assert (other.refresh().state, jobs[0].history()[-1].detail) == ("queued", "clean up")
    assert jobs[0].history()[-1].actor.startswith("dashboard:")
    assert 'href="/jobs?state=queued&amp;task=add"' in page, "the filter is kept on the way back"


def test_text_and_time_count_for_the_verb_as_they_do_for_the_list(app: Leasehold, operator: Viewer):
    one = app.enqueue("fail", {"text": "needle"})
    others = [app.enqueue("fail", {"text": "hay"}) for _ in range(3)]
    page = operator.page("/bulk", verb="pause", q="needle")
    assert "Pause 1 job" in page
    (criteria,) = re.findall(r'name="criteria" value="([^"]*)"', page)
    answer = operator.do("bulk.start", verb="pause", criteria=html.unescape(criteria), matched="1")
    finished(operator, answer.headers["location"])
    assert one.refresh().state == "paused"
    assert {job.refresh().state for job in others} == {"queued"}
    assert "Pause 1 job" in operator.page("/bulk", verb="pause", q=others[0].id)
    assert "No matching jobs" in operator.page("/bulk", verb="pause", until="1h")


def test_jobs_that_refuse_are_reported_and_hold_up_none_of_the_others(app: Leasehold, operator: Viewer):
    fine = app.enqueue("add", {"a": 1}, hold=True)
    waits = app.enqueue("add", {"a": 2}, after=[fine])
    answer = operator.do("bulk.start", verb="release", criteria="state=pending", matched="2")
    page = html.unescape(finished(operator, answer.headers["location"]))
    assert "Changed 1 of 2 jobs" in page
    assert "Not possible in this state" in page
    assert waits.id in page
    assert (fine.refresh().state, waits.refresh().state) == ("queued", "pending")


def test_jobs_are_snoozed(app: Leasehold, operator: Viewer):
    jobs = [app.enqueue("add", {"a": n}) for n in range(2)]
    page = operator.page("/bulk", verb="snooze", task="add")
    assert re.findall(r'<input id="bulk-(\w+)"[^>]*?(required)?>', page) == [
        ("until", "required"),
        ("reason", ""),
    ]
    fields = {"verb": "snooze", "criteria": "task=add&until=2090-01-01", "matched": "2"}
    missing = operator.do("bulk.start", **fields)
    assert "until: is empty" in html.unescape(operator.reported(missing))
    answer = operator.do("bulk.start", **fields, until="2100-01-01 12:00", reason="closed")
    assert "Changed 2 of 2 jobs" in finished(operator, answer.headers["location"])
    assert {job.refresh().available_at for job in jobs} == {datetime(2100, 1, 1, 12, tzinfo=UTC)}
    assert (jobs[0].history()[-1].detail or "").endswith(": closed")


def test_what_destroys_is_marked_in_the_list(app: Leasehold, operator: Viewer):
    app.enqueue("add", {"a": 1})
    marked = re.findall(r'class="button danger" href="/bulk\?verb=(\w+)"', operator.page("/jobs"))
    assert marked == ["cancel"]


def test_an_unknown_verb_or_run_is_told(operator: Viewer):
    assert operator.get("/bulk", verb="explode").status_code == 422
    assert operator.get("/bulk/unknown").status_code == 404


def test_a_run_can_be_stopped_by_hand(app: Leasehold, operator: Viewer):
    app.__internals__.tasks.find("add")
    task = app.__internals__.named_task("add", {})
    task.enqueue_many([{"a": n} for n in range(3000)])
    answer = operator.do("bulk.start", verb="cancel", criteria="task=add", matched="3000", typed="3000")
    path = answer.headers["location"]
    operator.do("bulk.stop", run=path.rpartition("/")[2])
    page = finished(operator, path)
    left = counts(app).get("queued", 0)
    assert ("ended early" in page) == (left > 0)
    assert counts(app).get("cancelled", 0) + left == 3000


def test_a_token_of_some_queues_neither_sees_nor_stops_the_runs_of_others(
    app: Leasehold, dashboard: Dashboard, operator: Viewer
):
    app.enqueue("add", {"a": 1})
    app.enqueue("greet", {"name": "x"})
    agents = dashboard.viewer("read", "operate", queues=["agents"])
    started = operator.do("bulk.start", verb="pause", criteria="queue=default", matched="1")
    everywhere = operator.do("bulk.start", verb="release", criteria="state=pending", matched="0")
    mine = agents.do("bulk.start", verb="pause", criteria="queue=agents", matched="1")
    shown = agents.page("/bulk", verb="pause", queue="agents")
    assert mine.headers["location"] in shown
    for foreign in (started, everywhere):
        path = foreign.headers["location"]
        assert path not in shown
        assert agents.get(path).status_code == 404
        assert agents.do("bulk.stop", run=path.rpartition("/")[2]).status_code == 404
        assert path in operator.page("/bulk", verb="pause")
    assert agents.do("bulk.stop", run=mine.headers["location"].rpartition("/")[2]).status_code == 303
