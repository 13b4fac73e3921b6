"""Limits page: pauses, slots, rates and budgets."""

from __future__ import annotations

import functools
from typing import Any

from leasehold.domain.budgets import checked_owner
from leasehold.domain.limits import PauseWindow
from leasehold.domain.records import COUNT_CAP, PauseRecord, QueueRow, Scope
from leasehold.domain.states import State
from leasehold.operations import budgets, limits, queues
from leasehold.surfaces.dashboard.page import Action, DashboardPage, Done, action_of
from leasehold.surfaces.dashboard.page_request import Form, PageRequest
from leasehold.surfaces.dashboard.render import mark

ROWS = 50
MOST_HOLDERS = 8


def read(page_request: PageRequest) -> dict[str, Any]:
    """The values of the page. Slots and rates are about all queues: a caller who may see only some queues gets none."""
    operations, access = page_request.operations, page_request.caller.access
    limited = bool(access.queues)
    scope = checked_owner(page_request.request.query_params.get("scope") or None)
    cursor = page_request.request.query_params.get("cursor") or None
    slots = [] if limited else operations.call(limits.list_slots)
    rates = [] if limited else operations.call(limits.list_rates)
    pauses = [pause for pause in operations.call(queues.list_pauses) if _may_see(page_request, pause)]
    cards = page_request.caller.visible_rows(operations.list_queues())
    page = operations.call(budgets.list_budgets, scope, ROWS, cursor)
    return {
        "mark": mark,
        "limited": limited,
        "pauses": [(pause, _waiting(pause, cards)) for pause in pauses],
        "queues": sorted({card.queue for card in cards}),
        "tasks": sorted({card.task for card in cards}),
        "slots": slots,
        "full": sum(slot.used >= slot.limit for slot in slots),
        "rates": rates,
        "closed": sum(rate.closed for rate in rates),
        "budgets": page_request.caller.visible_rows(page.budgets),
        "next": page.next,
        "cursor": cursor,
        "scope": scope,
        "most_holders": MOST_HOLDERS,
    }


def _may_see(page_request: PageRequest, pause: PauseRecord) -> bool:
    access = page_request.caller.access
    return not access.queues or (pause.scope == "queue" and access.may_use_queue(pause.name))


def _waiting(pause: PauseRecord, cards: list[QueueRow]) -> int:
    """The number of queued jobs that the pause keeps from starting, up to COUNT_CAP."""
    found = (card for card in cards if getattr(card, pause.scope) == pause.name)
    return min(COUNT_CAP, sum(card.counts.get(State.QUEUED, 0) for card in found))


# -- verbs ---------------------------------------------------------------------------------------------------------
def _closing(page_request: PageRequest, form: Form) -> PauseWindow:
    return PauseWindow(for_=form.maybe("for"), reason=form.maybe("reason"), actor=page_request.caller.actor)


def _named(form: Form, field: str) -> str:
    """A name typed by the user, without blanks around it; or the exact name from the page."""
    return form.maybe(f"new_{field}") or form.text(field)


def _check_scope(page_request: PageRequest, scope: Scope, name: str) -> None:
    if scope == "queue":
        page_request.caller.check_queue(name)
    else:
        page_request.caller.check_all_queues()


def _pause(scope: Scope, page_request: PageRequest, form: Form) -> Done:
    name = _named(form, "name")
    _check_scope(page_request, scope, name)
    verb = queues.pause_queue if scope == "queue" else queues.pause_task
    pause = page_request.operations.call(verb, name, **_closing(page_request, form).arguments)
    end = "until it is resumed" if pause.until is None else f"until {pause.until:%Y-%m-%d %H:%M:%S} UTC"
    return Done(f"No job of the {scope} {name} starts {end}. Running jobs continue.")


def _resume(scope: Scope, page_request: PageRequest, form: Form) -> Done:
    name = form.text("name")
    _check_scope(page_request, scope, name)
    verb = queues.resume_queue if scope == "queue" else queues.resume_task
    done = page_request.operations.call(verb, name, actor=page_request.caller.actor)
    return Done(f"The {scope} {name} is resumed." if done else f"The {scope} {name} was not paused.")


def _set_slot(page_request: PageRequest, form: Form) -> Done:
    page_request.caller.check_all_queues()
    name, limit = _named(form, "name"), form.whole("limit")
    page_request.operations.call(limits.set_slot, name, limit, actor=page_request.caller.actor)
    return Done(f"The slot {name} has {limit:,} {'unit' if limit == 1 else 'units'} now.")


def _set_rate(page_request: PageRequest, form: Form) -> Done:
    page_request.caller.check_all_queues()
    key, limit = _named(form, "key"), form.text("limit")
    burst = form.whole("burst") if form.maybe("burst") else 1
    page_request.operations.call(limits.set_rate, key, limit, burst=burst, actor=page_request.caller.actor)
    return Done(f"The rate {key} is now {limit}, with a burst of {burst:,}.")


def _close_rate(page_request: PageRequest, form: Form) -> Done:
    page_request.caller.check_all_queues()
    key = form.text("key")
    page_request.operations.call(limits.close_rate, key, **_closing(page_request, form).arguments)
    return Done(f"The rate {key} is closed. Running jobs continue.")


def _open_rate(page_request: PageRequest, form: Form) -> Done:
    page_request.caller.check_all_queues()
    key = form.text("key")
    opened = page_request.operations.call(limits.open_rate, key, actor=page_request.caller.actor)
    return Done(f"The rate {key} is open." if opened else f"The rate {key} was not closed.")


def _top_up(page_request: PageRequest, form: Form) -> Done:
    job = page_request.caller.job(form.text("id"))
    unit, amount = form.text("unit"), form.whole("amount")
    lines = page_request.operations.call(
        budgets.top_up, job.id, {unit: amount}, actor=page_request.caller.actor
    )
    limit = next((line.limit for line in lines if line.scope != "group" and line.unit == unit), None)
    return Done(
        f"The job may spend {limit:,} {unit} now."
        if limit is not None
        else f"The job may spend more {unit} now."
    )


PAGE = DashboardPage("limits", "limits", "limits.html", read)
ACTIONS: tuple[Action, ...] = (
    action_of(queues.pause_queue, functools.partial(_pause, "queue")),
    action_of(queues.resume_queue, functools.partial(_resume, "queue")),
    action_of(queues.pause_task, functools.partial(_pause, "task")),
    action_of(queues.resume_task, functools.partial(_resume, "task")),
    action_of(limits.set_slot, _set_slot),
    action_of(limits.set_rate, _set_rate),
    action_of(limits.close_rate, _close_rate),
    action_of(limits.open_rate, _open_rate),
    action_of(budgets.top_up, _top_up),
)
"""The budget of a group is set on the page of the group."""
