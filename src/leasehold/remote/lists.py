"""Lists, as requests: pages of jobs, groups, budgets, leases and of the audit, and what runs outside of workers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from leasehold.domain.budgets import checked_owner
from leasehold.domain.checks.texts import checked_criterion
from leasehold.domain.groups import checked_group_state
from leasehold.errors import InvalidInput
from leasehold.remote import decode
from leasehold.remote.exchange import Talk, get, once
from leasehold.remote.values import Page
from leasehold.types import (
    AuditPage,
    BudgetOwner,
    BudgetPage,
    ExecutionRow,
    GroupPage,
    GroupState,
    LeasePage,
    State,
)


def listing(states: Iterable[State], limit: int, before: str | None, **criteria: str | None) -> Talk[Page]:
    named = [state.value for state in states]
    ask = get("/v1/jobs", state=named, limit=limit, cursor=_text(before, "before"), **_texts(criteria))
    return once(ask, decode.page)


def groups(state: GroupState | None, limit: int, cursor: str | None) -> Talk[GroupPage]:
    named = checked_group_state(state)
    return once(get("/v1/groups", state=named, limit=limit, cursor=_text(cursor, "cursor")), decode.groups)


def budgets(scope: BudgetOwner | None, limit: int, cursor: str | None) -> Talk[BudgetPage]:
    named = checked_owner(scope)
    return once(get("/v1/budgets", scope=named, limit=limit, cursor=_text(cursor, "cursor")), decode.budgets)


def leases(worker: str | None, limit: int, cursor: str | None) -> Talk[LeasePage]:
    worker = _text(worker, "worker")
    return once(get("/v1/leases", worker=worker, limit=limit, cursor=_text(cursor, "cursor")), decode.leases)


def executions(limit: int) -> Talk[list[ExecutionRow]]:
    return once(get("/v1/executions", limit=limit), decode.executions)


def audit(limit: int, cursor: str | None, **criteria: str | None) -> Talk[AuditPage]:
    ask = get("/v1/audit", limit=limit, cursor=_text(cursor, "cursor"), **_texts(criteria))
    return once(ask, decode.audit)


def _texts(criteria: Mapping[str, str | None]) -> dict[str, Any]:
    return {name: _text(value, name) for name, value in criteria.items()}


def _text(value: str | None, field: str) -> str | None:
    """The server takes an empty one for none: it would tell of everything, or the first page again."""
    if checked_criterion(value, field) == "":
        raise InvalidInput(field, "is empty", "give a text, or leave it out")
    return value
