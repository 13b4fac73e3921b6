"""Recover: a missed lease is noticed in two looks, settled as its task says, and what lives on is adopted."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from leasehold.domain.outcome import Crashed, Detached, HandedBack, Success
from leasehold.domain.policy import Policy
from leasehold.domain.records import Reaped
from leasehold.domain.states import Flag, State
from tests.backends import put
from tests.contract.lives import (
    OWNER,
    SITE,
    claim_ids,
    claim_one,
    denied,
    end,
    granted,
    is_fenced,
    lose,
    orphan,
    run,
    run_external,
    sight,
)

# -- the first look ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("sweep", "overdue_at"), [(0.0, 20.0), (4.0, 16.0), (100.0, 10.0)])
def test_a_lease_is_sighted_when_its_renewal_is_overdue_and_not_a_moment_before(
    store, clock, sweep, overdue_at
):
    """So that a third of the lease later, at the latest a sweep after its end, it may be reaped."""
    grant = run(store)
    clock.advance(overdue_at - 0.001)
    assert store.sight_overdue(sweep) == []
    clock.advance(0.001)
    (seen,) = store.sight_overdue(sweep)
    job = store.get(grant.id)
    assert (seen.id, seen.token, seen.worker) == (grant.id, grant.token, OWNER)
    assert (seen.expires_at, seen.lease_seconds) == (job.lease_expires_at, 30.0)
    assert (seen.seen_at, seen.expires_in) == (clock.monotonic(), 30.0 - overdue_at)
    assert seen.reapable_at == clock.monotonic() + max(10.0, 30.0 - overdue_at)


def test_a_lease_that_was_sighted_before_its_end_is_reaped_at_its_end_and_not_a_moment_before(store, clock):
    grant = run(store)
    clock.advance(15)
    seen = store.sight_overdue(5.0)
    clock.advance(14.999)
    assert store.reap(seen) == []
    clock.advance(0.001)
    assert [reaped.id for reaped in store.reap(seen)] == [grant.id]


def test_a_lease_that_is_renewed_every_third_of_it_is_never_sighted(store, clock):
    grant = run(store)
    for _ in range(10):
        clock.advance(9.999)
        assert store.sight_overdue(5.0) == []
        store.renew({grant.id: grant.token})


def test_an_owner_that_renews_late_keeps_what_was_sighted(store, clock):
    grant = run(store)
    for _ in range(10):
        clock.advance(29.999)
        (seen,) = store.sight_overdue(5.0)
        store.renew({grant.id: grant.token})
        clock.advance(10)
        assert store.reap([seen]) == []
    assert store.get(grant.id).attempt == 1


# -- a clock that was set back -----------------------------------------------------------------------------------------


def test_a_lease_that_expires_further_ahead_than_it_is_long_is_missed_if_it_does_not_move_for_its_length(
    store, clock
):
    """Its owner died before the clock was set back an hour: on the database's clock it would live for that hour."""
    grant = run(store)
    clock.jump(-3600)
    (seen,) = store.sight_overdue(5.0)
    assert seen.ahead
    clock.advance(29.999)
    assert store.reap([seen]) == [], "its owner may believe in it for a whole lease"
    clock.advance(0.001)
    assert [reaped.id for reaped in store.reap([seen])] == [grant.id]


def test_an_owner_that_lives_keeps_its_lease_through_a_clock_set_back(store, clock):
    grant = run(store)
    clock.jump(-3600)
    (seen,) = store.sight_overdue(5.0)
    clock.advance(10)
    store.renew({grant.id: grant.token})
    assert store.sight_overdue(5.0) == []
    clock.advance(20)
    assert store.reap([seen]) == []


def test_a_small_step_back_changes_nothing(store, clock):
    run(store)
    clock.jump(-1)
    assert store.sight_overdue(5.0) == []


def test_a_lease_that_was_sighted_as_missed_and_lies_ahead_since_is_not_reaped_by_that_look(store, clock):
    """Only a third of it has passed on the looker's clock."""
    run(store)
    clock.advance(20)
    (seen,) = store.sight_overdue(5.0)
    clock.jump(-3600)
    clock.advance(10)
    assert store.reap([seen]) == []


def test_a_lease_that_lies_ahead_is_stolen_by_id_after_its_length(store, clock):
    grant = run(store)
    clock.jump(-3600)
    look = denied(store.claim_by_id(grant.id, "thief")).sighting
    clock.advance(29.999)
    assert denied(store.claim_by_id(grant.id, "thief", sighting=look)).sighting is not None
    clock.advance(0.001)
    assert granted(store.claim_by_id(grant.id, "thief", sighting=look)).attempt == 2


# -- what a look is ----------------------------------------------------------------------------------------------------


def test_a_look_changes_nothing(store, clock):
    grant = run(store)
    before = store.get(grant.id)
    clock.advance(100)
    for _ in range(3):
        assert len(store.sight_overdue()) == 1
    assert store.get(grant.id) == before
    assert store.history(grant.id) == []


def test_leases_are_sighted_oldest_first_and_no_more_than_asked_for(store, clock):
    late = run(store, lease_seconds=60.0)
    early = run(store, lease_seconds=20.0)
    middle = run(store, lease_seconds=40.0)
    clock.advance(100)
    assert [seen.id for seen in store.sight_overdue()] == [early.id, middle.id, late.id]
    assert [seen.id for seen in store.sight_overdue(limit=2)] == [early.id, middle.id]


def test_what_holds_no_lease_is_never_sighted(store, clock):
    put(store)
    put(store, hold=True)
    end(store, run(store), Success())
    orphan(store, clock)
    clock.advance(1000)
    assert store.sight_overdue() == []


def test_a_job_is_alone_if_its_owner_held_no_other_lease(store, clock):
    alone = run(store, worker="alone")
    shared = [run(store, worker="busy", lease_seconds=lease) for lease in (30.0, 300.0)]
    clock.advance(31)
    seen = {sighting.id: sighting.alone for sighting in store.sight_overdue()}
    assert seen == {alone.id: True, shared[0].id: False}, "a neighbour whose lease still runs counts too"


# -- the second look ---------------------------------------------------------------------------------------------------


def test_a_lease_is_reaped_only_a_third_of_it_after_the_first_look(store, clock):
    grant = run(store)
    clock.advance(1000)
    (seen,) = store.sight_overdue()
    assert store.reap([seen]) == [], "however late, the first look alone does not reap"
    clock.advance(9.999)
    assert store.reap([seen]) == []
    assert store.get(grant.id).worker == OWNER
    clock.advance(0.001)
    assert store.reap([seen]) == [Reaped(grant.id, OWNER, State.QUEUED, orphan=False)]


def test_a_jump_of_the_database_clock_alone_reaps_nothing(store, clock):
    """A failover to a machine whose clock is ahead must not kill every lease at once."""
    grant = run(store)
    clock.jump(3600)
    seen = store.sight_overdue()
    assert len(seen) == 1
    clock.jump(3600)
    assert store.reap(seen) == []
    assert [renewal.id for renewal in store.renew({grant.id: grant.token})] == [grant.id]
    clock.advance(10)
    assert store.reap(seen) == []


def test_a_lease_that_was_renewed_between_the_looks_is_left_alone(store, clock):
    grant = run(store)
    seen = sight(store, clock, grant.id)
    store.renew({grant.id: grant.token})
    clock.advance(31)  # expired again, with another expiry
    before = store.get(grant.id)
    assert store.reap([seen]) == []
    assert store.get(grant.id) == before


def test_a_lease_that_changed_hands_between_the_looks_is_left_alone(store, clock):
    grant = run(store)
    seen = sight(store, clock, grant.id)
    end(store, grant, HandedBack())
    claim_one(store, "worker-2")
    clock.advance(1000)
    before = store.get(grant.id)
    assert store.reap([seen]) == []
    assert store.get(grant.id) == before


def test_a_lease_that_changed_hands_is_left_alone_even_if_it_expires_at_the_same_moment(store, clock):
    """The clock was set back between the looks, and the successor's expiry fell on the predecessor's."""
    grant = run(store)
    clock.advance(31)
    (seen,) = store.sight_overdue()
    clock.jump(-31)
    end(store, grant, HandedBack())
    claim_one(store, "worker-2")
    clock.jump(31)
    clock.advance(10)
    before = store.get(grant.id)
    assert (before.lease_expires_at, before.lease_token) == (seen.expires_at, seen.token + 1)
    assert store.reap([seen]) == []
    assert store.get(grant.id) == before


def test_a_lease_whose_expiry_lies_ahead_again_is_left_alone(store, clock):
    """The clock went back between the looks: on the database's clock nothing has expired."""
    grant = run(store)
    clock.advance(31)
    (seen,) = store.sight_overdue()
    clock.jump(-20)
    clock.advance(10)
    assert store.reap([seen]) == []
    assert store.get(grant.id).worker == OWNER


def test_a_sighting_is_good_for_one_reap(store, clock):
    grant = run(store)
    seen = sight(store, clock, grant.id)
    assert len(store.reap([seen])) == 1
    after = store.get(grant.id)
    assert store.reap([seen]) == []
    assert store.get(grant.id) == after


def test_a_sighting_of_another_reaper_may_be_acted_on_by_any_store(store, clock, backend):
    grant = run(store)
    seen = sight(backend.open(clock), clock, grant.id)
    assert [reaped.id for reaped in store.reap([seen])] == [grant.id]


def test_a_batch_reaps_what_is_ripe_and_leaves_the_rest(store, clock):
    short, long = run(store, lease_seconds=9.0), run(store, lease_seconds=90.0)
    clock.advance(100)
    seen = store.sight_overdue()
    clock.advance(3)
    assert [reaped.id for reaped in store.reap(seen)] == [short.id]
    clock.advance(27)
    assert [reaped.id for reaped in store.reap(seen)] == [long.id]


def test_many_leases_are_reaped_at_once(store, clock):
    grants = [run(store, worker=f"w{number}") for number in range(30)]
    clock.advance(31)
    seen = store.sight_overdue()
    clock.advance(10)
    assert sorted(reaped.id for reaped in store.reap(seen)) == sorted(grant.id for grant in grants)
    assert store.count()[State.QUEUED] == 30


def test_nothing_to_reap_is_no_work(store):
    assert store.reap([]) == []


def test_a_live_job_is_never_reaped_because_it_is_old(store, clock):
    grant = run(store)
    for _ in range(100):
        clock.advance(25)
        assert store.reap(store.sight_overdue()) == []
        assert len(store.renew({grant.id: grant.token})) == 1
    assert store.get(grant.id).attempt == 1


# -- what a loss costs -------------------------------------------------------------------------------------------------


def test_a_lost_job_goes_back_to_its_place_and_its_loss_is_on_record(store, clock):
    grant = run(store)
    before = store.get(grant.id)
    after = lose(store, clock, grant)
    assert (after.state, after.available_at) == (State.QUEUED, before.available_at)
    assert (after.attempt, after.failures, after.crashes) == (1, 0, 1)
    (entry,) = store.history(grant.id)
    assert (entry.event, entry.from_state, entry.to_state) == ("lost", "running", "queued")
    assert entry.actor == OWNER, "who lost it, is what an operator asks first"
    assert (entry.token, entry.at) == (grant.token, clock.now())


def test_later_losses_wait_for_their_backoff(store, clock):
    job = put(store, policy=Policy(backoff=8.0))
    first = lose(store, clock, claim_one(store))
    assert first.available_at == job.available_at
    second = lose(store, clock, claim_one(store))
    assert 4 <= (second.available_at - clock.now()).total_seconds() <= 8


def _lose_often(store, clock, neighbour: bool, **policy) -> list[str]:
    """Lose one job again and again, alone or beside another one; its states after each loss."""
    job = put(store, policy=Policy(backoff=0.0, **policy))
    states = []
    while not states or states[-1] == "queued":
        grant = claim_one(store, worker=f"w{len(states)}")
        assert grant.id == job.id
        if neighbour:
            run(store, worker=f"w{len(states)}", queue="elsewhere", lease_seconds=3600.0)
        states.append(lose(store, clock, grant).state.value)
        assert len(states) < 20
    return states


def test_a_job_that_kills_its_worker_alone_is_given_up_at_the_third_crash(store, clock):
    assert _lose_often(store, clock, neighbour=False) == ["queued"] * 2 + ["failed"]


def test_a_job_that_may_be_a_bystander_is_given_up_at_the_tenth_crash(store, clock):
    assert _lose_often(store, clock, neighbour=True) == ["queued"] * 9 + ["failed"]


@pytest.mark.parametrize("neighbour", [True, False])
def test_the_task_may_set_its_own_crash_limit(store, clock, neighbour):
    assert _lose_often(store, clock, neighbour, max_crashes=2) == ["queued", "failed"]


def test_losses_cost_no_failure_unless_the_task_counts_them(store, clock):
    assert _lose_often(store, clock, False, max_attempts=1) == ["queued"] * 2 + ["failed"]
    assert _lose_often(store, clock, False, max_attempts=2, count_lost=True) == ["queued", "failed"]


def test_a_job_that_is_given_up_says_why(store, clock):
    grant = run(store, policy=Policy(max_crashes=1))
    after = lose(store, clock, grant)
    assert "lease was lost" in after.error
    assert (after.state, after.finished_at) == (State.FAILED, clock.now())


def test_a_job_that_must_not_run_twice_fails_when_it_is_lost(store, clock):
    after = lose(store, clock, run(store, policy=Policy(on_lost="fail")))
    assert (after.state, after.crashes) == (State.FAILED, 1)
    assert store.resume(after.id).crashes == 0


@pytest.mark.parametrize(
    ("flag", "state"), [("finish", "cancelled"), ("pause", "paused"), ("cancel", "cancelled")]
)
def test_a_lost_job_obeys_the_stop_that_was_asked_of_it(store, clock, flag, state):
    grant = run(store)
    getattr(store, flag)(grant.id)
    after = lose(store, clock, grant)
    assert (after.state, after.stop_requested) == (state, None)


def test_an_external_run_lives_on_as_an_orphan_when_its_worker_is_lost(store, clock):
    grant = run_external(store, policy=Policy(on_lost="adopt"))
    before = store.get(grant.id)
    clock.advance(31)
    seen = store.sight_overdue()
    clock.advance(10)
    assert store.reap(seen) == [Reaped(grant.id, OWNER, State.RUNNING, orphan=True)]
    after = store.get(grant.id)
    assert after == replace(before, worker=None, lease_expires_at=None), "only its watcher is gone"


def test_losses_before_anything_was_placed_are_crashes_and_never_failures(store, clock):
    policy = Policy(on_lost="adopt", count_lost=True)
    before = lose(store, clock, run(store, policy=policy))
    assert (before.state, before.failures, before.crashes) == (State.QUEUED, 0, 1)


def test_a_run_may_be_adopted_more_often_than_it_may_crash(store, clock):
    grant = run_external(
        store, policy=Policy(on_lost="adopt", count_lost=True, max_crashes=1, max_attempts=1)
    )
    for turn in range(12):
        assert lose(store, clock, grant).orphan
        (grant,) = store.adopt(f"adopter-{turn}", [SITE])
    assert (grant.attempt, grant.failures, grant.crashes) == (1, 0, 0)
    assert end(store, grant, Success("1")).state is State.SUCCEEDED


def test_an_external_run_that_was_never_placed_is_retried_when_its_worker_is_lost(store, clock):
    after = lose(store, clock, run(store, policy=Policy(on_lost="adopt")))
    assert (after.state, after.orphan) == (State.QUEUED, False)


def test_an_external_run_that_was_never_placed_is_given_up_like_any_other(store, clock):
    assert _lose_often(store, clock, False, on_lost="adopt") == ["queued"] * 2 + ["failed"]


def test_an_external_run_of_a_task_that_retries_is_not_left_as_an_orphan(store, clock):
    after = lose(store, clock, run_external(store))
    assert (after.state, after.execution_site) == (State.QUEUED, None)


# -- external executions -----------------------------------------------------------------------------------------------


def test_an_execution_is_placed_and_marked_under_the_lease_only(store, clock):
    grant = run(store)
    assert store.record_site(grant.id, grant.token, SITE, "run-1")
    job = store.get(grant.id)
    assert (job.execution_site, job.execution_name, job.execution_started_at) == (SITE, "run-1", None)
    clock.advance(1)
    assert store.mark_started(grant.id, grant.token)
    assert store.get(grant.id).execution_started_at == clock.now()
    end(store, grant, HandedBack())
    assert not store.record_site(grant.id, grant.token, SITE, "run-2")
    assert not store.mark_started(grant.id, grant.token)
    job = store.get(grant.id)
    assert (job.execution_site, job.execution_name, job.execution_started_at) == (None, None, None)


def test_a_late_placement_of_a_worker_that_was_reaped_is_refused(store, clock):
    grant = run(store)
    lose(store, clock, grant)
    claim_one(store, "worker-2")
    assert not store.record_site(grant.id, grant.token, SITE, "run-1")
    assert not store.mark_started(grant.id, grant.token)


# -- adopt -------------------------------------------------------------------------------------------------------------


def test_an_orphan_is_adopted_under_a_new_token_at_the_cost_of_no_attempt(store, clock):
    left = orphan(store, clock)
    clock.advance(5)
    (grant,) = store.adopt("adopter", [SITE])
    job = store.get(left.id)
    assert (grant.id, grant.token, grant.attempt) == (left.id, left.lease_token + 1, 1)
    assert (grant.execution_site, grant.execution_name) == (SITE, left.execution_name)
    assert left.execution_started_at is not None
    assert grant.execution_age == (clock.now() - left.execution_started_at).total_seconds() >= 5
    assert job.worker == "adopter"
    assert job.lease_expires_at == clock.now() + timedelta(seconds=30)
    assert (job.failures, job.crashes, job.started_at) == (0, 0, left.started_at)
    entry = store.history(left.id)[-1]
    assert (entry.event, entry.actor) == ("adopted", "adopter")


def test_an_adopted_run_is_renewed_and_settled_like_any_other(store, clock):
    orphan(store, clock)
    (grant,) = store.adopt("adopter", [SITE])
    clock.advance(25)
    assert len(store.renew({grant.id: grant.token})) == 1
    assert end(store, grant, Success("1")).settled_by == "adopter"


def test_an_adopted_run_can_be_lost_and_adopted_again(store, clock):
    orphan(store, clock, policy=Policy(on_lost="adopt"))
    (first,) = store.adopt("adopter-1", [SITE])
    assert lose(store, clock, first).orphan
    (second,) = store.adopt("adopter-2", [SITE])
    assert (second.id, second.attempt, second.token) == (first.id, 1, first.token + 1)
    assert is_fenced(store, first, Success())


def test_orphans_are_adopted_by_priority_then_age(store, clock):
    low, first, second = (orphan(store, clock, priority=priority) for priority in (-1, 5, 5))
    taken = [store.adopt("adopter", [SITE], limit=1)[0].id for _ in range(3)]
    assert taken == [first.id, second.id, low.id]


def test_an_orphan_is_adopted_by_a_worker_of_its_site_only(store, clock):
    here, there = orphan(store, clock), orphan(store, clock, site="machine-2")
    assert store.adopt("adopter", []) == []
    assert store.adopt("adopter", ["machine-3"]) == []
    assert [grant.id for grant in store.adopt("adopter", ["machine-2", "machine-3"])] == [there.id]
    assert [grant.id for grant in store.adopt("adopter", [SITE])] == [here.id]


def test_an_orphan_is_adopted_by_a_worker_that_knows_its_kind_only(store, clock):
    left = orphan(store, clock, task="video")
    assert store.adopt("adopter", [SITE], tasks=["audio"]) == []
    assert store.adopt("adopter", [SITE], tasks=[]) == []
    assert [grant.id for grant in store.adopt("adopter", [SITE], tasks=["audio", "video"])] == [left.id]


def test_no_more_orphans_are_adopted_than_asked_for(store, clock):
    left = sorted(orphan(store, clock).id for _ in range(4))
    assert [grant.id for grant in store.adopt("adopter", [SITE], limit=3)] == left[:3]
    assert store.adopt("adopter", [SITE], limit=0) == []
    assert [grant.id for grant in store.adopt("adopter", [SITE])] == left[3:]


def test_an_orphan_is_not_claimed(store, clock):
    left = orphan(store, clock)
    clock.advance(1000)
    assert claim_ids(store) == []
    assert store.get(left.id).orphan


def test_a_cancelled_orphan_is_adopted_in_order_to_stop_it(store, clock):
    left = orphan(store, clock)
    cancelled = store.cancel(left.id, "anna", "not needed")
    assert (cancelled.state, cancelled.stop_requested) == (State.RUNNING, Flag.CANCEL)
    (grant,) = store.adopt("adopter", [SITE])
    assert grant.stop_requested == "cancel"
    after = end(store, grant, Detached())
    assert (after.orphan, after.stop_requested) == (True, Flag.CANCEL), "a drain passes the flag on"


def test_the_last_owner_of_an_orphan_can_do_nothing_with_its_old_lease(store, clock):
    grant = run_external(store)
    end(store, grant, Detached())
    assert store.renew({grant.id: grant.token}) == []
    assert is_fenced(store, grant, Success())
    assert not store.mark_started(grant.id, grant.token)


# -- crashes and progress ----------------------------------------------------------------------------------------------


def crash(store, clock, keep=None):
    """One more run of the only job, whose worker dies; `keep` may store something first."""
    clock.advance(1000)
    grant = claim_one(store)
    if keep is not None:
        keep(grant)
    return lose(store, clock, grant)


def test_crashes_without_progress_are_poison(store, clock):
    put(store, policy=Policy(backoff=0))
    ends = [crash(store, clock) for _ in range(3)]
    assert [(job.state, job.crashes) for job in ends] == [
        (State.QUEUED, 1),
        (State.QUEUED, 2),
        (State.FAILED, 3),
    ]


KEEPING = {
    "a step": lambda store, grant, n: store.save_steps(grant.id, grant.token, {f"step {n}": "1"}),
    "a checkpoint": lambda store, grant, n: store.save_steps(grant.id, grant.token, {}, state=str(n)),
    "a spent step": lambda store, grant, n: store.save_spent_steps(
        grant.id, grant.token, grant.attempt, {f"step {n}": "1"}, []
    ),
}


@pytest.mark.parametrize("kept", KEEPING)
def test_a_job_that_goes_on_each_time_is_never_poison(store, clock, kept):
    put(store, policy=Policy(backoff=0))
    for n in range(6):
        job = crash(store, clock, lambda grant, n=n: KEEPING[kept](store, grant, n))
        assert (job.state, job.crashes) == (State.QUEUED, 1)
    assert [crash(store, clock).state for _ in range(2)] == [State.QUEUED, State.FAILED]


def test_progress_counts_once(store, clock):
    put(store, policy=Policy(backoff=0))
    assert crash(store, clock).crashes == 1
    assert crash(store, clock).crashes == 2
    keep = KEEPING["a step"]
    assert crash(store, clock, lambda grant: keep(store, grant, 1)).crashes == 1
    assert crash(store, clock).crashes == 2, "what an earlier run has kept says nothing about this one"
    assert crash(store, clock).state is State.FAILED


def test_the_same_checkpoint_again_is_no_progress(store, clock):
    put(store, policy=Policy(backoff=0))
    keep = KEEPING["a checkpoint"]
    ends = [crash(store, clock, lambda grant: keep(store, grant, 7)) for _ in range(3)]
    assert [(job.state, job.crashes) for job in ends] == [
        (State.QUEUED, 1),
        (State.QUEUED, 2),
        (State.FAILED, 3),
    ]


def test_progress_of_a_run_that_failed_by_itself_counts_as_well(store, clock):
    put(store, policy=Policy(backoff=0))
    crash(store, clock)
    crash(store, clock)
    clock.advance(1000)
    grant = claim_one(store)
    KEEPING["a step"](store, grant, 1)
    end(store, grant, HandedBack())
    assert crash(store, clock).crashes == 1


def test_a_steal_looks_for_progress_as_a_reaper_does(store, clock):
    job = put(store, policy=Policy(backoff=0))
    crash(store, clock)
    crash(store, clock)
    clock.advance(1000)
    grant = claim_one(store)
    KEEPING["a step"](store, grant, 1)
    stolen = granted(store.claim_by_id(job.id, "worker-2", sighting=sight(store, clock, job.id)))
    assert (stolen.attempt, store.get(job.id).crashes) == (4, 1)


def test_a_crash_that_the_worker_tells_of_looks_for_progress_too(store, clock):
    put(store, policy=Policy(backoff=0))
    crash(store, clock)
    crash(store, clock)
    clock.advance(1000)
    grant = claim_one(store)
    KEEPING["a checkpoint"](store, grant, 1)
    job = end(store, grant, Crashed("killed by signal 9"))
    assert (job.state, job.crashes) == (State.QUEUED, 1)
