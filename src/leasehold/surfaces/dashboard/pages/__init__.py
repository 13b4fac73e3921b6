"""All pages of the dashboard, and all actions of their forms."""

from __future__ import annotations

from types import ModuleType

from leasehold.surfaces.dashboard.page import Action, DashboardPage
from leasehold.surfaces.dashboard.pages import (
    bulk,
    flow,
    groups,
    job,
    jobs,
    lanes,
    limits,
    overview,
    questions,
    schedules,
    system,
    workers,
)

_PARTS: tuple[ModuleType, ...] = (
    overview,
    jobs,
    job,
    flow,
    bulk,
    workers,
    limits,
    schedules,
    lanes,
    groups,
    questions,
    system,
)


def _pages(part: ModuleType) -> tuple[DashboardPage, ...]:
    found: tuple[DashboardPage, ...] = part.PAGES if hasattr(part, "PAGES") else (part.PAGE,)
    return found


def _actions(part: ModuleType) -> tuple[Action, ...]:
    found: tuple[Action, ...] = getattr(part, "ACTIONS", ())
    return found


ALL: tuple[DashboardPage, ...] = tuple(page for part in _PARTS for page in _pages(part))
_EVERY_ACTION = [action for part in _PARTS for action in _actions(part)]
ACTIONS: dict[str, Action] = {action.name: action for action in _EVERY_ACTION}
assert len(ACTIONS) == len(_EVERY_ACTION), "two pages have an action of the same name"
