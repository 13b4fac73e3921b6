"""Cap and reject: one transaction counts the live runs of a kind, and starts one more or stores nothing."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from leasehold.domain.errors import DuplicateJob, InvalidState
from leasehold.domain.job import Enqueued, Grant
from leasehold.domain.outcome import HandedBack, Snoozed, Stopped, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from leasehold.stores.results import Full
from tests.backends import new_job, put
from tests.contract.lives import OWNER, SITE, claim_ids, claim_one, end, lose, orphan

ONCE = Policy(queueing=False, max_attempts=1, on_lost="fail")


def start(store, cap=1, worker=OWNER, **fields) -> Grant:
    grant = store.run_now(new_job(**fields), worker, cap)
    assert isinstance(grant, Grant), grant
    return grant


def full(store, cap=1, worker=OWNER, **fields) -> Full:
    answer = store.run_now(new_job(**fields), worker, cap)
    assert isinstance(answer, Full), answer
    return answer


def test_a_job_run_now_is_the_same_as_one_that_was_claimed(store, clock):
    fields = {"args": '{"a": 1}', "lane": "l", "group": "g", "deadline": 60.0, "tags": ("t",)}
    queued = put(store, **fields)
    by_queue = claim_one(store)
    first = store.get(queued.id)
    end(store, by_queue, Success())
    at_once = start(store, **fields)
    assert at_once._replace(seq=queued.seq, id=queued.id) == by_queue
    job = store.get(at_once.id)
    assert (job.state, job.worker, job.attempt, job.lease_token) == (State.RUNNING, OWNER, 1, 1)
    assert job.lease_expires_at == first.lease_expires_at == clock.now() + timedelta(seconds=30)
    assert (job.started_at, job.group, job.tags) == (clock.now(), "g", ("t",))


def test_the_cap_counts_what_runs_and_names_it_the_oldest_first(store, clock):
    first = start(store, cap=2)
    clock.advance(4)
    second = start(store, cap=2, worker="other")
    refused = full(store, cap=2)
    assert [(h.job_id, h.worker) for h in refused.holders] == [(first.id, OWNER), (second.id, "other")]
    assert [h.started_at for h in refused.holders] == [clock.now() - timedelta(seconds=4), clock.now()]
    assert refused.holders[0].lease_expires_at == clock.now() + timedelta(seconds=26)
    assert refused.retry_after == pytest.approx(4 / 3, abs=0.1)
    assert len(store.list_jobs().jobs) == 2
    end(store, first, Success())
    start(store, cap=2)


def test_each_kind_has_places_of_its_own_and_a_call_says_how_many(store):
    start(store, task="a")
    start(store, task="b")
    full(store, task="a")
    start(store, task="a", cap=2)


def test_a_run_of_a_queue_worker_takes_a_place(store):
    put(store)
    claimed = claim_one(store, worker="worker")
    assert [h.worker for h in full(store).holders] == ["worker"]
    end(store, claimed, HandedBack())
    start(store)


def test_jobs_that_wait_take_no_place(store):
    put(store)
    put(store, hold=True)
    put(store, delay=5.0)
    start(store)


def test_a_lease_that_has_run_out_takes_no_place_before_anybody_has_reaped_it(store, clock):
    lost = start(store)
    clock.advance(29)
    full(store)
    clock.advance(1)
    start(store)
    assert store.get(lost.id).state is State.RUNNING


def test_the_two_looks_of_a_reaper_clear_it_as_its_task_says(store, clock):
    lost = start(store, policy=ONCE)
    clock.advance(30)
    looks = store.sight_overdue()
    assert [look.id for look in looks] == [lost.id]
    assert store.reap(looks) == []
    clock.advance(10)
    assert [reaped.state for reaped in store.reap(looks)] == [State.FAILED]


def test_an_orphan_keeps_its_place_because_its_execution_may_live(store, clock):
    job = orphan(store, clock)
    (holder,) = full(store).holders
    assert (holder.job_id, holder.worker, holder.lease_expires_at) == (job.id, None, None)


def test_an_execution_keeps_its_place_when_its_lease_runs_out_until_it_is_adopted_and_has_ended(store, clock):
    grant = start(store, policy=Policy(on_lost="adopt", queueing=False, max_attempts=1))
    assert store.record_site(grant.id, grant.token, SITE, "run-1")
    clock.advance(1000)
    assert [holder.job_id for holder in full(store).holders] == [grant.id]
    assert lose(store, clock, grant).orphan
    (adopted,) = store.adopt("next", [SITE])
    assert [holder.worker for holder in full(store).holders] == ["next"]
    end(store, adopted, Success())
    start(store)


def test_what_cannot_start_now_is_refused_and_leaves_nothing_behind(store):
    held = put(store, lane="l", task="other")
    with pytest.raises(InvalidState, match=held.id):
        store.run_now(new_job(lane="l"), OWNER, 1)
    store.pause_scope("task", "work")
    with pytest.raises(InvalidState, match="paused"):
        store.run_now(new_job(group="g", tags=("t",)), OWNER, 1)
    assert [job.id for job in store.list_jobs().jobs] == [held.id]
    assert store.group("g") is None
    store.resume_scope("task", "work")
    start(store)


def test_a_lane_is_taken_and_given_back_as_by_any_run(store):
    grant = start(store, cap=5, lane="l")
    waiting = put(store, lane="l")
    assert claim_ids(store) == []
    end(store, grant, Success())
    assert claim_ids(store) == [waiting.id]


def test_a_held_unique_key_leads_to_its_holder_even_when_there_is_no_place(store):
    holder = start(store, unique_key="k")
    assert store.run_now(new_job(unique_key="k"), OWNER, 5) == Enqueued(holder.id, created=False)
    assert store.run_now(new_job(unique_key="k"), OWNER, 1) == Enqueued(holder.id, created=False)
    with pytest.raises(DuplicateJob):
        store.run_now(new_job(unique_key="k", on_duplicate="raise"), OWNER, 5)
    assert len(store.list_jobs().jobs) == 1


def test_a_queued_holder_gives_way_to_a_run_that_replaces_it(store):
    queued = put(store, unique_key="k")
    start(store, unique_key="k", on_duplicate="replace")
    assert store.get(queued.id).state is State.CANCELLED


def test_the_same_call_after_a_lost_reply_gives_the_same_lease(store):
    job = new_job()
    grant = store.run_now(job, OWNER, 1)
    assert isinstance(grant, Grant)
    assert store.run_now(job, OWNER, 1) == grant
    assert store.run_now(job, "other", 1) == Enqueued(job.id, created=False)
    assert store.get(job.id).attempt == 1


@pytest.mark.parametrize(
    "outcome",
    [
        HandedBack("its worker was stopped"),
        Snoozed(5),
        Stopped(),
        Stopped("wait", pause=True),
        QuestionAsked("k", "?"),
    ],
    ids=lambda outcome: repr(outcome),
)
def test_a_job_without_a_queue_fails_where_another_would_go_on(store, clock, outcome):
    grant = start(store, policy=ONCE)
    end(store, grant, outcome)
    job = store.get(grant.id)
    assert (job.state, job.finished_at, job.worker) == (State.FAILED, clock.now(), None)
    assert "its task takes no queue" in job.error
    assert (job.settled_by, job.settled_token) == (OWNER, grant.token)
    assert store.questions(grant.id) == []
    assert claim_ids(store) == []
    start(store, policy=ONCE)


@pytest.mark.parametrize("verb", ["resume", "retry"])
def test_a_job_without_a_queue_is_not_sent_to_one_by_an_operator(store, verb):
    grant = start(store, policy=ONCE)
    end(store, grant, HandedBack())
    before = store.get(grant.id)
    arguments = [new_job().id] if verb == "retry" else []
    with pytest.raises(InvalidState, match=r"app\.run_now"):
        getattr(store, verb)(grant.id, *arguments)
    assert store.get(grant.id) == before
    assert len(store.list_jobs().jobs) == 1


def test_a_run_without_a_queue_can_be_cancelled_but_not_paused(store):
    grant = start(store, policy=ONCE)
    with pytest.raises(InvalidState, match="cancel it"):
        store.pause(grant.id)
    store.cancel(grant.id)
    end(store, grant, Stopped())
    assert store.get(grant.id).state is State.CANCELLED


def test_fifty_calls_at_once_never_get_more_than_the_cap(backend):
    cap, granted, refused = 7, [], []
    stores = [backend.open() for _ in range(4)]
    go = threading.Barrier(50)

    def call(number: int) -> None:
        go.wait()
        answer = stores[number % 4].run_now(new_job(), f"owner-{number}", cap)
        (granted if isinstance(answer, Grant) else refused).append(answer)

    threads = [threading.Thread(target=call, args=[number]) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(granted), len(refused)) == (cap, 50 - cap)
    assert all(len(answer.holders) == cap for answer in refused)
    assert {h.job_id for answer in refused for h in answer.holders} == {grant.id for grant in granted}
    assert backend.query("SELECT count(*) FROM leasehold.job") == [(cap,)]


def test_a_full_slot_or_a_spent_rate_refuses_run_now_and_nothing_is_stored(store, clock):
    store.set_slot("browser", 1)
    store.set_rate("api", "1/min", 60.0, 1)
    for need, reported in (({"slots": (("browser", 1),)}, "browser"), ({"rate": "api"}, "api")):
        start(store, cap=9, **need)
        refused = new_job(**need)
        with pytest.raises(InvalidState, match=reported):
            store.run_now(refused, OWNER, 9)
        assert [job.id for job in store.list_jobs().jobs if job.id == refused.id] == []
