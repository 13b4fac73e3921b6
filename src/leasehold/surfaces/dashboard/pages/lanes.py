"""Lanes page: halted lanes, with the job that halts each, and busy lanes."""

from __future__ import annotations

from typing import Any

from leasehold.domain.frozen import frozen
from leasehold.domain.records import Filter, LaneHolder
from leasehold.domain.states import State, Trigger, allowed
from leasehold.operations import queues
from leasehold.surfaces.dashboard.page import DashboardPage, Done, action_of
from leasehold.surfaces.dashboard.page_request import Form, PageRequest

MOST_LANES = 500
"""Lanes that are read at once."""
ROWS = 100
COUNTED_LANES, MOST_COUNTED = 20, 50
"""The number of halted lanes for which waiting jobs are counted, and the number up to which they are counted."""
HALTED = (State.FAILED, State.TIMED_OUT, State.PAUSED)


@frozen
class LaneRow:
    holder: LaneHolder
    behind: str | None
    """The number of jobs that wait behind the holder, as text; None: not counted."""
    may_skip: bool
    may_cancel: bool


def read(page_request: PageRequest) -> dict[str, Any]:
    page_request.caller.check_all_queues()
    found = page_request.operations.call(queues.list_lanes)
    halted = [one for one in found if one.state in HALTED]
    busy = [one for one in found if one.state not in HALTED]
    return {
        "halted": [
            _row(one, _behind(page_request, one) if number < COUNTED_LANES else None)
            for number, one in enumerate(halted[:ROWS])
        ],
        "busy": [_row(one, None) for one in busy[:ROWS]],
        "halted_count": len(halted),
        "busy_count": len(busy),
        "most": MOST_LANES if len(found) >= MOST_LANES else None,
    }


def _row(holder: LaneHolder, behind: str | None) -> LaneRow:
    return LaneRow(holder, behind, allowed(holder.state, Trigger.SKIP), allowed(holder.state, Trigger.CANCEL))


def _behind(page_request: PageRequest, holder: LaneHolder) -> str:
    waiting = Filter((State.QUEUED,), lane=holder.lane)
    count = len(page_request.operations.list_jobs(waiting, MOST_COUNTED + 1).jobs)
    return f"{count}" if count <= MOST_COUNTED else f"{MOST_COUNTED}+"


def _resume(page_request: PageRequest, form: Form) -> Done:
    page_request.caller.check_all_queues()
    job = page_request.operations.call(queues.resume_lane, form.text("lane"), actor=page_request.caller.actor)
    if job is None:
        return Done("This lane is no longer halted.")
    return Done(f"The lane continues with the job that halted it, {job.task}.")


PAGE = DashboardPage("lanes", "lanes", "lanes.html", read)
ACTIONS = (action_of(queues.resume_lane, _resume),)
