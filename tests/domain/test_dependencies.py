"""What a parent's end means for its child, without a database."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from leasehold.domain.dependencies import EndedParent, explained, judge
from leasehold.domain.job import Job
from leasehold.domain.states import FINAL, State

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ID = "0199a1b2-0000-7000-8000-000000000001"


def child(**fields: Any) -> Job:
    known: dict[str, Any] = {
        "id": "c",
        "seq": 1,
        "task": "k",
        "queue": "q",
        "gate": 1,
        "priority": 0,
        "args": "{}",
    }
    times = {"created_at": NOW, "available_at": NOW, "updated_at": NOW}
    return Job(**known | times | {"state": State.PENDING, "unmet": 1} | fields)


def ended(state: State = State.SUCCEEDED, reason: str | None = None) -> EndedParent:
    return EndedParent(ID, "load", state, reason)


@pytest.mark.parametrize("state", sorted(FINAL))
def test_a_child_that_has_ended_is_left_alone(state: State):
    assert judge(child(state=state), [(ended(State.FAILED), "cancel")], NOW) is None


def test_the_last_parent_sets_the_child_free_from_now_on_or_when_it_is_due():
    later = NOW + timedelta(hours=1)
    for due, place in ((NOW - timedelta(hours=1), NOW), (later, later)):
        move = judge(child(available_at=due, lane="l", lane_at=due), [(ended(), "cancel")], NOW)
        assert move is not None
        found = move.job
        assert (found.state, found.unmet, found.available_at, found.lane_at) == (
            State.QUEUED,
            0,
            place,
            place,
        )
        assert move.event is None, "the row tells it"


@pytest.mark.parametrize("fields", [{"unmet": 2}, {"held": True}, {"state": State.PAUSED}])
def test_what_still_holds_the_child_goes_on_holding_it(fields: dict[str, Any]):
    before = child(**fields)
    move = judge(before, [(ended(), "cancel")], NOW)
    assert move is not None
    assert move.job == replace(before, unmet=before.unmet - 1)


def test_one_bad_parent_is_enough_unless_the_child_runs_anyway():
    good, bad = (ended(), "cancel"), ended(State.TIMED_OUT)
    move = judge(child(unmet=2), [good, (bad, "cancel")], NOW)
    assert move is not None
    assert (move.job.state, move.job.reason) == (State.CANCELLED, f"job {ID} (load) ended timed_out")
    move = judge(child(unmet=2), [good, (bad, "run")], NOW)
    assert move is not None
    assert move.job.state is State.QUEUED


def test_a_cause_is_handed_on_and_an_operators_reason_is_not():
    cause = f"job {ID} (root) ended failed"
    assert explained(ended(State.CANCELLED, cause)) == cause
    for state, reason in ((State.CANCELLED, "not needed"), (State.CANCELLED, None), (State.FAILED, cause)):
        assert explained(ended(state, reason)) == f"job {ID} (load) ended {state.value}"
