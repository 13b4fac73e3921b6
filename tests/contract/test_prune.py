"""Prune: what came to rest long ago goes, in batches, and nothing that is still needed."""

from __future__ import annotations

import pytest

from leasehold.domain.budgets import Spend
from leasehold.domain.errors import JobNotFound
from leasehold.domain.job import Job
from leasehold.domain.outcome import Failure, Success
from leasehold.domain.policy import Policy
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.records import Filter
from leasehold.domain.states import State
from leasehold.domain.stop import StopScope
from leasehold.domain.stream import Note, RunNotes
from leasehold.stores.store import JobStore
from tests.backends import TABLES, new_id, new_job, put
from tests.contract.lives import end, in_state, orphan, run

DAY = 86_400.0


def newer(store: JobStore) -> Job:
    """On SQLite the newest job of all is never pruned: those that are looked at here must not be it."""
    return put(store, hold=True)


@pytest.mark.parametrize("state", State)
def test_only_what_has_ended_is_pruned(store, clock, state):
    job = in_state(store, clock, state)
    newer(store)
    clock.advance(10 * DAY)
    ended = state in (State.SUCCEEDED, State.CANCELLED, State.FAILED, State.TIMED_OUT)
    assert store.prune(DAY).deleted == (1 if ended else 0)
    if ended:
        with pytest.raises(JobNotFound):
            store.get(job.id)
    else:
        assert store.get(job.id) == job


def test_the_age_counts_from_the_end_of_the_job(store, clock):
    grant = run(store)
    newer(store)
    clock.advance(10 * DAY)
    end(store, grant, Success())
    clock.advance(100)
    assert store.prune(100.0).deleted == 0
    clock.advance(0.001)
    assert store.prune(100.0).deleted == 1


def test_a_pruned_job_takes_its_history_tags_and_questions_along(store, clock, backend):
    grant = run(store, tags=("t",))
    end(store, grant, QuestionAsked("q", "May I?"))
    store.cancel(grant.id)
    kept = put(store, tags=("t",))
    store.cancel(kept.id)
    store.retry(kept.id, new_id())
    clock.advance(DAY)
    store.prune(0.0)
    for table in ("history", "tag", "question"):
        left = backend.query(f"SELECT count(*) FROM leasehold.{table} WHERE job_id = ?", grant.id)
        assert left == [(0,)], table
    (left,) = store.list_jobs(Filter(tag="t")).jobs
    assert store.get(left.id).retry_of == kept.id, "the link may lead to a job that is gone"


def test_a_failure_that_halts_its_lane_is_never_pruned(store, clock):
    job = in_state(store, clock, State.FAILED, lane="l")
    newer(store)
    clock.advance(100 * DAY)
    assert store.prune(DAY).deleted == 0
    store.skip(job.id)
    assert store.prune(DAY).deleted == 1


def test_a_failure_that_was_skipped_is_pruned(store, clock):
    grant = run(store, lane="l", policy=Policy(on_failure="skip"))
    end(store, grant, Failure("boom", final=True))
    newer(store)
    clock.advance(2 * DAY)
    assert store.prune(DAY).deleted == 1


def test_what_holds_a_unique_key_for_good_is_never_pruned(store, clock):
    holder = in_state(store, clock, State.SUCCEEDED, unique_key="k", unique_for="ever")
    in_state(store, clock, State.SUCCEEDED, unique_key="k2")
    newer(store)
    clock.advance(100 * DAY)
    assert store.prune(DAY).deleted == 1
    assert put(store, unique_key="k", unique_for="ever").id == holder.id


def test_a_group_is_pruned_only_when_none_of_it_lives(store, clock):
    in_state(store, clock, State.SUCCEEDED, group="g")
    alive = in_state(store, clock, State.PAUSED, group="g")
    in_state(store, clock, State.SUCCEEDED, group="other")
    newer(store)
    clock.advance(2 * DAY)
    assert store.prune(DAY).deleted == 1
    store.cancel(alive.id)
    clock.advance(2 * DAY)
    assert store.prune(DAY).deleted == 2


def test_prune_works_in_batches_that_say_where_to_go_on(store, clock):
    for _ in range(7):
        in_state(store, clock, State.SUCCEEDED)
    left = newer(store)
    clock.advance(2 * DAY)
    deleted, after = [], None
    while True:
        batch = store.prune(DAY, limit=3, after=after)
        deleted.append(batch.deleted)
        if batch.next is None:
            break
        after = batch.next
    assert deleted == [3, 3, 1]
    assert [job.id for job in store.list_jobs().jobs] == [left.id]


def test_prune_passes_over_what_it_must_keep(store, clock):
    for number in range(6):
        state = State.SUCCEEDED if number % 2 else State.PAUSED
        in_state(store, clock, state)
    newer(store)
    clock.advance(2 * DAY)
    first = store.prune(DAY, limit=3)
    second = store.prune(DAY, limit=3, after=first.next)
    assert first.deleted + second.deleted == 3
    assert store.count()[State.PAUSED] == 3


def test_a_pass_ends_where_jobs_were_made_too_lately(store, clock):
    """Else every pass would read all that is kept. What ended long ago but came late is not there: it cannot be."""
    old = [in_state(store, clock, State.SUCCEEDED) for _ in range(3)]
    clock.advance(2 * DAY)
    for _ in range(5):
        in_state(store, clock, State.SUCCEEDED)
    pruned = store.prune(DAY, limit=4)
    assert (pruned.deleted, pruned.next) == (len(old), None)
    assert store.count()[State.SUCCEEDED] == 5


def test_a_job_that_is_resumed_is_judged_by_its_next_end(store, clock):
    job = in_state(store, clock, State.FAILED)
    newer(store)
    clock.advance(2 * DAY)
    store.resume(job.id)
    end(store, store.claim_by_id(job.id, "worker-2"), Failure("again", final=True))
    assert store.prune(DAY).deleted == 0
    clock.advance(2 * DAY)
    assert store.prune(DAY).deleted == 1


def test_what_others_wait_for_is_kept_until_they_have_ended_for_good(store, clock):
    parent, child = new_id(), new_id()
    store.enqueue([new_job(id=parent), new_job(id=child, after=(parent,))])
    end(store, store.claim_by_id(parent, "worker-1"), Success("1"))
    end(store, store.claim_by_id(child, "worker-1"), Failure("boom", final=True))
    newer(store)
    clock.advance(2 * DAY)
    assert store.prune(DAY).deleted == 1, "the child goes first: it is resumable, and may want the result"
    assert store.get(parent).state is State.SUCCEEDED
    assert store.prune(DAY).deleted == 1


NOT_OF_A_JOB = (
    "job_group",
    "ticket",
    "slot",
    "worker",
    "long_name",
    "schedule",
    "schedule_host",
    "retention",
    "mirror",
    "guard",
    "listener",
    "webhook",
    "tenant",
    "token",
    "idempotency_key",
    "audit",
    "rollup",
)
OF_A_JOB = [name for name in TABLES if name not in NOT_OF_A_JOB]


def test_a_pruned_job_leaves_no_row_behind(store, clock, backend):
    """One that had nearly all that a job can have."""
    store.set_slot("s", 10)
    parent = in_state(store, clock, State.SUCCEEDED)
    fields = {
        "lane": "l",
        "group": "g",
        "tags": ("t",),
        "unique_key": "k",
        "deadline": 1e6,
        "slots": (("s", 1),),
    }
    orphan(store, clock, after=(parent.id,), follow_up_of=parent.id, **fields)
    (grant,) = store.adopt("worker-2", ["machine-1"])
    assert store.acquire(grant.id, grant.token, "s").granted
    assert store.save_steps(grant.id, grant.token, {"a": "1"}, state="2")
    notes = (Note(1, "item", "1", key="k"), Note(2, "log", text="said"))
    assert store.write_updates([RunNotes(grant.id, grant.token, grant.attempt, notes)]).lost == []
    store.spend(grant.id, grant.token, grant.attempt, [Spend("k", "usd", 1)])
    end(store, grant, QuestionAsked("q", "May I?"))
    store.answer(grant.id, "q", "true")
    again = store.claim_by_id(grant.id, "worker-3")
    end(store, again, Failure("broken"))
    clock.advance(1000)
    again = store.claim_by_id(grant.id, "worker-3")
    store.stop_jobs([grant.id], StopScope(group="g"), "graceful")
    end(store, again, Success(None, store.keep_result(again.id, again.token, "1")))
    newer(store)

    def rows() -> dict[str, int]:
        counts = {name: backend.query(f"SELECT count(*) FROM leasehold.{name}")[0][0] for name in OF_A_JOB}
        return {name: count for name, count in counts.items() if count}

    let_go = {
        "unique_key",
        "lane_hold",
        "lane_stop",
        "lease",
        "ready",
        "lane_place",
        "lease_slot",
        "time_limit",
    }
    never = {"pause", "rate", "running_cap", "stop_mark", "outbox"}
    assert set(OF_A_JOB) - rows().keys() <= let_go | never
    clock.advance(2 * DAY)
    assert store.prune(DAY).deleted == 2
    assert rows() == {"job": 1, "parked": 1}


def test_nothing_to_prune_is_no_work(store):
    pruned = store.prune(0.0)
    assert (pruned.deleted, pruned.next) == (0, None)
