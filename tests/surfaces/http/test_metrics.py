"""GET /metrics: what Prometheus scrapes, for who may read all queues."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI

from leasehold import Leasehold
from leasehold.domain.outcome import Success
from leasehold.http import create_app, router
from tests.backends import new_job
from tests.surfaces.http.test_jobs import settle
from tests.surfaces.serving import Server
from tests.surfaces.test_prometheus import EVIL, NAMED, read
from tests.workers import burst


def test_a_scrape_tells_what_was_counted_and_what_there_is(app: Leasehold, server: Server):
    app.enqueue("add", {"a": 1})
    app.enqueue("fail")
    burst(app)
    app.enqueue("add", {"a": 2})
    answer = server.client("read").get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    found = read(answer.text)
    pair = {"queue": "default", "task": "add"}
    assert ({**pair, "outcome": "succeeded"}, 1) in found["leasehold_attempts_total"]
    assert ({**pair, "state": "queued"}, 1) in found["leasehold_jobs"]
    assert (pair, 1) in found["leasehold_attempt_seconds_count"]
    assert set(found) <= NAMED


def test_names_that_came_in_by_sql_do_no_harm(app: Leasehold, server: Server):
    store = app.__internals__.store
    store.enqueue([new_job(queue=EVIL, task=EVIL)])
    app.slots.set('gpu \\ "0"\n', 2)
    found = read(server.client("read").get("/metrics").text)
    assert ({"queue": EVIL, "task": EVIL, "state": "queued"}, 1) in found["leasehold_jobs"]
    assert ({"slot": 'gpu \\ "0"\n'}, 2) in found["leasehold_slot_limit"]


def test_it_needs_the_scope_read_for_all_queues(app: Leasehold, server: Server):
    assert server.client().get("/metrics").status_code == 401
    assert server.client("enqueue").get("/metrics").status_code == 403
    part = server.token("read", queues=["agents"])
    assert server.client(token=part).get("/metrics").status_code == 403
    assert server.client("read", Host="evil.example").get("/metrics").status_code == 421


def test_without_tokens_it_is_open(app: Leasehold, listen: Callable[[FastAPI], Server]):
    app.enqueue("add", {"a": 1})
    settle(app, Success("1"))
    assert listen(create_app(app, tokens=False)).client().get("/metrics").status_code == 200


def test_a_router_in_another_app_leaves_its_own_metrics_alone(app: Leasehold):
    assert "/metrics" not in {getattr(route, "path", None) for route in router(app).routes}
