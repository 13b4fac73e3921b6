"""Jobs that wait for others: judged in the transaction that ends a parent, whatever ends it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from leasehold.domain.errors import InvalidInput, JobNotFound
from leasehold.domain.job import Job
from leasehold.domain.outcome import (
    AttemptTimedOut,
    Breached,
    Crashed,
    DeadlinePassed,
    Failure,
    Lost,
    Stopped,
    Success,
)
from leasehold.domain.policy import Policy
from leasehold.domain.states import State
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import Backend, new_job, put
from tests.contract.lives import claim_ids, claim_one, end, granted, in_state, lose, run

ONCE = Policy(max_attempts=1, max_crashes=1)
Finish = Callable[[JobStore, ManualClock, Job], object]


def settle(outcome: Any) -> Finish:
    return lambda store, clock, job: end(store, granted(store.claim_by_id(job.id, "w")), outcome)


def stopped_while_running(store: JobStore, clock: ManualClock, job: Job) -> object:
    grant = granted(store.claim_by_id(job.id, "w"))
    store.cancel(job.id)
    return end(store, grant, Stopped())


def finished_without_retry(store: JobStore, clock: ManualClock, job: Job) -> object:
    grant = granted(store.claim_by_id(job.id, "w"))
    store.finish(job.id)
    return end(store, grant, Stopped())


def reaped(store: JobStore, clock: ManualClock, job: Job) -> object:
    return lose(store, clock, granted(store.claim_by_id(job.id, "w")))


def taken_over_by_id(store: JobStore, clock: ManualClock, job: Job) -> object:
    """Claim by id meets a missed lease, reaps it, and the job is out of tries."""
    store.claim_by_id(job.id, "w")
    clock.advance(31)
    (seen,) = store.sight_overdue()
    clock.advance(10)
    return store.claim_by_id(job.id, "other", sighting=seen)


def cancelled_failure(store: JobStore, clock: ManualClock, job: Job) -> object:
    """Judged when it failed; the cancel that follows finds nobody waiting."""
    settle(Failure("broken", final=True))(store, clock, job)
    return store.cancel(job.id)


def expired(seconds: float) -> Finish:
    def finish(store: JobStore, clock: ManualClock, job: Job) -> object:
        clock.advance(seconds)
        return store.expire()

    return finish


BAD_ENDS: dict[str, tuple[Finish, dict[str, Any], str]] = {
    "failure": (settle(Failure("broken", final=True)), {}, "failed"),
    "failure, exhausted": (settle(Failure("broken")), {"policy": ONCE}, "failed"),
    "attempt timed out": (settle(AttemptTimedOut("slow")), {"policy": ONCE}, "timed_out"),
    "deadline, running": (settle(DeadlinePassed("late")), {}, "timed_out"),
    "crash": (settle(Crashed("signal 9")), {"policy": ONCE}, "failed"),
    "lost, told by its worker": (settle(Lost()), {"policy": ONCE}, "failed"),
    "budget": (settle(Breached("too much")), {}, "failed"),
    "reaped": (reaped, {"policy": ONCE}, "failed"),
    "reaped by a claim by id": (taken_over_by_id, {"policy": ONCE}, "failed"),
    "cancelled while queued": (lambda store, clock, job: store.cancel(job.id), {}, "cancelled"),
    "cancelled while running": (stopped_while_running, {}, "cancelled"),
    "finished without a retry": (finished_without_retry, {}, "cancelled"),
    "deadline, queued": (expired(61), {"deadline": 60.0}, "timed_out"),
    "not started in time": (expired(61), {"start_by": 60.0}, "cancelled"),
    "replaced": (
        lambda store, clock, job: put(store, task="load", unique_key="k", on_duplicate="replace"),
        {"unique_key": "k"},
        "cancelled",
    ),
    "failed, then cancelled": (cancelled_failure, {}, "failed"),
}


@pytest.mark.parametrize("on_failure", ["cancel", "run"])
@pytest.mark.parametrize("how", BAD_ENDS)
def test_a_parent_that_ends_badly_cancels_its_child_with_the_reason_or_lets_it_run(
    store: JobStore, clock: ManualClock, how: str, on_failure: str
):
    finish, fields, state = BAD_ENDS[how]
    parent = put(store, task="load", **fields)
    child = put(store, task="clean", queue="later", after=(parent.id,), on_parent_failure=on_failure)
    grandchild = put(store, task="report", queue="later", after=(child.id,))
    assert (child.state, child.unmet, store.get(parent.id).awaited) == (State.PENDING, 1, True)
    finish(store, clock, parent)
    child, grandchild = store.get(child.id), store.get(grandchild.id)
    if on_failure == "cancel":
        cause = f"job {parent.id} (load) ended {state}"
        assert (child.state, child.reason) == (State.CANCELLED, cause)
        assert (grandchild.state, grandchild.reason) == (State.CANCELLED, cause), (
            "the root cause is handed on"
        )
        assert [entry.event for entry in store.history(child.id)] == ["cancelled"]
        assert child.finished_at is not None
    else:
        assert (child.state, child.unmet, child.reason) == (State.QUEUED, 0, None)
        assert claim_ids(store, queue="later") == [child.id]
        assert grandchild.state is State.PENDING


@pytest.mark.parametrize("on_failure", ["cancel", "run"])
def test_a_parent_that_succeeds_sets_its_child_free(store: JobStore, on_failure: str):
    parent = run(store)
    child = put(store, after=(parent.id,), on_parent_failure=on_failure)
    assert claim_ids(store) == []
    settled = store.settle([Ending(parent.id, parent.token, Success("1"))])
    assert (settled.accepted, settled.fenced, settled.freed) == ([parent.id], [], True)
    assert store.get(parent.id).result == "1"
    assert claim_ids(store) == [child.id]
    assert [one.id for one in store.parent_results(child.id)] == [parent.id]


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED, State.CANCELLED, State.TIMED_OUT])
@pytest.mark.parametrize("on_failure", ["cancel", "run"])
def test_a_parent_that_has_ended_already_is_judged_at_once(
    store: JobStore, clock: ManualClock, state: State, on_failure: str
):
    parent = in_state(store, clock, state)
    child = put(store, after=(parent.id,), on_parent_failure=on_failure)
    if state is State.SUCCEEDED or on_failure == "run":
        assert (child.state, child.unmet) == (State.QUEUED, 0)
    else:
        assert child.state is State.CANCELLED
        assert child.reason == f"job {parent.id} (work) ended {state.value}"


@pytest.mark.parametrize("state", [State.PAUSED, State.WAITING, State.PENDING, State.QUEUED, State.RUNNING])
def test_a_child_waits_with_a_parent_that_has_not_ended(store: JobStore, clock: ManualClock, state: State):
    parent = in_state(store, clock, state)
    assert put(store, after=(parent.id,)).state is State.PENDING


def test_a_retry_of_the_parent_is_not_its_end(store: JobStore, clock: ManualClock):
    parent = run(store)
    child = put(store, after=(parent.id,))
    end(store, parent, Failure("try again"))
    assert store.get(child.id).state is State.PENDING
    clock.advance(3600)
    end(store, granted(store.claim_by_id(parent.id, "w")), Success())
    assert store.get(child.id).state is State.QUEUED


def test_a_fan_in_starts_when_the_last_parent_has_ended_and_finds_all_results_in_order(store: JobStore):
    parents = [run(store) for _ in range(5)]
    child = put(store, after=tuple(grant.id for grant in parents))
    for number, grant in enumerate(reversed(parents)):
        assert store.get(child.id).state is State.PENDING
        end(store, grant, Success(str(number)))
    assert store.get(child.id).state is State.QUEUED
    found = [(one.id, one.result) for one in store.parent_results(child.id)]
    assert found == [(grant.id, str(4 - n)) for n, grant in enumerate(parents)]


def test_parents_that_end_in_one_batch_are_counted_each(store: JobStore):
    parents = [run(store) for _ in range(4)]
    bad = run(store)
    child = put(store, after=tuple(grant.id for grant in parents))
    other = put(store, after=(parents[0].id, bad.id))
    endings = [Ending(grant.id, grant.token, Success()) for grant in parents]
    settled = store.settle([*endings, Ending(bad.id, bad.token, Failure("no", final=True))])
    assert len(settled.accepted) == 5
    assert (store.get(child.id).state, store.get(child.id).unmet) == (State.QUEUED, 0)
    assert store.get(other.id).state is State.CANCELLED


def test_every_descendant_of_a_failed_branch_ends_and_names_its_cause(store: JobStore):
    root, top = new_job(task="root"), new_job(task="top")
    left, right = new_job(task="left", after=(root.id,)), new_job(task="right", after=(root.id, top.id))
    join = new_job(task="join", after=(left.id, right.id))
    last = new_job(task="last", after=(join.id,))
    careless = new_job(task="careless", after=(join.id,), on_parent_failure="run")
    store.enqueue([top, root, left, right, join, last, careless])
    end(store, granted(store.claim_by_id(root.id, "w")), Failure("broken", final=True))
    cause = f"job {root.id} (root) ended failed"
    for job in (left, right, join, last):
        assert (store.get(job.id).state, store.get(job.id).reason) == (State.CANCELLED, cause)
    assert store.get(top.id).state is State.QUEUED
    assert store.get(careless.id).state is State.QUEUED


def test_a_batch_whose_root_has_failed_already_ends_at_once(store: JobStore):
    root = run(store)
    end(store, root, Failure("broken", final=True))
    first = new_job(after=(root.id,))
    second = new_job(after=(first.id,))
    store.enqueue([first, second])
    cause = f"job {root.id} (work) ended failed"
    assert [store.get(job.id).reason for job in (first, second)] == [cause, cause]


def test_a_resumed_parent_finds_its_children_ended_and_moves_nobody(store: JobStore):
    parent = run(store)
    child = put(store, after=(parent.id,))
    careless = put(store, after=(parent.id,), on_parent_failure="run")
    end(store, parent, Failure("broken", final=True))
    store.resume(parent.id)
    end(store, granted(store.claim_by_id(parent.id, "w")), Success())
    assert store.get(child.id).state is State.CANCELLED
    assert (store.get(careless.id).state, store.get(careless.id).unmet) == (State.QUEUED, 0)


def test_a_missing_parent_is_refused_by_name_and_nothing_is_stored(store: JobStore):
    missing, child = new_job().id, new_job()
    with pytest.raises(JobNotFound, match=missing):
        store.enqueue([child, new_job(after=(missing,))])
    with pytest.raises(JobNotFound):
        store.get(child.id)


def test_a_circle_cannot_be_stored(store: JobStore):
    one, two = new_job(), new_job()
    first = new_job(id=one.id, after=(two.id,))
    second = new_job(id=two.id, after=(one.id,))
    with pytest.raises(InvalidInput, match="comes later"):
        store.enqueue([first, second])
    with pytest.raises(InvalidInput, match="comes later"):
        store.enqueue([new_job(id=one.id, after=(one.id,))])


def test_a_repeated_enqueue_ties_nothing_twice(store: JobStore, backend: Backend):
    parent = run(store)
    child = new_job(after=(parent.id, parent.id))
    assert [one.created for one in store.enqueue([child])] == [True]
    assert [one.created for one in store.enqueue([child, child])] == [False, False]
    assert backend.query("SELECT count(*) FROM leasehold.dependency") == [(1,)]
    end(store, parent, Success())
    assert store.get(child.id).state is State.QUEUED


def test_whoever_waits_for_a_job_that_stands_for_another_waits_for_that_one(store: JobStore):
    holder = run(store, unique_key="k")
    requested = new_job(unique_key="k")
    child = new_job(after=(requested.id,))
    first, second = store.enqueue([requested, child])
    assert (first.id, second.created) == (holder.id, True)
    assert [one.id for one in store.relatives(child.id)] == [holder.id]
    end(store, holder, Success())
    assert store.get(child.id).state is State.QUEUED


def test_a_held_child_needs_its_release_too(store: JobStore):
    parent = run(store)
    child = put(store, after=(parent.id,), hold=True)
    assert (child.held, child.unmet) == (True, 1)
    end(store, parent, Success())
    assert (store.get(child.id).state, store.get(child.id).unmet) == (State.PENDING, 0)
    assert store.release(child.id).state is State.QUEUED


def test_a_paused_child_takes_note_and_goes_on_from_where_its_parents_are(store: JobStore):
    parent, other = run(store), run(store)
    child = put(store, after=(parent.id, other.id))
    store.pause(child.id)
    end(store, parent, Success())
    assert (store.get(child.id).state, store.get(child.id).unmet) == (State.PAUSED, 1)
    assert store.resume(child.id).state is State.PENDING
    end(store, other, Success())
    assert store.get(child.id).state is State.QUEUED


@pytest.mark.parametrize("verb", ["pause", "expire"])
def test_a_resting_child_whose_parent_fails_is_cancelled(store: JobStore, clock: ManualClock, verb: str):
    parent = run(store, lease_seconds=1000.0)
    child = put(store, after=(parent.id,), deadline=60.0)
    if verb == "pause":
        store.pause(child.id)
    else:
        clock.advance(61)
        store.expire()
        assert store.get(child.id).state is State.TIMED_OUT
    end(store, parent, Failure("broken", final=True))
    assert store.get(child.id).reason == f"job {parent.id} (work) ended failed"


def test_a_child_that_timed_out_while_it_waited_waits_again_when_resumed(store: JobStore, clock: ManualClock):
    parent = run(store, lease_seconds=1000.0)
    child = put(store, after=(parent.id,), deadline=60.0)
    clock.advance(61)
    store.expire()
    assert store.resume(child.id).state is State.PENDING


def test_a_cancelled_child_is_left_alone(store: JobStore):
    parent = run(store)
    child = put(store, after=(parent.id,))
    store.cancel(child.id, reason="not needed")
    end(store, parent, Success())
    assert (store.get(child.id).state, store.get(child.id).reason) == (State.CANCELLED, "not needed")


def test_a_delayed_child_keeps_its_delay_and_a_late_one_is_due_at_once(store: JobStore, clock: ManualClock):
    parent = run(store)
    slow, quick = put(store, after=(parent.id,), delay=600.0), put(store, after=(parent.id,))
    clock.advance(10)
    end(store, parent, Success())
    assert store.get(slow.id).available_at == slow.available_at
    assert store.get(quick.id).available_at == clock.now()
    assert claim_ids(store) == [quick.id]


def test_a_child_takes_its_place_in_a_lane_when_it_is_set_free(store: JobStore, clock: ManualClock):
    parent = run(store)
    child = put(store, after=(parent.id,), lane="l")
    clock.advance(1)
    other = put(store, lane="l")
    clock.advance(1)
    end(store, parent, Success())
    (first,) = store.claim("worker-1", ["default"], 10)
    assert first.id == other.id
    end(store, first, Success())
    assert claim_ids(store) == [child.id]


def test_the_groups_of_parent_and_child_are_told_once(store: JobStore):
    parent = run(store, group="g")
    put(store, after=(parent.id,), group="g")
    other = put(store, after=(parent.id,), group="h")
    before = (store.group("g").version, store.group("h").version)
    end(store, parent, Failure("broken", final=True))
    assert store.get(other.id).state is State.CANCELLED
    assert (store.group("g").version, store.group("h").version) == (before[0] + 1, before[1] + 1)


def test_a_stale_token_cannot_settle_an_awaited_job(store: JobStore, clock: ManualClock):
    stale = run(store)
    child = put(store, after=(stale.id,))
    lose(store, clock, stale)
    settled = store.settle([Ending(stale.id, stale.token, Success('"late"'))])
    assert (settled.accepted, settled.fenced) == ([], [stale.id])
    assert store.get(child.id).state is State.PENDING
    fresh = claim_one(store)
    assert end(store, fresh, Success('"mine"')).result == '"mine"'
    assert store.get(child.id).state is State.QUEUED


def test_a_lost_reply_of_an_awaited_settle_reads_as_done(store: JobStore):
    parent = run(store)
    child = put(store, after=(parent.id,))
    end(store, parent, Success())
    assert store.read_settlements({parent.id: parent.token}, "worker-1") == {parent.id: "done"}
    again = store.settle([Ending(parent.id, parent.token, Success())])
    assert (again.accepted, again.fenced) == ([], [parent.id])
    assert store.get(child.id).unmet == 0


def test_a_not_serializable_result_of_an_awaited_job_costs_only_its_own_branch(store: JobStore):
    good, bad = run(store), run(store)
    one, two = put(store, after=(good.id,)), put(store, after=(bad.id,))
    settled = store.settle(
        [Ending(good.id, good.token, Success("1")), Ending(bad.id, bad.token, Success("not json"))]
    )
    assert (sorted(settled.accepted), settled.not_serializable) == (sorted([good.id, bad.id]), [bad.id])
    assert store.get(one.id).state is State.QUEUED
    assert store.get(two.id).reason == f"job {bad.id} (work) ended failed"


def test_a_parent_stays_while_a_child_may_want_its_result(
    store: JobStore, clock: ManualClock, backend: Backend
):
    parent, other = run(store), run(store, lease_seconds=1e6)
    child = put(store, after=(parent.id, other.id))
    end(store, parent, Success("1"))
    clock.advance(3600)
    assert store.prune(60).deleted == 0
    end(store, other, Success())
    end(store, granted(store.claim_by_id(child.id, "w")), Success())
    clock.advance(3600)
    assert store.prune(60).deleted == 3
    assert backend.query("SELECT count(*) FROM leasehold.dependency") == [(0,)]


def test_a_new_try_of_a_child_waits_for_the_same_parents(store: JobStore):
    parent = run(store)
    child = put(store, after=(parent.id,))
    end(store, parent, Failure("broken", final=True))
    again = store.retry(child.id, new_job().id)
    assert again.reason == f"job {parent.id} (work) ended failed"
    store.resume(parent.id)
    third = store.retry(child.id, new_job().id)
    assert third.state is State.PENDING
    end(store, granted(store.claim_by_id(parent.id, "w")), Success("7"))
    assert store.get(third.id).state is State.QUEUED
    assert [one.result for one in store.parent_results(third.id)] == ["7"]


def test_relatives_tell_both_sides(store: JobStore):
    parent, other = run(store), run(store)
    child = put(store, task="child", after=(parent.id, other.id), on_parent_failure="run")
    end(store, parent, Success())
    above = [(one.relation, one.id, one.state, one.on_failure, one.met) for one in store.relatives(child.id)]
    assert above == [
        ("waits_for", other.id, State.RUNNING, "run", False),
        ("waits_for", parent.id, State.SUCCEEDED, "run", True),
    ]
    (below,) = store.relatives(other.id)
    assert (below.relation, below.id, below.task, below.state) == (
        "awaited_by",
        child.id,
        "child",
        State.PENDING,
    )


def test_a_child_that_was_forgotten_is_found(store: JobStore, backend: Backend):
    """As a worker would leave it that knows nothing of dependencies."""
    parent, other = run(store), run(store)
    child = put(store, after=(parent.id, other.id))
    put(store, after=(parent.id,), hold=True)

    def end_behind_its_back(seq: int) -> None:
        ((token, at),) = backend.query("SELECT token, started_at FROM leasehold.lease WHERE job = ?", seq)
        backend.query("DELETE FROM leasehold.lease WHERE job = ?", seq)
        backend.query(
            "INSERT INTO leasehold.outcome (job, token, finished_at, attempt, state, special)"
            " VALUES (?, ?, ?, 1, 2, 2)",
            *(seq, token, at),
        )

    end_behind_its_back(parent.seq)
    assert store.stuck_children() == [], "one can still end"
    end_behind_its_back(other.seq)
    assert store.stuck_children() == [child.id]


def test_a_child_enqueued_while_its_parent_ends_is_never_forgotten(backend: Backend):
    """Settle and enqueue meet at the parent's row, from two connections, many times: whoever comes second sees the
    first."""
    producer, worker = backend.open(), backend.open()
    rounds = 60
    grants = [run(worker) for _ in range(rounds)]
    children: list[str] = []
    barrier = threading.Barrier(2)

    def enqueue() -> None:
        for grant in grants:
            barrier.wait()
            (made,) = producer.enqueue([new_job(queue="later", after=(grant.id,))])
            children.append(made.id)

    thread = threading.Thread(target=enqueue)
    thread.start()
    for grant in grants:
        barrier.wait()
        assert worker.settle([Ending(grant.id, grant.token, Success())]).accepted == [grant.id]
    thread.join()
    assert {worker.get(child).state for child in children} == {State.QUEUED}
    assert len(children) == rounds


def test_parents_settled_by_many_at_once_free_their_child_once(backend: Backend):
    """Each settle takes one from the same row; none is lost, and the last one frees it."""
    stores = [backend.open() for _ in range(4)]
    grants = [run(stores[0]) for _ in range(40)]
    child = put(stores[0], queue="later", after=tuple(grant.id for grant in grants))
    barrier = threading.Barrier(len(stores))
    failures: list[BaseException] = []

    def settle(number: int) -> None:
        try:
            barrier.wait()
            for grant in grants[number :: len(stores)]:
                assert stores[number].settle([Ending(grant.id, grant.token, Success())]).accepted
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=settle, args=(number,)) for number in range(len(stores))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    after = stores[0].get(child.id)
    assert (after.state, after.unmet) == (State.QUEUED, 0)


def test_relatives_are_counted_by_relation(store: JobStore):
    parents = [put(store) for _ in range(3)]
    child = put(store, after=tuple(parent.id for parent in parents))
    assert store.count_relatives(child.id) == {"waits_for": 3}
    assert store.count_relatives(parents[0].id) == {"awaited_by": 1}
    assert store.count_relatives(put(store).id) == {}
