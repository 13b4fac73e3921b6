"""Limits: what is paused, how many may run at once, how often they may start, and what they may spend."""

from __future__ import annotations

import functools
from typing import Any

from leasehold.domain.budgets import checked_owner
from leasehold.domain.closing import Closing
from leasehold.domain.states import State
from leasehold.domain.views import COUNT_CAP, PauseRecord, QueueRow, Scope
from leasehold.surfaces.dashboard.action import Action, Done
from leasehold.surfaces.dashboard.forms import Form
from leasehold.surfaces.dashboard.page import Page
from leasehold.surfaces.dashboard.pages.marks import mark
from leasehold.surfaces.dashboard.visit import Visit

ROWS = 50
MOST_HOLDERS = 8
WORDS: dict[Scope, str] = {"queue": "queue", "kind": "task"}


def read(visit: Visit) -> dict[str, Any]:
    """Slots, rates and groups are about all queues: who may know of some only is not shown them."""
    operations, access = visit.operations, visit.who.access
    limited = bool(access.queues)
    scope = checked_owner(visit.request.query_params.get("scope") or None)
    cursor = visit.request.query_params.get("cursor") or None
    slots = [] if limited else operations.list_slots()
    rates = [] if limited else operations.list_rates()
    pauses = [pause for pause in operations.list_pauses() if _may_see(visit, pause)]
    cards = visit.who.seen(operations.list_queues())
    page = operations.list_budgets(scope, ROWS, cursor)
    return {
        "mark": mark,
        "limited": limited,
        "pauses": [(pause, WORDS[pause.scope], _waiting(pause, cards)) for pause in pauses],
        "queues": sorted({card.queue for card in cards}),
        "kinds": sorted({card.kind for card in cards}),
        "slots": slots,
        "full": sum(slot.used >= slot.limit for slot in slots),
        "rates": rates,
        "closed": sum(rate.closed for rate in rates),
        "budgets": visit.who.seen(page.budgets),
        "next": page.next,
        "cursor": cursor,
        "scope": scope,
        "most_holders": MOST_HOLDERS,
    }


def _may_see(visit: Visit, pause: PauseRecord) -> bool:
    access = visit.who.access
    return not access.queues or (pause.scope == "queue" and access.may_use_queue(pause.name))


def _waiting(pause: PauseRecord, cards: list[QueueRow]) -> int:
    """Jobs that the pause keeps; at most as many as are counted."""
    found = (card for card in cards if getattr(card, pause.scope) == pause.name)
    return min(COUNT_CAP, sum(card.counts.get(State.QUEUED, 0) for card in found))


# -- verbs ---------------------------------------------------------------------------------------------------------
def _closing(visit: Visit, form: Form) -> Closing:
    return Closing(for_=form.maybe("for"), reason=form.maybe("reason"), actor=visit.who.actor)


def _named(form: Form, field: str) -> str:
    """What a person has typed, without blanks around it; or what the page knows, exactly as it is."""
    return form.maybe(f"new_{field}") or form.text(field)


def _check_scope(visit: Visit, scope: Scope, name: str) -> None:
    if scope == "queue":
        visit.who.check_queue(name)
    else:
        visit.who.check_all_queues()


def _pause(scope: Scope, visit: Visit, form: Form) -> Done:
    name = _named(form, "name")
    _check_scope(visit, scope, name)
    pause = visit.operations.pause_scope(scope, name, _closing(visit, form))
    end = "until it is resumed" if pause.until is None else f"until {pause.until:%Y-%m-%d %H:%M:%S} UTC"
    return Done(f"No job of the {WORDS[scope]} {name} starts {end}. Running jobs continue.")


def _resume(scope: Scope, visit: Visit, form: Form) -> Done:
    name = form.text("name")
    _check_scope(visit, scope, name)
    done = visit.operations.resume_scope(scope, name, actor=visit.who.actor)
    return Done(
        f"The {WORDS[scope]} {name} is resumed." if done else f"The {WORDS[scope]} {name} was not paused."
    )


def _set_slot(visit: Visit, form: Form) -> Done:
    visit.who.check_all_queues()
    name, limit = _named(form, "name"), form.whole("limit")
    visit.operations.set_slot(name, limit, actor=visit.who.actor)
    return Done(f"The slot {name} has {limit:,} {'unit' if limit == 1 else 'units'} now.")


def _set_rate(visit: Visit, form: Form) -> Done:
    visit.who.check_all_queues()
    key, limit = _named(form, "key"), form.text("limit")
    burst = form.whole("burst") if form.maybe("burst") else 1
    visit.operations.set_rate(key, limit, burst=burst, actor=visit.who.actor)
    return Done(f"The rate {key} is now {limit}, with a burst of {burst:,}.")


def _close_rate(visit: Visit, form: Form) -> Done:
    visit.who.check_all_queues()
    key = form.text("key")
    visit.operations.close_rate(key, _closing(visit, form))
    return Done(f"The rate {key} is closed. Running jobs continue.")


def _open_rate(visit: Visit, form: Form) -> Done:
    visit.who.check_all_queues()
    key = form.text("key")
    opened = visit.operations.open_rate(key, actor=visit.who.actor)
    return Done(f"The rate {key} is open." if opened else f"The rate {key} was not closed.")


def _top_up(visit: Visit, form: Form) -> Done:
    job = visit.who.job(form.text("id"))
    unit, amount = form.text("unit"), form.whole("amount")
    lines = visit.operations.top_up(job.id, {unit: amount}, actor=visit.who.actor)
    limit = next((line.limit for line in lines if line.scope != "group" and line.unit == unit), None)
    return Done(
        f"It may spend {limit:,} {unit} now." if limit is not None else f"It may spend more {unit} now."
    )


PAGE = Page("limits", "limits", "limits.html", read)
ACTIONS: tuple[Action, ...] = (
    Action("queue.pause", "operate", functools.partial(_pause, "queue")),
    Action("queue.resume", "operate", functools.partial(_resume, "queue")),
    Action("kind.pause", "operate", functools.partial(_pause, "kind")),
    Action("kind.resume", "operate", functools.partial(_resume, "kind")),
    Action("slot.set", "admin", _set_slot),
    Action("rate.set", "admin", _set_rate),
    Action("rate.close", "operate", _close_rate),
    Action("rate.open", "operate", _open_rate),
    Action("budget.top_up", "operate", _top_up),
)
"""Limits of groups are set by a verb of theirs."""
