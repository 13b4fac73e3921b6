"""Claim: due jobs, best first, one winner each; what cannot run is passed over."""

from __future__ import annotations

from datetime import timedelta

import pytest

from leasehold.domain.job import Grant
from leasehold.domain.outcome import Failure, HandedBack, Success
from leasehold.domain.policy import Policy
from leasehold.domain.states import State
from tests.backends import new_job, put
from tests.contract.lives import OWNER, claim_ids, claim_one, end, in_state, run


def test_a_claimed_job_runs_under_a_new_token_for_the_length_of_its_lease(store, clock):
    job = put(store, lease_seconds=45.0)
    clock.advance(3)
    grant = claim_one(store)
    after = store.get(job.id)
    assert (after.state, after.worker, after.lease_token, after.attempt) == (State.RUNNING, OWNER, 1, 1)
    assert after.lease_expires_at == clock.now() + timedelta(seconds=45)
    assert after.started_at == after.first_started_at == clock.now()
    assert (grant.id, grant.token, grant.attempt) == (job.id, 1, 1)
    assert (after.available_at, after.failures, after.crashes) == (job.available_at, 0, 0)


def test_a_grant_carries_what_a_worker_needs(store, clock):
    job = put(
        store,
        task="mail",
        queue="q",
        args='{"a": [1, 2]}',
        lane="l",
        group="g",
        deadline=60.0,
        trace="00-1",
        policy=Policy(max_attempts=7),
        lease_seconds=20.0,
    )
    grant = claim_one(store, queue="q")
    assert grant == Grant(
        seq=job.seq,
        id=job.id,
        token=1,
        attempt=1,
        task="mail",
        queue="q",
        args='{"a": [1, 2]}',
        lease_seconds=20.0,
        policy='{"max_attempts": 7}',
        lane="l",
        group="g",
        failures=0,
        crashes=0,
        special=1,
        waited=0.0,
        stop_requested=None,
        seconds_left=60.0,
        trace="00-1",
        execution_site=None,
        execution_name=None,
        execution_age=None,
    )
    assert Policy.load(grant.policy) == Policy(max_attempts=7)


def test_a_job_is_claimed_once(store, clock, backend):
    job = put(store)
    assert claim_ids(store) == [job.id]
    assert claim_ids(store) == []
    assert claim_ids(backend.open(clock)) == []


def test_every_claim_is_a_new_attempt_under_a_new_token(store, clock):
    job = put(store)
    seen = []
    for _ in range(3):
        grant = claim_one(store)
        seen.append((grant.attempt, grant.token))
        clock.advance(1)
        end(store, grant, HandedBack())
    assert seen == [(1, 1), (2, 2), (3, 3)]
    after = store.get(job.id)
    assert after.first_started_at == after.created_at
    assert after.started_at == after.created_at + timedelta(seconds=2)


def test_a_grant_tells_how_often_the_job_has_failed(store, clock):
    put(store, policy=Policy(backoff=0.0))
    end(store, claim_one(store), Failure("boom"))
    grant = claim_one(store)
    assert (grant.failures, grant.crashes, grant.attempt) == (1, 0, 2)


def test_no_more_are_claimed_than_asked_for(store):
    ids = [put(store).id for _ in range(5)]
    assert claim_ids(store, limit=2) == ids[:2]
    assert claim_ids(store, limit=0) == []
    assert claim_ids(store, limit=-1) == []
    assert claim_ids(store, limit=10) == ids[2:]


def test_a_claim_makes_no_history_and_clears_the_reason(store):
    grant = run(store)
    end(store, grant, HandedBack("drained"))
    reported = store.history(grant.id)
    claim_one(store)
    assert store.get(grant.id).reason is None
    assert store.history(grant.id) == reported


# -- order -------------------------------------------------------------------------------------------------------------


def test_the_order_is_priority_then_due_time_then_arrival(store, clock):
    jobs = {
        name: put(store, priority=priority, delay=delay).id
        for name, priority, delay in [
            ("low", -100, 0.0),
            ("late", 0, 2.0),
            ("early", 0, 1.0),
            ("early too", 0, 1.0),
            ("high, late", 100, 3.0),
            ("high", 99, 0.0),
        ]
    }
    clock.advance(10)
    wanted = [jobs[name] for name in ("high, late", "high", "early", "early too", "late", "low")]
    assert claim_ids(store, limit=3) == wanted[:3]
    assert claim_ids(store, limit=10) == wanted[3:]


def test_the_order_holds_across_kinds_and_queues(store, clock):
    ids = []
    for number in range(12):
        clock.advance(1)
        task, queue = f"kind-{number % 3}", f"queue-{number % 2}"
        ids.append(put(store, task=task, queue=queue, priority=number // 6).id)
    found = [grant.id for grant in store.claim(OWNER, ["queue-0", "queue-1"], 8)]
    assert found == ids[6:] + ids[:2]


def test_the_order_of_the_answer_is_the_order_of_the_queue_for_lanes_too(store, clock):
    ids = []
    for number in range(6):
        clock.advance(1)
        ids.append(put(store, lane=f"lane-{number}", priority=number // 3).id)
    assert claim_ids(store, limit=5) == ids[3:] + ids[:2]


def test_between_lanes_and_plain_jobs_the_higher_priority_goes_first(store):
    """Only among rows of one priority is the order between the two exact to a batch."""
    put(store, lane="low", priority=1)
    high = put(store, lane="high", priority=5).id
    plain = put(store, priority=3).id
    put(store, priority=0)
    assert claim_ids(store, limit=2) == [high, plain]


def test_a_plain_job_of_higher_priority_goes_before_the_head_of_a_lane_and_the_other_way_round(store):
    lane = [put(store, lane=f"lane-{priority}", priority=priority).id for priority in (1, 3)]
    plain = [put(store, priority=priority).id for priority in (2, 4)]
    found = [claim_ids(store, limit=1) for _ in range(4)]
    assert found == [[plain[1]], [lane[1]], [plain[0]], [lane[0]]]


def test_jobs_of_one_moment_are_claimed_in_the_order_of_arrival_whatever_their_ids(store):
    jobs = [new_job() for _ in range(10)]
    jobs.sort(key=lambda job: job.id, reverse=True)
    for job in jobs:
        store.enqueue([job])
    assert claim_ids(store) == [job.id for job in jobs]


def test_a_full_claim_of_a_few_does_not_hide_what_comes_next_from_a_claim_of_many(store):
    """Only claims of many that come back full, one after the other, may go by what was seen a moment ago."""
    put(store)
    assert len(store.claim("w", ["default"], 1)) == 1
    low, high = put(store).id, put(store, priority=5).id
    assert claim_ids(store, limit=500) == [high, low]


def test_many_delayed_jobs_of_a_higher_priority_do_not_stand_in_the_way(store):
    store.enqueue([new_job(priority=50, delay=100.0) for _ in range(50)])
    job = put(store)
    assert claim_ids(store, limit=1) == [job.id]


# -- what is passed over -----------------------------------------------------------------------------------------------


def test_a_worker_gets_jobs_of_its_queues_only(store):
    a, b, c = (put(store, queue=queue).id for queue in "abc")
    assert claim_ids(store, queue="b") == [b]
    assert sorted(grant.id for grant in store.claim(OWNER, ["a", "c"], 10)) == sorted([a, c])
    assert store.claim(OWNER, ["nowhere"], 10) == []
    assert store.claim(OWNER, [], 10) == []


def test_a_worker_gets_jobs_of_its_kinds_only(store):
    a, b, c = (put(store, task=task).id for task in "abc")
    assert claim_ids(store, tasks=["b"]) == [b]
    assert claim_ids(store, tasks=[]) == []
    assert sorted(claim_ids(store, tasks=["a", "c", "unknown"])) == sorted([a, c])


@pytest.mark.parametrize("state", [state for state in State if state is not State.QUEUED])
def test_only_queued_jobs_are_claimed(store, clock, state):
    job = in_state(store, clock, state)
    clock.advance(1000)
    assert claim_ids(store) == []
    assert store.get(job.id) == job


def test_a_job_enqueued_by_another_process_is_claimed_here(store, clock, backend):
    """The gate of its kind was made there, after this store had looked."""
    assert claim_ids(store, queue="fresh") == []
    job = put(backend.open(clock), task="fresh", queue="fresh")
    assert claim_ids(store, queue="fresh") == [job.id]


def test_lanes_and_plain_jobs_share_the_room_of_a_claim(store):
    for number in range(3):
        put(store)
        put(store, lane=f"lane-{number}")
    assert len(claim_ids(store, limit=4)) == 4
    assert len(claim_ids(store, limit=4)) == 2


def test_a_succeeded_job_is_never_claimed_again(store, clock):
    grant = run(store)
    end(store, grant, Success())
    clock.advance(10_000)
    assert claim_ids(store) == []


# -- a worker that found nothing asks again in another way; what it gets must be the same ----------------------------


class Idle:
    """A queue whose last claim came back empty. Its own: gates stay, and those with limits are asked in another way."""

    def __init__(self, store, queue):
        self.store, self.queue = store, queue
        self.put()
        assert len(self.claim()) == 1
        assert self.claim() == []

    def put(self, **fields):
        return put(self.store, queue=self.queue, **fields)

    def claim(self, limit=10, **requested):
        return claim_ids(self.store, limit, queue=self.queue, idle=True, **requested)


@pytest.fixture
def idle(store, request):
    return Idle(store, request.node.originalname[-60:])


def test_an_idle_worker_gets_due_jobs_best_first_and_no_more_than_it_asks_for(idle, clock):
    later = idle.put(delay=10.0)
    low = idle.put(priority=-5)
    first = idle.put()
    clock.advance(1)
    second = idle.put()
    high = idle.put(priority=7)
    assert idle.claim(limit=3) == [high.id, first.id, second.id]
    assert idle.claim() == [low.id]
    assert idle.claim() == []
    clock.advance(10)
    assert idle.claim() == [later.id]


def test_an_idle_workers_grant_carries_what_the_others_do(idle, store):
    job = idle.put(task="mail", group="g", deadline=60.0, policy=Policy(max_attempts=7))
    (grant,) = store.claim(OWNER, [idle.queue], 5)
    after = store.get(job.id)
    assert (after.state, after.worker, after.lease_token, after.attempt) == (State.RUNNING, OWNER, 1, 1)
    assert (grant.id, grant.token, grant.task, grant.group) == (job.id, 1, "mail", "g")
    assert (grant.policy, grant.seconds_left) == ('{"max_attempts": 7}', 60.0)


def test_an_idle_worker_leaves_paused_queues_and_other_kinds_alone(idle, store):
    mail, note = idle.put(task="mail"), idle.put(task="note")
    store.pause_scope("queue", idle.queue)
    assert idle.claim() == []
    store.resume_scope("queue", idle.queue)
    assert idle.claim(tasks=["note"]) == [note.id]
    assert idle.claim(tasks=["note"]) == []
    assert idle.claim(tasks=["note"]) == []
    assert idle.claim() == [mail.id]


def test_an_idle_worker_finds_jobs_of_lanes_in_their_order(idle, clock):
    behind = idle.put()
    head = idle.put(priority=2, lane="l")
    idle.put(priority=9, lane="l")
    assert idle.claim() == [head.id, behind.id]
    clock.advance(60)
    assert idle.claim() == []


def test_an_idle_worker_finds_jobs_with_limits_in_their_order(idle, store):
    behind = idle.put()
    store.set_slot("browser", 1)
    limited = idle.put(priority=1, slots=(("browser", 1),))
    idle.put(priority=1, slots=(("browser", 1),))
    assert idle.claim() == [limited.id, behind.id]


def test_an_idle_worker_finds_jobs_of_many_kinds_in_their_order(idle):
    tasks = [idle.put(task=f"kind-{n}").id for n in range(9)]
    assert idle.claim() == tasks


# -- when to ask again -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("requested", [{}, {"idle": True}], ids=["busy", "idle"])
@pytest.mark.parametrize("fields", [{}, {"lane": "l"}, {"slots": (("browser", 1),)}])
def test_an_empty_claim_leaves_behind_when_the_next_job_is_due(store, clock, fields, requested):
    """Of the queues and kinds asked for; of several priorities, the first that comes."""
    store.set_slot("browser", 1)
    queue = f"later {sorted(fields)} {requested}"
    put(store, queue=queue, delay=9.0, priority=5, **fields)
    put(store, queue=queue, delay=7.0)
    put(store, queue=queue, delay=3.0, task="other")
    put(store, queue="another", delay=1.0)
    assert store.claim(OWNER, [queue], 5, ["work"], **requested) == []
    assert store.opens_in([queue], ["work"]) == 7.0
    clock.advance(4)
    assert store.opens_in([queue], ["work"]) == 3.0
    assert store.claim(OWNER, [queue], 5, ["work", "other"], **requested) != []
    assert store.claim(OWNER, [queue], 5, ["work"], **requested) == []
    clock.advance(3)
    assert store.opens_in([queue], ["work"]) == 0.0
    assert len(store.claim(OWNER, [queue], 5, ["work"], **requested)) == 1
    assert store.claim(OWNER, [queue], 5, ["work"], **requested) == []
    assert store.opens_in([queue], ["work"]) == 2.0


def test_where_nothing_is_to_come_an_empty_claim_says_so(store):
    put(store, queue="paused", delay=5.0)
    store.pause_scope("queue", "paused")
    for idle in (False, True):
        assert store.claim(OWNER, ["default", "paused"], 5, idle=idle) == []
        assert store.opens_in(["default", "paused"]) is None
