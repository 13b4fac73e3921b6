"""`sweep`: what was lost is taken over, and listed."""

from __future__ import annotations


def test_what_was_lost_is_taken_over_and_listed(app, here, backend):
    assert here("db", "sweep").out.strip() == "nothing was lost"
    job = app.enqueue("work")
    app.__internals__.store.claim_by_id(job.id, "host:1:aa")
    earlier = "1000000000" if backend.name == "sqlite" else "interval '1000 s'"
    backend.query(f"UPDATE leasehold.lease SET expires_at = expires_at - {earlier}, lease_seconds = 0.3")
    (line,) = here("db", "sweep", "--json").lines
    assert (line["id"], line["worker"], line["state"]) == (job.id, "host:1:aa", "queued")
    assert here("db", "sweep", "--wait", "0").out.strip() == "nothing was lost"


def test_a_wait_that_is_no_duration_is_a_mistake_of_usage(app, here):
    assert here("db", "sweep", "--wait", "soon").code == 2
