"""Follow-ups are made with their parent's success: all of them, once, or not at all."""

from __future__ import annotations

import threading

import pytest

from leasehold.domain.job import NewJob
from leasehold.domain.outcome import Failure, HandedBack, Snoozed, Stopped, Success
from leasehold.domain.records import Filter
from leasehold.domain.states import State
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import Backend, new_job, put
from tests.contract.lives import claim_ids, end, is_fenced, lose, run

LATER = Filter(queue="later")


def follow_up(**fields) -> NewJob:
    return new_job(**{"task": "verify", "queue": "later", **fields})


def made(store: JobStore) -> set[str]:
    return {job.id for job in store.list_jobs(LATER, limit=500).jobs}


def test_follow_ups_are_there_when_the_success_is(store: JobStore):
    grant = run(store)
    wanted = tuple(follow_up() for _ in range(3))
    settled = store.settle([Ending(grant.id, grant.token, Success("1", None, wanted))])
    assert (settled.accepted, settled.freed) == ([grant.id], True)
    assert store.get(grant.id).result == "1"
    assert sorted(claim_ids(store, queue="later")) == sorted(job.id for job in wanted)
    assert [(one.relation, one.id) for one in store.relatives(wanted[0].id)] == [("follow_up_of", grant.id)]
    assert {one.id for one in store.relatives(grant.id)} == {job.id for job in wanted}


def test_a_settle_that_is_repeated_makes_no_second_set(store: JobStore):
    grant = run(store)
    wanted = (follow_up(), follow_up())
    end(store, grant, Success(None, None, wanted))
    assert is_fenced(store, grant, Success(None, None, wanted))
    assert is_fenced(store, grant, Success(None, None, (follow_up(),)))
    assert made(store) == {job.id for job in wanted}
    assert store.read_settlements({grant.id: grant.token}, "worker-1") == {grant.id: "done"}


def test_a_run_that_has_lost_its_lease_makes_none(store: JobStore, clock: ManualClock):
    grant = run(store)
    lose(store, clock, grant)
    assert is_fenced(store, grant, Success(None, None, (follow_up(),)))
    assert made(store) == set()


@pytest.mark.parametrize(
    "outcome", [Failure("no"), Failure("no", final=True), Snoozed(1.0), HandedBack(), Stopped(pause=True)]
)
def test_no_other_ending_carries_any(store: JobStore, outcome):
    assert not hasattr(outcome, "follow_ups")
    end(store, run(store), outcome)
    assert made(store) == set()


@pytest.mark.parametrize("flag", ["cancel", "pause", "finish"])
def test_a_success_under_a_flag_is_a_success_with_its_follow_ups(store: JobStore, flag: str):
    grant = run(store)
    getattr(store, flag)(grant.id)
    assert end(store, grant, Success(None, None, (follow_up(),))).state is State.SUCCEEDED
    assert len(made(store)) == 1


def test_many_parents_in_one_batch_get_their_own(store: JobStore):
    grants = [run(store) for _ in range(20)]
    plain = [run(store) for _ in range(5)]
    wanted = {grant.id: (follow_up(), follow_up(), follow_up()) for grant in grants}
    endings = [Ending(grant.id, grant.token, Success(None, None, wanted[grant.id])) for grant in grants]
    endings += [Ending(grant.id, grant.token, Success()) for grant in plain]
    assert len(store.settle(endings).accepted) == 25
    assert made(store) == {job.id for jobs in wanted.values() for job in jobs}
    for grant in grants:
        assert {one.id for one in store.relatives(grant.id)} == {job.id for job in wanted[grant.id]}


def test_the_failure_of_a_follow_up_leaves_its_parent_alone(store: JobStore):
    grant = run(store)
    end(store, grant, Success(None, None, (follow_up(),)))
    (child,) = store.claim("w", ["later"], 1)
    end(store, child, Failure("broken", final=True))
    assert store.get(grant.id).state is State.SUCCEEDED
    assert store.history(grant.id) == []


def test_a_follow_up_whose_key_is_held_leads_to_its_holder(store: JobStore):
    holder = put(store, task="verify", queue="later", unique_key="k")
    end(store, run(store), Success(None, None, (follow_up(unique_key="k"), follow_up())))
    assert len(made(store)) == 2
    assert holder.id in made(store)


def test_a_follow_up_that_must_not_meet_a_holder_is_left_out_and_told(store: JobStore):
    holder = put(store, task="verify", queue="later", unique_key="k")
    grant = run(store)
    good, bad = follow_up(), follow_up(unique_key="k", on_duplicate="raise")
    assert end(store, grant, Success("1", None, (bad, good))).state is State.SUCCEEDED
    assert made(store) == {holder.id, good.id}
    (entry,) = store.history(grant.id)
    assert (entry.event, entry.token) == ("follow_up_refused", grant.token)
    assert entry.detail == f"verify: its unique key 'k' is held by job {holder.id}"


def test_a_follow_up_of_a_missing_job_is_left_out_with_those_behind_it(store: JobStore):
    gone = new_job().id
    first = follow_up(after=(gone,))
    second, good = follow_up(after=(first.id,)), follow_up()
    grant = run(store)
    assert end(store, grant, Success(None, None, (first, second, good))).state is State.SUCCEEDED
    assert made(store) == {good.id}
    assert [entry.detail for entry in store.history(grant.id)] == [
        f"verify: it waits for job {gone}, which does not exist",
        f"verify: it waits for job {first.id}, which does not exist",
    ]


def test_follow_ups_may_wait_for_each_other_and_for_their_parent(store: JobStore):
    grant = run(store)
    first = follow_up(after=(grant.id,))
    second = follow_up(after=(first.id,))
    end(store, grant, Success(None, None, (first, second)))
    assert (store.get(first.id).state, store.get(second.id).state) == (State.QUEUED, State.PENDING)


def test_a_follow_up_takes_its_lane_tags_group_and_delay_with_it(store: JobStore, clock: ManualClock):
    grant = run(store, group="g")
    version = store.group("g").version
    wanted = follow_up(lane="l", tags=("t",), group="g", delay=60.0, hold=False)
    end(store, grant, Success(None, None, (wanted,)))
    assert [job.id for job in store.list_jobs(Filter(tag="t")).jobs] == [wanted.id]
    assert store.group("g").version == version + 1, "told once, for the end and the new job"
    assert claim_ids(store, queue="later") == []
    clock.advance(61)
    assert claim_ids(store, queue="later") == [wanted.id]


def test_an_awaited_parent_with_follow_ups_does_both(store: JobStore):
    grant = run(store)
    child = put(store, queue="later", after=(grant.id,))
    wanted = follow_up()
    end(store, grant, Success("1", None, (wanted,)))
    assert sorted(claim_ids(store, queue="later")) == sorted([child.id, wanted.id])


def test_a_not_serializable_result_takes_its_follow_ups_with_it_and_spares_the_others(store: JobStore):
    good, bad = run(store), run(store)
    kept, dropped = follow_up(), follow_up()
    settled = store.settle(
        [
            Ending(good.id, good.token, Success("1", None, (kept,))),
            Ending(bad.id, bad.token, Success("not json", None, (dropped,))),
        ]
    )
    assert (sorted(settled.accepted), settled.not_serializable) == (sorted([good.id, bad.id]), [bad.id])
    assert store.get(bad.id).state is State.FAILED
    assert made(store) == {kept.id}


def test_pruning_forgets_who_followed_whom(store: JobStore, clock: ManualClock, backend: Backend):
    grant = run(store)
    end(store, grant, Success(None, None, (follow_up(),)))
    clock.advance(3600)
    assert store.prune(60).deleted == 1
    assert backend.query("SELECT count(*) FROM leasehold.follow_up") == [(0,)]


def test_the_same_settle_sent_by_two_at_once_makes_one_set(backend: Backend):
    """As after a lost reply, but at the same moment."""
    stores = [backend.open(), backend.open()]
    grants = [run(stores[0]) for _ in range(40)]
    wanted = {grant.id: (follow_up(), follow_up()) for grant in grants}
    twice = {grant.id: (follow_up(), follow_up()) for grant in grants}
    accepted: list[list[str]] = [[], []]
    barrier = threading.Barrier(2)

    def settle(number: int) -> None:
        for grant in grants:
            requested = (wanted if number == 0 else twice)[grant.id]
            barrier.wait()
            answer = stores[number].settle([Ending(grant.id, grant.token, Success(None, None, requested))])
            accepted[number] += answer.accepted

    threads = [threading.Thread(target=settle, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(accepted[0] + accepted[1]) == sorted(grant.id for grant in grants)
    assert stores[0].list_jobs(Filter(queue="later"), limit=500).next is None
    assert len(stores[0].list_jobs(Filter(queue="later"), limit=500).jobs) == 80
