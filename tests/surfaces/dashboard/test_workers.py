"""Workers, leases, and what runs outside of the workers."""

from __future__ import annotations

import html
from dataclasses import replace

from leasehold import Leasehold
from leasehold.domain.outcome import Detached
from leasehold.domain.policy import Policy
from leasehold.domain.records import WorkerCard, WorkerProblem
from leasehold.surfaces.dashboard.pages.workers import look_of
from tests.contract.lives import end, run, run_external
from tests.surfaces.dashboard.conftest import Dashboard, Viewer

ADOPT = Policy(on_lost="adopt")
HOSTILE = "<script>alert(1)</script>\u202e\"'/&"


def test_it_tells_who_works_and_who_is_about_to_leave(app: Leasehold, viewer: Viewer):
    store = app.__internals__.store
    assert "No live workers" in viewer.page("/workers")
    store.report_worker(
        WorkerCard("host:1", ("default", "agents"), ("add",), concurrency=8, running=3, version="1.2")
    )
    store.report_worker(WorkerCard("host:2", ("default",), ("add",), concurrency=2, draining=True))
    text = viewer.page("/workers")
    assert "<span>Workers</span><b>2</b>" in text
    assert "<span>Draining</span><b>1</b>" in text
    assert "<span>Capacity in use</span><b>3</b><small>of 10</small>" in text
    assert "3 of 8" in text
    assert "agents" in text
    assert "1.2" in text
    assert "working</span>" in text
    assert "draining</span>" in text


def test_a_worker_in_trouble_says_with_what(app: Leasehold, viewer: Viewer):
    problems = (WorkerProblem("beta", f"locked {HOSTILE}"), WorkerProblem(None, "no claims"))
    app.__internals__.store.report_worker(
        WorkerCard("host:1", ("default",), ("add",), tenants=("all",), problems=problems)
    )
    text = viewer.page("/workers")
    assert "in trouble</span>" in text
    assert "tenant <bdi>beta</bdi>" in text
    assert html.escape("locked <script>") in text
    assert "<script>alert" not in text
    assert "no claims" in text


def test_a_worker_that_was_not_seen_for_long_is_marked(app: Leasehold):
    store = app.__internals__.store
    store.report_worker(WorkerCard("host:1", ("default",), ("add",), concurrency=2))
    (card,) = store.list_workers()
    assert card.seen_at is not None
    assert look_of(card, card.seen_at).word == "ready"
    late = replace(card, seen_at=card.seen_at.replace(year=card.seen_at.year - 1))
    assert look_of(late, card.seen_at).word == "silent"


def test_leases_are_shown_a_page_at_a_time_and_by_worker(app: Leasehold, viewer: Viewer):
    store = app.__internals__.store
    mine = run(store, "host:1", task="add")
    others = [run(store, "host:2", task="fail") for _ in range(51)]
    text = viewer.page("/workers")
    assert f"/jobs/{mine.id}" in text
    assert 'aria-label="Time left on the lease"' in text
    assert f"/jobs/{others[-1].id}" not in text
    following = html.unescape(text.partition('rel="next"')[0].rpartition('href="')[2].partition('"')[0])
    rest = viewer.client.get(following).text
    assert f"/jobs/{others[-1].id}" in rest
    assert f"/jobs/{mine.id}" not in rest
    of_one = viewer.page("/workers", worker="host:1")
    assert f"/jobs/{mine.id}" in of_one
    assert f"/jobs/{others[0].id}" not in of_one


def test_a_stop_that_was_asked_for_is_shown(app: Leasehold, viewer: Viewer):
    grant = run(app.__internals__.store, "host:1", task="add")
    app.get(grant.id).cancel()
    assert "cancel</span>" in viewer.page("/workers").partition("Leases")[2]


def test_an_expired_lease_is_marked(app: Leasehold, viewer: Viewer):
    run(app.__internals__.store, "host:1", task="add", lease_seconds=0.001)
    assert "expired</span>" in viewer.page("/workers")


def test_an_orphan_stands_first_and_is_given_up_by_an_admin_alone(
    app: Leasehold, viewer: Viewer, operator: Viewer, admin: Viewer
):
    store = app.__internals__.store
    watched = run_external(store, "host:1", task="add", policy=ADOPT)
    orphan = run_external(store, "host:1", task="fail", policy=ADOPT)
    end(store, orphan, Detached("drained"))
    text = admin.page("/workers")
    assert text.index(f"execution-{orphan.id}") < text.index(f"execution-{watched.id}")
    assert "no live worker at its site" in text
    assert text.count("/do/job.abandon") == 1, "what is watched cannot be given up"
    store.report_worker(WorkerCard("host:3", ("default",), ("add",), sites=("machine-1",)))
    assert "will adopt it" in admin.page("/workers")
    for one in (viewer, operator):
        assert "/do/job.abandon" not in one.page("/workers")
        assert one.do("job.abandon", id=orphan.id).status_code == 403
    reported = admin.reported(admin.do("job.abandon", id=orphan.id, reason="burnt down", back="/workers"))
    assert reported == "The job is queued now."
    entry = app.get(orphan.id).history()[-1]
    assert (entry.event, entry.actor) == ("abandoned", "dashboard:token 2")
    assert f"execution-{orphan.id}" not in admin.page("/workers")


def test_names_are_shown_and_do_nothing(app: Leasehold, viewer: Viewer):
    store = app.__internals__.store
    store.report_worker(WorkerCard(HOSTILE, ("default",), (HOSTILE,), concurrency=1, version=HOSTILE))
    run_external(store, HOSTILE, site=HOSTILE, task="add", policy=ADOPT)
    text = viewer.page("/workers", worker=HOSTILE)
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_a_token_of_some_queues_sees_what_is_in_them(app: Leasehold, dashboard: Dashboard):
    store = app.__internals__.store
    store.report_worker(WorkerCard("host:1", ("default",), ("add",)))
    mine = run_external(store, "host:1", task="add", policy=ADOPT, queue="agents")
    others = run_external(store, "host:1", task="add", policy=ADOPT, queue="default")
    text = dashboard.viewer("admin", queues=["agent*"]).page("/workers")
    assert mine.id in text
    assert others.id not in text
    assert "Your token covers some queues only" in text
