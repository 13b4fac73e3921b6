"""Tasks that plain SQL can enqueue: their jobs are one row and a place in the queue, and nothing else."""

from __future__ import annotations

from dataclasses import replace

from leasehold.domain.checks.durations import seconds
from leasehold.domain.checks.ids import LOWEST_ID
from leasehold.domain.checks.numbers import priority_number
from leasehold.domain.errors import InvalidInput
from leasehold.domain.job import NewJob
from leasehold.tasks.definition import TaskDefinition

_BESIDE = ("lane", "unique", "tags", "slots", "rate", "deadline", "start_by", "mirror")
"""Settings that need rows in other tables; most are built from the arguments."""


def job_by_sql(definition: TaskDefinition) -> NewJob:
    """Build a model job of this task for SQL to copy. Raises InvalidInput for settings that SQL cannot apply."""
    settings = definition.settings
    for name in _BESIDE:
        if getattr(settings, name):
            raise InvalidInput(
                name,
                f"task {definition.name!r} has one, and a plain INSERT cannot apply it",
                "let a task without it enqueue this one, or enqueue it from Python",
            )
    if not settings.queueing:
        raise InvalidInput("queueing", f"is off for task {definition.name!r}", "use run-now")
    return NewJob(
        id=LOWEST_ID,
        task=definition.name,
        args="{}",
        queue=settings.queue,
        priority=priority_number(settings.priority),
        lease_seconds=seconds(settings.lease, "lease", positive=True),
        policy=replace(settings.policy(), sensitive=definition.sensitive),
    )
