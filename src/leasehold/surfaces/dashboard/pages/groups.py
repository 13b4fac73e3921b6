"""Groups page: the list of groups, or one group with its progress, results, budget and stop."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, get_args

from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.groups import (
    GROUP_TOTAL_CAP,
    GroupResult,
    GroupState,
    GroupStatus,
    StatusRequest,
    checked_group_state,
)
from leasehold.domain.states import State
from leasehold.domain.stop import StopMode, StopReport, StopRequest, checked_mode
from leasehold.operations import budgets, groups
from leasehold.surfaces.dashboard.page import Action, DashboardPage, Done, action_of
from leasehold.surfaces.dashboard.page_request import LIVE, Form, PageRequest
from leasehold.surfaces.dashboard.render import Badge, clip, plural

ROWS = 50
MOST_SHOWN = 20
"""Running jobs, errors and results of one group that its page shows."""
MOST_EMITTED = 3
LONGEST_VALUE = 160

STATES: dict[GroupState, Badge] = {
    "active": Badge("ok", "active"),
    "stopped": Badge("cancelled", "stopped", "the next job that comes in reopens it"),
    "held": Badge("paused", "held", "it refuses new jobs until it is released"),
}
MODES: dict[StopMode, str] = {
    "graceful": "Cancels waiting jobs. Running jobs may finish, and are not retried.",
    "immediate": "Cancels waiting jobs, and stops running jobs as soon as possible.",
    "full": "Like immediate. From Python, the call also waits until every job has ended; this page does not.",
}


@frozen
class ShownResult:
    id: str
    task: str
    text: str
    in_file: bool


def read(page_request: PageRequest) -> dict[str, Any]:
    page_request.caller.check_all_queues()
    name = page_request.request.query_params.get("name", "")
    return (_one(page_request, name) if name else _all(page_request)) | {"group_badges": STATES}


def _all(page_request: PageRequest) -> dict[str, Any]:
    query = page_request.request.query_params
    state, cursor = checked_group_state(query.get("state") or None), query.get("cursor") or None
    page = page_request.operations.call(groups.list_groups, state, ROWS, cursor)
    return {
        "group": None,
        "groups": page.groups,
        "next": page.next,
        "cursor": cursor,
        "state": state,
        "states": get_args(GroupState),
        "total_cap": GROUP_TOTAL_CAP,
    }


def _one(page_request: PageRequest, name: str) -> dict[str, Any]:
    operations = page_request.operations
    status = operations.group_status(StatusRequest(group=name, partial=True))
    states = [state for state in State if any(state in counts for counts in status.counts.values())]
    requested = _requested_stop(page_request, name)
    return {
        "group": status,
        "states": states,
        "tasks": sorted(status.counts),
        "totals": {state: sum(counts.get(state, 0) for counts in status.counts.values()) for state in states},
        "failed": _number_of(status, State.FAILED) + _number_of(status, State.TIMED_OUT),
        "running": [
            (job, [(update, _shown(update.data)) for update in job.emitted[-MOST_EMITTED:]])
            for job in status.running[:MOST_SHOWN]
        ],
        "errors": status.errors[:MOST_SHOWN],
        "results": [_result(one) for one in status.results[:MOST_SHOWN]],
        "budget": operations.call(budgets.group_budget, name),
        "modes": MODES,
        "requested": requested,
        "tasks_shown": json.dumps(page_request.request.query_params.getlist("tasks")),
        "report": None if requested is None else operations.stop(requested),
        # The user reads the report before confirming: a stream must not change it.
        "page": PAGE if requested is None else dataclasses.replace(PAGE, live=False),
    }


def _number_of(status: GroupStatus, state: State) -> int:
    return sum(counts.get(state, 0) for counts in status.counts.values())


def _result(one: GroupResult) -> ShownResult:
    """A result for the list. Results in files are not read."""
    if one.result_ref is not None:
        return ShownResult(one.id, one.task, "", True)
    return ShownResult(one.id, one.task, _shown(one.result), False)


def _shown(value: Any) -> str:
    return clip(json.dumps(value, ensure_ascii=False), LONGEST_VALUE)


def _requested_stop(page_request: PageRequest, name: str) -> StopRequest | None:
    """The stop to preview, from the address. None: no preview is requested, or the caller may not stop the group."""
    query = page_request.request.query_params
    if not query.get("dry") or LIVE in query or not page_request.may("operate"):
        return None
    return StopRequest(
        group=name,
        tasks=query.getlist("tasks") or None,
        mode=checked_mode(query.get("mode") or "graceful"),
        reason=query.get("reason", "").strip() or None,
        hold=bool(query.get("hold")),
        dry_run=True,
        wait=0,
    )


# -- verbs -------------------------------------------------------------------------------------------------------------
def _stop(page_request: PageRequest, form: Form) -> Done:
    page_request.caller.check_all_queues()
    tasks = form.json("tasks") if form.maybe("tasks") else None
    if tasks is not None and not (isinstance(tasks, list) and all(isinstance(one, str) for one in tasks)):
        raise InvalidInput("tasks", "is not a list of tasks", "go back, and try again")
    request = StopRequest(
        group=form.text("group"),
        tasks=tasks or None,
        mode=checked_mode(form.text("mode")),
        reason=form.maybe("reason"),
        hold=form.has("hold"),
        # No wait: the page shows the running jobs.
        wait=0,
        actor=page_request.caller.actor,
    )
    report = page_request.operations.stop(request)
    return Done(_summary(report), page_request.url("groups", name=request.group))


def _summary(report: StopReport) -> str:
    running = sum(report.flagged.values())
    waiting = report.cancelled - sum(
        states.get(State.RUNNING, 0) for states in report.cancelled_counts.values()
    )
    text = f"{plural(waiting, 'waiting job')} cancelled"
    if running:
        word = "may finish" if report.mode == "graceful" else "will be stopped"
        text += f", {plural(running, 'running job')} {word}"
    return text + ("; the group is held." if report.held else ".")


def _release(page_request: PageRequest, form: Form) -> Done:
    page_request.caller.check_all_queues()
    if page_request.operations.call(
        groups.release_group, form.text("group"), actor=page_request.caller.actor
    ):
        return Done("The group accepts jobs again.")
    return Done("The group was not held.")


def _set_budget(page_request: PageRequest, form: Form) -> Done:
    page_request.caller.check_all_queues()
    unit = form.text("unit").strip()
    limit = form.whole("limit") if form.maybe("limit") else None
    page_request.operations.call(
        budgets.set_group_budget, form.text("group"), {unit: limit}, actor=page_request.caller.actor
    )
    return Done(f"{unit} has no limit now." if limit is None else f"The limit is {limit:,} {unit} now.")


PAGE = DashboardPage("groups", "groups", "groups.html", read)
ACTIONS = (
    Action("stop", "operate", _stop),
    action_of(groups.release_group, _release),
    action_of(budgets.set_group_budget, _set_budget),
)
