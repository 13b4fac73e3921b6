"""Stop, on the rows themselves: every mode and scope, what is left alone, follow-ups, holds, short transactions."""

from __future__ import annotations

import time
from dataclasses import asdict
from typing import Any

import pytest

from leasehold.domain.errors import GroupOnHold, InvalidInput
from leasehold.domain.groups import GroupStop
from leasehold.domain.job import Job
from leasehold.domain.outcome import Failure, Stopped, Success
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import State
from leasehold.domain.stop import StopReport, StopRequest, StopScope
from leasehold.operations import stop as engine
from leasehold.stores.results import Ending
from leasehold.stores.store import JobStore
from leasehold.testing import ManualClock
from tests.backends import Backend, new_id, new_job, put
from tests.contract.lives import claim_ids, end, in_state, lose, orphan, run

KNOWN = {"work": "default", "verify": "default", "embed": "elsewhere"}

# Of each scope: what it covers, and what differs from that in one point.
SCOPES: dict[str, tuple[StopScope, dict[str, Any], dict[str, Any]]] = {
    "group": (StopScope(group="g"), {"group": "g"}, {"group": "other"}),
    "kinds in a group": (
        StopScope(group="g", tasks=("work",)),
        {"group": "g"},
        {"group": "g", "task": "verify"},
    ),
    "queue": (StopScope(queue="q"), {"queue": "q"}, {"queue": "default"}),
    "task": (StopScope(tasks=("work",)), {}, {"task": "verify"}),
    "tag": (StopScope(tags=("x",)), {"tags": ("x", "y")}, {"tags": ("y",)}),
    "two tags": (StopScope(tags=("x", "y")), {"tags": ("y", "x")}, {"tags": ("x", "z")}),
    "tag in a queue": (StopScope(tags=("x",), queue="q"), {"tags": ("x",), "queue": "q"}, {"tags": ("x",)}),
}
UNAFFECTED = {
    "group": [],
    "kinds in a group": ["embed", "verify"],
    "queue": ["embed", "verify"],
    "task": ["embed", "verify"],
    "tag": ["embed", "verify"],
    "two tags": ["embed", "verify"],
    "tag in a queue": ["embed", "verify"],
}
WAITS_FOR_NOBODY = (State.PENDING, State.QUEUED, State.WAITING, State.PAUSED)
ENDED = (State.FAILED, State.TIMED_OUT, State.SUCCEEDED, State.CANCELLED)


def stop(store: JobStore, scope: StopScope, mode: str = "graceful", **given: Any) -> StopReport:
    settings = {"mode": mode, "wait": 0} | given
    return engine.Stop(store, StopRequest(**asdict(scope), **settings), KNOWN).begin().wait()


@pytest.mark.parametrize("mode", ["graceful", "immediate", "full"])
@pytest.mark.parametrize("name", SCOPES)
def test_every_mode_and_scope_moves_what_it_covers_and_nothing_else(
    store: JobStore, clock: ManualClock, name: str, mode: str
):
    scope, inside, outside = SCOPES[name]
    covered = {state: in_state(store, clock, state, **inside) for state in State}
    spared = {state: in_state(store, clock, state, **outside) for state in State}

    report = stop(store, scope, mode, reason="enough", actor="ann")

    counts = dict.fromkeys(WAITS_FOR_NOBODY, 1) | ({} if mode == "graceful" else {State.RUNNING: 1})
    assert report.cancelled_counts == {"work": counts}
    assert report.flagged == {"work": 1}
    assert report.still_running == [covered[State.RUNNING].id]
    assert report.unaffected_tasks == UNAFFECTED[name]
    assert report.scope == scope.as_dict()
    assert (report.mode, report.held, report.dry_run) == (mode, False, False)

    for state in WAITS_FOR_NOBODY:
        after = store.get(covered[state].id)
        assert (after.state, after.reason) == (State.CANCELLED, "enough")
        assert all(question.closed_at is not None for question in store.questions(after.id))
    running = store.get(covered[State.RUNNING].id)
    assert running.state is State.RUNNING
    assert running.stop_requested == ("finish" if mode == "graceful" else "cancel")
    for state in ENDED:
        assert store.get(covered[state].id) == covered[state]
    assert all(store.get(job.id) == job for job in spared.values())
    for state in (*WAITS_FOR_NOBODY, State.RUNNING):
        last = store.history(covered[state].id)[-1]
        assert (last.actor, last.detail) == ("ann", "enough")


@pytest.mark.parametrize("mode", ["graceful", "immediate", "full"])
@pytest.mark.parametrize("front", [State.RUNNING, State.WAITING, State.PAUSED])
def test_a_lane_is_stopped_with_its_front_its_queue_and_what_is_held(
    store: JobStore, clock: ManualClock, mode: str, front: State
):
    first = in_state(store, clock, front, lane="a")
    queued, held = put(store, lane="a"), put(store, lane="a", hold=True)
    other = put(store, lane="b")
    report = stop(store, StopScope(lane="a"), mode)
    waiting = {State.QUEUED: 1, State.PENDING: 1}
    if front is State.RUNNING:
        assert report.flagged == {"work": 1}
        assert store.get(first.id).stop_requested == ("finish" if mode == "graceful" else "cancel")
    else:
        assert store.get(first.id).state is State.CANCELLED
    counted = {} if front is State.RUNNING and mode == "graceful" else {front: 1}
    assert report.cancelled_counts == {"work": waiting | counted}
    assert {store.get(job.id).state for job in (queued, held)} == {State.CANCELLED}
    assert claim_ids(store) == [other.id]


def test_everything_is_everything(store: JobStore, clock: ManualClock):
    live = [in_state(store, clock, state, queue=state.value) for state in WAITS_FOR_NOBODY]
    running = run(store, group="g")
    report = stop(store, StopScope(everything=True), "immediate")
    assert {store.get(job.id).state for job in live} == {State.CANCELLED}
    assert report.still_running == [running.id]
    assert report.unaffected_tasks == []


def test_orphans_are_flagged_for_whoever_adopts_them(store: JobStore, clock: ManualClock):
    lost = orphan(store, clock, group="g")
    report = stop(store, StopScope(group="g"), "full")
    assert report.flagged == {"work": 1}
    assert store.get(lost.id).stop_requested == "cancel"
    (adopted,) = store.adopt("worker-2", ["machine-1"])
    assert adopted.stop_requested == "cancel"


@pytest.mark.parametrize(
    "outcome",
    [Failure("broken"), QuestionAsked("q", "May I?"), Stopped()],
    ids=lambda one: type(one).__name__,
)
def test_after_a_graceful_stop_nothing_is_tried_again(store: JobStore, outcome: Any):
    grant = run(store, group="g")
    stop(store, StopScope(group="g"), "graceful", reason="done")
    assert end(store, grant, outcome).state is State.CANCELLED
    assert claim_ids(store) == []


def test_after_a_graceful_stop_a_lost_lease_is_not_tried_again_either(store: JobStore, clock: ManualClock):
    grant = run(store, group="g")
    stop(store, StopScope(group="g"), "graceful")
    assert lose(store, clock, grant).state is State.CANCELLED


def test_a_success_after_the_stop_stays_a_success(store: JobStore):
    grant = run(store, group="g")
    stop(store, StopScope(group="g"), "immediate")
    assert end(store, grant, Success("1")).state is State.SUCCEEDED


def test_one_that_was_to_be_paused_is_cancelled_when_the_wait_finds_it_at_rest(store: JobStore, monkeypatch):
    grant = run(store, group="g")
    store.pause(grant.id)
    looks = []

    def end_it(seconds: float) -> None:
        looks.append(seconds)
        assert end(store, grant, Stopped()).state is State.PAUSED

    monkeypatch.setattr(engine.time, "sleep", end_it)  # type: ignore[attr-defined]
    report = stop(store, StopScope(group="g"), "graceful", wait=10)
    assert looks
    assert report.still_running == []
    assert report.cancelled_counts == {"work": {State.PAUSED: 1}}
    assert store.get(grant.id).state is State.CANCELLED


def test_a_job_that_is_claimed_between_the_look_and_the_write_is_flagged(store: JobStore):
    job = put(store, group="g")
    found = store.find_stoppable(StopScope(group="g"))
    assert [(one.id, one.state) for one in found.jobs] == [(job.id, State.QUEUED)]
    claim_ids(store)
    (stopped,) = store.stop_jobs([job.id], StopScope(group="g"), "immediate")
    assert stopped.state is State.RUNNING
    assert store.get(job.id).stop_requested == "cancel"


def test_jobs_that_wait_for_others_are_counted_and_keep_the_stops_reason(store: JobStore):
    first, second, third = new_id(), new_id(), new_id()
    store.enqueue(
        [
            new_job(id=first, group="g"),
            new_job(id=second, group="g", after=(first,)),
            new_job(id=third, group="g", after=(second,)),
        ]
    )
    report = stop(store, StopScope(group="g"), reason="enough")
    assert report.cancelled_counts == {"work": {State.QUEUED: 1, State.PENDING: 2}}
    assert {store.get(one).reason for one in (first, second, third)} == {"enough"}


def test_a_dry_run_tells_the_same_and_changes_nothing(store: JobStore, clock: ManualClock, backend: Backend):
    jobs = {state: in_state(store, clock, state, group="g") for state in State}
    before = store.group("g")
    reported = stop(store, StopScope(group="g"), "immediate", dry_run=True)
    assert reported.dry_run
    assert [store.get(job.id) for job in jobs.values()] == list(jobs.values())
    assert store.group("g") == before
    assert backend.query("SELECT count(*) FROM leasehold.stop_mark") == [(0,)]
    done = stop(store, StopScope(group="g"), "immediate")
    assert (reported.cancelled_counts, reported.flagged) == (done.cancelled_counts, done.flagged)


def test_a_second_stop_finds_nothing_new(store: JobStore):
    grant = run(store, group="g")
    put(store, group="g")
    stop(store, StopScope(group="g"), "graceful")
    again = stop(store, StopScope(group="g"), "graceful")
    assert again.cancelled_counts == {}
    assert again.still_running == [grant.id]
    stronger = stop(store, StopScope(group="g"), "immediate")
    assert stronger.cancelled_counts == {"work": {State.RUNNING: 1}}
    assert store.get(grant.id).stop_requested == "cancel"


@pytest.mark.parametrize(
    ("scope", "hold", "field"),
    [
        (StopScope(), False, "stop"),
        (StopScope(everything=True, queue="q"), False, "everything"),
        (StopScope(tasks=()), False, "tasks"),
        (StopScope(queue="q"), True, "hold"),
        (StopScope(group="g", tasks=("work",)), True, "hold"),
    ],
)
def test_a_scope_that_cannot_be_meant_is_refused(store: JobStore, scope: StopScope, hold: bool, field: str):
    job = put(store, queue="q", group="g")
    with pytest.raises(InvalidInput) as refusal:
        stop(store, scope, hold=hold)
    assert refusal.value.field == field
    assert store.get(job.id) == job


# -- follow-ups ------------------------------------------------------------------------------------------------------


def succeed_with(store: JobStore, grant: Any, *follow_ups: Any) -> list[Job]:
    settled = store.settle([Ending(grant.id, grant.token, Success("1", None, tuple(follow_ups)))])
    assert settled.accepted == [grant.id]
    return [store.get(job.id) for job in follow_ups]


def test_follow_ups_of_a_stopped_run_in_its_scope_are_created_cancelled(store: JobStore, backend: Backend):
    grant = run(store, group="g")
    stop(store, StopScope(group="g", tasks=("work",)), "graceful", reason="session_completed", actor="ann")
    inside, outside = succeed_with(
        store, grant, new_job(group="g", lane="l"), new_job(group="g", task="verify")
    )
    assert store.get(grant.id).state is State.SUCCEEDED
    assert (inside.state, inside.reason, inside.attempt) == (State.CANCELLED, "session_completed", 0)
    assert [(h.event, h.actor) for h in store.history(inside.id)] == [("cancelled", "ann")]
    assert ("follow_up_of", grant.id) in [(r.relation, r.id) for r in store.relatives(inside.id)]
    assert outside.state is State.QUEUED
    assert backend.query("SELECT count(*) FROM leasehold.stop_mark") == [(0,)]


def test_a_stop_of_the_whole_group_covers_its_follow_ups_and_leaves_it_stopped(store: JobStore):
    grant = run(store, group="g")
    stop(store, StopScope(group="g"), "graceful", reason="enough")
    (inside,) = succeed_with(store, grant, new_job(group="g"))
    assert inside.state is State.CANCELLED
    group = store.group("g")
    assert group is not None
    assert (group.state, group.reason) == ("stopped", "enough")


def test_a_follow_up_stored_at_once_by_a_stopped_run_is_created_cancelled(store: JobStore):
    grant = run(store, group="g")
    before = new_job(group="g", follow_up_of=grant.id)
    store.enqueue([before])
    stop(store, StopScope(group="g"), "graceful", reason="enough")
    assert store.get(before.id).state is State.CANCELLED
    after, other = (
        new_job(group="g", follow_up_of=grant.id),
        new_job(group="elsewhere", follow_up_of=grant.id),
    )
    store.enqueue([after, other])
    assert (store.get(after.id).state, store.get(after.id).reason) == (State.CANCELLED, "enough")
    assert store.get(other.id).state is State.QUEUED
    assert store.enqueue([after])[0].created is False


def test_two_stops_with_different_scopes_both_count_for_follow_ups(store: JobStore):
    grant = run(store, group="g", tags=("x",))
    stop(store, StopScope(group="g"), "graceful", reason="group")
    stop(store, StopScope(tags=("x",)), "graceful", reason="tag")
    first, second, third = succeed_with(store, grant, new_job(group="g"), new_job(tags=("x",)), new_job())
    assert (first.reason, second.reason) == ("group", "tag")
    assert (first.state, second.state, third.state) == (State.CANCELLED, State.CANCELLED, State.QUEUED)


def test_a_resumed_job_owes_nothing_to_the_stop_of_its_last_run(store: JobStore):
    grant = run(store, group="g")
    stop(store, StopScope(group="g"), "graceful")
    assert end(store, grant, Failure("broken", final=True)).state is State.FAILED
    store.resume(grant.id)
    again = store.claim_by_id(grant.id, "worker-2")
    (made,) = succeed_with(store, again, new_job(group="g"))
    assert made.state is State.QUEUED


def test_a_cancelled_follow_up_pushes_nobody_aside(store: JobStore):
    holder = put(store, unique_key="k")
    grant = run(store, group="g")
    stop(store, StopScope(group="g"), "graceful")
    follow_up = new_job(group="g", unique_key="k", on_duplicate="replace")
    store.settle([Ending(grant.id, grant.token, Success("1", None, (follow_up,)))])
    assert store.get(holder.id).state is State.QUEUED


def test_marks_go_with_their_job(store: JobStore, backend: Backend, clock: ManualClock):
    grant = run(store, group="g")
    stop(store, StopScope(group="g"), "graceful")
    end(store, grant, Success("1"))
    put(store)  # the newest job of all may be kept
    clock.advance(100)
    assert store.prune(1).deleted == 1
    assert backend.query("SELECT count(*) FROM leasehold.stop_mark") == [(0,)]


# -- holds -----------------------------------------------------------------------------------------------------------


def test_a_held_group_takes_nothing_in_until_it_is_released(store: JobStore):
    put(store, group="g")
    report = stop(store, StopScope(group="g"), hold=True, reason="maintenance", actor="ann")
    assert report.held
    refused = new_job(group="g")
    with pytest.raises(GroupOnHold) as refusal:
        store.enqueue([new_job(group="free"), refused])
    assert (refusal.value.group, refusal.value.reason, refusal.value.held_by) == ("g", "maintenance", "ann")
    assert store.group("free") is None
    assert "release" in str(refusal.value)
    stop(store, StopScope(group="g"), reason="again")
    group = store.group("g")
    assert group is not None
    assert group.state == "held"
    assert store.release_group("g", "bob")
    assert not store.release_group("g", "bob")
    store.enqueue([refused])
    assert store.get(refused.id).state is State.QUEUED
    group = store.group("g")
    assert group is not None
    assert (group.state, group.reason, group.changed_by) == ("active", None, "bob")


def test_a_group_that_nobody_has_heard_of_can_be_held(store: JobStore):
    stop(store, StopScope(group="new"), hold=True)
    with pytest.raises(GroupOnHold):
        put(store, group="new")


@pytest.mark.parametrize("verb", ["resume", "retry", "release", "answer", "resume_lane"])
def test_nothing_in_a_held_group_is_set_going_again(store: JobStore, clock: ManualClock, verb: str):
    fields = {"group": "g"} | ({"lane": "l"} if verb == "resume_lane" else {})
    state = {"release": State.PENDING, "answer": State.WAITING, "resume_lane": State.PAUSED}.get(
        verb, State.FAILED
    )
    job = in_state(store, clock, state, **fields)
    store.stop_group("g", True, "ann", "maintenance")
    before = store.get(job.id), store.history(job.id)
    calls = {
        "resume": lambda: store.resume(job.id),
        "retry": lambda: store.retry(job.id, new_id()),
        "release": lambda: store.release(job.id),
        "answer": lambda: store.answer(job.id, "q", "true"),
        "resume_lane": lambda: store.resume_lane("l"),
    }
    with pytest.raises(GroupOnHold):
        calls[verb]()
    assert (store.get(job.id), store.history(job.id)) == before
    assert store.release_group("g")
    calls[verb]()


def test_a_hold_does_not_undo_the_success_whose_follow_up_it_refuses(store: JobStore):
    grant = run(store)
    store.stop_group("g", True)
    refused = new_job(group="g")
    settled = store.settle([Ending(grant.id, grant.token, Success("1", None, (refused, new_job())))])
    assert settled.accepted == [grant.id]
    (entry,) = store.history(grant.id)
    assert entry.event == "follow_up_refused"
    assert "on hold" in (entry.detail or "")
    assert store.group_status("g").total == 0


@pytest.mark.parametrize("scope", [StopScope(group="g"), StopScope(group="g", tasks=("work",))])
def test_follow_ups_are_cancelled_while_a_stop_is_at_work_on_their_group(
    store: JobStore, clock: ManualClock, scope: StopScope
):
    """Their parents do not know of the stop yet: a stop must not run after jobs that breed as fast as it cancels."""
    first, second, late = (run(store, group="g") for _ in range(3))
    store.stop_group("g", False, "ann", "enough", scope)

    def follow_up(**fields: Any) -> Job:
        (made,) = store.enqueue([new_job(follow_up_of=first.id, **{"group": "g"} | fields)])
        return store.get(made.id)

    at_success = new_job(group="g")
    store.settle([Ending(second.id, second.token, Success("1", None, (at_success,)))])
    stopped = [follow_up(), store.get(at_success.id)]
    assert [(job.state, job.reason) for job in stopped] == [(State.CANCELLED, "enough")] * 2
    assert [entry.actor for entry in store.history(stopped[0].id)] == ["ann"]
    assert follow_up(group="other").state is State.QUEUED
    in_part = scope.tasks is not None
    assert follow_up(task="verify").state is (State.QUEUED if in_part else State.CANCELLED)
    assert put(store, group="g").state is State.QUEUED, "no follow-up: the caller may have seen the stop"
    store.end_group_stop("g")
    assert follow_up().state is State.QUEUED
    store.stop_group("g", False, "ann", "enough", scope)
    clock.advance(61)
    assert follow_up().state is State.QUEUED, "the process that stopped was killed"
    stop(store, scope, mode="immediate")
    grandchild = new_job(group="g")
    store.settle([Ending(late.id, late.token, Success("1", None, (grandchild,)))])
    assert store.get(grandchild.id).state is State.CANCELLED, "its parent is flagged"


def test_a_follow_up_does_not_reopen_a_group_that_was_stopped(store: JobStore):
    """It was asked for by a run that did not know of the stop yet. The stop's next pass finds it."""
    grant, at_once = run(store, group="g"), run(store, group="g")
    store.stop_group("g", False, "ann", "enough")
    store.end_group_stop("g")
    follow_up = new_job(group="g")
    store.settle([Ending(grant.id, grant.token, Success("1", None, (follow_up,)))])
    store.enqueue([new_job(group="g", follow_up_of=at_once.id)])
    status = store.group_status("g")
    assert (status.state, status.reason, status.live) == ("stopped", "enough", 3)
    report = stop(store, StopScope(group="g"), mode="immediate")
    assert report.cancelled_counts["work"][State.QUEUED] == 2
    store.settle([Ending(at_once.id, at_once.token, Success("1"))])
    status = store.group_status("g")
    assert (status.state, status.live) == ("stopped", 0)


def test_a_follow_up_makes_a_group_that_is_not_there(store: JobStore):
    grant = run(store)
    store.settle([Ending(grant.id, grant.token, Success("1", None, (new_job(group="new"),)))])
    assert (store.group_status("new").state, store.group_status("new").live) == ("active", 1)


def test_a_stop_of_a_part_leaves_who_when_and_why_on_the_group(store: JobStore, clock: ManualClock):
    """Its state is not touched: the rest of it goes on."""
    put(store, group="g")
    put(store, group="g", task="verify")
    before = store.group_status("g")
    assert before.last_stop is None
    clock.advance(5)
    stop(store, StopScope(group="g", tasks=("work",)), mode="immediate", reason="enough", actor="ann")
    status, row = store.group_status("g"), store.group("g")
    assert (status.state, status.reason, status.live) == ("active", None, 1)
    assert status.version > before.version
    reported = GroupStop({"group": "g", "tasks": ["work"]}, "immediate", "enough", "ann", clock.now())
    assert status.last_stop == reported
    assert row is not None
    assert row.last_stop == reported


def test_every_group_whose_jobs_a_stop_has_met_remembers_it(store: JobStore, clock: ManualClock):
    for group in ("a", "b"):
        put(store, group=group)
        run(store, group=group)
    put(store, group="c", task="verify")
    put(store)
    stop(store, StopScope(tasks=("work",)), reason="deploy", actor="ann", wait=0)
    reported = GroupStop({"tasks": ["work"]}, "graceful", "deploy", "ann", clock.now())
    assert [store.group_status(name).last_stop for name in "abc"] == [reported, reported, None]
    assert store.group_status("a").state == "active"


def test_a_stop_of_the_whole_group_is_its_last_stop_too_and_outlives_its_reopening(
    store: JobStore, clock: ManualClock
):
    put(store, group="g")
    stop(store, StopScope(group="g"), mode="full", reason="enough", actor="ann")
    stopped = store.group_status("g")
    assert (stopped.state, stopped.changed_by, stopped.changed_at) == ("stopped", "ann", clock.now())
    put(store, group="g")
    status = store.group_status("g")
    assert (status.state, status.reason) == ("active", None)
    assert status.last_stop == GroupStop({"group": "g"}, "full", "enough", "ann", clock.now())


def test_without_a_hold_the_next_job_reopens_the_group(store: JobStore):
    put(store, group="g")
    stop(store, StopScope(group="g"), reason="enough", actor="ann")
    group = store.group("g")
    assert group is not None
    assert (group.state, group.reason, group.changed_by) == ("stopped", "enough", "ann")
    put(store, group="g")
    group = store.group("g")
    assert group is not None
    assert (group.state, group.reason) == ("active", None)


# -- size ------------------------------------------------------------------------------------------------------------


def test_a_large_stop_keeps_every_transaction_short(backend: Backend):
    """2,000 queued jobs, while somebody else enqueues: no write waits for more than one batch."""
    store, other = backend.open(), backend.open()
    store.enqueue([new_job(group="g") for _ in range(2000)])
    sizes: list[int] = []
    seconds: list[float] = []

    class Measured:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def stop_jobs(self, ids: Any, *given: Any) -> Any:
            began = time.perf_counter()
            done = store.stop_jobs(ids, *given)
            seconds.append(time.perf_counter() - began)
            sizes.append(len(ids))
            other.enqueue([new_job()])  # between any two batches there is room for others
            return done

    report = stop(Measured(), StopScope(group="g"))
    assert report.cancelled_counts == {"work": {State.QUEUED: 2000}}
    assert sizes == [500] * 4
    assert sorted(seconds)[len(seconds) // 2] < 10.0, seconds
    print(f"\n{backend.name}: batches of 500 took {[f'{s * 1000:.0f} ms' for s in seconds]}")


def test_windows_and_pages_lead_past_what_is_not_in_the_scope(store: JobStore, monkeypatch):
    from leasehold.stores.verbs import stop as verbs

    monkeypatch.setattr(verbs, "PAGE", 7)
    jobs = [
        new_job(queue="q" if n % 3 else "other", tags=("x",), group="g", lane=f"l{n % 2}") for n in range(60)
    ]
    store.enqueue(jobs)
    assert stop(store, StopScope(queue="q")).cancelled_counts == {"work": {State.QUEUED: 40}}
    assert stop(store, StopScope(lane="l0")).cancelled_counts == {"work": {State.QUEUED: 10}}
    assert stop(store, StopScope(tags=("x",))).cancelled_counts == {"work": {State.QUEUED: 10}}
    store.enqueue([new_job(group="g") for _ in range(30)])
    assert stop(store, StopScope(group="g")).cancelled_counts == {"work": {State.QUEUED: 30}}
