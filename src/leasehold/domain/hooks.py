"""Hooks: which notifications there are, and which of them a transition of a job causes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import Any

from leasehold.domain.budgets import BudgetLine
from leasehold.domain.errors import InvalidInput
from leasehold.domain.frozen import frozen
from leasehold.domain.job import Job
from leasehold.domain.outcome import QuestionAsked
from leasehold.domain.states import State
from leasehold.domain.stream import STALLED
from leasehold.domain.transitions import Move

SUCCEEDED, LOST, ADOPTED, REQUEUED = "succeeded", "lost", "adopted", "requeued"
LANE_HALTED, BUDGET_EXHAUSTED, GROUP_DONE = "lane_halted", "budget_exhausted", "group_done"
QUESTION = "question"
EVENTS = (
    SUCCEEDED,
    "failed",
    "timed_out",
    "cancelled",
    "paused",
    REQUEUED,
    LOST,
    ADOPTED,
    LANE_HALTED,
    BUDGET_EXHAUSTED,
    GROUP_DONE,
    STALLED,
    QUESTION,
)
"""The notifications that a hook can be registered for."""

WEBHOOK_TASK = "leasehold.webhook"
"""The task that posts to webhooks (also in settle.sql). Its jobs cause no notifications: a failure would cause one."""

LONGEST_ERROR = 2000

MOST_TRIES = 10
LONGEST_DELAY = 300.0


@frozen
class Notification:
    """The argument of a hook. `job_id` is empty for a notification about a group alone."""

    name: str
    job_id: str
    task: str
    queue: str
    attempt: int
    detail: str
    data: dict[str, Any] = field(default_factory=dict)
    id: str = ""
    """Stays the same if the notification is delivered a second time."""
    at: datetime | None = None
    group: str | None = None
    tenant: str | None = None
    """None: a job of the app's own store."""


@frozen
class Happened:
    """A notification to be written to the outbox."""

    event: str
    job_id: str | None
    task: str
    queue: str
    attempt: int
    group: str | None
    detail: str
    data: Mapping[str, Any]


@frozen
class Listener:
    """A subscription to one notification, for jobs of one task or (if empty) of all tasks."""

    name: str
    event: str
    task: str = ""
    webhook: bool = False

    def wants(self, happened: Happened) -> bool:
        return self.event == happened.event and self.task in ("", happened.task)


@frozen
class ListenerRow:
    """A listener as lists show it."""

    name: str
    event: str
    task: str
    webhook: bool
    since: datetime
    seen_at: datetime | None
    """When a process last registered it from its code; None: it was made by hand."""
    waiting: int
    """Notifications that were not delivered yet."""
    given_up: int
    """Notifications whose delivery was given up."""
    last_error: str | None


@frozen
class Delivery:
    """A notification taken from the outbox, for one listener."""

    listener: str
    event: Notification
    tries: int


def checked_events(names: Sequence[str], field: str = "on") -> tuple[str, ...]:
    known = ", ".join(map(repr, EVENTS))
    if not names:
        raise InvalidInput(field, "names nothing to wait for", f"known: {known}")
    for name in names:
        if name not in EVENTS:
            raise InvalidInput(field, f"{name!r} is not known", f"known: {known}")
    return tuple(dict.fromkeys(names))


def retry_in(tries: int) -> float | None:
    """Seconds until a notification is delivered again after this many failures of its hook; None: never."""
    return None if tries >= MOST_TRIES else min(LONGEST_DELAY, 2.0 ** (tries - 1))


_BY_STATE = {
    State.SUCCEEDED: SUCCEEDED,
    State.FAILED: "failed",
    State.TIMED_OUT: "timed_out",
    State.CANCELLED: "cancelled",
    State.PAUSED: "paused",
}


def happened_in(moves: Iterable[Move]) -> list[Happened]:
    """Return the notifications that these transitions cause."""
    return [one for move in moves if move.job.task != WEBHOOK_TASK for one in _happened(move)]


def _happened(move: Move) -> Iterator[Happened]:
    before, job = move.before, move.job
    if move.event in (LOST, ADOPTED):
        yield _of(move, move.event)
    if before.state is not job.state:
        if job.state in _BY_STATE:
            yield _of(move, _BY_STATE[job.state])
        elif job.state is State.QUEUED and before.state is not State.PENDING:
            yield _of(move, REQUEUED)
    elif job.state is State.QUEUED and job.available_at != before.available_at:
        yield _of(move, REQUEUED)
    if job.halts_lane and not before.halts_lane:
        yield _of(move, LANE_HALTED)
    if move.asks is not None:
        for question in move.asks.questions:
            yield _requested(job, question)


def _of(move: Move, event: str) -> Happened:
    job = move.job
    detail = move.detail or job.reason or (job.error if event != SUCCEEDED else None) or ""
    data: dict[str, Any] = {} if event == SUCCEEDED else _facts(move)
    return Happened(event, job.id, job.task, job.queue, job.attempt, job.group, detail, data)


def _facts(move: Move) -> dict[str, Any]:
    job = move.job
    facts: dict[str, Any] = {"from": move.before.state.value, "state": job.state.value}
    if move.event is not None:
        facts["why"] = move.event
    for name, value in (("actor", move.actor), ("reason", job.reason), ("lane", job.lane)):
        if value is not None:
            facts[name] = value
    if job.error is not None and job.state is not State.SUCCEEDED:
        facts["error"] = job.error[:LONGEST_ERROR]
    if job.state is State.QUEUED:
        facts["available_at"] = job.available_at.isoformat()
    return facts


def _requested(job: Job, question: QuestionAsked) -> Happened:
    data = {
        "key": question.key,
        "text": question.text,
        "schema": None if question.schema is None else json.loads(question.schema),
        "secret": question.secret,
        "group": job.group,
    }
    return Happened(QUESTION, job.id, job.task, job.queue, job.attempt, job.group, question.text, data)


def group_is_done(name: str, version: int) -> Happened:
    detail = "no job of the group is left that could run"
    return Happened(GROUP_DONE, None, "", "", 0, name, detail, {"version": version})


def budget_is_exhausted(line: BudgetLine, job_id: str | None, task: str, group: str | None) -> Happened:
    """Build the notification. `version` only grows: a repeat has the same value, the next breach a higher one."""
    data = {
        "scope": line.scope,
        "name": line.name,
        "unit": line.unit,
        "limit": line.limit,
        "spent": line.spent,
        "version": line.spent,
    }
    return Happened(BUDGET_EXHAUSTED, job_id, task, "", 0, group, line.describe(), data)
