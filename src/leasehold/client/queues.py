"""`app.queues`, `app.tasks`, `app.lanes`, `app.slots` and `app.rates`, which operators pause and limit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from leasehold.client.job import FindTask, Job
from leasehold.domain.limits import PauseOptions, PauseWindow
from leasehold.domain.records import LaneHolder, PauseRecord, QueueRow, RateRow, Scope, SlotRow, TaskCard
from leasehold.operations import limits, queues
from leasehold.operations.local import Operator
from leasehold.threads import aio

_Cards = list[TaskCard]
"""An alias, because `list` is a method below."""


class Pausable:
    """Base of `app.queues` and `app.tasks`: pause and resume."""

    def __init__(self, operator: Operator, scope: Scope) -> None:
        self._operator = operator
        self._scope = scope

    def pause(self, name: str, **closing: Unpack[PauseOptions]) -> PauseRecord:
        """Pause a queue or task: no jobs of it start, `for_` a duration, `until` an instant, or until `resume`. Running
        jobs go on. `explain()` shows `reason` and `actor`."""
        verb = queues.pause_queue if self._scope == "queue" else queues.pause_task
        return self._operator.call(verb, name, **PauseWindow(**closing).arguments)

    apause = aio(pause)

    def resume(self, name: str, *, actor: str | None = None) -> bool:
        """Resume a queue or task: its jobs start again. False: it was not paused."""
        verb = queues.resume_queue if self._scope == "queue" else queues.resume_task
        return self._operator.call(verb, name, actor=actor)

    aresume = aio(resume)

    def paused(self) -> list[PauseRecord]:
        """List the pauses now in force."""
        return [pause for pause in self._operator.call(queues.list_pauses) if pause.scope == self._scope]

    apaused = aio(paused)


class Queues(Pausable):
    """The queues."""

    def __init__(self, operator: Operator) -> None:
        super().__init__(operator, "queue")

    def list(self) -> list[QueueRow]:
        """List every known task in every queue, with live workers, pauses and jobs by state."""
        return self._operator.call(queues.list_queues)

    alist = aio(list)


class Tasks(Pausable):
    """The tasks."""

    def __init__(self, operator: Operator, cards: Callable[[], _Cards]) -> None:
        super().__init__(operator, "task")
        self._cards = cards

    def list(self) -> list[TaskCard]:
        """List the tasks that can be enqueued, by name, with the JSON Schemas of their arguments and results."""
        return self._cards()

    alist = aio(list)


class Lanes:
    """The lanes."""

    def __init__(self, operator: Operator, find_task: FindTask) -> None:
        self._operator = operator
        self._find_task = find_task

    def resume(self, name: str, *, actor: str | None = None) -> Job[Any] | None:
        """Resume the job that halts the lane. None: nothing halts it."""
        row = self._operator.call(queues.resume_lane, name, actor=actor)
        return None if row is None else Job(row.id, self._operator, self._find_task, row)

    aresume = aio(resume)

    def list(self) -> list[LaneHolder]:
        """List lanes that are held or halted, each with the job that runs in it or halts it."""
        return self._operator.call(queues.list_lanes)

    alist = aio(list)


# -- slots and rates ---------------------------------------------------------------------------------------------------


class Slots:
    """Named resources with a number of units each: `app.slots.set("browser", 4)`."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def set(self, name: str, limit: int, *, actor: str | None = None) -> None:
        """Let at most `limit` units be in use at once, across all workers. 0 closes the slot; running jobs go on."""
        self._operator.call(limits.set_slot, name, limit, actor=actor)

    aset = aio(set)

    def list(self) -> list[SlotRow]:
        """List every slot with its limit, the units in use, and the first 20 jobs that hold them."""
        return self._operator.call(limits.list_slots)

    alist = aio(list)


class Rates:
    """How often jobs of a key may start: `app.rates.set("openai", "60/min", burst=1)`."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    def set(self, key: str, limit: str, *, burst: int = 1, actor: str | None = None) -> None:
        """Set how often jobs of a key may start: evenly spaced ("60/min" is one a second), up to `burst` at once after
        a quiet time. In any window of W seconds, never more than W times the rate, plus `burst`."""
        self._operator.call(limits.set_rate, key, limit, burst=burst, actor=actor)

    aset = aio(set)

    def close(self, key: str, **closing: Unpack[PauseOptions]) -> None:
        """Close a rate: no job of this key starts, on any worker, `for_` a duration, `until` an instant, or until
        `open`. Running jobs go on. `explain()` shows `reason` and `actor`."""
        self._operator.call(limits.close_rate, key, **PauseWindow(**closing).arguments)

    aclose = aio(close)

    def open(self, key: str, *, actor: str | None = None) -> bool:
        """Open a rate: jobs of this key start again. False: it was not closed."""
        return self._operator.call(limits.open_rate, key, actor=actor)

    aopen = aio(open)

    def list(self) -> list[RateRow]:
        """List every key with its limit, when the next job may start, and who closed it, why and until when."""
        return self._operator.call(limits.list_rates)

    alist = aio(list)
