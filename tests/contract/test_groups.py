"""Groups: what their status tells, which changes move their version, and how their versions are read."""

from __future__ import annotations

import pytest

from leasehold.domain.outcome import Failure, Success
from leasehold.domain.questions import QuestionAsked
from leasehold.domain.states import LIVE, State
from leasehold.stores.store import JobStore
from leasehold.stores.verbs import groups
from leasehold.testing import ManualClock
from tests.backends import Backend, new_job, put
from tests.contract.lives import end, in_state, run


def version(store: JobStore) -> int:
    return store.group_versions(["g"])["g"]


def test_a_status_counts_by_kind_and_state(store: JobStore, clock: ManualClock):
    for state in State:
        in_state(store, clock, state, group="g")
    put(store, group="g", task="verify")
    put(store, group="other")
    status = store.group_status("g")
    assert status.counts == {"verify": {State.QUEUED: 1}, "work": dict.fromkeys(State, 1)}
    assert (status.total, status.succeeded, status.live) == (10, 1, len(LIVE) + 1)
    assert status.progress == pytest.approx(0.1)
    assert [(one.task, one.result) for one in status.results] == [("work", "done")]
    assert sorted((one.state, one.error) for one in status.errors) == [
        (State.FAILED, "broken"),
        (State.TIMED_OUT, "too long"),
    ]
    assert status.questions == 2, "one waits, one is paused with its question open"
    assert (status.state, status.reason, status.version) == ("active", None, version(store))
    only = store.group_status("g", ["verify"])
    assert (only.total, only.counts) == (1, {"verify": {State.QUEUED: 1}})
    assert only.version == status.version


def test_the_question_of_a_job_that_has_ended_is_not_counted(store: JobStore, clock: ManualClock):
    for deadline in (None, 50.0):
        end(store, run(store, group="g", deadline=deadline), QuestionAsked("q", "May I?"))
    assert store.group_status("g").questions == 2
    clock.advance(60)
    (ended,) = store.expire()
    assert (ended.state, store.questions(ended.id)[0].closed_at) == (State.TIMED_OUT, None)
    assert store.group_status("g").questions == 1


def test_a_failure_fails_nobody_else_and_not_the_group(store: JobStore):
    bad, good = run(store, group="g"), run(store, group="g")
    end(store, bad, Failure("broken", final=True))
    assert store.group_status("g").state == "active"
    end(store, good, Success("1"))
    status = store.group_status("g")
    assert (status.state, status.succeeded, status.live, status.progress) == ("active", 1, 0, 0.5)


def test_an_unknown_group_is_empty_and_has_version_0(store: JobStore):
    status = store.group_status("nobody")
    assert (status.version, status.state, status.total, status.live, status.progress) == (
        0,
        "active",
        0,
        0,
        0.0,
    )
    assert store.group_versions(["nobody"]) == {}


def test_results_and_errors_come_latest_first_up_to_the_cap(store: JobStore, clock: ManualClock, monkeypatch):
    monkeypatch.setattr(groups, "MOST_IN_STATUS", 3)
    grants = [run(store, group="g") for _ in range(10)]
    for number in (4, 0, 2, 1, 3):
        clock.advance(1)
        end(store, grants[number], Success(str(number)))
    for number in (5, 9, 7, 8, 6):
        clock.advance(1)
        end(store, grants[number], Failure(f"{number}" * 5000, final=True))
    status = store.group_status("g")
    assert [one.result for one in status.results] == [3, 1, 2]
    assert [(one.error or "")[0] for one in status.errors] == ["6", "8", "7"]
    assert {len(one.error or "") for one in status.errors} == {groups.LONGEST_ERROR}
    assert status.cap == 3
    assert status.counts["work"] == {State.SUCCEEDED: 5, State.FAILED: 5}


def test_every_change_moves_the_version_and_a_claim_does_not(store: JobStore):
    seen = []

    def moved() -> bool:
        seen.append(version(store))
        return len(seen) < 2 or seen[-1] == seen[-2] + 1

    job = put(store, group="g")
    moved()
    grant = store.claim_by_id(job.id, "worker-1")
    assert version(store) == seen[-1]
    store.pause(job.id)
    assert moved(), "a stop was asked for"
    end(store, grant, Success("1"))
    assert moved(), "it has ended"
    put(store, group="g")
    assert moved(), "another has come"
    store.stop_group("g", False, "ann", "enough")
    assert moved()
    store.stop_group("g", True, "ann", "enough")
    assert moved()
    store.release_group("g", "ann")
    assert moved()


def test_versions_of_many_groups_come_in_one_answer(store: JobStore):
    for name in ("a", "b", "b"):
        put(store, group=name)
    assert store.group_versions(["a", "b", "c"]) == {"a": 1, "b": 2}
    assert store.group_versions([]) == {}


def test_a_group_counts_its_jobs_that_live_or_can_be_resumed_from_a_pause(
    store: JobStore, clock: ManualClock, backend: Backend
):
    def live() -> int:
        return int(backend.query("SELECT live FROM leasehold.job_group WHERE name = 'g'")[0][0])

    jobs = {state: in_state(store, clock, state, group="g") for state in State}
    assert live() == len(LIVE) + 1
    store.resume(jobs[State.FAILED].id)
    assert live() == len(LIVE) + 2
    store.cancel(jobs[State.PAUSED].id)
    store.cancel(jobs[State.TIMED_OUT].id)
    assert live() == len(LIVE) + 1
    store.enqueue([new_job(group="g"), new_job(group="g", hold=True), new_job(group="other")])
    assert live() == len(LIVE) + 3
    assert store.misplaced() == []
