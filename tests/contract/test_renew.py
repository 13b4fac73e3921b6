"""Renew: the token says "mine", late or not; what is missing from the answer is lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from leasehold.domain.job import Renewal
from leasehold.domain.outcome import HandedBack, Success
from leasehold.domain.states import Flag, State
from tests.backends import new_id
from tests.contract.lives import claim_one, end, lose, orphan, run


def test_a_renewal_moves_the_expiry_and_nothing_else(store, clock):
    grant = run(store, lease_seconds=45.0)
    before = store.get(grant.id)
    clock.advance(20)
    assert store.renew({grant.id: grant.token}) == [Renewal(grant.id, None)]
    after = store.get(grant.id)
    assert after == replace(before, lease_expires_at=clock.now() + timedelta(seconds=45))
    assert store.history(grant.id) == []


def test_a_late_renewal_that_nobody_has_fenced_counts(store, clock):
    grant = run(store)
    clock.advance(10_000)
    assert store.renew({grant.id: grant.token}) == [Renewal(grant.id, None)]
    assert store.sight_overdue() == []


def test_one_beat_renews_every_lease_of_a_worker(store, clock):
    grants = [run(store) for _ in range(40)]
    clock.advance(10)
    renewed = store.renew({grant.id: grant.token for grant in grants})
    assert sorted(renewal.id for renewal in renewed) == sorted(grant.id for grant in grants)
    expiries = {store.get(grant.id).lease_expires_at for grant in grants}
    assert expiries == {clock.now() + timedelta(seconds=30)}


def test_a_beat_tells_every_flag_that_was_set(store):
    grants = {flag: run(store) for flag in ("none", "finish", "pause", "cancel")}
    for flag in ("finish", "pause", "cancel"):
        getattr(store, flag)(grants[flag].id)
    renewed = store.renew({grant.id: grant.token for grant in grants.values()})
    reported = {renewal.id: renewal.stop_requested for renewal in renewed}
    assert reported == {
        grants["none"].id: None,
        grants["finish"].id: Flag.FINISH,
        grants["pause"].id: Flag.PAUSE,
        grants["cancel"].id: Flag.CANCEL,
    }


def test_a_beat_names_what_is_still_held_and_leaves_out_what_is_lost(store, clock):
    held, settled, given_back, reaped, stolen = [run(store) for _ in range(5)]
    store.renew({grant.id: grant.token for grant in (held, settled, given_back, stolen)})
    lose(store, clock, reaped)
    end(store, settled, Success())
    end(store, given_back, HandedBack())
    end(store, stolen, HandedBack())
    store.claim_by_id(stolen.id, "thief")
    leases = {grant.id: grant.token for grant in (held, settled, given_back, reaped, stolen)}
    others = {job_id: store.get(job_id) for job_id in leases if job_id != held.id}
    assert [renewal.id for renewal in store.renew(leases | {new_id(): 1})] == [held.id]
    assert {job_id: store.get(job_id) for job_id in others} == others


def test_a_beat_of_the_predecessor_does_not_prolong_the_lease_of_the_successor(store, clock):
    grant = run(store)
    lose(store, clock, grant)
    claim_one(store, "worker-2")
    before = store.get(grant.id)
    clock.advance(5)
    assert store.renew({grant.id: grant.token}) == []
    assert store.get(grant.id) == before


def test_the_old_lease_of_an_orphan_is_not_renewed(store, clock):
    left = orphan(store, clock)
    assert store.renew({left.id: left.lease_token - 1}) == []
    assert store.get(left.id) == left


def test_an_empty_beat_is_no_work(store):
    assert store.renew({}) == []


def test_a_renewal_does_not_bring_the_job_before_its_end_back_to_the_queue(store, clock):
    grant = run(store)
    for _ in range(5):
        clock.advance(10)
        store.renew({grant.id: grant.token})
    job = store.get(grant.id)
    assert (job.state, job.attempt, job.lease_token) == (State.RUNNING, 1, grant.token)
