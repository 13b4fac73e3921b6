"""`metrics`: as Prometheus reads it, and as JSON."""

from __future__ import annotations

from leasehold import Leasehold
from tests.surfaces.test_prometheus import read
from tests.workers import burst


def test_metrics_are_told_as_text_and_as_json(here, app: Leasehold):
    app.enqueue("work")
    burst(app)
    app.enqueue("work")
    answer = here("workers", "metrics")
    assert answer.code == 0
    found = read(answer.out)
    pair = {"queue": "default", "task": "work"}
    assert found["leasehold_attempts_total"] == [({**pair, "outcome": "succeeded"}, 1)]
    assert found["leasehold_jobs"] == [({**pair, "state": "queued"}, 1)]
    reported = here("workers", "metrics", "--json").json
    (total,) = reported["totals"]
    assert (total["task"], total["outcome"], total["attempts"]) == ("work", "succeeded", 1)
    assert sum(total["wait"]["buckets"]) == 1
    assert reported["jobs"] == [{"queue": "default", "task": "work", "state": "queued", "jobs": 1}]


def test_what_is_printed_cannot_steer_the_terminal(here, app: Leasehold):
    app.slots.set("a\x1b[2Jb", 1)
    answer = here("workers", "metrics")
    assert "\x1b" not in answer.out
    assert read(answer.out)["leasehold_slot_limit"][0][1] == 1
